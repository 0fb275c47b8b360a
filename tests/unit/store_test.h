/*
 * What the tests of stores share: a clock that stands where it is put, stores and limits that must
 * open, a directory of one's own.
 */
#ifndef WEIR_STORE_TEST_H
#define WEIR_STORE_TEST_H

#include "store/store.h"
#include "test.h"
#include "weir.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
/* Midnight: every window up to a day starts here. */
#define START (INT64_C(19676) * DAY)

static inline int64_t test_clock_now(void *context)
{
    return atomic_load((_Atomic int64_t *)context);
}

static inline void test_clock_sleep(void *context, int64_t us)
{
    atomic_fetch_add((_Atomic int64_t *)context, us);
}

/* The store reads *now; its sleeps move it on. */
static inline void test_use_clock(weir_store *store, _Atomic int64_t *now)
{
    weir_clock clock = {test_clock_now, test_clock_sleep, now};
    weir_store_set_clock(store, &clock);
}

static inline void test_give_up(const char *what, const char *why)
{
    printf("%s: %s\n", what, why);
    fflush(stdout);
    exit(1);
}

#define TEST_PATIENCE                                                                              \
    (60 * SECOND) /* for a lock: this machine may be busy, which is not what is tested */

static inline weir_store *test_open(const char *url, _Atomic int64_t *now)
{
    weir_store *store = NULL;
    weir_error err = {0};
    if (weir_store_open(url, &store, &err))
        test_give_up(url, err.message);
    weir__store_be_patient(store, TEST_PATIENCE);
    if (now)
        test_use_clock(store, now);
    return store;
}

static inline weir_limit *test_limit(const char *text)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    if (weir_limit_parse(text, &limit, &err))
        test_give_up(text, err.message);
    return limit;
}

__attribute__((format(printf, 1, 2))) static inline weir_limit *test_limit_of(const char *format,
                                                                              ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return test_limit(text);
}

/* A take that must work, whatever it decides. */
static inline weir_decision test_take(weir_store *store, const char *key, const weir_limit *limit,
                                      int64_t cost)
{
    weir_decision decision = {0};
    CHECK_INT(weir_take(store, weir_key_text(key), limit, cost, &decision), 0);
    return decision;
}

static inline weir_decision test_peek(weir_store *store, const char *key, const weir_limit *limit,
                                      int64_t cost)
{
    weir_decision decision = {0};
    CHECK_INT(weir_peek(store, weir_key_text(key), limit, cost, &decision), 0);
    return decision;
}

static inline void test_sound(weir_store *store)
{
    weir_error err = {0};
    int code = weir_store_check(store, &err);
    test_check(code == 0, __FILE__, __LINE__, code ? err.message : "sound");
}

static inline weir_zone_info test_info(weir_store *store)
{
    weir_zone_info info = {0};
    CHECK_INT(weir_store_info(store, &info), 0);
    return info;
}

/* Opening it fails so, and says so. */
static inline void test_refused(const char *file, int line, const char *address, int code,
                                const char *named, const char *fix)
{
    weir_store *store = NULL;
    weir_error err = {0};
    char what[2000];
    int got = weir_store_open(address, &store, &err);
    snprintf(what, sizeof what, "%s gave %s (%s), expected %s with \"%s\" and \"%s\"", address,
             weir_errname(got), err.message, weir_errname(code), named, fix);
    test_check(got == code && err.code == code && !store && strstr(err.message, named) &&
                   strstr(err.message, fix),
               file, line, what);
    weir_store_close(store);
}

/* A directory nobody else uses. */
static inline const char *test_directory(void)
{
    static char path[128];
    if (!path[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(path, sizeof path, "%.100s/weir-test-XXXXXX", base && base[0] ? base : "/tmp");
        if (!mkdtemp(path))
            test_give_up(path, "cannot make a directory; set TMPDIR to one that can be written");
    }
    return path;
}

/* The ways a zone can lie in memory, with addresses of this process's own. */
enum test_kind { TEST_MEMORY, TEST_SHM, TEST_FILE, TEST_KINDS };

static inline const char *test_path(enum test_kind kind, const char *name)
{
    static char path[256];
    if (kind == TEST_SHM)
        snprintf(path, sizeof path, "/weir-test-%d-%s", (int)getpid(), name);
    else
        snprintf(path, sizeof path, "%s/%s", test_directory(), name);
    return path;
}

/* Its address with the options (`size=1m`); the caller's until the next call. */
static inline const char *test_url(enum test_kind kind, const char *name, const char *options)
{
    static const char *const schemes[] = {"memory:", "shm:", "file:"};
    static char url[512];
    snprintf(url, sizeof url, "%s%s?%s", schemes[kind],
             kind == TEST_MEMORY ? "" : test_path(kind, name), options);
    return url;
}

static inline void test_remove(enum test_kind kind, const char *name)
{
    if (kind == TEST_SHM)
        shm_unlink(test_path(kind, name));
    else if (kind == TEST_FILE)
        unlink(test_path(kind, name));
}

/* At the end, when its files are removed. */
static inline void test_remove_directory(void)
{
    rmdir(test_directory());
}

#endif

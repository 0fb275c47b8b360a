/*
 * Nobody stops the world: how many locks each piece of work has at once, and how often it lets go
 * of them. The mutexes of a shared zone are counted here, so the answer does not depend on how fast
 * the machine is.
 *
 *     lock_sections [SIZE KEYS]
 *
 * With a size it also says how much processor time somebody had a lock for, in a zone of that size
 * with so many keys (1g 3000000). How long others wait is more if that one loses its core
 * meanwhile.
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "store/zone/rows.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

/* What was locked since `watch`. */
static struct {
    const struct weir__zone *zone;
    int stripes, others;           /* held now */
    int most_stripes, most_others; /* held at once */
    long stripe_locks;             /* how often */
    const pthread_mutex_t *held[16];
    int64_t since_ns[16], longest_ns; /* of processor time */
} seen;
static bool timed;

static _Atomic int64_t now = START;

static void watch(const weir_store *store)
{
    memset(&seen, 0, sizeof seen);
    seen.zone = test_zone((weir_store *)store);
}

static bool is_stripe(const pthread_mutex_t *mutex)
{
    const struct weir__stripe *stripe = (const struct weir__stripe *)(const void *)mutex;
    return stripe < seen.zone->stripes + seen.zone->layout.stripes;
}

static bool is_watched(const pthread_mutex_t *mutex)
{
    if (!seen.zone)
        return false;
    const uint8_t *at = (const uint8_t *)mutex, *first = (const uint8_t *)seen.zone->stripes;
    return at >= first &&
           at < first + weir__lock_count(&seen.zone->layout) * sizeof(struct weir__stripe);
}

static int64_t worked_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static void time_lock(const pthread_mutex_t *mutex, bool locked)
{
    for (int i = 0; i < 16; i++) {
        if (seen.held[i] != (locked ? NULL : mutex))
            continue;
        int64_t now_ns = worked_ns(), took_ns = now_ns - seen.since_ns[i];
        seen.held[i] = locked ? mutex : NULL;
        seen.since_ns[i] = now_ns;
        if (!locked && took_ns > seen.longest_ns)
            seen.longest_ns = took_ns;
        return;
    }
}

static int count(pthread_mutex_t *mutex, int code)
{
    if (!is_watched(mutex) || (code != 0 && code != EOWNERDEAD))
        return code;
    if (timed)
        time_lock(mutex, true);
    if (is_stripe(mutex)) {
        seen.stripe_locks++;
        seen.stripes++;
        seen.most_stripes = seen.stripes > seen.most_stripes ? seen.stripes : seen.most_stripes;
    } else {
        seen.others++;
        seen.most_others = seen.others > seen.most_others ? seen.others : seen.most_others;
    }
    return code;
}

int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return count(mutex, __real_pthread_mutex_trylock(mutex));
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (is_watched(mutex)) {
        if (timed)
            time_lock(mutex, false);
        if (is_stripe(mutex))
            seen.stripes--;
        else
            seen.others--;
    }
    return __real_pthread_mutex_unlock(mutex);
}

static void expect(const char *what, int stripes, int others)
{
    char words[160];
    snprintf(words, sizeof words, "%s: %d stripes and %d other locks at once, not %d and %d", what,
             seen.most_stripes, seen.most_others, stripes, others);
    test_check(seen.most_stripes <= stripes && seen.most_others <= others, __FILE__, __LINE__,
               words);
    CHECK_INT(seen.stripes, 0);
    CHECK_INT(seen.others, 0);
    if (timed)
        printf("%-30s had a lock for %8.1f µs at most\n", what, (double)seen.longest_ns / 1e3);
}

static const char *name_key(const char *what, int i)
{
    static char key[32];
    snprintf(key, sizeof key, "%.12s %d", what, i);
    return key;
}

static void fill(weir_store *store, int keys)
{
    weir_limit *bucket = test_limit("token-bucket 10/d"), *log = test_limit("sliding-log 10/d");
    for (int i = 0; i < keys; i++)
        test_take(store, name_key("key", i), i % 4 ? bucket : log, 1);
    weir_limit_free(bucket);
    weir_limit_free(log);
}

/* One page, some rows or one arena at a time. */
static void test_looking(weir_store *store)
{
    watch(store);
    test_sound(store);
    expect("check", 1, 1);
    CHECK(seen.stripe_locks >= test_zone(store)->layout.pages);
    watch(store);
    test_info(store);
    expect("info", 1, 1);
}

/* New keys where the area for large states is full: the key's own stripe and one that is tried. */
static void test_full(weir_store *store)
{
    weir_limit *log = test_limit("sliding-log 10/d"), *large = test_limit("sliding-log 500/d");
    watch(store);
    for (int i = 0; i < 10000; i++)
        test_take(store, name_key("new", i), log, 1);
    for (int i = 0; i < 500; i++, now++)
        test_take(store, "large", large, 1);
    expect("a full area for large states", 2, 1);
    if (!timed)
        CHECK(test_info(store).evicted_unused + test_info(store).evicted_soonest > 1000);
    weir_limit_free(log);
    weir_limit_free(large);
}

/* More limits than there are rows (in a small zone), and a whole sweep. */
static void test_limits(weir_store *store)
{
    watch(store);
    for (int i = 0; i < 8000; i++) {
        weir_limit *limit = test_limit_of("fixed-window %d/s", i + 1);
        weir_decision decision;
        int code = weir_take(store, weir_key_text("limits"), limit, 1, &decision);
        CHECK(code == 0 || code == WEIR_EFULL);
        weir_limit_free(limit);
        now += SECOND;
    }
    struct weir__zone *zone = test_zone(store);
    now += SECOND;
    CHECK(weir__sweep_help(zone, now, WEIR__SWEEP_NOW, 1));
    while (weir__sweep_help(zone, now, WEIR__SWEEP_GO_ON, 1000))
        ;
    CHECK(seen.stripe_locks > 2 * (long)zone->layout.pages);
    expect("a sweep of limits", 1, 2);
}

/* A process that died with locks: each is repaired by itself, when it is asked for. */
static void test_death(weir_store *store)
{
    struct weir__zone *zone = test_zone(store);
    weir_limit *log = test_limit("sliding-log 10/d");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++) {
            if (!weir__stripe_lock(zone, i))
                _exit(1);
        }
        _exit(0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
    watch(store);
    for (int i = 0; i < 2000; i++)
        test_take(store, name_key("after", i), log, 1);
    expect("repairs", 2, 1);
    test_sound(store);
    expect("check after a death", 2, 1);
    weir_limit_free(log);
}

int main(int argc, char **argv)
{
    char options[64];
    timed = argc > 2;
    snprintf(options, sizeof options, "size=%.16s&large=30%%", timed ? argv[1] : "2m");
    weir_store *store = test_open(test_url(TEST_SHM, "sections", options), &now);
    fill(store, timed ? atoi(argv[2]) : 20000);
    test_looking(store);
    test_full(store);
    test_death(store);
    test_limits(store);
    test_sound(store);
    seen.zone = NULL;
    weir_store_close(store);
    test_remove(TEST_SHM, "sections");
    return test_report();
}

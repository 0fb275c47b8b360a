/*
 * What the tests of waits share: a store, a clock that waits for the test, threads that wait. Order
 * is counted, not timed: every thread has its spot before the first one is served.
 */
#ifndef WEIR_WAITS_TEST_H
#define WEIR_WAITS_TEST_H

#include "../unit/store_test.h"

#include "store/wait.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>

#define THREADS 8
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Atomic int64_t now = START;
static weir_store *store;

/* ---- a clock that waits for the test ---- */

static _Atomic bool gate; /* open: sleeps go on */
static _Atomic int sleeping;

static inline void gated_sleep(void *context, int64_t us)
{
    atomic_fetch_add(&sleeping, 1);
    while (!atomic_load(&gate))
        sched_yield();
    atomic_fetch_sub(&sleeping, 1);
    test_clock_sleep(context, us);
}

static inline void begin_virtual(bool open)
{
    weir_clock clock = {test_clock_now, gated_sleep, &now};
    now = START;
    gate = open;
    store = test_open("memory:256k?large=30%", NULL);
    weir_store_set_clock(store, &clock);
}

static inline void begin_real(void)
{
    store = test_open("memory:256k?large=30%", NULL);
}

static inline void end(void)
{
    CHECK_INT(weir__waiting_count(store), 0);
    test_sound(store);
    weir_store_close(store);
}

static inline void await_spots(uint32_t n)
{
    while (weir__waiting_count(store) != n)
        sched_yield();
}

/* ---- a thread that waits ---- */

struct waiting {
    const weir_limit *limit;
    const char *key;
    int64_t cost, max_us;
    bool acquire;
    weir_wait_options options;
    /* out */
    pthread_t thread;
    int code;
    int turn; /* which of all it was that came back */
    weir_decision decision;
    _Atomic bool done;
};

static _Atomic int turns;

static inline void *waiting_run(void *argument)
{
    struct waiting *it = argument;
    weir_request request = weir_request_make(weir_key_text(it->key ? it->key : "key"), it->limit);
    request.cost = it->cost ? it->cost : 1;
    request.acquire = it->acquire;
    it->options.max_wait_us = it->max_us ? it->max_us : WEIR_WAIT_ANY;
    it->code = weir_wait_with(store, &request, &it->options, &it->decision);
    it->turn = atomic_fetch_add(&turns, 1);
    atomic_store(&it->done, true);
    return NULL;
}

static inline void waiting_start(struct waiting *it)
{
    CHECK_INT(pthread_create(&it->thread, NULL, waiting_run, it), 0);
}

static inline void waiting_join(struct waiting *it)
{
    CHECK_INT(pthread_join(it->thread, NULL), 0);
}

static inline weir_waiter *make_waiter(void)
{
    weir_waiter *waiter = NULL;
    CHECK_INT(weir_waiter_create(&waiter, NULL), 0);
    return waiter;
}

/* ---- nothing is left ---- */

static inline int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

#endif

/*
 * weir_store_counts: every take is counted once, by its answer, whoever makes it. Threads count
 * without an atomic addition, so this is about what could be lost: more threads than there are
 * seats, threads that end while others begin, readers meanwhile.
 *
 *     threads_counts [TURNS]
 */
#include "../unit/store_test.h"
#include "base/seat.h"

#include <pthread.h>

#define CROWD (WEIR__SEATS + 8) /* some of them have no seat */

struct counted {
    weir_store *store;
    weir_limit *limit, *shaping;
    int turns;
    _Atomic uint64_t allowed, denied, delayed;
    _Atomic bool done;
    pthread_barrier_t start;
};

static weir_counts counts_of(const weir_store *store)
{
    weir_counts counts = {0};
    CHECK_INT(weir_store_counts(store, &counts), 0);
    return counts;
}

static void counted_add(struct counted *it, const weir_decision *decision)
{
    it->allowed += decision->allowed;
    it->denied += !decision->allowed;
    it->delayed += decision->delay_us > 0;
}

/* A take by every verb. */
static void *counted_take(void *argument)
{
    struct counted *it = argument;
    weir_key key = weir_key_text("k");
    pthread_barrier_wait(&it->start);
    for (int turn = 0; turn < it->turns; turn++) {
        weir_request requests[3] = {weir_request_make(key, it->limit),
                                    weir_request_make(weir_key_text("s"), it->shaping),
                                    weir_request_make(key, it->limit)};
        weir_decision decisions[3] = {0};
        if (weir_take(it->store, key, it->limit, 1, &decisions[0]) == 0)
            counted_add(it, &decisions[0]);
        if (weir_take_all(it->store, requests, 2, &decisions[0]) == 0)
            counted_add(it, &decisions[0]);
        if (weir_take_many(it->store, requests, 3, decisions) == 0) {
            for (int i = 0; i < 3; i++)
                counted_add(it, &decisions[i]);
        }
        if (weir_peek(it->store, key, it->limit, 1, &decisions[0]))
            break;
    }
    return NULL;
}

/* A sum never runs back, and is never torn. */
static void *counted_watch(void *argument)
{
    struct counted *it = argument;
    uint64_t last = 0, most = (uint64_t)CROWD * (uint64_t)it->turns * 5;
    while (!it->done) {
        weir_counts counts = {0};
        if (weir_store_counts(it->store, &counts) || counts.allowed + counts.denied < last ||
            counts.allowed + counts.denied > most)
            return it;
        last = counts.allowed + counts.denied;
    }
    return NULL;
}

static void test_crowd(int turns)
{
    _Atomic int64_t now = START;
    struct counted it = {.turns = turns};
    it.store = test_open("memory:1m", &now);
    it.limit = test_limit_of("fixed-window %d/d", turns * CROWD * 2);
    it.shaping = test_limit("leaky-bucket 1000/s burst 1000000");
    pthread_t threads[CROWD], watcher;
    void *wrong;
    pthread_barrier_init(&it.start, NULL, CROWD);
    pthread_create(&watcher, NULL, counted_watch, &it);
    for (int i = 0; i < CROWD; i++)
        pthread_create(&threads[i], NULL, counted_take, &it);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    it.done = true;
    pthread_join(watcher, &wrong);
    CHECK(!wrong);
    weir_counts counts = counts_of(it.store);
    CHECK_INT(counts.allowed, it.allowed);
    CHECK_INT(counts.denied, it.denied);
    CHECK_INT(counts.delayed, it.delayed);
    CHECK_INT(counts.failed + counts.degraded, 0);
    CHECK_INT(counts.allowed + counts.denied, (int64_t)turns * CROWD * 5);
    CHECK(counts.denied > 0 && counts.delayed > 0);
    weir_limit_free(it.limit);
    weir_limit_free(it.shaping);
    weir_store_close(it.store);
    pthread_barrier_destroy(&it.start);
}

/* Threads that come and go use the same seats again: no count of one that ended is lost. */
static void *counted_once(void *argument)
{
    struct counted *it = argument;
    weir_decision decision;
    if (weir_take(it->store, weir_key_text("k"), it->limit, 1, &decision))
        return it;
    it->allowed += weir__seat > 0; /* had a seat */
    return NULL;
}

static void test_comings_and_goings(void)
{
    enum { ROUNDS = 3 * WEIR__SEATS };
    struct counted it = {0};
    it.store = test_open("memory:1m", NULL);
    it.limit = test_limit("fixed-window 100/d");
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t one, other;
        void *failed = NULL;
        pthread_create(&one, NULL, counted_once, &it);
        pthread_create(&other, NULL, counted_once, &it);
        pthread_join(one, &failed);
        CHECK(!failed);
        pthread_join(other, &failed);
        CHECK(!failed);
    }
    weir_counts counts = counts_of(it.store);
    CHECK_INT(counts.allowed, 100);
    CHECK_INT(counts.denied, 2 * ROUNDS - 100);
    CHECK_INT(it.allowed, 2 * ROUNDS); /* seats are given back */
    weir_limit_free(it.limit);
    weir_store_close(it.store);
}

/* Failures, and stores that are counted apart. */
static void test_failures(void)
{
    weir_store *store = test_open("memory:64k", NULL), *other = test_open("memory:64k", NULL);
    weir_limit *huge = test_limit("sliding-log 100000/d"), *limit = test_limit("token-bucket 1/s");
    weir_decision decision, many[2];
    weir_request requests[2] = {weir_request_make(weir_key_text("k"), huge),
                                weir_request_make(weir_key_text("k"), limit)};
    CHECK_INT(weir_take(store, weir_key_text("k"), huge, 1, &decision), WEIR_EFULL);
    CHECK_INT(weir_take_all(store, requests, 1, &decision), WEIR_EFULL);
    CHECK_INT(weir_take_many(store, requests, 2, many), WEIR_EFULL);
    CHECK_INT(weir_take(store, weir_key_text(""), limit, 1, &decision), WEIR_EINVAL);
    weir_counts counts = counts_of(store);
    CHECK_INT(counts.failed, 3);
    CHECK_INT(counts.allowed, 1);
    CHECK_INT(counts.denied, 0);
    counts = counts_of(other);
    CHECK_INT(counts.failed + counts.allowed + counts.denied, 0);
    weir_limit_free(huge);
    weir_limit_free(limit);
    weir_store_close(store);
    weir_store_close(other);
}

int main(int argc, char **argv)
{
    test_comings_and_goings(); /* first: while seats are free */
    test_crowd(argc > 1 ? atoi(argv[1]) : 200);
    test_failures();
    return test_report();
}

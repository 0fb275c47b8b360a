/*
 * Many threads, few keys and many, every algorithm, every kind of store: what is admitted in total
 * is exactly what the limit allows. The clock stands still, is moved on while nobody asks, stands
 * still.
 *
 *     threads [ROUNDS [PART]]      PART, 1 or 5: so many times smaller limits, and attempts
 */
#include "../unit/store_inside.h"
#include "cases.h"

#include <pthread.h>

#define THREADS 8
#define KEYS_MAX 200

struct run {
    weir_store *store;
    const struct test_case *it;
    const weir_limit *limit;
    int keys, attempts; /* of each thread at each key, in each phase */
    int round;
    pthread_barrier_t barrier;
    _Atomic int64_t now;
    _Atomic long admitted[PHASES][KEYS_MAX];
    _Atomic long failures;
};

struct worker {
    struct run *run;
    int number;
};

static void ask(struct run *run, int phase, int number, int key)
{
    char text[64];
    weir_decision decision;
    snprintf(text, sizeof text, "%s/%d/%d", run->it->limit, run->round, key);
    weir_key name = weir_key_text(text);
    weir_hashed_key hashed;
    if (weir_key_hash(run->store, name, &hashed))
        atomic_fetch_add(&run->failures, 1);
    for (int i = 0; i < run->attempts; i++) {
        if (test_case_ask(run->store, name, number % 2 ? &hashed : NULL, run->it, run->limit,
                          &decision))
            atomic_fetch_add(&run->failures, 1);
        else if (decision.allowed)
            atomic_fetch_add(&run->admitted[phase][key], 1);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct run *run = worker->run;
    for (int phase = 0; phase < PHASES; phase++) {
        pthread_barrier_wait(&run->barrier);
        for (int i = 0; i < run->keys; i++)
            ask(run, phase, worker->number, (i + worker->number * 3) % run->keys);
        pthread_barrier_wait(&run->barrier);
    }
    return NULL;
}

/* Runs the threads through all phases, moving the clock between them. */
static void run_threads(struct run *run)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    pthread_barrier_init(&run->barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){run, i};
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int phase = 0; phase < PHASES; phase++) {
        pthread_barrier_wait(&run->barrier);
        pthread_barrier_wait(&run->barrier);
        atomic_fetch_add(&run->now, run->it->step_us);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&run->barrier);
}

static void compare(struct run *run, int n)
{
    for (int phase = 0; phase < PHASES; phase++) {
        long expected = test_case_admits(run->it, phase, n);
        for (int key = 0; key < run->keys; key++) {
            char what[256];
            snprintf(what, sizeof what, "%s, N = %d, phase %d, key %d: admitted %ld, not %ld",
                     run->it->limit, n, phase, key, run->admitted[phase][key], expected);
            test_check(run->admitted[phase][key] == expected, __FILE__, __LINE__, what);
        }
    }
    CHECK_INT(run->failures, 0);
}

/* n * keys is what all keys together admit at once. */
static void run_case(weir_store *store, const struct test_case *it, int keys, int n, int round)
{
    weir_limit *limit = test_case_limit(it, n);
    struct run *run = calloc(1, sizeof *run);
    *run = (struct run){.store = store, .it = it, .limit = limit, .keys = keys, .round = round};
    run->now = START;
    run->attempts = n * 3 / 2 / THREADS + 2;
    test_use_clock(store, &run->now);
    run_threads(run);
    compare(run, n);
    test_sound(store);
    free(run);
    weir_limit_free(limit);
}

/* One megabyte makes 32 stripes: the lock-order detector of ThreadSanitizer follows up to 64
 * locks. */
int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    int part = argc > 2 && atoi(argv[2]) == 5 ? 5 : 1;
    for (int kind = 0; kind < TEST_KINDS; kind++) {
        for (int round = 0; round < rounds; round++) {
            weir_store *store =
                test_open_patiently(test_url(kind, "threads", "size=1m&large=75%"), NULL);
            for (size_t i = 0; i < TEST_CASES; i++) {
                run_case(store, &test_cases[i], 1, 4000 / part, 0);
                run_case(store, &test_cases[i], 3, 1000 / part, 1);
                run_case(store, &test_cases[i], KEYS_MAX, 40 / part, 2);
            }
            weir_zone_info info = test_info(store);
            CHECK_INT(info.evicted_unused + info.evicted_soonest, 0);
            weir_store_close(store);
            test_remove(kind, "threads");
        }
    }
    test_remove_directory();
    return test_report();
}

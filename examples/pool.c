/*
 * At most three at a time: eight threads share a backend that bears three calls at once. A slot is
 * held by a lease, so that a holder that crashes gives it back when the lease runs out, here after
 * 30 seconds. On an shm: or file: store the same code guards the backend across processes.
 *
 *     cc pool.c $(pkg-config --cflags --libs weir) -lpthread -o pool && ./pool
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weir.h>

enum { THREADS = 8, JOBS = 5 };

static weir_store *store;
static weir_limit *limit;
static atomic_int running, most, done;

static void sleep_ms(int ms)
{
    struct timespec span = {0, ms * 1000000L};
    nanosleep(&span, NULL);
}

/* The call that only three may make at once. */
static void call_backend(void)
{
    int now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);
    while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
        ;
    sleep_ms(2);
    atomic_fetch_sub(&running, 1);
    atomic_fetch_add(&done, 1);
}

/* Tries until a slot is free. retry_after_us says when the oldest lease would lapse by itself, at
 * worst; slots are usually released long before, so look again soon. A server would rather refuse
 * the request. */
static uint64_t acquire(void)
{
    for (;;) {
        weir_decision d;
        if (weir_acquire(store, weir_key_text("backend"), limit, 1, &d))
            exit(1);
        if (d.allowed)
            return d.lease;
        sleep_ms(1);
    }
}

static void *worker(void *unused)
{
    for (int i = 0; i < JOBS; i++) {
        uint64_t lease = acquire();
        call_backend();
        /* Work that may outlast its lease calls weir_renew() now and then. WEIR_ENOLEASE from
         * either means that the lease has lapsed and somebody else may have the slot. */
        if (weir_release(store, weir_key_text("backend"), limit, lease))
            exit(1);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    weir_decision d;
    weir_error err;
    if (weir_store_open("memory:1m", &store, &err) ||
        weir_limit_parse("concurrent 3 lease 30s", &limit, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, worker, NULL))
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (weir_peek(store, weir_key_text("backend"), limit, 1, &d))
        return 1;
    printf("%d jobs done by %d threads, at most %d at once\n", atomic_load(&done), THREADS,
           atomic_load(&most));
    printf("%lld of %lld slots free\n", (long long)d.remaining, (long long)d.limit);
    weir_limit_free(limit);
    weir_store_close(store);
    return atomic_load(&most) > 3;
}

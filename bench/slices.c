/*
 * One process that takes one hot key from a store, for bench/redis_slices.py.
 *
 *     bench-slices URL LIMIT SECONDS RATE THREADS
 *
 * RATE is takes a second of the whole process, done in bunches every millisecond; 0: as fast as
 * they are answered. It says "ready" after a warm-up, starts when a line comes, and prints a line:
 * takes, allowed, local, degraded, seconds, and p50, p99, p99.9 and the longest of a take in
 * nanoseconds.
 */
#include "weir.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 64
#define WARM_UP_NS 300000000
#define BUNCH_NS 1000000
#define PARTS 32 /* of a power of two */
#define BUCKETS (64 * PARTS)

struct worker {
    pthread_t thread;
    weir_store *store;
    const weir_limit *limit;
    int64_t for_ns;
    double rate; /* a second; 0: any */
    uint64_t takes, allowed, local, degraded, longest_ns;
    uint64_t *times; /* BUCKETS of takes by how long they were */
};

static int64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static size_t bucket_of(uint64_t ns)
{
    if (ns < PARTS)
        return ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns);
    return (size_t)(power - 4) * PARTS + (size_t)((ns >> (power - 5)) & (PARTS - 1));
}

static double bucket_ns(size_t i)
{
    if (i < PARTS)
        return (double)i;
    return ((double)(i % PARTS) + PARTS + 0.5) * (double)(UINT64_C(1) << (i / PARTS - 1));
}

static void worker_take(struct worker *it, int64_t *now_ns)
{
    weir_decision d = {0};
    int64_t began_ns = *now_ns;
    if (weir_take(it->store, weir_key_text("hot"), it->limit, 1, &d))
        exit(3);
    *now_ns = bench_now_ns();
    uint64_t ns = (uint64_t)(*now_ns - began_ns);
    it->takes++;
    it->allowed += d.allowed;
    it->local += d.local;
    it->degraded += d.degraded;
    it->longest_ns = ns > it->longest_ns ? ns : it->longest_ns;
    it->times[bucket_of(ns)]++;
}

static void worker_pause(int64_t until_ns)
{
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void *worker_run(void *argument)
{
    struct worker *it = argument;
    int64_t began_ns = bench_now_ns(), now_ns = began_ns;
    while (now_ns - began_ns < it->for_ns) {
        double due = it->rate * (double)(now_ns - began_ns) / 1e9;
        if (it->rate == 0 || (double)it->takes < due) {
            worker_take(it, &now_ns);
            continue;
        }
        worker_pause(now_ns + BUNCH_NS);
        now_ns = bench_now_ns();
    }
    return NULL;
}

static void bench_run(struct worker *workers, size_t n, int64_t for_ns)
{
    for (size_t i = 0; i < n; i++) {
        struct worker *it = &workers[i];
        memset(it->times, 0, BUCKETS * sizeof *it->times);
        it->takes = it->allowed = it->local = it->degraded = it->longest_ns = 0;
        it->for_ns = for_ns;
        pthread_create(&it->thread, NULL, worker_run, it);
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
}

static double bench_percentile(const uint64_t *times, uint64_t all, double part)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += times[i];
        if ((double)seen >= part * (double)all)
            return bucket_ns(i);
    }
    return 0;
}

static void bench_tell(struct worker *workers, size_t n, double seconds)
{
    struct worker all = workers[0];
    for (size_t i = 1; i < n; i++) {
        all.takes += workers[i].takes;
        all.allowed += workers[i].allowed;
        all.local += workers[i].local;
        all.degraded += workers[i].degraded;
        if (workers[i].longest_ns > all.longest_ns)
            all.longest_ns = workers[i].longest_ns;
        for (size_t j = 0; j < BUCKETS; j++)
            all.times[j] += workers[i].times[j];
    }
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %.6f %.0f %.0f %.0f %" PRIu64 "\n",
           all.takes, all.allowed, all.local, all.degraded, seconds,
           bench_percentile(all.times, all.takes, 0.5),
           bench_percentile(all.times, all.takes, 0.99),
           bench_percentile(all.times, all.takes, 0.999), all.longest_ns);
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    weir_store *store = NULL;
    weir_limit *limit = NULL;
    weir_error err = {0};
    size_t n = argc == 6 ? (size_t)atoi(argv[5]) : 0;
    if (n < 1 || n > THREADS_MAX) {
        fputs("usage: bench-slices URL LIMIT SECONDS RATE THREADS\n", stderr);
        return 2;
    }
    if (weir_store_open(argv[1], &store, &err) || weir_limit_parse(argv[2], &limit, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    for (size_t i = 0; i < n; i++) {
        workers[i] =
            (struct worker){.store = store, .limit = limit, .rate = atof(argv[4]) / (double)n};
        workers[i].times = calloc(BUCKETS, sizeof *workers[i].times);
        if (!workers[i].times)
            return 3;
    }
    bench_run(workers, n, WARM_UP_NS);
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 3;
    int64_t began_ns = bench_now_ns();
    bench_run(workers, n, (int64_t)(atof(argv[3]) * 1e9));
    bench_tell(workers, n, (double)(bench_now_ns() - began_ns) / 1e9);
    for (size_t i = 0; i < n; i++)
        free(workers[i].times);
    weir_limit_free(limit);
    weir_store_close(store);
    return 0;
}

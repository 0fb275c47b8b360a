/*
 * A benchmark worker: scenarios by name, each run by some threads, driven line by line over stdin
 * so that a driver can interleave several workers. It prints "ready", then reads
 *
 *   run SCENARIO THREADS OPS
 *   quit
 *
 * and answers a run by "SCENARIO THREADS NS_PER_OP", anything else by "error ...". Each of THREADS
 * threads does OPS decisions; ns_per_op = wall_ns / OPS, wall_ns from the first thread's start to
 * the last one's end. (So two threads that do not hinder each other show the same figure as one.)
 *
 * The million keys "user:0000000" are one array of text, picked at random by a prng a thread: every
 * worker pays for fetching the text as well.
 */
#ifndef WEIR_BENCH_WORKER_H
#define WEIR_BENCH_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS = 1000000, KEY_LEN = 12, MAX_THREADS = 64 };

static char (*names)[KEY_LEN];

static inline uint64_t xorshift(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static inline const char *pick(uint64_t *x)
{
    return names[(xorshift(x) >> 32) * KEYS >> 32];
}

static void make_names(void)
{
    names = malloc((size_t)KEYS * KEY_LEN);
    if (!names) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    for (int i = 0; i < KEYS; i++) {
        char text[32];
        snprintf(text, sizeof text, "user:%07d", i);
        memcpy(names[i], text, KEY_LEN);
    }
}

/* A scenario does ops decisions and answers how many were allowed. */
typedef uint64_t scenario(uint64_t seed, uint64_t ops);

struct scenario {
    const char *name;
    scenario *run;
    int expect; /* 1: all allowed, 0: none, -1: either */
};

typedef struct {
    scenario *run;
    pthread_barrier_t *barrier;
    uint64_t seed, ops, allowed;
    int64_t start, end;
} job;

static int64_t monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void *work(void *p)
{
    job *j = p;
    pthread_barrier_wait(j->barrier);
    j->start = monotonic_ns();
    j->allowed = j->run(j->seed, j->ops);
    j->end = monotonic_ns();
    return NULL;
}

static void answer(const struct scenario *scenarios, const char *name, int threads, uint64_t ops)
{
    size_t s = 0;
    while (scenarios[s].name && strcmp(scenarios[s].name, name) != 0)
        s++;
    if (!scenarios[s].name) {
        printf("error unknown scenario %s\n", name);
        return;
    }

    job jobs[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        uint64_t seed = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)monotonic_ns();
        jobs[i] = (job){.run = scenarios[s].run, .barrier = &barrier, .seed = seed, .ops = ops};
        if (pthread_create(&ids[i], NULL, work, &jobs[i]) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            exit(1);
        }
    }
    int64_t first = INT64_MAX, last = INT64_MIN;
    uint64_t allowed = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        first = jobs[i].start < first ? jobs[i].start : first;
        last = jobs[i].end > last ? jobs[i].end : last;
        allowed += jobs[i].allowed;
    }
    pthread_barrier_destroy(&barrier);

    uint64_t all = ops * (uint64_t)threads;
    if (scenarios[s].expect >= 0 && allowed != (scenarios[s].expect ? all : 0))
        printf("error allowed %llu of %llu\n", (unsigned long long)allowed,
               (unsigned long long)all);
    else
        printf("%s %d %.2f\n", name, threads, (double)(last - first) / (double)ops);
}

/* Serves runs until quit; the table ends in an empty row. */
static int serve(const struct scenario *scenarios)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("ready");

    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        char verb[16], name[64], rest[2];
        int threads;
        unsigned long long ops;
        if (sscanf(line, "%15s", verb) == 1 && strcmp(verb, "quit") == 0)
            break;
        if (sscanf(line, "%15s %63s %d %llu %1s", verb, name, &threads, &ops, rest) != 4 ||
            strcmp(verb, "run") != 0)
            puts("error expected: run SCENARIO THREADS OPS, or quit");
        else if (threads < 1 || threads > MAX_THREADS || ops < 1)
            puts("error expected 1 to 64 threads and at least 1 op");
        else
            answer(scenarios, name, threads, ops);
    }
    return 0;
}

#endif

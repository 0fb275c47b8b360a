/*
 * The floor: the least that any limiter must pay for a decision. Not a limiter to use.
 *
 * A key is one 8-byte word, its theoretical arrival time in nanoseconds (GCRA); a decision reads
 * the clock, loads the word, compares, and if it may go ahead stores the new time by
 * compare-and-swap. No limit text, no other algorithm, no remaining or retry time, no eviction, no
 * secret in the hash. A million keys are an array of 2^21 cells of 16 bytes, picked by a hash of
 * the key's 12 bytes of text; nothing is compared, so keys that fall on one cell share it. What a
 * real limiter costs above these figures is what its features cost.
 *
 *   cc -O2 -pthread bench/floor.c -o build/floor
 *
 * It is a worker that a benchmark driver can interleave with others. It prints "ready", then reads
 * a line a request on stdin:
 *
 *   run SCENARIO THREADS OPS
 *   quit
 *
 * and answers a run by "SCENARIO THREADS NS_PER_OP", anything else by "error ...". Each of THREADS
 * threads does OPS decisions; ns_per_op = wall_ns / OPS, wall_ns from the first thread's start to
 * the last one's end. (So two threads that do not hinder each other show the same figure as one.)
 *
 * - floor-hot-allowed: one word for all threads, never denies; clock_gettime(CLOCK_REALTIME) each.
 *
 * - floor-hot-denied: one word, exhausted, always denies; the same clock.
 *
 * - floor-million: a million keys "user:0000000", random order, a prng a thread; the same clock.
 *   The key's text is itself fetched from an array of 12 MB, as the peers' is: about half of this
 *   figure is that cache miss, and the cell's comes after it.
 *
 * - floor-million-batch: the same by sixteens: hash all, prefetch all, one clock, decide all.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    KEYS = 1000000,
    KEY_LEN = 12,
    CELL_BITS = 21,
    CELLS = 1 << CELL_BITS,
    BATCH = 16,
    MAX_THREADS = 64
};

typedef struct {
    _Atomic int64_t tat; /* ns since the epoch; in the past: full */
    uint64_t unused;     /* where a limiter would tell keys apart */
} cell;

/* A rate as GCRA has it: ns between two requests, and how far ahead of now the word may run. */
typedef struct {
    int64_t interval, ahead;
} rate;

static const rate USER = {1000000, 1000000000};                /* 1000/s burst 1000 */
static const rate PLENTY = {1, 1000000000};                    /* 1,000,000,000/s */
static const rate TINY = {1000000000000000, 1000000000000000}; /* one in eleven days */

static char (*names)[KEY_LEN];
static cell *cells;
static _Alignas(64) cell hot_allowed;
static _Alignas(64) cell hot_denied;

static inline int64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline bool decide(cell *c, rate r, int64_t now)
{
    int64_t tat = atomic_load_explicit(&c->tat, memory_order_relaxed);
    for (;;) {
        int64_t next = (tat > now ? tat : now) + r.interval;
        if (next - now > r.ahead)
            return false;
        if (atomic_compare_exchange_weak_explicit(&c->tat, &tat, next, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

/* Multiply and fold: every bit of both halves reaches the top. */
static inline uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t hash12(const char *key)
{
    uint64_t a;
    uint32_t b;
    memcpy(&a, key, 8);
    memcpy(&b, key + 8, 4);
    return mix(mix(a ^ 0x9E3779B97F4A7C15u, b ^ 0xD6E8FEB86659FD93u), 0xA0761D6478BD642Fu);
}

static inline cell *find(const char *key)
{
    return &cells[hash12(key) >> (64 - CELL_BITS)];
}

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

/* The scenarios: ops decisions, answering how many were allowed. */
typedef uint64_t scenario(uint64_t seed, uint64_t ops);

static uint64_t run_hot_allowed(uint64_t seed, uint64_t ops)
{
    (void)seed;
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++)
        n += decide(&hot_allowed, PLENTY, clock_ns());
    return n;
}

static uint64_t run_hot_denied(uint64_t seed, uint64_t ops)
{
    (void)seed;
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++)
        n += decide(&hot_denied, TINY, clock_ns());
    return n;
}

static uint64_t run_million(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < ops; i++)
        n += decide(find(pick(&seed)), USER, clock_ns());
    return n;
}

static uint64_t run_million_batch(uint64_t seed, uint64_t ops)
{
    uint64_t n = 0;
    while (ops > 0) {
        int batch = ops < BATCH ? (int)ops : BATCH;
        cell *at[BATCH];
        for (int i = 0; i < batch; i++) {
            at[i] = find(pick(&seed));
            __builtin_prefetch(at[i], 1);
        }
        int64_t now = clock_ns();
        for (int i = 0; i < batch; i++)
            n += decide(at[i], USER, now);
        ops -= (uint64_t)batch;
    }
    return n;
}

static const struct {
    const char *name;
    scenario *run;
    int expect; /* 1: all allowed, 0: none, -1: either */
} scenarios[] = {
    {"floor-hot-allowed", run_hot_allowed, 1},
    {"floor-hot-denied", run_hot_denied, 0},
    {"floor-million", run_million, -1},
    {"floor-million-batch", run_million_batch, -1},
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

static void answer(const char *name, int threads, uint64_t ops)
{
    size_t s = 0;
    while (s < sizeof scenarios / sizeof *scenarios && strcmp(scenarios[s].name, name) != 0)
        s++;
    if (s == sizeof scenarios / sizeof *scenarios) {
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
            fprintf(stderr, "floor: cannot start a thread\n");
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

int main(void)
{
    names = malloc((size_t)KEYS * KEY_LEN);
    cells = aligned_alloc(64, (size_t)CELLS * sizeof *cells);
    if (!names || !cells) {
        fprintf(stderr, "floor: no memory\n");
        return 1;
    }
    for (int i = 0; i < KEYS; i++) {
        char text[32];
        snprintf(text, sizeof text, "user:%07d", i);
        memcpy(names[i], text, KEY_LEN);
    }
    for (size_t i = 0; i < CELLS; i++) {
        atomic_init(&cells[i].tat, 0);
        cells[i].unused = 0;
    }
    decide(&hot_denied, TINY, clock_ns());
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
            answer(name, threads, ops);
    }
    free(cells);
    free(names);
    return 0;
}

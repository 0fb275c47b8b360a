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
 * It is a worker, see worker.h.
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
#include "worker.h"

#include <stdatomic.h>

enum { CELL_BITS = 21, CELLS = 1 << CELL_BITS, BATCH = 16 };

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

static const struct scenario scenarios[] = {
    {"floor-hot-allowed", run_hot_allowed, 1},
    {"floor-hot-denied", run_hot_denied, 0},
    {"floor-million", run_million, -1},
    {"floor-million-batch", run_million_batch, -1},
    {NULL, NULL, 0},
};

int main(void)
{
    make_names();
    cells = aligned_alloc(64, (size_t)CELLS * sizeof *cells);
    if (!cells) {
        fprintf(stderr, "floor: no memory\n");
        return 1;
    }
    memset(cells, 0, (size_t)CELLS * sizeof *cells);
    decide(&hot_denied, TINY, clock_ns());
    return serve(scenarios);
}

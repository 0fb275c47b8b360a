/*
 * How long things took: a histogram of nanoseconds. Larger values have wider buckets.
 *
 * Below 32 ns every value has its own bucket. Above, each doubling is cut into 32 equal buckets.
 * The middle of a bucket stands for its values, so a quantile is wrong by at most 1.6 %. A time
 * longer than SERVER_HISTOGRAM_MOST_NS (18 minutes) counts as that. Size: 9 KiB, always.
 *
 * One thread records. Other threads may read meanwhile; they see each bucket at its own moment.
 */
#ifndef WEIR_SERVER_HISTOGRAM_H
#define WEIR_SERVER_HISTOGRAM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define SERVER_HISTOGRAM_FINE_BITS 5 /* 32 buckets per doubling */
#define SERVER_HISTOGRAM_TOP_BITS 40
#define SERVER_HISTOGRAM_MOST_NS ((UINT64_C(1) << SERVER_HISTOGRAM_TOP_BITS) - 1)
#define SERVER_HISTOGRAM_BUCKETS                                                                   \
    ((SERVER_HISTOGRAM_TOP_BITS - SERVER_HISTOGRAM_FINE_BITS + 1) << SERVER_HISTOGRAM_FINE_BITS)

struct server_histogram {
    uint64_t sum_ns; /* of all recorded values, however long */
    uint64_t counts[SERVER_HISTOGRAM_BUCKETS];
};

/* The bucket of a value. */
static inline uint32_t server_histogram_bucket(uint64_t ns)
{
    if (ns > SERVER_HISTOGRAM_MOST_NS)
        ns = SERVER_HISTOGRAM_MOST_NS;
    if (ns < UINT64_C(1) << SERVER_HISTOGRAM_FINE_BITS)
        return (uint32_t)ns;
    const uint32_t shift = 63 - (uint32_t)__builtin_clzll(ns) - SERVER_HISTOGRAM_FINE_BITS;
    return (shift << SERVER_HISTOGRAM_FINE_BITS) + (uint32_t)(ns >> shift);
}

/* Records `times` values of ns each: the requests of a pipeline share one reading of the clock. */
static inline void server_histogram_record(struct server_histogram *histogram, uint64_t ns,
                                           uint64_t times)
{
    const uint32_t bucket = server_histogram_bucket(ns);
    assert(bucket < SERVER_HISTOGRAM_BUCKETS);
    uint64_t *const count = &histogram->counts[bucket];
    __atomic_store_n(count, *count + times, __ATOMIC_RELAXED);
    __atomic_store_n(&histogram->sum_ns, histogram->sum_ns + ns * times, __ATOMIC_RELAXED);
}

/* The smallest and the largest value of a bucket. */
uint64_t server_histogram_least(uint32_t bucket);
uint64_t server_histogram_most(uint32_t bucket);

/* Adds the counts of another histogram. Its thread may record meanwhile. */
void server_histogram_add(struct server_histogram *to, const struct server_histogram *from);
/* Subtracts an earlier state of the same histogram. */
void server_histogram_subtract(struct server_histogram *from,
                               const struct server_histogram *earlier);
uint64_t server_histogram_count(const struct server_histogram *histogram);
/* The value that a share (0 to 1) of all values does not exceed; 0 if nothing was recorded. */
uint64_t server_histogram_quantile(const struct server_histogram *histogram, double share);
/* How many values are below 2^bits ns, exactly; bits from 5 to SERVER_HISTOGRAM_TOP_BITS. */
uint64_t server_histogram_below(const struct server_histogram *histogram, uint32_t bits);

#endif

/*
 * How long things took: a histogram of nanoseconds with buckets that grow with what they hold.
 *
 * Below 32 ns every value has a bucket of its own; from there each doubling is cut into 32 equal
 * buckets. A bucket's middle stands for its values, so that an answer is off by at most 1.6 %. What is
 * longer than SERVER_HISTOGRAM_MOST_NS (18 minutes) counts as that. 9 KiB, whatever is recorded.
 *
 * One thread records; others may read meanwhile, each bucket as it then stands.
 */
#ifndef WEIR_SERVER_HISTOGRAM_H
#define WEIR_SERVER_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define SERVER_HISTOGRAM_FINE_BITS 5 /* 32 buckets a doubling */
#define SERVER_HISTOGRAM_TOP_BITS 40
#define SERVER_HISTOGRAM_MOST_NS ((UINT64_C(1) << SERVER_HISTOGRAM_TOP_BITS) - 1)
#define SERVER_HISTOGRAM_BUCKETS                                                                   \
    ((SERVER_HISTOGRAM_TOP_BITS - SERVER_HISTOGRAM_FINE_BITS + 1) << SERVER_HISTOGRAM_FINE_BITS)

struct server_histogram {
    uint64_t sum_ns; /* of what was recorded, not cut */
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

/* Records that `times` things took that long each: a pipeline's requests share one reading. */
static inline void server_histogram_record(struct server_histogram *histogram, uint64_t ns,
                                           uint64_t times)
{
    uint64_t *const count = &histogram->counts[server_histogram_bucket(ns)];
    __atomic_store_n(count, *count + times, __ATOMIC_RELAXED);
    __atomic_store_n(&histogram->sum_ns, histogram->sum_ns + ns * times, __ATOMIC_RELAXED);
}

/* The values of a bucket: from the least to the most, both its own. */
uint64_t server_histogram_least(uint32_t bucket);
uint64_t server_histogram_most(uint32_t bucket);

/* Adds what another holds, which may be recorded into meanwhile. */
void server_histogram_add(struct server_histogram *to, const struct server_histogram *from);
/* Takes away an earlier state of the same histogram. */
void server_histogram_subtract(struct server_histogram *from,
                               const struct server_histogram *earlier);
uint64_t server_histogram_count(const struct server_histogram *histogram);
/* The value that a share (0 to 1) of all does not exceed; 0 where nothing was recorded. */
uint64_t server_histogram_quantile(const struct server_histogram *histogram, double share);
/* How many took less than 2^bits nanoseconds, bits from 5 to SERVER_HISTOGRAM_TOP_BITS; exact. */
uint64_t server_histogram_below(const struct server_histogram *histogram, uint32_t bits);

#endif

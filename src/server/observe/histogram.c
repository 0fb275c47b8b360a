/* Histograms of nanoseconds: adding, subtracting, counts and quantiles. See histogram.h. */
#include "server/observe/histogram.h"

#define FINE (UINT32_C(1) << SERVER_HISTOGRAM_FINE_BITS)

uint64_t server_histogram_least(uint32_t bucket)
{
    assert(bucket <= SERVER_HISTOGRAM_BUCKETS); /* the end is one beyond the last */
    if (bucket < FINE)
        return bucket;
    return (uint64_t)(bucket % FINE + FINE) << (bucket / FINE - 1);
}

uint64_t server_histogram_most(uint32_t bucket)
{
    return server_histogram_least(bucket + 1) - 1;
}

void server_histogram_add(struct server_histogram *to, const struct server_histogram *from)
{
    to->sum_ns += __atomic_load_n(&from->sum_ns, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < SERVER_HISTOGRAM_BUCKETS; i++)
        to->counts[i] += __atomic_load_n(&from->counts[i], __ATOMIC_RELAXED);
}

void server_histogram_subtract(struct server_histogram *from,
                               const struct server_histogram *earlier)
{
    from->sum_ns -= earlier->sum_ns;
    for (uint32_t i = 0; i < SERVER_HISTOGRAM_BUCKETS; i++) {
        assert(from->counts[i] >= earlier->counts[i]);
        from->counts[i] -= earlier->counts[i];
    }
}

uint64_t server_histogram_count(const struct server_histogram *histogram)
{
    return server_histogram_below(histogram, SERVER_HISTOGRAM_TOP_BITS);
}

uint64_t server_histogram_quantile(const struct server_histogram *histogram, double share)
{
    const uint64_t count = server_histogram_count(histogram);
    if (count == 0)
        return 0;
    const double exact = share * (double)count;
    uint64_t rank = exact <= 1 ? 1 : exact >= (double)count ? count : (uint64_t)exact;
    if ((double)rank < exact && rank < count)
        rank++;
    uint32_t bucket = 0;
    for (uint64_t seen = histogram->counts[0]; seen < rank; seen += histogram->counts[bucket])
        bucket++;
    assert(bucket < SERVER_HISTOGRAM_BUCKETS);
    const uint64_t least = server_histogram_least(bucket);
    return least + (server_histogram_most(bucket) - least) / 2;
}

uint64_t server_histogram_below(const struct server_histogram *histogram, uint32_t bits)
{
    assert(bits >= SERVER_HISTOGRAM_FINE_BITS && bits <= SERVER_HISTOGRAM_TOP_BITS);
    const uint32_t end = (bits - SERVER_HISTOGRAM_FINE_BITS + 1) * FINE;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < end; i++)
        sum += histogram->counts[i];
    return sum;
}

/* Histograms: no answer is off by more than 2 %, whatever was recorded; bucket bounds are exact. */
#include "server/observe/histogram.h"

#include "base/random.h"
#include "test.h"

#include <stdlib.h>

/* Every bucket begins where the last one ends, and holds its bounds and nothing beyond. */
static void test_buckets_meet(void)
{
    CHECK_INT(server_histogram_least(0), 0);
    for (uint32_t i = 0; i < SERVER_HISTOGRAM_BUCKETS; i++) {
        const uint64_t least = server_histogram_least(i), most = server_histogram_most(i);
        CHECK(least <= most);
        CHECK_INT(server_histogram_bucket(least), i);
        CHECK_INT(server_histogram_bucket(most), i);
        if (i + 1 < SERVER_HISTOGRAM_BUCKETS)
            CHECK_INT(server_histogram_least(i + 1), most + 1);
        const uint64_t middle = least + (most - least) / 2;
        CHECK((double)(most - middle) <= 0.02 * (double)most);
        CHECK((double)(middle - least) <= 0.02 * (double)least);
    }
    CHECK_INT(server_histogram_most(SERVER_HISTOGRAM_BUCKETS - 1), SERVER_HISTOGRAM_MOST_NS);
}

static void test_empty(void)
{
    static struct server_histogram none;
    CHECK_INT(server_histogram_count(&none), 0);
    CHECK_INT(server_histogram_quantile(&none, 0.5), 0);
    CHECK_INT(server_histogram_below(&none, 40), 0);
}

static void test_extremes(void)
{
    static struct server_histogram h;
    server_histogram_record(&h, 0, 1);
    server_histogram_record(&h, UINT64_MAX, 1);
    CHECK_INT(server_histogram_count(&h), 2);
    CHECK_INT(server_histogram_quantile(&h, 0), 0);
    CHECK_INT(server_histogram_quantile(&h, 0.5), 0);
    CHECK_INT(server_histogram_bucket(UINT64_MAX), SERVER_HISTOGRAM_BUCKETS - 1);
    CHECK((double)server_histogram_quantile(&h, 1) > 0.98 * (double)SERVER_HISTOGRAM_MOST_NS);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

#define VALUES 20000

/* Against the sorted values themselves, over ten orders of magnitude. */
static void test_quantiles(void)
{
    static uint64_t values[VALUES];
    static struct server_histogram h;
    uint64_t random = 7, sum = 0;
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = weir__random_next(&random) >> (24 + weir__random_next(&random) % 40);
        server_histogram_record(&h, values[i], 1);
        sum += values[i];
    }
    qsort(values, VALUES, sizeof values[0], by_size);
    CHECK_INT(h.sum_ns, sum);
    const double shares[] = {0, 0.00001, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const double rank = shares[i] * VALUES;
        size_t index = (size_t)rank;
        index = rank > (double)index ? index : index ? index - 1 : 0;
        const double exact = (double)values[index];
        const double got = (double)server_histogram_quantile(&h, shares[i]);
        CHECK(got >= 0.98 * exact && got <= 1.02 * exact);
    }
    for (uint32_t bits = 5; bits <= 40; bits++) {
        uint64_t below = 0;
        for (size_t i = 0; i < VALUES; i++)
            below += values[i] < UINT64_C(1) << bits;
        CHECK_INT(server_histogram_below(&h, bits), below);
    }
}

/* A window is what is there now without what was there before. */
static void test_window(void)
{
    static struct server_histogram one, two, before, now;
    server_histogram_record(&one, 1000, 5);
    server_histogram_record(&two, 2000000, 5);
    server_histogram_add(&before, &one);
    server_histogram_add(&before, &two);
    server_histogram_record(&one, 64000, 3);
    server_histogram_add(&now, &one);
    server_histogram_add(&now, &two);
    CHECK_INT(server_histogram_count(&now), 13);
    server_histogram_subtract(&now, &before);
    CHECK_INT(server_histogram_count(&now), 3);
    CHECK_INT(now.sum_ns, 3 * 64000);
    const uint64_t median = server_histogram_quantile(&now, 0.5);
    CHECK(median >= 62720 && median <= 65280);
}

int main(void)
{
    test_buckets_meet();
    test_empty();
    test_extremes();
    test_quantiles();
    test_window();
    return test_report();
}

/*
 * Limits from numbers: the same as those that are read from their text, and refused where these
 * are, with the name of the member.
 */
#include "core_rig.h"
#include "limit/limit.h"

#include <string.h>

#define SECOND INT64_C(1000000)

static weir_limit *made(const weir_limit_numbers *numbers, size_t n)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    CHECK_INT(weir_limit_make(numbers, n, &limit, &err), 0);
    if (!limit)
        printf("%s\n", err.message);
    return limit;
}

static void check_same(const weir_limit *limit, const char *text)
{
    weir_limit *read = NULL;
    CHECK_INT(weir_limit_parse(text, &read, NULL), 0);
    CHECK_INT(weir_limit_count(limit), weir_limit_count(read));
    test_check(!strcmp(weir_limit_text(limit), weir_limit_text(read)), __FILE__, __LINE__,
               weir_limit_text(limit));
    CHECK(!memcmp(limit->rules, read->rules, read->count * sizeof *read->rules));
    weir_limit_free(read);
}

#define OF(k, c, p, ...)                                                                           \
    {                                                                                              \
        .kind = (k), .count = (c), .period_us = (p), __VA_ARGS__                                   \
    }

static const struct {
    weir_limit_numbers numbers;
    const char *text;
} goods[] = {
    {OF(WEIR_TOKEN_BUCKET, 100, SECOND, ), "token-bucket 100/s"},
    {OF(WEIR_TOKEN_BUCKET, 100, SECOND, .burst = 7), "token-bucket 100/s burst 7"},
    {OF(WEIR_STEPPED, 5, 60 * SECOND, .burst = 9), "token-bucket 5/m burst 9 stepped"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, ), "leaky-bucket 5/s"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, .burst = 9, .delay = 3), "leaky-bucket 5/s burst 9 delay 3"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, .burst = 9, .nodelay = true),
     "leaky-bucket 5/s burst 9 nodelay"},
    {OF(WEIR_FIXED_WINDOW, 5, 3600 * SECOND, ), "fixed-window 5/h"},
    {OF(WEIR_FROM_FIRST, 5, 3600 * SECOND, ), "fixed-window 5/h from-first"},
    {OF(WEIR_SLIDING_LOG, 5, 3600 * SECOND, ), "sliding-log 5/h"},
    {OF(WEIR_SLIDING_WINDOW, 5, 3600 * SECOND, ), "sliding-window 5/h"},
    {OF(WEIR_SLIDING_WINDOW, 5, 3600 * SECOND, .precision_us = 60 * SECOND),
     "sliding-window 5/h precision 1m"},
    {OF(WEIR_SLIDING_COUNTER, 5, 3600 * SECOND, ), "sliding-counter 5/h"},
    {OF(WEIR_SMOOTH, 5, SECOND, ), "smooth 5/s"},
    {OF(WEIR_SMOOTH, 5, SECOND, .burst_for_us = 3 * SECOND), "smooth 5/s burst-for 3s"},
    {OF(WEIR_WARMUP, 5, SECOND, .over_us = 3 * SECOND), "warmup 5/s over 3s"},
    {OF(WEIR_WARMUP, 5, SECOND, .over_us = 3 * SECOND, .cold_millionths = 2500000),
     "warmup 5/s over 3s cold 2.5"},
    {OF(WEIR_CONCURRENT, 5, 0, ), "concurrent 5"},
    {OF(WEIR_CONCURRENT, 5, 30 * SECOND, ), "concurrent 5 lease 30s"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_MONTH), "fixed-window 5/month"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_MONTH, .from_day = 1), "fixed-window 5/month"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_MONTH, .from_day = 31, .zone_minutes = 480),
     "fixed-window 5/month from 31 zone +08:00"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_YEAR, .zone_minutes = -720),
     "fixed-window 5/year zone -12:00"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_YEAR, .from_month = 2, .from_day = 29),
     "fixed-window 5/year from 02-29"},
    {OF(WEIR_FIXED_WINDOW, 5, 168 * 3600 * SECOND, .from_day = 7), "fixed-window 5/w from sun"},
    {OF(WEIR_FIXED_WINDOW, 5, 168 * 3600 * SECOND, .zone_minutes = 840),
     "fixed-window 5/w zone +14:00"},
    {OF(WEIR_FIXED_WINDOW, 5, 60 * SECOND, .zone_minutes = -1), "fixed-window 5/m zone -00:01"},
    {OF(WEIR_WARMUP, 5, SECOND, .over_us = 3 * SECOND, .cost = 9), "warmup 5/s over 3s cost 9"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, .burst = 2, .cost = 3), "leaky-bucket 5/s burst 2 cost 3"},
    {OF(WEIR_CONCURRENT, 5, 0, .cost = 1), "concurrent 5 cost 1"},
};

static void test_every_kind(void)
{
    unsigned kinds = 0;
    for (size_t i = 0; i < WEIR__COUNT(goods); i++) {
        weir_limit *limit = made(&goods[i].numbers, 1);
        check_same(limit, goods[i].text);
        check_same(limit, weir_limit_text(limit)); /* and back */
        kinds |= 1u << goods[i].numbers.kind;
        weir_limit_free(limit);
    }
    CHECK_INT(kinds, (2u << WEIR_CONCURRENT) - 2);
}

static void test_several(void)
{
    const weir_limit_numbers numbers[] = {goods[0].numbers, goods[6].numbers, goods[16].numbers};
    weir_limit *limit = made(numbers, 3);
    check_same(limit, "token-bucket 100/s, fixed-window 5/h, concurrent 5");
    weir_limit_free(limit);
}

static const struct {
    weir_limit_numbers numbers;
    const char *named, *value;
} bads[] = {
    {OF(0, 5, SECOND, ), "kind", "0"},
    {OF(12, 5, SECOND, ), "kind", "12"},
    {OF(-1, 5, SECOND, ), "kind", "-1"},
    {OF(WEIR_TOKEN_BUCKET, 0, SECOND, ), "count", "0"},
    {OF(WEIR_TOKEN_BUCKET, -1, SECOND, ), "count", "-1"},
    {OF(WEIR_TOKEN_BUCKET, WEIR_COST_MAX + 1, SECOND, ), "count", "1000000000001"},
    {OF(WEIR_TOKEN_BUCKET, 5, 0, ), "period_us", "0"},
    {OF(WEIR_TOKEN_BUCKET, 5, -1, ), "period_us", "-1"},
    {OF(WEIR_TOKEN_BUCKET, 5, WEIR_DURATION_MAX + 1, ), "period_us", "31622400000001"},
    {OF(WEIR_TOKEN_BUCKET, 5, SECOND, .burst = -1), "burst", "-1"},
    {OF(WEIR_TOKEN_BUCKET, 5, SECOND, .burst = WEIR_COST_MAX + 1), "burst", "1000000000001"},
    {OF(WEIR_TOKEN_BUCKET, 5, SECOND, .delay = 1), "delay", "1"},
    {OF(WEIR_TOKEN_BUCKET, 5, SECOND, .nodelay = true), "nodelay", "1"},
    {OF(WEIR_TOKEN_BUCKET, 5, 61000001, ), "period", "1m1s1us"},
    {OF(WEIR_TOKEN_BUCKET, WEIR_COST_MAX, 3600 * SECOND, ), "burst", "1000000000000"},
    {OF(WEIR_STEPPED, 5, SECOND, .burst = -1), "burst", "-1"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, .burst = 1, .delay = 2), "delay", "2"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, .burst = 1, .delay = 1, .nodelay = true), "delay", "1"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, .delay = -1), "delay", "-1"},
    {OF(WEIR_FIXED_WINDOW, 5, SECOND, .burst = 1), "burst", "1"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, ), "period_us", "0"},
    {OF(WEIR_FIXED_WINDOW, 5, SECOND, .unit = WEIR_MONTH), "period_us", "1000000"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = 3), "unit", "3"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_MONTH, .from_day = 32), "from_day", "32"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_MONTH, .from_month = 1), "from_month", "1"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_YEAR, .from_month = 13, .from_day = 1), "from_month",
     "13"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_YEAR, .from_month = 2, .from_day = 30), "from_day",
     "30"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_YEAR, .from_month = 1, .from_day = 33), "from_day",
     "33"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_YEAR, .from_month = 1), "from_day", "0"},
    {OF(WEIR_FIXED_WINDOW, 5, 0, .unit = WEIR_YEAR, .from_day = 1), "from_day", "1"},
    {OF(WEIR_FIXED_WINDOW, 5, 168 * 3600 * SECOND, .from_day = 8), "from_day", "8"},
    {OF(WEIR_FIXED_WINDOW, 5, SECOND, .from_day = 1), "from_day", "1"},
    {OF(WEIR_FIXED_WINDOW, 5, SECOND, .zone_minutes = 841), "zone_minutes", "841"},
    {OF(WEIR_FIXED_WINDOW, 5, SECOND, .zone_minutes = -721), "zone_minutes", "-721"},
    {OF(WEIR_FROM_FIRST, 5, SECOND, .zone_minutes = 60), "zone_minutes", "60"},
    {OF(WEIR_TOKEN_BUCKET, 5, 0, .unit = WEIR_MONTH), "unit", "1"},
    {OF(WEIR_CONCURRENT, 5, 0, .from_day = 3), "from_day", "3"},
    {OF(WEIR_SLIDING_LOG, 100001, SECOND, ), "count", "100001"},
    {OF(WEIR_SLIDING_WINDOW, 5, SECOND, .precision_us = -1), "precision_us", "-1"},
    {OF(WEIR_SLIDING_WINDOW, 5, SECOND, .precision_us = 2 * SECOND), "precision", "2s"},
    {OF(WEIR_SLIDING_WINDOW, 5, SECOND, .precision_us = 1), "precision", "1us"},
    {OF(WEIR_SLIDING_COUNTER, 1000000001, SECOND, ), "count", "1000000001"},
    {OF(WEIR_SMOOTH, 5, SECOND, .burst_for_us = -1), "burst_for_us", "-1"},
    {OF(WEIR_SMOOTH, 5, SECOND, .over_us = 1), "over_us", "1"},
    {OF(WEIR_WARMUP, 5, SECOND, ), "over", "warmup 5/s"},
    {OF(WEIR_WARMUP, 5, SECOND, .over_us = -1), "over_us", "-1"},
    {OF(WEIR_WARMUP, 5, SECOND, .over_us = SECOND, .cold_millionths = 1000000), "cold", "cold 1"},
    {OF(WEIR_WARMUP, 5, SECOND, .over_us = SECOND, .cold_millionths = -1), "cold_millionths", "-1"},
    {OF(WEIR_WARMUP, 5, SECOND, .over_us = SECOND, .cold_millionths = INT64_C(1) << 32),
     "cold_millionths", "4294967296"},
    {OF(WEIR_FIXED_WINDOW, 5, SECOND, .cost = -1), "cost", "-1"},
    {OF(WEIR_FIXED_WINDOW, 5, SECOND, .cost = 6), "cost", "6"},
    {OF(WEIR_LEAKY_BUCKET, 5, SECOND, .burst = 2, .cost = 4), "cost", "4"},
    {OF(WEIR_SMOOTH, 5, SECOND, .cost = WEIR_COST_MAX + 1), "cost", "1000000000001"},
    {OF(WEIR_CONCURRENT, 100001, 0, ), "count", "100001"},
    {OF(WEIR_CONCURRENT, 5, -1, ), "period_us", "-1"},
};

static void test_refused(void)
{
    for (size_t i = 0; i < WEIR__COUNT(bads); i++) {
        weir_limit *limit = NULL;
        weir_error err = {0};
        CHECK_INT(weir_limit_make(&bads[i].numbers, 1, &limit, &err), WEIR_EINVAL);
        CHECK(!limit);
        CHECK_INT(err.column, 0);
        bool told = strstr(err.message, "limit 1: ") && strstr(err.message, bads[i].named) &&
                    strstr(err.message, bads[i].value);
        test_check(told, __FILE__, __LINE__, err.message);
        CHECK_INT(weir_limit_make(&bads[i].numbers, 1, &limit, NULL), WEIR_EINVAL);
    }
}

static void test_calls(void)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    weir_limit_numbers twice[2] = {goods[0].numbers, goods[1].numbers}, many[17] = {0};
    CHECK_INT(weir_limit_make(NULL, 1, &limit, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_make(twice, 1, NULL, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_make(twice, 0, &limit, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_make(many, 17, &limit, &err), WEIR_EINVAL);
    CHECK_INT(weir_limit_make(twice, 2, &limit, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "limit 2 is of the same kind and period as limit 1") != NULL);
    twice[0].spare[4] = 1;
    CHECK_INT(weir_limit_make(twice, 1, &limit, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "spare") != NULL);
    CHECK(!limit);
}

int main(void)
{
    test_every_kind();
    test_several();
    test_refused();
    test_calls();
    return test_report();
}

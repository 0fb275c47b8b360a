/* Rules from untrusted memory: exactly those that parsing could have made are sound. */
#include "core_rig.h"

static const char *const limits[] = {
    "token-bucket 10/s burst 20",
    "token-bucket 10/2m stepped",
    "leaky-bucket 10/s burst 5 delay 3",
    "leaky-bucket 10/s burst 5 nodelay",
    "fixed-window 100/m",
    "fixed-window 100/m from-first",
    "fixed-window 100/month from 31 zone -03:30",
    "fixed-window 100/year from 02-29",
    "fixed-window 100/w from thu",
    "fixed-window 100/d zone +14:00",
    "sliding-log 5/m",
    "sliding-window 240/h precision 1m",
    "sliding-counter 1000/h",
    "smooth 5/s burst-for 2s",
    "warmup 5/s over 3s cold 2.5",
    "concurrent 20 lease 30s",
};

/* Whether the rule of this text is sound with one field set to something else. */
#define SOUND_WITH(text, field, value)                                                             \
    ({                                                                                             \
        struct weir__rule it = rule_of(text);                                                      \
        it.field = (value);                                                                        \
        weir__rule_sound(&it);                                                                     \
    })

static void test_all_parsed_are_sound(void)
{
    for (size_t i = 0; i < WEIR__COUNT(limits); i++) {
        const struct weir__rule rule = rule_of(limits[i]);
        CHECK(weir__rule_sound(&rule));
    }
}

/* What no limit may have. */
static void test_each_field(void)
{
    for (size_t i = 0; i < WEIR__COUNT(limits); i++) {
        const struct weir__rule rule = rule_of(limits[i]);
        CHECK(!SOUND_WITH(limits[i], kind, WEIR__KIND_COUNT));
        CHECK(!SOUND_WITH(limits[i], kind, UINT8_MAX));
        CHECK(!SOUND_WITH(limits[i], flags, 2));
        CHECK(!SOUND_WITH(limits[i], generation, 1));
        CHECK(!SOUND_WITH(limits[i], cold_millionths, 1));
        CHECK(!SOUND_WITH(limits[i], count, 0));
        CHECK(!SOUND_WITH(limits[i], count, -1));
        CHECK(!SOUND_WITH(limits[i], count, INT64_MIN));
        CHECK(!SOUND_WITH(limits[i], count, WEIR_COST_MAX + 1));
        CHECK(!SOUND_WITH(limits[i], period_us, 0));
        CHECK(!SOUND_WITH(limits[i], period_us, -1));
        CHECK(!SOUND_WITH(limits[i], period_us, WEIR_DURATION_MAX + 1));
        CHECK(!SOUND_WITH(limits[i], period_us, INT64_MAX));
        CHECK(!SOUND_WITH(limits[i], burst, -1));
        CHECK(!SOUND_WITH(limits[i], burst, WEIR_COST_MAX + 1));
        CHECK(!SOUND_WITH(limits[i], extra, -1));
        CHECK(!SOUND_WITH(limits[i], extra, WEIR_DURATION_MAX + 1));
        CHECK(!SOUND_WITH(limits[i], ticks, rule.ticks + 1));
        CHECK(!SOUND_WITH(limits[i], cap, rule.cap - 1));
        CHECK(!SOUND_WITH(limits[i], horizon_us, rule.horizon_us - 1));
    }
}

/* What another limit may have. */
static void test_fields_of_others(void)
{
    CHECK(!SOUND_WITH("token-bucket 1/s", flags, WEIR__NODELAY));
    CHECK(!SOUND_WITH("token-bucket 1/s", extra, 1));
    CHECK(!SOUND_WITH("token-bucket 1/s", burst, 0));
    CHECK(!SOUND_WITH("leaky-bucket 1/s burst 5 delay 3", flags, WEIR__NODELAY)); /* not both */
    CHECK(!SOUND_WITH("leaky-bucket 1/s burst 5", extra, 6));
    CHECK(!SOUND_WITH("fixed-window 1/s", burst, 1));
    CHECK(SOUND_WITH("fixed-window 1/month", extra, 0)); /* 31 days in -12:00 */
    CHECK(!SOUND_WITH("fixed-window 1/month", extra, (INT64_C(2) * 512 + 32) * 2048 + 720));
    CHECK(!SOUND_WITH("fixed-window 1/month", extra, (INT64_C(3) * 512 + 33) * 2048 + 720));
    CHECK(!SOUND_WITH("fixed-window 1/month", extra, (INT64_C(2) * 512 + 1) * 2048 + 1561));
    CHECK(!SOUND_WITH("fixed-window 1/month", extra, INT64_C(4) * 512 * 2048 + 720));
    CHECK(!SOUND_WITH("fixed-window 1/month", extra, INT64_MAX));
    CHECK(!SOUND_WITH("fixed-window 1/month", extra, INT64_MIN));
    CHECK(!SOUND_WITH("fixed-window 1/month", period_us, 30 * DAY));
    CHECK(!SOUND_WITH("fixed-window 1/d zone +01:00", extra, 720)); /* UTC is a plain window */
    CHECK(SOUND_WITH("fixed-window 1/d zone +01:00", extra, 721));
    CHECK(!SOUND_WITH("fixed-window 1/s", extra, 1));
    CHECK(!SOUND_WITH("sliding-log 1/s", count, 100001));
    CHECK(!SOUND_WITH("concurrent 1", count, 100001));
    CHECK(!SOUND_WITH("sliding-counter 1/s", count, 1000000001));
    CHECK(!SOUND_WITH("sliding-window 1/s", extra, 0));
    CHECK(!SOUND_WITH("sliding-window 1/s", extra, SECOND + 1));
    CHECK(!SOUND_WITH("sliding-window 1/s", extra, 99));
    CHECK(!SOUND_WITH("smooth 1/s", extra, 0));
    CHECK(!SOUND_WITH("warmup 1/s over 1s", extra, 0));
    CHECK(!SOUND_WITH("warmup 1/s over 1s", cold_millionths, 1000000));
    CHECK(!SOUND_WITH("warmup 1/s over 1s", cold_millionths, 1000000001));
    CHECK(!SOUND_WITH("token-bucket 1/m", period_us, MINUTE + 1)); /* not whole milliseconds */
}

/* Numbers that are right by themselves, each at its most, but not together. */
static void test_products(void)
{
    struct weir__rule rule = rule_of("token-bucket 1/s");
    rule.burst = WEIR_COST_MAX;
    rule.period_us = WEIR_DURATION_MAX;
    CHECK(!weir__rule_sound(&rule));
    memset(&rule, 0xff, sizeof rule);
    rule.kind = WEIR__LEAKY_BUCKET;
    CHECK(!weir__rule_sound(&rule));
    memset(&rule, 0, sizeof rule);
    CHECK(!weir__rule_sound(&rule));
}

int main(void)
{
    test_all_parsed_are_sound();
    test_each_field();
    test_fields_of_others();
    test_products();
    return test_report();
}

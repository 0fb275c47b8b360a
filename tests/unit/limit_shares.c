/* Shares of limits: percentages in text, and the limits that they make. */
#include "core_rig.h"

#include <string.h>

/* ---- percentages ---- */

static void reads(const char *text, uint32_t millionths, const char *again)
{
    uint32_t found = 0;
    char room[16];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    const char *wrong = weir__share_read(weir__span_of(text), &found);
    if (!CHECK(!wrong))
        printf("\"%s\": %s\n", text, wrong);
    CHECK_INT(found, millionths);
    weir__put_share(&buffer, found);
    CHECK_TEXT(room, again);
}

static void refuses(const char *text, const char *expected)
{
    uint32_t found = 7;
    const char *wrong = weir__share_read(weir__span_of(text), &found);
    if (CHECK(wrong))
        CHECK_TEXT(wrong, expected);
    CHECK_INT(found, 7);
}

static void test_percentages(void)
{
    static const char form[] = "expected a percentage like 50% or 12.5%";
    static const char bounds[] = "a share is more than 0% and at most 100%";
    reads("100%", 1000000, "100%");
    reads("100.0000%", 1000000, "100%");
    reads("50%", 500000, "50%");
    reads("050%", 500000, "50%");
    reads("12.5%", 125000, "12.5%");
    reads("33.3333%", 333333, "33.3333%");
    reads("0.0001%", 1, "0.0001%");
    reads("9.05%", 90500, "9.05%");
    refuses("0%", bounds);
    refuses("0.0000%", bounds);
    refuses("100.0001%", bounds);
    refuses("101%", bounds);
    refuses("18446744073709551617%", bounds);
    refuses("0.00001%", "a share has at most four decimals, like 12.5%");
    refuses("50", "a share needs its percent sign, like 50%");
    refuses("0.5", "a share needs its percent sign, like 50%");
    refuses("", form);
    refuses("%", form);
    refuses("-5%", form);
    refuses("5.%", form);
    refuses(".5%", form);
    refuses("5 %", form);
    refuses("5%%", form);
    refuses("5,5%", form);
    refuses("half", form);
}

/* ---- limits ---- */

static void becomes(const char *text, uint32_t millionths, const char *expected)
{
    weir_limit *whole = NULL, *part = NULL;
    weir_error err = {0};
    if (weir_limit_parse(text, &whole, &err) ||
        weir__limit_reduce(whole, millionths, &part, &err)) {
        printf("FAIL %s: %s\n", text, err.message);
        exit(1);
    }
    CHECK_TEXT(weir_limit_text(part), expected);
    CHECK_INT(part->count, whole->count);
    for (size_t i = 0; i < part->count; i++) {
        CHECK(weir__rule_sound(&part->rules[i]));
        CHECK(weir__rule_same_state(&part->rules[i], &whole->rules[i]));
    }
    weir_limit_free(whole);
    weir_limit_free(part);
}

static void test_limits(void)
{
    becomes("token-bucket 100/s burst 200", 500000, "token-bucket 100/s");
    becomes("token-bucket 100/s burst 200", 800000, "token-bucket 100/s burst 160");
    becomes("token-bucket 100/s", 500000, "token-bucket 100/s burst 50");
    becomes("token-bucket 100/s burst 50 stepped", 500000, "token-bucket 100/s burst 25 stepped");
    becomes("leaky-bucket 10/s burst 9", 500000, "leaky-bucket 10/s burst 4");
    becomes("leaky-bucket 10/s burst 9 nodelay", 500000, "leaky-bucket 10/s burst 4 nodelay");
    becomes("leaky-bucket 10/s burst 9 delay 8", 500000, "leaky-bucket 10/s burst 4 delay 4");
    becomes("leaky-bucket 10/s burst 9 delay 3", 500000, "leaky-bucket 10/s burst 4 delay 3");
    becomes("leaky-bucket 10/s burst 9 delay 3", 1, "leaky-bucket 10/s");
    becomes("leaky-bucket 10/s", 500000, "leaky-bucket 10/s");
    becomes("fixed-window 100/m", 333333, "fixed-window 33/m");
    becomes("fixed-window 100/m from-first", 10000, "fixed-window 1/m from-first");
    becomes("fixed-window 3/m", 999999, "fixed-window 2/m");
    becomes("fixed-window 1/m", 1, "fixed-window 1/m");
    becomes("fixed-window 1000000000000/m", 999999, "fixed-window 999999000000/m");
    becomes("fixed-window 1000000000000/m", 1000000, "fixed-window 1000000000000/m");
    becomes("sliding-log 100k/m", 500000, "sliding-log 50000/m");
    becomes("sliding-window 240/h precision 1m", 500000, "sliding-window 120/h precision 1m");
    becomes("sliding-counter 1g/h", 1, "sliding-counter 1000/h");
    becomes("concurrent 20 lease 30s", 250000, "concurrent 5 lease 30s");
    becomes("fixed-window 10/m, fixed-window 100/h, concurrent 3", 500000,
            "fixed-window 5/m, fixed-window 50/h, concurrent 1");
}

/* A cost of a limit's own stays, and fits. */
static void test_own_costs(void)
{
    weir_limit *whole = NULL, *part = NULL;
    weir_error err = {0};
    becomes("fixed-window 60/m cost 2, token-bucket 100/s", 500000,
            "fixed-window 30/m cost 2, token-bucket 100/s burst 50");
    becomes("fixed-window 60/m cost 30", 500000, "fixed-window 30/m cost 30");
    CHECK_INT(weir_limit_parse("sliding-log 9/m, fixed-window 60/m cost 31", &whole, &err), 0);
    CHECK_INT(weir__limit_reduce(whole, 500000, &part, &err), WEIR_EINVAL);
    CHECK(!strcmp(err.message, "50% of \"fixed-window 60/m cost 31\" is 30, less than its own cost "
                               "of 31; use a larger share"));
    CHECK_INT(weir__limit_reduce(whole, 500000, &part, NULL), WEIR_EINVAL);
    CHECK(!part);
    weir_limit_free(whole);
}

/* The product that is rounded down is exact for every size. */
static void test_largest(void)
{
    becomes("leaky-bucket 1g/us burst 1000000000000", 999999,
            "leaky-bucket 1000000000/us burst 999998999999");
    becomes("leaky-bucket 1g/us burst 1000000000000", 1000000,
            "leaky-bucket 1000000000/us burst 1000000000000");
}

static void test_sizes(void)
{
    struct weir__rule smooth = rule_of("smooth 5/s"), warmup = rule_of("warmup 5/s over 1s");
    struct weir__rule leaky = rule_of("leaky-bucket 5/s"), log = rule_of("sliding-log 5/s");
    CHECK(!weir__rule_has_size(&smooth) && !weir__rule_has_size(&warmup));
    CHECK(weir__rule_has_size(&leaky) && weir__rule_has_size(&log));
}

int main(void)
{
    test_percentages();
    test_limits();
    test_own_costs();
    test_largest();
    test_sizes();
    return test_report();
}

/* What a state amounts to, for people who look: every kind of limit, whole and by what a store
 * keeps. */
#include "core_rig.h"

#include "core/show.h"

static struct rig rig;

/* The state after these takes at T0, shown at t. */
static struct weir__shown shown(const char *text, int64_t cost, bool whole, int64_t t)
{
    struct weir__shown ret;
    rig_init(&rig, text);
    CHECK(take(&rig, T0, cost, WEIR_WAIT_ANY).allowed);
    int64_t fresh_us = weir__algorithm_of(&rig.rule)->fresh_at(&rig.rule, &rig.state);
    weir__show(&rig.rule, whole, &rig.state, fresh_us, t, &ret);
    CHECK_INT(ret.fresh_us, fresh_us);
    CHECK_INT(ret.whole, whole);
    CHECK_INT(ret.count, whole ? rig.rule.count : 0);
    return ret;
}

/* All of them right after a take of 3: 3 are spent, and the rest is left. */
static void test_every_kind(void)
{
    static const struct {
        const char *text;
        int64_t spent, left, entries;
    } cases[] = {
        {"token-bucket 10/s burst 20", 3, 17, 0}, {"token-bucket 10/s burst 20 stepped", 3, 17, 0},
        {"leaky-bucket 10/s burst 5", 3, 3, 0},   {"fixed-window 5/m", 3, 2, 0},
        {"fixed-window 5/m from-first", 3, 2, 0}, {"sliding-log 5/m", 3, 2, 1},
        {"sliding-window 5/m", 3, 2, 1},          {"sliding-counter 5/m", 3, 2, 0},
        {"concurrent 5 lease 1m", 3, 2, 1},       {"smooth 10/s", 0, -1, 0},
        {"warmup 10/s over 10s", 0, -1, 0},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        for (int whole = 0; whole <= 1; whole++) {
            struct weir__shown ret = shown(cases[i].text, 3, whole, T0);
            CHECK_INT(ret.spent, cases[i].spent);
            CHECK_INT(ret.entries, cases[i].entries);
            if (cases[i].left >= 0 || !whole)
                CHECK_INT(ret.remaining, whole ? cases[i].left : -1);
            CHECK(ret.at_us >= T0);
        }
    }
}

/* A state that is as new counts for nothing. */
static void test_lapsed(void)
{
    static const char *const texts[] = {
        "token-bucket 10/s burst 20", "fixed-window 5/m",     "sliding-log 5/m", "smooth 10/s",
        "sliding-counter 5/m",        "concurrent 5 lease 1m"};
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        for (int whole = 0; whole <= 1; whole++) {
            struct weir__shown ret = shown(texts[i], 3, whole, T0 + 9 * DAY);
            CHECK(ret.spent == 0 && ret.entries == 0);
            rig_init(&rig, texts[i]);
            CHECK_INT(ret.remaining, whole ? peek(&rig, T0 + 9 * DAY, 1, 0).remaining : -1);
        }
    }
}

/* When one more is allowed: of a log when the first entry goes, not the last. */
static void test_retry_after(void)
{
    struct weir__shown ret = shown("sliding-log 2/h", 2, true, T0 + MINUTE);
    CHECK_INT(ret.remaining, 0);
    CHECK_INT(ret.retry_after_us, 59 * MINUTE);
    rig_init(&rig, "sliding-log 2/h");
    CHECK(take(&rig, T0, 1, 0).allowed && take(&rig, T0 + 20 * MINUTE, 1, 0).allowed);
    int64_t fresh_us = weir__algorithm_of(&rig.rule)->fresh_at(&rig.rule, &rig.state);
    weir__show(&rig.rule, true, &rig.state, fresh_us, T0 + 30 * MINUTE, &ret);
    CHECK_INT(ret.retry_after_us, 30 * MINUTE);
    CHECK_INT(ret.fresh_us, T0 + 80 * MINUTE);
    ret = shown("fixed-window 3/m from-first", 2, true, T0);
    CHECK_INT(ret.retry_after_us, 0);
    ret = shown("smooth 10/s", 3, true, T0); /* it would wait, not be denied */
    CHECK_INT(ret.retry_after_us, 0);
}

/* More permits than are told exactly. */
static void test_stored(void)
{
    struct weir__rule rule = rule_of("smooth 10/s");
    struct weir__state state = {.present = true, .at = T0, .stored = 7.5};
    struct weir__shown ret;
    weir__show(&rule, true, &state, T0 + DAY, T0, &ret);
    CHECK_INT(ret.stored, 7);
    state.stored = 1e300;
    weir__show(&rule, true, &state, T0 + DAY, T0, &ret);
    CHECK_INT(ret.stored, WEIR__EXACT_MAX);
}

static void test_names_and_numbers(void)
{
    CHECK_TEXT(weir__kind_name(WEIR__STEPPED), "token-bucket stepped");
    CHECK_TEXT(weir__kind_name(WEIR__FROM_FIRST), "fixed-window from-first");
    CHECK_TEXT(weir__kind_name(WEIR__SLIDING_LOG), "sliding-log");
    int64_t numbers[WEIR__SHOWN_NUMBERS];
    struct weir__shown ret = shown("sliding-window 5/m precision 1s", 3, true, T0);
    weir__shown_numbers(&ret, numbers);
    CHECK(numbers[0] == MINUTE && numbers[1] == SECOND && numbers[2] == 5 && numbers[3] == 3);
    ret = shown("fixed-window 5/m", 3, true, T0);
    weir__shown_numbers(&ret, numbers);
    CHECK(numbers[1] == 0 && numbers[6] == T0 && numbers[7] == T0 + MINUTE);
    struct weir__shown back;
    int64_t again[WEIR__SHOWN_NUMBERS];
    weir__shown_of(WEIR__FIXED_WINDOW, numbers, &back);
    weir__shown_numbers(&back, again);
    CHECK(!memcmp(again, numbers, sizeof numbers) && back.remaining == -1 && !back.whole);
}

int main(void)
{
    test_every_kind();
    test_lapsed();
    test_retry_after();
    test_stored();
    test_names_and_numbers();
    return test_report();
}

/* Smooth and warmup: Guava's answers, and what weir adds to them. */
#include "core_rig.h"

static struct rig rig;

/* Guava's own test of SmoothBursty: 5 a second, each waits for the one before. */
static void test_smooth_spaces(void)
{
    rig_init(&rig, "smooth 5/s");
    CHECK_SIX(take(&rig, T0, 1, DEFAULT), true, 5, 0, 0, SECOND + 200000, 0);
    CHECK_SIX(take(&rig, T0, 1, DEFAULT), true, 5, 0, 0, SECOND + 400000, 200000);
    CHECK_SIX(take(&rig, T0, 1, DEFAULT), true, 5, 0, 0, SECOND + 600000, 400000);
    CHECK_SIX(take(&rig, T0, 1, 599999), false, 5, 0, 1, SECOND + 600000, 0);
    CHECK_SIX(take(&rig, T0, 1, 600000), true, 5, 0, 0, SECOND + 800000, 600000);
}

static void test_smooth_saves(void)
{
    rig_init(&rig, "smooth 5/s burst-for 2s");
    take(&rig, T0, 1, DEFAULT);
    CHECK_INT(peek(&rig, T0 + 1200000, 0, 0).remaining, 5);
    CHECK_INT(peek(&rig, T0 + HOUR, 0, 0).remaining, 10);
    CHECK_INT(rig.state.stored == 0, 1); /* a peek keeps nothing */
    for (int i = 0; i < 11; i++)         /* ten saved, one on credit */
        CHECK_INT(take(&rig, T0 + HOUR, 1, DEFAULT).delay_us, 0);
    CHECK_INT(take(&rig, T0 + HOUR, 1, DEFAULT).delay_us, 200000);
}

/* Any cost goes ahead; the next one pays. Time saturates where counting stops being exact. */
static void test_any_cost(void)
{
    rig_init(&rig, "smooth 1/s");
    CHECK(take(&rig, T0, 1000, 0).allowed);
    CHECK_SIX(take(&rig, T0, 1, 0), false, 1, 0, 1000 * SECOND, 1001 * SECOND, 0);
    rig_init(&rig, "smooth 1/366d");
    CHECK(take(&rig, T0, WEIR_COST_MAX, 0).allowed);
    CHECK_INT(rig.state.at, WEIR__EXACT_MAX);
    CHECK(take(&rig, T0, WEIR_COST_MAX, WEIR_WAIT_ANY).allowed);
    CHECK_INT(rig.state.at, WEIR__EXACT_MAX);
    CHECK_INT(peek(&rig, T0, 1, DEFAULT).limit, 1); /* never under 1 */
}

static void test_smooth_is_forgotten(void)
{
    rig_init(&rig, "smooth 5/s");
    take(&rig, T0, 1, DEFAULT); /* full at T0 + 1.2 s */
    int64_t end = T0 + 1200000 + DAY;
    CHECK_INT(peek(&rig, end - 1, 1, DEFAULT).remaining, 5);
    CHECK_INT(peek(&rig, end, 1, DEFAULT).remaining, 0);
    CHECK_INT(weir__algorithm_of(&rig.rule)->fresh_at(&rig.rule, &rig.state), end);
    CHECK(!weir__is_fresh(&rig.rule, &rig.state, end - 1));
    CHECK(weir__is_fresh(&rig.rule, &rig.state, end));
    CHECK_INT(rig.rule.horizon_us, INT64_MAX);
}

/* Twice as slow when cold, three times at the very start: 600 ms down to 200 ms. */
static void test_warmup(void)
{
    rig_init(&rig, "warmup 5/s over 4s");
    weir_decision d = take(&rig, T0, 1, DEFAULT);
    CHECK_SIX(d, true, 20, 19, 0, d.reset_after_us, 0);
    CHECK_INT(rig.state.at - T0, 580000);
    int64_t last = 580000, gap = 580000;
    for (int i = 0; i < 30; i++) {
        take(&rig, T0, 1, DEFAULT);
        int64_t next = rig.state.at - T0;
        CHECK(next - last <= gap && next - last >= 199999);
        gap = next - last;
        last = next;
    }
    CHECK_INT(gap, 200000);
    CHECK_INT(peek(&rig, rig.state.at + 4 * SECOND, 0, DEFAULT).reset_after_us, 0);
}

/* Spending across the threshold costs both parts. */
static void test_warmup_across_the_threshold(void)
{
    rig_init(&rig, "warmup 5/s over 4s");
    take(&rig, T0, 15, DEFAULT); /* 10 above it take the 4 s, 5 below it 1 s */
    CHECK_INT(rig.state.at - T0, 5 * SECOND);
    rig_init(&rig, "warmup 5/s over 4s");
    take(&rig, T0, 25, DEFAULT); /* and 5 that were never stored */
    CHECK_INT(rig.state.at - T0, 7 * SECOND);
    rig_init(&rig, "warmup 1/366d over 366d cold 1000");
    take(&rig, T0, WEIR_COST_MAX, DEFAULT);
    CHECK_INT(rig.state.at, WEIR__EXACT_MAX);
}

static void test_settles(void)
{
    rig_init(&rig, "smooth 5/s");
    CHECK(!settle(&rig, T0, T0, 2, 1));
    CHECK(settle(&rig, T0, T0, 1, 3)); /* a surcharge starts from fresh */
    CHECK_INT(rig.state.at, T0 + 400000);
    CHECK(settle(&rig, T0, T0, 2, 1));
    CHECK_INT(rig.state.at, T0 + 200000);
    CHECK(settle(&rig, T0 + 100000, T0, 9, 1)); /* not before now */
    CHECK_INT(rig.state.at, T0 + 100000);
    CHECK(settle(&rig, T0 + SECOND, T0, 1, 2)); /* saved until now */
    CHECK(rig.state.stored > 4.49 && rig.state.stored < 4.51);
    CHECK_INT(rig.state.at, T0 + SECOND + 200000);
    CHECK(settle(&rig, T0, T0, 0, WEIR_COST_MAX));
    CHECK(settle(&rig, T0, T0, 0, WEIR_COST_MAX));
    CHECK(rig.state.at <= WEIR__EXACT_MAX);
    rig_init(&rig, "smooth 1/366d");
    settle(&rig, T0, T0, 0, WEIR_COST_MAX);
    CHECK_INT(rig.state.at, WEIR__EXACT_MAX);
    settle(&rig, T0, T0, WEIR_COST_MAX, 0);
    CHECK_INT(rig.state.at, T0);
}

static void test_numbers_change(void)
{
    rig_init(&rig, "smooth 5/s burst-for 10s");
    take(&rig, T0, 1, DEFAULT);
    take(&rig, T0 + MINUTE, 1, DEFAULT);
    CHECK_INT(peek(&rig, T0 + MINUTE, 0, DEFAULT).remaining, 49);
    rig_change(&rig, "smooth 5/s burst-for 1s");
    CHECK_INT(peek(&rig, T0 + MINUTE, 0, DEFAULT).remaining, 5); /* clamped */
}

/* Out of a damaged zone: more than it can hold. */
static void test_too_much_stored(void)
{
    const struct weir__rule rule = rule_of("warmup 5/s over 4s");
    struct weir__state state = {.present = true, .at = T0, .stored = 1e250};
    CHECK_INT(weir__algorithm_of(&rule)->fresh_at(&rule, &state), T0);
}

static void test_waits(void)
{
    const struct weir__rule smooth = rule_of("smooth 5/s"), window = rule_of("fixed-window 5/s");
    CHECK_INT(weir__wait_for(&smooth, WEIR_WAIT_DEFAULT), WEIR_WAIT_ANY);
    CHECK_INT(weir__wait_for(&smooth, WEIR_WAIT_ANY), WEIR_WAIT_ANY);
    CHECK_INT(weir__wait_for(&smooth, 5), 5);
    CHECK_INT(weir__wait_for(&window, WEIR_WAIT_DEFAULT), 0);
}

int main(void)
{
    test_smooth_spaces();
    test_smooth_saves();
    test_any_cost();
    test_smooth_is_forgotten();
    test_warmup();
    test_warmup_across_the_threshold();
    test_settles();
    test_numbers_change();
    test_too_much_stored();
    test_waits();
    return test_report();
}

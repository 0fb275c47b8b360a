/* Token bucket, stepped bucket and leaky bucket, fact by fact. */
#include "core_rig.h"

#include "core/bucket.h"

static struct rig rig;

/* ---- token bucket ---- */

static void test_burst_then_rate(void)
{
    rig_init(&rig, "token-bucket 10/s burst 20");
    CHECK_SIX(take(&rig, T0, 20, DEFAULT), true, 20, 0, 0, 2 * SECOND, 0);
    CHECK_SIX(take(&rig, T0, 1, DEFAULT), false, 20, 0, 100000, 2 * SECOND, 0);
    CHECK_SIX(take(&rig, T0 + 99999, 1, DEFAULT), false, 20, 0, 1, 1900001, 0);
    CHECK_SIX(take(&rig, T0 + 100000, 1, DEFAULT), true, 20, 0, 0, 2 * SECOND, 0);
    CHECK_SIX(peek(&rig, T0 + 100000 + 2 * SECOND - 1, 0, DEFAULT), true, 20, 19, 0, 1, 0);
    CHECK_SIX(peek(&rig, T0 + 100000 + 2 * SECOND, 20, DEFAULT), true, 20, 20, 0, 0, 0);
}

static void test_cost_beyond_burst_is_never(void)
{
    rig_init(&rig, "token-bucket 10/s burst 20");
    CHECK_SIX(take(&rig, T0, 21, DEFAULT), false, 20, 20, WEIR_NEVER, 0, 0);
    CHECK_SIX(take(&rig, T0, 21, WEIR_WAIT_ANY), false, 20, 20, WEIR_NEVER, 0, 0);
    CHECK(!rig.state.present);
}

static void test_cost_zero_charges_nothing(void)
{
    rig_init(&rig, "token-bucket 1/s");
    CHECK_SIX(take(&rig, T0, 0, DEFAULT), true, 1, 1, 0, 0, 0);
    CHECK(!rig.state.present);
    take(&rig, T0, 1, DEFAULT);
    take(&rig, T0, 1, SECOND); /* a reservation: the debt is beyond the burst */
    CHECK_SIX(take(&rig, T0, 0, DEFAULT), false, 1, 0, SECOND, 2 * SECOND, 0);
}

static void test_waits_are_reservations_in_order(void)
{
    rig_init(&rig, "token-bucket 10/s");
    take(&rig, T0, 10, DEFAULT);
    CHECK_SIX(take(&rig, T0, 1, 99999), false, 10, 0, 1, SECOND, 0);
    CHECK_SIX(take(&rig, T0, 1, 100000), true, 10, 0, 0, SECOND + 100000, 100000);
    CHECK_SIX(take(&rig, T0, 2, WEIR_WAIT_ANY), true, 10, 0, 0, SECOND + 300000, 300000);
    CHECK_SIX(take(&rig, T0, 1, 300000), false, 10, 0, 100000, SECOND + 300000, 0);
}

static void test_any_is_366_days(void)
{
    rig_init(&rig, "token-bucket 1/366d burst 2");
    CHECK_INT(weir__wait_for(&rig.rule, WEIR_WAIT_ANY), WEIR_DURATION_MAX);
    CHECK_INT(weir__wait_for(&rig.rule, WEIR_WAIT_DEFAULT), 0);
    CHECK_INT(weir__wait_for(&rig.rule, 7), 7);
    take(&rig, T0, 2, DEFAULT);
    CHECK(take(&rig, T0, 1, WEIR_WAIT_ANY).allowed);
    CHECK_INT(take(&rig, T0, 1, WEIR_WAIT_ANY).retry_after_us, WEIR_DURATION_MAX);
}

/* Over a minute a tick is a millisecond: times round up to one, never early. */
static void test_coarse_ticks(void)
{
    rig_init(&rig, "token-bucket 1/2m");
    CHECK_INT(rig.rule.ticks, 120000);
    CHECK_SIX(take(&rig, T0 + 999, 1, DEFAULT), true, 1, 0, 0, 2 * MINUTE - 999, 0);
    CHECK_INT(rig.state.at, T0 / 1000);
    CHECK_SIX(take(&rig, T0 + 2 * MINUTE - 1, 1, DEFAULT), false, 1, 0, 1, 1, 0);
    CHECK(take(&rig, T0 + 2 * MINUTE, 1, DEFAULT).allowed);
    rig_init(&rig, "token-bucket 7/m");
    CHECK_INT(rig.rule.ticks, MINUTE);
}

static void test_time_runs_back(void)
{
    rig_init(&rig, "token-bucket 1/s burst 3");
    take(&rig, T0, 2, DEFAULT);
    CHECK_SIX(take(&rig, T0 - 5 * SECOND, 1, DEFAULT), true, 3, 0, 0, 8 * SECOND, 0);
    CHECK_SIX(peek(&rig, T0 - 5 * SECOND, 1, DEFAULT), false, 3, 0, 6 * SECOND, 8 * SECOND, 0);
    CHECK_INT(rig.state.at, T0);
    CHECK_SIX(peek(&rig, T0 - MINUTE, 1, DEFAULT), false, 3, 0, MINUTE + SECOND,
              MINUTE + 3 * SECOND, 0);
    /* and beyond the horizon */
    CHECK_SIX(peek(&rig, T0 - MINUTE - 1, 1, DEFAULT), true, 3, 3, 0, 0, 0);
}

static void test_numbers_change(void)
{
    rig_init(&rig, "token-bucket 1/s burst 2");
    take(&rig, T0, 2, DEFAULT);
    rig_change(&rig, "token-bucket 1/s burst 5");
    CHECK_INT(peek(&rig, T0, 1, DEFAULT).remaining, 3); /* a raised burst counts at once */
    rig_change(&rig, "token-bucket 4/s burst 1");
    CHECK_SIX(peek(&rig, T0 + 249999, 1, DEFAULT), false, 1, 0, 250001, 250001, 0);
    rig_change(&rig, "token-bucket 1/s burst 2");
    rig.written_under = rule_of("token-bucket 2/s burst 2"); /* fresh at T0 + 1s under it */
    CHECK_INT(peek(&rig, T0 + SECOND - 1, 1, DEFAULT).remaining, 0);
    CHECK_INT(peek(&rig, T0 + SECOND, 1, DEFAULT).remaining, 2);
}

static void test_debt_stops_at_2_53(void)
{
    rig_init(&rig, "token-bucket 1000g/us burst 1000g");
    take(&rig, T0, WEIR_COST_MAX, DEFAULT);
    for (int i = 0; i < 9007; i++)
        CHECK(take(&rig, T0, WEIR_COST_MAX - (i == 0), WEIR_WAIT_ANY).allowed || i >= 9006);
    CHECK(rig.state.amount <= WEIR__EXACT_MAX &&
          rig.state.amount > WEIR__EXACT_MAX - WEIR_COST_MAX);
    weir_decision d = take(&rig, T0, WEIR_COST_MAX, WEIR_WAIT_ANY);
    CHECK(!d.allowed && d.retry_after_us == 1);
    CHECK(take(&rig, T0 + 1, WEIR_COST_MAX, WEIR_WAIT_ANY).allowed);
}

static void test_bucket_settles(void)
{
    rig_init(&rig, "token-bucket 1/s burst 10");
    CHECK(!settle(&rig, T0, T0, 5, 1)); /* nothing to refund */
    take(&rig, T0, 5, DEFAULT);
    CHECK(settle(&rig, T0 + SECOND, T0, 5, 2));
    CHECK_INT(peek(&rig, T0 + SECOND, 0, DEFAULT).remaining, 9);
    CHECK(settle(&rig, T0 + SECOND, T0, 5, 0));
    CHECK(!rig.state.present);          /* never below 0 */
    CHECK(settle(&rig, T0, T0, 0, 30)); /* a surcharge starts from fresh */
    CHECK_SIX(peek(&rig, T0, 1, DEFAULT), false, 10, 0, 21 * SECOND, 30 * SECOND, 0);
}

/* (c1 - c0) * w does not fit 64 bits. */
static void test_settles_saturate(void)
{
    rig_init(&rig, "token-bucket 1/366d burst 100");
    CHECK(settle(&rig, T0, T0, 0, WEIR_COST_MAX));
    CHECK_INT(rig.state.amount, WEIR__EXACT_MAX);
    weir_decision d = peek(&rig, T0, 100, WEIR_WAIT_ANY);
    CHECK(!d.allowed && d.retry_after_us == WEIR__EXACT_MAX);
    CHECK(d.reset_after_us == WEIR__EXACT_MAX);
    CHECK(settle(&rig, T0, T0, 1, WEIR_COST_MAX));
    CHECK_INT(rig.state.amount, WEIR__EXACT_MAX);
    CHECK(settle(&rig, T0, T0, WEIR_COST_MAX, 0));
    CHECK(!rig.state.present);
    rig_init(&rig, "token-bucket 1/10ms"); /* fits 64 bits, not 53 */
    CHECK(settle(&rig, T0, T0, 0, WEIR_COST_MAX));
    CHECK_INT(rig.state.amount, WEIR__EXACT_MAX);
}

/* Elapsed ticks times the count does not fit 64 bits. */
static void test_long_idle(void)
{
    rig_init(&rig, "token-bucket 1000g/us burst 1000g");
    take(&rig, 0, WEIR_COST_MAX, DEFAULT);
    CHECK_SIX(take(&rig, WEIR__EXACT_MAX - 1, WEIR_COST_MAX, DEFAULT), true, WEIR_COST_MAX, 0, 0, 1,
              0);
}

/* ---- stepped ---- */

static void test_steps(void)
{
    rig_init(&rig, "token-bucket 5/10s burst 12 stepped");
    CHECK_SIX(take(&rig, T0 + 3, 12, DEFAULT), true, 12, 0, 0, 30 * SECOND, 0);
    CHECK_SIX(take(&rig, T0 + 3, 1, DEFAULT), false, 12, 0, 10 * SECOND, 30 * SECOND, 0);
    CHECK_SIX(peek(&rig, T0 + 2 + 10 * SECOND, 1, DEFAULT), false, 12, 0, 1, 20 * SECOND + 1, 0);
    CHECK_SIX(take(&rig, T0 + 4 + 10 * SECOND, 1, DEFAULT), true, 12, 4, 0, 20 * SECOND - 1, 0);
    CHECK_SIX(take(&rig, T0 + 4 + 10 * SECOND, 5, DEFAULT), false, 12, 4, 10 * SECOND - 1,
              20 * SECOND - 1, 0);
    CHECK_SIX(take(&rig, T0, 13, DEFAULT), false, 12, 4, WEIR_NEVER, 30 * SECOND + 3, 0);
    /* once full, the next charge starts the steps anew */
    CHECK_SIX(take(&rig, T0 + HOUR + 5, 1, DEFAULT), true, 12, 11, 0, 10 * SECOND, 0);
    CHECK_INT(rig.state.at, T0 + HOUR + 5);
}

static void test_stepped_waits(void)
{
    rig_init(&rig, "token-bucket 5/10s stepped");
    take(&rig, T0, 5, DEFAULT);
    CHECK_SIX(take(&rig, T0 + 1, 5, 10 * SECOND - 2), false, 5, 0, 1, 10 * SECOND - 1, 0);
    CHECK_SIX(take(&rig, T0 + 1, 5, 10 * SECOND - 1), true, 5, 0, 0, 20 * SECOND - 1,
              10 * SECOND - 1);
    CHECK_SIX(take(&rig, T0 + 1, 1, WEIR_WAIT_ANY), true, 5, 0, 0, 30 * SECOND - 1,
              20 * SECOND - 1);
}

static void test_stepped_saturates(void)
{
    rig_init(&rig, "token-bucket 1/2d stepped");
    CHECK(!settle(&rig, T0, T0, 1, 0));
    CHECK(settle(&rig, T0, T0, 0, WEIR_COST_MAX)); /* 10^12 periods do not fit 64 bits */
    weir_decision d = peek(&rig, T0, 1, WEIR_WAIT_ANY);
    CHECK(!d.allowed && d.retry_after_us == WEIR__EXACT_MAX);
    for (int i = 0; i < 9007; i++)
        settle(&rig, T0, T0, 0, WEIR_COST_MAX);
    CHECK_INT(rig.state.amount, WEIR__EXACT_MAX);
    CHECK(settle(&rig, T0, T0, WEIR_COST_MAX, 0));
    CHECK_INT(rig.state.amount, WEIR__EXACT_MAX - WEIR_COST_MAX);
    rig.state.amount = 1;
    CHECK(settle(&rig, T0, T0, 2, 0));
    CHECK(!rig.state.present);
}

/* A span that fits 64 bits but not half of them. */
static void test_stepped_span(void)
{
    rig_init(&rig, "token-bucket 1/5s stepped");
    settle(&rig, T0, T0, 0, WEIR_COST_MAX);
    CHECK_INT(peek(&rig, T0, 1, DEFAULT).reset_after_us, WEIR__EXACT_MAX);
    rig_init(&rig, "token-bucket 1000g/us burst 1000g stepped");
    rig.state = (struct weir__state){.present = true, .at = T0, .amount = WEIR__EXACT_MAX};
    weir_decision d = peek(&rig, T0, WEIR_COST_MAX, WEIR_WAIT_ANY);
    CHECK(!d.allowed && d.retry_after_us == 1);
    CHECK(peek(&rig, T0 + 1, WEIR_COST_MAX, WEIR_WAIT_ANY).allowed);
    CHECK_INT(peek(&rig, WEIR__EXACT_MAX - 1, 0, DEFAULT).reset_after_us, 0);
}

static void test_stepped_time_runs_back(void)
{
    rig_init(&rig, "token-bucket 5/10s stepped");
    take(&rig, T0, 5, DEFAULT);
    CHECK_SIX(peek(&rig, T0 - SECOND, 1, DEFAULT), false, 5, 0, 11 * SECOND, 11 * SECOND, 0);
    CHECK(peek(&rig, T0 - MINUTE - 1, 1, DEFAULT).allowed);
}

/* ---- leaky bucket ---- */

/* nginx's limit_req rate=10r/s burst=5: 100 ms apart, five more in the queue. */
static void test_leaky_queue(void)
{
    rig_init(&rig, "leaky-bucket 10/s burst 5");
    CHECK_INT(weir__wait_for(&rig.rule, WEIR_WAIT_DEFAULT), WEIR_WAIT_ANY);
    for (int64_t i = 0; i < 6; i++)
        CHECK_SIX(take(&rig, T0, 1, DEFAULT), true, 6, 5 - i, 0, (i + 1) * 100000, i * 100000);
    CHECK_SIX(take(&rig, T0, 1, DEFAULT), false, 6, 0, 100000, 600000, 0);
    CHECK_SIX(take(&rig, T0 + 100000, 1, DEFAULT), true, 6, 0, 0, 600000, 500000);
    CHECK_SIX(take(&rig, T0, 7, DEFAULT), false, 6, 0, WEIR_NEVER, 700000, 0);
}

static void test_leaky_waits(void)
{
    rig_init(&rig, "leaky-bucket 10/s burst 5");
    take(&rig, T0, 3, DEFAULT); /* its own cost delays nobody but the next */
    CHECK_SIX(take(&rig, T0, 1, 299999), false, 6, 3, 1, 300000, 0);
    CHECK_SIX(take(&rig, T0, 1, 300000), true, 6, 2, 0, 400000, 300000);
    CHECK_SIX(peek(&rig, T0, 3, 0), false, 6, 2, 400000, 400000, 0); /* both reasons: the longer */
    CHECK_SIX(peek(&rig, T0, 3, 390000), false, 6, 2, 100000, 400000, 0);
}

static void test_leaky_without_delay(void)
{
    rig_init(&rig, "leaky-bucket 10/s burst 5 nodelay");
    CHECK_SIX(take(&rig, T0, 6, 0), true, 6, 0, 0, 600000, 0);
    CHECK_SIX(take(&rig, T0 + 99999, 1, DEFAULT), false, 6, 0, 1, 500001, 0);
    rig_init(&rig, "leaky-bucket 10/s burst 5 delay 2");
    for (int64_t i = 0; i < 6; i++)
        CHECK_INT(take(&rig, T0, 1, DEFAULT).delay_us, i <= 2 ? 0 : (i - 2) * 100000);
}

static void test_fresh_at(void)
{
    const struct weir__rule rule = rule_of("leaky-bucket 3/2m burst 5");
    struct weir__state state = {.present = true, .at = T0 / 1000, .amount = 100};
    CHECK_INT(weir__algorithm_of(&rule)->fresh_at(&rule, &state), T0 + 34000);
    CHECK(!weir__is_fresh(&rule, &state, T0 + 33999));
    CHECK(weir__is_fresh(&rule, &state, T0 + 34000));
    CHECK(weir__is_fresh(&rule, &state, T0 - rule.horizon_us - 1)); /* nonsense */
}

int main(void)
{
    test_burst_then_rate();
    test_cost_beyond_burst_is_never();
    test_cost_zero_charges_nothing();
    test_waits_are_reservations_in_order();
    test_any_is_366_days();
    test_coarse_ticks();
    test_time_runs_back();
    test_numbers_change();
    test_debt_stops_at_2_53();
    test_bucket_settles();
    test_settles_saturate();
    test_long_idle();
    test_steps();
    test_stepped_waits();
    test_stepped_saturates();
    test_stepped_span();
    test_stepped_time_runs_back();
    test_leaky_queue();
    test_leaky_waits();
    test_leaky_without_delay();
    test_fresh_at();
    return test_report();
}

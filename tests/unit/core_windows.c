/* Fixed windows, sliding log, sliding window and sliding counter, fact by fact. */
#include "core_rig.h"

static struct rig rig;

/* ---- fixed windows ---- */

static void test_aligned(void)
{
    rig_init(&rig, "fixed-window 3/m");
    int64_t t = T0 + 59 * SECOND;
    CHECK_SIX(take(&rig, t, 2, DEFAULT), true, 3, 1, 0, SECOND, 0);
    CHECK_SIX(take(&rig, t, 2, DEFAULT), false, 3, 1, SECOND, SECOND, 0);
    CHECK_SIX(take(&rig, t, 4, DEFAULT), false, 3, 1, WEIR_NEVER, SECOND, 0);
    CHECK_SIX(peek(&rig, T0 + MINUTE - 1, 2, DEFAULT), false, 3, 1, 1, 1, 0);
    CHECK_SIX(take(&rig, T0 + MINUTE, 2, DEFAULT), true, 3, 1, 0, MINUTE, 0);
    CHECK_INT(rig.state.at, T0 + MINUTE);
    /* the clock runs back into the last window: still this one */
    CHECK_SIX(peek(&rig, t, 2, DEFAULT), false, 3, 1, MINUTE + SECOND, MINUTE + SECOND, 0);
    CHECK(peek(&rig, T0 - 1, 2, DEFAULT).allowed);
}

static void test_from_first(void)
{
    rig_init(&rig, "fixed-window 3/m from-first");
    int64_t t = T0 + 59 * SECOND;
    CHECK_SIX(take(&rig, t, 0, DEFAULT), true, 3, 3, 0, 0, 0);
    CHECK_SIX(take(&rig, t, 3, DEFAULT), true, 3, 0, 0, MINUTE, 0);
    CHECK_SIX(take(&rig, t + MINUTE - 1, 1, DEFAULT), false, 3, 0, 1, 1, 0);
    CHECK_SIX(take(&rig, t + MINUTE + 5, 1, DEFAULT), true, 3, 2, 0, MINUTE, 0);
    CHECK_INT(rig.state.at, t + MINUTE + 5);
    CHECK_INT(weir__algorithm_of(&rig.rule)->fresh_at(&rig.rule, &rig.state), t + 2 * MINUTE + 5);
}

static void test_fixed_settles(void)
{
    rig_init(&rig, "fixed-window 10/m");
    CHECK(!settle(&rig, T0, T0, 2, 1)); /* no window to refund */
    take(&rig, T0 + 1, 5, DEFAULT);
    CHECK(settle(&rig, T0 + 2, T0 + 1, 5, 2));
    CHECK_INT(peek(&rig, T0 + 2, 0, DEFAULT).remaining, 8);
    CHECK(!settle(&rig, T0 + 2, T0 - 1, 5, 2));      /* the window before */
    CHECK(!settle(&rig, T0 + 2, T0 + MINUTE, 5, 2)); /* and the one after */
    CHECK(settle(&rig, T0 + 2, T0 - 1, 1, 20));      /* a surcharge is charged now */
    CHECK_SIX(peek(&rig, T0 + 2, 1, DEFAULT), false, 10, 0, MINUTE - 2, MINUTE - 2, 0);
    for (int i = 0; i < 9008; i++)
        settle(&rig, T0 + 2, T0, 0, WEIR_COST_MAX);
    CHECK_INT(rig.state.amount, WEIR__EXACT_MAX);
    rig.state.amount = 3;
    CHECK(settle(&rig, T0 + 2, T0, 4, 0));
    CHECK(!rig.state.present);
}

/* ---- sliding log ---- */

static void test_log(void)
{
    rig_init(&rig, "sliding-log 3/s");
    CHECK_SIX(take(&rig, T0, 1, DEFAULT), true, 3, 2, 0, SECOND, 0);
    CHECK_SIX(take(&rig, T0 + 10, 1, DEFAULT), true, 3, 1, 0, SECOND, 0);
    CHECK_SIX(take(&rig, T0 + 10, 1, DEFAULT), true, 3, 0, 0, SECOND, 0);
    CHECK_INT(rig.state.ring.len, 2); /* one entry an instant */
    CHECK_SIX(take(&rig, T0 + 20, 1, DEFAULT), false, 3, 0, SECOND - 20, SECOND - 10, 0);
    CHECK_SIX(take(&rig, T0 + 20, 2, DEFAULT), false, 3, 0, SECOND - 10, SECOND - 10, 0);
    CHECK_SIX(take(&rig, T0 + 20, 4, DEFAULT), false, 3, 0, WEIR_NEVER, SECOND - 10, 0);
    CHECK_SIX(take(&rig, T0 + SECOND - 1, 1, DEFAULT), false, 3, 0, 1, 11, 0);
    CHECK_SIX(take(&rig, T0 + SECOND, 1, DEFAULT), true, 3, 0, 0, SECOND, 0);
    CHECK_SIX(peek(&rig, T0 + 2 * SECOND, 3, DEFAULT), true, 3, 3, 0, 0, 0);
}

static void test_log_time_runs_back(void)
{
    rig_init(&rig, "sliding-log 2/s");
    take(&rig, T0, 1, DEFAULT);
    CHECK_SIX(take(&rig, T0 - 5, 1, DEFAULT), true, 2, 0, 0, SECOND + 5, 0);
    CHECK_INT(rig.state.ring.len, 1); /* stamped with the newest time, not with its own */
    CHECK(peek(&rig, T0 - MINUTE - 1, 1, DEFAULT).allowed);
}

static void test_log_settles(void)
{
    rig_init(&rig, "sliding-log 10/s");
    CHECK(!settle(&rig, T0, T0, 2, 1));
    CHECK(settle(&rig, T0, T0, 1, 3)); /* gone: charged now */
    take(&rig, T0 + 10, 1, DEFAULT);
    take(&rig, T0 + 20, 1, DEFAULT);
    CHECK(settle(&rig, T0 + 30, T0 + 5, 1, 4)); /* the oldest at t0 or later */
    CHECK_INT(rig.cells[1].count, 4);
    CHECK_INT(rig.state.ring.sum, 7);
    CHECK(settle(&rig, T0 + 30, T0 + 20, 1, 0));
    CHECK_INT(rig.state.ring.len, 2);
    CHECK_INT(rig.state.at, T0 + 10);
    CHECK(settle(&rig, T0 + 30, T0, 5, 0)); /* never below 0 */
    CHECK_INT(rig.state.ring.sum, 4);
    CHECK(settle(&rig, T0 + 30, T0, 9, 0));
    CHECK(!rig.state.present);
}

static void test_log_saturates(void)
{
    rig_init(&rig, "sliding-log 10/s");
    take(&rig, T0, 1, DEFAULT);
    for (int i = 0; i < 9008; i++)
        settle(&rig, T0, T0, 0, WEIR_COST_MAX);
    CHECK_INT(rig.state.ring.sum, WEIR__EXACT_MAX);
    CHECK(!settle(&rig, T0, T0 + 1, 0, 5)); /* no room for a surcharge */
    CHECK_SIX(peek(&rig, T0, 1, DEFAULT), false, 10, 0, SECOND, SECOND, 0);
}

/* A ring that settles have filled to the brim renews its newest cell. */
static void test_log_is_bounded(void)
{
    struct weir__cell *cells = calloc(WEIR__CELLS_MAX, sizeof *cells);
    rig_init(&rig, "sliding-log 10/366d");
    rig.state.ring.cells = cells;
    rig.state.ring.capacity = WEIR__CELLS_MAX;
    for (int64_t i = 0; i < WEIR__CELLS_MAX + 3; i++)
        CHECK(settle(&rig, T0 + i, T0 + i, 0, 1));
    CHECK_INT(rig.state.ring.len, WEIR__CELLS_MAX);
    CHECK_INT(rig.state.ring.sum, WEIR__CELLS_MAX + 3);
    CHECK_INT(cells[WEIR__CELLS_MAX - 1].count, 4);
    CHECK_INT(rig.state.at, T0 + WEIR__CELLS_MAX + 2);
    free(cells);
}

/* A sum that damage has made too large must not lead beyond the last cell. */
static void test_log_with_a_false_sum(void)
{
    rig_init(&rig, "sliding-log 3/s");
    take(&rig, T0, 1, DEFAULT);
    take(&rig, T0 + 5, 1, DEFAULT);
    rig.state.ring.sum = 1000;
    CHECK_INT(peek(&rig, T0 + 5, 1, DEFAULT).retry_after_us, SECOND);
}

/* ---- sliding window ---- */

static void test_window_slots(void)
{
    rig_init(&rig, "sliding-window 5/10s precision 1s");
    take(&rig, T0 + 100, 1, DEFAULT);
    take(&rig, T0 + 999999, 2, DEFAULT); /* renews the slot's stamp */
    CHECK_INT(rig.state.ring.len, 1);
    CHECK_INT(rig.cells[0].stamp, T0 + 999999);
    CHECK_SIX(take(&rig, T0 + SECOND, 2, DEFAULT), true, 5, 0, 0, 10 * SECOND, 0);
    CHECK_INT(rig.state.ring.len, 2);
    CHECK_SIX(take(&rig, T0 + SECOND, 1, DEFAULT), false, 5, 0, 10 * SECOND - 1, 10 * SECOND, 0);
    CHECK_SIX(take(&rig, T0 + SECOND, 4, DEFAULT), false, 5, 0, 10 * SECOND, 10 * SECOND, 0);
    CHECK(!peek(&rig, T0 + 10 * SECOND + 999998, 3, DEFAULT).allowed);
    CHECK(peek(&rig, T0 + 10 * SECOND + 999999, 3, DEFAULT).allowed);
    CHECK_INT(weir__rule_cells(&rig.rule), 12);
}

static void test_window_is_exact_for_one(void)
{
    rig_init(&rig, "sliding-window 1/10s");
    CHECK_INT(rig.rule.extra, SECOND);
    take(&rig, T0 + 1, 1, DEFAULT);
    CHECK_SIX(peek(&rig, T0 + 10 * SECOND, 1, DEFAULT), false, 1, 0, 1, 1, 0);
    CHECK(take(&rig, T0 + 10 * SECOND + 1, 1, DEFAULT).allowed);
}

static void test_window_settle_keeps_the_stamp(void)
{
    rig_init(&rig, "sliding-window 5/10s");
    take(&rig, T0 + 5, 2, DEFAULT);
    CHECK(settle(&rig, T0 + 100, T0 + 5, 2, 4));
    CHECK_INT(rig.cells[0].stamp, T0 + 5);
    CHECK_INT(rig.state.at, T0 + 5);
    CHECK_INT(weir__algorithm_of(&rig.rule)->fresh_at(&rig.rule, &rig.state), T0 + 5 + 10 * SECOND);
}

/* ---- sliding counter ---- */

static void test_counter_weighs(void)
{
    rig_init(&rig, "sliding-counter 10/10s"); /* v = 10: a grain of 10 µs, a million parts */
    int64_t next = T0 + 10 * SECOND;
    take(&rig, T0 + 9 * SECOND, 10, DEFAULT);
    CHECK_SIX(peek(&rig, T0 + 9 * SECOND, 1, DEFAULT), false, 10, 0, 2 * SECOND - 9,
              11 * SECOND - 9, 0);
    CHECK_SIX(peek(&rig, next, 1, DEFAULT), false, 10, 0, SECOND - 9, 10 * SECOND - 9, 0);
    CHECK(!peek(&rig, next + SECOND - 10, 1, DEFAULT).allowed);
    CHECK_SIX(take(&rig, next + SECOND - 9, 1, DEFAULT), true, 10, 0, 0, 19 * SECOND, 0);
    CHECK_INT(rig.state.before, 10);
    CHECK_INT(rig.state.amount, 1);
    CHECK_SIX(peek(&rig, next, 11, DEFAULT), false, 10, 0, WEIR_NEVER, 20 * SECOND - 9, 0);
    /* two windows later all is forgotten */
    CHECK_SIX(peek(&rig, next + 20 * SECOND, 10, DEFAULT), true, 10, 10, 0, 0, 0);
}

static void test_counter_needs_the_next_window(void)
{
    rig_init(&rig, "sliding-counter 10/10s");
    take(&rig, T0, 8, DEFAULT);
    /* 8 + 5 > 10 here; in the next window 8 weighs 5 once half of it has gone (q = 625000) */
    CHECK_INT(peek(&rig, T0, 5, DEFAULT).retry_after_us, 10 * SECOND + 10 * SECOND - 6250010 + 1);
    CHECK_INT(peek(&rig, T0, 5, DEFAULT).reset_after_us, 20 * SECOND - 10 + 1);
}

static void test_counter_time_runs_back(void)
{
    rig_init(&rig, "sliding-counter 10/10s");
    take(&rig, T0, 10, DEFAULT);
    CHECK_SIX(peek(&rig, T0 - 5, 10, DEFAULT), false, 10, 0, 20 * SECOND - 9 + 5,
              20 * SECOND - 9 + 5, 0);
    CHECK(peek(&rig, T0 - MINUTE - 1, 10, DEFAULT).allowed);
}

static void test_counter_settles(void)
{
    rig_init(&rig, "sliding-counter 10/10s");
    int64_t next = T0 + 10 * SECOND;
    take(&rig, T0, 4, DEFAULT);
    take(&rig, next, 3, DEFAULT);
    CHECK(settle(&rig, next + 1, T0 + 9 * SECOND, 4, 2)); /* the window before */
    CHECK_INT(rig.state.before, 2);
    CHECK(settle(&rig, next + 1, next, 3, 5)); /* this window */
    CHECK_INT(rig.state.amount, 5);
    CHECK(!settle(&rig, next + 1, T0 - 1, 4, 2));             /* gone */
    CHECK(!settle(&rig, next + 1, next + 10 * SECOND, 4, 2)); /* never was */
    CHECK(settle(&rig, next + 1, T0 - 1, 4, 5));              /* a surcharge is charged now */
    CHECK_INT(rig.state.amount, 6);
    CHECK(settle(&rig, next + 1, next + 10 * SECOND, 0, 1));
    CHECK_INT(rig.state.amount, 7);
    CHECK(settle(&rig, next + 1, T0, 0, WEIR_COST_MAX));
    CHECK_INT(rig.state.before, 2000000000);
    CHECK(settle(&rig, next + 1, T0, WEIR_COST_MAX, 0));
    CHECK(settle(&rig, next + 1, next, WEIR_COST_MAX, 0));
    CHECK(!rig.state.present);
    CHECK(!settle(&rig, next + 1, T0 - 1, 1, 0));
}

/* One part is the whole of a window of 1 µs. */
static void test_counter_of_one_microsecond(void)
{
    rig_init(&rig, "sliding-counter 1/us");
    CHECK_SIX(take(&rig, 5, 1, DEFAULT), true, 1, 0, 0, 2, 0);
    CHECK_SIX(take(&rig, 6, 1, DEFAULT), false, 1, 0, 1, 1, 0);
    CHECK_SIX(take(&rig, 7, 1, DEFAULT), true, 1, 0, 0, 2, 0);
}

int main(void)
{
    test_aligned();
    test_from_first();
    test_fixed_settles();
    test_log();
    test_log_time_runs_back();
    test_log_settles();
    test_log_saturates();
    test_log_is_bounded();
    test_log_with_a_false_sum();
    test_window_slots();
    test_window_is_exact_for_one();
    test_window_settle_keeps_the_stamp();
    test_counter_weighs();
    test_counter_needs_the_next_window();
    test_counter_time_runs_back();
    test_counter_settles();
    test_counter_of_one_microsecond();
    return test_report();
}

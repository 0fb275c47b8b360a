/*
 * The rows of the table of algorithms: each is complete, and its facts are true of what the
 * algorithm does. Every kind is tried under its own example, so that a new one is tried as well.
 */
#include "core/ring.h"
#include "core_rig.h"

static struct rig rig;

/* A fresh state under the example of a kind. */
static const struct weir__algorithm *begin(int kind)
{
    const struct weir__algorithm *row = weir__algorithms[kind];
    rig_init(&rig, row->example);
    return row;
}

static void test_complete(int kind)
{
    const struct weir__algorithm *row = begin(kind);
    CHECK_INT(rig.rule.kind, kind);
    CHECK(!strncmp(row->full_name, row->name, strlen(row->name)));
    CHECK(!strncmp(row->example, row->name, strlen(row->name)));
    CHECK(row->load && row->judge && row->charge && row->report && row->fresh_at);
    CHECK(row->flaw && row->most && row->window_us && row->ahead_us && row->flood_us);
    CHECK(!row->settle == row->leases);
    for (int other = 0; other < kind; other++)
        CHECK(strcmp(row->full_name, weir__algorithms[other]->full_name) != 0);
}

/* Facts that rule each other out or need each other. */
static void test_consistent(int kind)
{
    const struct weir__algorithm *row = begin(kind);
    CHECK(!row->shapes || row->waits);
    CHECK(!row->overflows || row->waits);
    CHECK(!row->flows || (row->waits && !row->shapes));
    CHECK(!row->quick || (row->shape == WEIR__SHAPE_DEBT && row->unit == WEIR__UNIT_TICK));
    CHECK(!row->leases || row->shape == WEIR__SHAPE_RING);
    CHECK(row->extra != WEIR__EXTRA_PRECISION || row->shape == WEIR__SHAPE_RING);
    CHECK_INT(weir__precision(&rig.rule) > 0, row->extra == WEIR__EXTRA_PRECISION);
    CHECK_INT(rig.rule.horizon_us, weir__max(MINUTE, row->ahead_us(&rig.rule)));
    CHECK_INT(row->most(&rig.rule) == INT64_MAX, row->by_time);
}

/* A fresh state admits the most at once, no more, and is fresh again after the window. */
static void test_most_and_window(int kind)
{
    const struct weir__algorithm *row = begin(kind);
    int64_t most = weir__min(row->most(&rig.rule), WEIR_COST_MAX);
    CHECK(peek(&rig, T0, most, 0).allowed);
    CHECK(row->by_time || peek(&rig, T0, most + 1, 0).retry_after_us == WEIR_NEVER);
    weir_decision taken = take(&rig, T0, most, 0);
    CHECK(taken.allowed);
    if (row->by_time)
        return;
    CHECK_INT(taken.limit, most);
    int64_t window = row->window_us(&rig.rule);
    bool pair = row->shape == WEIR__SHAPE_PAIR; /* its previous window still weighs */
    CHECK(taken.reset_after_us <= window * (1 + pair));
    CHECK(weir__newest_us(&rig.rule, &rig.state) - T0 <= row->ahead_us(&rig.rule));
}

static void test_windows(int kind)
{
    const struct weir__algorithm *row = begin(kind);
    int64_t later = T0 + rig.rule.period_us / 3;
    take(&rig, later, 1, 0);
    if (row->aligned)
        CHECK_INT(weir__newest_us(&rig.rule, &rig.state), T0);
    int64_t end = row->fresh_at(&rig.rule, &rig.state);
    take(&rig, later + rig.rule.period_us / 3, 1, 0);
    if (row->fixed_end)
        CHECK_INT(row->fresh_at(&rig.rule, &rig.state), end);
}

/* A cell weighs what was charged. */
static void test_weight(int kind)
{
    begin(kind);
    if (!weir__is_large(&rig.rule))
        return;
    take(&rig, T0, 3, 0);
    CHECK_INT(weir__cell_weight(&rig.rule, weir__ring_last(&rig.state.ring)), 3);
    CHECK(weir__rule_cells(&rig.rule) >= 1);
}

static void check_times(const char *text, int64_t window, int64_t flood)
{
    struct weir__rule rule = rule_of(text);
    CHECK_INT(weir__algorithm_of(&rule)->window_us(&rule), window);
    CHECK_INT(weir__algorithm_of(&rule)->flood_us(&rule), flood);
}

static void test_times(void)
{
    check_times("token-bucket 10/s burst 20", 2 * SECOND, 2 * SECOND);
    check_times("token-bucket 3/s burst 1", 333334, 333333);
    check_times("token-bucket 10/s burst 25 stepped", 3 * SECOND, 2500000);
    check_times("leaky-bucket 10/s burst 19", 2 * SECOND, 1900000);
    check_times("sliding-counter 10/s", SECOND, SECOND);
    check_times("smooth 5/s burst-for 2s", 2 * SECOND, 4 * SECOND);
    check_times("warmup 1/m over 3s", MINUTE, 6 * SECOND);
    check_times("concurrent 5 lease 30s", 30 * SECOND, 30 * SECOND);
}

int main(void)
{
    for (int kind = 0; kind < WEIR__KIND_COUNT; kind++) {
        test_complete(kind);
        test_consistent(kind);
        test_most_and_window(kind);
        test_windows(kind);
        test_weight(kind);
    }
    test_times();
    return test_report();
}

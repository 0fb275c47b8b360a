/* A state as it is loaded: the clock runs behind it, its numbers changed by much, nobody says what
 * it was written under. */
#include "core_rig.h"

static struct rig rig;

/* The state of a full take at T0, loaded at t under another limit, by the algorithm alone. */
static struct weir__state loaded(const char *before, int64_t cost, const char *after, int64_t t)
{
    rig_init(&rig, before);
    CHECK(take(&rig, T0, cost, 0).allowed);
    rig_change(&rig, after);
    struct weir__state state = rig.state;
    weir__load(&rig.rule, NULL, &state, t);
    return state;
}

/* What is earned in a year at 10^12 a microsecond fits no number: the bucket is full again. */
static void test_earned_beyond_numbers(void)
{
    struct weir__state state =
        loaded("token-bucket 1/366d burst 20", 20, "token-bucket 1000g/us", T0 + 360 * DAY);
    CHECK_INT(state.amount, 0);
    state = loaded("token-bucket 1/1us burst 20 stepped", 20,
                   "token-bucket 1000g/1us burst 1000g stepped", T0 + 360 * DAY);
    CHECK_INT(state.amount, 0);
}

/* A clock that ran back finds the window that was open. */
static void test_clock_behind(void)
{
    struct weir__state state = loaded("fixed-window 5/m", 3, "fixed-window 5/m", T0 - 1);
    CHECK_INT(state.amount, 3);
    CHECK_INT(state.at, T0);
    state = loaded("sliding-counter 5/m", 3, "sliding-counter 5/m", T0 - 1);
    CHECK_INT(state.amount, 3);
    CHECK_INT(state.at, T0 / MINUTE);
}

/* One whose time is over counts for nothing, also where nobody says what it was written under. */
static void test_over(void)
{
    CHECK_INT(loaded("fixed-window 5/m", 3, "fixed-window 5/m", T0 + MINUTE).amount, 0);
    struct weir__state state =
        loaded("sliding-counter 5/m", 3, "sliding-counter 5/m", T0 + 2 * MINUTE);
    CHECK(state.amount == 0 && state.before == 0);
}

int main(void)
{
    test_earned_beyond_numbers();
    test_clock_behind();
    test_over();
    return test_report();
}

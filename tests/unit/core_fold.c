/* Several limits, one answer: what binds, and what the caller is told. */
#include "core_rig.h"

static weir_decision allowed(int64_t limit, int64_t remaining, int64_t reset, int64_t delay)
{
    return (weir_decision){.allowed = true,
                           .limit = limit,
                           .remaining = remaining,
                           .reset_after_us = reset,
                           .delay_us = delay};
}

static weir_decision denied(int64_t limit, int64_t remaining, int64_t retry, int64_t reset)
{
    return (weir_decision){
        .limit = limit, .remaining = remaining, .retry_after_us = retry, .reset_after_us = reset};
}

static weir_decision fold(const weir_decision *rows, size_t n)
{
    weir_decision ret;
    weir__fold(rows, n, &ret);
    return ret;
}

static void test_one(void)
{
    weir_decision row = denied(5, 2, 7, 9);
    CHECK_SIX(fold(&row, 1), false, 5, 2, 7, 9, 0);
    CHECK_INT(fold(&row, 1).binding, 0);
}

static void test_all_allowed(void)
{
    weir_decision rows[] = {allowed(9, 5, 10, 3), allowed(7, 4, 30, 8), allowed(8, 4, 20, 1)};
    CHECK_SIX(fold(rows, 3), true, 7, 4, 0, 30, 8);
    CHECK_INT(fold(rows, 3).binding, 1); /* the first with the least left */
}

static void test_denied(void)
{
    weir_decision rows[] = {allowed(9, 0, 10, 3), denied(7, 4, 20, 30), denied(8, 4, 50, 20),
                            denied(8, 4, 50, 20)};
    CHECK_SIX(fold(rows, 4), false, 8, 4, 50, 30, 0); /* what is left under the one that bound */
    CHECK_INT(fold(rows, 4).binding, 2);              /* the first that waits longest */
    CHECK_INT(fold(rows, 2).binding, 1);
    weir_decision turned[] = {rows[2], rows[1], rows[0]};
    CHECK_INT(fold(turned, 3).binding, 0);
    CHECK_SIX(fold(turned, 3), false, 8, 4, 50, 30, 0);
}

/* Redis was asked for one of them. */
static void test_local(void)
{
    weir_decision rows[] = {allowed(9, 5, 10, 3), allowed(7, 4, 30, 8)};
    rows[0].local = true;
    CHECK(fold(rows, 1).local && !fold(rows, 2).local);
    rows[1].local = true;
    CHECK(fold(rows, 2).local);
}

static void test_never_wins(void)
{
    weir_decision rows[] = {denied(1, 0, 100, 5), denied(1, 0, WEIR_NEVER, 5),
                            denied(1, 0, WEIR_NEVER, 5), denied(1, 0, 200, 5)};
    CHECK_INT(fold(rows, 4).retry_after_us, WEIR_NEVER);
    CHECK_INT(fold(rows, 4).binding, 1);
}

int main(void)
{
    test_one();
    test_all_allowed();
    test_denied();
    test_local();
    test_never_wins();
    return test_report();
}

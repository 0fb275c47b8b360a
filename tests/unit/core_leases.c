/* Concurrency: leases held, lapsed, renewed, released; and a log where nobody releases. */
#include "core_rig.h"

static struct rig rig;

/* Acquires under an id; 0 if denied. */
static uint64_t acquire(int64_t t, int64_t cost, uint64_t id)
{
    struct weir__state state = rig_load(&rig, t);
    struct weir__request request = {t, cost, 0};
    weir_decision d = {0};
    weir__algorithm_of(&rig.rule)->judge(&rig.rule, &state, &request, &d);
    if (!d.allowed)
        return 0;
    weir__lease_acquire(&rig.rule, &state, cost, id);
    rig_store(&rig, &state);
    return id;
}

static bool renew(int64_t t, uint64_t id)
{
    struct weir__state state = rig_load(&rig, t);
    bool found = weir__lease_renew(&rig.rule, &state, id);
    if (found)
        rig_store(&rig, &state);
    return found;
}

static bool release(int64_t t, uint64_t id)
{
    struct weir__state state = rig_load(&rig, t);
    bool found = weir__lease_release(&state, id);
    if (found)
        rig_store(&rig, &state);
    return found;
}

static void test_slots(void)
{
    rig_init(&rig, "concurrent 3 lease 30s");
    CHECK_INT(acquire(T0, 2, 7), 7);
    CHECK_SIX(peek(&rig, T0, 1, DEFAULT), true, 3, 1, 0, 30 * SECOND, 0);
    CHECK_SIX(peek(&rig, T0 + 5, 2, DEFAULT), false, 3, 1, 30 * SECOND - 5, 30 * SECOND - 5, 0);
    CHECK_SIX(peek(&rig, T0, 4, DEFAULT), false, 3, 1, WEIR_NEVER, 30 * SECOND, 0);
    CHECK_INT(acquire(T0 + 1, 1, 8), 8);
    CHECK_INT(acquire(T0 + 2, 1, 9), 0);
    /* both must go for three slots */
    CHECK_INT(peek(&rig, T0 + 2, 3, DEFAULT).retry_after_us, 30 * SECOND - 1);
    CHECK_INT(peek(&rig, T0 + 2, 2, DEFAULT).retry_after_us, 30 * SECOND - 2);
    CHECK(release(T0 + 3, 7));
    CHECK(!release(T0 + 3, 7));
    CHECK_INT(peek(&rig, T0 + 3, 2, DEFAULT).remaining, 2);
    CHECK(release(T0 + 3, 8));
    CHECK(!rig.state.present);
}

static void test_lapse(void)
{
    rig_init(&rig, "concurrent 1 lease 30s");
    acquire(T0, 1, 7);
    CHECK_INT(acquire(T0 + 30 * SECOND - 1, 1, 8), 0);
    CHECK(!release(T0 + 30 * SECOND, 7));
    CHECK(!renew(T0 + 30 * SECOND, 7));
    CHECK_INT(acquire(T0 + 30 * SECOND, 1, 8), 8);
}

static void test_renew(void)
{
    rig_init(&rig, "concurrent 2 lease 30s");
    acquire(T0, 1, 7);
    acquire(T0 + 1, 1, 8);
    CHECK(renew(T0 + 10, 7)); /* now the last to lapse */
    CHECK_INT(rig.state.at, T0 + 10);
    CHECK_INT(peek(&rig, T0 + 10, 1, DEFAULT).retry_after_us, 30 * SECOND - 9);
    CHECK(renew(T0 + 29 * SECOND, 8));
    CHECK(renew(T0 + 30 * SECOND, 7));
    CHECK_INT(peek(&rig, T0 + 30 * SECOND, 1, DEFAULT).retry_after_us, 29 * SECOND);
    CHECK(!renew(T0 + 30 * SECOND, 99));
}

/* A lease keeps the expiry it was given; a shorter one may lapse before it. */
static void test_lease_time_changes(void)
{
    rig_init(&rig, "concurrent 3 lease 1h");
    acquire(T0, 1, 7);
    acquire(T0 + 1, 1, 8);
    rig_change(&rig, "concurrent 3 lease 10s");
    acquire(T0 + 2, 1, 9);
    CHECK_INT(rig.cells[0].lease >> WEIR__LEASE_SHIFT, 9);
    CHECK_INT(rig.cells[2].lease >> WEIR__LEASE_SHIFT, 8);
    CHECK_INT(peek(&rig, T0 + 2, 1, DEFAULT).retry_after_us, 10 * SECOND);
    CHECK_INT(peek(&rig, T0 + 2, 1, DEFAULT).reset_after_us, HOUR - 1);
    CHECK(renew(T0 + 3, 8)); /* under the lease in force now */
    CHECK_INT(peek(&rig, T0 + 3, 1, DEFAULT).reset_after_us, HOUR - 3);
    CHECK_INT(weir__algorithm_of(&rig.rule)->fresh_at(&rig.rule, &rig.state), T0 + HOUR);
}

/* A take is a lease nobody can name. */
static void test_take(void)
{
    rig_init(&rig, "concurrent 2 lease 30s");
    CHECK_SIX(take(&rig, T0, 2, DEFAULT), true, 2, 0, 0, 30 * SECOND, 0);
    CHECK(!release(T0, 0));
    CHECK(!renew(T0, 0));
    CHECK_SIX(take(&rig, T0 - 5, 1, DEFAULT), false, 2, 0, 30 * SECOND + 5, 30 * SECOND + 5, 0);
    CHECK(take(&rig, T0 - MINUTE - 1, 1, DEFAULT).allowed); /* nonsense: the clock was stepped */
    CHECK(!weir__algorithm_of(&rig.rule)->settle);
}

static void test_largest(void)
{
    rig_init(&rig, "concurrent 100k");
    CHECK_INT(acquire(T0, 100000, WEIR__LEASE_MASK) == WEIR__LEASE_MASK, 1);
    CHECK_INT(rig.state.ring.sum, 100000);
    CHECK_INT(rig.cells[0].lease >> WEIR__LEASE_SHIFT == WEIR__LEASE_MASK, 1);
    CHECK(release(T0, WEIR__LEASE_MASK));
    CHECK_INT(rig.state.ring.sum, 0);
    CHECK_INT(weir__algorithm_of(&rig.rule)->fresh_at(&rig.rule, &rig.state), 0);
}

int main(void)
{
    test_slots();
    test_lapse();
    test_renew();
    test_lease_time_changes();
    test_take();
    test_largest();
    return test_report();
}

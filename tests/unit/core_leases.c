/* Concurrency: leases held, lapsed, renewed, released; and a log where nobody releases. */
#include "core_rig.h"

#include "core/ring.h"

static struct rig rig;
static struct rig *it = &rig; /* whose leases the verbs below change */

/* Acquires under an id; 0 if denied. */
static uint64_t acquire(int64_t t, int64_t cost, uint64_t id)
{
    struct weir__state state = rig_load(it, t);
    struct weir__request request = {t, cost, 0};
    weir_decision d = {0};
    weir__algorithm_of(&it->rule)->judge(&it->rule, &state, &request, &d);
    if (!d.allowed)
        return 0;
    weir__lease_acquire(&it->rule, &state, cost, id);
    rig_store(it, &state);
    return id;
}

static bool renew(int64_t t, uint64_t id)
{
    struct weir__state state = rig_load(it, t);
    bool found = weir__lease_renew(&it->rule, &state, id);
    if (found)
        rig_store(it, &state);
    return found;
}

static bool release(int64_t t, uint64_t id)
{
    struct weir__state state = rig_load(it, t);
    bool found = weir__lease_release(&state, id);
    if (found)
        rig_store(it, &state);
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

/* A sum that damage has made too large must not lead beyond the last lease. */
static void test_false_sum(void)
{
    rig_init(&rig, "concurrent 2 lease 1s");
    acquire(T0, 1, 7);
    acquire(T0 + 5, 1, 8);
    rig.state.ring.sum = 1000;
    CHECK_INT(peek(&rig, T0 + 5, 1, DEFAULT).retry_after_us, SECOND);
}

/* Compares two rings, cell by cell. */
static void check_same(const struct weir__ring *a, const struct weir__ring *b)
{
    CHECK_INT(a->len, b->len);
    CHECK_INT(a->sum, b->sum);
    for (uint32_t i = 0; i < a->len && i < b->len; i++) {
        CHECK_INT(weir__ring_cell(a, i)->stamp, weir__ring_cell(b, i)->stamp);
        CHECK(weir__ring_cell(a, i)->lease == weir__ring_cell(b, i)->lease);
    }
}

/* One random step; the same random state gives the same step. */
static void random_step(struct rig *which, int64_t t, uint64_t random)
{
    static const char *const texts[] = {"concurrent 4 lease 1s", "concurrent 4 lease 100ms",
                                        "concurrent 4 lease 3s"};
    it = which;
    rig_change(it, texts[weir__random_next(&random) % 3]);
    uint64_t id = 1 + weir__random_next(&random) % 5;
    uint64_t verb = weir__random_next(&random) % 4;
    if (verb < 2 && !renew(t, id))
        acquire(t, 1, id);
    else if (verb == 2)
        release(t, id);
    it = &rig;
}

/* A ring others look into takes other steps to the same end, with a cell to spare or without. */
static void test_ring_in_shared_memory(uint64_t seed)
{
    static struct rig own, shared;
    static uint64_t header[2] __attribute__((aligned(16)));
    printf("seed %llu\n", (unsigned long long)seed);
    rig_init(&own, "concurrent 4");
    rig_init(&shared, "concurrent 4");
    shared.state.ring_header = header;
    shared.state.ring.capacity = 4;
    for (int64_t t = T0, i = 0; i < 2000; i++) {
        t += (int64_t)(weir__random_next(&seed) % 300000);
        random_step(&own, t, seed);
        random_step(&shared, t, seed);
        check_same(&own.state.ring, &shared.state.ring);
    }
}

int main(void)
{
    test_slots();
    test_lapse();
    test_renew();
    test_lease_time_changes();
    test_take();
    test_largest();
    test_false_sum();
    test_ring_in_shared_memory(20240604);
    return test_report();
}

/* The share of a limit that forgetting a state would give back: what eviction compares. */
#include "core_rig.h"

#include "core/scale.h"

static struct rig rig;

/* After a take of `cost` at T0: the share at t. */
static uint32_t share_at(const char *limit, int64_t cost, int64_t t)
{
    rig_init(&rig, limit);
    CHECK(take(&rig, T0, cost, 0).allowed);
    return weir__state_share(&rig.rule, &rig.state, t);
}

static void check_near(uint32_t share, double wanted)
{
    double got = (double)share / WEIR__SHARE_ONE;
    CHECK(got > wanted - 0.01 && got < wanted + 0.01);
}

/* Half of each limit is used, then all of it is fresh again. */
static void test_kinds(void)
{
    static const struct {
        const char *limit;
        int64_t cost, fresh;
    } kinds[] = {
        {"token-bucket 100/s burst 200", 100, T0 + SECOND},
        {"token-bucket 100/h burst 200", 100, T0 + HOUR},
        {"token-bucket 100/s burst 200 stepped", 100, T0 + SECOND},
        {"leaky-bucket 100/s burst 199 nodelay", 100, T0 + SECOND},
        {"fixed-window 200/m", 100, T0 + MINUTE},
        {"fixed-window 200/m from-first", 100, T0 + MINUTE},
        {"fixed-window 200/d zone +00:30", 100, T0 + 23 * HOUR + 30 * MINUTE},
        {"sliding-log 200/m", 100, T0 + MINUTE},
        {"sliding-window 200/m", 100, T0 + 2 * MINUTE},
        {"sliding-counter 200/m", 100, T0 + 2 * MINUTE},
        {"concurrent 200 lease 1m", 100, T0 + MINUTE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        check_near(share_at(kinds[i].limit, kinds[i].cost, T0), 0.5);
        CHECK_INT(share_at(kinds[i].limit, kinds[i].cost, kinds[i].fresh), 0);
        CHECK(share_at(kinds[i].limit, 1, T0) > 0);
    }
}

/* Only what is owed counts, and a state that is not fresh has a share of 1 at least. */
static void test_guava(void)
{
    CHECK(share_at("smooth 10/s", 5, T0) > 1);
    CHECK_INT(share_at("smooth 10/s", 5, T0 + SECOND), 1);
    CHECK_INT(share_at("smooth 10/s", 5, T0 + 3 * DAY), 0);
    CHECK(share_at("warmup 10/s over 10s", 5, T0) > 1);
}

/* Some entries have gone: the others are taken to weigh as much on average. */
static void test_gone(void)
{
    rig_init(&rig, "sliding-log 100/m");
    for (int i = 0; i < 50; i++)
        CHECK(take(&rig, T0 + i * SECOND, 1, 0).allowed);
    check_near(weir__state_share(&rig.rule, &rig.state, T0 + 49 * SECOND), 0.5);
    check_near(weir__state_share(&rig.rule, &rig.state, T0 + MINUTE + 24 * SECOND), 0.25);
    rig.state.ring.len = 0; /* as a death may leave it */
    rig.state.ring.sum = 0;
    CHECK_INT(weir__algorithm_of(&rig.rule)->share(&rig.rule, &rig.state, T0 + 49 * SECOND), 1);
}

static void test_edges(void)
{
    CHECK_INT(share_at("fixed-window 3/m", 3, T0), WEIR__SHARE_ONE);
    CHECK_INT(share_at("fixed-window 1000g/m", 1, T0), 1);
    CHECK_INT(weir__share_of(INT64_C(1) << 52, INT64_C(1) << 53), WEIR__SHARE_ONE / 2);
    CHECK_INT(weir__share_of((INT64_C(1) << 53) - 1, INT64_C(1) << 53), WEIR__SHARE_ONE - 1);
    CHECK_INT(share_at("fixed-window 3/m", 3, T0 - 3 * DAY), 0); /* from a time that cannot be */
    CHECK_INT(share_at("token-bucket 1/366d burst 20", 20, T0), WEIR__SHARE_ONE);
    rig_change(&rig, "token-bucket 1000g/us");
    CHECK_INT(weir__algorithm_of(&rig.rule)->share(&rig.rule, &rig.state, T0 + 360 * DAY), 0);
}

/* By a scale for many, a state is fresh exactly when it is by itself, and on the same level or the
 * next. */
static void check_scale(const struct weir__rule *rule, const struct weir__state *state, int64_t t)
{
    struct weir__scale scale;
    uint32_t share = weir__state_share(rule, state, t);
    CHECK(weir__scale_make(rule, t, &scale));
    bool pair = weir__algorithm_of(rule)->shape == WEIR__SHAPE_PAIR;
    if (pair && state->at > scale.now)
        return; /* those are asked one by one */
    int level = pair ? weir__scale_pair(&scale, state->at, state->before, state->amount)
                     : weir__scale_amount(&scale, state->at, state->amount);
    CHECK_INT(level == WEIR__LEVEL_FRESH, share == 0);
    CHECK(abs(level - weir__share_level(share)) <= 1);
}

static void test_scales(void)
{
    static const char *const limits[] = {
        "token-bucket 100/s burst 200", "token-bucket 7/h burst 200",
        "token-bucket 1/366d burst 20", "leaky-bucket 100/s burst 199",
        "fixed-window 200/m",           "fixed-window 3/d from-first",
        "sliding-counter 200/m",        "sliding-counter 1000000/7d",
        "sliding-counter 1/s",
    };
    uint64_t chance = 7;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct weir__rule rule = rule_of(limits[i]);
        for (int round = 0; round < 2000; round++) {
            int64_t span = INT64_C(1) << (4 + weir__random_next(&chance) % 45), t = T0;
            rig_init(&rig, limits[i]);
            for (int j = 0; j < 4; j++) {
                int64_t most = weir__max(1, weir__algorithm_of(&rule)->most(&rule) / 2);
                take(&rig, t, 1 + (int64_t)(weir__random_next(&chance) % (uint64_t)most), 0);
                t += (int64_t)(weir__random_next(&chance) % (uint64_t)span);
                if (rig.state.present)
                    check_scale(&rule, &rig.state, round % 8 ? t : t - span);
            }
        }
    }
    CHECK_INT(weir__share_level(0), WEIR__LEVEL_FRESH);
    CHECK_INT(weir__share_level(1), WEIR__LEVEL_LEAST);
    CHECK_INT(weir__share_level(WEIR__SHARE_ONE), WEIR__LEVEL_LEAST + 80);
}

static void test_scale_edges(void)
{
    struct weir__scale scale;
    const struct weir__rule log = rule_of("sliding-log 5/m");
    const struct weir__rule counter = rule_of("sliding-counter 1000/h");
    const int64_t window = T0 / HOUR;
    /* Only the window before has counts, and they weigh nothing any more. */
    const struct weir__state spent = {.present = true, .at = window, .before = 5};
    CHECK(!weir__scale_make(&log, T0, &scale)); /* its states are asked one by one */
    CHECK_INT(weir__level_of(0.5F), WEIR__LEVEL_LEAST);
    CHECK_INT(weir__level_of(2.0F * WEIR__SHARE_ONE), weir__share_level(WEIR__SHARE_ONE));
    check_scale(&counter, &spent, (window + 1) * HOUR - 100);
}

int main(void)
{
    test_scales();
    test_scale_edges();
    test_kinds();
    test_guava();
    test_gone();
    test_edges();
    return test_report();
}

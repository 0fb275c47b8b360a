/* States from untrusted memory: each field out of bounds is refused, the last one within is not.
 * And what all algorithms share: the table, the horizon, which rules speak of one state. */
#include "core_rig.h"

static bool sound(const char *text, struct weir__state state)
{
    const struct weir__rule rule = rule_of(text);
    return weir__state_sound(&rule, &state);
}

static void test_times(void)
{
    const int64_t most = WEIR__EXACT_MAX;
    CHECK(sound("fixed-window 1/s", (struct weir__state){.at = 0}));
    CHECK(sound("fixed-window 1/s", (struct weir__state){.at = most}));
    CHECK(!sound("fixed-window 1/s", (struct weir__state){.at = -1}));
    CHECK(!sound("fixed-window 1/s", (struct weir__state){.at = most + 1}));
    CHECK(sound("token-bucket 1/m", (struct weir__state){.at = most}));
    CHECK(sound("token-bucket 1/h", (struct weir__state){.at = most / 1000})); /* in ticks */
    CHECK(!sound("token-bucket 1/h", (struct weir__state){.at = most / 1000 + 1}));
    CHECK(!sound("leaky-bucket 1/h", (struct weir__state){.at = most / 1000 + 1}));
    CHECK(sound("sliding-counter 1/h", (struct weir__state){.at = most / HOUR})); /* in windows */
    CHECK(!sound("sliding-counter 1/h", (struct weir__state){.at = most / HOUR + 1}));
}

/* A window of the calendar ends at an edge of its limit, or where time does. */
static void test_ends(void)
{
    static const struct {
        const char *text;
        int64_t first;
    } limits[] = {{"fixed-window 1/month", 31 * DAY},
                  {"fixed-window 1/month from 31 zone +08:00", 30 * DAY - 8 * HOUR},
                  {"fixed-window 1/year zone -12:00", 12 * HOUR},
                  {"fixed-window 1/w from fri", DAY},
                  {"fixed-window 1/90s zone +14:00", 90 * SECOND}};
    for (size_t i = 0; i < WEIR__COUNT(limits); i++) {
        int64_t first = limits[i].first;
        CHECK(sound(limits[i].text, (struct weir__state){.at = first}));
        CHECK(!sound(limits[i].text, (struct weir__state){.at = first - 1}));
        CHECK(!sound(limits[i].text, (struct weir__state){.at = first + 1}));
        CHECK(!sound(limits[i].text, (struct weir__state){.at = 0}));
        CHECK(!sound(limits[i].text, (struct weir__state){.at = -1}));
        CHECK(!sound(limits[i].text, (struct weir__state){.at = WEIR__EXACT_MAX - 1}));
        CHECK(sound(limits[i].text, (struct weir__state){.at = WEIR__EXACT_MAX}));
        CHECK(!sound(limits[i].text, (struct weir__state){.at = WEIR__EXACT_MAX + 1}));
    }
    CHECK(!sound("fixed-window 1/month", (struct weir__state){.at = 30 * DAY}));
    CHECK(!sound("fixed-window 1/year", (struct weir__state){.at = 31 * DAY}));
}

static void test_amounts(void)
{
    const int64_t most = WEIR__EXACT_MAX, counter = 2000000000;
    CHECK(sound("token-bucket 1/s", (struct weir__state){.amount = most}));
    CHECK(!sound("token-bucket 1/s", (struct weir__state){.amount = most + 1}));
    CHECK(!sound("token-bucket 1/s", (struct weir__state){.amount = -1}));
    CHECK(sound("sliding-counter 1/s", (struct weir__state){.amount = counter, .before = counter}));
    CHECK(!sound("sliding-counter 1/s", (struct weir__state){.amount = counter + 1}));
    CHECK(!sound("sliding-counter 1/s", (struct weir__state){.before = counter + 1}));
    CHECK(!sound("sliding-counter 1/s", (struct weir__state){.before = -1}));
}

static bool same_state(const char *a, const char *b)
{
    const struct weir__rule x = rule_of(a), y = rule_of(b);
    CHECK(weir__rule_same_state(&x, &y) == weir__rule_same_state(&y, &x));
    return weir__rule_same_state(&x, &y);
}

static void test_same_state(void)
{
    CHECK(same_state("token-bucket 1/s", "token-bucket 9/s burst 5"));
    CHECK(!same_state("token-bucket 1/s", "token-bucket 1/m"));
    CHECK(!same_state("token-bucket 1/s", "token-bucket 1/s stepped"));
    CHECK(!same_state("fixed-window 1/s", "fixed-window 1/s from-first"));
    CHECK(same_state("fixed-window 1/month", "fixed-window 2/month from 1 zone +00:00"));
    CHECK(!same_state("fixed-window 1/month", "fixed-window 1/month from 2"));
    CHECK(!same_state("fixed-window 1/month", "fixed-window 1/month zone +01:00"));
    CHECK(!same_state("fixed-window 1/month", "fixed-window 1/31d zone -12:00"));
    CHECK(!same_state("fixed-window 1/w", "fixed-window 1/w from thu"));
    CHECK(!same_state("fixed-window 1/d", "fixed-window 1/d zone +01:00"));
    CHECK(!same_state("token-bucket 1/s", "leaky-bucket 1/s"));
    CHECK(same_state("sliding-window 1/s", "sliding-window 9/s precision 100ms"));
    CHECK(!same_state("sliding-window 1/s", "sliding-window 1/s precision 200ms"));
    CHECK(same_state("concurrent 1 lease 1s", "concurrent 9 lease 1h"));
    CHECK(same_state("warmup 1/s over 1s", "warmup 9/s over 9s cold 2"));
    CHECK(same_state("smooth 1/s burst-for 3s", "smooth 2/s"));
}

static int64_t horizon(const char *text)
{
    return rule_of(text).horizon_us;
}

static void test_horizons(void)
{
    CHECK_INT(horizon("token-bucket 10/s burst 20"), MINUTE); /* never under a minute */
    CHECK_INT(horizon("token-bucket 1/s burst 100"), 100 * SECOND);
    CHECK_INT(horizon("token-bucket 3/1m1ms burst 10"), 200004000); /* rounded up to a tick */
    CHECK_INT(horizon("leaky-bucket 1/s burst 99"), 100 * SECOND);
    CHECK_INT(horizon("token-bucket 3/m burst 10 stepped"), 4 * MINUTE);
    CHECK_INT(horizon("fixed-window 1/h"), HOUR);
    CHECK_INT(horizon("fixed-window 1/h from-first"), HOUR);
    CHECK_INT(horizon("fixed-window 1/s zone +01:00"), MINUTE);
    CHECK_INT(horizon("fixed-window 1/month"), 31 * DAY);
    CHECK_INT(horizon("fixed-window 1/year from 03-01"), 366 * DAY);
    CHECK_INT(horizon("sliding-log 1/s"), MINUTE);
    CHECK_INT(horizon("sliding-window 1/h"), HOUR);
    CHECK_INT(horizon("sliding-counter 1/h"), 2 * HOUR);
    CHECK_INT(horizon("concurrent 1 lease 2h"), 2 * HOUR);
    CHECK_INT(horizon("smooth 1/h"), INT64_MAX);
    CHECK_INT(horizon("warmup 1/h over 1h"), INT64_MAX);
}

/* A state further ahead than its horizon counts as absent; one as far ahead does not. */
static void test_nonsense(void)
{
    static const char *const limits[] = {
        "token-bucket 1/h",
        "token-bucket 1/h stepped",
        "leaky-bucket 1/h nodelay",
        "fixed-window 1/h",
        "fixed-window 1/h from-first",
        "sliding-log 1/h",
        "sliding-window 1/h",
        "sliding-counter 1/h",
        "concurrent 1 lease 1h",
        "fixed-window 1/d zone +14:00",
    };
    static struct rig rig;
    for (size_t i = 0; i < WEIR__COUNT(limits); i++) {
        rig_init(&rig, limits[i]);
        take(&rig, T0, 1, DEFAULT);
        int64_t edge = weir__newest_us(&rig.rule, &rig.state) - rig.rule.horizon_us;
        CHECK(!peek(&rig, edge, 1, DEFAULT).allowed);
        CHECK(peek(&rig, edge - 1, 1, DEFAULT).allowed);
        CHECK_INT(peek(&rig, edge - 1, 0, DEFAULT).reset_after_us, 0);
        CHECK(take(&rig, edge - 1, 1, DEFAULT).allowed);
        CHECK(!take(&rig, edge - 1, 1, DEFAULT).allowed);
    }
}

/* What came back to fresh under the rule it was written under is absent, whatever the new rule
 * says. */
static void test_fresh_under_the_old_rule(void)
{
    static struct rig rig;
    rig_init(&rig, "concurrent 1 lease 10s");
    take(&rig, T0, 1, DEFAULT);
    rig_change(&rig, "concurrent 1 lease 1h");
    CHECK(!peek(&rig, T0 + 10 * SECOND - 1, 1, DEFAULT).allowed);
    CHECK(peek(&rig, T0 + 10 * SECOND, 1, DEFAULT).allowed);
    rig_init(&rig, "sliding-log 1/s");
    take(&rig, T0, 1, DEFAULT);
    rig_change(&rig, "sliding-log 2/s");
    CHECK_INT(peek(&rig, T0 + 1, 1, DEFAULT).remaining, 1);
    CHECK_INT(peek(&rig, T0 + SECOND, 1, DEFAULT).remaining, 2);
}

static void test_cells(void)
{
    const struct weir__rule log = rule_of("sliding-log 50/s"), lease = rule_of("concurrent 60"),
                            window = rule_of("sliding-window 5/s precision 300ms");
    CHECK_INT(weir__rule_cells(&log), 50);
    CHECK_INT(weir__rule_cells(&lease), 60);
    CHECK_INT(weir__rule_cells(&window), 5); /* as many as a period can touch */
}

int main(void)
{
    test_times();
    test_ends();
    test_amounts();
    test_same_state();
    test_horizons();
    test_nonsense();
    test_fresh_under_the_old_rule();
    test_cells();
    return test_report();
}

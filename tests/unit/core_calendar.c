/*
 * Windows of the calendar: where they start and end, at the edges of months, years and of time
 * itself. tests/homes/redis/calendar_days.py goes through every day.
 */
#include "core/calendar.h"
#include "core_rig.h"
#include "limit/calendar.h"
#include "limit/explain.h"

static struct rig rig;

/* A day of UTC, midnight. */
static int64_t day_us(int year, int month, int day)
{
    int64_t months = (int64_t)year * 12 + month - 3;
    return (weir__month_first(months) + day - 1) * DAY;
}

static void check_window(const char *text, int64_t us, int64_t start, int64_t end)
{
    struct weir__rule rule = rule_of(text);
    int64_t got[2];
    weir__calendar_window(&rule, us, &got[0], &got[1]);
    CHECK_INT(got[0], start);
    CHECK_INT(got[1], end);
    weir__calendar_window(&rule, start, &got[0], &got[1]);
    CHECK_INT(got[0], start);
    weir__calendar_window(&rule, end - 1, &got[0], &got[1]);
    CHECK_INT(got[0], start);
    weir__calendar_window(&rule, end, &got[0], &got[1]);
    CHECK_INT(got[0], end);
}

static void test_months(void)
{
    int64_t february = day_us(2024, 2, 1), march = day_us(2024, 3, 1);
    CHECK_INT(day_us(1970, 1, 1), 0);
    CHECK_INT(march, INT64_C(1709251200000000));
    check_window("fixed-window 1/month", february + 5, february, march);
    check_window("fixed-window 1/month from 31", february, day_us(2024, 1, 31),
                 day_us(2024, 2, 29));
    check_window("fixed-window 1/month from 30", march, day_us(2024, 2, 29), day_us(2024, 3, 30));
    check_window("fixed-window 1/month zone +08:00", march, march - 8 * HOUR,
                 day_us(2024, 4, 1) - 8 * HOUR);
    check_window("fixed-window 1/month from 29", day_us(2100, 3, 1), day_us(2100, 2, 28),
                 day_us(2100, 3, 29));
}

static void test_years_and_weeks(void)
{
    check_window("fixed-window 1/year", day_us(2024, 7, 1), day_us(2024, 1, 1), day_us(2025, 1, 1));
    check_window("fixed-window 1/year from 02-29", day_us(2025, 1, 1), day_us(2024, 2, 29),
                 day_us(2025, 2, 28));
    check_window("fixed-window 1/year from 12-31", day_us(2024, 12, 31), day_us(2024, 12, 31),
                 day_us(2025, 12, 31));
    for (int weekday = 0; weekday < 7; weekday++) { /* 2026-11-16 is a Monday */
        static const char *const names[] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
        char text[64];
        snprintf(text, sizeof text, "fixed-window 1/w from %s", names[weekday]);
        check_window(text, day_us(2026, 11, 16 + weekday) + HOUR, day_us(2026, 11, 16 + weekday),
                     day_us(2026, 11, 23 + weekday));
    }
}

/* The first windows start before 1970. */
static void test_first(void)
{
    check_window("fixed-window 1/month zone +14:00", 0, -14 * HOUR, 31 * DAY - 14 * HOUR);
    check_window("fixed-window 1/month zone -12:00", 0, -31 * DAY + 12 * HOUR, 12 * HOUR);
    check_window("fixed-window 1/year from 12-31", 0, -DAY, 364 * DAY);
    check_window("fixed-window 1/w from fri", 0, -6 * DAY, DAY);
    check_window("fixed-window 1/d zone -12:00", 0, -12 * HOUR, 12 * HOUR);
    check_window("fixed-window 1/h zone +05:45", 0, -45 * MINUTE, 15 * MINUTE);
    rig_init(&rig, "fixed-window 2/year from 12-31");
    CHECK_SIX(take(&rig, 0, 2, DEFAULT), true, 2, 0, 0, 364 * DAY, 0);
    CHECK_SIX(take(&rig, 5, 1, DEFAULT), false, 2, 0, 364 * DAY - 5, 364 * DAY - 5, 0);
    CHECK_INT(weir__newest_us(&rig.rule, &rig.state), -DAY);
    CHECK(weir__state_sound(&rig.rule, &rig.state));
}

/* The last times that there are: ends do not pass 2^53. */
static void test_last(void)
{
    int64_t last = WEIR__EXACT_MAX - 1;
    rig_init(&rig, "fixed-window 1/year");
    CHECK(take(&rig, last, 1, DEFAULT).allowed);
    CHECK(weir__state_sound(&rig.rule, &rig.state));
    CHECK_INT(take(&rig, last, 1, DEFAULT).retry_after_us, 1);
}

/* A state whose window is over is as good as none, also where nobody looked before. */
static void test_over(void)
{
    struct weir__rule rule = rule_of("fixed-window 5/month");
    struct weir__state state = {.present = true, .at = day_us(2026, 2, 1), .amount = 3};
    weir__algorithm_of(&rule)->load(&rule, &state, state.at - 1);
    CHECK(state.present && state.amount == 3);
    weir__algorithm_of(&rule)->load(&rule, &state, state.at);
    CHECK(!state.present && state.amount == 0);
    CHECK_INT(state.at, day_us(2026, 3, 1));
}

/* A refund of another window is void, a surcharge is charged now. */
static void test_settle(void)
{
    int64_t t = day_us(2026, 2, 28);
    rig_init(&rig, "fixed-window 10/month from 31");
    CHECK(!settle(&rig, t, t - 1, 3, 1)); /* nothing is there */
    take(&rig, t, 6, DEFAULT);
    CHECK(!settle(&rig, t, t - 1, 3, 1));
    CHECK(settle(&rig, t + 30 * DAY, t, 6, 1));
    CHECK_INT(peek(&rig, t, 1, DEFAULT).remaining, 9);
    CHECK(settle(&rig, t, t - 1, 1, 4));
    CHECK_INT(peek(&rig, t, 1, DEFAULT).remaining, 6);
    CHECK(settle(&rig, t, t, 9, 1));
    CHECK(!rig.state.present);
}

static void test_rules(void)
{
    struct weir__rule rule = rule_of("fixed-window 1/d");
    CHECK_INT(weir__calendar_of(&rule).unit, WEIR__SPAN);
    weir__rule_set_calendar(&rule, (struct weir__calendar){WEIR__SPAN, 0, 60});
    CHECK_INT(rule.kind, WEIR__CALENDAR);
    weir__rule_set_calendar(&rule, (struct weir__calendar){WEIR__SPAN, 0, 0});
    struct weir__rule plain = rule_of("fixed-window 1/d");
    plain.horizon_us = rule.horizon_us;
    CHECK(!memcmp(&rule, &plain, sizeof rule));
    CHECK(!weir__anchor_fits((enum weir__calendar_unit)9, 1));
    for (int month = 0; month <= 13; month++) {
        static const int lengths[14] = {0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0};
        for (int day = 0; day < 32; day++)
            CHECK_INT(weir__anchor_fits(WEIR__YEAR, weir__year_anchor(month, day)),
                      day >= 1 && day <= lengths[month]);
    }
}

static bool flawed(int64_t unit, int64_t anchor, int64_t zone, int64_t period_us)
{
    struct weir__rule rule = rule_of("fixed-window 1/month");
    rule.extra = (unit * 512 + anchor) * 2048 + zone + 720;
    rule.period_us = period_us;
    return weir__algorithm_of(&rule)->flaw(&rule);
}

/* Calendars from untrusted memory. */
static void test_flaws(void)
{
    CHECK(!flawed(2, 31, 840, 31 * DAY) && !flawed(0, 0, -720, SECOND) &&
          !flawed(1, 7, 0, 7 * DAY));
    CHECK(flawed(4, 0, 0, DAY));
    CHECK(flawed(-1, 0, 0, DAY));
    CHECK(flawed(2, 0, 0, 31 * DAY));
    CHECK(flawed(2, 32, 0, 31 * DAY));
    CHECK(flawed(2, 1, 841, 31 * DAY));
    CHECK(flawed(2, 1, 0, 30 * DAY));
    CHECK(flawed(3, 33, 0, 365 * DAY));
    CHECK(flawed(0, 0, 0, DAY));
    CHECK(flawed(0, 1, 60, DAY));
    CHECK(flawed(1, 0, 0, 7 * DAY) && flawed(1, 8, 0, 7 * DAY));
    struct weir__rule rule = rule_of("fixed-window 1/w from mon");
    rule.extra += 7 * 2048; /* no such weekday: not a word that can be read */
    CHECK(!weir__rule_sound(&rule));
}

/* Rules of a zone that was damaged after it was opened: any answer, but no crash. */
static void test_any_memory(void)
{
    uint64_t noise = 88172645463325252;
    for (int i = 0; i < 100000; i++) {
        struct weir__rule rule = rule_of("fixed-window 9/month");
        noise ^= noise << 13, noise ^= noise >> 7, noise ^= noise << 17;
        rule.extra = (int64_t)(noise >> i % 64) * (i % 3 == 0 ? -1 : 1);
        rule.period_us = 1 + (int64_t)(noise >> (i * 7) % 64) % WEIR_DURATION_MAX;
        struct weir__state state = {
            .present = true, .at = (int64_t)(noise >> 11 >> i % 50), .amount = 3};
        int64_t now = (int64_t)(noise >> 12);
        (void)weir__state_sound(&rule, &state);
        (void)weir__newest_us(&rule, &state);
        (void)weir__is_fresh(&rule, &state, now);
        weir__load(&rule, &rule, &state, now);
        CHECK(state.at <= WEIR__EXACT_MAX);
    }
}

static void check_time(int64_t us, int zone, const char *expected)
{
    char text[WEIR__EDGE_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_time(&buffer, us, zone);
    CHECK_TEXT(text, expected);
}

static void test_texts(void)
{
    char edges[WEIR__EDGES_SHOWN][WEIR__EDGE_MAX];
    struct weir__rule rule = rule_of("fixed-window 1/month from 31 zone -03:30");
    check_time(0, 0, "1970-01-01T00:00:00+00:00");
    check_time(0, -30, "1969-12-31T23:30:00-00:30");
    check_time(day_us(2024, 3, 1) - 1, 345, "2024-03-01T05:44:59.999999+05:45");
    CHECK(weir__explain_edges(&rule, day_us(2026, 2, 1), edges));
    CHECK_TEXT(edges[0], "2026-02-28T00:00:00-03:30");
    CHECK_TEXT(edges[1], "2026-03-31T00:00:00-03:30");
    weir__explain_began(&rule, day_us(2026, 2, 1), edges[0]);
    CHECK_TEXT(edges[0], "2026-01-31T00:00:00-03:30");
    CHECK_TEXT(edges[2], "2026-04-30T00:00:00-03:30");
    rule = rule_of("fixed-window 1/d");
    CHECK(!weir__explain_edges(&rule, 0, edges));
    int number = -1;
    CHECK(!weir__anchor_read(WEIR__SPAN, "1", 1, &number));
    static const char *const dates[] = {"4-06",  "04/06", "ab-06", "04-ab",
                                        "04-40", "00-01", "99-01"};
    for (size_t i = 0; i < WEIR__COUNT(dates); i++)
        CHECK(!weir__anchor_read(WEIR__YEAR, dates[i], strlen(dates[i]), &number));
    static const char *const offsets[] = {"",       "+8",     "+0800",  "008:00",
                                          "+a8",    "+08.00", "+08:ab", "+08:60",
                                          "+14:01", "-12:01", "+08:000"};
    for (size_t i = 0; i < WEIR__COUNT(offsets); i++)
        CHECK(!weir__zone_read(offsets[i], strlen(offsets[i]), &number));
    CHECK_INT(number, -1);
    CHECK(weir__zone_read("-12:00", 6, &number) && number == -720);
    CHECK(weir__zone_read("+14", 3, &number) && number == 840);
}

int main(void)
{
    test_months();
    test_years_and_weeks();
    test_first();
    test_last();
    test_over();
    test_settle();
    test_rules();
    test_flaws();
    test_any_memory();
    test_texts();
    return test_report();
}

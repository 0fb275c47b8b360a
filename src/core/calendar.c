/*
 * Fixed windows of the calendar: months, years, weeks from a weekday, and windows of any length in
 * a zone. `at` is the end of the window: it is never before the epoch, as the start of the first
 * one may be, and within a window nothing needs the calendar.
 */
#include "core/calendar.h"

#define ANCHORS 512
#define ZONES 2048

/* ---- the calendar of a rule ---- */

static struct weir__calendar calendar_unpack(int64_t extra)
{
    return (struct weir__calendar){(enum weir__calendar_unit)(extra / ZONES / ANCHORS),
                                   (int)(extra / ZONES % ANCHORS),
                                   (int)(extra % ZONES) + WEIR__ZONE_MIN};
}

struct weir__calendar weir__calendar_of(const struct weir__rule *rule)
{
    if (rule->kind == WEIR__CALENDAR)
        return calendar_unpack(rule->extra);
    assert(rule->kind == WEIR__FIXED_WINDOW);
    return (struct weir__calendar){WEIR__SPAN, 0, 0};
}

/* The longest window of a unit; a span is as long as the rule says. */
static int64_t calendar_longest_us(const struct weir__rule *rule, enum weir__calendar_unit unit)
{
    static const int64_t days[WEIR__CALENDAR_UNITS] = {
        [WEIR__SPAN] = 0, [WEIR__WEEK] = 7, [WEIR__MONTH] = 31, [WEIR__YEAR] = 366};
    assert(unit < WEIR__CALENDAR_UNITS);
    return unit == WEIR__SPAN ? rule->period_us : days[unit] * WEIR__DAY_US;
}

void weir__rule_set_calendar(struct weir__rule *rule, struct weir__calendar calendar)
{
    assert(weir__anchor_fits(calendar.unit, calendar.anchor));
    assert(calendar.zone >= WEIR__ZONE_MIN && calendar.zone <= WEIR__ZONE_MAX);
    if (calendar.unit == WEIR__SPAN && calendar.zone == 0) {
        rule->kind = WEIR__FIXED_WINDOW;
        rule->extra = 0;
        return;
    }
    rule->kind = WEIR__CALENDAR;
    rule->extra = ((int64_t)calendar.unit * ANCHORS + calendar.anchor) * ZONES + calendar.zone -
                  WEIR__ZONE_MIN;
    rule->period_us = calendar_longest_us(rule, calendar.unit);
}

bool weir__anchor_fits(enum weir__calendar_unit unit, int anchor)
{
    int month = anchor / 32, day = anchor % 32;
    switch (unit) {
    case WEIR__SPAN:
        return anchor == 0;
    case WEIR__WEEK:
        return anchor >= 1 && anchor <= 7;
    case WEIR__MONTH:
        return anchor >= 1 && anchor <= 31;
    case WEIR__YEAR:
        return month >= 1 && month <= 12 && day >= 1 &&
               day <= (month == 2 ? 29 : 30 + (month + month / 8) % 2);
    }
    return false;
}

int weir__anchor_preset(enum weir__calendar_unit unit)
{
    return unit == WEIR__MONTH ? 1 : unit == WEIR__YEAR ? weir__year_anchor(1, 1) : 0;
}

/* Rules are read from zones and from Redis, too. */
static const char *calendar_flaw(const struct weir__rule *rule)
{
    static const char flaw[] = "there is no such calendar";
    if (rule->extra < 0 || rule->extra >= (int64_t)WEIR__CALENDAR_UNITS * ANCHORS * ZONES)
        return flaw;
    struct weir__calendar it = calendar_unpack(rule->extra);
    bool plain = it.unit == WEIR__SPAN && it.zone == 0; /* that is another kind */
    bool fits = weir__anchor_fits(it.unit, it.anchor) && it.zone <= WEIR__ZONE_MAX && !plain &&
                rule->period_us == calendar_longest_us(rule, it.unit);
    return fits ? NULL : flaw;
}

/* ---- its edges ---- */

/* The anchor's day of a month, or its last. */
static int64_t calendar_edge(int64_t month, int64_t day)
{
    return weir__min(weir__month_first(month) + day - 1, weir__month_first(month + 1) - 1);
}

/* The first day of the window that a day lies in, and of the next. */
static void calendar_days(const struct weir__calendar *calendar, int64_t today, int64_t *ret_start,
                          int64_t *ret_end)
{
    if (calendar->unit == WEIR__WEEK) {
        *ret_start = today - (today + 4 - calendar->anchor + 7) % 7;
        *ret_end = *ret_start + 7;
        return;
    }
    int64_t month = weir__month_of(today), step = 1, day = calendar->anchor;
    if (calendar->unit == WEIR__YEAR) {
        month = month / 12 * 12 + (calendar->anchor / 32 + 9) % 12;
        step = 12;
        day = calendar->anchor % 32;
    }
    if (today < calendar_edge(month, day))
        month -= step;
    *ret_start = calendar_edge(month, day);
    *ret_end = calendar_edge(month + step, day);
}

void weir__calendar_window(const struct weir__rule *rule, int64_t us, int64_t *ret_start,
                           int64_t *ret_end)
{
    struct weir__calendar calendar = weir__calendar_of(rule);
    int64_t zone_us = calendar.zone * WEIR__ZONE_MINUTE_US, local = us + zone_us;
    if (calendar.unit == WEIR__SPAN) {
        int64_t within = local % rule->period_us;
        *ret_start = us - within - (within < 0 ? rule->period_us : 0);
        *ret_end = *ret_start + rule->period_us;
        return;
    }
    int64_t start, end;
    calendar_days(&calendar, weir__day_of(local), &start, &end);
    *ret_start = start * WEIR__DAY_US - zone_us;
    *ret_end = end * WEIR__DAY_US - zone_us;
    assert((*ret_start <= us && us < *ret_end && *ret_end - *ret_start <= rule->period_us) ||
           calendar_flaw(rule)); /* of a damaged zone it is any window */
}

/* The first edge after a time; times are below 2^53 and so are ends. */
static int64_t calendar_end(const struct weir__rule *rule, int64_t us)
{
    int64_t start, end;
    weir__calendar_window(rule, us, &start, &end);
    return weir__saturated(end);
}

/* ---- the algorithm ---- */

static void calendar_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us)
{
    if (!state->present || now_us >= state->at) {
        state->present = false;
        state->amount = 0;
        state->at = calendar_end(rule, now_us);
    }
}

static void calendar_judge(const struct weir__rule *rule, const struct weir__state *state,
                           const struct weir__request *request, weir_decision *ret)
{
    ret->limit = rule->count;
    ret->allowed = state->amount + request->cost <= rule->count;
    if (!ret->allowed)
        ret->retry_after_us =
            request->cost > rule->count ? WEIR_NEVER : state->at - request->now_us;
}

static void calendar_charge(const struct weir__rule *rule, struct weir__state *state,
                            const struct weir__request *request)
{
    (void)rule;
    state->amount += request->cost;
    state->present = true;
}

static void calendar_report(const struct weir__rule *rule, const struct weir__state *state,
                            int64_t now_us, weir_decision *ret)
{
    ret->remaining = weir__max(0, rule->count - state->amount);
    if (state->amount > 0)
        ret->reset_after_us = state->at - now_us;
}

/* Where the charge's window is gone, a refund is void and a surcharge is charged now. */
static bool calendar_settle(const struct weir__rule *rule, struct weir__state *state,
                            const struct weir__correction *correction)
{
    int64_t change = correction->actual - correction->charged;
    if (change < 0 &&
        (!state->present || calendar_end(rule, correction->charged_at_us) != state->at))
        return false;
    state->amount = weir__max(0, weir__min(WEIR__EXACT_MAX, state->amount + change));
    state->present = state->amount > 0;
    return true;
}

static int64_t calendar_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    (void)rule;
    return state->at;
}

static uint32_t calendar_share(const struct weir__rule *rule, const struct weir__state *state,
                               int64_t now_us)
{
    return now_us >= state->at ? 0 : weir__share_of(state->amount, rule->count);
}

const struct weir__algorithm weir__algorithm_calendar = {
    .name = "fixed-window",
    .full_name = "fixed-window calendar",
    .example = "fixed-window 5000/month from 15 zone +08:00",
    .shape = WEIR__SHAPE_COUNT,
    .unit = WEIR__UNIT_END,
    .extra = WEIR__EXTRA_CALENDAR,
    .fixed_end = true,
    .sliced = true,
    .load = calendar_load,
    .judge = calendar_judge,
    .charge = calendar_charge,
    .report = calendar_report,
    .settle = calendar_settle,
    .fresh_at = calendar_fresh_at,
    .share = calendar_share,
    .flaw = calendar_flaw,
    .most = weir__rule_count,
    .window_us = weir__rule_period_us,
    .window = weir__calendar_window,
    .ahead_us = weir__rule_period_us,
    .flood_us = weir__rule_period_us,
};

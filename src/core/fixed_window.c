/* Fixed windows: aligned to the epoch, or opened by their first charged request (from-first). */
#include "core/scale.h"

static void fixed_window_load(const struct weir__rule *rule, struct weir__state *state,
                              int64_t now_us)
{
    int64_t now = state->present ? weir__max(now_us, state->at) : now_us;
    if (!state->present || now >= state->at + rule->period_us) {
        state->present = false;
        state->amount = 0;
        state->at = weir__algorithm_of(rule)->aligned ? now - now % rule->period_us : now;
    }
}

static void fixed_window_judge(const struct weir__rule *rule, const struct weir__state *state,
                               const struct weir__request *request, weir_decision *ret)
{
    ret->limit = rule->count;
    ret->allowed = state->amount + request->cost <= rule->count;
    if (!ret->allowed)
        ret->retry_after_us = request->cost > rule->count
                                  ? WEIR_NEVER
                                  : state->at + rule->period_us - request->now_us;
}

static void fixed_window_charge(const struct weir__rule *rule, struct weir__state *state,
                                const struct weir__request *request)
{
    (void)rule;
    state->amount += request->cost;
    state->present = true;
}

static void fixed_window_report(const struct weir__rule *rule, const struct weir__state *state,
                                int64_t now_us, weir_decision *ret)
{
    ret->remaining = weir__max(0, rule->count - state->amount);
    if (state->amount > 0)
        ret->reset_after_us = state->at + rule->period_us - now_us;
}

/* Whether t0 fell into the window at hand. */
static bool window_holds(const struct weir__rule *rule, const struct weir__state *state, int64_t t0)
{
    return state->present && t0 >= state->at && t0 < state->at + rule->period_us;
}

/* Where the charge's window is gone, a refund is void and a surcharge is charged now. */
static bool fixed_window_settle(const struct weir__rule *rule, struct weir__state *state,
                                const struct weir__correction *correction)
{
    int64_t change = correction->actual - correction->charged;
    if (change < 0 && !window_holds(rule, state, correction->charged_at_us))
        return false;
    state->amount = weir__max(0, weir__min(WEIR__EXACT_MAX, state->amount + change));
    state->present = state->amount > 0;
    return true;
}

static int64_t fixed_window_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    return state->at + rule->period_us;
}

static uint32_t fixed_window_share(const struct weir__rule *rule, const struct weir__state *state,
                                   int64_t now_us)
{
    if (now_us >= fixed_window_fresh_at(rule, state))
        return 0;
    return weir__share_of(state->amount, rule->count);
}

static void fixed_window_scale(const struct weir__rule *rule, int64_t now_us,
                               struct weir__scale *ret)
{
    ret->gone = now_us - rule->period_us;
    ret->whole = rule->count;
}

/* What both have in common. */
#define WINDOW_FUNCTIONS                                                                           \
    .load = fixed_window_load, .judge = fixed_window_judge, .charge = fixed_window_charge,         \
    .report = fixed_window_report, .settle = fixed_window_settle,                                  \
    .fresh_at = fixed_window_fresh_at, .share = fixed_window_share, .scale = fixed_window_scale,   \
    .flaw = weir__rule_no_flaw, .most = weir__rule_count, .window_us = weir__rule_period_us,       \
    .ahead_us = weir__rule_period_us, .flood_us = weir__rule_period_us

const struct weir__algorithm weir__algorithm_fixed_window = {
    .name = "fixed-window",
    .full_name = "fixed-window",
    .example = "fixed-window 100/m",
    .shape = WEIR__SHAPE_COUNT,
    .aligned = true,
    .fixed_end = true,
    .sliced = true,
    WINDOW_FUNCTIONS,
};

const struct weir__algorithm weir__algorithm_from_first = {
    .name = "fixed-window",
    .full_name = "fixed-window from-first",
    .example = "fixed-window 100/m from-first",
    .shape = WEIR__SHAPE_COUNT,
    .fixed_end = true,
    .sliced = true,
    WINDOW_FUNCTIONS,
};

/*
 * Sliding counter: two aligned windows, the previous one weighed by its overlap with the last W.
 * Weights are q of Wv parts, Wv at most 2^20, so that every product stays exact. `at` is the number
 * of the current window, `before` the previous count, `amount` the current.
 */
#include "core/scale.h"

#define COUNT_MAX 1000000000

/* v: microseconds a part. */
static inline int64_t counter_grain(const struct weir__rule *rule)
{
    return weir__div_up(rule->period_us, INT64_C(1) << 20);
}

static inline int64_t counter_parts(const struct weir__rule *rule)
{
    return rule->period_us / counter_grain(rule);
}

/* q, the weight of the previous window now. */
static int64_t counter_weight(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t elapsed = state->now_us - state->at * rule->period_us;
    return weir__min(counter_parts(rule), (rule->period_us - elapsed) / counter_grain(rule));
}

/* Parts in use. */
static int64_t counter_used(const struct weir__rule *rule, const struct weir__state *state)
{
    return state->before * counter_weight(rule, state) + state->amount * counter_parts(rule);
}

static void sliding_counter_load(const struct weir__rule *rule, struct weir__state *state,
                                 int64_t now_us)
{
    int64_t now = state->present ? weir__max(now_us, state->at * rule->period_us) : now_us;
    int64_t window = now / rule->period_us;
    if (!state->present || window > state->at + 1) {
        state->before = state->amount = 0;
    } else if (window == state->at + 1) {
        state->before = state->amount;
        state->amount = 0;
    }
    state->at = window;
    state->now_us = now;
    state->present = state->before > 0 || state->amount > 0;
}

/* The instant at which `previous` weighs little enough to leave `room` whole units, in the window
 * after number `window`'s start. */
static int64_t counter_light_enough_at(const struct weir__rule *rule, int64_t window,
                                       int64_t previous, int64_t room)
{
    int64_t q = room * counter_parts(rule) / previous;
    return window * rule->period_us + rule->period_us - (q + 1) * counter_grain(rule) + 1;
}

static void sliding_counter_judge(const struct weir__rule *rule, const struct weir__state *state,
                                  const struct weir__request *request, weir_decision *ret)
{
    ret->limit = rule->count;
    if (request->cost > rule->count) {
        ret->retry_after_us = WEIR_NEVER;
        return;
    }
    int64_t scale = counter_parts(rule);
    ret->allowed = counter_used(rule, state) + request->cost * scale <= rule->count * scale;
    if (ret->allowed)
        return;
    int64_t room = rule->count - request->cost - state->amount;
    int64_t when = room >= 0 ? counter_light_enough_at(rule, state->at, state->before, room)
                             : counter_light_enough_at(rule, state->at + 1, state->amount,
                                                       rule->count - request->cost);
    ret->retry_after_us = when - request->now_us;
}

static void sliding_counter_charge(const struct weir__rule *rule, struct weir__state *state,
                                   const struct weir__request *request)
{
    (void)rule;
    assert(request->cost >= 1 && state->amount + request->cost <= WEIR__PAIR_MAX);
    state->amount += request->cost;
    state->present = true;
}

/* When the last trace of a loaded state weighs nothing any more. */
static int64_t counter_weightless_at(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t windows = state->amount > 0 ? 2 : 1;
    return (state->at + windows) * rule->period_us - counter_grain(rule) + 1;
}

static void sliding_counter_report(const struct weir__rule *rule, const struct weir__state *state,
                                   int64_t now_us, weir_decision *ret)
{
    int64_t left = rule->count * counter_parts(rule) - counter_used(rule, state);
    ret->remaining = left <= 0 ? 0 : left / counter_parts(rule);
    if (state->present)
        ret->reset_after_us = weir__max(0, counter_weightless_at(rule, state) - now_us);
}

static bool sliding_counter_settle(const struct weir__rule *rule, struct weir__state *state,
                                   const struct weir__correction *correction)
{
    int64_t change = correction->actual - correction->charged;
    int64_t window = correction->charged_at_us / rule->period_us;
    bool gone = window < state->at - 1 || window > state->at;
    if (change < 0 && (gone || !state->present))
        return false;
    int64_t *count = !gone && window == state->at - 1 ? &state->before : &state->amount;
    *count = weir__max(0, weir__min(WEIR__PAIR_MAX, *count + change));
    state->present = state->before > 0 || state->amount > 0;
    return true;
}

static int64_t sliding_counter_fresh_at(const struct weir__rule *rule,
                                        const struct weir__state *state)
{
    return counter_weightless_at(rule, state);
}

static uint32_t sliding_counter_share(const struct weir__rule *rule,
                                      const struct weir__state *state, int64_t now_us)
{
    if (now_us >= sliding_counter_fresh_at(rule, state))
        return 0;
    struct weir__state now = *state;
    sliding_counter_load(rule, &now, now_us);
    return weir__share_of(counter_used(rule, &now), rule->count * counter_parts(rule));
}

static void sliding_counter_scale(const struct weir__rule *rule, int64_t now_us,
                                  struct weir__scale *ret)
{
    struct weir__state now = {.at = now_us / rule->period_us, .now_us = now_us};
    ret->now = now.at;
    ret->gone = now.at - 2;
    ret->weight = counter_weight(rule, &now);
    ret->parts = counter_parts(rule);
    ret->whole = rule->count * ret->parts;
}

static const char *sliding_counter_flaw(const struct weir__rule *rule)
{
    return rule->count > COUNT_MAX ? "the count is at most 1g here" : NULL;
}

static int64_t sliding_counter_ahead_us(const struct weir__rule *rule)
{
    return 2 * rule->period_us;
}

const struct weir__algorithm weir__algorithm_sliding_counter = {
    .name = "sliding-counter",
    .full_name = "sliding-counter",
    .example = "sliding-counter 1000/h",
    .shape = WEIR__SHAPE_PAIR,
    .sliced = true,
    .unit = WEIR__UNIT_PERIOD,
    .aligned = true,
    .load = sliding_counter_load,
    .judge = sliding_counter_judge,
    .charge = sliding_counter_charge,
    .report = sliding_counter_report,
    .settle = sliding_counter_settle,
    .fresh_at = sliding_counter_fresh_at,
    .share = sliding_counter_share,
    .scale = sliding_counter_scale,
    .flaw = sliding_counter_flaw,
    .most = weir__rule_count,
    .window_us = weir__rule_period_us,
    .ahead_us = sliding_counter_ahead_us,
    .flood_us = weir__rule_period_us,
};

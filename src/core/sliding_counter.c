/*
 * Sliding counter: two aligned windows, the previous one weighed by its overlap with the last W.
 * Weights are q of Wv parts, Wv at most 2^20, so that every product stays exact. `at` is the number
 * of the current window, `before` the previous count, `amount` the current.
 */
#include "core/algorithms.h"

#define COUNT_MAX INT64_C(2000000000)

/* v: microseconds a part. */
static inline int64_t grain(const struct weir__rule *rule)
{
    return weir__div_up(rule->period_us, INT64_C(1) << 20);
}

static inline int64_t parts(const struct weir__rule *rule)
{
    return rule->period_us / grain(rule);
}

/* q, the weight of the previous window now. */
static int64_t weight(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t elapsed = state->now_us - state->at * rule->period_us;
    return weir__min(parts(rule), (rule->period_us - elapsed) / grain(rule));
}

/* Parts in use. */
static int64_t used(const struct weir__rule *rule, const struct weir__state *state)
{
    return state->before * weight(rule, state) + state->amount * parts(rule);
}

void weir__sliding_counter_load(const struct weir__rule *rule, struct weir__state *state,
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
static int64_t light_enough_at(const struct weir__rule *rule, int64_t window, int64_t previous,
                               int64_t room)
{
    int64_t q = room * parts(rule) / previous;
    return window * rule->period_us + rule->period_us - (q + 1) * grain(rule) + 1;
}

void weir__sliding_counter_judge(const struct weir__rule *rule, const struct weir__state *state,
                                 const struct weir__request *request, weir_decision *ret)
{
    ret->limit = rule->count;
    if (request->cost > rule->count) {
        ret->retry_after_us = WEIR_NEVER;
        return;
    }
    int64_t scale = parts(rule);
    ret->allowed = used(rule, state) + request->cost * scale <= rule->count * scale;
    if (ret->allowed)
        return;
    int64_t room = rule->count - request->cost - state->amount;
    int64_t when = room >= 0 ? light_enough_at(rule, state->at, state->before, room)
                             : light_enough_at(rule, state->at + 1, state->amount,
                                               rule->count - request->cost);
    ret->retry_after_us = when - request->now_us;
}

void weir__sliding_counter_charge(const struct weir__rule *rule, struct weir__state *state,
                                  const struct weir__request *request)
{
    (void)rule;
    state->amount += request->cost;
    state->present = true;
}

/* When the last trace of a loaded state weighs nothing any more. */
static int64_t weightless_at(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t windows = state->amount > 0 ? 2 : 1;
    return (state->at + windows) * rule->period_us - grain(rule) + 1;
}

void weir__sliding_counter_report(const struct weir__rule *rule, const struct weir__state *state,
                                  int64_t now_us, weir_decision *ret)
{
    int64_t left = rule->count * parts(rule) - used(rule, state);
    ret->remaining = left <= 0 ? 0 : left / parts(rule);
    if (state->present)
        ret->reset_after_us = weir__max(0, weightless_at(rule, state) - now_us);
}

bool weir__sliding_counter_settle(const struct weir__rule *rule, struct weir__state *state,
                                  const struct weir__correction *correction)
{
    int64_t change = correction->actual - correction->charged;
    int64_t window = correction->charged_at_us / rule->period_us;
    bool gone = window < state->at - 1 || window > state->at;
    if (change < 0 && (gone || !state->present))
        return false;
    int64_t *count = !gone && window == state->at - 1 ? &state->before : &state->amount;
    *count = weir__max(0, weir__min(COUNT_MAX, *count + change));
    state->present = state->before > 0 || state->amount > 0;
    return true;
}

int64_t weir__sliding_counter_fresh_at(const struct weir__rule *rule,
                                       const struct weir__state *state)
{
    return weightless_at(rule, state);
}

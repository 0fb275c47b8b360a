/*
 * What token bucket and leaky bucket share. A tick is 1 µs for periods up to a minute, else 1 ms;
 * a token is w units, every tick earns N units; the state is (at, debt), so that a full bucket looks
 * the same whatever the burst is changed to. Inline, so that the zone's short cut for buckets
 * runs these very lines.
 */
#ifndef WEIR_BUCKET_H
#define WEIR_BUCKET_H

#include "core/core.h"

#define WEIR__FINE_PERIOD_MAX_US INT64_C(60000000)

static inline int64_t weir__tick_us(const struct weir__rule *rule)
{
    return rule->period_us <= WEIR__FINE_PERIOD_MAX_US ? 1 : 1000;
}

/* When x more units have come, relative to t; rounded up to a tick, never before the truth. */
static inline int64_t weir__units_in(const struct weir__rule *rule, const struct weir__state *state,
                                     int64_t x, int64_t now_us)
{
    if (x <= 0)
        return 0;
    int64_t when = (state->at + weir__div_up(x, rule->count)) * weir__tick_us(rule);
    return weir__max(0, when - now_us);
}

/* After load `at` is T. */
static inline void weir__bucket_load(const struct weir__rule *rule, struct weir__state *state,
                                     int64_t now_us)
{
    int64_t tick = weir__tick_us(rule);
    int64_t now = tick == 1 ? now_us : now_us / tick;
    if (state->present && state->at > now)
        now = state->at;
    if (!state->present) {
        state->amount = 0;
    } else {
        int64_t elapsed = now - state->at, earned;
        if (__builtin_mul_overflow(elapsed, rule->count, &earned) || earned >= state->amount)
            state->amount = 0;
        else
            state->amount -= earned;
    }
    state->at = now;
}

static inline void weir__bucket_charge(const struct weir__rule *rule, struct weir__state *state,
                                       const struct weir__request *request)
{
    state->amount += request->cost * rule->ticks;
    state->present = true;
}

static inline void weir__bucket_report(const struct weir__rule *rule,
                                       const struct weir__state *state, int64_t now_us,
                                       weir_decision *ret)
{
    int64_t level = rule->cap - state->amount;
    ret->remaining = level <= 0 ? 0 : level / rule->ticks;
    ret->reset_after_us = weir__saturated(weir__units_in(rule, state, state->amount, now_us));
}

/* debt += (c1 - c0) * w, within 0 … 2^53. */
static inline bool weir__bucket_settle(const struct weir__rule *rule, struct weir__state *state,
                                       const struct weir__correction *correction)
{
    int64_t change = correction->actual - correction->charged, units;
    if (change < 0 && !state->present)
        return false;
    if (__builtin_mul_overflow(change, rule->ticks, &units))
        units = change < 0 ? -WEIR__EXACT_MAX : WEIR__EXACT_MAX;
    units = weir__max(-WEIR__EXACT_MAX, weir__min(WEIR__EXACT_MAX, units));
    state->amount = weir__max(0, weir__min(WEIR__EXACT_MAX, state->amount + units));
    state->present = state->amount > 0;
    return true;
}

static inline int64_t weir__bucket_fresh_at(const struct weir__rule *rule,
                                            const struct weir__state *state)
{
    return (state->at + weir__div_up(state->amount, rule->count)) * weir__tick_us(rule);
}

#endif

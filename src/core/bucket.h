/*
 * Token bucket and leaky bucket. A token is w units, and every tick earns N units. The state is
 * (at, debt), so that a full bucket looks the same whatever its burst is changed to.
 *
 *     token bucket   a burst at once, then the rate; with a wait, reservations served in order
 *     leaky bucket   nginx's limit_req: burst+1 fit, and a request waits until what was before it
 *                    has leaked down to the `delay` count (0 unless given). Its own cost never
 *                    delays it
 *
 * Inline, so that the zone's short cut for buckets runs these very lines; bucket.c has the rows.
 */
#ifndef WEIR_BUCKET_H
#define WEIR_BUCKET_H

#include "core/core.h"

/* When x more units have come, relative to t; rounded up to a tick, never before the truth. */
static inline int64_t weir__units_in(const struct weir__rule *rule, const struct weir__state *state,
                                     int64_t x, int64_t now_us)
{
    if (x <= 0)
        return 0;
    int64_t when = (state->at + weir__div_up(x, rule->count)) * weir__tick_us(rule);
    return weir__max(0, when - now_us);
}

/* After load `at` is the present tick. */
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

static inline void weir__token_bucket_judge(const struct weir__rule *rule,
                                            const struct weir__state *state,
                                            const struct weir__request *request, weir_decision *ret)
{
    ret->limit = rule->burst;
    if (request->cost > rule->burst) {
        ret->retry_after_us = WEIR_NEVER;
        return;
    }
    int64_t units = request->cost * rule->ticks;
    int64_t delay =
        weir__units_in(rule, state, units - (rule->cap - state->amount), request->now_us);
    int64_t beyond = state->amount + units - WEIR__EXACT_MAX; /* more debt than counts exactly */
    ret->allowed = delay <= request->wait_us && beyond <= 0;
    if (ret->allowed)
        ret->delay_us = delay;
    else
        ret->retry_after_us = weir__saturated(weir__max(
            delay - request->wait_us, weir__units_in(rule, state, beyond, request->now_us)));
}

static inline void weir__leaky_bucket_judge(const struct weir__rule *rule,
                                            const struct weir__state *state,
                                            const struct weir__request *request, weir_decision *ret)
{
    ret->limit = rule->burst + 1;
    if (request->cost > rule->burst + 1) {
        ret->retry_after_us = WEIR_NEVER;
        return;
    }
    int64_t missing = request->cost * rule->ticks - (rule->cap - state->amount);
    int64_t delay = 0;
    if (!(rule->flags & WEIR__NODELAY))
        delay =
            weir__units_in(rule, state, state->amount - rule->extra * rule->ticks, request->now_us);
    ret->allowed = missing <= 0 && delay <= request->wait_us;
    if (ret->allowed)
        ret->delay_us = weir__saturated(delay);
    else
        ret->retry_after_us = weir__saturated(weir__max(
            weir__units_in(rule, state, missing, request->now_us), delay - request->wait_us));
}

/* Of a rule whose row says `quick`. */
static inline void weir__bucket_judge(const struct weir__rule *rule,
                                      const struct weir__state *state,
                                      const struct weir__request *request, weir_decision *ret)
{
    assert(weir__algorithm_of(rule)->quick);
    if (rule->kind == WEIR__TOKEN_BUCKET)
        weir__token_bucket_judge(rule, state, request, ret);
    else
        weir__leaky_bucket_judge(rule, state, request, ret);
}

static inline void weir__bucket_charge(const struct weir__rule *rule, struct weir__state *state,
                                       const struct weir__request *request)
{
    assert(state->amount >= 0 && request->cost >= 1);
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

#endif

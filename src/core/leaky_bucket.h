/*
 * Leaky bucket, nginx's limit_req: burst+1 fit, and a request waits until what was before it has
 * leaked down to the `delay` count (0 unless given). Its own cost never delays itself.
 */
#ifndef WEIR_LEAKY_BUCKET_H
#define WEIR_LEAKY_BUCKET_H

#include "core/bucket.h"

static inline void weir__leaky_bucket_decide(const struct weir__rule *rule,
                                             const struct weir__state *state,
                                             const struct weir__request *request,
                                             weir_decision *ret)
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

#endif

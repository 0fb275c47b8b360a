/* Token bucket: a burst at once, then the rate; with a wait, reservations served in order. */
#ifndef WEIR_TOKEN_BUCKET_H
#define WEIR_TOKEN_BUCKET_H

#include "core/bucket.h"

static inline void weir__token_bucket_decide(const struct weir__rule *rule,
                                             const struct weir__state *state,
                                             const struct weir__request *request,
                                             weir_decision *ret)
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

#endif

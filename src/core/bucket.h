/*
 * What token bucket and leaky bucket share. A tick is 1 µs for periods up to a minute, else 1 ms;
 * a token is w units, every tick earns N units; the state is (at, debt), so that a full bucket looks
 * the same whatever the burst is changed to.
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

/* After load `at` is T, and now_us is t'. */
void weir__bucket_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us);
void weir__bucket_charge(const struct weir__rule *rule, struct weir__state *state,
                         const struct weir__request *request);
void weir__bucket_report(const struct weir__rule *rule, const struct weir__state *state,
                         int64_t now_us, weir_decision *ret);
bool weir__bucket_settle(const struct weir__rule *rule, struct weir__state *state,
                         const struct weir__correction *correction);
int64_t weir__bucket_fresh_at(const struct weir__rule *rule, const struct weir__state *state);

#endif

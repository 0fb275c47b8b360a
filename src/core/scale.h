/*
 * Shares of many states of one limit at one instant, for eviction: what weir__state_share says, in
 * steps. What follows from limit and instant alone is worked out once (the algorithm's `scale`), so
 * that no state costs a division.
 */
#ifndef WEIR_SCALE_H
#define WEIR_SCALE_H

#include "core/core.h"

#include <string.h>

/* `at` of these states: up to `gone` they are fresh, beyond `latest` they are nonsense. */
struct weir__scale {
    int64_t now; /* in the unit of `at` */
    int64_t gone, latest;
    int64_t rate;          /* amounts: what they lose in a unit of time */
    int64_t weight, parts; /* pairs: of the previous count, of the current one */
    int64_t whole;         /* the limit */
    float per_unit;        /* 2^20 / whole */
};

#define WEIR__LEVEL_FRESH 0
#define WEIR__LEVEL_LEAST 1 /* a share of 1 / 2^20 */

/* Four levels for every power of two, so that shares within an eighth to a quarter count as equal.
 * A float has them in its exponent and the first two bits of its fraction. */
static inline uint8_t weir__level_of(float share)
{
    uint32_t bits;
    const float one = (float)WEIR__SHARE_ONE;
    share = share < 1 ? 1 : share > one ? one : share;
    memcpy(&bits, &share, sizeof bits);
    return (uint8_t)((bits >> 21) - (127u << 2) + WEIR__LEVEL_LEAST);
}

static inline uint8_t weir__share_level(uint32_t share)
{
    return share ? weir__level_of((float)share) : WEIR__LEVEL_FRESH;
}

/* Works a limit's scale out; false: its states have to be asked one by one. */
static inline bool weir__scale_make(const struct weir__rule *rule, int64_t now_us,
                                    struct weir__scale *ret)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    if (!algorithm->scale)
        return false;
    *ret = (struct weir__scale){.gone = INT64_MIN};
    algorithm->scale(rule, now_us, ret);
    ret->latest = (now_us + rule->horizon_us) / weir__unit_us(rule);
    ret->per_unit = (float)WEIR__SHARE_ONE / (float)ret->whole;
    return true;
}

/* Buckets and fixed windows. */
static inline uint8_t weir__scale_amount(const struct weir__scale *scale, int64_t at,
                                         int64_t amount)
{
    int64_t elapsed = weir__max(0, scale->now - at), earned;
    bool fresh = (at <= scale->gone) | (at > scale->latest) |
                 __builtin_mul_overflow(elapsed, scale->rate, &earned);
    if (fresh || earned >= amount)
        return WEIR__LEVEL_FRESH;
    return weir__level_of((float)(amount - earned) * scale->per_unit);
}

/* Sliding counters whose window is not ahead of now. */
static inline uint8_t weir__scale_pair(const struct weir__scale *scale, int64_t at, int64_t before,
                                       int64_t amount)
{
    assert(at <= scale->now);
    if (at <= scale->gone)
        return WEIR__LEVEL_FRESH;
    int64_t used =
        at == scale->now ? before * scale->weight + amount * scale->parts : amount * scale->weight;
    return used > 0 ? weir__level_of((float)used * scale->per_unit) : WEIR__LEVEL_FRESH;
}

#endif

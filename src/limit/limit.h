/*
 * The limit language: text ⇄ rules; and rules from numbers. Parsing reads one limit at a time,
 * checks it against its bounds, and uses nothing of a text that has an error anywhere.
 */
#ifndef WEIR_LIMIT_H
#define WEIR_LIMIT_H

#include "base/buffer.h"
#include "base/span.h"
#include "core/core.h"

#include <stdatomic.h>

/* A limit list. Immutable but for the hints. One that weir__limit_of_rules made has only `count`
 * rules, and its text behind them: tenants have limits by the hundred thousand. So nobody copies it
 * whole. */
struct weir_limit {
    size_t count;
    char *text;
    /* The cost of each limit's own, 0: it is charged what the request costs. NULL: none has one. */
    const int64_t *costs;
    _Atomic uint32_t others; /* references beside the first */
    /* Where a zone keeps each rule: row, its generation and the zone's serial, as many bits of each
     * as fit (store/zone/store.c); 0: unknown. A guess, verified at every use. */
    _Atomic uint64_t hints[WEIR_LIMITS_MAX];
    struct weir__rule rules[WEIR_LIMITS_MAX];
};

/* A limit of 1 to WEIR_LIMITS_MAX rules that were checked, and their own costs, 0: none. */
int weir__limit_of_rules(const struct weir__rule *rules, const int64_t *costs, size_t n,
                         weir_limit **ret, weir_error *err);

/* Another reference, given back by weir_limit_free like the first. */
const weir_limit *weir__limit_ref(const weir_limit *limit);

/* Reads up to WEIR_LIMITS_MAX rules and their own costs, 0: none; *ret_count of them on success. */
int weir__limits_parse(const char *text, struct weir__rule *ret_rules, int64_t *ret_costs,
                       size_t *ret_count, weir_error *err);
/* The same where nobody charges anything: a rule with a cost is refused. */
int weir__rules_parse(const char *text, struct weir__rule *ret_rules, size_t *ret_count,
                      weir_error *err);

/* What is wrong with a rule that parsed; NULL: nothing, and the rest of it is derived. */
const char *weir__rule_check(struct weir__rule *rule);

/* Whether a rule read from untrusted memory is one that parsing could have made. */
bool weir__rule_sound(const struct weir__rule *rule);

/* What limit i is asked for by a request that costs, or is granted, this: its own cost, if it has
 * one. A request of cost 0 asks for nothing anywhere. */
static inline int64_t weir__limit_asked(const weir_limit *limit, size_t i, int64_t cost)
{
    assert(i < limit->count);
    if (WEIR__LIKELY(!limit->costs) || cost == 0 || limit->costs[i] == 0)
        return cost;
    return limit->costs[i];
}

/* Whether limit i is charged what the request costs. */
static inline bool weir__limit_varies(const weir_limit *limit, size_t i)
{
    assert(i < limit->count);
    return !limit->costs || limit->costs[i] == 0;
}

/* Canonical text, of limit i with its cost. */
struct weir__rule_text weir__limit_text_of(const weir_limit *limit, size_t i);
void weir__put_limit(struct weir__buffer *buffer, const weir_limit *limit, size_t i);
void weir__put_rule(struct weir__buffer *buffer, const struct weir__rule *rule);
/* Longest canonical text of one rule, with room to spare. */
#define WEIR__RULE_TEXT_MAX 128
/* The same as a value: weir__rule_text(rule).text. */
struct weir__rule_text {
    char text[WEIR__RULE_TEXT_MAX];
};
struct weir__rule_text weir__rule_text(const struct weir__rule *rule);

/* ---- limit_req.c ---- */

/* Whether a text begins like nginx's limit_req, limit_req_zone, or a rate of it. */
bool weir__limit_req_is(const char *text);
/* The limit that is the same here. */
void weir__put_limit_req(struct weir__buffer *buffer, const char *text);

/* ---- part.c ---- */

#define WEIR__LIMITS_TEXT_MAX (WEIR_LIMITS_MAX * WEIR__RULE_TEXT_MAX)

/* Some limits of a list (bit i of `some`: limit i), without costs. It lives as long as `text`. */
void weir__limit_part(const weir_limit *limit, uint32_t some, char text[WEIR__LIMITS_TEXT_MAX],
                      weir_limit *ret);
/* Which limits are charged what the request costs. */
uint32_t weir__limit_variable(const weir_limit *limit);
/* Of those in *left, all that a request which was granted this much was charged the same by;
 * *ret_charged: what. They are taken out of *left. */
uint32_t weir__limit_charged_alike(const weir_limit *limit, uint32_t *left, int64_t granted,
                                   int64_t *ret_charged);

/* ---- shares (reduce.c) ----
 *
 * A share is a part of a limit's size, in millionths. The size is what a fresh state admits at
 * once: the burst of a token bucket, burst + 1 of a leaky bucket, the count of the others. */

#define WEIR__SHARE_WHOLE INT64_C(1000000) /* 100 % */

/* Reads "50%" or "12.5%", up to four decimals. NULL, or what is wrong. */
const char *weir__share_read(struct weir__span text, uint32_t *ret);
void weir__put_share(struct weir__buffer *buffer, uint32_t millionths);

/* Whether a rule has a size: smooth and warmup judge by time alone. */
bool weir__rule_has_size(const struct weir__rule *rule);
/* The same limits, which all have a size, with a share of it: rounded down, at least 1. Their
 * states are those of `limit`. WEIR_EINVAL: one has a cost of its own that is more than that. */
int weir__limit_reduce(const weir_limit *limit, uint32_t millionths, weir_limit **ret,
                       weir_error *err);

#endif

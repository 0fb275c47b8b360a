/*
 * Giving back without a receipt: a settle to 0 of a charge that is made up so that it fits the
 * state. With an id the made-up receipt is always the same, so that its settle counts once.
 */
#include "store/store.h"

#include "base/buffer.h"
#include "base/hash.h"
#include "limit/receipt.h"

#include <assert.h>

uint64_t weir__refund_id(const char *text, size_t len)
{
    static const uint64_t everywhere[2] = {0, 0}; /* the same in all processes and stores */
    uint64_t hash[2];
    weir__hash(everywhere, text, len, hash);
    const uint64_t id = hash[0] & WEIR__RECEIPT_ID_MAX;
    return id | !id;
}

/* When the charge was made. A log or window is given back from its oldest entry that still counts.
 * A bucket's debt and the window of now need no such care. */
static int64_t refund_time(const struct weir__rule *rule, int64_t now_us)
{
    if (weir__is_large(rule))
        return weir__max(0, now_us - rule->period_us + 1);
    return now_us;
}

/* The same if it has an id: a time that stays the same while the state lives, as Redis remembers
 * it by that. Of a sliding counter it stays while its window does; a window from-first that was
 * given back as a whole is another one after the next charge. A zone does not look at it. */
static int64_t refund_time_named(const struct weir__rule *rule, const struct weir__shown *state,
                                 int64_t now_us)
{
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_COUNT: /* the last moment of its window */
        return state->fresh_us > now_us ? state->fresh_us - 1 : now_us;
    case WEIR__SHAPE_PAIR:
        return now_us - now_us % rule->period_us;
    case WEIR__SHAPE_RING: /* from the oldest entry on */
    case WEIR__SHAPE_DEBT: /* a time means nothing to it, as to the next */
    case WEIR__SHAPE_PERMITS:
        break;
    }
    return 0;
}

/* The state of a key under a rule; all zero: there is none. */
static int refund_look(weir_store *store, weir_key key, const struct weir__rule *rule,
                       struct weir__shown *ret)
{
    struct weir__shown states[WEIR__SHOWN_MAX];
    size_t count = 0;
    int code = weir__store_show(store, key, states, &count);
    const struct weir__shown *found = weir__shown_under(states, code ? 0 : count, rule);
    *ret = found ? *found : (struct weir__shown){0};
    return code;
}

/* What was given back, by the state before and after. A debt or count gives what it has: there,
 * takes meanwhile do not matter. */
static int64_t refund_given(const struct weir__rule *rule, const struct weir__shown *before,
                            const struct weir__shown *after, int64_t amount)
{
    const int64_t earlier_us = weir__max(0, before->at_us - after->at_us);
    __int128 given = 0;
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        given = before->spent;
        break;
    case WEIR__SHAPE_PAIR:
    case WEIR__SHAPE_RING:
        given = weir__max(0, before->spent - after->spent);
        break;
    case WEIR__SHAPE_PERMITS: /* it is free earlier */
        given = ((__int128)earlier_us * rule->count + rule->period_us - 1) / rule->period_us;
        break;
    }
    return given < amount ? (int64_t)given : amount;
}

/* Settles the made-up charge under one rule. */
static int refund_settle(weir_store *store, weir_key key, const struct weir__rule *rule,
                         int64_t time_us, const struct weir__refund *refund)
{
    const bool window = weir__algorithm_of(rule)->shape == WEIR__SHAPE_COUNT;
    struct weir__correction correction = {.charged_at_us = time_us,
                                          .charged = refund->amount,
                                          .id = refund->id,
                                          .anytime = refund->id && window};
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    const weir_limit one = {.count = 1, .rules = {*rule}, .text = text};
    weir__put_rule(&buffer, rule);
    return weir__settle(store, key, &one, &correction, NULL);
}

int weir__refund_limit(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                       const struct weir__refund *refund, int64_t *given)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir_limit one = {.count = 1, .rules = {limit->rules[i]}, .text = text};
    const struct weir__rule *rule = &one.rules[0];
    weir_decision now;
    assert(i < limit->count && refund->amount > 0 && (given || !refund->id));
    weir__put_rule(&buffer, rule);
    int code = weir_peek(store, key, &one, 0, &now);
    if (code || now.degraded)
        return code ? code : WEIR_EUNREACHABLE;
    struct weir__shown before = {0}, after = {0};
    if (given && (code = refund_look(store, key, rule, &before)))
        return code;
    const int64_t time_us =
        refund->id ? refund_time_named(rule, &before, now.time_us) : refund_time(rule, now.time_us);
    /* By the numbers that it was last charged under, so that these stay the state's. */
    code = refund_settle(store, key, before.whole ? &before.rule : rule, time_us, refund);
    if (code || !given)
        return code;
    code = refund_look(store, key, rule, &after);
    *given = code ? 0 : refund_given(rule, &before, &after, refund->amount);
    return code;
}

int weir__refund(weir_store *store, weir_key key, const weir_limit *limit,
                 const struct weir__refund *refund, int64_t given[WEIR_LIMITS_MAX], weir_error *err)
{
    const weir_request request = {.key = key, .limit = limit, .cost = refund->amount};
    size_t done = 0, before = 0;
    int code = weir__request_check(store, &request, err);
    if (code == 0 && refund->amount < 1)
        code = weir__fail(err, WEIR_EINVAL, 0, "invalid amount 0: expected 1 to %lld",
                          (long long)WEIR_COST_MAX);
    if (code == 0)
        code = weir__settles(limit, err);
    if (code)
        return code;
    for (size_t i = 0; i < limit->count && code == 0; i++) {
        given[i] = 0;
        if (!weir__limit_varies(limit, i))
            continue;
        code = weir__refund_limit(store, key, limit, i, refund, &given[i]);
        before += code == WEIR_ESETTLED;
        done += code == 0;
        code = code == WEIR_ESETTLED ? 0 : code;
    }
    if (code == 0 && done == 0 && before > 0)
        return WEIR_ESETTLED;
    return code ? weir__store_fail(store, code, err) : 0;
}

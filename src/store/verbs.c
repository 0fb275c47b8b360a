/*
 * The verbs beside take and peek: leases, and settling a charge. Each checks its bounds, then hands
 * over to the engine of the store. wait.c has waiting.
 */
#include "store/store.h"

#include "base/buffer.h"
#include "base/random.h"
#include "limit/receipt.h"

#include <assert.h>

/* ---- leases ---- */

size_t weir__leased(const weir_limit *limit)
{
    size_t i = 0;
    while (i < limit->count && !weir__algorithm_of(&limit->rules[i])->leases)
        i++;
    return i;
}

/* Ids are 47 random bits, so that nobody can name another's. */
int weir__lease_id(uint64_t *ret)
{
    uint64_t id;
    if (weir__random_word(&id))
        return -1;
    id &= WEIR__LEASE_MASK;
    *ret = id | !id;
    return 0;
}

int weir_acquire(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                 weir_decision *ret)
{
    weir_request request = weir_request_make(key, limit);
    request.cost = cost;
    request.acquire = true;
    return ret ? weir__take_all(store, &request, 1, ret) : WEIR_EINVAL;
}

static int lease_change(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease,
                        enum weir__lease_verb verb, weir_error *err)
{
    weir_request request = weir_request_make(key, limit);
    request.acquire = true; /* one of its limits has leases */
    int code = weir__request_check(store, &request, err);
    if (code)
        return code;
    int64_t now = weir__store_now(store);
    if (now < 0)
        return weir__store_fail(store, WEIR_EINVAL, err);
    if (lease == 0 || lease > WEIR__LEASE_MASK)
        return weir__store_fail(store, WEIR_ENOLEASE, err);
    int state = weir__store_begin(store);
    code = store->engine->change_lease(store, key, limit, weir__leased(limit), lease, verb, now);
    weir__store_end(store, state);
    if (code == 0 && verb == WEIR__RELEASE)
        weir__wait_freed(store, key);
    return code ? weir__store_fail(store, code, err) : 0;
}

int weir_renew_lease(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease,
                     weir_error *err)
{
    return lease_change(store, key, limit, lease, WEIR__RENEW, err);
}

int weir_release_lease(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease,
                       weir_error *err)
{
    return lease_change(store, key, limit, lease, WEIR__RELEASE, err);
}

int weir_renew(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease)
{
    return lease_change(store, key, limit, lease, WEIR__RENEW, NULL);
}

int weir_release(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease)
{
    return lease_change(store, key, limit, lease, WEIR__RELEASE, NULL);
}

/* ---- settling ---- */

int weir__settles(const weir_limit *limit, weir_error *err)
{
    for (size_t i = 0; i < limit->count; i++) {
        if (!weir__algorithm_of(&limit->rules[i])->settle && weir__limit_varies(limit, i))
            return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                              "concurrent limits cannot be settled: release the lease instead");
    }
    if (!weir__limit_variable(limit))
        return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                          "limits with a cost of their own cannot be settled, and \"%.200s\" has "
                          "no other",
                          limit->text);
    return 0;
}

int weir__receipt_check(const char *receipt, struct weir__correction *ret, weir_error *err)
{
    if (!receipt)
        return weir__fail(err, WEIR_EINVAL, 0, "the receipt is NULL");
    if (!*receipt)
        return weir__fail(err, WEIR_ERECEIPT, 0,
                          "the receipt is empty: the requests of the call were charged different "
                          "amounts, so settle each with a receipt of its own rows");
    if (!weir__receipt_read(receipt, ret))
        return weir__fail(err, WEIR_ERECEIPT, 0,
                          "invalid receipt \"%.64s\": expected what the take replied, like %s",
                          receipt, "w3-1700000000000000-1-68719476736");
    return 0;
}

/* A log or window is given back from its oldest entry that still counts. A bucket's debt and the
 * window of now need no such care. */
static int64_t refund_time(const struct weir__rule *rule, int64_t now_us)
{
    if (weir__is_large(rule))
        return weir__max(0, now_us - rule->period_us + 1);
    return now_us;
}

/* The state of a key under a rule; all zero: there is none. */
static int refund_look(weir_store *store, weir_key key, const struct weir__rule *rule,
                       struct weir__shown *ret)
{
    struct weir__shown states[WEIR__SHOWN_MAX];
    size_t count = 0;
    int code = weir__store_show(store, key, states, &count);
    *ret = (struct weir__shown){0};
    for (size_t i = 0; code == 0 && i < count; i++) {
        if (states[i].rule.kind == rule->kind && weir__rule_same_state(&states[i].rule, rule))
            *ret = states[i];
    }
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

int weir__refund_limit(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                       int64_t amount, int64_t *given)
{
    char receipt[WEIR_RECEIPT_SIZE], text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir_limit one = {.count = 1, .rules = {limit->rules[i]}, .text = text};
    weir_decision now;
    assert(i < limit->count && amount > 0);
    weir__put_rule(&buffer, &one.rules[0]);
    int code = weir_peek(store, key, &one, 0, &now);
    if (code || now.degraded)
        return code ? code : WEIR_EUNREACHABLE;
    struct weir__shown before = {0}, after = {0};
    if (given && (code = refund_look(store, key, &one.rules[0], &before)))
        return code;
    weir__receipt_write(refund_time(&one.rules[0], now.time_us), amount, 0, receipt);
    code = weir_settle(store, key, &one, receipt, 0, NULL);
    if (code || !given)
        return code;
    code = refund_look(store, key, &one.rules[0], &after);
    *given = code ? 0 : refund_given(&one.rules[0], &before, &after, amount);
    return code;
}

int weir__refund(weir_store *store, weir_key key, const weir_limit *limit, int64_t amount,
                 int64_t given[WEIR_LIMITS_MAX], weir_error *err)
{
    const weir_request request = {.key = key, .limit = limit, .cost = amount};
    int code = weir__request_check(store, &request, err);
    if (code == 0 && amount < 1)
        code = weir__fail(err, WEIR_EINVAL, 0, "invalid amount 0: expected 1 to %lld",
                          (long long)WEIR_COST_MAX);
    if (code == 0)
        code = weir__settles(limit, err);
    if (code)
        return code;
    for (size_t i = 0; i < limit->count && code == 0; i++) {
        given[i] = 0;
        if (weir__limit_varies(limit, i))
            code = weir__refund_limit(store, key, limit, i, amount, &given[i]);
    }
    return code ? weir__store_fail(store, code, err) : 0;
}

/* Correcting a charge, named by its receipt. */
static int settle_check(weir_store *store, weir_key key, const weir_limit *limit,
                        const char *receipt, int64_t actual, struct weir__correction *ret,
                        weir_error *err)
{
    weir_request request = weir_request_make(key, limit);
    request.cost = actual;
    int code = weir__request_check(store, &request, err);
    if (code == 0)
        code = weir__receipt_check(receipt, ret, err);
    if (code)
        return code;
    ret->actual = actual;
    return weir__settles(limit, err);
}

/* Without the limits that have a cost of their own. */
static __attribute__((noinline)) int settle_variable(weir_store *store, weir_key key,
                                                     const weir_limit *limit,
                                                     const struct weir__correction *correction)
{
    char text[WEIR__LIMITS_TEXT_MAX];
    weir_limit part;
    weir__limit_part(limit, weir__limit_variable(limit), text, &part);
    return store->engine->settle(store, key, &part, correction);
}

int weir_settle(weir_store *store, weir_key key, const weir_limit *limit, const char *receipt,
                int64_t actual_cost, weir_error *err)
{
    struct weir__correction correction = {0};
    int code = settle_check(store, key, limit, receipt, actual_cost, &correction, err);
    if (code || (correction.actual == correction.charged && !correction.id))
        return code;
    correction.now_us = weir__store_now(store);
    if (correction.now_us < 0)
        return weir__store_fail(store, WEIR_EINVAL, err);
    int state = weir__store_begin(store);
    code = limit->costs ? settle_variable(store, key, limit, &correction)
                        : store->engine->settle(store, key, limit, &correction);
    weir__store_end(store, state);
    if (code == 0 && correction.actual < correction.charged)
        weir__wait_freed(store, key);
    return code ? weir__store_fail(store, code, err) : 0;
}

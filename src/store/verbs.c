/*
 * The verbs beside take and peek: leases, and settling a charge. Each checks its bounds, then hands
 * over to the engine of the store. wait.c has waiting, refund.c giving back without a receipt.
 */
#include "store/store.h"

#include "base/random.h"
#include "limit/receipt.h"

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

bool weir__settle_is_late(const weir_store *store, const char *receipt)
{
    struct weir__correction charge;
    return weir__receipt_read(receipt, &charge) &&
           weir__store_now(store) - charge.charged_at_us > WEIR__SETTLED_US;
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

int weir__settle(weir_store *store, weir_key key, const weir_limit *limit,
                 struct weir__correction *correction, weir_error *err)
{
    correction->now_us = weir__store_now(store);
    if (correction->now_us < 0)
        return weir__store_fail(store, WEIR_EINVAL, err);
    int state = weir__store_begin(store);
    int code = limit->costs ? settle_variable(store, key, limit, correction)
                            : store->engine->settle(store, key, limit, correction);
    weir__store_end(store, state);
    if (code == 0 && correction->actual < correction->charged)
        weir__wait_freed(store, key);
    return code ? weir__store_fail(store, code, err) : 0;
}

int weir_settle(weir_store *store, weir_key key, const weir_limit *limit, const char *receipt,
                int64_t actual_cost, weir_error *err)
{
    struct weir__correction correction = {0};
    int code = settle_check(store, key, limit, receipt, actual_cost, &correction, err);
    if (code || (correction.actual == correction.charged && !correction.id))
        return code;
    return weir__settle(store, key, limit, &correction, err);
}

/*
 * The verbs beside take and peek: leases, settling a charge, and waiting. Each checks its bounds, then
 * hands over to the engine of the store.
 */
#include "store/store.h"

#include "base/clock.h"
#include "base/random.h"
#include "limit/receipt.h"

#include <assert.h>
#include <string.h>

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

/* Correcting a charge, named by its receipt. */
static int settle_check(weir_store *store, weir_key key, const weir_limit *limit,
                        const char *receipt, int64_t actual, struct weir__correction *ret,
                        weir_error *err)
{
    weir_request request = weir_request_make(key, limit);
    request.cost = actual;
    int code = weir__request_check(store, &request, err);
    if (code)
        return code;
    if (!receipt)
        return weir__fail(err, WEIR_EINVAL, 0, "the receipt is NULL");
    if (!weir__receipt_read(receipt, ret))
        return weir__fail(err, WEIR_ERECEIPT, 0,
                          "invalid receipt \"%.64s\": expected what the take replied, like %s",
                          receipt, "w3-1700000000000000-1-68719476736");
    for (size_t i = 0; i < limit->count; i++) {
        if (!weir__algorithm_of(&limit->rules[i])->settle)
            return weir__fail(err, WEIR_EUNSUPPORTED, 0,
                              "concurrent limits cannot be settled: release the lease instead");
    }
    ret->actual = actual;
    return 0;
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
    code = store->engine->settle(store, key, limit, &correction);
    weir__store_end(store, state);
    return code ? weir__store_fail(store, code, err) : 0;
}

/* ---- waiting ---- */

/*
 * Waiting for a limit. Limits that heed a wait give a reservation at once, in order, or say that it
 * cannot be in time; the others are asked again after their retry_after.
 */
static void wait_sleep(const weir_store *store, int64_t us)
{
    if (!store->clock.now)
        weir__clock_sleep_us(us);
    else if (store->clock.sleep)
        store->clock.sleep(store->clock.context, us);
}

/* A virtual clock that cannot be slept by: then nothing is gained by asking again. */
static bool wait_can_sleep(const weir_store *store)
{
    return !store->clock.now || store->clock.sleep;
}

/* Whether waiting is of no use: a limit will never admit it, or gives out its turns in order and has
 * none in time. A full leaky bucket, too, if it is the queue that takes too long, which what costs
 * nothing is told at once; else there will be room after retry_after. */
static bool wait_is_hopeless(weir_store *store, weir_request request, const weir_decision *rows)
{
    weir_decision free_rows[WEIR_LIMITS_MAX], folded;
    bool full = false;
    for (size_t i = 0; i < request.limit->count; i++) {
        const struct weir__rule *rule = &request.limit->rules[i];
        if (rows[i].allowed ||
            !(rows[i].retry_after_us == WEIR_NEVER || weir__algorithm_of(rule)->waits))
            continue;
        if (rows[i].retry_after_us == WEIR_NEVER || !weir__algorithm_of(rule)->overflows)
            return true;
        full = true;
    }
    request.cost = 0;
    request.detail = free_rows;
    if (!full || weir__peek_all(store, &request, 1, &folded))
        return full;
    for (size_t i = 0; i < request.limit->count; i++) {
        if (weir__algorithm_of(&request.limit->rules[i])->overflows && !free_rows[i].allowed)
            return true;
    }
    return false;
}

/* By this process's clock alone: a store elsewhere may have another. */
static int64_t wait_left(const weir_store *store, int64_t deadline)
{
    return weir__max(0, deadline - weir__store_now(store));
}

int weir__wait(weir_store *store, const weir_request *asked, int64_t max_wait_us,
               weir_decision *ret)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    weir_request request = *asked;
    int64_t left = weir__min(max_wait_us, WEIR_DURATION_MAX);
    int64_t deadline = weir__store_now(store) + left;
    assert(max_wait_us >= 0 && !asked->acquire);
    request.detail = rows;
    for (;;) {
        request.wait_us = left;
        int code = weir__take_all(store, &request, 1, &folded);
        if (code)
            return code;
        if (folded.allowed || !wait_can_sleep(store) || wait_is_hopeless(store, request, rows) ||
            folded.retry_after_us > wait_left(store, deadline))
            break;
        wait_sleep(store, folded.retry_after_us);
        left = wait_left(store, deadline);
    }
    if (folded.allowed && folded.delay_us > 0)
        wait_sleep(store, folded.delay_us);
    if (asked->detail)
        memcpy(asked->detail, rows, asked->limit->count * sizeof *rows);
    *ret = folded;
    return 0;
}

int weir_wait(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              int64_t max_wait_us, weir_decision *ret)
{
    weir_request request = weir_request_make(key, limit);
    request.cost = cost;
    return store && ret && max_wait_us >= 0 ? weir__wait(store, &request, max_wait_us, ret)
                                            : WEIR_EINVAL;
}

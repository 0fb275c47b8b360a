/*
 * The verbs as other languages call them: keys are a pointer and a length, every verb has room for
 * a message, and a clock can be set without a function. The verbs are decided elsewhere.
 */
#include "store/store.h"

#include <assert.h>

void weir_request_init(weir_request *ret, const void *key, size_t len, const weir_limit *limit)
{
    *ret = weir_request_make(weir_key_bytes(key, len), limit);
}

/* Fills err with what is wrong with a request that a verb has refused. Returns the code. */
static int by_pointer_fail(weir_store *store, const weir_request *request, const void *ret,
                           int code, weir_error *err)
{
    assert(code);
    if (!ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the room for the decision is NULL");
    return weir__request_check(store, request, err) ? code : weir__store_fail(store, code, err);
}

static weir_request by_pointer_request(const void *key, size_t len, const weir_limit *limit,
                                       int64_t cost)
{
    weir_request request = weir_request_make(weir_key_bytes(key, len), limit);
    request.cost = cost;
    return request;
}

int weir_take_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                int64_t cost, weir_decision *ret, weir_error *err)
{
    int code = weir_take(store, weir_key_bytes(key, len), limit, cost, ret);
    if (WEIR__LIKELY(code == 0))
        return 0;
    const weir_request request = by_pointer_request(key, len, limit, cost);
    return by_pointer_fail(store, &request, ret, code, err);
}

int weir_peek_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                int64_t cost, weir_decision *ret, weir_error *err)
{
    int code = weir_peek(store, weir_key_bytes(key, len), limit, cost, ret);
    if (WEIR__LIKELY(code == 0))
        return 0;
    const weir_request request = by_pointer_request(key, len, limit, cost);
    return by_pointer_fail(store, &request, ret, code, err);
}

int weir_acquire_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                   int64_t cost, weir_decision *ret, weir_error *err)
{
    int code = weir_acquire(store, weir_key_bytes(key, len), limit, cost, ret);
    if (WEIR__LIKELY(code == 0))
        return 0;
    weir_request request = by_pointer_request(key, len, limit, cost);
    request.acquire = true;
    return by_pointer_fail(store, &request, ret, code, err);
}

int weir_wait_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                int64_t cost, int64_t max_wait_us, weir_decision *ret, weir_error *err)
{
    weir_request request = by_pointer_request(key, len, limit, cost == 0 ? WEIR_COST_NONE : cost);
    request.error = err;
    return weir_wait_for(store, &request, max_wait_us, ret);
}

int weir_renew_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                 uint64_t lease, weir_error *err)
{
    return weir_renew_lease(store, weir_key_bytes(key, len), limit, lease, err);
}

int weir_release_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                   uint64_t lease, weir_error *err)
{
    return weir_release_lease(store, weir_key_bytes(key, len), limit, lease, err);
}

int weir_settle_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                  const char *receipt, int64_t actual_cost, weir_error *err)
{
    return weir_settle(store, weir_key_bytes(key, len), limit, receipt, actual_cost, err);
}

int weir_reset_n(weir_store *store, const void *key, size_t len, weir_error *err)
{
    return weir_reset_key(store, weir_key_bytes(key, len), err);
}

int weir_wakeup_open_n(weir_store *store, const void *key, size_t len, const weir_limit *limit,
                       weir_wakeup **ret, weir_error *err)
{
    return weir_wakeup_open(store, weir_key_bytes(key, len), limit, ret, err);
}

/* ---- the store ---- */

bool weir_store_blocks(const weir_store *store)
{
    return store && store->engine->blocks;
}

static int64_t set_time_now(void *context)
{
    return atomic_load((_Atomic int64_t *)context);
}

static void set_time_sleep(void *context, int64_t microseconds)
{
    atomic_fetch_add((_Atomic int64_t *)context, microseconds);
}

int weir_store_set_time(weir_store *store, int64_t time_us)
{
    if (!store || time_us < WEIR_NEVER || time_us >= WEIR__EXACT_MAX)
        return WEIR_EINVAL;
    atomic_store(&store->set_time_us, time_us);
    const weir_clock clock = {set_time_now, set_time_sleep, &store->set_time_us};
    weir_store_set_clock(store, time_us == WEIR_NEVER ? NULL : &clock);
    return 0;
}

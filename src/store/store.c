/* The public face of stores: every verb, checked, then handed to the store's engine. */
#include "store/store.h"

#include "base/clock.h"
#include "store/zone/store.h"

#include <string.h>

int weir_store_open(const char *url, weir_store **ret, weir_error *err)
{
    if (!url)
        return weir__fail(err, WEIR_EURL, 0, "no store address given");
    if (strncmp(url, "redis", 5))
        return weir__zone_store_open(url, ret, err);
#ifdef WEIR__WITH_REMOTE
    return weir__remote_open(url, ret, err);
#else
    return weir__fail(err, WEIR_EURL, 1, "this build has no redis:// stores");
#endif
}

void weir_store_close(weir_store *store)
{
    if (store)
        store->engine->close(store);
}

void weir_store_set_clock(weir_store *store, const weir_clock *clock)
{
    store->clock = clock ? *clock : (weir_clock){0};
}

int64_t weir__store_now(const weir_store *store)
{
    if (WEIR__LIKELY(!store->clock.now))
        return weir__clock_us();
    int64_t now = store->clock.now(store->clock.context);
    return now < WEIR__EXACT_MAX ? now : -1;
}

weir_key weir_key_hash(const weir_store *store, weir_key key, weir_hashed *room)
{
    if (!weir__key_in_bounds(key) || !store->engine->hash)
        return key;
    *room = (weir_hashed){.key = weir__key_bytes(key)};
    store->engine->hash(store, room);
    return (weir_key){room, WEIR_HASHED};
}

/* ---- bounds ---- */

static inline bool cost_in_bounds(int64_t cost)
{
    return cost >= 0 && cost <= WEIR_COST_MAX;
}

static int check_request(const weir_request *request)
{
    bool wait = request->wait_us == WEIR_WAIT_DEFAULT || request->wait_us == WEIR_WAIT_ANY ||
                (request->wait_us >= 0 && request->wait_us <= WEIR_DURATION_MAX);
    if (!request->limit || !weir__key_in_bounds(request->key) || !cost_in_bounds(request->cost) ||
        !wait)
        return WEIR_EINVAL;
    if (request->acquire && weir__leased(request->limit) == request->limit->count)
        return WEIR_EUNSUPPORTED;
    return 0;
}

static int check_requests(const weir_request *requests, size_t n)
{
    size_t limits = 0;
    for (size_t i = 0; i < n; i++) {
        int code = check_request(&requests[i]);
        if (code)
            return code;
        limits += requests[i].limit->count;
        if (limits > WEIR_LIMITS_MAX)
            return WEIR_EINVAL;
    }
    return limits == 0 ? WEIR_EINVAL : 0;
}

/* ---- take and peek ---- */

static int decide(weir_store *store, const weir_request *requests, size_t n, enum weir__mode mode,
                  weir_decision *ret)
{
    int code = check_requests(requests, n);
    int64_t now = weir__store_now(store);
    if (code == 0 && now < 0)
        code = WEIR_EINVAL;
    return code ? code : store->engine->decide(store, requests, n, mode, now, ret);
}

int weir_take_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret)
{
    return decide(store, requests, n, WEIR__TAKE, ret);
}

int weir_peek_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret)
{
    return decide(store, requests, n, WEIR__PEEK, ret);
}

int weir_peek(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              weir_decision *ret)
{
    weir_request request = {key, limit, cost, WEIR_WAIT_DEFAULT, NULL, false};
    return decide(store, &request, 1, WEIR__PEEK, ret);
}

int weir_take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              weir_decision *ret)
{
    if (WEIR__UNLIKELY(!limit || !weir__key_in_bounds(key) || !cost_in_bounds(cost)))
        return WEIR_EINVAL;
    if (limit->count > 1 || !store->engine->take) {
        weir_request request = {key, limit, cost, WEIR_WAIT_DEFAULT, NULL, false};
        return decide(store, &request, 1, WEIR__TAKE, ret);
    }
    return store->engine->take(store, key, limit, cost, ret);
}

int weir_take_many(weir_store *store, const weir_request *requests, size_t n, weir_decision *rets)
{
    for (size_t i = 0; i < n; i++) {
        int code = check_request(&requests[i]);
        if (WEIR__UNLIKELY(code))
            return code;
    }
    int64_t now = weir__store_now(store);
    if (now < 0)
        return WEIR_EINVAL;
    for (size_t i = 0; i < n; i++)
        rets[i].limit = -1;
    return store->engine->take_many(store, requests, n, now, rets);
}

int weir__store_reset(weir_store *store, weir_key key, bool *ret_there)
{
    int64_t now = weir__store_now(store);
    *ret_there = false;
    return weir__key_in_bounds(key) && now >= 0 ? store->engine->reset(store, key, now, ret_there)
                                                : WEIR_EINVAL;
}

int weir_reset(weir_store *store, weir_key key)
{
    bool there;
    return weir__store_reset(store, key, &there);
}

int weir__store_reserve(weir_store *store, const weir_limit *const *limits, size_t n,
                        weir_error *err)
{
    int64_t now = weir__store_now(store);
    return store->engine->reserve ? store->engine->reserve(store, limits, n, weir__max(now, 0), err)
                                  : 0;
}

int weir_store_info(weir_store *store, weir_zone_info *ret)
{
    return store->engine->info ? store->engine->info(store, ret) : WEIR_EUNSUPPORTED;
}

int weir_store_check(weir_store *store, weir_error *err)
{
    if (store->engine->check)
        return store->engine->check(store, err);
    return weir__fail(err, WEIR_EUNSUPPORTED, 0, "only zones can be checked");
}

int weir__store_show(weir_store *store, weir_key key, struct weir__shown *ret, size_t *ret_count)
{
    int64_t now = store ? weir__store_now(store) : -1;
    if (!store || !weir__key_in_bounds(key) || now < 0)
        return WEIR_EINVAL;
    return store->engine->show ? store->engine->show(store, key, now, ret, ret_count)
                               : WEIR_EUNSUPPORTED;
}

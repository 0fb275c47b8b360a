/* The public face of stores: every verb, checked, then handed to the store's engine. */
#include "store/store.h"

#include "base/clock.h"
#include "limit/receipt.h"
#include "store/zone/store.h"

#include <string.h>

static int store_open(const char *url, weir_store **ret, weir_error *err)
{
    if (strncmp(url, "redis", 5))
        return weir__zone_store_open(url, ret, err);
#ifdef WEIR__WITH_REMOTE
    return weir__remote_open(url, ret, err);
#else
    return weir__fail(err, WEIR_EURL, 1, "this build has no redis:// stores");
#endif
}

int weir_store_open(const char *url, weir_store **ret, weir_error *err)
{
    if (!url || !ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the %s is NULL", url ? "result" : "store address");
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int code = store_open(url, ret, err);
    pthread_setcancelstate(state, NULL);
    return code;
}

void weir_store_close(weir_store *store)
{
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (store) {
        weir__wait_close(store);
        store->engine->close(store);
    }
    pthread_setcancelstate(state, NULL);
}

void weir_store_set_clock(weir_store *store, const weir_clock *clock)
{
    store->clock = clock ? *clock : (weir_clock){0};
}

int weir_key_hash(const weir_store *store, weir_key key, weir_hashed_key *ret)
{
    if (!store || !ret || !weir__key_in_bounds(key))
        return WEIR_EINVAL;
    *ret = (weir_hashed_key){.key = key};
    if (store->engine->hash)
        store->engine->hash(store, ret);
    return 0;
}

/* ---- bounds ---- */

int weir__least_check(const weir_request *request, weir_error *err)
{
    const weir_limit *limit = request->limit;
    if (request->cost == 0)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "invalid least %lld: a request of cost 0 takes nothing, leave it out",
                          (long long)request->least);
    if (request->least < 1 || request->least > request->cost)
        return weir__fail(err, WEIR_EINVAL, 0, "invalid least %lld: expected 1 to %lld, the cost",
                          (long long)request->least, (long long)request->cost);
    if (request->wait_us != 0 && request->wait_us != WEIR_WAIT_DEFAULT)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "a request with a least cannot wait: leave out the least or the wait");
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__algorithm *algorithm = weir__algorithm_of(&limit->rules[i]);
        if (algorithm->shapes && weir__limit_varies(limit, i))
            return weir__fail(
                err, WEIR_EUNSUPPORTED, 0,
                "a request with a least is not for %s, which shapes: give that limit a "
                "cost of its own, or leave out the least",
                algorithm->name);
    }
    return 0;
}

int weir__request_check(const weir_store *store, const weir_request *request, weir_error *err)
{
    int code = store ? weir__request_code(request) : WEIR_EINVAL;
    if (WEIR__LIKELY(code == 0) || !err)
        return code;
    if (!store)
        return weir__fail(err, code, 0, "the store is NULL: open one with weir_store_open");
    if (!request->limit)
        return weir__fail(err, code, 0, "the limit is NULL: read one with weir_limit_parse");
    if (!request->key.data)
        return weir__fail(err, code, 0, "the key is NULL: expected 1 to %d bytes", WEIR_KEY_MAX);
    if (!weir__key_in_bounds(request->key))
        return weir__fail(err, code, 0, "invalid key of %zu bytes: expected 1 to %d",
                          request->key.len, WEIR_KEY_MAX);
    if (!weir__cost_in_bounds(request->cost))
        return weir__fail(err, code, 0, "invalid cost %lld: expected 0 to %lld",
                          (long long)request->cost, (long long)WEIR_COST_MAX);
    if (!weir__wait_in_bounds(request->wait_us))
        return weir__fail(err, code, 0, "invalid wait of %lld us: expected 0 to %lld",
                          (long long)request->wait_us, (long long)WEIR_DURATION_MAX);
    if (request->least && weir__least_check(request, err))
        return code;
    return weir__fail(err, code, 0, "no limit of \"%.200s\" has leases: expected concurrent",
                      weir_limit_text(request->limit));
}

int64_t weir__granted(const weir_request *requests, size_t n, const weir_decision *rows)
{
    const struct weir__budget budget = weir__budget_of(requests, n);
    for (size_t i = 0; budget.least && i < n; rows += requests[i].limit->count, i++) {
        for (size_t j = 0; requests[i].least && j < requests[i].limit->count; j++) {
            if (weir__limit_varies(requests[i].limit, j))
                return rows[j].granted;
        }
    }
    return budget.least ? budget.most : requests[0].cost;
}

int weir__store_fail(weir_store *store, int code, weir_error *err)
{
    weir_error why;
    if (!err)
        return code;
    if (store && weir__store_why(store, &why))
        return weir__fail(err, code, 0, "%s: %.400s", weir_strerror(code), why.message);
    if (code == WEIR_EINVAL && store && weir__store_now(store) < 0)
        return weir__fail(err, code, 0, "the time of the store's clock is out of bounds");
    return weir__fail(err, code, 0, "%s", weir_strerror(code));
}

/* ---- take and peek, inside the library ---- */

static int check_requests(const weir_store *store, const weir_request *requests, size_t n)
{
    size_t limits = 0;
    for (size_t i = 0; i < n; i++) {
        int code = weir__request_check(store, &requests[i], NULL);
        if (code)
            return code;
        limits += requests[i].limit->count;
        if (limits > WEIR_LIMITS_MAX)
            return WEIR_EINVAL;
    }
    const struct weir__budget budget = weir__budget_of(requests, n);
    return limits == 0 || budget.least > budget.most ? WEIR_EINVAL : 0;
}

/* The amount that request i of a call was charged. */
static int64_t receipts_charged(const weir_request *request, const weir_decision *folded)
{
    return folded->degraded ? 0 : request->least ? folded->granted : request->cost;
}

void weir__receipts_share(const weir_request *requests, size_t n, weir_decision *folded)
{
    bool detailed = false;
    folded->uneven = false;
    if (!folded->allowed)
        return;
    for (size_t i = 0; i < n; i++) {
        detailed = detailed || requests[i].detail;
        folded->uneven = folded->uneven || receipts_charged(&requests[i], folded) !=
                                               receipts_charged(&requests[0], folded);
    }
    if (!detailed)
        return;
    uint64_t id = folded->uneven ? weir__receipt_draw_id() : weir__receipt_id(folded);
    for (size_t i = 0; i < n && id; i++) {
        weir_decision *rows = requests[i].detail;
        for (size_t j = 0; rows && j < requests[i].limit->count; j++) {
            if (rows[j].charged > 0 || folded->degraded)
                weir__receipt_set_id(&rows[j], id);
        }
    }
}

static int decide(weir_store *store, const weir_request *requests, size_t n, enum weir__mode mode,
                  weir_decision *ret)
{
    int code = check_requests(store, requests, n);
    if (code)
        return code;
    int64_t now = weir__store_now(store);
    if (now < 0)
        return WEIR_EINVAL;
    int state = weir__store_begin(store);
    code = store->engine->decide(store, requests, n, mode, now, ret);
    weir__store_end(store, state);
    if (mode == WEIR__TAKE)
        weir__store_count(store, code, ret);
    if (code == 0 && mode == WEIR__TAKE && (n > 1 || requests[0].detail))
        weir__receipts_share(requests, n, ret);
    return code;
}

int weir__take_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret)
{
    return decide(store, requests, n, WEIR__TAKE, ret);
}

int weir__peek_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret)
{
    return decide(store, requests, n, WEIR__PEEK, ret);
}

int weir__take_many_at(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                       weir_decision *rets)
{
    int state = weir__store_begin(store);
    int code = store->engine->take_many(store, requests, n, now, rets);
    weir__store_end(store, state);
    weir__store_count_many(store, rets, n);
    for (size_t i = 0; i < n; i++) {
        if (WEIR__UNLIKELY(requests[i].detail) && rets[i].code == 0)
            weir__receipts_share(&requests[i], 1, &rets[i]);
    }
    return code;
}

int weir__take_many(weir_store *store, const weir_request *requests, size_t n, weir_decision *rets)
{
    int64_t now = weir__store_now(store);
    int code = now < 0 ? WEIR_EINVAL : 0;
    for (size_t i = 0; i < n && WEIR__LIKELY(code == 0); i++)
        code = weir__request_code(&requests[i]);
    for (size_t i = 0; i < n && WEIR__UNLIKELY(code); i++)
        rets[i] = (weir_decision){.code = code};
    return code ? code : weir__take_many_at(store, requests, n, now, rets);
}

/* ---- take and peek ---- */

/* Not inlined: the way of one limit in a zone needs no room for a request. */
static __attribute__((noinline)) int decide_one(weir_store *store, weir_key key,
                                                const weir_limit *limit, int64_t cost,
                                                enum weir__mode mode, weir_decision *ret)
{
    weir_request request = weir_request_make(key, limit);
    request.cost = cost;
    return decide(store, &request, 1, mode, ret);
}

int weir_peek(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              weir_decision *ret)
{
    return ret ? decide_one(store, key, limit, cost, WEIR__PEEK, ret) : WEIR_EINVAL;
}

int weir_take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
              weir_decision *ret)
{
    if (WEIR__UNLIKELY(!store || !ret || !limit || !weir__key_in_bounds(key) ||
                       !weir__cost_in_bounds(cost)))
        return WEIR_EINVAL;
    if (limit->count > 1 || limit->costs || !store->engine->take)
        return decide_one(store, key, limit, cost, WEIR__TAKE, ret);
    return store->engine->take(store, key, limit, cost, ret);
}

static __attribute__((noinline)) int decide_hashed(weir_store *store, const weir_hashed_key *key,
                                                   const weir_limit *limit, int64_t cost,
                                                   weir_decision *ret)
{
    weir_request request = weir_request_make(key->key, limit);
    request.cost = cost;
    request.hashed = key;
    return decide(store, &request, 1, WEIR__TAKE, ret);
}

int weir_take_hashed(weir_store *store, const weir_hashed_key *key, const weir_limit *limit,
                     int64_t cost, weir_decision *ret)
{
    if (WEIR__UNLIKELY(!store || !ret || !limit || !key || !weir__key_in_bounds(key->key) ||
                       !weir__cost_in_bounds(cost)))
        return WEIR_EINVAL;
    if (limit->count > 1 || limit->costs || !store->engine->take_hashed)
        return decide_hashed(store, key, limit, cost, ret);
    return store->engine->take_hashed(store, key, limit, cost, ret);
}

static int reset_key(weir_store *store, weir_key key, bool *ret_there, weir_error *err)
{
    if (!store || !weir__key_in_bounds(key))
        return weir__fail(err, WEIR_EINVAL, 0,
                          "the %s: expected a store and 1 to %d bytes of a key",
                          store ? "key is out of bounds" : "store is NULL", WEIR_KEY_MAX);
    int64_t now = weir__store_now(store);
    if (now < 0)
        return weir__store_fail(store, WEIR_EINVAL, err);
    int state = weir__store_begin(store);
    int code = store->engine->reset(store, key, now, ret_there);
    weir__store_end(store, state);
    if (code == 0)
        weir__wait_freed(store, key);
    return code ? weir__store_fail(store, code, err) : 0;
}

int weir__store_reset(weir_store *store, weir_key key, bool *ret_there)
{
    *ret_there = false;
    return reset_key(store, key, ret_there, NULL);
}

int weir_reset_key(weir_store *store, weir_key key, weir_error *err)
{
    bool there;
    return reset_key(store, key, &there, err);
}

int weir_reset(weir_store *store, weir_key key)
{
    return weir_reset_key(store, key, NULL);
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
    if (!store || !ret)
        return WEIR_EINVAL;
    return store->engine->info ? store->engine->info(store, ret) : WEIR_EUNSUPPORTED;
}

int weir_store_check(weir_store *store, weir_error *err)
{
    if (!store)
        return weir__fail(err, WEIR_EINVAL, 0, "the store is NULL");
    if (!store->engine->check)
        return weir__fail(err, WEIR_EUNSUPPORTED, 0, "only zones can be checked");
    int state = weir__store_begin(store);
    int code = store->engine->check(store, err);
    weir__store_end(store, state);
    return code;
}

int weir__store_show(weir_store *store, weir_key key, struct weir__shown *ret, size_t *ret_count)
{
    int64_t now = store ? weir__store_now(store) : -1;
    if (!store || !weir__key_in_bounds(key) || now < 0)
        return WEIR_EINVAL;
    return store->engine->show ? store->engine->show(store, key, now, ret, ret_count)
                               : WEIR_EUNSUPPORTED;
}

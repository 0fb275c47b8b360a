/* Leases: acquire, renew, release. Ids are 47 random bits, so that nobody can name another's. */
#include "store/store.h"

#include "base/random.h"

size_t weir__leased(const weir_limit *limit)
{
    size_t i = 0;
    while (i < limit->count && !weir__algorithm_of(&limit->rules[i])->leases)
        i++;
    return i;
}

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

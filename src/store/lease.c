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
    weir_request request = {key, limit, cost, WEIR_WAIT_DEFAULT, NULL, true};
    return weir_take_all(store, &request, 1, ret);
}

static int change(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease,
                  enum weir__lease_verb verb)
{
    if (!limit || !weir__key_in_bounds(key))
        return WEIR_EINVAL;
    size_t i = weir__leased(limit);
    int64_t now = weir__store_now(store);
    if (i == limit->count)
        return WEIR_EUNSUPPORTED;
    if (now < 0)
        return WEIR_EINVAL;
    if (lease == 0 || lease > WEIR__LEASE_MASK)
        return WEIR_ENOLEASE;
    return store->engine->change_lease(store, key, limit, i, lease, verb, now);
}

int weir_renew(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease)
{
    return change(store, key, limit, lease, WEIR__RENEW);
}

int weir_release(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease)
{
    return change(store, key, limit, lease, WEIR__RELEASE);
}

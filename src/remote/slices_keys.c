/* See slices.h. What happens to keys beside takes, and what is counted. */
#include "remote/slices.h"

#include "remote/remote.h"

#include <string.h>

/* ---- what else happens to keys ---- */

void weir__slices_withheld(struct weir__remote *remote, const weir_request *requests, size_t n,
                           int64_t *ret)
{
    struct weir__slices *slices = remote->slices;
    if (!slices || !weir__slices_alive(slices))
        return;
    for (size_t i = 0; i < n; i++) {
        const weir_limit *limit = requests[i].limit;
        for (size_t j = 0; j < limit->count; j++, ret++) {
            uint64_t tag[2];
            if (requests[i].key.len > WEIR__POOL_KEY_MAX)
                continue;
            weir__pools_tag(&slices->pools, requests[i].key, &limit->rules[j], tag);
            struct weir__slices_stripe *stripe = weir__slices_stripe(slices, tag);
            weir__lock_take(&stripe->lock);
            const struct weir__pool *pool = weir__slices_find(slices, tag);
            *ret = weir__max(*ret, pool ? pool->withheld : 0);
            weir__lock_release(&stripe->lock);
        }
    }
}

void weir__slices_forgive(struct weir__remote *remote, weir_key key, const weir_limit *limit)
{
    struct weir__slices *slices = remote->slices;
    if (!slices || !weir__slices_alive(slices))
        return;
    weir__denied_forget(&slices->denied, key);
    for (size_t j = 0; j < limit->count && key.len <= WEIR__POOL_KEY_MAX; j++) {
        uint64_t tag[2];
        weir__pools_tag(&slices->pools, key, &limit->rules[j], tag);
        struct weir__slices_stripe *stripe = weir__slices_stripe(slices, tag);
        weir__lock_take(&stripe->lock);
        struct weir__pool *pool = weir__slices_find(slices, tag);
        if (pool)
            weir__pool_forgive(pool);
        weir__lock_release(&stripe->lock);
    }
}

static void slices_drop(struct weir__slices *slices, struct weir__slices_stripe *stripe,
                        struct weir__pool *pool)
{
    uint64_t slices_held = 0;
    WEIR__ASSERT_LOCKED(&stripe->lock);
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++)
        slices_held += pool->grants[i].left > 0;
    weir__slices_lose(slices, slices_held, weir__pool_drop(pool));
    if (stripe->joined)
        pthread_cond_broadcast(&stripe->answered);
}

void weir__slices_reset(struct weir__remote *remote, weir_key key)
{
    struct weir__slices *slices = remote->slices;
    if (!slices || !weir__slices_alive(slices))
        return;
    weir__denied_forget(&slices->denied, key);
    for (size_t i = 0; i < WEIR__SLICES_STRIPES; i++) {
        struct weir__slices_stripe *stripe = &slices->stripes[i];
        struct weir__pool *pools = &slices->pools.pools[i * WEIR__SLICES_PER_STRIPE];
        weir__lock_take(&stripe->lock);
        for (size_t j = 0; j < WEIR__SLICES_PER_STRIPE; j++) {
            if (pools[j].key_len == key.len && !memcmp(pools[j].key, key.data, key.len))
                slices_drop(slices, stripe, &pools[j]);
        }
        weir__lock_release(&stripe->lock);
    }
}

/* ---- counts ---- */

static void slices_count_held(struct weir__slices *slices, struct weir__slices_counts *ret)
{
    int64_t now_us = weir__boot_us();
    for (size_t i = 0; i < WEIR__SLICES_STRIPES; i++) {
        struct weir__slices_stripe *stripe = &slices->stripes[i];
        const struct weir__pool *pools = &slices->pools.pools[i * WEIR__SLICES_PER_STRIPE];
        weir__lock_take(&stripe->lock);
        for (uint64_t left = stripe->held; left; left &= left - 1) {
            const struct weir__pool *pool = &pools[__builtin_ctzll(left)];
            for (size_t k = 0; k < WEIR__POOL_GRANTS; k++) {
                bool held = pool->grants[k].left > 0 && now_us < pool->grants[k].end_us;
                ret->slices += held;
                ret->units += held ? (uint64_t)pool->grants[k].left : 0;
            }
        }
        weir__lock_release(&stripe->lock);
    }
}

/* Of any store. */
static struct weir__slices *slices_of(weir_store *store)
{
    return store->engine == &weir__remote_engine ? weir__remote_of(store)->slices : NULL;
}

void weir__slices_count(weir_store *store, struct weir__slices_counts *ret)
{
    char unused[WEIR__TROUBLE_MAX];
    *ret = (struct weir__slices_counts){0};
    struct weir__slices *slices = slices_of(store);
    if (!slices)
        return;
    ret->on = true;
    if (!weir__slices_alive(slices))
        return;
    for (size_t i = 0; i < WEIR__SLICES_STRIPES; i++) {
        const struct weir__slices_stripe *stripe = &slices->stripes[i];
        ret->local += stripe->local;
        ret->denied += stripe->denied;
        ret->slices_taken += stripe->slices_taken;
        ret->units_taken += stripe->units_taken;
    }
    slices_count_held(slices, ret);
    ret->slot = slices->slot_us > weir__boot_us();
    ret->central = slices->central;
    ret->calls = slices->calls;
    ret->slices_returned = slices->slices_returned;
    ret->slices_lost = slices->slices_lost;
    ret->units_returned = slices->units_returned;
    ret->units_lost = slices->units_lost;
    ret->trouble = weir__slices_trouble(store, unused);
}

enum weir__trouble weir__slices_trouble(weir_store *store, char ret[WEIR__TROUBLE_MAX])
{
    struct weir__slices *slices = slices_of(store);
    char said[WEIR__ERROR_MAX] = "";
    enum weir__trouble trouble = WEIR__TROUBLE_NONE;
    if (slices && weir__slices_alive(slices)) {
        weir__lock_take(&slices->remote->lock);
        trouble = slices->slot_try.trouble;
        memcpy(said, slices->slot_try.said, sizeof said);
        weir__lock_release(&slices->remote->lock);
        if (slices->refused_until_us) /* until a slice has come */
            trouble = WEIR__TROUBLE_LEAST;
    }
    weir__trouble_text(trouble, said, ret);
    return trouble;
}

/* See pool.h. */
#include "remote/pool.h"

#include "base/hash.h"
#include "base/random.h"

#include <string.h>

#define INTERVALS 4 /* of a life, for what is wanted */

/* ---- terms ---- */

static bool slice_fits(const struct weir__rule *rule)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    return algorithm->sliced && (!algorithm->shapes || rule->flags & WEIR__NODELAY);
}

const char *weir__slicing_note(const struct weir__slicing *slicing)
{
    return slicing->share && slicing->peers == 1
               ? "slices= with peers=1: one process takes slices, all others ask Redis for each "
                 "request; if several share the limits, write their number: peers=10"
               : NULL;
}

bool weir__slice_terms(const struct weir__slicing *slicing, const struct weir__rule *rule,
                       struct weir__slice_terms *ret)
{
    if (slicing->share == 0 || !slice_fits(rule))
        return false;
    int64_t size = weir__algorithm_of(rule)->most(rule);
    int64_t part = size * slicing->share / WEIR__SHARE_WHOLE;
    *ret = (struct weir__slice_terms){.size = size,
                                      .withheld = weir__algorithm_of(rule)->fixed_end ? 0 : part,
                                      .most = part / slicing->peers};
    return ret->most >= 2;
}

void weir__rule_withhold(struct weir__rule *rule, int64_t less)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    assert(slice_fits(rule) && less >= 0 && less < algorithm->most(rule));
    if (algorithm->shape == WEIR__SHAPE_DEBT)
        rule->burst -= less;
    else
        rule->count -= less;
    weir__rule_derive(rule);
}

/* ---- what is wanted ---- */

static void pool_turn(struct weir__pool *pool, const struct weir__pool_now *now)
{
    int64_t length = weir__max(1, now->life_us / INTERVALS);
    int64_t past = now->now_us - pool->since_us;
    if (WEIR__LIKELY(past < length))
        return;
    pool->wanted_before = past < 2 * length ? pool->wanted : 0;
    pool->takes_before = past < 2 * length ? pool->takes : 0;
    pool->wanted = 0;
    pool->takes = 0;
    pool->since_us = now->now_us;
}

/* What half a life will want, as far as can be seen. Where little is left in Redis, a 16th of a
 * life: a process with few requests need not wait until a large slice has come. */
static int64_t pool_demand(const struct weir__pool *pool)
{
    int64_t wanted = weir__max(pool->wanted, pool->wanted_before);
    return weir__min(pool->most, pool->scarce ? weir__max(1, wanted / 4) : 2 * wanted);
}

/* When the next slice is asked for: so that it comes before the last unit is spent. Where little is
 * left in Redis, later, so that one call brings more. */
static int64_t pool_low(const struct weir__pool *pool)
{
    return pool_demand(pool) / (pool->scarce ? 8 : 2);
}

/* ---- grants ---- */

int64_t weir__pool_held(const struct weir__pool *pool, int64_t now_us)
{
    int64_t held = 0;
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++)
        held += now_us < pool->grants[i].end_us ? pool->grants[i].left : 0;
    return held;
}

/* What counts against `most`. */
static int64_t pool_taken(const struct weir__pool *pool, int64_t now_us)
{
    int64_t taken = now_us < pool->asked_until_us ? pool->asked : 0;
    taken += now_us < pool->returning_until_us ? pool->returning : 0;
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++)
        taken += pool->grants[i].left;
    return taken;
}

/* The grant to spend first: the one that ends first. */
static struct weir__grant *pool_first(struct weir__pool *pool, int64_t now_us)
{
    struct weir__grant *first = NULL;
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++) {
        struct weir__grant *grant = &pool->grants[i];
        if (grant->left > 0 && now_us < grant->end_us && (!first || grant->end_us < first->end_us))
            first = grant;
    }
    return first;
}

static struct weir__grant *pool_free_grant(struct weir__pool *pool)
{
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++) {
        if (pool->grants[i].left == 0)
            return &pool->grants[i];
    }
    return NULL;
}

/* ---- spending ---- */

static bool pool_may_ask(const struct weir__pool *pool, const struct weir__pool_now *now)
{
    return now->slot_us - now->now_us >= now->life_us / 2 &&
           (pool->asked == 0 || now->now_us >= pool->asked_until_us);
}

static weir_decision pool_row(const struct weir__pool *pool, const struct weir__pool_now *now,
                              int64_t held)
{
    return (weir_decision){.limit = pool->size,
                           .remaining = weir__min(pool->size, weir__max(0, pool->remaining) + held),
                           .reset_after_us = weir__max(0, pool->reset_us - now->now_us),
                           .time_us =
                               pool->said_time_us + weir__max(0, now->now_us - pool->said_us),
                           .local = true};
}

/* A receipt names the oldest charge that it was spent from: a refund of it is never too large. */
static void pool_take(struct weir__pool *pool, const struct weir__pool_now *now, int64_t cost,
                      int64_t held, weir_decision *ret)
{
    int64_t time_us = INT64_MAX;
    *ret = pool_row(pool, now, held - cost);
    for (int64_t need = cost; need > 0;) {
        struct weir__grant *grant = pool_first(pool, now->now_us);
        assert(grant);
        int64_t part = weir__min(need, grant->left);
        grant->left -= part;
        need -= part;
        time_us = weir__min(time_us, grant->time_us);
    }
    ret->time_us = time_us;
    ret->allowed = true;
    ret->charged = ret->granted = cost;
}

enum weir__spend weir__pool_spend(struct weir__pool *pool, const struct weir__pool_now *now,
                                  int64_t cost, weir_decision *ret, bool *ret_refill)
{
    assert(cost >= 1);
    *ret_refill = false;
    pool_turn(pool, now);
    pool->wanted = weir__min(WEIR_COST_MAX, pool->wanted + cost);
    pool->takes += pool->takes < UINT32_MAX / 2;
    if (cost > pool->most)
        return WEIR__SPEND_ASK;
    int64_t held = weir__pool_held(pool, now->now_us);
    bool denied = now->now_us < pool->denied_until_us;
    bool asks = weir__pool_is_hot(pool) && pool_may_ask(pool, now);
    if (held >= cost) {
        pool_take(pool, now, cost, held, ret);
        *ret_refill = asks && !denied && !pool->queued && held - cost <= pool_low(pool) &&
                      pool_taken(pool, now->now_us) < pool->most;
        return WEIR__SPEND_LOCAL;
    }
    if (denied && cost - weir__pool_held(pool, pool->retry_us) <= pool->denied_least) {
        *ret = pool_row(pool, now, held);
        ret->retry_after_us = weir__max(1, pool->retry_us - now->now_us);
        return WEIR__SPEND_DENIED;
    }
    if (denied || !weir__pool_is_hot(pool))
        return WEIR__SPEND_ASK;
    if (pool->asked > 0 && now->now_us < pool->asked_until_us)
        return WEIR__SPEND_JOIN;
    return asks && pool_free_grant(pool) ? WEIR__SPEND_REFILL : WEIR__SPEND_ASK;
}

/* ---- calls ---- */

bool weir__pool_ask(struct weir__pool *pool, const struct weir__pool_now *now, int64_t need,
                    int64_t deadline_us, struct weir__pool_call *ret)
{
    pool->queued = false;
    if (!pool_may_ask(pool, now) || !pool_free_grant(pool) || deadline_us <= now->now_us)
        return false;
    if (need == 0 && now->now_us < pool->denied_until_us)
        return false;
    pool->asked = 0; /* lost, if there was one */
    int64_t lack = weir__max(0, need - weir__pool_held(pool, now->now_us));
    int64_t room = pool->most - pool_taken(pool, now->now_us);
    int64_t cost = weir__min(room, weir__max(lack, pool_demand(pool)));
    if (cost < weir__max(1, lack))
        return false;
    int64_t least = weir__max(lack, cost - cost / 3); /* less is not worth a call */
    if (weir__algorithm_of(&pool->rule)->shapes)      /* it knows no LEAST */
        cost = least = pool->denied_until_us ? least : cost;
    pool->asked = cost;
    pool->asked_least = least;
    pool->asked_until_us = deadline_us;
    pool->serial++;
    *ret = (struct weir__pool_call){.cost = cost,
                                    .least = least,
                                    .sent_us = now->now_us,
                                    .end_us = weir__min(now->now_us + now->life_us, now->slot_us),
                                    .back_us = now->slot_us - WEIR__POOL_DOUBT_US,
                                    .serial = pool->serial};
    assert(pool_taken(pool, now->now_us) <= pool->most);
    return true;
}

/* So much later; a server may say anything. */
static int64_t pool_later(int64_t us, int64_t after_us)
{
    return us + weir__min(weir__max(0, after_us), INT64_MAX / 4);
}

static bool pool_is_asked(const struct weir__pool *pool, const struct weir__pool_call *call)
{
    return pool->asked > 0 && pool->serial == call->serial;
}

/* The last word of Redis about this state. */
static void pool_note(struct weir__pool *pool, const struct weir__pool_now *now,
                      const weir_decision *row)
{
    pool->said_us = now->now_us;
    pool->said_time_us = weir__min(row->time_us, INT64_MAX / 4);
    pool->remaining = weir__min(row->remaining, pool->size);
    pool->reset_us = pool_later(now->now_us, row->reset_after_us);
}

/* When the charge itself is over in Redis, if it is before the state comes back to fresh: from then
 * on a settle would find nothing, or the entry of somebody else. */
static int64_t pool_entry_end(const struct weir__pool *pool, const struct weir__pool_call *call)
{
    switch (weir__algorithm_of(&pool->rule)->shape) {
    case WEIR__SHAPE_RING:
        return call->sent_us + pool->rule.period_us - WEIR__POOL_DOUBT_US;
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
    case WEIR__SHAPE_PAIR:
    case WEIR__SHAPE_PERMITS:
        break;
    }
    return INT64_MAX;
}

static void pool_put(struct weir__pool *pool, const struct weir__pool_call *call,
                     const weir_decision *row)
{
    struct weir__grant *grant = pool_free_grant(pool);
    bool fixed = weir__algorithm_of(&pool->rule)->fixed_end;
    int64_t window_us = fixed ? pool_later(call->sent_us, row->reset_after_us) : INT64_MAX;
    assert(grant);
    *grant = (struct weir__grant){
        .left = weir__max(0, weir__min(row->granted, call->cost)), /* a server may say anything */
        .end_us = weir__min(call->end_us, window_us),
        .back_us = weir__min(weir__min(call->back_us, window_us), pool_entry_end(pool, call)),
        .time_us = row->time_us};
    pool->denied_until_us = 0;
}

static void pool_deny(struct weir__pool *pool, const struct weir__pool_now *now,
                      const weir_decision *row)
{
    int64_t retry_us = row->retry_after_us == WEIR_NEVER ? now->life_us : row->retry_after_us;
    pool->denied_least = pool->asked_least;
    pool->retry_us = pool_later(now->now_us, retry_us);
    pool->denied_until_us = now->now_us + weir__min(weir__max(0, retry_us), now->life_us);
}

bool weir__pool_answer(struct weir__pool *pool, const struct weir__pool_now *now,
                       const struct weir__pool_call *call, const weir_decision *row)
{
    if (!pool_is_asked(pool, call) || now->now_us >= pool->asked_until_us)
        return false;
    pool->asked = 0;
    pool->scarce = row->granted < call->cost;
    pool_note(pool, now, row);
    if (!row->allowed) {
        pool_deny(pool, now, row);
        return true;
    }
    if (now->now_us >= call->end_us || now->now_us >= now->slot_us)
        return false;
    pool_put(pool, call, row);
    assert(pool_taken(pool, now->now_us) <= pool->most);
    return true;
}

void weir__pool_lose(struct weir__pool *pool, const struct weir__pool_call *call)
{
    if (pool_is_asked(pool, call))
        pool->asked = 0;
}

void weir__pool_hear(struct weir__pool *pool, const struct weir__pool_now *now,
                     const weir_decision *row)
{
    pool_note(pool, now, row);
}

void weir__pool_forgive(struct weir__pool *pool)
{
    pool->denied_until_us = 0;
}

/* ---- giving back ---- */

bool weir__pool_give_back(struct weir__pool *pool, const struct weir__pool_now *now, bool all,
                          struct weir__pool_return *ret)
{
    pool_turn(pool, now);
    bool cold = pool->takes == 0 && pool->takes_before == 0;
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++) {
        struct weir__grant *grant = &pool->grants[i];
        if (grant->left == 0 || !(all || cold || now->now_us >= grant->end_us))
            continue;
        bool over = now->now_us >= grant->back_us || now->now_us >= now->slot_us;
        *ret = (struct weir__pool_return){.left = over ? 0 : grant->left,
                                          .lost = over ? grant->left : 0,
                                          .time_us = grant->time_us};
        grant->left = 0;
        if (now->now_us >= pool->returning_until_us)
            pool->returning = 0;
        pool->returning += ret->left;
        pool->returning_until_us = now->now_us + WEIR__POOL_DOUBT_US;
        return true;
    }
    return false;
}

void weir__pool_gave_back(struct weir__pool *pool, const struct weir__pool_return *back)
{
    pool->returning = weir__max(0, pool->returning - back->left);
}

int64_t weir__pool_drop(struct weir__pool *pool)
{
    int64_t lost = 0;
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++) {
        lost += pool->grants[i].left;
        pool->grants[i].left = 0;
    }
    pool->asked = 0; /* an answer that is on its way comes too late */
    pool->denied_until_us = 0;
    return lost;
}

/* ---- tables ---- */

size_t weir__pools_size(uint32_t sets)
{
    return sizeof(struct weir__pools) + (size_t)sets * WEIR__POOLS_WAYS * sizeof(struct weir__pool);
}

int weir__pools_init(struct weir__pools *pools, uint32_t sets)
{
    assert(sets > 0 && (sets & (sets - 1)) == 0);
    memset(pools, 0, weir__pools_size(sets));
    pools->sets = sets;
    return weir__random_bytes(pools->secret, sizeof pools->secret) ? WEIR_ESYSTEM : 0;
}

/* Which of a key's states it is. This needs no keyed hash: who chooses these numbers could name the
 * other state of that key as well. */
static uint64_t pools_mix(const struct weir__rule *rule)
{
    uint64_t mix = (uint64_t)rule->period_us * 64 + rule->kind;
    mix = mix * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)weir__distinct(rule);
    mix = (mix ^ mix >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return mix ^ mix >> 29;
}

void weir__pools_tag(const struct weir__pools *pools, weir_key key, const struct weir__rule *rule,
                     uint64_t ret[2])
{
    uint64_t mix = pools_mix(rule);
    weir__hash(pools->secret, key.data, key.len, ret);
    ret[0] ^= mix;
    ret[1] += mix;
    ret[0] |= ret[0] == 0 && ret[1] == 0; /* both 0 is a free place */
}

struct weir__pool *weir__pools_set(struct weir__pools *pools, const uint64_t tag[2])
{
    return &pools->pools[(tag[1] & (pools->sets - 1)) * WEIR__POOLS_WAYS];
}

static bool pool_is_idle(const struct weir__pool *pool, int64_t now_us)
{
    bool told = pool->queued && now_us - pool->since_us < WEIR__POOL_DOUBT_US;
    return !told && pool_taken(pool, now_us) == 0;
}

/* Nobody asks for its size any more: the numbers have changed. */
static bool pool_is_forgotten(const struct weir__pool *pool, int64_t now_us)
{
    return (pool->takes == 0 && pool->takes_before == 0) ||
           now_us - pool->since_us >= WEIR__POOL_DOUBT_US;
}

static void pool_begin(struct weir__pool *pool, const uint64_t tag[2], weir_key key,
                       const struct weir__rule *rule, const struct weir__slice_terms *terms,
                       int64_t now_us)
{
    /* Calls are begun less often than once per microsecond: so no answer to an earlier pool fits,
     * wherever that one was. */
    uint32_t serial = (uint32_t)now_us;
    *pool = (struct weir__pool){.tag = {tag[0], tag[1]},
                                .most = terms->most,
                                .since_us = now_us,
                                .serial = serial,
                                .withheld = terms->withheld,
                                .size = terms->size,
                                .rule = *rule,
                                .key_len = (uint32_t)key.len};
    memcpy(pool->key, key.data, key.len);
}

/* A free place, or the one of those that nobody needs which was used least lately. */
static struct weir__pool *pools_spare(struct weir__pool *set, int64_t now_us)
{
    struct weir__pool *best = NULL;
    for (size_t i = 0; i < WEIR__POOLS_WAYS; i++) {
        if (pool_is_idle(&set[i], now_us) && (!best || set[i].since_us < best->since_us))
            best = &set[i];
    }
    return best;
}

struct weir__pool *weir__pools_place(struct weir__pools *pools, const uint64_t tag[2], weir_key key,
                                     const struct weir__rule *rule,
                                     const struct weir__slice_terms *terms, int64_t now_us,
                                     int64_t *ret_withheld)
{
    struct weir__pool *set = weir__pools_set(pools, tag), *pool = weir__pools_find(set, tag);
    *ret_withheld = weir__max(terms->withheld, pool ? pool->withheld : 0);
    if (key.len > WEIR__POOL_KEY_MAX)
        return NULL;
    if (pool && !weir__rule_same_state(&pool->rule, rule))
        return NULL;
    if (WEIR__LIKELY(pool && pool->size == terms->size && pool->rule.count == rule->count))
        return pool;
    if (pool && (!pool_is_idle(pool, now_us) ||
                 (pool->size > terms->size && !pool_is_forgotten(pool, now_us))))
        return NULL;
    pool = pool ? pool : pools_spare(set, now_us);
    if (pool)
        pool_begin(pool, tag, key, rule, terms, now_us);
    return pool;
}

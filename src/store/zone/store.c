/* A store that is a zone: opening and closing it, and its verbs beside take and peek. */
#include "store/zone/ops.h"

#include <stdlib.h>

/* The ops of a key's limits, for verbs without decisions; their number, or a code. */
static int ops_of(struct weir__zone *zone, weir_key key, const weir_limit *limit, int64_t now,
                  struct weir__op *ops)
{
    weir_request request = weir_request_make(key, limit);
    return weir__ops_add(zone, &request, WEIR__TAKE, 0, &(uint64_t){0}, weir__key_tag(zone, key),
                         now, ops, NULL);
}

/* The mark of a settled receipt on one state of a key. */
static void set_mark(struct weir__zone *zone, const uint64_t key[2], const struct weir__rule *rule,
                     const struct weir__correction *correction, struct weir__op *op)
{
    uint64_t hash[2], all[] = {key[0],
                               key[1],
                               correction->anytime ? 0 : (uint64_t)correction->charged_at_us,
                               (uint64_t)correction->charged,
                               correction->id,
                               rule->kind,
                               (uint64_t)rule->period_us,
                               (uint64_t)weir__distinct(rule)};
    weir__hash(zone->secret, all, sizeof all, hash);
    *op = (struct weir__op){.rule = &weir__mark_rule,
                            .tag = weir__tag_of(hash),
                            .home = weir__home_of(zone, weir__tag_of(hash)),
                            .row = WEIR__MARK_ROW,
                            .request = {correction->now_us, 1, 0}};
}

static int settle(weir_store *store, weir_key key, const weir_limit *limit,
                  const struct weir__correction *correction)
{
    struct weir__zone *zone = weir__zone_of(store);
    int lost = weir__zone_look(store, correction->now_us), code = lost ? lost : WEIR__STALE;
    uint64_t hash[2];
    weir__key_hash_of(zone, key, hash);
    for (int tries = 0; tries < WEIR__STALE_RETRIES && code == WEIR__STALE; tries++) {
        struct weir__op ops[2 * WEIR_LIMITS_MAX];
        int n = ops_of(zone, key, limit, correction->now_us, ops);
        for (int i = 0; i < n && correction->id; i++)
            set_mark(zone, hash, &limit->rules[i], correction, &ops[n + i]);
        code = n < 0 ? n : weir__zone_settle(zone, ops, (size_t)n, correction);
        if (code == WEIR__STALE)
            weir__hints_forget(limit);
    }
    return weir__told(code);
}

static int change_lease(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                        uint64_t lease, enum weir__lease_verb verb, int64_t now)
{
    struct weir__zone *zone = weir__zone_of(store);
    int lost = weir__zone_look(store, now), code = lost ? lost : WEIR__STALE;
    for (int tries = 0; tries < WEIR__STALE_RETRIES && code == WEIR__STALE; tries++) {
        struct weir__op ops[WEIR_LIMITS_MAX];
        code = ops_of(zone, key, limit, now, ops);
        if (code < 0)
            return code;
        ops[i].lease_id = lease;
        code = weir__zone_lease(zone, &ops[i], verb);
        if (code == WEIR__STALE)
            weir__hints_forget(limit);
    }
    return weir__told(code);
}

static int show(weir_store *store, weir_key key, int64_t now, struct weir__shown *ret,
                size_t *ret_count)
{
    int lost = weir__zone_look(store, now);
    if (lost)
        return lost;
    return weir__told(weir__zone_show(
        weir__zone_of(store), weir__key_tag(weir__zone_of(store), key), now, ret, ret_count));
}

static int reset(weir_store *store, weir_key key, int64_t now, bool *ret)
{
    int lost = weir__zone_look(store, now);
    if (lost)
        return lost;
    return weir__told(
        weir__zone_reset(weir__zone_of(store), weir__key_tag(weir__zone_of(store), key), now, ret));
}

static void hash(const weir_store *store, weir_hashed_key *room)
{
    const struct weir__zone *zone = &((const struct weir__zone_store *)store)->region.zone;
    weir__hash(zone->secret, room->key.data, room->key.len, room->hash);
    room->store = zone->serial;
}

static void bells(const weir_store *store, weir_key key, struct weir__bells *ret)
{
    const struct weir__zone *zone = &((const struct weir__zone_store *)store)->region.zone;
    uint32_t stripe = weir__stripe_of(zone, weir__home_of(zone, weir__key_tag(zone, key)));
    *ret = (struct weir__bells){&zone->stripes[stripe].bell, &zone->header->bell, zone->shared};
}

static int info(weir_store *store, weir_zone_info *ret)
{
    const struct weir__region *region = weir__store_region(store);
    if (region->fd >= 0 && !weir__region_is_whole(region))
        return WEIR_EDAMAGED;
    return weir__zone_info(weir__zone_of(store), ret);
}

static int check(weir_store *store, weir_error *err)
{
    int code = weir__region_check(weir__store_region(store), err);
    return code ? code : weir__zone_check(weir__zone_of(store), err);
}

static void close_zone(weir_store *store)
{
    struct weir__zone_store *it = (struct weir__zone_store *)store;
    weir__zone_leave_forks(&it->region.zone);
    free(it->region.zone.pinned);
    free(it->region.zone.sweep.verdicts);
    weir__region_close(&it->region);
    free(it);
}

static const struct weir__engine engine = {
    .decide = weir__zone_decide,
    .take = weir__zone_take,
    .take_hashed = weir__zone_take_hashed,
    .take_many = weir__zone_take_many,
    .settle = settle,
    .change_lease = change_lease,
    .reset = reset,
    .reserve = weir__zone_reserve,
    .show = show,
    .bells = bells,
    .hash = hash,
    .info = info,
    .check = check,
    .close = close_zone,
};

const struct weir__region *weir__store_region(const weir_store *store)
{
    return store->engine == &engine ? &((const struct weir__zone_store *)store)->region : NULL;
}

void weir__store_be_patient(weir_store *store, int64_t us)
{
    if (store->engine == &engine)
        weir__zone_be_patient(weir__zone_of(store), us);
}

void weir__store_deny_full(weir_store *store)
{
    if (store->engine == &engine)
        weir__zone_of(store)->full_denies = true;
}

/* A store whose region is open, or was not opened. */
static int zone_store_done(struct weir__zone_store *store, int code, weir_store **ret,
                           weir_error *err)
{
    if (code == 0 && weir__zone_watch_forks(&store->region.zone)) {
        weir__region_close(&store->region);
        code = weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a store");
    }
    if (code)
        free(store);
    else
        *ret = &store->base;
    return code;
}

int weir__zone_store_open(const char *url, weir_store **ret, weir_error *err)
{
    struct weir__zone_store *store = calloc(1, sizeof *store);
    if (!store)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a store");
    store->base.engine = &engine;
    int code = weir__region_parse(url, &store->region, err);
    if (code == 0)
        code = weir__region_open(&store->region, err);
    store->region.zone.keeps = store->region.keeps;
    return zone_store_done(store, code, ret, err);
}

int weir__zone_store_over(uint8_t *base, uint64_t size, unsigned large_percent, bool keeps,
                          weir_store **ret, weir_error *err)
{
    struct weir__zone_store *store = calloc(1, sizeof *store);
    if (!store)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a store");
    store->base.engine = &engine;
    store->region = (struct weir__region){.kind = WEIR__BORROWED, .size = size, .fd = -1};
    bool there = ((const struct weir__zone_header *)base)->magic == WEIR__ZONE_MAGIC;
    int code = there ? weir__zone_attach(base, size, true, &store->region.zone, err)
                     : weir__zone_format(base, size, large_percent, true, &store->region.zone, err);
    store->region.zone.keeps = keeps;
    return zone_store_done(store, code, ret, err);
}

/* A store that is a zone: requests to ops and back. */
#include "store/zone/store.h"

#include "base/hash.h"
#include "store/zone/rows.h"
#include "store/zone/take.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 32         /* requests of weir_take_many that are decided side by side */
#define STALE_RETRIES 16 /* rows swept away between finding and using them */
#define BEHIND_RETRIES 8 /* others served between reading the clock and locking */

static inline struct weir__zone *zone_of(weir_store *store)
{
    return &((struct weir__zone_store *)store)->region.zone;
}

/* ---- requests to ops ---- */

static inline void hash_key(const struct weir__zone *zone, weir_key key, uint64_t ret[2])
{
    weir__hash(zone->secret, key.data, key.len, ret);
}

static __attribute__((noinline)) uint64_t tag_key(const struct weir__zone *zone, weir_key key)
{
    uint64_t hash[2];
    hash_key(zone, key, hash);
    return weir__tag_of(hash);
}

/* The tag of a key, as it was hashed before if that was for this zone. */
static inline uint64_t tag_again(const struct weir__zone *zone, weir_key key,
                                 const weir_hashed_key *hashed)
{
    return hashed && hashed->store == zone->serial ? weir__tag_of(hashed->hash)
                                                   : tag_key(zone, key);
}

/* A log grows by moving to a block twice the size, and blocks lie at multiples of it: with two
 * places for the largest, one is never in its own way. Leases fill half of the units at most, and
 * while they move they have both blocks. */
bool weir__zone_fits(const struct weir__layout *layout, const struct weir__rule *rule)
{
    if (!weir__is_large(rule))
        return true;
    bool leases = weir__algorithm_of(rule)->leases;
    unsigned order = weir__order_for(weir__rule_cells(rule) + leases); /* one to spare */
    uint64_t size = UINT64_C(1) << order;
    if (leases && (size + (order > 0 ? size / 2 : 0)) * 2 > layout->units)
        return false;
    return size << (order > 0) <= layout->units;
}

/* Finds the row of a limit the hint knows nothing of; 0: no room. */
static uint64_t find_row(struct weir__zone *zone, const weir_limit *limit, size_t i, int64_t now_us)
{
    uint32_t generation;
    if (!weir__zone_fits(&zone->layout, &limit->rules[i]))
        return 0;
    uint64_t row = weir__row_find(zone, &limit->rules[i], now_us, &generation);
    if (row)
        row |= zone->serial << WEIR__HINT_SERIAL_AT | (uint64_t)generation
                                                          << WEIR__HINT_GENERATION_AT;
    /* Whoever reads the hint may name the row in a slot: it must see the row whole. */
    atomic_store_explicit((_Atomic uint64_t *)&limit->hints[i], row, memory_order_release);
    return row;
}

/* A peek changes nothing: where the limit has no row, none is made for it. False: its states would
 * not fit. */
static bool peek_row(const struct weir__zone *zone, const weir_limit *limit, size_t i,
                     struct weir__op *op)
{
    if (!weir__zone_fits(&zone->layout, &limit->rules[i]))
        return false;
    op->generation = WEIR__NO_ROW;
    uint32_t row = weir__index_find(zone, &limit->rules[i], &op->generation);
    op->row = row ? row : WEIR__NO_ROW;
    return true;
}

/* The row of limit i, by its hint or by searching; false: no room. */
static inline bool set_row(struct weir__zone *zone, const weir_limit *limit, size_t i,
                           enum weir__mode mode, int64_t now_us, struct weir__op *op)
{
    uint64_t hint = atomic_load_explicit(&limit->hints[i], memory_order_acquire);
    if (WEIR__UNLIKELY(!weir__hint_is_of(zone, hint))) {
        if (mode == WEIR__PEEK)
            return peek_row(zone, limit, i, op);
        hint = find_row(zone, limit, i, now_us);
    }
    op->row = weir__hint_row(hint);
    op->generation = weir__hint_generation(hint);
    return op->row != 0;
}

static void forget_hints(const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++)
        atomic_store((_Atomic uint64_t *)&limit->hints[i], 0);
}

/* No row was found: there is no room, or nobody could look. */
static int no_row(struct weir__zone *zone)
{
    return weir__zone_is_held(zone) ? WEIR_EBUSY : WEIR_EFULL;
}

/* No row was found for a limit that would fit: it is denied, as one whose state finds no room. */
static bool deny_full(const struct weir__zone *zone, const weir_limit *limit, int64_t now_us,
                      int64_t cost, weir_decision *rows)
{
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
        struct weir__state state = {0};
        struct weir__request request = {now_us, weir__limit_asked(limit, i, cost),
                                        weir__wait_for(rule, WEIR_WAIT_ANY)};
        if (!zone->full_denies || !weir__zone_fits(&zone->layout, rule))
            return false;
        rows[i] = (weir_decision){.time_us = now_us};
        weir__load(rule, NULL, &state, now_us);
        algorithm->judge(rule, &state, &request, &rows[i]);
        algorithm->report(rule, &state, now_us, &rows[i]);
        rows[i].allowed = false;
        rows[i].full = true;
        rows[i].delay_us = rows[i].remaining = 0;
        rows[i].retry_after_us = WEIR__FULL_RETRY_US;
    }
    return true;
}

static inline bool is_retried(int code)
{
    return code == WEIR__STALE || code == WEIR__BEHIND;
}

/* What callers are told. */
static inline int told(int code)
{
    if (WEIR__LIKELY(code > WEIR__STALE))
        return code;
    return code == WEIR__HELD ? WEIR_EBUSY : WEIR_EFULL;
}

/* Sets an op for limit i of a list; false: no room for its row. */
static inline bool set_op(struct weir__zone *zone, const weir_limit *limit, size_t i,
                          enum weir__mode mode, uint64_t tag, int64_t now_us, int64_t cost,
                          int64_t wait_us, struct weir__op *op)
{
    op->rule = &limit->rules[i];
    op->tag = tag;
    op->home = weir__home_of(zone, tag);
    op->request.now_us = now_us;
    op->request.cost = cost;
    op->request.wait_us = weir__wait_for(op->rule, wait_us);
    op->lease_id = 0;
    op->ahead_us = 0;
    return set_row(zone, limit, i, mode, now_us, op);
}

/* Appends the ops of one request; their number, or a code. `least`: of the call, and its `lease`,
 * 0: not known yet. */
static int add_ops(struct weir__zone *zone, const weir_request *request, enum weir__mode mode,
                   int64_t least, uint64_t *lease, uint64_t tag, int64_t now_us,
                   struct weir__op *ops, weir_decision *rows)
{
    if (request->acquire && !*lease && weir__lease_id(lease))
        return WEIR_ESYSTEM;
    int64_t judged = request->least ? least : request->cost;
    for (size_t i = 0; i < request->limit->count; i++) {
        int64_t cost = weir__limit_asked(request->limit, i, judged);
        if (!set_op(zone, request->limit, i, mode, tag, now_us, cost, request->wait_us, &ops[i]))
            return no_row(zone);
        ops[i].lease_id = request->acquire ? *lease : 0;
        ops[i].ret = rows ? &rows[i] : NULL;
    }
    return (int)request->limit->count;
}

/* Another zone may be at the path by now: two of them would each allow the whole limit. */
static inline int look(weir_store *store, int64_t now_us)
{
    struct weir__region *region = &((struct weir__zone_store *)store)->region;
    int64_t at = atomic_load_explicit(&region->zone.look_at_us, memory_order_relaxed);
    return WEIR__UNLIKELY(now_us >= at) ? weir__region_look(region, now_us) : 0;
}

/* ---- take and peek ---- */

struct group {
    struct weir__op ops[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX];
    size_t count;
    int64_t least; /* that those which have one are judged by; 0: none has one */
};

/* Two limits of one key that would share a state can only come from different requests. */
static bool shares_state(const struct group *group)
{
    for (size_t i = 1; i < group->count; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct weir__op *a = &group->ops[i], *b = &group->ops[j];
            if (a->tag == b->tag && weir__rule_same_state(a->rule, b->rule))
                return true;
        }
    }
    return false;
}

static int build(struct weir__zone *zone, const weir_request *requests, size_t n,
                 enum weir__mode mode, int64_t now_us, struct group *group)
{
    uint64_t lease = 0; /* one names what all requests hold */
    group->count = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t tag = tag_again(zone, requests[i].key, requests[i].hashed);
        weir__prefetch_home(zone, weir__home_of(zone, tag));
        int added = add_ops(zone, &requests[i], mode, group->least, &lease, tag, now_us,
                            group->ops + group->count, group->rows + group->count);
        if (added < 0)
            return added;
        group->count += (size_t)added;
    }
    return n > 1 && shares_state(group) ? WEIR_ESHARED : 0;
}

static void hand_out(const weir_request *requests, size_t n, const weir_decision *rows)
{
    for (size_t i = 0; i < n; rows += requests[i].limit->count, i++) {
        if (requests[i].detail)
            memcpy(requests[i].detail, rows, requests[i].limit->count * sizeof *rows);
    }
}

/* The lease of the limits that have leases. */
static uint64_t lease_of(const struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (group->rows[i].lease)
            return group->rows[i].lease;
    }
    return 0;
}

/* The same for all limits of a group. */
static bool deny_all_full(const struct weir__zone *zone, const weir_request *requests, size_t n,
                          int64_t now_us, struct group *group)
{
    group->count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!deny_full(zone, requests[i].limit, now_us, requests[i].cost,
                       group->rows + group->count))
            return false;
        group->count += requests[i].limit->count;
    }
    return true;
}

/* After WEIR__BEHIND: the time as it is now, or where the clock runs back, what is ahead of it. */
static void catch_up(weir_store *store, const struct weir__op *ops, int tries, int64_t *now,
                     int64_t *ahead)
{
    int64_t later = weir__store_now(store);
    if (later >= ops->ahead_us)
        *now = later;
    else
        *ahead = ops->ahead_us;
    if (tries >= BEHIND_RETRIES)
        *ahead = INT64_MAX;
}

static int decide(weir_store *store, const weir_request *requests, size_t n, enum weir__mode mode,
                  int64_t now, weir_decision *ret)
{
    struct weir__zone *zone = zone_of(store);
    struct group group;
    const struct weir__group_of asked = {requests, n};
    int64_t ahead = 0;
    group.least = weir__budget_of(requests, n).least;
    int code = look(store, now) ? WEIR_EGONE : WEIR__STALE;
    for (int tries = 0; tries < STALE_RETRIES && is_retried(code); tries++) {
        code = build(zone, requests, n, mode, now, &group);
        group.ops[0].ahead_us = ahead;
        if (code == 0)
            code = group.least ? weir__zone_grant(zone, group.ops, group.count, mode, &asked)
                               : weir__zone_apply(zone, group.ops, group.count, mode);
        for (size_t i = 0; i < n && code == WEIR__STALE; i++)
            forget_hints(requests[i].limit);
        if (code == WEIR__BEHIND)
            catch_up(store, group.ops, tries, &now, &ahead);
    }
    if (WEIR__UNLIKELY(told(code) == WEIR_EFULL && mode == WEIR__TAKE) &&
        deny_all_full(zone, requests, n, now, &group))
        code = 0;
    if (code)
        return told(code);
    hand_out(requests, n, group.rows);
    weir__fold(group.rows, group.count, ret);
    ret->granted = !ret->allowed ? 0 : requests[0].cost;
    if (WEIR__UNLIKELY(group.least && ret->allowed))
        ret->granted = weir__granted(requests, n, group.rows);
    ret->charged = !ret->allowed || mode == WEIR__PEEK ? 0
                   : requests[0].least                 ? ret->granted
                                                       : requests[0].cost;
    ret->lease = lease_of(&group);
    return 0;
}

/* One limit, one key, without the machinery for groups. `code`: why weir__zone_take did not do. */
static __attribute__((noinline)) int take_again(weir_store *store, const weir_limit *limit,
                                                uint64_t tag, const struct weir__request *request,
                                                int code, weir_decision *ret)
{
    struct weir__zone *zone = zone_of(store);
    struct weir__op op;
    weir_decision row;
    int64_t now_us = request->now_us, ahead = 0;
    bool small = !weir__is_large(&limit->rules[0]); /* fails before it writes */
    for (int tries = 0; tries < STALE_RETRIES; tries++) {
        if (WEIR__UNLIKELY(!set_op(zone, limit, 0, WEIR__TAKE, tag, now_us, request->cost,
                                   request->wait_us, &op))) {
            code = no_row(zone);
            return code == WEIR_EFULL && deny_full(zone, limit, now_us, request->cost, ret) ? 0
                                                                                            : code;
        }
        op.ret = small ? ret : &row;
        op.ahead_us = ahead;
        code = code == WEIR__LOCKED ? weir__zone_apply_locked(zone, &op, 1, WEIR__TAKE)
                                    : weir__zone_apply(zone, &op, 1, WEIR__TAKE);
        if (WEIR__UNLIKELY(!small) && code == 0)
            *ret = row;
        if (WEIR__LIKELY(!is_retried(code)))
            return told(code);
        if (code == WEIR__STALE)
            forget_hints(limit);
        else
            catch_up(store, &op, tries, &now_us, &ahead);
    }
    return WEIR_EFULL;
}

/* The path nearly every call takes. `under` NULL: the row is not known. */
static inline __attribute__((always_inline)) int
take_one(weir_store *store, const weir_limit *limit, const struct weir__take_row *under,
         uint64_t tag, struct weir__group *home, const struct weir__request *request,
         weir_decision *ret)
{
    int code = WEIR__LIKELY(under != NULL)
                   ? weir__take_under(zone_of(store), under, tag, home, request, ret)
                   : WEIR__STALE;
    if (WEIR__LIKELY(code == 0))
        return 0;
    struct weir__request copy = *request; /* the other one stays in registers */
    return take_again(store, limit, tag, &copy, code, ret);
}

static __attribute__((noinline)) int
take_at(weir_store *store, uint64_t tag, const weir_limit *limit, int64_t cost, weir_decision *ret)
{
    struct weir__zone *zone = zone_of(store);
    struct weir__group *home = &zone->groups[weir__home_of(zone, tag)];
    weir__prefetch_group(home);
    int64_t now = weir__store_now(store);
    if (WEIR__UNLIKELY(now < 0))
        return WEIR_EINVAL;
    int code = look(store, now);
    struct weir__request request = {now, cost, WEIR_WAIT_DEFAULT};
    struct weir__take_row row;
    if (WEIR__LIKELY(code == 0))
        code = take_one(store, limit,
                        weir__take_by_hint(zone, limit, weir__take_hint(limit), &row) ? &row : NULL,
                        tag, home, &request, ret);
    weir__store_count_quick(store, code, ret);
    return code;
}

static int take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                weir_decision *ret)
{
    return take_at(store, tag_key(zone_of(store), key), limit, cost, ret);
}

static int take_hashed(weir_store *store, const weir_hashed_key *key, const weir_limit *limit,
                       int64_t cost, weir_decision *ret)
{
    return take_at(store, tag_again(zone_of(store), key->key, key), limit, cost, ret);
}

struct batch {
    uint64_t tags[BATCH];
    struct weir__group *homes[BATCH];
    /* The limit of the last request that was decided, and its row by that hint; NULL: unknown. */
    const weir_limit *limit;
    uint64_t hint;
    struct weir__take_row row, *under;
};

/* From four requests on, keys are hashed by fours, unless they are hashed already. */
static inline size_t batch_hash(const struct weir__zone *zone, const weir_request *it, size_t left,
                                uint64_t *tags)
{
    if (WEIR__UNLIKELY(left < 4 || it[0].hashed || it[1].hashed || it[2].hashed || it[3].hashed)) {
        tags[0] = tag_again(zone, it->key, it->hashed);
        return 1;
    }
    const struct weir__hash_key keys[4] = {{it[0].key.data, it[0].key.len},
                                           {it[1].key.data, it[1].key.len},
                                           {it[2].key.data, it[2].key.len},
                                           {it[3].key.data, it[3].key.len}};
    weir__hash_four(zone->secret, keys, tags);
    for (size_t i = 0; i < 4; i++)
        tags[i] = weir__tag_of(&tags[i]);
    return 4;
}

/* Asks for the memory of each key as soon as its tag is known: what comes after it hides the
 * time. */
static inline void batch_find(const struct weir__zone *zone, const weir_request *requests, size_t n,
                              struct batch *batch)
{
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(requests[i].hashed ? (const void *)requests[i].hashed
                                              : requests[i].key.data);
    for (size_t i = 0, hashed = 0; i < n; i++) {
        if (i == hashed)
            hashed += batch_hash(zone, &requests[i], n - i, &batch->tags[i]);
        batch->homes[i] = &zone->groups[weir__home_of(zone, batch->tags[i])];
        weir__prefetch_group(batch->homes[i]);
    }
}

/* Request i of a batch. What was found out about a limit's row serves until another limit comes. */
static inline __attribute__((always_inline)) int batch_take(weir_store *store, struct batch *batch,
                                                            size_t i, const weir_request *it,
                                                            int64_t now, weir_decision *ret)
{
    if (WEIR__UNLIKELY(it->limit->count > 1 || it->detail || it->acquire || it->least ||
                       it->limit->costs))
        return decide(store, it, 1, WEIR__TAKE, now, ret);
    uint64_t hint = weir__take_hint(it->limit);
    if (WEIR__UNLIKELY(it->limit != batch->limit || hint != batch->hint)) {
        batch->limit = it->limit;
        batch->hint = hint;
        batch->under =
            weir__take_by_hint(zone_of(store), it->limit, hint, &batch->row) ? &batch->row : NULL;
    }
    struct weir__request request = {now, it->cost, it->wait_us};
    return take_one(store, it->limit, batch->under, batch->tags[i], batch->homes[i], &request, ret);
}

/* A batch: hash all, prefetch all, then decide all. */
static int take_batch(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                      weir_decision *rets)
{
    struct batch batch;
    int first = look(store, now);
    assert(n <= BATCH);
    for (size_t i = 0; WEIR__UNLIKELY(first) && i < n; i++)
        rets[i] = (weir_decision){.code = first};
    if (WEIR__UNLIKELY(first))
        return first;
    batch_find(zone_of(store), requests, n, &batch);
    batch.limit = NULL;
    for (size_t i = 0; i < n; i++) {
        int code = batch_take(store, &batch, i, &requests[i], now, &rets[i]);
        if (WEIR__UNLIKELY(code)) {
            rets[i] = (weir_decision){.code = code};
            first = first ? first : code;
        }
    }
    return first;
}

static int take_many(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                     weir_decision *rets)
{
    int first = 0;
    for (size_t done = 0; done < n; done += BATCH) {
        int code = take_batch(store, requests + done, n - done < BATCH ? n - done : BATCH, now,
                              rets + done);
        first = first ? first : code;
    }
    return first;
}

/* ---- the other verbs ---- */

/* The ops of a key's limits, for verbs without decisions; their number, or a code. */
static int ops_of(struct weir__zone *zone, weir_key key, const weir_limit *limit, int64_t now,
                  struct weir__op *ops)
{
    weir_request request = weir_request_make(key, limit);
    return add_ops(zone, &request, WEIR__TAKE, 0, &(uint64_t){0}, tag_key(zone, key), now, ops,
                   NULL);
}

/* The mark of a settled receipt on one state of a key. */
static void set_mark(struct weir__zone *zone, const uint64_t key[2], const struct weir__rule *rule,
                     const struct weir__correction *correction, struct weir__op *op)
{
    uint64_t hash[2], all[] = {key[0],
                               key[1],
                               (uint64_t)correction->charged_at_us,
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
    struct weir__zone *zone = zone_of(store);
    int code = look(store, correction->now_us) ? WEIR_EGONE : WEIR__STALE;
    uint64_t hash[2];
    hash_key(zone, key, hash);
    for (int tries = 0; tries < STALE_RETRIES && code == WEIR__STALE; tries++) {
        struct weir__op ops[2 * WEIR_LIMITS_MAX];
        int n = ops_of(zone, key, limit, correction->now_us, ops);
        for (int i = 0; i < n && correction->id; i++)
            set_mark(zone, hash, &limit->rules[i], correction, &ops[n + i]);
        code = n < 0 ? n : weir__zone_settle(zone, ops, (size_t)n, correction);
        if (code == WEIR__STALE)
            forget_hints(limit);
    }
    return told(code);
}

static int change_lease(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                        uint64_t lease, enum weir__lease_verb verb, int64_t now)
{
    struct weir__zone *zone = zone_of(store);
    int code = look(store, now) ? WEIR_EGONE : WEIR__STALE;
    for (int tries = 0; tries < STALE_RETRIES && code == WEIR__STALE; tries++) {
        struct weir__op ops[WEIR_LIMITS_MAX];
        code = ops_of(zone, key, limit, now, ops);
        if (code < 0)
            return code;
        ops[i].lease_id = lease;
        code = weir__zone_lease(zone, &ops[i], verb);
        if (code == WEIR__STALE)
            forget_hints(limit);
    }
    return told(code);
}

static int show(weir_store *store, weir_key key, int64_t now, struct weir__shown *ret,
                size_t *ret_count)
{
    if (look(store, now))
        return WEIR_EGONE;
    return told(weir__zone_show(zone_of(store), tag_key(zone_of(store), key), now, ret, ret_count));
}

static int reset(weir_store *store, weir_key key, int64_t now, bool *ret)
{
    if (look(store, now))
        return WEIR_EGONE;
    return told(weir__zone_reset(zone_of(store), tag_key(zone_of(store), key), now, ret));
}

/* Every rule once. */
static size_t sort_rules(struct weir__rule *rules, size_t n)
{
    size_t kept = 0;
    if (n > 0)
        qsort(rules, n, sizeof *rules, weir__rule_order);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || weir__rule_order(&rules[kept - 1], &rules[i]) != 0)
            rules[kept++] = rules[i];
    }
    return kept;
}

/* Whether the zone could have a row for each of these rules at once. */
static int check_room(const struct weir__zone *zone, const struct weir__rule *rules, size_t n,
                      weir_error *err)
{
    size_t counts[2] = {0, 0};
    for (size_t i = 0; i < n; i++)
        counts[weir__is_narrow(&rules[i])]++;
    for (int narrow = 0; narrow < 2; narrow++) {
        size_t most = weir__rows_most(zone, narrow);
        if (counts[narrow] > most || (zone->layout.chunks == 0 && n > most))
            return weir__fail(
                err, WEIR_EFULL, 0,
                "%zu different limits%s, and the store has rows for %zu; use fewer, or a larger "
                "store",
                zone->layout.chunks ? counts[narrow] : n,
                narrow ? " of sliding-counter, smooth and warmup" : "", most);
    }
    return 0;
}

static int reserve(weir_store *store, const weir_limit *const *limits, size_t n, int64_t now,
                   weir_error *err)
{
    struct weir__zone *zone = zone_of(store);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += limits[i]->count;
    struct weir__rule *rules = calloc(count + 1, sizeof *rules);
    if (!rules)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the limits");
    count = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(&rules[count], limits[i]->rules, limits[i]->count * sizeof *rules);
        count += limits[i]->count;
    }
    count = sort_rules(rules, count);
    int code = check_room(zone, rules, count, err);
    if (code == 0) {
        code = weir__rows_pin(zone, rules, count, now);
        if (code)
            weir__fail(err, told(code), 0, "%s", weir_strerror(told(code)));
    }
    if (code)
        free(rules);
    return code ? told(code) : 0;
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
    uint32_t stripe = weir__stripe_of(zone, weir__home_of(zone, tag_key(zone, key)));
    *ret = (struct weir__bells){&zone->stripes[stripe].bell, &zone->header->bell, zone->shared};
}

static int info(weir_store *store, weir_zone_info *ret)
{
    return weir__zone_info(zone_of(store), ret);
}

static int check(weir_store *store, weir_error *err)
{
    return weir__zone_check(zone_of(store), err);
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
    .decide = decide,
    .take = take,
    .take_hashed = take_hashed,
    .take_many = take_many,
    .settle = settle,
    .change_lease = change_lease,
    .reset = reset,
    .reserve = reserve,
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
        weir__zone_be_patient(zone_of(store), us);
}

void weir__store_deny_full(weir_store *store)
{
    if (store->engine == &engine)
        zone_of(store)->full_denies = true;
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

/*
 * Takes of one limit, which nearly all are: alone, or many of them side by side. The way without a
 * lock (zone/take.h) is part of the functions here; whatever it does not do goes the long way.
 */
#include "store/zone/ops.h"
#include "store/zone/take.h"

#define BATCH 32 /* requests of weir_take_many that are decided side by side */

/* One limit, one key, without the machinery for groups. `code`: why weir__zone_take did not do. */
static __attribute__((noinline)) int single_again(weir_store *store, const weir_limit *limit,
                                                  uint64_t tag, const struct weir__request *request,
                                                  int code, weir_decision *ret)
{
    struct weir__zone *zone = weir__zone_of(store);
    struct weir__op op;
    weir_decision row;
    int64_t now_us = request->now_us, ahead = 0;
    bool small = !weir__is_large(&limit->rules[0]); /* fails before it writes */
    for (int tries = 0; tries < WEIR__STALE_RETRIES; tries++) {
        if (WEIR__UNLIKELY(!weir__op_set(zone, limit, 0, WEIR__TAKE, tag, now_us, request->cost,
                                         request->wait_us, &op))) {
            code = weir__no_row(zone);
            return code == WEIR_EFULL && weir__deny_full(zone, limit, now_us, request->cost, ret)
                       ? 0
                       : code;
        }
        op.ret = small ? ret : &row;
        op.ahead_us = ahead;
        code = code == WEIR__LOCKED ? weir__zone_apply_locked(zone, &op, 1, WEIR__TAKE)
                                    : weir__zone_apply(zone, &op, 1, WEIR__TAKE);
        if (WEIR__UNLIKELY(!small) && code == 0)
            *ret = row;
        if (WEIR__LIKELY(!weir__is_retried(code)))
            return weir__told(code);
        if (code == WEIR__STALE)
            weir__hints_forget(limit);
        else
            weir__catch_up(store, &op, tries, &now_us, &ahead);
    }
    return WEIR_EFULL;
}

/* The path nearly every call takes. `under` NULL: the row is not known. */
static inline __attribute__((always_inline)) int
single_take(weir_store *store, const weir_limit *limit, const struct weir__take_row *under,
            uint64_t tag, struct weir__group *home, const struct weir__request *request,
            weir_decision *ret)
{
    int code = WEIR__LIKELY(under != NULL)
                   ? weir__take_under(weir__zone_of(store), under, tag, home, request, ret)
                   : WEIR__STALE;
    if (WEIR__LIKELY(code == 0))
        return 0;
    struct weir__request copy = *request; /* the other one stays in registers */
    return single_again(store, limit, tag, &copy, code, ret);
}

static __attribute__((noinline)) int single_take_at(weir_store *store, uint64_t tag,
                                                    const weir_limit *limit, int64_t cost,
                                                    weir_decision *ret)
{
    struct weir__zone *zone = weir__zone_of(store);
    struct weir__group *home = &zone->groups[weir__home_of(zone, tag)];
    weir__prefetch_group(home);
    int64_t now = weir__store_now(store);
    if (WEIR__UNLIKELY(now < 0))
        return WEIR_EINVAL;
    int code = weir__zone_look(store, now);
    struct weir__request request = {now, cost, WEIR_WAIT_DEFAULT};
    struct weir__take_row row;
    if (WEIR__LIKELY(code == 0))
        code =
            single_take(store, limit,
                        weir__take_by_hint(zone, limit, weir__take_hint(limit), &row) ? &row : NULL,
                        tag, home, &request, ret);
    weir__store_count_quick(store, code, ret);
    return code;
}

int weir__zone_take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                    weir_decision *ret)
{
    return single_take_at(store, weir__key_tag(weir__zone_of(store), key), limit, cost, ret);
}

int weir__zone_take_hashed(weir_store *store, const weir_hashed_key *key, const weir_limit *limit,
                           int64_t cost, weir_decision *ret)
{
    return single_take_at(store, weir__key_tag_again(weir__zone_of(store), key->key, key), limit,
                          cost, ret);
}

struct batch {
    uint64_t tags[BATCH];
    struct weir__group *homes[BATCH];
    /* The limit of the last request that was decided, and its row by that hint; NULL: unknown. */
    const weir_limit *limit;
    uint64_t hint;
    bool single; /* it is one limit, and the request says what it costs */
    struct weir__take_row row, *under;
};

/* From four requests on, keys are hashed by fours, unless they are hashed already. */
static inline size_t batch_hash(const struct weir__zone *zone, const weir_request *it, size_t left,
                                uint64_t *tags)
{
    if (WEIR__UNLIKELY(left < 4 || it[0].hashed || it[1].hashed || it[2].hashed || it[3].hashed)) {
        tags[0] = weir__key_tag_again(zone, it->key, it->hashed);
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
    for (size_t i = 0, hashed = 0; i < n; i++) {
        if (i == hashed)
            hashed += batch_hash(zone, &requests[i], n - i, &batch->tags[i]);
        batch->homes[i] = &zone->groups[weir__home_of(zone, batch->tags[i])];
        weir__prefetch_group(batch->homes[i]);
    }
}

/* What the next requests of a batch have in common. */
static __attribute__((noinline)) void batch_meet(const struct weir__zone *zone,
                                                 const weir_limit *limit, uint64_t hint,
                                                 struct batch *batch)
{
    batch->limit = limit;
    batch->hint = hint;
    batch->single = limit->count == 1 && !limit->costs;
    batch->under =
        batch->single && weir__take_by_hint(zone, limit, hint, &batch->row) ? &batch->row : NULL;
}

/* Request i of a batch. What was found out about a limit's row serves until another limit comes. */
static inline __attribute__((always_inline)) int batch_take(weir_store *store, struct batch *batch,
                                                            size_t i, const weir_request *it,
                                                            int64_t now, weir_decision *ret)
{
    uint64_t hint = weir__take_hint(it->limit);
    if (WEIR__UNLIKELY(it->limit != batch->limit || hint != batch->hint))
        batch_meet(weir__zone_of(store), it->limit, hint, batch);
    if (WEIR__UNLIKELY(!batch->single || it->detail || it->acquire || it->least))
        return weir__zone_decide(store, it, 1, WEIR__TAKE, now, ret);
    struct weir__request request = {now, it->cost, it->wait_us};
    return single_take(store, it->limit, batch->under, batch->tags[i], batch->homes[i], &request,
                       ret);
}

/* A batch: hash all, prefetch all, then decide all. */
static int batch_decide(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                        weir_decision *rets)
{
    struct batch batch;
    int first = weir__zone_look(store, now);
    assert(n <= BATCH);
    for (size_t i = 0; WEIR__UNLIKELY(first) && i < n; i++)
        rets[i] = (weir_decision){.code = first};
    if (WEIR__UNLIKELY(first))
        return first;
    batch_find(weir__zone_of(store), requests, n, &batch);
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

int weir__zone_take_many(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                         weir_decision *rets)
{
    int first = 0;
    for (size_t done = 0; done < n; done += BATCH) {
        int code = batch_decide(store, requests + done, n - done < BATCH ? n - done : BATCH, now,
                                rets + done);
        first = first ? first : code;
    }
    return first;
}

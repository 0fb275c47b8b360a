/*
 * What the verbs of a zone store have in common: from a request with its limits and key to ops with
 * rows and tags, and from the zone's codes to those that callers are told.
 *
 *   store.c    opening and closing, the verbs beside take and peek
 *   single.c   takes of one limit, alone or by the batch
 *   decide.c   takes and peeks of several limits or keys at once
 *   reserve.c  rows that stay
 */
#ifndef WEIR_ZONE_OPS_H
#define WEIR_ZONE_OPS_H

#include "base/hash.h"
#include "store/zone/store.h"
#include "store/zone/zone.h"

#define WEIR__STALE_RETRIES 16 /* rows swept away between finding and using them */

static inline struct weir__zone *weir__zone_of(weir_store *store)
{
    return &((struct weir__zone_store *)store)->region.zone;
}

/* Another zone may be at the path by now: two of them would each allow the whole limit. */
static inline int weir__zone_look(weir_store *store, int64_t now_us)
{
    struct weir__region *region = &((struct weir__zone_store *)store)->region;
    int64_t at = atomic_load_explicit(&region->zone.look_at_us, memory_order_relaxed);
    return WEIR__UNLIKELY(now_us >= at) ? weir__region_look(region, now_us) : 0;
}

/* ---- codes ---- */

static inline bool weir__is_retried(int code)
{
    return code == WEIR__STALE || code == WEIR__BEHIND;
}

/* What callers are told. */
static inline int weir__told(int code)
{
    if (WEIR__LIKELY(code > WEIR__STALE))
        return code;
    return code == WEIR__HELD ? WEIR_EBUSY : WEIR_EFULL;
}

/* ---- keys ---- */

static inline void weir__key_hash_of(const struct weir__zone *zone, weir_key key, uint64_t ret[2])
{
    weir__hash(zone->secret, key.data, key.len, ret);
}

uint64_t weir__key_tag(const struct weir__zone *zone, weir_key key);

/* The tag of a key, as it was hashed before if that was for this zone. */
static inline uint64_t weir__key_tag_again(const struct weir__zone *zone, weir_key key,
                                           const weir_hashed_key *hashed)
{
    return hashed && hashed->store == zone->serial ? weir__tag_of(hashed->hash)
                                                   : weir__key_tag(zone, key);
}

/* ---- limits ---- */

/* The rows of a limit are not what its hints say. */
void weir__hints_forget(const weir_limit *limit);
/* No row was found: there is no room, or nobody could look. */
int weir__no_row(struct weir__zone *zone);
/* No row was found for a limit that would fit: it is denied, as one whose state finds no room. */
bool weir__deny_full(const struct weir__zone *zone, const weir_limit *limit, int64_t now_us,
                     int64_t cost, weir_decision *rows);

/* ---- ops ---- */

/* Sets an op for limit i of a list; false: no room for its row. */
bool weir__op_set(struct weir__zone *zone, const weir_limit *limit, size_t i, enum weir__mode mode,
                  uint64_t tag, int64_t now_us, int64_t cost, int64_t wait_us, struct weir__op *op);
/* Appends the ops of one request; their number, or a code. `least`: of the call, and its `lease`,
 * 0: not known yet. */
int weir__ops_add(struct weir__zone *zone, const weir_request *request, enum weir__mode mode,
                  int64_t least, uint64_t *lease, uint64_t tag, int64_t now_us,
                  struct weir__op *ops, weir_decision *rows);
/* After WEIR__BEHIND: the time as it is now, or where the clock runs back, what is ahead of it. */
void weir__catch_up(weir_store *store, const struct weir__op *ops, int tries, int64_t *now,
                    int64_t *ahead);

/* ---- the verbs, as the engine has them (store/store.h) ---- */

/* zone/decide.c */
int weir__zone_decide(weir_store *store, const weir_request *requests, size_t n,
                      enum weir__mode mode, int64_t now, weir_decision *ret);
/* zone/single.c */
int weir__zone_take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                    weir_decision *ret);
int weir__zone_take_hashed(weir_store *store, const weir_hashed_key *key, const weir_limit *limit,
                           int64_t cost, weir_decision *ret);
int weir__zone_take_many(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                         weir_decision *rets);
/* zone/reserve.c */
int weir__zone_reserve(weir_store *store, const weir_limit *const *limits, size_t n, int64_t now,
                       weir_error *err);

#endif

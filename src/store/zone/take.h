/*
 * The way of nearly every request, without any lock: one limit with a small state that is there
 * already, under the row of the request. Read 16 bytes, decide, swap. docs/THREADS.md argues why no
 * charge is lost or lands on another key.
 *
 * weir__take_known is written once and compiled for buckets, whose stages (core/bucket.h) become
 * part of it, and for all other small kinds, whose stages are called (zone/take.c). That is worth a
 * good third of the time of a bucket (bench/: hot-allowed).
 *
 * Whatever is unusual goes the long way with the stripe's lock, and nothing was changed: a key that
 * is new, a state that was written under another row, one that is frozen (its stripe's holder is
 * working on it), and one that others swapped first WEIR__SWAPS_MAX times in a row.
 */
#ifndef WEIR_ZONE_TAKE_H
#define WEIR_ZONE_TAKE_H

#include "core/bucket.h"
#include "store/zone/zone.h"

#include <string.h>

#define WEIR__SWAPS_MAX 64
#define WEIR__TAKE_INLINE static inline __attribute__((always_inline))

/* What takes under one row share. */
struct weir__take_row {
    const struct weir__rule *rule;
    const uint16_t *now; /* the generation of the row by now */
    uint32_t row, generation;
    struct weir__packed cover; /* the row, and the pad of its generation */
    int64_t wait_us;           /* the default */
    bool quick;
};

/* What is asked. */
struct weir__take_ask {
    struct weir__take_row under;
    uint64_t tag;
    struct weir__packed cover; /* of the tag, too: a state XOR this is the state alone */
    struct weir__group *home;
    struct weir__request request;
    enum weir__mode mode;
};

/* A slot with the tag and the row that are asked for. */
struct weir__take_seen {
    struct weir__group *group;
    unsigned slot;
    struct weir__packed sealed; /* its state: halves that were there, until a swap succeeds */
    uint64_t head;              /* of the group */
};

/* False: there is no such row, or nobody takes without a lock here. */
WEIR__TAKE_INLINE bool weir__take_prepare(const struct weir__zone *zone,
                                          const struct weir__rule *rule, uint32_t row,
                                          uint32_t generation, struct weir__take_row *ret)
{
    const struct weir__rule *place = weir__row_place(zone, row);
    assert(!weir__is_large(rule) && row != WEIR__MARK_ROW);
    if (WEIR__UNLIKELY(!zone->swaps || !place))
        return false;
    *ret = (struct weir__take_row){
        rule,
        &place->generation,
        row,
        generation,
        weir__packed_xor(weir__pack_row(row), weir__pad_of_generation(generation)),
        weir__wait_for(rule, WEIR_WAIT_DEFAULT),
        weir__algorithm_of(rule)->quick};
    return true;
}

WEIR__TAKE_INLINE struct weir__packed weir__take_cover(const struct weir__take_row *under,
                                                       uint64_t tag)
{
    return weir__packed_xor(under->cover, weir__pad_of_tag(tag));
}

/* Whether a state that was read is the key's and the row's, and not frozen: its tag is read after
 * it, and was read before it. */
WEIR__TAKE_INLINE bool weir__take_is_of(const struct weir__take_ask *ask, bool bucket,
                                        const struct weir__take_seen *seen)
{
    struct weir__packed bare = weir__packed_xor(seen->sealed, ask->cover);
    uint64_t row = (bare.lo & WEIR__ROW_LOW_MASK) | bare.hi >> (WEIR__ROW_HIGH_AT - 64);
    bool is_of = bucket ? row == 0 /* which is the frozen bit, too */
                        : weir__packed_is_of(seen->sealed, ask->under.rule, ask->under.row) &&
                              !weir__is_frozen(seen->sealed);
    return is_of && weir__slot_tag(seen->group, seen->slot) == ask->tag;
}

/* Tag, state, tag: if the tag did not change, the state is this key's. */
WEIR__TAKE_INLINE bool weir__take_see(const struct weir__take_ask *ask, bool bucket,
                                      struct weir__group *group, struct weir__take_seen *ret)
{
    uint64_t head = weir__group_head(group);
    for (unsigned found = weir__group_find(group, ask->tag); found; found &= found - 1) {
        unsigned slot = (unsigned)__builtin_ctz(found) / 2 - 1;
        *ret = (struct weir__take_seen){group, slot, weir__look16(&group->states[slot]), head};
        if (WEIR__LIKELY(weir__take_is_of(ask, bucket, ret)))
            return true;
    }
    return false;
}

/* The same for the groups beyond home. */
bool weir__take_see_far(const struct weir__zone *zone, const struct weir__take_ask *ask,
                        struct weir__take_seen *ret);

WEIR__TAKE_INLINE bool weir__take_find(const struct weir__zone *zone,
                                       const struct weir__take_ask *ask, bool bucket,
                                       struct weir__take_seen *ret)
{
    if (WEIR__LIKELY(weir__take_see(ask, bucket, ask->home, ret)))
        return true;
    if (weir__group_far(ask->home) == 0)
        return false;
    struct weir__take_ask copy = *ask; /* the others stay in registers */
    struct weir__take_seen seen;
    if (!weir__take_see_far(zone, &copy, &seen))
        return false;
    *ret = seen;
    return true;
}

/* Whether what was seen is there, whole: for answers that write nothing. */
WEIR__TAKE_INLINE bool weir__take_confirm(const struct weir__take_ask *ask,
                                          struct weir__take_seen *seen)
{
    struct weir__packed before = seen->sealed;
    seen->sealed = weir__load16(&seen->group->states[seen->slot]);
    return weir__packed_same(seen->sealed, before) &&
           weir__slot_tag(seen->group, seen->slot) == ask->tag;
}

/* Unpacks and loads; false: it makes no sense. A bucket too far ahead is left to the long way, and
 * so is a window that began after the clock was read. */
WEIR__TAKE_INLINE bool weir__take_load(const struct weir__take_ask *ask, struct weir__packed bare,
                                       bool bucket, struct weir__state *ret)
{
    const struct weir__rule *rule = ask->under.rule;
    int64_t now = ask->request.now_us;
    if (bucket) {
        ret->present = true;
        ret->at = weir__packed_at(bare);
        ret->amount = weir__packed_amount(bare);
        if (WEIR__UNLIKELY((uint64_t)ret->at * (uint64_t)weir__tick_us(rule) >
                           (uint64_t)now + (uint64_t)rule->horizon_us))
            return false;
        weir__bucket_load(rule, ret, now);
        return true;
    }
    ret->amount = ret->before = ret->now_us = 0;
    ret->stored = 0;
    ret->ring_header = NULL;
    weir__unpack_small(rule, bare, ret);
    if (WEIR__UNLIKELY(!weir__state_sound(rule, ret)) ||
        WEIR__UNLIKELY(weir__newest_us(rule, ret) > now && weir__settles_by_time(rule)))
        return false;
    weir__load(rule, rule, ret, now);
    return true;
}

WEIR__TAKE_INLINE void weir__take_judge(const struct weir__take_ask *ask,
                                        const struct weir__state *state, bool bucket,
                                        weir_decision *ret)
{
    const struct weir__rule *rule = ask->under.rule;
    if (bucket)
        weir__bucket_judge(rule, state, &ask->request, ret);
    else
        weir__algorithm_of(rule)->judge(rule, state, &ask->request, ret);
}

/* The state after the charge, without its cover. */
WEIR__TAKE_INLINE struct weir__packed weir__take_charge(const struct weir__take_ask *ask,
                                                        struct weir__state *state, bool bucket)
{
    const struct weir__rule *rule = ask->under.rule;
    if (bucket) {
        weir__bucket_charge(rule, state, &ask->request);
        return weir__pack_amount(0, state->at, state->amount);
    }
    weir__algorithm_of(rule)->charge(rule, state, &ask->request);
    return weir__pack_small(rule, 0, state);
}

WEIR__TAKE_INLINE void weir__take_report(const struct weir__take_ask *ask,
                                         const struct weir__state *state, bool bucket,
                                         weir_decision *ret)
{
    const struct weir__rule *rule = ask->under.rule;
    if (bucket)
        weir__bucket_report(rule, state, ask->request.now_us, ret);
    else
        weir__algorithm_of(rule)->report(rule, state, ask->request.now_us, ret);
}

/* Word by word: a wider load of what was just stored in parts waits for 20 ns. */
WEIR__TAKE_INLINE int64_t weir__take_word(const int64_t *word)
{
    return *(const volatile int64_t *)word;
}

WEIR__TAKE_INLINE void weir__take_answer(const weir_decision *it, bool bucket, weir_decision *ret)
{
    memset(&ret->lease, 0, sizeof *ret - offsetof(weir_decision, lease));
    ret->limit = bucket ? it->limit : weir__take_word(&it->limit);
    ret->remaining = bucket ? it->remaining : weir__take_word(&it->remaining);
    ret->retry_after_us = bucket ? it->retry_after_us : weir__take_word(&it->retry_after_us);
    ret->reset_after_us = bucket ? it->reset_after_us : weir__take_word(&it->reset_after_us);
    ret->delay_us = bucket ? it->delay_us : weir__take_word(&it->delay_us);
    ret->time_us = it->time_us;
    ret->charged = it->charged;
    ret->allowed = it->allowed;
    ret->granted = it->granted;
}

/* Whether a row is no longer the limit's. Asked after the state was read. */
WEIR__TAKE_INLINE bool weir__take_is_stale(const struct weir__take_row *under)
{
    return __atomic_load_n(under->now, __ATOMIC_ACQUIRE) != under->generation;
}

/* 0, WEIR__STALE or WEIR__LOCKED; unless it is 0, *ret is as it was. */
WEIR__TAKE_INLINE int weir__take_known(struct weir__zone *zone, const struct weir__take_ask *ask,
                                       bool bucket, weir_decision *ret)
{
    struct weir__take_seen seen;
    if (WEIR__UNLIKELY(!weir__take_find(zone, ask, bucket, &seen)))
        return WEIR__LOCKED;
    for (int tries = 0; tries < WEIR__SWAPS_MAX; tries++) {
        if (WEIR__UNLIKELY(weir__take_is_stale(&ask->under)))
            return WEIR__STALE;
        struct weir__state state;
        if (!weir__take_load(ask, weir__packed_xor(seen.sealed, ask->cover), bucket, &state))
            return WEIR__LOCKED;
        weir_decision it;
        it.limit = it.remaining = it.retry_after_us = it.reset_after_us = it.delay_us = 0;
        it.allowed = false;
        weir__take_judge(ask, &state, bucket, &it);
        it.charged = it.allowed && ask->mode == WEIR__TAKE ? ask->request.cost : 0;
        it.time_us = ask->request.now_us;
        bool done;
        if (it.charged > 0)
            done =
                weir__swap16(&seen.group->states[seen.slot], &seen.sealed,
                             weir__packed_xor(weir__take_charge(ask, &state, bucket), ask->cover));
        else
            done = weir__take_confirm(ask, &seen);
        if (WEIR__UNLIKELY(!done)) { /* and `seen` has what is there instead */
            if (!weir__take_is_of(ask, bucket, &seen))
                return WEIR__LOCKED;
            continue;
        }
        it.granted = ask->mode == WEIR__TAKE ? it.charged : it.allowed ? ask->request.cost : 0;
        weir__take_report(ask, &state, bucket, &it);
        weir__take_answer(&it, bucket, ret);
        if (ask->mode == WEIR__TAKE)
            weir__slot_note(seen.group, seen.slot, seen.head, &it);
        return 0;
    }
    return WEIR__LOCKED;
}

/* The same where the stages are called. */
int weir__take_any(struct weir__zone *zone, const struct weir__take_ask *ask, weir_decision *ret);

/* What a limit of one rule knows of its row. */
WEIR__TAKE_INLINE uint64_t weir__take_hint(const weir_limit *limit)
{
    return atomic_load_explicit(&limit->hints[0], memory_order_acquire);
}

/* The row of a limit by its hint; false: that is of another zone, or the limit's states are large.
 */
WEIR__TAKE_INLINE bool weir__take_by_hint(const struct weir__zone *zone, const weir_limit *limit,
                                          uint64_t hint, struct weir__take_row *ret)
{
    const struct weir__rule *rule = &limit->rules[0];
    return WEIR__LIKELY(weir__hint_is_of(zone, hint) && !weir__is_large(rule)) &&
           weir__take_prepare(zone, rule, weir__hint_row(hint), weir__hint_generation(hint), ret);
}

/* A take under such a row. */
WEIR__TAKE_INLINE int weir__take_under(struct weir__zone *zone, const struct weir__take_row *under,
                                       uint64_t tag, struct weir__group *home,
                                       const struct weir__request *request, weir_decision *ret)
{
    int64_t wait_us = request->wait_us;
    const struct weir__take_ask ask = {.under = {under->rule, under->now, under->row,
                                                 under->generation, under->cover, under->wait_us,
                                                 under->quick},
                                       .tag = tag,
                                       .cover = weir__take_cover(under, tag),
                                       .home = home,
                                       .request = {request->now_us, request->cost,
                                                   WEIR__LIKELY(wait_us == WEIR_WAIT_DEFAULT)
                                                       ? under->wait_us
                                                       : weir__wait_for(under->rule, wait_us)},
                                       .mode = WEIR__TAKE};
    if (WEIR__LIKELY(under->quick))
        return weir__take_known(zone, &ask, true, ret);
    const struct weir__take_ask copy = ask; /* the other one stays in registers */
    return weir__take_any(zone, &copy, ret);
}

#endif

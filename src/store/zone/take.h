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

/* What is asked. */
struct weir__take_ask {
    const struct weir__rule *rule;
    uint32_t row, generation;
    uint64_t tag;
    struct weir__group *home;
    struct weir__request request;
    enum weir__mode mode;
};

/* A slot with the tag and the row that are asked for, as it was at one moment. */
struct weir__take_seen {
    struct weir__group *group;
    unsigned slot;
    struct weir__packed sealed;
    bool denied; /* what its head says of it */
};

/* Whether a state that was read is the key's and the row's, and not frozen: its tag is read after
 * it, and was read before it. */
WEIR__TAKE_INLINE bool weir__take_is_of(const struct weir__take_ask *ask, bool bucket,
                                        const struct weir__take_seen *seen)
{
    uint64_t low = (seen->sealed.lo ^ ask->row) & WEIR__ROW_LOW_MASK;
    uint64_t high = seen->sealed.hi >> (WEIR__ROW_HIGH_AT - 64) ^ ask->row >> WEIR__ROW_LOW_BITS;
    bool is_of = bucket ? (low | high) == 0 /* which is the frozen bit, too */
                        : weir__packed_is_of(seen->sealed, ask->rule, ask->row);
    return is_of && !weir__is_frozen(seen->sealed) &&
           weir__slot_tag(seen->group, seen->slot) == ask->tag;
}

/* Tag, state, tag: if the tag did not change, the state is this key's. All tags at once and no
 * branch for each: in which slot a key lies cannot be predicted. */
WEIR__TAKE_INLINE bool weir__take_see(const struct weir__take_ask *ask, bool bucket,
                                      struct weir__group *group, struct weir__take_seen *ret)
{
    uint64_t head = atomic_load_explicit(&group->head, memory_order_relaxed);
    unsigned found = 0;
#pragma GCC unroll 5
    for (unsigned slot = 0; slot < WEIR__SLOTS; slot++)
        found |= (unsigned)(weir__slot_tag(group, slot) == ask->tag) << slot;
    for (; found; found &= found - 1) {
        unsigned slot = (unsigned)__builtin_ctz(found);
        *ret = (struct weir__take_seen){group, slot, weir__load16(&group->states[slot]),
                                        head >> (WEIR__DENIED_AT + slot) & 1};
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

/* Whether what was seen is still there: for answers that write nothing. */
WEIR__TAKE_INLINE bool weir__take_confirm(const struct weir__take_ask *ask,
                                          const struct weir__take_seen *seen)
{
    return weir__packed_same(weir__load16(&seen->group->states[seen->slot]), seen->sealed) &&
           weir__slot_tag(seen->group, seen->slot) == ask->tag;
}

/* Unpacks and loads; false: it makes no sense. A bucket too far ahead is left to the long way, and
 * so is a window that began after the clock was read. */
WEIR__TAKE_INLINE bool weir__take_load(const struct weir__take_ask *ask, struct weir__packed clear,
                                       bool bucket, struct weir__state *ret)
{
    int64_t now = ask->request.now_us;
    if (bucket) {
        ret->present = true;
        ret->at = weir__packed_at(clear);
        ret->amount = weir__packed_amount(clear);
        if (WEIR__UNLIKELY((uint64_t)ret->at * (uint64_t)weir__tick_us(ask->rule) >
                           (uint64_t)now + (uint64_t)ask->rule->horizon_us))
            return false;
        weir__bucket_load(ask->rule, ret, now);
        return true;
    }
    ret->amount = ret->before = ret->now_us = 0;
    ret->stored = 0;
    ret->ring_header = NULL;
    weir__unpack_small(ask->rule, clear, ret);
    if (WEIR__UNLIKELY(!weir__state_sound(ask->rule, ret)) ||
        WEIR__UNLIKELY(weir__newest_us(ask->rule, ret) > now && weir__settles_by_time(ask->rule)))
        return false;
    weir__load(ask->rule, ask->rule, ret, now);
    return true;
}

WEIR__TAKE_INLINE void weir__take_judge(const struct weir__take_ask *ask,
                                        const struct weir__state *state, bool bucket,
                                        weir_decision *ret)
{
    if (bucket)
        weir__bucket_judge(ask->rule, state, &ask->request, ret);
    else
        weir__algorithm_of(ask->rule)->judge(ask->rule, state, &ask->request, ret);
}

/* The state after the charge, not sealed. */
WEIR__TAKE_INLINE struct weir__packed weir__take_charge(const struct weir__take_ask *ask,
                                                        struct weir__state *state, bool bucket)
{
    if (bucket) {
        weir__bucket_charge(ask->rule, state, &ask->request);
        return weir__pack_amount(ask->row, state->at, state->amount);
    }
    weir__algorithm_of(ask->rule)->charge(ask->rule, state, &ask->request);
    return weir__pack_small(ask->rule, ask->row, state);
}

WEIR__TAKE_INLINE void weir__take_report(const struct weir__take_ask *ask,
                                         const struct weir__state *state, bool bucket,
                                         weir_decision *ret)
{
    if (bucket)
        weir__bucket_report(ask->rule, state, ask->request.now_us, ret);
    else
        weir__algorithm_of(ask->rule)->report(ask->rule, state, ask->request.now_us, ret);
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

/* weir__row_generation for a limit's row. */
WEIR__TAKE_INLINE uint32_t weir__take_generation(const struct weir__zone *zone, uint32_t row)
{
    assert(row != WEIR__MARK_ROW);
    return WEIR__LIKELY(row < zone->layout.rows)
               ? __atomic_load_n(&zone->rows[row].generation, __ATOMIC_ACQUIRE)
               : weir__row_generation(zone, row);
}

/* 0, WEIR__STALE or WEIR__LOCKED; unless it is 0, *ret is as it was. */
WEIR__TAKE_INLINE int weir__take_known(struct weir__zone *zone, const struct weir__take_ask *ask,
                                       bool bucket, weir_decision *ret)
{
    struct weir__take_seen seen;
    if (WEIR__UNLIKELY(!zone->swaps || !weir__take_find(zone, ask, bucket, &seen)))
        return WEIR__LOCKED;
    for (int tries = 0; tries < WEIR__SWAPS_MAX; tries++) {
        if (WEIR__UNLIKELY(weir__take_generation(zone, ask->row) != ask->generation))
            return WEIR__STALE;
        struct weir__state state;
        if (!weir__take_load(ask, weir__seal(seen.sealed, ask->tag, ask->generation), bucket,
                             &state))
            return WEIR__LOCKED;
        weir_decision it;
        it.limit = it.remaining = it.retry_after_us = it.reset_after_us = it.delay_us = 0;
        it.allowed = false;
        weir__take_judge(ask, &state, bucket, &it);
        it.charged = 0;
        it.time_us = ask->request.now_us;
        if (it.allowed && ask->mode == WEIR__TAKE && ask->request.cost > 0) {
            struct weir__packed next =
                weir__seal(weir__take_charge(ask, &state, bucket), ask->tag, ask->generation);
            if (WEIR__UNLIKELY(!weir__swap16(&seen.group->states[seen.slot], &seen.sealed, next))) {
                if (!weir__take_is_of(ask, bucket, &seen)) /* by now */
                    return WEIR__LOCKED;
                continue;
            }
            it.charged = ask->request.cost;
        } else if (WEIR__UNLIKELY(!weir__take_confirm(ask, &seen))) {
            seen.sealed = weir__load16(&seen.group->states[seen.slot]);
            if (!weir__take_is_of(ask, bucket, &seen))
                return WEIR__LOCKED;
            continue;
        }
        it.granted = ask->mode == WEIR__TAKE ? it.charged : it.allowed ? ask->request.cost : 0;
        weir__take_report(ask, &state, bucket, &it);
        weir__take_answer(&it, bucket, ret);
        if (ask->mode == WEIR__TAKE)
            weir__slot_note(seen.group, seen.slot, seen.denied, &it);
        return 0;
    }
    return WEIR__LOCKED;
}

/* The same where the stages are called. */
int weir__take_any(struct weir__zone *zone, const struct weir__take_ask *ask, weir_decision *ret);

/* A take of a limit of one rule whose row is known by its hint. WEIR__STALE: it is not, or its
 * state is large. */
WEIR__TAKE_INLINE int weir__take_by_hint(struct weir__zone *zone, const weir_limit *limit,
                                         uint64_t tag, struct weir__group *home,
                                         const struct weir__request *request, weir_decision *ret)
{
    const struct weir__rule *rule = &limit->rules[0];
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    uint64_t hint = atomic_load_explicit(&limit->hints[0], memory_order_acquire);
    if (WEIR__UNLIKELY(!weir__hint_is_of(zone, hint) || algorithm->shape == WEIR__SHAPE_RING))
        return WEIR__STALE;
    const struct weir__take_ask ask = {
        .rule = rule,
        .row = weir__hint_row(hint),
        .generation = weir__hint_generation(hint),
        .tag = tag,
        .home = home,
        .request = {request->now_us, request->cost, weir__wait_for(rule, request->wait_us)},
        .mode = WEIR__TAKE};
    if (WEIR__LIKELY(algorithm->quick))
        return weir__take_known(zone, &ask, true, ret);
    const struct weir__take_ask copy = ask; /* the other one stays in registers */
    return weir__take_any(zone, &copy, ret);
}

#endif

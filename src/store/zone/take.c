/*
 * The way of nearly every request, without any lock: one limit with a small state that is there
 * already, under the row of the request. Read 16 bytes, decide, swap. docs/THREADS.md argues why no
 * charge is lost or lands on another key.
 *
 * weir__zone_take_free does this for every small kind. weir__zone_take_quick is the same with
 * nothing in between, for buckets in their home group, which is worth a good third of the time
 * (bench/: hot-allowed).
 *
 * Whatever is unusual goes the long way with the stripe's lock, and nothing was changed: a key that
 * is new, a state that was written under another row, one that is frozen (its stripe's holder is
 * working on it), and one that others swapped first SWAPS_MAX times in a row.
 */
#include "core/bucket.h"
#include "store/zone/zone.h"

#define SWAPS_MAX 64

/* A slot with the op's tag and row, as it was at one moment. */
struct take_seen {
    struct weir__group *group;
    unsigned slot;
    struct weir__packed sealed;
};

/* Tag, state, tag: if the tag did not change, the state is this key's. */
static inline bool take_see(const struct weir__op *op, struct weir__group *group, unsigned slot,
                            struct take_seen *ret)
{
    if (weir__slot_tag(group, slot) != op->tag)
        return false;
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    if (!weir__packed_is_of(sealed, op->rule, op->row) || weir__slot_tag(group, slot) != op->tag)
        return false;
    *ret = (struct take_seen){group, slot, sealed};
    return true;
}

static bool take_find(const struct weir__zone *zone, const struct weir__op *op,
                      struct take_seen *ret)
{
    uint32_t far = weir__group_far(&zone->groups[op->home]);
    for (uint32_t d = 0; d <= far; d++) {
        struct weir__group *group = weir__group_at(zone, op->home, op->tag, d);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (take_see(op, group, slot, ret))
                return true;
        }
    }
    return false;
}

/* Whether what was seen is still there: for answers that write nothing. */
static inline bool take_confirm(const struct weir__op *op, const struct take_seen *seen)
{
    return weir__packed_same(weir__load16(&seen->group->states[seen->slot]), seen->sealed) &&
           weir__slot_tag(seen->group, seen->slot) == op->tag;
}

/* One attempt; false: others were faster. */
static bool take_try(const struct weir__op *op, const struct take_seen *seen,
                     struct weir__state *state, enum weir__mode mode)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(op->rule);
    weir_decision *ret = op->ret;
    weir__load(op->rule, op->rule, state, op->request.now_us);
    *ret = (weir_decision){.time_us = op->request.now_us};
    algorithm->judge(op->rule, state, &op->request, ret);
    if (ret->allowed && mode == WEIR__TAKE && op->request.cost > 0) {
        algorithm->charge(op->rule, state, &op->request);
        struct weir__packed next =
            weir__seal(weir__pack_small(op->rule, op->row, state), op->tag, op->generation);
        if (!weir__swap16(&seen->group->states[seen->slot], seen->sealed, next))
            return false;
        ret->charged = op->request.cost;
    } else if (!take_confirm(op, seen)) {
        return false;
    }
    algorithm->report(op->rule, state, op->request.now_us, ret);
    if (mode == WEIR__TAKE)
        weir__slot_note(seen->group, seen->slot, ret);
    return true;
}

int weir__zone_take_free(struct weir__zone *zone, const struct weir__op *op, enum weir__mode mode)
{
    assert(!weir__is_large(op->rule) && op->row != WEIR__MARK_ROW);
    const weir_decision before = *op->ret; /* what fails leaves it as it was */
    for (int tries = 0; zone->swaps && tries < SWAPS_MAX; tries++) {
        struct take_seen seen;
        struct weir__state state = {0};
        if (!take_find(zone, op, &seen) || weir__is_frozen(seen.sealed))
            break;
        if (WEIR__UNLIKELY(weir__op_is_stale(zone, op)))
            return WEIR__STALE;
        weir__unpack_small(op->rule, weir__seal(seen.sealed, op->tag, op->generation), &state);
        if (WEIR__UNLIKELY(!weir__state_sound(op->rule, &state)))
            break;
        if (WEIR__LIKELY(take_try(op, &seen, &state, mode)))
            return 0;
        *op->ret = before;
    }
    return WEIR__LOCKED;
}

bool weir__zone_take_quick(struct weir__zone *zone, const struct weir__op *op)
{
    assert(weir__algorithm_of(op->rule)->quick);
    struct weir__group *group = &zone->groups[op->home];
    struct take_seen seen;
    unsigned slot = 0;
    while (slot < WEIR__SLOTS && !take_see(op, group, slot, &seen))
        slot++;
    if (WEIR__UNLIKELY(slot == WEIR__SLOTS || !zone->swaps || weir__is_frozen(seen.sealed) ||
                       weir__op_is_stale(zone, op)))
        return false;

    struct weir__packed clear = weir__seal(seen.sealed, op->tag, op->generation);
    struct weir__state state = {
        .present = true, .at = weir__packed_at(clear), .amount = weir__packed_amount(clear)};
    if (WEIR__UNLIKELY((uint64_t)state.at * (uint64_t)weir__tick_us(op->rule) >
                       (uint64_t)op->request.now_us + (uint64_t)op->rule->horizon_us))
        return false;
    weir__bucket_load(op->rule, &state, op->request.now_us);
    weir_decision it = {0}; /* in registers: a copy of fresh stores stalls for 20 ns */
    weir__bucket_judge(op->rule, &state, &op->request, &it);
    if (it.allowed && op->request.cost > 0) {
        weir__bucket_charge(op->rule, &state, &op->request);
        struct weir__packed next = weir__pack_amount(op->row, state.at, state.amount);
        if (WEIR__UNLIKELY(!weir__swap16(&group->states[slot], seen.sealed,
                                         weir__seal(next, op->tag, op->generation))))
            return false;
        it.charged = op->request.cost;
    } else if (WEIR__UNLIKELY(!take_confirm(op, &seen))) {
        return false;
    }
    weir__bucket_report(op->rule, &state, op->request.now_us, &it);
    *op->ret = (weir_decision){.limit = it.limit,
                               .remaining = it.remaining,
                               .retry_after_us = it.retry_after_us,
                               .reset_after_us = it.reset_after_us,
                               .delay_us = it.delay_us,
                               .time_us = op->request.now_us,
                               .charged = it.charged,
                               .allowed = it.allowed};
    weir__slot_note(group, slot, op->ret);
    return true;
}

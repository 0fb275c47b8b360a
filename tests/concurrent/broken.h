/*
 * The zone's code with one thing broken. meson.build compiles the files of src/store/zone that
 * decide a second time, for history_broken alone, with this file in front: it puts a broken
 * function in the place of the real one. With BROKEN_NOTHING only the schedule differs: threads
 * give up their core in the middle of things.
 */
#ifndef WEIR_BROKEN_H
#define WEIR_BROKEN_H

#include "store/zone/zone.h"

#include "base/random.h"
#include "core/bucket.h"

#include <sched.h>

enum broken {
    BROKEN_NOTHING,
    BROKEN_COMPARE, /* a swap writes whatever is there by now */
    BROKEN_WRITE,   /* a swap says that it was done, and now and then was not */
    BROKEN_HALVES,  /* a swap compares, and then writes one half after the other */
    BROKEN_TAG,     /* the tag is not read again after the state */
    BROKEN_SEAL,    /* a state is not sealed by its key */
    BROKEN_LOOK,    /* a state is taken from an earlier look at it */
    BROKEN_FREEZE,  /* who holds the lock does not freeze the state that it reads */
    BROKEN_FROZEN,  /* who has no lock changes a state that is frozen */
    BROKEN_THAW,    /* a group thaws its states before it writes them */
    BROKEN_REPORT,  /* what is left is told as of before the charge */
    BROKEN_KINDS
};

extern enum broken broken;
extern _Thread_local uint64_t broken_chance;

static inline bool broken_now(uint64_t one_in)
{
    return weir__random_next(&broken_chance) % one_in == 0;
}

static inline void broken_pause(void)
{
    if (broken_now(broken == BROKEN_SEAL ? 4 : 16))
        sched_yield();
}

static inline bool broken_swap16(struct weir__packed *at, struct weir__packed *seen,
                                 struct weir__packed next)
{
    for (int i = 0; i < (broken == BROKEN_SEAL ? 8 : 1); i++)
        broken_pause();
    if (broken == BROKEN_WRITE && broken_now(20))
        return true;
    if (broken == BROKEN_COMPARE) {
        weir__store16(at, next);
        return true;
    }
    if (broken == BROKEN_HALVES) {
        struct weir__packed there = weir__load16(at);
        bool same = weir__packed_same(there, *seen);
        *seen = there;
        if (!same)
            return false;
        atomic_store((_Atomic uint64_t *)&at->lo, next.lo);
        broken_pause();
        atomic_store((_Atomic uint64_t *)&at->hi, next.hi);
        return true;
    }
    return weir__swap16(at, seen, next);
}

static inline struct weir__packed broken_load16(const struct weir__packed *from)
{
    static _Thread_local struct {
        const struct weir__packed *from;
        struct weir__packed seen;
        int left;
    } last;
    if (broken == BROKEN_LOOK && last.from == from && (last.left > 0 || broken_now(8))) {
        last.left = last.left > 0 ? last.left - 1 : 1; /* it is read twice */
        return last.seen;
    }
    struct weir__packed seen = weir__load16(from);
    last.from = from;
    last.seen = seen;
    last.left = 0;
    broken_pause();
    return seen;
}

static inline uint64_t broken_slot_tag(const struct weir__group *group, unsigned slot)
{
    static _Thread_local struct {
        const struct weir__group *group;
        uint64_t tag;
    } last[WEIR__SLOTS];
    if (broken == BROKEN_TAG && last[slot].group == group) {
        last[slot].group = NULL;
        return last[slot].tag;
    }
    last[slot].group = group;
    last[slot].tag = weir__slot_tag(group, slot);
    broken_pause();
    return last[slot].tag;
}

/* One slot after the other, as far as broken_slot_tag goes. */
static inline unsigned broken_group_find(const struct weir__group *group, uint64_t tag)
{
    unsigned found = 0;
    for (unsigned slot = 0; slot < WEIR__SLOTS; slot++)
        found |= (unsigned)(broken_slot_tag(group, slot) == tag) << (2 * slot + 2);
    return found;
}

static inline struct weir__packed broken_pad_of_tag(uint64_t tag)
{
    return weir__pad_of_tag(broken == BROKEN_SEAL ? 1 : tag);
}

static inline struct weir__packed broken_seal(struct weir__packed packed, uint64_t tag,
                                              uint32_t generation)
{
    return weir__seal(packed, broken == BROKEN_SEAL ? 1 : tag, generation);
}

static inline struct weir__packed broken_slot_freeze(struct weir__group *group, unsigned slot)
{
    return broken == BROKEN_FREEZE ? broken_load16(&group->states[slot])
                                   : weir__slot_freeze(group, slot);
}

static inline bool broken_is_frozen(struct weir__packed packed)
{
    return weir__is_frozen(packed) && broken != BROKEN_FROZEN;
}

static inline void broken_slot_put(struct weir__group *group, unsigned slot,
                                   struct weir__packed sealed)
{
    if (broken == BROKEN_THAW)
        weir__slot_thaw(group, slot);
    broken_pause();
    weir__slot_put(group, slot, sealed);
}

static inline void broken_bucket_report(const struct weir__rule *rule,
                                        const struct weir__state *state, int64_t now_us,
                                        weir_decision *ret)
{
    struct weir__state before = *state;
    if (broken == BROKEN_REPORT)
        before.amount -= ret->charged * rule->ticks;
    weir__bucket_report(rule, &before, now_us, ret);
}

#define weir__bucket_report broken_bucket_report
#define weir__swap16 broken_swap16
#define weir__load16 broken_load16
#define weir__look16 broken_load16
#define weir__slot_tag broken_slot_tag
#define weir__group_find broken_group_find
#define weir__pad_of_tag broken_pad_of_tag
#define weir__seal broken_seal
#define weir__slot_freeze broken_slot_freeze
#define weir__is_frozen broken_is_frozen
#define weir__slot_put broken_slot_put

#endif

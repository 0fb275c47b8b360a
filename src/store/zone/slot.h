/* The table of a zone: groups of slots, in which a key's states lie. */
#ifndef WEIR_ZONE_SLOT_H
#define WEIR_ZONE_SLOT_H

#include "store/zone/pack.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* A key's place follows from its tag alone: the top bits say where it begins to look, the low ones
 * how it goes on. */
static inline uint32_t weir__home_of(const struct weir__zone *zone, uint64_t tag)
{
    return (uint32_t)((unsigned __int128)tag * zone->group_count >> 64);
}

static inline uint64_t weir__tag_of(const uint64_t hash[2])
{
    return hash[0] | !hash[0]; /* 0 means empty */
}

static inline uint32_t weir__stripe_of(const struct weir__zone *zone, uint32_t group)
{
    return group >> zone->layout.page_bits & (zone->layout.stripes - 1);
}

/* ---- pages ---- */

static inline bool weir__page_is_torn(const struct weir__zone *zone, uint32_t group)
{
    uint64_t torn = zone->stripes[weir__stripe_of(zone, group)].torn;
    return WEIR__UNLIKELY(torn) &&
           torn >> (group >> zone->layout.page_bits) / zone->layout.stripes & 1;
}

/* Puts a torn page in order. */
void weir__page_mend_torn(struct weir__zone *zone, uint32_t group);

/* The stripe's lock was just taken: what the page of this group holds can be used from now on. */
static inline void weir__page_mend(struct weir__zone *zone, uint32_t group)
{
    if (WEIR__UNLIKELY(weir__page_is_torn(zone, group)))
        weir__page_mend_torn(zone, group);
}

/* Locks the stripe of a group, whose page is whole then; false where patience ended. */
__attribute__((warn_unused_result)) static inline bool weir__page_lock(struct weir__zone *zone,
                                                                       uint32_t group)
{
    if (WEIR__UNLIKELY(!weir__stripe_lock(zone, weir__stripe_of(zone, group))))
        return false;
    weir__page_mend(zone, group);
    return true;
}

/* The d-th group to look for a key in: home, then on through its page by a step of the key's
 * own. */
static inline struct weir__group *weir__group_at(const struct weir__zone *zone, uint32_t home,
                                                 uint64_t tag, uint32_t d)
{
    uint32_t mask = (1u << zone->layout.page_bits) - 1;
    uint32_t step = (uint32_t)tag | 1; /* odd: never the same group twice */
    return &zone->groups[(home & ~mask) | ((home + d * step) & mask)];
}

static inline void weir__prefetch_group(const struct weir__group *group)
{
    __builtin_prefetch(group, 1);
    __builtin_prefetch((const char *)group + 64, 1);
}

static inline void weir__prefetch_home(const struct weir__zone *zone, uint32_t home)
{
    weir__prefetch_group(&zone->groups[home]);
}

#define WEIR__FAR_MASK UINT64_C(7)
#define WEIR__DENIED_AT 24

static inline uint64_t weir__group_head(const struct weir__group *group)
{
    return atomic_load_explicit(&group->head, memory_order_relaxed);
}

/* How many groups beyond home keys of this home were ever put in. It only grows, under the lock. */
static inline uint32_t weir__group_far(const struct weir__group *group)
{
    return weir__group_head(group) & WEIR__FAR_MASK;
}

/* Changes some bits of the head; others may set theirs meanwhile. */
static inline void weir__group_set(struct weir__group *group, uint64_t mask, uint64_t bits)
{
    uint64_t head = weir__group_head(group);
    while (!atomic_compare_exchange_weak_explicit(&group->head, &head, (head & ~mask) | bits,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Whether the last take of a slot's state was denied. A hint for eviction: it may be the last
 * owner's. */
static inline bool weir__slot_denied(const struct weir__group *group, unsigned slot)
{
    return weir__group_head(group) >> (WEIR__DENIED_AT + slot) & 1;
}

static inline void weir__slot_deny(struct weir__group *group, unsigned slot)
{
    if (!weir__slot_denied(group, slot))
        atomic_fetch_or_explicit(&group->head, UINT64_C(1) << (WEIR__DENIED_AT + slot),
                                 memory_order_relaxed);
}

static inline void weir__slot_allow(struct weir__group *group, unsigned slot)
{
    if (weir__slot_denied(group, slot))
        atomic_fetch_and_explicit(&group->head, ~(UINT64_C(1) << (WEIR__DENIED_AT + slot)),
                                  memory_order_relaxed);
}

/* Notes what was decided about a slot's state; `head` is the group's before the state was written:
 * another core may have the line by now. A denial counts where half of the limit is used up or
 * more: a cost that does not fit into the rest says little about the key. */
static inline void weir__slot_note(struct weir__group *group, unsigned slot, uint64_t head,
                                   const weir_decision *decision)
{
    bool denied = head >> (WEIR__DENIED_AT + slot) & 1;
    bool refused = !decision->allowed && decision->remaining <= decision->limit / 2;
    if (WEIR__UNLIKELY(denied && decision->charged > 0))
        weir__slot_allow(group, slot);
    else if (WEIR__UNLIKELY(!denied && refused))
        weir__slot_deny(group, slot);
}

static inline uint64_t weir__slot_tag(const struct weir__group *group, unsigned slot)
{
    return atomic_load_explicit(&group->tags[slot], memory_order_acquire);
}

/* The slots of a group that have this tag: bit 2 * slot + 2 of each. All at once and no branch for
 * each: in which slot a key lies cannot be predicted. */
static inline unsigned weir__group_find(const struct weir__group *group, uint64_t tag)
{
#if defined(__SSE2__) && !defined(WEIR__THREAD_SANITIZER)
    const __m128i *at = (const __m128i *)group; /* head and five tags */
    __m128i want = _mm_set1_epi64x((int64_t)tag);
    __m128i a = _mm_cmpeq_epi32(at[0], want), b = _mm_cmpeq_epi32(at[1], want);
    __m128i c = _mm_cmpeq_epi32(at[2], want);
    __m128i halves = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, c));
    unsigned equal = (unsigned)_mm_movemask_epi8(halves); /* two bits for each of the six */
    __asm__ volatile("" ::: "memory");                    /* what is read next is read later */
    return equal & equal >> 1 & 0x554;
#else
    unsigned found = 0;
    for (unsigned slot = 0; slot < WEIR__SLOTS; slot++)
        found |= (unsigned)(weir__slot_tag(group, slot) == tag) << (2 * slot + 2);
    return found;
#endif
}

static inline void weir__slot_set_tag(struct weir__group *group, unsigned slot, uint64_t tag)
{
    atomic_store_explicit(&group->tags[slot], tag, memory_order_release);
}

/* Reads a slot that is not empty; false where its state makes no sense. */
static inline bool weir__slot_unpack(const struct weir__zone *zone, const struct weir__group *group,
                                     unsigned slot, const struct weir__rule **ret_rule,
                                     struct weir__state *ret, uint32_t *ret_unit,
                                     unsigned *ret_order)
{
    return weir__unpack(zone, weir__slot_tag(group, slot), weir__load16(&group->states[slot]),
                        ret_rule, ret, ret_unit, ret_order);
}

/* ---- what the holder of a stripe's lock does to a slot ----
 *
 * Others swap small states without the lock, so whoever reads one in order to write it freezes it
 * first. From then on it is still, and others wait for the lock. A slot that is empty has a frozen
 * state, or zeros if it was never used. */

static inline _Atomic uint64_t *weir__slot_high(struct weir__group *group, unsigned slot)
{
    return (_Atomic uint64_t *)&group->states[slot].hi;
}

/* Freezes a state, whatever it is; the state. */
static inline struct weir__packed weir__slot_freeze(struct weir__group *group, unsigned slot)
{
    atomic_fetch_or(weir__slot_high(group, slot), WEIR__FROZEN);
    return weir__load16(&group->states[slot]);
}

/* Freezes a state if it is still that one. */
static inline bool weir__slot_freeze_if(struct weir__group *group, unsigned slot,
                                        struct weir__packed sealed)
{
    struct weir__packed frozen = {sealed.lo, sealed.hi | WEIR__FROZEN};
    return weir__swap16(&group->states[slot], &sealed, frozen);
}

static inline void weir__slot_thaw(struct weir__group *group, unsigned slot)
{
    atomic_fetch_and(weir__slot_high(group, slot), ~WEIR__FROZEN);
}

/* The new state of a slot that is frozen, large or empty: nobody else writes it. */
static inline void weir__slot_put(struct weir__group *group, unsigned slot,
                                  struct weir__packed sealed)
{
    weir__store16(&group->states[slot], sealed);
}

static inline uint32_t weir__slot_row(const struct weir__zone *zone,
                                      const struct weir__group *group, unsigned slot)
{
    return weir__packed_row(zone, weir__load16(&group->states[slot]));
}

/* Finds an op's state, freezes it if it is small, and unpacks it; absent: group NULL and a state
 * not present. */
int weir__table_find(struct weir__zone *zone, struct weir__op *op);
/* A slot for an op that has none, evicting if need be; none of `ops` is evicted. WEIR_EFULL: none
 * may go. */
int weir__table_place(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                      size_t n);
/* A request finds no room: counted for the op's stripe, which is held. WEIR_EFULL. */
int weir__table_refuse(struct weir__zone *zone, const struct weir__op *op);
#define WEIR__FULL_RETRY_US 1000000 /* nobody whom the zone refused need ask again before */
/* Who is told to come back at that time; INT64_MAX: nobody knows when, so in a while. */
int64_t weir__room_in(int64_t at_us, int64_t now_us);
/* After WEIR_EFULL for an op without a slot: how long until a state in its reach is fresh. */
int64_t weir__table_room_in(const struct weir__zone *zone, const struct weir__op *op);
/* Writes an op's state into its slot, or empties the slot of one no longer present. */
void weir__table_write(struct weir__zone *zone, struct weir__op *op);
/* Empties a slot; true: it had this block, which is nobody's now. */
bool weir__slot_drop(struct weir__zone *zone, struct weir__group *group, unsigned slot,
                     uint32_t *ret_unit, unsigned *ret_order);
/* Thaws what weir__table_find froze and nobody wrote. */
void weir__table_thaw(struct weir__op *ops, size_t n);
/* Empties a slot and frees its block. */
void weir__slot_clear(struct weir__zone *zone, struct weir__group *group, unsigned slot);
/* The same, if its state is still the one that was judged; false: somebody charged it meanwhile. */
bool weir__slot_clear_if(struct weir__zone *zone, struct weir__group *group, unsigned slot,
                         struct weir__packed judged);
/* All states of a key; whether one of them was not fresh. */
bool weir__table_reset(struct weir__zone *zone, uint64_t tag, int64_t now_us);

#endif

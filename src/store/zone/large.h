/* Large states: blocks of a zone that hold the cells of logs, windows and leases. */
#ifndef WEIR_ZONE_LARGE_H
#define WEIR_ZONE_LARGE_H

#include "store/zone/slot.h"

/* ---- zone/arena.c, zone/block.c, zone/place.c ---- */

/* A byte of the map, where a block starts; 0 inside of one. */
#define WEIR__MAP_FREE 0x80
#define WEIR__MAP_LEASE 0x40 /* never evicted while a lease in it lasts */
#define WEIR__MAP_ROWS 0x20  /* a chunk of rows: never evicted */
#define WEIR__MAP_ORDER 0x1f /* order + 1 */

#define WEIR__NO_GROUP UINT32_MAX /* owner of a chunk of rows; its slot is the chunk's number */
#define WEIR__NO_UNIT UINT32_MAX

/* A block to be had. Its owner's stripe (or the rows' lock) is held. */
struct weir__want {
    uint32_t group, slot; /* owner */
    unsigned order;
    unsigned flags; /* WEIR__MAP_LEASE or WEIR__MAP_ROWS */
    uint32_t has;   /* the block the owner has now, which stays; WEIR__NO_UNIT: none */
};

/* A used block that was looked at, and whose it says it is. */
struct weir__sample {
    uint32_t unit;
    unsigned order;
    uint32_t group;
    unsigned slot;
};

/* What a search stops at. */
struct weir__sampling {
    unsigned order; /* at least */
    size_t by_hand; /* so many from the arena's hand on, the others at random */
    unsigned steps; /* that the hand does at most */
};

#define WEIR__SAMPLED_MARKS 1024  /* bytes of the map that are looked at under one lock … */
#define WEIR__LAPSES_AT_ONCE 4096 /* … and where one time of each block is */
#define WEIR__SAMPLED_AT_RANDOM 32
#define WEIR__SAMPLED_LEASES 2 /* among others: they go only if they have lapsed */
#define WEIR__CLEARED_MAX 1024 /* blocks that are evicted or moved for one larger one */

static inline struct weir__block *weir__block_at(const struct weir__zone *zone, uint32_t unit)
{
    return (struct weir__block *)(zone->blocks + (uint64_t)unit * WEIR__BLOCK_UNIT);
}

/* The block of a chunk of rows. */
static inline struct weir__want weir__chunk_want(uint32_t chunk)
{
    return (struct weir__want){WEIR__NO_GROUP, chunk, WEIR__CHUNK_ORDER, WEIR__MAP_ROWS,
                               WEIR__NO_UNIT};
}

static inline uint8_t weir__map_at(const struct weir__zone *zone, uint32_t unit)
{
    assert(unit < zone->layout.units);
    return atomic_load_explicit(&zone->map[unit], memory_order_acquire);
}

static inline uint32_t weir__block_cells(unsigned order)
{
    return (4u << order) - 2;
}

static inline unsigned weir__block_flags(const struct weir__rule *rule)
{
    return weir__algorithm_of(rule)->leases ? WEIR__MAP_LEASE : 0;
}

unsigned weir__order_for(int64_t cells);

void weir__blocks_init(struct weir__zone *zone);
/* The arena where an owner's blocks are looked for first. There is one at least. */
uint32_t weir__arena_for(const struct weir__zone *zone, const struct weir__want *want);
/* A block that is free; WEIR_EFULL: there is none. Or WEIR__HELD. */
int weir__block_alloc(struct weir__zone *zone, const struct weir__want *want, uint32_t *ret_unit);
/* Gives a block back that the slot has let go of, or never named. Its stripe is held. Where the
 * arena's lock is not to be had, the block is nobody's until somebody looks for such. */
void weir__block_free(struct weir__zone *zone, uint32_t unit, unsigned order,
                      const struct weir__group *group, unsigned slot);
/* Likewise, where the block says it is that slot's; whether it did. */
bool weir__block_free_owned(struct weir__zone *zone, uint32_t unit, unsigned order, uint32_t group,
                            unsigned slot);
/* Whether a used block of that order starts there. */
bool weir__block_is_used(const struct weir__zone *zone, uint32_t unit, unsigned order);
/* Some used blocks of an arena, in a bounded number of steps. */
size_t weir__block_sample(struct weir__zone *zone, uint32_t arena,
                          const struct weir__sampling *sampling, struct weir__sample *ret,
                          size_t room);
/* Whether an arena has blocks that may be evicted: neither leases nor rows. */
bool weir__arena_has_others(const struct weir__zone *zone, uint32_t arena);
/* Whether a search for such blocks may find one. */
bool weir__arena_may_have_lapsed(const struct weir__zone *zone, uint32_t arena, bool leases,
                                 int64_t now_us);
/* When the first of an arena's states, of leases or others, may be fresh; INT64_MAX: there is
 * none. */
int64_t weir__arena_lapses_at(const struct weir__zone *zone, uint32_t arena, bool leases);
/* Some blocks, of leases or others, whose states may be fresh by now: goes on where the last such
 * search stopped. *ret_more: it has not seen all of the arena. */
size_t weir__block_lapsed(struct weir__zone *zone, uint32_t arena, bool leases, int64_t now_us,
                          struct weir__sample *ret, size_t room, bool *ret_more);
/* A used block's state was written, and is fresh from then on. Its stripe is held. */
void weir__block_note(struct weir__zone *zone, uint32_t unit, bool leases, int64_t fresh_at);
/* A death may have left blocks that are nobody's: searches look at all of them again. */
void weir__blocks_forget_lapses(struct weir__zone *zone);
/* The used blocks from a unit on, to the end of its arena at most; moves the unit on. SIZE_MAX:
 * held. */
size_t weir__block_list(struct weir__zone *zone, uint32_t *unit, struct weir__sample *ret,
                        size_t room);

/* An aligned place for a large block is chosen, and what is free of it becomes the owner's. The
 * others' blocks of it become the owner's one by one, when their slots have let go of them. Then
 * all of them are joined, or given back. */

/* The best of the next places of an arena. *left: how many are still to be looked at, at first
 * UINT32_MAX. False: none of those can be cleared. */
bool weir__place_choose(struct weir__zone *zone, uint32_t arena, const struct weir__want *want,
                        uint32_t *left, uint32_t *ret_place);
/* The others' blocks from a unit on, which moves on. SIZE_MAX: give up. */
size_t weir__place_others(struct weir__zone *zone, uint32_t place, const struct weir__want *want,
                          uint32_t *unit, struct weir__sample *ret, size_t room);
bool weir__place_own(struct weir__zone *zone, const struct weir__sample *it,
                     const struct weir__want *want);
bool weir__place_join(struct weir__zone *zone, uint32_t place, const struct weir__want *want);
void weir__place_give(struct weir__zone *zone, uint32_t place, const struct weir__want *want);

/* Leases fill half of the units at most. */
bool weir__leases_fit(const struct weir__zone *zone, unsigned order);
void weir__leases_recount(struct weir__zone *zone);
/* Bytes in use. */
uint64_t weir__blocks_used(const struct weir__zone *zone);
/* After a death: counts from the map. The arena's lock is held. */
void weir__arena_repair(struct weir__zone *zone, uint32_t arena);
bool weir__arena_is_sound(struct weir__zone *zone, uint32_t arena, bool *ret_held);
/* Nobody else has the zone open: map, owners and counts from the table. */
void weir__blocks_recover(struct weir__zone *zone);
/* For that: a block that is there; false where it cannot be. */
bool weir__block_claim(struct weir__zone *zone, uint32_t unit, const struct weir__want *want);

/* ---- zone/hunt.c ---- */

/* A block, free or made so by evicting others; none of `ops`, whose stripes are held, is evicted.
 * Other stripes are only tried. WEIR_EFULL: there is no room, or no more for leases. Or
 * WEIR__HELD, or WEIR__WANTED. */
int weir__block_get(struct weir__zone *zone, const struct weir__op *ops, size_t n, int64_t now_us,
                    const struct weir__want *want, uint32_t *ret_unit);
/* After WEIR_EFULL: when the first state may be fresh of those that a search for a block of these
 * flags looks at; INT64_MAX: there is none. */
int64_t weir__blocks_lapse_at(const struct weir__zone *zone, const struct weir__want *want);
/* Reads whose a block says it is, without a lock: a guess. */
void weir__block_guess(const struct weir__zone *zone, struct weir__sample *it);
/* Whether a slot names a block; its stripe is held. */
bool weir__slot_names(const struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                      uint32_t unit);

/* ---- zone/large.c ---- */

/* Copies a ring into a block, oldest first; the state has it there from now on. */
void weir__ring_move(struct weir__zone *zone, struct weir__state *state, uint32_t unit,
                     unsigned order);
/* Gives an op's ring room for one more cell (leases: two, a renewal needs one), evicting if need
 * be; none of `ops` is evicted. Codes are those of weir__block_get; WEIR_EFULL is counted. The op's
 * slot must be placed; a block got for an absent state is the caller's to free if the request
 * fails. */
int weir__ring_reserve(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                       size_t n);
/* After WEIR_EFULL: how long until a block may be free, or until the op's own ring has room again
 * because its oldest cell has gone. */
int64_t weir__ring_room_in(const struct weir__zone *zone, const struct weir__op *op);

#endif

/* An arena of blocks whose lock is held: what zone/arena.c offers to zone/block.c and
 * zone/place.c. */
#ifndef WEIR_ZONE_ARENA_H
#define WEIR_ZONE_ARENA_H

#include "store/zone/zone.h"

struct weir__heap {
    struct weir__zone *zone;
    struct weir__block_arena *it;
    uint32_t number, first, end; /* its units */
};

static inline struct weir__heap weir__heap_of(struct weir__zone *zone, uint32_t arena)
{
    assert(arena < zone->layout.arenas);
    uint32_t first = arena << WEIR__ARENA_BITS;
    uint32_t left = zone->layout.units - first;
    uint32_t size = left < 1u << WEIR__ARENA_BITS ? left : 1u << WEIR__ARENA_BITS;
    return (struct weir__heap){zone, &zone->arenas[arena], arena, first, first + size};
}

/* Whether a block can start there, and which; nothing read from the map leads out of the arena. */
static inline bool weir__heap_read(const struct weir__heap *heap, uint32_t unit, uint8_t *ret_mark,
                                   unsigned *ret_order)
{
    uint8_t mark = weir__map_at(heap->zone, unit);
    unsigned order = (mark & WEIR__MAP_ORDER) - 1u;
    if ((mark & WEIR__MAP_ORDER) == 0 || order > WEIR__ORDER_MAX || unit & ((1u << order) - 1) ||
        1u << order > heap->end - unit)
        return false;
    *ret_mark = mark;
    *ret_order = order;
    return true;
}

/* Locks an arena; false: it is held. */
bool weir__heap_open(struct weir__zone *zone, uint32_t arena, struct weir__heap *ret);
void weir__heap_close(const struct weir__heap *heap);

/* Writes a byte of the map, after everything that was written before. */
void weir__heap_mark(const struct weir__heap *heap, uint32_t unit, unsigned mark);
/* Writes whose a block is. */
void weir__heap_own(const struct weir__heap *heap, uint32_t unit, const struct weir__want *want);
/* So many units more are used, of a block with this mark. */
void weir__heap_count(const struct weir__heap *heap, uint8_t mark, int64_t units);

/* A free block becomes used; false: there is none. */
bool weir__heap_take(const struct weir__heap *heap, const struct weir__want *want,
                     uint32_t *ret_unit);
/* A used block becomes free, and one with its buddy where that is free. */
void weir__heap_give(const struct weir__heap *heap, uint32_t unit, unsigned order);
/* A free block will not be free any more, the map still calls it so; false: none was counted. */
bool weir__heap_remove(const struct weir__heap *heap, unsigned order);

/* What is known of when states are fresh is no longer known. */
static inline void weir__heap_forget_lapses(const struct weir__heap *heap)
{
    for (int leases = 0; leases < 2; leases++) {
        heap->it->lapse_hand[leases] = 0;
        atomic_store(&heap->it->lapses_us[leases], 0);
    }
}

/* Makes free blocks of units that are free or were never marked. */
void weir__heap_add_gap(const struct weir__heap *heap, uint32_t from, uint32_t to, bool counted);
/* All counts, from the map alone. */
void weir__heap_recount(const struct weir__heap *heap);

/* Whether a used block of that order starts there, and says that it is that slot's. */
bool weir__block_is_owned(const struct weir__zone *zone, uint32_t unit, unsigned order,
                          uint32_t group, unsigned slot);

#endif

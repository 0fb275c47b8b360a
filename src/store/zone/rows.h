/*
 * Rows, inside: what rows.c, row_index.c and sweep.c share. Others need weir__row_find and the few
 * functions in row.h.
 *
 * A row's place has a bit that says whether it is taken: 2048 for the rows in the layout, then 64
 * for each chunk, one of which is never used (the chunk's block has its header there).
 *
 *   free      bit clear, generation odd (0 before the first use); no slot names it
 *   in use    bit set, generation even, in the index
 *   retired   bit set, generation odd, not in the index; slots may name it, but no new ones
 *
 * A row goes free → in use → retired → free. Every change is made of single stores in an order that
 * a death anywhere leaves sound: a row that is taken and neither found nor named by a slot is freed
 * by the next sweep.
 */
#ifndef WEIR_ZONE_ROWS_H
#define WEIR_ZONE_ROWS_H

#include "store/zone/zone.h"

#include <stdlib.h>

#define WEIR__DIRECT_BITS (WEIR__ROW_LOW_MASK + 1)

/* How many bits there are. */
static inline uint32_t weir__row_bits(const struct weir__zone *zone)
{
    return WEIR__DIRECT_BITS + zone->layout.chunks * WEIR__CHUNK_ROWS;
}

static inline uint32_t weir__row_of_bit(const struct weir__zone *zone, uint32_t bit)
{
    if (bit < WEIR__DIRECT_BITS)
        return bit;
    uint32_t chunk = bit / WEIR__CHUNK_ROWS - WEIR__DIRECT_BITS / WEIR__CHUNK_ROWS;
    uint32_t low = zone->layout.rows - 1 - chunk / WEIR__LOW_CHUNKS;
    uint32_t high = chunk % WEIR__LOW_CHUNKS * WEIR__CHUNK_ROWS + bit % WEIR__CHUNK_ROWS;
    return low | high << WEIR__ROW_LOW_BITS;
}

/* The bit of a row that has a place. */
static inline uint32_t weir__bit_of_row(const struct weir__zone *zone, uint32_t row)
{
    if (row < WEIR__DIRECT_BITS)
        return row;
    uint32_t high = row >> WEIR__ROW_LOW_BITS;
    return WEIR__DIRECT_BITS + weir__row_chunk(zone, row) * WEIR__CHUNK_ROWS +
           high % WEIR__CHUNK_ROWS;
}

static inline uint64_t weir__taken_word(const struct weir__zone *zone, uint32_t word)
{
    return atomic_load_explicit(&zone->taken[word], memory_order_relaxed);
}

static inline bool weir__row_is_taken(const struct weir__zone *zone, uint32_t bit)
{
    return weir__taken_word(zone, bit / 64) >> bit % 64 & 1;
}

/* The rows' lock is held. */
static inline void weir__row_set_taken(struct weir__zone *zone, uint32_t bit, bool taken)
{
    uint64_t word = weir__taken_word(zone, bit / 64), mask = UINT64_C(1) << bit % 64;
    assert(((word & mask) != 0) != taken);
    atomic_store_explicit(&zone->taken[bit / 64], word ^ mask, memory_order_release);
    atomic_fetch_add_explicit(&zone->header->rows_taken, taken ? 1 : -1u, memory_order_relaxed);
}

static inline void weir__row_set_generation(struct weir__rule *row, uint32_t generation)
{
    __atomic_store_n(&row->generation, (uint16_t)generation, __ATOMIC_RELEASE);
}

/* ---- rows.c ---- */

/* How many rows states of that class could have, and how many of these are free: estimates, for
 * which no lock is needed. */
struct weir__row_room {
    uint32_t usable, free;
};
struct weir__row_room weir__rows_room(const struct weir__zone *zone, bool narrow);
/* Whether so few are free that rows with live states must go. */
bool weir__rows_are_short(const struct weir__zone *zone, bool narrow);
/* Whether a row could be that of a rule of this class, if it were free. */
bool weir__row_suits(const struct weir__zone *zone, uint32_t row, bool narrow);

/* ---- row_index.c ---- */

/* The row in use of a rule, 0: none was found. Needs no lock; but without the rows' lock one that
 * is there may be overlooked. */
uint32_t weir__index_find(const struct weir__zone *zone, const struct weir__rule *rule,
                          uint32_t *ret_generation);
/* These two: the rows' lock is held. False: the index has no place for it. */
bool weir__index_add(struct weir__zone *zone, const struct weir__rule *rule, uint32_t row);
void weir__index_remove(struct weir__zone *zone, const struct weir__rule *rule, uint32_t row);

/* ---- sweep.c ---- */

enum weir__sweep_need {
    WEIR__SWEEP_GO_ON, /* only a sweep that has begun */
    WEIR__SWEEP_EARLY, /* rows get scarce */
    WEIR__SWEEP_SHORT, /* there are nearly none: live ones must go if no other can */
    WEIR__SWEEP_NOW    /* the same, and it does not matter when the last one was */
};

/* A bounded portion of the sweep that has begun, or of a new one if one is due; no lock is held.
 * False: nothing was done, since none is due, or since another thread of this process is at it. */
bool weir__sweep_help(struct weir__zone *zone, int64_t now_us, enum weir__sweep_need need,
                      unsigned steps);
/* Has this process keep the rows of other rules from now on; what it kept so far comes back. */
void weir__sweep_swap_pinned(struct weir__zone *zone, struct weir__rule **rules, size_t *n);

#endif

/* Cells in order of their stamps: what log, window and leases are made of. */
#ifndef WEIR_RING_H
#define WEIR_RING_H

#include "core/core.h"

static inline struct weir__cell *weir__ring_cell(const struct weir__ring *ring, uint32_t i)
{
    uint32_t place = ring->head + i;
    return &ring->cells[place < ring->capacity ? place : place - ring->capacity];
}

static inline struct weir__cell *weir__ring_last(const struct weir__ring *ring)
{
    return weir__ring_cell(ring, ring->len - 1);
}

/* Writes a cell behind the last; there is room. */
static inline void weir__ring_append(struct weir__ring *ring, struct weir__cell cell)
{
    ring->len++;
    *weir__ring_last(ring) = cell;
}

/* Lets the oldest cell go. */
static inline void weir__ring_shift(struct weir__ring *ring)
{
    ring->head = ring->head + 1 < ring->capacity ? ring->head + 1 : 0;
    ring->len--;
}

/* Takes cell i out, closing the gap from behind. */
void weir__ring_remove(struct weir__ring *ring, uint32_t i);

/* Stamps and counts (log and window). */
void weir__stamps_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us);
void weir__stamps_judge(const struct weir__rule *rule, const struct weir__state *state,
                        const struct weir__request *request, weir_decision *ret);
void weir__stamps_report(const struct weir__rule *rule, const struct weir__state *state,
                         int64_t now_us, weir_decision *ret);
int64_t weir__stamps_fresh_at(const struct weir__rule *rule, const struct weir__state *state);
/* Corrects the entry of t0, or charges a surcharge now where that entry is gone. */
bool weir__stamps_settle(const struct weir__rule *rule, struct weir__state *state,
                         const struct weir__correction *correction);

#endif

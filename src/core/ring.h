/* Cells in order of their stamps: what log, window and leases are made of. */
#ifndef WEIR_RING_H
#define WEIR_RING_H

#include "core/core.h"

#include <stdatomic.h>

static inline struct weir__cell *weir__ring_cell(const struct weir__ring *ring, uint32_t i)
{
    uint32_t place = ring->head + i;
    assert(ring->head < ring->capacity && i < ring->capacity);
    return &ring->cells[place < ring->capacity ? place : place - ring->capacity];
}

static inline struct weir__cell *weir__ring_last(const struct weir__ring *ring)
{
    assert(ring->len > 0);
    return weir__ring_cell(ring, ring->len - 1);
}

/* Writes a cell behind the last; the store has made room. */
static inline void weir__ring_append(struct weir__ring *ring, struct weir__cell cell)
{
    WEIR__CHECK(ring->len < ring->capacity);
    ring->len++;
    *weir__ring_last(ring) = cell;
}

/* Drops the oldest cell. */
static inline void weir__ring_shift(struct weir__ring *ring)
{
    assert(ring->len > 0);
    ring->head = ring->head + 1 < ring->capacity ? ring->head + 1 : 0;
    ring->len--;
}

/* Tells others head, len and sum, by one store: a death is before it or after it. The cells written
 * before are there by then, those written after are not yet. */
static inline void weir__ring_publish(const struct weir__state *state)
{
    typedef uint64_t pair __attribute__((vector_size(16)));
    const struct weir__ring *ring = &state->ring;
    if (!state->ring_header)
        return;
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile pair *)state->ring_header =
        (pair){ring->head | (uint64_t)ring->len << 32, (uint64_t)ring->sum};
    atomic_signal_fence(memory_order_seq_cst);
}

/* Appends where a cell may still stand that load dropped: others must know that it is gone. */
static inline void weir__state_append(struct weir__state *state, struct weir__cell cell)
{
    weir__ring_publish(state);
    weir__ring_append(&state->ring, cell);
}

/* Takes cell i out, closing the gap from behind. No other cell is missing at any moment. */
static inline void weir__ring_remove(struct weir__ring *ring, uint32_t i)
{
    assert(i < ring->len);
    for (; i + 1 < ring->len; i++) {
        *weir__ring_cell(ring, i) = *weir__ring_cell(ring, i + 1);
        atomic_signal_fence(memory_order_seq_cst);
    }
    ring->len--;
}

/* Whether a charge at t' joins the newest cell (log and window). */
static inline bool weir__stamps_join(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t slot = weir__max(1, weir__precision(rule));
    return state->ring.len > 0 &&
           weir__ring_last(&state->ring)->stamp / slot == state->now_us / slot;
}

/* The slots that a lease holds. */
static inline int64_t weir__lease_slots(const struct weir__cell *cell)
{
    return (int64_t)(cell->lease & ((UINT64_C(1) << WEIR__LEASE_SHIFT) - 1));
}

/* What a cell counts. */
static inline int64_t weir__cell_weight(const struct weir__rule *rule,
                                        const struct weir__cell *cell)
{
    return weir__algorithm_of(rule)->leases ? weir__lease_slots(cell) : cell->count;
}

#endif

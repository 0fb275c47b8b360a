/* Cells in order of their stamps: what log, window and leases are made of. */
#ifndef WEIR_RING_H
#define WEIR_RING_H

#include "core/core.h"

#include <stdatomic.h>

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

/* Appends where a cell may still stand that load let go: others must have let go of it, too. */
static inline void weir__state_append(struct weir__state *state, struct weir__cell cell)
{
    weir__ring_publish(state);
    weir__ring_append(&state->ring, cell);
}

/* Takes cell i out, closing the gap from behind. No other cell is missing at any moment. */
void weir__ring_remove(struct weir__ring *ring, uint32_t i);

/* Stamps and counts (log and window). Whether a charge at t' joins the newest cell. */
bool weir__stamps_join(const struct weir__rule *rule, const struct weir__state *state);
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

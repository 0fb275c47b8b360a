/*
 * Room for large states. A ring that is full moves to a block twice the size; the slot names the
 * new block before the old one is freed. Where no block is free, zone/hunt.c makes one free.
 */
#include "core/ring.h"
#include "store/zone/zone.h"

/* The block's owner was written when it was allocated. */
void weir__ring_move(struct weir__zone *zone, struct weir__state *state, uint32_t unit,
                     unsigned order)
{
    struct weir__ring *ring = &state->ring;
    struct weir__block *block = weir__block_at(zone, unit);
    struct weir__cell *cells = (struct weir__cell *)(block + 1);
    assert(ring->len <= weir__block_cells(order) && ring->cells != cells);
    for (uint32_t i = 0; i < ring->len; i++)
        cells[i] = *weir__ring_cell(ring, i);
    *ring = (struct weir__ring){cells, weir__block_cells(order), 0, ring->len, ring->sum};
    state->ring_header = (uint64_t *)block;
    weir__ring_publish(state);
}

int weir__ring_reserve(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                       size_t n)
{
    struct weir__ring *ring = &op->state.ring;
    int64_t cells = (int64_t)ring->len + 1 + weir__algorithm_of(op->rule)->leases;
    if (op->has_block && cells <= ring->capacity)
        return 0;
    bool moves = op->has_block;
    uint32_t old_unit = op->unit, unit;
    unsigned old_order = op->order;
    struct weir__want want = {(uint32_t)(op->group - zone->groups), op->slot,
                              weir__order_for(cells), weir__block_flags(op->rule),
                              moves ? old_unit : WEIR__NO_UNIT};
    int code = weir__block_get(zone, ops, n, op->request.now_us, &want, &unit);
    if (code)
        return code;
    weir__ring_move(zone, &op->state, unit, want.order);
    op->has_block = true;
    op->unit = unit;
    op->order = want.order;
    if (!moves)
        return 0;
    weir__slot_put(op->group, op->slot,
                   weir__pack(zone, op->rule, op->row, op->tag, &op->state, unit, want.order));
    weir__block_free(zone, old_unit, old_order, op->group, op->slot);
    return 0;
}

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

static int64_t ring_cells(const struct weir__op *op)
{
    return (int64_t)op->state.ring.len + 1 + weir__algorithm_of(op->rule)->leases;
}

/* The block that an op's ring needs for one more cell, and where it has none yet. */
static struct weir__want ring_want(const struct weir__zone *zone, const struct weir__op *op)
{
    return (struct weir__want){(uint32_t)(op->group - zone->groups), op->slot,
                               weir__order_for(ring_cells(op)), weir__block_flags(op->rule),
                               op->has_block ? op->unit : WEIR__NO_UNIT};
}

int weir__ring_reserve(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                       size_t n)
{
    if (op->has_block && ring_cells(op) <= op->state.ring.capacity)
        return 0;
    bool moves = op->has_block;
    uint32_t old_unit = op->unit, unit;
    unsigned old_order = op->order;
    const struct weir__want want = ring_want(zone, op);
    int code = weir__block_get(zone, ops, n, op->request.now_us, &want, &unit);
    if (code)
        return code == WEIR_EFULL ? weir__table_refuse(zone, op) : code;
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

int64_t weir__ring_room_in(const struct weir__zone *zone, const struct weir__op *op)
{
    const struct weir__want want = ring_want(zone, op);
    int64_t now_us = op->request.now_us, at_us = weir__blocks_lapse_at(zone, &want);
    if (op->has_block && op->state.ring.len > 0) { /* one more than is left fits when a cell goes */
        struct weir__request more = {now_us, weir__left(op->rule, &op->state, now_us) + 1, 0};
        weir_decision then = {0};
        weir__algorithm_of(op->rule)->judge(op->rule, &op->state, &more, &then);
        at_us = weir__min(at_us, now_us + then.retry_after_us);
    }
    return weir__room_in(at_us, now_us);
}

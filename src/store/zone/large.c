/*
 * Room for large states. A ring that is full moves to a block twice the size; the slot names the new
 * block before the old one is freed. Where no block is free, the hand goes round the used ones and
 * evicts as the table does: fresh states, then unused ones, then any. Work is bounded; other stripes
 * are only tried, never waited for.
 */
#include "core/ring.h"
#include "store/zone/zone.h"

#include <string.h>

/* How many blocks each round looks at: fresh only, then unused ones too, then all. */
static const uint32_t rounds[] = {64, 4096, 65536};

struct search {
    struct weir__zone *zone;
    const struct weir__op *ops; /* not to be evicted, and whose stripes are ours already */
    size_t n;
    int64_t now_us;
};

static bool holds_stripe(const struct search *search, uint32_t stripe)
{
    for (size_t i = 0; i < search->n; i++) {
        if (weir__stripe_of(search->zone, search->ops[i].home) == stripe)
            return true;
    }
    return false;
}

static bool is_pinned(const struct search *search, const struct weir__group *group, unsigned slot)
{
    for (size_t i = 0; i < search->n; i++) {
        if (search->ops[i].group == group && search->ops[i].slot == slot)
            return true;
    }
    return false;
}

/* Evicts the slot that owns this block if the round's rules say so. Its stripe is held. */
static void evict_owner(const struct search *search, struct weir__group *group, unsigned slot,
                        uint32_t unit, size_t round)
{
    struct weir__zone *zone = search->zone;
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t owned;
    unsigned order;
    if (weir__slot_tag(group, slot) == 0 || is_pinned(search, group, slot) ||
        !weir__slot_unpack(zone, group, slot, &rule, &state, &owned, &order) ||
        !weir__is_large(rule) || owned != unit)
        return;
    bool fresh = weir__is_fresh(rule, &state, search->now_us);
    bool unused = weir__slot_use(group, slot) == 0;
    if (!fresh && round < (unused ? 1u : 2u))
        return;
    enum weir__counter kind = fresh    ? WEIR__EVICTED_FRESH
                              : unused ? WEIR__EVICTED_UNUSED
                                       : WEIR__EVICTED_SOONEST;
    uint32_t stripe = weir__stripe_of(zone, (uint32_t)(group - zone->groups));
    zone->stripes[stripe].counters[kind]++;
    weir__slot_clear(zone, group, slot);
}

/* Who a block says it belongs to, read without the lock of its owner. The block may have been freed
 * and may be in the middle of another's cells by now, so this is a guess, and may be nonsense:
 * evict_owner checks it under the lock. That race is meant, so the thread sanitizer does not look. */
__attribute__((no_sanitize("thread"))) static void
guess_owner(const struct weir__block *block, uint32_t *ret_group, unsigned *ret_slot)
{
    *ret_group = *(const volatile uint32_t *)&block->group;
    *ret_slot = *(const volatile uint32_t *)&block->slot;
}

/* Visits the next used block; false when there is none. */
static bool visit_next(const struct search *search, size_t round)
{
    struct weir__zone *zone = search->zone;
    uint32_t unit;
    unsigned order;
    if (!weir__block_next_used(zone, &unit, &order))
        return false;
    uint32_t group;
    unsigned slot;
    guess_owner(weir__block_at(zone, unit), &group, &slot);
    if (group >= zone->group_count || slot >= WEIR__SLOTS)
        return true;
    uint32_t stripe = weir__stripe_of(zone, group);
    bool ours = holds_stripe(search, stripe);
    if (!ours && !weir__stripe_trylock(zone, stripe))
        return true;
    evict_owner(search, &zone->groups[group], slot, unit, round);
    if (!ours)
        weir__stripe_unlock(zone, stripe);
    return true;
}

static int find_block(const struct search *search, unsigned order, uint32_t *ret_unit)
{
    struct weir__zone *zone = search->zone;
    if (weir__block_alloc(zone, order, ret_unit))
        return 0;
    if (WEIR__UNLIKELY(weir__zone_is_held(zone)))
        return WEIR__HELD;
    for (size_t round = 0; round < WEIR__COUNT(rounds); round++) {
        for (uint32_t i = 0; i < rounds[round]; i++) {
            if (atomic_load(&zone->header->blocks_suspect))
                return WEIR_EBUSY;
            if (!visit_next(search, round))
                return WEIR_EFULL;
            if (weir__block_alloc(zone, order, ret_unit))
                return 0;
        }
    }
    return WEIR_EFULL;
}

/* Copies the ring into a block, oldest first, and completes the block's header. */
static void move_ring(struct weir__zone *zone, struct weir__op *op, uint32_t unit, unsigned order)
{
    struct weir__ring *ring = &op->state.ring;
    struct weir__block *block = weir__block_at(zone, unit);
    struct weir__cell *cells = (struct weir__cell *)(block + 1);
    for (uint32_t i = 0; i < ring->len; i++)
        cells[i] = *weir__ring_cell(ring, i);
    weir__block_own(zone, block, op->group, op->slot);
    *ring = (struct weir__ring){cells, weir__block_cells(order), 0, ring->len, ring->sum};
    op->state.ring_header = (uint64_t *)block;
    weir__ring_publish(&op->state);
}

int weir__ring_reserve(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                       size_t n)
{
    struct weir__ring *ring = &op->state.ring;
    int64_t cells = (int64_t)ring->len + 1 + weir__algorithm_of(op->rule)->leases;
    if (op->has_block && cells <= ring->capacity)
        return 0;
    struct search search = {zone, ops, n, op->request.now_us};
    unsigned order = weir__order_for(cells);
    uint32_t unit;
    int code = find_block(&search, order, &unit);
    if (code)
        return code;
    bool moves = op->has_block;
    uint32_t old_unit = op->unit;
    unsigned old_order = op->order;
    move_ring(zone, op, unit, order);
    op->has_block = true;
    op->unit = unit;
    op->order = order;
    if (!moves)
        return 0;
    weir__store16(&op->group->states[op->slot],
                  weir__pack(zone, op->rule, op->row, op->tag, &op->state, unit, order));
    weir__block_free(zone, old_unit, old_order);
    return 0;
}

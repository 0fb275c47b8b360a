/*
 * Blocks for large states: a buddy allocator over units of 64 bytes. map[unit] is order+1 where a used
 * block starts, FREE | order+1 where a free one does, else 0. Free blocks are linked through their
 * first bytes. The blocks lock is held inside; a death in here makes the lists suspect, and
 * weir__blocks_rebuild rebuilds them from the table.
 */
#include "store/zone/zone.h"

#include <string.h>

#define FREE 0x80

/* In a free block; units plus one, 0: none. */
struct link {
    uint32_t next, previous;
};

static struct link *link_at(const struct weir__zone *zone, uint32_t unit)
{
    return (struct link *)weir__block_at(zone, unit);
}

/* A damaged list must not lead out of the zone. */
static bool is_free(const struct weir__zone *zone, uint32_t unit, unsigned order)
{
    return (uint64_t)unit + (UINT64_C(1) << order) <= zone->layout.units &&
           zone->map[unit] == (FREE | (order + 1));
}

static void suspect(struct weir__zone *zone)
{
    atomic_store(&zone->header->blocks_suspect, 1);
}

static void push(struct weir__zone *zone, uint32_t unit, unsigned order)
{
    uint32_t first = zone->header->free[order];
    if (first && !is_free(zone, first - 1, order)) {
        suspect(zone);
        first = 0;
    }
    *link_at(zone, unit) = (struct link){first, 0};
    if (first)
        link_at(zone, first - 1)->previous = unit + 1;
    zone->header->free[order] = unit + 1;
    zone->map[unit] = (uint8_t)(FREE | (order + 1));
}

/* Takes a free block out of its list; false where the list does not fit together. */
static bool pull(struct weir__zone *zone, uint32_t unit, unsigned order)
{
    struct link link = *link_at(zone, unit);
    if ((link.next && !is_free(zone, link.next - 1, order)) ||
        (link.previous && !is_free(zone, link.previous - 1, order))) {
        suspect(zone);
        return false;
    }
    if (link.next)
        link_at(zone, link.next - 1)->previous = link.previous;
    if (link.previous)
        link_at(zone, link.previous - 1)->next = link.next;
    else
        zone->header->free[order] = link.next;
    zone->map[unit] = 0;
    return true;
}

static bool take(struct weir__zone *zone, unsigned order, uint32_t *ret_unit)
{
    unsigned from = order;
    while (from <= WEIR__ORDER_MAX && !zone->header->free[from])
        from++;
    if (from > WEIR__ORDER_MAX)
        return false;
    uint32_t unit = zone->header->free[from] - 1;
    if (!is_free(zone, unit, from)) {
        suspect(zone);
        return false;
    }
    if (!pull(zone, unit, from))
        return false;
    while (from > order) {
        from--;
        push(zone, unit + (1u << from), from);
    }
    zone->map[unit] = (uint8_t)(order + 1);
    zone->header->used_units += 1u << order;
    *ret_unit = unit;
    return true;
}

static void give(struct weir__zone *zone, uint32_t unit, unsigned order)
{
    zone->header->used_units -= 1u << order;
    zone->map[unit] = 0;
    for (; order < WEIR__ORDER_MAX; order++) {
        uint32_t buddy = unit ^ 1u << order;
        if (!is_free(zone, buddy, order) || !pull(zone, buddy, order))
            break;
        unit &= ~(1u << order);
    }
    push(zone, unit, order);
}

bool weir__block_is_used(const struct weir__zone *zone, uint32_t unit, unsigned order)
{
    return (uint64_t)unit + (UINT64_C(1) << order) <= zone->layout.units &&
           zone->map[unit] == order + 1;
}

bool weir__block_alloc(struct weir__zone *zone, unsigned order, uint32_t *ret_unit)
{
    if (!weir__stripe_lock(zone, weir__blocks_stripe(zone)))
        return false;
    bool done = !atomic_load(&zone->header->blocks_suspect) && take(zone, order, ret_unit);
    weir__stripe_unlock(zone, weir__blocks_stripe(zone));
    return done;
}

void weir__block_free(struct weir__zone *zone, uint32_t unit, unsigned order)
{
    if (!weir__stripe_lock(zone,
                           weir__blocks_stripe(zone))) { /* nobody's, until the next rebuild */
        atomic_store(&zone->header->blocks_suspect, 1);
        return;
    }
    if (!atomic_load(&zone->header->blocks_suspect) && weir__block_is_used(zone, unit, order))
        give(zone, unit, order);
    weir__stripe_unlock(zone, weir__blocks_stripe(zone));
}

bool weir__block_next_used(struct weir__zone *zone, uint32_t *ret_unit, unsigned *ret_order)
{
    if (!weir__stripe_lock(zone, weir__blocks_stripe(zone)))
        return false;
    uint32_t unit = zone->header->hand;
    bool found = false;
    for (uint32_t seen = 0; seen < zone->layout.units && !found;) {
        if (unit >= zone->layout.units)
            unit = 0;
        uint8_t mark = zone->map[unit];
        unsigned order = (mark & ~FREE) ? (mark & ~FREE) - 1u : 0;
        found = mark && !(mark & FREE) && weir__block_is_used(zone, unit, order);
        if (found) {
            *ret_unit = unit;
            *ret_order = order;
        }
        uint32_t step = order <= WEIR__ORDER_MAX ? 1u << order : 1;
        unit += step;
        seen += step;
    }
    zone->header->hand = unit;
    weir__stripe_unlock(zone, weir__blocks_stripe(zone));
    return found;
}

/* Makes free blocks, as large as alignment allows, of the unused units from `from` up to `to`. */
static void add_gap(struct weir__zone *zone, uint32_t from, uint32_t to)
{
    while (from < to) {
        unsigned order = 0;
        while (order < WEIR__ORDER_MAX && !(from & 1u << order) && from + (2u << order) <= to)
            order++;
        push(zone, from, order);
        from += 1u << order;
    }
}

/* Free lists from a map that marks the used blocks only. */
static void add_gaps(struct weir__zone *zone)
{
    uint32_t gap = 0, unit = 0, used = 0;
    memset(zone->header->free, 0, sizeof zone->header->free);
    while (unit < zone->layout.units) {
        if (zone->map[unit] == 0) {
            unit++;
            continue;
        }
        uint32_t size = 1u << (zone->map[unit] - 1);
        add_gap(zone, gap, unit);
        used += size;
        unit += size;
        gap = unit;
    }
    add_gap(zone, gap, zone->layout.units);
    zone->header->used_units = used;
}

void weir__blocks_init(struct weir__zone *zone)
{
    memset(zone->map, 0, zone->layout.units);
    add_gaps(zone);
    atomic_store(&zone->header->blocks_suspect, 0);
}

/* Marks one slot's block. One that another slot has, or that makes no sense, is left for the check. */
static void mark_block(struct weir__zone *zone, const struct weir__group *group, unsigned slot)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit = 0;
    unsigned order = 0;
    if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
        !weir__is_large(rule))
        return;
    for (uint32_t i = 0; i < 1u << order; i++) {
        if (zone->map[unit + i])
            return;
    }
    memset(zone->map + unit, 0xff, 1u << order);
    zone->map[unit] = (uint8_t)(order + 1);
}

void weir__blocks_rebuild(struct weir__zone *zone)
{
    if (!weir__stripe_lock(zone, weir__blocks_stripe(zone)))
        return; /* they stay suspect */
    memset(zone->map, 0, zone->layout.units);
    for (uint64_t g = 0; g < zone->group_count; g++) {
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(&zone->groups[g], slot))
                mark_block(zone, &zone->groups[g], slot);
        }
    }
    add_gaps(zone);
    for (uint32_t unit = 0; unit < zone->layout.units; unit++) {
        if (zone->map[unit] == 0xff)
            zone->map[unit] = 0;
    }
    atomic_store(&zone->header->blocks_suspect, 0);
    weir__stripe_unlock(zone, weir__blocks_stripe(zone));
}

unsigned weir__order_for(int64_t cells)
{
    unsigned order = 0;
    while (order < WEIR__ORDER_MAX && weir__block_cells(order) < cells)
        order++;
    return order;
}

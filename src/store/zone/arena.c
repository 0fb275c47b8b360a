/*
 * Blocks for large states: a buddy allocator over units of 64 bytes. The units are divided into
 * arenas of 4 MiB, each with a lock and lists of its own; no block crosses from one into another.
 *
 * The map is what counts: a byte where a block starts, 0 inside of it. Each change is one store of
 * one byte, so that the map can be read from an arena's first unit on at every moment, also after a
 * death:
 *
 *     split    the upper half's byte (inside so far), then the lower half's
 *     merge    the lower half's byte, then the upper half's is cleared
 *     use      the owner in the block, then the byte
 *
 * Lists and counts follow from the map. Whoever gets the lock from a dead owner makes them again,
 * and so does who finds a list torn. That takes one arena's lock and no other.
 *
 * Free blocks are linked through their first bytes.
 */
#include "store/zone/arena.h"

#include <string.h>

/* In a free block; units plus one, 0: none. */
struct link {
    uint32_t next, previous;
};

enum outcome { NONE, DONE, TORN };

static struct link *link_at(const struct weir__heap *heap, uint32_t unit)
{
    assert(unit >= heap->first && unit < heap->end);
    return (struct link *)weir__block_at(heap->zone, unit);
}

void weir__heap_mark(const struct weir__heap *heap, uint32_t unit, unsigned mark)
{
    assert(unit >= heap->first && unit < heap->end);
    atomic_store_explicit(&heap->zone->map[unit], (uint8_t)mark, memory_order_release);
}

static uint8_t free_mark(unsigned order)
{
    return (uint8_t)(WEIR__MAP_FREE | (order + 1));
}

/* A damaged list must not lead out of the arena. */
static bool heap_is_free(const struct weir__heap *heap, uint32_t unit, unsigned order)
{
    return unit >= heap->first && unit < heap->end && 1u << order <= heap->end - unit &&
           weir__map_at(heap->zone, unit) == free_mark(order);
}

/* Links a block that the map calls free or is about to; false: the list is torn. */
static bool heap_push(const struct weir__heap *heap, uint32_t unit, unsigned order)
{
    uint32_t first = heap->it->free[order];
    if (first && !heap_is_free(heap, first - 1, order))
        return false;
    *link_at(heap, unit) = (struct link){first, 0};
    if (first)
        link_at(heap, first - 1)->previous = unit + 1;
    heap->it->free[order] = unit + 1;
    heap->it->orders |= 1u << order;
    return true;
}

/* Takes a free block out of its list, the map still calls it free; false: the list is torn. */
bool weir__heap_pull(const struct weir__heap *heap, uint32_t unit, unsigned order)
{
    struct link link = *link_at(heap, unit);
    if ((link.next && !heap_is_free(heap, link.next - 1, order)) ||
        (link.previous && !heap_is_free(heap, link.previous - 1, order)) ||
        (!link.previous && heap->it->free[order] != unit + 1))
        return false;
    if (link.next)
        link_at(heap, link.next - 1)->previous = link.previous;
    if (link.previous)
        link_at(heap, link.previous - 1)->next = link.next;
    else
        heap->it->free[order] = link.next;
    if (!heap->it->free[order])
        heap->it->orders &= ~(1u << order);
    return true;
}

void weir__heap_count(const struct weir__heap *heap, uint8_t mark, int64_t units)
{
    struct weir__block_arena *it = heap->it;
    uint32_t used = atomic_load_explicit(&it->used, memory_order_relaxed) + (uint32_t)units;
    atomic_store_explicit(&it->used, used, memory_order_relaxed);
    if (mark & WEIR__MAP_ROWS) {
        uint32_t rows = atomic_load_explicit(&it->rows, memory_order_relaxed) + (uint32_t)units;
        atomic_store_explicit(&it->rows, rows, memory_order_relaxed);
    }
    if (!(mark & WEIR__MAP_LEASE))
        return;
    uint32_t leases = atomic_load_explicit(&it->leases, memory_order_relaxed) + (uint32_t)units;
    atomic_store_explicit(&it->leases, leases, memory_order_relaxed);
    atomic_fetch_add_explicit(&heap->zone->header->lease_units, units, memory_order_relaxed);
}

/* ---- lists from the map ---- */

/* Makes free blocks, as large as alignment allows, of the units from `from` up to `to`: free blocks
 * already, or zeros. One store makes one out of many; the bytes inside are cleared after it. */
void weir__heap_add_gap(const struct weir__heap *heap, uint32_t from, uint32_t to, bool linked)
{
    while (from < to) {
        unsigned order = 0;
        while (order < WEIR__ORDER_MAX && !(from & 1u << order) && 2u << order <= to - from)
            order++;
        weir__heap_mark(heap, from, free_mark(order));
        memset((uint8_t *)heap->zone->map + from + 1, 0, (1u << order) - 1);
        if (linked)
            heap_push(heap, from, order);
        from += 1u << order;
    }
}

static void heap_tell_room(const struct weir__heap *heap)
{
    uint32_t orders = heap->it->damaged ? 0 : heap->it->orders & ((2u << WEIR__ORDER_MAX) - 1);
    uint8_t room = (uint8_t)(orders ? 32 - __builtin_clz(orders) : 0);
    _Atomic uint8_t *told = &heap->zone->room[heap->number];
    if (atomic_load_explicit(told, memory_order_relaxed) != room)
        atomic_store_explicit(told, room, memory_order_relaxed);
}

/* Lists and counts, from the map alone. Where that is damaged, the arena gives and takes
 * nothing. */
void weir__heap_relist(const struct weir__heap *heap)
{
    struct weir__block_arena *it = heap->it;
    uint32_t used = 0, leases = 0, rows = 0, gap = heap->first, unit = heap->first;
    memset(it->free, 0, sizeof it->free);
    it->orders = it->hand = 0;
    weir__heap_forget_lapses(heap);
    it->damaged = 1; /* until it is read to its end */
    while (unit < heap->end) {
        uint8_t mark;
        unsigned order;
        if (!weir__heap_read(heap, unit, &mark, &order))
            break;
        uint32_t size = 1u << order;
        if (!(mark & WEIR__MAP_FREE)) {
            weir__heap_add_gap(heap, gap, unit, true);
            memset((uint8_t *)heap->zone->map + unit + 1, 0, size - 1);
            used += size;
            leases += mark & WEIR__MAP_LEASE ? size : 0;
            rows += mark & WEIR__MAP_ROWS ? size : 0;
            gap = unit + size;
        }
        unit += size;
    }
    it->damaged = unit < heap->end;
    if (!it->damaged)
        weir__heap_add_gap(heap, gap, heap->end, true);
    atomic_store_explicit(&it->used, used, memory_order_relaxed);
    atomic_store_explicit(&it->leases, leases, memory_order_relaxed);
    atomic_store_explicit(&it->rows, rows, memory_order_relaxed);
    heap_tell_room(heap);
}

void weir__arena_repair(struct weir__zone *zone, uint32_t arena)
{
    struct weir__heap heap = weir__heap_of(zone, arena);
    weir__heap_relist(&heap);
    weir__leases_recount(zone);
}

/* ---- taking and giving ---- */

bool weir__heap_open(struct weir__zone *zone, uint32_t arena, struct weir__heap *ret)
{
    *ret = weir__heap_of(zone, arena);
    return weir__stripe_lock(zone, weir__arena_lock(zone, arena));
}

void weir__heap_close(const struct weir__heap *heap)
{
    heap_tell_room(heap);
    weir__stripe_unlock(heap->zone, weir__arena_lock(heap->zone, heap->number));
}

void weir__heap_own(const struct weir__heap *heap, uint32_t unit, const struct weir__want *want)
{
    struct weir__block *block = weir__block_at(heap->zone, unit);
    atomic_store_explicit(&block->group, want->group, memory_order_relaxed);
    atomic_store_explicit(&block->slot, want->slot, memory_order_relaxed);
    atomic_store_explicit(&block->lapses_us, 0, memory_order_relaxed);
}

static enum outcome heap_try(const struct weir__heap *heap, const struct weir__want *want,
                             uint32_t *ret_unit)
{
    unsigned order = want->order;
    if (heap->it->damaged || !(heap->it->orders >> order))
        return NONE;
    unsigned from = order + (unsigned)__builtin_ctz(heap->it->orders >> order);
    if (from > WEIR__ORDER_MAX)
        return TORN;
    uint32_t unit = heap->it->free[from] - 1;
    if (!heap_is_free(heap, unit, from) || !weir__heap_pull(heap, unit, from))
        return TORN;
    while (from > order) {
        from--;
        uint32_t half = unit + (1u << from);
        if (!heap_push(heap, half, from))
            return TORN;
        weir__heap_mark(heap, half, free_mark(from));
        weir__heap_mark(heap, unit, free_mark(from));
    }
    weir__heap_own(heap, unit, want);
    weir__heap_mark(heap, unit, want->flags | (order + 1));
    weir__heap_count(heap, want->flags, INT64_C(1) << order);
    *ret_unit = unit;
    return DONE;
}

bool weir__heap_take(const struct weir__heap *heap, const struct weir__want *want,
                     uint32_t *ret_unit)
{
    enum outcome outcome = heap_try(heap, want, ret_unit);
    if (outcome == TORN) {
        weir__heap_relist(heap);
        outcome = heap_try(heap, want, ret_unit);
    }
    return outcome == DONE;
}

/* A used block becomes free, and one with its buddy where that is free. */
void weir__heap_give(const struct weir__heap *heap, uint32_t unit, unsigned order)
{
    if (heap->it->damaged)
        return;
    weir__heap_count(heap, weir__map_at(heap->zone, unit), -(INT64_C(1) << order));
    weir__heap_mark(heap, unit, free_mark(order));
    for (; order < WEIR__ORDER_MAX; order++) {
        uint32_t buddy = unit ^ 1u << order, low = unit & ~(1u << order), high = unit | 1u << order;
        if (!heap_is_free(heap, buddy, order))
            break;
        if (!weir__heap_pull(heap, buddy, order)) {
            weir__heap_relist(heap);
            return;
        }
        weir__heap_mark(heap, low, free_mark(order + 1));
        weir__heap_mark(heap, high, 0);
        if (heap->it->hand == high - heap->first)
            heap->it->hand = low - heap->first;
        unit = low;
    }
    if (!heap_push(heap, unit, order))
        weir__heap_relist(heap);
}

bool weir__block_is_owned(const struct weir__zone *zone, uint32_t unit, unsigned order,
                          uint32_t group, unsigned slot)
{
    const struct weir__block *block = weir__block_at(zone, unit);
    return weir__block_is_used(zone, unit, order) &&
           atomic_load_explicit(&block->group, memory_order_relaxed) == group &&
           atomic_load_explicit(&block->slot, memory_order_relaxed) == slot;
}

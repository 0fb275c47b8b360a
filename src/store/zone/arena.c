/*
 * Blocks for large states: a buddy allocator over units of 64 bytes. The units are divided into
 * arenas of 4 MiB, each with a lock and counts of its own; no block crosses from one into another.
 *
 * The map is what counts: a byte where a block starts, 0 inside of it. Each change is one store of
 * one byte, so that the map can be read from an arena's first unit on at every moment, also after a
 * death:
 *
 *     split    the upper half's byte (inside so far), then the lower half's
 *     merge    the lower half's byte, then the upper half's is cleared
 *     use      the owner in the block, then the byte
 *
 * How many blocks of an order are free follows from the map. A free one is found by looking through
 * the map for its byte, from where one became free last. So nothing is written into free blocks,
 * and whoever gets the lock from a dead owner reads 65,536 bytes of the map and nothing else. The
 * same is done where a count turns out to be wrong. That takes one arena's lock and no other.
 */
#include "store/zone/arena.h"

#include <string.h>

enum outcome { NONE, DONE, TORN };

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

/* The map calls a block free, or is about to. */
static void heap_add(const struct weir__heap *heap, uint32_t unit, unsigned order)
{
    heap->it->free[order]++;
    heap->it->near[order] = (uint16_t)(unit - heap->first);
    heap->it->orders |= 1u << order;
}

bool weir__heap_remove(const struct weir__heap *heap, unsigned order)
{
    if (heap->it->free[order] == 0)
        return false;
    if (--heap->it->free[order] == 0)
        heap->it->orders &= ~(1u << order);
    return true;
}

/* A free block of an order of which there is one; false: there is none after all. */
static bool heap_find_free(const struct weir__heap *heap, unsigned order, uint32_t *ret_unit)
{
    const uint8_t *map = (const uint8_t *)heap->zone->map + heap->first, *found;
    uint32_t size = heap->end - heap->first;
    uint32_t near = heap->it->near[order] < size ? heap->it->near[order] : 0;
    found = memchr(map + near, free_mark(order), size - near);
    if (!found)
        found = memchr(map, free_mark(order), near);
    if (!found)
        return false;
    *ret_unit = heap->first + (uint32_t)(found - map);
    return (*ret_unit & ((1u << order) - 1)) == 0 && heap_is_free(heap, *ret_unit, order);
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

/* ---- counts from the map ---- */

/* One block out of units that are free blocks, or zeros. One store makes one out of many; the bytes
 * inside are cleared after it. */
static void heap_make_free(const struct weir__heap *heap, uint32_t unit, unsigned order)
{
    if (weir__map_at(heap->zone, unit) != free_mark(order))
        weir__heap_mark(heap, unit, free_mark(order));
    if (order > 0)
        memset((uint8_t *)heap->zone->map + unit + 1, 0, (1u << order) - 1);
}

/* Likewise blocks as large as alignment allows, from `from` up to `to`. */
void weir__heap_add_gap(const struct weir__heap *heap, uint32_t from, uint32_t to, bool counted)
{
    while (from < to) {
        unsigned order = 0;
        while (order < WEIR__ORDER_MAX && !(from & 1u << order) && 2u << order <= to - from)
            order++;
        heap_make_free(heap, from, order);
        if (counted)
            heap_add(heap, from, order);
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

/* Where the map is damaged, the arena gives and takes nothing. */
void weir__heap_recount(const struct weir__heap *heap)
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
            if (gap < unit)
                weir__heap_add_gap(heap, gap, unit, true);
            if (order > 0)
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
    weir__heap_recount(&heap);
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
    uint32_t unit;
    if (from > WEIR__ORDER_MAX || !heap_find_free(heap, from, &unit) ||
        !weir__heap_remove(heap, from))
        return TORN;
    while (from > order) {
        from--;
        uint32_t half = unit + (1u << from);
        heap_add(heap, half, from);
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
        weir__heap_recount(heap);
        outcome = heap_try(heap, want, ret_unit);
    }
    return outcome == DONE;
}

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
        if (!weir__heap_remove(heap, order)) {
            weir__heap_recount(heap);
            return;
        }
        weir__heap_mark(heap, low, free_mark(order + 1));
        weir__heap_mark(heap, high, 0);
        if (heap->it->hand == high - heap->first)
            heap->it->hand = low - heap->first;
        unit = low;
    }
    heap_add(heap, unit, order);
}

bool weir__block_is_owned(const struct weir__zone *zone, uint32_t unit, unsigned order,
                          uint32_t group, unsigned slot)
{
    const struct weir__block *block = weir__block_at(zone, unit);
    return weir__block_is_used(zone, unit, order) &&
           atomic_load_explicit(&block->group, memory_order_relaxed) == group &&
           atomic_load_explicit(&block->slot, memory_order_relaxed) == slot;
}

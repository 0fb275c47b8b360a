/*
 * Blocks for large states: a buddy allocator over units of 64 bytes. The units are divided into arenas
 * of 4 MiB, each with a lock and lists of its own; no block crosses from one into another.
 *
 * The map is what counts: a byte where a block starts, 0 inside of it. Each change is one store of one
 * byte, so that the map can be read from an arena's first unit on at every moment, also after a death:
 *
 *     split    the upper half's byte (inside so far), then the lower half's
 *     merge    the lower half's byte, then the upper half's is cleared
 *     use      the owner in the block, then the byte
 *
 * Lists and counts follow from the map. Whoever gets the lock from a dead owner makes them again, and so
 * does who finds a list torn. That takes one arena's lock and no other.
 *
 * Free blocks are linked through their first bytes.
 */
#include "store/zone/zone.h"

#include <string.h>

#define ARENAS_TRIED 256 /* for a free block, from the key's own on */

/* In a free block; units plus one, 0: none. */
struct link {
    uint32_t next, previous;
};

/* An arena whose lock is held. */
struct heap {
    struct weir__zone *zone;
    struct weir__block_arena *it;
    uint32_t number, first, end; /* its units */
};

enum outcome { NONE, DONE, TORN };

static struct heap heap_of(struct weir__zone *zone, uint32_t arena)
{
    assert(arena < zone->layout.arenas);
    uint32_t first = arena << WEIR__ARENA_BITS;
    uint32_t left = zone->layout.units - first;
    uint32_t size = left < 1u << WEIR__ARENA_BITS ? left : 1u << WEIR__ARENA_BITS;
    return (struct heap){zone, &zone->arenas[arena], arena, first, first + size};
}

static struct link *link_at(const struct heap *heap, uint32_t unit)
{
    assert(unit >= heap->first && unit < heap->end);
    return (struct link *)weir__block_at(heap->zone, unit);
}

static void heap_mark(const struct heap *heap, uint32_t unit, unsigned mark)
{
    assert(unit >= heap->first && unit < heap->end);
    atomic_store_explicit(&heap->zone->map[unit], (uint8_t)mark, memory_order_release);
}

static uint8_t free_mark(unsigned order)
{
    return (uint8_t)(WEIR__MAP_FREE | (order + 1));
}

/* Whether a block can start there, and which; nothing read from the map leads out of the arena. */
static bool heap_read(const struct heap *heap, uint32_t unit, uint8_t *ret_mark,
                      unsigned *ret_order)
{
    uint8_t mark = weir__map_at(heap->zone, unit);
    unsigned order = (mark & WEIR__MAP_ORDER) - 1u;
    if ((mark & WEIR__MAP_ORDER) == 0 || order > WEIR__ORDER_MAX || unit & ((1u << order) - 1) ||
        1u << order > heap->end - unit)
        return false;
    *ret_mark = mark;
    *ret_order = order;
    return true;
}

/* A damaged list must not lead out of the arena. */
static bool heap_is_free(const struct heap *heap, uint32_t unit, unsigned order)
{
    return unit >= heap->first && unit < heap->end && 1u << order <= heap->end - unit &&
           weir__map_at(heap->zone, unit) == free_mark(order);
}

/* Links a block that the map calls free or is about to; false: the list is torn. */
static bool heap_push(const struct heap *heap, uint32_t unit, unsigned order)
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
static bool heap_pull(const struct heap *heap, uint32_t unit, unsigned order)
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

static void heap_count(const struct heap *heap, uint8_t mark, int64_t units)
{
    struct weir__block_arena *it = heap->it;
    uint32_t used = atomic_load_explicit(&it->used, memory_order_relaxed) + (uint32_t)units;
    atomic_store_explicit(&it->used, used, memory_order_relaxed);
    if (!(mark & WEIR__MAP_LEASE))
        return;
    uint32_t leases = atomic_load_explicit(&it->leases, memory_order_relaxed) + (uint32_t)units;
    atomic_store_explicit(&it->leases, leases, memory_order_relaxed);
    atomic_fetch_add_explicit(&heap->zone->header->lease_units, units, memory_order_relaxed);
}

/* ---- lists from the map ---- */

/* Makes free blocks, as large as alignment allows, of the units from `from` up to `to`: free blocks
 * already, or zeros. One store makes one out of many; the bytes inside are cleared after it. */
static void heap_add_gap(const struct heap *heap, uint32_t from, uint32_t to, bool linked)
{
    while (from < to) {
        unsigned order = 0;
        while (order < WEIR__ORDER_MAX && !(from & 1u << order) && 2u << order <= to - from)
            order++;
        heap_mark(heap, from, free_mark(order));
        memset((uint8_t *)heap->zone->map + from + 1, 0, (1u << order) - 1);
        if (linked)
            heap_push(heap, from, order);
        from += 1u << order;
    }
}

static void heap_tell_room(const struct heap *heap)
{
    uint32_t orders = heap->it->damaged ? 0 : heap->it->orders & ((2u << WEIR__ORDER_MAX) - 1);
    uint8_t room = (uint8_t)(orders ? 32 - __builtin_clz(orders) : 0);
    _Atomic uint8_t *told = &heap->zone->room[heap->number];
    if (atomic_load_explicit(told, memory_order_relaxed) != room)
        atomic_store_explicit(told, room, memory_order_relaxed);
}

/* Lists and counts, from the map alone. Where that is damaged, the arena gives and takes nothing. */
static void heap_relist(const struct heap *heap)
{
    struct weir__block_arena *it = heap->it;
    uint32_t used = 0, leases = 0, gap = heap->first, unit = heap->first;
    memset(it->free, 0, sizeof it->free);
    it->orders = it->hand = 0;
    it->damaged = 1; /* until it is read to its end */
    while (unit < heap->end) {
        uint8_t mark;
        unsigned order;
        if (!heap_read(heap, unit, &mark, &order))
            break;
        uint32_t size = 1u << order;
        if (!(mark & WEIR__MAP_FREE)) {
            heap_add_gap(heap, gap, unit, true);
            memset((uint8_t *)heap->zone->map + unit + 1, 0, size - 1);
            used += size;
            leases += mark & WEIR__MAP_LEASE ? size : 0;
            gap = unit + size;
        }
        unit += size;
    }
    it->damaged = unit < heap->end;
    if (!it->damaged)
        heap_add_gap(heap, gap, heap->end, true);
    atomic_store_explicit(&it->used, used, memory_order_relaxed);
    atomic_store_explicit(&it->leases, leases, memory_order_relaxed);
    heap_tell_room(heap);
}

void weir__arena_repair(struct weir__zone *zone, uint32_t arena)
{
    struct heap heap = heap_of(zone, arena);
    heap_relist(&heap);
    weir__leases_recount(zone);
}

/* ---- taking and giving ---- */

static bool heap_open(struct weir__zone *zone, uint32_t arena, struct heap *ret)
{
    *ret = heap_of(zone, arena);
    return weir__stripe_lock(zone, weir__arena_lock(zone, arena));
}

static void heap_close(const struct heap *heap)
{
    heap_tell_room(heap);
    weir__stripe_unlock(heap->zone, weir__arena_lock(heap->zone, heap->number));
}

static void heap_own(const struct heap *heap, uint32_t unit, const struct weir__want *want)
{
    struct weir__block *block = weir__block_at(heap->zone, unit);
    atomic_store_explicit(&block->group, want->group, memory_order_relaxed);
    atomic_store_explicit(&block->slot, want->slot, memory_order_relaxed);
}

static enum outcome heap_try(const struct heap *heap, const struct weir__want *want,
                             uint32_t *ret_unit)
{
    unsigned order = want->order;
    if (heap->it->damaged || !(heap->it->orders >> order))
        return NONE;
    unsigned from = order + (unsigned)__builtin_ctz(heap->it->orders >> order);
    if (from > WEIR__ORDER_MAX)
        return TORN;
    uint32_t unit = heap->it->free[from] - 1;
    if (!heap_is_free(heap, unit, from) || !heap_pull(heap, unit, from))
        return TORN;
    while (from > order) {
        from--;
        uint32_t half = unit + (1u << from);
        if (!heap_push(heap, half, from))
            return TORN;
        heap_mark(heap, half, free_mark(from));
        heap_mark(heap, unit, free_mark(from));
    }
    heap_own(heap, unit, want);
    heap_mark(heap, unit, want->flags | (order + 1));
    heap_count(heap, want->flags, INT64_C(1) << order);
    *ret_unit = unit;
    return DONE;
}

static bool heap_take(const struct heap *heap, const struct weir__want *want, uint32_t *ret_unit)
{
    enum outcome outcome = heap_try(heap, want, ret_unit);
    if (outcome == TORN) {
        heap_relist(heap);
        outcome = heap_try(heap, want, ret_unit);
    }
    return outcome == DONE;
}

/* A used block becomes free, and one with its buddy where that is free. */
static void heap_give(const struct heap *heap, uint32_t unit, unsigned order)
{
    if (heap->it->damaged)
        return;
    heap_count(heap, weir__map_at(heap->zone, unit), -(INT64_C(1) << order));
    heap_mark(heap, unit, free_mark(order));
    for (; order < WEIR__ORDER_MAX; order++) {
        uint32_t buddy = unit ^ 1u << order, low = unit & ~(1u << order), high = unit | 1u << order;
        if (!heap_is_free(heap, buddy, order))
            break;
        if (!heap_pull(heap, buddy, order)) {
            heap_relist(heap);
            return;
        }
        heap_mark(heap, low, free_mark(order + 1));
        heap_mark(heap, high, 0);
        if (heap->it->hand == high - heap->first)
            heap->it->hand = low - heap->first;
        unit = low;
    }
    if (!heap_push(heap, unit, order))
        heap_relist(heap);
}

static bool is_owned(const struct weir__zone *zone, uint32_t unit, unsigned order, uint32_t group,
                     unsigned slot)
{
    const struct weir__block *block = weir__block_at(zone, unit);
    return weir__block_is_used(zone, unit, order) &&
           atomic_load_explicit(&block->group, memory_order_relaxed) == group &&
           atomic_load_explicit(&block->slot, memory_order_relaxed) == slot;
}

bool weir__block_is_used(const struct weir__zone *zone, uint32_t unit, unsigned order)
{
    return (uint64_t)unit + (UINT64_C(1) << order) <= zone->layout.units &&
           (weir__map_at(zone, unit) & (WEIR__MAP_FREE | WEIR__MAP_ORDER)) == order + 1;
}

uint32_t weir__arena_for(const struct weir__zone *zone, const struct weir__want *want)
{
    if (want->group == WEIR__NO_GROUP)
        return want->slot % zone->layout.arenas;
    assert(want->group < zone->group_count && want->slot < WEIR__SLOTS);
    return (uint32_t)((uint64_t)want->group * zone->layout.arenas / zone->group_count);
}

int weir__block_alloc(struct weir__zone *zone, const struct weir__want *want, uint32_t *ret_unit)
{
    uint32_t arenas = zone->layout.arenas;
    assert(want->order <= WEIR__ORDER_MAX);
    if (arenas == 0)
        return WEIR_EFULL;
    uint32_t arena = weir__arena_for(zone, want);
    for (uint32_t i = 0; i < arenas && i < ARENAS_TRIED; i++) {
        struct heap heap;
        if (atomic_load_explicit(&zone->room[arena], memory_order_relaxed) > want->order) {
            if (!heap_open(zone, arena, &heap))
                return WEIR__HELD;
            bool done = heap_take(&heap, want, ret_unit);
            heap_close(&heap);
            if (done)
                return 0;
        }
        arena = arena + 1 < arenas ? arena + 1 : 0;
    }
    return WEIR_EFULL;
}

bool weir__block_free_owned(struct weir__zone *zone, uint32_t unit, unsigned order, uint32_t group,
                            unsigned slot)
{
    struct heap heap;
    if (unit >= zone->layout.units || order > WEIR__ORDER_MAX ||
        !heap_open(zone, unit >> WEIR__ARENA_BITS, &heap))
        return false; /* nobody's, until somebody looks for blocks that are nobody's */
    bool owned = is_owned(zone, unit, order, group, slot);
    if (owned)
        heap_give(&heap, unit, order);
    heap_close(&heap);
    return owned;
}

void weir__block_free(struct weir__zone *zone, uint32_t unit, unsigned order,
                      const struct weir__group *group, unsigned slot)
{
    weir__block_free_owned(zone, unit, order, (uint32_t)(group - zone->groups), slot);
}

/* ---- looking at used ones ---- */

/* Whether the hand of a search stops at a block. */
static bool is_wanted(uint8_t mark, unsigned order, const struct weir__sampling *sampling,
                      unsigned leases)
{
    if (mark & (WEIR__MAP_FREE | WEIR__MAP_ROWS) || order < sampling->order)
        return false;
    if (mark & WEIR__MAP_LEASE)
        return sampling->leases_only || leases < WEIR__SAMPLED_LEASES;
    return !sampling->leases_only;
}

/* The block that a unit lies in. Blocks start at multiples of their size, and inside of them the map is 0. */
static bool heap_find(const struct heap *heap, uint32_t at, uint32_t *ret_unit, uint8_t *ret_mark,
                      unsigned *ret_order)
{
    for (unsigned order = 0; order <= WEIR__ORDER_MAX; order++) {
        uint32_t unit = at >> order << order;
        if (weir__map_at(heap->zone, unit) == 0)
            continue;
        *ret_unit = unit;
        return heap_read(heap, unit, ret_mark, ret_order) && *ret_order >= order;
    }
    return false;
}

static uint32_t heap_chance(const struct heap *heap)
{
    uint32_t chance = heap->it->chance ? heap->it->chance : (uint32_t)heap->zone->secret[0] | 1;
    chance ^= chance << 13;
    chance ^= chance >> 17;
    chance ^= chance << 5;
    heap->it->chance = chance;
    return (uint32_t)((uint64_t)chance * (heap->end - heap->first) >> 32);
}

/* The block where the hand is, which moves on. */
static bool heap_next(const struct heap *heap, uint32_t *ret_unit, uint8_t *ret_mark,
                      unsigned *ret_order)
{
    uint32_t size = heap->end - heap->first;
    *ret_unit = heap->first + (heap->it->hand < size ? heap->it->hand : 0);
    if (!heap_read(heap, *ret_unit, ret_mark, ret_order))
        return false;
    uint32_t next = *ret_unit - heap->first + (1u << *ret_order);
    heap->it->hand = next < size ? next : 0;
    return true;
}

size_t weir__block_sample(struct weir__zone *zone, uint32_t arena,
                          const struct weir__sampling *sampling, struct weir__sample *ret,
                          size_t room)
{
    struct heap heap;
    size_t n = 0;
    unsigned leases = 0, steps = sampling->steps + WEIR__SAMPLED_AT_RANDOM;
    assert(sampling->by_hand <= room);
    if (!heap_open(zone, arena, &heap))
        return 0;
    for (unsigned i = 0; i < steps && n < room && !heap.it->damaged; i++) {
        struct weir__sample it = {0};
        uint8_t mark;
        bool by_hand = i < sampling->steps && n < sampling->by_hand;
        i = by_hand || i >= sampling->steps ? i : sampling->steps;
        if (!(by_hand ? heap_next(&heap, &it.unit, &mark, &it.order)
                      : heap_find(&heap, heap.first + heap_chance(&heap), &it.unit, &mark,
                                  &it.order))) {
            heap_relist(&heap);
            break;
        }
        if (is_wanted(mark, it.order, sampling, leases)) {
            leases += mark & WEIR__MAP_LEASE ? 1 : 0;
            ret[n++] = it;
        }
    }
    heap_close(&heap);
    return n;
}

size_t weir__block_list(struct weir__zone *zone, uint32_t *unit, struct weir__sample *ret,
                        size_t room)
{
    struct heap heap;
    size_t n = 0;
    if (!heap_open(zone, *unit >> WEIR__ARENA_BITS, &heap))
        return SIZE_MAX;
    while (*unit < heap.end && n < room) {
        uint8_t mark = weir__map_at(zone, *unit);
        unsigned order = (mark & WEIR__MAP_ORDER) - 1u;
        if (mark == 0) { /* it was a block's start when we were last here */
            ++*unit;
            continue;
        }
        if (!heap_read(&heap, *unit, &mark, &order)) {
            *unit = heap.end;
            break;
        }
        if (!(mark & WEIR__MAP_FREE))
            ret[n++] = (struct weir__sample){.unit = *unit, .order = order};
        *unit += 1u << order;
    }
    heap_close(&heap);
    return n;
}

bool weir__arena_is_sound(struct weir__zone *zone, uint32_t arena, bool *ret_held)
{
    struct heap heap;
    uint32_t used = 0, unit;
    *ret_held = !heap_open(zone, arena, &heap);
    if (*ret_held)
        return true;
    for (unit = heap.first; unit < heap.end;) {
        uint8_t mark;
        unsigned order;
        if (!heap_read(&heap, unit, &mark, &order))
            break;
        used += mark & WEIR__MAP_FREE ? 0 : 1u << order;
        unit += 1u << order;
    }
    bool sound = unit == heap.end && !heap.it->damaged &&
                 used == atomic_load_explicit(&heap.it->used, memory_order_relaxed);
    heap_close(&heap);
    return sound;
}

/* ---- a place made of many blocks (zone/hunt.c) ---- */

/* Counts the used blocks of an aligned place; false: it cannot be cleared. */
static bool place_weigh(const struct heap *heap, uint32_t place, const struct weir__want *want,
                        uint32_t *ret_used)
{
    uint32_t end = place + (1u << want->order);
    *ret_used = 0;
    for (uint32_t unit = place; unit < end;) {
        uint8_t mark;
        unsigned order;
        if (!heap_read(heap, unit, &mark, &order) || order >= want->order ||
            mark & (WEIR__MAP_LEASE | WEIR__MAP_ROWS) || unit == want->has)
            return false;
        *ret_used += !(mark & WEIR__MAP_FREE);
        unit += 1u << order;
    }
    return *ret_used <= WEIR__CLEARED_MAX;
}

/* Free blocks of the place become used ones of ours, for the time being. False: torn. */
static bool place_fill(const struct heap *heap, uint32_t place, const struct weir__want *want)
{
    uint32_t end = place + (1u << want->order);
    for (uint32_t unit = place; unit < end;) {
        uint8_t mark;
        unsigned order;
        if (!heap_read(heap, unit, &mark, &order) || order >= want->order)
            return false;
        if (mark & WEIR__MAP_FREE) {
            if (!heap_pull(heap, unit, order)) {
                heap_relist(heap);
                return false;
            }
            heap_own(heap, unit, want);
            heap_mark(heap, unit, order + 1);
            heap_count(heap, 0, INT64_C(1) << order);
        }
        unit += 1u << order;
    }
    return true;
}

bool weir__place_choose(struct weir__zone *zone, uint32_t arena, const struct weir__want *want,
                        uint32_t *ret_place)
{
    struct heap heap;
    bool found = false;
    if (!heap_open(zone, arena, &heap))
        return false;
    uint32_t places = (heap.end - heap.first) >> want->order;
    uint32_t tried = WEIR__SAMPLED_MARKS >> want->order, fewest = UINT32_MAX;
    tried = tried > 4 ? tried : 4;
    for (uint32_t i = 0; i < places && i < tried && !heap.it->damaged; i++) {
        uint32_t used, at = (heap.it->place >> want->order) % places;
        uint32_t place = heap.first + (at << want->order);
        heap.it->place = (at + 1) << want->order;
        if (place_weigh(&heap, place, want, &used) && used < fewest) {
            fewest = used;
            *ret_place = place;
            found = true;
        }
    }
    found = found && place_fill(&heap, *ret_place, want);
    heap_close(&heap);
    return found;
}

size_t weir__place_others(struct weir__zone *zone, uint32_t place, const struct weir__want *want,
                          struct weir__sample *ret, size_t room)
{
    struct heap heap;
    size_t n = 0;
    if (!heap_open(zone, place >> WEIR__ARENA_BITS, &heap))
        return SIZE_MAX;
    if (!place_fill(&heap, place, want))
        n = SIZE_MAX;
    for (uint32_t unit = place; n < room && unit < place + (1u << want->order);) {
        uint8_t mark;
        unsigned order;
        if (!heap_read(&heap, unit, &mark, &order) || mark & (WEIR__MAP_LEASE | WEIR__MAP_ROWS)) {
            n = SIZE_MAX;
            break;
        }
        if (!is_owned(zone, unit, order, want->group, want->slot))
            ret[n++] = (struct weir__sample){.unit = unit, .order = order};
        unit += 1u << order;
    }
    heap_close(&heap);
    return n;
}

bool weir__place_own(struct weir__zone *zone, const struct weir__sample *it,
                     const struct weir__want *want)
{
    struct heap heap;
    if (!heap_open(zone, it->unit >> WEIR__ARENA_BITS, &heap))
        return false;
    bool owned = is_owned(zone, it->unit, it->order, it->group, it->slot);
    if (owned)
        heap_own(&heap, it->unit, want);
    heap_close(&heap);
    return owned;
}

bool weir__place_join(struct weir__zone *zone, uint32_t place, const struct weir__want *want)
{
    struct heap heap;
    bool ours = true;
    if (!heap_open(zone, place >> WEIR__ARENA_BITS, &heap))
        return false;
    for (uint32_t unit = place; unit < place + (1u << want->order) && ours;) {
        uint8_t mark;
        unsigned order = 0;
        ours = heap_read(&heap, unit, &mark, &order) &&
               is_owned(zone, unit, order, want->group, want->slot);
        unit += 1u << order;
    }
    if (ours) {
        heap_mark(&heap, place, want->flags | (want->order + 1));
        memset((uint8_t *)zone->map + place + 1, 0, (1u << want->order) - 1);
        heap_count(&heap, 0, -(INT64_C(1) << want->order));
        heap_count(&heap, want->flags, INT64_C(1) << want->order);
        if (heap.it->hand > place - heap.first &&
            heap.it->hand < place - heap.first + (1u << want->order))
            heap.it->hand = place - heap.first;
    }
    heap_close(&heap);
    return ours;
}

void weir__place_give(struct weir__zone *zone, uint32_t place, const struct weir__want *want)
{
    struct heap heap;
    if (!heap_open(zone, place >> WEIR__ARENA_BITS, &heap))
        return;
    uint32_t end = place + (1u << want->order);
    for (uint32_t unit = place; unit < end;) {
        uint8_t mark;
        unsigned order;
        if (!heap_read(&heap, unit, &mark, &order))
            break;
        uint32_t next = unit + (1u << order); /* what is merged ends there as well */
        if (is_owned(zone, unit, order, want->group, want->slot))
            heap_give(&heap, unit, order);
        unit = next;
    }
    heap_close(&heap);
}

/* ---- all of them ---- */

bool weir__leases_fit(struct weir__zone *zone, unsigned order)
{
    int64_t most = zone->layout.units / 2, more = INT64_C(1) << order;
    return atomic_load_explicit(&zone->header->lease_units, memory_order_relaxed) + more <= most;
}

void weir__leases_recount(struct weir__zone *zone)
{
    int64_t units = 0;
    for (uint32_t i = 0; i < zone->layout.arenas; i++)
        units += atomic_load_explicit(&zone->arenas[i].leases, memory_order_relaxed);
    atomic_store_explicit(&zone->header->lease_units, units, memory_order_relaxed);
}

uint64_t weir__blocks_used(const struct weir__zone *zone)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < zone->layout.arenas; i++)
        units += atomic_load_explicit(&zone->arenas[i].used, memory_order_relaxed);
    return units * WEIR__BLOCK_UNIT;
}

/* Lists of a map that has used blocks only, and zeros. */
static void make_lists(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < zone->layout.arenas; i++) {
        struct heap heap = heap_of(zone, i);
        uint32_t gap = heap.first, unit = heap.first;
        while (unit < heap.end) {
            uint8_t mark;
            unsigned order;
            if (!heap_read(&heap, unit, &mark, &order)) { /* nobody's */
                unit++;
                continue;
            }
            heap_add_gap(&heap, gap, unit, false);
            unit += 1u << order;
            gap = unit;
        }
        heap_add_gap(&heap, gap, heap.end, false);
        heap_relist(&heap);
    }
    weir__leases_recount(zone);
}

void weir__blocks_init(struct weir__zone *zone)
{
    memset((uint8_t *)zone->map, 0, zone->layout.units);
    make_lists(zone);
}

bool weir__block_claim(struct weir__zone *zone, uint32_t unit, const struct weir__want *want)
{
    uint32_t size = 1u << want->order;
    if (want->order > WEIR__ORDER_MAX || unit & (size - 1) ||
        (uint64_t)unit + size > zone->layout.units)
        return false;
    for (uint32_t i = 0; i < size; i++) {
        if (weir__map_at(zone, unit + i))
            return false;
    }
    struct heap heap = heap_of(zone, unit >> WEIR__ARENA_BITS);
    memset((uint8_t *)zone->map + unit, WEIR__MAP_FREE, size); /* nobody else claims a part of it */
    heap_own(&heap, unit, want);
    heap_mark(&heap, unit, want->flags | (want->order + 1));
    return true;
}

/* One slot's block. One that another slot has, or that makes no sense, is left for the check. */
static void claim_for(struct weir__zone *zone, uint32_t group, unsigned slot)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit = 0;
    unsigned order = 0;
    if (!weir__slot_unpack(zone, &zone->groups[group], slot, &rule, &state, &unit, &order) ||
        !weir__is_large(rule))
        return;
    struct weir__want want = {group, slot, order, weir__block_flags(rule), WEIR__NO_UNIT};
    weir__block_claim(zone, unit, &want);
}

void weir__blocks_recover(struct weir__zone *zone)
{
    memset((uint8_t *)zone->map, 0, zone->layout.units);
    for (uint32_t c = 0; c < zone->layout.chunks; c++) {
        struct weir__want want = weir__chunk_want(c);
        uint32_t unit = atomic_load_explicit(&zone->chunks[c], memory_order_relaxed);
        if (unit)
            weir__block_claim(zone, unit - 1, &want);
    }
    for (uint64_t g = 0; g < zone->group_count; g++) {
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(&zone->groups[g], slot))
                claim_for(zone, (uint32_t)g, slot);
        }
    }
    make_lists(zone);
}

unsigned weir__order_for(int64_t cells)
{
    unsigned order = 0;
    while (order < WEIR__ORDER_MAX && weir__block_cells(order) < cells)
        order++;
    return order;
}

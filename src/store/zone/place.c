/*
 * A place for a large block, made of many small ones (zone/hunt.c): chosen, filled, taken over one
 * by one, joined. All of its blocks are used meanwhile, so that nobody else gets one of them.
 */
#include "store/zone/arena.h"

#include <string.h>

#define LEASE_WEIGHT 4 /* moving a lease is more work than evicting so many others of its size */

/* Weighs the used blocks of an aligned place; false: it cannot be cleared. */
static bool place_weigh(const struct weir__heap *heap, uint32_t place,
                        const struct weir__want *want, uint32_t *ret_weight)
{
    uint32_t end = place + (1u << want->order), used = 0;
    *ret_weight = 0;
    for (uint32_t unit = place; unit < end;) {
        uint8_t mark;
        unsigned order;
        if (!weir__heap_read(heap, unit, &mark, &order) || order >= want->order ||
            mark & WEIR__MAP_ROWS || unit == want->has)
            return false;
        used += !(mark & WEIR__MAP_FREE);
        if (!(mark & WEIR__MAP_FREE)) /* a log with many entries is worth more than many with few */
            *ret_weight += (mark & WEIR__MAP_LEASE ? LEASE_WEIGHT : 1u) * (order + 1) << order;
        unit += 1u << order;
    }
    return used <= WEIR__CLEARED_MAX;
}

/* Free blocks of the place become used ones of ours, for the time being. False: it cannot be. */
static bool place_fill(const struct weir__heap *heap, uint32_t place, const struct weir__want *want)
{
    uint32_t end = place + (1u << want->order);
    for (uint32_t unit = place; unit < end;) {
        uint8_t mark;
        unsigned order;
        if (!weir__heap_read(heap, unit, &mark, &order) || order >= want->order)
            return false;
        if (mark & WEIR__MAP_FREE) {
            if (!weir__heap_remove(heap, order)) {
                weir__heap_recount(heap);
                return false;
            }
            weir__heap_own(heap, unit, want);
            weir__heap_mark(heap, unit, order + 1);
            weir__heap_count(heap, 0, INT64_C(1) << order);
        }
        unit += 1u << order;
    }
    return true;
}

bool weir__place_choose(struct weir__zone *zone, uint32_t arena, const struct weir__want *want,
                        uint32_t *left, uint32_t *ret_place)
{
    struct weir__heap heap;
    bool found = false;
    if (!weir__heap_open(zone, arena, &heap))
        return false;
    uint32_t places = (heap.end - heap.first) >> want->order;
    uint32_t tried = WEIR__SAMPLED_MARKS >> want->order, lightest = UINT32_MAX;
    tried = tried > 4 ? tried : 4;
    *left = heap.it->damaged ? 0 : *left < places ? *left : places;
    for (; tried > 0 && *left > 0; tried--, --*left) {
        uint32_t weight, at = (heap.it->place >> want->order) % places;
        uint32_t place = heap.first + (at << want->order);
        heap.it->place = (at + 1) << want->order;
        if (place_weigh(&heap, place, want, &weight) && weight < lightest) {
            lightest = weight;
            *ret_place = place;
            found = true;
        }
    }
    found = found && place_fill(&heap, *ret_place, want);
    weir__heap_close(&heap);
    return found;
}

size_t weir__place_others(struct weir__zone *zone, uint32_t place, const struct weir__want *want,
                          uint32_t *unit, struct weir__sample *ret, size_t room)
{
    struct weir__heap heap;
    uint32_t end = place + (1u << want->order);
    size_t n = 0;
    assert(*unit >= place && *unit <= end);
    if (!weir__heap_open(zone, place >> WEIR__ARENA_BITS, &heap))
        return SIZE_MAX;
    if (!place_fill(&heap, place, want))
        n = SIZE_MAX;
    while (n < room && *unit < end) {
        uint8_t mark = weir__map_at(zone, *unit);
        unsigned order = 0;
        if (mark != 0 && (!weir__heap_read(&heap, *unit, &mark, &order) || mark & WEIR__MAP_ROWS)) {
            n = SIZE_MAX;
            break;
        }
        if (mark != 0 && !weir__block_is_owned(zone, *unit, order, want->group, want->slot))
            ret[n++] = (struct weir__sample){.unit = *unit, .order = order};
        *unit += 1u << order;
    }
    weir__heap_close(&heap);
    return n;
}

bool weir__place_own(struct weir__zone *zone, const struct weir__sample *it,
                     const struct weir__want *want)
{
    struct weir__heap heap;
    if (!weir__heap_open(zone, it->unit >> WEIR__ARENA_BITS, &heap))
        return false;
    bool owned = weir__block_is_owned(zone, it->unit, it->order, it->group, it->slot);
    if (owned) {
        int64_t size = INT64_C(1) << it->order;
        weir__heap_own(&heap, it->unit, want);
        weir__heap_count(&heap, weir__map_at(zone, it->unit), -size);
        weir__heap_mark(&heap, it->unit, it->order + 1); /* no longer a lease's */
        weir__heap_count(&heap, 0, size);
    }
    weir__heap_close(&heap);
    return owned;
}

bool weir__place_join(struct weir__zone *zone, uint32_t place, const struct weir__want *want)
{
    struct weir__heap heap;
    bool ours = true;
    if (!weir__heap_open(zone, place >> WEIR__ARENA_BITS, &heap))
        return false;
    for (uint32_t unit = place; unit < place + (1u << want->order) && ours;) {
        uint8_t mark;
        unsigned order = 0;
        ours = weir__heap_read(&heap, unit, &mark, &order) &&
               weir__block_is_owned(zone, unit, order, want->group, want->slot);
        unit += 1u << order;
    }
    if (ours) {
        weir__heap_mark(&heap, place, want->flags | (want->order + 1));
        memset((uint8_t *)zone->map + place + 1, 0, (1u << want->order) - 1);
        weir__heap_count(&heap, 0, -(INT64_C(1) << want->order));
        weir__heap_count(&heap, want->flags, INT64_C(1) << want->order);
        if (heap.it->hand > place - heap.first &&
            heap.it->hand < place - heap.first + (1u << want->order))
            heap.it->hand = place - heap.first;
    }
    weir__heap_close(&heap);
    return ours;
}

void weir__place_give(struct weir__zone *zone, uint32_t place, const struct weir__want *want)
{
    struct weir__heap heap;
    if (!weir__heap_open(zone, place >> WEIR__ARENA_BITS, &heap))
        return;
    uint32_t end = place + (1u << want->order);
    for (uint32_t unit = place; unit < end;) {
        uint8_t mark;
        unsigned order;
        if (!weir__heap_read(&heap, unit, &mark, &order))
            break;
        uint32_t next = unit + (1u << order); /* what is merged ends there as well */
        if (weir__block_is_owned(zone, unit, order, want->group, want->slot))
            weir__heap_give(&heap, unit, order);
        unit = next;
    }
    weir__heap_close(&heap);
}

/* Blocks of a zone: to be had, given back, looked at, and recovered (zone/arena.c has each
 * arena). */
#include "store/zone/arena.h"

#include <string.h>

#define ARENAS_TRIED 256 /* for a free block, from the key's own on */

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
        struct weir__heap heap;
        if (atomic_load_explicit(&zone->room[arena], memory_order_relaxed) > want->order) {
            if (!weir__heap_open(zone, arena, &heap))
                return WEIR__HELD;
            bool done = weir__heap_take(&heap, want, ret_unit);
            weir__heap_close(&heap);
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
    struct weir__heap heap;
    if (unit >= zone->layout.units || order > WEIR__ORDER_MAX ||
        !weir__heap_open(zone, unit >> WEIR__ARENA_BITS, &heap))
        return false; /* nobody's, until somebody looks for blocks that are nobody's */
    bool owned = weir__block_is_owned(zone, unit, order, group, slot);
    if (owned)
        weir__heap_give(&heap, unit, order);
    weir__heap_close(&heap);
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
    return !(mark & WEIR__MAP_LEASE) || leases < WEIR__SAMPLED_LEASES;
}

/* The block that a unit lies in. Blocks start at multiples of their size; inside the map is 0. */
static bool heap_find(const struct weir__heap *heap, uint32_t at, uint32_t *ret_unit,
                      uint8_t *ret_mark, unsigned *ret_order)
{
    for (unsigned order = 0; order <= WEIR__ORDER_MAX; order++) {
        uint32_t unit = at >> order << order;
        if (weir__map_at(heap->zone, unit) == 0)
            continue;
        *ret_unit = unit;
        return weir__heap_read(heap, unit, ret_mark, ret_order) && *ret_order >= order;
    }
    return false;
}

static uint32_t heap_chance(const struct weir__heap *heap)
{
    uint32_t chance = heap->it->chance ? heap->it->chance : (uint32_t)heap->zone->secret[0] | 1;
    chance ^= chance << 13;
    chance ^= chance >> 17;
    chance ^= chance << 5;
    heap->it->chance = chance;
    return (uint32_t)((uint64_t)chance * (heap->end - heap->first) >> 32);
}

/* The block where the hand is, which moves on. */
static bool heap_next(const struct weir__heap *heap, uint32_t *ret_unit, uint8_t *ret_mark,
                      unsigned *ret_order)
{
    uint32_t size = heap->end - heap->first;
    *ret_unit = heap->first + (heap->it->hand < size ? heap->it->hand : 0);
    if (!weir__heap_read(heap, *ret_unit, ret_mark, ret_order))
        return false;
    uint32_t next = *ret_unit - heap->first + (1u << *ret_order);
    heap->it->hand = next < size ? next : 0;
    return true;
}

size_t weir__block_sample(struct weir__zone *zone, uint32_t arena,
                          const struct weir__sampling *sampling, struct weir__sample *ret,
                          size_t room)
{
    struct weir__heap heap;
    size_t n = 0;
    unsigned leases = 0, steps = sampling->steps + WEIR__SAMPLED_AT_RANDOM;
    assert(sampling->by_hand <= room);
    if (!weir__heap_open(zone, arena, &heap))
        return 0;
    for (unsigned i = 0; i < steps && n < room && !heap.it->damaged; i++) {
        struct weir__sample it = {0};
        uint8_t mark;
        bool by_hand = i < sampling->steps && n < sampling->by_hand;
        i = by_hand || i >= sampling->steps ? i : sampling->steps;
        if (!(by_hand ? heap_next(&heap, &it.unit, &mark, &it.order)
                      : heap_find(&heap, heap.first + heap_chance(&heap), &it.unit, &mark,
                                  &it.order))) {
            weir__heap_recount(&heap);
            break;
        }
        if (is_wanted(mark, it.order, sampling, leases)) {
            leases += mark & WEIR__MAP_LEASE ? 1 : 0;
            ret[n++] = it;
        }
    }
    weir__heap_close(&heap);
    return n;
}

/* ---- those whose states are fresh ---- */

bool weir__arena_has_others(const struct weir__zone *zone, uint32_t arena)
{
    const struct weir__block_arena *it = &zone->arenas[arena];
    return atomic_load_explicit(&it->used, memory_order_relaxed) >
           atomic_load_explicit(&it->leases, memory_order_relaxed) +
               atomic_load_explicit(&it->rows, memory_order_relaxed);
}

/* Without the lock it is a guess. While somebody searches, it may be any time. */
int64_t weir__arena_lapses_at(const struct weir__zone *zone, uint32_t arena, bool leases)
{
    const struct weir__block_arena *it = &zone->arenas[arena];
    bool any = leases ? atomic_load_explicit(&it->leases, memory_order_relaxed) > 0
                      : weir__arena_has_others(zone, arena);
    if (!any)
        return INT64_MAX;
    return it->lapse_hand[leases] ? 0 : atomic_load(&it->lapses_us[leases]);
}

bool weir__arena_may_have_lapsed(const struct weir__zone *zone, uint32_t arena, bool leases,
                                 int64_t now_us)
{
    return weir__arena_lapses_at(zone, arena, leases) <= now_us;
}

static void lapses_lower(_Atomic int64_t *lapses, int64_t to)
{
    int64_t was = atomic_load(lapses);
    while (to < was && !atomic_compare_exchange_weak(lapses, &was, to))
        ;
}

/* A time that moves on, as most do, changes nothing for a search. Otherwise the block's own comes
 * first: a search that begins behind us reads it, one that began before us keeps the arena's. */
void weir__block_note(struct weir__zone *zone, uint32_t unit, bool leases, int64_t fresh_at)
{
    _Atomic int64_t *lapses = &weir__block_at(zone, unit)->lapses_us;
    int64_t was = atomic_load_explicit(lapses, memory_order_relaxed);
    if (WEIR__LIKELY(was != 0 && fresh_at >= was)) {
        atomic_store_explicit(lapses, fresh_at, memory_order_relaxed);
        return;
    }
    atomic_store(lapses, fresh_at);
    lapses_lower(&zone->arenas[unit >> WEIR__ARENA_BITS].lapses_us[leases], fresh_at);
}

void weir__blocks_forget_lapses(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < zone->layout.arenas; i++) {
        for (int leases = 0; leases < 2; leases++)
            atomic_store(&zone->arenas[i].lapses_us[leases], 0);
    }
}

/* Where a search for fresh states goes on: blocks may have been joined since. */
static uint32_t heap_lapse_hand(const struct weir__heap *heap, bool leases)
{
    uint32_t at = heap->it->lapse_hand[leases], unit;
    uint8_t mark;
    unsigned order;
    if (at < heap->end - heap->first && heap_find(heap, heap->first + at, &unit, &mark, &order))
        return unit;
    return heap->first;
}

/* Looks at the next blocks. The arena's time gets as low as each block's. */
static size_t heap_find_lapsed(const struct weir__heap *heap, bool leases, int64_t now_us,
                               struct weir__sample *ret, size_t room)
{
    uint32_t unit = heap_lapse_hand(heap, leases), most = unit + WEIR__LAPSES_AT_ONCE;
    _Atomic int64_t *lapses = &heap->it->lapses_us[leases];
    size_t n = 0;
    if (unit == heap->first)
        atomic_store(lapses, INT64_MAX);
    while (unit < heap->end && unit < most && n < room) {
        uint8_t mark;
        unsigned order;
        if (!weir__heap_read(heap, unit, &mark, &order)) {
            weir__heap_recount(heap);
            return 0;
        }
        if (!(mark & (WEIR__MAP_FREE | WEIR__MAP_ROWS)) && !(mark & WEIR__MAP_LEASE) == !leases) {
            int64_t at = atomic_load(&weir__block_at(heap->zone, unit)->lapses_us);
            lapses_lower(lapses, at);
            if (at <= now_us)
                ret[n++] = (struct weir__sample){.unit = unit, .order = order};
        }
        unit += 1u << order;
    }
    heap->it->lapse_hand[leases] = unit < heap->end ? unit - heap->first : 0;
    return n;
}

size_t weir__block_lapsed(struct weir__zone *zone, uint32_t arena, bool leases, int64_t now_us,
                          struct weir__sample *ret, size_t room, bool *ret_more)
{
    struct weir__heap heap;
    size_t n = 0;
    *ret_more = false;
    if (!weir__heap_open(zone, arena, &heap))
        return 0;
    if (!heap.it->damaged && weir__arena_may_have_lapsed(zone, arena, leases, now_us)) {
        n = heap_find_lapsed(&heap, leases, now_us, ret, room);
        *ret_more = heap.it->lapse_hand[leases] != 0;
    }
    weir__heap_close(&heap);
    return n;
}

/* ---- going through them ---- */

size_t weir__block_list(struct weir__zone *zone, uint32_t *unit, struct weir__sample *ret,
                        size_t room)
{
    struct weir__heap heap;
    size_t n = 0;
    if (!weir__heap_open(zone, *unit >> WEIR__ARENA_BITS, &heap))
        return SIZE_MAX;
    while (*unit < heap.end && n < room) {
        uint8_t mark = weir__map_at(zone, *unit);
        unsigned order = (mark & WEIR__MAP_ORDER) - 1u;
        if (mark == 0) { /* it was a block's start when we were last here */
            ++*unit;
            continue;
        }
        if (!weir__heap_read(&heap, *unit, &mark, &order)) {
            *unit = heap.end;
            break;
        }
        if (!(mark & WEIR__MAP_FREE))
            ret[n++] = (struct weir__sample){.unit = *unit, .order = order};
        *unit += 1u << order;
    }
    weir__heap_close(&heap);
    return n;
}

bool weir__arena_is_sound(struct weir__zone *zone, uint32_t arena, bool *ret_held)
{
    struct weir__heap heap;
    uint32_t used = 0, unit;
    uint16_t free[WEIR__ORDER_MAX + 1] = {0};
    *ret_held = !weir__heap_open(zone, arena, &heap);
    if (*ret_held)
        return true;
    for (unit = heap.first; unit < heap.end;) {
        uint8_t mark;
        unsigned order;
        if (!weir__heap_read(&heap, unit, &mark, &order))
            break;
        used += mark & WEIR__MAP_FREE ? 0 : 1u << order;
        free[order] += mark & WEIR__MAP_FREE ? 1 : 0;
        unit += 1u << order;
    }
    bool sound = unit == heap.end && !heap.it->damaged &&
                 memcmp(free, heap.it->free, sizeof free) == 0 &&
                 used == atomic_load_explicit(&heap.it->used, memory_order_relaxed);
    weir__heap_close(&heap);
    return sound;
}

/* ---- all of them ---- */

bool weir__leases_fit(const struct weir__zone *zone, unsigned order)
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

/* What is not used becomes free, in a map that has used blocks only, and zeros. */
static void free_the_rest(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < zone->layout.arenas; i++) {
        struct weir__heap heap = weir__heap_of(zone, i);
        uint32_t gap = heap.first, unit = heap.first;
        while (unit < heap.end) {
            uint8_t mark;
            unsigned order;
            if (!weir__heap_read(&heap, unit, &mark, &order)) { /* nobody's */
                unit++;
                continue;
            }
            weir__heap_add_gap(&heap, gap, unit, false);
            unit += 1u << order;
            gap = unit;
        }
        weir__heap_add_gap(&heap, gap, heap.end, false);
        weir__heap_recount(&heap);
    }
    weir__leases_recount(zone);
}

void weir__blocks_init(struct weir__zone *zone)
{
    memset((uint8_t *)zone->map, 0, zone->layout.units);
    free_the_rest(zone);
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
    struct weir__heap heap = weir__heap_of(zone, unit >> WEIR__ARENA_BITS);
    memset((uint8_t *)zone->map + unit, WEIR__MAP_FREE, size); /* nobody else claims a part of it */
    weir__heap_own(&heap, unit, want);
    weir__heap_mark(&heap, unit, want->flags | (want->order + 1));
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
    free_the_rest(zone);
}

unsigned weir__order_for(int64_t cells)
{
    unsigned order = 0;
    while (order < WEIR__ORDER_MAX && weir__block_cells(order) < cells)
        order++;
    return order;
}

/*
 * Rows: the rules in use, so that a slot can name its rule in 11 bits and eviction can judge it. A row
 * is written once, whole, before any slot names it, and freed only when no state names it, with all
 * stripes held. At most one sweep a second looks for rows to free. Where every row has live states, those
 * with the fewest and least used lose them: whoever makes up limits by the thousand must not shut out the others'.
 * Rows of rules that this process has pinned are never freed by it, whether a state names them or not.
 */
#include "store/zone/zone.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FREE_ROW UINT8_MAX /* as a kind */
#define USE_WEIGHT 8       /* one state that is being denied weighs as much as so many others */
#define EVICTED_SHARE 8    /* one row in so many is freed where none is free */

static uint32_t find(const struct weir__zone *zone, const struct weir__rule *rule)
{
    uint32_t used = atomic_load_explicit(&zone->header->rows_used, memory_order_acquire);
    for (uint32_t i = 1; i <= used && i < zone->layout.rows; i++) {
        if (!memcmp(&zone->rows[i], rule, sizeof *rule))
            return i;
    }
    return 0;
}

/* A row not in use, the next never used or a freed one; 0: none. The kind is written last. */
static uint32_t make(struct weir__zone *zone, const struct weir__rule *rule)
{
    uint32_t used = atomic_load(&zone->header->rows_used);
    uint32_t row = 1;
    while (row <= used && row < zone->layout.rows && zone->rows[row].kind != FREE_ROW)
        row++;
    if (row >= zone->layout.rows)
        return 0;
    struct weir__rule unfinished = *rule;
    unfinished.kind = FREE_ROW;
    zone->rows[row] = unfinished;
    atomic_signal_fence(memory_order_seq_cst);
    zone->rows[row].kind = rule->kind;
    if (row > used)
        atomic_store_explicit(&zone->header->rows_used, row, memory_order_release);
    return row;
}

/* Weighs each row by its live states and how much they are used; slots of fresh ones are emptied on the
 * way. */
static void count_live(struct weir__zone *zone, int64_t now_us, uint32_t live[WEIR__ROWS_MAX + 1])
{
    for (uint64_t g = 0; g < zone->group_count; g++) {
        struct weir__group *group = &zone->groups[g];
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(group, slot) == 0)
                continue;
            const struct weir__rule *rule;
            struct weir__state state = {0};
            uint32_t unit;
            unsigned order;
            struct weir__packed sealed = weir__load16(&group->states[slot]);
            bool sound = weir__unpack(zone, weir__slot_tag(group, slot), sealed, &rule, &state,
                                      &unit, &order);
            bool fresh = !sound || weir__is_fresh(rule, &state, now_us);
            if (!fresh || !weir__slot_clear_if(zone, group, slot, sealed))
                live[weir__packed_row(zone, sealed)] +=
                    1 + USE_WEIGHT * weir__slot_denied(group, slot);
        }
    }
}

int weir__rule_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct weir__rule));
}

/* A pinned row has as many states as can be: none has more. */
#define PINNED UINT32_MAX

static void count_pinned(const struct weir__zone *zone, uint32_t used,
                         uint32_t live[WEIR__ROWS_MAX + 1])
{
    for (uint32_t i = 1; i <= used && zone->pinned_count > 0; i++) {
        if (bsearch(&zone->rows[i], zone->pinned, zone->pinned_count, sizeof *zone->pinned,
                    weir__rule_order))
            live[i] = PINNED;
    }
}

/* Empties the slots of the rows marked. */
static void evict_states(struct weir__zone *zone, const bool evicted[WEIR__ROWS_MAX + 1])
{
    for (uint64_t g = 0; g < zone->group_count; g++) {
        struct weir__group *group = &zone->groups[g];
        uint32_t stripe = weir__stripe_of(zone, (uint32_t)g);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(group, slot) == 0 || !evicted[weir__slot_row(zone, group, slot)])
                continue;
            zone->stripes[stripe].counters[WEIR__EVICTED_UNUSED]++;
            weir__slot_clear(zone, group, slot);
        }
    }
}

/* Every row has live states: those with the fewest, and least used, go. */
static void evict_rows(struct weir__zone *zone, uint32_t used, uint32_t live[WEIR__ROWS_MAX + 1])
{
    bool evicted[WEIR__ROWS_MAX + 1] = {false};
    for (uint32_t n = 0; n < used / EVICTED_SHARE + 1; n++) {
        uint32_t fewest = 1;
        for (uint32_t i = 2; i <= used; i++) {
            if (!evicted[i] && (evicted[fewest] || live[i] < live[fewest]))
                fewest = i;
        }
        if (live[fewest] == PINNED)
            break;
        evicted[fewest] = true;
        live[fewest] = 0;
    }
    evict_states(zone, evicted);
}

/* Frees the rows that no live state needs, or where all are needed, some that few do; false: a stripe is held. */
static bool sweep(struct weir__zone *zone, int64_t now_us)
{
    uint32_t live[WEIR__ROWS_MAX + 1] = {0};
    if (!weir__stripes_lock_all(zone))
        return false;
    count_live(zone, now_us, live);
    atomic_fetch_add(&zone->header->sweeps, 1);
    uint32_t used = atomic_load(&zone->header->rows_used);
    used = used < zone->layout.rows ? used : zone->layout.rows - 1;
    count_pinned(zone, used, live);
    bool full = true;
    for (uint32_t i = 1; i <= used; i++)
        full = full && live[i] > 0;
    if (full)
        evict_rows(zone, used, live);
    for (uint32_t i = 1; i <= used; i++) {
        if (!live[i])
            zone->rows[i].kind = FREE_ROW;
    }
    weir__stripes_unlock_all(zone);
    return true;
}

uint32_t weir__row_find(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us,
                        uint32_t *ret_sweeps)
{
    if (WEIR__UNLIKELY(!weir__stripe_lock(zone, weir__rows_stripe(zone))))
        return 0;
    uint32_t row = find(zone, rule);
    if (!row)
        row = make(zone, rule);
    uint64_t since_us = (uint64_t)now_us - (uint64_t)zone->header->swept_us; /* huge if ahead */
    if (!row && since_us >= 1000000) {
        sweep(zone, now_us);
        zone->header->swept_us = now_us; /* after it: one cut short does not count */
        row = make(zone, rule);
    }
    *ret_sweeps = atomic_load(&zone->header->sweeps);
    weir__stripe_unlock(zone, weir__rows_stripe(zone));
    return row;
}

int weir__rows_pin(struct weir__zone *zone, struct weir__rule *rules, size_t n, int64_t now_us)
{
    assert(n < zone->layout.rows);
    struct weir__rule *old = zone->pinned;
    size_t old_count = zone->pinned_count;
    if (!weir__stripe_lock(zone, weir__rows_stripe(zone)))
        return WEIR__HELD;
    zone->pinned = rules;
    zone->pinned_count = n;
    bool swept = true;
    for (size_t i = 0; i < n && swept; i++) {
        while (swept && !find(zone, &rules[i]) && !make(zone, &rules[i]))
            swept = sweep(zone, now_us); /* frees one at least: not all rows are pinned yet */
    }
    if (!swept) {
        zone->pinned = old;
        zone->pinned_count = old_count;
    }
    weir__stripe_unlock(zone, weir__rows_stripe(zone));
    if (!swept)
        return WEIR__HELD;
    free(old);
    return 0;
}

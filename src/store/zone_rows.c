/*
 * Rows: the rules in use, so that a slot can name its rule in 11 bits and eviction can judge it. A row
 * is written once, whole, before any slot names it, and freed only when no live state does, with all
 * stripes held. At most one sweep a second looks for rows to free.
 */
#include "store/zone.h"

#include <string.h>

#define FREE_ROW UINT8_MAX /* as a kind */

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

/* Marks the rows of live states; slots of fresh ones are emptied on the way. */
static void mark_live(struct weir__zone *zone, int64_t now_us, uint8_t live[WEIR__ROWS_MAX + 1])
{
    for (uint64_t g = 0; g < zone->group_count; g++) {
        struct weir__group *group = &zone->groups[g];
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (group->tags[slot] == 0)
                continue;
            const struct weir__rule *rule;
            struct weir__state state = {0};
            uint32_t unit;
            unsigned order;
            bool sound = weir__unpack(zone, group->states[slot], &rule, &state, &unit, &order);
            if (sound && !weir__is_fresh(rule, &state, now_us))
                live[weir__packed_row(group->states[slot])] = 1;
            else
                weir__slot_clear(zone, group, slot);
        }
    }
}

/* Frees the rows that no live state needs. */
static void sweep(struct weir__zone *zone, int64_t now_us)
{
    uint8_t live[WEIR__ROWS_MAX + 1] = {0};
    weir__stripes_lock_all(zone);
    mark_live(zone, now_us, live);
    atomic_fetch_add(&zone->header->sweeps, 1);
    uint32_t used = atomic_load(&zone->header->rows_used);
    for (uint32_t i = 1; i <= used && i < zone->layout.rows; i++) {
        if (!live[i])
            zone->rows[i].kind = FREE_ROW;
    }
    weir__stripes_unlock_all(zone);
}

uint32_t weir__row_find(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us,
                        uint32_t *ret_sweeps)
{
    weir__stripe_lock(zone, weir__rows_stripe(zone));
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

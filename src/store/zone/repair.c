/*
 * Putting in order what a dead process left in the table. Who inherits a stripe only notes that all
 * of its pages are torn. Each is repaired by the first who needs it, under the stripe's lock: so
 * nobody waits for more than one page, however many keys the stripe has.
 *
 * Takes without a lock go on meanwhile. What the dead one froze they find frozen, and go for the
 * lock. A death in the middle of a repair tears all pages of the stripe again.
 */
#include "core/ring.h"
#include "store/zone/zone.h"

bool weir__ring_recount(const struct weir__rule *rule, const struct weir__ring *ring,
                        int64_t *ret_sum)
{
    int64_t sum = 0, last = 0;
    for (uint32_t i = 0; i < ring->len; i++) {
        const struct weir__cell *cell = weir__ring_cell(ring, i);
        int64_t weight = weir__cell_weight(rule, cell);
        if (cell->stamp < last || weight < 1 || weight > WEIR__EXACT_MAX)
            return false;
        last = cell->stamp;
        sum += weight;
        if (sum > WEIR__EXACT_MAX)
            return false;
    }
    *ret_sum = sum;
    return true;
}

/* A log's newest entry is its newest time. Of a lease only this is known: it was acquired no longer
 * ago than any lease may last; its own length may be another limit's. */
static int64_t repair_newest(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t newest = weir__ring_last(&state->ring)->stamp;
    bool leases = weir__algorithm_of(rule)->leases;
    return leases ? weir__max(state->at, newest - WEIR_DURATION_MAX) : newest;
}

/* Sum and newest time as the cells say. What makes no sense stays, for the check to find. What is
 * right is not written: most blocks are far from each other, and a process that has not had them in
 * its memory yet gets many at once to read, but each alone to write. */
static void repair_slot(struct weir__zone *zone, struct weir__group *group, unsigned slot)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    int64_t sum;
    if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
        !weir__is_large(rule) || !weir__ring_recount(rule, &state.ring, &sum))
        return;
    if (sum != state.ring.sum)
        weir__block_at(zone, unit)->sum = sum;
    int64_t newest = state.ring.len > 0 ? repair_newest(rule, &state) : state.at;
    if (newest == state.at)
        return;
    state.at = newest;
    weir__slot_put(group, slot,
                   weir__pack(zone, rule, weir__slot_row(zone, group, slot),
                              weir__slot_tag(group, slot), &state, unit, order));
}

/* One slot that is not empty; whether it counts as a key. */
static bool repair_visit(struct weir__zone *zone, struct weir__group *group, unsigned slot)
{
    if (weir__is_frozen(weir__load16(&group->states[slot])))
        weir__slot_thaw(group, slot); /* the old state, or the new one */
    repair_slot(zone, group, slot);
    const struct weir__rule *rule = weir__row_at(zone, weir__slot_row(zone, group, slot));
    return !rule || !weir__is_mark(rule);
}

static void repair_page(struct weir__zone *zone, uint64_t page)
{
    uint32_t bits = zone->layout.page_bits, stripe = (uint32_t)page & (zone->layout.stripes - 1);
    uint64_t bit = UINT64_C(1) << page / zone->layout.stripes, keys = 0;
    assert(page < zone->layout.pages && zone->stripes[stripe].torn & bit);
    for (uint64_t g = page << bits; g < (page + 1) << bits; g++) {
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(&zone->groups[g], slot))
                keys += repair_visit(zone, &zone->groups[g], slot);
        }
    }
    zone->stripes[stripe].counters[WEIR__KEYS] += keys;
    zone->stripes[stripe].torn &= ~bit;
}

void weir__stripe_tear(struct weir__zone *zone, uint32_t stripe)
{
    uint64_t bits = 0;
    for (uint64_t page = stripe; page < zone->layout.pages; page += zone->layout.stripes)
        bits = bits << 1 | 1;
    zone->stripes[stripe].torn = bits;
    zone->stripes[stripe].counters[WEIR__KEYS] = 0;
    weir__blocks_forget_lapses(zone);
}

void weir__page_mend_torn(struct weir__zone *zone, uint32_t group)
{
    repair_page(zone, group >> zone->layout.page_bits);
}

bool weir__stripe_mend_one(struct weir__zone *zone, uint32_t stripe)
{
    uint64_t torn = zone->stripes[stripe].torn;
    if (torn == 0)
        return false;
    uint64_t page = stripe + (uint64_t)__builtin_ctzll(torn) * zone->layout.stripes;
    if (page < zone->layout.pages)
        repair_page(zone, page);
    else
        zone->stripes[stripe].torn = 0; /* damage: there is no such page, nor any behind it */
    return true;
}

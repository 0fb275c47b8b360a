/* Whether a zone is sound, and putting in order what a dead process left. */
#include "core/ring.h"
#include "limit/limit.h"
#include "store/zone/zone.h"

#include <stdlib.h>
#include <string.h>

/* What a check has seen of the blocks: a bit a unit. */
struct survey {
    struct weir__zone *zone;
    weir_error *err;
    uint8_t *taken;
};

/* Counts a ring again; false if its cells are out of order or without weight. */
static bool recount(const struct weir__rule *rule, const struct weir__ring *ring, int64_t *ret_sum)
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

static int damaged(struct survey *survey, uint64_t group, unsigned slot, const char *what)
{
    return weir__fail(
        survey->err, WEIR_EDAMAGED, 0,
        "the zone is damaged: %s (group %llu, slot %u); remove it and let weir make a "
        "new one",
        what, (unsigned long long)group, slot);
}

static int check_ring(struct survey *survey, uint64_t g, unsigned slot,
                      const struct weir__rule *rule, const struct weir__state *state, uint32_t unit,
                      unsigned order)
{
    int64_t sum;
    if (!weir__block_is_used(survey->zone, unit, order) &&
        !atomic_load(&survey->zone->header->blocks_suspect))
        return damaged(survey, g, slot, "a large state's block is not marked as used");
    for (uint32_t i = unit; i < unit + (1u << order); i++) {
        if (survey->taken[i / 8] & 1u << i % 8)
            return damaged(survey, g, slot, "two states claim one block");
        survey->taken[i / 8] |= (uint8_t)(1u << i % 8);
    }
    if (!recount(rule, &state->ring, &sum) || sum != state->ring.sum)
        return damaged(survey, g, slot, "a log's entries do not add up");
    if (state->ring.len == 0) /* what a death may leave of a log that began again */
        return 0;
    int64_t newest = weir__ring_last(&state->ring)->stamp;
    bool leases = weir__algorithm_of(rule)->leases;
    if (!leases && newest != state->at)
        return damaged(survey, g, slot, "a log's newest entry is not its newest");
    if (leases && newest > state->at + WEIR_DURATION_MAX)
        return damaged(survey, g, slot, "a lease outlives its time");
    return 0;
}

static int check_slot(struct survey *survey, uint64_t g, unsigned slot)
{
    struct weir__zone *zone = survey->zone;
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    struct weir__group *group = &zone->groups[g];
    if (weir__slot_tag(group, slot) == 0)
        return 0;
    if (weir__slot_row(zone, group, slot) > atomic_load(&zone->header->rows_used))
        return damaged(survey, g, slot, "a state without a limit");
    if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
        !weir__state_sound(rule, &state) ||
        (weir__is_mark(rule) && (state.at == 0 || state.amount != 1)))
        return damaged(survey, g, slot, "a state is invalid");
    if (!weir__is_large(rule))
        return 0;
    return check_ring(survey, g, slot, rule, &state, unit, order);
}

/* The groups of one stripe's pages, its lock held. */
static int check_stripe(struct survey *survey, uint32_t stripe)
{
    struct weir__zone *zone = survey->zone;
    uint32_t bits = zone->layout.page_bits;
    for (uint64_t page = stripe; page < zone->layout.pages; page += zone->layout.stripes) {
        for (uint64_t g = page << bits; g < (page + 1) << bits; g++) {
            for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
                int code = check_slot(survey, g, slot);
                if (code)
                    return code;
            }
        }
    }
    return 0;
}

static int check_rows(struct survey *survey)
{
    struct weir__zone *zone = survey->zone;
    uint32_t used = atomic_load(&zone->header->rows_used);
    if (used >= zone->layout.rows)
        return weir__fail(
            survey->err, WEIR_EDAMAGED, 0,
            "the zone is damaged: %u limits in room for %u; remove it and let weir make "
            "a new one",
            used, zone->layout.rows - 1);
    for (uint32_t i = 1; i <= used; i++) {
        const struct weir__rule *rule = weir__row_at(zone, i);
        if (rule && !weir__rule_sound(rule))
            return weir__fail(
                survey->err, WEIR_EDAMAGED, 0,
                "the zone is damaged: limit %u is invalid; remove it and let weir make a new one",
                i);
    }
    return 0;
}

/* All stripes at once: a block that moves between two of them must not be seen twice. The rows, too:
 * one that is being made makes no sense yet. */
int weir__zone_check(struct weir__zone *zone, weir_error *err)
{
    struct survey survey = {zone, err, calloc(zone->layout.units / 8 + 1, 1)};
    if (!survey.taken)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for checking the zone");
    bool rows = weir__stripe_lock(zone, weir__rows_stripe(zone));
    if (!rows || !weir__stripes_lock_all(zone)) {
        if (rows)
            weir__stripe_unlock(zone, weir__rows_stripe(zone));
        free(survey.taken);
        return weir__fail(err, WEIR_EBUSY, 0,
                          "another process holds a lock of the zone; is it stopped?");
    }
    int code = check_rows(&survey);
    for (uint32_t i = 0; i < zone->layout.stripes && code == 0; i++)
        code = check_stripe(&survey, i);
    weir__stripes_unlock_all(zone);
    weir__stripe_unlock(zone, weir__rows_stripe(zone));
    free(survey.taken);
    return code;
}

/* A log's newest entry is its newest time. Of a lease only this is known: it was acquired no longer ago
 * than any lease may last; its own length may be another limit's. */
static int64_t newest_time(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t newest = weir__ring_last(&state->ring)->stamp;
    bool leases = weir__algorithm_of(rule)->leases;
    return leases ? weir__max(state->at, newest - WEIR_DURATION_MAX) : newest;
}

/* Sum and newest time as the cells say. What makes no sense stays, for the check to find. */
static void repair_slot(struct weir__zone *zone, struct weir__group *group, unsigned slot)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
        !weir__is_large(rule) || !recount(rule, &state.ring, &state.ring.sum))
        return;
    weir__block_at(zone, unit)->sum = state.ring.sum;
    if (state.ring.len > 0)
        state.at = newest_time(rule, &state);
    weir__store16(&group->states[slot],
                  weir__pack(zone, rule, weir__slot_row(zone, group, slot),
                             weir__slot_tag(group, slot), &state, unit, order));
}

void weir__stripe_repair(struct weir__zone *zone, uint32_t stripe)
{
    uint64_t keys = 0;
    uint32_t bits = zone->layout.page_bits;
    for (uint64_t page = stripe; page < zone->layout.pages; page += zone->layout.stripes) {
        for (uint64_t g = page << bits; g < (page + 1) << bits; g++) {
            for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
                const struct weir__group *group = &zone->groups[g];
                if (weir__slot_tag(group, slot) == 0)
                    continue;
                repair_slot(zone, &zone->groups[g], slot);
                const struct weir__rule *rule =
                    weir__row_at(zone, weir__slot_row(zone, group, slot));
                keys += !rule || !weir__is_mark(rule);
            }
        }
    }
    zone->stripes[stripe].counters[WEIR__KEYS] = keys;
}

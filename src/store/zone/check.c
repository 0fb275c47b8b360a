/*
 * Whether a zone is sound. Everybody else goes on
 * meanwhile: a check has one lock at a time, for one page of the table, some rows, or the map of
 * one arena. What it finds is true of each of them by itself: a block names the one slot it is for,
 * so that two states with one block are found at the one that the block does not name.
 */
#include "core/ring.h"
#include "limit/limit.h"
#include "store/zone/rows.h"

#define LISTED 512 /* used blocks that are looked at between two locks */

struct survey {
    struct weir__zone *zone;
    weir_error *err;
};

int weir__zone_fail_slot(weir_error *err, const char *what, uint64_t group, unsigned slot)
{
    return weir__fail(err, WEIR_EDAMAGED, 0,
                      "the zone is damaged: %s (group %llu, slot %u); " WEIR__ZONE_REMEDY, what,
                      (unsigned long long)group, slot);
}

int weir__zone_fail_newer(weir_error *err, const struct weir__zone *zone, uint32_t row)
{
    return weir__fail(
        err, WEIR_EVERSION, 0,
        "a newer weir uses the zone: limit %u is of kind %u, which this weir does not "
        "know; use the newer weir, or another zone",
        row, (unsigned)weir__row_place(zone, row)->kind);
}

static int damaged(struct survey *survey, uint64_t group, unsigned slot, const char *what)
{
    return weir__zone_fail_slot(survey->err, what, group, slot);
}

static int check_ring(struct survey *survey, uint64_t g, unsigned slot,
                      const struct weir__rule *rule, const struct weir__state *state, uint32_t unit,
                      unsigned order)
{
    int64_t sum;
    const struct weir__block *block = weir__block_at(survey->zone, unit);
    if (!weir__block_is_used(survey->zone, unit, order))
        return damaged(survey, g, slot, "a large state's block is not marked as used");
    if (atomic_load(&block->group) != g || atomic_load(&block->slot) != slot)
        return damaged(survey, g, slot, "a large state's block is another's");
    if (!weir__ring_recount(rule, &state->ring, &sum) || sum != state->ring.sum)
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
    uint32_t row = weir__slot_row(zone, group, slot);
    if (row != WEIR__MARK_ROW &&
        (!weir__row_place(zone, row) || !weir__row_is_taken(zone, weir__bit_of_row(zone, row))))
        return damaged(survey, g, slot, "a state without a limit");
    if (weir__row_is_newer(zone, row))
        return weir__zone_fail_newer(survey->err, survey->zone, row);
    if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
        !weir__state_sound(rule, &state) ||
        (weir__is_mark(rule) && (state.at == 0 || state.amount != 1)))
        return damaged(survey, g, slot, "a state is invalid");
    if (!weir__is_large(rule))
        return 0;
    return check_ring(survey, g, slot, rule, &state, unit, order);
}

static int held(struct survey *survey)
{
    return weir__fail(survey->err, WEIR_EBUSY, 0,
                      "another process holds a lock of the zone; is it stopped?");
}

static int check_page(struct survey *survey, uint64_t page)
{
    struct weir__zone *zone = survey->zone;
    uint32_t bits = zone->layout.page_bits,
             stripe = weir__stripe_of(zone, (uint32_t)(page << bits));
    int code = 0;
    if (!weir__page_lock(zone, (uint32_t)(page << bits)))
        return held(survey);
    for (uint64_t g = page << bits; g < (page + 1) << bits && code == 0; g++) {
        for (unsigned slot = 0; slot < WEIR__SLOTS && code == 0; slot++)
            code = check_slot(survey, g, slot);
    }
    weir__stripe_unlock(zone, stripe);
    return code;
}

/* Frees a block that is nobody's; false: its stripe is held. */
static bool free_nobodys(struct weir__zone *zone, struct weir__sample *it)
{
    weir__block_guess(zone, it);
    if (it->group == WEIR__NO_GROUP)
        return weir__chunk_free_nobodys(zone, it);
    if (it->group >= zone->group_count || it->slot >= WEIR__SLOTS)
        return true;
    uint32_t stripe = weir__stripe_of(zone, it->group);
    if (!weir__page_lock(zone, it->group))
        return false;
    if (!weir__slot_names(zone, &zone->groups[it->group], it->slot, it->unit))
        weir__block_free_owned(zone, it->unit, it->order, it->group, it->slot);
    weir__stripe_unlock(zone, stripe);
    return true;
}

static int check_arena(struct survey *survey, uint32_t arena)
{
    struct weir__zone *zone = survey->zone;
    struct weir__sample blocks[LISTED];
    bool is_held;
    if (!weir__arena_is_sound(zone, arena, &is_held))
        return weir__fail(survey->err, WEIR_EDAMAGED, 0,
                          "the zone is damaged: the map of large states makes no sense (part "
                          "%u); " WEIR__ZONE_REMEDY,
                          arena);
    uint32_t unit = arena << WEIR__ARENA_BITS;
    while (!is_held && unit < zone->layout.units && unit >> WEIR__ARENA_BITS == arena) {
        size_t n = weir__block_list(zone, &unit, blocks, LISTED);
        is_held = n == SIZE_MAX;
        for (size_t i = 0; i < n && !is_held; i++)
            is_held = !free_nobodys(zone, &blocks[i]);
    }
    return is_held ? held(survey) : 0;
}

static int check_rows(struct survey *survey)
{
    uint32_t row;
    int code = weir__rows_check(survey->zone, &row);
    if (code == WEIR_EVERSION)
        return weir__zone_fail_newer(survey->err, survey->zone, row);
    if (code == WEIR_EDAMAGED)
        return weir__fail(survey->err, WEIR_EDAMAGED, 0,
                          "the zone is damaged: limit %u is invalid; " WEIR__ZONE_REMEDY, row);
    return code == WEIR__HELD ? held(survey) : code;
}

uint64_t weir__zone_marks(const struct weir__zone *zone, int64_t now_us)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < zone->group_count * WEIR__SLOTS; i++) {
        const struct weir__group *group = &zone->groups[i / WEIR__SLOTS];
        const unsigned slot = (unsigned)(i % WEIR__SLOTS);
        const struct weir__rule *rule;
        struct weir__state state = {0};
        uint32_t unit;
        unsigned order;
        if (weir__slot_tag(group, slot) && weir__slot_row(zone, group, slot) == WEIR__MARK_ROW &&
            weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order))
            count += now_us < state.at + WEIR__SETTLED_US;
    }
    return count;
}

int weir__zone_check(struct weir__zone *zone, weir_error *err)
{
    struct survey survey = {zone, err};
    int code = check_rows(&survey);
    for (uint64_t page = 0; page < zone->layout.pages && code == 0; page++)
        code = check_page(&survey, page);
    for (uint32_t i = 0; i < zone->layout.arenas && code == 0; i++)
        code = check_arena(&survey, i);
    return code;
}

/*
 * Room for a block where none is free. Some used blocks of an arena are looked at, some of them
 * where a hand goes around, some at random. zone/evict.h says which of them goes, as in the table.
 * The work is bounded. Other stripes are only tried, never waited for, one at a time.
 *
 * Live leases are never evicted, nor are chunks of rows.
 */
#include "store/zone/evict.h"

#define LOOKED_AT 8      /* blocks, of which the cheapest goes … */
#define BY_HAND 4        /* … so many of them in a row, so that none is left out for ever */
#define STEPS 64         /* of the hand for that */
#define ROUNDS 64        /* of looking at some … */
#define ROUNDS_RANDOM 16 /* … then only by hand, with as many steps as may be */
#define ROUNDS_LARGER 8  /* for a block of a higher order; then a place is cleared */
#define ROUNDS_LEASES 2  /* for leases that have lapsed, where no more leases fit */
#define PLACES 4         /* that it is tried to clear */
#define CLEARED_AT_ONCE 32

struct hunt {
    struct weir__zone *zone;
    const struct weir__op *ops; /* not to be evicted, and whose stripes are ours already */
    size_t n;
    int64_t now_us;
    const struct weir__want *want;
};

/* Whose a block is, as a look found out. */
enum found {
    KEPT,   /* this request's */
    NOBODY, /* its slot does not name it */
    NAMED
};

static bool hunt_has_stripe(const struct hunt *hunt, uint32_t stripe)
{
    for (size_t i = 0; i < hunt->n; i++) {
        if (weir__stripe_of(hunt->zone, hunt->ops[i].home) == stripe)
            return true;
    }
    return false;
}

/* Blocks of this request stay; what only says that it is the asking slot's was left by a death. */
static bool hunt_is_pinned(const struct hunt *hunt, const struct weir__sample *it)
{
    if (it->group == hunt->want->group && it->slot == hunt->want->slot)
        return it->unit == hunt->want->has;
    for (size_t i = 0; i < hunt->n; i++) {
        if (hunt->ops[i].group == &hunt->zone->groups[it->group] && hunt->ops[i].slot == it->slot)
            return true;
    }
    return false;
}

/* The stripe of a block's owner, without waiting. */
static bool hunt_lock(const struct hunt *hunt, const struct weir__sample *it)
{
    uint32_t stripe = weir__stripe_of(hunt->zone, it->group);
    return hunt_has_stripe(hunt, stripe) || weir__stripe_trylock(hunt->zone, stripe);
}

static void hunt_unlock(const struct hunt *hunt, const struct weir__sample *it)
{
    uint32_t stripe = weir__stripe_of(hunt->zone, it->group);
    if (!hunt_has_stripe(hunt, stripe))
        weir__stripe_unlock(hunt->zone, stripe);
}

/* The block may have been freed and may be in the middle of another's cells by now, so this is a
 * guess, and may be nonsense: it is checked under the lock of the stripe it names. That race is
 * meant, so the thread sanitizer does not look. */
__attribute__((no_sanitize("thread"))) void weir__block_guess(const struct weir__zone *zone,
                                                              struct weir__sample *it)
{
    const struct weir__block *block = weir__block_at(zone, it->unit);
    it->group = *(const volatile uint32_t *)&block->group;
    it->slot = *(const volatile uint32_t *)&block->slot;
}

bool weir__slot_names(const struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                      uint32_t unit)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t named;
    unsigned order;
    return weir__slot_tag(group, slot) != 0 &&
           weir__slot_unpack(zone, group, slot, &rule, &state, &named, &order) &&
           weir__is_large(rule) && named == unit;
}

static struct weir__group *hunt_group(const struct hunt *hunt, const struct weir__sample *it)
{
    return &hunt->zone->groups[it->group];
}

/* Its stripe is held. */
static enum found hunt_look(const struct hunt *hunt, const struct weir__sample *it)
{
    if (hunt_is_pinned(hunt, it))
        return KEPT;
    return weir__slot_names(hunt->zone, hunt_group(hunt, it), it->slot, it->unit) ? NAMED : NOBODY;
}

static void hunt_tally(const struct hunt *hunt, const struct weir__sample *it,
                       enum weir__standing standing)
{
    uint32_t stripe = weir__stripe_of(hunt->zone, it->group);
    hunt->zone->stripes[stripe].counters[weir__evicted_as(standing)]++;
}

/* Reads the owners of some blocks; keeps those that can be. Fetches what a look needs. */
static size_t hunt_guess(const struct hunt *hunt, struct weir__sample *blocks, size_t n)
{
    struct weir__zone *zone = hunt->zone;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(weir__block_at(zone, blocks[i].unit));
    for (size_t i = 0; i < n; i++) {
        struct weir__sample it = blocks[i];
        weir__block_guess(zone, &it);
        if (it.group >= zone->group_count || it.slot >= WEIR__SLOTS)
            continue;
        weir__prefetch_home(zone, it.group);
        __builtin_prefetch(&zone->stripes[weir__stripe_of(zone, it.group)], 1);
        blocks[count++] = it;
    }
    return count;
}

/* Frees a block that is nobody's or fresh, or adds it to the candidates. Its stripe is held. */
static bool hunt_consider(const struct hunt *hunt, const struct weir__sample *it,
                          struct weir__candidates *all)
{
    struct weir__zone *zone = hunt->zone;
    enum found found = hunt_look(hunt, it);
    if (found == NOBODY)
        return weir__block_free_owned(zone, it->unit, it->order, it->group, it->slot);
    if (found == KEPT ||
        !weir__candidates_add(zone, all, hunt_group(hunt, it), it->slot, hunt->now_us))
        return false;
    hunt_tally(hunt, it, WEIR__STANDS_FRESH);
    weir__slot_clear(zone, hunt_group(hunt, it), it->slot);
    return true;
}

/* Evicts one of those that were looked at; false: none may go, or it was charged meanwhile. */
static bool hunt_choose(const struct hunt *hunt, const struct weir__candidates *all,
                        const struct weir__sample *added)
{
    int chosen = weir__candidates_choose(hunt->zone, all);
    if (chosen < 0 || !hunt_lock(hunt, &added[chosen]))
        return false;
    const struct weir__sample *it = &added[chosen];
    bool gone =
        hunt_look(hunt, it) == NAMED &&
        weir__slot_clear_if(hunt->zone, hunt_group(hunt, it), it->slot, all->judged[chosen]);
    if (gone)
        hunt_tally(hunt, it, (enum weir__standing)all->standings[chosen]);
    hunt_unlock(hunt, it);
    return gone;
}

/* Looks at some blocks of an arena and evicts one; false: none of them. */
static bool hunt_round(const struct hunt *hunt, uint32_t arena,
                       const struct weir__sampling *sampling)
{
    struct weir__sample blocks[LOOKED_AT], added[LOOKED_AT];
    struct weir__candidates all;
    size_t n = weir__block_sample(hunt->zone, arena, sampling, blocks, LOOKED_AT);
    n = hunt_guess(hunt, blocks, n);
    weir__candidates_begin(&all);
    for (size_t i = 0; i < n; i++) {
        if (!hunt_lock(hunt, &blocks[i]))
            continue;
        added[all.count] = blocks[i];
        bool done = hunt_consider(hunt, &blocks[i], &all);
        hunt_unlock(hunt, &blocks[i]);
        if (done)
            return true;
    }
    return hunt_choose(hunt, &all, added);
}

/* ---- clearing a place ---- */

/* The slot of a block lets go of it, if its state may go; its stripe is held. */
static bool hunt_drop(const struct hunt *hunt, const struct weir__sample *it)
{
    struct weir__candidates one;
    uint32_t unit;
    unsigned order;
    weir__candidates_begin(&one);
    weir__candidates_add(hunt->zone, &one, hunt_group(hunt, it), it->slot, hunt->now_us);
    if (!weir__may_go(hunt->zone, one.lowest))
        return false;
    hunt_tally(hunt, it, one.lowest);
    return weir__slot_drop(hunt->zone, hunt_group(hunt, it), it->slot, &unit, &order);
}

/* A block of a place becomes ours. */
static bool hunt_take_over(const struct hunt *hunt, struct weir__sample *it)
{
    if (hunt_guess(hunt, it, 1) == 0 || !hunt_lock(hunt, it))
        return false;
    enum found found = hunt_look(hunt, it);
    bool done = (found == NOBODY || (found == NAMED && hunt_drop(hunt, it))) &&
                weir__place_own(hunt->zone, it, hunt->want);
    hunt_unlock(hunt, it);
    return done;
}

/* Makes one block out of an aligned place in an arena, evicting all who have a part of it. */
static bool hunt_clear(const struct hunt *hunt, uint32_t arena, uint32_t *ret_unit)
{
    struct weir__zone *zone = hunt->zone;
    uint32_t place;
    if (!weir__place_choose(zone, arena, hunt->want, &place))
        return false;
    for (size_t cleared = 0; cleared <= WEIR__CLEARED_MAX;) {
        struct weir__sample others[CLEARED_AT_ONCE];
        size_t n = weir__place_others(zone, place, hunt->want, others, CLEARED_AT_ONCE);
        size_t done = 0;
        if (n == 0 && weir__place_join(zone, place, hunt->want)) {
            *ret_unit = place;
            return true;
        }
        for (size_t i = 0; i < n && n != SIZE_MAX; i++)
            done += hunt_take_over(hunt, &others[i]);
        if (done == 0)
            break;
        cleared += done;
    }
    weir__place_give(zone, place, hunt->want);
    return false;
}

/* ---- all together ---- */

/* Leases fill half of the room at most. Those that have lapsed make way for others. */
static bool hunt_fits(const struct hunt *hunt, uint32_t arena)
{
    struct weir__sampling sampling = {.leases_only = true, .by_hand = BY_HAND, .steps = STEPS};
    unsigned order = hunt->want->order;
    if (weir__leases_fit(hunt->zone, order))
        return true;
    weir__leases_recount(hunt->zone);
    for (int i = 0; i < ROUNDS_LEASES && !weir__leases_fit(hunt->zone, order); i++) {
        hunt_round(hunt, arena, &sampling);
        arena = arena + 1 < hunt->zone->layout.arenas ? arena + 1 : 0;
    }
    return weir__leases_fit(hunt->zone, order);
}

int weir__block_get(struct weir__zone *zone, const struct weir__op *ops, size_t n, int64_t now_us,
                    const struct weir__want *want, uint32_t *ret_unit)
{
    struct hunt hunt = {zone, ops, n, now_us, want};
    if (zone->layout.arenas == 0)
        return WEIR_EFULL;
    uint32_t arena = weir__arena_for(zone, want);
    if (WEIR__UNLIKELY(want->flags & WEIR__MAP_LEASE && !hunt_fits(&hunt, arena)))
        return WEIR_EFULL;
    int code = weir__block_alloc(zone, want, ret_unit);
    struct weir__sampling sampling = {.order = want->order, .by_hand = BY_HAND, .steps = STEPS};
    int rounds = want->order > 0 ? ROUNDS_LARGER : ROUNDS;
    for (int i = 0; i < rounds && code == WEIR_EFULL; i++) {
        if (WEIR__UNLIKELY(weir__zone_is_held(zone)))
            return WEIR__HELD;
        if (i == ROUNDS_RANDOM) {
            sampling.by_hand = LOOKED_AT;
            sampling.steps = WEIR__SAMPLED_MARKS;
        }
        if (hunt_round(&hunt, arena, &sampling))
            code = weir__block_alloc(zone, want, ret_unit);
        else
            arena = arena + 1 < zone->layout.arenas ? arena + 1 : 0;
    }
    for (int i = 0; i < PLACES && want->order > 0 && code == WEIR_EFULL; i++) {
        if (hunt_clear(&hunt, arena, ret_unit))
            code = 0;
        arena = arena + 1 < zone->layout.arenas ? arena + 1 : 0;
    }
    return code;
}

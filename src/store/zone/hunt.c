/*
 * Room for a block where none is free. Some used blocks of an arena are looked at, some of them where
 * a hand goes around, some at random, and the one that costs least is evicted, as in the table. The work is bounded. Other stripes
 * are only tried, never waited for, one at a time.
 *
 * Live leases are never evicted, nor are chunks of rows.
 */
#include "core/ring.h"
#include "store/zone/zone.h"

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

/* What a look at a block found. */
enum found {
    KEPT,   /* cannot be evicted, or by now is another's */
    NOBODY, /* its slot does not name it */
    FRESH,
    UNUSED,
    USED
};

struct prey {
    struct weir__sample block;
    enum found found;
    int64_t cost; /* the share that it withholds; of larger blocks, when it will be fresh */
};

/* Which of two goes first. */
static bool hunt_prefers(const struct prey *a, const struct prey *b)
{
    return a->found != b->found ? a->found < b->found : a->cost < b->cost;
}

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

/* The block may have been freed and may be in the middle of another's cells by now, so this is a guess, and may
 * be nonsense: it is checked under the lock of the stripe it names. That race is meant, so the thread sanitizer
 * does not look. */
__attribute__((no_sanitize("thread"))) void weir__block_guess(const struct weir__zone *zone,
                                                              struct weir__sample *it)
{
    const struct weir__block *block = weir__block_at(zone, it->unit);
    it->group = *(const volatile uint32_t *)&block->group;
    it->slot = *(const volatile uint32_t *)&block->slot;
}

/* The large state in a slot, if it is in that block. */
static bool slot_read(const struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                      uint32_t unit, const struct weir__rule **ret_rule, struct weir__state *ret)
{
    uint32_t named;
    unsigned order;
    return weir__slot_tag(group, slot) != 0 &&
           weir__slot_unpack(zone, group, slot, ret_rule, ret, &named, &order) &&
           weir__is_large(*ret_rule) && named == unit;
}

bool weir__slot_names(const struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                      uint32_t unit)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    return slot_read(zone, group, slot, unit, &rule, &state);
}

/* What evicting a block would cost. Its stripe is held. */
static void hunt_look(const struct hunt *hunt, struct prey *ret)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    const struct weir__group *group = &hunt->zone->groups[ret->block.group];
    unsigned slot = ret->block.slot;
    ret->found = KEPT;
    if (hunt_is_pinned(hunt, &ret->block))
        return;
    if (!slot_read(hunt->zone, group, slot, ret->block.unit, &rule, &state)) {
        ret->found = NOBODY;
        return;
    }
    uint32_t share = weir__state_share(rule, &state, hunt->now_us);
    ret->cost =
        hunt->want->order > 0 ? weir__algorithm_of(rule)->fresh_at(rule, &state) : (int64_t)share;
    if (share == 0)
        ret->found = FRESH;
    else if (!weir__algorithm_of(rule)->leases && !hunt->zone->keeps)
        ret->found = weir__slot_denied(group, slot) ? USED : UNUSED;
}

static void hunt_tally(const struct hunt *hunt, const struct prey *prey)
{
    uint32_t stripe = weir__stripe_of(hunt->zone, prey->block.group);
    enum weir__counter kind = prey->found == FRESH    ? WEIR__EVICTED_FRESH
                              : prey->found == UNUSED ? WEIR__EVICTED_UNUSED
                                                      : WEIR__EVICTED_SOONEST;
    hunt->zone->stripes[stripe].counters[kind]++;
}

/* Frees a block that was looked at; false if it turns out to be another's. Its stripe is held. */
static bool hunt_evict(const struct hunt *hunt, const struct prey *prey)
{
    const struct weir__sample *it = &prey->block;
    assert(prey->found != KEPT);
    if (prey->found == NOBODY)
        return weir__block_free_owned(hunt->zone, it->unit, it->order, it->group, it->slot);
    hunt_tally(hunt, prey);
    weir__slot_clear(hunt->zone, &hunt->zone->groups[it->group], it->slot);
    return true;
}

/* Reads the owners of some blocks; keeps those that can be. Fetches what a look needs. */
static size_t hunt_guess(const struct hunt *hunt, const struct weir__sample *blocks, size_t n,
                         struct prey *ret)
{
    struct weir__zone *zone = hunt->zone;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        __builtin_prefetch(weir__block_at(zone, blocks[i].unit));
    for (size_t i = 0; i < n; i++) {
        struct prey it = {.block = blocks[i]};
        weir__block_guess(zone, &it.block);
        if (it.block.group >= zone->group_count || it.block.slot >= WEIR__SLOTS)
            continue;
        weir__prefetch_home(zone, it.block.group);
        __builtin_prefetch(&zone->stripes[weir__stripe_of(zone, it.block.group)], 1);
        ret[count++] = it;
    }
    return count;
}

/* Looks at some blocks of an arena and evicts one; false: none of them. */
static bool hunt_round(const struct hunt *hunt, uint32_t arena,
                       const struct weir__sampling *sampling)
{
    struct weir__sample blocks[LOOKED_AT];
    struct prey prey[LOOKED_AT];
    size_t best = SIZE_MAX;
    size_t n = weir__block_sample(hunt->zone, arena, sampling, blocks, LOOKED_AT);
    n = hunt_guess(hunt, blocks, n, prey);
    for (size_t i = 0; i < n; i++) {
        if (!hunt_lock(hunt, &prey[i].block))
            continue;
        hunt_look(hunt, &prey[i]);
        bool done =
            (prey[i].found == NOBODY || prey[i].found == FRESH) && hunt_evict(hunt, &prey[i]);
        hunt_unlock(hunt, &prey[i].block);
        if (done)
            return true;
        if (prey[i].found > FRESH && (best == SIZE_MAX || hunt_prefers(&prey[i], &prey[best])))
            best = i;
    }
    if (best == SIZE_MAX || !hunt_lock(hunt, &prey[best].block))
        return false;
    hunt_look(hunt, &prey[best]); /* it may be another's by now */
    bool done = prey[best].found != KEPT && hunt_evict(hunt, &prey[best]);
    hunt_unlock(hunt, &prey[best].block);
    return done;
}

/* ---- clearing a place ---- */

/* A block of a place becomes ours: its slot lets go of it first. */
static bool hunt_take_over(const struct hunt *hunt, const struct weir__sample *block)
{
    struct weir__zone *zone = hunt->zone;
    struct prey prey = {.block = *block};
    bool done = false;
    weir__block_guess(zone, &prey.block);
    if (prey.block.group >= zone->group_count || prey.block.slot >= WEIR__SLOTS ||
        !hunt_lock(hunt, &prey.block))
        return false;
    hunt_look(hunt, &prey);
    if (prey.found == NOBODY) {
        done = weir__place_own(zone, &prey.block, hunt->want);
    } else if (prey.found != KEPT) {
        uint32_t unit;
        unsigned order;
        hunt_tally(hunt, &prey);
        if (weir__slot_drop(zone, &zone->groups[prey.block.group], prey.block.slot, &unit, &order))
            done = weir__place_own(zone, &prey.block, hunt->want);
    }
    hunt_unlock(hunt, &prey.block);
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

/*
 * Room for a block where none is free. Some used blocks of an arena are looked at, some of them
 * where a hand goes around, some at random. zone/evict.h says which of them goes, as in the table.
 * Where those are all leases or rows, the hand goes on until it finds another. Lapsed leases, and
 * with full=deny fresh states, are found by the times that the blocks and arenas keep of them. So
 * there is no room only where every block was seen to be needed.
 *
 * A larger block is made of an aligned place: what may go of it goes, what must stay moves
 * elsewhere.
 *
 * The work is bounded. Other stripes are only tried, never waited for, one at a time. Where one was
 * held all is tried again, and then by the caller, who lets go of his own first. So does who had to
 * repair pages or to look at whole arenas: no lock is held for more than about a millisecond.
 *
 * Live leases are never evicted, nor are chunks of rows.
 */
#include "core/ring.h"
#include "store/zone/evict.h"

#include <sched.h>

#define LOOKED_AT 8     /* blocks, of which the cheapest goes … */
#define BY_HAND 4       /* … so many of them in a row, so that none is left out for ever */
#define STEPS 64        /* of the hand for that */
#define ROUNDS_LARGER 8 /* of looking for a block of a higher order; then a place is cleared */
#define ARENAS 256      /* that are looked at */
#define PLACES 4        /* of an arena that it is tried to clear */
#define CLEARED_AT_ONCE 32
#define MOVE_TRIES 4  /* to have a block elsewhere for one that must stay */
#define PASSES 8      /* in which a stripe that was needed was held */
#define STOLEN_MAX 16 /* blocks that were made free and taken by another */
#define MENDED_MAX 1  /* torn pages that are put in order before the caller's locks are given up */
#define PORTIONS 16   /* of arenas that are looked through for fresh states, likewise */

struct hunt {
    struct weir__zone *zone;
    const struct weir__op *ops; /* not to be evicted, and whose stripes are ours already */
    size_t n;
    int64_t now_us;
    const struct weir__want *want;
    bool was_held; /* a stripe that was needed */
    /* What is left of this search before it goes on under new locks. */
    int mends, portions;
    bool is_tired; /* nothing was left of one of them when it was needed */
};

/* Whose a block is, as a look found out. */
enum found {
    KEPT,   /* this request's */
    NOBODY, /* its slot does not name it */
    NAMED
};

static bool hunt_has_stripe(struct hunt *hunt, uint32_t stripe)
{
    for (size_t i = 0; i < hunt->n; i++) {
        if (weir__stripe_of(hunt->zone, hunt->ops[i].home) == stripe)
            return true;
    }
    return false;
}

/* Blocks of this request stay; what only says that it is the asking slot's was left by a death. */
static bool hunt_is_pinned(struct hunt *hunt, const struct weir__sample *it)
{
    if (it->group == hunt->want->group && it->slot == hunt->want->slot)
        return it->unit == hunt->want->has;
    for (size_t i = 0; i < hunt->n; i++) {
        if (hunt->ops[i].group == &hunt->zone->groups[it->group] && hunt->ops[i].slot == it->slot)
            return true;
    }
    return false;
}

static void hunt_unlock(struct hunt *hunt, const struct weir__sample *it)
{
    uint32_t stripe = weir__stripe_of(hunt->zone, it->group);
    if (!hunt_has_stripe(hunt, stripe))
        weir__stripe_unlock(hunt->zone, stripe);
}

/* Uses up one of what is left; false: nothing is. */
static bool hunt_spend(struct hunt *hunt, int *left)
{
    if (*left > 0) {
        --*left;
        return true;
    }
    hunt->is_tired = true;
    return false;
}

/* The stripe of a block's owner, without waiting. */
static bool hunt_lock(struct hunt *hunt, const struct weir__sample *it)
{
    uint32_t stripe = weir__stripe_of(hunt->zone, it->group);
    bool locked = hunt_has_stripe(hunt, stripe) || weir__stripe_trylock(hunt->zone, stripe);
    hunt->was_held = hunt->was_held || !locked;
    if (WEIR__LIKELY(!locked || !weir__page_is_torn(hunt->zone, it->group)))
        return locked;
    bool mends = hunt_spend(hunt, &hunt->mends);
    if (mends)
        weir__page_mend(hunt->zone, it->group);
    else
        hunt_unlock(hunt, it);
    return mends;
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

static struct weir__group *hunt_group(struct hunt *hunt, const struct weir__sample *it)
{
    return &hunt->zone->groups[it->group];
}

/* Its stripe is held. */
static enum found hunt_look(struct hunt *hunt, const struct weir__sample *it)
{
    if (hunt_is_pinned(hunt, it))
        return KEPT;
    return weir__slot_names(hunt->zone, hunt_group(hunt, it), it->slot, it->unit) ? NAMED : NOBODY;
}

static void hunt_tally(struct hunt *hunt, const struct weir__sample *it,
                       enum weir__standing standing)
{
    weir__count_evicted(hunt->zone, hunt_group(hunt, it), standing);
}

/* Reads the owners of some blocks; keeps those that can be. Fetches what a look needs. */
static size_t hunt_guess(struct hunt *hunt, struct weir__sample *blocks, size_t n)
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
static bool hunt_consider(struct hunt *hunt, const struct weir__sample *it,
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
static bool hunt_choose(struct hunt *hunt, const struct weir__candidates *all,
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
        hunt_tally(hunt, it, weir__candidate_stands(all, (unsigned)chosen));
    hunt_unlock(hunt, it);
    return gone;
}

/* Looks at some blocks of an arena and evicts one; false: none of them. */
static bool hunt_round(struct hunt *hunt, uint32_t arena, const struct weir__sampling *sampling)
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

/* ---- what is fresh ---- */

/* A state that is live: its block says when it will be fresh. */
static void hunt_note(struct hunt *hunt, const struct weir__sample *it)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    if (hunt_look(hunt, it) != NAMED || !weir__slot_unpack(hunt->zone, hunt_group(hunt, it),
                                                           it->slot, &rule, &state, &unit, &order))
        return;
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    weir__block_note(hunt->zone, it->unit, algorithm->leases, algorithm->fresh_at(rule, &state));
}

/* Frees some blocks of an arena whose states are fresh, of leases or others; false: there is
 * none. */
static bool hunt_lapsed(struct hunt *hunt, uint32_t arena, bool leases)
{
    bool any = false;
    for (bool more = weir__arena_may_have_lapsed(hunt->zone, arena, leases, hunt->now_us);
         more && !any && hunt_spend(hunt, &hunt->portions);) {
        struct weir__sample blocks[LOOKED_AT];
        size_t n =
            weir__block_lapsed(hunt->zone, arena, leases, hunt->now_us, blocks, LOOKED_AT, &more);
        n = hunt_guess(hunt, blocks, n);
        for (size_t i = 0; i < n; i++) {
            struct weir__candidates one;
            weir__candidates_begin(&one);
            if (!hunt_lock(hunt, &blocks[i]))
                continue;
            if (hunt_consider(hunt, &blocks[i], &one))
                any = true;
            else
                hunt_note(hunt, &blocks[i]);
            hunt_unlock(hunt, &blocks[i]);
        }
    }
    return any;
}

/* ---- clearing a place ---- */

/* The slot of a block lets go of it, if its state may go; its stripe is held. */
static bool hunt_drop(struct hunt *hunt, const struct weir__sample *it)
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

/* A block of a place becomes ours, if its state may go. */
static bool hunt_take_over(struct hunt *hunt, struct weir__sample *it)
{
    if (hunt_guess(hunt, it, 1) == 0 || !hunt_lock(hunt, it))
        return false;
    enum found found = hunt_look(hunt, it);
    bool done = (found == NOBODY || (found == NAMED && hunt_drop(hunt, it))) &&
                weir__place_own(hunt->zone, it, hunt->want);
    hunt_unlock(hunt, it);
    return done;
}

/* A slot has its state in another block from now on; its stripe is held. */
static bool hunt_move_to(struct hunt *hunt, const struct weir__sample *it, uint32_t to)
{
    struct weir__zone *zone = hunt->zone;
    struct weir__group *group = hunt_group(hunt, it);
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    if (!weir__slot_unpack(zone, group, it->slot, &rule, &state, &unit, &order) ||
        unit != it->unit || order != it->order)
        return false;
    weir__ring_move(zone, &state, to, order);
    weir__block_note(zone, to, weir__algorithm_of(rule)->leases,
                     weir__algorithm_of(rule)->fresh_at(rule, &state));
    weir__slot_put(group, it->slot,
                   weir__pack(zone, rule, weir__slot_row(zone, group, it->slot),
                              weir__slot_tag(group, it->slot), &state, to, order));
    return true;
}

/* A block of a place becomes ours, its state moves elsewhere. WEIR_EFULL: there is no block for
 * it. */
static int hunt_move(struct hunt *hunt, struct weir__sample *it)
{
    struct weir__zone *zone = hunt->zone;
    if (hunt_guess(hunt, it, 1) == 0 || !hunt_lock(hunt, it))
        return WEIR__HELD;
    unsigned flags = weir__map_at(zone, it->unit) & WEIR__MAP_LEASE;
    struct weir__want want = {it->group, it->slot, it->order, flags, it->unit};
    uint32_t to;
    bool moved = false;
    int code = hunt_look(hunt, it) == NAMED ? weir__block_alloc(zone, &want, &to) : WEIR__HELD;
    if (code == 0) {
        moved = hunt_move_to(hunt, it, to);
        if (!moved)
            weir__block_free_owned(zone, to, it->order, it->group, it->slot);
        code = moved && weir__place_own(zone, it, hunt->want) ? 0 : WEIR__HELD;
    }
    hunt_unlock(hunt, it);
    return code;
}

/* The same, and room is made where there is none. */
static bool hunt_move_away(struct hunt *hunt, struct weir__sample *it)
{
    struct weir__sampling sampling = {.order = it->order, .by_hand = BY_HAND, .steps = STEPS};
    uint32_t arena = it->unit >> WEIR__ARENA_BITS;
    int code = WEIR_EFULL;
    for (int i = 0; i < MOVE_TRIES && code == WEIR_EFULL; i++) {
        code = hunt_move(hunt, it);
        if (code == WEIR_EFULL && !hunt_round(hunt, arena, &sampling))
            arena = arena + 1 < hunt->zone->layout.arenas ? arena + 1 : 0;
    }
    return code == 0;
}

/* Goes through the others' blocks of a place; false: one of them stays. */
static bool hunt_go_through(struct hunt *hunt, uint32_t place,
                            bool (*take)(struct hunt *, struct weir__sample *))
{
    uint32_t unit = place;
    bool all = true;
    for (size_t n = CLEARED_AT_ONCE; n == CLEARED_AT_ONCE;) {
        struct weir__sample others[CLEARED_AT_ONCE];
        n = weir__place_others(hunt->zone, place, hunt->want, &unit, others, CLEARED_AT_ONCE);
        if (n == SIZE_MAX)
            return false;
        for (size_t i = 0; i < n; i++)
            all = take(hunt, &others[i]) && all;
    }
    return all;
}

/* Makes one block out of an aligned place. */
static bool hunt_clear(struct hunt *hunt, uint32_t place)
{
    bool all = hunt_go_through(hunt, place, hunt_take_over) ||
               hunt_go_through(hunt, place, hunt_move_away);
    if (all && weir__place_join(hunt->zone, place, hunt->want))
        return true;
    weir__place_give(hunt->zone, place, hunt->want);
    return false;
}

/* Likewise, out of one of an arena's places. */
static bool hunt_clear_in(struct hunt *hunt, uint32_t arena, uint32_t *ret_unit)
{
    int tries = 0;
    for (uint32_t left = UINT32_MAX; left > 0 && tries < PLACES;) {
        if (!weir__place_choose(hunt->zone, arena, hunt->want, &left, ret_unit))
            continue;
        if (hunt_clear(hunt, *ret_unit))
            return true;
        tries++;
    }
    return false;
}

/* ---- all together ---- */

static uint32_t hunt_next(const struct weir__zone *zone, uint32_t arena)
{
    return arena + 1 < zone->layout.arenas ? arena + 1 : 0;
}

static uint32_t hunt_arenas(const struct weir__zone *zone)
{
    return zone->layout.arenas < ARENAS ? zone->layout.arenas : ARENAS;
}

/* Leases fill half of the room at most. Those that have lapsed make way for others. */
static bool hunt_fits(struct hunt *hunt, uint32_t arena)
{
    unsigned order = hunt->want->order;
    if (weir__leases_fit(hunt->zone, order))
        return true;
    weir__leases_recount(hunt->zone);
    for (uint32_t i = 0; i < hunt_arenas(hunt->zone); i++) {
        while (!weir__leases_fit(hunt->zone, order) && hunt_lapsed(hunt, arena, true))
            ;
        arena = hunt_next(hunt->zone, arena);
    }
    return weir__leases_fit(hunt->zone, order);
}

/* Frees a block of an arena that is as large as need be; false: none may go. */
static bool hunt_in(struct hunt *hunt, uint32_t arena)
{
    struct weir__sampling near = {.order = hunt->want->order, .by_hand = BY_HAND, .steps = STEPS};
    struct weir__sampling far = {
        .order = near.order, .by_hand = LOOKED_AT, .steps = 1u << WEIR__ARENA_BITS};
    if (hunt->zone->keeps)
        return hunt_lapsed(hunt, arena, false) || hunt_lapsed(hunt, arena, true);
    return (weir__arena_has_others(hunt->zone, arena) &&
            (hunt_round(hunt, arena, &near) ||
             (near.order == 0 && hunt_round(hunt, arena, &far)))) ||
           hunt_lapsed(hunt, arena, true);
}

/* One pass over the arenas. */
static int hunt_pass(struct hunt *hunt, uint32_t arena, uint32_t *ret_unit)
{
    struct weir__zone *zone = hunt->zone;
    const struct weir__want *want = hunt->want;
    uint32_t own = arena, arenas = hunt_arenas(zone);
    uint32_t rounds = want->order > 0 && !zone->keeps ? ROUNDS_LARGER : arenas;
    int code = weir__block_alloc(zone, want, ret_unit), stolen = 0;
    if (WEIR__UNLIKELY(code == WEIR_EFULL && weir__zone_is_held(zone)))
        return WEIR__HELD;
    for (uint32_t i = 0; i < rounds && code == WEIR_EFULL; i++) {
        while (code == WEIR_EFULL && stolen < STOLEN_MAX && hunt_in(hunt, arena)) {
            code = weir__block_alloc(zone, want, ret_unit);
            stolen++;
        }
        arena = hunt_next(zone, arena);
    }
    arena = own;
    for (uint32_t i = 0; i < arenas && want->order > 0 && code == WEIR_EFULL; i++) {
        if (hunt_clear_in(hunt, arena, ret_unit))
            code = 0;
        arena = hunt_next(zone, arena);
    }
    return code;
}

int weir__block_get(struct weir__zone *zone, const struct weir__op *ops, size_t n, int64_t now_us,
                    const struct weir__want *want, uint32_t *ret_unit)
{
    struct hunt hunt = {zone, ops, n, now_us, want, .mends = MENDED_MAX, .portions = PORTIONS};
    if (zone->layout.arenas == 0)
        return WEIR_EFULL;
    uint32_t arena = weir__arena_for(zone, want);
    int code = WEIR_EFULL;
    for (int pass = 0; pass < PASSES && code == WEIR_EFULL; pass++) {
        hunt.was_held = false;
        if (pass > 0)
            sched_yield();
        if (WEIR__LIKELY(!(want->flags & WEIR__MAP_LEASE) || hunt_fits(&hunt, arena)))
            code = hunt_pass(&hunt, arena, ret_unit);
        if (WEIR__LIKELY(!hunt.was_held && !hunt.is_tired))
            return code;
        if (hunt.is_tired)
            break;
    }
    return code == WEIR_EFULL ? WEIR__WANTED : code;
}

int64_t weir__blocks_lapse_at(const struct weir__zone *zone, const struct weir__want *want)
{
    int64_t soonest = INT64_MAX;
    if (zone->layout.arenas == 0)
        return soonest;
    uint32_t arena = weir__arena_for(zone, want);
    bool others = !(want->flags & WEIR__MAP_LEASE) || weir__leases_fit(zone, want->order);
    for (uint32_t i = 0; i < hunt_arenas(zone); i++) {
        soonest = weir__min(soonest, weir__arena_lapses_at(zone, arena, true));
        if (others)
            soonest = weir__min(soonest, weir__arena_lapses_at(zone, arena, false));
        arena = hunt_next(zone, arena);
    }
    return soonest;
}

/*
 * The table: where a key's states lie, how room is made for new ones.
 *
 * Where a new key's reach has no empty slot, zone/evict.c says whose state goes. It is looked for
 * in that reach only.
 */
#include "core/ring.h"
#include "store/zone/evict.h"

#define CHOICES_MAX 16 /* of victims that were charged meanwhile */

static inline uint64_t *counter(struct weir__zone *zone, const struct weir__group *group,
                                enum weir__counter which)
{
    uint32_t stripe = weir__stripe_of(zone, (uint32_t)(group - zone->groups));
    return &zone->stripes[stripe].counters[which];
}

/* Fills the op from a slot with its tag; false if the slot is another limit's. A small state is
 * frozen from now on. */
static bool table_adopt(struct weir__zone *zone, struct weir__op *op, struct weir__group *group,
                        unsigned slot, int *ret_code)
{
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    uint32_t row = weir__packed_row(zone, sealed);
    const struct weir__rule *rule = weir__row_at(zone, row);
    if (WEIR__UNLIKELY(!rule || (row == WEIR__MARK_ROW) != weir__is_mark(op->rule))) {
        *ret_code = WEIR_EDAMAGED;
        return !weir__row_is_newer(zone, row);
    }
    if (row != op->row && !weir__rule_same_state(rule, op->rule))
        return false;
    op->group = group;
    op->slot = slot;
    if (!weir__is_large(rule)) {
        sealed = weir__slot_freeze(group, slot);
        op->frozen = true;
    }
    *ret_code = 0;
    if (WEIR__UNLIKELY(!weir__unpack(zone, op->tag, sealed, &op->written_under, &op->state,
                                     &op->unit, &op->order)))
        *ret_code = WEIR_EDAMAGED;
    if (row == op->row)
        op->written_under = op->rule;
    return true;
}

int weir__table_find(struct weir__zone *zone, struct weir__op *op)
{
    assert(!weir__page_is_torn(zone, op->home));
    op->group = NULL;
    op->written_under = op->rule;
    op->state.present = false;
    op->state.ring = (struct weir__ring){0};
    op->state.ring_header = NULL;
    uint32_t far = weir__group_far(&zone->groups[op->home]);
    for (uint32_t d = 0; d <= far; d++) {
        struct weir__group *group = weir__group_at(zone, op->home, op->tag, d);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            int code;
            if (weir__slot_tag(group, slot) == op->tag && table_adopt(zone, op, group, slot, &code))
                return code;
        }
    }
    return 0;
}

bool weir__slot_drop(struct weir__zone *zone, struct weir__group *group, unsigned slot,
                     uint32_t *ret_unit, unsigned *ret_order)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    assert(!weir__page_is_torn(zone, (uint32_t)(group - zone->groups)));
    weir__slot_freeze(group, slot); /* first: from now on nobody charges it */
    bool sound = weir__slot_unpack(zone, group, slot, &rule, &state, ret_unit, ret_order);
    weir__slot_set_tag(group, slot, 0);
    weir__slot_allow(group, slot);
    if (!sound || !weir__is_mark(rule))
        --*counter(zone, group, WEIR__KEYS);
    return sound && weir__is_large(rule);
}

void weir__slot_clear(struct weir__zone *zone, struct weir__group *group, unsigned slot)
{
    uint32_t unit;
    unsigned order;
    if (weir__slot_drop(zone, group, slot, &unit, &order))
        weir__block_free(zone, unit, order, group, slot);
}

bool weir__slot_clear_if(struct weir__zone *zone, struct weir__group *group, unsigned slot,
                         struct weir__packed judged)
{
    if (!weir__slot_freeze_if(group, slot, judged))
        return false;
    weir__slot_clear(zone, group, slot);
    return true;
}

/* A slot of this request, placed or about to be. */
static bool is_pinned(const struct weir__op *ops, size_t n, const struct weir__group *group,
                      unsigned slot)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i].group == group && ops[i].slot == slot)
            return true;
    }
    return false;
}

/* A slot in reach, and how far it is. */
struct spot {
    struct weir__group *group;
    unsigned slot;
    uint32_t distance;
};

static bool table_find_empty(const struct weir__zone *zone, const struct weir__op *op,
                             const struct weir__op *ops, size_t n, struct spot *ret)
{
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        struct weir__group *group = weir__group_at(zone, op->home, op->tag, d);
        for (uint32_t next = 2; d == 1 && next < WEIR__REACH; next++)
            __builtin_prefetch(weir__group_at(zone, op->home, op->tag, next), 1);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(group, slot) != 0 || is_pinned(ops, n, group, slot))
                continue;
            *ret = (struct spot){group, slot, d};
            return true;
        }
    }
    return false;
}

/* All slots in reach are taken: whose goes, -1 for none. */
static int table_choose(struct weir__zone *zone, const struct weir__op *op,
                        const struct weir__op *ops, size_t n, struct weir__candidates *ret)
{
    weir__candidates_begin(ret);
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        struct weir__group *group = weir__group_at(zone, op->home, op->tag, d);
        unsigned mask = (1u << WEIR__SLOTS) - 1;
        for (unsigned slot = 0; slot < WEIR__SLOTS && n > 1; slot++)
            mask &= ~((unsigned)is_pinned(ops, n, group, slot) << slot);
        if (weir__candidates_add_group(zone, ret, group, mask, op->request.now_us))
            break;
    }
    if (weir__is_mark(op->rule) && ret->lowest > WEIR__STANDS_MARK)
        return -1; /* no limit's state goes for it */
    return weir__candidates_choose(zone, ret);
}

/* Makes room in reach; false: nobody may go. One who was charged since it was judged is judged
 * again, a few times. */
static bool table_make_empty(struct weir__zone *zone, const struct weir__op *op,
                             const struct weir__op *ops, size_t n, struct spot *ret)
{
    struct weir__candidates all;
    enum weir__standing stood;
    for (int tries = 0;; tries++) {
        int chosen = table_choose(zone, op, ops, n, &all);
        if (chosen < 0)
            return false;
        *ret = (struct spot){all.groups[chosen], all.slots[chosen], 0};
        stood = weir__candidate_stands(&all, (unsigned)chosen);
        bool gone = weir__slot_clear_if(zone, ret->group, ret->slot, all.judged[chosen]);
        if (!gone && tries == CHOICES_MAX) {
            if (!weir__may_go(zone, WEIR__STANDS_QUIET))
                return false;
            weir__slot_clear(zone, ret->group, ret->slot);
            gone = true;
        }
        if (gone)
            break;
    }
    weir__count_evicted(zone, ret->group, stood);
    while (weir__group_at(zone, op->home, op->tag, ret->distance) != ret->group)
        ret->distance++;
    return true;
}

int weir__table_refuse(struct weir__zone *zone, const struct weir__op *op)
{
    ++*counter(zone, &zone->groups[op->home], WEIR__REFUSED);
    return WEIR_EFULL;
}

int weir__table_place(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                      size_t n)
{
    struct spot spot;
    if (!table_find_empty(zone, op, ops, n, &spot) && !table_make_empty(zone, op, ops, n, &spot)) {
        if (!weir__is_mark(op->rule))
            return weir__table_refuse(zone, op);
        weir__count_mark_lost(zone);
        return WEIR_EFULL;
    }
    struct weir__group *home = &zone->groups[op->home];
    if (spot.distance > weir__group_far(home))
        weir__group_set(home, WEIR__FAR_MASK, spot.distance);
    op->group = spot.group;
    op->slot = spot.slot;
    return 0;
}

/* A new state: frozen until its tag is there. Who died in between has left an empty slot, and a
 * state that nobody can swap. */
static void table_insert(struct weir__zone *zone, const struct weir__op *op,
                         struct weir__packed sealed)
{
    struct weir__packed frozen = {sealed.lo, sealed.hi | WEIR__FROZEN};
    weir__slot_allow(op->group, op->slot);
    weir__slot_put(op->group, op->slot, frozen);
    weir__slot_set_tag(op->group, op->slot, op->tag);
    weir__slot_put(op->group, op->slot, sealed);
    if (!weir__is_mark(op->rule))
        ++*counter(zone, op->group, WEIR__KEYS);
}

int64_t weir__room_in(int64_t at_us, int64_t now_us)
{
    int64_t in_us = at_us == INT64_MAX ? 0 : weir__saturated(at_us - now_us);
    return weir__max(WEIR__FULL_RETRY_US, in_us);
}

int64_t weir__table_room_in(const struct weir__zone *zone, const struct weir__op *op)
{
    int64_t soonest = INT64_MAX;
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        const struct weir__group *group = weir__group_at(zone, op->home, op->tag, d);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            const struct weir__rule *rule;
            struct weir__state state = {0};
            uint32_t unit;
            unsigned order;
            if (weir__slot_tag(group, slot) != 0 &&
                weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order))
                soonest = weir__min(soonest, weir__algorithm_of(rule)->fresh_at(rule, &state));
        }
    }
    return weir__room_in(soonest, op->request.now_us);
}

void weir__table_write(struct weir__zone *zone, struct weir__op *op)
{
    struct weir__group *group = op->group;
    bool occupied = weir__slot_tag(group, op->slot) != 0;
    op->frozen = false;
    if (!op->state.present) {
        if (occupied) {
            weir__slot_clear(zone, group, op->slot);
            op->has_block = false; /* it may be another's by now */
        }
        return;
    }
    if (weir__is_large(op->rule)) {
        const struct weir__algorithm *algorithm = weir__algorithm_of(op->rule);
        weir__ring_publish(&op->state);
        weir__block_note(zone, op->unit, algorithm->leases,
                         algorithm->fresh_at(op->rule, &op->state));
    }
    struct weir__packed sealed =
        weir__pack(zone, op->rule, op->row, op->tag, &op->state, op->unit, op->order);
    if (!occupied) {
        table_insert(zone, op, sealed);
        return;
    }
    weir__slot_put(group, op->slot, sealed); /* frozen, so far */
}

void weir__table_thaw(struct weir__op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i].frozen)
            weir__slot_thaw(ops[i].group, ops[i].slot);
        ops[i].frozen = false;
    }
}

static bool is_live(const struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                    int64_t now_us)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    return weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) &&
           !weir__is_fresh(rule, &state, now_us);
}

bool weir__table_reset(struct weir__zone *zone, uint64_t tag, int64_t now_us)
{
    uint32_t home = weir__home_of(zone, tag);
    bool live = false;
    assert(!weir__page_is_torn(zone, home));
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        struct weir__group *group = weir__group_at(zone, home, tag, d);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(group, slot) != tag)
                continue;
            weir__slot_freeze(group, slot);
            live = is_live(zone, group, slot, now_us) || live;
            weir__slot_clear(zone, group, slot);
        }
    }
    return live;
}

/*
 * The table: where a key's states lie, how room is made for new ones.
 *
 * Eviction looks at the whole reach of the new key, never further: first a state that is back to fresh
 * (nobody can tell), then a mark of a settled receipt, then among the least used the soonest fresh, then the
 * soonest fresh of all. New states start unused, so a flood of new keys evicts itself before it evicts anybody who came back.
 */
#include "core/ring.h"
#include "store/zone/zone.h"

#define CHOICES_MAX 16 /* of victims that were charged meanwhile */

static inline uint64_t *counter(struct weir__zone *zone, const struct weir__group *group,
                                enum weir__counter which)
{
    uint32_t stripe = weir__stripe_of(zone, (uint32_t)(group - zone->groups));
    return &zone->stripes[stripe].counters[which];
}

/* Fills the op from a slot with its tag; false if the slot is another limit's. A small state is frozen from now on. */
static bool table_adopt(struct weir__zone *zone, struct weir__op *op, struct weir__group *group,
                        unsigned slot, int *ret_code)
{
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    uint32_t row = weir__packed_row(zone, sealed);
    const struct weir__rule *rule = weir__row_at(zone, row);
    if (WEIR__UNLIKELY(!rule || (row == WEIR__MARK_ROW) != weir__is_mark(op->rule))) {
        *ret_code = WEIR_EDAMAGED;
        return true;
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
    weir__slot_freeze(group, slot); /* first: from now on nobody charges it */
    bool sound = weir__slot_unpack(zone, group, slot, &rule, &state, ret_unit, ret_order);
    weir__slot_set_tag(group, slot, 0);
    weir__slot_set_use(group, slot, 0);
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

/* The best slot to evict so far. */
struct victim {
    struct weir__group *group;
    unsigned slot;
    uint32_t distance;
    int64_t fresh_at;
    enum weir__counter kind;
    struct weir__packed judged; /* by this state */
};

/* Judges one occupied slot; true if it is fresh, and so the victim. */
static bool consider(struct weir__zone *zone, struct weir__group *group, unsigned slot, uint32_t d,
                     int64_t now_us, struct victim *best)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    struct victim it = {group, slot, d, INT64_MIN, WEIR__EVICTED_FRESH, sealed};
    if (!weir__unpack(zone, weir__slot_tag(group, slot), sealed, &rule, &state, &unit, &order) ||
        weir__is_fresh(rule, &state, now_us)) {
        *best = it;
        return true;
    }
    it.kind = weir__is_mark(rule)                ? WEIR__EVICTED_FRESH /* before any limit's */
              : weir__slot_use(group, slot) == 0 ? WEIR__EVICTED_UNUSED
                                                 : WEIR__EVICTED_SOONEST;
    if (best->group && best->kind < it.kind)
        return false;
    it.fresh_at = weir__algorithm_of(rule)->fresh_at(rule, &state);
    if (!best->group || it.kind < best->kind || it.fresh_at < best->fresh_at)
        *best = it;
    return false;
}

/* Everybody in reach was in use: a little less from now on. */
static void age(struct weir__zone *zone, uint32_t home, uint64_t tag)
{
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        struct weir__group *group = weir__group_at(zone, home, tag, d);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_use(group, slot) > 0)
                weir__slot_set_use(group, slot, weir__slot_use(group, slot) - 1);
        }
    }
}

/* An empty slot, or the best to evict. */
static struct victim choose(struct weir__zone *zone, const struct weir__op *op,
                            const struct weir__op *ops, size_t n)
{
    struct victim best = {0};
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        struct weir__group *group = weir__group_at(zone, op->home, op->tag, d);
        for (uint32_t next = 2; d == 1 && next < WEIR__REACH; next++)
            __builtin_prefetch(weir__group_at(zone, op->home, op->tag, next), 1);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (is_pinned(ops, n, group, slot))
                continue;
            if (weir__slot_tag(group, slot) == 0)
                return (struct victim){
                    .group = group, .slot = slot, .distance = d, .kind = WEIR__KEYS};
        }
    }
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        struct weir__group *group = weir__group_at(zone, op->home, op->tag, d);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (!is_pinned(ops, n, group, slot) &&
                consider(zone, group, slot, d, op->request.now_us, &best))
                return best;
        }
    }
    return best;
}

int weir__table_place(struct weir__zone *zone, struct weir__op *op, const struct weir__op *ops,
                      size_t n)
{
    struct victim it;
    bool done = false;
    for (int tries = 0; !done; tries++) {
        it = choose(zone, op, ops, n);
        if (weir__is_mark(op->rule) && it.kind > WEIR__EVICTED_FRESH)
            return WEIR_EFULL; /* no limit's state goes for it */
        done = it.kind == WEIR__KEYS ||
               weir__slot_clear_if(zone, it.group, it.slot, it.judged); /* else charged meanwhile */
        if (!done && tries == CHOICES_MAX) {
            weir__slot_clear(zone, it.group, it.slot);
            done = true;
        }
    }
    if (it.kind != WEIR__KEYS)
        ++*counter(zone, it.group, it.kind);
    if (it.kind == WEIR__EVICTED_SOONEST)
        age(zone, op->home, op->tag);
    struct weir__group *home = &zone->groups[op->home];
    if (it.distance > weir__group_far(home))
        weir__group_set(home, WEIR__FAR_MASK, it.distance);
    op->group = it.group;
    op->slot = it.slot;
    return 0;
}

/* A new state: frozen until its tag is there. Who died in between has left an empty slot, and a state that nobody can
 * swap. */
static void table_insert(struct weir__zone *zone, const struct weir__op *op,
                         struct weir__packed sealed)
{
    struct weir__packed frozen = {sealed.lo, sealed.hi | WEIR__FROZEN};
    weir__slot_set_use(op->group, op->slot, 0);
    weir__slot_put(op->group, op->slot, frozen);
    weir__slot_set_tag(op->group, op->slot, op->tag);
    weir__slot_put(op->group, op->slot, sealed);
    if (!weir__is_mark(op->rule))
        ++*counter(zone, op->group, WEIR__KEYS);
}

void weir__table_write(struct weir__zone *zone, struct weir__op *op, bool used)
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
    if (weir__is_large(op->rule))
        weir__ring_publish(&op->state);
    struct weir__packed sealed =
        weir__pack(zone, op->rule, op->row, op->tag, &op->state, op->unit, op->order);
    if (!occupied) {
        table_insert(zone, op, sealed);
        return;
    }
    weir__slot_put(group, op->slot, sealed); /* frozen, so far */
    if (used)
        weir__slot_touch(group, op->slot);
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

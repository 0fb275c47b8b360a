/*
 * The table: where a key's states lie, how room is made for new ones.
 *
 * Eviction looks at the whole reach of the new key, never further: first a state that is back to fresh
 * (nobody can tell), then a mark of a settled receipt, then among the least used the soonest fresh, then the
 * soonest fresh of all. New states start unused, so a flood of new keys evicts itself before it evicts anybody who came back.
 */
#include "core/ring.h"
#include "store/zone/zone.h"

static inline uint64_t *counter(struct weir__zone *zone, const struct weir__group *group,
                                enum weir__counter which)
{
    uint32_t stripe = weir__stripe_of(zone, (uint32_t)(group - zone->groups));
    return &zone->stripes[stripe].counters[which];
}

/* Fills the op from a slot with its tag; false if the slot is another limit's. */
static bool adopt(struct weir__zone *zone, struct weir__op *op, struct weir__group *group,
                  unsigned slot, int *ret_code)
{
    uint32_t row = weir__slot_row(zone, group, slot);
    const struct weir__rule *rule = weir__row_at(zone, row);
    if (WEIR__UNLIKELY(!rule || (row == WEIR__MARK_ROW) != weir__is_mark(op->rule))) {
        *ret_code = WEIR_EDAMAGED;
        return true;
    }
    if (row != op->row && !weir__rule_same_state(rule, op->rule))
        return false;
    *ret_code = 0;
    if (WEIR__UNLIKELY(!weir__slot_unpack(zone, group, slot, &op->written_under, &op->state,
                                          &op->unit, &op->order)))
        *ret_code = WEIR_EDAMAGED;
    if (row == op->row)
        op->written_under = op->rule;
    op->group = group;
    op->slot = slot;
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
            if (weir__slot_tag(group, slot) == op->tag && adopt(zone, op, group, slot, &code))
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
    bool sound = weir__slot_unpack(zone, group, slot, &rule, &state, ret_unit, ret_order);
    weir__slot_set_tag(group, slot, 0);
    atomic_signal_fence(memory_order_seq_cst); /* the slot lets go before its block is free */
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
};

/* Judges one occupied slot; true if it is fresh, and so the victim. */
static bool consider(struct weir__zone *zone, struct weir__group *group, unsigned slot, uint32_t d,
                     int64_t now_us, struct victim *best)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    struct victim it = {group, slot, d, INT64_MIN, WEIR__EVICTED_FRESH};
    if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
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
                return (struct victim){group, slot, d, 0, WEIR__KEYS};
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
    struct victim it = choose(zone, op, ops, n);
    if (weir__is_mark(op->rule) && it.kind > WEIR__EVICTED_FRESH)
        return WEIR_EFULL; /* no limit's state goes for it */
    if (it.kind != WEIR__KEYS) {
        ++*counter(zone, it.group, it.kind);
        weir__slot_clear(zone, it.group, it.slot);
        if (it.kind == WEIR__EVICTED_SOONEST)
            age(zone, op->home, op->tag);
    }
    struct weir__group *home = &zone->groups[op->home];
    if (it.distance > weir__group_far(home))
        weir__group_set(home, WEIR__FAR_MASK, it.distance);
    op->group = it.group;
    op->slot = it.slot;
    return 0;
}

void weir__table_write(struct weir__zone *zone, struct weir__op *op, bool used)
{
    struct weir__group *group = op->group;
    bool occupied = weir__slot_tag(group, op->slot) != 0;
    if (!op->state.present) {
        if (occupied) {
            weir__slot_clear(zone, group, op->slot);
            op->has_block = false; /* it may be another's by now */
        }
        return;
    }
    if (weir__is_large(op->rule))
        weir__ring_publish(&op->state);
    weir__store16(&group->states[op->slot],
                  weir__pack(zone, op->rule, op->row, op->tag, &op->state, op->unit, op->order));
    if (!occupied) {
        weir__slot_set_use(group, op->slot, 0);
        if (!weir__is_mark(op->rule))
            ++*counter(zone, group, WEIR__KEYS);
        atomic_signal_fence(memory_order_seq_cst); /* the tag last: before it the slot is empty */
        weir__slot_set_tag(group, op->slot, op->tag);
    } else if (used) {
        weir__slot_touch(group, op->slot);
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
            live = is_live(zone, group, slot, now_us) || live;
            weir__slot_clear(zone, group, slot);
        }
    }
    return live;
}

/*
 * What a zone does for a request: lock the stripes of its keys in order, load and judge every
 * limit, charge all or none, report, unlock.
 */
#include "store/zone/zone.h"

struct locked {
    uint32_t stripes[2 * WEIR_LIMITS_MAX];
    size_t count;
};

/* Locks the stripes of all ops, ascending, each once; false: one of them is held, and none is
 * ours. */
static bool lock_stripes(struct weir__zone *zone, struct weir__op *ops, size_t n,
                         struct locked *ret)
{
    ret->count = 0;
    for (size_t i = 0; i < n; i++) {
        ops[i].frozen = false;
        uint32_t stripe = weir__stripe_of(zone, ops[i].home);
        size_t at = ret->count;
        while (at > 0 && ret->stripes[at - 1] > stripe)
            at--;
        if (at > 0 && ret->stripes[at - 1] == stripe)
            continue;
        for (size_t j = ret->count++; j > at; j--)
            ret->stripes[j] = ret->stripes[j - 1];
        ret->stripes[at] = stripe;
    }
    for (size_t i = 0; i < ret->count; i++) {
        if (WEIR__LIKELY(weir__stripe_lock(zone, ret->stripes[i])))
            continue;
        while (i > 0)
            weir__stripe_unlock(zone, ret->stripes[--i]);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        weir__page_mend(zone, ops[i].home);
    return true;
}

static void unlock_stripes(struct weir__zone *zone, struct weir__op *ops, size_t n,
                           const struct locked *locked)
{
    weir__table_thaw(ops, n);
    for (size_t i = locked->count; i > 0; i--)
        weir__stripe_unlock(zone, locked->stripes[i - 1]);
}

/* Finds the state and brings it up to now. */
static int load(struct weir__zone *zone, struct weir__op *op)
{
    if (WEIR__UNLIKELY(weir__op_is_stale(zone, op)))
        return WEIR__STALE;
    int code = weir__table_find(zone, op);
    if (WEIR__UNLIKELY(code))
        return code;
    op->has_block = op->group && weir__is_large(op->rule);
    weir__load(op->rule, op->written_under, &op->state, op->request.now_us);
    return 0;
}

static void judge(struct weir__op *op)
{
    *op->ret = (weir_decision){.time_us = op->request.now_us};
    weir__algorithm_of(op->rule)->judge(op->rule, &op->state, &op->request, op->ret);
    op->ret->granted = op->ret->allowed ? op->request.cost : 0;
}

/* Whether limit i of a request is charged what is granted. */
static bool is_granted(const weir_request *request, size_t i)
{
    return request->least && weir__limit_varies(request->limit, i);
}

/* Requests with a least were judged by it. What all their limits allow together becomes their cost;
 * where the call is denied, each limit shows what it would allow alone. Limits with a cost of their
 * own keep it. */
static void grant_all(struct weir__op *ops, const struct weir__group_of *asked, bool allowed)
{
    const weir_request *end = asked->requests + asked->count;
    const struct weir__budget budget = weir__budget_of(asked->requests, asked->count);
    struct weir__op *op = ops;
    int64_t together = budget.most;
    for (const weir_request *it = asked->requests; it < end; it++) {
        for (size_t i = 0; i < it->limit->count; i++, op++) {
            if (!is_granted(it, i) || !op->ret->allowed)
                continue;
            int64_t left = weir__left(op->rule, &op->state, op->request.now_us);
            op->ret->granted = weir__min(budget.most, left);
            assert(op->ret->granted >= budget.least);
            together = weir__min(together, op->ret->granted);
        }
    }
    op = ops;
    for (const weir_request *it = asked->requests; it < end && allowed; it++) {
        for (size_t i = 0; i < it->limit->count; i++, op++) {
            if (is_granted(it, i))
                op->request.cost = op->ret->granted = together;
        }
    }
}

/* Room for the op's state as it will be. */
static int reserve(struct weir__zone *zone, struct weir__op *op, struct weir__op *ops, size_t n)
{
    if (!op->group) {
        int code = weir__table_place(zone, op, ops, n);
        if (code)
            return code;
    }
    return weir__is_large(op->rule) ? weir__ring_reserve(zone, op, ops, n) : 0;
}

/* Blocks got for states that will not be written after all. */
static void give_back(struct weir__zone *zone, struct weir__op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ops[i].has_block && ops[i].group && weir__slot_tag(ops[i].group, ops[i].slot) == 0)
            weir__block_free(zone, ops[i].unit, ops[i].order, ops[i].group, ops[i].slot);
    }
}

static void charge(struct weir__zone *zone, struct weir__op *op)
{
    if (op->lease_id && weir__algorithm_of(op->rule)->leases) {
        weir__lease_acquire(op->rule, &op->state, op->request.cost, op->lease_id);
        op->ret->lease = op->lease_id;
    } else {
        weir__algorithm_of(op->rule)->charge(op->rule, &op->state, &op->request);
    }
    op->ret->charged = op->request.cost;
    weir__table_write(zone, op);
}

/* There is no room for an op. Where the zone's user wants to be told so by a denial, that is its
 * answer. */
static int refuse(struct weir__zone *zone, struct weir__op *op, int code)
{
    if (code != WEIR_EFULL || !zone->full_denies)
        return code;
    op->ret->allowed = false;
    op->ret->full = true;
    op->ret->delay_us = op->ret->granted = 0;
    op->ret->retry_after_us =
        op->group ? weir__ring_room_in(zone, op) : weir__table_room_in(zone, op);
    return 0;
}

static int charge_all(struct weir__zone *zone, struct weir__op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int code = ops[i].request.cost > 0 ? reserve(zone, &ops[i], ops, n) : 0;
        if (WEIR__UNLIKELY(code)) {
            give_back(zone, ops, n);
            return refuse(zone, &ops[i], code);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (ops[i].request.cost > 0)
            charge(zone, &ops[i]);
    }
    return 0;
}

/* Whether a loaded log or window is ahead of the request by more than the caller knows of. The
 * charge would join the newest entry or the later window, but its receipt would name an earlier
 * time. A refund would then be taken from another's entry, which may not have that much, or be
 * void. */
static bool is_behind(struct weir__op *ops, const struct weir__op *op)
{
    int64_t newest = weir__newest_us(op->rule, &op->state);
    if (!op->state.present || newest <= op->request.now_us || newest <= ops->ahead_us ||
        !weir__settles_by_time(op->rule))
        return false;
    ops->ahead_us = newest;
    return true;
}

/* `asked`: the requests of the ops, if one of them has a least; else NULL. */
static int decide(struct weir__zone *zone, struct weir__op *ops, size_t n, enum weir__mode mode,
                  const struct weir__group_of *asked)
{
    bool allowed = true;
    for (size_t i = 0; i < n; i++) {
        int code = load(zone, &ops[i]);
        if (WEIR__UNLIKELY(code))
            return code;
        if (WEIR__UNLIKELY(mode == WEIR__TAKE && is_behind(ops, &ops[i])))
            return WEIR__BEHIND;
        judge(&ops[i]);
        allowed = allowed && ops[i].ret->allowed;
    }
    if (WEIR__UNLIKELY(asked))
        grant_all(ops, asked, allowed);
    int code = allowed && mode == WEIR__TAKE ? charge_all(zone, ops, n) : 0;
    for (size_t i = 0; i < n && WEIR__UNLIKELY(asked) && code == 0; i++) {
        if (ops[i].ret->full) /* so it is denied after all */
            grant_all(ops, asked, false);
    }
    for (size_t i = 0; i < n && code == 0; i++) {
        const struct weir__op *op = &ops[i];
        weir__algorithm_of(op->rule)->report(op->rule, &op->state, op->request.now_us, op->ret);
        if (WEIR__UNLIKELY(op->ret->full))
            op->ret->remaining = 0;
        if (mode == WEIR__TAKE && op->group && !op->ret->full)
            weir__slot_note(op->group, op->slot, weir__group_head(op->group), op->ret);
    }
    return code;
}

/* Runs an action under the ops' locks; again, where it needs what another has who may need ours. */
#define WITH_LOCKS(zone, ops, n, code, action)                                                     \
    do {                                                                                           \
        int64_t since_us = 0;                                                                      \
        do {                                                                                       \
            struct locked locked;                                                                  \
            code = WEIR__HELD;                                                                     \
            if (lock_stripes(zone, ops, n, &locked)) {                                             \
                code = (action);                                                                   \
                unlock_stripes(zone, ops, n, &locked);                                             \
            }                                                                                      \
        } while (WEIR__UNLIKELY(code == WEIR__WANTED) && weir__zone_waits(zone, &since_us));       \
        code = code == WEIR__WANTED ? WEIR__HELD : code;                                           \
    } while (0)

/* One limit without a state: there may be no room for it, and then the answer stays as it was. */
static int take_new(struct weir__zone *zone, struct weir__op *op, enum weir__mode mode)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(op->rule);
    weir_decision *ret = op->ret, row;
    op->ret = &row;
    judge(op);
    if (row.allowed && mode == WEIR__TAKE && op->request.cost > 0) {
        int code = weir__table_place(zone, op, op, 1);
        if (code)
            code = refuse(zone, op, code);
        else
            charge(zone, op);
        if (code)
            return code;
    }
    algorithm->report(op->rule, &op->state, op->request.now_us, &row);
    if (row.full)
        row.remaining = 0; /* for whom there is no room */
    *ret = row;
    return 0;
}

/* One limit with a small state that needs the lock: nothing can fail once it is judged. */
static int take_small(struct weir__zone *zone, struct weir__op *op, enum weir__mode mode)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(op->rule);
    uint32_t stripe = weir__stripe_of(zone, op->home);
    if (WEIR__UNLIKELY(!weir__page_lock(zone, op->home)))
        return WEIR__HELD;
    op->frozen = false;
    int code = load(zone, op);
    if (WEIR__UNLIKELY(code == 0 && !op->group)) {
        code = take_new(zone, op, mode);
    } else if (WEIR__UNLIKELY(code == 0 && mode == WEIR__TAKE && is_behind(op, op))) {
        code = WEIR__BEHIND;
    } else if (WEIR__LIKELY(code == 0)) {
        judge(op);
        if (op->ret->allowed && mode == WEIR__TAKE && op->request.cost > 0) {
            algorithm->charge(op->rule, &op->state, &op->request);
            op->ret->charged = op->request.cost;
            weir__table_write(zone, op);
        }
        algorithm->report(op->rule, &op->state, op->request.now_us, op->ret);
        if (mode == WEIR__TAKE)
            weir__slot_note(op->group, op->slot, weir__group_head(op->group), op->ret);
    }
    weir__table_thaw(op, 1);
    weir__stripe_unlock(zone, stripe);
    return code;
}

int weir__zone_apply_locked(struct weir__zone *zone, struct weir__op *ops, size_t n,
                            enum weir__mode mode)
{
    int code;
    if (n == 1 && !weir__is_large(ops->rule))
        return take_small(zone, ops, mode);
    WITH_LOCKS(zone, ops, n, code, decide(zone, ops, n, mode, NULL));
    return code;
}

int weir__zone_grant(struct weir__zone *zone, struct weir__op *ops, size_t n, enum weir__mode mode,
                     const struct weir__group_of *asked)
{
    int code;
    WITH_LOCKS(zone, ops, n, code, decide(zone, ops, n, mode, asked));
    return code;
}

int weir__zone_apply(struct weir__zone *zone, struct weir__op *ops, size_t n, enum weir__mode mode)
{
    int code = WEIR__LOCKED;
    if (n == 1 && !weir__is_large(ops->rule))
        code = weir__zone_take_free(zone, ops, mode);
    return code == WEIR__LOCKED ? weir__zone_apply_locked(zone, ops, n, mode) : code;
}

/* Aligned to nothing, one at most: there or not, however far the clock runs back. No padding, as in
 * all rules. */
const struct weir__rule weir__mark_rule = {.kind = WEIR__FROM_FIRST,
                                           .flags = WEIR__MARK,
                                           .count = 1,
                                           .period_us = WEIR__SETTLED_US,
                                           .horizon_us = WEIR__EXACT_MAX};

/* Remembers that a loaded state is settled, until it would be fresh and an hour at most; before it
 * is changed, so that a death in between leaves a charge that is not refunded, rather than one that
 * is refunded twice. Where there is no room, it is not remembered. */
static void put_mark(struct weir__zone *zone, struct weir__op *ops, size_t n, size_t i,
                     const struct weir__correction *correction)
{
    struct weir__op *op = &ops[i], *mark = &ops[n + i];
    int64_t now = correction->now_us, until = now + WEIR__SETTLED_US;
    if (correction->actual <= correction->charged)
        until = op->state.present
                    ? weir__min(until, weir__algorithm_of(op->rule)->fresh_at(op->rule, &op->state))
                    : now;
    if (until <= now || (!mark->group && weir__table_place(zone, mark, ops, 2 * n)))
        return;
    mark->state.at = weir__max(1, until - WEIR__SETTLED_US); /* a slot of zeros is damage */
    mark->state.amount = 1;
    mark->state.present = true;
    weir__table_write(zone, mark);
}

/* Loads limits and their marks; the number of those that were not settled before, or a code. */
static int load_settled(struct weir__zone *zone, struct weir__op *ops, size_t n,
                        const struct weir__correction *correction)
{
    int left = (int)n;
    for (size_t i = 0; i < n; i++) {
        int code = load(zone, &ops[i]);
        if (code == 0 && correction->id)
            code = load(zone, &ops[n + i]);
        if (code)
            return code;
        left -= correction->id && ops[n + i].state.present;
    }
    return left == 0 ? WEIR_ESETTLED : left;
}

static int settle_all(struct weir__zone *zone, struct weir__op *ops, size_t n,
                      const struct weir__correction *correction)
{
    bool surcharge = correction->actual > correction->charged;
    bool differs = correction->actual != correction->charged;
    int left = load_settled(zone, ops, n, correction);
    size_t all = correction->id ? 2 * n : n;
    if (left < 0)
        return left;
    for (size_t i = 0; i < n && surcharge; i++) { /* a refund needs no room */
        int code = reserve(zone, &ops[i], ops, all);
        if (code) {
            give_back(zone, ops, n);
            return code;
        }
    }
    for (size_t i = 0; i < n; i++) {
        struct weir__op *op = &ops[i];
        if (correction->id && ops[n + i].state.present)
            continue;
        if (correction->id)
            put_mark(zone, ops, n, i, correction);
        if (differs && op->group &&
            weir__algorithm_of(op->rule)->settle(op->rule, &op->state, correction))
            weir__table_write(zone, op);
    }
    for (size_t i = 0; i < n; i++) {
        if (!ops[i].state.present)
            give_back(zone, &ops[i], 1);
    }
    return 0;
}

int weir__zone_settle(struct weir__zone *zone, struct weir__op *ops, size_t n,
                      const struct weir__correction *correction)
{
    int code;
    WITH_LOCKS(zone, ops, correction->id ? 2 * n : n, code, settle_all(zone, ops, n, correction));
    return code;
}

static int change_lease(struct weir__zone *zone, struct weir__op *op, enum weir__lease_verb verb)
{
    int code = load(zone, op);
    if (code)
        return code;
    if (!op->group)
        return WEIR_ENOLEASE;
    bool found = verb == WEIR__RENEW ? weir__lease_renew(op->rule, &op->state, op->lease_id)
                                     : weir__lease_release(&op->state, op->lease_id);
    if (!found)
        return WEIR_ENOLEASE;
    weir__table_write(zone, op);
    return 0;
}

int weir__zone_lease(struct weir__zone *zone, struct weir__op *op, enum weir__lease_verb verb)
{
    int code;
    WITH_LOCKS(zone, op, 1, code, change_lease(zone, op, verb));
    if (code == 0 && verb == WEIR__RELEASE)
        weir__zone_ring(zone, weir__stripe_of(zone, op->home));
    return code;
}

int weir__zone_reset(struct weir__zone *zone, uint64_t tag, int64_t now_us, bool *ret_live)
{
    uint32_t home = weir__home_of(zone, tag), stripe = weir__stripe_of(zone, home);
    if (!weir__page_lock(zone, home))
        return WEIR__HELD;
    *ret_live = weir__table_reset(zone, tag, now_us);
    weir__stripe_unlock(zone, stripe);
    weir__zone_ring(zone, stripe);
    return 0;
}

/* One slot's state, if it is sound and not empty. */
static bool show_slot(const struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                      int64_t now_us, struct weir__shown *ret)
{
    const struct weir__rule *rule;
    struct weir__state state = {0};
    uint32_t unit;
    unsigned order;
    if (!weir__slot_unpack(zone, group, slot, &rule, &state, &unit, &order) ||
        !weir__state_sound(rule, &state) || (weir__is_large(rule) && state.ring.len == 0))
        return false;
    weir__show(rule, true, &state, weir__algorithm_of(rule)->fresh_at(rule, &state), now_us, ret);
    return true;
}

int weir__zone_show(struct weir__zone *zone, uint64_t tag, int64_t now_us, struct weir__shown *ret,
                    size_t *ret_count)
{
    _Static_assert(WEIR__REACH * WEIR__SLOTS <= WEIR__SHOWN_MAX, "room for all");
    uint32_t home = weir__home_of(zone, tag), stripe = weir__stripe_of(zone, home);
    size_t count = 0;
    if (!weir__page_lock(zone, home))
        return WEIR__HELD;
    for (uint32_t d = 0; d < WEIR__REACH; d++) {
        const struct weir__group *group = weir__group_at(zone, home, tag, d);
        for (unsigned slot = 0; slot < WEIR__SLOTS; slot++) {
            if (weir__slot_tag(group, slot) == tag)
                count += show_slot(zone, group, slot, now_us, &ret[count]);
        }
    }
    weir__stripe_unlock(zone, stripe);
    *ret_count = count;
    return 0;
}

/* Takes and peeks of several limits or keys at once: all or none. */
#include "store/zone/ops.h"

#include <string.h>

struct group {
    struct weir__op ops[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX];
    size_t count;
    int64_t least; /* that those which have one are judged by; 0: none has one */
};

/* Two limits of one key that would share a state can only come from different requests. */
static bool decide_shares(const struct group *group)
{
    for (size_t i = 1; i < group->count; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct weir__op *a = &group->ops[i], *b = &group->ops[j];
            if (a->tag == b->tag && weir__rule_same_state(a->rule, b->rule))
                return true;
        }
    }
    return false;
}

static int decide_build(struct weir__zone *zone, const weir_request *requests, size_t n,
                        enum weir__mode mode, int64_t now_us, struct group *group)
{
    uint64_t lease = 0; /* one names what all requests hold */
    group->count = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t tag = weir__key_tag_again(zone, requests[i].key, requests[i].hashed);
        weir__prefetch_home(zone, weir__home_of(zone, tag));
        int added = weir__ops_add(zone, &requests[i], mode, group->least, &lease, tag, now_us,
                                  group->ops + group->count, group->rows + group->count);
        if (added < 0)
            return added;
        group->count += (size_t)added;
    }
    return n > 1 && decide_shares(group) ? WEIR_ESHARED : 0;
}

static void decide_hand_out(const weir_request *requests, size_t n, const weir_decision *rows)
{
    for (size_t i = 0; i < n; rows += requests[i].limit->count, i++) {
        if (requests[i].detail)
            memcpy(requests[i].detail, rows, requests[i].limit->count * sizeof *rows);
    }
}

/* The lease of the limits that have leases. */
static uint64_t decide_lease(const struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (group->rows[i].lease)
            return group->rows[i].lease;
    }
    return 0;
}

/* No row was found for one of them: all limits of the group are denied. */
static bool decide_deny_full(const struct weir__zone *zone, const weir_request *requests, size_t n,
                             int64_t now_us, struct group *group)
{
    group->count = 0;
    for (size_t i = 0; i < n; i++) {
        if (!weir__deny_full(zone, requests[i].limit, now_us, requests[i].cost,
                             group->rows + group->count))
            return false;
        group->count += requests[i].limit->count;
    }
    return true;
}

int weir__zone_decide(weir_store *store, const weir_request *requests, size_t n,
                      enum weir__mode mode, int64_t now, weir_decision *ret)
{
    struct weir__zone *zone = weir__zone_of(store);
    struct group group;
    const struct weir__group_of asked = {requests, n};
    int64_t ahead = 0;
    group.least = weir__budget_of(requests, n).least;
    int lost = weir__zone_look(store, now), code = lost ? lost : WEIR__STALE;
    for (int tries = 0; tries < WEIR__STALE_RETRIES && weir__is_retried(code); tries++) {
        code = decide_build(zone, requests, n, mode, now, &group);
        group.ops[0].ahead_us = ahead;
        if (code == 0)
            code = group.least ? weir__zone_grant(zone, group.ops, group.count, mode, &asked)
                               : weir__zone_apply(zone, group.ops, group.count, mode);
        for (size_t i = 0; i < n && code == WEIR__STALE; i++)
            weir__hints_forget(requests[i].limit);
        if (code == WEIR__BEHIND)
            weir__catch_up(store, group.ops, tries, &now, &ahead);
    }
    if (WEIR__UNLIKELY(weir__told(code) == WEIR_EFULL && mode == WEIR__TAKE) &&
        decide_deny_full(zone, requests, n, now, &group))
        code = 0;
    if (code)
        return weir__told(code);
    decide_hand_out(requests, n, group.rows);
    weir__fold(group.rows, group.count, ret);
    ret->granted = !ret->allowed ? 0 : requests[0].cost;
    if (WEIR__UNLIKELY(group.least && ret->allowed))
        ret->granted = weir__granted(requests, n, group.rows);
    ret->charged = !ret->allowed || mode == WEIR__PEEK ? 0
                   : requests[0].least                 ? ret->granted
                                                       : requests[0].cost;
    ret->lease = decide_lease(&group);
    return 0;
}

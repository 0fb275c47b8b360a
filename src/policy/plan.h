/*
 * A plan: what one request takes. Policies make it of a request's attributes, Envoy's rules of its
 * descriptors. Executing it (execute.c) is the same for both.
 *
 *     enforced   decided together, all or nothing
 *     shadow     decided and counted, never enforced
 *     separate   each decided for itself: refunds, and rules that are charged even when they deny
 *
 * What holds: a plan borrows from the set of policies or rules that made it, and its keys lie in
 * itself. Making and executing it allocates nothing.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include "limit/limit.h"
#include "store/store.h"
#include "wire/decision.h"

#include <stdbool.h>

struct weir__policy;
struct weir__entry;

#define WEIR__ENTRIES_MAX 16       /* limits entries a policy, and items of each kind in a plan */
#define WEIR__PLAN_KEYS_ROOM 20480 /* bytes of all keys */
#define WEIR__EXEMPTED_MAX 32      /* more are not counted */

struct weir__item {
    const struct weir__policy *policy; /* NULL: a rule of Envoy's */
    const struct weir__entry *entry;   /* likewise */
    const weir_limit *limit;           /* overrides and shares applied */
    weir_key key;
    int64_t cost;
    int64_t least;      /* 0: all of it; else all items with one get the same amount */
    uint32_t owners;    /* bit i: descriptor i of the request takes it. HTTP and RESP have one: 0 */
    bool variable;      /* the cost came with the request: what settle corrects */
    bool acquire;       /* holds a slot of its concurrent limit */
    bool quota;         /* denies only where all quotas of the plan do; then it is not charged */
    bool refund;        /* separate: gives its cost back */
    bool charge_denied; /* separate: charged even when it denies */
    bool shadow;        /* separate: its denial does not count */
    weir_decision decision; /* executed: all its limits in one; a code: nothing was decided */
};

/* An entry in shadow whose key cannot be made, which would deny the request. */
struct weir__lacking {
    const struct weir__policy *policy;
    const struct weir__entry *entry;
};

/* Why a verdict is DENY. */
enum weir__denial { WEIR__DENIED_LISTED, WEIR__DENIED_MISSING };

/* How enforced items are taken whose keys may lie in different slots of a cluster. */
enum weir__together {
    WEIR__TOGETHER,             /* only in one go */
    WEIR__TOGETHER_IF_POSSIBLE, /* one after the other where the store cannot do it in one go */
    WEIR__APART,                /* one after the other */
};

struct weir__plan {
    enum weir__verdict verdict;
    const struct weir__policy
        *by; /* ALLOW, DENY: whose list; LIMITS: the first that applies; NULL: nobody's */
    enum weir__denial denial;
    /* The first policy whose deny list has the request, and which entry of it; NULL: none. */
    const struct weir__policy *listed;
    size_t listed_at;
    const struct weir__policy
        *exempted[WEIR__EXEMPTED_MAX]; /* whose allow lists have the request, also past them */
    size_t exempted_count;
    struct weir__lacking lacking[WEIR__ENTRIES_MAX]; /* more are not counted */
    size_t lacking_count;
    int64_t wait_us; /* the longest acceptable delay, for all items */
    int64_t asked;   /* the cost that came with the request; -1: none did */
    enum weir__together together;
    bool denied;         /* in: whatever the items say, it is denied; out: whether it is */
    bool shadows_follow; /* shadows are charged only where the request goes ahead */
    bool draws;          /* it acquires, and no enforced item does: the lease is drawn for it */
    size_t quotas_spent; /* quotas besides the items, all of them used up */
    /* In its rooms, or where it was copied to without them. At most WEIR__ENTRIES_MAX of each. */
    struct weir__item *enforced, *shadow, *separate;
    size_t enforced_count, shadow_count, separate_count;
    size_t limit_count; /* of all enforced items */
    size_t keys_len;
    /* Last: a copy ends before them. */
    struct weir__item room[3 * WEIR__ENTRIES_MAX];
    char keys[WEIR__PLAN_KEYS_ROOM];
};

/* An empty plan. */
static inline void weir__plan_begin(struct weir__plan *plan)
{
    plan->verdict = WEIR__VERDICT_NONE;
    plan->by = plan->listed = NULL;
    plan->listed_at = 0;
    plan->exempted_count = plan->lacking_count = 0;
    plan->wait_us = WEIR_WAIT_DEFAULT;
    plan->asked = -1;
    plan->together = WEIR__TOGETHER;
    plan->denied = plan->shadows_follow = plan->draws = false;
    plan->quotas_spent = 0;
    plan->enforced = plan->room;
    plan->shadow = plan->room + WEIR__ENTRIES_MAX;
    plan->separate = plan->room + 2 * WEIR__ENTRIES_MAX;
    plan->enforced_count = plan->shadow_count = plan->separate_count = 0;
    plan->limit_count = plan->keys_len = 0;
}

/* The least of a request, for its items whose cost came with it. 0: the policies' own. Then every
 * least is within every cost, since all such items get the same amount. */
void weir__plan_set_least(struct weir__plan *plan, int64_t least);

/* Adds an enforced item. One with the key and the limits of another descriptor's is taken once,
 * with the cost of both; *ret is the item that takes it. WEIR_EINVAL: more limits (then *ret is
 * NULL) or cost than a request may have; WEIR_ESHARED: it would count in one place with *ret,
 * against different limits. */
int weir__plan_enforce(struct weir__plan *plan, const struct weir__item *item,
                       struct weir__item **ret);

/* ---- executing (execute.c) ----
 *
 * Executing a plan against a store: the one place that decides, settles and resets what policies
 * and Envoy's rules ask for. It may block, since a store can be far away; any thread may do it, one
 * at a time for each plan.
 *
 * What holds:
 *   1. All enforced items are charged, or none. Items that are not charged report themselves so.
 *   2. In this order: refunds, the other separate items, the enforced ones, shadows.
 *   3. What cannot be decided fails as a whole, apart from shadows: a shadow denies nothing, its
 *      store neither.
 */

/* Where the rows of limits go; either may be NULL. */
struct weir__plan_rows {
    weir_decision *enforced;                  /* one behind the other, WEIR_LIMITS_MAX at most */
    weir_decision (*shadow)[WEIR_LIMITS_MAX]; /* of each shadow item */
};

/* Decides every item. `mode` PEEK charges nothing. *ret is the enforced items' answer as one, as
 * the policies want it where a local fallback decided. 0 or a code; then nothing is charged. */
int weir__plan_decide(weir_store *store, struct weir__plan *plan, enum weir__mode mode,
                      const struct weir__plan_rows *rows, weir_decision *ret);

/* A local fallback's decision about the items of these owners, as their policies want it: closed
 * wins, open only where all of them say so. */
void weir__plan_apply_fail(const struct weir__plan *plan, uint32_t owners, weir_decision *decision);

/* How many of these have a limit with leases. */
size_t weir__items_leased(const struct weir__item *items, size_t n);
/* From now on the plan acquires: each of its items with leases, also in shadow, holds a slot. The
 * decision has one lease for all of them, also where only shadows have leases, or where an allow
 * list exempts the request. */
void weir__plan_acquire(struct weir__plan *plan);
/* Renews or releases the slots of a plan that is made again, under each key that holds the lease. A
 * release that did something is done, so that one which was cut off can be sent again. A renewal
 * needs every key: who lost one slot must stop. Otherwise WEIR_ENOLEASE. A release that fails goes
 * on with the other keys, and returns the first failure. Slots of shadows go along,
 * and fail nobody, as do those of policies that exempt the request: without another enforced limit
 * that has leases it is 0. */
int weir__plan_change_lease(weir_store *store, const struct weir__plan *plan, uint64_t lease,
                            enum weir__lease_verb verb);

/* Which items a settle corrects (bit i: the enforced item i): those whose cost came with the
 * request, or all of them if none did; never what has a cost of its own. */
uint32_t weir__plan_settled(const struct weir__plan *plan);

/* Corrects what a plan that is made again was charged. `receipt` is proven, the library's form.
 * WEIR_ESETTLED: all of it was settled before. */
int weir__plan_settle(weir_store *store, const struct weir__plan *plan, const char *receipt,
                      int64_t actual);

/* Forgets the keys of a plan. *ret_there: there was something to forget. */
int weir__plan_reset(weir_store *store, const struct weir__plan *plan, bool *ret_there);

#endif

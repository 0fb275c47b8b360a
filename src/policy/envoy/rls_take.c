/*
 * Deciding a plan: see rls.h. In this order: refunds; what is decided by itself; the group, all or
 * nothing; shadows. Each item is decided by one of these, and conclude puts them together.
 */
#include "policy/envoy/rls.h"

#include "limit/receipt.h"

#include <string.h>

#define NO_WAIT 0 /* Envoy cannot be told to hold a request back, so what would wait is denied */

static weir_request ask_for(const struct server_rls_item *item)
{
    return (weir_request){
        .key = item->key, .limit = item->limit, .cost = item->cost, .wait_us = NO_WAIT};
}

/* Whether its own limit denied it. */
static bool is_denied(const struct server_rls_item *item)
{
    return item->denies || (item->limit && !item->refund && !item->decision.allowed);
}

/* ---- refunds ---- */

/* A log or window is given back from its oldest entry that still counts; a bucket's debt and the window
 * of now need no such care. */
static int64_t refund_time(const struct weir__rule *rule, int64_t now_us)
{
    if (weir__is_large(rule))
        return weir__max(0, now_us - rule->period_us + 1);
    return now_us;
}

static int refund_part(weir_store *store, const struct server_rls_item *item,
                       const weir_limit *part)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_decision now;
    int code = weir_peek(store, item->key, part, 0, &now);
    if (code || now.degraded)
        return code;
    weir_decision charged = {.time_us = refund_time(&part->rules[0], now.time_us),
                             .charged = item->hits};
    weir__receipt_write(charged.time_us, charged.charged, 0, receipt);
    code = weir_settle(store, item->key, part, receipt, 0, NULL);
    return code == WEIR_EUNREACHABLE ? 0 : code;
}

/* Gives hits back and looks what is left then. While no server can be reached, it gives nothing. */
static int refund(weir_store *store, struct server_rls_item *item)
{
    const weir_limit *const *parts = item->rule ? item->rule->parts : &item->limit;
    size_t count = item->rule ? item->rule->part_count : 1;
    for (size_t i = 0; i < count && item->hits > 0; i++) {
        int code = refund_part(store, item, parts[i]);
        if (code)
            return code;
    }
    return weir_peek(store, item->key, item->limit, 0, &item->decision);
}

static int refund_all(weir_store *store, struct server_rls_plan *plan)
{
    int code = 0;
    for (size_t i = 0; i < plan->count && code == 0; i++) {
        if (plan->items[i].limit && plan->items[i].refund)
            code = refund(store, &plan->items[i]);
    }
    return code;
}

/* ---- by itself ---- */

/* Whether charging more changes neither when it is let in nor when it is as new: a window's end. */
static bool ends_as_told(const struct server_rls_item *item)
{
    const weir_decision *decision = &item->decision;
    return item->limit->count == 1 && weir__algorithm_of(&item->limit->rules[0])->fixed_end &&
           decision->retry_after_us != WEIR_NEVER && decision->reset_after_us > 0;
}

/* Charges what was denied, over the limit: settles a charge of nothing to the whole. The decision stands
 * whether or not this works. What could never be allowed is let in by nothing, but from now on the
 * limit is used up, and when that ends is worth telling. */
static void charge_denied(weir_store *store, struct server_rls_item *item)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_decision *decision = &item->decision, then;
    if (decision->allowed || decision->degraded || item->hits == 0)
        return;
    weir__receipt_write(decision->time_us, decision->charged, 0, receipt);
    if (weir_settle(store, item->key, item->limit, receipt, item->hits, NULL))
        return;
    decision->remaining = 0;
    int64_t cost = decision->retry_after_us == WEIR_NEVER ? 0 : item->cost;
    if (ends_as_told(item) || weir_peek(store, item->key, item->limit, cost, &then))
        return;
    decision->reset_after_us = then.reset_after_us;
    if (!then.allowed)
        decision->retry_after_us = then.retry_after_us;
}

/* Takes several items, each for itself, at one reading of the clock. */
static int take_each(weir_store *store, struct server_rls_item **items, size_t n)
{
    weir_request requests[WEIR__RLS_DESCRIPTORS_MAX];
    weir_decision decisions[WEIR__RLS_DESCRIPTORS_MAX];
    if (n == 0)
        return 0;
    size_t filled = 0;
    do
        requests[filled] = ask_for(items[filled]);
    while (++filled < n);
    int code = weir_take_many(store, requests, n, decisions);
    for (size_t i = 0; i < n && code == 0; i++)
        items[i]->decision = decisions[i];
    return code;
}

static int take_alone(weir_store *store, struct server_rls_plan *plan)
{
    struct server_rls_item *items[WEIR__RLS_DESCRIPTORS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct server_rls_item *item = &plan->items[i];
        if (item->limit && item->alone && !item->refund)
            items[n++] = item;
    }
    int code = take_each(store, items, n);
    for (size_t i = 0; i < n && code == 0; i++)
        charge_denied(store, items[i]);
    return code;
}

/* ---- the group ---- */

struct group {
    struct server_rls_item *items[WEIR__RLS_DESCRIPTORS_MAX];
    size_t count;
    size_t quotas; /* of the request, that are not used up as far as is known */
    bool has_quotas;
    bool doomed; /* whatever the group says, the answer is OVER_LIMIT */
};

static struct group gather(struct server_rls_plan *plan)
{
    struct group group = {.count = 0};
    for (size_t i = 0; i < plan->count; i++) {
        struct server_rls_item *item = &plan->items[i];
        bool decided = item->denies || (item->limit && item->alone);
        if (item->shadow || item->refund || item->same_as != i || (!item->limit && !decided))
            continue;
        if (!decided)
            group.items[group.count++] = item;
        group.has_quotas = group.has_quotas || item->quota;
        group.quotas += item->quota && !(decided && is_denied(item));
        group.doomed = group.doomed || (decided && is_denied(item) && !item->quota);
    }
    group.doomed = group.doomed || (group.has_quotas && group.quotas == 0);
    return group;
}

/* Asks for all items at once. */
static int ask_together(weir_store *store, const struct group *group, bool peek)
{
    weir_request requests[WEIR__RLS_DESCRIPTORS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    size_t at = 0;
    for (size_t i = 0; i < group->count; i++) {
        requests[i] = ask_for(group->items[i]);
        requests[i].detail = rows + at;
        at += requests[i].limit->count;
    }
    int code = peek ? weir_peek_all(store, requests, group->count, &folded)
                    : weir_take_all(store, requests, group->count, &folded);
    for (size_t i = 0; i < group->count && code == 0; i++)
        weir__fold(requests[i].detail, requests[i].limit->count, &group->items[i]->decision);
    return code;
}

/* Takes the denied quotas out; false: an item that is no quota was denied, or no quota is left. */
static bool drop_quotas(struct group *group)
{
    size_t kept = 0;
    bool enforced = false;
    for (size_t i = 0; i < group->count; i++) {
        struct server_rls_item *item = group->items[i];
        if (item->decision.allowed)
            group->items[kept++] = item;
        else
            enforced = enforced || !item->quota;
    }
    if (!enforced)
        group->quotas -= group->count - kept;
    group->count = kept;
    return !enforced && group->quotas > 0;
}

static bool all_allowed(const struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        if (!group->items[i]->decision.allowed)
            return false;
    }
    return true;
}

/* ---- keys in different slots of a cluster: one by one, given back where the request is denied ---- */

static void give_back(weir_store *store, struct server_rls_item *item)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_decision *decision = &item->decision;
    if (decision->charged == 0)
        return;
    weir__receipt_write(decision->time_us, decision->charged, 0, receipt);
    if (weir_settle(store, item->key, item->limit, receipt, 0, NULL) == 0) {
        decision->remaining = weir__min(decision->limit, decision->remaining + decision->charged);
        decision->charged = 0;
    }
}

static int take_apart(weir_store *store, struct group *group)
{
    bool over = group->doomed;
    int code = 0;
    for (size_t i = 0; i < group->count && code == 0; i++) {
        struct server_rls_item *item = group->items[i];
        struct group one = {.items = {item}, .count = 1};
        code = ask_together(store, &one, over);
        if (code == 0 && !item->decision.allowed && item->quota)
            over = over || --group->quotas == 0;
        else if (code == 0 && !item->decision.allowed)
            over = true;
    }
    for (size_t i = 0; i < group->count && (over || code); i++)
        give_back(store, group->items[i]);
    return code;
}

static int take_group(weir_store *store, struct server_rls_plan *plan)
{
    struct group group = gather(plan);
    while (group.count > 0) {
        int code = ask_together(store, &group, group.doomed);
        if (code == WEIR_ESLOTS && group.count > 1)
            return take_apart(store, &group);
        if (code || group.doomed || all_allowed(&group) || !drop_quotas(&group))
            return code;
    }
    return 0;
}

/* ---- together ---- */

/* Whether the request is denied, by what is decided so far. */
static bool is_over(const struct server_rls_plan *plan)
{
    size_t quotas = 0, used_up = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct server_rls_item *item = &plan->items[i];
        bool asked = (item->limit || item->denies) && !item->refund && !item->shadow;
        if (!asked || item->same_as != i)
            continue;
        if (is_denied(item) && !item->quota)
            return true;
        quotas += item->quota;
        used_up += item->quota && is_denied(item);
    }
    return quotas > 0 && quotas == used_up;
}

/* Shadows are charged where the request goes ahead: as if they were in force. Those that cannot be
 * decided are answered as if there were no rule: a shadow denies nothing, its store neither. */
static void take_shadows(weir_store *store, struct server_rls_plan *plan)
{
    struct server_rls_item *items[WEIR__RLS_DESCRIPTORS_MAX];
    size_t n = 0;
    int code = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct server_rls_item *item = &plan->items[i];
        if (item->limit && item->shadow && !item->alone && !item->refund)
            items[n++] = item;
    }
    if (!plan->over)
        code = take_each(store, items, n);
    for (size_t i = 0; i < n && plan->over && code == 0; i++) {
        struct group one = {.items = {items[i]}, .count = 1};
        code = ask_together(store, &one, true);
    }
    for (size_t i = 0; i < n && code; i++)
        items[i]->limit = NULL;
}

static void conclude(struct server_rls_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        struct server_rls_item *item = &plan->items[i];
        if (!item->limit && !item->denies)
            continue;
        if (item->same_as != i)
            item->decision = plan->items[item->same_as].decision;
        if (item->refund)
            item->outcome = SERVER_RLS_REFUNDED;
        else if (!is_denied(item))
            item->outcome = SERVER_RLS_ALLOWED;
        else
            item->outcome = item->shadow ? SERVER_RLS_SHADOWED : SERVER_RLS_DENIED;
    }
}

int server_rls_take(weir_store *store, struct server_rls_plan *plan, weir_error *err)
{
    int code = refund_all(store, plan);
    if (code == 0)
        code = take_alone(store, plan);
    if (code == 0)
        code = take_group(store, plan);
    if (code)
        return weir__fail(err, code, 0, "the store cannot decide: %s", weir_strerror(code));
    plan->over = is_over(plan);
    take_shadows(store, plan);
    conclude(plan);
    return 0;
}

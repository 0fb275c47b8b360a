/* Executing a plan: see plan.h. */
#include "policy/policy.h"

#include "limit/receipt.h"
#include "remote/remote.h"
#include "store/take_or_undo.h"

#include <assert.h>

#define CLOSED_RETRY_US 1000000 /* as of a store whose own fallback says closed */

/* ---- one item ---- */

static weir_request item_request(const struct weir__plan *plan, const struct weir__item *item,
                                 weir_decision *rows)
{
    weir_request request = {.key = item->key,
                            .limit = item->limit,
                            .cost = item->cost,
                            .least = item->least,
                            .wait_us = plan->wait_us,
                            .detail = rows,
                            .acquire = item->acquire};
    if (item->policy && item->policy->fail_said)
        weir__request_set_fail(&request, item->policy->fail);
    return request;
}

/* Several items, each for itself. */
struct each {
    struct weir__item *items[WEIR__ENTRIES_MAX];
    weir_decision *rows[WEIR__ENTRIES_MAX]; /* of each, or NULL */
    size_t count;
};

static void each_add(struct each *each, struct weir__item *item, weir_decision *rows)
{
    assert(each->count < WEIR__ENTRIES_MAX);
    each->items[each->count] = item;
    each->rows[each->count++] = rows;
}

/* Those that are taken are taken at one reading of the clock, and in one round trip to a store that
 * is far away. Those that acquire hold their slots by this lease. */
static int each_decide(weir_store *store, const struct weir__plan *plan, const struct each *each,
                       enum weir__mode mode, uint64_t lease)
{
    weir_request requests[WEIR__ENTRIES_MAX];
    weir_decision decisions[WEIR__ENTRIES_MAX];
    const size_t n = each->count;
    int code = 0;
    for (size_t i = 0; i < n; i++) {
        requests[i] = item_request(plan, each->items[i], each->rows[i]);
        if (requests[i].acquire)
            weir__request_name_lease(&requests[i], lease);
    }
    if (mode == WEIR__TAKE && n > 0)
        code = weir__take_many(store, requests, n, decisions);
    for (size_t i = 0; i < n && mode == WEIR__PEEK; i++) {
        code = code ? code : weir__peek_all(store, &requests[i], 1, &decisions[i]);
        if (code)
            decisions[i] = (weir_decision){.code = code};
    }
    for (size_t i = 0; i < n; i++)
        each->items[i]->decision = decisions[i];
    return code;
}

/* ---- separate: refunds ---- */

/* Gives an item's cost back and looks what is left then. While no server can be reached, it gives
 * nothing. */
static int refund_item(weir_store *store, struct weir__item *item)
{
    for (size_t i = 0; i < item->limit->count && item->cost > 0; i++) {
        int64_t amount = weir__limit_asked(item->limit, i, item->cost);
        int code = weir__refund_limit(store, item->key, item->limit, i,
                                      &(struct weir__refund){.amount = amount}, NULL);
        if (code && code != WEIR_EUNREACHABLE)
            return code;
    }
    return weir_peek(store, item->key, item->limit, 0, &item->decision);
}

/* ---- separate: charged even when denied ---- */

/* Whether charging more changes neither when it is let in nor when it resets: the end of a window.
 * */
static bool ends_as_reported(const struct weir__item *item)
{
    const weir_decision *decision = &item->decision;
    return item->limit->count == 1 && weir__algorithm_of(&item->limit->rules[0])->fixed_end &&
           decision->retry_after_us != WEIR_NEVER && decision->reset_after_us > 0;
}

/* Settles a charge of nothing to what each limit would have been charged. */
static int charge_anyway(weir_store *store, const struct weir__item *item)
{
    char receipt[WEIR_RECEIPT_SIZE], text[WEIR__LIMITS_TEXT_MAX];
    weir_limit part;
    int64_t charged;
    int code = 0;
    weir__receipt_write(item->decision.time_us, 0, 0, receipt);
    for (uint32_t left = (UINT32_C(1) << item->limit->count) - 1; left && code == 0;) {
        uint32_t alike = weir__limit_charged_alike(item->limit, &left, item->cost, &charged);
        weir__limit_part(item->limit, alike, text, &part);
        code = weir_settle(store, item->key, &part, receipt, charged, NULL);
    }
    return code;
}

/* Charges what was denied, over the limit: settles a charge of nothing to the whole. The decision
 * stands whether or not this works. What could never be allowed is not let in by anything, but from
 * now on the limit is used up, and when that ends is worth reporting. */
static void charge_denied(weir_store *store, struct weir__item *item)
{
    weir_decision *decision = &item->decision, then;
    if (decision->allowed || decision->degraded || item->cost == 0)
        return;
    assert(decision->charged == 0);
    if (charge_anyway(store, item))
        return;
    decision->remaining = 0;
    int64_t cost = decision->retry_after_us == WEIR_NEVER ? 0 : item->cost;
    if (ends_as_reported(item) || weir_peek(store, item->key, item->limit, cost, &then))
        return;
    decision->reset_after_us = then.reset_after_us;
    if (!then.allowed)
        decision->retry_after_us = then.retry_after_us;
}

static int separate_decide(weir_store *store, struct weir__plan *plan, enum weir__mode mode)
{
    struct each each = {.count = 0};
    int code = 0;
    for (size_t i = 0; i < plan->separate_count && code == 0; i++) {
        struct weir__item *item = &plan->separate[i];
        if (item->refund && mode == WEIR__TAKE)
            code = refund_item(store, item);
        else if (item->refund)
            code = weir_peek(store, item->key, item->limit, 0, &item->decision);
        else
            each_add(&each, item, NULL);
    }
    if (code == 0)
        code = each_decide(store, plan, &each, mode, 0);
    for (size_t i = 0; i < each.count && code == 0 && mode == WEIR__TAKE; i++) {
        if (each.items[i]->charge_denied)
            charge_denied(store, each.items[i]);
    }
    return code;
}

/* ---- enforced ---- */

/* The enforced items that are still asked for. */
struct together {
    weir_store *store;
    struct weir__item *items[WEIR__ENTRIES_MAX];
    weir_request requests[WEIR__ENTRIES_MAX];
    size_t count;
    size_t quotas; /* of the plan, that are not used up as far as is known */
    bool denied;   /* whatever these say, nothing is charged */
};

static void together_begin(weir_store *store, struct weir__plan *plan, weir_decision *rows,
                           struct together *ret)
{
    bool has_quotas = plan->quotas_spent > 0;
    ret->store = store;
    ret->count = ret->quotas = 0;
    ret->denied = plan->denied;
    for (size_t i = 0; i < plan->separate_count; i++) {
        const struct weir__item *item = &plan->separate[i];
        if (item->refund || item->shadow)
            continue;
        has_quotas = has_quotas || item->quota;
        ret->quotas += item->quota && item->decision.allowed;
        ret->denied = ret->denied || (!item->quota && !item->decision.allowed);
    }
    for (size_t i = 0; i < plan->enforced_count; i++) {
        struct weir__item *item = &plan->enforced[i];
        ret->requests[i] = item_request(plan, item, rows);
        ret->items[ret->count++] = item;
        rows += item->limit->count;
        has_quotas = has_quotas || item->quota;
        ret->quotas += item->quota;
    }
    ret->denied = ret->denied || (has_quotas && ret->quotas == 0);
}

/* All of them in one go. */
static int together_ask(struct together *it, enum weir__mode mode, weir_decision *ret)
{
    int code = mode == WEIR__TAKE ? weir__take_all(it->store, it->requests, it->count, ret)
                                  : weir__peek_all(it->store, it->requests, it->count, ret);
    for (size_t i = 0; i < it->count && code == 0; i++) {
        weir_decision *decision = &it->items[i]->decision;
        if (it->requests[i].limit->count == 1)
            *decision = it->requests[i].detail[0];
        else
            weir__fold(it->requests[i].detail, it->requests[i].limit->count, decision);
        if (decision->allowed && ret->allowed)
            decision->granted = it->requests[i].least ? ret->granted : it->requests[i].cost;
        decision->degraded = ret->degraded;
        decision->local = ret->local;
    }
    return code;
}

/* One after the other, given back where the request is denied. */
static int together_ask_apart(struct together *it, weir_decision *ret)
{
    struct weir__part parts[WEIR__ENTRIES_MAX];
    struct weir__taking taking = {
        .parts = parts, .count = it->count, .quotas = it->quotas, .denied = it->denied};
    size_t limits = 0;
    bool degraded = false;
    for (size_t i = 0; i < it->count; i++)
        parts[i] = (struct weir__part){.store = it->store,
                                       .requests = &it->requests[i],
                                       .count = 1,
                                       .quota = it->items[i]->quota};
    int code = weir__take_or_undo(&taking);
    for (size_t i = 0; i < it->count && code == 0; i++) {
        it->items[i]->decision = parts[i].decision;
        degraded = degraded || parts[i].decision.degraded;
        limits += it->items[i]->limit->count;
    }
    if (code)
        return code;
    weir__fold(it->requests[0].detail, limits, ret);
    ret->time_us = parts[it->count - 1].decision.time_us;
    ret->degraded = degraded;
    ret->charged = ret->allowed && !degraded ? it->requests[0].cost : 0;
    ret->granted = ret->allowed ? it->requests[0].cost : 0;
    return 0;
}

/* After a denial, which charged nothing: leaves the quotas that denied out. False: it is denied
 * without them, or by all of them. */
static bool together_drop_quotas(struct together *it)
{
    size_t kept = 0, denied = 0;
    for (size_t i = 0; i < it->count; i++) {
        if (it->items[i]->decision.allowed) {
            it->requests[kept] = it->requests[i];
            it->items[kept++] = it->items[i];
        } else if (it->items[i]->quota) {
            denied++;
        } else {
            return false;
        }
    }
    assert(denied <= it->quotas);
    it->quotas -= denied;
    it->count = kept;
    return it->quotas > 0;
}

static int enforced_decide(weir_store *store, struct weir__plan *plan, enum weir__mode mode,
                           weir_decision *rows, weir_decision *ret)
{
    struct together it;
    together_begin(store, plan, rows, &it);
    it.denied = it.denied || mode == WEIR__PEEK; /* what is denied charges nothing, either */
    enum weir__mode asked = it.denied ? WEIR__PEEK : mode;
    while (it.count > 0) {
        if (it.count > 1 && plan->together == WEIR__APART)
            return together_ask_apart(&it, ret);
        int code = together_ask(&it, asked, ret);
        if (code == WEIR_ESLOTS && it.count > 1 && plan->together != WEIR__TOGETHER)
            return together_ask_apart(&it, ret);
        if (code || ret->allowed || asked == WEIR__PEEK || !together_drop_quotas(&it))
            return code;
    }
    return 0;
}

/* Whose cost a receipt of the whole tells: of the first that was granted something, or else charged
 * something. 0 tells that nothing was charged to anybody. */
static const struct weir__item *plan_told_item(const struct weir__plan *plan)
{
    for (size_t i = 0; i < plan->enforced_count; i++) {
        if (plan->enforced[i].least > 0)
            return &plan->enforced[i];
    }
    for (size_t i = 0; i < plan->enforced_count; i++) {
        if (plan->enforced[i].cost > 0)
            return &plan->enforced[i];
    }
    return &plan->enforced[0];
}

/* What the whole was granted and charged: by the item that its receipt tells of. */
static void plan_tell_granted(const struct weir__plan *plan, enum weir__mode mode,
                              weir_decision *ret)
{
    const struct weir__item *told = plan_told_item(plan);
    ret->granted = !ret->allowed ? 0 : told->least ? ret->granted : told->cost;
    ret->charged = mode == WEIR__TAKE && !ret->degraded ? ret->granted : 0;
}

/* ---- all of them ---- */

static void items_count(const struct weir__item *items, size_t n, bool *ret_denied,
                        size_t *ret_quotas, size_t *ret_spent)
{
    for (size_t i = 0; i < n; i++) {
        if (items[i].refund || items[i].shadow)
            continue;
        bool denied = !items[i].decision.allowed;
        *ret_quotas += items[i].quota;
        *ret_spent += items[i].quota && denied;
        *ret_denied = *ret_denied || (denied && !items[i].quota);
    }
}

/* Whether the request is denied, by all that is decided. */
static bool plan_is_denied(const struct weir__plan *plan)
{
    bool denied = plan->denied;
    size_t quotas = plan->quotas_spent, spent = plan->quotas_spent;
    items_count(plan->separate, plan->separate_count, &denied, &quotas, &spent);
    items_count(plan->enforced, plan->enforced_count, &denied, &quotas, &spent);
    return denied || (quotas > 0 && quotas == spent);
}

/* ---- shadows ----
 *
 * Most are charged like others. Slots of concurrent limits are held only where the request goes
 * ahead with a lease, and by that lease, so that its holder renews and releases them without
 * knowing of them:
 *
 *     acquire, allowed     held by the lease of the answer, if there is a slot; else it would deny
 *     acquire, denied      looked at
 *     take                 looked at: nobody could release them
 *     renew, release       of the slots that the lease holds; that it holds none is no error
 */

static void shadows_decide(weir_store *store, struct weir__plan *plan, enum weir__mode mode,
                           weir_decision (*rows)[WEIR_LIMITS_MAX], uint64_t lease)
{
    struct each taken = {.count = 0}, peeked = {.count = 0};
    if (plan->shadows_follow && plan->denied)
        mode = WEIR__PEEK;
    for (size_t i = 0; i < plan->shadow_count; i++) {
        struct weir__item *item = &plan->shadow[i];
        bool holds = item->acquire && lease;
        bool takes = mode == WEIR__TAKE && (holds || !weir__has_leases(item->limit));
        each_add(takes ? &taken : &peeked, item, rows ? rows[i] : NULL);
    }
    each_decide(store, plan, &taken, WEIR__TAKE, lease);
    each_decide(store, plan, &peeked, WEIR__PEEK, 0);
    for (size_t i = 0; i < plan->shadow_count; i++) {
        struct weir__item *item = &plan->shadow[i];
        if (!item->decision.code)
            continue;
        item->decision.allowed = true;
        for (size_t j = 0; rows && j < item->limit->count; j++)
            rows[i][j] = (weir_decision){.allowed = true};
    }
}

void weir__plan_apply_fail(const struct weir__plan *plan, uint32_t owners, weir_decision *decision)
{
    bool closed = false, open = true;
    for (size_t i = 0; i < plan->enforced_count; i++) {
        const struct weir__item *item = &plan->enforced[i];
        const struct weir__policy *policy = item->policy;
        if (!(item->owners & owners))
            continue;
        /* One by one, some may have been decided by the store: where it denied, it is denied. */
        bool denied = !item->decision.allowed && !item->decision.degraded;
        closed = closed || (policy && policy->fail == WEIR__FAIL_CLOSED);
        open = open && policy && policy->fail == WEIR__FAIL_OPEN && !denied;
    }
    if (closed) {
        if (decision->allowed) /* by the local fallback, which knows no time to wait */
            decision->retry_after_us = CLOSED_RETRY_US;
        decision->allowed = false;
        decision->delay_us = decision->granted = 0;
    } else if (open) {
        decision->allowed = true;
        decision->retry_after_us = decision->delay_us = 0;
    }
}

/* The lease of the whole: of the enforced items, which have drawn one, else `own`. */
static uint64_t plan_lease(const struct weir__plan *plan, uint64_t own, const weir_decision *whole)
{
    uint64_t lease = own;
    for (size_t i = 0; i < plan->enforced_count; i++) { /* a cost of 0 holds nothing */
        if (plan->enforced[i].acquire && plan->enforced[i].decision.lease)
            lease = plan->enforced[i].decision.lease;
    }
    return whole->allowed ? lease : 0; /* denied: a local fallback's, and the policy says closed */
}

int weir__plan_decide(weir_store *store, struct weir__plan *plan, enum weir__mode mode,
                      const struct weir__plan_rows *rows, weir_decision *ret)
{
    weir_decision room[WEIR_LIMITS_MAX];
    uint64_t lease = 0;
    bool listed = plan->denied; /* by what needs no store */
    *ret = (weir_decision){.allowed = plan->verdict != WEIR__VERDICT_DENY && !listed};
    if (!ret->allowed)
        ret->retry_after_us = WEIR_NEVER;
    else
        ret->granted = plan->asked >= 0 ? plan->asked : 1;
    if (mode == WEIR__TAKE && plan->draws && ret->allowed && weir__lease_id(&lease))
        return WEIR_ESYSTEM;
    if (plan->verdict != WEIR__VERDICT_LIMITS) {
        plan->denied = plan_is_denied(plan) || !ret->allowed;
        ret->lease = lease;
        return 0;
    }
    int code = plan->separate_count > 0 ? separate_decide(store, plan, mode) : 0;
    if (code == 0 && plan->enforced_count > 0)
        code =
            enforced_decide(store, plan, mode, rows && rows->enforced ? rows->enforced : room, ret);
    if (code)
        return code;
    if (plan->enforced_count > 0)
        plan_tell_granted(plan, mode, ret);
    if (!ret->allowed || plan->separate_count > 0 || plan->quotas_spent > 0)
        plan->denied = plan_is_denied(plan); /* else every item is allowed */
    if (ret->degraded && plan->by) {
        weir__plan_apply_fail(plan, UINT32_MAX, ret);
        plan->denied = listed || !ret->allowed;
        if (ret->allowed && ret->granted == 0) /* open: all that was asked for */
            ret->granted = plan_told_item(plan)->cost;
    }
    ret->lease = plan_lease(plan, lease, ret);
    if (plan->shadow_count > 0)
        shadows_decide(store, plan, mode, rows ? rows->shadow : NULL, ret->lease);
    if (mode == WEIR__PEEK && plan->listed && listed) { /* past its deny list, to explain it */
        ret->allowed = false;
        ret->retry_after_us = WEIR_NEVER;
        ret->delay_us = ret->granted = 0;
    }
    return 0;
}

/* ---- leases ---- */

size_t weir__items_leased(const struct weir__item *items, size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += weir__has_leases(items[i].limit);
    return found;
}

void weir__plan_acquire(struct weir__plan *plan)
{
    for (size_t i = 0; i < plan->enforced_count; i++)
        plan->enforced[i].acquire = weir__has_leases(plan->enforced[i].limit);
    for (size_t i = 0; i < plan->shadow_count; i++)
        plan->shadow[i].acquire = weir__has_leases(plan->shadow[i].limit);
    plan->draws = weir__items_leased(plan->enforced, plan->enforced_count) == 0;
}

static bool plan_exempts(const struct weir__plan *plan, const struct weir__policy *policy)
{
    for (size_t i = 0; i < plan->exempted_count; i++) {
        if (plan->exempted[i] == policy)
            return true;
    }
    return false;
}

static int item_change_lease(weir_store *store, const struct weir__item *item, uint64_t lease,
                             enum weir__lease_verb verb)
{
    return verb == WEIR__RENEW ? weir_renew(store, item->key, item->limit, lease)
                               : weir_release(store, item->key, item->limit, lease);
}

int weir__plan_change_lease(weir_store *store, const struct weir__plan *plan, uint64_t lease,
                            enum weir__lease_verb verb)
{
    size_t done = 0, gone = 0;
    int failed = 0; /* who releases may not come again: as much as possible is released */
    for (size_t i = 0; i < plan->enforced_count; i++) {
        const struct weir__item *item = &plan->enforced[i];
        if (!weir__has_leases(item->limit))
            continue;
        int code = item_change_lease(store, item, lease, verb);
        if (code && code != WEIR_ENOLEASE && verb == WEIR__RENEW)
            return code;
        failed = !failed && code != WEIR_ENOLEASE ? code : failed;
        done += code == 0;
        gone += code == WEIR_ENOLEASE && !plan_exempts(plan, item->policy);
    }
    bool stops = gone > 0 && verb == WEIR__RENEW;
    for (size_t i = 0; i < plan->shadow_count && !stops; i++) {
        if (weir__has_leases(plan->shadow[i].limit))
            item_change_lease(store, &plan->shadow[i], lease, verb); /* fails nobody */
    }
    return failed ? failed : gone == 0 || (done > 0 && !stops) ? 0 : WEIR_ENOLEASE;
}

/* ---- settle and reset ---- */

uint32_t weir__plan_settled(const struct weir__plan *plan)
{
    uint32_t variable = 0, settles = 0;
    assert(plan->enforced_count <= WEIR__ENTRIES_MAX);
    for (size_t i = 0; i < plan->enforced_count; i++) {
        variable |= (uint32_t)plan->enforced[i].variable << i;
        settles |= (uint32_t)(weir__limit_variable(plan->enforced[i].limit) != 0) << i;
    }
    return variable ? variable & settles : settles;
}

/* What an item was charged, by what the receipt says of the one that it tells of. Those with a
 * least got one amount, all others their cost. */
static int64_t item_charged(const struct weir__item *item, const struct weir__item *told,
                            int64_t charged)
{
    return item == told || charged == 0 || (item->least && told->least) ? charged : item->cost;
}

/* The receipt tells when, and proves the rest: each item was charged what is planned for it again.
 * */
int weir__plan_settle(weir_store *store, const struct weir__plan *plan, const char *receipt,
                      int64_t actual)
{
    struct weir__correction first;
    char one[WEIR_RECEIPT_SIZE];
    if (plan->enforced_count == 0)
        return WEIR_EINVAL;
    if (!weir__receipt_read(receipt, &first))
        return WEIR_ERECEIPT;
    const struct weir__item *told = plan_told_item(plan);
    const uint32_t settled = weir__plan_settled(plan);
    int code = 0;
    size_t before = 0, done = 0; /* sent again after a failure, it settles the rest */
    for (size_t i = 0; i < plan->enforced_count && code == 0; i++) {
        const struct weir__item *item = &plan->enforced[i];
        /* What was denied charged nobody. What a local fallback charged, it gives back itself. */
        int64_t charged = item_charged(item, told, first.charged);
        bool here = first.charged == 0 && first.id;
        if (!(settled >> i & 1) || (charged == 0 && actual == 0 && !here))
            continue; /* what changes nothing is not remembered */
        weir__receipt_write(first.charged_at_us, charged, first.id, one);
        code = weir_settle(store, item->key, item->limit, one, actual, NULL);
        before += code == WEIR_ESETTLED;
        done += code == 0;
        code = code == WEIR_ESETTLED ? 0 : code;
    }
    return code == 0 && before > 0 && done == 0 ? WEIR_ESETTLED : code;
}

static int items_reset(weir_store *store, const struct weir__item *items, size_t n, bool *ret_there)
{
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        bool there = false;
        code = weir__store_reset(store, items[i].key, &there);
        *ret_there = *ret_there || there;
    }
    return code;
}

int weir__plan_reset(weir_store *store, const struct weir__plan *plan, bool *ret_there)
{
    *ret_there = false;
    if (plan->enforced_count + plan->shadow_count == 0)
        return WEIR_EINVAL;
    int code = items_reset(store, plan->enforced, plan->enforced_count, ret_there);
    return code ? code : items_reset(store, plan->shadow, plan->shadow_count, ret_there);
}

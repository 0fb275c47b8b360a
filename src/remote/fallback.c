/*
 * The local fallback: who decides while no server does.
 *
 *     fail=local    the same limits in a zone of this process, counts and bursts divided by peers=
 *     fail=open     everything is allowed
 *     fail=closed   everything is denied, to be tried again in a second
 *
 * Every such decision is marked degraded, and its `charged` is 0: the servers were charged
 * nothing. So settling its receipt later charges them the real cost. What the zone was charged is
 * remembered (charges.c), and corrected here.
 *
 * The bound on what fail=local allows: each process allows at most its share of the limit. If
 * peers= is at least the number of processes, all of them together allow per period at most the
 * limit itself (or one request each, where that is more), in addition to what the servers allow. A
 * call that a server charged but did not answer in time is decided again here: that makes it
 * stricter.
 */
#include "limit/limit.h"
#include "limit/receipt.h"
#include "remote/remote.h"

#include <assert.h>
#include <string.h>

#define RETRY_US 1000000 /* by then the keeper has tried again */

/* ---- shares ---- */

static int64_t fallback_share_of(int64_t count, int32_t peers)
{
    return weir__max(1, count / peers);
}

static void fallback_share_rule(struct weir__rule *rule, int32_t peers)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    int64_t above = algorithm->most(rule) - rule->burst; /* a leaky bucket admits burst and one */
    rule->count = fallback_share_of(rule->count, peers);
    if (rule->burst > 0)
        rule->burst = fallback_share_of(rule->burst + above, peers) - above;
    if (algorithm->extra == WEIR__EXTRA_DELAY)
        rule->extra = weir__min(rule->extra / peers, rule->burst);
    weir__rule_derive(rule);
}

void weir__share(const weir_limit *limit, int32_t peers, weir_limit *ret)
{
    ret->count = limit->count;
    ret->text = limit->text;
    ret->costs = limit->costs;
    for (size_t i = 0; i < limit->count; i++) {
        ret->rules[i] = limit->rules[i];
        fallback_share_rule(&ret->rules[i], peers);
        ret->hints[i] = 0;
    }
}

/* ---- open and closed ---- */

static weir_decision fallback_blanket_row(const struct weir__rule *rule, bool allowed, int64_t now,
                                          int64_t cost)
{
    int64_t most = weir__min(weir__algorithm_of(rule)->most(rule), WEIR_COST_MAX);
    return (weir_decision){.limit = most,
                           .remaining = allowed ? most : 0,
                           .retry_after_us = allowed ? 0 : RETRY_US,
                           .time_us = now,
                           .allowed = allowed,
                           .degraded = true,
                           .closed = !allowed,
                           .granted = allowed ? cost : 0};
}

static void fallback_decide_blankly(const weir_request *requests, size_t n, bool allowed,
                                    int64_t now, weir_decision *ret)
{
    weir_decision rows[WEIR_LIMITS_MAX];
    const struct weir__budget budget = weir__budget_of(requests, n);
    size_t count = 0;
    WEIR__CHECK(n > 0);
    for (size_t i = 0; i < n; i++) {
        const weir_limit *limit = requests[i].limit;
        int64_t whole = requests[i].least ? budget.most : requests[i].cost;
        for (size_t j = 0; j < limit->count; j++)
            rows[count + j] = fallback_blanket_row(&limit->rules[j], allowed, now,
                                                   weir__limit_asked(limit, j, whole));
        if (requests[i].detail)
            memcpy(requests[i].detail, rows + count, limit->count * sizeof *rows);
        count += limit->count;
    }
    weir__fold(rows, count, ret);
    ret->granted = !allowed ? 0 : budget.least ? budget.most : requests[0].cost;
}

/* ---- local ---- */

/* A share may be too small for a cost that the whole limit has room for. That is not "never". */
static void fallback_soften(const weir_request *request, size_t i, int64_t least,
                            weir_decision *row)
{
    const struct weir__rule *rule = &request->limit->rules[i];
    int64_t asked = weir__limit_asked(request->limit, i, request->least ? least : request->cost);
    if (row->retry_after_us == WEIR_NEVER && asked <= weir__algorithm_of(rule)->most(rule))
        row->retry_after_us = RETRY_US;
}

static void fallback_mark(weir_decision *decision)
{
    decision->degraded = true;
    decision->charged = 0;
}

/* Remembers what each key was charged, before that is hidden. */
static void fallback_note(const struct weir__fallback *fallback, const weir_request *shared,
                          size_t n)
{
    for (size_t i = 0; i < n && fallback->charges; i++) {
        weir_decision *row = shared[i].detail;
        for (size_t j = 0; j < shared[i].limit->count; j++, row++) {
            if (row->charged == 0 || !weir__limit_varies(shared[i].limit, j))
                continue;
            weir__charges_note(fallback->charges, weir__receipt_id(row), shared[i].key,
                               row->charged);
            break; /* its other limits were charged the same */
        }
    }
}

static int fallback_decide_locally(const struct weir__fallback *fallback,
                                   const weir_request *requests, size_t n, enum weir__mode mode,
                                   weir_decision *ret)
{
    weir_limit shares[WEIR_LIMITS_MAX];
    weir_request shared[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX];
    bool divided = fallback->peers > 1;
    size_t count = 0;
    assert(fallback->local && n <= WEIR_LIMITS_MAX);
    for (size_t i = 0; i < n; i++) {
        shared[i] = requests[i];
        shared[i].detail = rows + count;
        if (divided) {
            weir__share(requests[i].limit, fallback->peers, &shares[i]);
            shared[i].limit = &shares[i];
        }
        count += requests[i].limit->count;
    }
    int code = mode == WEIR__TAKE ? weir__take_all(fallback->local, shared, n, ret)
                                  : weir__peek_all(fallback->local, shared, n, ret);
    if (code)
        return code;
    if (mode == WEIR__TAKE && ret->allowed)
        fallback_note(fallback, shared, n);
    uint64_t lease = ret->lease;
    int64_t granted = ret->granted, least = weir__budget_of(requests, n).least;
    for (size_t i = 0; i < n; i++) {
        const weir_limit *limit = requests[i].limit;
        for (size_t j = 0; j < limit->count; j++) {
            fallback_soften(&requests[i], j, least, &shared[i].detail[j]);
            fallback_mark(&shared[i].detail[j]);
        }
        if (requests[i].detail)
            memcpy(requests[i].detail, shared[i].detail, limit->count * sizeof *rows);
    }
    weir__fold(rows, count, ret);
    ret->lease = lease;
    ret->granted = granted;
    return 0;
}

/* ---- what others call ---- */

int weir__fallback_decide(const struct weir__fallback *fallback, const weir_request *requests,
                          size_t n, enum weir__mode mode, int64_t now, weir_decision *ret)
{
    if (fallback->fail == WEIR__FAIL_LOCAL)
        return fallback_decide_locally(fallback, requests, n, mode, ret);
    fallback_decide_blankly(requests, n, fallback->fail == WEIR__FAIL_OPEN, now, ret);
    return 0;
}

int weir__fallback_lease(const struct weir__fallback *fallback, weir_key key,
                         const weir_limit *limit, uint64_t lease, enum weir__lease_verb verb)
{
    if (!fallback->local)
        return WEIR_EUNREACHABLE;
    return verb == WEIR__RENEW ? weir_renew(fallback->local, key, limit, lease)
                               : weir_release(fallback->local, key, limit, lease);
}

int weir__fallback_settle(const struct weir__fallback *fallback, weir_key key,
                          const weir_limit *limit, const struct weir__correction *correction)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_limit share;
    int64_t charged = 0;
    if (fallback->local && fallback->charges && correction->charged == 0 && correction->id)
        charged = weir__charges_find(fallback->charges, correction->id, key);
    if (charged == 0)
        return WEIR_EUNREACHABLE;
    if (fallback->peers > 1) {
        weir__share(limit, fallback->peers, &share);
        limit = &share;
    }
    weir__receipt_write(correction->charged_at_us, charged, correction->id, receipt);
    return weir_settle(fallback->local, key, limit, receipt, correction->actual, NULL);
}

bool weir__fallback_reset(const struct weir__fallback *fallback, weir_key key)
{
    bool there = false;
    return fallback->local && weir__store_reset(fallback->local, key, &there) == 0 && there;
}

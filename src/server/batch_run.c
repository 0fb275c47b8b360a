/* Asks against the store. By the loop that decoded them, or by an asker. See batch.h. */
#include "server/conn.h"

#include "core/core.h"
#include "limit/receipt.h"
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

static bool is_simple_take(const struct server_ask *ask)
{
    return !ask->group && !ask->said && !ask->work && ask->code == 0 &&
           (ask->verb == WEIR__VERB_TAKE || ask->verb == WEIR__VERB_THROTTLE);
}

/* A run of independent takes: one reading of the clock, their cache misses side by side. */
static void take_many(struct server *server, struct server_batch *batch, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        batch->decided[i].limit = -1; /* what it stays where nothing was decided */
    int code =
        weir_take_many(server->store, &batch->simple[from], to - from, &batch->decided[from]);
    for (size_t i = from; i < to && WEIR__UNLIKELY(code); i++)
        batch->asks[i].code = batch->decided[i].limit < 0 ? code : 0;
}

/* ---- plans ---- */

/* Gives back what the first n requests were charged. One that cannot be reached stays charged: strict. */
static void give_back(struct server *server, const struct server_group *group,
                      char receipts[][WEIR_RECEIPT_SIZE], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int code = weir_settle(server->store, group->requests[i].key, group->requests[i].limit,
                               receipts[i], 0, NULL);
        (void)code;
    }
}

/* Keys that may live in different slots: one after the other, and back again where one denies. */
static int take_one_by_one(struct server *server, struct server_group *group, weir_decision *ret)
{
    char receipts[WEIR_LIMITS_MAX][WEIR_RECEIPT_SIZE];
    weir_decision one = {.allowed = true};
    size_t rows = 0;
    bool degraded = false;
    for (size_t i = 0; i < group->count; i++) {
        int code = weir_take_all(server->store, &group->requests[i], 1, &one);
        if (code || !one.allowed)
            give_back(server, group, receipts, i);
        if (code)
            return code;
        weir__receipt_write(one.time_us, one.charged, 0, receipts[i]); /* never leaves here */
        degraded = degraded || one.degraded;
        rows += weir_limit_count(group->requests[i].limit);
        if (!one.allowed)
            break;
    }
    weir__fold(group->rows, rows, ret);
    ret->time_us = one.time_us;
    ret->degraded = degraded;
    ret->charged = ret->allowed && !degraded ? group->requests[0].cost : 0;
    return 0;
}

/* What a stand-in decided is put as the policies want it: closed wins, open only if all say so. */
static void apply_fail(const struct weir__plan *plan, weir_decision *decision)
{
    bool closed = false, open = true;
    for (size_t i = 0; i < plan->enforced_count; i++) {
        closed = closed || plan->enforced[i].policy->fail == WEIR__FAIL_CLOSED;
        open = open && plan->enforced[i].policy->fail == WEIR__FAIL_OPEN;
    }
    if (closed) {
        decision->allowed = false;
        decision->delay_us = 0;
    } else if (open) {
        decision->allowed = true;
        decision->retry_after_us = decision->delay_us = 0;
    }
}

static void run_shadows(struct server *server, struct server_group *group, bool peek)
{
    for (size_t i = 0; i < group->plan.shadow_count; i++) {
        const struct weir__planned *it = &group->plan.shadow[i];
        weir_request request = weir_request_make(it->key, it->limit);
        request.cost = it->cost;
        request.detail = group->shadow_rows[i];
        int code = peek ? weir_peek_all(server->store, &request, 1, &group->shadows[i])
                        : weir_take_all(server->store, &request, 1, &group->shadows[i]);
        if (code)
            group->shadows[i] = (weir_decision){.allowed = true, .limit = -1};
    }
}

static int run_plan(struct server *server, struct server_ask *ask, weir_decision *ret)
{
    struct server_group *group = ask->group;
    const struct weir__plan *plan = &group->plan;
    bool peek = ask->verb == WEIR__VERB_PEEK;
    int code = 0;
    *ret = (weir_decision){.allowed = plan->verdict != WEIR__PLAN_DENY};
    if (!ret->allowed)
        ret->retry_after_us = WEIR_NEVER;
    if (plan->verdict != WEIR__PLAN_LIMITS)
        return 0;
    if (group->count > 0) {
        if (peek)
            code = weir_peek_all(server->store, group->requests, group->count, ret);
        else if (plan->give_back && group->count > 1)
            code = take_one_by_one(server, group, ret);
        else
            code = weir_take_all(server->store, group->requests, group->count, ret);
        if (code == 0 && ret->degraded)
            apply_fail(plan, ret);
        for (size_t i = 0; i < group->row_count && ask->verb == WEIR__VERB_ACQUIRE; i++)
            ret->lease = group->rows[i].lease ? group->rows[i].lease : ret->lease;
    }
    run_shadows(server, group, peek);
    return code;
}

/* ---- the other verbs ---- */

static int settle(struct server *server, const struct server_ask *ask, const weir_request *request)
{
    char receipt[WEIR_RECEIPT_SIZE];
    if (!server_receipt_read(server, request, 1, ask->receipt, receipt))
        return WEIR_ERECEIPT;
    return weir_settle(server->store, request->key, request->limit, receipt, ask->actual, NULL);
}

/* Whether settling corrects this entry: those whose cost came with the request, or if none did, all. */
static bool is_settled(const struct weir__plan *plan, size_t i)
{
    bool any = false;
    for (size_t j = 0; j < plan->enforced_count; j++)
        any = any || plan->enforced[j].variable;
    return !any || plan->enforced[i].variable;
}

/* The receipt tells when and proves the rest: each entry was charged what is planned for it again. */
static int settle_plan(struct server *server, const struct server_ask *ask)
{
    const struct server_group *group = ask->group;
    char receipt[WEIR_RECEIPT_SIZE];
    struct weir__correction first;
    if (group->count == 0)
        return WEIR_EINVAL;
    if (!server_receipt_read(server, group->requests, group->count, ask->receipt, receipt) ||
        !weir__receipt_read(receipt, &first))
        return WEIR_ERECEIPT;
    /* A stand-in charged the store nothing, neither here nor under the other keys: nothing to be refunded. */
    bool degraded = first.charged == 0 && (first.id || group->requests[0].cost > 0);
    int code = 0;
    size_t before = 0, done = 0; /* sent again after a failure, it settles the rest */
    for (size_t i = 0; i < group->count && code == 0; i++) {
        int64_t charged = i == 0 || degraded ? first.charged : group->requests[i].cost;
        weir__receipt_write(first.charged_at_us, charged, first.id, receipt);
        if (!is_settled(&group->plan, i))
            continue;
        code = weir_settle(server->store, group->requests[i].key, group->requests[i].limit, receipt,
                           ask->actual, NULL);
        before += code == WEIR_ESETTLED;
        done += code == 0;
        code = code == WEIR_ESETTLED ? 0 : code;
    }
    return code == 0 && before > 0 && done == 0 ? WEIR_ESETTLED : code;
}

static int reset_key(struct server *server, struct server_ask *ask, weir_key key)
{
    bool there = false;
    int code = weir__store_reset(server->store, key, &there);
    ask->there = ask->there || there;
    return code;
}

static int reset_plan(struct server *server, struct server_ask *ask)
{
    const struct server_group *group = ask->group;
    int code = group->count + group->plan.shadow_count > 0 ? 0 : WEIR_EINVAL;
    for (size_t i = 0; i < group->count && code == 0; i++)
        code = reset_key(server, ask, group->requests[i].key);
    for (size_t i = 0; i < group->plan.shadow_count && code == 0; i++)
        code = reset_key(server, ask, group->plan.shadow[i].key);
    return code;
}

static int run_group(struct server *server, struct server_ask *ask, weir_decision *ret)
{
    struct server_group *group = ask->group;
    switch (ask->verb) {
    case WEIR__VERB_SETTLE:
        return settle_plan(server, ask);
    case WEIR__VERB_RESET:
        return reset_plan(server, ask);
    case WEIR__VERB_RENEW:
        return weir_renew(server->store, group->requests[group->leased].key,
                          group->requests[group->leased].limit, ask->lease);
    case WEIR__VERB_RELEASE:
        return weir_release(server->store, group->requests[group->leased].key,
                            group->requests[group->leased].limit, ask->lease);
    case WEIR__VERB_PEEK:
    case WEIR__VERB_TAKE:
    case WEIR__VERB_ACQUIRE:
        if (group->planned)
            return run_plan(server, ask, ret);
        break;
    default:
        break;
    }
    return ask->verb == WEIR__VERB_PEEK
               ? weir_peek_all(server->store, group->requests, group->count, ret)
               : weir_take_all(server->store, group->requests, group->count, ret);
}

static int batch_show(struct server *server, struct server_ask *ask, weir_key key)
{
    struct weir__shown states[WEIR__SHOWN_MAX];
    size_t count = 0;
    int code = weir__store_show(server->store, key, states, &count);
    if (code)
        return code;
    ask->shown = malloc(sizeof *ask->shown + count * sizeof *states);
    if (!ask->shown)
        return WEIR_ENOMEM;
    ask->shown->count = count;
    memcpy(ask->shown->states, states, count * sizeof *states);
    return 0;
}

static int run_one(struct server *server, struct server_ask *ask, weir_request *request,
                   weir_decision *ret)
{
    if (ask->work) {
        ask->work->run(server, ask->work);
        return 0;
    }
    if (ask->verb == WEIR__VERB_COUNT) {
        server_grpc_run(server, ask);
        return 0;
    }
    if (ask->group)
        return run_group(server, ask, ret);
    switch (ask->verb) {
    case WEIR__VERB_PEEK:
        return weir_peek_all(server->store, request, 1, ret);
    case WEIR__VERB_SETTLE:
        return settle(server, ask, request);
    case WEIR__VERB_RESET:
        return reset_key(server, ask, request->key);
    case WEIR__VERB_SHOW:
        return batch_show(server, ask, request->key);
    case WEIR__VERB_RENEW:
        return weir_renew(server->store, request->key, request->limit, ask->lease);
    case WEIR__VERB_RELEASE:
        return weir_release(server->store, request->key, request->limit, ask->lease);
    default:
        return weir_take_all(server->store, request, 1, ret);
    }
}

/* The next ask, or the next run of takes; the first one behind it. */
static size_t run_next(struct server *server, struct server_batch *batch, size_t i)
{
    size_t end = i;
    while (end < batch->count && is_simple_take(&batch->asks[end]))
        end++;
    if (end > i) {
        take_many(server, batch, i, end);
        return end;
    }
    if (!batch->asks[i].said && batch->asks[i].code == 0)
        batch->asks[i].code =
            run_one(server, &batch->asks[i], &batch->simple[i], &batch->decided[i]);
    return i + 1;
}

void server_batch_run(struct server *server, struct server_batch *batch)
{
    for (size_t i = 0; i < batch->count;)
        i = run_next(server, batch, i);
}

bool server_batch_run_some(struct server *server, struct server_batch *batch)
{
    int64_t until_us = weir__mono_us() + SERVER_ASKING_US;
    do
        batch->ran = run_next(server, batch, batch->ran);
    while (batch->ran < batch->count && weir__mono_us() < until_us);
    return batch->ran == batch->count;
}

void server_batch_give_up(struct server_batch *batch)
{
    for (size_t i = batch->ran; i < batch->count; i++) {
        struct server_ask *ask = &batch->asks[i];
        ask->code = WEIR_EUNREACHABLE;
        if (ask->verb == WEIR__VERB_COUNT && !ask->work && !ask->said)
            server_grpc_give_up(ask);
    }
}

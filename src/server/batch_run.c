/* Asks against the store. By the loop that decoded them, or by an asker. See batch.h. */
#include "server/conn.h"

#include "policy/execute.h"

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
    int code =
        weir__take_many(server->store, &batch->simple[from], to - from, &batch->decided[from]);
    for (size_t i = from; i < to && WEIR__UNLIKELY(code); i++)
        batch->asks[i].code = batch->decided[i].code;
}

/* ---- the other verbs ---- */

static int settle(struct server *server, const struct server_ask *ask, const weir_request *request)
{
    char receipt[WEIR_RECEIPT_SIZE];
    if (!server_receipt_read(server, request, 1, ask->receipt, receipt))
        return WEIR_ERECEIPT;
    return weir_settle(server->store, request->key, request->limit, receipt, ask->actual, NULL);
}

static int settle_plan(struct server *server, const struct server_ask *ask)
{
    const struct server_group *group = ask->group;
    char receipt[WEIR_RECEIPT_SIZE];
    if (group->count == 0)
        return WEIR_EINVAL;
    if (!server_receipt_read(server, group->requests, group->count, ask->receipt, receipt))
        return WEIR_ERECEIPT;
    return weir__plan_settle(server->store, &group->plan, receipt, ask->actual);
}

static int reset_key(struct server *server, struct server_ask *ask, weir_key key)
{
    bool there = false;
    int code = weir__store_reset(server->store, key, &there);
    ask->there = ask->there || there;
    return code;
}

static int decide_plan(struct server *server, struct server_ask *ask, weir_decision *ret)
{
    struct server_group *group = ask->group;
    const struct weir__plan_rows rows = {group->rows, group->shadow_rows};
    enum weir__mode mode = ask->verb == WEIR__VERB_PEEK ? WEIR__PEEK : WEIR__TAKE;
    return weir__plan_decide(server->store, &group->plan, mode, &rows, ret);
}

static int run_group(struct server *server, struct server_ask *ask, weir_decision *ret)
{
    struct server_group *group = ask->group;
    switch (ask->verb) {
    case WEIR__VERB_SETTLE:
        return settle_plan(server, ask);
    case WEIR__VERB_RESET:
        return weir__plan_reset(server->store, &group->plan, &ask->there);
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
            return decide_plan(server, ask, ret);
        break;
    default:
        break;
    }
    return ask->verb == WEIR__VERB_PEEK
               ? weir__peek_all(server->store, group->requests, group->count, ret)
               : weir__take_all(server->store, group->requests, group->count, ret);
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
        return weir__peek_all(server->store, request, 1, ret);
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
        return weir__take_all(server->store, request, 1, ret);
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

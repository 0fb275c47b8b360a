/* Asks against the store. By the loop that decoded them, or by an asker. See batch.h. */
#include "server/conn.h"

#include "policy/execute.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool batch_is_plain_take(const struct server_ask *ask)
{
    return ask->kind == SERVER_ASK_ONE && ask->code == 0 &&
           (ask->verb == WEIR__VERB_TAKE || ask->verb == WEIR__VERB_THROTTLE);
}

/* A run of independent takes: one reading of the clock, their cache misses side by side. */
static void batch_take_many(struct server *server, struct server_batch *batch, size_t from,
                            size_t to)
{
    int code =
        weir__take_many(server->store, &batch->simple[from], to - from, &batch->decided[from]);
    for (size_t i = from; i < to && WEIR__UNLIKELY(code); i++)
        batch->asks[i].code = batch->decided[i].code;
}

/* ---- the other kinds ---- */

static int batch_decide(struct server *server, const struct server_ask *ask,
                        const weir_request *requests, size_t n, weir_decision *ret)
{
    return ask->verb == WEIR__VERB_PEEK ? weir__peek_all(server->store, requests, n, ret)
                                        : weir__take_all(server->store, requests, n, ret);
}

static int batch_decide_plan(struct server *server, struct server_ask *ask, weir_decision *ret)
{
    struct server_planned *planned = ask->planned;
    const struct weir__plan_rows rows = {planned->several.rows, planned->shadow_rows};
    enum weir__mode mode = ask->verb == WEIR__VERB_PEEK ? WEIR__PEEK : WEIR__TAKE;
    return weir__plan_decide(server->store, &planned->plan, mode, &rows, ret);
}

static int batch_settle(struct server *server, const struct server_ask *ask,
                        const weir_request *request)
{
    char receipt[WEIR_RECEIPT_SIZE];
    if (!server_receipt_read(server, request, 1, ask->settle.receipt, receipt))
        return WEIR_ERECEIPT;
    return weir_settle(server->store, request->key, request->limit, receipt, ask->settle.actual,
                       NULL);
}

static int batch_settle_plan(struct server *server, const struct server_ask *ask)
{
    const struct server_several *several = &ask->planned->several;
    char receipt[WEIR_RECEIPT_SIZE];
    if (several->count == 0)
        return WEIR_EINVAL;
    if (!server_receipt_read(server, several->requests, several->count, ask->settle.receipt,
                             receipt))
        return WEIR_ERECEIPT;
    return weir__plan_settle(server->store, &ask->planned->plan, receipt, ask->settle.actual);
}

static int batch_lease(struct server *server, const struct server_ask *ask,
                       const weir_request *request)
{
    assert(ask->verb == WEIR__VERB_RENEW || ask->verb == WEIR__VERB_RELEASE);
    return ask->verb == WEIR__VERB_RENEW
               ? weir_renew(server->store, request->key, request->limit, ask->lease)
               : weir_release(server->store, request->key, request->limit, ask->lease);
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

static int batch_run_one(struct server *server, struct server_ask *ask, weir_request *request,
                         weir_decision *ret)
{
    switch (ask->kind) {
    case SERVER_ASK_ONE:
        return batch_decide(server, ask, request, 1, ret);
    case SERVER_ASK_SEVERAL:
        return batch_decide(server, ask, ask->several->requests, ask->several->count, ret);
    case SERVER_ASK_PLAN:
        return batch_decide_plan(server, ask, ret);
    case SERVER_ASK_SETTLE:
        return batch_settle(server, ask, request);
    case SERVER_ASK_SETTLE_PLAN:
        return batch_settle_plan(server, ask);
    case SERVER_ASK_RESET:
        return weir__store_reset(server->store, request->key, &ask->there);
    case SERVER_ASK_RESET_PLAN:
        return weir__plan_reset(server->store, &ask->planned->plan, &ask->there);
    case SERVER_ASK_LEASE:
        return batch_lease(server, ask, request);
    case SERVER_ASK_LEASE_PLAN:
        return batch_lease(server, ask, &ask->planned->several.requests[ask->planned->leased]);
    case SERVER_ASK_SHOW:
        return batch_show(server, ask, request->key);
    case SERVER_ASK_CALL:
        server_grpc_run(server, ask);
        return 0;
    case SERVER_ASK_WORK:
        ask->work->run(server, ask->work);
        return 0;
    case SERVER_ASK_SAID:
        return 0;
    }
    return 0;
}

/* The next ask, or the next run of takes; the first one behind it. */
static size_t batch_run_next(struct server *server, struct server_batch *batch, size_t i)
{
    size_t end = i;
    while (end < batch->count && batch_is_plain_take(&batch->asks[end]))
        end++;
    if (end > i) {
        batch_take_many(server, batch, i, end);
        return end;
    }
    if (batch->asks[i].code == 0)
        batch->asks[i].code =
            batch_run_one(server, &batch->asks[i], &batch->simple[i], &batch->decided[i]);
    return i + 1;
}

void server_batch_run(struct server *server, struct server_batch *batch)
{
    for (size_t i = 0; i < batch->count;)
        i = batch_run_next(server, batch, i);
}

bool server_batch_run_some(struct server *server, struct server_batch *batch)
{
    int64_t until_us = weir__mono_us() + SERVER_ASKING_US;
    do
        batch->ran = batch_run_next(server, batch, batch->ran);
    while (batch->ran < batch->count && weir__mono_us() < until_us);
    return batch->ran == batch->count;
}

void server_batch_give_up(struct server_batch *batch)
{
    for (size_t i = batch->ran; i < batch->count; i++) {
        struct server_ask *ask = &batch->asks[i];
        ask->code = WEIR_EUNREACHABLE;
        if (ask->kind == SERVER_ASK_CALL)
            server_grpc_give_up(ask);
    }
}

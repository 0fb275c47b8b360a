/*
 * Answers without asking: what a store with slices can decide from what it holds is decided by the
 * loop itself, and no asker carries it. A batch is taken from its front, as far as that goes. What
 * is left goes to the askers as it is, so that answers stay in their order, and a request never
 * overtakes one that was sent before it.
 *
 * Plans and calls of Envoy are decided by the code that decides them everywhere, with a store that
 * has nothing but the slices: the near one. It says SERVER_EFAR where Redis would have to be asked,
 * and has charged nothing then. So only what needs one decision of the store is tried: after a
 * second one the first could not be taken back.
 */
#include "server/conn.h"

#include "remote/slices.h"
#include "server/grpc/grpc.h"
#include "store/store.h"

struct server_near {
    struct weir_store store; /* first */
    weir_store *far;
};

static int near_decide(weir_store *store, const weir_request *requests, size_t n,
                       enum weir__mode mode, int64_t now, weir_decision *ret)
{
    weir_store *far = ((struct server_near *)store)->far;
    (void)now;
    return n == 1 && mode == WEIR__TAKE && weir__slices_try(far, requests, ret) ? 0 : SERVER_EFAR;
}

static const struct weir__engine near_engine = {.decide = near_decide};

int server_near_create(struct server *server, weir_error *err)
{
    struct weir__slices_counts counts;
    weir__slices_count(server->store, &counts);
    if (!counts.on)
        return 0;
    struct server_near *near = calloc(1, sizeof *near);
    if (!near)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the store's slices");
    near->store.engine = &near_engine;
    near->far = server->store;
    server->near = &near->store;
    return 0;
}

void server_near_destroy(struct server *server)
{
    free(server->near);
    server->near = NULL;
}

/* Whether the store is asked once, or not at all. */
static bool near_is_one(const struct weir__plan *plan)
{
    return plan->enforced_count <= 1 && plan->separate_count == 0 && plan->shadow_count == 0;
}

static bool near_decides(struct server *server, struct server_batch *batch, size_t i)
{
    struct server_ask *ask = &batch->asks[i];
    weir_request *simple = &batch->simple[i];
    if (weir__verb_reads(ask->verb))
        return false;
    if (ask->about == SERVER_ABOUT_ONE)
        return weir__request_code(simple) == 0 &&
               weir__slices_try(server->store, simple, &batch->decided[i]);
    if (ask->about == SERVER_ABOUT_PLAN && !near_is_one(&ask->planned->plan))
        return false;
    ask->code = server_ask_decide(server->near, ask, simple, &batch->decided[i]);
    bool decided = ask->code != SERVER_EFAR;
    ask->code = decided ? ask->code : 0;
    return decided;
}

static bool near_calls(struct server *server, struct server_ask *ask)
{
    struct server_grpc_call *call = ask->call;
    if (!near_is_one(&call->rls.plan))
        return false;
    server_grpc_run(server->near, ask);
    bool decided = call->code != SERVER_EFAR;
    if (!decided) {
        call->code = 0;
        call->error = (weir_error){0};
    }
    return decided;
}

static bool near_answers(struct server *server, struct server_batch *batch, size_t i)
{
    struct server_ask *ask = &batch->asks[i];
    if (ask->code)
        return true; /* it is refused already */
    switch (ask->kind) {
    case SERVER_ASK_DECIDE:
        return near_decides(server, batch, i);
    case SERVER_ASK_CALL:
        return near_calls(server, ask);
    case SERVER_ASK_SAID:
        return true;
    case SERVER_ASK_SETTLE:
    case SERVER_ASK_REFUND:
    case SERVER_ASK_RESET:
    case SERVER_ASK_LEASE:
    case SERVER_ASK_SHOW:
    case SERVER_ASK_WORK:
        break;
    }
    return false;
}

size_t server_batch_run_near(struct server *server, struct server_batch *batch)
{
    size_t i = 0;
    while (i < batch->count && near_answers(server, batch, i))
        i++;
    return i;
}

/* POST /json: Envoy's rate limit service without gRPC, as envoyproxy/ratelimit has it. See grpc.h.
 * */
#include "server/grpc/grpc.h"

static void respond(struct server_conn *conn, struct server_grpc_call *call,
                    struct server_response *ret)
{
    server_grpc_count(conn, call);
    if (call->code) {
        server_response_problem(ret, weir__rls_http_status(call->code), "%s", call->error.message);
    } else {
        server_response_begin(ret, 200);
        server_response_field(ret, "cache-control", "no-store", 8);
        struct weir__buffer body = server_response_buffer(ret);
        ret->status = weir__rls_answer_json(&call->rls, &body);
        server_response_body(ret, "application/json", &body);
    }
    server_grpc_call_end(call);
}

static void refuse(struct server_conn *conn, const weir_error *err, struct server_response *ret)
{
    server_count(&conn->thread->counters->faults[SERVER_HTTP][SERVER_FAULT_INVALID], 1);
    server_response_problem(ret, weir__rls_http_status(err->code), "%s", err->message);
}

/* The place in the batch comes first: reading changes the body, so that there is no second try. */
enum server_routed server_grpc_json(struct server_conn *conn, struct weir__http_request *request,
                                    int32_t stream, struct server_response *ret)
{
    struct server_grpc_reading *own = server_grpc_reading(conn->thread);
    struct server_grpc_call *call = NULL;
    weir_error err = {.code = WEIR_ENOMEM, .message = "out of memory"};
    bool remote = conn->thread->server->remote;
    struct server_ask *ask = NULL;
    if (!server_batch_has_room(conn) || (remote && !(ask = server_batch_add(conn))))
        return SERVER_BUSY;
    if (own && weir__rls_read_json((char *)request->body.data, request->body.len, own->nodes,
                                   WEIR__RLS_JSON_NODES, &own->request, &err) == 0)
        call = server_grpc_plan(conn, &own->request, &err);
    if (!call) {
        if (remote)
            server_batch_drop(conn);
        refuse(conn, &err, ret);
        return SERVER_RESPONDED;
    }
    call->json = true;
    call->stream = stream;
    if (!remote) {
        server_grpc_decide(conn, call);
        respond(conn, call, ret);
        return SERVER_RESPONDED;
    }
    ask->kind = SERVER_ASK_CALL;
    ask->close = !request->keep_alive;
    ask->call = call;
    return SERVER_ASKED;
}

void server_grpc_json_respond(struct server_conn *conn, struct server_ask *ask,
                              struct server_response *ret)
{
    respond(conn, ask->call, ret);
    ret->close = ask->close;
    ask->call = NULL;
}

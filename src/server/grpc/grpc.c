/* gRPC requests to answers: which method, who may, what the message says. See grpc.h. */
#include "server/grpc/grpc.h"

#include <stdio.h>
#include <string.h>

static const char content_type[] = "application/grpc";

/* ---- what a request is ---- */

static bool grpc_begins(struct weir__span text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && !strncasecmp(text.data, word, len);
}

bool server_grpc_wants(const struct weir__http_request *request)
{
    struct weir__span type;
    return (weir__http_field(request, "content-type", &type) && grpc_begins(type, content_type)) ||
           grpc_begins(request->path, "/envoy.service.ratelimit.") ||
           grpc_begins(request->path, "/grpc.health.");
}

/* "application/grpc", "application/grpc+proto", "application/grpc;…"; not grpc-web, nor +json. */
static bool grpc_is_proto(const struct weir__http_request *request)
{
    struct weir__span type;
    if (!weir__http_field(request, "content-type", &type) || !grpc_begins(type, content_type))
        return false;
    type.data += sizeof content_type - 1;
    type.len -= sizeof content_type - 1;
    if (grpc_begins(type, "+proto")) {
        type.data += 6;
        type.len -= 6;
    }
    return type.len == 0 || type.data[0] == ';' || type.data[0] == ' ';
}

/* ---- failures ---- */

/* An answer that goes well so far. */
static void grpc_begin_reply(struct server_grpc_reply *ret)
{
    ret->status = 200;
    ret->code = WEIR__GRPC_OK;
    ret->names_encodings = ret->watches = false;
}

static void grpc_fail(struct server_conn *conn, struct server_grpc_reply *ret,
                      enum weir__grpc_code code, enum server_fault fault, const char *text)
{
    server_count_fault(conn, SERVER_GRPC, fault);
    ret->code = code;
    snprintf(ret->text, sizeof ret->text, "%s", text);
}

static void grpc_fail_http(struct server_conn *conn, struct server_grpc_reply *ret, int status,
                           const char *text)
{
    ret->status = status;
    grpc_fail(conn, ret, WEIR__GRPC_INTERNAL, SERVER_FAULT_INVALID, text);
}

static void grpc_fail_token(struct server_conn *conn, struct server_grpc_reply *ret)
{
    grpc_fail(conn, ret, WEIR__GRPC_UNAUTHENTICATED, SERVER_FAULT_UNAUTHORIZED,
              SERVER_GRPC_NEEDS_TOKEN);
}

static void grpc_fail_as(struct server_conn *conn, struct server_grpc_reply *ret,
                         const weir_error *err)
{
    enum server_fault fault =
        err->code == WEIR_EUNSUPPORTED ? SERVER_FAULT_UNKNOWN : SERVER_FAULT_INVALID;
    grpc_fail(conn, ret, weir__grpc_code_of(err->code), fault, err->message);
}

/* A request to the rate limit service that cannot be read is denied: whoever sends requests through
 * Envoy has a say in how long and how many their texts are, and Envoy lets pass what is answered by
 * an error. */
static void grpc_deny_unread(struct server_conn *conn, struct server_grpc_reply *ret,
                             enum server_unread reason)
{
    server_grpc_count_unread(conn, reason);
    weir__rls_answer_unread(&ret->message);
}

/* The one message of the body. */
static bool grpc_unframe(struct server_conn *conn, const struct weir__http_request *request,
                         struct weir__span *ret_message, struct server_grpc_reply *ret)
{
    weir_error err;
    struct weir__span encoding;
    bool encoded = weir__http_field(request, "grpc-encoding", &encoding) &&
                   !weir__span_is(encoding, "identity");
    int code = weir__grpc_unframe(request->body.data, request->body.len, ret_message, &err);
    if (code == 0)
        return true;
    if (code != WEIR_EUNSUPPORTED && weir__span_is(request->path, WEIR__RLS_METHOD)) {
        grpc_deny_unread(conn, ret, SERVER_UNREAD_MALFORMED);
        return false;
    }
    grpc_fail_as(conn, ret, &err);
    if (code != WEIR_EUNSUPPORTED)
        return false;
    ret->names_encodings = true;
    if (!encoded) /* compressed, and nobody said how */
        ret->code = WEIR__GRPC_INTERNAL;
    return false;
}

/* ---- methods ---- */

static void grpc_check_health(struct server_conn *conn, struct weir__span message, bool watch,
                              struct server_grpc_reply *ret)
{
    struct weir__span service;
    weir_error err;
    if (weir__health_read(message, &service, &err)) {
        grpc_fail_as(conn, ret, &err);
        return;
    }
    bool known = service.len == 0 || weir__span_is(service, "ratelimit") ||
                 weir__span_is(service, "envoy.service.ratelimit.v3.RateLimitService");
    ret->watches = watch;
    ret->watches_known = known;
    if (watch)
        return;
    if (!known) {
        grpc_fail(conn, ret, WEIR__GRPC_NOT_FOUND, SERVER_FAULT_UNKNOWN,
                  "unknown service: expected ratelimit");
        return;
    }
    size_t begun = weir__grpc_frame_begin(&ret->message);
    weir__health_put(&ret->message, server_is_ready(conn->thread->server)
                                        ? WEIR__HEALTH_SERVING
                                        : WEIR__HEALTH_NOT_SERVING);
    weir__grpc_frame_end(&ret->message, begun);
}

static void grpc_put_answer(struct server_conn *conn, struct server_grpc_call *call,
                            struct server_grpc_reply *ret)
{
    server_grpc_count(conn, call);
    if (call->code) {
        ret->code = weir__grpc_code_of(call->code);
        snprintf(ret->text, sizeof ret->text, "%s", call->error.message);
    } else if (!weir__rls_answer(&call->rls, &ret->message)) {
        ret->code = WEIR__GRPC_INTERNAL;
        snprintf(ret->text, sizeof ret->text, "the answer is too long");
    }
    server_grpc_call_end(call);
}

/* As far as it was read: whether it stopped because there was no room for more. */
static bool grpc_is_full(const struct weir__rls_request *request)
{
    uint32_t n = request->descriptor_count;
    return n == WEIR__RLS_DESCRIPTORS_MAX ||
           (n > 0 && request->descriptors[n - 1].entry_count == WEIR__RLS_ENTRIES_MAX);
}

/* What asks for nothing, or what the server is to blame for, is an error; all else that was not
 * read or planned is denied. */
static void grpc_refuse_request(struct server_conn *conn, const struct weir__rls_request *request,
                                bool read, const weir_error *err, struct server_grpc_reply *ret)
{
    bool asks = !read || (request->domain.len > 0 && request->descriptor_count > 0);
    if (!asks || (err->code != WEIR_EINVAL && err->code != WEIR_ESHARED))
        grpc_fail_as(conn, ret, err);
    else if (read || grpc_is_full(request))
        grpc_deny_unread(conn, ret, SERVER_UNREAD_TOO_MANY);
    else
        grpc_deny_unread(conn, ret, SERVER_UNREAD_MALFORMED);
}

static enum server_routed grpc_should_rate_limit(struct server_conn *conn,
                                                 struct weir__span message, int32_t stream,
                                                 struct server_grpc_reply *ret)
{
    struct server_grpc_reading *own = server_grpc_reading(conn->thread);
    struct server_ask *ask = NULL;
    weir_error err = {.code = WEIR_ENOMEM, .message = "out of memory"};
    struct server_grpc_call *call = NULL;
    if (!server_batch_has_room(conn)) /* limits that it brings need room, too */
        return SERVER_BUSY;
    bool read = own && weir__rls_read(message, &own->request, &err) == 0;
    if (read)
        call = server_grpc_plan(conn, &own->request, &err);
    if (!call) {
        if (own)
            grpc_refuse_request(conn, &own->request, read, &err, ret);
        else
            grpc_fail_as(conn, ret, &err);
        return SERVER_RESPONDED;
    }
    if (!conn->thread->server->remote) {
        server_grpc_decide(conn, call);
        grpc_put_answer(conn, call, ret);
        return SERVER_RESPONDED;
    }
    if (!(ask = server_batch_add(conn))) {
        server_grpc_call_end(call);
        return SERVER_BUSY;
    }
    call->stream = stream;
    ask->kind = SERVER_ASK_CALL;
    ask->call = call;
    return SERVER_ASKED;
}

void server_grpc_finish(struct server_conn *conn, struct server_ask *ask,
                        struct server_grpc_reply *ret)
{
    grpc_begin_reply(ret);
    grpc_put_answer(conn, ask->call, ret);
    ask->call = NULL;
}

bool server_grpc_refuse(struct server_conn *conn, const struct weir__http_request *request,
                        bool headless, struct server_grpc_reply *ret)
{
    if (!weir__span_is(request->path, WEIR__RLS_METHOD))
        return false;
    grpc_begin_reply(ret);
    if (!headless && server_http_access(conn, request) == SERVER_NOBODY)
        grpc_fail_token(conn, ret);
    else
        grpc_deny_unread(conn, ret, SERVER_UNREAD_TOO_LARGE);
    return true;
}

/* ---- the whole ---- */

enum server_routed server_grpc_answer(struct server_conn *conn,
                                      const struct weir__http_request *request, int32_t stream,
                                      struct server_grpc_reply *ret)
{
    struct weir__span message;
    bool watch = weir__span_is(request->path, WEIR__HEALTH_WATCH);
    bool health = watch || weir__span_is(request->path, WEIR__HEALTH_METHOD);
    grpc_begin_reply(ret);
    if (request->method != WEIR__HTTP_POST) {
        grpc_fail_http(conn, ret, 405, "gRPC is POST");
    } else if (!grpc_is_proto(request)) {
        grpc_fail_http(conn, ret, 415, "this path takes Content-Type: application/grpc");
    } else if (!health && conn->reserved_us) {
        grpc_fail(conn, ret, WEIR__GRPC_UNAVAILABLE, SERVER_FAULT_OVERLOAD, SERVER_FULL_TEXT);
    } else if (!health && server_http_access(conn, request) == SERVER_NOBODY) {
        grpc_fail_token(conn, ret);
    } else if (!health && !weir__span_is(request->path, WEIR__RLS_METHOD)) {
        grpc_fail(conn, ret, WEIR__GRPC_UNIMPLEMENTED, SERVER_FAULT_UNKNOWN,
                  "unknown method: this server has " WEIR__RLS_METHOD ", " WEIR__HEALTH_METHOD
                  " and " WEIR__HEALTH_WATCH);
    } else if (grpc_unframe(conn, request, &message, ret)) {
        if (!health)
            return grpc_should_rate_limit(conn, message, stream, ret);
        grpc_check_health(conn, message, watch, ret);
    }
    return SERVER_RESPONDED;
}

/* ---- POST /json: the rate limit service without gRPC, as envoyproxy/ratelimit has it ---- */

static void grpc_respond_json(struct server_conn *conn, struct server_grpc_call *call,
                              struct server_response *ret)
{
    server_grpc_count(conn, call);
    if (call->code) {
        server_response_problem(ret, weir__rls_http_status(call->code), "%s", call->error.message);
    } else {
        server_response_fresh(ret, 200);
        struct weir__buffer body = server_response_buffer(ret);
        ret->status = weir__rls_answer_json(&call->rls, &body);
        server_response_body(ret, "application/json", &body);
    }
    server_grpc_call_end(call);
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
        server_count_fault(conn, SERVER_HTTP, SERVER_FAULT_INVALID);
        server_response_problem(ret, weir__rls_http_status(err.code), "%s", err.message);
        return SERVER_RESPONDED;
    }
    call->json = true;
    call->stream = stream;
    if (!remote) {
        server_grpc_decide(conn, call);
        grpc_respond_json(conn, call, ret);
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
    grpc_respond_json(conn, ask->call, ret);
    ret->close = ask->close;
    ask->call = NULL;
}

/* From whole requests to answers on their streams. See h2.h. */
#include "server/h2/h2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nghttp2_nv h2_field(const char *name, const char *value, size_t len)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), len,
                        NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

/* ---- bodies ---- */

static int h2_submit_trailers(nghttp2_session *session, int32_t id)
{
    static const nghttp2_nv ok = SERVER_H2_FIELD("grpc-status", "0");
    return nghttp2_submit_trailer(session, id, &ok, 1);
}

static ssize_t h2_read_body(nghttp2_session *session, int32_t id, uint8_t *room, size_t size,
                            uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct server_h2_stream *stream = source->ptr;
    size_t left = stream->body_len - stream->body_at, n = left < size ? left : size;
    (void)context;
    if (n > 0)
        memcpy(room, stream->body + stream->body_at, n);
    stream->body_at += n;
    if (n == left) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (stream->grpc) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (h2_submit_trailers(session, id))
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)n;
}

/* Takes a copy in the room, where the request is not needed any more. */
static bool h2_keep_body(struct server_h2_stream *stream, const char *body, size_t len)
{
    stream->room_len = 0;
    char *room = server_h2_stream_room(stream, len);
    if (!room)
        return false;
    memcpy(room, body, len);
    stream->body = room;
    stream->body_len = len;
    return true;
}

void server_h2_reset(struct server_h2_stream *stream, uint32_t error)
{
    stream->answered = true;
    nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id, error);
}

void server_h2_submit(struct server_h2_stream *stream, const nghttp2_nv *fields, size_t n,
                      nghttp2_data_source_read_callback read)
{
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read};
    stream->answered = true;
    if (nghttp2_submit_response(stream->h2->session, stream->id, fields, n,
                                read ? &provider : NULL))
        server_h2_reset(stream, NGHTTP2_INTERNAL_ERROR);
}

/* An answer that waits for the peer to read it. */
static void h2_submit(struct server_h2_stream *stream, const nghttp2_nv *fields, size_t n,
                      bool body)
{
    server_h2_stream_move(stream, &stream->h2->waiting);
    server_h2_submit(stream, fields, n, body ? h2_read_body : NULL);
}

/* ---- HTTP ---- */

/* What changes with every answer is not worth a place in the peer's table. */
static uint8_t h2_indexing_of(const char *name)
{
    bool changes = !strncmp(name, "ratelimit", 9) || !strncmp(name, "x-ratelimit-", 12) ||
                   !strcmp(name, "retry-after");
    return changes && strcmp(name, "ratelimit-policy") ? NGHTTP2_NV_FLAG_NO_INDEX
                                                       : NGHTTP2_NV_FLAG_NONE;
}

/* A long answer that cannot be kept until it is read: a short one in its place. */
static void h2_respond_overload(struct server_h2_stream *stream, struct server_response *response)
{
    const struct server_conn *conn = stream->h2->conn;
    server_count_fault(conn, SERVER_HTTP, SERVER_FAULT_OVERLOAD);
    free(response->owned);
    server_response_problem(response, 503,
                            "answers that are not read fill the memory; read them, then ask again");
    server_h2_respond(stream, response);
}

void server_h2_respond(struct server_h2_stream *stream, struct server_response *response)
{
    nghttp2_nv fields[SERVER_FIELDS_MAX + 3];
    char status[12], length[24];
    size_t n = 0;
    bool body = response->body.len > 0 && !response->head;
    if (body && response->owned) {
        if (!server_h2_stream_own(stream, response->owned, response->body)) {
            h2_respond_overload(stream, response);
            return;
        }
        response->owned = NULL;
    } else if (body && !h2_keep_body(stream, response->body.data, response->body.len)) {
        server_h2_reset(stream, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    server_count_status(stream->h2->conn->thread->counters, response->status);
    fields[n++] = h2_field(":status", status,
                           (size_t)snprintf(status, sizeof status, "%d", response->status));
    fields[n++] =
        h2_field("date", server_date(stream->h2->conn->thread) + SERVER_DATE_AT, SERVER_DATE_LEN);
    for (size_t i = 0; i < response->field_count; i++) {
        const struct server_field *it = &response->fields[i];
        if (!strcmp(it->name, "connection"))
            continue;
        fields[n] = h2_field(it->name, it->value, it->len);
        fields[n++].flags |= h2_indexing_of(it->name);
    }
    if (response->status != 204 && response->status != 304)
        fields[n++] = h2_field("content-length", length,
                               (size_t)snprintf(length, sizeof length, "%zu", response->body.len));
    free(response->owned);
    response->owned = NULL;
    h2_submit(stream, fields, n, body);
}

/* ---- gRPC ---- */

static void h2_reply_without_grpc(struct server_h2_stream *stream,
                                  const struct server_grpc_reply *reply)
{
    struct server_response *response = stream->h2->conn->thread->response;
    server_response_problem(response, reply->status, "%s", reply->text);
    if (reply->status == 405)
        server_response_text(response, "allow", "POST");
    server_h2_respond(stream, response);
}

void server_h2_reply(struct server_h2_stream *stream, const struct server_grpc_reply *reply)
{
    static const nghttp2_nv head[] = SERVER_H2_GRPC_HEAD;
    static const nghttp2_nv encodings = SERVER_H2_FIELD("grpc-accept-encoding", "identity");
    char text[3 * sizeof reply->text], code[12];
    if (reply->status != 200) {
        h2_reply_without_grpc(stream, reply);
        return;
    }
    if (reply->watches) {
        if (!server_h2_watch(stream, reply->watches_known))
            server_h2_reset(stream, NGHTTP2_REFUSED_STREAM);
        return;
    }
    if (reply->code == WEIR__GRPC_OK) {
        stream->grpc = true;
        if (h2_keep_body(stream, reply->message.data, reply->message.len))
            h2_submit(stream, head, WEIR__COUNT(head), true);
        else
            server_h2_reset(stream, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    struct weir__buffer message = weir__buffer_over(text, sizeof text);
    weir__grpc_put_message_text(&message, reply->text);
    nghttp2_nv fields[5] = {
        head[0], head[1],
        h2_field("grpc-status", code, (size_t)snprintf(code, sizeof code, "%d", (int)reply->code)),
        h2_field("grpc-message", text, message.len), encodings};
    h2_submit(stream, fields, reply->names_encodings ? 5 : 4, false);
}

/* ---- requests ---- */

static void h2_say_why(const struct server_h2_stream *stream, char *room, size_t size)
{
    const struct server_config *config = &stream->h2->conn->thread->server->config;
    if (stream->fault == 413)
        snprintf(room, size, "the body is longer than %lld bytes", (long long)config->max_body);
    else if (stream->fault == 431)
        snprintf(room, size, "the fields take more than %lld bytes, or are more than %d",
                 (long long)config->max_head, WEIR__HTTP_FIELDS_MAX);
    else
        snprintf(room, size,
                 "the path must begin with / and must not contain spaces, control characters, # or "
                 "non-ASCII bytes; Host must be the same as :authority");
}

/* As gRPC, by as much of the head as was taken. False: it is not gRPC's. */
static bool h2_refuse_grpc(struct server_h2_stream *stream, struct server_grpc_reply *reply)
{
    struct weir__http_request request;
    if (server_h2_request(stream, &request) || !server_grpc_wants(&request))
        return false;
    reply->message = weir__buffer_over(stream->h2->conn->thread->grpc_room, SERVER_GRPC_ROOM);
    server_grpc_refuse(stream->h2->conn, &request, stream->fault == 431, reply);
    server_h2_reply(stream, reply);
    return true;
}

bool server_h2_admit(struct server_h2_stream *stream)
{
    struct server_conn *conn = stream->h2->conn;
    struct weir__http_request request;
    size_t room_len = stream->room_len;
    if (server_h2_request(stream, &request)) { /* it is refused when it is whole */
        stream->room_len = room_len;
        return true;
    }
    enum server_admission admission = server_http_admit(conn, &request, conn->thread->response);
    bool grpc = server_grpc_wants(&request);
    stream->room_len = room_len; /* behind a cookie that was put together: the body comes there */
    stream->little = admission == SERVER_ADMITTED_LITTLE;
    if (admission != SERVER_NOT_ADMITTED)
        return true;
    struct server_grpc_reply reply = {.status = 200, .code = WEIR__GRPC_UNAUTHENTICATED};
    snprintf(reply.text, sizeof reply.text, "%s", SERVER_GRPC_NEEDS_TOKEN);
    if (grpc)
        server_h2_reply(stream, &reply);
    else
        server_h2_respond(stream, conn->thread->response);
    return false;
}

void server_h2_refuse(struct server_h2_stream *stream)
{
    const struct server_conn *conn = stream->h2->conn;
    struct server_response *response = conn->thread->response;
    struct server_grpc_reply reply = {.status = 200, .code = WEIR__GRPC_RESOURCE_EXHAUSTED};
    bool malformed = stream->fault == 400;
    if (stream->answered)
        return;
    enum server_fault fault = malformed ? SERVER_FAULT_MALFORMED : SERVER_FAULT_TOO_LARGE;
    server_count_fault(conn, conn->protocol->counted_as, fault);
    h2_say_why(stream, reply.text, sizeof reply.text);
    if (!malformed && h2_refuse_grpc(stream, &reply))
        return;
    server_response_problem(response, stream->fault, "%s", reply.text);
    server_h2_respond(stream, response);
}

void server_h2_refuse_for_memory(struct server_h2_stream *stream)
{
    struct server_grpc_reply reply;
    struct weir__http_request request;
    char room[64];
    reply.message = weir__buffer_over(room, sizeof room);
    if (server_h2_request(stream, &request) == 0 &&
        server_grpc_refuse(stream->h2->conn, &request, false, &reply))
        server_h2_reply(stream, &reply);
    else
        server_h2_reset(stream, NGHTTP2_REFUSED_STREAM);
}

static void h2_dispatch_grpc(struct server_h2_stream *stream, struct weir__http_request *request)
{
    struct server_conn *conn = stream->h2->conn;
    struct server_grpc_reply reply;
    enum server_routed routed = SERVER_BUSY;
    server_count(&conn->thread->counters->requests[SERVER_GRPC], 1);
    for (int i = 0; i < 2 && routed == SERVER_BUSY; i++) {
        if (i > 0)
            server_batch_finish(conn);
        reply.message = weir__buffer_over(conn->thread->grpc_room, SERVER_GRPC_ROOM);
        routed = server_grpc_answer(conn, request, stream->id, &reply);
    }
    if (routed == SERVER_RESPONDED)
        server_h2_reply(stream, &reply);
    else if (routed == SERVER_BUSY)
        server_h2_reset(stream,
                        NGHTTP2_REFUSED_STREAM); /* nothing was charged: it may be tried again */
    else
        server_h2_stream_empty(stream); /* a call borrows nothing of its request */
}

/* An ask that is held, or takes long, is the last of its batch. */
static bool h2_last_is_final(const struct server_conn *conn)
{
    const struct server_batch *batch = conn->thread->open_batch;
    if (!server_batch_is_open(conn))
        return false;
    const struct server_ask *last = &batch->asks[batch->count - 1];
    return last->hold || last->kind == SERVER_ASK_WORK;
}

static void h2_dispatch_http(struct server_h2_stream *stream, struct weir__http_request *request)
{
    struct server_conn *conn = stream->h2->conn;
    struct server_response *response = conn->thread->response;
    server_count(&conn->thread->counters->requests[SERVER_HTTP], 1);
    enum server_routed routed = server_http_route(conn, request, stream->id, response);
    if (routed == SERVER_BUSY) {
        server_batch_finish(conn);
        routed = server_http_route(conn, request, stream->id, response);
    }
    if (routed == SERVER_RESPONDED) {
        response->head = request->method == WEIR__HTTP_HEAD;
        server_h2_respond(stream, response);
    } else if (routed == SERVER_ASKED) {
        if (h2_last_is_final(conn))
            server_batch_finish(conn);
    } else {
        server_h2_reset(stream, NGHTTP2_REFUSED_STREAM);
    }
}

void server_h2_dispatch(struct server_h2_stream *stream)
{
    struct weir__http_request request;
    server_h2_stream_move(stream, &stream->h2->acting);
    stream->fault = server_h2_request(stream, &request);
    if (stream->fault)
        server_h2_refuse(stream);
    else if (server_grpc_wants(&request))
        h2_dispatch_grpc(stream, &request);
    else
        h2_dispatch_http(stream, &request);
}

/* ---- without a request ----
 *
 * What happens on an HTTP/2 connection without a request: the health that a peer watches changes,
 * and the connection grows old.
 *
 * A watched stream is sent a status whenever it is another one, the newest only, however slowly the
 * peer reads. It ends when the server drains or the connection is old; the peer then asks another
 * one.
 */

#define JITTER_PARTS 1024 /* ages are spread over 10 % more and less, in so many steps */

static enum weir__health h2_status_of(const struct server_h2_stream *stream)
{
    if (!stream->watch.known)
        return WEIR__HEALTH_SERVICE_UNKNOWN;
    return server_is_ready(stream->h2->conn->thread->server) ? WEIR__HEALTH_SERVING
                                                             : WEIR__HEALTH_NOT_SERVING;
}

/* The newest status as the body that is to be sent. */
static void h2_renew_body(struct server_h2_stream *stream)
{
    struct weir__buffer body = weir__buffer_over(stream->first_room, sizeof stream->first_room);
    stream->watch.sent = stream->watch.now;
    size_t begun = weir__grpc_frame_begin(&body);
    weir__health_put(&body, stream->watch.sent);
    weir__grpc_frame_end(&body, begun);
    stream->body = body.data;
    stream->body_len = body.len;
    stream->body_at = 0;
}

static ssize_t h2_end_watch(nghttp2_session *session, int32_t id, uint32_t *flags)
{
    static const nghttp2_nv trailer = SERVER_H2_FIELD("grpc-status", "14"); /* unavailable */
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return nghttp2_submit_trailer(session, id, &trailer, 1) ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
                                                            : 0;
}

static ssize_t h2_read_status(nghttp2_session *session, int32_t id, uint8_t *room, size_t size,
                              uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct server_h2_stream *stream = source->ptr;
    (void)context;
    if (stream->body_at == stream->body_len && stream->watch.now != stream->watch.sent)
        h2_renew_body(stream);
    size_t left = stream->body_len - stream->body_at, n = left < size ? left : size;
    if (left == 0)
        return stream->watch.ends ? h2_end_watch(session, id, flags) : NGHTTP2_ERR_DEFERRED;
    memcpy(room, stream->body + stream->body_at, n);
    stream->body_at += n;
    return (ssize_t)n;
}

bool server_h2_watch(struct server_h2_stream *stream, bool known)
{
    static const nghttp2_nv head[] = SERVER_H2_GRPC_HEAD;
    if (stream->h2->watched.count >= SERVER_H2_WATCHES)
        return false;
    server_h2_stream_empty(stream);
    server_h2_stream_move(stream, &stream->h2->watched);
    stream->body_len = stream->body_at = 0;
    stream->watch.known = known;
    stream->watch.sent = WEIR__HEALTH_UNKNOWN;
    stream->watch.now = h2_status_of(stream);
    server_h2_submit(stream, head, WEIR__COUNT(head), h2_read_status);
    return true;
}

bool server_h2_tell_watchers(struct server_h2 *h2, bool last)
{
    bool changed = false;
    for (struct server_h2_stream *stream = h2->watched.first; stream; stream = stream->next) {
        enum weir__health now = h2_status_of(stream);
        if (now == stream->watch.now && stream->watch.ends == last)
            continue;
        stream->watch.now = now;
        stream->watch.ends = stream->watch.ends || last;
        nghttp2_session_resume_data(h2->session, stream->id);
        changed = true;
    }
    return changed;
}

/* ---- age ---- */

int64_t server_h2_age_us(const struct server_h2 *h2)
{
    int64_t most = h2->conn->thread->server->config.max_age_us;
    int64_t step = (int64_t)(h2->conn->id * UINT64_C(0x9e3779b97f4a7c15) >> 32) % JITTER_PARTS;
    return most - most / 10 + most / 5 / JITTER_PARTS * step;
}

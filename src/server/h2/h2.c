/* What nghttp2 tells of: fields, data, frames, ends; and who asks for too much of what costs him
 * nothing. */
#include "server/h2/h2.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A request pays in more frames than any honest client sends with one. */
#define FRAMES_BURST 2000
#define FRAMES_PER_S 1000
#define FRAMES_A_REQUEST 20
/* Deadlines of honest clients reset streams too, all at once when a store hangs. */
#define RESETS_BURST 1000
#define RESETS_PER_S 200
/* A few bytes can name the same long field over and over: beyond so many times a head, nobody
 * listens. */
#define HEADS_MAX 16

/* Only in releases that know rapid resets. The library's own bound is stricter than ours. */
extern void nghttp2_option_set_stream_reset_rate_limit(nghttp2_option *option, uint64_t burst,
                                                       uint64_t rate) __attribute__((weak));

static void h2_count_fault(const struct server_h2 *h2, enum server_fault fault)
{
    server_count_fault(h2->conn, h2->conn->protocol->counted_as, fault);
}

/* ---- nuisances ---- */

static bool h2_spend(struct server_h2_bucket *bucket, int64_t now_us, int64_t burst, int64_t per_s)
{
    int64_t more = (now_us - bucket->at_us) * per_s / 1000000;
    if (more > 0) {
        bucket->left = weir__min(burst, bucket->left + more);
        bucket->at_us = now_us;
    }
    return bucket->left-- > 0;
}

/* Data that brings something is bounded by bodies; everything else costs. A failure ends the
 * session. */
static int h2_on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *context)
{
    struct server_h2 *h2 = context;
    (void)session;
    if (head->type == NGHTTP2_DATA && head->length > 0)
        return 0;
    bool paid = h2_spend(&h2->frames, h2->conn->thread->now_us, FRAMES_BURST, FRAMES_PER_S);
    return paid ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int h2_on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
                               void *context)
{
    (void)session, (void)frame, (void)code;
    h2_count_fault(context, SERVER_FAULT_MALFORMED);
    return 0;
}

/* ---- requests ---- */

static bool h2_is_request(const nghttp2_frame *frame)
{
    return frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
}

static int h2_on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct server_h2 *h2 = context;
    int32_t id = frame->hd.stream_id;
    if (!h2_is_request(frame))
        return 0;
    struct server_h2_stream *stream = server_h2_stream_take(h2, id);
    if (stream)
        nghttp2_session_set_stream_user_data(session, id, stream);
    else
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    return 0;
}

static int h2_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                        size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                        void *context)
{
    struct server_h2 *h2 = context;
    size_t most = (size_t)h2->conn->thread->server->config.max_head;
    struct server_h2_stream *stream =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags;
    if (!stream)
        return 0;
    stream->list_size += (uint32_t)(name_len + value_len + 32);
    if (stream->list_size > HEADS_MAX * most)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (!h2_is_request(frame) || stream->fault) /* trailers are checked and forgotten */
        return 0;
    if (stream->list_size > most || stream->field_count >= WEIR__HTTP_FIELDS_MAX ||
        !server_h2_take_field(stream, (struct weir__span){(const char *)name, name_len},
                              (struct weir__span){(const char *)value, value_len}))
        stream->fault = 431;
    return 0;
}

/* By default nghttp2 leaves out what it does not like; the rest would be another request. */
static int h2_on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                                const uint8_t *name, size_t name_len, const uint8_t *value,
                                size_t value_len, uint8_t flags, void *context)
{
    (void)session, (void)frame, (void)name, (void)name_len, (void)value, (void)value_len;
    (void)flags, (void)context;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int h2_on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                      size_t len, void *context)
{
    struct server_h2 *h2 = context;
    size_t most = (size_t)h2->conn->thread->server->config.max_body;
    struct server_h2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    (void)flags;
    if (!stream || stream->answered)
        return 0;
    if (stream->little)
        most = SERVER_LITTLE;
    if (stream->room_len - stream->head_len + len > most) {
        stream->fault = 413;
        server_h2_refuse(stream);
    } else if (!server_h2_take_body(stream, data, len)) {
        server_h2_refuse_for_memory(stream);
    }
    return 0;
}

static void h2_request_came(struct server_h2_stream *stream)
{
    struct server_h2 *h2 = stream->h2;
    stream->whole = true;
    if (stream->answered)
        return;
    h2->frames.left = weir__min(FRAMES_BURST, h2->frames.left + FRAMES_A_REQUEST);
    server_h2_stream_move(stream, &h2->ready);
}

static void h2_head_came(struct server_h2_stream *stream, bool whole)
{
    static const nghttp2_nv go_on = SERVER_H2_FIELD(":status", "100");
    if (stream->fault)
        server_h2_refuse(stream);
    else if (!whole && !server_h2_admit(stream))
        return;
    if (whole)
        h2_request_came(stream);
    else if (stream->expects && !stream->answered)
        nghttp2_submit_headers(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id, NULL, &go_on, 1,
                               NULL);
}

/* ---- frames ---- */

/* The peer has heard of the end: name the last stream that is answered still. */
static void h2_finish_drain(struct server_h2 *h2)
{
    h2->draining = false;
    nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(h2->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
}

static int h2_on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct server_h2 *h2 = context;
    bool whole = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct server_h2_stream *stream;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
        if (stream && h2_is_request(frame))
            h2_head_came(stream, whole);
        else if (stream && whole)
            h2_request_came(stream);
        break;
    case NGHTTP2_RST_STREAM:
        if (!h2_spend(&h2->resets, h2->conn->thread->now_us, RESETS_BURST, RESETS_PER_S))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK && h2->draining)
            h2_finish_drain(h2);
        break;
    default:
        break;
    }
    return 0;
}

/* An answer went out before its request was whole: the rest of that is not wanted. */
static int h2_on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    (void)context;
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct server_h2_stream *stream =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream && !stream->whole)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_NO_ERROR);
    return 0;
}

static int h2_on_close(nghttp2_session *session, int32_t id, uint32_t error, void *context)
{
    struct server_h2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    (void)error, (void)context;
    if (!stream)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    server_h2_stream_close(stream);
    return 0;
}

/* ---- sessions ---- */

/* The same for all, made once and kept. */
static nghttp2_session_callbacks *callbacks;
static nghttp2_option *options;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void h2_make_common(void)
{
    if (nghttp2_session_callbacks_new(&callbacks) || nghttp2_option_new(&options)) {
        nghttp2_session_callbacks_del(callbacks);
        callbacks = NULL;
        return;
    }
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, h2_on_begin_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, h2_on_invalid_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, h2_on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, h2_on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, h2_on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, h2_on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, h2_on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, h2_on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, h2_on_close);
    nghttp2_option_set_no_closed_streams(options, 1);
    if (nghttp2_option_set_stream_reset_rate_limit)
        nghttp2_option_set_stream_reset_rate_limit(options, RESETS_BURST, RESETS_PER_S);
}

/* A session, its SETTINGS submitted; NULL: no memory. */
static nghttp2_session *h2_session(struct server_h2 *h2)
{
    const struct server_thread *thread = h2->conn->thread;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, SERVER_H2_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)thread->server->config.max_head},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session *session = NULL;
    pthread_once(&once, h2_make_common);
    nghttp2_mem memory = server_h2_memory(h2); /* the session has a copy */
    if (!callbacks || nghttp2_session_server_new3(&session, callbacks, h2, options, &memory))
        return NULL;
    if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, WEIR__COUNT(settings))) {
        nghttp2_session_del(session);
        return NULL;
    }
    h2->frames = (struct server_h2_bucket){FRAMES_BURST, thread->now_us};
    h2->resets = (struct server_h2_bucket){RESETS_BURST, thread->now_us};
    return session;
}

/* ---- the protocol of a connection ---- */

/* ---- sending ---- */

/* The thread's buffer is for the next connection then. */
static void h2_give_up(struct server_conn *conn)
{
    conn->thread->out.len = 0;
    server_conn_kill(conn);
}

/* Writes what nghttp2 has, until the socket is full; closes when both sides are done. */
static void h2_send_frames(struct server_h2 *h2)
{
    struct server_conn *conn = h2->conn;
    if (h2->starved && !conn->dead) {
        conn->thread->out.len = 0;
        server_conn_kill_for_memory(conn);
        return;
    }
    while (!conn->blocked && !conn->dead) {
        const uint8_t *frame;
        ssize_t len = nghttp2_session_mem_send(h2->session, &frame);
        if (len < 0) {
            h2_give_up(conn);
            return;
        }
        if (len == 0)
            break;
        struct weir__buffer *out = server_out(conn); /* writes, where it is full */
        if (!conn->dead)
            weir__put(out, (const char *)frame, (size_t)len);
    }
    if (!nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session))
        server_conn_close(conn);
}

/* ---- feeding ---- */

static struct server_h2 *h2_begin(struct server_conn *conn)
{
    struct server_h2 *h2 = calloc(1, sizeof *h2);
    if (!h2)
        return NULL;
    h2->conn = conn;
    h2->began_us = conn->thread->now_us;
    h2->session = h2_session(h2);
    if (!h2->session) {
        free(h2);
        return NULL;
    }
    conn->state = h2;
    return h2;
}

/* nghttp2 or a callback gives up on the connection: a last word, then the end. */
static void h2_break_off(struct server_h2 *h2, int code)
{
    bool too_much = code == NGHTTP2_ERR_FLOODED || code == NGHTTP2_ERR_CALLBACK_FAILURE;
    h2_count_fault(h2, too_much ? SERVER_FAULT_TOO_LARGE : SERVER_FAULT_MALFORMED);
    nghttp2_session_terminate_session(h2->session, too_much ? NGHTTP2_ENHANCE_YOUR_CALM
                                                            : NGHTTP2_PROTOCOL_ERROR);
    h2_send_frames(h2);
    server_conn_close(h2->conn);
}

/* Streams whose peer neither sends nor reads on are ended; others of the connection live. */
static bool h2_end_late_streams(struct server_h2 *h2)
{
    bool any = false;
    const struct server_thread *thread = h2->conn->thread;
    int64_t most = thread->server->config.request_timeout_us;
    struct server_h2_stream *stream;
    while ((stream = h2->waiting.first) && thread->now_us - stream->since_us > most) {
        server_h2_stream_move(stream, &h2->acting);
        h2_count_fault(h2, SERVER_FAULT_TIMEOUT);
        server_h2_reset(stream, NGHTTP2_CANCEL);
        any = true;
    }
    return any;
}

/* Hands on the requests that are whole. */
static void h2_hand_on(struct server_h2 *h2)
{
    struct server_conn *conn = h2->conn;
    struct server_h2_stream *stream;
    bool was_feeding = h2->feeding;
    h2->feeding = true; /* answers are written together */
    while ((stream = h2->ready.first) && server_conn_goes_on(conn)) {
        server_h2_dispatch(stream);
        if (h2->ready.first && server_turn_is_over(conn))
            break;
    }
    server_batch_finish(conn);
    assert(!server_batch_is_open(conn));
    if (h2->held > 0)
        server_h2_streams_trim(h2);
    h2->feeding = was_feeding;
}

static size_t h2_feed(struct server_conn *conn, char *data, size_t len)
{
    struct server_h2 *h2 = conn->state ? conn->state : h2_begin(conn);
    if (!h2) {
        h2_give_up(conn);
        return len;
    }
    assert(!server_batch_is_open(conn)); /* it borrows from streams, which may end now */
    h2->feeding = true;
    ssize_t taken = nghttp2_session_mem_recv(h2->session, (const uint8_t *)data, len);
    h2->feeding = false;
    h2_hand_on(h2);
    if (taken < 0) {
        h2_break_off(h2, (int)taken);
        return len;
    }
    h2_end_late_streams(h2);
    h2_send_frames(h2);
    return len;
}

/* ---- answering ---- */

static void h2_answer_grpc(struct server_h2 *h2, struct server_ask *ask)
{
    struct server_grpc_reply reply = {
        .message = weir__buffer_over(h2->conn->thread->grpc_room, SERVER_GRPC_ROOM)};
    int32_t id = ask->call->stream;
    server_grpc_finish(h2->conn, ask, &reply);
    struct server_h2_stream *stream = nghttp2_session_get_stream_user_data(h2->session, id);
    if (stream && !stream->answered)
        server_h2_reply(stream, &reply);
}

static void h2_answer_http(struct server_h2 *h2, struct server_batch *batch, size_t i, int32_t id)
{
    struct server_response *response = h2->conn->thread->response;
    server_http_respond(h2->conn, batch, i, response);
    struct server_h2_stream *stream = nghttp2_session_get_stream_user_data(h2->session, id);
    if (stream && !stream->answered)
        server_h2_respond(stream, response);
    else
        free(response->owned);
    response->owned = NULL;
}

static void h2_answer(struct server_conn *conn, struct server_batch *batch)
{
    struct server_h2 *h2 = conn->state;
    for (size_t i = batch->from; i < batch->to; i++) {
        struct server_ask *ask = &batch->asks[i];
        const struct server_grpc_call *call = ask->kind == SERVER_ASK_CALL ? ask->call : NULL;
        if (call && !call->json)
            h2_answer_grpc(h2, ask);
        else
            h2_answer_http(h2, batch, i, call ? call->stream : ask->http.stream);
    }
    if (!h2->feeding)
        h2_send_frames(h2);
}

static void h2_more(struct server_conn *conn)
{
    struct server_h2 *h2 = conn->state;
    if (!h2 || h2->feeding)
        return;
    if (h2->ready.first && !conn->yields)
        h2_hand_on(h2);
    h2_send_frames(h2);
}

/* ---- the end ---- */

/* Two frames, so that no request on its way is lost: first that the end is near, then, when the
 * peer has heard it, which stream is the last. */
static void h2_drain(struct server_conn *conn)
{
    struct server_h2 *h2 = conn->state;
    if (!h2)
        return;
    h2->draining = true;
    server_h2_tell_watchers(h2, true);
    nghttp2_submit_shutdown_notice(h2->session);
    h2_send_frames(h2); /* a ping would overtake it */
    nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, NULL);
    h2_send_frames(h2);
    conn->since_us = conn->thread->now_us; /* however long it was idle: it has time to hear that */
    server_conn_resume(conn);
}

/* Once a second. An old connection is ended like one of a server that drains: its peer makes a new
 * one, perhaps to another server. */
static void h2_tick(struct server_conn *conn)
{
    struct server_h2 *h2 = conn->state;
    const struct server_config *config = &conn->thread->server->config;
    int64_t now_us = conn->thread->now_us;
    if (!h2 || conn->dead)
        return;
    if (h2_end_late_streams(h2)) /* also where the peer says nothing any more */
        server_conn_resume(conn);
    if (conn->dead)
        return;
    if (h2->old_us > 0) {
        if (now_us - h2->old_us > config->max_age_grace_us)
            server_conn_kill(conn);
    } else if (config->max_age_us > 0 && now_us - h2->began_us > server_h2_age_us(h2)) {
        h2->old_us = now_us;
        h2_drain(conn);
    } else if (server_h2_tell_watchers(h2, false)) {
        server_conn_resume(conn);
    }
}

static bool h2_waits(const struct server_conn *conn)
{
    const struct server_h2 *h2 = conn->state;
    return h2 && h2->waiting.first;
}

static void h2_free_state(struct server_conn *conn)
{
    struct server_h2 *h2 = conn->state;
    if (!h2)
        return;
    nghttp2_session_del(h2->session);
    server_h2_streams_free(h2);
    free(h2);
    conn->state = NULL;
}

const struct server_protocol_ops server_h2 = {
    .name = "h2",
    .counted_as = SERVER_GRPC,
    .feed = h2_feed,
    .answer = h2_answer,
    .more = h2_more,
    .drain = h2_drain,
    .tick = h2_tick,
    .waits = h2_waits,
    .free = h2_free_state,
};

/* HTTP/2 as a protocol of a connection: fed, answering, drained, freed. See h2.h. */
#include "server/h2/h2.h"

#include <stdlib.h>

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
    h2->session = server_h2_session(h2);
    if (!h2->session) {
        free(h2);
        return NULL;
    }
    conn->state = h2;
    return h2;
}

static void h2_count_fault(struct server_h2 *h2, enum server_fault fault)
{
    struct server_conn *conn = h2->conn;
    server_count(&conn->thread->counters->faults[conn->protocol->counted_as][fault], 1);
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
        server_h2_stream_act(stream);
        stream->answered = true;
        h2_count_fault(h2, SERVER_FAULT_TIMEOUT);
        nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_CANCEL);
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
    int32_t id = ((const struct server_grpc_call *)ask->other)->stream;
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
        const struct server_grpc_call *call =
            ask->verb == WEIR__VERB_COUNT && !ask->work ? ask->other : NULL;
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

/* Two words, lest a request that is on its way is lost: first that the end is near, then, when the peer has
 * heard it, which stream is the last. */
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

/* Once a second. An old connection is ended like one of a server that drains: its peer makes a new one,
 * perhaps to another server. */
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

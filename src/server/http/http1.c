/* HTTP/1: reads requests, has them routed, writes responses, a pipeline's in one go. */
#include "server/http/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_MAX ((size_t)16 << 10) /* of a response */
_Static_assert(WEIR__RATE_FIELDS_ROOM + ((size_t)4 << 10) <= HEAD_MAX, "its longest fields fit");
_Static_assert(HEAD_MAX + SERVER_RESPONSE_ROOM <= SERVER_OUT_RESERVE, "no answer is longer");
#define TURN_EVERY 8 /* asks between two looks at the time */

/* ---- writing ---- */

static void http1_put_line(struct weir__buffer *out, const char *name, const char *value,
                           size_t len)
{
    weir__put_text(out, name);
    weir__put(out, ": ", 2);
    weir__put(out, value, len);
    weir__put(out, "\r\n", 2);
}

static void http1_put_status(struct weir__buffer *out, int status)
{
    if (status == 200) {
        weir__put(out, "HTTP/1.1 200 OK\r\n", 17);
        return;
    }
    weir__put(out, "HTTP/1.1 ", 9);
    weir__put_int(out, status);
    weir__put(out, " ", 1);
    weir__put_text(out, server_status_text(status));
    weir__put(out, "\r\n", 2);
}

/* The head, and the body where it is short. */
static void http1_put_response(struct server_thread *thread, struct weir__buffer *out,
                               const struct server_response *response, bool close)
{
    bool bodiless = response->status == 204 || response->status == 304;
    http1_put_status(out, response->status);
    weir__put(out, server_date(thread), SERVER_DATE_LINE);
    for (size_t i = 0; i < response->field_count; i++)
        http1_put_line(out, response->fields[i].name, response->fields[i].value,
                       response->fields[i].len);
    if (!bodiless) {
        weir__put(out, "content-length: ", 16);
        weir__put_int(out, (int64_t)response->body.len);
        weir__put(out, "\r\n", 2);
    }
    if (close)
        weir__put(out, "connection: close\r\n", 19);
    else if (response->old)
        weir__put(out, "connection: keep-alive\r\n", 24);
    weir__put(out, "\r\n", 2);
    if (!bodiless && !response->head && response->body.len <= SERVER_RESPONSE_ROOM)
        weir__put(out, response->body.data, response->body.len);
}

/* `last`: none of what is decided comes behind it, so that a server that drains may close. */
static void http1_write_response(struct server_conn *conn, struct server_response *response,
                                 bool last)
{
    bool close = response->close || (last && atomic_load(&conn->thread->server->draining));
    server_count_status(conn->thread->counters, response->status);
    http1_put_response(conn->thread, server_out(conn), response, close);
    if (response->body.len > SERVER_RESPONSE_ROOM && !response->head)
        server_out_long(conn, response->body.data, response->body.len);
    free(response->owned);
    response->owned = NULL;
    if (close)
        server_conn_close(conn);
}

/* A response that must wait for those before it. */
static void http1_say_response(struct server_conn *conn, struct server_response *response)
{
    size_t size = HEAD_MAX + response->body.len;
    char *bytes = malloc(size);
    if (!bytes) {
        server_conn_kill(conn);
        return;
    }
    struct weir__buffer out = weir__buffer_over(bytes, size);
    http1_put_response(conn->thread, &out, response, response->close);
    if (response->body.len > SERVER_RESPONSE_ROOM && !response->head)
        weir__put(&out, response->body.data, response->body.len);
    server_count_status(conn->thread->counters, response->status);
    server_batch_say(conn, bytes, out.len, response->close);
    free(bytes);
    free(response->owned);
    response->owned = NULL;
}

static void http1_respond(struct server_conn *conn, struct server_response *response)
{
    if (server_batch_is_open(conn))
        http1_say_response(conn, response);
    else
        http1_write_response(conn, response, true);
}

static void http1_write_said(struct server_conn *conn, const struct server_ask *ask)
{
    if (ask->said->len < SERVER_OUT_RESERVE)
        weir__put(server_out(conn), ask->said->bytes, ask->said->len);
    else
        server_out_long(conn, ask->said->bytes, ask->said->len);
    if (ask->close)
        server_conn_close(conn);
}

static void http1_answer(struct server_conn *conn, struct server_batch *batch)
{
    struct server_response *response = conn->thread->response;
    for (size_t i = batch->from; i < batch->to && !conn->closing; i++) {
        if (batch->asks[i].kind == SERVER_ASK_SAID) {
            http1_write_said(conn, &batch->asks[i]);
            continue;
        }
        server_http_respond(conn, batch, i, response);
        http1_write_response(conn, response, i + 1 == batch->count);
    }
}

/* ---- reading ---- */

/* Whether it became an ask; if not, it was answered. */
static bool http1_handle(struct server_conn *conn, struct weir__http_request *request)
{
    struct server_response *response = conn->thread->response;
    enum server_routed routed = server_http_route(conn, request, 0, response);
    if (routed == SERVER_BUSY && server_batch_finish(conn))
        routed = server_http_route(conn, request, 0, response);
    if (routed == SERVER_ASKED)
        return true;
    if (routed == SERVER_BUSY) { /* no memory for a batch */
        server_response_problem(response, 503, "too many requests are in progress; try again");
        response->close = true;
    }
    response->head = request->method == WEIR__HTTP_HEAD;
    response->old = request->minor == 0;
    response->close =
        response->close || !request->keep_alive || conn->last_failure || conn->reserved_us;
    http1_respond(conn, response);
    return false;
}

static void http1_refuse(struct server_conn *conn, int status, const char *why)
{
    struct server_response *response = conn->thread->response;
    enum server_fault fault = status == 400 ? SERVER_FAULT_MALFORMED : SERVER_FAULT_TOO_LARGE;
    server_count(&conn->thread->counters->faults[SERVER_HTTP][fault], 1);
    server_response_problem(response, status, "%s", why);
    response->close = true;
    http1_respond(conn, response);
}

static void http1_begin(struct server_conn *conn)
{
    const struct server_config *config = &conn->thread->server->config;
    struct weir__http1_limits limits = {(size_t)config->max_head / 2, (size_t)config->max_head,
                                        (size_t)config->max_body};
    weir__http1_begin(&conn->http1, &limits);
    conn->state = conn; /* begun */
}

static void http1_say_continue(struct server_conn *conn)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (server_batch_is_open(conn))
        server_batch_say(conn, line, sizeof line - 1, false);
    else
        weir__put(server_out(conn), line, sizeof line - 1);
}

/* The head is there, its body is not: whether to wait for that. */
static bool http1_admit(struct server_conn *conn, const char *data,
                        struct weir__http_request *request)
{
    struct server_response *response = conn->thread->response;
    size_t body;
    bool chunked;
    weir__http1_head_so_far(&conn->http1, data, request, &body, &chunked);
    enum server_admission admission = server_http_admit(conn, request, response);
    if (admission == SERVER_ADMITTED ||
        (admission == SERVER_ADMITTED_LITTLE && !chunked && body <= SERVER_LITTLE))
        return true;
    if (admission == SERVER_ADMITTED_LITTLE)
        server_response_problem(response, 413, "the body is longer than %zu bytes", SERVER_LITTLE);
    response->close = true;
    http1_respond(conn, response);
    return false;
}

/* Whether nothing may follow the last ask before it is answered. */
static bool http1_last_is_final(const struct server_conn *conn)
{
    const struct server_batch *batch = conn->thread->open_batch;
    if (!server_batch_is_open(conn))
        return conn->closing;
    const struct server_ask *last = &batch->asks[batch->count - 1];
    bool is_long =
        last->kind == SERVER_ASK_SAID && last->said->len >= SERVER_OUT_RESERVE; /* one at a time */
    return last->hold || last->close || last->kind == SERVER_ASK_WORK || is_long;
}

static size_t http1_feed(struct server_conn *conn, char *data, size_t len)
{
    struct weir__http_request *request = conn->thread->request;
    size_t at = 0;
    unsigned handled = 0;
    bool over = false;
    if (!conn->state)
        http1_begin(conn);
    while (at < len && !over && server_conn_goes_on(conn)) {
        bool full = http1_last_is_final(conn) || !server_batch_has_room(conn);
        if (full && (!server_batch_finish(conn) || !server_conn_goes_on(conn)))
            break;
        enum weir__http1_status status =
            weir__http1_next(&conn->http1, data + at, len - at, request);
        if (status == WEIR__HTTP1_NEED_MORE) {
            if (conn->http1.head_came && !http1_admit(conn, data + at, request)) {
                at = len;
                break;
            }
            if (conn->http1.expects_continue)
                http1_say_continue(conn);
            break;
        }
        if (status == WEIR__HTTP1_BROKEN) {
            http1_refuse(conn, conn->http1.status, conn->http1.why);
            at = len;
            break;
        }
        bool asked = http1_handle(conn, request);
        at += conn->http1.size;
        over = (!asked || ++handled % TURN_EVERY == 0) && at < len && server_turn_is_over(conn);
        server_count(&conn->thread->counters->requests[SERVER_HTTP], 1);
    }
    server_batch_finish(conn);
    return at;
}

static void http1_late(struct server_conn *conn)
{
    struct server_response *response = conn->thread->response;
    server_response_problem(response, 408, "the request did not come in time");
    response->close = true;
    http1_write_response(conn, response, true);
}

const struct server_protocol_ops server_http1 = {
    .name = "http",
    .counted_as = SERVER_HTTP,
    .feed = http1_feed,
    .answer = http1_answer,
    .late = http1_late,
};

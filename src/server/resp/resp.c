/*
 * RESP: WEIR.* and CL.THROTTLE become asks; a pipeline of them is decided as one batch. What else
 * comes is answered in its turn, behind the batch.
 */
#include "server/resp/resp.h"

#include "store/store.h"
#include "wire/decision.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct resp_state {
    struct weir__resp_reader reader;
    bool guarded; /* a token is needed: what comes before it must be small */
    struct weir__resp_node nodes[SERVER_RESP_ARGS_MAX + 1];
};

static const struct weir__resp_limits limits = {
    .depth = 1,
    .bulk = WEIR_KEY_MAX,
    .line = 16384,
    .message = SERVER_RESP_MESSAGE_MAX,
};

/* Before AUTH: greetings and a token fit. */
static const struct weir__resp_limits small_limits = {
    .depth = 1,
    .bulk = 1024,
    .line = 1024,
    .message = 4096,
};

void server_resp_error(struct server_conn *conn, struct weir__buffer *out, enum server_fault fault,
                       const char *format, ...)
{
    char message[640];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (len >= (int)sizeof message)
        len = sizeof message - 1;
    server_count_fault(conn, SERVER_RESP, fault);
    weir__resp_put_error(out, message, (size_t)len);
}

/* ---- commands to asks ---- */

static void resp_put_one(struct server_batch *batch, struct server_ask *ask,
                         const struct weir__command *command)
{
    weir_request *request = &batch->simple[batch->count - 1];
    if (ask->kind == SERVER_ASK_SETTLE) {
        ask->settle.receipt = command->receipt;
        ask->settle.actual = command->actual;
    } else if (ask->kind == SERVER_ASK_LEASE) {
        ask->lease = command->lease;
    }
    request->key = command->asks[0].key;
    request->limit = command->asks[0].limit;
    request->cost = command->asks[0].cost;
    request->least = command->asks[0].least;
    request->wait_us = command->wait_us;
    request->acquire = command->verb == WEIR__VERB_ACQUIRE;
    if (request->acquire)
        weir__request_name_lease(request, command->lease);
}

static void resp_put_several(struct server_ask *ask, struct server_several *several,
                             const struct weir__command *command)
{
    ask->about = SERVER_ABOUT_SEVERAL;
    ask->several = several;
    several->count = command->count;
    for (size_t i = 0; i < command->count; i++) {
        const struct weir__command_ask *it = &command->asks[i];
        several->requests[i] =
            (weir_request){.key = it->key,
                           .limit = it->limit,
                           .cost = it->cost,
                           .least = it->least,
                           .wait_us = command->wait_us,
                           .detail = several->rows + several->row_count,
                           .acquire = command->acquires && weir__has_leases(it->limit)};
        if (several->requests[i].acquire)
            weir__request_name_lease(&several->requests[i], command->lease);
        several->row_count += weir_limit_count(it->limit);
    }
}

/* What only the limits can tell; NULL: all is well. */
static const char *resp_unfit(const struct weir__command *command, weir_error *err)
{
    bool leases = command->asks[0].limit && weir__has_leases(command->asks[0].limit);
    switch (command->verb) {
    case WEIR__VERB_TAKEALL:
        for (size_t i = 1; i < command->count; i++)
            leases = leases || weir__has_leases(command->asks[i].limit);
        return leases && !command->acquires ? SERVER_NEEDS_ACQUIRE : NULL;
    case WEIR__VERB_TAKE:
        return leases ? SERVER_NEEDS_ACQUIRE : NULL;
    case WEIR__VERB_ACQUIRE:
        return leases ? NULL : "there is nothing to acquire: none of the limits is concurrent";
    case WEIR__VERB_RENEW:
    case WEIR__VERB_RELEASE:
        return leases ? NULL : "there are no leases: none of the limits is concurrent";
    case WEIR__VERB_SETTLE:
        return weir__settles(command->asks[0].limit, err) ? err->message : NULL;
    case WEIR__VERB_PEEK:
    case WEIR__VERB_RESET:
    case WEIR__VERB_SHOW:
    case WEIR__VERB_THROTTLE:
    case WEIR__VERB_CLOCK:
    case WEIR__VERB_DECIDE:
        break;
    }
    return NULL;
}

/* What was written behind `from` waits for those before it. */
static void resp_say(struct server_conn *conn, struct weir__buffer *out, size_t from)
{
    if (!server_batch_is_open(conn))
        return;
    size_t len = out->len - from;
    out->len = from;
    server_batch_say(conn, out->data + from, len, conn->closing);
    conn->closing = false; /* it closes when it is said */
}

static void resp_say_error(struct server_conn *conn, const char *why)
{
    struct weir__buffer *out = server_out(conn);
    size_t from = out->len;
    server_resp_error(conn, out, SERVER_FAULT_INVALID, "ERR %s", why);
    resp_say(conn, out, from);
}

/* Decodes a command into the batch, which has room. */
static void resp_add_ask(struct server_conn *conn, enum weir__verb verb,
                         const struct weir__span *args, size_t n)
{
    struct weir__command command;
    weir_error err;
    const char *why;
    if (verb == WEIR__VERB_DECIDE) {
        if (server_resp_decide(conn, args, n, &err))
            resp_say_error(conn, err.message);
        return;
    }
    if (weir__command_read(verb, args, n, &conn->thread->cache, &command, &err))
        why = err.message;
    else
        why = resp_unfit(&command, &err);
    bool with_rows = !why && (verb == WEIR__VERB_TAKEALL || command.detail);
    struct server_several *several = with_rows ? server_several_take(conn->thread) : NULL;
    if (with_rows && !several)
        why = "out of memory for the request; try again";
    if (why) {
        resp_say_error(conn, why);
        return;
    }
    struct server_ask *ask = server_batch_add(conn);
    ask->kind = server_ask_kind_of(verb);
    ask->verb = verb;
    ask->resp.protocol = conn->resp_protocol;
    ask->resp.detail = command.detail;
    ask->resp.granted = command.tells_granted;
    ask->acquires = command.acquires;
    if (with_rows) {
        resp_put_several(ask, several, &command);
    } else {
        resp_put_one(server_batch_of(conn), ask, &command);
        server_batch_hash(conn);
    }
}

/* ---- answers ---- */

/* The reply to a plain take, nearly all there are: written in one go, where there is room for
 * it. */
static void resp_put_plain(struct server_conn *conn, const weir_request *request,
                           const weir_decision *decision, struct weir__buffer *out)
{
    static const char head[4] = {'*', '7', '\r', '\n'};
    char *start = out->data + out->len, *p = start;
    memcpy(p, head, sizeof head);
    p = weir__resp_write_row(p + 4, decision);
    const struct server_charged charged = {request, 1, 1};
    size_t len = server_receipt_write(conn->thread->server, &conn->thread->receipts, &charged,
                                      decision, p + 5);
    p[0] = '$'; /* a receipt has two digits' worth of bytes */
    p[1] = (char)('0' + len / 10);
    p[2] = (char)('0' + len % 10);
    p[3] = '\r';
    p[4] = '\n';
    p += 5 + len;
    memcpy(p, "\r\n", 3);
    out->len += (size_t)(p + 2 - start);
}

static void resp_put_decision(struct server_conn *conn, const struct server_ask *ask,
                              const weir_request *simple, const weir_decision *decision,
                              struct weir__buffer *out)
{
    char receipt[SERVER_RECEIPT_SIZE];
    bool lease = ask->acquires;
    const struct server_several *several = server_ask_several(ask);
    const struct server_several *rows = ask->resp.detail ? several : NULL;
    const weir_request *requests = several ? several->requests : simple;
    const struct server_charged charged = server_ask_charged(ask, requests);
    size_t n = charged.count, len = 0;
    bool granted = ask->resp.granted;
    if (WEIR__LIKELY(n == 1 && !lease && !rows && !granted)) {
        resp_put_plain(conn, requests, decision, out);
        return;
    }
    if (n > 0) /* without a limit there is nothing to settle */
        len = server_receipt_write(conn->thread->server, &conn->thread->receipts, &charged,
                                   decision, receipt);
    weir__resp_put_decision(out, decision, (struct weir__span){receipt, len}, granted, lease,
                            rows && rows->row_count > 0 ? rows->rows : NULL,
                            rows ? rows->row_count : 0);
}

static void resp_put_failure(struct server_conn *conn, const struct server_ask *ask,
                             struct weir__buffer *out)
{
    if (ask->code == WEIR_ENOLEASE) {
        weir__resp_put_integer(out, 0);
        return;
    }
    if (ask->code == WEIR_ESETTLED) { /* an answer, not a failure: whoever asks again is told */
        weir__resp_put_simple(out, "SETTLED", 7);
        return;
    }
    if (ask->code == SERVER_EOVERLOAD) {
        server_resp_error(conn, out, SERVER_FAULT_OVERLOAD, "BUSY %s", SERVER_OVERLOAD_TEXT);
        return;
    }
    if (ask->code == WEIR_ERECEIPT) {
        server_resp_error(conn, out, SERVER_FAULT_INVALID,
                          "ERR invalid receipt \"%.*s\" for this key and these limits: expected "
                          "what the take replied; " SERVER_RECEIPT_HINT,
                          (int)weir__min((int64_t)ask->settle.receipt.len, 64),
                          ask->settle.receipt.data);
        return;
    }
    /* The first word tells programs which it is, as the Redis module's errors do. */
    const char *word = ask->code == WEIR_ESHARED    ? "WEIRSHARED"
                       : ask->code == WEIR_EFULL    ? "WEIRFULL"
                       : ask->code == WEIR_EFOREIGN ? "WEIRSTATE"
                                                    : "ERR";
    server_resp_error(conn, out, SERVER_FAULT_INVALID, "%s %s", word, weir_strerror(ask->code));
}

static void resp_put_said(struct server_conn *conn, const struct server_ask *ask,
                          struct weir__buffer *out)
{
    weir__put(out, ask->said->bytes, ask->said->len);
    if (ask->close)
        server_conn_close(conn);
}

static void resp_put_answer(struct server_conn *conn, const struct server_batch *batch, size_t i,
                            struct weir__buffer *out)
{
    const struct server_ask *ask = &batch->asks[i];
    if (WEIR__UNLIKELY(ask->code && ask->kind != SERVER_ASK_SAID)) {
        resp_put_failure(conn, ask, out);
        return;
    }
    switch (ask->kind) {
    case SERVER_ASK_DECIDE:
        if (WEIR__LIKELY(ask->verb != WEIR__VERB_THROTTLE))
            resp_put_decision(conn, ask, &batch->simple[i], &batch->decided[i], out);
        else
            weir__resp_put_throttle(out, &batch->decided[i]);
        return;
    case SERVER_ASK_SETTLE:
        weir__resp_put_simple(out, "OK", 2);
        return;
    case SERVER_ASK_RESET:
        weir__resp_put_integer(out, ask->there);
        return;
    case SERVER_ASK_LEASE:
        weir__resp_put_integer(out, 1);
        return;
    case SERVER_ASK_SHOW:
        weir__resp_put_states(out, ask->shown->states, ask->shown->count);
        return;
    case SERVER_ASK_SAID:
        resp_put_said(conn, ask, out);
        return;
    case SERVER_ASK_REFUND:
    case SERVER_ASK_CALL:
    case SERVER_ASK_WORK:
        break;
    }
    assert(!"an ask that RESP makes");
}

static void resp_answer(struct server_conn *conn, struct server_batch *batch)
{
    for (size_t i = batch->from; i < batch->to; i++)
        resp_put_answer(conn, batch, i, server_out(conn));
}

/* ---- bytes to commands ---- */

enum server_access server_resp_access(struct server_conn *conn)
{
    if (WEIR__UNLIKELY(conn->access == SERVER_NOBODY))
        conn->access = server_open_access(conn->thread->server);
    return conn->access;
}

static bool resp_may_ask(struct server_conn *conn, enum weir__verb verb)
{
    bool admin = weir__verbs[verb].caller == WEIR__VERB_ADMIN;
    return server_resp_access(conn) >= (admin ? SERVER_ADMIN : SERVER_DATA);
}

static void resp_refuse(struct server_conn *conn, const char *why)
{
    struct weir__buffer *out = server_out(conn);
    size_t from = out->len;
    server_resp_error(conn, out, SERVER_FAULT_MALFORMED, "ERR Protocol error: %s", why);
    server_conn_close(conn);
    resp_say(conn, out, from);
}

static void resp_handle(struct server_conn *conn, const char *data, const struct resp_state *state)
{
    struct weir__span args[SERVER_RESP_ARGS_MAX];
    enum weir__verb verb;
    size_t n = state->nodes[0].len;
    for (size_t i = 0; i < n; i++)
        args[i] = (struct weir__span){data + state->nodes[i + 1].at, state->nodes[i + 1].len};
    if (n == 0)
        return;
    if (WEIR__LIKELY(weir__verb_of_name(args[0].data, args[0].len, &verb)) &&
        verb != WEIR__VERB_CLOCK && resp_may_ask(conn, verb)) {
        resp_add_ask(conn, verb, args, n);
        return;
    }
    if (weir__span_is_word(args[0], "POST") || weir__span_is_word(args[0], "Host:")) {
        resp_refuse(conn, "this is HTTP on a connection that speaks RESP");
        return;
    }
    if (conn->thread->server->config.test_clock && !conn->thread->server->remote)
        server_batch_finish(conn); /* what came before a change of the clock is of its time */
    struct weir__buffer *out = server_out(conn);
    size_t from = out->len;
    server_resp_admin(conn, args, n, out);
    resp_say(conn, out, from);
}

static struct resp_state *resp_state_of(struct server_conn *conn)
{
    struct resp_state *state = conn->state;
    if (state)
        return state;
    state = conn->state = calloc(1, sizeof *state);
    if (!state) {
        server_conn_close(conn);
        return NULL;
    }
    state->guarded = server_open_access(conn->thread->server) == SERVER_NOBODY;
    weir__resp_begin(&state->reader, WEIR__RESP_REQUESTS, &limits, state->nodes,
                     WEIR__COUNT(state->nodes));
    return state;
}

/* Whether the last thing said ends the connection. */
static bool resp_is_over(const struct server_conn *conn)
{
    const struct server_batch *batch = conn->thread->open_batch;
    return server_batch_is_open(conn) ? batch->asks[batch->count - 1].close : conn->closing;
}

static size_t resp_feed(struct server_conn *conn, char *data, size_t len)
{
    struct resp_state *state = resp_state_of(conn);
    size_t at = 0;
    if (conn->reserved_us) { /* in Redis's words, which clients know */
        weir__resp_put_error(server_out(conn), SERVER_FULL_RESP, sizeof SERVER_FULL_RESP - 1);
        server_conn_close(conn);
        return len;
    }
    uint64_t commands = 0;
    while (state && at < len && server_conn_goes_on(conn) && !resp_is_over(conn)) {
        if (!server_batch_has_room(conn) && !server_batch_finish(conn))
            break;
        if (commands > 0 && commands % SERVER_BATCH_MAX == 0 && server_turn_is_over(conn))
            break;
        if (WEIR__UNLIKELY(state->guarded))
            state->reader.limits = conn->access == SERVER_NOBODY ? small_limits : limits;
        enum weir__resp_status status = weir__resp_next(&state->reader, data + at, len - at);
        if (status == WEIR__RESP_NEED_MORE)
            break;
        if (status == WEIR__RESP_BROKEN) {
            resp_refuse(conn, state->reader.why);
            at = len;
            break;
        }
        resp_handle(conn, data + at, state);
        at += state->reader.size;
        commands++;
    }
    server_count(&conn->thread->counters->requests[SERVER_RESP], commands);
    server_batch_finish(conn);
    if (commands > 0 && at == len && WEIR__UNLIKELY(!conn->thread->accepting))
        server_conn_close(
            conn); /* the server drains, and RESP has no word for it: between requests */
    return at;
}

static void resp_free_state(struct server_conn *conn)
{
    free(conn->state);
}

const struct server_protocol_ops server_resp = {
    .name = "resp",
    .counted_as = SERVER_RESP,
    .feed = resp_feed,
    .answer = resp_answer,
    .free = resp_free_state,
};

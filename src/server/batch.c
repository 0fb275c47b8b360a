/* Batches: filled, run here or given to the askers, answered. See batch.h. */
#include "server/conn.h"

#include "limit/receipt.h"
#include "server/grpc/grpc.h"
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_QUOTED_MAX 255 /* bytes of a stranger's text in a line of the log */

/* ---- the open batch ---- */

struct batch_open {
    struct server_batch batch;
    weir_request simple[SERVER_BATCH_MAX];
    weir_hashed_key hashed[SERVER_BATCH_MAX];
    weir_decision decided[SERVER_BATCH_MAX];
    struct server_ask asks[SERVER_BATCH_MAX];
    size_t room_used;
    char room[SERVER_BATCH_ROOM]; /* keys decoded from queries */
};

struct server_batch *server_batch_create(struct server_thread *thread)
{
    struct batch_open *open = calloc(1, sizeof *open);
    if (!open)
        return NULL;
    open->batch = (struct server_batch){.thread = thread,
                                        .simple = open->simple,
                                        .hashed = open->hashed,
                                        .decided = open->decided,
                                        .asks = open->asks};
    return &open->batch;
}

void server_batch_destroy(struct server_thread *thread)
{
    free(thread->open_batch);
}

static struct batch_open *batch_open_of(struct server_thread *thread)
{
    return (struct batch_open *)thread->open_batch; /* its first member */
}

struct server_batch *server_batch_of(struct server_conn *conn)
{
    conn->thread->open_batch->conn = conn;
    return conn->thread->open_batch;
}

/* No ask is open: what earlier ones used, also such as were refused half-way, is used no more. */
static void batch_turn(struct server_thread *thread)
{
    batch_open_of(thread)->room_used = 0;
    if (thread->cache.retired_count > 0) {
        weir__limit_cache_turn(&thread->cache);
        thread->receipts.limit = NULL;
    }
}

bool server_batch_has_room(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    const struct batch_open *open = batch_open_of(thread);
    size_t needed = (size_t)thread->server->config.max_head + WEIR_KEY_MAX;
    if (open->batch.count == 0) {
        batch_turn(thread);
        return true;
    }
    return open->batch.count < SERVER_BATCH_MAX && sizeof open->room - open->room_used >= needed &&
           !weir__limit_cache_needs_turn(&thread->cache);
}

bool server_batch_is_open(const struct server_conn *conn)
{
    return conn->thread->open_batch->count > 0;
}

void server_batch_say(struct server_conn *conn, const char *bytes, size_t len, bool close)
{
    struct server_said *said = malloc(sizeof *said + len);
    struct server_ask *ask = said ? server_batch_add(conn) : NULL;
    if (!ask) {
        free(said);
        server_conn_kill(conn);
        return;
    }
    said->len = len;
    memcpy(said->bytes, bytes, len);
    ask->kind = SERVER_ASK_SAID;
    ask->said = said;
    ask->close = close;
}

struct server_ask *server_batch_add(struct server_conn *conn)
{
    struct server_batch *batch = server_batch_of(conn);
    if (batch->count == SERVER_BATCH_MAX)
        return NULL;
    size_t i = batch->count++;
    batch->simple[i] = (weir_request){.cost = 1, .wait_us = WEIR_WAIT_DEFAULT};
    memset(&batch->asks[i], 0, sizeof batch->asks[i]);
    return &batch->asks[i];
}

void server_batch_hash(struct server_conn *conn)
{
    struct server_batch *batch = conn->thread->open_batch;
    size_t i = batch->count - 1;
    weir_request *request = &batch->simple[i];
    weir_store *store = conn->thread->server->store;
    if (!store->engine->hash || weir_key_hash(store, request->key, &batch->hashed[i]))
        return; /* hashing ahead is of no use, or the verb will refuse the key */
    request->hashed = &batch->hashed[i];
}

char *server_batch_room(struct server_conn *conn, size_t n)
{
    struct batch_open *open = batch_open_of(conn->thread);
    if (n > sizeof open->room - open->room_used)
        return NULL;
    char *room = open->room + open->room_used;
    open->room_used += n;
    return room;
}

/* ---- asks ---- */

enum server_ask_kind server_ask_kind_of(enum weir__verb verb)
{
    switch (verb) {
    case WEIR__VERB_TAKE:
    case WEIR__VERB_PEEK:
    case WEIR__VERB_ACQUIRE:
    case WEIR__VERB_THROTTLE:
    case WEIR__VERB_TAKEALL:
    case WEIR__VERB_DECIDE:
        return SERVER_ASK_DECIDE;
    case WEIR__VERB_SETTLE:
        return SERVER_ASK_SETTLE;
    case WEIR__VERB_RESET:
        return SERVER_ASK_RESET;
    case WEIR__VERB_RENEW:
    case WEIR__VERB_RELEASE:
        return SERVER_ASK_LEASE;
    case WEIR__VERB_SHOW:
        return SERVER_ASK_SHOW;
    case WEIR__VERB_CLOCK:
        break;
    }
    assert(!"a verb that asks something of the store");
    return SERVER_ASK_DECIDE;
}

struct decision_room {
    struct server_planned planned;
    weir_decision shadow_rows[WEIR__ENTRIES_MAX][WEIR_LIMITS_MAX];
};

struct server_several *server_several_take(struct server_thread *thread)
{
    struct server_several *several =
        server_pool_take(&thread->decisions, sizeof(struct decision_room));
    if (several)
        several->count = several->row_count = 0;
    return several;
}

struct server_planned *server_planned_take(struct server_thread *thread)
{
    struct decision_room *room = (struct decision_room *)server_several_take(thread);
    if (!room)
        return NULL;
    struct server_planned *planned = &room->planned;
    memset(planned->seen.lens, 0, sizeof planned->seen.lens);
    planned->shadow_rows = room->shadow_rows;
    weir__plan_begin(&planned->plan);
    return planned;
}

void server_ask_end(struct server_conn *conn, struct server_ask *ask)
{
    switch (ask->kind) {
    case SERVER_ASK_DECIDE:
    case SERVER_ASK_SETTLE:
    case SERVER_ASK_REFUND:
    case SERVER_ASK_RESET:
    case SERVER_ASK_LEASE:
        return;
    case SERVER_ASK_SHOW:
        free(ask->shown);
        break;
    case SERVER_ASK_CALL:
        server_grpc_end(ask);
        break;
    case SERVER_ASK_WORK:
        server_work_end(conn, ask->work);
        break;
    case SERVER_ASK_SAID:
        free(ask->said);
        break;
    }
    ask->said = NULL; /* whichever it is */
}

static void batch_end_ask(struct server_batch *open, struct server_ask *ask)
{
    struct server_several *several = server_ask_several(ask);
    if (several)
        server_pool_give(&open->thread->decisions, several, SERVER_BATCH_MAX);
    server_ask_end(open->conn, ask);
}

/* Whether a worker runs it: its last ask is work. */
static bool batch_is_work(const struct server_batch *batch)
{
    return batch->asks[batch->count - 1].kind == SERVER_ASK_WORK;
}

void server_batch_drop(struct server_conn *conn)
{
    struct server_batch *batch = conn->thread->open_batch;
    assert(batch->count > 0);
    batch_end_ask(batch, &batch->asks[--batch->count]);
}

static void batch_clear(struct server_batch *open)
{
    for (size_t i = 0; i < open->count; i++)
        batch_end_ask(open, &open->asks[i]);
    open->count = 0;
    batch_turn(open->thread);
}

/* ---- answering ---- */

/* Counts asks [from, to) and answers them, if anybody is left to be answered. */
static void batch_answer(struct server_batch *batch, size_t from, size_t to)
{
    struct server_conn *conn = batch->conn;
    batch->from = from;
    batch->to = to;
    if (from == to)
        return;
    server_batch_count(batch);
    if (!conn->dead)
        conn->protocol->answer(conn, batch);
}

/* ---- running ---- */

/* Refused before anything was charged. */
static void batch_refuse(struct server_ask *ask)
{
    ask->code = SERVER_EOVERLOAD;
    if (ask->kind == SERVER_ASK_CALL)
        server_grpc_overload(ask);
}

/* Answers asks [0, from), which are decided, and sends the others to the askers, or to a worker;
 * false: they are on their way. */
static bool batch_send_away(struct server_conn *conn, struct server_batch *open, size_t from)
{
    struct server *server = conn->thread->server;
    struct server_batch *away =
        from < open->count ? server_batch_pack(conn, open, from, open->count) : NULL;
    bool is_work = batch_is_work(open), was_closing = conn->closing;
    for (size_t i = from; i < open->count && !away; i++) {
        if (open->asks[i].kind != SERVER_ASK_SAID)
            batch_refuse(&open->asks[i]);
    }
    batch_answer(open, 0, away ? from : open->count);
    batch_clear(open);
    if (!away)
        return true;
    if (conn->dead ||
        conn->closing > was_closing) { /* nobody would hear of it: nothing is charged */
        server_batch_unpack(away);
        return true;
    }
    assert(conn->inflight == 0 || conn->protocol == &server_h2);
    conn->inflight++;
    if (is_work)
        server_workers_give(server->workers, away);
    else
        server_askers_give(server->askers, away);
    return false;
}

/* The last one, whose answer may be held, is decided behind the others. False: it is held. */
static bool batch_run_last(struct server_conn *conn, struct server_batch *last)
{
    if (conn->dead || conn->closing) { /* nobody would hear of it: nothing is charged */
        server_batch_unpack(last);
        return true;
    }
    server_batch_run(conn->thread->server, last);
    if (server_held_wants(last) && server_held_hold(last)) {
        conn->inflight++;
        return false;
    }
    batch_answer(last, 0, 1);
    server_batch_unpack(last);
    return true;
}

bool server_batch_finish(struct server_conn *conn)
{
    struct server_batch *open = conn->thread->open_batch, *last = NULL;
    struct server *server = conn->thread->server;
    if (open->count == 0)
        return true;
    assert(open->conn == conn);
    open->began_us = weir__mono_us();
    if (server->remote || batch_is_work(open))
        return batch_send_away(conn, open, server->near ? server_batch_run_near(server, open) : 0);
    size_t before = open->count - 1;
    if (WEIR__UNLIKELY(open->asks[before].hold)) {
        last = server_batch_pack(conn, open, before, open->count);
        if (last)
            server_batch_drop(conn);
        else
            batch_refuse(&open->asks[before]);
    }
    server_batch_run(server, open);
    batch_answer(open, 0, open->count);
    batch_clear(open);
    return !last || batch_run_last(conn, last);
}

void server_batch_back(struct server_batch *batch)
{
    struct server_conn *conn = batch->conn;
    size_t last = batch->count - 1;
    if (!conn->dead && server_held_wants(batch)) {
        batch_answer(batch, batch->to, last); /* the others do not wait with it */
        batch->to = last;
        if (!conn->dead && server_held_hold(batch)) {
            server_conn_resume(conn);
            return;
        }
    }
    batch->began_us += batch->asks[last].held_us; /* waiting is no work */
    batch_answer(batch, batch->to, batch->count);
    assert(conn->inflight > 0);
    conn->inflight--;
    server_batch_unpack(batch);
    server_conn_resume(conn);
}

/* ---- asks against the store ---- */

static bool batch_is_plain_take(const struct server_ask *ask)
{
    return ask->kind == SERVER_ASK_DECIDE && ask->about == SERVER_ABOUT_ONE && ask->code == 0 &&
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

/* Finds what is used, row by row. What the local fallback decided, nobody is asked about. */
static void batch_find_used(weir_store *store, struct server_several *several,
                            const weir_decision *decided)
{
    struct weir__used *used = several->used;
    for (size_t i = 0; i < several->count; i++) {
        const weir_request *it = &several->requests[i];
        if (!decided->degraded)
            weir__store_used(store, it->key, it->limit, used);
        for (size_t j = 0; j < it->limit->count && decided->degraded; j++)
            used[j] = (struct weir__used){.amount = -1};
        used += it->limit->count;
    }
}

int server_ask_decide(weir_store *store, struct server_ask *ask, const weir_request *simple,
                      weir_decision *ret)
{
    bool reads = weir__verb_reads(ask->verb);
    if (ask->about == SERVER_ABOUT_PLAN) {
        struct server_planned *planned = ask->planned;
        const struct weir__plan_rows rows = {planned->several.rows, planned->shadow_rows};
        return weir__plan_decide(store, &planned->plan, reads ? WEIR__PEEK : WEIR__TAKE, &rows,
                                 ret);
    }
    const struct server_several *several = server_ask_several(ask);
    const weir_request *requests = several ? several->requests : simple;
    size_t n = several ? several->count : 1;
    return reads ? weir__peek_all(store, requests, n, ret)
                 : weir__take_all(store, requests, n, ret);
}

/* The same, and for an ask that explains what is used. */
static int batch_decide(weir_store *store, struct server_ask *ask, const weir_request *simple,
                        weir_decision *ret)
{
    int code = server_ask_decide(store, ask, simple, ret);
    struct server_several *several = server_ask_several(ask);
    if (code == 0 && ask->explain && several)
        batch_find_used(store, several, ret);
    return code;
}

static int batch_settle(struct server *server, struct server_ask *ask, const weir_request *simple)
{
    const struct server_several *several = server_ask_several(ask);
    const weir_request *requests = several ? several->requests : simple;
    char receipt[WEIR_RECEIPT_SIZE];
    if (several && several->count == 0)
        return WEIR_EINVAL;
    assert(!several || ask->about == SERVER_ABOUT_PLAN);
    const struct server_charged charged = server_ask_charged(ask, requests);
    if (!server_receipt_read(server, &charged, ask->settle.receipt, receipt))
        return WEIR_ERECEIPT;
    ask->settle.late = weir__settle_is_late(server->store, receipt);
    return several
               ? weir__plan_settle(server->store, &ask->planned->plan, receipt, ask->settle.actual)
               : weir_settle(server->store, simple->key, simple->limit, receipt, ask->settle.actual,
                             NULL);
}

/* A word and a text of strangers in quotes, for a line of the log: what is not printable ASCII is
 * '?', and of a long text the beginning. */
static void batch_put_quoted(struct weir__buffer *out, const char *word, const void *text,
                             size_t len)
{
    size_t shown = (size_t)weir__min((int64_t)len, BATCH_QUOTED_MAX);
    weir__put_text(out, word);
    weir__put(out, "\"", 1);
    for (size_t i = 0; i < shown; i++) {
        char byte = ((const char *)text)[i];
        weir__put(out, byte >= ' ' && byte < 0x7f && byte != '"' ? &byte : "?", 1);
    }
    weir__put_text(out, shown < len ? "\"…" : "\"");
}

/* Who gave what back to whom and by which id, for the log. */
static void batch_report_refund(const char *peer, const struct server_ask *ask,
                                const weir_request *request, const int64_t *given, int code)
{
    char whom[2 * (BATCH_QUOTED_MAX + 16)];
    struct weir__buffer out = weir__buffer_over(whom, sizeof whom);
    const long long amount = (long long)ask->refund.give.amount;
    const weir_limit *limit = request->limit;
    batch_put_quoted(&out, "the key ", request->key.data, request->key.len);
    if (ask->refund.id.len > 0)
        batch_put_quoted(&out, ", id ", ask->refund.id.data, ask->refund.id.len);
    assert(!out.cut);
    if (code)
        server_report("refund by %s: %lld to %s, %.200s: %s", peer, amount, whom,
                      weir_limit_text(limit),
                      code == WEIR_ESETTLED ? "was given back before, with the same id"
                                            : weir_strerror(code));
    for (size_t i = 0; code == 0 && i < limit->count; i++) {
        if (weir__limit_varies(limit, i))
            server_report("refund by %s: %lld of %lld to %s, %s", peer, (long long)given[i], amount,
                          whom, weir__limit_text_of(limit, i).text);
    }
}

static int batch_refund(struct server *server, const struct server_ask *ask, const char *peer,
                        weir_decision *ret)
{
    struct server_several *several = server_ask_several(ask);
    int64_t given[WEIR_LIMITS_MAX][WEIR_LIMITS_MAX];
    size_t before = 0;
    int code = 0;
    assert(several && several->count > 0 && ask->refund.give.amount > 0);
    for (size_t i = 0; i < several->count && code == 0; i++) {
        const weir_request *it = &several->requests[i];
        code = weir__refund(server->store, it->key, it->limit, &ask->refund.give, given[i], NULL);
        batch_report_refund(peer, ask, it, given[i], code);
        before += code == WEIR_ESETTLED;
        code = code == WEIR_ESETTLED ? 0 : code;
    }
    if (code == 0)
        code = weir__peek_all(server->store, several->requests, several->count, ret);
    for (size_t i = 0; code == 0 && i < several->count; i++) {
        assert(several->requests[i].detail);
        for (size_t j = 0; j < several->requests[i].limit->count; j++)
            several->requests[i].detail[j].charged = -given[i][j]; /* the answer tells it */
    }
    if (code == 0)
        batch_find_used(server->store, several, ret);
    return code == 0 && before == several->count ? WEIR_ESETTLED : code;
}

static int batch_lease(struct server *server, const struct server_ask *ask,
                       const weir_request *request)
{
    assert(ask->verb == WEIR__VERB_RENEW || ask->verb == WEIR__VERB_RELEASE);
    enum weir__lease_verb verb = ask->verb == WEIR__VERB_RENEW ? WEIR__RENEW : WEIR__RELEASE;
    if (ask->about == SERVER_ABOUT_PLAN)
        return weir__plan_change_lease(server->store, &ask->planned->plan, ask->lease, verb);
    return verb == WEIR__RENEW
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
    ask->shown->now_us = weir__store_now(server->store);
    ask->shown->count = count;
    memcpy(ask->shown->states, states, count * sizeof *states);
    return 0;
}

static int batch_run_one(struct server *server, struct server_batch *batch, size_t i)
{
    struct server_ask *ask = &batch->asks[i];
    weir_request *request = &batch->simple[i];
    weir_decision *ret = &batch->decided[i];
    switch (ask->kind) {
    case SERVER_ASK_DECIDE:
        return batch_decide(server->store, ask, request, ret);
    case SERVER_ASK_SETTLE:
        return batch_settle(server, ask, request);
    case SERVER_ASK_REFUND:
        return batch_refund(server, ask, batch->conn->peer_text, ret);
    case SERVER_ASK_RESET:
        return ask->about == SERVER_ABOUT_PLAN
                   ? weir__plan_reset(server->store, &ask->planned->plan, &ask->there)
                   : weir__store_reset(server->store, request->key, &ask->there);
    case SERVER_ASK_LEASE:
        return batch_lease(server, ask, request);
    case SERVER_ASK_SHOW:
        return batch_show(server, ask, request->key);
    case SERVER_ASK_CALL:
        server_grpc_run(server->store, ask);
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
        batch->asks[i].code = batch_run_one(server, batch, i);
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

/*
 * weir_rate: bandwidth that all responses of a key share.
 *
 *     filters ─► nginx's write filter ─► rate_send_chain() ─► the connection's own send_chain
 *                        ▲                       │
 *                        └── the write event ◄───┴─ nothing paid for: delayed until the timer
 *
 * The connection's send_chain is replaced while a response with a rate is sent, from the first
 * piece of its body (HTTP/2 sets its own when it sends the head) until the request ends. After 101
 * Switching Protocols (WebSockets) nginx uses the connection's send, which is then replaced, too.
 *
 * What holds:
 *   1. Bytes are paid for before they are sent: a piece is taken from the key's bucket, if
 *      necessary with a delay, which reserves it. So responses continue in the order in which they
 *      came. sendfile rounds up to whole pages; what was sent too much is paid for before the next
 *      piece.
 *   2. What left the chain counts: the body, with what HTTP/1 puts around it, but not the frames of
 *      TLS and HTTP/2.
 *   3. A piece is usable when its time has come by the clock, whoever wakes the connection up.
 *   4. While it waits here, the connection's own timer is not set: the client did nothing wrong.
 *   5. A request that ends gives back what it paid for and did not send.
 *   6. nginx's timers count in milliseconds. A bucket whose burst is less than what flows in a few
 *      of them would be full before the timer fires, and the rest would be lost. For such a bucket
 *      many small pieces are paid for in one go, and the next ones before those are due (ahead).
 *      None is sent before its time.
 */
#include "ngx_http_weir.h"

#include "limit/receipt.h"

#define PIECE_LEAST 1024
#define PIECE_MOST (64 * 1024)
#define FULL_RETRY_US 1000000
#define PIECE_US 100000         /* how much of the rate a piece is */
#define CALL_MOST (1024 * 1024) /* bytes sent in one go, so that others have their turn */
#define TIMER_MOST_MS 60000
#define SMALL_US 20000   /* a burst that flows in less than this is small */
#define AHEAD_US 10000   /* how much of the rate is paid for in one go then */
#define TAKES_MOST 256   /* in at most so many pieces */
#define FLOWS_LEAST 8192 /* so much in one go that is not the last: more will follow */
#define UNLIMITED (INT64_C(1) << 62)

struct rate {
    ngx_http_request_t *request;
    const ngx_http_weir_loc_conf_t *conf;
    ngx_connection_t *connection; /* NULL: this response is not limited */
    ngx_send_chain_pt send_chain; /* the connection's own */
    ngx_send_pt send;             /* likewise, of an upgraded one; else NULL */
    weir_store *store;
    const weir_limit *limit; /* a reference */
    weir_hashed_key key;
    int64_t piece, piece_most;
    int64_t credit;   /* bytes paid for; below 0: sent too much */
    int64_t reserved; /* bytes that will be paid for at due_us */
    int64_t due_us;   /* monotonic; 0: nothing to wait for */
    int64_t ahead;    /* bytes that will be paid for at ahead_due_us, behind those */
    int64_t ahead_due_us;
    bool small;         /* the burst */
    weir_decision last; /* the last one that was allowed */
    ngx_event_t timer;
};

static ngx_http_output_body_filter_pt rate_next_filter;

/* ---- the limit ---- */

static bool rate_is_rate(const weir_limit *limit)
{
    return limit->count == 1 && !limit->costs && weir__algorithm_of(&limit->rules[0])->flows;
}

/* Bytes that flow in a time. */
static int64_t rate_flow(const struct weir__rule *rule, int64_t microseconds)
{
    return (int64_t)((__int128)rule->count * microseconds / rule->period_us);
}

static bool rate_is_small(const struct weir__rule *rule)
{
    return rule->burst < rate_flow(rule, SMALL_US);
}

static int64_t rate_piece_of(const struct weir__rule *rule)
{
    int64_t piece = ngx_max(PIECE_LEAST, ngx_min(PIECE_MOST, rate_flow(rule, PIECE_US)));
    return rate_is_small(rule) ? ngx_max(piece, rate_flow(rule, AHEAD_US))
                               : ngx_min(rule->burst, piece);
}

char *ngx_http_weir_rate_check(ngx_conf_t *cf, const ngx_http_weir_limit_t *limit)
{
    if (rate_is_rate(limit->limit))
        return NGX_CONF_OK;
    return ngx_http_weir_conf_fail(
        cf,
        "weir_rate: bandwidth cannot be limited by \"%s\"; write one token-bucket of "
        "bytes, like \"token-bucket 1m/s burst 4m\"",
        weir_limit_text(limit->limit));
}

/* ---- taking ---- */

/* The longer the wait for this piece, the smaller the next one: so each response gets some bytes
 * soon, however many share a key. All of a key see about the same delay, and so get the same. The
 * size moves only half the way, or all of them would swing together. */
static void rate_adapt_piece(struct rate *rate, int64_t delay_us)
{
    int64_t least = ngx_min(PIECE_LEAST, rate->piece_most);
    int64_t wanted = rate->piece_most * PIECE_US / ngx_max(PIECE_US, delay_us);
    rate->piece = (rate->piece + ngx_max(least, wanted) + 1) / 2;
}

/* The zone does not decide: the rest of the response is not limited. */
static void rate_give_up(struct rate *rate, int code)
{
    ngx_log_error(NGX_LOG_ERR, rate->connection->log, 0,
                  "weir: the response is sent without a limit of its rate: %s",
                  weir_strerror(code));
    rate->reserved = UNLIMITED;
    rate->last.charged = 0;
}

/* Takes up to `most` bytes, which are added to *ret_bytes. */
static int rate_take_bytes(struct rate *rate, int64_t most, int64_t wait_us, int64_t *ret_bytes,
                           weir_decision *ret)
{
    weir_request request = weir_request_make(rate->key.key, rate->limit);
    request.hashed = &rate->key;
    request.cost = ngx_min(rate->limit->rules[0].burst, most);
    request.wait_us = wait_us;
    int code = weir__take_all(rate->store, &request, 1, ret);
    if (code == 0 && ret->allowed) {
        rate->last = *ret;
        *ret_bytes += request.cost;
    }
    return code;
}

/* Takes places in the queue for `most` bytes. All are due when the last one is. */
static int rate_queue_for(struct rate *rate, int64_t most, int64_t *ret_bytes, weir_decision *ret)
{
    int code, takes = rate->small ? TAKES_MOST : 1;
    do {
        code = rate_take_bytes(rate, most - *ret_bytes, WEIR_WAIT_ANY, ret_bytes, ret);
    } while (code == 0 && ret->allowed && *ret_bytes < most && --takes > 0);
    return code;
}

/* Takes the next piece: a large one if it is available at once, else a place in the queue. */
static void rate_take(struct rate *rate, off_t size)
{
    bool is_test = ngx_http_weir_set_clock(rate->request, rate->conf); /* then nothing waits */
    weir_decision decision;
    int code = rate_take_bytes(rate, ngx_min(PIECE_MOST, size) - rate->credit, 0, &rate->reserved,
                               &decision);
    if (code == 0 && !decision.allowed) {
        code = rate_queue_for(rate, ngx_min(rate->piece, size) - rate->credit, &rate->reserved,
                              &decision);
        if (code == 0)
            rate_adapt_piece(rate, decision.delay_us + decision.retry_after_us);
    }
    if (code || decision.retry_after_us == WEIR_NEVER || (is_test && rate->reserved == 0)) {
        rate_give_up(rate, code ? code : WEIR_EINVAL);
        return;
    }
    int64_t delay_us = decision.delay_us + decision.retry_after_us;
    if (decision.full) /* the zone has no room for its key: the response waits, but not for long */
        delay_us = ngx_min(delay_us, FULL_RETRY_US);
    if (delay_us && !is_test)
        rate->due_us = weir__mono_us() + delay_us;
}

/* Takes what follows the piece that is waited for. */
static void rate_take_ahead(struct rate *rate, off_t size)
{
    weir_decision decision;
    int64_t most = ngx_min(rate->piece, size - rate->credit - rate->reserved);
    if (most <= 0 || rate_queue_for(rate, most, &rate->ahead, &decision) || rate->ahead == 0)
        return;
    rate->ahead_due_us = weir__mono_us() + decision.delay_us + decision.retry_after_us;
}

static void rate_wait_for_due(struct rate *rate, int64_t now_us)
{
    ngx_event_t *write = rate->connection->write;
    int64_t delay_ms = (rate->due_us - now_us + 999) / 1000;
    write->delayed = 1;
    if (write->timer_set)
        ngx_del_timer(write);
    ngx_time_update();
    ngx_add_timer(&rate->timer, (ngx_msec_t)ngx_min(delay_ms, TIMER_MOST_MS));
}

/* Whether something may be sent now; otherwise the connection is delayed. */
static bool rate_may_send(struct rate *rate, off_t size)
{
    while (rate->credit <= 0) {
        if (rate->reserved == 0 && rate->due_us == 0)
            rate_take(rate, size);
        int64_t now_us = rate->due_us ? weir__mono_us() : 0;
        if (now_us < rate->due_us) {
            if (rate->small && rate->reserved && !rate->ahead)
                rate_take_ahead(rate, size);
            rate_wait_for_due(rate, now_us);
            return false;
        }
        rate->credit += rate->reserved;
        rate->reserved = rate->ahead;
        rate->due_us = rate->ahead_due_us;
        rate->ahead = rate->ahead_due_us = 0;
    }
    return true;
}

static void rate_wake_up(ngx_event_t *timer)
{
    struct rate *rate = ngx_rbtree_data(timer, struct rate, timer);
    ngx_event_t *write = rate->connection->write;
    int64_t now_us = weir__mono_us();
    if (now_us < rate->due_us) {
        rate_wait_for_due(rate, now_us);
        return;
    }
    const ngx_http_request_t *active = rate->connection->data;
    if (write->timer_set &&
        active->limit_rate) /* limit_rate delays it as well, and ends that itself */
        return;
    if (write->timer_set)
        ngx_del_timer(write);
    write->delayed = 0;
    ngx_post_event(write, &ngx_posted_events);
}

/* ---- sending ---- */

static off_t rate_size_of(const ngx_chain_t *chain)
{
    off_t size = 0;
    for (; chain; chain = chain->next)
        size += ngx_buf_size(chain->buf);
    return size;
}

/* How much to pay for. nginx passes a file or a proxied answer buffer by buffer: if the burst is
 * small, waiting for the next one would lose time. What is not sent in the end is given back. */
static off_t rate_worth_of(const struct rate *rate, const ngx_chain_t *chain, off_t size)
{
    if (!rate->small || size < FLOWS_LEAST)
        return size;
    while (chain->next)
        chain = chain->next;
    return chain->buf->last_buf ? size : NGX_MAX_OFF_T_VALUE / 2;
}

static ngx_chain_t *rate_send_chain(ngx_connection_t *c, ngx_chain_t *in, off_t limit)
{
    ngx_http_request_t *r = c->data; /* the active one: the main request or a subrequest */
    struct rate *rate = ngx_http_weir_ctx(r->main)->rate;
    off_t room = limit && limit < CALL_MOST ? limit : CALL_MOST, size = rate_size_of(in), sent;
    do {
        if (size == 0)
            return rate->send_chain(c, in, limit);
        if (!rate_may_send(rate, rate_worth_of(rate, in, size)))
            return in;
        assert(rate->credit > 0);
        in = rate->send_chain(c, in, ngx_min(room, rate->credit));
        if (in == NGX_CHAIN_ERROR)
            return in;
        sent = size - rate_size_of(in);
        size -= sent;
        room -= sent;
        rate->credit -= sent;
    } while (in && sent && room > 0 && c->write->ready);
    return in;
}

/* Of an upgraded connection. The write event sends what is left: that of the socket, or ours. */
static ssize_t rate_send_bytes(ngx_connection_t *c, u_char *data, size_t size)
{
    ngx_http_request_t *r = c->data;
    struct rate *rate = ngx_http_weir_ctx(r->main)->rate;
    size_t done = 0;
    while (done < size && rate_may_send(rate, (off_t)(size - done))) {
        size_t part = (size_t)ngx_min((int64_t)(size - done), rate->credit);
        ssize_t sent = rate->send(c, data + done, part);
        if (sent <= 0)
            return done ? (ssize_t)done : sent;
        rate->credit -= sent;
        done += (size_t)sent;
    }
    return done ? (ssize_t)done : NGX_AGAIN;
}

/* ---- the life of a response ---- */

/* The state has a key of its own: a weir_limit of the same key does not count bytes. */
static ngx_int_t rate_set_key(struct rate *rate, weir_key key)
{
    static const char mark[] = "\0rate";
    size_t len = ngx_min(key.len, WEIR_KEY_MAX - sizeof mark);
    u_char *own = ngx_pnalloc(rate->request->pool, len + sizeof mark);
    if (!own)
        return NGX_ERROR;
    ngx_memcpy(ngx_cpymem(own, key.data, len), mark, sizeof mark);
    weir_key whole = weir_key_bytes(own, len + sizeof mark);
    return weir_key_hash(rate->store, whole, &rate->key) ? NGX_ERROR : NGX_OK;
}

/* The limit applies: from now on it is rate_send_chain that sends. */
static ngx_int_t rate_take_over(struct rate *rate, const weir_request *request)
{
    ngx_connection_t *c = rate->request->connection;
    rate->store = rate->conf->rate->zone->store;
    if (rate_set_key(rate, request->key) != NGX_OK)
        return NGX_ERROR;
    rate->limit = weir__limit_ref(request->limit);
    rate->piece_most = rate_piece_of(&rate->limit->rules[0]);
    rate->small = rate_is_small(&rate->limit->rules[0]);
    rate->piece = rate->small ? rate->piece_most : ngx_min(PIECE_LEAST, rate->piece_most);
    rate->timer.handler = rate_wake_up;
    rate->timer.data = c;
    rate->timer.log = c->log;
    rate->connection = c;
    rate->send_chain = c->send_chain;
    c->send_chain = rate_send_chain;
    if (rate->request->upstream && rate->request->upstream->upgrade) {
        rate->send = c->send;
        c->send = rate_send_bytes;
    }
    return NGX_OK;
}

static ngx_int_t rate_begin(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf)
{
    ngx_http_weir_limit_t *const limits[] = {conf->rate};
    ngx_http_weir_plan_t *plan;
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_ctx_make(r);
    if (!ctx)
        return NGX_ERROR;
    if (ctx->rate)
        return NGX_OK;
    struct rate *rate = ngx_pcalloc(r->pool, sizeof *rate);
    if (!rate)
        return NGX_ERROR;
    rate->request = r;
    rate->conf = conf;
    ctx->rate = rate;
    ngx_int_t rc = ngx_http_weir_plan_make(r, limits, 1, WEIR__VERB_TAKE, &plan);
    if (rc != NGX_OK || !plan) /* an invalid text was logged; the head was sent already */
        return rc == NGX_ERROR ? rc : NGX_OK;
    if (rate_is_rate(plan->requests[0].limit))
        return rate_take_over(rate, &plan->requests[0]);
    ngx_log_error(
        NGX_LOG_ERR, r->connection->log, 0,
        "weir: weir_rate needs one token-bucket, not \"%s\"; the response is sent without "
        "a limit of its rate, in %V:%ui",
        weir_limit_text(plan->requests[0].limit), &conf->rate->place.file, conf->rate->place.line);
    return NGX_OK;
}

static ngx_int_t rate_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    const ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (conf->rate && r == r->main && rate_begin(r, conf) != NGX_OK)
        return NGX_ERROR;
    return rate_next_filter(r, in);
}

ngx_int_t ngx_http_weir_rate_init(ngx_conf_t *cf)
{
    (void)cf;
    rate_next_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = rate_body_filter;
    return NGX_OK;
}

/* Corrects the charges to what was sent: gives back those of the last pieces that are left, which
 * may have been paid for together; or charges the last one more, if more was sent than paid for. */
static void rate_settle(struct rate *rate)
{
    int64_t unused = rate->credit + rate->reserved + rate->ahead;
    char receipt[WEIR_RECEIPT_SIZE];
    weir_error err;
    if (unused == 0 || rate->last.charged == 0)
        return;
    if (rate->conf->test_clock) /* variables cannot be read any more */
        ngx_http_weir_set_clock_to(rate->last.time_us);
    rate->last.charged = ngx_max(rate->last.charged, unused);
    weir__receipt_write(rate->last.time_us, rate->last.charged, 0, receipt);
    if (weir_settle(rate->store, rate->key.key, rate->limit, receipt, rate->last.charged - unused,
                    &err))
        ngx_log_error(NGX_LOG_ERR, rate->connection->log, 0,
                      "weir: bytes that were not sent are not given back: %s", err.message);
}

void ngx_http_weir_rate_end(ngx_http_weir_ctx_t *ctx)
{
    struct rate *rate = ctx->rate;
    ctx->rate = NULL;
    if (!rate || !rate->connection)
        return;
    if (rate->timer.timer_set) {
        ngx_del_timer(&rate->timer);
        rate->connection->write->delayed = 0;
    }
    rate->connection->send_chain = rate->send_chain;
    if (rate->send)
        rate->connection->send = rate->send;
    rate_settle(rate);
    weir_limit_free((weir_limit *)rate->limit);
}

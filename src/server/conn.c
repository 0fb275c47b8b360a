/* Connections at work: read, fed, flushed, timed out. See conn.h. */
#include "server/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LINGER_US 2000000    /* for a peer that still sends what nobody reads */
#define RESERVED_US 5000000  /* for a probe that came when no more connections were let in */
#define DRAIN_IDLE_US 500000 /* so long without a request, and a draining server lets go */

/* ---- what epoll should watch ---- */

static bool conn_is_multiplexed(const struct server_conn *conn)
{
    return conn->protocol == &server_h2;
}

/* Whether it is to be read at all; one that waits for its turn stays watched, and its events are
 * ignored: that is cheaper than telling epoll twice. */
static bool conn_takes_input(const struct server_conn *conn)
{
    if (conn->lingering)
        return true;
    return server_conn_goes_on(conn) && (conn->inflight == 0 || conn_is_multiplexed(conn));
}

static bool conn_wants_input(const struct server_conn *conn)
{
    return conn_takes_input(conn) && !conn->yields && !conn->queued;
}

/* A page or proxy that agreed on HTTP in the handshake speaks nothing else. */
static const struct server_protocol_ops *conn_tell_apart(const struct server_conn *conn,
                                                         const char *data, size_t len)
{
    struct weir__span agreed = {"", 0};
    if (conn->tls)
        agreed = server_tls_protocol(conn->tls);
    if (weir__span_is(agreed, "h2"))
        return &server_h2;
    if (weir__span_is(agreed, "http/1.1"))
        return &server_http1;
    return server_tell_apart(data, len);
}

static void conn_watch(struct server_conn *conn)
{
    bool out = (conn->blocked && !conn->quiet_until_us) ||
               (conn->tls && server_tls_wants_write(conn->tls));
    uint32_t events = (conn_takes_input(conn) ? EPOLLIN : 0) | (out ? EPOLLOUT : 0) |
                      (conn->works[SERVER_LANE_PLAY] > 0 && !conn->half ? EPOLLRDHUP : 0);
    struct epoll_event event = {.events = events, .data.ptr = conn};
    if (conn->dead || events == conn->events)
        return;
    conn->events = events;
    if (epoll_ctl(conn->thread->epoll, EPOLL_CTL_MOD, conn->fd, &event))
        server_conn_kill(conn);
}

void server_conn_close(struct server_conn *conn)
{
    conn->closing = true;
}

/* All is written and nothing is pending: say so, then wait a little, or a reset could overtake the
 * answer. */
static void conn_part(struct server_conn *conn)
{
    if (conn->dead || !conn->closing || conn->blocked || conn->inflight > 0 || conn->lingering)
        return;
    assert(conn->held == NULL);
    conn->lingering = true;
    conn->since_us = conn->thread->now_us;
    if (conn->tls)
        server_tls_say_goodbye(conn->tls);
    shutdown(conn->fd, SHUT_WR);
}

/* ---- reading and feeding ---- */

/* The open batch borrows from the input of the connection that is fed: until it is finished, nobody
 * reads into that, moves it or frees it. */
static void conn_assert_not_lent(const struct server_conn *conn)
{
    assert(conn->thread->open_batch->count == 0);
    (void)conn;
}

/* The memory that all peers make us keep is bounded: a peer that would exceed it is closed. A
 * little is free for each: a few with long requests must not shut out everybody whose short one
 * comes in two parts. */
bool server_keep(struct server *server, size_t bytes)
{
    if (atomic_fetch_add(&server->kept, bytes) + bytes <= server->max_memory)
        return true;
    atomic_fetch_sub(&server->kept, bytes);
    return false;
}

static bool conn_grow_input(struct server_conn *conn, size_t size)
{
    struct server *server = conn->thread->server;
    size_t more = server_kept(size) - server_kept(conn->in_size);
    conn_assert_not_lent(conn);
    if (size <= conn->in_size || !server_keep(server, more))
        return false;
    char *bigger = realloc(conn->in, size);
    if (!bigger) {
        atomic_fetch_sub(&server->kept, more);
        return false;
    }
    conn->in = bigger;
    conn->in_size = size;
    return true;
}

/* Keeps what a protocol left over. */
static bool conn_keep_input(struct server_conn *conn, const char *data, size_t len)
{
    conn_assert_not_lent(conn);
    if (len > conn->in_size) {
        size_t size = conn->in_size ? conn->in_size : SERVER_KEPT_FREE;
        while (size < len)
            size *= 2;
        if (!conn_grow_input(conn, size))
            return false;
    }
    memcpy(conn->in, data, len);
    conn->in_start = 0;
    conn->in_end = len;
    return true;
}

static void conn_forget_input(struct server_conn *conn)
{
    conn_assert_not_lent(conn);
    atomic_fetch_sub(&conn->thread->server->kept, server_kept(conn->in_size));
    free(conn->in);
    conn->in = NULL;
    conn->in_start = conn->in_end = conn->in_size = 0;
}

static void conn_note_progress(struct server_conn *conn, size_t consumed, size_t left)
{
    bool in_request = left > 0;
    if (consumed > 0 || in_request != conn->in_request)
        conn->since_us = conn->thread->now_us;
    conn->in_request = in_request;
}

/* Feeds data; the bytes that were consumed. */
static size_t conn_feed(struct server_conn *conn, char *data, size_t len)
{
    if (len == 0 || !server_conn_goes_on(conn) || conn->yields ||
        (conn->inflight > 0 && !conn_is_multiplexed(conn)))
        return 0;
    if (!conn->protocol) {
        conn->protocol = conn_tell_apart(conn, data, len);
        if (!conn->protocol) {
            conn_note_progress(conn, 0, len);
            return 0;
        }
        server_count(&conn->thread->counters->accepted[conn->protocol->counted_as], 1);
        server_count(&conn->thread->counters->silent_ended, 1);
    }
    size_t consumed = conn->protocol->feed(conn, data, len);
    assert(consumed <= len);
    conn_note_progress(conn, consumed, len - consumed);
    return consumed;
}

static void conn_feed_kept(struct server_conn *conn)
{
    conn->in_start += conn_feed(conn, conn->in + conn->in_start, conn->in_end - conn->in_start);
    if (conn->in_start == conn->in_end)
        conn_forget_input(conn);
}

/* Room behind what is kept; 0: there is as much as may be. */
static size_t conn_make_room(struct server_conn *conn)
{
    const struct server_config *config = &conn->thread->server->config;
    size_t most =
        2 * (size_t)(config->max_head + config->max_body); /* chunks may take as much again */
    most = (most > SERVER_RESP_MESSAGE_MAX ? most : SERVER_RESP_MESSAGE_MAX) + SERVER_IN_SIZE;
    conn_assert_not_lent(conn);
    if (conn->in_start > 0) {
        memmove(conn->in, conn->in + conn->in_start, conn->in_end - conn->in_start);
        conn->in_end -= conn->in_start;
        conn->in_start = 0;
    }
    if (conn->in_end == conn->in_size) {
        size_t size = conn->in_size ? 2 * conn->in_size : SERVER_KEPT_FREE;
        if (!conn_grow_input(conn, size > most ? most : size))
            return 0;
    }
    return conn->in_size - conn->in_end;
}

static ssize_t conn_read(struct server_conn *conn, char *data, size_t size)
{
    conn_assert_not_lent(conn);
    ssize_t got = conn->tls ? server_tls_read(conn->tls, data, size) : read(conn->fd, data, size);
    if (got > 0 && conn->protocol)
        server_count(&conn->thread->counters->bytes_in[conn->protocol->counted_as], (uint64_t)got);
    return got;
}

/* One portion; false: there was none. */
static bool conn_read_and_feed(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    bool own = conn->in_end > conn->in_start;
    size_t room = own ? conn_make_room(conn) : SERVER_IN_SIZE;
    if (room == 0) { /* or a request that never ends; the protocols' bounds come first */
        server_conn_kill_for_memory(conn);
        return false;
    }
    char *data = own ? conn->in + conn->in_end : thread->in;
    ssize_t got = conn_read(conn, data, room);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        if (conn->tls && !server_tls_is_up(conn->tls))
            server_count(&thread->counters->refused[SERVER_REFUSED_TLS], 1);
        bool owed = conn->inflight > 0 || conn->blocked || thread->out.len > 0;
        if (got == 0 && owed) /* answers are on their way, or not written yet */
            server_conn_close(conn);
        else
            server_conn_kill(conn);
        return false;
    }
    if (own) {
        conn->in_end += (size_t)got;
        conn_feed_kept(conn);
        return true;
    }
    size_t consumed = conn_feed(conn, data, (size_t)got);
    if (!conn->dead && consumed < (size_t)got &&
        !conn_keep_input(conn, data + consumed, (size_t)got - consumed))
        server_conn_kill_for_memory(conn);
    return true;
}

static void conn_discard_input(struct server_conn *conn)
{
    ssize_t got = conn_read(conn, conn->thread->in, SERVER_IN_SIZE);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        server_conn_kill(conn);
}

/* ---- output ---- */

/* Bytes that the socket took; 0 where it is full; -1: it is gone. */
static ssize_t conn_send_some(struct server_conn *conn, const char *data, size_t len)
{
    ssize_t sent = conn->tls ? server_tls_write(conn->tls, data, len)
                             : send(conn->fd, data, len, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (conn->protocol)
        server_count(&conn->thread->counters->bytes_out[conn->protocol->counted_as],
                     (uint64_t)sent);
    return sent;
}

/* As much as goes; what is left, or -1. */
static ssize_t conn_send_all(struct server_conn *conn, const char *data, size_t len)
{
    size_t at = 0;
    while (at < len) {
        ssize_t sent = conn_send_some(conn, data + at, len - at);
        if (sent < 0)
            return -1;
        if (sent == 0)
            break;
        at += (size_t)sent;
    }
    return (ssize_t)(len - at);
}

static bool conn_keep_output(struct server_conn *conn, const char *data, size_t len)
{
    size_t kept = conn->out_end - conn->out_start;
    if (kept + len > SERVER_KEPT_MAX)
        return false;
    if (conn->out_end + len > conn->out_size) {
        struct server *server = conn->thread->server;
        size_t size = kept + len;
        if (!server_keep(server, server_kept(size)))
            return false;
        char *bigger = malloc(size);
        if (!bigger) {
            atomic_fetch_sub(&server->kept, server_kept(size));
            return false;
        }
        atomic_fetch_sub(&server->kept, server_kept(conn->out_size));
        if (kept)
            memcpy(bigger, conn->out + conn->out_start, kept);
        free(conn->out);
        conn->out = bigger;
        conn->out_size = size;
        conn->out_start = 0;
        conn->out_end = kept;
    }
    memcpy(conn->out + conn->out_end, data, len);
    conn->out_end += len;
    return true;
}

/* Writes what was kept before; false: there is more of it, or the socket is gone. */
static bool conn_send_kept(struct server_conn *conn)
{
    if (conn->out_end == conn->out_start)
        return true;
    ssize_t left =
        conn_send_all(conn, conn->out + conn->out_start, conn->out_end - conn->out_start);
    if (left < 0) {
        server_conn_kill(conn);
        return false;
    }
    if ((size_t)left < conn->out_end - conn->out_start)
        conn->since_us = conn->thread->now_us;
    conn->out_start = conn->out_end - (size_t)left;
    if (left > 0)
        return false;
    atomic_fetch_sub(&conn->thread->server->kept, server_kept(conn->out_size));
    free(conn->out);
    conn->out = NULL;
    conn->out_start = conn->out_end = conn->out_size = 0;
    return true;
}

static void conn_send_or_keep(struct server_conn *conn, const char *data, size_t len)
{
    if (conn->dead)
        return;
    bool free_way = !conn->quiet_until_us && conn_send_kept(conn);
    if (conn->dead)
        return;
    ssize_t left = free_way ? conn_send_all(conn, data, len) : (ssize_t)len;
    if (left < 0) {
        server_conn_kill(conn);
        return;
    }
    if (left > 0 && !conn_keep_output(conn, data + len - (size_t)left, (size_t)left)) {
        server_conn_kill_for_memory(conn);
        return;
    }
    bool blocked = conn->out_end > conn->out_start || conn->quiet_until_us;
    if (blocked && !conn->blocked)
        conn->since_us = conn->thread->now_us;
    conn->blocked = blocked;
}

/* Writes what is in the thread's buffer for this connection. */
static void conn_flush(struct server_conn *conn)
{
    struct weir__buffer *out = &conn->thread->out;
    if (out->len > 0 || conn->out_end > conn->out_start)
        conn_send_or_keep(conn, out->data, out->len);
    out->len = 0;
    out->cut = false;
}

struct weir__buffer *server_out(struct server_conn *conn)
{
    struct weir__buffer *out = &conn->thread->out;
    if (out->size - out->len < SERVER_OUT_RESERVE)
        conn_flush(conn);
    return out;
}

void server_out_long(struct server_conn *conn, const char *data, size_t len)
{
    conn_flush(conn);
    conn_send_or_keep(conn, data, len);
}

/* ---- events ---- */

/* What TLS has decrypted already, no event tells of: at most a record, so this ends. */
static void conn_read_pending(struct server_conn *conn)
{
    while (!conn->dead && conn->tls && conn_wants_input(conn) && server_tls_pending(conn->tls) &&
           conn_read_and_feed(conn))
        ;
}

/* Writes and feeds on where it stopped. */
static void conn_go_on(struct server_conn *conn)
{
    if (conn->protocol && conn->protocol->more)
        conn->protocol->more(conn);
    if (conn->in_end > conn->in_start)
        conn_feed_kept(conn);
    else if (conn->in)
        conn_forget_input(conn);
    conn_read_pending(conn);
}

/* Flushes. What a connection that died meanwhile would have been told must not reach the next one:
 * conn_flush empties the buffer in any case. A socket that was full may have room again just now,
 * and then no event would tell: whoever stopped for it goes on. */
static void conn_settle(struct server_conn *conn)
{
    for (;;) {
        bool was_blocked = conn->blocked;
        conn_flush(conn);
        if (!was_blocked || conn->blocked || conn->dead)
            break;
        conn_go_on(conn);
    }
    if (conn->yields && server_conn_goes_on(conn))
        server_turn_queue(conn);
    conn->yields = false;
    conn_part(conn);
    conn_watch(conn);
}

void server_conn_resume(struct server_conn *conn)
{
    server_turn_begin(conn->thread, false);
    if (!conn->dead && !conn->queued)
        conn_go_on(conn);
    conn_settle(conn);
}

/* What is left over first, then what has come since. Who has neither is watched for events
 * again. */
void server_conn_turn(struct server_conn *conn)
{
    bool rest = conn->in_end > conn->in_start;
    server_turn_begin(conn->thread, true);
    conn_go_on(conn);
    if (!conn->dead && conn_wants_input(conn))
        conn_read_and_feed(conn);
    conn_settle(conn);
    server_turn_end(conn, rest);
}

/* Blocked by ourselves: nothing is fed, and what is said is kept. */
void server_conn_quiet(struct server_conn *conn, int64_t until_us)
{
    conn->blocked = true;
    conn->quiet_until_us = weir__max(conn->quiet_until_us, until_us);
}

static void conn_end_quiet(struct server_conn *conn)
{
    conn->quiet_until_us = 0;
    conn->since_us = conn->thread->now_us;
    conn->blocked = conn->out_end > conn->out_start;
    if (conn->blocked)
        conn_settle(conn);
    else
        server_conn_resume(conn);
}

/* Who says nothing more has left, most likely, and nobody plays for him. If he still listens, he is
 * told so, and all else that he asked for is answered. */
static void conn_end_half(struct server_conn *conn)
{
    conn->half = true;
    server_work_cancel(conn, SERVER_ALL_STREAMS);
    conn_watch(conn);
}

void server_conn_event(struct server_conn *conn, uint32_t events)
{
    if (conn->dead)
        return;
    if (conn->works[SERVER_LANE_PLAY] > 0 && events & (EPOLLHUP | EPOLLERR)) {
        server_conn_kill(conn); /* who asked for a simulation has left */
        return;
    }
    if (events & EPOLLRDHUP && !conn->half)
        conn_end_half(conn);
    if (conn->quiet_until_us) {
        if (events & (EPOLLHUP | EPOLLERR))
            server_conn_kill(conn);
        return;
    }
    if (conn->lingering) {
        conn_discard_input(conn);
        return;
    }
    if (conn->queued) /* its turn tells */
        return;
    server_turn_begin(conn->thread, false);
    if (events & EPOLLOUT)
        conn_settle(conn);
    if (conn->queued)
        return;
    if (conn_wants_input(conn) && server_turn_must_wait(conn)) {
        server_turn_queue(conn);
        return;
    }
    bool read_waits = events & EPOLLOUT && conn->tls && server_tls_wants_write(conn->tls);
    if (!conn->dead && conn_wants_input(conn) &&
        (read_waits || events & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        conn_read_and_feed(conn);
        conn_read_pending(conn);
    } else if (!conn->dead && events & (EPOLLHUP | EPOLLERR)) {
        server_conn_kill(conn); /* the peer is gone for good, and its events would not end */
    }
    conn_settle(conn);
    server_turn_end(conn, false);
}

/* ---- time ---- */

/* Part of a request is there, or of a handshake. */
static bool conn_is_in_request(const struct server_conn *conn)
{
    return conn->in_request || (conn->tls && !server_tls_is_up(conn->tls));
}

static bool conn_is_idle(const struct server_conn *conn)
{
    return !conn_is_in_request(conn) && conn->inflight == 0 && !conn->blocked && !conn->queued;
}

/* A request has come since, and only waits to be read. */
static bool conn_has_input(const struct server_conn *conn)
{
    char first;
    return recv(conn->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void conn_count_late(struct server_conn *conn)
{
    if (conn->protocol)
        server_count_fault(conn, conn->protocol->counted_as, SERVER_FAULT_TIMEOUT);
    else if (conn->tls && !server_tls_is_up(conn->tls))
        server_count(&conn->thread->counters->refused[SERVER_REFUSED_TLS], 1);
}

/* How long an idle connection is kept. A server that drains keeps it for as long as a request may
 * take, if one is pending. */
static int64_t conn_idle_most_us(const struct server_conn *conn)
{
    const struct server_config *config = &conn->thread->server->config;
    if (conn->thread->accepting)
        return config->idle_timeout_us;
    bool waits = conn->protocol && conn->protocol->waits && conn->protocol->waits(conn);
    return waits ? weir__max(config->request_timeout_us, DRAIN_IDLE_US) : DRAIN_IDLE_US;
}

void server_conn_sweep(struct server_conn *conn)
{
    const struct server_config *config = &conn->thread->server->config;
    if (conn->protocol && conn->protocol->tick && !conn->quiet_until_us)
        conn->protocol->tick(conn);
    int64_t age = conn->thread->now_us - conn->since_us;
    bool draining = !conn->thread->accepting;
    if (conn->dead)
        return;
    if (conn->quiet_until_us) {
        if (draining || conn->thread->now_us >= conn->quiet_until_us)
            conn_end_quiet(conn);
        return;
    }
    if (conn->reserved_us && conn->thread->now_us - conn->reserved_us > RESERVED_US) {
        server_conn_kill(conn);
        return;
    }
    if (conn->lingering) {
        if (age > (draining ? DRAIN_IDLE_US : LINGER_US))
            server_conn_kill(conn);
        return;
    }
    if (conn->blocked && age > config->request_timeout_us) {
        conn_count_late(conn);
        server_conn_kill(conn);
        return;
    }
    if (conn_is_idle(conn)) {
        if (age > conn_idle_most_us(conn) && !conn_has_input(conn)) {
            server_conn_close(conn);
            conn_settle(conn);
        }
        return;
    }
    if (conn_is_in_request(conn) && conn->inflight == 0 && !conn->queued &&
        age > config->request_timeout_us) {
        conn_count_late(conn);
        if (conn->protocol && conn->protocol->late)
            conn->protocol->late(conn);
        server_conn_close(conn);
        conn_settle(conn);
    }
}

/* Connections: accepting, reading, telling protocols apart, closing. See conn.h. */
#include "server/conn.h"

#include "server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ACCEPTS_MAX 64       /* a wake-up */
#define LINGER_US 2000000    /* for a peer that still sends what nobody reads */
#define DRAIN_IDLE_US 500000 /* so long without a request, and a draining server lets go */
#define EMPTY_LINES_MAX 16   /* before a connection's first request */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* ---- coming and going ---- */

static void note_peer(struct server_conn *conn)
{
    const void *address = NULL;
    if (conn->peer.ss_family == AF_INET)
        address = &((struct sockaddr_in *)&conn->peer)->sin_addr;
    else if (conn->peer.ss_family == AF_INET6)
        address = &((struct sockaddr_in6 *)&conn->peer)->sin6_addr;
    if (!address ||
        !inet_ntop(conn->peer.ss_family, address, conn->peer_text, sizeof conn->peer_text))
        strcpy(conn->peer_text, "127.0.0.1"); /* a socket file's peers are of this host */
    conn->peer_text_len = (uint8_t)strlen(conn->peer_text);
}

static struct server_conn *refuse(struct server_thread *thread, int fd, enum server_refusal why)
{
    server_count(&thread->counters->refused[why], 1);
    close(fd);
    return NULL;
}

static struct server_conn *make(struct server_thread *thread, int fd, bool tls,
                                const struct sockaddr_storage *peer)
{
    struct server *server = thread->server;
    int yes = 1;
    if (atomic_load(&server->connections) >= server->config.max_connections)
        return refuse(thread, fd, SERVER_REFUSED_LIMIT);
    struct server_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return refuse(thread, fd, SERVER_REFUSED_MEMORY);
    if (tls && !(conn->tls = server_tls_accept(server->tls, fd))) {
        free(conn);
        return refuse(thread, fd, SERVER_REFUSED_MEMORY);
    }
    if (!server_clients_enter(server->clients, (const struct sockaddr *)peer)) {
        server_tls_free(conn->tls);
        free(conn);
        return refuse(thread, fd, SERVER_REFUSED_LIMIT);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    conn->thread = thread;
    conn->fd = fd;
    conn->peer = *peer;
    conn->resp_protocol = 2;
    conn->since_us = thread->now_us;
    conn->id = thread->next_id;
    thread->next_id += (uint64_t)server->config.threads; /* no other thread's */
    note_peer(conn);
    return conn;
}

static void pause_accepting(struct server_thread *thread)
{
    server_count(&thread->counters->refused[SERVER_REFUSED_FILES], 1);
    thread->paused = true;
    for (size_t i = 0; i < thread->listener_count; i++)
        epoll_ctl(thread->epoll, EPOLL_CTL_DEL, thread->listeners[i].fd, NULL);
}

static void enter(struct server_thread *thread, struct server_conn *conn)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    conn->events = EPOLLIN;
    conn->next = thread->conns;
    if (conn->next)
        conn->next->prev = conn;
    thread->conns = conn;
    atomic_fetch_add(&thread->server->connections, 1);
    server_count(&thread->counters->silent_began, 1);
    if (epoll_ctl(thread->epoll, EPOLL_CTL_ADD, conn->fd, &event))
        server_conn_kill(conn);
}

bool server_conn_accept(struct server_thread *thread, struct server_listener *listener)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t len = sizeof peer;
        int fd =
            accept4(listener->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                pause_accepting(thread);
            return false;
        }
        struct server_conn *conn = make(thread, fd, listener->tls, &peer);
        if (conn)
            enter(thread, conn);
    }
    return true;
}

void server_conn_kill(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    if (conn->dead)
        return;
    conn->dead = true;
    if (conn->protocol)
        server_count(&thread->counters->closed[conn->protocol->counted_as], 1);
    else
        server_count(&thread->counters->silent_ended, 1);
    server_clients_leave(thread->server->clients, (const struct sockaddr *)&conn->peer);
    server_tls_free(conn->tls);
    conn->tls = NULL;
    /* Closing is not enough: a successor that was forked has the descriptor until it runs. */
    epoll_ctl(thread->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
    close(conn->fd);
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        thread->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    atomic_fetch_sub(&thread->server->connections, 1);
    conn->next = thread->graves;
    thread->graves = conn;
}

void server_conn_kill_for_memory(struct server_conn *conn)
{
    server_count(&conn->thread->counters->refused[SERVER_REFUSED_MEMORY], 1);
    server_conn_kill(conn);
}

/* Those with a batch under way stay until it is back. */
void server_conn_bury(struct server_thread *thread)
{
    struct server_conn **at = &thread->graves;
    while (*at) {
        struct server_conn *conn = *at;
        if (conn->inflight > 0) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        if (conn->protocol && conn->protocol->free)
            conn->protocol->free(conn);
        atomic_fetch_sub(&thread->server->kept,
                         server_kept(conn->in_size) + server_kept(conn->out_size));
        free(conn->in);
        free(conn->out);
        free(conn);
    }
}

/* ---- what epoll should watch ---- */

static bool multiplexed(const struct server_conn *conn)
{
    return conn->protocol == &server_h2;
}

static bool wants_input(const struct server_conn *conn)
{
    if (conn->lingering)
        return true;
    return server_conn_goes_on(conn) && (conn->inflight == 0 || multiplexed(conn));
}

static void watch_for(struct server_conn *conn)
{
    bool out = conn->blocked || (conn->tls && server_tls_wants_write(conn->tls));
    uint32_t events = (wants_input(conn) ? EPOLLIN : 0) | (out ? EPOLLOUT : 0);
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

/* All is written and nothing is under way: say so, then wait a little, lest a reset overtakes the answer. */
static void part(struct server_conn *conn)
{
    if (conn->dead || !conn->closing || conn->blocked || conn->inflight > 0 || conn->lingering)
        return;
    conn->lingering = true;
    conn->since_us = conn->thread->now_us;
    if (conn->tls)
        server_tls_say_goodbye(conn->tls);
    shutdown(conn->fd, SHUT_WR);
}

/* ---- telling protocols apart ---- */

static bool begins(const char *data, size_t len, const char *word, size_t word_len)
{
    return len >= word_len && !memcmp(data, word, word_len);
}

/* A method, a space and the beginning of a target: no inline command looks like that. */
static bool looks_like_http(const char *data, size_t len)
{
    size_t at = 0;
    while (at < len && at < 20 && data[at] >= 'A' && data[at] <= 'Z')
        at++;
    if (at == 0 || at + 1 >= len || data[at] != ' ')
        return false;
    return data[at + 1] == '/' || data[at + 1] == '*' ||
           (len - at > 5 && !memcmp(data + at + 1, "http", 4) &&
            (data[at + 5] == 's' || data[at + 5] == ':'));
}

/* The protocol of a first portion; NULL: not known yet. */
static const struct server_protocol_ops *tell_apart(const char *data, size_t len)
{
    const char *const end = data + len;
    for (int lines = 0; lines < EMPTY_LINES_MAX && len > 0 && data[0] == '\r'; lines++) {
        data += len < 2 ? len : 2; /* an empty line before either */
        len = (size_t)(end - data);
    }
    if (len == 0)
        return NULL;
    size_t compared = len < sizeof preface - 1 ? len : sizeof preface - 1;
    if (!memcmp(data, preface, compared))
        return compared == sizeof preface - 1 || len >= 16 ? &server_h2 : NULL;
    if (data[0] == '*' || data[0] == '$' || data[0] == '\n')
        return &server_resp;
    if (looks_like_http(data, len))
        return &server_http1;
    bool letter = (data[0] | 32) >= 'a' && (data[0] | 32) <= 'z';
    if (!letter) /* garbage: HTTP's answer is the one that people can read */
        return &server_http1;
    bool line = memchr(data, '\n', len) != NULL;
    bool method = begins(data, len, "GET", 3) || begins(data, len, "POST", 4) ||
                  begins(data, len, "HEAD", 4) || begins(data, len, "PUT", 3) ||
                  begins(data, len, "DELETE", 6) || begins(data, len, "OPTIONS", 7);
    if (line)
        return memmem(data, len, " HTTP/", 6) ? &server_http1 : &server_resp;
    return len > 64 && !method ? &server_resp : len > 4096 ? &server_http1 : NULL;
}

/* ---- reading and feeding ---- */

/* Memory that peers make us keep is bounded all told: who would go beyond is let go. A little is free for
 * each, lest a few with long requests shut out everybody whose short one comes in two parts. */
bool server_keep(struct server *server, size_t bytes)
{
    if (atomic_fetch_add(&server->kept, bytes) + bytes <= SERVER_MEMORY_MAX)
        return true;
    atomic_fetch_sub(&server->kept, bytes);
    return false;
}

static bool grow_input(struct server_conn *conn, size_t size)
{
    struct server *server = conn->thread->server;
    size_t more = server_kept(size) - server_kept(conn->in_size);
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
static bool keep(struct server_conn *conn, const char *data, size_t len)
{
    if (len > conn->in_size) {
        size_t size = conn->in_size ? conn->in_size : SERVER_KEPT_FREE;
        while (size < len)
            size *= 2;
        if (!grow_input(conn, size))
            return false;
    }
    memcpy(conn->in, data, len);
    conn->in_start = 0;
    conn->in_end = len;
    return true;
}

static void forget_input(struct server_conn *conn)
{
    if (conn->inflight > 0) { /* a batch may borrow from it */
        conn->in_start = conn->in_end;
        return;
    }
    atomic_fetch_sub(&conn->thread->server->kept, server_kept(conn->in_size));
    free(conn->in);
    conn->in = NULL;
    conn->in_start = conn->in_end = conn->in_size = 0;
}

static void note_progress(struct server_conn *conn, size_t consumed, size_t left)
{
    bool in_request = left > 0;
    if (consumed > 0 || in_request != conn->in_request)
        conn->since_us = conn->thread->now_us;
    conn->in_request = in_request;
}

/* Feeds data; the bytes that were consumed. */
static size_t feed(struct server_conn *conn, char *data, size_t len)
{
    if (len == 0 || !server_conn_goes_on(conn) || (conn->inflight > 0 && !multiplexed(conn)))
        return 0;
    if (!conn->protocol) {
        conn->protocol = tell_apart(data, len);
        if (!conn->protocol) {
            note_progress(conn, 0, len);
            return 0;
        }
        server_count(&conn->thread->counters->accepted[conn->protocol->counted_as], 1);
        server_count(&conn->thread->counters->silent_ended, 1);
    }
    conn->feeding = true;
    size_t consumed = conn->protocol->feed(conn, data, len);
    conn->feeding = false;
    note_progress(conn, consumed, len - consumed);
    return consumed;
}

static void feed_kept(struct server_conn *conn)
{
    conn->in_start += feed(conn, conn->in + conn->in_start, conn->in_end - conn->in_start);
    if (conn->in_start == conn->in_end)
        forget_input(conn);
}

/* Room behind what is kept; 0: there is as much as may be. */
static size_t make_room(struct server_conn *conn)
{
    const struct server_config *config = &conn->thread->server->config;
    size_t most =
        2 * (size_t)(config->max_head + config->max_body); /* chunks may take as much again */
    most = (most > SERVER_RESP_MESSAGE_MAX ? most : SERVER_RESP_MESSAGE_MAX) + SERVER_IN_SIZE;
    if (conn->in_start > 0) {
        memmove(conn->in, conn->in + conn->in_start, conn->in_end - conn->in_start);
        conn->in_end -= conn->in_start;
        conn->in_start = 0;
    }
    if (conn->in_end == conn->in_size) {
        size_t size = conn->in_size ? 2 * conn->in_size : SERVER_KEPT_FREE;
        if (!grow_input(conn, size > most ? most : size))
            return 0;
    }
    return conn->in_size - conn->in_end;
}

static ssize_t read_some(struct server_conn *conn, char *data, size_t size)
{
    ssize_t got = conn->tls ? server_tls_read(conn->tls, data, size) : read(conn->fd, data, size);
    if (got > 0 && conn->protocol)
        server_count(&conn->thread->counters->bytes_in[conn->protocol->counted_as], (uint64_t)got);
    return got;
}

/* One portion; false: there was none. */
static bool read_and_feed(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    bool own = conn->in_end > conn->in_start || thread->server->remote;
    size_t room = own ? make_room(conn) : SERVER_IN_SIZE;
    if (room == 0) { /* or a request that never ends; the protocols' bounds come first */
        server_conn_kill_for_memory(conn);
        return false;
    }
    char *data = own ? conn->in + conn->in_end : thread->in;
    ssize_t got = read_some(conn, data, room);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        if (conn->tls && !server_tls_is_up(conn->tls))
            server_count(&thread->counters->refused[SERVER_REFUSED_TLS], 1);
        if (got == 0 && (conn->inflight > 0 || conn->blocked))
            server_conn_close(conn);
        else
            server_conn_kill(conn);
        return false;
    }
    if (own) {
        conn->in_end += (size_t)got;
        feed_kept(conn);
        return true;
    }
    size_t consumed = feed(conn, data, (size_t)got);
    if (!conn->dead && consumed < (size_t)got &&
        !keep(conn, data + consumed, (size_t)got - consumed))
        server_conn_kill_for_memory(conn);
    return true;
}

static void throw_away(struct server_conn *conn)
{
    ssize_t got = read_some(conn, conn->thread->in, SERVER_IN_SIZE);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        server_conn_kill(conn);
}

/* ---- events ---- */

/* What TLS has decrypted already, no event tells of: at most a record, so this ends. */
static void read_pending(struct server_conn *conn)
{
    while (!conn->dead && conn->tls && wants_input(conn) && server_tls_pending(conn->tls) &&
           read_and_feed(conn))
        ;
}

/* Writes and feeds on where it stopped. */
static void go_on(struct server_conn *conn)
{
    if (conn->protocol && conn->protocol->more)
        conn->protocol->more(conn);
    if (conn->in_end > conn->in_start)
        feed_kept(conn);
    else if (conn->in && conn->inflight == 0)
        forget_input(conn);
    read_pending(conn);
}

/* Flushes. What a connection that died meanwhile would have been told must not reach the next one:
 * server_flush empties the buffer in any case. A socket that was full may have room again just now, and
 * then no event would tell: whoever stopped for it goes on. */
static void settle_down(struct server_conn *conn)
{
    for (;;) {
        bool was_blocked = conn->blocked;
        server_flush(conn);
        if (!was_blocked || conn->blocked || conn->dead)
            break;
        go_on(conn);
    }
    part(conn);
    watch_for(conn);
}

void server_conn_resume(struct server_conn *conn)
{
    if (!conn->dead)
        go_on(conn);
    settle_down(conn);
}

void server_conn_event(struct server_conn *conn, uint32_t events)
{
    if (conn->dead)
        return;
    if (conn->lingering) {
        throw_away(conn);
        return;
    }
    if (events & EPOLLOUT)
        settle_down(conn);
    if (!conn->dead && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (wants_input(conn) || !(events & EPOLLIN))
            read_and_feed(conn);
        read_pending(conn);
    }
    settle_down(conn);
}

/* ---- time ---- */

/* Part of a request is there, or of a handshake. */
static bool is_in_request(const struct server_conn *conn)
{
    return conn->in_request || (conn->tls && !server_tls_is_up(conn->tls));
}

static bool is_idle(const struct server_conn *conn)
{
    return !is_in_request(conn) && conn->inflight == 0 && !conn->blocked;
}

/* A request has come since, and only waits to be read. */
static bool has_input(const struct server_conn *conn)
{
    char first;
    return recv(conn->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void count_late(struct server_conn *conn)
{
    struct server_counters *counters = conn->thread->counters;
    if (conn->protocol)
        server_count(&counters->faults[conn->protocol->counted_as][SERVER_FAULT_TIMEOUT], 1);
    else if (conn->tls && !server_tls_is_up(conn->tls))
        server_count(&counters->refused[SERVER_REFUSED_TLS], 1);
}

void server_conn_sweep(struct server_conn *conn)
{
    const struct server_config *config = &conn->thread->server->config;
    int64_t age = conn->thread->now_us - conn->since_us;
    bool draining = !conn->thread->accepting;
    if (conn->lingering) {
        if (age > (draining ? DRAIN_IDLE_US : LINGER_US))
            server_conn_kill(conn);
        return;
    }
    if (conn->blocked && age > config->request_timeout_us) {
        count_late(conn);
        server_conn_kill(conn);
        return;
    }
    if (is_idle(conn)) {
        if (age > (draining ? DRAIN_IDLE_US : config->idle_timeout_us) && !has_input(conn)) {
            server_conn_close(conn);
            settle_down(conn);
        }
        return;
    }
    if (is_in_request(conn) && conn->inflight == 0 && age > config->request_timeout_us) {
        count_late(conn);
        if (conn->protocol && conn->protocol->late)
            conn->protocol->late(conn);
        server_conn_close(conn);
        settle_down(conn);
    }
}

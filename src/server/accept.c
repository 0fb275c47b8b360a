/*
 * Connections come and go: accepted within bounds, told apart by their first bytes, closed, freed
 * when nothing of them is pending.
 */
#include "server/conn.h"

#include "server/resp/resp.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ACCEPTS_MAX 64 /* a wake-up */

static void conn_note_peer(struct server_conn *conn)
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

/* ---- within bounds ---- */

/* Whether it may be one more. Counted before it is judged: threads that accept at the same moment
 * must not both be the last. */
static bool conn_enters(struct server *server, const struct sockaddr_storage *peer)
{
    if (atomic_fetch_add(&server->connections, 1) < server->config.max_connections &&
        server_clients_enter(server->clients, (const struct sockaddr *)peer))
        return true;
    atomic_fetch_sub(&server->connections, 1);
    return false;
}

static void conn_leave_reserved(struct server_conn *conn)
{
    struct server_conn **at = &conn->thread->reserved;
    while (*at != conn)
        at = &(*at)->reserved_next;
    *at = conn->reserved_next;
    conn->thread->reserved_count--;
}

/* Beyond the bounds: only for health and metrics, for a moment. The oldest of these makes room, so
 * that a probe is let in whoever else tries. */
static void conn_enter_reserved(struct server_thread *thread, struct server_conn *conn)
{
    if (thread->reserved_count == SERVER_RESERVED)
        server_conn_kill(thread->reserved);
    struct server_conn **at = &thread->reserved;
    while (*at)
        at = &(*at)->reserved_next;
    *at = conn;
    thread->reserved_count++;
    conn->reserved_us = thread->now_us;
    server_count(&thread->counters->refused[SERVER_REFUSED_LIMIT], 1);
}

static void conn_leave(struct server_conn *conn)
{
    struct server *server = conn->thread->server;
    if (conn->reserved_us) {
        conn_leave_reserved(conn);
        return;
    }
    server_clients_leave(server->clients, (const struct sockaddr *)&conn->peer);
    atomic_fetch_sub(&server->connections, 1);
}

/* ---- coming and going ---- */

static struct server_conn *conn_make(struct server_thread *thread, int fd, bool tls,
                                     const struct sockaddr_storage *peer)
{
    struct server *server = thread->server;
    int yes = 1;
    struct server_conn *conn = calloc(1, sizeof *conn);
    if (!conn || (tls && !(conn->tls = server_tls_accept(server->tls, fd)))) {
        server_count(&thread->counters->refused[SERVER_REFUSED_MEMORY], 1);
        free(conn);
        close(fd);
        return NULL;
    }
    conn->thread = thread;
    if (!conn_enters(server, peer))
        conn_enter_reserved(thread, conn);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    conn->fd = fd;
    conn->peer = *peer;
    conn->resp_protocol = 2;
    conn->since_us = thread->now_us;
    conn->id = thread->next_id;
    thread->next_id += (uint64_t)server->config.threads; /* no other thread's */
    conn_note_peer(conn);
    return conn;
}

static void conn_pause_accepting(struct server_thread *thread)
{
    server_count(&thread->counters->refused[SERVER_REFUSED_FILES], 1);
    thread->paused = true;
    for (size_t i = 0; i < thread->listener_count; i++)
        epoll_ctl(thread->epoll, EPOLL_CTL_DEL, thread->listeners[i].fd, NULL);
}

static void conn_enter(struct server_thread *thread, struct server_conn *conn)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    conn->events = EPOLLIN;
    conn->next = thread->conns;
    if (conn->next)
        conn->next->prev = conn;
    thread->conns = conn;
    server_count(&thread->counters->silent_began, 1);
    if (epoll_ctl(thread->epoll, EPOLL_CTL_ADD, conn->fd, &event))
        server_conn_kill(conn);
    else if (conn->reserved_us) /* its request is there, most likely: it must not wait */
        server_conn_event(conn, EPOLLIN);
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
                conn_pause_accepting(thread);
            return false;
        }
        struct server_conn *conn = conn_make(thread, fd, listener->tls, &peer);
        if (conn)
            conn_enter(thread, conn);
    }
    return true;
}

void server_conn_kill(struct server_conn *conn)
{
    struct server_thread *thread = conn->thread;
    if (conn->dead)
        return;
    conn->dead = true;
    server_turn_leave(conn);
    server_held_forget(conn); /* nobody waits for them any more */
    server_work_cancel(conn, SERVER_ALL_STREAMS);
    if (conn->protocol)
        server_count(&thread->counters->closed[conn->protocol->counted_as], 1);
    else
        server_count(&thread->counters->silent_ended, 1);
    conn_leave(conn);
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
    conn->next = thread->graves;
    thread->graves = conn;
}

void server_conn_kill_for_memory(struct server_conn *conn)
{
    server_count(&conn->thread->counters->refused[SERVER_REFUSED_MEMORY], 1);
    server_conn_kill(conn);
}

/* Those with a batch pending stay until it is back. */
void server_conn_bury(struct server_thread *thread)
{
    struct server_conn **at = &thread->graves;
    assert(!thread->open_batch || thread->open_batch->count == 0);
    while (*at) {
        struct server_conn *conn = *at;
        if (conn->inflight > 0) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        assert(conn->dead && !conn->queued && !conn->held && !conn->asked_first);
        if (conn->protocol && conn->protocol->free)
            conn->protocol->free(conn);
        atomic_fetch_sub(&thread->server->kept,
                         server_kept(conn->in_size) + server_kept(conn->out_size));
        free(conn->in);
        free(conn->out);
        free(conn);
    }
}

/* ---- which protocol ---- */

/*
 * Which protocol a connection speaks, by its first bytes.
 *
 * A page in a browser can make it send HTTP to any port, and what follows the request line is the
 * page's own. So what is not surely RESP is HTTP, which reads nothing behind a request that it
 * refuses. RESP begins with an array, or with a whole line whose first word is one of our commands
 * and that does not end as a request line of HTTP does. Whatever the method, `Host:` or `POST`, no
 * line of HTTP becomes a command.
 */

#define EMPTY_LINES_MAX 16          /* before a connection's first request */
#define LINE_MAX_UNTOLD (16u << 10) /* a longer line is refused by whoever reads it */
#define WORD_MAX 16                 /* no command is longer */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* Empty lines before the first request, which either protocol passes over. */
static size_t protocol_skip_empty_lines(const char *data, size_t len)
{
    size_t at = 0;
    for (int lines = 0; lines < EMPTY_LINES_MAX && at < len; lines++) {
        if (data[at] == '\n')
            at++;
        else if (data[at] == '\r' && (at + 1 == len || data[at + 1] == '\n'))
            at += at + 1 == len ? 1 : 2;
        else
            break;
    }
    return at;
}

/* Whether `len` bytes are a command's name, in any case; whole: all of it, or else its
 * beginning. */
static bool protocol_is_command(const char *command, const char *word, size_t len, bool whole)
{
    size_t size = strlen(command);
    return (whole ? len == size : len <= size) && !strncasecmp(word, command, len);
}

/* Whether the first word can be, or become, one of our commands. */
static bool protocol_begins_as_command(const char *data, size_t len)
{
    size_t word = 0;
    while (word < len && word <= WORD_MAX && !strchr(" \t\r\n", data[word] ? data[word] : 'x'))
        word++;
    bool whole = word < len, found = false;
    for (size_t i = 0; i < WEIR__VERB_COUNT && !found; i++)
        found = protocol_is_command(weir__verbs[i].name, data, word, whole);
    for (size_t i = 0; server_resp_command(i) && !found; i++)
        found = protocol_is_command(server_resp_command(i), data, word, whole);
    return found;
}

/* "… HTTP/1.1": a request line, whatever its method is. */
static bool protocol_ends_as_http(const char *line, size_t len)
{
    static const char version[] = " HTTP/";
    const size_t size = sizeof version - 1;
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
        len--;
    const char *space = len ? memrchr(line, ' ', len) : NULL;
    return space && len - (size_t)(space - line) >= size && !strncasecmp(space, version, size);
}

/* The protocol of a first portion; NULL: not known yet. */
const struct server_protocol_ops *server_tell_apart(const char *data, size_t len)
{
    size_t empty = protocol_skip_empty_lines(data, len);
    data += empty;
    len -= empty;
    if (len == 0)
        return NULL;
    size_t compared = len < sizeof preface - 1 ? len : sizeof preface - 1;
    if (!memcmp(data, preface, compared))
        return compared == sizeof preface - 1 || len >= 16 ? &server_h2 : NULL;
    if (data[0] == '*')
        return &server_resp;
    if (!protocol_begins_as_command(data, len))
        return &server_http1;
    const char *end = memchr(data, '\n', len);
    if (!end)
        return len > LINE_MAX_UNTOLD ? &server_resp : NULL; /* which refuses it and closes */
    return protocol_ends_as_http(data, (size_t)(end - data)) ? &server_http1 : &server_resp;
}

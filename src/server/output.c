/* What goes out: through the thread's buffer, and what the socket does not take is kept. See conn.h. */
#include "server/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void server_flush(struct server_conn *conn)
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
        server_flush(conn);
    return out;
}

void server_out_long(struct server_conn *conn, const char *data, size_t len)
{
    server_flush(conn);
    conn_send_or_keep(conn, data, len);
}

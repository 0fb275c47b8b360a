/* Connecting, reading, writing and waiting with a deadline: see net.h. */
#include "remote/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- waiting ---- */

int weir__conn_wait(const struct weir__conn *conn, short events,
                    const struct weir__patience *patience)
{
    struct pollfd fds[2] = {{conn->fd, events, 0}, {patience->stop_fd, POLLIN, 0}};
    for (;;) {
        int64_t left = weir__max(0, patience->until_us - weir__mono_us());
        struct timespec timeout = {left / 1000000, left % 1000000 * 1000};
        int n = ppoll(fds, patience->stop_fd < 0 ? 1 : 2, &timeout, NULL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        if (patience->stop_fd >= 0 && fds[1].revents)
            return -1;
        return fds[0].revents & (POLLERR | POLLHUP | POLLNVAL) ? events : fds[0].revents;
    }
}

/* ---- connecting ---- */

static void net_set_options(int fd, int family)
{
    int yes = 1;
    if (family == AF_UNIX)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

/* The error of a connection attempt; 0: it succeeded. */
static int net_connect_error(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) ? errno : error;
}

/* One address; the socket, or -1 with errno. */
static int net_connect_to(const struct sockaddr *address, socklen_t len,
                          const struct weir__patience *patience)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    net_set_options(fd, address->sa_family);
    int error = connect(fd, address, len) ? errno : 0;
    if (error == EINPROGRESS) {
        struct weir__conn conn = {fd, NULL};
        int came = weir__conn_wait(&conn, POLLOUT, patience);
        error = came > 0 ? net_connect_error(fd) : came < 0 ? ECANCELED : ETIMEDOUT;
    }
    if (error == 0)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

static int net_connect_unix(const char *path, const struct weir__patience *patience)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return net_connect_to((const struct sockaddr *)&address, sizeof address, patience);
}

/* Every address of a name in turn. The time left is divided, so that the first does not use it
 * up. */
static int net_connect_host(const struct weir__redis_host *host,
                            const struct weir__patience *patience, char why[WEIR__WHY_SIZE])
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)host->port);
    int code = getaddrinfo(host->name, port, &hints, &found);
    if (code) {
        snprintf(why, WEIR__WHY_SIZE, "%.100s: %s", host->name, gai_strerror(code));
        return -1;
    }
    int fd = -1, left = 0;
    for (const struct addrinfo *it = found; it; it = it->ai_next)
        left++;
    for (const struct addrinfo *it = found; it && fd < 0; it = it->ai_next, left--) {
        int64_t now = weir__mono_us();
        struct weir__patience share = {now + (patience->until_us - now) / left, patience->stop_fd};
        fd = net_connect_to(it->ai_addr, it->ai_addrlen, &share);
    }
    if (fd < 0)
        snprintf(why, WEIR__WHY_SIZE, "%.100s:%s: %s", host->name, port, strerror(errno));
    freeaddrinfo(found);
    return fd;
}

static int net_shake_hands(struct weir__conn *conn, const struct weir__patience *patience,
                           char why[WEIR__WHY_SIZE])
{
    for (;;) {
        short events = 0;
        int done = weir__tls_handshake(conn->tls, conn->fd, &events, why);
        if (done)
            return done > 0 ? 0 : done;
        if (weir__conn_wait(conn, events, patience) <= 0) {
            snprintf(why, WEIR__WHY_SIZE, "no TLS handshake in time");
            return -1;
        }
    }
}

int weir__conn_open(const struct weir__redis_url *url, const struct weir__redis_host *host,
                    const struct weir__patience *patience, struct weir__conn *ret,
                    char why[WEIR__WHY_SIZE])
{
    struct weir__conn conn = {-1, NULL};
    if (url->kind == WEIR__REDIS_UNIX) {
        conn.fd = net_connect_unix(url->path, patience);
        if (conn.fd < 0)
            snprintf(why, WEIR__WHY_SIZE, "%s: %s", url->path, strerror(errno));
    } else {
        conn.fd = net_connect_host(host, patience, why);
    }
    if (conn.fd < 0)
        return -1;
    if (url->tls) {
        conn.tls = weir__tls_new(url, host->name, why);
        int code = conn.tls ? net_shake_hands(&conn, patience, why) : -2;
        if (code) {
            weir__conn_close(&conn);
            return code;
        }
    }
    *ret = conn;
    return 0;
}

/* ---- ending ---- */

void weir__conn_close(struct weir__conn *conn)
{
    weir__tls_free(conn->tls);
    conn->tls = NULL;
    weir__conn_abandon(conn);
}

void weir__conn_abandon(struct weir__conn *conn)
{
    if (conn->fd >= 0)
        close(conn->fd);
    conn->fd = -1;
}

void weir__conn_shut(const struct weir__conn *conn)
{
    if (conn->fd >= 0)
        shutdown(conn->fd, SHUT_RDWR);
}

/* ---- reading and writing ---- */

long weir__conn_read(struct weir__conn *conn, void *data, size_t room, bool *ret_drained)
{
    if (conn->tls) {
        long n = weir__tls_read(conn->tls, conn->fd, data, room);
        *ret_drained = n <= 0;
        return n;
    }
    ssize_t n;
    do
        n = recv(conn->fd, data, room, 0);
    while (n < 0 && errno == EINTR);
    *ret_drained = n < (ssize_t)room;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    return n == 0 ? -1 : (long)n;
}

long weir__conn_write(struct weir__conn *conn, const void *data, size_t len)
{
    if (conn->tls)
        return weir__tls_write(conn->tls, conn->fd, data, len);
    if (len == 0)
        return 0;
    ssize_t n;
    do
        n = send(conn->fd, data, len, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    return (long)n;
}

bool weir__conn_holds(const struct weir__conn *conn)
{
    return conn->tls && weir__tls_holds(conn->tls);
}

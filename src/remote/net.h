/*
 * A connection to one server: a socket that never blocks, plain or under TLS. Waiting is done here
 * as well, always with a deadline. Deadlines are by the monotonic clock.
 */
#ifndef WEIR_NET_H
#define WEIR_NET_H

#include "base/clock.h"
#include "wire/url.h"

#include <poll.h>
#include <time.h>

#define WEIR__WHY_SIZE 256 /* room for a reason, for people */

struct weir__tls;

struct weir__conn {
    int fd;                /* -1: not connected */
    struct weir__tls *tls; /* NULL: plain */
};

/* Until when to try, and a descriptor that ends it when it becomes readable (-1: none). */
struct weir__patience {
    int64_t until_us;
    int stop_fd;
};

/* Connects, under TLS if the address says so. The names are looked up here, which may take long:
 * only the keeper calls it. A unix address has a path instead of a host. 0, or -1 with why; -2: TLS
 * is not possible as the address wants it, because of certificates or files. */
int weir__conn_open(const struct weir__redis_url *url, const struct weir__redis_host *host,
                    const struct weir__patience *patience, struct weir__conn *ret,
                    char why[WEIR__WHY_SIZE]);
void weir__conn_close(struct weir__conn *conn);
/* After fork, in the child: closes the descriptor and sends nothing, since the connection is the
 * parent's. */
void weir__conn_abandon(struct weir__conn *conn);
/* Wakes whoever waits; reading and writing fail from now on. Any thread. */
void weir__conn_shut(const struct weir__conn *conn);

/* Bytes read; 0: none now; -1: closed or broken. *ret_drained: wait before reading again. */
long weir__conn_read(struct weir__conn *conn, void *data, size_t room, bool *ret_drained);
/* Bytes taken; 0: none now; -1: broken. */
long weir__conn_write(struct weir__conn *conn, const void *data, size_t len);
/* Whether bytes that were taken still wait for the socket. Writing nothing moves them on. */
bool weir__conn_holds(const struct weir__conn *conn);

/* Waits for POLLIN, POLLOUT; what came of them (an error counts as both), 0: time is up, -1:
 * stopped. */
int weir__conn_wait(const struct weir__conn *conn, short events,
                    const struct weir__patience *patience);

/* ---- tls.c, for net.c ---- */

/* A client's session before its handshake; NULL with why. The certificate must be for `host`. */
struct weir__tls *weir__tls_new(const struct weir__redis_url *url, const char *host,
                                char why[WEIR__WHY_SIZE]);
void weir__tls_free(struct weir__tls *tls);

/* One step of the handshake. 1: done; 0: needs the socket in `events`; -1 with why; -2: the
 * certificate is not good, and trying again will not help. */
int weir__tls_handshake(struct weir__tls *tls, int fd, short *ret_events, char why[WEIR__WHY_SIZE]);
long weir__tls_read(struct weir__tls *tls, int fd, void *data, size_t room);
long weir__tls_write(struct weir__tls *tls, int fd, const void *data, size_t len);
bool weir__tls_holds(struct weir__tls *tls);

#endif

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
    int fd;                /* -1: none */
    struct weir__tls *tls; /* NULL: plain */
};

/* Until when to try, and what cuts it short: readable means stop (-1: nothing). */
struct weir__patience {
    int64_t until_us;
    int stop_fd;
};

/* Connects, under TLS if the address says so. The names are looked up here, which may take long:
 * only the keeper calls it. A unix address has a path instead of a host. 0, or -1 with why; -2: TLS
 * as the address wants it is not to be had, a matter of certificates and files. */
int weir__conn_open(const struct weir__redis_url *url, const struct weir__redis_host *host,
                    const struct weir__patience *patience, struct weir__conn *ret,
                    char why[WEIR__WHY_SIZE]);
void weir__conn_close(struct weir__conn *conn);
/* After fork, in the child: lets go without a word, since the connection is the parent's. */
void weir__conn_abandon(struct weir__conn *conn);
/* Wakes whoever waits; reading and writing fail from now on. Any thread. */
void weir__conn_shut(const struct weir__conn *conn);

/* Bytes read; 0: none now; -1: closed or broken. *ret_drained: waiting is what comes next. */
long weir__conn_read(struct weir__conn *conn, void *data, size_t room, bool *ret_drained);
/* Bytes taken; 0: none now; -1: broken. */
long weir__conn_write(struct weir__conn *conn, const void *data, size_t len);
/* Whether bytes that were taken still wait for the socket. Writing nothing moves them on. */
bool weir__conn_holds(const struct weir__conn *conn);

/* Waits for POLLIN, POLLOUT; what came of them (an error counts as both), 0: time is up, -1:
 * stopped. */
int weir__conn_wait(const struct weir__conn *conn, short events,
                    const struct weir__patience *patience);

#endif

/*
 * TLS through OpenSSL 3 or 1.1, found by dlopen when the first rediss:// address is used: the
 * library itself depends on libc alone. No sockets here: bytes go in and out through memory, so
 * that writing never raises SIGPIPE. One mutex a session: reading and writing threads may meet.
 */
#ifndef WEIR_TLS_H
#define WEIR_TLS_H

#include "remote/net.h"

/* A client's session, not yet shaken hands; NULL with why. The certificate must be for `host`. */
struct weir__tls *weir__tls_new(const struct weir__redis_url *url, const char *host,
                                char why[WEIR__WHY_SIZE]);
void weir__tls_free(struct weir__tls *tls);

/* One step of the handshake. 1: done; 0: needs the socket in `events`; -1 with why; -2: the
 * certificate is not good, and trying again will not make it so. */
int weir__tls_handshake(struct weir__tls *tls, int fd, short *ret_events, char why[WEIR__WHY_SIZE]);
long weir__tls_read(struct weir__tls *tls, int fd, void *data, size_t room);
long weir__tls_write(struct weir__tls *tls, int fd, const void *data, size_t len);
bool weir__tls_holds(struct weir__tls *tls);

#endif

/* What listen.c and listen_passed.c share. */
#ifndef WEIR_SERVER_LISTEN_INSIDE_H
#define WEIR_SERVER_LISTEN_INSIDE_H

#include "server/listen.h"

/* A listening socket; the last thread that lets go of it closes it. */
struct server_socket {
    int fd;
    atomic_uint users;
};

/* An address and its sockets: one for all threads, or one a thread. */
struct server_address {
    struct sockaddr_storage bound;
    socklen_t bound_len;
    bool tls;
    dev_t device; /* of a local socket's file: which one is ours; 0, 0: none */
    ino_t inode;
    struct server_socket sockets[SERVER_THREADS_MAX];
    size_t socket_count;
};

/* What was opened or handed over; written before the threads start. */
struct server_opened {
    struct server_address addresses[SERVER_LISTENERS_MAX];
    size_t count;
    bool passed; /* handed over to us */
    bool shared; /* by somebody who keeps them: systemd */
};
extern struct server_opened server_opened;

bool server_address_is_private(const struct sockaddr_storage *address);
/* Remembers which file a local socket has. */
void server_address_note_file(struct server_address *address);
/* Takes the sockets of LISTEN_FDS, if there are any for us. */
int server_sockets_adopt(const struct server_config *config, weir_error *err);

#endif

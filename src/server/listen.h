/*
 * Listening sockets. Each thread has one of its own for each address (SO_REUSEPORT), so that the
 * kernel spreads connections. Sockets handed over by systemd or by a predecessor (LISTEN_FDS) are
 * dealt out to the threads, which lets a restart lose nobody: the sockets, and who waits in them,
 * outlive the process.
 */
#ifndef WEIR_SERVER_LISTEN_H
#define WEIR_SERVER_LISTEN_H

#include "server/conn.h"

/* A listening socket; the last thread that lets go of it closes it. */
struct server_socket {
    int fd;
    atomic_uint users;
};

/* An address and its sockets: one for all threads, or one per thread. */
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
    bool shared; /* by somebody who keeps them, systemd: nobody who waits is lost by letting go */
};
extern struct server_opened server_opened;

bool server_address_is_private(const struct sockaddr_storage *address);
/* Remembers which file a local socket has. */
void server_address_note_file(struct server_address *address);
/* Takes the sockets of LISTEN_FDS, if there are any for us. */
int server_sockets_adopt(const struct server_config *config, weir_error *err);

/* Whether every address can be listened on as the configuration says: public ones only with a
 * token. Opens the first thread's sockets, so that a port that is taken is told of before anything
 * starts. */
int server_listeners_open(struct server *server, weir_error *err);
/* The sockets of a thread, malloc'ed. */
int server_listeners_for(struct server *server, int thread, struct server_listener **ret,
                         size_t *ret_count, weir_error *err);
/* Lets go of it. Connections that wait in a socket which nobody else has are reset by that. */
void server_listener_close(struct server_listener *listener);
/* Remembers where the program was started from. Before anything changes the working directory. */
void server_program_note(void);
/* ---- handover.c ---- */

void server_hand_over(char *const *argv);
/* A descriptor that can be read when the successor has something to say; -1: there is none. */
int server_successor_says(void);
/* Hears it; true: it is ready. */
bool server_successor_is_ready(void);
/* Gives up one that takes too long. */
void server_look_after_successor(void);
void server_reap(void);

/* Tells the process that started us that we are ready. */
void server_listeners_taken_over(void);
/* Removes the files of local sockets that are ours, unless another process goes on with them. */
void server_listeners_remove(const struct server *server);
/* Whether one of the addresses is a wildcard, 0.0.0.0 or [::]. */
bool server_listens_everywhere(void);
/* Whether the address of a Host is one we listen on. */
bool server_listens_on(struct weir__span host);
/* The address of listener i as people write it. */
void server_listener_text(size_t i, struct weir__buffer *ret);

#endif

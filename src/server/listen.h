/*
 * Listening sockets. Each thread has one of its own for each address (SO_REUSEPORT), so that the kernel
 * spreads connections; sockets handed over by systemd or by a predecessor (LISTEN_FDS) are shared by all
 * threads, which lets a restart lose nobody: the socket, and who waits in it, outlives the process.
 */
#ifndef WEIR_SERVER_LISTEN_H
#define WEIR_SERVER_LISTEN_H

#include "server/conn.h"

/* Whether every address can be listened on as the configuration says: public ones only with a token.
 * Opens the sockets of all threads, so that a port that is taken is told of before anything starts. */
int server_listeners_open(struct server *server, weir_error *err);
/* The sockets of a thread. */
int server_listeners_for(struct server *server, int thread, struct server_listener *ret,
                         size_t *ret_count, weir_error *err);
void server_listener_close(struct server_listener *listener);
/* Ours: the threads have their own. Who knocks from now on is refused, or waits for a successor. */
void server_listeners_close(void);
/* Starts the program anew with the same sockets; the new process's id, or -1 with errno. */
int server_listeners_hand_over(struct server *server, char *const *argv);
/* Whether the address of a Host is one we listen on. */
bool server_listens_on(const struct server *server, const char *host, size_t len);
size_t server_listener_count(void);
bool server_listener_is_tls(size_t i);
/* The address of listener i as people write it. */
void server_listener_text(const struct server *server, size_t i, struct weir__buffer *ret);

#endif

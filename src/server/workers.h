/* Long work that is no decision: simulations and reloads, with bounds on what may wait. See workers.c. */
#ifndef WEIR_SERVER_WORKERS_H
#define WEIR_SERVER_WORKERS_H

#include "server/conn.h"

#define SERVER_ALL_STREAMS (-1)

int server_workers_create(struct server *server, struct server_workers **ret, weir_error *err);
/* Whether one more piece of work of this connection may wait; counts it, and `bytes` as kept. */
bool server_work_admit(struct server_conn *conn, enum server_lane lane, size_t bytes);
/* Takes that back. */
void server_work_leave(struct server_conn *conn, enum server_lane lane, size_t bytes);
/* A batch whose last ask is work. */
void server_workers_give(struct server_workers *workers, struct server_batch *batch);
/* Has the administrators' worker do an errand of the server's own. One that waits already is done once, for
 * the greater of the reasons. */
void server_workers_errand(struct server_workers *workers, void (*errand)(struct server *, int),
                           int reason);
/* The connection is gone, or one of its streams: its simulations are dropped or stopped, and come back. */
void server_work_cancel(struct server_conn *conn, int32_t stream);
/* Nothing begins any more; what waits comes back as dropped. */
void server_workers_drain(struct server_workers *workers);
/* Stops what runs and ends the threads. False: one cannot be stopped and uses the server still. */
bool server_workers_stop(struct server_workers *workers);
void server_workers_destroy(struct server_workers *workers);

#endif

/* What a server looks after beside serving. See errands.c. */
#ifndef WEIR_SERVER_ERRANDS_H
#define WEIR_SERVER_ERRANDS_H

#include "server/conn.h"

enum { SERVER_BY_TIME = 1, SERVER_BY_SIGNAL };

/* Reads files again if they have changed, or if a signal asks for it; tells what has become of the zone's file. By
 * a worker: it may wait for disks. */
void server_errands(struct server *server, int reason);
/* Tells if the certificate expires soon. */
void server_warn_of_expiry(const struct server *server);
/* Tells how many lines the access log has lost since it last did; at most every ten seconds, or for the last time. */
void server_look_at_log(const struct server *server, bool last);

#endif

/* The built-in load: requests of made-up users to the demonstration's policies, over a real connection. */
#ifndef WEIR_SERVER_DEMO_H
#define WEIR_SERVER_DEMO_H

#include "server/server.h"

int server_demo_start(struct server *server);
void server_demo_stop(void);

#endif

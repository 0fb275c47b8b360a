/* What the parts of the RESP protocol share: resp.c reads and answers, decide.c asks the policies,
 * admin.c answers the rest. */
#ifndef WEIR_SERVER_RESP_H
#define WEIR_SERVER_RESP_H

#include "server/conn.h"
#include "wire/resp.h"

#define SERVER_RESP_ARGS_MAX 128

/* What the connection may do: by its token, or without one. */
enum server_access server_resp_access(struct server_conn *conn);
/* PING, HELLO, AUTH, COMMAND, CLIENT, INFO, QUIT, SELECT, ECHO, RESET, WEIR.CLOCK; or an error. */
void server_resp_admin(struct server_conn *conn, const struct weir__span *args, size_t n,
                       struct weir__buffer *out);
/* The names of these, one after the other, in lower case; NULL: there are no more. */
const char *server_resp_command(size_t i);
/* WEIR.DECIDE as an ask of the open batch, which has room. 0, or a code and why; then there is no
 * ask. */
int server_resp_decide(struct server_conn *conn, const struct weir__span *args, size_t n,
                       weir_error *err);
void server_resp_error(struct server_conn *conn, struct weir__buffer *out, enum server_fault fault,
                       const char *format, ...) WEIR__PRINTF(4, 5);

#endif

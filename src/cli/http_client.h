/*
 * A small HTTP/1.1 client that waits: GET and POST to a server that is known, over TCP, a unix socket or TLS.
 * Everything is bounded: an answer by CLI_HTTP_BODY_MAX and CLI_HTTP_PATIENCE_US.
 *
 * The connection is kept for the next request. No redirects, no cookies, no compression.
 */
#ifndef WEIR_CLI_HTTP_CLIENT_H
#define WEIR_CLI_HTTP_CLIENT_H

#include "remote/net.h"

#define CLI_HTTP_HEAD_MAX ((size_t)16 << 10)
#define CLI_HTTP_BODY_MAX ((size_t)8 << 20)
#define CLI_HTTP_PATIENCE_US INT64_C(5000000)
#define CLI_HTTP_PORT 7311 /* of an address without scheme and port */

struct cli_http {
    struct weir__redis_url where; /* what remote/net.h connects to */
    char host[300];               /* as Host says it */
    char prefix[256];             /* before every path: the address's own */
    char token[512];              /* empty: none */
    struct weir__conn conn;
    int stop_fd; /* readable: give up waiting; -1, as it is at first: nothing */
    char *data;  /* what was received, and its room */
    size_t room, len;
};

/* The body lies in the client's memory until the next request, a NUL behind it. */
struct cli_http_reply {
    int status;
    char *body;
    size_t len;
};

/* http_address.c. Reads an address: http://host:port, https://host:port, host:port, host or unix:/path; connects to
 * nothing yet. `token` (NULL: none) is sent as a bearer's. */
int cli_http_open(const char *address, const char *token, struct cli_http *ret, weir_error *err);
/* Asks for a path ("/v1/stats"). 0, or a WEIR_E…: no answer, or none that HTTP knows. */
int cli_http_get(struct cli_http *http, const char *path, struct cli_http_reply *ret,
                 weir_error *err);
/* Hands a JSON body to a path. It is sent once: whoever hears nothing does not know what became of it. */
int cli_http_post(struct cli_http *http, const char *path, const char *body, size_t len,
                  struct cli_http_reply *ret, weir_error *err);
void cli_http_close(struct cli_http *http);

#endif

/*
 * A small blocking HTTP/1.1 client: GET and POST to one server, over TCP, a unix socket or TLS. An
 * answer is bounded by CLI_HTTP_BODY_MAX and CLI_HTTP_PATIENCE_US.
 *
 * The connection is kept for the next request. No redirects, no cookies, no compression.
 */
#ifndef WEIR_CLI_HTTP_CLIENT_H
#define WEIR_CLI_HTTP_CLIENT_H

#include "remote/net.h"

#define CLI_HTTP_HEAD_MAX ((size_t)16 << 10)
#define CLI_HTTP_BODY_MAX ((size_t)8 << 20)
#define CLI_HTTP_PATIENCE_US INT64_C(5000000)
#define CLI_HTTP_PORT 7311 /* for an address without scheme and port */

struct cli_http {
    struct weir__redis_url where; /* what remote/net.h connects to */
    char host[300];               /* the value of the Host field */
    char prefix[256];             /* before every path: the path of the address */
    char token[512];              /* empty: none */
    struct weir__conn conn;
    int stop_fd; /* stop waiting if it is readable; -1 (as at first): none */
    char *data;  /* what was received, with its capacity and length */
    size_t room, len;
    /* of the request in progress */
    struct weir__patience patience;
    weir_error *err;
};

/* The body stays in the memory of the client until the next request, with a NUL after it. */
struct cli_http_reply {
    int status;
    char *body;
    size_t len;
};

/* Reads an address: http://host:port, https://host:port, host:port, host or unix:/path. Does not
 * connect yet. `token` (NULL: none) is sent as a bearer token. */
int cli_http_open(const char *address, const char *token, struct cli_http *ret, weir_error *err);
/* Gets a path ("/v1/stats"). 0, or a WEIR_E…: there was no answer, or it was not HTTP. */
int cli_http_get(struct cli_http *http, const char *path, struct cli_http_reply *ret,
                 weir_error *err);
/* Posts a JSON body to a path. It is sent once: without an answer nobody knows whether it was
 * done. */
int cli_http_post(struct cli_http *http, const char *path, const char *body, size_t len,
                  struct cli_http_reply *ret, weir_error *err);
void cli_http_close(struct cli_http *http);

#endif

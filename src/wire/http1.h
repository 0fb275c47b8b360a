/*
 * HTTP/1.x requests: bytes to messages, no sockets, no allocation.
 *
 * The caller owns a buffer of received bytes, appends what arrives and asks for the next request, as
 * with RESP (wire/resp.h):
 *
 *     weir__http1_begin(&reader, &limits);
 *     switch (weir__http1_next(&reader, data + start, end - start, &request)) {
 *     case WEIR__HTTP1_REQUEST:   // request, in reader.size bytes; its spans point into data
 *     case WEIR__HTTP1_NEED_MORE: // append and ask again; reader.expects_continue: send 100 first
 *     case WEIR__HTTP1_BROKEN:    // reader.status (400, 411, 413, 414, 431, 501, 505), reader.why; close
 *     }
 *
 * What holds:
 *   1. While a request is incomplete its bytes stay as they are; the buffer may move and grow.
 *   2. What was scanned is not scanned again: the work is linear in the bytes, in whatever portions
 *      they arrive, and how they are cut changes nothing.
 *   3. NEED_MORE is answered only below limits.head + limits.body bytes (and what chunks add, bounded).
 *   4. Whatever two readers could understand differently is refused (RFC 9112): Transfer-Encoding
 *      beside Content-Length, several or odd Content-Lengths, spaces before the colon, folded lines,
 *      bare CR or LF in a head, control characters, no or several Hosts, encodings but a final chunked.
 *   5. Bytes are read, never written, but for a chunked body, which is put together in place.
 */
#ifndef WEIR_HTTP1_H
#define WEIR_HTTP1_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>

/* Bytes of somebody else's. */
struct weir__span {
    const char *data;
    size_t len;
};

enum weir__http_method {
    WEIR__HTTP_GET,
    WEIR__HTTP_HEAD,
    WEIR__HTTP_POST,
    WEIR__HTTP_OPTIONS,
    WEIR__HTTP_OTHER, /* a method that nothing here answers: 405 */
};

#define WEIR__HTTP_FIELDS_MAX 100

struct weir__http_field {
    struct weir__span name, value; /* value without the spaces around it */
};

/* A request, of HTTP/1 or 2. */
struct weir__http_request {
    enum weir__http_method method;
    struct weir__span method_text;
    struct weir__span path;  /* "/v1/take", still percent-encoded; "*" for OPTIONS * */
    struct weir__span query; /* behind the '?', still encoded; data NULL: there is none */
    struct weir__span host;  /* of Host, :authority or an absolute target */
    struct weir__span body;
    struct weir__http_field fields[WEIR__HTTP_FIELDS_MAX];
    size_t field_count;
    int minor;       /* HTTP/1.0 or 1.1; 2 for HTTP/2 */
    bool keep_alive; /* the connection goes on behind the answer */
};

struct weir__http1_limits {
    size_t line; /* bytes of the request line: 414 beyond */
    size_t head; /* bytes of line and fields: 431 beyond */
    size_t body; /* bytes of a body: 413 beyond */
};

enum weir__http1_status { WEIR__HTTP1_REQUEST, WEIR__HTTP1_NEED_MORE, WEIR__HTTP1_BROKEN };

struct weir__http1_reader {
    /* the answer */
    size_t size;           /* REQUEST: bytes it took */
    bool expects_continue; /* NEED_MORE: the head is whole and the client waits for 100 Continue */
    int status;            /* BROKEN: what to answer */
    char why[128];         /* BROKEN: for people */
    /* the state: the implementation's */
    struct weir__http1_limits limits;
    size_t scanned;   /* no head ends before here */
    size_t head_size; /* 0: the head is not whole yet */
    size_t body_size; /* decoded so far, or announced */
    size_t chunk_at;  /* chunked: where the next undecoded byte is, from the request's first byte */
    size_t chunk_left;
    int chunk_phase;
    bool chunked;
};

void weir__http1_begin(struct weir__http1_reader *reader, const struct weir__http1_limits *limits);
enum weir__http1_status weir__http1_next(struct weir__http1_reader *reader, char *data, size_t len,
                                         struct weir__http_request *ret);

/* The value of a field by its lower-case name, the first one's; false: there is none. */
bool weir__http_field(const struct weir__http_request *request, const char *name,
                      struct weir__span *ret);

/* ---- query strings ---- */

/* The next name=value of a query, both decoded into room (percent and '+'), which is as long as what is
 * left of the query; false at the end. `bad` is set where an escape is broken. */
struct weir__query {
    struct weir__span rest;
    bool bad;
};
bool weir__query_next(struct weir__query *query, char *room, struct weir__span *ret_name,
                      struct weir__span *ret_value);

#endif

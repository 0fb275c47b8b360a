/*
 * HTTP/1.x requests: bytes to messages, no sockets, no allocation.
 *
 * The caller owns a buffer of received bytes, appends what arrives and asks for the next request,
 * as with RESP (wire/resp.h):
 *
 *     weir__http1_begin(&reader, &limits);
 *     switch (weir__http1_next(&reader, data + start, end - start, &request)) {
 *     case WEIR__HTTP1_REQUEST:   // request, in reader.size bytes; its spans point into data
 *     case WEIR__HTTP1_NEED_MORE: // append and ask again; reader.expects_continue: send 100 first
 *     case WEIR__HTTP1_BROKEN:    // reader.status (400, 411, 413, 414, …), reader.why; close
 *     }
 *
 * What holds:
 *   1. While a request is incomplete its bytes stay as they are; the buffer may move and grow.
 *   2. What was scanned is not scanned again: the work is linear in the bytes, in whatever portions
 *      they arrive, and how they are cut changes nothing.
 *   3. NEED_MORE is answered only below limits.head + limits.body bytes, or twice that where the
 *      body is chunked: what chunks and trailers add may be as much again.
 *   4. Whatever two readers could understand differently is refused (RFC 9112): Transfer-Encoding
 *      beside Content-Length, several or odd Content-Lengths, spaces before the colon, folded
 *      lines, bare CR or LF in a head, control characters, no or several Hosts, encodings but a
 *      final chunked.
 *   5. Bytes are read, never written, except a chunked body, which is put together in place.
 *      Trailers are checked and forgotten.
 *   6. Errors are found as early as the line they are in is whole, a control character at once.
 *   7. `ret` holds something on REQUEST only, and is written to before.
 */
#ifndef WEIR_HTTP1_H
#define WEIR_HTTP1_H

#include "base/base.h"
#include "base/span.h"

#include <stdbool.h>
#include <stddef.h>

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
    struct weir__span query; /* after the '?', still encoded; data NULL: there is no query */
    struct weir__span host;  /* of Host, :authority or an absolute target */
    struct weir__span body;
    struct weir__http_field fields[WEIR__HTTP_FIELDS_MAX];
    size_t field_count;
    int minor;       /* 0 or 1, for HTTP/1.0 and 1.1 (1.2 is answered as 1.1); 2 for HTTP/2 */
    bool keep_alive; /* the connection goes on after the answer */
};

struct weir__http1_limits {
    size_t line; /* bytes of the request line: 414 beyond */
    size_t head; /* bytes of line and fields: 431 beyond */
    size_t body; /* bytes of a body: 413 beyond */
};

enum weir__http1_status { WEIR__HTTP1_REQUEST, WEIR__HTTP1_NEED_MORE, WEIR__HTTP1_BROKEN };

struct weir__http1_reader {
    /* the answer */
    size_t size; /* REQUEST: bytes it took */
    bool
        expects_continue; /* NEED_MORE: send 100 Continue now; said once, when the head is whole and
                              nothing of the body is here */
    bool head_came;       /* NEED_MORE: the head is whole, and was not before */
    int status;           /* BROKEN: what to answer */
    char why[128];        /* BROKEN: for people, printable ASCII */
    /* the state: the implementation's */
    struct weir__http1_limits limits;
    struct weir__http1_state {
        int phase;
        size_t at;          /* the first byte not understood yet: of a line, or of a chunk */
        size_t scanned;     /* no line that starts at `at` ends before here */
        size_t head_size;   /* once the head is whole */
        size_t body_size;   /* announced; chunked: put together so far */
        size_t chunk_left;  /* of the chunk at `at` */
        size_t field_count; /* fields seen */
        int empty_lines;    /* before the request line */
        int minor;
        bool post, absolute, has_host, has_length, chunked, close, keep_alive, expects;
    } state;
};

void weir__http1_begin(struct weir__http1_reader *reader, const struct weir__http1_limits *limits);
enum weir__http1_status weir__http1_next(struct weir__http1_reader *reader, char *data, size_t len,
                                         struct weir__http_request *ret);

/* NEED_MORE, once the head is whole: the request without its body. How long that will be, or 0 if
 * it is chunked or there is none, is in *ret_body. */
void weir__http1_head_so_far(const struct weir__http1_reader *reader, const char *data,
                             struct weir__http_request *ret, size_t *ret_body, bool *ret_chunked);

/* The value of a field by its lower-case name, the first one's; false: there is no such field. */
bool weir__http_field(const struct weir__http_request *request, const char *name,
                      struct weir__span *ret);

/* ---- query strings ---- */

/* The next name=value of a query, both decoded (percent and '+') into room, one after the other;
 * room is as long as what is left of the query. Empty pairs are passed over; without '=' the value
 * is empty. False at the end, and where an escape is broken: then `bad` is set and nothing more
 * comes. */
struct weir__query {
    struct weir__span rest;
    bool bad;
};
bool weir__query_next(struct weir__query *query, char *room, struct weir__span *ret_name,
                      struct weir__span *ret_value);

#endif

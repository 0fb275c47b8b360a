/*
 * HTTP/2 inside: one nghttp2 session a connection, its streams, and what a peer may make us hold.
 *
 *     feed ─► nghttp2 ─► h2/h2.c: frames ─► h2/stream.c: its bytes, a whole request
 *                                                        │
 *     h2_send ◄─ nghttp2 ◄─ h2/answer.c: responses ◄─────┴─ router, gRPC: at once, or later
 *
 * What holds:
 *   1. A stream's request and response live in its room. Whole requests are handed on behind
 *      nghttp2's callbacks, and their batch is finished before it is called again: so no stream
 *      ends while an ask borrows from its room.
 *   2. nghttp2 is not sent from inside its own callbacks: answers are submitted there and written
 *      behind.
 *   3. A connection has at most SERVER_H2_STREAMS open, and asks pending within batch.h's bounds,
 *      also for streams that were reset meanwhile; it holds at most SERVER_H2_HELD bytes of bodies
 *      and responses, one largest request beyond it; all connections together, what server_keep
 *      lets them. What nghttp2 itself holds (a long field that comes in parts) is counted, too.
 *   4. Frames that bring nothing (pings, settings, empty data, window updates, priorities) and
 *      resets are paid for out of two buckets; requests pay in. Who has nothing left is sent away
 *      (GOAWAY).
 */
#ifndef WEIR_SERVER_H2_H
#define WEIR_SERVER_H2_H

#include "server/grpc/grpc.h"
#include "server/http/http.h"

#include <nghttp2/nghttp2.h>

#define SERVER_H2_STREAMS 128
#define SERVER_H2_HELD ((size_t)4 << 20)
#define SERVER_H2_ROOM 3584 /* of a stream as it is made */
#define SERVER_H2_FREE 2    /* streams of a connection that are not counted as memory kept */
#define SERVER_H2_CHUNK 16  /* so many are counted at a time */
#define SERVER_H2_WATCHES 4 /* streams of a connection that watch our health */
#define SERVER_H2_SESSION_FREE ((size_t)40 << 10) /* of nghttp2's memory that is not counted */

/* What nuisances are paid from. */
struct server_h2_bucket {
    int64_t left, at_us;
};

struct server_h2 {
    struct server_conn *conn;
    nghttp2_session *session;
    struct server_h2_list {
        struct server_h2_stream *first, *last;
        size_t count;
    } waiting;                     /* for their peer, to send or to read: the longest first */
    struct server_h2_list ready;   /* whole requests, to be handed on */
    struct server_h2_list acting;  /* whose turn is ours */
    struct server_h2_list watched; /* told of our health for as long as they are open */
    int64_t began_us, old_us;      /* when it began; when it was too old, 0: it is not */
    size_t held;    /* bytes of rooms beyond the first, and of owned bodies; counted as kept */
    size_t owned;   /* of it owned bodies: a peer that reads them may ask again */
    size_t counted; /* streams beyond SERVER_H2_FREE that are counted as memory kept */
    size_t session_bytes, session_kept; /* what nghttp2 has; of it counted as memory kept */
    bool starved;                       /* nghttp2 was refused memory: the connection ends */
    struct server_h2_bucket frames, resets;
    bool feeding;  /* nghttp2 is on the stack */
    bool draining; /* GOAWAY is said, the last stream not named yet */
};

/* A part of a stream's room, which may move. */
struct server_h2_part {
    uint32_t at, len;
};

struct server_h2_stream {
    struct server_h2_stream *prev, *next;
    struct server_h2_list *list; /* which it is in */
    struct server_h2 *h2;
    int32_t id;
    int fault;     /* an HTTP status: the request is refused with it */
    bool answered; /* a response was submitted */
    bool whole;    /* END_STREAM came */
    bool expects;  /* 100-continue */
    bool little;   /* its body may be SERVER_LITTLE bytes */
    bool grpc;     /* the answer ends in trailers */
    struct {
        bool known, ends;
        enum weir__health now, sent;
    } watch;
    int64_t since_us;
    struct server_h2_part method, path, authority;
    uint32_t field_count;
    uint32_t list_size;          /* of the fields, as RFC 9113 counts */
    uint32_t crumbs, cookie_len; /* a cookie's parts, and their bytes when joined */
    uint32_t head_len;           /* fields: [0 … head_len) of the room, behind them the body */
    char *room;
    size_t room_len, room_size;
    /* the answer */
    const char *body;
    size_t body_len, body_at;
    char *owned; /* to be freed with the stream */
    char first_room[SERVER_H2_ROOM];
};

/* ---- h2/stream.c ---- */

/* A new stream, waiting for its request; NULL: there are too many, or there is no memory. */
struct server_h2_stream *server_h2_stream_take(struct server_h2 *h2, int32_t id);
/* Gives it back. */
void server_h2_stream_close(struct server_h2_stream *stream);
/* From now on it is in that list. */
void server_h2_stream_move(struct server_h2_stream *stream, struct server_h2_list *list);
/* Frees all of them, the session being gone. */
void server_h2_streams_free(struct server_h2 *h2);
/* Gives back what requests took that were handed on: nothing borrows from them any more. */
void server_h2_streams_trim(struct server_h2 *h2);
/* Takes over a body that lives in malloc'ed memory; false: too much is held already. */
bool server_h2_stream_own(struct server_h2_stream *stream, char *memory, struct weir__span body);
/* Gives back what it holds beyond its first room. Nobody borrows from it. */
void server_h2_stream_empty(struct server_h2_stream *stream);
/* Room for n bytes more; NULL: too much is held already. */
char *server_h2_stream_room(struct server_h2_stream *stream, size_t n);

/* ---- h2/stream.c: requests ---- */

/* Takes one field of a request. False: there is no room. */
bool server_h2_take_field(struct server_h2_stream *stream, struct weir__span name,
                          struct weir__span value);
/* Takes a part of its body. False: there is no room. */
bool server_h2_take_body(struct server_h2_stream *stream, const void *data, size_t len);
/* The whole request, its spans in the stream's room; 0, or the HTTP status that refuses it. */
int server_h2_request(struct server_h2_stream *stream, struct weir__http_request *ret);

/* ---- h2/answer.c: without a request ---- */

/* Answers a stream with our health now and whenever it changes. False: too many do so already. */
bool server_h2_watch(struct server_h2_stream *stream, bool known);
/* Tells those that watch if it has changed, or for the last time; whether something is to be
 * sent. */
bool server_h2_tell_watchers(struct server_h2 *h2, bool last);
/* How old the connection may grow: --max-connection-age, spread a little. */
int64_t server_h2_age_us(const struct server_h2 *h2);

/* ---- h2/memory.c ---- */

/* Counts what nghttp2 allocates for a session of h2, within bounds. */
nghttp2_mem server_h2_memory(struct server_h2 *h2);

/* ---- h2/answer.c ---- */

/* A field whose texts stay. */
#define SERVER_H2_FIELD(name, value)                                                               \
    {                                                                                              \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1,                \
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE                           \
    }
/* The head of an answer of gRPC. */
#define SERVER_H2_GRPC_HEAD                                                                        \
    {                                                                                              \
        SERVER_H2_FIELD(":status", "200"), SERVER_H2_FIELD("content-type", "application/grpc")     \
    }
void server_h2_reset(struct server_h2_stream *stream, uint32_t error);
/* The answer is nghttp2's from here; without memory for it the stream is reset. `read` brings its
 * body; NULL: it has none. */
void server_h2_submit(struct server_h2_stream *stream, const nghttp2_nv *fields, size_t n,
                      nghttp2_data_source_read_callback read);

/* Hands a whole request on: answered, or asked. */
void server_h2_dispatch(struct server_h2_stream *stream);
/* The head is there, its body is not: false, and answered, if that is not wanted. */
bool server_h2_admit(struct server_h2_stream *stream);
/* Answers a request that goes beyond a bound, or is not one. */
void server_h2_refuse(struct server_h2_stream *stream);
/* Answers, or resets, one whose body cannot be held. */
void server_h2_refuse_for_memory(struct server_h2_stream *stream);
void server_h2_respond(struct server_h2_stream *stream, struct server_response *response);
void server_h2_reply(struct server_h2_stream *stream, const struct server_grpc_reply *reply);

#endif

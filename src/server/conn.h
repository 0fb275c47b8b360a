/*
 * Connections and the loop they live in. A connection's life:
 *
 *     accepted ─► told apart by its first bytes ─► fed, answered … ─► closing ─► freed
 *                                                      │  ▲         when nothing is pending
 *                                          pending (inflight): not read, not fed, but for HTTP/2
 *
 * Reading: into the thread's buffer; what a protocol leaves over is kept in conn->in. A batch that
 * is pending borrows from neither. Writing: protocols append to server_out(conn); it is flushed
 * after each feed. What the socket does not take is kept in conn->out, and the connection is fed
 * again only when that is gone.
 */
#ifndef WEIR_SERVER_CONN_H
#define WEIR_SERVER_CONN_H

#include "base/clock.h"
#include "server/batch.h"

#include <assert.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/un.h>

#define SERVER_IN_SIZE ((size_t)32 << 10)     /* the thread's reading buffer */
#define SERVER_OUT_SIZE ((size_t)512 << 10)   /* the thread's writing buffer */
#define SERVER_OUT_RESERVE ((size_t)64 << 10) /* no answer of a batch is longer */
#define SERVER_KEPT_MAX ((size_t)8 << 20)     /* bytes kept that a peer does not read */
#define SERVER_KEPT_FREE ((size_t)4 << 10) /* each may have, beside what is kept for all together */
#define SERVER_RESERVED                                                                            \
    8 /* connections of a thread for health and metrics, when no others are let in */
#define SERVER_FULL_TEXT                                                                           \
    "the maximum number of connections is open; this one answers only health and metrics"
#define SERVER_FULL_RESP "ERR max number of clients reached"
#define SERVER_RESP_MESSAGE_MAX (1280u << 10) /* sixteen of the longest keys fit */

struct server_protocol_ops {
    const char *name;
    enum server_protocol counted_as;
    /* Takes requests off the front of data and answers them, or fills the batch; how many bytes it
     * is done with. May stop early: inflight, blocked, closing. */
    size_t (*feed)(struct server_conn *conn, char *data, size_t len);
    /* Writes the answers to a batch's asks. */
    void (*answer)(struct server_conn *conn, struct server_batch *batch);
    /* The socket takes more: writes on what it still has. May be NULL. */
    void (*more)(struct server_conn *conn);
    /* The request pending did not come in time: a last word, then it is closed. May be NULL. */
    void (*late)(struct server_conn *conn);
    /* The server drains: say so where the protocol can (h2 GOAWAY). May be NULL. */
    void (*drain)(struct server_conn *conn);
    /* Once a second, whatever the peer does. May be NULL. */
    void (*tick)(struct server_conn *conn);
    /* Requests are pending that wait for the peer, though all of its bytes are taken. May be
     * NULL. */
    bool (*waits)(const struct server_conn *conn);
    void (*free)(struct server_conn *conn); /* what conn->state holds; may be NULL */
};

extern const struct server_protocol_ops server_http1, server_resp, server_h2;

struct server_conn {
    struct server_thread *thread;
    int fd;
    const struct server_protocol_ops *protocol; /* NULL: not told apart yet */
    void *state;                                /* the protocol's */
    struct server_tls_conn *tls;                /* NULL: plain */
    struct server_conn *prev, *next;            /* all of the thread */
    struct server_conn *queue_prev, *queue_next;
    unsigned inflight;                             /* batches pending or held */
    struct server_batch *held;                     /* those that are held */
    size_t away, away_asks;                        /* bytes and asks of them all */
    struct server_batch *asked_first, *asked_last; /* those that wait for an asker */
    struct server_conn *asked_next;                /* who waits behind it for an asker */
    unsigned works[SERVER_LANES];                  /* pieces of long work that wait or run */
    uint32_t events;                               /* what epoll watches for */
    bool blocked;                                  /* conn->out must go first */
    bool closing;   /* nothing more is fed; closed when all is written and nothing is pending */
    bool yields;    /* its turn was over: there is more to feed */
    bool queued;    /* it waits for its next turn */
    bool bulk;      /* its last turn took long */
    bool half;      /* the peer has said its last word while a simulation was pending */
    bool lingering; /* all is written: what still comes is thrown away for a while */
    bool dead;      /* the socket is gone; freed when nothing is pending */
    enum server_access access; /* RESP: after AUTH */
    int resp_protocol;
    unsigned failures;      /* wrong tokens in a row */
    bool known;             /* the last token was right */
    bool last_failure;      /* it has had as many as it may: the next answer is its last */
    int64_t quiet_until_us; /* not 0: answers are held back and nothing is read until then */
    int64_t reserved_us; /* not 0: let in then, beyond --max-connections, for health and metrics */
    struct server_conn *reserved_next; /* of the thread, the oldest first */
    int64_t since_us; /* when what it is doing now began: idle, a request, blocked */
    bool in_request;  /* part of a request is there */
    char *in;         /* kept input: in[in_start … in_end) */
    size_t in_start, in_end, in_size;
    char *out; /* kept output: out[out_start … out_end) */
    size_t out_start, out_end, out_size;
    uint64_t id;
    struct sockaddr_storage peer;
    char peer_text[INET6_ADDRSTRLEN];
    uint8_t peer_text_len;
    struct weir__http1_reader http1;
};

/* Blocks of one size that are used again and again. */
struct server_pool {
    void *first; /* a block's first word names the next one */
    size_t count;
};

/* A block whose content is not defined; NULL: no memory. */
static inline void *server_pool_take(struct server_pool *pool, size_t size)
{
    void **block = pool->first;
    assert((block == NULL) == (pool->count == 0));
    if (!block)
        return malloc(size);
    pool->first = *block;
    pool->count--;
    return block;
}

/* Takes a block back; beyond `most` it is freed. */
static inline void server_pool_give(struct server_pool *pool, void *block, size_t most)
{
    if (pool->count >= most) {
        free(block);
        return;
    }
    *(void **)block = pool->first;
    pool->first = block;
    pool->count++;
}

struct server_listener {
    int fd; /* -1: let go */
    bool tls;
    struct server_socket *socket;
};

struct server_response;
struct weir__json_node;

struct server_thread {
    struct server *server;
    int index;
    pthread_t thread;
    int epoll, wake; /* an eventfd: batches are back, or something changed */
    struct server_rules *rules;
    struct server_counters *counters;
    struct server_top_thread *top;
    struct server_log_thread *log; /* NULL: none */
    struct weir__limit_cache cache;
    struct server_listener *listeners;
    size_t listener_count;
    struct server_conn *conns;
    struct server_batch *open_batch;                /* of the connection being fed */
    struct server_pool decisions, streams, calls;   /* of asks, of HTTP/2, of gRPC */
    _Atomic(struct server_batch *) back;            /* a stack that askers push to */
    struct server_batch *returned, **returned_last; /* taken off it, in order */
    struct server_conn *queue_first, *queue_last;   /* those whose turn was over */
    int64_t turn_us, turn_until_us;                 /* when the turn at hand began, and may end */
    int events_left;                                /* not handled yet */
    struct server_held held;
    char *in;
    struct weir__buffer out;
    int64_t now_us; /* CLOCK_MONOTONIC at the wake-up */
    int64_t swept_us;
    bool accepting;
    bool paused; /* accepting: no descriptors were left */
    uint64_t next_id;
    struct server_receipt_cache receipts;
    struct weir__http_request *request; /* the one being read, and the nodes of its JSON */
    struct weir__json_node *nodes;
    struct server_response *response; /* the one being made */
    char *grpc_room;                  /* SERVER_GRPC_ROOM bytes for a message being made */
    struct server_grpc_reading *grpc; /* NULL: nothing was read yet */
    int64_t date_s;                   /* when date was made */
    char date[40];                    /* "date: …\r\n" */
    struct server_conn *reserved;     /* the oldest first */
    size_t reserved_count;
    struct server_conn *graves; /* dead, to be freed when the events at hand are done */
};

/* ---- accept.c ---- */

/* The protocol of a first portion; NULL: not known yet. */
const struct server_protocol_ops *server_tell_apart(const char *data, size_t len);

/* ---- loop.c ---- */

int server_thread_start(struct server *server, int index, weir_error *err);
void server_thread_join(struct server_thread *thread);
void server_thread_wake(struct server_thread *thread);

/* ---- accept.c, conn.c ---- */

/* Lets in who waits, a portion; whether there may be more. */
bool server_conn_accept(struct server_thread *thread, struct server_listener *listener);
void server_conn_event(struct server_conn *conn, uint32_t events);
/* Its next turn. */
void server_conn_turn(struct server_conn *conn);
/* After a batch came back, or output went: feeds what was kept, then reads on. */
void server_conn_resume(struct server_conn *conn);
/* Closes when all is written. */
void server_conn_close(struct server_conn *conn);
/* Closes now. */
void server_conn_kill(struct server_conn *conn);
/* Holds its answers back and reads nothing until then. */
void server_conn_quiet(struct server_conn *conn, int64_t until_us);
/* Timeouts, once a second. */
void server_conn_sweep(struct server_conn *conn);
/* Frees the dead: behind the last event that may name them. */
void server_conn_bury(struct server_thread *thread);

/* Where answers go. There is room for SERVER_OUT_RESERVE bytes. */
struct weir__buffer *server_out(struct server_conn *conn);
/* Long bodies: sent as they are, kept where the socket does not take them. */
void server_out_long(struct server_conn *conn, const char *data, size_t len);
/* Counts bytes to be kept for a connection; false: as many are kept as may be. */
bool server_keep(struct server *server, size_t bytes);
/* What may still be kept, for all. */
static inline uint64_t server_left(struct server *server)
{
    uint64_t kept = atomic_load(&server->kept);
    return kept < server->max_memory ? server->max_memory - kept : 0;
}
/* What of a connection's kept input, or output, counts. */
static inline size_t server_kept(size_t size)
{
    return size > SERVER_KEPT_FREE ? size - SERVER_KEPT_FREE : 0;
}
/* Closes now a connection that wants more kept than may be. */
void server_conn_kill_for_memory(struct server_conn *conn);
/* Counts that what a client sent was not accepted. */
static inline void server_count_fault(const struct server_conn *conn, enum server_protocol protocol,
                                      enum server_fault fault)
{
    server_count(&conn->thread->counters->faults[protocol][fault], 1);
}
/* Whether the connection should be fed further now. */
static inline bool server_conn_goes_on(const struct server_conn *conn)
{
    return !conn->blocked && !conn->closing && !conn->dead;
}

/* ---- loop.c: turns ---- */

void server_turn_begin(struct server_thread *thread, bool queued);
/* Notes whether it took long; `rest`: it was the rest of what did. */
void server_turn_end(struct server_conn *conn, bool rest);
/* Whether it took long the last time, and others are there now. */
bool server_turn_must_wait(struct server_conn *conn);
/* Whether a connection has been fed for long enough: then it stops, and is fed on behind the
 * others. */
bool server_turn_is_over(struct server_conn *conn);
/* It is fed on when its turn comes. */
void server_turn_queue(struct server_conn *conn);
void server_turn_leave(struct server_conn *conn);

/* ---- auth.c ---- */

/* What a token opens; a wrong one costs. */
enum server_access server_conn_access(struct server_conn *conn, struct weir__span token);

/* ---- tls.c ---- */

struct server_tls_context;

int server_tls_create(const struct server_config *config, struct server_tls **ret, weir_error *err);
/* Reads certificate, key and whom to trust again, to be used or freed. */
int server_tls_read_files(const struct server_config *config, struct server_tls_context **ret,
                          weir_error *err);
void server_tls_context_free(struct server_tls_context *context);
/* For connections from now on. */
void server_tls_use(struct server_tls *tls, struct server_tls_context *fresh);
/* When the first certificate of the chain expires, in seconds since the epoch; 0: unknown. */
int64_t server_tls_expires(struct server_tls *tls);
void server_tls_destroy(struct server_tls *tls);
struct server_tls_conn *server_tls_accept(struct server_tls *tls, int fd);
void server_tls_free(struct server_tls_conn *tls);
/* As read and write: bytes, 0 at the end, -1 with errno (EAGAIN: later). */
ssize_t server_tls_read(struct server_tls_conn *tls, void *data, size_t size);
ssize_t server_tls_write(struct server_tls_conn *tls, const void *data, size_t len);
/* Decrypted bytes are there that no event will tell of. */
bool server_tls_pending(struct server_tls_conn *tls);
/* Whether the handshake is done. */
bool server_tls_is_up(const struct server_tls_conn *tls);
/* The protocol that the handshake chose, "" if none. */
struct weir__span server_tls_protocol(const struct server_tls_conn *tls);
/* Tells the peer that nothing more comes. */
void server_tls_say_goodbye(struct server_tls_conn *tls);
/* Reading waits for the socket to be writable. */
bool server_tls_wants_write(struct server_tls_conn *tls);

/* ---- workers.c: long work that is no decision, with bounds on what may wait ---- */

#define SERVER_ALL_STREAMS (-1)

int server_workers_create(struct server *server, struct server_workers **ret, weir_error *err);
/* Whether one more piece of work of this connection may wait; counts it, and `bytes` as kept. */
bool server_work_admit(struct server_conn *conn, enum server_lane lane, size_t bytes);
/* Takes that back. */
void server_work_leave(struct server_conn *conn, enum server_lane lane, size_t bytes);
/* Takes that back and frees the work; NULL: there is none. */
void server_work_end(struct server_conn *conn, struct server_work *work);
/* A batch whose last ask is work. */
void server_workers_give(struct server_workers *workers, struct server_batch *batch);
/* Has the administrators' worker do an errand of the server's own. One that waits already is done
 * once, for the greater of the reasons. */
void server_workers_errand(struct server_workers *workers, void (*errand)(struct server *, int),
                           int reason);
/* The connection is gone, or one of its streams: its simulations are dropped or stopped, and come
 * back. */
void server_work_cancel(struct server_conn *conn, int32_t stream);
/* Nothing begins any more; what waits comes back as dropped. */
void server_workers_drain(struct server_workers *workers);
/* Stops what runs and ends the threads. False: one cannot be stopped and uses the server still. */
bool server_workers_stop(struct server_workers *workers);
void server_workers_destroy(struct server_workers *workers);

/* A moment of a clock, so long from now. */
struct timespec server_time_in(clockid_t clock, int64_t ms);
/* Whether a thread has ended, or ends within the time. */
bool server_join_within(pthread_t thread, int64_t ms);

/* ---- askers.c ---- */

int server_askers_create(struct server *server, struct server_askers **ret, weir_error *err);
/* Ends the threads; what they were given has come back. False: one waits for the store still. */
bool server_askers_stop(struct server_askers *askers);
void server_askers_destroy(struct server_askers *askers);
void server_askers_give(struct server_askers *askers, struct server_batch *batch);

#endif

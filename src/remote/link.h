/*
 * One pipelined connection that many threads use at once.
 *
 * A call goes through three steps, by the thread that makes it:
 *
 *     weir__link_submit   its commands go into the link's output, itself into the ring of calls
 *     weir__link_flush    what is in the output goes to the socket, other threads' commands as well
 *     weir__link_await    until its replies are there, its deadline has passed or the link is lost
 *
 * A call allocates nothing. Only the output grows, up to a bound.
 *
 * What nobody waits for is posted (weir__link_post): it is sent behind the calls before it, and
 * once more on the next connection if this one is lost before it is answered. What is waiting to be
 * sent already is not kept twice.
 */
#ifndef WEIR_LINK_H
#define WEIR_LINK_H

#include "remote/lock.h"
#include "remote/net.h"
#include "wire/resp.h"

#include <stdatomic.h>

#define WEIR__LINK_RING 4096      /* replies awaited at once, a power of two */
#define WEIR__LINK_NODES 320      /* of a reply: 16 rows of 19 when a key is shown, and some */
#define WEIR__LINK_IN 65536       /* bytes of replies read at once */
#define WEIR__LINK_REPLY 32768    /* bytes of one reply */
#define WEIR__LINK_OUT (4u << 20) /* bytes of commands not sent: 16 keys of 64 KB, a few times */
#define WEIR__LINK_POSTED                                                                          \
    (160u << 10)            /* bytes of commands posted and not answered: the script that
                                          they run, and about 500 */
#define WEIR__LINK_MISSES 3 /* deadlines missed in a row: the server counts as gone */

/* What was learnt about a server when the connection was made. */
struct weir__server {
    bool module;     /* it has the commands of the native module */
    bool test_clock; /* and the module was loaded with test-clock */
    bool unnamed;    /* and it is older than LEASE: it draws the ids of leases itself */
};

enum weir__call_status {
    WEIR__CALL_WAITING,
    WEIR__CALL_DONE, /* all replies were read */
    WEIR__CALL_LATE, /* its deadline passed; it may have been carried out */
    WEIR__CALL_LOST, /* the connection was lost; it may have been carried out */
    WEIR__CALL_DOWN, /* not sent: there is no connection */
    WEIR__CALL_FULL, /* not sent: too many calls are in progress */
};

struct weir__link;

/* A call in progress. It is its thread's memory, and stays where it is until it was awaited. */
struct weir__call {
    /* Appends its commands and returns how many replies they will get. The buffer's `cut`: no room.
     * Called with the link locked, perhaps again with more room. */
    unsigned (*write)(struct weir__call *, const struct weir__server *, struct weir__buffer *);
    /* Its i-th reply. Data and nodes are the link's, borrowed during this call, which is made with
     * the link locked. */
    void (*read)(struct weir__call *, unsigned i, const char *data,
                 const struct weir__resp_node *nodes);
    int64_t deadline_us; /* monotonic */
    bool quiet;          /* if it misses its deadline, that says nothing about the server */
    bool anew;           /* written for a server that may have forgotten its scripts */
    /* the link's */
    struct weir__link *link;
    unsigned connection; /* which of the link's it was sent on */
    enum weir__call_status status;
    uint64_t first; /* the number of its first reply on this connection */
    unsigned replies, seen;
    pthread_cond_t wake;
};

enum weir__link_state {
    WEIR__LINK_NEW, /* no connection was tried yet: worth waiting for */
    WEIR__LINK_UP,
    WEIR__LINK_DOWN,
};

struct weir__link {
    struct weir__lock lock;
    pthread_cond_t changed; /* the state, or nobody is at the socket any more */
    _Atomic enum weir__link_state state;
    struct weir__conn conn; /* the keeper's while the link is not UP and users is 0 */
    struct weir__server server;
    unsigned connection;           /* its number */
    unsigned users;                /* threads at the socket without the lock */
    bool led, flushing;            /* somebody reads; somebody writes */
    _Atomic uint32_t loading;      /* a call brings its script along */
    unsigned misses;               /* deadlines missed since the last reply in time */
    uint64_t miss_mark;            /* only calls submitted from here on count as a new miss */
    char *out, *sending;           /* being filled; being written */
    size_t out_size, sending_size; /* their room */
    size_t out_len, sending_len, sending_at;
    char *posted; /* what is to be sent once more if this connection is lost; NULL: nothing yet */
    size_t posted_len;
    unsigned posted_replies;
    uint64_t posted_mark;                     /* the replies up to here answer all of it */
    uint64_t submitted, answered;             /* replies, counted since the connection was made */
    struct weir__call *ring[WEIR__LINK_RING]; /* by reply; NULL: nobody wants it any more */
    struct weir__resp_reader reader;
    struct weir__resp_node nodes[WEIR__LINK_NODES];
    size_t in_start, in_end;
    char in[WEIR__LINK_IN];
    char why[WEIR__WHY_SIZE]; /* why it is down */
    int wake_fd;              /* an eventfd: tells the keeper that it went down */
};

/* 0 or -1: out of memory. */
int weir__link_init(struct weir__link *link, int wake_fd);
/* Nobody uses it any more. `forked`: in a child, the connection is the parent's. */
void weir__link_destroy(struct weir__link *link, bool forked);

/* ---- the keeper's side ---- */

/* A connection has been made: takes it over and goes UP. */
void weir__link_start(struct weir__link *link, const struct weir__conn *conn,
                      const struct weir__server *server);
/* Goes DOWN, if it is not, and fails all calls; then waits for its users and closes. */
void weir__link_stop(struct weir__link *link, const char *why);
/* A connection could not be made. */
void weir__link_failed(struct weir__link *link, const char *why);
/* Reads what came while nobody waited: notices a server that hung up. */
void weir__link_tend(struct weir__link *link);

/* ---- the callers' side ---- */

/* WAITING: the call must be awaited, and it is the link's until then. DOWN or FULL: it was not
 * sent. */
enum weir__call_status weir__link_submit(struct weir__link *link, struct weir__call *call);
void weir__link_flush(struct weir__link *link, int64_t deadline_us);
/* Sends the call's commands, now or on the next connection, and drops their replies; or drops them
 * where there is no room. Never waits: the call is the caller's again. */
void weir__link_post(struct weir__link *link, struct weir__call *call);
/* Only after submit said WAITING. What became of it. */
enum weir__call_status weir__link_await(struct weir__call *call);
/* Goes DOWN at once, if it is still the same connection: the server answered the call that it
 * cannot serve. The calls in progress are lost. */
void weir__link_break(const struct weir__call *call, const char *why);
/* The server answered the call that it does not know the module's commands: further calls on this
 * connection are sent as scripts. No call in progress is lost. */
void weir__link_forget_module(const struct weir__call *call);
/* Its module does not know LEASE: further calls on this connection do not name their leases. */
void weir__link_forget_lease(const struct weir__call *call);
/* Waits until it is UP; false: not in time, or a connection failed. `patient`: also from DOWN. */
bool weir__link_wait(struct weir__link *link, int64_t deadline_us, bool patient);
/* Why it is down, copied. */
void weir__link_why(struct weir__link *link, char ret[WEIR__WHY_SIZE]);

#endif

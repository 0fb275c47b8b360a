/*
 * Asks and batches. A protocol decodes requests into asks; consecutive ones travel as a batch, so
 * that a pipeline costs one reading of the clock and its cache misses overlap; then the protocol
 * answers all of them in their order.
 *
 *     batch = server_batch_of(conn)               the thread's open batch
 *     ask = server_batch_add(conn)                NULL: it is full, finish first
 *     fill ask: its kind, and what that needs
 *     server_batch_say(conn, bytes, len)           an answer that is known already, in its turn
 *     server_batch_finish(conn)                   runs it; false: askers have it until it is back
 *
 * What holds:
 *   1. The open batch is the thread's and never leaves it. Its asks borrow from the connection's
 *      input, which stays as it is until the batch is finished: nothing is read in between.
 *   2. What leaves the loop, because askers run it or its answer is held, is packed (batch_pack.c):
 *      a block of its own that has all it needs, byte for byte, and is counted as memory kept.
 *      Nothing of the connection's input, nor of HTTP/2's streams, is borrowed any more.
 *   3. What may be kept is asked before anything is charged. Who holds too much is refused (503).
 */
#ifndef WEIR_SERVER_BATCH_H
#define WEIR_SERVER_BATCH_H

#include "core/show.h"
#include "server/server.h"
#include "store/store.h"
#include "wire/command.h"

#define SERVER_BATCH_MAX 64
#define SERVER_SEEN 3
#define SERVER_BATCH_ROOM                                                                          \
    ((size_t)96 << 10) /* a longest key, and what an ordinary head decodes to */
#define SERVER_AWAY_FREE                                                                           \
    ((size_t)8 << 10)            /* of packed batches each may have, whatever the others do */
#define SERVER_AWAY_SHARE 16     /* beyond: this part of what is left for all */
#define SERVER_AWAY_ASKS 256     /* of one connection, packed */
#define SERVER_ASKING_US 2000    /* so long a batch goes on at the store while others wait */
#define SERVER_EOVERLOAD (-1000) /* an ask's code: too much is kept already */
#define SERVER_EFAR (-1001)      /* the store would have to be asked; nothing is charged */
#define SERVER_OVERLOAD_TEXT "too many requests are in progress; try again in a second"

/* Why a take of a concurrent limit is refused. */
#define SERVER_NEEDS_ACQUIRE                                                                       \
    "a concurrent limit needs acquire, whose answer has the lease that releases the slot; a take " \
    "would hold a slot that nobody can release"

struct server_conn;
struct server_grpc_call;

/* Requests that are decided together, with one row for each of their limits. */
struct server_several {
    weir_request requests[WEIR_LIMITS_MAX];
    weir_decision rows[WEIR_LIMITS_MAX];
    struct weir__used used[WEIR_LIMITS_MAX]; /* of each row, where it is explained or given back */
    size_t count;                            /* requests */
    size_t row_count;
};

/* A plan of the policies. */
struct server_planned {
    struct server_several several; /* the enforced items; first: both kinds come from one pool */
    struct server_seen {
        uint8_t lens[SERVER_SEEN]; /* of address, method and path, one behind the other */
        char text[48 + 16 + 200];
    } seen; /* what the request was, for the access log */
    weir_decision (*shadow_rows)[WEIR_LIMITS_MAX];
    struct weir__plan plan; /* last: packed, it ends before its rooms */
};

/* An answer that was known when its request was read, in its place among the others. */
struct server_said {
    size_t len;
    char bytes[];
};

/* The threads that do long work. */
enum server_lane { SERVER_LANE_PLAY, SERVER_LANE_ADMIN, SERVER_LANES };

/* What takes long, or may block, and is no decision: done by a worker (workers.c). */
struct server_work {
    void (*run)(struct server *server, struct server_work *work);
    enum server_lane lane;
    size_t kept;           /* bytes that are counted for it */
    atomic_bool cancelled; /* nobody waits for it any more */
    bool dropped;          /* it was not begun */
    char *body;            /* a copy, NUL-terminated */
    size_t len;
    int status;
    char *answer; /* malloc'ed by run */
    size_t answer_len;
};

/* What WEIR.SHOW found. */
struct server_shown {
    int64_t now_us; /* of the store */
    size_t count;
    struct weir__shown states[];
};

/* What an ask is. */
enum server_ask_kind {
    SERVER_ASK_DECIDE,
    SERVER_ASK_SETTLE, /* by `settle` */
    SERVER_ASK_REFUND, /* gives back by `refund`, and finds what is left */
    SERVER_ASK_RESET,  /* forgets the keys */
    SERVER_ASK_LEASE,  /* renews or releases `lease` */
    SERVER_ASK_SHOW,   /* finds what the key of `simple` holds: `shown` */
    SERVER_ASK_CALL,   /* decides a `call` of Envoy's rate limit service */
    SERVER_ASK_WORK,   /* has a worker do `work`; the last of its batch */
    SERVER_ASK_SAID,   /* asks nothing: `said` is the answer */
};

/* What the first five are about. */
enum server_ask_about {
    SERVER_ABOUT_ONE,     /* `simple`, its request in the batch */
    SERVER_ABOUT_SEVERAL, /* `several`; only decided */
    SERVER_ABOUT_PLAN,    /* `planned` */
};

struct server_ask {
    enum server_ask_kind kind;
    enum server_ask_about about;
    enum weir__verb verb; /* of what is decided, settled, forgotten, leased or shown */
    int code;             /* 0, or a WEIR_E…, or SERVER_EOVERLOAD */
    union {               /* what it owns */
        struct server_several *several;
        struct server_planned *planned;
        struct server_shown *shown; /* NULL: not found yet */
        struct server_grpc_call *call;
        struct server_work *work;
        struct server_said *said;
    };
    union {
        struct {
            struct weir__span receipt;
            int64_t actual;
            bool late; /* answered: a repetition of it would no longer be noticed */
        } settle;
        struct {
            struct weir__refund give;
            struct weir__span id; /* as it was sent, for the log; empty: none */
        } refund;
        uint64_t lease;
        bool there; /* RESET, answered: there was something to forget */
    };
    int64_t held_us; /* how long the answer was held: its delay is over */
    bool explain;    /* charges nothing, explains everything */
    bool acquires;   /* the answer tells a lease */
    bool hold;       /* answer when the delay is over; the last of its batch */
    bool close;      /* its answer is the connection's last */
    /* how to answer */
    union {
        struct {
            int protocol; /* RESP2 or 3 */
            bool detail;
            bool granted; /* LEAST was said: the reply tells what is granted */
        } resp;
        struct {
            enum weir__field_style style;
            int16_t deny_status;
            bool head, detail, old;
            int32_t stream; /* HTTP/2 */
        } http;
    };
};

/* The kind of an ask that a verb makes. */
enum server_ask_kind server_ask_kind_of(enum weir__verb verb);
/* The requests that are decided together, with their rows; NULL: the ask is about `simple`, or
 * nothing. */
static inline struct server_several *server_ask_several(const struct server_ask *ask)
{
    if (ask->about == SERVER_ABOUT_PLAN)
        return &ask->planned->several;
    return ask->about == SERVER_ABOUT_SEVERAL ? ask->several : NULL;
}
/* Whether a refund that was carried out gave something back: its rows tell. */
static inline bool server_ask_gave_back(const struct server_ask *ask)
{
    const struct server_several *several = server_ask_several(ask);
    bool gave = false;
    assert(ask->kind == SERVER_ASK_REFUND && several);
    for (size_t i = 0; i < several->row_count; i++)
        gave = gave || several->rows[i].charged < 0;
    return gave;
}
/* What its receipt proves: all that a plan takes, or the first of its requests. */
static inline struct server_charged server_ask_charged(const struct server_ask *ask,
                                                       const weir_request *requests)
{
    if (ask->about != SERVER_ABOUT_PLAN)
        return (struct server_charged){requests, 1, 1};
    assert(ask->planned);
    size_t count = ask->planned->several.count;
    return (struct server_charged){requests, count,
                                   count > 1 ? weir__plan_settled(&ask->planned->plan) : 1};
}

struct server_batch {
    struct server_batch *next;
    struct server_thread *thread;
    struct server_conn *conn;
    size_t count;
    size_t from, to; /* the asks to be counted and answered now */
    int64_t began_us;
    weir_request *simple;
    weir_hashed_key *hashed; /* of simple takes with a local store: once for all uses */
    weir_decision *decided;
    struct server_ask *asks;
    size_t ran; /* asks that askers are done with */
    /* packed */
    struct server_rules *rules; /* held */
    size_t bytes;               /* counted among what is kept; 0: it is not packed */
    int64_t due_us;             /* held answers */
    size_t held_at;             /* in the heap */
    struct server_batch *held_prev, *held_next; /* of the connection */
};

/* ---- batch.c ---- */

/* A thread's open batch; NULL: no memory. */
struct server_batch *server_batch_create(struct server_thread *thread);
void server_batch_destroy(struct server_thread *thread);
/* The open batch of the connection being fed. */
struct server_batch *server_batch_of(struct server_conn *conn);
/* The next ask, zeroed, its simple request set to the defaults; NULL: full, finish first. */
struct server_ask *server_batch_add(struct server_conn *conn);
/* Whether an ask with what it decodes to fits into the open batch. To be asked before each request
 * is decoded: what nobody uses any more is given back. */
bool server_batch_has_room(struct server_conn *conn);
/* Whether answers are due before anything else may be said. */
bool server_batch_is_open(const struct server_conn *conn);
/* Adds an answer. */
void server_batch_say(struct server_conn *conn, const char *bytes, size_t len, bool close);
/* Hashes the last ask's key, once for deciding and for its receipt. */
void server_batch_hash(struct server_conn *conn);
/* Takes the last ask back. */
void server_batch_drop(struct server_conn *conn);
/* For an ask, from the thread's pool; NULL: no memory. */
struct server_several *server_several_take(struct server_thread *thread);
struct server_planned *server_planned_take(struct server_thread *thread);
/* What is asked of the policies. */
struct server_plan_question {
    struct weir__span policy; /* its name; empty: all that match */
    const struct weir__subject *subject;
    const weir_key *key; /* of a named policy, or NULL */
    int64_t cost;        /* -1: the policies' own */
    int64_t least;       /* 0: the policies' own */
    int64_t wait_us;
    bool explains;   /* past deny lists: the plan says which has the request */
    bool past_lists; /* past all lists: what was taken is given back, whoever is listed now */
};
/* Makes the plan of one that was just taken (plan.c). 0, or a code and why. */
int server_planned_make(struct server_conn *conn, const struct server_plan_question *question,
                        struct server_planned *planned, weir_error *err);
/* Leaves only what a refund is for: the limit of that name, or with an empty one those that a
 * settle would correct. They cost nothing then. 0, or a code and why. */
int server_planned_keep(struct server_planned *planned, struct weir__span name, weir_error *err);
/* Runs what is open and answers. False: it is pending (conn->inflight), or held. */
bool server_batch_finish(struct server_conn *conn);
/* Counts, answers and frees a batch that is back. By its loop. */
void server_batch_back(struct server_batch *batch);
/* Room for n bytes that live as long as the open batch; NULL: there is none left. */
char *server_batch_room(struct server_conn *conn, size_t n);

/* ---- batch_pack.c ---- */

/* Asks [from, to) of the open batch as a batch of their own, which borrows nothing; the open one
 * keeps no hold of them. NULL: there is no memory, or the connection holds too much. */
struct server_batch *server_batch_pack(struct server_conn *conn, struct server_batch *open,
                                       size_t from, size_t to);
/* Frees a packed batch. */
void server_batch_unpack(struct server_batch *batch);
/* The rules that its plans are of: while it was away, its thread may have got newer ones. */
struct server_rules *server_batch_rules(const struct server_batch *batch);
/* Frees what an ask owns, but for `several` and `planned`. */
void server_ask_end(struct server_conn *conn, struct server_ask *ask);

/* ---- held.c: answers that are held until their delay is over ---- */

/* Those of a thread: a heap by due_us. */
struct server_held {
    struct server_batch **heap;
    size_t count, room;
};
/* When the first is due; INT64_MAX: none is held. */
static inline int64_t server_held_due_us(const struct server_held *held)
{
    return held->count > 0 ? held->heap[0]->due_us : INT64_MAX;
}
/* Whether the last answer of a batch is to be held: it was asked for, and there is a delay. */
bool server_held_wants(const struct server_batch *batch);
/* Puts it off by its delay. False: there is no memory, so it is answered now. */
bool server_held_hold(struct server_batch *batch);
/* Answers those that are due, `most` of them. */
void server_held_answer_due(struct server_thread *thread, size_t most);
/* Answers all of them: callers must wait for what is left of their delays themselves. */
void server_held_answer_early(struct server_thread *thread);
/* Those of a connection that is gone: counted and freed. */
void server_held_forget(struct server_conn *conn);
void server_held_end(struct server_thread *thread);

/* ---- batch_near.c: answers of a store's slices, without asking ---- */

/* Sets server->near, if the store slices. */
int server_near_create(struct server *server, weir_error *err);
void server_near_destroy(struct server *server);
/* Decides asks from the first on, as long as nobody has to be asked. Never waits. How many. */
size_t server_batch_run_near(struct server *server, struct server_batch *batch);

/* ---- batch.c: asks against the store; batch_count.c ---- */

/* Decides what an ask is about. 0 or a code. */
int server_ask_decide(weir_store *store, struct server_ask *ask, const weir_request *simple,
                      weir_decision *ret);
/* Decides every ask. By any thread. */
void server_batch_run(struct server *server, struct server_batch *batch);
/* Decides some of its asks, for about SERVER_ASKING_US; whether all are decided. By any thread. */
bool server_batch_run_some(struct server *server, struct server_batch *batch);
/* Counts what was decided for asks [from, to). */
void server_batch_count(const struct server_batch *batch);
/* When it was decided, for the log: by the store's clock, or by ours where the store was not asked.
 * A decision of a slice has the time at which the store was charged. */
int64_t server_decided_us(const weir_decision *decision);
/* Counts and ranks the items of a plan that policies made, and what it says of shadows. */
void server_plan_count(struct server_thread *thread, const struct server_rules *rules,
                       const struct weir__plan *plan, bool allowed);
uint32_t server_plan_shadow_denied(const struct weir__plan *plan);
/* Whether the local fallback decided one of its shadows, which the answer does not tell. */
bool server_plan_shadow_degraded(const struct weir__plan *plan);
/* Logs it: what the line says besides the decision. */
struct server_plan_line {
    enum weir__verdict verdict;
    enum weir__denial denial;       /* where the verdict is DENY */
    const struct weir__policy *by;  /* or NULL */
    const struct weir__item *item;  /* the one whose limit bound, or NULL */
    const struct server_seen *seen; /* or NULL */
};
void server_plan_log(struct server_conn *conn, const struct weir__plan *plan,
                     enum server_protocol protocol, const struct server_plan_line *line,
                     const weir_decision *decision);
/* None of its asks that are left is asked: WEIR_EUNREACHABLE. */
void server_batch_give_up(struct server_batch *batch);
/* Hands a batch back to its loop. By any thread. */
void server_batch_bring_back(struct server_batch *batch);
/* Decides the call of an ask: grpc/call.c. */
void server_grpc_run(weir_store *store, struct server_ask *ask);
/* One that is not run: it fails. */
void server_grpc_give_up(struct server_ask *ask);

#endif

/*
 * One question to a server, as bytes and back:
 *
 *     query ─► commands (query_write.c) ─► link ─► replies ─► answer (query_read.c)
 *
 * and what becomes of it (query.c): sent to another server, sent again where a server says that it
 * did nothing, or given up.
 */
#ifndef WEIR_QUERY_H
#define WEIR_QUERY_H

#include "core/show.h"
#include "remote/fleet.h"
#include "store/store.h"
#include "wire/verbs.h"

#define WEIR__ERROR_MAX 256

/* Before the caller's key under the test clock, so that no real state is ever touched. */
#define WEIR__TEST_PREFIX "weir-test:"

/* What a server gets that does not have the script. */
enum weir__redis_query_load {
    WEIR__LOAD_NONE,
    WEIR__LOAD_FIRST, /* SCRIPT LOAD or FUNCTION LOAD before the call */
    WEIR__LOAD_WITH,  /* EVAL: the script's text with the call */
};

/* Requests, correction and rooms are the caller's: borrowed from begin until finish returns. */
struct weir__redis_query {
    struct weir__call call; /* first: links know nothing else */
    /* the question */
    const struct weir__redis_url *url;
    enum weir__verb verb;
    const weir_request *requests; /* keys, limits (NULL for reset and show) and costs */
    size_t count;
    size_t limits;   /* of all of them together */
    int64_t wait_us; /* as callers give it */
    const struct weir__correction *correction;
    uint64_t lease;  /* renew, release: which; acquire: what it will be, unless the module is old */
    int64_t time_us; /* of the test clock; -1: the server's own */
    uint16_t slot;   /* the cluster slot of all keys */
    bool reduced;    /* some limits are asked for with less than their size */
    uint32_t never;  /* so much less that these rows never fit: then nothing is asked */
    int64_t withheld[WEIR_LIMITS_MAX]; /* by how much less, in the order of the rows */
    /* how it is sent this time */
    struct weir__node *node;
    enum weir__call_status sent; /* WAITING: it was sent, and must be awaited */
    bool asking;                 /* with ASKING before it: its cluster slot moves to this node */
    bool by_module;              /* as a WEIR.* command, else as a script */
    bool names;                  /* with the id of its lease, though its request has chosen none */
    bool spare;                  /* by the script that runs on a server without memory */
    enum weir__redis_query_load load;
    unsigned loads; /* on this server */
    /* the answer */
    bool failed; /* with the error */
    char error[WEIR__ERROR_MAX];
    char before[WEIR__ERROR_MAX]; /* the first error reply to a command before the call, or empty */
    weir_decision *ret;           /* take, peek, acquire: the folded decision */
    weir_decision *rows;          /* and one row per limit, room for `limits`; NULL: not wanted */
    int64_t integer;              /* the answer of the other verbs */
    struct weir__shown *shown;    /* show: room for WEIR_LIMITS_MAX, and how many came */
    size_t shown_count;
};

/* Whether each limit's own row is asked for: with several limits only the rows show which binds. */
static inline bool weir__redis_query_wants_detail(const struct weir__redis_query *query)
{
    return query->limits > 1;
}

/* Whether a request has a least, so that the reply tells what is granted. */
static inline bool weir__redis_query_grants(const struct weir__redis_query *query)
{
    for (size_t i = 0; i < query->count; i++) {
        if (query->requests[i].least)
            return true;
    }
    return false;
}

/* The id that the requests have chosen for their lease; 0: none. */
static inline uint64_t weir__redis_query_chosen(const struct weir__redis_query *query)
{
    for (size_t i = 0; i < query->count; i++) {
        if (query->requests[i].acquire && weir__request_lease(&query->requests[i]))
            return weir__request_lease(&query->requests[i]);
    }
    return 0;
}

/* query_write.c and query_read.c: a call's write and read. */
unsigned weir__redis_query_write(struct weir__call *call, const struct weir__server *server,
                                 struct weir__buffer *buffer);
void weir__redis_query_read(struct weir__call *call, unsigned i, const char *data,
                            const struct weir__resp_node *nodes);

/* ---- query_withhold.c: limits of sliced stores, with less than their size ---- */

/* Each limit of a decision is asked for with as much less as the address withholds of it (pool.h),
 * or `at_least`, in the order of the rows; NULL: no more than that. The rows say the limits as
 * written. */
void weir__redis_query_withhold(struct weir__redis_query *query, const int64_t *at_least);
/* Limit j of request i as it is asked for, and its own cost, 0: it has none. */
struct weir__rule weir__redis_query_rule(const struct weir__redis_query *query, size_t i, size_t j,
                                         int64_t *ret_cost);
/* The answer to a request that never fits. */
void weir__redis_query_never(struct weir__redis_query *query);

/* ---- query_judge.c ---- */

/* What an error reply says about a query. After the first seven the server has done nothing. */
enum weir__redis_verdict {
    WEIR__VERDICT_NO_SCRIPT, /* it does not have the script or the function */
    WEIR__VERDICT_NO_MODULE, /* it does not have the module any more */
    WEIR__VERDICT_NO_LEASE,  /* its module is older than LEASE, but can do without */
    WEIR__VERDICT_NO_MEMORY, /* for this, but there is a script that needs none */
    WEIR__VERDICT_MOVED,     /* another server has the keys */
    WEIR__VERDICT_ASK,       /* another server has them this once */
    WEIR__VERDICT_TRY_AGAIN, /* they are being moved */
    WEIR__VERDICT_UNFIT,     /* this server decides nothing now */
    WEIR__VERDICT_BROKEN,    /* it is not a reply to this query */
    WEIR__VERDICT_UNDECIDED, /* it does not decide this now */
    WEIR__VERDICT_REFUSED,   /* with weir__redis_query_refusal's code */
};
/* The query has failed, with an error; it may get a better text. */
enum weir__redis_verdict weir__redis_query_judge(struct weir__redis_query *query);
int weir__redis_query_refusal(const struct weir__redis_query *query);
bool weir__redis_query_error_is(const struct weir__redis_query *query, const char *word);

/* ---- query.c ---- */

/* Sets the cluster slot of a query's keys; false: they are not all in one. */
bool weir__redis_query_slot(struct weir__redis_query *query);
/* Writes it into its link's output. */
void weir__redis_query_begin(struct weir__fleet *fleet, struct weir__redis_query *query);
/* Sends what was begun. */
void weir__redis_query_flush(struct weir__redis_query *query);
/* Waits until it is answered. 0: it was. WEIR_EUNREACHABLE: not in time, or the server cannot
 * decide now. Any other code: the server refused it. */
int weir__redis_query_finish(struct weir__fleet *fleet, struct weir__redis_query *query);
/* After an acquire was given up that its server may have carried out, now or later, or a release:
 * posts a release of the lease, which the server gets after it. */
void weir__redis_query_give_back(const struct weir__redis_query *query);

#endif

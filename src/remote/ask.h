/*
 * One question to a server, as bytes and back:
 *
 *     struct weir__ask ─► commands (ask_write.c) ─► link ─► replies ─► decision (ask_read.c)
 *
 * and what becomes of it (ask.c): sent on to another server, asked again where the server says that
 * it did nothing, or given up.
 */
#ifndef WEIR_ASK_H
#define WEIR_ASK_H

#include "core/show.h"
#include "remote/fleet.h"
#include "wire/verbs.h"

#define WEIR__ERROR_MAX 256

/* What a server without the script gets. */
enum weir__ask_load {
    WEIR__LOAD_NONE,
    WEIR__LOAD_FIRST, /* SCRIPT LOAD or FUNCTION LOAD before the call */
    WEIR__LOAD_WITH,  /* EVAL: the script's text with the call */
};

struct weir__ask {
    struct weir__call call; /* first: links know nothing else */
    /* the question */
    const struct weir__redis_url *url;
    enum weir__verb verb;
    const weir_request *requests; /* keys, limits (reset: none) and costs */
    size_t count;
    size_t limits;   /* of all of them together */
    int64_t wait_us; /* as callers give it */
    const struct weir__correction *correction;
    uint64_t lease;  /* renew, release: which; acquire by script: what it will be */
    int64_t time_us; /* of the test clock; -1: the server's own */
    uint16_t slot;
    /* how it is put this time */
    struct weir__node *node;
    enum weir__call_status sent; /* WAITING: it was, and must be awaited */
    bool asking;                 /* the slot is on its way to this node */
    bool by_module;              /* a WEIR.* command, else a script */
    bool spare;                  /* the script that runs on a server without memory */
    enum weir__ask_load load;
    unsigned loads; /* on this server */
    /* the answer */
    bool failed; /* with the error */
    char error[WEIR__ERROR_MAX];
    char before
        [WEIR__ERROR_MAX]; /* what was said to the commands before the call; empty: nothing bad */
    weir_decision *ret;    /* take, peek, acquire: the folded decision */
    weir_decision *rows;   /* and each limit's, room for `limits`; NULL: not wanted */
    int64_t integer;       /* the others' */
    struct weir__shown *shown; /* show: room for WEIR_LIMITS_MAX, and how many came */
    size_t shown_count;
};

/* ask_write.c and ask_read.c: a call's write and read. */
unsigned weir__ask_write(struct weir__call *call, const struct weir__server *server,
                         struct weir__buffer *buffer);
void weir__ask_read(struct weir__call *call, unsigned i, const char *data,
                    const struct weir__resp_node *nodes);

/* ---- ask.c ---- */

/* Before the caller's key under the test clock, so that no real state is ever touched. */
#define WEIR__TEST_PREFIX "weir-test:"

/* The slot of an ask's keys; false: they are not all in one. */
bool weir__ask_slot(struct weir__ask *ask);
/* Puts it into its link's output. */
void weir__ask_begin(struct weir__fleet *fleet, struct weir__ask *ask);
/* Sends what was begun. */
void weir__ask_flush(struct weir__ask *ask);
/* Until it is answered. 0: it was. WEIR_EUNREACHABLE: not in time, or the server cannot decide now.
 * Any other code: the server refused it. */
int weir__ask_finish(struct weir__fleet *fleet, struct weir__ask *ask);

#endif

/* The redis:// store: what its files share. */
#ifndef WEIR_REMOTE_H
#define WEIR_REMOTE_H

#include "remote/ask.h"
#include "remote/look.h"
#include "store/store.h"

#include <sys/types.h>

/* Who decides while no server does. */
struct weir__standin {
    enum weir__redis_fail fail;
    int32_t peers;     /* how many share the limits */
    weir_store *local; /* fail=local: where it decides */
};

struct weir__remote {
    weir_store base;
    struct weir__redis_url url;
    bool bare;                    /* without a stand-in: EUNREACHABLE is the caller's business */
    struct weir__fleet *fleet;    /* of the process `owner` */
    struct weir__standin standin; /* its zone is of that process, too */
    _Atomic pid_t owner;
    _Atomic bool decided;      /* a server did, since somebody last looked */
    _Atomic uint64_t stood_in; /* calls that the stand-in decided */
    struct {                   /* what weir__remote_look found last */
        uint64_t decided;      /* by the stand-in */
        bool reached;          /* the servers could be */
        bool undecided;        /* and decide nothing, until one does */
    } look;
    _Atomic pid_t reviver; /* the process that one thread is making them anew for */
    pthread_mutex_t lock;  /* for the text only */
    _Atomic bool refused;  /* there is such a text */
    char
        refusal[WEIR__ERROR_MAX]; /* what a server said to the last call, if it did not decide it */
};

static inline struct weir__remote *weir__remote_of(weir_store *store)
{
    return (struct weir__remote *)store;
}

/* open.c: makes fleet and stand-in of this process, after open and in a child. 0 or a code. */
int weir__remote_revive(struct weir__remote *remote);

/* ---- for event loops, which bring stand-in and threads themselves ---- */

/* Opens a store without a stand-in. Does not wait for a connection, and fails only without memory or
 * threads: a server that refuses us is tried again like one that is away. */
int weir__remote_open_bare(const struct weir__redis_url *url, weir_store **ret, weir_error *err);

/* A question and its answer. Take, settle, acquire, renew and release; those but take have one request. */
struct weir__job {
    enum weir__verb verb;
    weir_request *requests;
    size_t count;
    uint64_t lease; /* renew, release: which; acquire by script: what it was to be */
    struct weir__correction correction; /* settle: of which charge, to what */
    int64_t deadline_us;                /* monotonic */
    int64_t time_us;                    /* of the test clock; -1: the server's own */
    weir_decision *ret;                 /* take, acquire: the folded decision */
    weir_decision *rows;                /* and each limit's, room for all */
    int code;                           /* 0, WEIR_EUNREACHABLE, or a refusal */
    int64_t integer;                    /* renew, release: 1, or 0: there is no such lease */
    char error[WEIR__ERROR_MAX];        /* what a server said to it; empty: nothing */
};

#define WEIR__JOBS_MAX 32
/* Up to WEIR__JOBS_MAX jobs: all sent, then all awaited, each until its own deadline. Any thread. */
void weir__remote_do(weir_store *store, struct weir__job *const jobs[], size_t n);
/* Whether asking is of use: some server has a connection, or is tried for the first time. Any thread,
 * at once. */
bool weir__remote_reachable(weir_store *store);
/* 0 while every server that owns keys can be reached, else WEIR_EUNREACHABLE and which, and why. */
int weir__remote_why(weir_store *store, weir_error *err);

/* ---- fallback.c: while no server decides ---- */

/* Decides in the servers' place; rows go into the requests' details. `now` is for open and closed: a
 * zone has its own clock. */
int weir__standin_decide(const struct weir__standin *standin, const weir_request *requests,
                         size_t n, enum weir__mode mode, int64_t now, weir_decision *ret);
/* The same for a store; WEIR_EUNREACHABLE if it is bare. */
int weir__fallback_decide(struct weir__remote *remote, const weir_request *requests, size_t n,
                          enum weir__mode mode, weir_decision *ret);
/* Leases that the stand-in gave. 0, WEIR_ENOLEASE, or WEIR_EUNREACHABLE without a stand-in. */
int weir__fallback_lease(struct weir__remote *remote, weir_key key, const weir_limit *limit,
                         uint64_t lease, enum weir__lease_verb verb);
bool weir__fallback_reset(struct weir__remote *remote, weir_key key); /* whether it was there */
/* A limit's share of one of `peers`, at least 1: over all peers no more than the larger of the
 * limit and their number. */
void weir__share(const weir_limit *limit, int32_t peers, weir_limit *ret);

extern const struct weir__engine weir__remote_engine;

#endif

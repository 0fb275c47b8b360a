/* The redis:// store: what its files share, and what event loops and log writers need of it. */
#ifndef WEIR_REMOTE_H
#define WEIR_REMOTE_H

#include "remote/query.h"
#include "store/store.h"

#include <assert.h>
#include <unistd.h>

/* The local fallback: who decides while no server does. */
struct weir__fallback {
    enum weir__redis_fail fail;
    int32_t peers;                 /* how many share the limits */
    weir_store *local;             /* fail=local: the zone that decides */
    struct weir__charges *charges; /* what it was charged; NULL: nobody settles there */
};

struct weir__remote {
    weir_store base;
    struct weir__redis_url url;
    bool bare;                      /* without a fallback: the caller handles EUNREACHABLE */
    struct weir__fleet *fleet;      /* of the process `owner` */
    struct weir__fallback fallback; /* its zone is of that process, too */
    struct weir__slices *slices;    /* NULL: it does not slice, or it is bare */
    weir_limit *slot_limit;         /* concurrent PEERS lease 10s, for its slot among the peers */
    /* The fallback of requests that say local although the address does not; NULL: none came. */
    _Atomic(struct weir__fallback *) asked_local;
    _Atomic pid_t owner;
    _Atomic uint32_t decided;     /* a server did, since the last weir__remote_look */
    _Atomic uint64_t by_fallback; /* calls that the fallback decided */
    _Atomic int64_t answer_us;    /* how long servers lately took to answer */
    struct {                      /* what weir__remote_look found last */
        uint64_t by_fallback;
        bool reached;   /* the servers could be reached */
        bool undecided; /* but decide nothing, until one does */
    } look;
    _Atomic pid_t reviver;         /* the process for which one thread makes fleet and fallback */
    _Atomic uint32_t refused;      /* there is such a text */
    struct weir__lock lock;        /* for texts: this one, and slices->slot_try; and asked_local */
    char refusal[WEIR__ERROR_MAX]; /* what a server said to the last call if it did not decide it */
    char undecided[WEIR__ERROR_MAX]; /* the last such text after which the fallback decided */
};

static inline struct weir__remote *weir__remote_of(weir_store *store)
{
    return (struct weir__remote *)store;
}

/* ---- remote.c: its life ---- */

/* Makes fleet and fallback of this process, in a child. 0 or a code. */
int weir__remote_revive(struct weir__remote *remote);
int weir__remote_check(weir_store *store, weir_error *err);
bool weir__remote_explain(weir_store *store, weir_error *err);
void weir__remote_close(weir_store *store);

extern const struct weir__engine weir__remote_engine; /* engine.c */

/* Who decides a request while no server does, whatever the address says. Programs cannot choose:
 * their spare room is zero. */
static inline void weir__request_set_fail(weir_request *request, enum weir__redis_fail fail)
{
    request->spare[1] = 1 + (uint64_t)fail;
}

/* Decides here, since no server does. 0 or a code; WEIR_EUNREACHABLE if the store is bare. */
int weir__remote_fall_back(struct weir__remote *remote, const weir_request *requests, size_t n,
                           enum weir__mode mode, weir_decision *ret);
/* The fallback with a zone, if there is one: what it charged is corrected there. */
static inline const struct weir__fallback *weir__remote_zone(struct weir__remote *remote)
{
    const struct weir__fallback *asked = remote->asked_local;
    return asked ? asked : &remote->fallback;
}

/* Every verb begins with this. 0 or a code. */
static inline int weir__remote_ensure_alive(struct weir__remote *remote)
{
    assert(remote->base.engine == &weir__remote_engine);
    return WEIR__LIKELY(remote->owner == getpid()) ? 0 : weir__remote_revive(remote);
}

/* ---- for event loops, which have their own fallback and threads ---- */

/* Opens a store without a fallback. Does not wait for a connection, and fails only without memory
 * or threads: a server that refuses us is tried again like one that is away. */
int weir__remote_open_bare(const struct weir__redis_url *url, weir_store **ret, weir_error *err);

/* A question and its answer: take, settle, acquire, renew or release. Only take may have several
 * requests. */
struct weir__job {
    enum weir__verb verb;
    weir_request *requests;
    size_t count;
    uint64_t lease; /* renew, release: which; acquire: what it was to be, or 0: the server has not
                     * carried it out and will not. If that was not answered, the caller releases
                     * it, since a bare store does not */
    struct weir__correction correction; /* settle: of which charge, to what */
    int64_t withheld[WEIR_LIMITS_MAX];  /* of each limit at least, see weir__redis_query_withhold */
    int64_t deadline_us;                /* monotonic */
    bool quiet;                         /* missing its deadline says nothing of servers */
    int64_t time_us;                    /* of the test clock; -1: the server's own */
    weir_decision *ret;                 /* take, acquire: the folded decision */
    weir_decision *rows;                /* and one row per limit, room for all */
    int code;                           /* 0, WEIR_EUNREACHABLE, or a refusal */
    int64_t integer;                    /* renew, release: 1, or 0: there is no such lease */
    char error[WEIR__ERROR_MAX];        /* what a server said to it, or empty */
};

#define WEIR__JOBS_MAX 32
/* Up to WEIR__JOBS_MAX jobs: all are sent, then each is awaited until its own deadline. Any
 * thread. */
void weir__remote_do(weir_store *store, struct weir__job *const jobs[], size_t n);
/* The same, but nothing is answered from slices: for those who take them. */
void weir__remote_send(struct weir__remote *remote, struct weir__job *const jobs[], size_t n);
/* Whether a query makes sense: some server has a connection, or is tried for the first time. Any
 * thread; never waits. */
bool weir__remote_reachable(weir_store *store);
/* 0 while every server that owns keys can be reached, else WEIR_EUNREACHABLE and which, and why. */
int weir__remote_why(weir_store *store, weir_error *err);
/* How many servers own keys, and how many of these cannot be reached now. Any thread. */
unsigned weir__remote_servers(weir_store *store, unsigned *ret_away);
/* How many of those that can be reached refused what they were last asked to decide. If there are
 * any: what one of them said, and who it is among several. Any thread. */
unsigned weir__remote_refusing(weir_store *store, weir_error *err);

/* ---- for those who write logs, since the library never prints ---- */

#define WEIR__LOOK_WHY_SIZE sizeof(((weir_error *)0)->message)

/* What became of a store's calls since the last look. */
struct weir__remote_look {
    bool down;                     /* servers did not decide; else only the counts have a meaning */
    bool reached;                  /* although they could be reached */
    bool partly;                   /* others do decide, as far as is known */
    unsigned servers, away;        /* that own keys; of them: that cannot be reached */
    unsigned undecided;            /* and that can be, but refused or missed their last call */
    unsigned refusing;             /* of these: that refused it */
    uint64_t by_fallback;          /* calls that the local fallback has decided so far */
    const char *meanwhile;         /* who decides in the servers' place, in words */
    int64_t deadline_us;           /* within which they have to answer */
    bool closed;                   /* the fallback denies everything */
    char why[WEIR__LOOK_WHY_SIZE]; /* in the server's words where it said something */
};
/* One thread at a time. */
void weir__remote_look(weir_store *store, struct weir__remote_look *ret);

/* ---- fallback.c: while no server decides ---- */

/* Decides in the servers' place; rows go into the requests' details. `now` is for open and closed:
 * a zone has its own clock. */
int weir__fallback_decide(const struct weir__fallback *fallback, const weir_request *requests,
                          size_t n, enum weir__mode mode, int64_t now, weir_decision *ret);
/* Renews or releases a lease that the fallback gave. 0, WEIR_ENOLEASE, or WEIR_EUNREACHABLE where
 * it has no zone. */
int weir__fallback_lease(const struct weir__fallback *fallback, weir_key key,
                         const weir_limit *limit, uint64_t lease, enum weir__lease_verb verb);
/* Corrects a charge of the fallback's zone, never one of the servers. 0, WEIR_ESETTLED, or
 * WEIR_EUNREACHABLE: it made no such charge, or has forgotten it. */
int weir__fallback_settle(const struct weir__fallback *fallback, weir_key key,
                          const weir_limit *limit, const struct weir__correction *correction);
/* Whether a settle concerns the servers: they were charged something, or are to be. */
static inline bool weir__settles_there(const struct weir__correction *correction)
{
    return correction->charged > 0 || correction->actual > 0;
}
/* Whether there was anything to forget. */
bool weir__fallback_reset(const struct weir__fallback *fallback, weir_key key);
/* A limit's share of one of `peers`, at least 1: over all peers no more than the larger of the
 * limit and their number. */
void weir__share(const weir_limit *limit, int32_t peers, weir_limit *ret);

/* ---- charges.c: what a fallback has charged ----
 *
 * The receipt of such a charge has an id and says 0, since the servers were charged nothing. How
 * much the zone was charged is known only here, and for the last charges of a process: so a receipt
 * of another process gives nothing back. */

#define WEIR__CHARGES_MAX 1024

/* NULL: without memory or randomness. */
struct weir__charges *weir__charges_create(void);
/* NULL is fine. In a child process, too: it takes no lock. */
void weir__charges_free(struct weir__charges *charges);
void weir__charges_note(struct weir__charges *charges, uint64_t id, weir_key key, int64_t amount);
/* What a key was charged under this id, the least of several; 0: nothing that is known. */
int64_t weir__charges_find(struct weir__charges *charges, uint64_t id, weir_key key);

#endif

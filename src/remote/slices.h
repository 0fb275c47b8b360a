/*
 * The slices of a redis:// store in one process: its pools (pool.h), the thread that refills them,
 * and its slot among the peers. docs/SLICES.md has the idea and its proof.
 *
 *     weir_take, weir__slices_try ─► pool: LOCAL, DENIED ──────────────────────────► answered
 *     jobs (engine.c) ─► pool: REFILL: the job's caller asks for the slice ─► Redis
 *                              JOIN: it waits for the slice that another has asked for
 *                              ASK: the request itself goes to Redis, its limit reduced
 *     the thread: refills what is half gone, gives back what nobody wants, keeps the slot
 *
 * What holds:
 *   1. A lock covers the pools of one stripe, for a step of their state machine. Nothing is sent
 *      and nobody else is called while it is held.
 *   2. Everything lies in one piece of memory that a child process gets as zeros (MADV_WIPEONFORK;
 *      where the kernel does not know that, the process id is compared). So a child has no units.
 *   3. A store with a test clock has no use of its pools, but its requests are reduced all the
 *      same.
 */
#ifndef WEIR_SLICES_H
#define WEIR_SLICES_H

#include "remote/denied.h"
#include "remote/lock.h"
#include "remote/pool.h"
#include "remote/slot.h"
#include "wire/url.h"

#include <unistd.h>

#define WEIR__SLICES_STRIPES 64
#define WEIR__SLICES_SETS 1024 /* of WEIR__POOLS_WAYS pools: 4,096 keys at once */

#define WEIR__SLICES_PER_STRIPE (WEIR__SLICES_SETS / WEIR__SLICES_STRIPES * WEIR__POOLS_WAYS)
_Static_assert(WEIR__SLICES_PER_STRIPE == 64, "a stripe has a bit for each of its pools");

struct weir__remote;
struct weir__job;

/* Pools that share a lock, 64 of them, and denials that share it, too. */
struct weir__slices_stripe {
    struct weir__lock lock;
    pthread_cond_t answered; /* a call for a slice of this stripe is over */
    unsigned joined;         /* who waits for that */
    _Atomic uint64_t refill; /* bit i: pool i of the stripe is to be refilled */
    uint64_t held;           /* bit i: it may hold something */
    /* under the lock, read without it */
    _Atomic uint64_t local, denied, slices_taken, units_taken;
} __attribute__((aligned(128)));

/* In memory that a child gets as zeros. */
struct weir__slices {
    _Atomic pid_t owner; /* the process that it works in; set last */
    bool wiped;          /* the kernel does that for us, else `owner` is compared */
    struct weir__slicing slicing;
    struct weir__remote *remote;
    _Atomic int64_t slot_us; /* until when this process has its slot; 0: it has none */
    _Atomic uint64_t central, calls;
    /* no LEAST */
    _Atomic int64_t refused_until_us; /* the server does not know LEAST: asked again then */
    /* the thread (slices_keep.c) */
    pthread_t thread;
    _Atomic uint32_t bell;         /* a futex: there is something to do */
    _Atomic uint32_t asleep, stop; /* it listens to the bell; it shall end */
    _Atomic uint32_t busy;         /* it looks at the pools now and then */
    _Atomic uint32_t slot_doubted; /* a server did not answer: has it forgotten the slot? */
    _Atomic uint32_t slot_wanted;  /* some key is hot, and there is no slot */
    _Atomic uint64_t slices_returned, slices_lost, units_returned, units_lost;
    struct weir__slot_try slot_try;     /* under remote->lock */
    uint64_t lease;                     /* of the slot; 0: none */
    uint64_t tried_lease;               /* of a try that nobody answered; 0: none */
    int64_t slot_next_us, scan_next_us; /* when to renew or try again; when to look for returns */
    int64_t idle_since_us;              /* since when no pool is used */
    int64_t doubt_us;                   /* until then a return that nobody answered may arrive */
    int64_t last_us;                    /* the store closes: by then it is done; monotonic */
    struct weir__slices_stripe stripes[WEIR__SLICES_STRIPES];
    struct weir__denied denied;
    struct weir__pools pools; /* last: the pools follow */
};

/* Whether the slices are this process's. */
static inline bool weir__slices_alive(const struct weir__slices *slices)
{
    pid_t owner = atomic_load_explicit(&slices->owner, memory_order_acquire);
    return owner != 0 && (slices->wiped || owner == getpid());
}

/* Whether the servers know LEAST, as far as is known. */
static inline bool weir__slices_may_ask(const struct weir__slices *slices, int64_t now_us)
{
    return WEIR__LIKELY(now_us >=
                        atomic_load_explicit(&slices->refused_until_us, memory_order_relaxed));
}

/* What an address says about slices. */
static inline struct weir__slicing weir__slicing_of(const struct weir__redis_url *url)
{
    return (struct weir__slicing){
        .share = url->slices, .peers = url->peers, .life_us = url->slice_life_us};
}

/* ---- their life (slices_keep.c) ---- */

/* Of a store whose fleet runs; remote->slices NULL after it: the store does not slice. 0 or a
 * code. */
int weir__slices_open(struct weir__remote *remote, weir_error *err);
/* Begins again in a child. 0, or a code: then everything is asked of the servers. */
int weir__slices_start(struct weir__remote *remote);
/* Gives back what is held and the slot, for at most one deadline; frees all. */
void weir__slices_close(struct weir__remote *remote);
/* There is something to do for the thread. Never waits. */
void weir__slices_ring(struct weir__slices *slices);

/* ---- answers without a call ---- */

/* Never waits, any thread. True: *ret is the answer (and the request's detail, if it has one).
 * False: ask. */
bool weir__slices_try(weir_store *store, const weir_request *request, weir_decision *ret);
/* The same for a take of one limit without a cost of its own, from its pool alone. */
bool weir__slices_take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                       weir_decision *ret);

/* ---- jobs (slices_jobs.c), and what else happens to keys (slices_keys.c) ---- */

/* weir__remote_do of a store that slices: answers from pools and remembered denials, asks for
 * slices, joins those who do, and sends the rest. No job makes another wait beyond its deadline. */
void weir__slices_do(struct weir__remote *remote, struct weir__job *const jobs[], size_t n);
/* Raises each of *ret, one per row, to what is withheld for the largest size that is known of its
 * state. */
void weir__slices_withheld(struct weir__remote *remote, const weir_request *requests, size_t n,
                           int64_t *ret);
/* Something was given back to a key: forgets its denials. */
void weir__slices_forgive(struct weir__remote *remote, weir_key key, const weir_limit *limit);
/* A key was reset: what is held of it is lost. */
void weir__slices_reset(struct weir__remote *remote, weir_key key);

/* ---- one step of a request, for slices_jobs.c ---- */

/* What a request wants of its pool. */
struct weir__slices_want {
    uint64_t tag[2];
    weir_key key;
    const struct weir__rule *rule;
    int64_t cost;
};
struct weir__slices_want weir__slices_want(const struct weir__slices *slices, weir_key key,
                                           const struct weir__rule *rule, int64_t cost);
/* Whether a request may be answered from a pool. */
bool weir__slices_fits(const weir_request *request);

enum weir__slices_step {
    WEIR__SLICES_DONE,   /* it is answered */
    WEIR__SLICES_REFILL, /* its caller asks for a slice */
    WEIR__SLICES_JOIN,   /* another does */
    WEIR__SLICES_SEND,   /* it goes to Redis by itself */
};
/* Spends, if it can, or asks for a slice for so long: *call is that call, or of the one to join its
 * serial. `again`: the request was counted already. */
enum weir__slices_step weir__slices_step(struct weir__slices *slices,
                                         const struct weir__slices_want *want, bool again,
                                         int64_t asks_us, struct weir__pool_call *call,
                                         weir_decision *ret);
/* Instead of a time. */
#define WEIR__SLICES_SPEND 0  /* it does not ask for a slice */
#define WEIR__SLICES_TRY (-1) /* nor does it count if it cannot spend: it will come again */

/* Whether denials of these are remembered. */
bool weir__slices_remembers(const weir_request *requests, size_t n);
/* What is known of such a call. True: it is denied, *rows (may be NULL) and *ret say how. */
bool weir__slices_recall(struct weir__slices *slices, const struct weir__denied_call *call,
                         weir_decision *rows, weir_decision *ret);
/* Redis has decided such a call, which was asked for then: notes a denial. */
void weir__slices_note(struct weir__slices *slices, const struct weir__denied_call *call,
                       const struct weir__job *job, int64_t asked_us);

/* ---- calls for slices ---- */

/* A call for a slice, outside of its pool's lock. */
struct weir__slice_ask {
    uint64_t tag[2];
    struct weir__pool_call call;
};
/* The request that asks for it: the pool's key and limit are the caller's. */
weir_request weir__slice_request(const struct weir__slice_ask *ask, weir_key key,
                                 const weir_limit *limit);
/* It is answered, or not: `code`. `need` is the cost of the caller who has waited for it, 0: nobody
 * has. That caller is served before others; true: *ret is its answer. */
bool weir__slice_answer(struct weir__slices *slices, const struct weir__slice_ask *ask,
                        const struct weir__job *job, int64_t need, weir_decision *ret);
/* Counts what is neither spent nor given back. */
void weir__slices_lose(struct weir__slices *slices, uint64_t count, int64_t units);

/* Now, and what this process may do. */
static inline struct weir__pool_now weir__slices_now(const struct weir__slices *slices)
{
    return (struct weir__pool_now){.now_us = weir__boot_us(),
                                   .slot_us =
                                       atomic_load_explicit(&slices->slot_us, memory_order_relaxed),
                                   .life_us = slices->slicing.life_us};
}

static inline struct weir__slices_stripe *weir__slices_stripe(struct weir__slices *slices,
                                                              const uint64_t tag[2])
{
    size_t set = tag[1] & (WEIR__SLICES_SETS - 1);
    return &slices->stripes[set / (WEIR__SLICES_SETS / WEIR__SLICES_STRIPES)];
}

/* The bit of a pool in its stripe. */
static inline uint64_t weir__slices_bit(const struct weir__slices *slices,
                                        const struct weir__pool *pool)
{
    return UINT64_C(1) << (size_t)(pool - slices->pools.pools) % WEIR__SLICES_PER_STRIPE;
}

/* The pool of a tag; NULL: there is none. Under its lock. */
static inline struct weir__pool *weir__slices_find(struct weir__slices *slices,
                                                   const uint64_t tag[2])
{
    return weir__pools_find(weir__pools_set(&slices->pools, tag), tag);
}

/* ---- for metrics and logs ---- */

struct weir__slices_counts {
    bool on;                /* the store slices */
    bool slot;              /* this process has its slot among the peers */
    uint64_t slices, units; /* held now */
    uint64_t slices_taken, slices_returned, slices_lost;
    uint64_t units_taken, units_returned, units_lost; /* lost: neither spent nor given back */
    uint64_t local;                                   /* decisions: allowed from a slice */
    uint64_t denied;                                  /* denied by what Redis said before */
    uint64_t central;                                 /* asked of Redis */
    uint64_t calls;                                   /* for slices, of these and beside them */
    enum weir__trouble trouble; /* why no slices are taken although there should be */
};
/* Any thread. All 0 for a store that does not slice. */
void weir__slices_count(weir_store *store, struct weir__slices_counts *ret);
/* The trouble in words, for logs; empty: there is none. */
enum weir__trouble weir__slices_trouble(weir_store *store, char ret[WEIR__TROUBLE_MAX]);

#endif

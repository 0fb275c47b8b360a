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

#include "remote/pool.h"
#include "wire/url.h"

struct weir__remote;
struct weir__slices;

/* What an address says about slices. */
static inline struct weir__slicing weir__slicing_of(const struct weir__redis_url *url)
{
    return (struct weir__slicing){
        .share = url->slices, .peers = url->peers, .life_us = url->slice_life_us};
}

/* ---- the slot among the peers: one key for library, server and nginx ----
 *
 * The limit is `concurrent PEERS lease 10s`. Keys of callers are texts, and do not begin with a
 * zero byte by accident. */

static inline weir_key weir__slot_key(void)
{
    static const char key[] = "\0weir:slices";
    return weir_key_bytes(key, sizeof key - 1);
}

#define WEIR__SLOT_LIFE_US                                                                         \
    INT64_C(9900000) /* from before it was asked for: a bit below the lease */
#define WEIR__SLOT_RENEW_US INT64_C(3000000) /* how often it is renewed */
#define WEIR__SLOT_RETRY_US INT64_C(1000000) /* and tried again where there was none */

/* ---- their life ---- */

/* Of a store whose address is read; *ret NULL: it does not slice. 0 or a code. */
int weir__slices_open(struct weir__remote *remote, struct weir__slices **ret, weir_error *err);
/* Begins in this process: at first, and after fork. 0, or a code: it asks centrally. */
int weir__slices_start(struct weir__slices *slices);
/* Gives back what is held and the slot, for at most one deadline; frees all. `forked`: in a child
 * that has not begun. */
void weir__slices_close(struct weir__slices *slices, bool forked);

/* ---- answers without a call ---- */

/* Never waits, any thread. True: *ret is the answer (and the request's detail, if it has one).
 * False: ask. */
bool weir__slices_try(weir_store *store, const weir_request *request, weir_decision *ret);

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
};
/* Any thread. All 0 for a store that does not slice. */
void weir__slices_count(weir_store *store, struct weir__slices_counts *ret);
/* Why no slices are taken although there should be, for the log; NULL: there is nothing to say. */
const char *weir__slices_trouble(weir_store *store);

#endif

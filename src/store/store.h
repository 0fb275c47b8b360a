/*
 * A store: an engine that keeps states, and a clock. The public verbs check every bound, read the
 * clock once, and hand over to the engine: a zone here, Redis in remote/. Adding a home means
 * writing one of these tables.
 */
#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include "base/clock.h"
#include "base/seat.h"
#include "core/show.h"
#include "limit/limit.h"

#include <pthread.h>
#include <stdatomic.h>

#define WEIR__SHOWN_MAX 40 /* states of one key: as many as a zone keeps */

enum weir__mode { WEIR__TAKE, WEIR__PEEK };
enum weir__lease_verb { WEIR__RENEW, WEIR__RELEASE };

/* Eight bytes by which releases of leases are noticed, also by other processes. Who wants to sleep
 * reads `rung`, sets `wanted`, asks for a slot, and if there is none sleeps while `rung` is the
 * same. A release that finds `wanted` set clears it, changes `rung` and wakes the sleepers. So a
 * release that nobody waits for costs no system call. */
struct weir__bell {
    _Atomic uint32_t rung;
    _Atomic uint32_t wanted;
};

struct weir__bells {
    struct weir__bell *key; /* rung for this key, and perhaps for some others */
    struct weir__bell *all; /* rung whenever one of the store's is */
    bool shared;            /* with other processes */
};

/* What arrives here is checked: keys, costs, waits, at most WEIR_LIMITS_MAX limits. `now` is by the
 * store's clock; an engine with a clock of its own heeds it only if store->clock.now is set. */
struct weir__engine {
    bool blocks; /* its calls wait for others with locks held: a thread in one is not cancelled */
    /* An all-or-nothing group at one instant, its details handed out, folded into ret. */
    int (*decide)(weir_store *, const weir_request *, size_t n, enum weir__mode, int64_t now,
                  weir_decision *ret);
    /* One limit, one key, default wait; NULL: decide does it. It reads the clock itself, once it
     * has asked for the key's memory: the other way round a take of one in a million keys costs
     * half as much again (bench/: million). */
    int (*take)(weir_store *, weir_key, const weir_limit *, int64_t cost, weir_decision *ret);
    int (*take_hashed)(weir_store *, const weir_hashed_key *, const weir_limit *, int64_t cost,
                       weir_decision *ret);
    /* Independent requests: every decision gets its own code. The first code that is not 0, or
     * 0. */
    int (*take_many)(weir_store *, const weir_request *, size_t n, int64_t now,
                     weir_decision *rets);
    int (*settle)(weir_store *, weir_key, const weir_limit *, const struct weir__correction *);
    /* `i` is the index of the limit with leases. */
    int (*change_lease)(weir_store *, weir_key, const weir_limit *, size_t i, uint64_t lease,
                        enum weir__lease_verb, int64_t now);
    /* *ret: whether there was anything but fresh states. */
    int (*reset)(weir_store *, weir_key, int64_t now, bool *ret);
    /* Makes room for the rules of these limits for good, and for these only; NULL: there is always
     * room. */
    int (*reserve)(weir_store *, const weir_limit *const *limits, size_t n, int64_t now,
                   weir_error *err);
    /* Every state of a key, room for WEIR__SHOWN_MAX of them. NULL: it cannot be told. */
    int (*show)(weir_store *, weir_key, int64_t now, struct weir__shown *ret, size_t *ret_count);
    /* The bells of a key. NULL: the store has none, and who waits for a slot asks again and again.
     * */
    void (*bells)(const weir_store *, weir_key, struct weir__bells *ret);
    /* Which server has a key, from 1 on; 0: not known, or there is only one. NULL: always 0. */
    unsigned (*lane)(const weir_store *, weir_key);
    /* Fills hash and store of one whose key is set; NULL: hashing ahead is of no use. */
    void (*hash)(const weir_store *, weir_hashed_key *);
    int (*info)(weir_store *, weir_zone_info *ret);
    int (*check)(weir_store *, weir_error *err);
    /* What a server said to the last call that it did not decide, or why none can be reached;
     * false: nothing. NULL: there are no servers. */
    bool (*why)(weir_store *, weir_error *err);
    void (*close)(weir_store *);
};

/* What the threads of one seat were answered. Seats lie so far apart that no two of them share a
 * cache line, wherever the store lies. */
struct weir__seat_counts {
    _Atomic uint64_t decided[2]; /* denied, allowed */
    _Atomic uint64_t delayed, failed, degraded;
    uint64_t apart[11];
};
_Static_assert(sizeof(struct weir__seat_counts) == WEIR__SEAT_BYTES, "one per seat");

/* Engines begin with this. */
struct weir_store {
    const struct weir__engine *engine;
    weir_clock clock;                        /* now NULL: the system's */
    _Atomic int64_t set_time_us;             /* what weir_store_set_time's clock shows */
    _Atomic(struct weir__waiting *) waiting; /* who waits in this process; NULL: nobody ever did */
    struct weir__seat_counts seats[WEIR__SEATS];
};

/* weir_reset, and whether there was anything to forget. */
int weir__store_reset(weir_store *store, weir_key key, bool *ret_there);
/* These limits have what they need of the store from now on, whatever others ask for meanwhile;
 * those of an earlier call no longer. WEIR_EFULL: there are more of them than it has room for, and
 * nothing changed. */
int weir__store_reserve(weir_store *store, const weir_limit *const *limits, size_t n,
                        weir_error *err);

/* Now, by the store's clock; negative where the clock is out of bounds. */
static inline int64_t weir__store_now(const weir_store *store)
{
    if (WEIR__LIKELY(!store->clock.now))
        return weir__clock_us();
    int64_t now = store->clock.now(store->clock.context);
    return now < WEIR__EXACT_MAX ? now : -1;
}

/* Every state of a key, for people who look into it; room for WEIR__SHOWN_MAX. 0 or a code. */
int weir__store_show(weir_store *store, weir_key key, struct weir__shown *ret, size_t *ret_count);
/* The one among a key's states that a rule is about, whatever its count; NULL: there is none. */
const struct weir__shown *weir__shown_under(const struct weir__shown *states, size_t n,
                                            const struct weir__rule *rule);

/* For those who make calls one after the other for many callers: keys of one lane are on one
 * server. If that is late, calls of other lanes need not wait for it. 0: any. */
static inline unsigned weir__store_lane(const weir_store *store, weir_key key)
{
    return store->engine->lane ? store->engine->lane(store, key) : 0;
}

/* What is used under one limit of a key. */
struct weir__used {
    int64_t amount;         /* also above the limit; -1: the store, or the limit, cannot tell */
    bool differs;           /* a window that was last charged under another count: `last` */
    struct weir__rule last; /* `differs`: … */
    int64_t last_left;      /* … and what is left of it */
};
/* Fills one for each limit. Where the store is out of reach, it does not know. */
void weir__store_used(weir_store *store, weir_key key, const weir_limit *limit,
                      struct weir__used ret[]);

/* Around calls of an engine that blocks: no thread is cancelled in them. */
static inline int weir__store_begin(const weir_store *store)
{
    int state = PTHREAD_CANCEL_ENABLE;
    if (store->engine->blocks)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

static inline void weir__store_end(const weir_store *store, int state)
{
    if (store->engine->blocks)
        pthread_setcancelstate(state, NULL);
}

/* ---- counting (count.c) ----
 *
 * Every take is counted once, by its answer: in store.c, but for those of an engine's take and
 * take_hashed, which count themselves. A thread adds to the counts of its own seat: no two threads
 * write to one cache line, nothing is lost. */

/* One take: its code, and its decision where that is 0. */
void weir__store_count(weir_store *store, int code, const weir_decision *decision);
/* Those of weir_take_many. */
void weir__store_count_many(weir_store *store, const weir_decision *decisions, size_t n);

static inline void weir__count_add(_Atomic uint64_t *own, uint64_t by)
{
    atomic_store_explicit(own, atomic_load_explicit(own, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

/* weir__store_count for hot paths of engines that are never degraded. */
static inline void weir__store_count_quick(weir_store *store, int code,
                                           const weir_decision *decision)
{
    uint32_t seat = weir__seat;
    if (WEIR__UNLIKELY(seat == 0 || code)) {
        weir__store_count(store, code, decision);
        return;
    }
    struct weir__seat_counts *own = (struct weir__seat_counts *)((char *)store->seats + seat);
    assert(!decision->degraded);
    weir__count_add(&own->decided[decision->allowed], 1);
    if (WEIR__UNLIKELY(decision->delay_us))
        weir__count_add(&own->delayed, 1);
}

/* The engine's why, if it has one. */
static inline bool weir__store_why(weir_store *store, weir_error *err)
{
    return store->engine->why && store->engine->why(store, err);
}

static inline bool weir__key_in_bounds(weir_key key)
{
    return key.data && key.len >= 1 && key.len <= WEIR_KEY_MAX;
}

/* Fills err (may be NULL) with what a code of a call means, and what a server said. Returns the
 * code. */
int weir__store_fail(weir_store *store, int code, weir_error *err);

/* ---- verbs.c ---- */

/* The index of the limit that has leases (there is at most one per key), or the count. */
size_t weir__leased(const weir_limit *limit);
static inline bool weir__has_leases(const weir_limit *limit)
{
    return weir__leased(limit) < limit->count;
}
/* Corrects a charge under limits of which some can be settled; now_us is filled in. 0 or a code,
 * with `err`. */
int weir__settle(weir_store *store, weir_key key, const weir_limit *limit,
                 struct weir__correction *correction, weir_error *err);
/* Whether a settle of this charge, if it came twice, might count twice: it is not remembered so
 * long. */
bool weir__settle_is_late(const weir_store *store, const char *receipt);
/* Whether what these limits charged can be settled: 0, or WEIR_EUNSUPPORTED with the reason. */
int weir__settles(const weir_limit *limit, weir_error *err);
/* A new id, never 0; 0, or -1 without randomness. */
int weir__lease_id(uint64_t *ret);
/* The id that a request which acquires has chosen for its lease; 0: the store draws one. Requests
 * of programs cannot choose: their spare room is zero. */
static inline uint64_t weir__request_lease(const weir_request *request)
{
    return request->spare[0];
}
static inline void weir__request_name_lease(weir_request *request, uint64_t lease)
{
    request->spare[0] = lease;
}

static inline bool weir__cost_in_bounds(int64_t cost)
{
    return cost >= 0 && cost <= WEIR_COST_MAX;
}

static inline bool weir__wait_in_bounds(int64_t wait_us)
{
    return wait_us == WEIR_WAIT_DEFAULT || wait_us == WEIR_WAIT_ANY ||
           (wait_us >= 0 && wait_us <= WEIR_DURATION_MAX);
}

/* Whether a request's least can be granted: 0 or a code, with the reason in err (may be NULL). */
int weir__least_check(const weir_request *request, weir_error *err);

/* 0, WEIR_EINVAL or WEIR_EUNSUPPORTED. */
static inline int weir__request_code(const weir_request *request)
{
    if (!request->limit || !weir__key_in_bounds(request->key) ||
        !weir__cost_in_bounds(request->cost) || !weir__wait_in_bounds(request->wait_us))
        return WEIR_EINVAL;
    if (WEIR__UNLIKELY(request->least)) {
        int code = weir__least_check(request, NULL);
        if (code)
            return code;
    }
    return request->acquire && !weir__has_leases(request->limit) ? WEIR_EUNSUPPORTED : 0;
}

/* What the requests of one call that have a least are granted: one amount within these. */
struct weir__budget {
    int64_t least; /* the largest of theirs; 0: none has one */
    int64_t most;  /* the smallest of their costs */
};

static inline struct weir__budget weir__budget_of(const weir_request *requests, size_t n)
{
    struct weir__budget ret = {0, WEIR_COST_MAX};
    for (size_t i = 0; i < n; i++) {
        if (WEIR__LIKELY(!requests[i].least))
            continue;
        ret.least = weir__max(ret.least, requests[i].least);
        ret.most = weir__min(ret.most, requests[i].cost);
    }
    return ret;
}

/* What the requests of a call are granted that was allowed, by the rows of their limits: the one
 * amount, or if none has a least the cost of the first. */
int64_t weir__granted(const weir_request *requests, size_t n, const weir_decision *rows);

/* ---- requests inside the library ----
 *
 * They say everything: a cost of 0 is none, `key` has the bytes also where `hashed` is set, and
 * `error` is not filled. The public verbs of the same names (requests.c) put the defaults in. */
int weir__take_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret);
/* After a take: the folded decision and the detail rows get one id, so that a charge has one
 * receipt. If the requests were charged different amounts, the folded one has no receipt. */
void weir__receipts_share(const weir_request *requests, size_t n, weir_decision *folded);
/* What is given back without a receipt, and the name of this refund. */
struct weir__refund {
    int64_t amount;
    uint64_t id; /* 0: none, so it is given back each time */
};
#define WEIR__REFUND_ID_MAX 128 /* bytes of the text */
/* The id for a text, the same everywhere. */
uint64_t weir__refund_id(const char *text, size_t len);
/* Settles a charge of the amount at now to 0, under each limit that has no cost of its own. Of a
 * log or window it is the oldest entry that counts, at most what it holds. given[i]: what limit i
 * really gave back, never more than was used; a log, window or sliding counter that others take
 * from meanwhile may tell less. WEIR_ESETTLED: all was given back before, with the same id and
 * amount. WEIR_EUNREACHABLE: the servers cannot be asked, and nothing more is given back. */
int weir__refund(weir_store *store, weir_key key, const weir_limit *limit,
                 const struct weir__refund *refund, int64_t given[WEIR_LIMITS_MAX],
                 weir_error *err);
/* The same for limit i alone, whatever its cost. `given` may be NULL if there is no id: nobody
 * asks. */
int weir__refund_limit(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                       const struct weir__refund *refund, int64_t *given);
/* What a program gave to settle, read. 0 or a code, with `err`. */
int weir__receipt_check(const char *receipt, struct weir__correction *ret, weir_error *err);
int weir__peek_all(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret);
int weir__take_many(weir_store *store, const weir_request *requests, size_t n, weir_decision *rets);
/* The same for requests that are checked, at a time that was read. */
int weir__take_many_at(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                       weir_decision *rets);
/* What a request of a program says, with its defaults, as one of these. 0 or a code, with the
 * request's error filled. */
int weir__request_read(const weir_store *store, const weir_request *request, weir_request *ret);
/* A call with requests of a program has failed: fills the error of the one that is wrong, or of the
 * first. The code. */
int weir__requests_fail(weir_store *store, const weir_request *requests, size_t n, int code);
/* Whether one of these is within its bounds; 0, or a code with the value in err. */
int weir__request_check(const weir_store *store, const weir_request *request, weir_error *err);
/* weir_wait_with for one of these; its wait_us is not read. */
int weir__wait(weir_store *store, const weir_request *request, const weir_wait_options *options,
               weir_decision *ret, weir_error *err);
/* Something of a key was given back: who waits for it in this process asks again. */
void weir__wait_wake(weir_store *store, weir_key key);
static inline void weir__wait_freed(weir_store *store, weir_key key)
{
    if (WEIR__UNLIKELY(atomic_load_explicit(&store->waiting, memory_order_acquire) != NULL))
        weir__wait_wake(store, key);
}
/* Before a store is closed: ends what its waits have started. */
void weir__wait_close(weir_store *store);

/* A store in shared memory or a file answers WEIR_EBUSY where another process holds a lock for
 * longer than this; 0: it waits, as it does by default. Nothing is charged then. Before the store
 * is used by several threads. */
void weir__store_be_patient(weir_store *store, int64_t us);
/* For servers: where a zone has no room for a new key, its takes are denied, with `full` in the
 * decision, and do not fail with WEIR_EFULL. Other stores have none of their own. */
void weir__store_deny_full(weir_store *store);

/* ---- region.c ---- */

/* From now on a zone's file that is truncated under our feet ends the program with words and exit
 * code 3. */
void weir__store_guard(weir_store *store, const char *program, const char *url);
/* Where a zone that processes share is, and what was there when it was opened:
 * "/var/lib/weir/zone (a new zone, size=64m large=12%)", "/name (opened, 22 states)". Nothing of
 * other stores. */
void weir__store_put_origin(weir_store *store, struct weir__buffer *out);
/* Likewise what opening it changed: "size=1m large=12%, now size=4m large=12%". Or nothing. */
void weir__store_put_change(weir_store *store, struct weir__buffer *out);
/* What has become of a zone's file; WEIR__FILE_THERE where there is none. */
enum weir__file_state {
    WEIR__FILE_THERE,
    WEIR__FILE_GONE,     /* nothing is at its path: it is used by those who have it open */
    WEIR__FILE_REPLACED, /* another file is: every verb answers WEIR_EGONE */
    WEIR__FILE_HARMED    /* it was truncated, or its header overwritten: WEIR_EDAMAGED */
};
enum weir__file_state weir__store_file_state(weir_store *store);

/* redis: addresses, provided by remote/ in builds that have it (WEIR__WITH_REMOTE). */
int weir__remote_open(const char *url, weir_store **ret, weir_error *err);

#endif

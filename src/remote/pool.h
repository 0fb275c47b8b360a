/*
 * Pools: units of one state that Redis has charged already, held ahead so that takes of a hot key
 * need no call. docs/SLICES.md has the idea and its proof.
 *
 *     spend ─► from the grants held ───────────────► LOCAL
 *        ├──► that much has not come yet ──────────► DENIED, by what Redis said last
 *        ├──► nobody asks for the next slice yet ──► REFILL: weir__pool_ask, one call, _answer
 *        ├──► somebody does ───────────────────────► JOIN: wait for that answer, spend again
 *        └──► the key is not hot, the cost is too high ─► ASK: the request itself, size reduced
 *
 * A pool is a pure state machine in plain memory: no clock, no lock, no pointers, no I/O. So a
 * process keeps its pools on the heap (slices.c), the workers of nginx keep theirs in shared
 * memory, and the simulation of the tests drives the same code by a clock of its own. Whoever calls
 * holds a lock around the pool.
 *
 * What holds:
 *   1. Units held, also those that are over, units asked for and units on their way back are
 *      together never more than `most`.
 *   2. A unit is spent or given back or lost, once. It leaves the pool before it is given back.
 *   3. A grant ends with its life, with the slot of its process, or with its window, whatever comes
 *      first, counted from before it was asked for.
 *   4. An answer counts only for the call that is in flight now. What comes late is lost: it is
 *      neither spent nor given back.
 *   5. What is given back was held until then without a gap, under one slot. (A bucket may have
 *      refilled meanwhile. Then a return that is not counted as held pays for something else.)
 *
 * Times are microseconds of weir__boot_us, unless a name says otherwise.
 */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include "limit/limit.h"

/* ---- what slicing means for one limit ---- */

/* What a store's address says: slices=, peers= and slice-life=. */
struct weir__slicing {
    uint32_t share; /* of a limit's size, in millionths; 0: the store does not slice */
    int32_t peers;
    int64_t life_us;
};

/* What to tell about an address that slices with one peer, which is the default; NULL: nothing. */
const char *weir__slicing_note(const struct weir__slicing *slicing);

struct weir__slice_terms {
    int64_t size;     /* of the limit as written */
    int64_t withheld; /* H: by how much less Redis is asked; 0 for fixed windows */
    int64_t most;     /* h: what one process may hold */
};

/* The terms of one limit; false: it is of another kind, or too small to be sliced. */
bool weir__slice_terms(const struct weir__slicing *slicing, const struct weir__rule *rule,
                       struct weir__slice_terms *ret);
/* The same limit, its size reduced by `less`, which is below the size. */
void weir__rule_withhold(struct weir__rule *rule, int64_t less);

/* ---- one pool ---- */

#define WEIR__POOL_KEY_MAX 256 /* longer keys have no pools */
#define WEIR__POOL_GRANTS 4
/* A return takes effect within this time, or never. So it is only sent if the slot of the process,
 * and in a log the entry, lasts so much longer; and one that is not answered counts as held. */
#define WEIR__POOL_DOUBT_US INT64_C(2000000)

struct weir__grant {
    int64_t left;
    int64_t end_us;  /* from then on it is not spent */
    int64_t back_us; /* and from then on not given back, either: it is lost */
    int64_t time_us; /* of Redis: when it was charged */
};

struct weir__pool {
    uint64_t tag[2]; /* of its key and state; both 0: the place is free */
    int64_t most;
    struct weir__grant grants[WEIR__POOL_GRANTS];
    /* how much is wanted: per interval of a quarter of a life */
    int64_t since_us;              /* when the present interval began */
    int64_t wanted, wanted_before; /* units */
    uint32_t takes, takes_before;  /* requests */
    /* the call in flight */
    int64_t asked;          /* units; 0: there is none */
    int64_t asked_until_us; /* then its process is taken for dead */
    int64_t asked_least;
    uint32_t serial; /* of that call */
    bool scarce;     /* Redis gave less than was asked for, the last time */
    bool queued;     /* for the slicer's own: somebody was told to refill it */
    int32_t asker;   /* for the slicer's own: the process whose call that is */
    /* units on their way back: Redis has not said yet that it has them */
    int64_t returning;
    int64_t returning_until_us;
    /* what Redis said last */
    int64_t denied_until_us; /* until then a slice need not be asked for */
    int64_t denied_least;    /* of that many units */
    int64_t retry_us;        /* when they will have come */
    int64_t said_us;         /* when it said so */
    int64_t said_time_us;    /* and what its clock showed */
    int64_t remaining, reset_us;
    /* what it is about */
    int64_t withheld, size;
    struct weir__rule rule; /* as written */
    uint32_t key_len;
    char key[WEIR__POOL_KEY_MAX];
};

enum weir__spend {
    WEIR__SPEND_LOCAL,
    WEIR__SPEND_DENIED,
    WEIR__SPEND_REFILL,
    WEIR__SPEND_JOIN,
    WEIR__SPEND_ASK,
};

/* Now, and what the process may do. */
struct weir__pool_now {
    int64_t now_us;
    int64_t slot_us; /* until when the process holds its slot among the peers; 0: it has none */
    int64_t life_us;
};

/* A take of `cost` >= 1. LOCAL and DENIED: *ret is the answer, and *ret_refill says whether the
 * next slice should be asked for now, by somebody who does not keep a caller waiting. */
enum weir__spend weir__pool_spend(struct weir__pool *pool, const struct weir__pool_now *now,
                                  int64_t cost, weir_decision *ret, bool *ret_refill);

/* A slice to ask Redis for, at the limit reduced: at most `cost` units and at least `least`. For
 * limits that know no LEAST, which are those that shape, both are the same. */
struct weir__pool_call {
    int64_t cost, least;
    int64_t sent_us;
    int64_t end_us, back_us; /* of its grant, but for its window */
    uint32_t serial;
};

/* Begins a call; it is sent after this, not before. `need` is the cost of a caller who waits for
 * it, 0: nobody waits. False: not now (a call is in flight, nothing is needed, no slot, no room for
 * a grant). After `deadline_us` the call counts as lost, and another may begin. */
bool weir__pool_ask(struct weir__pool *pool, const struct weir__pool_now *now, int64_t need,
                    int64_t deadline_us, struct weir__pool_call *ret);
/* Redis has answered. False: too late, or the slot is gone: what it granted is lost. */
bool weir__pool_answer(struct weir__pool *pool, const struct weir__pool_now *now,
                       const struct weir__pool_call *call, const weir_decision *row);
/* It has not, and will not. */
void weir__pool_lose(struct weir__pool *pool, const struct weir__pool_call *call);
/* Redis was asked for something else of this state: what it says is news. */
void weir__pool_hear(struct weir__pool *pool, const struct weir__pool_now *now,
                     const weir_decision *row);
/* Takes out what is over or no longer wanted, one grant per call; false: nothing is. Then *ret has
 * units to give back by a settle from `left` to 0, which is sent at once and once; left 0: they are
 * lost. `all`: the store closes. */
struct weir__pool_return {
    int64_t left, lost, time_us;
};
bool weir__pool_give_back(struct weir__pool *pool, const struct weir__pool_now *now, bool all,
                          struct weir__pool_return *ret);
/* Redis has answered that settle, whatever it said. Not for one whose answer did not come: it may
 * still be on its way. */
void weir__pool_gave_back(struct weir__pool *pool, const struct weir__pool_return *back);
/* The key was reset: drops everything that is held, and returns how much. */
int64_t weir__pool_drop(struct weir__pool *pool);
/* Forgets a denial: the key was reset, settled or released. */
void weir__pool_forgive(struct weir__pool *pool);
/* Whether slices of it are worth a call: so many requests came within half a life. */
#define WEIR__POOL_HOT 4
static inline bool weir__pool_is_hot(const struct weir__pool *pool)
{
    return pool->takes + pool->takes_before >= WEIR__POOL_HOT;
}

/* What it holds now, and can spend. */
int64_t weir__pool_held(const struct weir__pool *pool, int64_t now_us);

/* ---- a table of pools, in memory of the caller's ---- */

#define WEIR__POOLS_WAYS 4

struct weir__pools {
    uint64_t secret[2];
    uint32_t sets; /* a power of two */
    struct weir__pool pools[];
};

size_t weir__pools_size(uint32_t sets);
/* 0 or WEIR_ESYSTEM: no random bytes. */
int weir__pools_init(struct weir__pools *pools, uint32_t sets);
void weir__pools_tag(const struct weir__pools *pools, weir_key key, const struct weir__rule *rule,
                     uint64_t ret[2]);
/* The first of the places where a tag may be, WEIR__POOLS_WAYS of them. */
struct weir__pool *weir__pools_set(struct weir__pools *pools, const uint64_t tag[2]);
/* The pool of a tag among these places; NULL: there is none. */
static inline struct weir__pool *weir__pools_find(struct weir__pool *set, const uint64_t tag[2])
{
    for (size_t i = 0; i < WEIR__POOLS_WAYS; i++) {
        if (set[i].tag[0] == tag[0] && set[i].tag[1] == tag[1])
            return &set[i];
    }
    return NULL;
}

/* The pool of a state, made if there is a place that nobody needs; NULL: there is none, or the key
 * is too long. A request of another size than the pool's gets NULL, too, unless the pool holds
 * nothing, and the request is larger or nobody has asked for the pool's size for a while: then the
 * pool is of that size from now on. *ret_withheld: by how much the request is to be reduced if
 * Redis is asked. */
struct weir__pool *weir__pools_place(struct weir__pools *pools, const uint64_t tag[2], weir_key key,
                                     const struct weir__rule *rule,
                                     const struct weir__slice_terms *terms, int64_t now_us,
                                     int64_t *ret_withheld);

#endif

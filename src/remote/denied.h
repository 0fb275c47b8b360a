/*
 * Denials that are remembered, so that a client that hammers does not reach Redis with every
 * request: by the library's sliced stores and by nginx.
 *
 * A table of fixed size. A call is known by a keyed hash, 128 bits, of its keys, limits and waits.
 * The denial of one request holds for its cost and any higher one, that of several only for the
 * same costs (which are part of the hash).
 *
 * What holds:
 *   1. Nothing is denied here that Redis would have allowed, except for a key that was reset,
 *      settled or released elsewhere: a denial is forgotten when its retry_after is over, counted
 *      from before it was made. weir__denied_forget is for what this process does to a key, and
 *      also meets denials that are still on their way.
 *   2. What a local fallback denied is not remembered: Redis may be back.
 *   3. A `never` is forgotten after a while, too: limits may change.
 *   4. Limits with leases are not remembered: a slot may be given back at any moment.
 *
 * No locks: whoever shares a table between threads holds one per set (`set` of a call).
 */
#ifndef WEIR_DENIED_H
#define WEIR_DENIED_H

#include "remote/pool.h"
#include "store/store.h"

#define WEIR__DENIED_SETS 1024
#define WEIR__DENIED_PLACES 4  /* per set */
#define WEIR__DENIED_LIMITS 4  /* calls with more limits are not remembered */
#define WEIR__DENIED_KEYS 4096 /* marks of keys: those that share one are forgotten together */

struct weir__denied_mark {
    uint32_t key, turn;
};

struct weir__denied_entry {
    uint64_t hash[2];
    int64_t cost;              /* of a single request; 0 where there are several */
    int64_t said_us, until_us; /* when Redis had answered; until when it holds */
    uint32_t keys;
    struct weir__denied_mark marks[WEIR__DENIED_LIMITS];
    weir_decision rows[WEIR__DENIED_LIMITS];
};

struct weir__denied {
    uint64_t secret[2];
    struct weir__slicing slicing; /* of the store; a cost above what it leaves of a limit is never
                                   * allowed */
    _Atomic uint32_t turns[WEIR__DENIED_KEYS]; /* how often such a key was forgotten */
    struct weir__denied_entry entries[WEIR__DENIED_SETS][WEIR__DENIED_PLACES];
};

/* A call, as it is known here. Made before Redis is asked. */
struct weir__denied_call {
    const weir_request *requests; /* borrowed */
    size_t count, limits;
    uint64_t hash[2];
    uint32_t set;
    int64_t cost;
    struct weir__denied_mark marks[WEIR__DENIED_LIMITS];
};

/* In memory of the caller's, which is zeros. 0 or WEIR_ESYSTEM: no random bytes. */
int weir__denied_init(struct weir__denied *denied, const struct weir__slicing *slicing);
/* False: such calls are not remembered. */
bool weir__denied_call(const struct weir__denied *denied, const weir_request *requests, size_t n,
                       struct weir__denied_call *ret);
/* Whether the same was denied a moment ago: then the answer is in *ret, and in rows, one for each
 * limit. */
bool weir__denied_find(const struct weir__denied *denied, const struct weir__denied_call *call,
                       int64_t now_us, weir_decision *rows, weir_decision *ret);
/* A call was asked at `asked_us`, and has been answered at `said_us`. Its denial is remembered for
 * the shorter of its retry_after and `longest_us`, from when it was asked. What is left of its
 * retry_after is counted from the answer, so that it is never early. */
void weir__denied_note(struct weir__denied *denied, const struct weir__denied_call *call,
                       const weir_decision *rows, const weir_decision *folded, int64_t asked_us,
                       int64_t said_us, int64_t longest_us);
/* Something was given back to this key. Any thread, without a lock. */
void weir__denied_forget(struct weir__denied *denied, weir_key key);

#endif

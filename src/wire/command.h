/*
 * The WEIR.* commands and CL.THROTTLE: arguments to requests. One reader for the server and the
 * Redis module. Everything is checked before anything is looked up. An error names the value and
 * what was expected.
 *
 *     WEIR.TAKE key limits [COST n] [LEAST n | WAIT us|any] [DETAIL]
 *                                                               WEIR.PEEK, WEIR.ACQUIRE likewise
 *     WEIR.TAKEALL n {key limits cost} … [LEAST {n} … | WAIT us|any] [ACQUIRE] [DETAIL]
 *     WEIR.SETTLE key limits receipt actual
 *     WEIR.RENEW key limits id                                  WEIR.RELEASE likewise
 *     WEIR.RESET key                                            WEIR.SHOW likewise
 *     CL.THROTTLE key max_burst count period [quantity]         redis-cell's: a token bucket of
 *                                         count per period seconds, burst max_burst + 1
 */
#ifndef WEIR_COMMAND_H
#define WEIR_COMMAND_H

#include "base/span.h"
#include "store/store.h"
#include "wire/limit_cache.h"
#include "wire/verbs.h"

/* The longest: a full TAKEALL. */
#define WEIR__COMMAND_ARGS_MAX (2 + 3 * WEIR_LIMITS_MAX + (1 + WEIR_LIMITS_MAX) + 4)

struct weir__command {
    enum weir__verb verb;
    struct weir__command_ask {
        weir_key key;
        const weir_limit *limit; /* the cache's */
        int64_t cost;
        int64_t least; /* 0: all of it */
    } asks[WEIR_LIMITS_MAX];
    size_t count;
    int64_t wait_us;
    bool detail;
    bool tells_granted; /* LEAST was said, so the reply tells what is granted */
    bool acquires;      /* its concurrent limits are held by a lease, which the reply tells */
    struct weir__span receipt; /* SETTLE */
    int64_t actual;            /* SETTLE */
    uint64_t lease;            /* RENEW, RELEASE: which; ACQUIRE: its id, 0: any */
};

/* What the asks with a least are granted together lies within this. */
struct weir__budget weir__command_budget(const struct weir__command *command);

/* Which argument is the key of ask i. */
static inline size_t weir__command_key_at(enum weir__verb verb, size_t i)
{
    return verb == WEIR__VERB_TAKEALL ? 2 + 3 * i : 1;
}

/* Reads a command's arguments, args[0] being its name. 0, or a negative WEIR_E… with err. The
 * caller has seen to it that the cache needs no turn. */
int weir__command_read(enum weir__verb verb, const struct weir__span *args, size_t n,
                       struct weir__limit_cache *cache, struct weir__command *ret, weir_error *err);

/* A whole number within bounds; a failure names `what`. */
int weir__read_whole(struct weir__span text, const char *what, int64_t least, int64_t most,
                     int64_t *ret, weir_error *err);

#endif

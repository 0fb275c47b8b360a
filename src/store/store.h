/* A store: a zone, its clock, and the bounds every request is held to before it gets there. */
#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include "limit/limit.h"
#include "store/region.h"

struct weir_store {
    struct weir__region region;
    weir_clock clock; /* now NULL: the system's */
};

/* Now, by the store's clock; negative where the clock is out of bounds. */
int64_t weir__store_now(const weir_store *store);

/* Whether a key is within its bounds. */
bool weir__key_in_bounds(weir_key key);

/* Checks, decides and folds a group; a lease id other than 0 makes it an acquire. */
int weir__decide(weir_store *store, const weir_request *requests, size_t n, enum weir__mode mode,
                 uint64_t lease_id, weir_decision *ret);

/* The ops of one checked request, for verbs other than take; their number, or a code. `ops` has room
 * for WEIR_LIMITS_MAX. After WEIR__STALE forget the hints and try again. */
int weir__ops_of(weir_store *store, const weir_request *request, int64_t now_us,
                 struct weir__op *ops);
void weir__forget_hints(const weir_limit *limit);
#define WEIR__STALE_RETRIES 16 /* rows swept away between finding and using them */

#endif

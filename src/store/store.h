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

/* The bytes of a key, hashed before or not. */
static inline weir_key weir__key_bytes(weir_key key)
{
    return key.len == WEIR_HASHED && key.data ? ((const weir_hashed *)key.data)->key : key;
}

static inline bool weir__key_in_bounds(weir_key key)
{
    key = weir__key_bytes(key);
    return key.data && key.len >= 1 && key.len <= WEIR_KEY_MAX;
}

/* ---- lease.c ---- */

/* The index of the limit that has leases (there is at most one a key), or the count. */
size_t weir__leased(const weir_limit *limit);
/* A new id, never 0; 0, or -1 without randomness. */
int weir__lease_id(uint64_t *ret);

/* ---- store.c ---- */

/* The ops of one checked request, for verbs other than take; their number, or a code. `ops` has room
 * for WEIR_LIMITS_MAX. After WEIR__STALE forget the hints and try again. */
int weir__ops_of(weir_store *store, const weir_request *request, int64_t now_us,
                 struct weir__op *ops);
void weir__forget_hints(const weir_limit *limit);
#define WEIR__STALE_RETRIES 16 /* rows swept away between finding and using them */

#endif

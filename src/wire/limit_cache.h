/*
 * Limit texts already read: bounded, for one thread. A server sees the same few texts over and
 * over.
 *
 * What is handed out lives until the next weir__limit_cache_turn, even if another text takes its
 * place; so a batch of requests turns once, before it begins. One that outlives the turn takes a
 * reference (weir__limit_ref).
 */
#ifndef WEIR_LIMIT_CACHE_H
#define WEIR_LIMIT_CACHE_H

#include "limit/limit.h"

#define WEIR__LIMIT_CACHE_SIZE 256 /* texts remembered; a new one takes the place of another */
#define WEIR__LIMIT_TEXT_MAX 1024  /* bytes of a text; longer ones are refused */
#define WEIR__LIMIT_RETIRED_MAX 64

struct weir__limit_cached {
    char *text;
    size_t len;
    weir_limit *limit;
};

struct weir__limit_cache {
    struct weir__limit_cached slots[WEIR__LIMIT_CACHE_SIZE];
    struct weir__limit_cached *last; /* looked at first: most callers have one limit */
    weir_limit *retired[WEIR__LIMIT_RETIRED_MAX];
    size_t retired_count;
};

/* The limits of a text; NULL with err. */
const weir_limit *weir__limit_cached(struct weir__limit_cache *cache, const char *text, size_t len,
                                     weir_error *err);
/* Whether a request of WEIR_LIMITS_MAX texts needs a turn first. */
static inline bool weir__limit_cache_needs_turn(const struct weir__limit_cache *cache)
{
    return cache->retired_count > WEIR__LIMIT_RETIRED_MAX - WEIR_LIMITS_MAX;
}
/* What was handed out before is used no more. */
void weir__limit_cache_turn(struct weir__limit_cache *cache);
void weir__limit_cache_clear(struct weir__limit_cache *cache);

#endif

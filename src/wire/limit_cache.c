/* See limit_cache.h. */
#include "wire/limit_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t limit_cache_place_of(const char *text, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    return (hash ^ hash >> 32) % WEIR__LIMIT_CACHE_SIZE;
}

static bool limit_cache_holds(const struct weir__limit_cached *slot, const char *text, size_t len)
{
    return slot->limit && slot->len == len && !memcmp(slot->text, text, len);
}

static const weir_limit *limit_cache_read_into(struct weir__limit_cache *cache,
                                               struct weir__limit_cached *slot, const char *text,
                                               size_t len, weir_error *err)
{
    weir_limit *limit = NULL;
    if (len >= WEIR__LIMIT_TEXT_MAX || memchr(text, 0, len)) {
        weir__fail(err, WEIR_EINVAL, 0,
                   "a limit text must have fewer than %d bytes, and no zero byte",
                   WEIR__LIMIT_TEXT_MAX);
        return NULL;
    }
    char *copy = strndup(text, len);
    if (!copy) {
        weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a limit");
        return NULL;
    }
    if (weir_limit_parse(copy, &limit, err)) {
        free(copy);
        return NULL;
    }
    assert(cache->retired_count < WEIR__LIMIT_RETIRED_MAX); /* needs_turn was asked */
    if (slot->limit)
        cache->retired[cache->retired_count++] = slot->limit;
    free(slot->text);
    *slot = (struct weir__limit_cached){copy, len, limit};
    return limit;
}

const weir_limit *weir__limit_cached(struct weir__limit_cache *cache, const char *text, size_t len,
                                     weir_error *err)
{
    if (WEIR__LIKELY(cache->last && limit_cache_holds(cache->last, text, len)))
        return cache->last->limit;
    struct weir__limit_cached *slot = &cache->slots[limit_cache_place_of(text, len)];
    cache->last = slot;
    return limit_cache_holds(slot, text, len) ? slot->limit
                                              : limit_cache_read_into(cache, slot, text, len, err);
}

void weir__limit_cache_turn(struct weir__limit_cache *cache)
{
    while (cache->retired_count > 0)
        weir_limit_free(cache->retired[--cache->retired_count]);
}

void weir__limit_cache_clear(struct weir__limit_cache *cache)
{
    weir__limit_cache_turn(cache);
    for (size_t i = 0; i < WEIR__LIMIT_CACHE_SIZE; i++) {
        weir_limit_free(cache->slots[i].limit);
        free(cache->slots[i].text);
    }
    memset(cache, 0, sizeof *cache);
}

/* Figures that are made of what the engine knows: the worst and the heaviest keys, how requests are
 * spread over keys, percentiles of delays. */
#include "desk/engine.h"

#include <assert.h>
#include <string.h>

/* ---- keys in order ---- */

/* By what, and of which keys. */
enum figures_by {
    FIGURES_DENIED,
    FIGURES_HURT,
    FIGURES_DELAYED,
    FIGURES_NOTED,
    FIGURES_REQUESTS,
    FIGURES_SPARED,
    FIGURES_PEAK
};

struct figures_order {
    const struct desk_engine *engine;
    enum figures_by by;
    size_t which; /* the candidate, or the span of a peak */
};

/* What a key weighs; 0: it is not in the list. */
static int64_t figures_weight(const struct figures_order *order, const struct desk_key *key)
{
    switch (order->by) {
    case FIGURES_DENIED:
        return desk_key_mark(order->engine, key, order->which)->denied;
    case FIGURES_HURT:
        return key->suspect ? 0 : desk_key_mark(order->engine, key, order->which)->denied;
    case FIGURES_DELAYED:
        return desk_key_mark(order->engine, key, order->which)->delayed;
    case FIGURES_NOTED:
        return *desk_key_noted(order->engine, key);
    case FIGURES_REQUESTS:
        return key->requests;
    case FIGURES_SPARED:
        return key->spared ? key->requests : 0;
    case FIGURES_PEAK:
        break;
    }
    return key->suspect ? 0 : desk_key_peaks(order->engine, key)[order->which].peak;
}

/* Whether `a` comes before `b`: it weighs more, or as much and its text comes first. */
static bool figures_before(const struct figures_order *order, const struct desk_key *a,
                           const struct desk_key *b)
{
    int64_t more = figures_weight(order, a) - figures_weight(order, b);
    if (more != 0)
        return more > 0;
    struct weir__span x = desk_key_text(order->engine, a), y = desk_key_text(order->engine, b);
    int differ = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return differ ? differ < 0 : x.len < y.len;
}

static size_t figures_top(const struct figures_order *order, const struct desk_key **ret, size_t n)
{
    size_t found = 0;
    assert(n >= 1);
    for (size_t i = 0; i < order->engine->entries; i++) {
        const struct desk_key *key = desk_engine_key(order->engine, i);
        if (!key || figures_weight(order, key) == 0 ||
            (found == n && !figures_before(order, key, ret[n - 1])))
            continue;
        size_t place = found < n ? found++ : n - 1;
        for (; place > 0 && figures_before(order, key, ret[place - 1]); place--)
            ret[place] = ret[place - 1];
        ret[place] = key;
    }
    return found;
}

size_t desk_engine_most_denied(const struct desk_engine *engine, size_t candidate,
                               const struct desk_key **ret, size_t n)
{
    assert(candidate < engine->count);
    return figures_top(&(struct figures_order){engine, FIGURES_DENIED, candidate}, ret, n);
}

size_t desk_engine_most_hurt(const struct desk_engine *engine, size_t candidate,
                             const struct desk_key **ret, size_t n)
{
    assert(candidate < engine->count);
    return figures_top(&(struct figures_order){engine, FIGURES_HURT, candidate}, ret, n);
}

size_t desk_engine_most_delayed(const struct desk_engine *engine, size_t candidate,
                                const struct desk_key **ret, size_t n)
{
    assert(candidate < engine->count);
    return figures_top(&(struct figures_order){engine, FIGURES_DELAYED, candidate}, ret, n);
}

size_t desk_engine_most_noted(const struct desk_engine *engine, const struct desk_key **ret,
                              size_t n)
{
    assert(engine->options.notes);
    return figures_top(&(struct figures_order){engine, FIGURES_NOTED, 0}, ret, n);
}

size_t desk_engine_heaviest(const struct desk_engine *engine, const struct desk_key **ret, size_t n)
{
    return figures_top(&(struct figures_order){engine, FIGURES_REQUESTS, 0}, ret, n);
}

size_t desk_engine_spared(const struct desk_engine *engine, const struct desk_key **ret, size_t n)
{
    return figures_top(&(struct figures_order){engine, FIGURES_SPARED, 0}, ret, n);
}

size_t desk_engine_busiest(const struct desk_engine *engine, size_t peak,
                           const struct desk_key **ret, size_t n)
{
    assert(engine->options.peaks && peak < DESK_PEAKS);
    return figures_top(&(struct figures_order){engine, FIGURES_PEAK, peak}, ret, n);
}

/* ---- how requests are spread over keys ---- */

static size_t figures_class(int64_t requests)
{
    size_t ret = 0;
    if (requests == 1)
        return 0;
    for (int64_t most = 9; ret + 2 < DESK_CLASSES && requests > most; most = most * 10 + 9)
        ret++;
    return ret + 1;
}

/* The smallest number that so many of a histogram do not exceed. */
static int64_t figures_percentile(const uint32_t *buckets, int64_t count, double part)
{
    int64_t wanted = (int64_t)((double)count * part + 0.999999), seen = 0;
    for (size_t i = 0; i < DESK_DELAY_BUCKETS; i++) {
        seen += buckets[i];
        if (seen >= wanted && seen > 0)
            return desk_bucket_top(i);
    }
    return 0;
}

void desk_engine_spread(const struct desk_engine *engine, struct desk_spread *ret)
{
    uint32_t buckets[DESK_DELAY_BUCKETS] = {0};
    int64_t keys = 0;
    *ret = (struct desk_spread){.classes = 0};
    for (size_t i = 0; i < engine->entries; i++) {
        const struct desk_key *key = desk_engine_key(engine, i);
        if (!key)
            continue;
        size_t class = figures_class(key->requests);
        ret->keys[class]++;
        ret->requests[class] += key->requests;
        ret->classes = class + 1 > ret->classes ? class + 1 : ret->classes;
        ret->most = weir__max(ret->most, key->requests);
        buckets[desk_bucket_of(key->requests)]++;
        keys++;
    }
    ret->median = weir__min(figures_percentile(buckets, keys, 0.5), ret->most);
    ret->p90 = weir__min(figures_percentile(buckets, keys, 0.9), ret->most);
    ret->p99 = weir__min(figures_percentile(buckets, keys, 0.99), ret->most);
}

int64_t desk_tally_delay_us(const struct desk_tally *tally, double part)
{
    if (!tally->delays)
        return 0;
    return weir__min(figures_percentile(tally->delays, tally->delayed, part),
                     tally->longest_delay_us);
}

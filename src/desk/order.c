/* See order.h. */
#include "desk/order.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
#define FIRST_ITEMS 64
#define FIRST_BYTES 4096
#define KEPT_ITEMS 65536 /* a bucket with more room is not kept for the next second */

int desk_order_init(struct desk_order *order, int64_t disorder_us, bool spread)
{
    assert(disorder_us > 0 && disorder_us <= DESK_DISORDER_MAX);
    *order = (struct desk_order){.disorder_us = disorder_us, .spread = spread};
    order->bucket_count = 4;
    while (order->bucket_count < (size_t)(disorder_us / SECOND_US) + 4)
        order->bucket_count *= 2;
    order->buckets = calloc(order->bucket_count, sizeof *order->buckets);
    return order->buckets ? 0 : WEIR_ENOMEM;
}

static void order_drop(struct desk_bucket *bucket)
{
    free(bucket->items);
    free(bucket->bytes);
    *bucket = (struct desk_bucket){0};
}

/* Empty, but with its room, unless that is a lot. */
static void order_clear(struct desk_bucket *bucket)
{
    if (bucket->room > KEPT_ITEMS)
        order_drop(bucket);
    bucket->count = bucket->used = bucket->whole = 0;
    bucket->from_us = 0;
    bucket->sorted = true;
}

void desk_order_free(struct desk_order *order)
{
    for (size_t i = 0; order->buckets && i < order->bucket_count; i++)
        order_drop(&order->buckets[i]);
    order_drop(&order->given);
    free(order->buckets);
    order->buckets = NULL;
}

static struct desk_bucket *order_bucket(struct desk_order *order, int64_t second)
{
    return &order->buckets[(size_t)second & (order->bucket_count - 1)];
}

/* ---- putting ---- */

static int order_make_room(struct desk_bucket *bucket, size_t bytes)
{
    if (bucket->count == bucket->room) {
        size_t room = bucket->room ? 2 * bucket->room : FIRST_ITEMS;
        struct desk_waiting *items = realloc(bucket->items, room * sizeof *items);
        if (!items)
            return WEIR_ENOMEM;
        bucket->items = items;
        bucket->room = room;
    }
    if (bytes > bucket->size - bucket->used) {
        size_t size = bucket->size ? 2 * bucket->size : FIRST_BYTES;
        while (size - bucket->used < bytes)
            size *= 2;
        char *grown = realloc(bucket->bytes, size);
        if (!grown)
            return WEIR_ENOMEM;
        bucket->bytes = grown;
        bucket->size = size;
    }
    return 0;
}

static int order_add(struct desk_bucket *bucket, const struct desk_arrival *arrival,
                     int64_t time_us, bool whole)
{
    size_t bytes = arrival->key.len + arrival->carried_len;
    if ((bucket->count == bucket->room || bytes > bucket->size - bucket->used) &&
        order_make_room(bucket, bytes))
        return WEIR_ENOMEM;
    struct desk_waiting *item = &bucket->items[bucket->count];
    bucket->sorted = (bucket->count == 0 || bucket->sorted) &&
                     (bucket->count == 0 || item[-1].time_us <= time_us);
    *item = (struct desk_waiting){.time_us = time_us,
                                  .hash = {arrival->hash[0], arrival->hash[1]},
                                  .cost = arrival->cost,
                                  .line = arrival->line,
                                  .file = arrival->file,
                                  .number = (uint32_t)bucket->count,
                                  .at = (uint32_t)bucket->used,
                                  .key_len = (uint32_t)arrival->key.len,
                                  .carried_len = arrival->carried_len,
                                  .whole = whole};
    memcpy(bucket->bytes + bucket->used, arrival->key.data, arrival->key.len);
    if (arrival->carried_len > 0)
        memcpy(bucket->bytes + bucket->used + arrival->key.len, arrival->carried,
               arrival->carried_len);
    bucket->used += bytes;
    bucket->whole += whole;
    bucket->count++;
    return 0;
}

/* Everything before this second may be given. */
static void order_allow(struct desk_order *order, int64_t second)
{
    if (second > order->until)
        order->until = second;
}

void desk_order_advance(struct desk_order *order, int64_t time_us)
{
    if (!order->started || time_us <= order->newest_us)
        return;
    order->newest_us = time_us;
    order_allow(order, (time_us - order->disorder_us) / SECOND_US);
}

/* Too many wait: the oldest bucket must not. If it is the only one, it is given in part. */
static void order_relieve(struct desk_order *order)
{
    int64_t oldest = order->base;
    while (order_bucket(order, oldest)->count == 0 && oldest < order->second)
        oldest++;
    order->crowded += (int64_t)order_bucket(order, oldest)->count;
    order_allow(order, oldest + 1);
}

int desk_order_put(struct desk_order *order, const struct desk_arrival *arrival, bool whole)
{
    assert(order->given_at == order->given.count);
    int64_t time_us = arrival->time_us, second = time_us / SECOND_US;
    if (!order->started) {
        order->started = true;
        order->base = order->until =
            (int64_t)weir__max(0, second - order->disorder_us / SECOND_US - 1);
        order->second = second;
        order->first_us = order->newest_us = time_us;
    }
    if (second - order->base >= (int64_t)order->bucket_count) {
        desk_order_advance(order, time_us);
        return DESK_ORDER_GIVE_FIRST;
    }
    if (second < order->base) {
        order->late++;
        time_us = weir__max(order->base * SECOND_US, order->given_us);
        time_us = weir__max(time_us, order->first_us);
        second = weir__max(order->base, order->first_us / SECOND_US);
        whole = false;
    } else if (time_us < order->newest_us) {
        order->out_of_order++;
    }
    if (second > order->second)
        order->second = second;
    size_t bytes = arrival->key.len + arrival->carried_len;
    if (order_add(order_bucket(order, second), arrival, time_us, whole && order->spread))
        return WEIR_ENOMEM;
    order->waiting++;
    order->waiting_bytes += bytes;
    desk_order_advance(order, time_us);
    if (order->waiting >= DESK_WAITING_MAX || order->waiting_bytes >= DESK_WAITING_BYTES)
        order_relieve(order);
    return 0;
}

void desk_order_end(struct desk_order *order)
{
    order->ended = true;
    if (order->started)
        order_allow(order, order->second + 1);
}

/* ---- giving ---- */

static int order_compare(const void *a, const void *b)
{
    const struct desk_waiting *x = a, *y = b;
    if (x->time_us != y->time_us)
        return x->time_us < y->time_us ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Spreads times of whole seconds over what is left of their second, all of it if it is over. */
static void order_spread(struct desk_order *order, struct desk_bucket *bucket, int64_t to_us)
{
    int64_t i = 0, n = (int64_t)bucket->whole, span = to_us - bucket->from_us;
    for (size_t j = 0; j < bucket->count; j++) {
        struct desk_waiting *item = &bucket->items[j];
        if (!item->whole)
            continue;
        item->time_us += bucket->from_us + i++ * span / n;
    }
    order->spread_count += n;
    if (bucket->whole < bucket->count)
        bucket->sorted = false;
}

/* Makes a bucket the one that is given. */
static void order_give(struct desk_order *order, struct desk_bucket *bucket, bool over)
{
    int64_t to_us = over ? SECOND_US : bucket->from_us + (SECOND_US - bucket->from_us) / 2;
    if (bucket->whole > 0)
        order_spread(order, bucket, to_us);
    if (!bucket->sorted)
        qsort(bucket->items, bucket->count, sizeof *bucket->items, order_compare);
    order->waiting -= bucket->count;
    order->waiting_bytes -= bucket->used;
    struct desk_bucket empty = order->given;
    order->given = *bucket;
    order->given_at = 0;
    *bucket = empty;
    order_clear(bucket);
    bucket->from_us = over ? 0 : to_us;
}

/* The next bucket that may be given and is not empty; false: there is none. */
static bool order_give_next(struct desk_order *order)
{
    while (order->base < order->until) {
        struct desk_bucket *bucket = order_bucket(order, order->base);
        bool last = order->base == order->second; /* more may come for this second */
        if (order->base > order->second) {
            order->base = order->until;
            break;
        }
        if (bucket->count == 0) {
            bucket->from_us = 0;
            order->base++;
            continue;
        }
        bool over = !last || order->ended ||
                    order->newest_us - order->disorder_us >= (order->base + 1) * SECOND_US;
        order_give(order, bucket, over);
        if (over)
            order->base++;
        else
            order->until = order->base;
        return true;
    }
    return false;
}

bool desk_order_next(struct desk_order *order, struct desk_arrival *ret)
{
    if (order->given_at == order->given.count) {
        order_clear(&order->given);
        order->given_at = 0;
        if (!order_give_next(order))
            return false;
    }
    const struct desk_waiting *item = &order->given.items[order->given_at++];
    const char *key = order->given.bytes + item->at;
    order->given_us = weir__max(order->given_us, item->time_us);
    *ret = (struct desk_arrival){.time_us = order->given_us,
                                 .hash = {item->hash[0], item->hash[1]},
                                 .key = {key, item->key_len},
                                 .cost = item->cost,
                                 .line = item->line,
                                 .file = item->file,
                                 .carried_len = item->carried_len,
                                 .carried = key + item->key_len};
    return true;
}

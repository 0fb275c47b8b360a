/*
 * Arrivals put in the order of their times. Lines of a log are nearly in order: a server writes a
 * line when the answer is sent. So arrivals wait in a bucket for their second until the log is
 * `disorder` further; then nobody can come before them.
 *
 *     base                                newest
 *      │ second │ second │ second │ … │ second │        a ring of buckets, one per second
 *      └ next to be given          disorder ┘
 *
 * What holds: arrivals are given in the order of their times, of equal times in the order in which
 * they were put. The i-th of n arrivals of a second whose times are whole seconds gets i/n of that
 * second. One that comes too late gets the time of the oldest bucket, but not one before the first
 * arrival. No more than DESK_WAITING_MAX arrivals and DESK_WAITING_BYTES of their keys wait; with
 * more, the oldest do not wait any longer.
 */
#ifndef WEIR_DESK_ORDER_H
#define WEIR_DESK_ORDER_H

#include "desk/desk.h"

#define DESK_WAITING_BYTES ((size_t)128 << 20)

/* An arrival that waits; its key and what it carries are in the bytes of its bucket. */
struct desk_waiting {
    int64_t time_us;
    uint64_t hash[2];
    int64_t cost, line;
    uint32_t file;
    uint32_t number; /* in its bucket */
    uint32_t at, key_len, carried_len;
    bool whole; /* its time is a whole second, and to be spread */
};

struct desk_bucket {
    struct desk_waiting *items;
    size_t count, room;
    char *bytes;
    size_t used, size;
    size_t whole;    /* of the items */
    bool sorted;     /* so far */
    int64_t from_us; /* the part of its second that was given away already */
};

struct desk_order {
    struct desk_bucket *buckets;
    size_t bucket_count; /* a power of two */
    int64_t disorder_us;
    bool spread;
    bool started, ended;
    int64_t base;      /* the second of the oldest bucket */
    int64_t first_us;  /* time that was put */
    int64_t newest_us; /* time that was put */
    int64_t second;    /* of the newest bucket in use */
    size_t waiting, waiting_bytes;
    struct desk_bucket given; /* being given; its items are in order */
    size_t given_at;
    int64_t given_us; /* the time of the last one */
    int64_t until;    /* buckets before this second may be given */
    int64_t out_of_order, late, crowded, spread_count;
};

int desk_order_init(struct desk_order *order, int64_t disorder_us, bool spread);
void desk_order_free(struct desk_order *order);

/* Copies the arrival. whole: its time is in whole seconds. 0, WEIR_ENOMEM, or
 * DESK_ORDER_GIVE_FIRST: it is so far ahead that others must be given before it is put again.
 * Nothing may be put while there is something to give: desk_order_next said false. */
#define DESK_ORDER_GIVE_FIRST 1
int desk_order_put(struct desk_order *order, const struct desk_arrival *arrival, bool whole);
/* The next one, if it may be given; it lives until the next call of desk_order_put or this. */
bool desk_order_next(struct desk_order *order, struct desk_arrival *ret);
/* Time went by without arrivals: as if one had come at this time. */
void desk_order_advance(struct desk_order *order, int64_t time_us);
/* Nothing will be put any more: all may be given. */
void desk_order_end(struct desk_order *order);

#endif

/*
 * The playground: people describe a load, and the real library decides it under a virtual clock,
 * once for each limit. This is what POST /v1/simulate does; docs/DASHBOARD.md describes request and
 * answer.
 *
 *     JSON ─► playground_read.c ─► weir__play ─► playground.c: arrivals
 *                                                          │ each limit in its own store
 *     JSON ◄─ counts, bins, the most in any span ◄─────────┘
 *
 * What holds: nothing outside the call is touched, the work is bounded by WEIR__PLAY_REQUESTS_MAX,
 * and the same body gives the same answer.
 */
#ifndef WEIR_PLAYGROUND_H
#define WEIR_PLAYGROUND_H

#include "base/buffer.h"

#include <stdatomic.h>
#include <stddef.h>

#define WEIR__PLAY_LIMITS_MAX 6
#define WEIR__PLAY_REQUESTS_MAX 200000 /* of the load, times the number of single limits */
#define WEIR__PLAY_KEYS_MAX 10000
#define WEIR__PLAY_RATE_MAX 1000000 /* requests per second */
#define WEIR__PLAY_LEAST_US 1000    /* the shortest load, and the shortest time between bursts */
#define WEIR__PLAY_TEXT_MAX 1024    /* bytes of a limit text, the NUL included */
#define WEIR__PLAY_ROOM (256 << 10) /* bytes that hold every answer */

/* Decodes the body (in place), plays it, writes the answer. On success *ret is written, on failure
 * *err. WEIR_ENOMEM: the machine has no memory. WEIR_EBUSY: *stop became true meanwhile (NULL: it
 * never does). Any other code: the body is wrong. */
int weir__simulate(char *body, size_t len, const atomic_bool *stop, struct weir__buffer *ret,
                   weir_error *err);

/* ---- a load, as it was read ---- */

enum weir__load_kind {
    WEIR__STEADY,  /* evenly spaced */
    WEIR__BURSTS,  /* many at one instant, repeated */
    WEIR__EDGES,   /* many just before and just after every second edge of a window */
    WEIR__POISSON, /* at random, independently of each other */
};

struct weir__load {
    enum weir__load_kind kind;
    int64_t rate_millionths; /* requests per second; with bursts and edges: a steady background */
    int64_t burst;
    int64_t every_us; /* between bursts; with edges: the length of the attacked window */
    int64_t keys;     /* used in turn; by a poisson load at random */
    int64_t cost;     /* of each request */
    int64_t span_us;
    int64_t seed;
    int64_t wait_us; /* as in weir_request */
};

struct weir__play {
    struct weir__load load;
    bool shared; /* the limits are sizes of one limit: requests take turns, all on one state */
    weir_limit *limits[WEIR__PLAY_LIMITS_MAX];
    size_t limit_count;
};

/* playground_read.c */
int weir__play_read(char *body, size_t len, struct weir__play *ret, weir_error *err);
void weir__play_free(struct weir__play *play);

/* One request of a load. */
struct weir__play_arrival {
    int64_t at_us; /* since the load began, below its span, in order */
    uint32_t key;
};

/* All requests of a load, malloc'ed. More than `most` is an error, and so is none. */
int weir__load_arrivals(const struct weir__load *load, int64_t most,
                        struct weir__play_arrival **ret, size_t *ret_count, weir_error *err);
/* When the load begins: at the edge of a window of `every`, or at midnight (UTC). */
int64_t weir__load_start_us(const struct weir__load *load);

#endif

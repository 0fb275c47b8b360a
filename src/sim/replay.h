/*
 * A trace decided under a virtual clock: each request at its own time, in the order given. And the
 * tally: totals, every key with its denials, a timeline. The tally identifies a key by a hash under
 * a random secret, and keeps the place of the key in the trace instead of its text.
 */
#ifndef WEIR_REPLAY_H
#define WEIR_REPLAY_H

#include "base/buffer.h"
#include "sim/classes.h"
#include "sim/plot.h"
#include "sim/trace.h"

struct weir__replay {
    weir_store *store;
    const weir_limit *limit;
    struct weir__classes *classes; /* their shares apply instead, and count; NULL: none */
    int64_t wait_us;
    /* Gets every decision. A code other than 0 ends the replay with that code. */
    int (*decided)(void *context, const struct weir__arrival *arrival,
                   const weir_decision *decision);
    /* Called now and then with how much of the trace is done; may be NULL. */
    void (*progress)(void *context, size_t done, size_t all);
    void *context;
};

/* The trace must have passed weir__trace_check. Afterwards the store must not be used any more: its
 * clock was replaced. */
int weir__replay_run(const struct weir__replay *replay, const struct weir__trace *trace,
                     weir_error *err);

/* The URL of a private store that is large enough: that many requests evict nothing in use. */
void weir__replay_store_url(const weir_limit *limit, int64_t requests, struct weir__buffer *ret);

/* A key as a CSV field, quoted where it must be. */
void weir__put_csv(struct weir__buffer *buffer, const char *text, size_t len);

/* ---- the tally ---- */

struct weir__tally_key {
    uint64_t hash[2];
    size_t offset; /* of its first request in the trace */
    int64_t requests, denied;
};

struct weir__tally {
    int64_t requests, allowed, denied;
    int64_t cost_allowed, cost_denied; /* saturating */
    int64_t longest_delay_us;
    size_t keys;
    struct weir__tally_key *table; /* open addressing; requests 0: empty */
    size_t capacity;               /* a power of two */
    uint64_t secret[2];
    struct weir__timeline timeline;
};

/* The timeline has the span of the trace. */
int weir__tally_init(struct weir__tally *tally, const struct weir__trace_facts *facts, size_t bins,
                     weir_error *err);
void weir__tally_free(struct weir__tally *tally);

int weir__tally_add(struct weir__tally *tally, const struct weir__arrival *arrival,
                    const weir_decision *decision);

/* The most denied keys, most first, at most n of them; how many. */
size_t weir__tally_most_denied(const struct weir__tally *tally, struct weir__tally_key *ret,
                               size_t n);

#endif

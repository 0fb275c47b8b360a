/*
 * What a replay adds up: totals, every key with its denials, a timeline. Keys are told apart by a
 * hash under a secret of its own and kept as places in the trace, not as text.
 */
#ifndef WEIR_TALLY_H
#define WEIR_TALLY_H

#include "sim/timeline.h"
#include "sim/trace.h"

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

/* The timeline spans what the trace does. */
int weir__tally_init(struct weir__tally *tally, const struct weir__trace_facts *facts, size_t bins,
                     weir_error *err);
void weir__tally_free(struct weir__tally *tally);

int weir__tally_add(struct weir__tally *tally, const struct weir__arrival *arrival,
                    const weir_decision *decision);

/* The most denied keys, most first, at most n of them; how many. */
size_t weir__tally_most_denied(const struct weir__tally *tally, struct weir__tally_key *ret,
                               size_t n);

#endif

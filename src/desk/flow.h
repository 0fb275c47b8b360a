/*
 * Two threads: one reads and selects (where arrivals come from), the caller's decides and adds up.
 * Arrivals travel in batches of a few thousand, in two rooms that are swapped.
 *
 * What holds: a batch belongs to one thread at a time. `next` and `where` are called only by the
 * reading thread, everything else only by the caller's.
 */
#ifndef WEIR_DESK_FLOW_H
#define WEIR_DESK_FLOW_H

#include "desk/engine.h"

struct desk_flow {
    void *source;
    int (*next)(void *source, struct desk_arrival *ret, weir_error *err); /* an enum desk_next */
    /* How much of the input is done; size -1: unknown. NULL: nobody knows. */
    void (*where)(void *source, int64_t *ret_done, int64_t *ret_size);
    /* The source waits for nothing more; what is there still comes. NULL: it just ends. */
    void (*finish)(void *source);
    void *context;
    /* A code that is not 0 ends it. */
    int (*take)(void *context, const struct desk_arrival *arrival, weir_error *err);
    /* After each batch. `idle`: nothing more came for a while. NULL: nobody cares. */
    void (*passed)(void *context, int64_t done, int64_t size, bool idle);
    const struct desk_engine *engine; /* whose memory is asked for ahead; may be NULL */
    const _Atomic int *stop;          /* set: as if the input ended; may be NULL */
};

/* Until the input ends. 0, or the code of `next` or `take`. */
int desk_flow_run(const struct desk_flow *flow, weir_error *err);

#endif

/* A trace decided under a virtual clock: each request at its own time, in the order given. */
#ifndef WEIR_REPLAY_H
#define WEIR_REPLAY_H

#include "base/buffer.h"
#include "sim/trace.h"

struct weir__replay {
    weir_store *store;
    const weir_limit *limit;
    int64_t wait_us;
    /* Told of every decision; not 0 ends the replay with that code. */
    int (*decided)(void *context, const struct weir__arrival *arrival,
                   const weir_decision *decision);
    /* Told now and then how much of the trace is done; may be NULL. */
    void (*progress)(void *context, size_t done, size_t all);
    void *context;
};

/* The trace must have passed weir__trace_check. The store keeps its own clock afterwards no more.
 */
int weir__replay_run(const struct weir__replay *replay, const struct weir__trace *trace,
                     weir_error *err);

/* The address of a private store in which nothing alive is evicted by that many requests. */
void weir__replay_store_url(const weir_limit *limit, int64_t requests, struct weir__buffer *ret);

/* A key as a CSV field, quoted where it must be. */
void weir__put_csv(struct weir__buffer *buffer, const char *text, size_t len);

#endif

/* What a steady flood gets through a limit that starts fresh, by the real library. */
#ifndef WEIR_FLOOD_H
#define WEIR_FLOOD_H

#include "core/core.h"
#include "sim/timeline.h"

#define WEIR__FLOOD_TIMES 3 /* the limit's own rate */
#define WEIR__FLOOD_BINS_MAX 69

struct weir__flood {
    struct weir__timeline timeline; /* by when they go ahead; counted in costs */
    int64_t requests, cost;         /* so many, each of that cost */
    int64_t through, denied;        /* costs; those let through may still be waiting */
    int64_t waiting;                /* of `through`: told to wait beyond the plot's end */
    int64_t longest_delay_us;
    int64_t bin_amount; /* what a bin would show if everything went through at once */
};

int weir__flood_run(const struct weir__rule *rule, struct weir__flood *ret, weir_error *err);

#endif

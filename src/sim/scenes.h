/*
 * Two scenes that show what a limit does, played by the real library under a virtual clock from a
 * fresh state: a flood (`weir explain`) and the edge of a window (`weir demo`).
 */
#ifndef WEIR_SCENES_H
#define WEIR_SCENES_H

#include "core/core.h"
#include "sim/plot.h"

/* ---- the flood: a steady one, of several times the rate of the limit ---- */

#define WEIR__FLOOD_TIMES 3 /* times the rate of the limit */
#define WEIR__FLOOD_BINS_MAX 69

struct weir__flood {
    struct weir__timeline timeline; /* by when they go ahead; counted in costs */
    int64_t requests, cost;         /* how many, and the cost of each */
    int64_t through, denied;        /* costs; what went through may still be waiting */
    int64_t waiting;                /* of `through`: they wait beyond the end of the plot */
    int64_t longest_delay_us;
    int64_t bin_amount; /* what a bin would show if everything went through at once */
};

int weir__flood_run(const struct weir__rule *rule, struct weir__flood *ret, weir_error *err);

/* ---- the edge: the classic trap of fixed windows, which count the requests before it and after it
 * separately ---- */

#define WEIR__EDGE_BEFORE 200 /* requests in the last minute of an hour */
#define WEIR__EDGE_AFTER 240  /* and in the first minute of the next */
#define WEIR__EDGE_REQUESTS (WEIR__EDGE_BEFORE + WEIR__EDGE_AFTER)
#define WEIR__EDGE_SPAN_US INT64_C(120000000)

struct weir__edge {
    struct weir__timeline timeline; /* the two minutes */
    int64_t admitted, denied;
};

/* One new key under these limits; the timeline has `bins` bins. */
int weir__edge_run(const char *limits, size_t bins, struct weir__edge *ret, weir_error *err);

#endif

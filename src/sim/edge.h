/* The classic trap: requests on both sides of a window's edge, which a fixed window counts apart.
 */
#ifndef WEIR_EDGE_H
#define WEIR_EDGE_H

#include "sim/timeline.h"

#define WEIR__EDGE_BEFORE 200 /* requests in the last minute of an hour */
#define WEIR__EDGE_AFTER 240  /* and in the first minute of the next */
#define WEIR__EDGE_REQUESTS (WEIR__EDGE_BEFORE + WEIR__EDGE_AFTER)
#define WEIR__EDGE_SPAN_US INT64_C(120000000)

struct weir__edge {
    struct weir__timeline timeline; /* the two minutes */
    int64_t admitted, denied;
};

/* One fresh key under these limits, the trace in `bins` bins. */
int weir__edge_run(const char *limits, size_t bins, struct weir__edge *ret, weir_error *err);

#endif

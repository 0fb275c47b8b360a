/*
 * What a limit promises, in numbers and in words.
 *
 * A span of Y counts its first instant and not its last: two requests exactly Y apart do not share
 * one. Bounds hold for what is charged and, where a limit delays, for when the delayed go ahead;
 * they take no account of settling, of limits changed meanwhile, or of states evicted while in use.
 */
#ifndef WEIR_EXPLAIN_H
#define WEIR_EXPLAIN_H

#include "limit/limit.h"

#define WEIR__UNBOUNDED INT64_C(-1)

struct weir__facts {
    char what[336];       /* one plain sentence, or two */
    char guarantee[320];  /* "never more than …" */
    int64_t most;         /* in any span_us, or WEIR__UNBOUNDED */
    int64_t span_us;      /* 0: at any instant */
    int64_t worst_burst;  /* the most admitted at one instant, from the worst state */
    int64_t key_bytes;    /* memory a key takes in a zone, at most */
    bool requests_of_one; /* the bounds count requests that cost 1, not their costs */
};

void weir__explain(const struct weir__rule *rule, struct weir__facts *ret);
/* The same of limit i, with its own cost. */
void weir__explain_limit(const weir_limit *limit, size_t i, struct weir__facts *ret);

#define WEIR__EDGES_SHOWN 3
#define WEIR__EDGE_MAX 40
/* When the next windows of the calendar begin, after a time, as clocks of the limit's zone show it:
 * "2026-12-15T00:00:00+08:00". False: the limit does not go by the calendar. */
bool weir__explain_edges(const struct weir__rule *rule, int64_t now_us,
                         char ret[WEIR__EDGES_SHOWN][WEIR__EDGE_MAX]);
/* When the window of this time began; of a limit that has edges. */
void weir__explain_began(const struct weir__rule *rule, int64_t now_us, char ret[WEIR__EDGE_MAX]);

#endif

/* What went through and what was denied, over equal stretches of time. */
#ifndef WEIR_TIMELINE_H
#define WEIR_TIMELINE_H

#include "base/base.h"

#include <stddef.h>

#define WEIR__BINS_MAX 240

struct weir__bin {
    int64_t through, denied;
};

struct weir__timeline {
    int64_t start_us;
    int64_t span_us; /* of all bins together, at least 1 */
    size_t count;
    struct weir__bin bins[WEIR__BINS_MAX];
};

/* count bins over the span from start on. */
static inline void weir__timeline_init(struct weir__timeline *timeline, int64_t start_us,
                                       int64_t span_us, size_t count)
{
    *timeline = (struct weir__timeline){.start_us = start_us, .span_us = span_us, .count = count};
}

/* The bin of a time, or NULL outside the span. */
static inline struct weir__bin *weir__timeline_bin(struct weir__timeline *timeline, int64_t time_us)
{
    int64_t since = time_us - timeline->start_us;
    if (since < 0 || since >= timeline->span_us)
        return NULL;
    return &timeline->bins[(__int128)since * (int64_t)timeline->count / timeline->span_us];
}

/* The tallest bin, at least 1: what a plot is scaled to. */
static inline int64_t weir__timeline_peak(const struct weir__timeline *timeline)
{
    int64_t peak = 1;
    for (size_t i = 0; i < timeline->count; i++)
        peak = weir__max(peak, timeline->bins[i].through + timeline->bins[i].denied);
    return peak;
}

#endif

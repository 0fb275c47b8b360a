/*
 * A timeline, and its plot: what went through and what was denied, over equal spans of time. A plot
 * is drawn with block characters, one row of text at a time, so that several plots can stand side
 * by side. A bar shows what went through, and on top of it what was denied.
 */
#ifndef WEIR_PLOT_H
#define WEIR_PLOT_H

#include "base/base.h"
#include "base/buffer.h"

#include <assert.h>
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

/* `count` bins over the span that begins at start_us. */
static inline void weir__timeline_init(struct weir__timeline *timeline, int64_t start_us,
                                       int64_t span_us, size_t count)
{
    assert(count >= 1 && count <= WEIR__BINS_MAX && span_us >= 1);
    *timeline = (struct weir__timeline){.start_us = start_us, .span_us = span_us, .count = count};
}

/* The bin of a time; NULL: the time is outside the span. */
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

/* ---- the plot ---- */

struct weir__plot {
    const struct weir__timeline *timeline;
    size_t bar_width; /* characters per bin */
    int rows;
    int64_t scale; /* what a bar of full height stands for */
    bool colour;   /* otherwise: shades */
};

/* Characters across. */
size_t weir__plot_width(const struct weir__plot *plot);
/* Row 0 is the top. */
void weir__plot_row(struct weir__buffer *buffer, const struct weir__plot *plot, int row);
/* A sample of each kind, for the legend. */
void weir__plot_sample(struct weir__buffer *buffer, bool colour, bool denied);

#endif

/*
 * Bars over time, drawn with block characters a row at a time, so that several plots can stand side
 * by side: what went through from the ground up, what was denied on top of it.
 */
#ifndef WEIR_PLOT_H
#define WEIR_PLOT_H

#include "base/buffer.h"
#include "sim/timeline.h"

struct weir__plot {
    const struct weir__timeline *timeline;
    size_t bar_width; /* characters a bin */
    int rows;
    int64_t scale; /* what a bar of full height stands for */
    bool colour;   /* else: shades */
};

/* Characters across. */
size_t weir__plot_width(const struct weir__plot *plot);
/* Row 0 is the top. */
void weir__plot_row(struct weir__buffer *buffer, const struct weir__plot *plot, int row);
/* A sample of each kind, for the legend. */
void weir__plot_sample(struct weir__buffer *buffer, bool colour, bool denied);

#endif

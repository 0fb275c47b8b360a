/*
 * A line on a terminal that says how a stream is getting on: how much, how fast, for how long, and
 * if its size is known what part of it and how long it will still take. It is drawn again twice a
 * second. Without a terminal nothing is drawn.
 */
#ifndef WEIR_CLI_PROGRESS_H
#define WEIR_CLI_PROGRESS_H

#include "base/buffer.h"

#define CLI_PROGRESS_EVERY_US 500000
#define CLI_PROGRESS_SAMPLES 8 /* the speed is that of so many drawings */

struct cli_progress {
    bool on, lines;       /* lines: they are counted beside bytes */
    const char *label;    /* before all else; may be NULL */
    int64_t total;        /* bytes there will be; -1: nobody knows */
    int64_t begun_us;     /* by the monotonic clock, as all of these */
    int64_t next_us;      /* when to draw; INT64_MAX: never */
    int64_t bytes, units; /* done; units: bytes or lines */
    unsigned drawn;
    struct {
        int64_t time_us, units;
    } samples[CLI_PROGRESS_SAMPLES];
};

void cli_progress_begin(struct cli_progress *progress, int64_t now_us);
/* The text as of now. */
void cli_progress_put(const struct cli_progress *progress, int64_t now_us,
                      struct weir__buffer *out);
/* Draws it, if it is time. */
void cli_progress_show(struct cli_progress *progress, int64_t now_us);
/* Draws it for the last time. */
void cli_progress_end(struct cli_progress *progress, int64_t now_us);

#endif

/*
 * Lines of Prometheus text (0.0.4) and OpenMetrics (1.0): families and their samples.
 *
 * The two differ in little: OpenMetrics names a counter's family without `_total` and an info's
 * without `_info`, has a line for the unit, and a last line.
 */
#ifndef WEIR_SERVER_METRICS_LINES_H
#define WEIR_SERVER_METRICS_LINES_H

#include "base/buffer.h"

enum server_family { SERVER_COUNTER, SERVER_GAUGE, SERVER_INFO, SERVER_SPREAD };

struct server_lines {
    struct weir__buffer *out;
    bool openmetrics;
    const char *name;   /* of the family begun last, without its ending */
    const char *ending; /* "_total", "_info" or "" */
};

struct server_label {
    const char *name, *value;
};

/* Begins a family. `name` without ending; a unit ("seconds", "bytes") is its last word; NULL: none. */
void server_lines_family(struct server_lines *lines, enum server_family type, const char *name,
                         const char *unit, const char *help);
/* A sample of the family: labels until one without a name. */
void server_lines_put(struct server_lines *lines, const struct server_label *labels,
                      uint64_t value);
/* The same for fractions: `value` in units of 10^-digits. */
void server_lines_put_decimal(struct server_lines *lines, const struct server_label *labels,
                              uint64_t value, int digits);
/* A family of one sample without labels. */
void server_lines_single(struct server_lines *lines, enum server_family type, const char *name,
                         const char *unit, const char *help, uint64_t value);

#define SERVER_LABELS(...) ((const struct server_label[]){__VA_ARGS__, {NULL, NULL}})
#define SERVER_NO_LABELS ((const struct server_label[]){{NULL, NULL}})

#endif

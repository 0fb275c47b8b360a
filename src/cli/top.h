/*
 * What `weir top` knows and how it looks: the numbers of GET /v1/stats and /v1/top, how fast they
 * change, which is the difference of two readings, and a frame drawn from them.
 */
#ifndef WEIR_CLI_TOP_H
#define WEIR_CLI_TOP_H

#include "cli/cli.h"

#define CLI_TOP_ROWS_MAX 1000 /* policies and limits; further ones are not shown */
#define CLI_TOP_KEYS_MAX 64   /* per list, over all policies */

/* A policy, or one of its limits. */
struct cli_top_row {
    struct cli_shown policy, limit; /* limit empty: the whole policy */
    bool shadow;
    uint64_t allowed, denied;
    double allowed_rate, denied_rate; /* per second */
};

struct cli_top_key {
    struct cli_shown policy, key;
    double rate;
    bool whole; /* all of it is in `key` */
};

struct cli_top_keys {
    struct cli_top_key rows[CLI_TOP_KEYS_MAX]; /* the greatest rate first */
    size_t count;
};

/* The counters, in the order of the answer: requests, then decisions. */
enum cli_top_counter {
    CLI_TOP_HTTP,
    CLI_TOP_RESP,
    CLI_TOP_GRPC,
    CLI_TOP_ALLOWED,
    CLI_TOP_DENIED,
    CLI_TOP_FAILED,
    CLI_TOP_SHADOW_DENIED,
    CLI_TOP_COUNTS,
};

/* A counter, and its rate per second since the last reading. */
struct cli_top_count {
    uint64_t value;
    double rate;
};

struct cli_top_model {
    struct cli_shown version, store;
    double time, uptime; /* seconds */
    bool degraded, has_zone;
    struct cli_top_count counts[CLI_TOP_COUNTS];
    uint64_t open, refused;
    uint64_t latency_count;
    double p50, p99, p999; /* seconds */
    uint64_t zone_keys, zone_capacity, zone_lost;
    struct cli_top_row rows[CLI_TOP_ROWS_MAX];
    size_t row_count;
    struct cli_top_keys hottest, denied_keys;
};

/* Fills in the numbers of /v1/stats; `text` is changed. False: it is not an answer of weir. */
bool cli_top_read_stats(char *text, size_t len, struct cli_top_model *ret);
/* Fills in the lists of keys of /v1/top, in the same way. */
bool cli_top_read_keys(char *text, size_t len, struct cli_top_model *ret);
/* Sets the rates of `now`: the changes since `before`. */
void cli_top_compare(const struct cli_top_model *before, struct cli_top_model *now);

struct cli_top_view {
    struct cli_style style;
    int width, height; /* height 0: as many lines as needed */
    const char *address;
    const char *trouble; /* why the numbers are old; NULL: they are not */
    bool live;           /* lines replace those of the last frame */
};

/* Draws one frame. */
void cli_top_draw(const struct cli_top_view *view, const struct cli_top_model *top,
                  struct weir__buffer *out);

#endif

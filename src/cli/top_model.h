/*
 * What `weir top` knows: the numbers of GET /v1/stats and /v1/top, and how fast they move, which is the
 * difference of two readings.
 */
#ifndef WEIR_CLI_TOP_MODEL_H
#define WEIR_CLI_TOP_MODEL_H

#include "cli/cli.h"

#define CLI_TOP_ROWS_MAX 1000 /* policies and limits; more are not shown */
#define CLI_TOP_KEYS_MAX 64   /* a list, over all policies */

/* A policy, or one of its limits. */
struct cli_top_row {
    struct cli_shown policy, limit; /* limit empty: the policy as a whole */
    bool shadow;
    uint64_t allowed, denied;
    double allowed_rate, denied_rate; /* per second */
};

struct cli_top_key {
    struct cli_shown policy, key;
    double rate;
};

struct cli_top_keys {
    struct cli_top_key rows[CLI_TOP_KEYS_MAX]; /* the greatest rate first */
    size_t count;
};

/* Counters, and what they were per second since the reading before. */
struct cli_top_count {
    uint64_t value;
    double rate;
};

struct cli_top_model {
    struct cli_shown version, store;
    double time, uptime; /* seconds */
    bool degraded, has_zone, has_rates;
    struct cli_top_count http, resp, grpc, allowed, denied, failed, shadow_denied;
    uint64_t open, refused;
    uint64_t latency_count;
    double p50, p99, p999; /* seconds */
    uint64_t zone_keys, zone_capacity, zone_lost;
    struct cli_top_row rows[CLI_TOP_ROWS_MAX];
    size_t row_count;
    struct cli_top_keys hottest, denied_keys;
};

/* Fills the parts that /v1/stats tells; `text` is spoilt. false: it is not weir's. */
bool cli_top_read_stats(char *text, size_t len, struct cli_top_model *ret);
/* Fills the lists of keys from /v1/top, likewise. */
bool cli_top_read_keys(char *text, size_t len, struct cli_top_model *ret);
/* The rates of `now` since `before`. */
void cli_top_compare(const struct cli_top_model *before, struct cli_top_model *now);

#endif

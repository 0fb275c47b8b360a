/* What the files of metrics share: the counters of all threads, the names, and their sums. */
#ifndef WEIR_SERVER_METRICS_INSIDE_H
#define WEIR_SERVER_METRICS_INSIDE_H

#include "server/observe/metrics.h"
#include "server/observe/metrics_names.h"

#include <pthread.h>

#define SERVER_METRICS_WINDOW 10 /* ticks that "the last ten seconds" are */

/* How things stood at a tick. */
struct server_metrics_moment {
    int64_t time_us;
    uint64_t degraded;
    struct server_histogram latency;
};

struct server_metrics {
    struct server_metrics_setup setup;
    struct server_counters **threads;
    pthread_mutex_t lock; /* of all that follows */
    struct server_names series, rules;
    struct server_counters sums; /* of all threads, as of the last report; its arrays too */
    struct server_metrics_moment moments[SERVER_METRICS_WINDOW];
    uint64_t ticks;
    size_t policies_loaded;
    uint64_t reloads_ok, reloads_failed;
    int64_t reloaded_us; /* the last that went well, or the start */
    bool reload_failing;
    int64_t certificate_expires; /* seconds since the epoch; 0: there is none */
};

/* ---- metrics_sum.c, under the lock ---- */

void server_metrics_sum(struct server_metrics *metrics);
/* What was recorded since the oldest moment kept, from sums that are up to date. */
struct server_metrics_window {
    struct server_histogram latency;
    uint64_t degraded;
    int64_t span_us;
};
void server_metrics_window(const struct server_metrics *metrics, int64_t now_us,
                           struct server_metrics_window *ret);

/* ---- metrics_decisions.c, likewise ---- */

struct server_lines;
void server_metrics_write_decisions(const struct server_metrics *metrics,
                                    struct server_lines *lines);

/* ---- metrics_process.c ---- */

/* What the system says of this process; -1 where it does not tell. */
struct server_process {
    int64_t cpu_us, resident_bytes, virtual_bytes, open_files, most_files;
};
void server_process_look(struct server_process *ret);

#endif

/*
 * Sums over all threads. Counters are read one by one while they move: a report is not of one
 * instant, but each number is one that was, and none ever goes back.
 */
#include "server/observe/metrics_inside.h"

#include <string.h>

/* Adds n counters that stand side by side. */
static void add(void *to, const void *from, size_t n)
{
    uint64_t *const sums = to;
    const uint64_t *const counters = from;
    for (size_t i = 0; i < n; i++)
        sums[i] += __atomic_load_n(&counters[i], __ATOMIC_RELAXED);
}

#define WORDS(type) (sizeof(type) / sizeof(uint64_t))
/* All before the histogram is counters. */
#define PLAIN (offsetof(struct server_counters, latency) / sizeof(uint64_t))

void server_metrics_sum(struct server_metrics *metrics)
{
    struct server_counters *const sums = &metrics->sums;
    memset(sums, 0, offsetof(struct server_counters, series));
    memset(sums->series, 0, metrics->series.count * sizeof *sums->series);
    memset(sums->rules, 0, metrics->rules.count * sizeof *sums->rules);
    for (size_t i = 0; i < metrics->setup.threads; i++) {
        const struct server_counters *const thread = metrics->threads[i];
        add(sums, thread, PLAIN);
        server_histogram_add(&sums->latency, &thread->latency);
        add(sums->series, thread->series, metrics->series.count * WORDS(struct server_series));
        add(sums->rules, thread->rules, metrics->rules.count * WORDS(struct server_rule));
    }
}

void server_metrics_window(const struct server_metrics *metrics, int64_t now_us,
                           struct server_metrics_window *ret)
{
    *ret = (struct server_metrics_window){
        .latency = metrics->sums.latency,
        .degraded = metrics->sums.series[SERVER_SERIES_TOTAL].degraded,
        .span_us = now_us - metrics->setup.now_us,
    };
    if (metrics->ticks < SERVER_METRICS_WINDOW)
        return;
    const struct server_metrics_moment *const oldest =
        &metrics->moments[metrics->ticks % SERVER_METRICS_WINDOW];
    server_histogram_subtract(&ret->latency, &oldest->latency);
    ret->degraded -= oldest->degraded;
    ret->span_us = now_us - oldest->time_us;
}

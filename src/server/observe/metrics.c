/* Metrics: making them, naming series and rules, reloads and ticks. */
#include "server/observe/metrics_inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The counters of a thread lie in one mapping of their own: pages come when they are touched, and no
 * two threads write to one cache line. */
#define SERIES_AT ((sizeof(struct server_counters) + 63) / 64 * 64)
#define RULES_AT (SERIES_AT + SERVER_SERIES_MAX * sizeof(struct server_series))
#define COUNTERS_SIZE (RULES_AT + SERVER_RULES_MAX * sizeof(struct server_rule))

_Static_assert(sizeof(struct server_series) == 64, "a series is a cache line");

static struct server_counters *counters_create(void)
{
    char *const memory = mmap(NULL, COUNTERS_SIZE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    struct server_counters *const counters = (struct server_counters *)memory;
    counters->series = (struct server_series *)(memory + SERIES_AT);
    counters->rules = (struct server_rule *)(memory + RULES_AT);
    return counters;
}

static void counters_destroy(struct server_counters *counters)
{
    if (counters)
        munmap(counters, COUNTERS_SIZE);
}

/* No policy can have it, and it is never shown. */
#define TOTAL_NAME "\001"

/* The ids that are always there; their order is that of SERVER_SERIES_…. */
static bool name_the_constant(struct server_metrics *metrics)
{
    return server_names_id(&metrics->series, TOTAL_NAME, "") == SERVER_SERIES_TOTAL &&
           server_names_id(&metrics->series, "", "") == SERVER_SERIES_ADHOC &&
           server_names_id(&metrics->series, "(other)", "") == SERVER_SERIES_OTHER &&
           server_names_id(&metrics->rules, "(other)", "") == SERVER_RULE_OTHER;
}

static bool make_parts(struct server_metrics *metrics)
{
    const size_t threads = metrics->setup.threads;
    metrics->threads = calloc(threads, sizeof(struct server_counters *));
    if (!metrics->threads)
        return false;
    for (size_t i = 0; i < threads; i++) {
        metrics->threads[i] = counters_create();
        if (!metrics->threads[i])
            return false;
    }
    metrics->sums.series = calloc(SERVER_SERIES_MAX, sizeof(struct server_series));
    metrics->sums.rules = calloc(SERVER_RULES_MAX, sizeof(struct server_rule));
    return metrics->sums.series && metrics->sums.rules &&
           server_names_create(&metrics->series, SERVER_SERIES_MAX) == 0 &&
           server_names_create(&metrics->rules, SERVER_RULES_MAX) == 0 &&
           name_the_constant(metrics);
}

int server_metrics_create(const struct server_metrics_setup *setup, struct server_metrics **ret,
                          weir_error *err)
{
    struct server_metrics *const metrics = calloc(1, sizeof *metrics);
    if (metrics) {
        metrics->setup = *setup;
        metrics->reloaded_us = setup->now_us;
        pthread_mutex_init(&metrics->lock, NULL);
        if (make_parts(metrics)) {
            *ret = metrics;
            return WEIR_OK;
        }
    }
    server_metrics_destroy(metrics);
    return weir__fail(err, WEIR_ENOMEM, 0, "no memory for the metrics of %zu threads",
                      setup->threads);
}

void server_metrics_destroy(struct server_metrics *metrics)
{
    if (!metrics)
        return;
    for (size_t i = 0; metrics->threads && i < metrics->setup.threads; i++)
        counters_destroy(metrics->threads[i]);
    free(metrics->threads);
    free(metrics->sums.series);
    free(metrics->sums.rules);
    server_names_destroy(&metrics->series);
    server_names_destroy(&metrics->rules);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

struct server_counters *server_metrics_thread(struct server_metrics *metrics, size_t i)
{
    return metrics->threads[i];
}

/* ---- names ---- */

uint32_t server_metrics_series(struct server_metrics *metrics, const char *policy,
                               const char *entry)
{
    pthread_mutex_lock(&metrics->lock);
    const uint32_t id = server_names_id(&metrics->series, policy, entry ? entry : "");
    pthread_mutex_unlock(&metrics->lock);
    return id == SERVER_NO_NAME ? SERVER_SERIES_OTHER : id;
}

uint32_t server_metrics_rule(struct server_metrics *metrics, const char *domain, const char *name)
{
    pthread_mutex_lock(&metrics->lock);
    const uint32_t id = server_names_id(&metrics->rules, domain, name);
    pthread_mutex_unlock(&metrics->lock);
    return id == SERVER_NO_NAME ? SERVER_RULE_OTHER : id;
}

/* ---- what happens now and then ---- */

void server_metrics_reloaded(struct server_metrics *metrics, bool ok, int64_t now_us)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->reload_failing = !ok;
    if (ok) {
        metrics->reloads_ok++;
        metrics->reloaded_us = now_us;
    } else {
        metrics->reloads_failed++;
    }
    pthread_mutex_unlock(&metrics->lock);
}

void server_metrics_certificate(struct server_metrics *metrics, int64_t expires)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->certificate_expires = expires;
    pthread_mutex_unlock(&metrics->lock);
}

void server_metrics_tick(struct server_metrics *metrics, int64_t now_us)
{
    pthread_mutex_lock(&metrics->lock);
    struct server_metrics_moment *const moment =
        &metrics->moments[metrics->ticks++ % SERVER_METRICS_WINDOW];
    *moment = (struct server_metrics_moment){.time_us = now_us};
    for (size_t i = 0; i < metrics->setup.threads; i++) {
        const struct server_counters *const thread = metrics->threads[i];
        server_histogram_add(&moment->latency, &thread->latency);
        moment->degraded +=
            __atomic_load_n(&thread->series[SERVER_SERIES_TOTAL].degraded, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&metrics->lock);
}

size_t server_metrics_room(struct server_metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    const size_t names = metrics->series.count + metrics->rules.count;
    const size_t bytes = metrics->series.bytes + metrics->rules.bytes;
    pthread_mutex_unlock(&metrics->lock);
    /* Of a pair at most six lines are told, 150 bytes each without its names, and an escaped byte of
     * a name takes two; in JSON once, an escaped byte six. */
    return 32768 + names * 6 * 150 + bytes * 6 * 2;
}

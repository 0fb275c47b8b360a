/* The report for the dashboard, `weir top` and scripts: the body of GET /v1/stats. */
#include "server/observe/observe.h"

#include "remote/slices.h"
#include "wire/json.h"

#include <string.h>

static uint64_t stats_sum_of(const uint64_t *counts, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

static void stats_put_traffic(struct weir__json *json, const struct server_counters *sums)
{
    const uint64_t accepted = stats_sum_of(sums->accepted, SERVER_PROTOCOLS);
    const uint64_t closed = stats_sum_of(sums->closed, SERVER_PROTOCOLS);
    weir__json_open(json, "connections", '{');
    weir__json_put_uint(json, "open", accepted > closed ? accepted - closed : 0);
    weir__json_put_uint(json, "accepted", accepted);
    weir__json_put_uint(json, "refused", stats_sum_of(sums->refused, SERVER_REFUSALS_COUNT));
    weir__json_close(json, '}');
    weir__json_open(json, "requests", '{');
    weir__json_put_uint(json, "http", sums->requests[SERVER_HTTP]);
    weir__json_put_uint(json, "resp", sums->requests[SERVER_RESP]);
    weir__json_put_uint(json, "grpc", sums->requests[SERVER_GRPC]);
    weir__json_close(json, '}');
    weir__json_put_uint(json, "errors",
                        stats_sum_of(sums->faults[0], SERVER_PROTOCOLS * SERVER_FAULTS_COUNT));
}

static void stats_put_latency(struct weir__json *json, const struct server_metrics_window *window)
{
    const struct {
        const char *name;
        double share;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    const struct server_histogram *const latency = &window->latency;
    weir__json_open(json, "latency", '{');
    for (size_t i = 0; i < WEIR__COUNT(quantiles); i++)
        weir__json_put_double(json, quantiles[i].name,
                              (double)server_histogram_quantile(latency, quantiles[i].share) / 1e9);
    weir__json_put_uint(json, "count", server_histogram_count(latency));
    weir__json_put_seconds(json, "window", weir__max(window->span_us, 0));
    weir__json_close(json, '}');
}

static void stats_put_slices(struct weir__json *json, weir_store *store)
{
    char trouble[WEIR__TROUBLE_MAX];
    struct weir__slices_counts slices;
    weir__slices_count(store, &slices);
    weir__slices_trouble(store, trouble);
    weir__json_open(json, "slices", '{');
    weir__json_put_bool(json, "slot", slices.slot);
    weir__json_put_string(json, "trouble", trouble[0] ? trouble : NULL);
    weir__json_put_uint(json, "held", slices.slices);
    weir__json_put_uint(json, "taken", slices.slices_taken);
    weir__json_put_uint(json, "returned", slices.slices_returned);
    weir__json_put_uint(json, "lost", slices.slices_lost);
    weir__json_put_uint(json, "units_held", slices.units);
    weir__json_put_uint(json, "units_taken", slices.units_taken);
    weir__json_put_uint(json, "units_returned", slices.units_returned);
    weir__json_put_uint(json, "units_lost", slices.units_lost);
    weir__json_put_uint(json, "by_slice", slices.local);
    weir__json_put_uint(json, "by_denial", slices.denied);
    weir__json_put_uint(json, "by_redis", slices.central);
    weir__json_put_uint(json, "calls", slices.calls);
    weir__json_close(json, '}');
}

static void stats_put_store(struct weir__json *json, const struct server_metrics *metrics,
                            const struct server_metrics_window *window)
{
    const char *const kind = metrics->setup.store_kind;
    weir_zone_info zone;
    if (metrics->setup.store && weir_store_info(metrics->setup.store, &zone) == WEIR_OK) {
        weir__json_open(json, "zone", '{');
        weir__json_put_uint(json, "size", zone.size);
        weir__json_put_uint(json, "keys", zone.keys);
        weir__json_put_uint(json, "capacity", zone.capacity);
        weir__json_put_uint(json, "large_bytes", zone.large_bytes);
        weir__json_put_uint(json, "large_used", zone.large_used);
        weir__json_put_uint(json, "evicted_fresh", zone.evicted_fresh);
        weir__json_put_uint(json, "evicted_unused", zone.evicted_unused);
        weir__json_put_uint(json, "evicted_soonest", zone.evicted_soonest);
        weir__json_put_uint(json, "evicted_receipts", zone.evicted_receipts);
        weir__json_put_uint(json, "repairs", zone.repairs);
        weir__json_put_uint(json, "refused", zone.refused);
        weir__json_put_bool(json, "deleted", metrics->zone_deleted);
        weir__json_close(json, '}');
    }
    weir__json_open(json, "store", '{');
    weir__json_put_string(json, "kind", kind);
    weir__json_put_bool(json, "degraded", window->degraded > 0);
    if (metrics->setup.sliced)
        stats_put_slices(json, metrics->setup.sliced);
    weir__json_close(json, '}');
}

static void stats_put_limit(struct weir__json *json, const struct server_name *name,
                            const struct server_series *series)
{
    const bool shadow = name->shadow;
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "name", name->second);
    weir__json_put_bool(json, "shadow", shadow);
    weir__json_put_uint(json, "allowed", shadow ? series->shadow_allowed : series->allowed);
    weir__json_put_uint(json, "denied", shadow ? series->shadow_denied : series->denied);
    if (name->gone)
        weir__json_put_bool(json, "gone", true);
    weir__json_close(json, '}');
}

static void stats_put_policy(struct weir__json *json, const struct server_metrics *metrics,
                             uint32_t id)
{
    const struct server_name *const names = metrics->series.names;
    const struct server_series *const series = &metrics->sums.series[id];
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "name", names[id].first);
    weir__json_put_uint(json, "allowed", series->allowed + series->list_allowed);
    weir__json_put_uint(json, "denied", series->denied + series->list_denied);
    weir__json_put_uint(json, "degraded", series->degraded);
    weir__json_put_uint(json, "failed", series->failed);
    if (names[id].gone)
        weir__json_put_bool(json, "gone", true);
    weir__json_open(json, "limits", '[');
    for (uint32_t i = names[id].child; i; i = names[i].next)
        stats_put_limit(json, &names[i], &metrics->sums.series[i]);
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

static void stats_put_policies(struct weir__json *json, const struct server_metrics *metrics)
{
    weir__json_open(json, "policies", '[');
    for (uint32_t i = SERVER_SERIES_ADHOC; i < metrics->series.count; i++) {
        const struct server_series *const series = &metrics->sums.series[i];
        const bool empty = !(series->allowed + series->denied + series->failed);
        if (!metrics->series.names[i].second[0] && !(i == SERVER_SERIES_OTHER && empty))
            stats_put_policy(json, metrics, i);
    }
    weir__json_close(json, ']');
}

static void stats_put_totals(struct weir__json *json, const struct server_metrics *metrics)
{
    const struct server_series *const total = &metrics->sums.series[SERVER_SERIES_TOTAL];
    uint64_t shadow_allowed = 0, shadow_denied = 0;
    for (uint32_t i = SERVER_SERIES_ADHOC; i < metrics->series.count; i++) {
        shadow_allowed += metrics->sums.series[i].shadow_allowed;
        shadow_denied += metrics->sums.series[i].shadow_denied;
    }
    weir__json_open(json, "totals", '{');
    weir__json_put_uint(json, "allowed", total->allowed + total->list_allowed);
    weir__json_put_uint(json, "denied", total->denied + total->list_denied);
    weir__json_put_uint(json, "degraded", total->degraded);
    weir__json_put_uint(json, "failed", total->failed);
    weir__json_put_uint(json, "unmatched", metrics->sums.unmatched);
    weir__json_put_uint(json, "shadow_allowed", shadow_allowed);
    weir__json_put_uint(json, "shadow_denied", shadow_denied);
    weir__json_close(json, '}');
}

void server_metrics_json(struct server_metrics *metrics, int64_t now_us, struct weir__buffer *out)
{
    struct weir__json json = {.out = out};
    struct server_metrics_window window;
    pthread_mutex_lock(&metrics->lock);
    server_metrics_sum(metrics);
    server_metrics_window(metrics, now_us, &window);
    weir__json_open(&json, NULL, '{');
    weir__json_put_string(&json, "version", WEIR_VERSION);
    weir__json_put_seconds(&json, "time", now_us);
    weir__json_put_seconds(&json, "uptime", weir__max(now_us - metrics->setup.now_us, 0));
    stats_put_traffic(&json, &metrics->sums);
    stats_put_latency(&json, &window);
    stats_put_store(&json, metrics, &window);
    stats_put_policies(&json, metrics);
    stats_put_totals(&json, metrics);
    weir__json_open(&json, "reloads", '{');
    weir__json_put_uint(&json, "ok", metrics->reloads_ok);
    weir__json_put_uint(&json, "failed", metrics->reloads_failed);
    weir__json_put_bool(&json, "failing", metrics->reload_failing);
    weir__json_put_seconds(&json, "last", metrics->reloaded_us);
    weir__json_close(&json, '}');
    weir__json_close(&json, '}');
    pthread_mutex_unlock(&metrics->lock);
}

/*
 * The last hour, in bins of ten seconds, so that the charts of a page that was just opened are not
 * empty: the body of GET /v1/history.
 *
 *     once a second      server_metrics_tick ─► at each full ten seconds a bin is closed: what the
 *                        counters have grown by since the last one
 *     when it is asked   the bins that are closed, and what the counters have grown by since then
 *
 * What holds:
 *   1. At most SERVER_HISTORY_SERIES series have bins: the totals, and policies and limits in the
 *      order in which they were loaded first. A series gets its memory when it first counts
 *      something. So the history is bounded: 31 KiB, and 4320 bytes per series.
 *   2. Edges grow. A clock that is set back empties the history.
 *   3. The lock of the metrics is held in all of this.
 */
#include "server/observe/observe.h"
#include "wire/json.h"

#include <assert.h>
#include <stdlib.h>

#define HISTORY_BIN_US (SERVER_HISTORY_BIN_SECONDS * INT64_C(1000000))

static const struct {
    const char *name;
    double share;
} history_quantiles[SERVER_HISTORY_QUANTILES] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}};

int server_history_create(int64_t now_us, struct server_history **ret)
{
    struct server_history *const history = calloc(1, sizeof *history);
    if (!history)
        return WEIR_ENOMEM;
    history->last_us = now_us;
    *ret = history;
    return WEIR_OK;
}

void server_history_destroy(struct server_history *history)
{
    if (!history)
        return;
    for (size_t i = 0; i < SERVER_HISTORY_SERIES; i++)
        free(history->series[i]);
    free(history);
}

/* ---- what was counted ---- */

static uint32_t history_kept(const struct server_metrics *metrics)
{
    return (uint32_t)weir__min(metrics->series.count, SERVER_HISTORY_SERIES);
}

/* The counters of a series, as the last sums have them. */
static struct server_history_sums history_sums_of(const struct server_metrics *metrics, uint32_t id)
{
    const struct server_name *const names = metrics->series.names;
    const struct server_series *const all = metrics->sums.series, *const own = &all[id];
    if (names[id].second[0] && names[id].shadow)
        return (struct server_history_sums){own->shadow_allowed, own->shadow_denied, 0};
    struct server_history_sums sums = {own->allowed + own->list_allowed,
                                       own->denied + own->list_denied, 0};
    if (id == SERVER_SERIES_TOTAL) {
        for (uint32_t i = SERVER_SERIES_ADHOC; i < metrics->series.count; i++)
            sums.shadow_denied += all[i].shadow_denied;
    } else if (!names[id].second[0]) {
        for (uint32_t i = names[id].child; i; i = names[i].next)
            sums.shadow_denied += all[i].shadow_denied;
    }
    return sums;
}

/* A limit that becomes a shadow limit is counted by other counters, which may be lower. */
static uint32_t history_growth(uint64_t now, uint64_t before)
{
    return now < before ? 0 : (uint32_t)weir__min((int64_t)(now - before), UINT32_MAX);
}

/* What a series has counted since the last bin. */
static struct server_history_counts history_since(const struct server_metrics *metrics, uint32_t id)
{
    const struct server_history_sums now = history_sums_of(metrics, id);
    const struct server_history_sums *const before = &metrics->history->before[id];
    return (struct server_history_counts){
        history_growth(now.allowed, before->allowed),
        history_growth(now.denied, before->denied),
        history_growth(now.shadow_denied, before->shadow_denied),
    };
}

static void history_latencies(const struct server_metrics *metrics,
                              uint64_t ret[SERVER_HISTORY_QUANTILES])
{
    struct server_histogram since = metrics->sums.latency;
    server_histogram_subtract(&since, &metrics->history->latency);
    for (size_t i = 0; i < SERVER_HISTORY_QUANTILES; i++)
        ret[i] = server_histogram_quantile(&since, history_quantiles[i].share);
}

/* ---- closing a bin ---- */

static void history_close_series(struct server_metrics *metrics, uint32_t id, size_t at)
{
    struct server_history *const history = metrics->history;
    const struct server_history_counts since = history_since(metrics, id);
    if (!history->series[id] && since.allowed + since.denied + since.shadow_denied > 0)
        history->series[id] = calloc(SERVER_HISTORY_BINS, sizeof *history->series[id]);
    if (history->series[id]) /* without memory it is left out */
        history->series[id][at] = since;
    history->before[id] = history_sums_of(metrics, id);
}

/* The clock was set back. What was counted before that is in no bin of the new time. */
static void history_begin_again(struct server_metrics *metrics, int64_t now_us)
{
    struct server_history *const history = metrics->history;
    server_metrics_sum(metrics);
    for (uint32_t id = 0; id < history_kept(metrics); id++)
        history->before[id] = history_sums_of(metrics, id);
    history->latency = metrics->sums.latency;
    history->last_us = now_us;
    history->done = 0;
}

void server_history_tick(struct server_metrics *metrics, int64_t now_us)
{
    struct server_history *const history = metrics->history;
    assert(server_lock_is_held(&metrics->lock));
    if (now_us < history->last_us) {
        history_begin_again(metrics, now_us);
        return;
    }
    if (now_us / HISTORY_BIN_US == history->last_us / HISTORY_BIN_US)
        return;
    const size_t at = history->done % SERVER_HISTORY_BINS;
    server_metrics_sum(metrics);
    history->bins[at] = (struct server_history_bin){.begin_us = history->last_us, .end_us = now_us};
    history_latencies(metrics, history->bins[at].latency_ns);
    for (uint32_t id = 0; id < history_kept(metrics); id++)
        history_close_series(metrics, id, at);
    history->latency = metrics->sums.latency;
    history->last_us = now_us;
    history->done++;
}

/* ---- the report ---- */

/* The bins that are told: `count` closed ones from `first` on, then what is since. */
struct history_range {
    struct weir__json *json;
    const struct server_metrics *metrics;
    uint64_t first;
    size_t count;
    int64_t now_us;
};

static const struct server_history_bin *history_bin(const struct history_range *range, size_t i)
{
    assert(i < range->count);
    return &range->metrics->history->bins[(range->first + i) % SERVER_HISTORY_BINS];
}

/* One member of all bins of a series; `member` is its place in the counts. */
static void history_put_member(const struct history_range *range, const char *name, uint32_t id,
                               size_t member)
{
    const struct server_history_counts *const ring = range->metrics->history->series[id];
    const struct server_history_counts since = history_since(range->metrics, id);
    weir__json_open(range->json, name, '[');
    for (size_t i = 0; i < range->count; i++) {
        const uint32_t *const bin =
            ring ? (const uint32_t *)&ring[(range->first + i) % SERVER_HISTORY_BINS] : NULL;
        weir__json_put_uint(range->json, NULL, bin ? bin[member] : 0);
    }
    weir__json_put_uint(range->json, NULL, ((const uint32_t *)&since)[member]);
    weir__json_close(range->json, ']');
}

static void history_put_counts(const struct history_range *range, uint32_t id, bool shadow)
{
    history_put_member(range, "allowed", id, 0);
    history_put_member(range, "denied", id, 1);
    if (shadow)
        history_put_member(range, "shadow_denied", id, 2);
}

static void history_put_edges(const struct history_range *range)
{
    weir__json_open(range->json, "edges", '[');
    const int64_t last = range->metrics->history->last_us;
    weir__json_put_seconds(range->json, NULL,
                           range->count ? history_bin(range, 0)->begin_us : last);
    for (size_t i = 0; i < range->count; i++)
        weir__json_put_seconds(range->json, NULL, history_bin(range, i)->end_us);
    weir__json_put_seconds(range->json, NULL, weir__max(range->now_us, last));
    weir__json_close(range->json, ']');
}

static void history_put_latency(const struct history_range *range)
{
    uint64_t since[SERVER_HISTORY_QUANTILES];
    history_latencies(range->metrics, since);
    weir__json_open(range->json, "latency", '{');
    for (size_t q = 0; q < SERVER_HISTORY_QUANTILES; q++) {
        weir__json_open(range->json, history_quantiles[q].name, '[');
        for (size_t i = 0; i <= range->count; i++) {
            const uint64_t ns = i < range->count ? history_bin(range, i)->latency_ns[q] : since[q];
            if (ns)
                weir__json_put_double(range->json, NULL, (double)ns / 1e9);
            else
                weir__json_put_null(range->json, NULL);
        }
        weir__json_close(range->json, ']');
    }
    weir__json_close(range->json, '}');
}

static bool history_is_told(const struct history_range *range, uint32_t id)
{
    const struct server_history_counts since = history_since(range->metrics, id);
    return range->metrics->history->series[id] ||
           since.allowed + since.denied + since.shadow_denied > 0;
}

static void history_put_policy(const struct history_range *range, uint32_t id)
{
    const struct server_name *const names = range->metrics->series.names;
    weir__json_open(range->json, NULL, '{');
    weir__json_put_string(range->json, "name", names[id].first);
    history_put_counts(range, id, true);
    weir__json_open(range->json, "limits", '[');
    for (uint32_t i = names[id].child; i; i = names[i].next) {
        if (i >= SERVER_HISTORY_SERIES || !history_is_told(range, i))
            continue;
        weir__json_open(range->json, NULL, '{');
        weir__json_put_string(range->json, "name", names[i].second);
        weir__json_put_bool(range->json, "shadow", names[i].shadow);
        history_put_counts(range, i, false);
        weir__json_close(range->json, '}');
    }
    weir__json_close(range->json, ']');
    weir__json_close(range->json, '}');
}

/* The closed bins that end within the last `seconds`. */
static struct history_range history_range_of(const struct server_metrics *metrics, int64_t now_us,
                                             int64_t seconds, struct weir__json *json)
{
    const struct server_history *const history = metrics->history;
    struct history_range range = {
        .json = json,
        .metrics = metrics,
        .count = (size_t)weir__min((int64_t)history->done, SERVER_HISTORY_BINS),
        .now_us = now_us,
    };
    range.first = history->done - range.count;
    while (range.count > 0 && history_bin(&range, 0)->end_us <= now_us - seconds * 1000000) {
        range.first++;
        range.count--;
    }
    return range;
}

void server_metrics_history(struct server_metrics *metrics, int64_t now_us, int64_t seconds,
                            struct weir__buffer *out)
{
    struct weir__json json = {.out = out};
    assert(seconds >= 1);
    pthread_mutex_lock(&metrics->lock);
    server_metrics_sum(metrics);
    const struct history_range range = history_range_of(metrics, now_us, seconds, &json);
    const uint32_t kept = history_kept(metrics);
    weir__json_open(&json, NULL, '{');
    weir__json_put_seconds(&json, "time", now_us);
    weir__json_put_int(&json, "bin", SERVER_HISTORY_BIN_SECONDS);
    history_put_edges(&range);
    weir__json_open(&json, "totals", '{');
    history_put_counts(&range, SERVER_SERIES_TOTAL, true);
    weir__json_close(&json, '}');
    history_put_latency(&range);
    weir__json_open(&json, "policies", '[');
    for (uint32_t id = SERVER_SERIES_ADHOC; id < kept; id++) {
        if (!metrics->series.names[id].second[0] && history_is_told(&range, id))
            history_put_policy(&range, id);
    }
    weir__json_close(&json, ']');
    weir__json_put_uint(&json, "left_out", metrics->series.count - kept);
    weir__json_close(&json, '}');
    pthread_mutex_unlock(&metrics->lock);
}

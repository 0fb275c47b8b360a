/*
 * The report for Prometheus, family by family: the server, its connections, decisions, policies, rules,
 * the store. docs/METRICS.md lists them all; tests compare.
 */
#include "server/observe/access_log.h"
#include "server/observe/metrics_inside.h"
#include "server/observe/metrics_lines.h"

#define COUNTER(name, help) server_lines_family(lines, SERVER_COUNTER, name, NULL, help)
#define PUT(value, ...) server_lines_put(lines, SERVER_LABELS(__VA_ARGS__), value)

static const char *const PROTOCOLS[SERVER_PROTOCOLS] = {"http", "resp", "grpc"};
#define TEXT_OF(name, text) text,
static const char *const REFUSALS[] = {SERVER_REFUSALS(TEXT_OF)};
static const char *const FAULTS[] = {SERVER_FAULTS(TEXT_OF)};
#undef TEXT_OF

/* ---- the process ---- */

static void put_process(struct server_lines *lines, const struct server_metrics *metrics)
{
    struct server_process process;
    server_process_look(&process);
    server_lines_family(lines, SERVER_INFO, "weir_build", NULL, "The version that runs.");
    PUT(1, {"version", WEIR_VERSION});
    server_lines_single(lines, SERVER_GAUGE, "weir_threads", NULL, "Threads that serve requests.",
                        metrics->setup.threads);
    server_lines_family(lines, SERVER_GAUGE, "process_start_time_seconds", "seconds",
                        "When the server started, since the Unix epoch.");
    server_lines_put_decimal(lines, SERVER_NO_LABELS, (uint64_t)metrics->setup.now_us, 6);
    if (process.cpu_us >= 0) {
        server_lines_family(lines, SERVER_COUNTER, "process_cpu_seconds", "seconds",
                            "Processor time used, of the user and the system.");
        server_lines_put_decimal(lines, SERVER_NO_LABELS, (uint64_t)process.cpu_us, 6);
    }
    const struct {
        const char *name, *unit, *help;
        int64_t value;
    } gauges[] = {
        {"process_resident_memory_bytes", "bytes", "Memory in use.", process.resident_bytes},
        {"process_virtual_memory_bytes", "bytes", "Addresses in use.", process.virtual_bytes},
        {"process_open_fds", NULL, "Open file descriptors.", process.open_files},
        {"process_max_fds", NULL, "Most file descriptors there may be.", process.most_files},
    };
    for (size_t i = 0; i < WEIR__COUNT(gauges); i++) {
        if (gauges[i].value >= 0)
            server_lines_single(lines, SERVER_GAUGE, gauges[i].name, gauges[i].unit, gauges[i].help,
                                (uint64_t)gauges[i].value);
    }
}

/* ---- connections and requests ---- */

static void put_by_protocol(struct server_lines *lines, const char *name, const char *unit,
                            const char *help, const uint64_t *counts)
{
    server_lines_family(lines, SERVER_COUNTER, name, unit, help);
    for (size_t i = 0; i < SERVER_PROTOCOLS; i++)
        PUT(counts[i], {"protocol", PROTOCOLS[i]});
}

static void put_connections(struct server_lines *lines, const struct server_metrics *metrics,
                            const struct server_counters *sums)
{
    server_lines_family(lines, SERVER_GAUGE, "weir_open_connections", NULL,
                        "Connections open now.");
    for (size_t i = 0; i < SERVER_PROTOCOLS; i++) {
        /* Another thread's closing may be seen before the accepting. */
        const uint64_t accepted = sums->accepted[i], closed = sums->closed[i];
        PUT(accepted > closed ? accepted - closed : 0, {"protocol", PROTOCOLS[i]});
    }
    const uint64_t began = sums->silent_began, ended = sums->silent_ended;
    PUT(began > ended ? began - ended : 0, {"protocol", "unknown"});
    put_by_protocol(lines, "weir_accepted_connections", NULL, "Connections accepted.",
                    sums->accepted);
    COUNTER("weir_refused_connections", "Connections turned away, by reason.");
    for (size_t i = 0; i < SERVER_REFUSALS_COUNT; i++)
        PUT(sums->refused[i], {"reason", REFUSALS[i]});
    if (metrics->setup.kept)
        server_lines_single(lines, SERVER_GAUGE, "weir_kept_bytes", "bytes",
                            "Memory kept for what connections have under way.",
                            atomic_load(metrics->setup.kept));
    put_by_protocol(lines, "weir_received_bytes", "bytes", "Bytes received.", sums->bytes_in);
    put_by_protocol(lines, "weir_sent_bytes", "bytes", "Bytes sent.", sums->bytes_out);
}

static void put_requests(struct server_lines *lines, const struct server_counters *sums)
{
    static const char *const classes[] = {"1xx", "2xx", "3xx", "4xx", "5xx"};
    put_by_protocol(lines, "weir_requests", NULL, "Requests understood, by protocol.",
                    sums->requests);
    COUNTER("weir_http_responses", "HTTP answers, by class of status.");
    for (size_t i = 0; i < WEIR__COUNT(classes); i++)
        PUT(sums->statuses[i], {"class", classes[i]});
    COUNTER("weir_protocol_errors", "What peers sent and the server did not take, by kind.");
    for (size_t p = 0; p < SERVER_PROTOCOLS; p++) {
        for (size_t i = 0; i < SERVER_FAULTS_COUNT; i++)
            PUT(sums->faults[p][i], {"protocol", PROTOCOLS[p]}, {"kind", FAULTS[i]});
    }
}

/* Powers of two, so that the histogram's own bounds are told and nothing is estimated. */
#define LEAST_BITS 8 /* 256 ns */
#define MOST_BITS 34 /* 17 s */

static void put_latency(struct server_lines *lines, const struct server_histogram *latency)
{
    server_lines_family(lines, SERVER_SPREAD, "weir_decision_duration_seconds", "seconds",
                        "From a request read to its answer written.");
    lines->ending = "_bucket";
    for (uint32_t bits = LEAST_BITS; bits <= MOST_BITS; bits++) {
        const uint64_t ns = UINT64_C(1) << bits;
        char text[32];
        struct weir__buffer edge = weir__buffer_over(text, sizeof text);
        weir__put_format(&edge, "%u.%09u", (unsigned)(ns / 1000000000),
                         (unsigned)(ns % 1000000000));
        PUT(server_histogram_below(latency, bits), {"le", text});
    }
    const uint64_t count = server_histogram_count(latency);
    PUT(count, {"le", "+Inf"});
    lines->ending = "_sum";
    server_lines_put_decimal(lines, SERVER_NO_LABELS, latency->sum_ns, 9);
    lines->ending = "_count";
    server_lines_put(lines, SERVER_NO_LABELS, count);
}

/* ---- the store, the log ---- */

static void put_zone(struct server_lines *lines, const weir_zone_info *zone)
{
    const struct {
        const char *name, *unit, *help;
        uint64_t value;
    } gauges[] = {
        {"weir_zone_bytes", "bytes", "Size of the zone.", zone->size},
        {"weir_zone_states", NULL, "States held: a key under three limits has three.", zone->keys},
        {"weir_zone_states_max", NULL, "States there is room for.", zone->capacity},
        {"weir_zone_large_bytes", "bytes", "Room for logs, windows and leases.", zone->large_bytes},
        {"weir_zone_large_used_bytes", "bytes", "Of it in use.", zone->large_used},
        {"weir_zone_limits", NULL, "Different limits in use.", zone->limits},
    };
    for (size_t i = 0; i < WEIR__COUNT(gauges); i++)
        server_lines_single(lines, SERVER_GAUGE, gauges[i].name, gauges[i].unit, gauges[i].help,
                            gauges[i].value);
    COUNTER("weir_zone_evictions", "States evicted: fresh ones nobody misses, the others count.");
    PUT(zone->evicted_fresh, {"kind", "fresh"});
    PUT(zone->evicted_unused, {"kind", "unused"});
    PUT(zone->evicted_soonest, {"kind", "soonest"});
    server_lines_single(lines, SERVER_COUNTER, "weir_zone_repairs", NULL,
                        "Times that a dead process's work was put in order.", zone->repairs);
}

static void put_store(struct server_lines *lines, const struct server_metrics *metrics,
                      int64_t now_us)
{
    struct server_metrics_window window;
    server_metrics_window(metrics, now_us, &window);
    server_lines_family(lines, SERVER_INFO, "weir_store", NULL, "What keeps the state.");
    PUT(1, {"kind", metrics->setup.store_kind});
    server_lines_single(lines, SERVER_GAUGE, "weir_store_degraded", NULL,
                        "1 if a stand-in decided in the last ten seconds.", window.degraded > 0);
    weir_zone_info zone;
    if (metrics->setup.store && weir_store_info(metrics->setup.store, &zone) == WEIR_OK)
        put_zone(lines, &zone);
}

static void put_access_log(struct server_lines *lines, struct server_access_log *log)
{
    struct server_access_log_state state;
    server_access_log_state(log, &state);
    COUNTER("weir_access_log_lines", "Lines of the access log, by what became of them.");
    PUT(state.written, {"result", "written"});
    PUT(state.dropped, {"result", "dropped"});
    PUT(state.failed, {"result", "failed"});
    server_lines_single(lines, SERVER_COUNTER, "weir_access_log_reopen_failures", NULL,
                        "Times that the access log could not be opened anew.",
                        state.reopen_failures);
}

void server_metrics_write(struct server_metrics *metrics, int64_t now_us, bool openmetrics,
                          struct weir__buffer *out)
{
    struct server_lines lines = {.out = out, .openmetrics = openmetrics};
    pthread_mutex_lock(&metrics->lock);
    server_metrics_sum(metrics);
    put_process(&lines, metrics);
    put_connections(&lines, metrics, &metrics->sums);
    put_requests(&lines, &metrics->sums);
    put_latency(&lines, &metrics->sums.latency);
    server_metrics_write_decisions(metrics, &lines);
    put_store(&lines, metrics, now_us);
    if (metrics->setup.access_log)
        put_access_log(&lines, metrics->setup.access_log);
    pthread_mutex_unlock(&metrics->lock);
    if (openmetrics)
        weir__put_text(out, "# EOF\n");
}

/*
 * The report for Prometheus (text 0.0.4) and OpenMetrics (1.0), family by family: the process,
 * connections and requests, decisions, policies, the rules of Envoy, the store, the access log.
 * docs/METRICS.md lists all families; a test compares.
 *
 * The two formats differ in little: OpenMetrics names the family of a counter without `_total` and
 * that of an info without `_info`, has a line for the unit, and a last line.
 */
#include "server/observe/observe.h"

#include "remote/remote.h"
#include "remote/slices.h"
#include "server/observe/access_log.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- families and samples as lines ---- */

enum server_family { SERVER_COUNTER, SERVER_GAUGE, SERVER_INFO, SERVER_SPREAD };

struct server_lines {
    struct weir__buffer *out;
    bool openmetrics;
    const char *name;   /* of the current family, without its ending */
    const char *ending; /* "_total", "_info" or "" */
};

struct server_label {
    const char *name, *value;
};

#define SERVER_LABELS(...) ((const struct server_label[]){__VA_ARGS__, {NULL, NULL}})
#define SERVER_NO_LABELS ((const struct server_label[]){{NULL, NULL}})

static const char *const TYPES[] = {"counter", "gauge", "info", "histogram"};
static const char *const ENDINGS[] = {"_total", "", "_info", ""};

static void lines_put_heading(struct server_lines *lines, const char *word, const char *text)
{
    weir__put_text(lines->out, word);
    weir__put_text(lines->out, lines->name);
    if (!lines->openmetrics)
        weir__put_text(lines->out, lines->ending);
    weir__put(lines->out, " ", 1);
    weir__put_text(lines->out, text);
    weir__put(lines->out, "\n", 1);
}

static void lines_family(struct server_lines *lines, enum server_family type, const char *name,
                         const char *unit, const char *help)
{
    assert(type < WEIR__COUNT(TYPES));
    lines->name = name;
    lines->ending = ENDINGS[type];
    lines_put_heading(lines, "# HELP ", help);
    lines_put_heading(lines, "# TYPE ",
                      type == SERVER_INFO && !lines->openmetrics ? "gauge" : TYPES[type]);
    if (unit && lines->openmetrics)
        lines_put_heading(lines, "# UNIT ", unit);
}

/* Both formats escape backslash, quote and line feed, and nothing else. */
static void lines_put_value(struct weir__buffer *out, const char *text)
{
    for (;;) {
        const size_t plain = strcspn(text, "\\\"\n");
        weir__put(out, text, plain);
        text += plain;
        if (!*text)
            return;
        weir__put(out, *text == '\n' ? "\\n" : *text == '"' ? "\\\"" : "\\\\", 2);
        text++;
    }
}

static void lines_put_name(struct server_lines *lines, const struct server_label *labels)
{
    struct weir__buffer *const out = lines->out;
    weir__put_text(out, lines->name);
    weir__put_text(out, lines->ending);
    for (const struct server_label *label = labels; label->name; label++) {
        weir__put(out, label == labels ? "{" : ",", 1);
        weir__put_text(out, label->name);
        weir__put(out, "=\"", 2);
        lines_put_value(out, label->value);
        weir__put(out, "\"", 1);
    }
    weir__put_text(out, labels->name ? "} " : " ");
}

static void lines_put(struct server_lines *lines, const struct server_label *labels, uint64_t value)
{
    assert(lines->name); /* a family was begun */
    lines_put_name(lines, labels);
    weir__put_format(lines->out, "%" PRIu64 "\n", value);
}

static void lines_put_decimal(struct server_lines *lines, const struct server_label *labels,
                              uint64_t value, int digits)
{
    uint64_t one = 1;
    for (int i = 0; i < digits; i++)
        one *= 10;
    lines_put_name(lines, labels);
    weir__put_format(lines->out, "%" PRIu64 ".%0*" PRIu64 "\n", value / one, digits, value % one);
}

static void lines_single(struct server_lines *lines, enum server_family type, const char *name,
                         const char *unit, const char *help, uint64_t value)
{
    lines_family(lines, type, name, unit, help);
    lines_put(lines, SERVER_NO_LABELS, value);
}

#define COUNTER(name, help) lines_family(lines, SERVER_COUNTER, name, NULL, help)
#define PUT(value, ...) lines_put(lines, SERVER_LABELS(__VA_ARGS__), value)

#define TEXT_OF(name, text) text,
static const char *const REFUSALS[] = {SERVER_REFUSALS(TEXT_OF)};
static const char *const FAULTS[] = {SERVER_FAULTS(TEXT_OF)};
static const char *const SETTLES[] = {SERVER_SETTLES(TEXT_OF)};
static const char *const REFUNDS[] = {SERVER_REFUNDS(TEXT_OF)};
#undef TEXT_OF

/* ---- the process ---- */

/* What the system knows about this process; -1: unknown. */
struct server_process {
    int64_t cpu_us, resident_bytes, virtual_bytes, open_files, most_files;
};

static int64_t process_cpu_us(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        return -1;
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static void process_look_at_memory(struct server_process *ret)
{
    FILE *const file = fopen("/proc/self/statm", "re");
    if (!file)
        return;
    long long all, resident;
    if (fscanf(file, "%lld %lld", &all, &resident) == 2) {
        const int64_t page = sysconf(_SC_PAGESIZE);
        ret->virtual_bytes = all * page;
        ret->resident_bytes = resident * page;
    }
    fclose(file);
}

/* Since Linux 6.2 the size of the folder is the count; older systems must count the entries. */
static int64_t process_open_files(void)
{
    struct stat facts;
    if (stat("/proc/self/fd", &facts) == 0 && facts.st_size > 0)
        return facts.st_size;
    DIR *const folder = opendir("/proc/self/fd");
    if (!folder)
        return -1;
    int64_t count = -1; /* not the descriptor of the folder itself */
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static int64_t process_most_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return -1;
    return (int64_t)limit.rlim_cur;
}

static void process_look(struct server_process *ret)
{
    *ret = (struct server_process){
        .cpu_us = process_cpu_us(),
        .resident_bytes = -1,
        .virtual_bytes = -1,
        .open_files = process_open_files(),
        .most_files = process_most_files(),
    };
    process_look_at_memory(ret);
}

static void text_put_process(struct server_lines *lines, const struct server_metrics *metrics)
{
    struct server_process process;
    process_look(&process);
    lines_family(lines, SERVER_INFO, "weir_build", NULL, "The version of this server.");
    PUT(1, {"version", WEIR_VERSION});
    lines_single(lines, SERVER_GAUGE, "weir_threads", NULL, "Threads that serve requests.",
                 metrics->setup.threads);
    lines_family(lines, SERVER_GAUGE, "process_start_time_seconds", "seconds",
                 "When the server started, in seconds since the Unix epoch.");
    lines_put_decimal(lines, SERVER_NO_LABELS, (uint64_t)metrics->setup.now_us, 6);
    if (process.cpu_us >= 0) {
        lines_family(lines, SERVER_COUNTER, "process_cpu_seconds", "seconds",
                     "CPU time used, user and system.");
        lines_put_decimal(lines, SERVER_NO_LABELS, (uint64_t)process.cpu_us, 6);
    }
    const struct {
        const char *name, *unit, *help;
        int64_t value;
    } gauges[] = {
        {"process_resident_memory_bytes", "bytes", "Memory in use.", process.resident_bytes},
        {"process_virtual_memory_bytes", "bytes", "Virtual memory in use.", process.virtual_bytes},
        {"process_open_fds", NULL, "Open file descriptors.", process.open_files},
        {"process_max_fds", NULL, "The maximum number of open file descriptors.",
         process.most_files},
    };
    for (size_t i = 0; i < WEIR__COUNT(gauges); i++) {
        if (gauges[i].value >= 0)
            lines_single(lines, SERVER_GAUGE, gauges[i].name, gauges[i].unit, gauges[i].help,
                         (uint64_t)gauges[i].value);
    }
}

/* ---- connections and requests ---- */

static void text_put_by_protocol(struct server_lines *lines, const char *name, const char *unit,
                                 const char *help, const uint64_t *counts)
{
    lines_family(lines, SERVER_COUNTER, name, unit, help);
    for (size_t i = 0; i < SERVER_PROTOCOLS; i++)
        PUT(counts[i], {"protocol", server_protocol_names[i]});
}

static void text_put_connections(struct server_lines *lines, const struct server_metrics *metrics,
                                 const struct server_counters *sums)
{
    lines_family(lines, SERVER_GAUGE, "weir_open_connections", NULL, "Connections open now.");
    for (size_t i = 0; i < SERVER_PROTOCOLS; i++) {
        /* The close may become visible before the accept of another thread. */
        const uint64_t accepted = sums->accepted[i], closed = sums->closed[i];
        PUT(accepted > closed ? accepted - closed : 0, {"protocol", server_protocol_names[i]});
    }
    const uint64_t began = sums->silent_began, ended = sums->silent_ended;
    PUT(began > ended ? began - ended : 0, {"protocol", "unknown"});
    text_put_by_protocol(lines, "weir_accepted_connections", NULL, "Connections accepted.",
                         sums->accepted);
    COUNTER("weir_refused_connections", "Connections refused, by reason.");
    for (size_t i = 0; i < SERVER_REFUSALS_COUNT; i++)
        PUT(sums->refused[i], {"reason", REFUSALS[i]});
    if (metrics->setup.kept)
        lines_single(lines, SERVER_GAUGE, "weir_kept_bytes", "bytes",
                     "Memory kept for pending requests and answers.",
                     atomic_load(metrics->setup.kept));
    text_put_by_protocol(lines, "weir_received_bytes", "bytes", "Bytes received.", sums->bytes_in);
    text_put_by_protocol(lines, "weir_sent_bytes", "bytes", "Bytes sent.", sums->bytes_out);
}

static void text_put_requests(struct server_lines *lines, const struct server_counters *sums)
{
    static const char *const classes[] = {"1xx", "2xx", "3xx", "4xx", "5xx"};
    text_put_by_protocol(lines, "weir_requests", NULL, "Valid requests, by protocol.",
                         sums->requests);
    COUNTER("weir_http_responses", "HTTP responses, by status class.");
    for (size_t i = 0; i < WEIR__COUNT(classes); i++)
        PUT(sums->statuses[i], {"class", classes[i]});
    COUNTER("weir_protocol_errors", "What the server rejected from clients, by kind.");
    for (size_t p = 0; p < SERVER_PROTOCOLS; p++) {
        for (size_t i = 0; i < SERVER_FAULTS_COUNT; i++)
            PUT(sums->faults[p][i], {"protocol", server_protocol_names[p]}, {"kind", FAULTS[i]});
    }
}

/* Powers of two are bounds of the histogram itself, so the counts are exact. */
#define LEAST_BITS 8 /* 256 ns */
#define MOST_BITS 34 /* 17 s */

static void text_put_latency(struct server_lines *lines, const struct server_histogram *latency)
{
    lines_family(lines, SERVER_SPREAD, "weir_decision_duration_seconds", "seconds",
                 "Time from a request read to its answer written.");
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
    lines_put_decimal(lines, SERVER_NO_LABELS, latency->sum_ns, 9);
    lines->ending = "_count";
    lines_put(lines, SERVER_NO_LABELS, count);
}

/* ---- the store, the log ---- */

static void text_put_zone(struct server_lines *lines, const weir_zone_info *zone, bool deleted)
{
    const struct {
        const char *name, *unit, *help;
        uint64_t value;
    } gauges[] = {
        {"weir_zone_bytes", "bytes", "Size of the zone.", zone->size},
        {"weir_zone_states", NULL, "States held; a key with three limits has three.", zone->keys},
        {"weir_zone_states_max", NULL, "The maximum number of states.", zone->capacity},
        {"weir_zone_large_bytes", "bytes", "Room for logs, windows and leases.", zone->large_bytes},
        {"weir_zone_large_used_bytes", "bytes",
         "Used part of the room for logs, windows and leases.", zone->large_used},
        {"weir_zone_limits", NULL, "Different limits in use.", zone->limits},
        {"weir_zone_limits_max", NULL, "The maximum number of different limits.", zone->limits_max},
        {"weir_zone_deleted", NULL,
         "1 if the file of the zone was deleted: its states are lost when the server ends.",
         deleted},
    };
    for (size_t i = 0; i < WEIR__COUNT(gauges); i++)
        lines_single(lines, SERVER_GAUGE, gauges[i].name, gauges[i].unit, gauges[i].help,
                     gauges[i].value);
    COUNTER("weir_zone_evictions", "States evicted; \"fresh\" ones held nothing, the others were "
                                   "in use: \"soonest\" ones were "
                                   "being denied, \"unused\" ones were not.");
    PUT(zone->evicted_fresh, {"kind", "fresh"});
    PUT(zone->evicted_unused, {"kind", "unused"});
    PUT(zone->evicted_soonest, {"kind", "soonest"});
    lines_single(lines, SERVER_COUNTER, "weir_zone_receipts_forgotten", NULL,
                 "Settled receipts forgotten within their hour, because there was no room.",
                 zone->evicted_receipts);
    lines_single(lines, SERVER_COUNTER, "weir_zone_refused", NULL,
                 "Requests refused because there was no room for their state.", zone->refused);
    lines_single(lines, SERVER_COUNTER, "weir_zone_repairs", NULL,
                 "Repairs after a process died while it changed the zone.", zone->repairs);
}

static void text_put_slices(struct server_lines *lines, const struct weir__slices_counts *slices)
{
    lines_single(lines, SERVER_GAUGE, "weir_slice_slot", NULL,
                 "1 if this process has its slot among the peers, and may hold slices.",
                 slices->slot);
    lines_family(lines, SERVER_GAUGE, "weir_slice_trouble", NULL,
                 "1 if a key was hot and no slices can be taken since, by reason.");
    for (enum weir__trouble i = WEIR__TROUBLE_NONE + 1; i < WEIR__TROUBLES; i++)
        PUT(slices->trouble == i, {"reason", weir__trouble_name(i)});
    lines_single(lines, SERVER_GAUGE, "weir_slices_held", NULL, "Slices held now.", slices->slices);
    lines_single(lines, SERVER_GAUGE, "weir_slice_units_held", NULL,
                 "Units held now: Redis has charged them, and nobody has used them.",
                 slices->units);
    COUNTER("weir_slices", "Slices that Redis has granted, and what became of those left over.");
    PUT(slices->slices_taken, {"event", "taken"});
    PUT(slices->slices_returned, {"event", "returned"});
    PUT(slices->slices_lost, {"event", "lost"});
    COUNTER("weir_slice_units", "Units of these slices; \"lost\" ones were neither used nor "
                                "given back.");
    PUT(slices->units_taken, {"event", "taken"});
    PUT(slices->units_returned, {"event", "returned"});
    PUT(slices->units_lost, {"event", "lost"});
    COUNTER("weir_slice_decisions", "Decisions of the store, by who made them: a slice, a denial "
                                    "of Redis that is still known, or Redis.");
    PUT(slices->local, {"by", "slice"});
    PUT(slices->denied, {"by", "denial"});
    PUT(slices->central, {"by", "redis"});
    lines_single(lines, SERVER_COUNTER, "weir_slice_calls", NULL,
                 "Calls of Redis that asked for a slice.", slices->calls);
}

static void text_put_store(struct server_lines *lines, const struct server_metrics *metrics,
                           int64_t now_us)
{
    struct server_metrics_window window;
    server_metrics_window(metrics, now_us, &window);
    lines_family(lines, SERVER_INFO, "weir_store", NULL, "Where the state is kept.");
    PUT(1, {"kind", metrics->setup.store_kind});
    lines_single(lines, SERVER_GAUGE, "weir_store_degraded", NULL,
                 "1 if the local fallback decided in the last ten seconds.", window.degraded > 0);
    weir_zone_info zone;
    if (metrics->setup.store && weir_store_info(metrics->setup.store, &zone) == WEIR_OK)
        text_put_zone(lines, &zone, metrics->zone_deleted);
    if (metrics->setup.remote) {
        unsigned away, servers = weir__remote_servers(metrics->setup.remote, &away);
        lines_family(lines, SERVER_GAUGE, "weir_store_servers", NULL,
                     "Servers that own keys of the store.");
        PUT(servers - away, {"state", "reached"});
        PUT(away, {"state", "away"});
    }
    if (metrics->setup.sliced) {
        struct weir__slices_counts slices;
        weir__slices_count(metrics->setup.sliced, &slices);
        text_put_slices(lines, &slices);
    }
}

static void text_put_access_log(struct server_lines *lines, struct server_access_log *log)
{
    struct server_access_log_state state;
    server_access_log_state(log, &state);
    COUNTER("weir_access_log_lines", "Lines of the access log, by result.");
    PUT(state.written, {"result", "written"});
    PUT(state.dropped, {"result", "dropped"});
    PUT(state.failed, {"result", "failed"});
    lines_single(lines, SERVER_COUNTER, "weir_access_log_reopen_failures", NULL,
                 "Failures to open the access log again.", state.reopen_failures);
}

/* ---- decisions, by policy, limit and rule ---- */

static void text_put_totals(struct server_lines *lines, const struct server_counters *sums)
{
    const struct server_series *const total = &sums->series[SERVER_SERIES_TOTAL];
    COUNTER("weir_decisions", "Requests decided, each once, by outcome.");
    PUT(total->allowed, {"outcome", "allowed"});
    PUT(total->denied, {"outcome", "denied"});
    PUT(total->list_allowed, {"outcome", "allow_list"});
    PUT(total->list_denied, {"outcome", "deny_list"});
    PUT(total->failed, {"outcome", "failed"});
    lines_single(lines, SERVER_COUNTER, "weir_degraded_decisions", NULL,
                 "Requests that the local fallback decided while the store was unreachable.",
                 total->degraded);
    lines_single(lines, SERVER_COUNTER, "weir_unmatched_decisions", NULL,
                 "Requests that were allowed because no policy applied.", sums->unmatched);
}

/* Whether the series is a whole policy and has something to report. */
static bool text_is_policy(const struct server_metrics *metrics, uint32_t id)
{
    const struct server_series *const series = &metrics->sums.series[id];
    if (id == SERVER_SERIES_TOTAL || metrics->series.names[id].second[0])
        return false;
    return id != SERVER_SERIES_OTHER || series->allowed + series->denied + series->failed;
}

static void text_put_policies(struct server_lines *lines, const struct server_metrics *metrics)
{
    const struct server_names *const names = &metrics->series;
    COUNTER("weir_policy_decisions", "Requests that a policy decided, by outcome.");
    for (uint32_t i = 0; i < names->count; i++) {
        const struct server_series *const series = &metrics->sums.series[i];
        const char *const policy = names->names[i].first;
        if (!text_is_policy(metrics, i))
            continue;
        PUT(series->allowed, {"policy", policy}, {"outcome", "allowed"});
        PUT(series->denied, {"policy", policy}, {"outcome", "denied"});
        if (series->list_allowed)
            PUT(series->list_allowed, {"policy", policy}, {"outcome", "allow_list"});
        if (series->list_denied)
            PUT(series->list_denied, {"policy", policy}, {"outcome", "deny_list"});
        if (series->failed)
            PUT(series->failed, {"policy", policy}, {"outcome", "failed"});
    }
    COUNTER("weir_policy_degraded_decisions",
            "Requests that the local fallback decided for a policy.");
    for (uint32_t i = 0; i < names->count; i++) {
        if (text_is_policy(metrics, i))
            PUT(metrics->sums.series[i].degraded, {"policy", names->names[i].first});
    }
}

/* Whether one of n counters has counted. */
static bool text_counted(const uint64_t *counts, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += counts[i];
    return sum > 0;
}

/* All results of a policy as soon as one has counted: then an alert sees each of them rise. */
static void text_put_results(struct server_lines *lines, const struct server_metrics *metrics,
                             bool refunds)
{
    const size_t n = refunds ? SERVER_REFUNDS_COUNT : SERVER_SETTLES_COUNT;
    const char *const *const names = refunds ? REFUNDS : SETTLES;
    for (uint32_t id = 0; id < metrics->series.count; id++) {
        const struct server_corrections *const it = &metrics->sums.corrections[id];
        const uint64_t *const counts = refunds ? it->refunds : it->settles;
        if (id != SERVER_SERIES_ADHOC && !text_counted(counts, n))
            continue;
        for (size_t i = 0; i < n; i++)
            PUT(counts[i], {"policy", metrics->series.names[id].first}, {"result", names[i]});
    }
}

static void text_put_corrections(struct server_lines *lines, const struct server_metrics *metrics)
{
    COUNTER("weir_settles", "Settles for a policy, by result; \"late\" ones came more than an hour "
                            "after the take.");
    text_put_results(lines, metrics, false);
    COUNTER("weir_refunds", "Refunds for a policy, by result.");
    text_put_results(lines, metrics, true);
}

/* What enforced limits decided, or what those in shadow would have. */
static void text_put_limits(struct server_lines *lines, const struct server_metrics *metrics,
                            bool shadow)
{
    const struct server_names *const names = &metrics->series;
    if (shadow)
        COUNTER("weir_shadow_decisions", "What each shadow limit would have decided, by outcome.");
    else
        COUNTER("weir_limit_decisions", "What each limit of a policy decided, by outcome.");
    for (uint32_t i = 0; i < names->count; i++) {
        const struct server_name *const name = &names->names[i];
        const struct server_series *const series = &metrics->sums.series[i];
        const uint64_t allowed = shadow ? series->shadow_allowed : series->allowed;
        const uint64_t denied = shadow ? series->shadow_denied : series->denied;
        if (!name->second[0] || (name->shadow != shadow && !allowed && !denied))
            continue; /* not a limit, or one that never was of this kind */
        const struct server_label policy = {"policy", name->first}, limit = {"limit", name->second};
        PUT(allowed, policy, limit, {"outcome", "allowed"});
        PUT(denied, policy, limit, {"outcome", "denied"});
    }
}

static void text_put_reloads(struct server_lines *lines, const struct server_metrics *metrics)
{
    lines_single(lines, SERVER_GAUGE, "weir_policies", NULL, "Policies loaded.",
                 metrics->policies_loaded);
    COUNTER("weir_policy_reloads", "Reloads of the policies, by result.");
    PUT(metrics->reloads_ok, {"result", "ok"});
    PUT(metrics->reloads_failed, {"result", "failed"});
    lines_single(lines, SERVER_GAUGE, "weir_policy_reload_failing", NULL,
                 "1 if the last reload failed and older policies are in force.",
                 metrics->reload_failing);
    lines_family(lines, SERVER_GAUGE, "weir_policy_load_time_seconds", "seconds",
                 "When the policies in force were read, in seconds since the Unix epoch.");
    lines_put_decimal(lines, SERVER_NO_LABELS, (uint64_t)metrics->reloaded_us, 6);
    if (metrics->certificate_expires > 0)
        lines_single(lines, SERVER_GAUGE, "weir_tls_certificate_expiry_time_seconds", "seconds",
                     "When the first certificate of the chain in use expires, in seconds since "
                     "the Unix epoch.",
                     (uint64_t)metrics->certificate_expires);
    lines_single(lines, SERVER_GAUGE, "weir_series", NULL,
                 "Policies and limits that are counted by name.", metrics->series.count);
    lines_single(lines, SERVER_COUNTER, "weir_series_refused", NULL,
                 "Names without their own series; they count as (other).",
                 metrics->series.refused + metrics->rules.refused);
}

static void text_put_rules(struct server_lines *lines, const struct server_metrics *metrics)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } kinds[] = {
        {"weir_envoy_hits", "Units requested, by rule of the rate limit service of Envoy.",
         offsetof(struct server_rule, hits)},
        {"weir_envoy_over_limit", "Units denied.", offsetof(struct server_rule, over)},
        {"weir_envoy_near_limit", "Units allowed above --envoy-near-limit (80 %) of the limit.",
         offsetof(struct server_rule, near)},
        {"weir_envoy_within_limit", "Units allowed.", offsetof(struct server_rule, within)},
        {"weir_envoy_shadow", "Units above a limit in shadow mode, allowed.",
         offsetof(struct server_rule, shadow)},
    };
    const struct server_names *const names = &metrics->rules;
    for (size_t k = 0; k < WEIR__COUNT(kinds); k++) {
        COUNTER(kinds[k].name, kinds[k].help);
        for (uint32_t i = 0; i < names->count; i++) {
            const char *const rule = (const char *)&metrics->sums.rules[i];
            const bool shown = i == SERVER_RULE_OTHER ? metrics->sums.rules[i].hits > 0
                                                      : names->names[i].second[0] != '\0';
            if (shown)
                PUT(*(const uint64_t *)(rule + kinds[k].offset), {"domain", names->names[i].first},
                    {"rule", names->names[i].second});
        }
    }
}

#define UNREAD_TEXT(name, text) text,
static const char *const UNREADS[] = {SERVER_UNREADS(UNREAD_TEXT)};
#undef UNREAD_TEXT

static void text_put_unmatched(struct server_lines *lines, const struct server_metrics *metrics)
{
    const struct server_counters *const sums = &metrics->sums;
    const struct server_names *const names = &metrics->rules;
    COUNTER("weir_envoy_no_rule", "Descriptors that match no rule of their domain.");
    for (uint32_t i = 0; i < names->count; i++) {
        if (i != SERVER_RULE_OTHER && !names->names[i].second[0])
            PUT(sums->rules[i].unmatched, {"domain", names->names[i].first});
    }
    lines_single(lines, SERVER_COUNTER, "weir_envoy_unknown_domain", NULL,
                 "Requests with a domain that is in no file; answered OK.",
                 sums->envoy_unknown_domains);
    lines_single(lines, SERVER_COUNTER, "weir_envoy_hashed_keys", NULL,
                 "Descriptors with a text so long that the key holds its SHA-256 instead.",
                 sums->envoy_long_keys);
    COUNTER("weir_envoy_unreadable", "Requests that could not be read; answered OVER_LIMIT.");
    for (size_t i = 0; i < SERVER_UNREADS_COUNT; i++)
        PUT(sums->envoy_unread[i], {"reason", UNREADS[i]});
}

static void text_put_decisions(const struct server_metrics *metrics, struct server_lines *lines)
{
    text_put_totals(lines, &metrics->sums);
    text_put_policies(lines, metrics);
    text_put_limits(lines, metrics, false);
    text_put_limits(lines, metrics, true);
    text_put_corrections(lines, metrics);
    text_put_reloads(lines, metrics);
    text_put_rules(lines, metrics);
    text_put_unmatched(lines, metrics);
}

/* ---- the whole report ---- */

void server_metrics_write(struct server_metrics *metrics, int64_t now_us, bool openmetrics,
                          struct weir__buffer *out)
{
    struct server_lines lines = {.out = out, .openmetrics = openmetrics};
    pthread_mutex_lock(&metrics->lock);
    server_metrics_sum(metrics);
    text_put_process(&lines, metrics);
    text_put_connections(&lines, metrics, &metrics->sums);
    text_put_requests(&lines, &metrics->sums);
    text_put_latency(&lines, &metrics->sums.latency);
    text_put_decisions(metrics, &lines);
    text_put_store(&lines, metrics, now_us);
    if (metrics->setup.access_log)
        text_put_access_log(&lines, metrics->setup.access_log);
    pthread_mutex_unlock(&metrics->lock);
    if (openmetrics)
        weir__put_text(out, "# EOF\n");
}

/* The report for Prometheus, its second part: what was decided, by policy, limit and rule. */
#include "server/observe/metrics_inside.h"
#include "server/observe/metrics_lines.h"

#define COUNTER(name, help) server_lines_family(lines, SERVER_COUNTER, name, NULL, help)
#define PUT(value, ...) server_lines_put(lines, SERVER_LABELS(__VA_ARGS__), value)

static void put_totals(struct server_lines *lines, const struct server_series *total)
{
    COUNTER("weir_decisions", "Requests decided, each once, by outcome.");
    PUT(total->allowed, {"outcome", "allowed"});
    PUT(total->denied, {"outcome", "denied"});
    PUT(total->list_allowed, {"outcome", "allow_list"});
    PUT(total->list_denied, {"outcome", "deny_list"});
    PUT(total->failed, {"outcome", "failed"});
    server_lines_single(lines, SERVER_COUNTER, "weir_degraded_decisions", NULL,
                        "Requests decided by a stand-in, the store being out of reach.",
                        total->degraded);
}

/* Whether the series is of a policy as a whole, and there is something to tell of it. */
static bool is_policy(const struct server_metrics *metrics, uint32_t id)
{
    const struct server_series *const series = &metrics->sums.series[id];
    if (id == SERVER_SERIES_TOTAL || metrics->series.names[id].second[0])
        return false;
    return id != SERVER_SERIES_OTHER || series->allowed + series->denied + series->failed;
}

static void put_policies(struct server_lines *lines, const struct server_metrics *metrics)
{
    const struct server_names *const names = &metrics->series;
    COUNTER("weir_policy_decisions", "Requests that a policy decided, by outcome.");
    for (uint32_t i = 0; i < names->count; i++) {
        const struct server_series *const series = &metrics->sums.series[i];
        const char *const policy = names->names[i].first;
        if (!is_policy(metrics, i))
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
    COUNTER("weir_policy_degraded_decisions", "Those of them that a stand-in decided.");
    for (uint32_t i = 0; i < names->count; i++) {
        if (is_policy(metrics, i))
            PUT(metrics->sums.series[i].degraded, {"policy", names->names[i].first});
    }
}

static void put_limits(struct server_lines *lines, const struct server_metrics *metrics)
{
    const struct server_names *const names = &metrics->series;
    COUNTER("weir_limit_decisions", "What each limit of a policy said, by outcome.");
    for (uint32_t i = 0; i < names->count; i++) {
        const struct server_name *const name = &names->names[i];
        const struct server_series *const series = &metrics->sums.series[i];
        if (!name->second[0] || (name->shadow && !series->allowed && !series->denied))
            continue;
        const struct server_label policy = {"policy", name->first}, limit = {"limit", name->second};
        PUT(series->allowed, policy, limit, {"outcome", "allowed"});
        PUT(series->denied, policy, limit, {"outcome", "denied"});
    }
    COUNTER("weir_shadow_decisions", "What each shadow limit would have said, by outcome.");
    for (uint32_t i = 0; i < names->count; i++) {
        const struct server_name *const name = &names->names[i];
        const struct server_series *const series = &metrics->sums.series[i];
        if (!name->second[0] || !(name->shadow || series->shadow_allowed || series->shadow_denied))
            continue;
        const struct server_label policy = {"policy", name->first}, limit = {"limit", name->second};
        PUT(series->shadow_allowed, policy, limit, {"outcome", "allowed"});
        PUT(series->shadow_denied, policy, limit, {"outcome", "denied"});
    }
}

static void put_reloads(struct server_lines *lines, const struct server_metrics *metrics)
{
    server_lines_single(lines, SERVER_GAUGE, "weir_policies", NULL, "Policies loaded.",
                        metrics->policies_loaded);
    COUNTER("weir_policy_reloads", "Times that policies were read anew, by result.");
    PUT(metrics->reloads_ok, {"result", "ok"});
    PUT(metrics->reloads_failed, {"result", "failed"});
    server_lines_single(lines, SERVER_GAUGE, "weir_policy_reload_failing", NULL,
                        "1 if the last reload failed and older policies are in force.",
                        metrics->reload_failing);
    server_lines_family(lines, SERVER_GAUGE, "weir_policy_load_time_seconds", "seconds",
                        "When the policies in force were read, since the Unix epoch.");
    server_lines_put_decimal(lines, SERVER_NO_LABELS, (uint64_t)metrics->reloaded_us, 6);
    if (metrics->certificate_expires > 0)
        server_lines_single(lines, SERVER_GAUGE, "weir_tls_certificate_expiry_time_seconds",
                            "seconds",
                            "When the certificate in use expires, or the first of those that vouch "
                            "for it, since the Unix epoch.",
                            (uint64_t)metrics->certificate_expires);
    server_lines_single(lines, SERVER_GAUGE, "weir_series", NULL,
                        "Policies and limits that are counted by name.", metrics->series.count);
    server_lines_single(lines, SERVER_COUNTER, "weir_series_refused", NULL,
                        "Names that got no series of their own and count as (other).",
                        metrics->series.refused + metrics->rules.refused);
}

static void put_rules(struct server_lines *lines, const struct server_metrics *metrics)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } kinds[] = {
        {"weir_envoy_hits", "Units asked for, by rule of Envoy's rate limit service.",
         offsetof(struct server_rule, hits)},
        {"weir_envoy_over_limit", "Units refused.", offsetof(struct server_rule, over)},
        {"weir_envoy_near_limit", "Units granted beyond --envoy-near-limit (80 %) of the limit.",
         offsetof(struct server_rule, near)},
        {"weir_envoy_within_limit", "Units granted.", offsetof(struct server_rule, within)},
        {"weir_envoy_shadow", "Units over a limit in shadow mode, granted.",
         offsetof(struct server_rule, shadow)},
    };
    const struct server_names *const names = &metrics->rules;
    for (size_t k = 0; k < WEIR__COUNT(kinds); k++) {
        COUNTER(kinds[k].name, kinds[k].help);
        for (uint32_t i = 0; i < names->count; i++) {
            const char *const rule = (const char *)&metrics->sums.rules[i];
            const bool told = i == SERVER_RULE_OTHER ? metrics->sums.rules[i].hits > 0
                                                     : names->names[i].second[0] != '\0';
            if (told)
                PUT(*(const uint64_t *)(rule + kinds[k].offset), {"domain", names->names[i].first},
                    {"rule", names->names[i].second});
        }
    }
}

#define UNREAD_TEXT(name, text) text,
static const char *const UNREADS[] = {SERVER_UNREADS(UNREAD_TEXT)};
#undef UNREAD_TEXT

static void put_unmatched(struct server_lines *lines, const struct server_metrics *metrics)
{
    const struct server_counters *const sums = &metrics->sums;
    const struct server_names *const names = &metrics->rules;
    COUNTER("weir_envoy_no_rule", "Descriptors that no rule of their domain is for.");
    for (uint32_t i = 0; i < names->count; i++) {
        if (i != SERVER_RULE_OTHER && !names->names[i].second[0])
            PUT(sums->rules[i].unmatched, {"domain", names->names[i].first});
    }
    server_lines_single(lines, SERVER_COUNTER, "weir_envoy_unknown_domain", NULL,
                        "Requests of a domain that no file has; answered OK.",
                        sums->envoy_unknown_domains);
    server_lines_single(lines, SERVER_COUNTER, "weir_envoy_hashed_keys", NULL,
                        "Descriptors with a text so long that its SHA-256 stands in the key.",
                        sums->envoy_long_keys);
    COUNTER("weir_envoy_unreadable", "Requests that cannot be read, answered OVER_LIMIT.");
    for (size_t i = 0; i < SERVER_UNREADS_COUNT; i++)
        PUT(sums->envoy_unread[i], {"reason", UNREADS[i]});
}

void server_metrics_write_decisions(const struct server_metrics *metrics,
                                    struct server_lines *lines)
{
    put_totals(lines, &metrics->sums.series[SERVER_SERIES_TOTAL]);
    put_policies(lines, metrics);
    put_limits(lines, metrics);
    put_reloads(lines, metrics);
    put_rules(lines, metrics);
    put_unmatched(lines, metrics);
}

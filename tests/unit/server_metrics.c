/*
 * Metrics: every count arrives in every report under its right name, names survive reloads, reports
 * fit where room says, and threads may count while reports are made.
 */
#include "server/observe/metrics.h"

#include "policy/policy.h"
#include "server/observe/access_log.h"
#include "test.h"
#include "wire/json.h"

#include <pthread.h>
#include <stdlib.h>

#define SECOND INT64_C(1000000)
#define START (INT64_C(1700000000) * SECOND)

static struct server_metrics *make(size_t threads, weir_store *store)
{
    struct server_metrics_setup setup = {
        .threads = threads, .now_us = START, .store = store, .store_kind = "memory"};
    struct server_metrics *metrics = NULL;
    CHECK_INT(server_metrics_create(&setup, &metrics, NULL), WEIR_OK);
    return metrics;
}

/* ---- reading reports ---- */

enum report { PROMETHEUS, OPENMETRICS, JSON };

/* A report in as much room as it is said to need; the caller frees it. */
static char *report_of(struct server_metrics *metrics, enum report kind, int64_t now_us)
{
    const size_t room = server_metrics_room(metrics);
    char *const text = malloc(room);
    struct weir__buffer out = weir__buffer_over(text, room);
    if (kind == JSON)
        server_metrics_json(metrics, now_us, &out);
    else
        server_metrics_write(metrics, now_us, kind == OPENMETRICS, &out);
    CHECK(!out.cut);
    CHECK_INT(strlen(text), out.len);
    return text;
}

/* How often a whole line occurs. */
static int lines_of(const char *report, const char *line)
{
    const size_t len = strlen(line);
    int count = 0;
    for (const char *at = report; (at = strstr(at, line)); at += len)
        count += (at == report || at[-1] == '\n') && at[len] == '\n';
    return count;
}

static void check_line(struct server_metrics *metrics, const char *line)
{
    for (enum report kind = PROMETHEUS; kind <= OPENMETRICS; kind++) {
        char *const text = report_of(metrics, kind, START + SECOND);
        if (lines_of(text, line) != 1)
            printf("%s occurs %d times\n", line, lines_of(text, line));
        CHECK_INT(lines_of(text, line), 1);
        free(text);
    }
}

#define NODES 16384

struct tree {
    char *text;
    struct weir__json_node nodes[NODES];
};

static struct tree tree;

static const struct weir__json_node *stats(struct server_metrics *metrics, int64_t now_us)
{
    free(tree.text);
    tree.text = report_of(metrics, JSON, now_us);
    weir_error err = {0};
    const int n = weir__json_read(tree.text, strlen(tree.text), tree.nodes, NODES, &err);
    if (!CHECK(n > 0))
        printf("%s\n", err.message);
    return tree.nodes;
}

/* An integer down a path of names. */
static int64_t number_at(const struct weir__json_node *node, const char *one, const char *two)
{
    int64_t number = -1;
    node = weir__json_member(tree.nodes, node, one);
    if (node && two)
        node = weir__json_member(tree.nodes, node, two);
    CHECK(node && weir__json_integer(node, 0, INT64_MAX, &number));
    return number;
}

static double fraction_at(const struct weir__json_node *node, const char *one, const char *two)
{
    node = weir__json_member(tree.nodes, weir__json_member(tree.nodes, node, one), two);
    return CHECK(node && node->type == WEIR__JSON_NUMBER) ? strtod(node->text, NULL) : -1;
}

/* The element of an array whose "name" it is, or NULL. */
static const struct weir__json_node *named(const struct weir__json_node *array, const char *name)
{
    const struct weir__json_node *at = array + 1;
    for (uint32_t i = 0; i < array->len; i++, at = tree.nodes + at->next) {
        const struct weir__json_node *const text = weir__json_member(tree.nodes, at, "name");
        if (text && text->len == strlen(name) && !memcmp(text->text, name, text->len))
            return at;
    }
    return NULL;
}

static const struct weir__json_node *policy_named(const struct weir__json_node *root,
                                                  const char *name)
{
    return named(weir__json_member(tree.nodes, root, "policies"), name);
}

/* ---- tests ---- */

static void test_counts_arrive(void)
{
    struct server_metrics *const metrics = make(3, NULL);
    for (size_t i = 0; i < 3; i++) {
        struct server_counters *const counters = server_metrics_thread(metrics, i);
        server_count(&counters->requests[SERVER_RESP], 10);
        server_count(&counters->accepted[SERVER_HTTP], 5);
        server_count(&counters->closed[SERVER_HTTP], 2);
        server_count(&counters->refused[SERVER_REFUSED_FILES], 1);
        server_count(&counters->bytes_in[SERVER_GRPC], 1000);
        server_count(&counters->bytes_out[SERVER_GRPC], 2000);
        server_count(&counters->faults[SERVER_HTTP][SERVER_FAULT_UNAUTHORIZED], 7);
        server_count_status(counters, 100);
        server_count_status(counters, 429);
        server_count_status(counters, 599);
        server_count_decision(counters, SERVER_SERIES_TOTAL, true, true);
        server_count_decision(counters, SERVER_SERIES_TOTAL, false, false);
        server_count_decision(counters, SERVER_SERIES_ADHOC, false, false);
        server_count_listed(counters, SERVER_SERIES_TOTAL, false);
        server_count_failed(counters, SERVER_SERIES_TOTAL);
        server_count_settle(counters, SERVER_SERIES_ADHOC, SERVER_SETTLE_LATE);
        server_count_refund(counters, SERVER_SERIES_ADHOC, SERVER_REFUND_BEFORE);
    }
    check_line(metrics, "weir_settles_total{policy=\"\",result=\"late\"} 3");
    check_line(metrics, "weir_settles_total{policy=\"\",result=\"settled\"} 0");
    check_line(metrics, "weir_refunds_total{policy=\"\",result=\"before\"} 3");
    check_line(metrics, "weir_requests_total{protocol=\"resp\"} 30");
    check_line(metrics, "weir_requests_total{protocol=\"http\"} 0");
    check_line(metrics, "weir_open_connections{protocol=\"http\"} 9");
    check_line(metrics, "weir_accepted_connections_total{protocol=\"http\"} 15");
    check_line(metrics, "weir_refused_connections_total{reason=\"files\"} 3");
    check_line(metrics, "weir_received_bytes_total{protocol=\"grpc\"} 3000");
    check_line(metrics, "weir_sent_bytes_total{protocol=\"grpc\"} 6000");
    check_line(metrics, "weir_protocol_errors_total{protocol=\"http\",kind=\"unauthorized\"} 21");
    check_line(metrics, "weir_http_responses_total{class=\"1xx\"} 3");
    check_line(metrics, "weir_http_responses_total{class=\"4xx\"} 3");
    check_line(metrics, "weir_http_responses_total{class=\"5xx\"} 3");
    check_line(metrics, "weir_decisions_total{outcome=\"allowed\"} 3");
    check_line(metrics, "weir_decisions_total{outcome=\"denied\"} 3");
    check_line(metrics, "weir_decisions_total{outcome=\"deny_list\"} 3");
    check_line(metrics, "weir_decisions_total{outcome=\"failed\"} 3");
    check_line(metrics, "weir_degraded_decisions_total 3");
    check_line(metrics, "weir_policy_decisions_total{policy=\"\",outcome=\"denied\"} 3");
    check_line(metrics, "weir_build_info{version=\"" WEIR_VERSION "\"} 1");
    check_line(metrics, "weir_store_info{kind=\"memory\"} 1");
    check_line(metrics, "weir_store_degraded 1");
    check_line(metrics, "process_start_time_seconds 1700000000.000000");

    const struct weir__json_node *const root = stats(metrics, START + 90 * SECOND);
    CHECK_INT(number_at(root, "uptime", NULL), 90);
    CHECK_INT(number_at(root, "connections", "open"), 9);
    CHECK_INT(number_at(root, "connections", "accepted"), 15);
    CHECK_INT(number_at(root, "connections", "refused"), 3);
    CHECK_INT(number_at(root, "requests", "resp"), 30);
    CHECK_INT(number_at(root, "errors", NULL), 21);
    CHECK_INT(number_at(root, "totals", "allowed"), 3);
    CHECK_INT(number_at(root, "totals", "denied"), 6); /* a deny list's, too */
    CHECK_INT(number_at(root, "totals", "failed"), 3);
    CHECK_INT(number_at(policy_named(root, ""), "denied", NULL), 3);
    CHECK(!policy_named(root, "(other)"));
    server_metrics_destroy(metrics);
}

/* The same names, the same id, ever after; entries belong to their policy. */
static void test_names(void)
{
    struct server_metrics *const metrics = make(1, NULL);
    struct server_counters *const counters = server_metrics_thread(metrics, 0);
    const uint32_t user = server_metrics_series(metrics, "api", "per-user");
    const uint32_t api = server_metrics_series(metrics, "api", NULL);
    const uint32_t login = server_metrics_series(metrics, "login", "");
    const uint32_t address = server_metrics_series(metrics, "api", "per-address");
    CHECK(user != api && api != login && user != address);
    CHECK_INT(server_metrics_series(metrics, "", ""), SERVER_SERIES_ADHOC);
    CHECK_INT(server_metrics_series(metrics, "api", "per-user"), user);
    CHECK_INT(server_metrics_series(metrics, "api", ""), api);
    CHECK(server_metrics_series(metrics, "apiper", "-user") != user);

    server_count_decision(counters, api, false, false);
    server_count_decision(counters, user, false, false);
    server_count_decision(counters, address, true, false);
    server_count_shadow(counters, address, false);
    check_line(metrics, "weir_policy_decisions_total{policy=\"api\",outcome=\"denied\"} 1");
    check_line(metrics, "weir_limit_decisions_total{policy=\"api\",limit=\"per-user\","
                        "outcome=\"denied\"} 1");
    check_line(metrics, "weir_limit_decisions_total{policy=\"api\",limit=\"per-address\","
                        "outcome=\"allowed\"} 1");
    check_line(metrics, "weir_shadow_decisions_total{policy=\"api\",limit=\"per-address\","
                        "outcome=\"denied\"} 1");
    const struct weir__json_node *const root = stats(metrics, START);
    const struct weir__json_node *const policy = policy_named(root, "api");
    const struct weir__json_node *const limits = weir__json_member(tree.nodes, policy, "limits");
    CHECK_INT(limits->len, 2);
    CHECK_INT(number_at(named(limits, "per-user"), "denied", NULL), 1);
    CHECK_INT(number_at(named(limits, "per-address"), "allowed", NULL), 1);
    CHECK_INT(number_at(root, "totals", "shadow_denied"), 1);
    server_metrics_destroy(metrics);
}

/* Names that could break a format do not, and room is enough for them. */
static void test_hostile_names(void)
{
    struct server_metrics *const metrics = make(1, NULL);
    char nasty[301], bell[301];
    memset(nasty, '"', 300);
    memset(bell, '\a', 300);
    nasty[300] = bell[300] = '\0';
    for (int i = 0; i < 300; i += 3)
        memcpy(nasty + i, "\"\\\n", 3);
    for (int i = 0; i < 200; i++) {
        nasty[0] = (char)('a' + i % 26);
        nasty[1] = (char)('a' + i / 26);
        const uint32_t id = server_metrics_series(metrics, nasty, NULL);
        struct server_counters *const counters = server_metrics_thread(metrics, 0);
        server_metrics_series(metrics, nasty, bell);
        server_metrics_rule(metrics, nasty, bell);
        server_count_settle(counters, id, SERVER_SETTLE_SETTLED); /* as many lines as there are */
        server_count_refund(counters, id, SERVER_REFUND_GIVEN);
        server_count_listed(counters, id, true);
        server_count_listed(counters, id, false);
        server_count_failed(counters, id);
    }
    char *const text = report_of(metrics, PROMETHEUS, START);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        CHECK(!strncmp(line, "weir_", 5) || !strncmp(line, "process_", 8) || *line == '#');
    free(text);
    server_metrics_series(metrics, "q\"b\\l\n", "e");
    check_line(metrics, "weir_policy_degraded_decisions_total{policy=\"q\\\"b\\\\l\\n\"} 0");
    CHECK(policy_named(stats(metrics, START), "q\"b\\l\n") != NULL);
    /* The longest that is taken, and one more. */
    char *const longest = calloc(1, 1026);
    memset(longest, 'n', 1024);
    CHECK(server_metrics_series(metrics, longest, NULL) != SERVER_SERIES_OTHER);
    longest[1024] = 'n';
    CHECK_INT(server_metrics_series(metrics, longest, NULL), SERVER_SERIES_OTHER);
    free(longest);
    server_metrics_destroy(metrics);
}

/* More names than there is room for: they count together, the rest stays exact. */
static void test_series_are_bounded(void)
{
    struct server_metrics *const metrics = make(2, NULL);
    struct server_counters *const counters = server_metrics_thread(metrics, 1);
    char name[32];
    uint32_t last = 0;
    for (int i = 0; i < SERVER_SERIES_MAX + 10; i++) {
        snprintf(name, sizeof name, "policy-%d", i);
        const uint32_t id = server_metrics_series(metrics, name, NULL);
        if (i < SERVER_SERIES_MAX - 3)
            CHECK(id > last);
        else
            CHECK_INT(id, SERVER_SERIES_OTHER);
        last = id;
        server_count_decision(counters, id, true, false);
    }
    CHECK_INT(server_metrics_series(metrics, "policy-0", NULL), 3);
    check_line(metrics, "weir_policy_decisions_total{policy=\"(other)\",outcome=\"allowed\"} 13");
    check_line(metrics, "weir_policy_decisions_total{policy=\"policy-7\",outcome=\"allowed\"} 1");
    char *const text = report_of(metrics, OPENMETRICS, START);
    CHECK_INT(lines_of(text, "weir_series 32768"), 1);
    CHECK_INT(lines_of(text, "weir_series_refused_total 13"), 1);
    free(text);
    free(report_of(metrics, JSON, START));

    for (int i = 0; i < SERVER_RULES_MAX + 5; i++) {
        snprintf(name, sizeof name, "rule-%d", i);
        server_count(&counters->rules[server_metrics_rule(metrics, "edge", name)].hits, 2);
    }
    check_line(metrics, "weir_envoy_hits_total{domain=\"edge\",rule=\"rule-0\"} 2");
    check_line(metrics, "weir_envoy_hits_total{domain=\"(other)\",rule=\"\"} 14");
    server_metrics_destroy(metrics);
}

/* The latency told is of the last ten seconds; the histogram is of all time. */
static void test_latency(void)
{
    struct server_metrics *const metrics = make(2, NULL);
    struct server_counters *const one = server_metrics_thread(metrics, 0);
    struct server_counters *const two = server_metrics_thread(metrics, 1);
    server_histogram_record(&one->latency, 2000, 99);
    server_histogram_record(&two->latency, 5000000, 1);
    const struct weir__json_node *root = stats(metrics, START + SECOND / 2);
    CHECK_INT(number_at(root, "latency", "count"), 100);
    const double p50 = fraction_at(root, "latency", "p50");
    const double p999 = fraction_at(root, "latency", "p999");
    CHECK(p50 > 0.98 * 2e-6 && p50 < 1.02 * 2e-6);
    CHECK(p999 > 0.98 * 5e-3 && p999 < 1.02 * 5e-3);
    check_line(metrics, "weir_decision_duration_seconds_bucket{le=\"0.000001024\"} 0");
    check_line(metrics, "weir_decision_duration_seconds_bucket{le=\"0.000002048\"} 99");
    check_line(metrics, "weir_decision_duration_seconds_bucket{le=\"0.008388608\"} 100");
    check_line(metrics, "weir_decision_duration_seconds_bucket{le=\"+Inf\"} 100");
    check_line(metrics, "weir_decision_duration_seconds_sum 0.005198000");
    check_line(metrics, "weir_decision_duration_seconds_count 100");

    for (int64_t i = 1; i <= 5; i++)
        server_metrics_tick(metrics, START + i * SECOND);
    server_histogram_record(&one->latency, 300, 10);
    for (int64_t i = 6; i <= 10; i++)
        server_metrics_tick(metrics, START + i * SECOND);
    root = stats(metrics, START + 10 * SECOND); /* behind the first tick: only the ten */
    CHECK_INT(number_at(root, "latency", "count"), 10);
    CHECK_INT(number_at(root, "latency", "window"), 9);
    for (int64_t i = 11; i <= 16; i++)
        server_metrics_tick(metrics, START + i * SECOND);
    root = stats(metrics, START + 16 * SECOND);
    CHECK_INT(number_at(root, "latency", "count"), 0);
    CHECK_INT((int64_t)fraction_at(root, "latency", "p99"), 0);
    check_line(metrics, "weir_decision_duration_seconds_count 110");
    server_metrics_destroy(metrics);
}

/* A decision of the local fallback is news for ten seconds. */
static void test_degraded_fades(void)
{
    struct server_metrics *const metrics = make(1, NULL);
    struct server_counters *const counters = server_metrics_thread(metrics, 0);
    for (int64_t i = 1; i <= 12; i++)
        server_metrics_tick(metrics, START + i * SECOND);
    check_line(metrics, "weir_store_degraded 0");
    server_count_decision(counters, SERVER_SERIES_TOTAL, true, true);
    check_line(metrics, "weir_store_degraded 1");
    for (int64_t i = 13; i <= 23; i++)
        server_metrics_tick(metrics, START + i * SECOND);
    check_line(metrics, "weir_store_degraded 0");
    check_line(metrics, "weir_degraded_decisions_total 1");
    server_metrics_destroy(metrics);
}

static void test_reloads(void)
{
    struct server_metrics *const metrics = make(1, NULL);
    check_line(metrics, "weir_policy_load_time_seconds 1700000000.000000");
    server_metrics_reloaded(metrics, true, START + 5 * SECOND);
    server_metrics_reloaded(metrics, false, START + 9 * SECOND);
    check_line(metrics, "weir_policy_reloads_total{result=\"ok\"} 1");
    check_line(metrics, "weir_policy_reloads_total{result=\"failed\"} 1");
    check_line(metrics, "weir_policy_reload_failing 1");
    check_line(metrics, "weir_policy_load_time_seconds 1700000005.000000");
    server_metrics_reloaded(metrics, true, START + 10 * SECOND);
    check_line(metrics, "weir_policy_reload_failing 0");
    CHECK_INT(number_at(stats(metrics, START), "reloads", "ok"), 2);
    server_metrics_destroy(metrics);
}

static void test_zone(void)
{
    weir_store *store = NULL;
    weir_limit *limit = NULL;
    weir_decision decision;
    CHECK_INT(weir_store_open("memory:1m", &store, NULL), WEIR_OK);
    CHECK_INT(weir_limit_parse("token-bucket 5/s", &limit, NULL), WEIR_OK);
    CHECK_INT(weir_take(store, weir_key_text("a"), limit, 1, &decision), WEIR_OK);
    CHECK_INT(weir_take(store, weir_key_text("b"), limit, 1, &decision), WEIR_OK);
    struct server_metrics *const metrics = make(1, store);
    check_line(metrics, "weir_zone_bytes 1048576");
    check_line(metrics, "weir_zone_states 2");
    check_line(metrics, "weir_zone_limits 1");
    check_line(metrics, "weir_zone_evictions_total{kind=\"unused\"} 0");
    const struct weir__json_node *const root = stats(metrics, START);
    CHECK_INT(number_at(root, "zone", "keys"), 2);
    CHECK_INT(number_at(root, "zone", "size"), 1048576);
    check_line(metrics, "weir_zone_deleted 0");
    server_metrics_zone_deleted(metrics, true);
    check_line(metrics, "weir_zone_deleted 1");
    server_metrics_zone_deleted(metrics, false);
    check_line(metrics, "weir_zone_deleted 0");
    server_metrics_destroy(metrics);
    weir_limit_free(limit);
    weir_store_close(store);
}

static struct weir__policies *policies_of(const char *text)
{
    struct weir__policies *policies = NULL;
    weir_error err = {0};
    if (!CHECK(weir__policies_parse(text, strlen(text), "test", false, &policies, &err) == 0))
        printf("%s\n", err.message);
    return policies;
}

static uint32_t entry_id(const struct weir__policies *policies, const struct server_series_ids *ids,
                         const char *policy, size_t entry)
{
    return ids
        ->entries[weir__policies_find(policies, policy, strlen(policy))->entries[entry].index];
}

/* A reload keeps what was counted; what is gone is told as gone, and counts on when it is back. */
static void test_policies_reloaded(void)
{
    static const char before[] =
        "version: 1\npolicies:\n"
        "  - name: api\n    limits:\n"
        "      - {name: slow, key: ip, limit: fixed-window 10/m}\n"
        "      - {name: try, key: ip, limit: fixed-window 5/m, shadow: true}\n"
        "  - {name: old, key: ip, limit: fixed-window 7/m}\n";
    static const char after[] = "version: 1\npolicies:\n"
                                "  - {name: new, key: ip, limit: fixed-window 8/m}\n"
                                "  - name: api\n    limits:\n"
                                "      - {name: try, key: ip, limit: fixed-window 5/m}\n";
    struct server_metrics *const metrics = make(1, NULL);
    struct server_counters *const counters = server_metrics_thread(metrics, 0);
    struct weir__policies *const first = policies_of(before), *const second = policies_of(after);
    struct server_series_ids one, two, three;
    CHECK_INT(server_metrics_resolve(metrics, first, &one), WEIR_OK);
    check_line(metrics, "weir_policies 2");
    check_line(metrics,
               "weir_shadow_decisions_total{policy=\"api\",limit=\"try\",outcome=\"denied\"} 0");
    server_count_decision(counters, one.policies[0], true, false);
    server_count_decision(counters, entry_id(first, &one, "api", 0), true, false);
    server_count_shadow(counters, entry_id(first, &one, "api", 1), false);
    server_count_decision(counters, one.policies[1], false, false);

    CHECK_INT(server_metrics_resolve(metrics, second, &two), WEIR_OK);
    CHECK_INT(two.policies[1], one.policies[0]);
    CHECK_INT(entry_id(second, &two, "api", 0), entry_id(first, &one, "api", 1));
    server_count_decision(counters, entry_id(second, &two, "api", 0), false, false);
    check_line(metrics, "weir_policies 2");
    check_line(metrics, "weir_policy_decisions_total{policy=\"api\",outcome=\"allowed\"} 1");
    check_line(metrics, "weir_policy_decisions_total{policy=\"old\",outcome=\"denied\"} 1");
    check_line(metrics,
               "weir_shadow_decisions_total{policy=\"api\",limit=\"try\",outcome=\"denied\"} 1");
    check_line(metrics,
               "weir_limit_decisions_total{policy=\"api\",limit=\"try\",outcome=\"denied\"} 1");
    const struct weir__json_node *root = stats(metrics, START);
    CHECK(weir__json_member(tree.nodes, policy_named(root, "old"), "gone") != NULL);
    CHECK(!weir__json_member(tree.nodes, policy_named(root, "api"), "gone"));
    const struct weir__json_node *const limits =
        weir__json_member(tree.nodes, policy_named(root, "api"), "limits");
    CHECK(weir__json_member(tree.nodes, named(limits, "slow"), "gone") != NULL);
    CHECK(!weir__json_member(tree.nodes, named(limits, "try"), "gone"));

    CHECK_INT(server_metrics_resolve(metrics, first, &three), WEIR_OK);
    CHECK_INT(three.policies[1], one.policies[1]);
    root = stats(metrics, START);
    CHECK(!weir__json_member(tree.nodes, policy_named(root, "old"), "gone"));
    CHECK_INT(number_at(policy_named(root, "old"), "denied", NULL), 1);
    server_series_ids_free(&one);
    server_series_ids_free(&two);
    server_series_ids_free(&three);
    weir__policies_free(first);
    weir__policies_free(second);
    server_metrics_destroy(metrics);
}

/* What both formats demand: each family announced once, before its samples, which stand
 * together. */
static void test_formats(void)
{
    struct server_metrics *const metrics = make(1, NULL);
    char *const prometheus = report_of(metrics, PROMETHEUS, START);
    char *const open = report_of(metrics, OPENMETRICS, START);
    CHECK_INT(lines_of(prometheus, "# TYPE weir_requests_total counter"), 1);
    CHECK_INT(lines_of(open, "# TYPE weir_requests counter"), 1);
    CHECK_INT(lines_of(prometheus, "# TYPE weir_build_info gauge"), 1);
    CHECK_INT(lines_of(open, "# TYPE weir_build info"), 1);
    CHECK_INT(lines_of(open, "# UNIT weir_sent_bytes bytes"), 1);
    CHECK(!strstr(prometheus, "# UNIT") && !strstr(prometheus, "# EOF"));
    CHECK_TEXT(open + strlen(open) - 7, "\n# EOF\n");
    char family[128] = "";
    for (const char *line = prometheus; *line; line = strchr(line, '\n') + 1) {
        if (!strncmp(line, "# TYPE ", 7)) {
            snprintf(family, sizeof family, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            char heading[160];
            snprintf(heading, sizeof heading, "# TYPE %s ", family);
            CHECK(strstr(prometheus, heading) == line && !strstr(line + 1, heading));
        } else if (*line != '#') {
            CHECK(!strncmp(line, family, strlen(family)));
        }
    }
    free(prometheus);
    free(open);
    char little[64];
    struct weir__buffer out = weir__buffer_over(little, sizeof little);
    server_metrics_write(metrics, START, false, &out);
    CHECK(out.cut);
    server_metrics_destroy(metrics);
}

/* docs/METRICS.md has every name that is told, and no other. */
static void test_manual(void)
{
    FILE *const file = fopen("docs/METRICS.md", "re"); /* tests run from the root */
    if (!CHECK(file != NULL))
        return;
    char *manual = NULL;
    size_t size = 0;
    CHECK(getdelim(&manual, &size, '\0', file) > 0);
    fclose(file);
    struct server_access_log_setup log_setup = {.path = "/dev/null", .threads = 1};
    atomic_uint_fast64_t kept = 0;
    struct server_metrics_setup setup = {.threads = 1, .store_kind = "memory", .kept = &kept};
    struct server_metrics *metrics = NULL;
    CHECK_INT(server_access_log_open(&log_setup, &setup.access_log, NULL), WEIR_OK);
    CHECK_INT(weir_store_open("memory:1m", &setup.store, NULL), WEIR_OK);
    CHECK_INT(weir_store_open("redis://127.0.0.1:1?slices=5%&peers=2", &setup.sliced, NULL),
              WEIR_OK); /* nobody is asked */
    setup.remote = setup.sliced;
    CHECK_INT(server_metrics_create(&setup, &metrics, NULL), WEIR_OK);
    server_metrics_certificate(metrics, START / 1000000);
    char *const report = report_of(metrics, PROMETHEUS, START);
    char name[128];
    for (const char *at = report; (at = strstr(at, "# TYPE ")); at++) {
        snprintf(name, sizeof name, "`%.*s`", (int)strcspn(at + 7, " "), at + 7);
        if (!CHECK(strstr(manual, name) != NULL))
            printf("docs/METRICS.md lacks %s\n", name);
    }
    for (const char *at = manual; (at = strstr(at, "| `weir_")); at++) {
        snprintf(name, sizeof name, "# TYPE %.*s ", (int)strcspn(at + 3, "`"), at + 3);
        if (!CHECK(strstr(report, name) != NULL))
            printf("docs/METRICS.md has %s, which is not told\n", name);
    }
    free(report);
    free(manual);
    server_metrics_destroy(metrics);
    weir_store_close(setup.store);
    weir_store_close(setup.sliced);
    server_access_log_close(setup.access_log);
}

/* ---- threads ---- */

#define COUNTED 200000

struct counting {
    struct server_metrics *metrics;
    size_t thread;
    uint32_t id;
};

static void *count_much(void *context)
{
    const struct counting *const counting = context;
    struct server_counters *const counters =
        server_metrics_thread(counting->metrics, counting->thread);
    for (int i = 0; i < COUNTED; i++) {
        server_count(&counters->requests[SERVER_HTTP], 1);
        server_count_decision(counters, counting->id, i % 4, false);
        server_histogram_record(&counters->latency, (uint64_t)i, 1);
    }
    return NULL;
}

/* Counting goes on while reports are made and names are added; nothing is lost, nothing goes
 * back. */
static void test_threads(void)
{
    struct server_metrics *const metrics = make(3, NULL);
    const uint32_t id = server_metrics_series(metrics, "busy", NULL);
    struct counting countings[3];
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        countings[i] = (struct counting){metrics, i, id};
        CHECK_INT(pthread_create(&threads[i], NULL, count_much, &countings[i]), 0);
    }
    int64_t last = 0;
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "new-%d", i);
        server_metrics_series(metrics, name, "entry");
        server_metrics_tick(metrics, START + i);
        free(report_of(metrics, PROMETHEUS, START));
        const int64_t now = number_at(policy_named(stats(metrics, START), "busy"), "allowed", NULL);
        CHECK(now >= last);
        last = now;
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    check_line(metrics, "weir_requests_total{protocol=\"http\"} 600000");
    check_line(metrics, "weir_policy_decisions_total{policy=\"busy\",outcome=\"allowed\"} 450000");
    check_line(metrics, "weir_policy_decisions_total{policy=\"busy\",outcome=\"denied\"} 150000");
    check_line(metrics, "weir_decision_duration_seconds_count 600000");
    server_metrics_destroy(metrics);
}

int main(void)
{
    test_counts_arrive();
    test_names();
    test_hostile_names();
    test_series_are_bounded();
    test_latency();
    test_degraded_fades();
    test_reloads();
    test_zone();
    test_policies_reloaded();
    test_formats();
    test_manual();
    test_threads();
    free(tree.text);
    return test_report();
}

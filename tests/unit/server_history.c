/*
 * The history of a server under a clock that the test sets: every bin has what was counted in it,
 * the sums are those of the counters, old bins go, memory has its bound, clocks may jump.
 */
#include "server/observe/observe.h"
#include "test.h"
#include "wire/json.h"

#include <malloc.h>

#define SECOND INT64_C(1000000)
#define START (INT64_C(1700000000) * SECOND) /* a multiple of ten seconds */
#define NODES 400000

static struct weir__json_node nodes[NODES];
static char *text;
static size_t text_len;

static struct server_metrics *make(size_t threads)
{
    struct server_metrics_setup setup = {.threads = threads, .now_us = START, .store_kind = "none"};
    struct server_metrics *metrics = NULL;
    CHECK_INT(server_metrics_create(&setup, &metrics, NULL), WEIR_OK);
    return metrics;
}

static const struct weir__json_node *history(struct server_metrics *metrics, int64_t now_us,
                                             int64_t seconds)
{
    struct weir__buffer out = weir__buffer_growing();
    server_metrics_history(metrics, now_us, seconds, &out);
    CHECK(!out.cut);
    free(text);
    text = out.data;
    text_len = out.len;
    CHECK(weir__json_read(text, out.len, nodes, NODES, NULL) > 0);
    return nodes;
}

static const struct weir__json_node *member(const struct weir__json_node *object, const char *name)
{
    const struct weir__json_node *found = weir__json_member(nodes, object, name);
    if (!found)
        printf("no member %s\n", name);
    return CHECK(found != NULL) ? found : nodes;
}

/* Element i of an array, as a number; -1: null, or none. */
static double element(const struct weir__json_node *array, size_t i)
{
    const struct weir__json_node *at = array + 1;
    if (i >= array->len)
        return -1;
    while (i-- > 0)
        at = &nodes[at->next];
    return at->type == WEIR__JSON_NUMBER ? strtod(at->text, NULL) : -1;
}

static int64_t sum(const struct weir__json_node *array)
{
    int64_t all = 0;
    const struct weir__json_node *at = array + 1;
    for (size_t i = 0; i < array->len; i++, at = &nodes[at->next])
        all += strtoll(at->text, NULL, 10);
    return all;
}

static void count(struct server_metrics *metrics, size_t thread, uint32_t id, int allowed,
                  int denied)
{
    struct server_counters *const counters = server_metrics_thread(metrics, thread);
    for (int i = 0; i < allowed + denied; i++) {
        server_count_decision(counters, SERVER_SERIES_TOTAL, i < allowed, false);
        server_count_decision(counters, id, i < allowed, false);
    }
    server_histogram_record(&counters->latency, 1000, (uint64_t)(allowed + denied));
}

static void test_bins(void)
{
    struct server_metrics *const metrics = make(2);
    const uint32_t api = server_metrics_series(metrics, "api", NULL);
    const uint32_t all = server_metrics_series(metrics, "api", "all");
    const struct weir__json_node *root = history(metrics, START + SECOND, 3600);
    CHECK_INT(member(root, "edges")->len, 2);
    CHECK_INT(member(root, "policies")->len, 0);
    CHECK_INT(member(member(root, "totals"), "allowed")->len, 1);
    CHECK(element(member(member(root, "latency"), "p50"), 0) == -1);
    for (int second = 1; second <= 35; second++) {
        count(metrics, (size_t)second % 2, api, second, 1);
        server_count_decision(server_metrics_thread(metrics, 0), all, true, false);
        server_metrics_tick(metrics, START + second * SECOND);
    }
    root = history(metrics, START + 35 * SECOND, 3600);
    const struct weir__json_node *allowed = member(member(root, "totals"), "allowed");
    CHECK_INT(member(root, "edges")->len, 5); /* three bins, and what is since then */
    CHECK(element(member(root, "edges"), 0) == 1.7e9 &&
          element(member(root, "edges"), 3) == 1.7e9 + 30);
    CHECK(element(member(root, "edges"), 4) == 1.7e9 + 35);
    CHECK_INT(allowed->len, 4);
    CHECK(element(allowed, 0) == 55 && element(allowed, 1) == 155 && element(allowed, 2) == 255);
    CHECK(element(allowed, 3) == 31 + 32 + 33 + 34 + 35);
    CHECK(element(member(member(root, "totals"), "denied"), 1) == 10);
    CHECK(element(member(member(root, "latency"), "p99"), 2) > 0.9e-6);
    const struct weir__json_node *policy = member(root, "policies") + 1;
    CHECK_TEXT(member(policy, "name")->text, "api");
    CHECK_INT(sum(member(policy, "allowed")), 35 * 36 / 2);
    CHECK_INT(sum(member(member(policy, "limits") + 1, "allowed")), 35);
    CHECK_INT(member(member(history(metrics, START + 35 * SECOND, 10), "totals"), "allowed")->len,
              2);
    server_metrics_destroy(metrics);
}

static void test_shadow(void)
{
    struct server_metrics *const metrics = make(1);
    const uint32_t api = server_metrics_series(metrics, "api", NULL);
    const uint32_t strict = server_metrics_series(metrics, "api", "strict");
    metrics->series.names[strict].shadow = true;
    count(metrics, 0, api, 3, 0);
    server_count_shadow(server_metrics_thread(metrics, 0), strict, false);
    server_count_shadow(server_metrics_thread(metrics, 0), strict, true);
    server_count_listed(server_metrics_thread(metrics, 0), api, false);
    server_metrics_tick(metrics, START + 10 * SECOND);
    const struct weir__json_node *root = history(metrics, START + 11 * SECOND, 3600);
    const struct weir__json_node *policy = member(root, "policies") + 1;
    CHECK_INT(sum(member(member(root, "totals"), "shadow_denied")), 1);
    CHECK_INT(sum(member(policy, "shadow_denied")), 1);
    CHECK_INT(sum(member(policy, "denied")), 1);
    const struct weir__json_node *limit = member(policy, "limits") + 1;
    CHECK(member(limit, "shadow")->truth);
    CHECK_INT(sum(member(limit, "allowed")), 1);
    CHECK_INT(sum(member(limit, "denied")), 1);
    metrics->series.names[strict].shadow = false; /* a reload: other counters, which are lower */
    server_metrics_tick(metrics, START + 20 * SECOND);
    root = history(metrics, START + 21 * SECOND, 3600);
    CHECK_INT(sum(member(member(member(root, "policies") + 1, "limits") + 1, "allowed")), 1);
    server_metrics_destroy(metrics);
}

/* An hour later only the last hour is there; the sums of all bins are what was counted in it. */
static void test_an_hour(void)
{
    struct server_metrics *const metrics = make(1);
    const uint32_t api = server_metrics_series(metrics, "api", NULL);
    for (int64_t second = 1; second <= 2 * 3600; second++) {
        count(metrics, 0, api, 1, 0);
        server_metrics_tick(metrics, START + second * SECOND);
    }
    const struct weir__json_node *root = history(metrics, START + 7200 * SECOND, 3600);
    CHECK_INT(member(root, "edges")->len, SERVER_HISTORY_BINS + 2);
    CHECK_INT(sum(member(member(root, "totals"), "allowed")), 3600);
    CHECK(element(member(root, "edges"), 0) == 1.7e9 + 3600);
    server_metrics_destroy(metrics);
}

static void test_clock_jumps(void)
{
    struct server_metrics *const metrics = make(1);
    const uint32_t api = server_metrics_series(metrics, "api", NULL);
    for (int64_t second = 1; second <= 30; second++)
        server_metrics_tick(metrics, START + second * SECOND);
    count(metrics, 0, api, 7, 0);
    server_metrics_tick(metrics, START + 1000 * SECOND); /* forward: one long bin */
    const struct weir__json_node *root = history(metrics, START + 1001 * SECOND, 3600);
    CHECK_INT(member(root, "edges")->len, 6);
    CHECK(element(member(member(root, "totals"), "allowed"), 3) == 7);
    count(metrics, 0, api, 300, 0);
    server_metrics_tick(metrics, START + 500 * SECOND); /* back: it begins again */
    count(metrics, 0, api, 2, 0);
    root = history(metrics, START + 501 * SECOND, 3600);
    CHECK_INT(member(root, "edges")->len, 2);
    CHECK(element(member(root, "edges"), 0) == 1.7e9 + 500);
    CHECK_INT(sum(member(member(root, "totals"), "allowed")), 2); /* the 300 were before */
    server_metrics_tick(metrics, START + 510 * SECOND);
    root = history(metrics, START + 505 * SECOND, 3600); /* a reader behind the clock */
    CHECK(element(member(root, "edges"), 1) <= element(member(root, "edges"), 2));
    server_metrics_destroy(metrics);
}

/* However many policies there are, the memory and the report have a bound. */
static void test_bound(void)
{
    struct server_metrics *const metrics = make(1);
    char name[32];
    uint32_t ids[1000];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "policy-%d", i);
        ids[i] = server_metrics_series(metrics, name, NULL);
    }
    const size_t before = mallinfo2().uordblks;
    for (int bin = 1; bin <= SERVER_HISTORY_BINS + 5; bin++) {
        for (int i = 0; i < 1000; i++)
            server_count(&server_metrics_thread(metrics, 0)->series[ids[i]].allowed, 1000000);
        server_metrics_tick(metrics, START + bin * 10 * SECOND);
    }
    const size_t grown = mallinfo2().uordblks - before;
    const size_t most = SERVER_HISTORY_SERIES * (SERVER_HISTORY_BINS * 12 + 16);
    printf("grown by %zu bytes beside the %zu of the history itself\n", grown,
           sizeof(struct server_history));
    CHECK(grown <= most && sizeof(struct server_history) < 32 << 10);
    const struct weir__json_node *root =
        history(metrics, START + (SERVER_HISTORY_BINS + 5) * 10 * SECOND, 3600);
    CHECK_INT(member(root, "policies")->len, SERVER_HISTORY_SERIES - 3);
    int64_t left_out = 0;
    CHECK(weir__json_integer(member(root, "left_out"), 0, INT64_MAX, &left_out));
    CHECK_INT(left_out, 1003 - SERVER_HISTORY_SERIES);
    printf("the report has %zu bytes\n", text_len);
    CHECK(text_len < 4 << 20);
    server_metrics_destroy(metrics);
}

int main(void)
{
    test_bins();
    test_shadow();
    test_an_hour();
    test_clock_jumps();
    test_bound();
    free(text);
    return test_report();
}

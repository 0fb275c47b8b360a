/*
 * `weir explain`: what a limit does and promises, in words, numbers and a plot; or what a server
 * answers about a key, a policy or a request.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "cli/explain_slices.h"
#include "cli/server_store.h"
#include "limit/explain.h"
#include "sim/scenes.h"

#include <inttypes.h>

#define CHART_ROWS 6
#define LABEL 15 /* columns */

struct subject {
    struct weir__rule_text text;
    const struct weir__rule *rule;
    struct weir__facts facts;
    struct weir__flood flood;
};

/* What was asked, and what slices a store takes: NULL, none. */
struct asked {
    const char *limits, *key, *policy, *request, *store;
    struct cli_server server;
    bool as_json;
    struct cli_slice_use use;
};

/* ---- for people ---- */

static void explain_print_burst(const struct subject *subject)
{
    char text[96];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    const struct weir__facts *facts = &subject->facts;
    if (facts->worst_burst == WEIR__UNBOUNDED)
        weir__put_text(&buffer, "no bound");
    else
        weir__put_format(&buffer, "at most %" PRId64 " at one instant%s", facts->worst_burst,
                         facts->requests_of_one ? ", if each costs 1" : "");
    cli_print_labelled("worst burst", LABEL, text);
}

static void explain_print_memory(const struct subject *subject)
{
    char text[96];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    int64_t bytes = subject->facts.key_bytes;
    if (weir__is_large(subject->rule))
        weir__put_format(&buffer,
                         "up to %" PRId64 " bytes per key (about 104 for a single request)", bytes);
    else
        weir__put_format(&buffer, "about %" PRId64 " bytes per key", bytes);
    cli_print_labelled("memory", LABEL, text);
}

static void explain_print_edges(const struct subject *subject)
{
    char edges[WEIR__EDGES_SHOWN][WEIR__EDGE_MAX], text[WEIR__EDGES_SHOWN * (WEIR__EDGE_MAX + 2)];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (!weir__explain_edges(subject->rule, weir__clock_us(), edges))
        return;
    for (int i = 0; i < WEIR__EDGES_SHOWN; i++)
        weir__put_format(&buffer, "%s%s", i > 0 ? ", " : "", edges[i]);
    cli_print_labelled("next edges", LABEL, text);
}

static void explain_print_flood(const struct subject *subject)
{
    const struct weir__flood *flood = &subject->flood;
    const struct weir__timeline *timeline = &flood->timeline;
    struct cli_style style = cli_style_of(stdout);
    struct weir__plot plot = {
        .timeline = timeline,
        .bar_width = weir__max(1, WEIR__FLOOD_BINS_MAX / (int64_t)timeline->count),
        .rows = CHART_ROWS,
        .scale = weir__max(weir__timeline_peak(timeline), flood->bin_amount),
        .colour = style.colour,
    };
    char through[160], denied[64];
    struct weir__buffer buffer = weir__buffer_over(through, sizeof through);
    weir__put_format(&buffer, "%" PRId64 " %s", flood->through - flood->waiting,
                     weir__algorithm_of(subject->rule)->leases ? "acquired" : "went ahead");
    if (flood->waiting > 0)
        weir__put_format(&buffer, ", %" PRId64 " still wait, up to %s", flood->waiting,
                         cli_about(flood->longest_delay_us).text);
    buffer = weir__buffer_over(denied, sizeof denied);
    weir__put_format(&buffer, "%" PRId64 " denied", flood->denied);

    printf("\n  A flood of %" PRId64 " every %s, from a fresh state%s:\n",
           WEIR__FLOOD_TIMES * subject->rule->count, cli_exact(subject->rule->period_us).text,
           weir__algorithm_of(subject->rule)->leases ? ", and nothing is released" : "");
    cli_print_chart(&plot, "0", cli_about(timeline->span_us).text);
    cli_print_legend(style.colour, through, denied);
}

static void explain_print_subject(const struct subject *subject)
{
    struct cli_style style = cli_style_of(stdout);
    printf("%s%s%s\n", style.good, subject->text.text, style.off);
    cli_print_labelled("what it does", LABEL, subject->facts.what);
    cli_print_labelled("guarantee", LABEL, subject->facts.guarantee);
    explain_print_burst(subject);
    explain_print_edges(subject);
    explain_print_memory(subject);
}

/* ---- JSON ---- */

static void explain_put_bound(struct weir__json *json, const char *name, int64_t number)
{
    if (number == WEIR__UNBOUNDED)
        weir__json_put_null(json, name);
    else
        weir__json_put_int(json, name, number);
}

static void explain_put_flood(struct weir__json *json, const struct weir__flood *flood)
{
    const struct weir__timeline *timeline = &flood->timeline;
    weir__json_open(json, "flood", '{');
    weir__json_put_int(json, "times_the_rate", WEIR__FLOOD_TIMES);
    weir__json_put_seconds(json, "span", timeline->span_us);
    weir__json_put_int(json, "requests", flood->requests);
    weir__json_put_int(json, "cost_each", flood->cost);
    weir__json_put_int(json, "through", flood->through);
    weir__json_put_int(json, "waiting", flood->waiting);
    weir__json_put_int(json, "denied", flood->denied);
    weir__json_put_seconds(json, "longest_delay", flood->longest_delay_us);
    weir__json_open(json, "bins", '[');
    for (size_t i = 0; i < timeline->count; i++) {
        weir__json_open(json, NULL, '[');
        weir__json_put_int(json, NULL, timeline->bins[i].through);
        weir__json_put_int(json, NULL, timeline->bins[i].denied);
        weir__json_close(json, ']');
    }
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

static void explain_put_edges(struct weir__json *json, const struct weir__rule *rule)
{
    const int64_t now_us = weir__clock_us();
    char edges[WEIR__EDGES_SHOWN][WEIR__EDGE_MAX], began[WEIR__EDGE_MAX];
    if (!weir__explain_edges(rule, now_us, edges))
        return;
    weir__explain_began(rule, now_us, began);
    weir__json_put_string(json, "began", began);
    weir__json_open(json, "next_edges", '[');
    for (int i = 0; i < WEIR__EDGES_SHOWN; i++)
        weir__json_put_string(json, NULL, edges[i]);
    weir__json_close(json, ']');
}

static void explain_put_subject(struct weir__json *json, const struct subject *subject)
{
    const struct weir__facts *facts = &subject->facts;
    weir__json_put_string(json, "text", subject->text.text);
    weir__json_put_string(json, "what", facts->what);
    weir__json_put_string(json, "guarantee", facts->guarantee);
    explain_put_bound(json, "most", facts->most);
    weir__json_put_seconds(json, "in_any", facts->span_us);
    explain_put_bound(json, "worst_burst", facts->worst_burst);
    weir__json_put_bool(json, "if_each_costs_1", facts->requests_of_one);
    weir__json_put_int(json, "bytes_a_key", facts->key_bytes);
    explain_put_edges(json, subject->rule);
    explain_put_flood(json, &subject->flood);
}

/* ---- the answer of a server, for people ---- */

#define NODES_MAX 4096

static struct weir__json_node nodes[NODES_MAX];

static void explained_print_text(const struct weir__json_node *object, const char *name,
                                 const char *before)
{
    const struct weir__json_node *node = weir__json_typed(nodes, object, name, WEIR__JSON_STRING);
    if (!node || node->len == 0)
        return;
    fputs(before, stdout);
    cli_print_masked(node->text, node->len);
}

static int64_t explained_number(const struct weir__json_node *object, const char *name)
{
    const struct weir__json_node *node = weir__json_member(nodes, object, name);
    int64_t ret = 0;
    return node && weir__json_integer(node, 0, INT64_MAX, &ret) ? ret : 0;
}

static void explained_print_time(const struct weir__json_node *object, const char *name,
                                 const char *before)
{
    const struct weir__json_node *node = weir__json_member(nodes, object, name);
    int64_t us = WEIR_NEVER;
    if (node && (node->type == WEIR__JSON_NULL || (weir__json_seconds(node, &us) && us > 0)))
        printf("%s%s", before, cli_about(us).text);
}

static bool explained_is_true(const struct weir__json_node *object, const char *name)
{
    const struct weir__json_node *node = weir__json_typed(nodes, object, name, WEIR__JSON_BOOL);
    return node && node->truth;
}

/* When all of it is there again. Of a window by the calendar also the date, though nothing is used:
 * it is when the period ends. */
static void explained_print_reset(const struct weir__json_node *row, bool used)
{
    const struct weir__json_node *edges =
        weir__json_typed(nodes, row, "next_edges", WEIR__JSON_ARRAY);
    explained_print_time(row, "reset_after", ", resets in ");
    if (edges && edges->len > 0 && edges[1].type == WEIR__JSON_STRING) {
        fputs(used ? ", on " : ", resets on ", stdout);
        cli_print_masked(edges[1].text, edges[1].len);
    }
    explained_print_text(row, "began", ", began on ");
}

/* What is used, by the state; an older server says only what is left. */
static void explained_print_used(const struct weir__json_node *row, int64_t most, int64_t left)
{
    const struct weir__json_node *used = weir__json_typed(nodes, row, "used", WEIR__JSON_NUMBER);
    int64_t amount = used ? explained_number(row, "used") : most - left;
    printf(", %" PRId64 " used", amount);
    if (amount > most)
        printf(", %" PRId64 " over the limit", amount - most);
}

static const struct weir__json_node *explained_last(const struct weir__json_node *row)
{
    return weir__json_typed(nodes, row, "last_charged", WEIR__JSON_OBJECT);
}

/* The limit of the last charge, where that is another one: of another plan, say. */
static void explained_print_last(const struct weir__json_node *row, const char *before)
{
    const struct weir__json_node *last = explained_last(row);
    int64_t most = explained_number(last, "limit"), left = explained_number(last, "remaining");
    explained_print_text(last, "text", before);
    printf(": %" PRId64 " of %" PRId64 " left", left, most);
    explained_print_used(row, most, left);
    putchar('\n');
}

/* `alone`: only a key was given, so that what it was last charged under says more than the limit
 * of a request without attributes. */
static void explained_print_row(const struct weir__json_node *row, bool alone,
                                const struct cli_style *style)
{
    bool allowed = explained_is_true(row, "allowed");
    if (alone && explained_last(row))
        explained_print_last(row, "  last charged under ");
    printf("  %s%s%s", allowed ? style->good : style->bad, allowed ? "yes" : "no ", style->off);
    explained_print_text(row, "text", "  ");
    int64_t most = explained_number(row, "limit"), left = explained_number(row, "remaining");
    printf(": %" PRId64 " of %" PRId64 " left", left, most);
    explained_print_used(row, most, left);
    if (!allowed)
        explained_print_time(row, "retry_after", ", retry in ");
    explained_print_reset(row, left < most);
    putchar('\n');
    if (!alone && explained_last(row))
        explained_print_last(row, "       last charged under ");
    if (weir__json_typed(nodes, row, "policy", WEIR__JSON_STRING)) {
        explained_print_text(row, "policy", "       policy ");
        explained_print_text(row, "name", ", limit ");
        printf("%s\n", explained_is_true(row, "shadow") ? ", in shadow" : "");
    }
    explained_print_text(row, "key", "       key ");
    explained_print_text(row, "key_base64", "       key in base64 ");
    putchar('\n');
    explained_print_text(row, "meaning", "       ");
    putchar('\n');
}

/* Which entry of which deny list, where the server says so. */
static void explained_print_denial(const struct weir__json_node *answer)
{
    const struct weir__json_node *detail =
        weir__json_typed(nodes, answer, "detail", WEIR__JSON_STRING);
    if (!detail)
        puts("the deny list of a policy matches");
    else {
        cli_print_masked(detail->text, detail->len);
        putchar('\n');
    }
}

static void explained_print_verdict(const struct weir__json_node *answer,
                                    const struct cli_style *style)
{
    bool allowed = explained_is_true(answer, "allowed");
    const struct weir__json_node *verdict =
        weir__json_typed(nodes, answer, "verdict", WEIR__JSON_STRING);
    const char *word = verdict ? verdict->text : "limits";
    printf("%s%s%s: ", allowed ? style->good : style->bad, allowed ? "allowed" : "denied",
           style->off);
    switch (word[0]) {
    case 'n':
        puts("no policy applies");
        break;
    case 'a':
        puts("the allow lists of all matching policies match");
        break;
    case 'd':
        explained_print_denial(answer);
        break;
    default:
        if (explained_number(answer, "limit") == 0)
            puts("all limits that apply are in shadow");
        else
            printf("%" PRId64 " of %" PRId64 " left\n", explained_number(answer, "remaining"),
                   explained_number(answer, "limit"));
    }
}

/* Whether the answer to a key alone has better news than the verdict: what a deny list says of
 * missing attributes, or the limit of a plan that the key is not on, says little. */
static bool explained_verdict_is_last(const struct weir__json_node *rows)
{
    const struct weir__json_node *verdict =
        weir__json_typed(nodes, nodes, "verdict", WEIR__JSON_STRING);
    const struct weir__json_node *row = rows ? rows + 1 : NULL;
    bool last = rows && rows->len > 0 && verdict && verdict->text[0] == 'd';
    for (uint32_t i = 0; rows && i < rows->len; i++, row = &nodes[row->next])
        last = last || explained_last(row);
    return last;
}

/* `alone`: of a policy, and a key without attributes was given. */
static int explained_print(const struct cli_call *call, struct weir__span answer, bool alone,
                           bool as_json)
{
    struct cli_style style = cli_style_of(stdout);
    if (as_json) {
        printf("%.*s\n", (int)answer.len, answer.data);
        return CLI_OK;
    }
    int count = weir__json_read((char *)answer.data, answer.len, nodes, NODES_MAX, NULL);
    if (count <= 0 || nodes[0].type != WEIR__JSON_OBJECT)
        return cli_fail(call, CLI_FAILED, "the answer of the server is not JSON, or too long");
    const struct weir__json_node *rows = weir__json_typed(nodes, nodes, "limits", WEIR__JSON_ARRAY);
    const struct weir__json_node *row = rows ? rows + 1 : NULL;
    bool verdict_last = alone && explained_verdict_is_last(rows);
    if (!verdict_last)
        explained_print_verdict(nodes, &style);
    for (uint32_t i = 0; rows && i < rows->len; i++, row = &nodes[row->next])
        explained_print_row(row, alone, &style);
    if (verdict_last) {
        fputs("without attributes: ", stdout);
        explained_print_verdict(nodes, &style);
    }
    return CLI_OK;
}

/* ---- the command ---- */

static int explain_study(const struct cli_call *call, const weir_limit *limit, size_t i,
                         struct subject *ret)
{
    const struct weir__rule *rule = &limit->rules[i];
    ret->text = weir__limit_text_of(limit, i);
    ret->rule = rule;
    weir__explain_limit(limit, i, &ret->facts);
    weir_error err = {0};
    int code = weir__flood_run(rule, &ret->flood, &err);
    return code ? cli_fail(call, cli_exit_for(code), "%s: %s", ret->text.text, err.message)
                : CLI_OK;
}

static int explain_limit(const struct cli_call *call, const struct asked *asked,
                         const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++) {
        struct subject subject;
        int code = explain_study(call, limit, i, &subject);
        if (code)
            return code;
        explain_print_subject(&subject);
        if (asked->use.slicing)
            cli_slicing_print(&asked->use, limit, i, LABEL);
        explain_print_flood(&subject);
        if (i + 1 < limit->count)
            putchar('\n');
    }
    if (limit->count > 1)
        printf("\nTogether: a request is charged to all %zu limits or to none.\n", limit->count);
    return CLI_OK;
}

static int explain_limit_json(const struct cli_call *call, const struct asked *asked,
                              const weir_limit *limit)
{
    int code = CLI_OK;
    struct weir__json json = cli_json_begin('{');
    weir__json_put_string(&json, "text", weir_limit_text(limit));
    weir__json_open(&json, "limits", '[');
    for (size_t i = 0; i < limit->count; i++) {
        struct subject subject;
        code = explain_study(call, limit, i, &subject);
        if (code)
            break;
        weir__json_open(&json, NULL, '{');
        explain_put_subject(&json, &subject);
        if (asked->use.slicing)
            cli_slicing_put(&json, "slices", &asked->use, limit, i);
        weir__json_close(&json, '}');
    }
    weir__json_close(&json, ']');
    cli_json_end(&json, '}');
    return code;
}

static int explain_here(const struct cli_call *call, const struct asked *asked)
{
    weir_limit *limit = NULL;
    if (!asked->limits)
        return cli_fail(call, CLI_USAGE,
                        "LIMITS is missing; a server can explain policies, too: "
                        "--server URL --request ATTRIBUTES");
    int code = cli_read_limits(call, asked->limits, &limit);
    if (code == CLI_OK)
        code = asked->as_json ? explain_limit_json(call, asked, limit)
                              : explain_limit(call, asked, limit);
    weir_limit_free(limit);
    return code;
}

/* What a limit does is the same everywhere. The server knows the state of a key, and which policies
 * apply. */
static int explain_there(const struct cli_call *call, const struct asked *asked)
{
    weir_key key = {"weir-explain", 12};
    struct cli_server_question question = {NULL, asked->limits, asked->policy, asked->request};
    bool only_limits = asked->limits && !asked->key;
    weir_store *store = NULL;
    struct weir__span answer;
    if (asked->limits && (asked->policy || asked->request))
        return cli_fail(call, CLI_USAGE,
                        "LIMITS and --policy or --request exclude each other; leave one out");
    if (!asked->limits && !asked->policy && !asked->request)
        return cli_fail(
            call, CLI_USAGE,
            "nothing to explain: expected LIMITS, --policy NAME or --request ATTRIBUTES");
    if (asked->policy && asked->key && strchr(asked->key, '='))
        fprintf(stderr,
                "weir explain: warning: --key is a value alone, like bob; attributes are given "
                "with --request, like customer=bob\n");
    weir_limit *limit = NULL;
    int code = asked->key ? cli_read_key(call, asked->key, &key) : CLI_OK;
    if (code == CLI_OK && asked->limits)
        code = cli_read_limits(call, asked->limits, &limit);
    weir_limit_free(limit);
    if (asked->key || only_limits)
        question.key = &key;
    if (code == CLI_OK)
        code = cli_open_server_or_store(call, &asked->server, NULL, &store);
    if (code)
        return code;
    int failed = cli_server_explain(store, &question, &answer);
    if (failed)
        code = cli_refused(call, store, failed);
    else if (only_limits)
        code = explain_here(call, asked);
    else
        code = explained_print(call, answer, asked->policy && asked->key && !asked->request,
                               asked->as_json);
    weir_store_close(store);
    return code;
}

static int cmd_explain(const struct cli_call *call)
{
    struct asked asked = {0};
    struct weir__slicing slicing;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &asked.as_json, 0},      {"key", CLI_TEXT, &asked.key, 0},
        {"policy", CLI_TEXT, &asked.policy, 0},     {"request", CLI_TEXT, &asked.request, 0},
        {"server", CLI_TEXT, &asked.server.url, 0}, {"token", CLI_TEXT, &asked.server.token, 0},
        {"store", CLI_TEXT, &asked.store, 0},
    };
    const struct cli_operand operands[] = {{"LIMITS", &asked.limits, true}};
    int code = CLI_PARSE(call, options, operands);
    if (code)
        return code;
    if (asked.store && asked.server.url)
        return cli_fail(call, CLI_USAGE, "--store and --server exclude each other; leave one out");
    if (asked.store && (code = cli_slicing_read(call, asked.store, &slicing)))
        return code;
    asked.use = (struct cli_slice_use){.slicing = asked.store ? &slicing : NULL, .cost = 1};
    if (asked.server.url)
        return explain_there(call, &asked);
    if (asked.key || asked.policy || asked.request || asked.server.token)
        return cli_fail(call, CLI_USAGE,
                        "--key, --policy, --request and --token need a server: add --server URL");
    return explain_here(call, &asked);
}

const struct cli_command cli_explain = {
    .name = "explain",
    .summary = "say what a limit does and promises, with a plot",
    .run = cmd_explain,
};

/* `weir explain`: what a limit does and promises, in words, numbers and a plot. */
#include "limit/explain.h"
#include "cli/chart.h"
#include "cli/explained.h"
#include "cli/json.h"
#include "cli/server_store.h"
#include "sim/scenes.h"

#include <inttypes.h>

#define CHART_ROWS 6

struct subject {
    char text[WEIR__RULE_TEXT_MAX];
    const struct weir__rule *rule;
    struct weir__facts facts;
    struct weir__flood flood;
};

/* ---- for people ---- */

static void print_burst(const struct subject *subject)
{
    char text[96];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    const struct weir__facts *facts = &subject->facts;
    if (facts->worst_burst == WEIR__UNBOUNDED)
        weir__put_text(&buffer, "no bound");
    else
        weir__put_format(&buffer, "at most %" PRId64 " at one instant%s", facts->worst_burst,
                         facts->requests_of_one ? ", if each costs 1" : "");
    cli_print_labelled("worst burst", text);
}

static void print_memory(const struct subject *subject)
{
    char text[96];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    int64_t bytes = subject->facts.key_bytes;
    if (weir__is_large(subject->rule))
        weir__put_format(&buffer, "up to %" PRId64 " bytes a key (about 104 for a single request)",
                         bytes);
    else
        weir__put_format(&buffer, "about %" PRId64 " bytes a key", bytes);
    cli_print_labelled("memory", text);
}

static void print_flood(const struct subject *subject)
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
           weir__algorithm_of(subject->rule)->leases ? ", nothing released" : "");
    cli_print_chart(&plot, "0", cli_about(timeline->span_us).text);
    cli_print_legend(style.colour, through, denied);
}

static void print_subject(const struct subject *subject)
{
    struct cli_style style = cli_style_of(stdout);
    printf("%s%s%s\n", style.good, subject->text, style.off);
    cli_print_labelled("what it does", subject->facts.what);
    cli_print_labelled("guarantee", subject->facts.guarantee);
    print_burst(subject);
    print_memory(subject);
    print_flood(subject);
}

/* ---- JSON ---- */

static void put_bound(struct cli_json *json, const char *name, int64_t number)
{
    if (number == WEIR__UNBOUNDED)
        cli_json_null(json, name);
    else
        cli_json_int(json, name, number);
}

static void put_flood(struct cli_json *json, const struct weir__flood *flood)
{
    const struct weir__timeline *timeline = &flood->timeline;
    cli_json_open(json, "flood", '{');
    cli_json_int(json, "times_the_rate", WEIR__FLOOD_TIMES);
    cli_json_seconds(json, "span", timeline->span_us);
    cli_json_int(json, "requests", flood->requests);
    cli_json_int(json, "cost_each", flood->cost);
    cli_json_int(json, "through", flood->through);
    cli_json_int(json, "waiting", flood->waiting);
    cli_json_int(json, "denied", flood->denied);
    cli_json_seconds(json, "longest_delay", flood->longest_delay_us);
    cli_json_open(json, "bins", '[');
    for (size_t i = 0; i < timeline->count; i++) {
        cli_json_open(json, NULL, '[');
        cli_json_int(json, NULL, timeline->bins[i].through);
        cli_json_int(json, NULL, timeline->bins[i].denied);
        cli_json_close(json, ']');
    }
    cli_json_close(json, ']');
    cli_json_close(json, '}');
}

static void put_subject(struct cli_json *json, const struct subject *subject)
{
    const struct weir__facts *facts = &subject->facts;
    cli_json_open(json, NULL, '{');
    cli_json_text(json, "text", subject->text);
    cli_json_text(json, "what", facts->what);
    cli_json_text(json, "guarantee", facts->guarantee);
    put_bound(json, "most", facts->most);
    cli_json_seconds(json, "in_any", facts->span_us);
    put_bound(json, "worst_burst", facts->worst_burst);
    cli_json_bool(json, "if_each_costs_1", facts->requests_of_one);
    cli_json_int(json, "bytes_a_key", facts->key_bytes);
    put_flood(json, &subject->flood);
    cli_json_close(json, '}');
}

/* ---- the command ---- */

static int study(const struct cli_call *call, const struct weir__rule *rule, struct subject *ret)
{
    struct weir__buffer buffer = weir__buffer_over(ret->text, sizeof ret->text);
    weir__put_rule(&buffer, rule);
    ret->rule = rule;
    weir__explain(rule, &ret->facts);
    weir_error err = {0};
    int code = weir__flood_run(rule, &ret->flood, &err);
    return code ? cli_fail(call, cli_exit_for(code), "%s: %s", ret->text, err.message) : CLI_OK;
}

static int explain(const struct cli_call *call, const weir_limit *limit, bool as_json)
{
    struct cli_json json = {stdout, false};
    int code = CLI_OK;
    if (as_json) {
        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "text", weir_limit_text(limit));
        cli_json_open(&json, "limits", '[');
    }
    for (size_t i = 0; i < limit->count && code == CLI_OK; i++) {
        struct subject subject;
        code = study(call, &limit->rules[i], &subject);
        if (code == CLI_OK && as_json)
            put_subject(&json, &subject);
        else if (code == CLI_OK)
            print_subject(&subject);
        if (!as_json && i + 1 < limit->count)
            putchar('\n');
    }
    if (as_json) {
        cli_json_close(&json, ']');
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else if (code == CLI_OK && limit->count > 1) {
        printf("\nTogether: a request is charged to all %zu limits or to none.\n", limit->count);
    }
    return code;
}

struct asked {
    const char *limits, *key, *policy, *request;
    struct cli_server server;
    bool as_json;
};

static int explain_here(const struct cli_call *call, const struct asked *asked)
{
    weir_limit *limit = NULL;
    if (!asked->limits)
        return cli_fail(call, CLI_USAGE,
                        "LIMITS is missing; a server explains policies, too: "
                        "--server URL --request ATTRIBUTES");
    int code = cli_read_limits(call, asked->limits, &limit);
    if (code == CLI_OK)
        code = explain(call, limit, asked->as_json);
    weir_limit_free(limit);
    return code;
}

/* What a limit does is the same everywhere. How a key stands, and what policies apply, a server knows. */
static int explain_there(const struct cli_call *call, const struct asked *asked)
{
    weir_key key = {"weir-explain", 12};
    struct cli_server_question question = {NULL, asked->limits, asked->policy, asked->request};
    bool only_limits = asked->limits && !asked->key;
    weir_store *store = NULL;
    struct weir__span answer;
    weir_error err = {0};
    if (asked->limits && (asked->policy || asked->request))
        return cli_fail(call, CLI_USAGE, "LIMITS beside --policy or --request; leave one out");
    if (!asked->limits && !asked->policy && !asked->request)
        return cli_fail(call, CLI_USAGE, "name LIMITS, --policy NAME or --request ATTRIBUTES");
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
    int failed = cli_server_explain(store, &question, &answer, &err);
    if (failed)
        code = cli_fail(call, cli_exit_for(failed), "%s", err.message);
    else if (only_limits)
        code = explain_here(call, asked);
    else
        code = cli_print_explained(call, answer, asked->as_json);
    weir_store_close(store);
    return code;
}

static int run(const struct cli_call *call)
{
    struct asked asked = {0};
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &asked.as_json, 0},  {"key", CLI_TEXT, &asked.key, 0},
        {"policy", CLI_TEXT, &asked.policy, 0}, {"request", CLI_TEXT, &asked.request, 0},
        CLI_SERVER_OPTIONS(asked.server),
    };
    const struct cli_operand operands[] = {{"LIMITS", &asked.limits, true}};
    int code = CLI_PARSE(call, options, operands);
    if (code)
        return code;
    if (asked.server.url)
        return explain_there(call, &asked);
    if (asked.key || asked.policy || asked.request || asked.server.token)
        return cli_fail(
            call, CLI_USAGE,
            "--key, --policy, --request and --token are asked of a server; name it with "
            "--server URL");
    return explain_here(call, &asked);
}

const struct cli_command cli_explain = {
    .name = "explain",
    .summary = "what a limit does and promises, with a plot",
    .help =
        "Usage: weir explain LIMITS [--json]\n"
        "       weir explain --server URL [LIMITS] [--key KEY] [--policy NAME]\n"
        "                    [--request ATTRIBUTES] [--token TOKEN] [--json]\n"
        "\n"
        "Says for each limit what it does, the most it ever lets through, the worst burst\n"
        "and the memory a key takes, and plots what a flood gets through it (decided by\n"
        "the library under a virtual clock). A span counts its first instant and not its\n"
        "last. The promises are about what was charged: giving back by `weir settle`\n"
        "makes room for more. The worst burst is that of callers who do not wait.\n"
        "\n"
        "A server (--server) tells how a key stands under LIMITS or a policy, and which\n"
        "policies apply to a request. Nothing is charged.\n"
        "\n"
        "Limits:\n"
        "  token-bucket 10/s burst 20          a burst, then the rate; `stepped`: all\n"
        "                                      refilled at once\n"
        "  leaky-bucket 10/s burst 5           a queue (nginx's limit_req); `nodelay`, or\n"
        "                                      `delay 3`\n"
        "  fixed-window 100/m                  a count a window; `from-first`: opened by\n"
        "                                      its first request\n"
        "  sliding-log 5/m                     exact, one entry a request\n"
        "  sliding-window 240/h precision 1m   never over, slots instead of entries\n"
        "  sliding-counter 1000/h              an estimate in 16 bytes\n"
        "  smooth 5/s burst-for 2s             Guava's SmoothBursty\n"
        "  warmup 5/s over 3s cold 3           Guava's SmoothWarmingUp\n"
        "  concurrent 20 lease 30s             at most so many at a time\n"
        "\n"
        "Options:\n"
        "  --json        the same facts as one JSON object\n"
        "  --key KEY     of a server: how this key stands\n"
        "  --policy NAME\n"
        "                of a server: under this policy\n"
        "  --request ATTRIBUTES\n"
        "                of a server: what this request meets, like\n"
        "                \"path=/login&user=ann&ip=10.1.2.3\", encoded like a "
        "query\n" CLI_SERVER_HELP "\n"
        "Examples:\n"
        "  weir explain \"token-bucket 10/s burst 20\"\n"
        "  weir explain \"sliding-log 5/m, fixed-window 1000/d\" --json\n"
        "  weir explain --server localhost:7311 --request \"path=/login&ip=10.1.2.3\"\n"
        "  weir explain --server localhost:7311 \"fixed-window 9/h\" --key ann\n" CLI_EXIT_CODES,
    .run = run,
};

/* A replay in a few lines, with a plot: see replay_report.h. */
#include "cli/chart.h"
#include "cli/json.h"
#include "cli/replay_report.h"

#include "base/duration.h"

#include <inttypes.h>

#define TOP_KEYS 10
#define CHART_ROWS 8

/* A key's text again, by its place in the trace. */
static struct weir__arrival first_of(const struct cli_summary *summary,
                                     struct weir__trace_reader *reader, size_t offset)
{
    struct weir__arrival arrival = {.key = "?", .key_len = 1};
    weir__trace_begin(reader, summary->trace);
    weir__trace_seek(reader, offset);
    weir__trace_next(reader, &arrival, NULL);
    return arrival;
}

static double percent(int64_t part, int64_t all)
{
    return all > 0 ? 100.0 * (double)part / (double)all : 0;
}

/* ---- for people ---- */

static void print_top(const struct cli_summary *summary)
{
    struct weir__tally_key top[TOP_KEYS];
    size_t n = weir__tally_most_denied(summary->tally, top, TOP_KEYS);
    struct weir__trace_reader reader;
    struct cli_style style = cli_style_of(stdout);
    if (n == 0)
        return;
    printf("\n%sMost denied%s\n", style.bold, style.off);
    for (size_t i = 0; i < n; i++) {
        struct weir__arrival arrival = first_of(summary, &reader, top[i].offset);
        printf("  %10" PRId64 " of %-10" PRId64 " %s\n", top[i].denied, top[i].requests,
               cli_show(arrival.key, arrival.key_len).text);
    }
}

static void print_totals(const struct cli_summary *summary)
{
    const struct weir__tally *tally = summary->tally;
    struct cli_style style = cli_style_of(stdout);
    int64_t span = tally->requests > 0 ? summary->facts->last_us - summary->facts->first_us : 0;
    printf("%s%s%s\n", style.bold, weir_limit_text(summary->limit), style.off);
    printf("  requests       %10" PRId64 "  of %zu keys over %s\n", tally->requests, tally->keys,
           cli_about(span).text);
    printf("  allowed        %s%10" PRId64 "%s  %.2f%%\n", style.good, tally->allowed, style.off,
           percent(tally->allowed, tally->requests));
    printf("  denied         %s%10" PRId64 "%s  %.2f%%\n", tally->denied ? style.bad : "",
           tally->denied, tally->denied ? style.off : "", percent(tally->denied, tally->requests));
    if (tally->cost_allowed + tally->cost_denied != tally->requests)
        printf("  cost           %10" PRId64 "  allowed, %" PRId64 " denied\n", tally->cost_allowed,
               tally->cost_denied);
    printf("  longest delay  %10s\n", cli_about(tally->longest_delay_us).text);
}

static void print_plot(const struct cli_summary *summary)
{
    const struct weir__timeline *timeline = &summary->tally->timeline;
    struct cli_style style = cli_style_of(stdout);
    struct weir__plot plot = {timeline, 1, CHART_ROWS, weir__timeline_peak(timeline), style.colour};
    char first[32], last[32];
    struct weir__buffer buffer = weir__buffer_over(first, sizeof first);
    weir__put_seconds(&buffer, summary->facts->first_us);
    buffer = weir__buffer_over(last, sizeof last);
    weir__put_seconds(&buffer, summary->facts->last_us);
    putchar('\n');
    cli_print_chart(&plot, first, last);
    cli_print_legend(style.colour, "allowed", "denied");
}

void cli_print_summary(const struct cli_summary *summary)
{
    print_totals(summary);
    if (summary->tally->requests > 0)
        print_plot(summary);
    print_top(summary);
}

/* ---- JSON ---- */

static void put_top(struct cli_json *json, const struct cli_summary *summary)
{
    struct weir__tally_key top[TOP_KEYS];
    size_t n = weir__tally_most_denied(summary->tally, top, TOP_KEYS);
    struct weir__trace_reader reader;
    cli_json_open(json, "most_denied", '[');
    for (size_t i = 0; i < n; i++) {
        struct weir__arrival arrival = first_of(summary, &reader, top[i].offset);
        cli_json_open(json, NULL, '{');
        cli_json_key(json, arrival.key, arrival.key_len);
        cli_json_int(json, "requests", top[i].requests);
        cli_json_int(json, "denied", top[i].denied);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void put_timeline(struct cli_json *json, const struct weir__timeline *timeline)
{
    cli_json_open(json, "timeline", '{');
    cli_json_seconds(json, "start", timeline->start_us);
    cli_json_seconds(json, "span", timeline->span_us);
    cli_json_open(json, "allowed", '[');
    for (size_t i = 0; i < timeline->count; i++)
        cli_json_int(json, NULL, timeline->bins[i].through);
    cli_json_close(json, ']');
    cli_json_open(json, "denied", '[');
    for (size_t i = 0; i < timeline->count; i++)
        cli_json_int(json, NULL, timeline->bins[i].denied);
    cli_json_close(json, ']');
    cli_json_close(json, '}');
}

void cli_print_summary_json(const struct cli_summary *summary)
{
    const struct weir__tally *tally = summary->tally;
    bool any = tally->requests > 0;
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "limits", weir_limit_text(summary->limit));
    cli_json_int(&json, "requests", tally->requests);
    cli_json_int(&json, "allowed", tally->allowed);
    cli_json_int(&json, "denied", tally->denied);
    cli_json_int(&json, "keys", (int64_t)tally->keys);
    cli_json_int(&json, "cost_allowed", tally->cost_allowed);
    cli_json_int(&json, "cost_denied", tally->cost_denied);
    cli_json_seconds(&json, "longest_delay", tally->longest_delay_us);
    cli_json_seconds(&json, "first", any ? summary->facts->first_us : -1);
    cli_json_seconds(&json, "last", any ? summary->facts->last_us : -1);
    put_top(&json, summary);
    put_timeline(&json, &tally->timeline);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

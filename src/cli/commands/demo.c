/* `weir demo`: the classic trap around a window's edge, four limits side by side. */
#include "cli/chart.h"
#include "cli/json.h"
#include "sim/scenes.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define BINS 16 /* of 7.5 seconds: each holds as many requests as its neighbour */
#define BAR_WIDTH 2
#define COLUMNS (BINS * BAR_WIDTH)
#define ROWS 5
#define GUTTER 4
#define PANEL_WIDTH (GUTTER + COLUMNS + 3)
#define ROW_BYTES 2048
#define TYPED_MAX 10

struct panel {
    const char *limits;
    const char *name;
    const char *verdict;
    struct weir__edge edge;
};

static struct panel panels[] = {
    {.limits = "fixed-window 240/h",
     .name = "fixed window",
     .verdict = "a new window at the edge: two quotas in two minutes"},
    {.limits = "sliding-window 240/h precision 1m",
     .name = "sliding window",
     .verdict = "never over 240 in any hour, with 62 counters at most"},
    {.limits = "sliding-log 240/h",
     .name = "sliding log",
     .verdict = "never over 240 in any hour, with a stamp a request"},
    {.limits = "token-bucket 240/h",
     .name = "token bucket",
     .verdict = "a full bucket, then one token every 15 seconds"},
};

/* ---- the plots ---- */

/* Text and what fills its panel up to the next one; escapes take no room. */
static void print_padded(const char *before, const char *text, const char *after, bool last)
{
    int len = (int)strlen(text);
    printf("%s%s%s%*s", before, text, after, last || len > PANEL_WIDTH ? 0 : PANEL_WIDTH - len, "");
}

static void print_count(const struct panel *panel, const struct cli_style *style, bool last)
{
    char text[64];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "admits %" PRId64 " of %d", panel->edge.admitted,
                     WEIR__EDGE_REQUESTS);
    print_padded(panel->edge.denied ? style->good : style->bad, text, style->off, last);
}

static void print_plot_row(const struct panel *panel, int row, const struct cli_style *style,
                           bool last)
{
    int64_t scale = weir__timeline_peak(&panel->edge.timeline);
    struct weir__plot plot = {&panel->edge.timeline, BAR_WIDTH, ROWS, scale, style->colour};
    char text[ROW_BYTES], top[16] = "";
    struct weir__buffer buffer = weir__buffer_over(top, sizeof top);
    if (row == 0)
        weir__put_int(&buffer, scale);
    buffer = weir__buffer_over(text, sizeof text);
    weir__plot_row(&buffer, &plot, row);
    printf("%s%*s%s%s%s%*s", style->dim, GUTTER - 1, top, row == 0 ? "┤" : "│", style->off, text,
           last ? 0 : PANEL_WIDTH - GUTTER - COLUMNS, "");
}

static void print_axis(const struct cli_style *style, bool last)
{
    printf("%s%*s└", style->dim, GUTTER - 1, "0");
    for (int i = 0; i < COLUMNS; i++)
        fputs(i == COLUMNS / 2 ? "┴" : "─", stdout);
    printf("%s%*s", style->off, last ? 0 : PANEL_WIDTH - GUTTER - COLUMNS, "");
}

static void print_times(const struct cli_style *style, bool last)
{
    char text[PANEL_WIDTH + 1];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%*s10:59%*s11:00%*s11:01", GUTTER, "", COLUMNS / 2 - 6, "",
                     COLUMNS / 2 - 6, "");
    print_padded(style->dim, text, style->off, last);
}

/* Panels from..to-1 next to each other. */
static void print_panels(size_t from, size_t to)
{
    struct cli_style style = cli_style_of(stdout);
    for (size_t i = from; i < to; i++)
        print_padded(style.bold, panels[i].limits, style.off, i + 1 == to);
    putchar('\n');
    for (size_t i = from; i < to; i++)
        print_count(&panels[i], &style, i + 1 == to);
    putchar('\n');
    for (int row = 0; row < ROWS; row++) {
        for (size_t i = from; i < to; i++)
            print_plot_row(&panels[i], row, &style, i + 1 == to);
        putchar('\n');
    }
    for (size_t i = from; i < to; i++)
        print_axis(&style, i + 1 == to);
    putchar('\n');
    for (size_t i = from; i < to; i++)
        print_times(&style, i + 1 == to);
    puts("\n");
}

/* ---- around them ---- */

static void print_verdicts(void)
{
    struct cli_style style = cli_style_of(stdout);
    for (size_t i = 0; i < WEIR__COUNT(panels); i++)
        printf("  %s%3" PRId64 "%s  %-16s %s\n", panels[i].edge.denied ? style.good : style.bad,
               panels[i].edge.admitted, style.off, panels[i].name, panels[i].verdict);
}

static void print_demo(void)
{
    struct cli_style style = cli_style_of(stdout);
    size_t fit = (size_t)cli_width(stdout) / PANEL_WIDTH;
    size_t across = fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
    printf("%sOne client, one limit: 240 an hour.%s It sends 200 requests in the last minute\n"
           "before eleven, and 240 in the first minute after. What each limit admits:\n\n",
           style.bold, style.off);
    for (size_t i = 0; i < WEIR__COUNT(panels); i += across)
        print_panels(i, i + across);
    cli_print_legend(style.colour, "admitted", "denied   (a bar is 7.5 seconds)");
    putchar('\n');
    print_verdicts();
    /* As it can be typed here, build/weir for one, unless that is too long for 80 columns. */
    const char *weir =
        strlen(program_invocation_name) <= TYPED_MAX ? program_invocation_name : "weir";
    printf("\n%sTry next%s\n"
           "  %s explain \"fixed-window 240/h\"            what a limit promises\n"
           "  %s take user:42 \"token-bucket 3/m\"         again, until it is denied\n"
           "  %s replay \"sliding-log 240/h\" trace.csv    your own traffic under a limit\n"
           "  %s --help\n",
           style.bold, style.off, weir, weir, weir, weir);
}

static void print_json(void)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_int(&json, "requests", WEIR__EDGE_REQUESTS);
    cli_json_open(&json, "limits", '[');
    for (size_t i = 0; i < WEIR__COUNT(panels); i++) {
        cli_json_open(&json, NULL, '{');
        cli_json_text(&json, "text", panels[i].limits);
        cli_json_int(&json, "admitted", panels[i].edge.admitted);
        cli_json_int(&json, "denied", panels[i].edge.denied);
        cli_json_close(&json, '}');
    }
    cli_json_close(&json, ']');
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

static int run(const struct cli_call *call)
{
    bool as_json = false;
    const struct cli_option options[] = {{"json", CLI_FLAG, &as_json, 0}};
    int code = cli_parse(call, options, WEIR__COUNT(options), NULL, 0);
    if (code)
        return code;
    for (size_t i = 0; i < WEIR__COUNT(panels); i++) {
        weir_error err = {0};
        code = weir__edge_run(panels[i].limits, BINS, &panels[i].edge, &err);
        if (code)
            return cli_fail(call, cli_exit_for(code), "%s: %s", panels[i].limits, err.message);
    }
    if (as_json)
        print_json();
    else
        print_demo();
    return CLI_OK;
}

const struct cli_command cli_demo = {
    .name = "demo",
    .summary = "twice the limit around a window's edge, and what avoids it",
    .help = "Usage: weir demo [--json]\n"
            "\n"
            "Plays the same 440 requests around the edge of an hour against four kinds of\n"
            "limit, each of 240 an hour, and shows what gets through. Nothing is stored.\n"
            "\n"
            "Options:\n"
            "  --json        only the counts, as one JSON object\n"
            "\n"
            "Examples:\n"
            "  weir demo\n"
            "  NO_COLOR=1 weir demo | less\n" CLI_EXIT_CODES,
    .run = run,
};

/* `weir demo`: the classic trap at the edge of a window, with four limits side by side. */
#include "cli/cli.h"
#include "sim/scenes.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define BINS 16 /* of 7.5 seconds: all have equally many requests */
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
     .verdict = "a new window begins at the edge: 440 in two minutes"},
    {.limits = "sliding-window 240/h precision 1m",
     .name = "sliding window",
     .verdict = "at most 240 in any hour, with at most 62 counters"},
    {.limits = "sliding-log 240/h",
     .name = "sliding log",
     .verdict = "at most 240 in any hour, with one entry per request"},
    {.limits = "token-bucket 240/h",
     .name = "token bucket",
     .verdict = "a full bucket, then one token every 15 seconds"},
};

/* ---- the plots ---- */

/* Text, filled up to the width of its panel; escape sequences take no room. */
static void demo_print_padded(const char *before, const char *text, const char *after, bool last)
{
    int len = (int)strlen(text);
    printf("%s%s%s%*s", before, text, after, last || len > PANEL_WIDTH ? 0 : PANEL_WIDTH - len, "");
}

static void demo_print_count(const struct panel *panel, const struct cli_style *style, bool last)
{
    char text[64];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "admits %" PRId64 " of %d", panel->edge.admitted,
                     WEIR__EDGE_REQUESTS);
    demo_print_padded(panel->edge.denied ? style->good : style->bad, text, style->off, last);
}

static void demo_print_plot_row(const struct panel *panel, int row, const struct cli_style *style,
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

static void demo_print_axis(const struct cli_style *style, bool last)
{
    printf("%s%*s└", style->dim, GUTTER - 1, "0");
    for (int i = 0; i < COLUMNS; i++)
        fputs(i == COLUMNS / 2 ? "┴" : "─", stdout);
    printf("%s%*s", style->off, last ? 0 : PANEL_WIDTH - GUTTER - COLUMNS, "");
}

static void demo_print_times(const struct cli_style *style, bool last)
{
    char text[PANEL_WIDTH + 1];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_format(&buffer, "%*s10:59%*s11:00%*s11:01", GUTTER, "", COLUMNS / 2 - 6, "",
                     COLUMNS / 2 - 6, "");
    demo_print_padded(style->dim, text, style->off, last);
}

/* Panels from..to-1 next to each other. */
static void demo_print_panels(size_t from, size_t to)
{
    struct cli_style style = cli_style_of(stdout);
    for (size_t i = from; i < to; i++)
        demo_print_padded(style.bold, panels[i].limits, style.off, i + 1 == to);
    putchar('\n');
    for (size_t i = from; i < to; i++)
        demo_print_count(&panels[i], &style, i + 1 == to);
    putchar('\n');
    for (int row = 0; row < ROWS; row++) {
        for (size_t i = from; i < to; i++)
            demo_print_plot_row(&panels[i], row, &style, i + 1 == to);
        putchar('\n');
    }
    for (size_t i = from; i < to; i++)
        demo_print_axis(&style, i + 1 == to);
    putchar('\n');
    for (size_t i = from; i < to; i++)
        demo_print_times(&style, i + 1 == to);
    puts("\n");
}

/* ---- the text around them ---- */

static void demo_print_verdicts(void)
{
    struct cli_style style = cli_style_of(stdout);
    for (size_t i = 0; i < WEIR__COUNT(panels); i++)
        printf("  %s%3" PRId64 "%s  %-16s %s\n", panels[i].edge.denied ? style.good : style.bad,
               panels[i].edge.admitted, style.off, panels[i].name, panels[i].verdict);
}

static void demo_print_demo(void)
{
    struct cli_style style = cli_style_of(stdout);
    size_t fit = (size_t)cli_width(stdout) / PANEL_WIDTH;
    size_t across = fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
    printf("%sOne client, one limit: 240 per hour.%s The client sends 200 requests in the\n"
           "last minute before 11:00 and 240 in the first minute after. What each limit\n"
           "admits:\n\n",
           style.bold, style.off);
    for (size_t i = 0; i < WEIR__COUNT(panels); i += across)
        demo_print_panels(i, i + across);
    cli_print_legend(style.colour, "admitted", "denied   (one bar is 7.5 seconds)");
    putchar('\n');
    demo_print_verdicts();
    /* As it was typed here, for example build/weir, unless that is too long for 80 columns. */
    const char *weir =
        strlen(program_invocation_name) <= TYPED_MAX ? program_invocation_name : "weir";
    printf("\n%sTry next%s\n"
           "  %s explain \"fixed-window 240/h\"            see what a limit promises\n"
           "  %s take user:42 \"token-bucket 3/m\"         repeat until it is denied\n"
           "  %s replay \"sliding-log 240/h\" trace.csv    try a limit on your traffic\n"
           "  %s --help\n",
           style.bold, style.off, weir, weir, weir, weir);
}

static void demo_print_json(void)
{
    struct weir__json json = cli_json_begin('{');
    weir__json_put_int(&json, "requests", WEIR__EDGE_REQUESTS);
    weir__json_open(&json, "limits", '[');
    for (size_t i = 0; i < WEIR__COUNT(panels); i++) {
        weir__json_open(&json, NULL, '{');
        weir__json_put_string(&json, "text", panels[i].limits);
        weir__json_put_int(&json, "admitted", panels[i].edge.admitted);
        weir__json_put_int(&json, "denied", panels[i].edge.denied);
        weir__json_close(&json, '}');
    }
    weir__json_close(&json, ']');
    cli_json_end(&json, '}');
}

static int cmd_demo(const struct cli_call *call)
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
        demo_print_json();
    else
        demo_print_demo();
    return CLI_OK;
}

const struct cli_command cli_demo = {
    .name = "demo",
    .summary = "show what limits let through at the edge of a window",
    .run = cmd_demo,
};

/*
 * A report as one page: no scripts, no fonts, nothing from a network. Charts are SVG whose bars
 * stretch with the page; their labels are text of the page, so they stay readable on a phone and on
 * paper. Everything that comes from a log or from arguments is escaped by html_put.
 */
#include "desk/report.h"

#include "base/duration.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TICKS 8
#define CHART_HEIGHT 100 /* units of the SVG */
#define FILES_NAMED 8
#define USUAL_BARS 95 /* percent of the bars that are not looked at as a peak */
#define CUT_ABOVE 5   /* a peak that is so many times as high is cut */

static const char html_head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
    "style-src 'unsafe-inline'\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<link rel=\"icon\" href=\"data:,\">\n<style>\n"
    ":root{--ground:#fff;--text:#1c2430;--soft:#5b6675;--line:#d5dae1;--card:#f5f7f9;"
    "--allowed:#2f7fc1;--delayed:#e0a030;--denied:#c8372d}\n"
    "@media screen and "
    "(prefers-color-scheme:dark){:root{--ground:#14181d;--text:#e3e8ee;--soft:#97a3b1;"
    "--line:#333c47;--card:#1d232a;--allowed:#4f9fe0;--delayed:#e5b04a;--denied:#e8604f}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:1100px;padding:16px;background:var(--ground);color:var(--text);"
    "font:15px/1.45 system-ui,sans-serif}\n"
    "h1{font-size:22px;margin:8px 0}h2{font-size:18px;margin:28px 0 6px}h3{font-size:15px;"
    "margin:16px 0 4px}\n"
    "p{margin:4px 0}code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}\n"
    ".soft{color:var(--soft)}.note{border-left:3px solid var(--delayed);padding-left:10px}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}\n"
    "th,td{padding:4px 8px;border-bottom:1px solid var(--line);text-align:right;"
    "white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    "th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}\n"
    "td:first-child{white-space:normal}td.key{min-width:150px;overflow-wrap:anywhere;font:13px "
    "ui-monospace,monospace}\n"
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:8px;"
    "margin:10px 0}\n"
    ".facts div{background:var(--card);border-radius:6px;padding:8px 10px}\n"
    ".facts b{display:block;font-size:18px;font-variant-numeric:tabular-nums}\n"
    ".facts span{color:var(--soft);font-size:13px}\n"
    ".chart{position:relative;margin:8px 0 0;padding-left:52px}\n"
    ".chart svg{display:block;width:100%;height:150px;border-left:1px solid var(--line);"
    "border-bottom:1px solid var(--line)}\n"
    ".top{position:absolute;left:0;top:-8px;width:46px;text-align:right;font-size:12px;"
    "color:var(--soft)}.zero{position:absolute;left:0;top:141px;width:46px;text-align:right;"
    "font-size:12px;color:var(--soft)}\n"
    ".axis{position:relative;height:20px;font-size:12px;color:var(--soft)}\n"
    ".axis span{position:absolute;transform:translateX(-50%);white-space:nowrap}\n"
    ".a{fill:var(--allowed)}.y{fill:var(--delayed)}.d{fill:var(--denied)}.h{fill:transparent}"
    ".h:hover{fill:var(--soft);fill-opacity:.25}.g{stroke:var(--line);stroke-width:1;"
    "vector-effect:non-scaling-stroke}\n"
    ".legend span{white-space:nowrap}\n"
    ".legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin:0 4px 0 10px}\n"
    ".bar{height:10px;background:var(--allowed);border-radius:2px;min-width:1px}\n"
    "td.bars{width:40%;min-width:90px}\n"
    "@media (max-width:600px){.axis span.odd{display:none}body{padding:10px}.chart{"
    "padding-left:44px}.top,.zero{width:40px}}\n"
    "@media print{body{max-width:none;font-size:11px}section{break-inside:avoid}"
    ".facts{gap:5px;grid-template-columns:repeat(auto-fit,minmax(105px,1fr))}"
    ".facts div{border:1px solid var(--line);padding:4px 6px}.facts b{font-size:14px}"
    ".facts span{font-size:10px}table{font-size:11px}th,td{padding:2px 6px}"
    "h1{font-size:18px}h2{font-size:15px;margin-top:16px}.a,.y,.d,.bar,i{-webkit-print-color-"
    "adjust:exact;"
    "print-color-adjust:exact}}\n"
    "h2 code{font-size:inherit}dl{display:grid;gap:4px 14px;margin:8px 0;"
    "grid-template-columns:max-content minmax(0,1fr)}dd{margin:0;overflow-wrap:anywhere}"
    "dt{color:var(--soft)}pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;background:var(-"
    "-card);padding:6px 8px;"
    "border-radius:6px;font:13px/1.4 ui-monospace,monospace}\n"
    "</style>\n<title>";

/* ---- text ---- */

/* Escaped. What is not UTF-8 or can do harm becomes U+FFFD. */
static void html_put(struct weir__buffer *out, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t n = weir__utf8_length(text + at, len - at);
        unsigned char c = (unsigned char)text[at];
        if (weir__utf8_is_harmful(text + at, n))
            weir__put_text(out, "\xef\xbf\xbd");
        else if (c == '<')
            weir__put_text(out, "&lt;");
        else if (c == '>')
            weir__put_text(out, "&gt;");
        else if (c == '&')
            weir__put_text(out, "&amp;");
        else if (c == '"')
            weir__put_text(out, "&quot;");
        else if (c == '\'')
            weir__put_text(out, "&#39;");
        else
            weir__put(out, text + at, n);
        at += n ? n : 1;
    }
}

static void html_put_text(struct weir__buffer *out, const char *text)
{
    html_put(out, text, strlen(text));
}

/* 1234567 as 1 234 567, with spaces that do not break. */
static void html_put_count(struct weir__buffer *out, int64_t number)
{
    char room[WEIR__DIGITS];
    const char *digits = weir__digits(room, number);
    size_t len = (size_t)(room + WEIR__DIGITS - digits); /* no NUL ends them */
    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            weir__put_text(out, "\xe2\x80\xaf");
        weir__put(out, digits + i, 1);
    }
}

static void html_put_key(struct weir__buffer *out, const struct desk_engine *engine,
                         const struct desk_key *key)
{
    struct weir__span text = desk_key_text(engine, key);
    html_put(out, text.data, text.len);
    if (key->text_cut)
        weir__put_text(out, "…");
}

/* A cell of a table. */
static void html_put_cell(struct weir__buffer *out, int64_t number)
{
    weir__put_text(out, "<td>");
    html_put_count(out, number);
    weir__put_text(out, "</td>");
}

/* ---- the chart of one candidate ---- */

static int html_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The scale of all charts: the highest bar, or less if a few bars would flatten all others. Those
 * are cut then. */
static int64_t html_scale(const struct desk_engine *engine, int64_t *ret_peak)
{
    const struct desk_bin *bins = engine->tallies[0].bins;
    int64_t sums[DESK_BINS];
    size_t n = 0;
    for (size_t i = 0; i < engine->timeline.count; i++) {
        if (bins[i].allowed + bins[i].denied > 0)
            sums[n++] = bins[i].allowed + bins[i].denied;
    }
    assert(n <= DESK_BINS);
    *ret_peak = 1;
    if (n == 0)
        return 1;
    qsort(sums, n, sizeof *sums, html_compare);
    *ret_peak = sums[n - 1];
    int64_t usual = sums[(n - 1) * USUAL_BARS / 100];
    return *ret_peak > CUT_ABOVE * usual ? 2 * usual : *ret_peak;
}

enum html_layer { HTML_ALLOWED, HTML_DELAYED, HTML_DENIED };

/* One layer of the bars: from below admitted at once, delayed, denied. A bar that is cut keeps its
 * proportions: otherwise what was denied at a peak would not be seen. */
static void html_put_layer(struct weir__buffer *out, const struct desk_engine *engine,
                           const struct desk_bin *bins, int64_t scale, enum html_layer layer)
{
    static const char *const classes[] = {"a", "y", "d"};
    weir__put_format(out, "<path class=\"%s\" d=\"", classes[layer]);
    for (size_t i = 0; i < engine->timeline.count; i++) {
        int64_t at_once = bins[i].allowed - bins[i].delayed;
        int64_t below = layer == HTML_ALLOWED   ? 0
                        : layer == HTML_DELAYED ? at_once
                                                : bins[i].allowed;
        int64_t amount = layer == HTML_ALLOWED   ? at_once
                         : layer == HTML_DELAYED ? bins[i].delayed
                                                 : bins[i].denied;
        if (amount == 0)
            continue;
        double full = (double)weir__max(scale, bins[i].allowed + bins[i].denied);
        double bottom = CHART_HEIGHT * (1 - (double)below / full);
        double height = CHART_HEIGHT * (double)amount / full;
        weir__put_format(out, "M%zu %.2fh1v-%.2fh-1z", i, bottom, height < 0.3 ? 0.3 : height);
    }
    weir__put_text(out, "\"/>");
}

/* What the pointer shows over a bar. */
static void html_put_hints(struct weir__buffer *out, const struct desk_engine *engine,
                           const struct desk_bin *bins)
{
    const struct desk_timeline *timeline = &engine->timeline;
    for (size_t i = 0; i < timeline->count; i++) {
        if (bins[i].allowed + bins[i].denied == 0)
            continue;
        weir__put_format(out, "<rect class=\"h\" x=\"%zu\" width=\"1\" height=\"%d\"><title>", i,
                         CHART_HEIGHT);
        desk_put_time(out, timeline->start_us + (int64_t)i * timeline->width_us);
        weir__put_format(out,
                         ": %" PRId64 " allowed, %" PRId64 " of them delayed, %" PRId64
                         " denied</title></rect>",
                         bins[i].allowed, bins[i].delayed, bins[i].denied);
    }
}

/* The grid, or the labels below it. */
static void html_put_ticks(struct weir__buffer *out, const struct desk_engine *engine, bool labels)
{
    const struct desk_timeline *timeline = &engine->timeline;
    int64_t span = timeline->width_us * (int64_t)timeline->count;
    int64_t tick = desk_tick_us(span, TICKS);
    int64_t first = weir__div_up(timeline->start_us, tick) * tick;
    for (int64_t at = first, i = 0; at < timeline->start_us + span; at += tick, i++) {
        double part = (double)(at - timeline->start_us) / (double)span;
        if (!labels) {
            double x = part * (double)timeline->count;
            weir__put_format(out, "<path class=\"g\" d=\"M%.3f 0V%d\"/>", x, CHART_HEIGHT);
        } else if (part > 0.03 && part < 0.97) {
            weir__put_format(out, "<span%s style=\"left:%.2f%%\">",
                             i % 2 && span / tick > 4 ? " class=\"odd\"" : "", 100 * part);
            desk_put_tick(out, at, tick);
            weir__put_text(out, "</span>");
        }
    }
}

static void html_put_chart(struct weir__buffer *out, const struct desk_engine *engine,
                           const char *name, size_t candidate)
{
    const struct desk_timeline *timeline = &engine->timeline;
    const struct desk_bin *bins = engine->tallies[candidate].bins;
    int64_t peak, scale = html_scale(engine, &peak);
    weir__put_text(out, "<div class=\"chart\"><span class=\"top\">");
    html_put_count(out, scale);
    weir__put_format(out,
                     "</span><span class=\"zero\">0</span><svg viewBox=\"0 0 %zu %d\" "
                     "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"requests over time: ",
                     timeline->count, CHART_HEIGHT);
    html_put_text(out, name);
    weir__put_text(out, "\">");
    html_put_ticks(out, engine, false);
    for (enum html_layer layer = HTML_ALLOWED; layer <= HTML_DENIED; layer++)
        html_put_layer(out, engine, bins, scale, layer);
    html_put_hints(out, engine, bins);
    weir__put_text(out, "</svg><div class=\"axis\">");
    html_put_ticks(out, engine, true);
    weir__put_text(out, "</div></div><p class=\"legend soft\">requests in ");
    weir__put_about(out, timeline->width_us);
    if (scale < peak) {
        weir__put_text(out, ", cut: the highest bar is ");
        html_put_count(out, peak);
    }
    weir__put_text(out, ", times in UTC"
                        " <span><i style=\"background:var(--allowed)\"></i>admitted at once</span>"
                        " <span><i style=\"background:var(--delayed)\"></i>delayed</span>"
                        " <span><i style=\"background:var(--denied)\"></i>denied</span></p>\n");
}

/* ---- sections ---- */

static void html_put_fact(struct weir__buffer *out, const char *what, int64_t number, bool about)
{
    weir__put_format(out, "<div><b>%s", about ? "about " : "");
    html_put_count(out, number);
    weir__put_format(out, "</b><span>%s</span></div>", what);
}

static void html_put_part(struct weir__buffer *out, const char *what, int64_t part, int64_t all)
{
    weir__put_format(out, "<div><b>%.2f%%</b><span>%s</span></div>", desk_percent(part, all), what);
}

static void html_put_span_fact(struct weir__buffer *out, const char *what, int64_t us)
{
    weir__put_text(out, "<div><b>");
    weir__put_about(out, us);
    weir__put_format(out, "</b><span>%s</span></div>", what);
}

static void html_put_lasted_fact(struct weir__buffer *out, const char *what, int64_t us)
{
    weir__put_text(out, "<div><b>");
    weir__put_lasted(out, us);
    weir__put_format(out, "</b><span>%s</span></div>", what);
}

/* Text of several lines; without the last newline. */
static void html_put_lines(struct weir__buffer *out, const char *text)
{
    for (;;) {
        size_t len = strcspn(text, "\n");
        html_put(out, text, len);
        if (!text[len] || !text[len + 1])
            return;
        weir__put_text(out, "\n");
        text += len + 1;
    }
}

/* What somebody else says, line by line. */
static void html_put_said(struct weir__buffer *out, const struct desk_said *said, size_t count)
{
    if (count == 0)
        return;
    weir__put_text(out, "<dl>");
    for (size_t i = 0; i < count; i++) {
        weir__put_text(out, "<dt>");
        html_put_text(out, said[i].label);
        weir__put_text(out, said[i].code ? "</dt><dd><pre>" : "</dt><dd>");
        html_put_lines(out, said[i].text);
        weir__put_text(out, said[i].code ? "</pre></dd>\n" : "</dd>\n");
    }
    weir__put_text(out, "</dl>\n");
}

/* Which logs, and which of their lines. */
static void html_put_files(struct weir__buffer *out, const struct desk_facts *facts)
{
    for (size_t i = 0; i < facts->file_count && i < FILES_NAMED; i++) {
        const struct desk_file_facts *file = &facts->files[i];
        weir__put_text(out, i ? ", " : "");
        html_put_text(out, strcmp(file->path, "-") ? file->path : "standard input");
        weir__put_format(out, " (%s)", file->format ? file->format : "empty");
    }
    if (facts->file_count > FILES_NAMED)
        weir__put_format(out, " and %zu more files", facts->file_count - FILES_NAMED);
    for (size_t i = 0; i < facts->where_count; i++) {
        weir__put_text(out, i ? " and <code>" : "<br>only requests with <code>");
        html_put_text(out, facts->where[i]);
        weir__put_text(out, "</code>");
    }
}

/* What keys are. A file of policies limits by others than those that are counted here. */
static void html_put_whose(struct weir__buffer *out, const struct desk_report *report)
{
    bool policies = !report->shown[0].limit;
    weir__put_text(out, policies ? "<br>Keys are counted by "
                                 : "<br>A key is who is limited: each one has a limit of its own. "
                                   "Here it is ");
    html_put_text(out, report->key);
    weir__put_text(out, policies ? " here, but policies have keys of their own. If yours is an API "
                                   "key, count by it: <code>--key header.x-api-key</code>. Then "
                                   "those that were denied most are customers."
                                 : ".");
}

static void html_put_beginning(struct weir__buffer *out, const struct desk_report *report)
{
    const struct desk_engine *engine = report->engine;
    bool about;
    int64_t keys = desk_engine_distinct(engine, &about);
    html_put_text(out, report->command);
    weir__put_text(out, "</title>\n</head>\n<body>\n<h1>");
    html_put_text(out, report->heading);
    weir__put_text(out, "</h1>\n<p class=\"soft\">");
    if (report->facts)
        html_put_files(out, report->facts);
    else
        html_put_text(out, report->path);
    if (engine->requests > 0) {
        weir__put_text(out, "<br>from ");
        desk_put_time(out, engine->first_us);
        weir__put_text(out, " to ");
        desk_put_time(out, engine->last_us);
        desk_put_zone(out, engine->last_us);
        html_put_whose(out, report);
    }
    weir__put_text(out, "</p>\n");
    if (report->facts && report->facts->hint[0]) {
        weir__put_text(out, "<p class=\"note\">No line matches --where: ");
        html_put_text(out, report->facts->hint);
        weir__put_text(out, "</p>\n");
    }
    html_put_said(out, report->said, report->said_count);
    weir__put_text(out, "<div class=\"facts\">");
    html_put_fact(out, "requests", engine->requests, false);
    html_put_fact(out, "keys", keys, about);
    html_put_lasted_fact(out, "from the first to the last",
                         engine->requests > 0 ? engine->last_us - engine->first_us : 0);
    if (engine->options.spare_count > 0)
        html_put_fact(out, "requests of keys that are left out", engine->spared_requests, false);
    if (report->facts)
        html_put_fact(out, "lines that could not be read", report->facts->unreadable, false);
    weir__put_text(out, "</div>\n");
    if (!desk_engine_is_lossy(engine))
        return;
    weir__put_format(out,
                     "<p class=\"note\">Approximate: %" PRId64
                     " keys in use were forgotten, so some answers are too lenient. Use more "
                     "--memory.</p>\n",
                     engine->lossy);
}

static void html_put_comparison(struct weir__buffer *out, const struct desk_report *report)
{
    const struct desk_engine *engine = report->engine;
    bool spared = engine->options.spare_count > 0, all = true, about;
    int64_t keys = desk_engine_distinct(engine, &about);
    weir__put_text(out,
                   "<section><h2>Candidates</h2><div class=\"wide\"><table><tr><th></th>"
                   "<th>allowed</th><th>denied</th><th>of all</th><th>delayed</th>"
                   "<th>keys denied</th><th>of all</th><th>denied for</th><th>most per s</th>");
    weir__put_text(out, spared ? "<th>if not spared</th></tr>\n" : "</tr>\n");
    for (size_t i = 0; i < engine->count; i++) {
        const struct desk_tally *tally = &engine->tallies[i];
        weir__put_text(out, "<tr><td>");
        html_put_text(out, report->shown[i].name);
        weir__put_text(out, "</td>");
        html_put_cell(out, tally->allowed);
        html_put_cell(out, tally->denied);
        weir__put_format(out, "<td>%.2f%%</td>", desk_percent(tally->denied, engine->requests));
        html_put_cell(out, tally->delayed);
        html_put_cell(out, tally->keys_denied);
        weir__put_format(out, "<td>%.2f%%</td><td>", desk_percent(tally->keys_denied, keys));
        weir__put_about(out, tally->longest_locked_us);
        weir__put_text(out, "</td>");
        html_put_cell(out, tally->rates->highest[0]);
        if (spared)
            html_put_cell(out, tally->spared_would_deny);
        weir__put_text(out, "</tr>\n");
    }
    weir__put_text(out, "</table></div>");
    for (size_t i = 0; i < engine->count; i++)
        all &= engine->options.candidates[i].spares;
    if (spared)
        weir__put_format(out,
                         "<p class=\"soft\">%sThe last column says what a limit would deny to "
                         "spared keys that are left out of it.</p>",
                         all ? "Spared keys are left out of every limit, also of your own. " : "");
    weir__put_text(out, "</section>\n");
}

/* A list that is cut says so. */
static void html_put_rest(struct weir__buffer *out, int64_t keys, size_t shown)
{
    if (keys <= (int64_t)shown)
        return;
    weir__put_text(out, "<p class=\"soft\">and ");
    html_put_count(out, keys - (int64_t)shown);
    weir__put_text(out, " more</p>\n");
}

/* Keys that a candidate denied most; or that it delayed most. */
static void html_put_worst(struct weir__buffer *out, const struct desk_engine *engine,
                           size_t candidate, bool delayed)
{
    const struct desk_key *top[DESK_TOP];
    const struct desk_tally *tally = &engine->tallies[candidate];
    size_t n = delayed ? desk_engine_most_delayed(engine, candidate, top, DESK_TOP)
                       : desk_engine_most_denied(engine, candidate, top, DESK_TOP);
    const char *what = delayed ? "delayed" : "denied";
    if (n == 0)
        return;
    weir__put_format(out,
                     "<h3>Keys that were %s most</h3><div class=\"wide\"><table><tr>"
                     "<th>key</th><th>%s</th><th>requests</th></tr>\n",
                     what, what);
    for (size_t i = 0; i < n; i++) {
        const struct desk_mark *mark = desk_key_mark(engine, top[i], candidate);
        weir__put_text(out, "<tr><td class=\"key\">");
        html_put_key(out, engine, top[i]);
        weir__put_text(out, "</td>");
        html_put_cell(out, delayed ? mark->delayed : mark->denied);
        html_put_cell(out, top[i]->requests);
        weir__put_text(out, "</tr>\n");
    }
    weir__put_text(out, "</table></div>\n");
    html_put_rest(out, delayed ? tally->keys_delayed : tally->keys_denied, n);
}

static void html_put_binding(struct weir__buffer *out, const struct desk_shown *shown,
                             const struct desk_tally *tally)
{
    size_t parts = shown->limit ? shown->limit->count : shown->part_count;
    if (tally->denied == 0 || parts < 2)
        return;
    weir__put_text(out, "<h3>What denied</h3><div class=\"wide\"><table><tr><th>limit</th>"
                        "<th>denied</th><th>of the denied</th></tr>\n");
    for (size_t i = 0; i < parts && i < DESK_PARTS_MAX; i++) {
        if (tally->denied_by[i] == 0)
            continue;
        struct weir__buffer name = weir__buffer_growing();
        desk_report_part(&name, shown, i);
        weir__put_text(out, "<tr><td class=\"key\">");
        html_put(out, name.data, name.len);
        weir__put_text(out, "</td>");
        html_put_cell(out, tally->denied_by[i]);
        weir__put_format(out, "<td>%.2f%%</td></tr>\n",
                         desk_percent(tally->denied_by[i], tally->denied));
        weir__buffer_free(&name);
    }
    weir__put_text(out, "</table></div>\n");
}

/* Whom these would deny: the chart does not show it. */
static void html_put_most_shadowed(struct weir__buffer *out, const struct desk_engine *engine)
{
    const struct desk_key *top[DESK_TOP];
    size_t n = desk_engine_most_noted(engine, top, DESK_TOP);
    weir__put_text(out, "<h3>Keys that limits in shadow would deny most</h3><div class=\"wide\">"
                        "<table><tr><th>key</th><th>would be denied</th><th>requests</th></tr>\n");
    for (size_t i = 0; i < n; i++) {
        weir__put_text(out, "<tr><td class=\"key\">");
        html_put_key(out, engine, top[i]);
        weir__put_text(out, "</td>");
        html_put_cell(out, *desk_key_noted(engine, top[i]));
        html_put_cell(out, top[i]->requests);
        weir__put_text(out, "</tr>\n");
    }
    weir__put_text(out, "</table></div>\n");
}

static void html_put_shadow(struct weir__buffer *out, const struct desk_engine *engine,
                            const struct desk_shown *shown)
{
    if (!shown->shadowed || shown->shadow_denied == 0)
        return;
    weir__put_text(out, "<h3>What would deny, in shadow</h3><div class=\"wide\"><table><tr>"
                        "<th>limit</th><th>would be denied</th></tr>\n");
    for (size_t i = 0; i < shown->part_count; i++) {
        if (shown->shadowed[i] == 0)
            continue;
        weir__put_text(out, "<tr><td class=\"key\">");
        html_put_text(out, shown->parts[i]);
        weir__put_text(out, "</td>");
        html_put_cell(out, shown->shadowed[i]);
        weir__put_text(out, "</tr>\n");
    }
    weir__put_text(out, "</table></div>\n");
    html_put_most_shadowed(out, engine);
}

static void html_put_candidate(struct weir__buffer *out, const struct desk_report *report, size_t i)
{
    const struct desk_engine *engine = report->engine;
    const struct desk_tally *tally = &engine->tallies[i];
    bool about;
    bool named = strcmp(report->shown[i].name, report->shown[i].text) != 0;
    weir__put_text(out, "<section><h2>");
    html_put_text(out, named ? report->shown[i].name : "");
    weir__put_text(out, named ? "</h2><p><code>" : "<code>");
    html_put_text(out, report->shown[i].text);
    weir__put_text(out, named ? "</code></p>\n" : "</code></h2>\n");
    if (engine->timeline.count > 0)
        html_put_chart(out, engine, report->shown[i].name, i);
    html_put_said(out, report->shown[i].said, report->shown[i].said_count);
    weir__put_text(out, "<div class=\"facts\">");
    html_put_fact(out, "allowed", tally->allowed, false);
    html_put_fact(out, "denied", tally->denied, false);
    if (report->shown[i].shadowed)
        html_put_fact(out, "more would be denied, by limits in shadow",
                      report->shown[i].shadow_denied, false);
    html_put_fact(out, "delayed", tally->delayed, false);
    html_put_fact(out, "keys denied", tally->keys_denied, false);
    html_put_part(out, "of the keys", tally->keys_denied, desk_engine_distinct(engine, &about));
    html_put_part(out, "of the requests are theirs", tally->requests_of_denied, engine->requests);
    if (engine->options.spare_count > 0)
        html_put_fact(out, "more would be denied, if not spared", tally->spared_would_deny, false);
    html_put_span_fact(out, "denied for, at the longest", tally->longest_locked_us);
    if (tally->delayed > 0) {
        html_put_span_fact(out, "delay, half of the delayed", desk_tally_delay_us(tally, 0.5));
        html_put_span_fact(out, "delay, 99% of the delayed", desk_tally_delay_us(tally, 0.99));
        html_put_span_fact(out, "longest delay", tally->longest_delay_us);
    }
    html_put_fact(out, "most admitted in a second", tally->rates->highest[0], false);
    html_put_fact(out, "in 10 seconds", tally->rates->highest[1], false);
    html_put_fact(out, "in a minute", tally->rates->highest[2], false);
    if (tally->memory > 0)
        html_put_fact(out, "KiB of memory for its states, about", weir__div_up(tally->memory, 1024),
                      false);
    weir__put_text(out, "</div>\n");
    html_put_binding(out, &report->shown[i], tally);
    html_put_shadow(out, engine, &report->shown[i]);
    html_put_worst(out, engine, i, false);
    html_put_worst(out, engine, i, true);
    weir__put_text(out, "</section>\n");
}

/* ---- keys ---- */

static void html_put_spread(struct weir__buffer *out, const struct desk_engine *engine)
{
    struct desk_spread spread;
    desk_engine_spread(engine, &spread);
    weir__put_text(out, "<section><h2>Requests over keys</h2><div class=\"wide\"><table><tr>"
                        "<th>requests of a key</th><th>keys</th><th>their requests</th>"
                        "<th>of all</th><th></th></tr>\n");
    int64_t from = 2, to = 9;
    for (size_t i = 0; i < spread.classes; i++) {
        weir__put_text(out, "<tr><td>");
        if (i == 0) {
            weir__put_text(out, "1");
        } else {
            html_put_count(out, from);
            weir__put_text(out, " – ");
            html_put_count(out, to);
            from = to + 1;
            to = to * 10 + 9;
        }
        weir__put_text(out, "</td>");
        html_put_cell(out, spread.keys[i]);
        html_put_cell(out, spread.requests[i]);
        double part = desk_percent(spread.requests[i], engine->requests);
        weir__put_format(out,
                         "<td>%.1f%%</td><td class=\"bars\"><div class=\"bar\" "
                         "style=\"width:%.1f%%\"></div></td></tr>\n",
                         part, part);
    }
    weir__put_format(out,
                     "</table></div><p class=\"soft\">Half of the keys have at most %" PRId64
                     " requests, 90%% at most %" PRId64 ", 99%% at most %" PRId64
                     ", the heaviest %" PRId64 ".</p></section>\n",
                     spread.median, spread.p90, spread.p99, spread.most);
}

static void html_put_heaviest(struct weir__buffer *out, const struct desk_report *report)
{
    const struct desk_engine *engine = report->engine;
    const struct desk_key *top[DESK_TOP];
    bool about;
    size_t n = desk_engine_heaviest(engine, top, DESK_TOP);
    weir__put_text(out, "<section><h2>Heaviest keys</h2><div class=\"wide\"><table><tr>"
                        "<th>key</th><th>requests</th><th>of all</th>");
    for (size_t c = 0; c < engine->count; c++) {
        weir__put_text(out, "<th>denied: ");
        html_put_text(out, report->shown[c].name);
        weir__put_text(out, "</th>");
    }
    weir__put_text(out, "</tr>\n");
    for (size_t i = 0; i < n; i++) {
        weir__put_text(out, "<tr><td class=\"key\">");
        html_put_key(out, engine, top[i]);
        weir__put_text(out, "</td>");
        html_put_cell(out, top[i]->requests);
        weir__put_format(out, "<td>%.2f%%</td>", desk_percent(top[i]->requests, engine->requests));
        for (size_t c = 0; c < engine->count; c++) {
            if (top[i]->spared && engine->options.candidates[c].spares)
                weir__put_text(out, "<td class=\"soft\">spared</td>");
            else
                html_put_cell(out, desk_key_mark(engine, top[i], c)->denied);
        }
        weir__put_text(out, "</tr>\n");
    }
    weir__put_text(out, "</table></div>\n");
    html_put_rest(out, desk_engine_distinct(engine, &about), n);
    weir__put_text(out, "</section>\n");
}

/* ---- the log ---- */

static void html_put_item(struct weir__buffer *out, int64_t count, const char *what)
{
    if (count == 0)
        return;
    weir__put_text(out, "<tr><td>");
    weir__put_text(out, what);
    weir__put_text(out, "</td>");
    html_put_cell(out, count);
    weir__put_text(out, "</tr>\n");
}

static void html_put_log(struct weir__buffer *out, const struct desk_facts *facts)
{
    weir__put_text(out, "<section><h2>The log</h2><table>\n");
    html_put_item(out, facts->lines, "lines");
    html_put_item(out, facts->filtered, "left out by --where");
    html_put_item(out, facts->keyless, "without a key");
    html_put_item(out, facts->unreadable, "could not be read");
    html_put_item(out, facts->out_of_order, "out of order, put in order");
    html_put_item(out, facts->late, "too late, decided at the time of the line before");
    html_put_item(out, facts->crowded, "could not wait for their order");
    html_put_item(out, facts->spread, "times in whole seconds, spread over their second");
    html_put_item(out, facts->jumps, "jumps of the clock by more than a day");
    weir__put_text(out, "</table>\n");
    if (facts->unseen_where) {
        weir__put_text(out, "<p class=\"note\">No line has what this asks for: --where ");
        html_put_text(out, facts->unseen_where);
        weir__put_text(out, "</p>\n");
    }
    for (size_t i = 0; i < facts->example_count; i++) {
        const struct desk_example *example = &facts->examples[i];
        weir__put_text(out, "<p>");
        html_put_text(out, example->path);
        weir__put_format(out, ", line %" PRId64 ": ", example->line);
        html_put_text(out, example->why);
        weir__put_text(out, "<br><code>");
        html_put_text(out, example->text);
        weir__put_text(out, "</code></p>\n");
    }
    for (size_t i = 0; i < facts->file_count; i++) {
        if (!facts->files[i].damage[0])
            continue;
        weir__put_text(out, "<p class=\"note\">");
        html_put_text(out, facts->files[i].path);
        weir__put_text(out, ": ");
        html_put_text(out, facts->files[i].damage);
        weir__put_text(out, "</p>\n");
    }
    weir__put_text(out, "</section>\n");
}

void desk_report_html(const struct desk_report *report, struct weir__buffer *out)
{
    const struct desk_engine *engine = report->engine;
    weir__put_text(out, html_head);
    html_put_beginning(out, report);
    bool nothing = engine->requests == 0 && report->facts && report->facts->lines > 0;
    if (engine->count > 1 && !nothing)
        html_put_comparison(out, report);
    for (size_t i = 0; i < engine->count && !nothing; i++)
        html_put_candidate(out, report, i);
    if (engine->requests > 0) {
        html_put_spread(out, engine);
        html_put_heaviest(out, report);
    }
    if (report->facts)
        html_put_log(out, report->facts);
    weir__put_text(out, "</body>\n</html>\n");
}

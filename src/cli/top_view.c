/*
 * Drawing a frame of `weir top`: what the server does, what its policies decide, which keys are
 * busy. No line is wider than the screen, and no frame is higher; keys are cut off first.
 */
#include "cli/top.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- lines of a bounded width ---- */

struct lines {
    struct weir__buffer *out;
    int width;
    bool live;  /* lines replace others, whose rest is cleared */
    int column; /* the current one, in characters */
    int lines;  /* finished so far */
    int most;   /* lines at most; 0: any number */
    size_t end; /* of the last allowed line, once it was reached */
};

static bool lines_begins_character(char c)
{
    return (c & 0xc0) != 0x80;
}

static void lines_put_up_to(struct lines *drawing, const char *text, int most)
{
    const int left = drawing->width - drawing->column;
    most = most < left ? most : left;
    int length = 0, passed = 0;
    for (const char *at = text; *at; at++)
        length += lines_begins_character(*at);
    if (most <= 0)
        return;
    const int shown = length <= most ? length : most - 1;
    const char *end = text;
    for (; *end && !(lines_begins_character(*end) && passed == shown); end++)
        passed += lines_begins_character(*end);
    weir__put(drawing->out, text, (size_t)(end - text));
    if (shown < length)
        weir__put_text(drawing->out, "…");
    drawing->column += shown < length ? shown + 1 : length;
    assert(drawing->column <= drawing->width);
}

static void lines_put_text(struct lines *drawing, const char *text)
{
    lines_put_up_to(drawing, text, drawing->width);
}

static void lines_go_to(struct lines *drawing, int column)
{
    while (drawing->column < column && drawing->column < drawing->width) {
        weir__put(drawing->out, " ", 1);
        drawing->column++;
    }
}

static void lines_put_right(struct lines *drawing, const char *text, int end)
{
    lines_go_to(drawing, end - (int)strlen(text));
    lines_put_text(drawing, text);
}

static void lines_style(struct lines *drawing, const char *style)
{
    weir__put_text(drawing->out, style);
}

static void lines_end_line(struct lines *drawing)
{
    if (drawing->live)
        weir__put_text(drawing->out, "\033[K");
    drawing->column = 0;
    drawing->lines++;
    if (drawing->lines == drawing->most)
        drawing->end = drawing->out->len;
    weir__put(drawing->out, "\n", 1);
}

static void lines_finish(struct lines *drawing)
{
    if (drawing->most == 0 || drawing->lines < drawing->most)
        return;
    drawing->out->len = drawing->end;
    drawing->out->data[drawing->end] = '\0';
}

/* ---- numbers ---- */

struct number {
    char text[32];
};

static struct number view_brief(double value)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    struct number number = {"<0.1"};
    size_t unit = 0;
    if (value > 0 && value < 0.05)
        return number;
    for (; value >= 999.5 && unit + 1 < WEIR__COUNT(units); unit++)
        value /= 1000;
    const bool whole = value >= 9.95 || value == 0 || (unit == 0 && value == floor(value));
    snprintf(number.text, sizeof number.text, whole ? "%.0f%s" : "%.1f%s", value, units[unit]);
    return number;
}

static struct number view_brief_time(double seconds)
{
    static const struct {
        double one;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    struct number number;
    size_t unit = 0;
    while (unit + 1 < WEIR__COUNT(units) && seconds < units[unit].one)
        unit++;
    const double value = seconds / units[unit].one;
    snprintf(number.text, sizeof number.text, value < 9.95 ? "%.1f%s" : "%.0f%s", value,
             units[unit].name);
    return number;
}

static struct number view_percent(double part, double all)
{
    struct number number;
    const double share = all > 0 ? 100 * part / all : 0;
    snprintf(number.text, sizeof number.text, share > 0 && share < 9.95 ? "%.1f%%" : "%.0f%%",
             share);
    return number;
}

#define KEYS_ONCE 20 /* per list, if nothing limits the height */
#define ROWS_LEAST 3 /* of each section, however low the screen is */

struct drawing {
    const struct cli_top_view *view;
    struct cli_style style;
    struct lines lines;
};

static void view_put_styled(struct drawing *drawing, const char *style, const char *text)
{
    lines_style(&drawing->lines, style);
    lines_put_text(&drawing->lines, text);
    lines_style(&drawing->lines, drawing->style.off);
}

/* ---- the server ---- */

static void view_put_pair(struct drawing *drawing, const char *name, const char *value, bool bad)
{
    if (drawing->lines.column > 0)
        lines_put_text(&drawing->lines, "  ");
    view_put_styled(drawing, drawing->style.dim, name);
    lines_put_text(&drawing->lines, " ");
    view_put_styled(drawing, bad ? drawing->style.bad : "", value);
}

static void view_draw_heading(struct drawing *drawing, const struct cli_top_model *top)
{
    const struct cli_style *const style = &drawing->style;
    char title[128];
    snprintf(title, sizeof title, "weir %.20s", top->version.text);
    view_put_styled(drawing, style->bold, title);
    lines_put_text(&drawing->lines, "  ");
    lines_put_text(&drawing->lines, drawing->view->address);
    view_put_pair(drawing, "up", cli_about((int64_t)top->uptime * 1000000).text, false);
    view_put_pair(drawing, "store", top->store.text, false);
    if (top->degraded) {
        lines_put_text(&drawing->lines, "  ");
        view_put_styled(drawing, style->bad, "unreachable: the local fallback decides");
    }
    lines_end_line(&drawing->lines);
    if (drawing->view->trouble) {
        view_put_styled(drawing, style->bad, drawing->view->trouble);
        lines_end_line(&drawing->lines);
    }
}

static void view_put_rate(struct drawing *drawing, const char *name, double rate, bool bad)
{
    char text[48];
    snprintf(text, sizeof text, "%s/s", view_brief(rate).text);
    view_put_pair(drawing, name, text, bad && rate > 0);
}

static void view_draw_traffic(struct drawing *drawing, const struct cli_top_model *top)
{
    const double decided = top->counts[CLI_TOP_ALLOWED].rate + top->counts[CLI_TOP_DENIED].rate;
    view_put_rate(drawing, "allowed", top->counts[CLI_TOP_ALLOWED].rate, false);
    view_put_rate(drawing, "denied", top->counts[CLI_TOP_DENIED].rate, true);
    view_put_pair(drawing, "denied share",
                  view_percent(top->counts[CLI_TOP_DENIED].rate, decided).text,
                  top->counts[CLI_TOP_DENIED].rate > 0);
    if (top->counts[CLI_TOP_SHADOW_DENIED].value)
        view_put_rate(drawing, "shadow denied", top->counts[CLI_TOP_SHADOW_DENIED].rate, false);
    if (top->counts[CLI_TOP_FAILED].value)
        view_put_rate(drawing, "failed", top->counts[CLI_TOP_FAILED].rate, true);
    lines_end_line(&drawing->lines);
    view_put_rate(drawing, "http", top->counts[CLI_TOP_HTTP].rate, false);
    view_put_rate(drawing, "resp", top->counts[CLI_TOP_RESP].rate, false);
    view_put_rate(drawing, "grpc", top->counts[CLI_TOP_GRPC].rate, false);
    view_put_pair(drawing, "connections", view_brief((double)top->open).text, false);
    if (top->refused)
        view_put_pair(drawing, "refused", view_brief((double)top->refused).text, true);
    lines_end_line(&drawing->lines);
}

static void view_draw_health(struct drawing *drawing, const struct cli_top_model *top)
{
    if (top->latency_count) {
        view_put_pair(drawing, "p50", view_brief_time(top->p50).text, false);
        view_put_pair(drawing, "p99", view_brief_time(top->p99).text, false);
        view_put_pair(drawing, "p99.9", view_brief_time(top->p999).text, false);
    }
    if (top->has_zone) {
        char text[128];
        const double keys = (double)top->zone_keys, capacity = (double)top->zone_capacity;
        snprintf(text, sizeof text, "%s full (%s of %s states)", view_percent(keys, capacity).text,
                 view_brief(keys).text, view_brief(capacity).text);
        view_put_pair(drawing, "zone", text, false);
    }
    if (top->zone_lost)
        view_put_pair(drawing, "evicted in use", view_brief((double)top->zone_lost).text, true);
    if (drawing->lines.column > 0)
        lines_end_line(&drawing->lines);
}

/* ---- policies ---- */

static void view_draw_row(struct drawing *drawing, const struct cli_top_row *row)
{
    const struct cli_style *const style = &drawing->style;
    const int width = drawing->lines.width < 100 ? drawing->lines.width : 100;
    const bool quiet = row->allowed_rate + row->denied_rate == 0;
    lines_style(&drawing->lines, quiet ? style->dim : "");
    if (row->limit.text[0])
        lines_put_text(&drawing->lines, "  ");
    lines_put_up_to(&drawing->lines,
                    row->limit.text[0]    ? row->limit.text
                    : row->policy.text[0] ? row->policy.text
                                          : "(limits in requests)",
                    width - 31 - (row->shadow ? 7 : 0));
    if (row->shadow)
        view_put_styled(drawing, style->dim, " shadow");
    lines_put_right(&drawing->lines, view_brief(row->allowed_rate).text, width - 20);
    lines_style(&drawing->lines, row->denied_rate > 0 && !row->shadow ? style->bad : "");
    lines_put_right(&drawing->lines, view_brief(row->denied_rate).text, width - 10);
    lines_put_right(&drawing->lines,
                    view_percent(row->denied_rate, row->allowed_rate + row->denied_rate).text,
                    width);
    lines_style(&drawing->lines, style->off);
    lines_end_line(&drawing->lines);
}

static void view_draw_policies(struct drawing *drawing, const struct cli_top_model *top, int most)
{
    const struct cli_style *const style = &drawing->style;
    const int width = drawing->lines.width < 100 ? drawing->lines.width : 100;
    lines_style(&drawing->lines, style->bold);
    lines_put_text(&drawing->lines, "POLICY");
    lines_put_right(&drawing->lines, "allowed/s", width - 20);
    lines_put_right(&drawing->lines, "denied/s", width - 10);
    lines_put_right(&drawing->lines, "denied", width);
    lines_style(&drawing->lines, style->off);
    lines_end_line(&drawing->lines);
    int drawn = 0;
    for (size_t i = 0; i < top->row_count && drawn < most; i++, drawn++)
        view_draw_row(drawing, &top->rows[i]);
    if ((size_t)drawn < top->row_count) {
        char text[64];
        snprintf(text, sizeof text, "… %zu more", top->row_count - (size_t)drawn);
        view_put_styled(drawing, style->dim, text);
        lines_end_line(&drawing->lines);
    }
}

/* ---- keys ---- */

/* One key in the columns from start to end: the key, its policy unless the key begins with it, the
 * rate. */
static void view_draw_key(struct drawing *drawing, const struct cli_top_key *key, int start,
                          int end)
{
    const size_t name_len = strlen(key->policy.text);
    const bool said = name_len == 0 || (!strncmp(key->key.text, key->policy.text, name_len) &&
                                        key->key.text[name_len] == '/');
    const int most = (end - start) / 4 < 24 ? (end - start) / 4 : 24;
    const int policy = said ? 0 : most;
    lines_go_to(&drawing->lines, start);
    lines_put_up_to(&drawing->lines, key->key.text, end - start - policy - 8);
    lines_go_to(&drawing->lines, end - policy - 7);
    lines_style(&drawing->lines, drawing->style.dim);
    lines_put_up_to(&drawing->lines, key->policy.text, policy);
    lines_style(&drawing->lines, drawing->style.off);
    lines_put_right(&drawing->lines, view_brief(key->rate).text, end);
}

static void view_draw_key_title(struct drawing *drawing, const char *title, int start, int end)
{
    lines_go_to(&drawing->lines, start);
    lines_style(&drawing->lines, drawing->style.bold);
    lines_put_text(&drawing->lines, title);
    lines_put_right(&drawing->lines, "/s", end);
    lines_style(&drawing->lines, drawing->style.off);
}

static void view_draw_list(struct drawing *drawing, const struct cli_top_keys *keys,
                           const char *title, int most)
{
    view_draw_key_title(drawing, title, 0, drawing->lines.width);
    lines_end_line(&drawing->lines);
    for (int i = 0; i < most && (size_t)i < keys->count; i++) {
        view_draw_key(drawing, &keys->rows[i], 0, drawing->lines.width);
        lines_end_line(&drawing->lines);
    }
}

static void view_draw_side_by_side(struct drawing *drawing, const struct cli_top_model *top,
                                   int most)
{
    const int middle = drawing->lines.width / 2;
    const struct cli_top_keys *const left = &top->hottest, *const right = &top->denied_keys;
    view_draw_key_title(drawing, "HOTTEST KEYS", 0, middle - 2);
    view_draw_key_title(drawing, "MOST DENIED KEYS", middle, drawing->lines.width);
    lines_end_line(&drawing->lines);
    for (int i = 0; i < most && ((size_t)i < left->count || (size_t)i < right->count); i++) {
        if ((size_t)i < left->count)
            view_draw_key(drawing, &left->rows[i], 0, middle - 2);
        if ((size_t)i < right->count)
            view_draw_key(drawing, &right->rows[i], middle, drawing->lines.width);
        lines_end_line(&drawing->lines);
    }
}

/* ---- the frame ---- */

static int view_at_least(int rows)
{
    return rows > ROWS_LEAST ? rows : ROWS_LEAST;
}

static void view_draw_stacked(struct drawing *drawing, const struct cli_top_model *top, int keys)
{
    const int denied = (int)weir__min((int64_t)top->denied_keys.count, keys);
    const int second =
        drawing->view->height ? weir__min(denied, view_at_least((keys - 2) / 2)) : denied;
    view_draw_list(drawing, &top->hottest, "HOTTEST KEYS",
                   drawing->view->height ? view_at_least(keys - second - 2) : keys);
    if (denied) {
        lines_end_line(&drawing->lines);
        view_draw_list(drawing, &top->denied_keys, "MOST DENIED KEYS", second);
    }
}

void cli_top_draw(const struct cli_top_view *view, const struct cli_top_model *top,
                  struct weir__buffer *out)
{
    struct drawing drawing = {
        .view = view,
        .style = view->style,
        .lines = {.out = out, .width = view->width, .live = view->live, .most = view->height},
    };
    view_draw_heading(&drawing, top);
    view_draw_traffic(&drawing, top);
    view_draw_health(&drawing, top);
    lines_end_line(&drawing.lines);
    /* Policies get half of the lines that are left; keys get the rest. */
    const int left = view->height ? view->height - drawing.lines.lines - 1 : 1000000;
    view_draw_policies(&drawing, top, view->height ? view_at_least(left / 2 - 3) : left);
    lines_end_line(&drawing.lines);
    const int keys = view->height ? view->height - drawing.lines.lines - 2 : KEYS_ONCE;
    if (view->width >= 100)
        view_draw_side_by_side(&drawing, top, view_at_least(keys));
    else
        view_draw_stacked(&drawing, top, keys);
    lines_finish(&drawing.lines);
}

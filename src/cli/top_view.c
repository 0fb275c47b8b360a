/*
 * Drawing a frame of `weir top`: what the server does, what its policies say, which keys are busy. No
 * line is wider than the screen, and a frame not higher; what is cut off first are keys.
 */
#include "cli/top_view.h"

#include "cli/top_lines.h"

#include <string.h>

#define KEYS_ONCE 20 /* of a list, where nothing bounds the height */
#define ROWS_LEAST 3 /* of any section, however low the screen is */

struct drawing {
    const struct cli_top_view *view;
    struct cli_style style;
    struct cli_drawing lines;
};

static void put_styled(struct drawing *drawing, const char *style, const char *text)
{
    cli_put_style(&drawing->lines, style);
    cli_put(&drawing->lines, text);
    cli_put_style(&drawing->lines, drawing->style.off);
}

/* ---- the server ---- */

static void put_pair(struct drawing *drawing, const char *name, const char *value, bool bad)
{
    if (drawing->lines.column > 0)
        cli_put(&drawing->lines, "  ");
    put_styled(drawing, drawing->style.dim, name);
    cli_put(&drawing->lines, " ");
    put_styled(drawing, bad ? drawing->style.bad : "", value);
}

static void draw_heading(struct drawing *drawing, const struct cli_top_model *top)
{
    const struct cli_style *const style = &drawing->style;
    char title[128];
    snprintf(title, sizeof title, "weir %.20s", top->version.text);
    put_styled(drawing, style->bold, title);
    cli_put(&drawing->lines, "  ");
    cli_put(&drawing->lines, drawing->view->address);
    put_pair(drawing, "up", cli_about((int64_t)top->uptime * 1000000).text, false);
    put_pair(drawing, "store", top->store.text, false);
    if (top->degraded) {
        cli_put(&drawing->lines, "  ");
        put_styled(drawing, style->bad, "out of reach: a stand-in decides");
    }
    cli_put_line_end(&drawing->lines);
    if (drawing->view->trouble) {
        put_styled(drawing, style->bad, drawing->view->trouble);
        cli_put_line_end(&drawing->lines);
    }
}

static void put_rate(struct drawing *drawing, const char *name, double rate, bool bad)
{
    char text[48];
    snprintf(text, sizeof text, "%s/s", cli_brief(rate).text);
    put_pair(drawing, name, text, bad && rate > 0);
}

static void draw_traffic(struct drawing *drawing, const struct cli_top_model *top)
{
    const double decided = top->allowed.rate + top->denied.rate;
    put_rate(drawing, "allowed", top->allowed.rate, false);
    put_rate(drawing, "denied", top->denied.rate, true);
    put_pair(drawing, "which is", cli_percent(top->denied.rate, decided).text,
             top->denied.rate > 0);
    if (top->shadow_denied.value)
        put_rate(drawing, "shadow denied", top->shadow_denied.rate, false);
    if (top->failed.value)
        put_rate(drawing, "failed", top->failed.rate, true);
    cli_put_line_end(&drawing->lines);
    put_rate(drawing, "http", top->http.rate, false);
    put_rate(drawing, "resp", top->resp.rate, false);
    put_rate(drawing, "grpc", top->grpc.rate, false);
    put_pair(drawing, "connections", cli_brief((double)top->open).text, false);
    if (top->refused)
        put_pair(drawing, "refused", cli_brief((double)top->refused).text, true);
    cli_put_line_end(&drawing->lines);
}

static void draw_health(struct drawing *drawing, const struct cli_top_model *top)
{
    if (top->latency_count) {
        put_pair(drawing, "p50", cli_brief_time(top->p50).text, false);
        put_pair(drawing, "p99", cli_brief_time(top->p99).text, false);
        put_pair(drawing, "p99.9", cli_brief_time(top->p999).text, false);
    }
    if (top->has_zone) {
        char text[128];
        const double keys = (double)top->zone_keys, capacity = (double)top->zone_capacity;
        snprintf(text, sizeof text, "%s full (%s of %s states)", cli_percent(keys, capacity).text,
                 cli_brief(keys).text, cli_brief(capacity).text);
        put_pair(drawing, "zone", text, false);
    }
    if (top->zone_lost)
        put_pair(drawing, "evicted in use", cli_brief((double)top->zone_lost).text, true);
    if (drawing->lines.column > 0)
        cli_put_line_end(&drawing->lines);
}

/* ---- policies ---- */

static void draw_row(struct drawing *drawing, const struct cli_top_row *row)
{
    const struct cli_style *const style = &drawing->style;
    const int width = drawing->lines.width < 100 ? drawing->lines.width : 100;
    const bool quiet = row->allowed_rate + row->denied_rate == 0;
    cli_put_style(&drawing->lines, quiet ? style->dim : "");
    if (row->limit.text[0])
        cli_put(&drawing->lines, "  ");
    cli_put_up_to(&drawing->lines,
                  row->limit.text[0]    ? row->limit.text
                  : row->policy.text[0] ? row->policy.text
                                        : "(limits of requests)",
                  width - 31 - (row->shadow ? 7 : 0));
    if (row->shadow)
        put_styled(drawing, style->dim, " shadow");
    cli_put_right(&drawing->lines, cli_brief(row->allowed_rate).text, width - 20);
    cli_put_style(&drawing->lines, row->denied_rate > 0 && !row->shadow ? style->bad : "");
    cli_put_right(&drawing->lines, cli_brief(row->denied_rate).text, width - 10);
    cli_put_right(&drawing->lines,
                  cli_percent(row->denied_rate, row->allowed_rate + row->denied_rate).text, width);
    cli_put_style(&drawing->lines, style->off);
    cli_put_line_end(&drawing->lines);
}

static void draw_policies(struct drawing *drawing, const struct cli_top_model *top, int most)
{
    const struct cli_style *const style = &drawing->style;
    const int width = drawing->lines.width < 100 ? drawing->lines.width : 100;
    cli_put_style(&drawing->lines, style->bold);
    cli_put(&drawing->lines, "POLICY");
    cli_put_right(&drawing->lines, "allowed/s", width - 20);
    cli_put_right(&drawing->lines, "denied/s", width - 10);
    cli_put_right(&drawing->lines, "denied", width);
    cli_put_style(&drawing->lines, style->off);
    cli_put_line_end(&drawing->lines);
    int drawn = 0;
    for (size_t i = 0; i < top->row_count && drawn < most; i++, drawn++)
        draw_row(drawing, &top->rows[i]);
    if ((size_t)drawn < top->row_count) {
        char text[64];
        snprintf(text, sizeof text, "… %zu more", top->row_count - (size_t)drawn);
        put_styled(drawing, style->dim, text);
        cli_put_line_end(&drawing->lines);
    }
}

/* ---- keys ---- */

/* One key in the columns from start to end: key, policy unless the key says it, rate. */
static void draw_key(struct drawing *drawing, const struct cli_top_key *key, int start, int end)
{
    const size_t name_len = strlen(key->policy.text);
    const bool said = name_len == 0 || (!strncmp(key->key.text, key->policy.text, name_len) &&
                                        key->key.text[name_len] == '/');
    const int most = (end - start) / 4 < 24 ? (end - start) / 4 : 24;
    const int policy = said ? 0 : most;
    cli_put_go_to(&drawing->lines, start);
    cli_put_up_to(&drawing->lines, key->key.text, end - start - policy - 8);
    cli_put_go_to(&drawing->lines, end - policy - 7);
    cli_put_style(&drawing->lines, drawing->style.dim);
    cli_put_up_to(&drawing->lines, key->policy.text, policy);
    cli_put_style(&drawing->lines, drawing->style.off);
    cli_put_right(&drawing->lines, cli_brief(key->rate).text, end);
}

static void draw_key_title(struct drawing *drawing, const char *title, int start, int end)
{
    cli_put_go_to(&drawing->lines, start);
    cli_put_style(&drawing->lines, drawing->style.bold);
    cli_put(&drawing->lines, title);
    cli_put_right(&drawing->lines, "/s", end);
    cli_put_style(&drawing->lines, drawing->style.off);
}

static void draw_list(struct drawing *drawing, const struct cli_top_keys *keys, const char *title,
                      int most)
{
    draw_key_title(drawing, title, 0, drawing->lines.width);
    cli_put_line_end(&drawing->lines);
    for (int i = 0; i < most && (size_t)i < keys->count; i++) {
        draw_key(drawing, &keys->rows[i], 0, drawing->lines.width);
        cli_put_line_end(&drawing->lines);
    }
}

static void draw_side_by_side(struct drawing *drawing, const struct cli_top_model *top, int most)
{
    const int middle = drawing->lines.width / 2;
    const struct cli_top_keys *const left = &top->hottest, *const right = &top->denied_keys;
    draw_key_title(drawing, "HOTTEST KEYS", 0, middle - 2);
    draw_key_title(drawing, "MOST DENIED KEYS", middle, drawing->lines.width);
    cli_put_line_end(&drawing->lines);
    for (int i = 0; i < most && ((size_t)i < left->count || (size_t)i < right->count); i++) {
        if ((size_t)i < left->count)
            draw_key(drawing, &left->rows[i], 0, middle - 2);
        if ((size_t)i < right->count)
            draw_key(drawing, &right->rows[i], middle, drawing->lines.width);
        cli_put_line_end(&drawing->lines);
    }
}

/* ---- the frame ---- */

static int at_least(int rows)
{
    return rows > ROWS_LEAST ? rows : ROWS_LEAST;
}

static void draw_stacked(struct drawing *drawing, const struct cli_top_model *top, int keys)
{
    const int denied = (int)weir__min((int64_t)top->denied_keys.count, keys);
    const int second = drawing->view->height ? weir__min(denied, at_least((keys - 2) / 2)) : denied;
    draw_list(drawing, &top->hottest, "HOTTEST KEYS",
              drawing->view->height ? at_least(keys - second - 2) : keys);
    if (denied) {
        cli_put_line_end(&drawing->lines);
        draw_list(drawing, &top->denied_keys, "MOST DENIED KEYS", second);
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
    draw_heading(&drawing, top);
    draw_traffic(&drawing, top);
    draw_health(&drawing, top);
    cli_put_line_end(&drawing.lines);
    /* Of what is left policies get half, but keys what policies do not need. */
    const int left = view->height ? view->height - drawing.lines.lines - 1 : 1000000;
    draw_policies(&drawing, top, view->height ? at_least(left / 2 - 3) : left);
    cli_put_line_end(&drawing.lines);
    const int keys = view->height ? view->height - drawing.lines.lines - 2 : KEYS_ONCE;
    if (view->width >= 100)
        draw_side_by_side(&drawing, top, at_least(keys));
    else
        draw_stacked(&drawing, top, keys);
    cli_put_end(&drawing.lines);
}

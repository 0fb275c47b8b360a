/* See top_lines.h. */
#include "cli/top_lines.h"

#include <math.h>
#include <string.h>

/* ---- lines ---- */

static bool begins_character(char c)
{
    return (c & 0xc0) != 0x80;
}

void cli_put_up_to(struct cli_drawing *drawing, const char *text, int most)
{
    const int left = drawing->width - drawing->column;
    most = most < left ? most : left;
    int length = 0, passed = 0;
    for (const char *at = text; *at; at++)
        length += begins_character(*at);
    if (most <= 0)
        return;
    const int shown = length <= most ? length : most - 1;
    const char *end = text;
    for (; *end && !(begins_character(*end) && passed == shown); end++)
        passed += begins_character(*end);
    weir__put(drawing->out, text, (size_t)(end - text));
    if (shown < length)
        weir__put_text(drawing->out, "…");
    drawing->column += shown < length ? shown + 1 : length;
}

void cli_put(struct cli_drawing *drawing, const char *text)
{
    cli_put_up_to(drawing, text, drawing->width);
}

void cli_put_go_to(struct cli_drawing *drawing, int column)
{
    while (drawing->column < column && drawing->column < drawing->width) {
        weir__put(drawing->out, " ", 1);
        drawing->column++;
    }
}

void cli_put_right(struct cli_drawing *drawing, const char *text, int end)
{
    cli_put_go_to(drawing, end - (int)strlen(text));
    cli_put(drawing, text);
}

void cli_put_style(struct cli_drawing *drawing, const char *style)
{
    weir__put_text(drawing->out, style);
}

void cli_put_line_end(struct cli_drawing *drawing)
{
    if (drawing->live)
        weir__put_text(drawing->out, "\033[K");
    drawing->column = 0;
    drawing->lines++;
    if (drawing->lines == drawing->most)
        drawing->end = drawing->out->len;
    weir__put(drawing->out, "\n", 1);
}

void cli_put_end(struct cli_drawing *drawing)
{
    if (drawing->most == 0 || drawing->lines < drawing->most)
        return;
    drawing->out->len = drawing->end;
    drawing->out->data[drawing->end] = '\0';
}

/* ---- numbers ---- */

struct cli_number cli_brief(double value)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    struct cli_number number = {"<0.1"};
    size_t unit = 0;
    if (value > 0 && value < 0.05)
        return number;
    for (; value >= 999.5 && unit + 1 < WEIR__COUNT(units); unit++)
        value /= 1000;
    const bool whole = value >= 9.95 || value == 0 || (unit == 0 && value == floor(value));
    snprintf(number.text, sizeof number.text, whole ? "%.0f%s" : "%.1f%s", value, units[unit]);
    return number;
}

struct cli_number cli_brief_time(double seconds)
{
    static const struct {
        double one;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    struct cli_number number;
    size_t unit = 0;
    while (unit + 1 < WEIR__COUNT(units) && seconds < units[unit].one)
        unit++;
    const double value = seconds / units[unit].one;
    snprintf(number.text, sizeof number.text, value < 9.95 ? "%.1f%s" : "%.0f%s", value,
             units[unit].name);
    return number;
}

struct cli_number cli_percent(double part, double all)
{
    struct cli_number number;
    const double share = all > 0 ? 100 * part / all : 0;
    snprintf(number.text, sizeof number.text, share > 0 && share < 9.95 ? "%.1f%%" : "%.0f%%",
             share);
    return number;
}

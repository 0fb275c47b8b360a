/* Families and samples as text. */
#include "server/observe/metrics_lines.h"

#include <inttypes.h>
#include <string.h>

static const char *const TYPES[] = {"counter", "gauge", "info", "histogram"};
static const char *const ENDINGS[] = {"_total", "", "_info", ""};

static void put_heading(struct server_lines *lines, const char *word, const char *text)
{
    weir__put_text(lines->out, word);
    weir__put_text(lines->out, lines->name);
    if (!lines->openmetrics)
        weir__put_text(lines->out, lines->ending);
    weir__put(lines->out, " ", 1);
    weir__put_text(lines->out, text);
    weir__put(lines->out, "\n", 1);
}

void server_lines_family(struct server_lines *lines, enum server_family type, const char *name,
                         const char *unit, const char *help)
{
    lines->name = name;
    lines->ending = ENDINGS[type];
    put_heading(lines, "# HELP ", help);
    put_heading(lines, "# TYPE ",
                type == SERVER_INFO && !lines->openmetrics ? "gauge" : TYPES[type]);
    if (unit && lines->openmetrics)
        put_heading(lines, "# UNIT ", unit);
}

/* Backslash, quote and line feed are escaped, in both formats; everything else stands for itself. */
static void put_value(struct weir__buffer *out, const char *text)
{
    for (;;) {
        const size_t plain = strcspn(text, "\\\"\n");
        weir__put(out, text, plain);
        text += plain;
        if (!*text)
            return;
        weir__put(out, *text == '\n' ? "\\n" : *text == '"' ? "\\\"" : "\\\\", 2);
        text++;
    }
}

static void put_name(struct server_lines *lines, const struct server_label *labels)
{
    struct weir__buffer *const out = lines->out;
    weir__put_text(out, lines->name);
    weir__put_text(out, lines->ending);
    for (const struct server_label *label = labels; label->name; label++) {
        weir__put(out, label == labels ? "{" : ",", 1);
        weir__put_text(out, label->name);
        weir__put(out, "=\"", 2);
        put_value(out, label->value);
        weir__put(out, "\"", 1);
    }
    weir__put_text(out, labels->name ? "} " : " ");
}

void server_lines_put(struct server_lines *lines, const struct server_label *labels, uint64_t value)
{
    put_name(lines, labels);
    weir__put_format(lines->out, "%" PRIu64 "\n", value);
}

void server_lines_put_decimal(struct server_lines *lines, const struct server_label *labels,
                              uint64_t value, int digits)
{
    uint64_t one = 1;
    for (int i = 0; i < digits; i++)
        one *= 10;
    put_name(lines, labels);
    weir__put_format(lines->out, "%" PRIu64 ".%0*" PRIu64 "\n", value / one, digits, value % one);
}

void server_lines_single(struct server_lines *lines, enum server_family type, const char *name,
                         const char *unit, const char *help, uint64_t value)
{
    server_lines_family(lines, type, name, unit, help);
    server_lines_put(lines, SERVER_NO_LABELS, value);
}

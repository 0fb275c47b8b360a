/* Writing to people: errors, masked and wrapped text, rounded times, colours, plots. */
#include "cli/cli.h"

#include "base/duration.h"
#include "base/span.h"
#include "sim/plot.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int cli_fail(const struct cli_call *call, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fprintf(stderr, "weir%s%s: ", call->command ? " " : "",
            call->command ? call->command->name : "");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

int cli_finish(const struct cli_call *call, int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    return cli_fail(call, CLI_FAILED, "cannot write to standard output: %s",
                    errno ? strerror(errno) : "an earlier write failed");
}

int cli_fail_with(const struct cli_call *call, int code, const weir_error *err)
{
    return cli_fail(call, cli_exit_for(code), "%s",
                    err->message[0] ? err->message : weir_strerror(code));
}

static struct weir__buffer json_text;

struct weir__json cli_json_begin(char bracket)
{
    struct weir__json json = {&json_text, false};
    json_text = weir__buffer_growing();
    weir__json_open(&json, NULL, bracket);
    return json;
}

void cli_json_end(struct weir__json *json, char bracket)
{
    weir__json_close(json, bracket);
    weir__put_text(json->out, "\n");
    if (json->out->cut) {
        fputs("weir: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    fwrite(json->out->data, 1, json->out->len, stdout);
    weir__buffer_free(json->out);
}

struct cli_shown cli_show(const char *text, size_t len)
{
    struct cli_shown shown;
    struct weir__buffer buffer = weir__buffer_over(shown.text, sizeof shown.text);
    static const char more[] = "…";
    size_t most = sizeof shown.text - sizeof more;
    for (size_t at = 0; at < len;) {
        size_t step = weir__utf8_length(text + at, len - at);
        bool plain = !weir__utf8_is_harmful(text + at, step);
        if (buffer.len + (plain ? step : 1) > most) {
            weir__put_text(&buffer, more);
            break;
        }
        if (plain)
            weir__put(&buffer, text + at, step);
        else
            weir__put_text(&buffer, "?");
        at += step ? step : 1;
    }
    return shown;
}

struct cli_shown cli_show_text(const char *text)
{
    return cli_show(text, strlen(text));
}

void cli_print_masked(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t n = weir__utf8_length(text + at, len - at);
        if (!weir__utf8_is_harmful(text + at, n))
            fwrite(text + at, 1, n, stdout);
        else
            putchar('?');
        at += n > 0 ? n : 1;
    }
}

struct cli_span cli_exact(int64_t microseconds)
{
    struct cli_span span;
    struct weir__buffer buffer = weir__buffer_over(span.text, sizeof span.text);
    if (microseconds < 0)
        weir__put_text(&buffer, "never");
    else if (microseconds == 0)
        weir__put_text(&buffer, "0s");
    else
        weir__put_duration(&buffer, microseconds, false);
    return span;
}

struct cli_span cli_about(int64_t microseconds)
{
    if (microseconds < 0)
        return cli_exact(microseconds);
    struct cli_span span;
    struct weir__buffer buffer = weir__buffer_over(span.text, sizeof span.text);
    weir__put_about(&buffer, microseconds);
    return span;
}

struct cli_span cli_lasted(int64_t microseconds)
{
    struct cli_span span;
    struct weir__buffer buffer = weir__buffer_over(span.text, sizeof span.text);
    weir__put_lasted(&buffer, microseconds);
    return span;
}

struct cli_style cli_style_of(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if ((no_color && *no_color) || (term && !strcmp(term, "dumb")) || !isatty(fileno(stream)))
        return (struct cli_style){"", "", "", "", "", false};
    return (struct cli_style){"\033[1;32m", "\033[1;31m", "\033[2m", "\033[1m", "\033[0m", true};
}

int cli_width(FILE *stream)
{
    struct winsize size;
    if (isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* ---- text ---- */

#define TEXT_LEAST 30 /* columns of text, however narrow the terminal is */
#define TEXT_MOST 96  /* and however wide */

void cli_print_wrapped(const char *text, int indent)
{
    const int width = cli_width(stdout) - indent;
    const size_t room = (size_t)weir__max(TEXT_LEAST, weir__min(width, TEXT_MOST));
    while (strlen(text) > room) {
        size_t cut = room;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            cut = strcspn(text, " ");
        printf("%.*s\n%*s", (int)cut, text, indent, "");
        text += cut + (text[cut] == ' ');
        if (!*text)
            break;
    }
    printf("%s\n", text);
}

void cli_print_labelled(const char *label, int column, const char *text)
{
    assert(column > 3);
    struct cli_style style = cli_style_of(stdout);
    printf("  %s%-*s%s", style.bold, column - 2, label, style.off);
    if ((int)strlen(label) > column - 3)
        printf("\n%*s", column, "");
    cli_print_wrapped(text, column);
}

/* ---- plots ---- */

#define ROW_BYTES 8192 /* a row of WEIR__BINS_MAX characters, each with its own colour */

/* 1234567 as 1.2M: at most six characters. */
static void chart_put_short(struct weir__buffer *buffer, int64_t number)
{
    static const char *const suffixes[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    double value = (double)number;
    while (value >= 99999.5 || (i > 0 && value >= 999.5)) {
        value /= 1000;
        i++;
    }
    if (i == 0)
        weir__put_format(buffer, "%" PRId64, number);
    else
        weir__put_format(buffer, value < 10 ? "%.1f%s" : "%.0f%s", value, suffixes[i]);
}

void cli_print_chart(const struct weir__plot *plot, const char *left, const char *right)
{
    struct cli_style style = cli_style_of(stdout);
    char top[16], row[ROW_BYTES];
    struct weir__buffer scale = weir__buffer_over(top, sizeof top);
    chart_put_short(&scale, plot->scale);
    for (int i = 0; i < plot->rows; i++) {
        struct weir__buffer line = weir__buffer_over(row, sizeof row);
        weir__plot_row(&line, plot, i);
        assert(!line.cut);
        printf("%s%*s %s%s%s\n", style.dim, CLI_CHART_GUTTER - 2, i == 0 ? top : "",
               i == 0 ? "┤" : "│", style.off, row);
    }
    int width = (int)weir__plot_width(plot);
    printf("%s%*s └", style.dim, CLI_CHART_GUTTER - 2, "0");
    for (int i = 0; i < width; i++)
        fputs("─", stdout);
    int gap = width - (int)strlen(left) - (int)strlen(right);
    printf("\n%*s%s%*s%s%s\n", CLI_CHART_GUTTER, "", left, gap > 1 ? gap : 1, "", right, style.off);
}

void cli_print_legend(bool colour, const char *through, const char *denied)
{
    char sample[64];
    struct weir__buffer buffer = weir__buffer_over(sample, sizeof sample);
    weir__plot_sample(&buffer, colour, false);
    printf("%*s%s %s", CLI_CHART_GUTTER, "", sample, through);
    buffer = weir__buffer_over(sample, sizeof sample);
    weir__plot_sample(&buffer, colour, true);
    printf("   %s %s\n", sample, denied);
}

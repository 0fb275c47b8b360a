/* See chart.h. */
#include "cli/chart.h"

#include <inttypes.h>
#include <string.h>

#define ROW_BYTES 8192 /* a row of WEIR__BINS_MAX characters, each in a colour of its own */
#define LABEL_WIDTH 15
#define TEXT_WIDTH_MAX 96

/* 1234567 as 1.2M: at most six characters. */
static void put_short(struct weir__buffer *buffer, int64_t number)
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
    put_short(&scale, plot->scale);
    for (int i = 0; i < plot->rows; i++) {
        struct weir__buffer line = weir__buffer_over(row, sizeof row);
        weir__plot_row(&line, plot, i);
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

void cli_print_labelled(const char *label, const char *text)
{
    struct cli_style style = cli_style_of(stdout);
    int width = cli_width(stdout) - LABEL_WIDTH;
    size_t room = (size_t)(width < 30 ? 30 : width > TEXT_WIDTH_MAX ? TEXT_WIDTH_MAX : width);
    printf("  %s%-*s%s", style.bold, LABEL_WIDTH - 2, label, style.off);
    while (strlen(text) > room) {
        size_t cut = room;
        while (cut > 0 && text[cut] != ' ')
            cut--;
        if (cut == 0)
            cut = room;
        printf("%.*s\n%*s", (int)cut, text, LABEL_WIDTH, "");
        text += cut + (text[cut] == ' ');
    }
    printf("%s\n", text);
}

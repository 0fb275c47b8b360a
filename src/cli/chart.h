/* A plot with its axes, as explain and replay print it. */
#ifndef WEIR_CLI_CHART_H
#define WEIR_CLI_CHART_H

#include "cli/cli.h"
#include "sim/plot.h"

#define CLI_CHART_GUTTER 9 /* columns left of the plot */

/* Below the axis: left under its beginning, right under its end. */
void cli_print_chart(const struct weir__plot *plot, const char *left, const char *right);

/* The legend's two samples with their words, on one line. */
void cli_print_legend(bool colour, const char *through, const char *denied);

/* `text` wrapped to the width, after a label in a column of its own. */
void cli_print_labelled(const char *label, const char *text);

#endif

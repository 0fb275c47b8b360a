/* How `weir top` looks. */
#ifndef WEIR_CLI_TOP_VIEW_H
#define WEIR_CLI_TOP_VIEW_H

#include "cli/top_model.h"

struct cli_top_view {
    struct cli_style style;
    int width, height; /* height 0: as long as it is */
    const char *address;
    const char *trouble; /* NULL, or why the numbers are old */
    bool live;           /* lines replace those of the frame before */
};

/* One frame. */
void cli_top_draw(const struct cli_top_view *view, const struct cli_top_model *top,
                  struct weir__buffer *out);

#endif

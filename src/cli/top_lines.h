/* Drawing text into lines of a bounded width, for views on terminals; and numbers of three digits. */
#ifndef WEIR_CLI_TOP_LINES_H
#define WEIR_CLI_TOP_LINES_H

#include "cli/cli.h"

struct cli_drawing {
    struct weir__buffer *out;
    int width;
    bool live;  /* lines replace others, whose rest is wiped */
    int column; /* where the line is, in characters */
    int lines;  /* ended so far */
    int most;   /* lines there may be; 0: any number */
    size_t end; /* of the last such line, once it was reached */
};

/* Text up to `most` columns, a character a column; what is cut ends in an ellipsis. */
void cli_put_up_to(struct cli_drawing *drawing, const char *text, int most);
/* Text up to the end of the line. */
void cli_put(struct cli_drawing *drawing, const char *text);
/* Spaces up to a column; text that ends at one. */
void cli_put_go_to(struct cli_drawing *drawing, int column);
void cli_put_right(struct cli_drawing *drawing, const char *text, int end);
/* A style, which takes no room. */
void cli_put_style(struct cli_drawing *drawing, const char *style);
void cli_put_line_end(struct cli_drawing *drawing);
/* Takes back what went beyond the most lines, and the end of the last. */
void cli_put_end(struct cli_drawing *drawing);

struct cli_number {
    char text[32];
};
/* Three digits or so: 0, 0.4, 12, 1.2k, 35k, 1.1M. */
struct cli_number cli_brief(double value);
/* 870ns, 1.2ms, 35s. */
struct cli_number cli_brief_time(double seconds);
/* 0%, 3.4%, 56%. */
struct cli_number cli_percent(double part, double all);

#endif

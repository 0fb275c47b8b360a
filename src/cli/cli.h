/*
 * What the subcommands of `weir` share: how arguments are read, how answers and errors are written,
 * how the store is found.
 *
 * Every function that can fail prints the reason to stderr and returns an exit code; CLI_OK: go on.
 */
#ifndef WEIR_CLI_H
#define WEIR_CLI_H

#include "wire/decision.h"

#include <stdio.h>

enum cli_exit {
    CLI_OK = 0,      /* allowed, or done */
    CLI_DENIED = 1,  /* denied, or the lease is not held */
    CLI_USAGE = 2,   /* wrong usage or input; nothing was changed */
    CLI_FAILED = 3,  /* a store or a file failed */
    CLI_LISTED = -1, /* from cli_parse: --list-options was printed; main turns it into CLI_OK */
};

/* ---- commands ---- */

struct cli_call;
struct cli_request;

/* `weir NAME --help` prints help/NAME.txt. */
struct cli_command {
    const char *name;
    const char *summary; /* one line of `weir --help` */
    int (*run)(const struct cli_call *call);
    bool looks; /* works on a zone that is there: a missing one is not made */
    /* of commands whose run is cli_request_run: see request.h */
    unsigned takes;
    int (*work)(const struct cli_call *call, const struct cli_request *request);
};

/* One call of a command: its arguments are what follows its name. */
struct cli_call {
    const struct cli_command *command;
    int argc;
    char **argv;
};

extern const struct cli_command cli_take, cli_peek, cli_wait, cli_settle, cli_refund, cli_reset,
    cli_acquire, cli_renew, cli_release, cli_explain, cli_replay, cli_demo, cli_bench, cli_zone,
    cli_lua, cli_serve, cli_check, cli_top, cli_show_states, cli_run, cli_pipe, cli_suggest;

/* ---- arguments.c: options and operands ---- */

enum cli_type {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_COST,    /* int64_t, 0 … 10^12 */
    CLI_WAIT,    /* int64_t µs; `0`, a duration or `any` */
    CLI_SECONDS, /* int64_t µs; a duration, or a plain number of seconds */
    CLI_DELAY,   /* the same, or 0 */
    CLI_COUNT,   /* int64_t, 1 … most */
    CLI_RATIO,   /* int64_t, millionths: a number from 0 to 1 */
    CLI_LIST,    /* struct cli_list: may be given several times */
};

#define CLI_LIST_MAX 64

struct cli_list {
    const char *texts[CLI_LIST_MAX + 1]; /* room for a NULL at the end */
    size_t count;
};

struct cli_option {
    const char *name; /* without its dashes */
    enum cli_type type;
    void *ret;
    int64_t most; /* CLI_COUNT */
};

/* Whether an operand must be there. CLI_MANY and above: all that follow, at most so many; `ret` has
 * room for them and for a NULL. */
enum cli_need {
    CLI_REQUIRED = false,
    CLI_OPTIONAL = true,
    CLI_MANY = CLI_LIST_MAX,
    CLI_MANY_LOGS = 4096,
};

struct cli_operand {
    const char *name;
    const char **ret;
    enum cli_need need;
};

int cli_parse(const struct cli_call *call, const struct cli_option *options, size_t option_count,
              const struct cli_operand *operands, size_t operand_count);
#define CLI_PARSE(call, options, operands)                                                         \
    cli_parse(call, options, WEIR__COUNT(options), operands, WEIR__COUNT(operands))

/* ---- arguments.c: one value from its text; `what` names it in the error ---- */

int cli_read_cost(const struct cli_call *call, const char *what, const char *text, int64_t *ret);
/* From 1 to the most that a request may cost. */
int cli_read_amount(const struct cli_call *call, const char *text, int64_t *ret);
int cli_read_lease(const struct cli_call *call, const char *text, uint64_t *ret);
int cli_read_key(const struct cli_call *call, const char *text, weir_key *ret);
/* The caller frees the limit. */
int cli_read_limits(const struct cli_call *call, const char *text, weir_limit **ret);

/* ---- store.c: the store that a command works on ---- */

/* Opens url; NULL: the default zone of the user. A redis:// without a deadline gets 2 s. A command
 * that only looks makes no zone. */
int cli_open_store(const struct cli_call *call, const char *url, weir_store **ret);
/* The exit code for a WEIR_E…. */
int cli_exit_for(int code);
/* Prints why the library or a server failed, and returns the exit code. */
int cli_refused(const struct cli_call *call, weir_store *store, int code);

/* ---- output.c ---- */

/* `weir take: …` on stderr. Returns code, so that callers can return what it returns. */
int cli_fail(const struct cli_call *call, int code, const char *format, ...) WEIR__PRINTF(3, 4);
/* Flushes stdout; if that fails, the command has failed. */
int cli_finish(const struct cli_call *call, int code);

/* The same with the reason that the library gave, or the words of its code. */
int cli_fail_with(const struct cli_call *call, int code, const weir_error *err);
/* Begins a JSON text for stdout, with its outermost bracket; then closes it, and prints a newline.
 * There is one at a time. */
struct weir__json cli_json_begin(char bracket);
void cli_json_end(struct weir__json *json, char bracket);

/* A text that is safe to print: shortened if it is long, control characters masked. */
struct cli_shown {
    char text[96];
};
struct cli_shown cli_show(const char *text, size_t len);
struct cli_shown cli_show_text(const char *text);
/* Prints all of a text to stdout, masked in the same way. */
void cli_print_masked(const char *text, size_t len);

/* A time for people: about three digits, rounded up, so that it is never too early. */
struct cli_span {
    char text[32];
};
struct cli_span cli_about(int64_t microseconds);
/* How long something lasted: likewise, to the nearest; 0 or more. */
struct cli_span cli_lasted(int64_t microseconds);
/* A time for people, exact. */
struct cli_span cli_exact(int64_t microseconds);

/* Colours for a stream; all empty unless it is a terminal with colours. */
struct cli_style {
    const char *good, *bad, *dim, *bold, *off;
    bool colour;
};
struct cli_style cli_style_of(FILE *stream);
/* Columns of the terminal, 80 where there is none. */
int cli_width(FILE *stream);

/* Text wrapped to the width of the terminal; all lines but the first are indented. */
void cli_print_wrapped(const char *text, int indent);
/* The same after a label in its own column. A long label gets its own line. */
void cli_print_labelled(const char *label, int column, const char *text);

/* ---- plots, with their axes ---- */

struct weir__plot;

#define CLI_CHART_GUTTER 9 /* columns left of the plot */

/* The texts stand below the axis: left at its beginning, right at its end. */
void cli_print_chart(const struct weir__plot *plot, const char *left, const char *right);
/* A sample of each kind with its words, on one line. */
void cli_print_legend(bool colour, const char *through, const char *denied);

#endif

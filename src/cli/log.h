/*
 * Access logs on the command line: the options that say what of them is wanted, and what is printed
 * about them. A log becomes a trace in memory; a trace is left to who reads traces.
 */
#ifndef WEIR_CLI_LOG_H
#define WEIR_CLI_LOG_H

#include "cli/cli.h"
#include "desk/desk.h"
#include "sim/trace.h"

#define CLI_LOG_BEGINNING 65536 /* bytes of standard input that tell what it is */

_Static_assert(CLI_MANY_LOGS == DESK_FILES_MAX, "as many as can be read");

struct cli_log {
    const char *paths[CLI_MANY_LOGS + 1]; /* none: standard input */
    const char *format, *key, *cost, *timezone;
    struct cli_list where, templates, fields;
    int64_t disorder_us;
    bool no_spread;
    char begun[CLI_LOG_BEGINNING]; /* of standard input */
    size_t begun_len;
    struct desk_reader *reader;
    struct desk_facts facts;
};

/* Rows for cli_parse. */
#define CLI_LOG_OPTIONS(log)                                                                       \
    {"format", CLI_TEXT, &(log).format, 0}, {"key", CLI_TEXT, &(log).key, 0},                      \
        {"where", CLI_LIST, &(log).where, 0}, {"cost", CLI_TEXT, &(log).cost, 0},                  \
        {"template", CLI_LIST, &(log).templates, 0}, {"field", CLI_LIST, &(log).fields, 0},        \
        {"timezone", CLI_TEXT, &(log).timezone, 0},                                                \
        {"disorder", CLI_SECONDS, &(log).disorder_us, 0},                                          \
    {                                                                                              \
        "no-spread", CLI_FLAG, &(log).no_spread, 0                                                 \
    }

/* Whether the input is a log; otherwise it is a trace, whose rules are stricter. */
int cli_log_begin(const struct cli_call *call, struct cli_log *log, bool *ret);
struct weir__span cli_log_begun(const struct cli_log *log);
/* Reads all of it. The trace is freed by weir__trace_close. */
int cli_log_to_trace(const struct cli_call *call, struct cli_log *log, struct weir__trace *ret);
/* What was found, and what could not be read: for people, and as the member "log". */
void cli_log_print(const struct cli_log *log);
void cli_log_put_json(const struct cli_log *log, struct weir__json *json);
/* At the end: a file that was damaged is a failure. aloud: also say what could not be read. */
int cli_log_verdict(const struct cli_call *call, const struct cli_log *log, bool aloud);
void cli_log_close(struct cli_log *log);

#endif

/* How commands that read logs (replay, suggest) are told which ones, and how to read them: the same
 * options, read by the same code. */
#ifndef WEIR_CLI_LOGS_H
#define WEIR_CLI_LOGS_H

#include "cli/cli.h"
#include "desk/report.h"

struct cli_logs {
    const char **paths; /* room for CLI_MANY_LOGS and a NULL */
    size_t path_count;
    struct desk_options options; /* complete after cli_logs_read */
    struct cli_list where, templates, fields;
    int64_t disorder_us;
    bool no_spread;
    const char *memory_text;
    int64_t memory; /* bytes */
};

/* Rows of a table of options. */
#define CLI_LOGS_OPTIONS(logs)                                                                     \
    {"format", CLI_TEXT, &(logs)->options.format, 0}, {"key", CLI_TEXT, &(logs)->options.key, 0},  \
        {"where", CLI_LIST, &(logs)->where, 0}, {"cost", CLI_TEXT, &(logs)->options.cost, 0},      \
        {"template", CLI_LIST, &(logs)->templates, 0}, {"field", CLI_LIST, &(logs)->fields, 0},    \
        {"timezone", CLI_TEXT, &(logs)->options.timezone, 0},                                      \
        {"disorder", CLI_SECONDS, &(logs)->disorder_us, 0},                                        \
        {"no-spread", CLI_FLAG, &(logs)->no_spread, 0},                                            \
    {                                                                                              \
        "memory", CLI_TEXT, &(logs)->memory_text, 0                                                \
    }

/* Counts the paths, reads the memory, and completes the options but for follow and begun. */
int cli_logs_read(const struct cli_call *call, struct cli_logs *logs);
/* A report must not take the place of a log that it is about. path may be NULL. */
int cli_logs_check_report(const struct cli_call *call, const struct cli_logs *logs,
                          const char *path);

/* Words of --spare: keys or networks. */
int cli_logs_check_spare(const struct cli_call *call, const struct cli_list *spare);
/* No key is like this word: a mistake in the whole log, a note where --where selects. Returns the
 * exit code. */
int cli_logs_tell_spare(const struct cli_call *call, const struct cli_logs *logs, const char *word);

/* ---- after reading ---- */

/* An error if there are lines, but none can be read. */
int cli_logs_check_readable(const struct cli_call *call, const struct desk_facts *facts);
/* An error for each file that could not be read to its end. */
int cli_logs_check_damage(const struct cli_call *call, const struct desk_facts *facts);
int cli_write_report(const struct cli_call *call, const struct desk_report *report,
                     const char *path);

/* The name of a log for people: "-" is standard input. Masked. */
struct cli_shown cli_logs_name(const char *path);
/* logs_print.c: files, lines, and what could not be read; the second on stderr, and only if there
 * is something. */
void cli_logs_print(const struct desk_facts *facts);
void cli_logs_print_unread(const struct desk_facts *facts);

#endif

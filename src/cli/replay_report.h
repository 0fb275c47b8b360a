/* What `weir replay` prints: a line a decision, or a summary of all. */
#ifndef WEIR_CLI_REPLAY_REPORT_H
#define WEIR_CLI_REPLAY_REPORT_H

#include "cli/cli.h"
#include "sim/replay.h"
#include "sim/plot.h"

/* Lines on their way to stdout, written in large pieces. */
struct cli_decisions {
    struct weir__buffer buffer;
    bool json; /* an object a line, instead of CSV */
};

/* WEIR_ENOMEM, or 0 and the header is due. */
int cli_decisions_start(struct cli_decisions *decisions, bool json);
int cli_decisions_add(struct cli_decisions *decisions, const struct weir__arrival *arrival,
                      const weir_decision *decision);
/* Writes what is left, frees. */
void cli_decisions_end(struct cli_decisions *decisions);

struct cli_summary {
    const weir_limit *limit;
    const struct weir__trace *trace;
    const struct weir__trace_facts *facts;
    const struct weir__tally *tally;
};

#define CLI_SUMMARY_BINS 60

void cli_print_summary(const struct cli_summary *summary);
void cli_print_summary_json(const struct cli_summary *summary);

#endif

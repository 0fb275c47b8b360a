/* A decision as take, peek, wait and acquire print it, for people or as JSON. */
#ifndef WEIR_CLI_DECISION_H
#define WEIR_CLI_DECISION_H

#include "cli/cli.h"

struct cli_answer {
    weir_key key;
    const weir_limit *limit;
    int64_t cost;
    const weir_decision *decision;
    const weir_decision *detail; /* a row a limit, or NULL */
    bool charged;                /* a take that was allowed has a receipt, a peek has none */
    bool slept;                  /* the delay has been waited for already */
    const char *receipt;         /* a server's own; NULL: the decision's */
};

void cli_print_answer(const struct cli_answer *answer);
void cli_print_answer_json(const struct cli_answer *answer);

#endif

/* What a server's /v1/explain says, for people; or as it is, as JSON. */
#ifndef WEIR_CLI_EXPLAINED_H
#define WEIR_CLI_EXPLAINED_H

#include "base/span.h"
#include "cli/cli.h"

/* The answer is changed. An exit code. */
int cli_print_explained(const struct cli_call *call, struct weir__span answer, bool as_json);

#endif

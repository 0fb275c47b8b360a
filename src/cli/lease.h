/* What renew and release have in common: a key, limits, the id of a lease. */
#ifndef WEIR_CLI_LEASE_H
#define WEIR_CLI_LEASE_H

#include "cli/cli.h"

/* weir_renew or weir_release. */
typedef int cli_lease_verb(weir_store *store, weir_key key, const weir_limit *limit,
                           uint64_t lease);

/* All of a command; `done` is its past tense ("renewed"), for the answer. */
int cli_lease_run(const struct cli_call *call, cli_lease_verb *verb, const char *done);

#endif

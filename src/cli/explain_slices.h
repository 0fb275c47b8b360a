/*
 * What a `redis://` store with slices= means for a limit: what is withheld, what one process may
 * hold, and how many decisions one call to Redis gains. docs/SLICES.md has the idea.
 */
#ifndef WEIR_CLI_EXPLAIN_SLICES_H
#define WEIR_CLI_EXPLAIN_SLICES_H

#include "cli/cli.h"
#include "remote/pool.h"

/* What a store's address says. A usage error if it is not one, or says nothing of slices. */
int cli_slicing_read(const struct cli_call *call, const char *url, struct weir__slicing *ret);
/* Of limit i, for people and as the member "slices" of the open object. */
void cli_slicing_print(const struct weir__slicing *slicing, const weir_limit *limit, size_t i,
                       int column);
void cli_slicing_put(struct weir__json *json, const struct weir__slicing *slicing,
                     const weir_limit *limit, size_t i);

#endif

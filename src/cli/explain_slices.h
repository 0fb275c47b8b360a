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

/* Who slices what. */
struct cli_slice_use {
    const struct weir__slicing *slicing; /* NULL: the store does not, and nothing is said */
    int64_t cost;                        /* of a request */
    const char *why;                     /* its requests are always asked; NULL: they are not */
};
/* Of limit i, for people and as an object, the member `name` of the open one. */
void cli_slicing_print(const struct cli_slice_use *use, const weir_limit *limit, size_t i,
                       int column);
void cli_slicing_put(struct weir__json *json, const char *name, const struct cli_slice_use *use,
                     const weir_limit *limit, size_t i);
/* Of all limits of a list, one after the other; as the array "slices". */
void cli_slicing_print_all(const struct cli_slice_use *use, const weir_limit *limit, int column);
void cli_slicing_put_all(struct weir__json *json, const struct cli_slice_use *use,
                         const weir_limit *limit);

#endif

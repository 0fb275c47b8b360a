/* What `weir zone` does beside looking: dumping and loading. */
#ifndef WEIR_CLI_ZONE_H
#define WEIR_CLI_ZONE_H

#include "cli/cli.h"

/* Writes every state of a zone to stdout. */
int cli_zone_dump(const struct cli_call *call, weir_store *store, const char *url);
/* Puts the states of a dump (a path, or - for stdin) into the zone at url, which is made if need
 * be. */
int cli_zone_load(const struct cli_call *call, const char *url, const char *path);

#endif

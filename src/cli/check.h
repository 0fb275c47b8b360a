/* What `weir check` prints about a file: for people, and as JSON. */
#ifndef WEIR_CLI_CHECK_H
#define WEIR_CLI_CHECK_H

#include "cli/cli.h"
#include "policy/envoy/envoy.h"
#include "policy/policy.h"

/* What a file contains: one of the two. */
struct cli_checked {
    const char *path;
    const struct weir__policies *policies;
    const struct weir__envoy *envoy;
};

void cli_print_policies(const struct cli_checked *checked);
void cli_print_policies_json(const struct cli_checked *checked);
void cli_print_envoy(const struct cli_checked *checked);
void cli_print_envoy_json(const struct cli_checked *checked);

#endif

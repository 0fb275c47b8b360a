/* What `weir check` prints about a file: for people, and as JSON. */
#ifndef WEIR_CLI_CHECK_H
#define WEIR_CLI_CHECK_H

#include "cli/cli.h"
#include "policy/envoy/envoy.h"
#include "policy/policy.h"

void cli_print_policies(const char *path, const struct weir__policies *set);
void cli_print_policies_json(const char *path, const struct weir__policies *set);
void cli_print_envoy(const char *path, const struct weir__envoy *envoy);
void cli_print_envoy_json(const char *path, const struct weir__envoy *envoy);

#endif

/* What `weir check` says of a file: for people, and as JSON. */
#ifndef WEIR_CLI_CHECK_H
#define WEIR_CLI_CHECK_H

#include "cli/cli.h"
#include "policy/envoy/envoy.h"
#include "policy/policy.h"

/* What was found in a file: one of the two. */
struct cli_checked {
    const char *path;
    const struct weir__policies *policies;
    const struct weir__envoy *envoy;
};

void cli_print_policies(const struct cli_checked *checked);
void cli_print_policies_json(const struct cli_checked *checked);
void cli_print_envoy(const struct cli_checked *checked);
void cli_print_envoy_json(const struct cli_checked *checked);

/* ---- check_request.c: what one request would take ---- */

/* "path=/login user=ann": percent-encoding stands for blanks and the like. */
int cli_plan_request(const struct cli_call *call, const struct weir__policies *policies,
                     const char *request, struct weir__plan *ret);
void cli_print_plan(const struct weir__plan *plan, const char *request);
void cli_print_plan_json(const struct weir__plan *plan, const char *path, const char *request);

#endif

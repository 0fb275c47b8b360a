/* `weir serve` and `weir check` of a build without the server: they say so. */
#include "cli/cli.h"

#define WITHOUT "this weir was built without the server and its policies"

static int without_run(const struct cli_call *call)
{
    return cli_fail(call, CLI_USAGE, WITHOUT "; build it with meson's -Dserver=true");
}

const struct cli_command cli_serve = {
    .name = "serve", .summary = "(" WITHOUT ")", .run = without_run};

const struct cli_command cli_check = {
    .name = "check", .summary = "(" WITHOUT ")", .run = without_run};

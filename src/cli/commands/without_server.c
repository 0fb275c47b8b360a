/* `weir serve` and `weir check` of a build without the server: they say so. */
#include "cli/cli.h"

#define WITHOUT "this weir was built without the server and its policies"

static int without_run(const struct cli_call *call)
{
    return cli_fail(call, CLI_USAGE, WITHOUT "; build it with meson's -Dserver=true");
}

const struct cli_command cli_serve = {.name = "serve",
                                      .summary = "(" WITHOUT ")",
                                      .help = "Usage: weir serve\n\n" WITHOUT ".\n" CLI_EXIT_CODES,
                                      .run = without_run};

const struct cli_command cli_check = {.name = "check",
                                      .summary = "(" WITHOUT ")",
                                      .help = "Usage: weir check\n\n" WITHOUT ".\n" CLI_EXIT_CODES,
                                      .run = without_run};

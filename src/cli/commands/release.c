/* `weir release`: give a lease's slots back. */
#include "cli/lease.h"
#include "cli/server_store.h"

static int run(const struct cli_call *call)
{
    return cli_lease_run(call, weir_release, "released");
}

const struct cli_command cli_release = {
    .name = "release",
    .summary = "give a lease's slots back",
    .help = "Usage: weir release KEY LIMITS ID [--json]\n"
            "                    [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Gives the slots of the lease ID back. KEY and LIMITS are those of the\n"
            "`weir acquire` that printed ID. A lease that has lapsed is gone: exit code 1.\n"
            "\n"
            "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir release deploy \"concurrent 1 lease 10m\" \"$id\"\n"
            "  trap 'weir release job \"concurrent 3\" \"$id\"' EXIT\n" CLI_EXIT_CODES,
    .run = run,
};

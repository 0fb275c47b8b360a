/* `weir renew`: start a lease's time anew. */
#include "cli/lease.h"
#include "cli/server_store.h"

static int run(const struct cli_call *call)
{
    return cli_lease_run(call, weir_renew, "renewed");
}

const struct cli_command cli_renew = {
    .name = "renew",
    .summary = "start a lease's time anew",
    .help = "Usage: weir renew KEY LIMITS ID [--json]\n"
            "                  [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Starts the time of the lease ID anew, so that it does not lapse. KEY and LIMITS\n"
            "are those of the `weir acquire` that printed ID. A lease that has lapsed is\n"
            "gone: exit code 1.\n"
            "\n"
            "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir renew deploy \"concurrent 1 lease 10m\" \"$id\"\n"
            "  while sleep 60; do weir renew job \"concurrent 3\" \"$id\" || break; "
            "done\n" CLI_EXIT_CODES,
    .run = run,
};

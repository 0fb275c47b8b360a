/* `weir take`: decide and charge. */
#include "cli/ask.h"

static int run(const struct cli_call *call)
{
    return cli_ask_run(call, weir_take_all, true);
}

const struct cli_command cli_take = {
    .name = "take",
    .summary = "decide a request and charge it if allowed",
    .help =
        "Usage: weir take KEY LIMITS [--cost N] [--wait T|any] [--detail] [--json]\n"
        "                 [--store URL] [--server URL [--token TOKEN]]\n"
        "\n"
        "Decides one request of KEY and charges it if it is allowed; a denied request\n"
        "charges nothing.\n" CLI_LIMITS_HELP "\n"
        "Options:\n"
        "  --cost N      what it costs, 0 to 1000000000000 (default 1; 0 only asks)\n"
        "  --wait T      accept an answer that says to go ahead in up to T (`500ms`, `0`)\n"
        "                or `any`; default: any for leaky-bucket, smooth and warmup, else\n"
        "                0. take does not sleep; `weir wait` does\n"
        "  --detail      show each limit's own answer too\n" CLI_JSON_HELP CLI_STORE_HELP
            CLI_SERVER_HELP "\n"
        "An allowed take has a receipt: give it to `weir settle` when the real cost is\n"
        "known.\n"
        "\n"
        "Examples:\n"
        "  weir take user:42 \"token-bucket 10/s burst 20\"\n"
        "  weir take user:42 \"sliding-log 5/m, fixed-window 1000/d\" --cost 3 --detail\n"
        "  weir take api \"leaky-bucket 10/s burst 5\" --store file:/var/lib/app/zone\n"
        "  if weir take mail:ann \"fixed-window 20/h\" >/dev/null; then send; fi\n" CLI_EXIT_CODES,
    .run = run,
};

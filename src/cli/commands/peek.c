/* `weir peek`: what take would answer, charging nothing. */
#include "cli/ask.h"

static int run(const struct cli_call *call)
{
    return cli_ask_run(call, weir_peek_all, false);
}

const struct cli_command cli_peek = {
    .name = "peek",
    .summary = "what take would answer, charging nothing",
    .help = "Usage: weir peek KEY LIMITS [--cost N] [--wait T|any] [--detail] [--json]\n"
            "                 [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Tells whether a request would be allowed now, and what is left as things stand.\n"
            "It charges nothing.\n" CLI_LIMITS_HELP "\n"
            "Options:\n"
            "  --cost N      what it would cost, 0 to 1000000000000 (default 1)\n"
            "  --wait T      the longest delay accepted: a duration, `0` or `any`\n"
            "  --detail      show each limit's own answer too\n" CLI_JSON_HELP CLI_STORE_HELP
                CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir peek user:42 \"token-bucket 10/s burst 20\"\n"
            "  weir peek user:42 \"sliding-log 5/m, fixed-window 1000/d\" --detail "
            "--json\n" CLI_EXIT_CODES,
    .run = run,
};

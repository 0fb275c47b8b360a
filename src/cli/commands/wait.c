/* `weir wait`: take, sleeping until it is allowed. */
#include "cli/ask.h"
#include "cli/decision.h"

static int wait_once(const struct cli_call *call, const struct cli_ask *ask, int64_t max_us)
{
    weir_decision decision;
    int code = weir_wait(ask->store, ask->key, ask->limit, ask->cost, max_us, &decision);
    if (code)
        return cli_refused(call, ask->store, code);
    struct cli_answer answer = {
        .key = ask->key,
        .limit = ask->limit,
        .cost = ask->cost,
        .decision = &decision,
        .charged = true,
        .slept = true,
        .receipt = cli_server_receipt(ask->store),
    };
    if (ask->json)
        cli_print_answer_json(&answer);
    else
        cli_print_answer(&answer);
    return decision.allowed ? CLI_OK : CLI_DENIED;
}

static int run(const struct cli_call *call)
{
    struct cli_ask ask = cli_ask_default;
    int64_t max_us = WEIR_WAIT_ANY;
    const struct cli_option options[] = {
        {"cost", CLI_COST, &ask.cost, 0}, {"max", CLI_WAIT, &max_us, 0},
        {"json", CLI_FLAG, &ask.json, 0}, {"store", CLI_TEXT, &ask.url, 0},
        CLI_SERVER_OPTIONS(ask.server),
    };
    const struct cli_operand operands[] = {
        {"KEY", &ask.key_text, false},
        {"LIMITS", &ask.limits_text, false},
    };
    int code = CLI_PARSE(call, options, operands);
    if (code)
        return code;
    code = cli_ask_open(call, &ask);
    if (code == CLI_OK)
        code = cli_ask_needs_no_lease(call, &ask);
    if (code == CLI_OK)
        code = wait_once(call, &ask, weir__min(max_us, WEIR_DURATION_MAX));
    cli_ask_close(&ask);
    return code;
}

const struct cli_command cli_wait = {
    .name = "wait",
    .summary = "take, sleeping until it is allowed",
    .help = "Usage: weir wait KEY LIMITS [--cost N] [--max T|any] [--json]\n"
            "                 [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Takes as `weir take` does, but sleeps until the request may go ahead. One that\n"
            "cannot make it within --max is denied at once.\n" CLI_LIMITS_HELP "\n"
            "Options:\n"
            "  --cost N      what it costs, 0 to 1000000000000 (default 1)\n"
            "  --max T       sleep at most T in all: a duration, `0` or `any` (default: any,\n"
            "                which is 366 days)\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir wait api.example.com \"token-bucket 2/s\" && curl https://api.example.com/\n"
            "  weir wait backup \"fixed-window 1/d\" --max 1h\n" CLI_EXIT_CODES,
    .run = run,
};

/* `weir acquire`: hold slots of a concurrent limit; prints the lease that renew and release name.
 */
#include "cli/ask.h"
#include "cli/decision.h"

#include <inttypes.h>

static void print_lease(const weir_decision *decision)
{
    printf("%" PRIu64 "\n", decision->lease);
    if (decision->delay_us > 0)
        fprintf(stderr, "go ahead in %s\n", cli_about(decision->delay_us).text);
}

static int acquire(const struct cli_call *call, const struct cli_ask *ask)
{
    weir_decision decision;
    int code = weir_acquire(ask->store, ask->key, ask->limit, ask->cost, &decision);
    if (code == WEIR_EUNSUPPORTED)
        return cli_fail(call, CLI_USAGE,
                        "limit \"%s\" holds no `concurrent`; acquire needs one, like "
                        "\"concurrent 20 lease 30s\"",
                        weir_limit_text(ask->limit));
    if (code)
        return cli_refused(call, ask->store, code);
    struct cli_answer answer = {
        .key = ask->key, .limit = ask->limit, .cost = ask->cost, .decision = &decision};
    if (ask->json)
        cli_print_answer_json(&answer);
    else if (decision.allowed)
        print_lease(&decision);
    else
        cli_print_answer(&answer);
    return decision.allowed ? CLI_OK : CLI_DENIED;
}

static int run(const struct cli_call *call)
{
    struct cli_ask ask = cli_ask_default;
    const struct cli_option options[] = {
        {"cost", CLI_COUNT, &ask.cost, WEIR_COST_MAX},
        {"json", CLI_FLAG, &ask.json, 0},
        {"store", CLI_TEXT, &ask.url, 0},
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
        code = acquire(call, &ask);
    cli_ask_close(&ask);
    return code;
}

const struct cli_command cli_acquire = {
    .name = "acquire",
    .summary = "hold slots of a concurrent limit; prints a lease",
    .help = "Usage: weir acquire KEY LIMITS [--cost N] [--json]\n"
            "                    [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Takes N slots of the `concurrent` limit among LIMITS and prints the id of the\n"
            "lease that holds them. Give them back with `weir release`, keep them longer with\n"
            "`weir renew`; a lease that is neither lapses after its time.\n" CLI_LIMITS_HELP "\n"
            "Options:\n"
            "  --cost N      slots to hold, at least 1 (default 1)\n" CLI_JSON_HELP CLI_STORE_HELP
                CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  id=$(weir acquire deploy \"concurrent 1 lease 10m\") || exit\n"
            "  ./deploy; weir release deploy \"concurrent 1 lease 10m\" \"$id\"\n" CLI_EXIT_CODES,
    .run = run,
};

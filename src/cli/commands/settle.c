/* `weir settle`: correct a charge when the real cost is known. */
#include "cli/ask.h"
#include "cli/json.h"

#include <inttypes.h>

static int settle(const struct cli_call *call, const struct cli_ask *ask, const char *receipt,
                  int64_t actual)
{
    weir_error err = {0};
    int code = cli_is_server(ask->store)
                   ? cli_server_settle(ask->store, ask->key, ask->limit, receipt, actual, &err)
                   : weir_settle(ask->store, ask->key, ask->limit, receipt, actual, &err);
    bool before = code == WEIR_ESETTLED;
    if (code && !before)
        return cli_fail(call, cli_exit_for(code), "%s",
                        err.message[0] ? err.message : weir_strerror(code));
    if (ask->json) {
        struct cli_json json = {stdout, false};
        cli_json_open(&json, NULL, '{');
        cli_json_key(&json, ask->key.data, ask->key.len);
        cli_json_bool(&json, "settled", true);
        if (before)
            cli_json_bool(&json, "before", true);
        cli_json_int(&json, "actual", actual);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else if (before) {
        printf("settled before: nothing changed\n");
    } else {
        printf("settled: the charge is now %" PRId64 "\n", actual);
    }
    return CLI_OK;
}

static int run(const struct cli_call *call)
{
    struct cli_ask ask = cli_ask_default;
    const char *receipt = NULL, *actual_text = NULL;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &ask.json, 0},
        {"store", CLI_TEXT, &ask.url, 0},
        CLI_SERVER_OPTIONS(ask.server),
    };
    const struct cli_operand operands[] = {
        {"KEY", &ask.key_text, false},
        {"LIMITS", &ask.limits_text, false},
        {"RECEIPT", &receipt, false},
        {"ACTUAL", &actual_text, false},
    };
    int64_t actual;
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = cli_read_cost(call, "actual cost", actual_text, &actual);
    if (code)
        return code;
    code = cli_ask_open(call, &ask);
    if (code == CLI_OK)
        code = settle(call, &ask, receipt, actual);
    cli_ask_close(&ask);
    return code;
}

const struct cli_command cli_settle = {
    .name = "settle",
    .summary = "correct a charge when the real cost is known",
    .help =
        "Usage: weir settle KEY LIMITS RECEIPT ACTUAL [--json]\n"
        "                   [--store URL] [--server URL [--token TOKEN]]\n"
        "\n"
        "Changes what an earlier take charged to ACTUAL, the real cost (0 to\n"
        "1000000000000; 0 gives everything back). KEY and LIMITS are those of the take,\n"
        "RECEIPT is what it printed. Settle a take once: a second settle corrects again.\n"
        "concurrent limits have `weir release` instead.\n"
        "\n"
        "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
        "Examples:\n"
        "  weir take llm:ann \"token-bucket 100k/m\" --cost 4000   # prints a receipt\n"
        "  weir settle llm:ann \"token-bucket 100k/m\" RECEIPT 1234\n"
        "  receipt=$(weir take k \"fixed-window 9/m\" --json | jq -r .receipt)\n" CLI_EXIT_CODES,
    .run = run,
};

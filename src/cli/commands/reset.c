/* `weir reset`: forget a key, all its limits. */
#include "cli/ask.h"
#include "cli/json.h"
#include "store/store.h"

static int reset(const struct cli_call *call, const struct cli_ask *ask)
{
    bool there = false;
    int code = weir__store_reset(ask->store, ask->key, &there);
    if (code)
        return cli_refused(call, ask->store, code);
    if (ask->json) {
        struct cli_json json = {stdout, false};
        cli_json_open(&json, NULL, '{');
        cli_json_key(&json, ask->key.data, ask->key.len);
        cli_json_bool(&json, "reset", there);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else if (there) {
        printf("reset: %s is as new\n", cli_show(ask->key.data, ask->key.len).text);
    } else {
        printf("nothing to reset: %s was as new\n", cli_show(ask->key.data, ask->key.len).text);
    }
    return CLI_OK;
}

static int run(const struct cli_call *call)
{
    return cli_ask_run_key(call, reset);
}

const struct cli_command cli_reset = {
    .name = "reset",
    .summary = "forget a key, all its limits",
    .help = "Usage: weir reset KEY [--json]\n"
            "                  [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Forgets everything about KEY, under all limits: its next request meets a fresh\n"
            "state. Leases of concurrent limits are forgotten too.\n"
            "\n"
            "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir reset user:42\n"
            "  weir reset user:42 --store shm:/app --json\n" CLI_EXIT_CODES,
    .run = run,
};

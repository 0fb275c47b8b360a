/* See ask.h. */
#include "cli/ask.h"

#include "cli/decision.h"
#include "store/store.h"

const struct cli_ask cli_ask_default = {.cost = 1, .wait_us = WEIR_WAIT_DEFAULT};

int cli_ask_open(const struct cli_call *call, struct cli_ask *ask)
{
    int code = cli_read_key(call, ask->key_text, &ask->key);
    if (code == CLI_OK && ask->limits_text)
        code = cli_read_limits(call, ask->limits_text, &ask->limit);
    if (code == CLI_OK)
        code = cli_open_server_or_store(call, &ask->server, ask->url, &ask->store);
    return code;
}

void cli_ask_close(struct cli_ask *ask)
{
    weir_store_close(ask->store);
    weir_limit_free(ask->limit);
}

int cli_ask_needs_no_lease(const struct cli_call *call, const struct cli_ask *ask)
{
    if (!weir__has_leases(ask->limit))
        return CLI_OK;
    return cli_fail(
        call, CLI_USAGE,
        "limit \"%s\": nobody could release the slots of a `concurrent` that %s takes; use "
        "`weir acquire`, which prints the lease to release",
        weir_limit_text(ask->limit), call->command->name);
}

static int ask_once(const struct cli_call *call, const struct cli_ask *ask, cli_verb *verb,
                    bool charges)
{
    weir_decision decision, detail[WEIR_LIMITS_MAX];
    weir_request request = {
        .key = ask->key,
        .limit = ask->limit,
        .cost = ask->cost,
        .wait_us = ask->wait_us,
        .detail = ask->detail ? detail : NULL,
    };
    int code = verb(ask->store, &request, 1, &decision);
    if (code)
        return cli_refused(call, ask->store, code);
    struct cli_answer answer = {
        .key = ask->key,
        .limit = ask->limit,
        .cost = ask->cost,
        .decision = &decision,
        .detail = request.detail,
        .charged = charges,
        .receipt = cli_server_receipt(ask->store),
    };
    if (ask->json)
        cli_print_answer_json(&answer);
    else
        cli_print_answer(&answer);
    return decision.allowed ? CLI_OK : CLI_DENIED;
}

int cli_ask_run(const struct cli_call *call, cli_verb *verb, bool charges)
{
    struct cli_ask ask = cli_ask_default;
    const struct cli_option options[] = {
        {"cost", CLI_COST, &ask.cost, 0},     {"wait", CLI_WAIT, &ask.wait_us, 0},
        {"detail", CLI_FLAG, &ask.detail, 0}, {"json", CLI_FLAG, &ask.json, 0},
        {"store", CLI_TEXT, &ask.url, 0},     CLI_SERVER_OPTIONS(ask.server),
    };
    const struct cli_operand operands[] = {
        {"KEY", &ask.key_text, false},
        {"LIMITS", &ask.limits_text, false},
    };
    int code = CLI_PARSE(call, options, operands);
    if (code)
        return code;
    code = cli_ask_open(call, &ask);
    if (code == CLI_OK && charges)
        code = cli_ask_needs_no_lease(call, &ask);
    if (code == CLI_OK)
        code = ask_once(call, &ask, verb, charges);
    cli_ask_close(&ask);
    return code;
}

int cli_ask_run_key(const struct cli_call *call,
                    int (*work)(const struct cli_call *call, const struct cli_ask *ask))
{
    struct cli_ask ask = cli_ask_default;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &ask.json, 0},
        {"store", CLI_TEXT, &ask.url, 0},
        CLI_SERVER_OPTIONS(ask.server),
    };
    const struct cli_operand operands[] = {{"KEY", &ask.key_text, false}};
    int code = CLI_PARSE(call, options, operands);
    if (code)
        return code;
    code = cli_ask_open(call, &ask);
    if (code == CLI_OK)
        code = work(call, &ask);
    cli_ask_close(&ask);
    return code;
}

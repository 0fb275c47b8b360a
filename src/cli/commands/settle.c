/*
 * `weir settle`, `renew`, `release` and `reset`: each changes what an earlier command left behind.
 * A charge is corrected, a lease is extended or ended, a key is forgotten.
 */
#include "cli/json.h"
#include "cli/request.h"

#include "store/store.h"

#include <inttypes.h>

/* Begins the JSON answer {"key": …}, which settle_end_json ends. */
static struct cli_json settle_begin_json(const struct cli_request *request)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_key(&json, request->key.data, request->key.len);
    return json;
}

static void settle_end_json(struct cli_json *json)
{
    cli_json_close(json, '}');
    cli_json_end(json);
}

/* ---- settle ---- */

struct settlement {
    const char *receipt;
    int64_t actual;
};

static int settle_work(const struct cli_call *call, const struct cli_request *request,
                       void *context)
{
    const struct settlement *it = context;
    weir_error err = {0};
    int code = cli_is_server(request->store)
                   ? cli_server_settle(request->store, request->key, request->limit, it->receipt,
                                       it->actual, &err)
                   : weir_settle(request->store, request->key, request->limit, it->receipt,
                                 it->actual, &err);
    bool before = code == WEIR_ESETTLED;
    if (code && !before)
        return cli_fail(call, cli_exit_for(code), "%s",
                        err.message[0] ? err.message : weir_strerror(code));
    if (request->json) {
        struct cli_json json = settle_begin_json(request);
        cli_json_bool(&json, "settled", true);
        if (before)
            cli_json_bool(&json, "before", true);
        cli_json_int(&json, "actual", it->actual);
        settle_end_json(&json);
    } else if (before) {
        puts("already settled: nothing changed");
    } else {
        printf("settled: the charge is now %" PRId64 "\n", it->actual);
    }
    return CLI_OK;
}

static int cmd_settle(const struct cli_call *call)
{
    struct cli_request request = cli_request_default;
    struct settlement it = {0};
    const char *actual_text = NULL;
    const struct cli_option options[] = {CLI_REQUEST_OPTIONS(request)};
    const struct cli_operand operands[] = {
        CLI_REQUEST_OPERANDS(request),
        {"RECEIPT", &it.receipt, false},
        {"ACTUAL", &actual_text, false},
    };
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = cli_read_cost(call, "actual cost", actual_text, &it.actual);
    return code ? code : cli_request_run(call, &request, settle_work, &it);
}

const struct cli_command cli_settle = {
    .name = "settle",
    .summary = "correct a charge when the real cost is known",
    .help =
        "Usage: weir settle KEY LIMITS RECEIPT ACTUAL [--json]\n"
        "                   [--store URL] [--server URL [--token TOKEN]]\n"
        "\n"
        "Changes the charge of an earlier take to ACTUAL, the real cost (0 to\n"
        "1000000000000; 0 gives everything back). KEY and LIMITS are those of the take.\n"
        "RECEIPT is what the take printed. Settling it again changes nothing.\n"
        "For concurrent limits use `weir release` instead.\n"
        "\n"
        "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
        "Examples:\n"
        "  weir take llm:ann \"token-bucket 100k/m\" --cost 4000   # prints a receipt\n"
        "  weir settle llm:ann \"token-bucket 100k/m\" RECEIPT 1234\n"
        "  receipt=$(weir take k \"fixed-window 9/m\" --json | jq -r .receipt)\n" CLI_EXIT_CODES,
    .run = cmd_settle,
};

/* ---- renew and release ---- */

struct lease_change {
    int (*verb)(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease);
    const char *done; /* "renewed", "released": the answer */
    uint64_t lease;
};

static int lease_work(const struct cli_call *call, const struct cli_request *request, void *context)
{
    const struct lease_change *it = context;
    int code = it->verb(request->store, request->key, request->limit, it->lease);
    if (code == WEIR_EUNSUPPORTED)
        return cli_fail_concurrent(call, request->limit);
    if (code && code != WEIR_ENOLEASE)
        return cli_refused(call, request->store, code);
    if (code)
        cli_fail(call, CLI_DENIED,
                 "\"%s\" does not hold the lease %" PRIu64 ": it has ended, was released, or "
                 "belongs to another key",
                 cli_show(request->key.data, request->key.len).text, it->lease);
    if (request->json) {
        struct cli_json json = settle_begin_json(request);
        cli_json_int(&json, "lease", (int64_t)it->lease);
        cli_json_bool(&json, it->done, code == 0);
        settle_end_json(&json);
    } else if (code == 0) {
        printf("%s: lease %" PRIu64 "\n", it->done, it->lease);
    }
    return cli_exit_for(code);
}

static int lease_run(const struct cli_call *call, struct lease_change *it)
{
    struct cli_request request = cli_request_default;
    const char *id = NULL;
    const struct cli_option options[] = {CLI_REQUEST_OPTIONS(request)};
    const struct cli_operand operands[] = {
        CLI_REQUEST_OPERANDS(request),
        {"ID", &id, false},
    };
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = cli_read_lease(call, id, &it->lease);
    return code ? code : cli_request_run(call, &request, lease_work, it);
}

static int cmd_renew(const struct cli_call *call)
{
    return lease_run(call, &(struct lease_change){.verb = weir_renew, .done = "renewed"});
}

static int cmd_release(const struct cli_call *call)
{
    return lease_run(call, &(struct lease_change){.verb = weir_release, .done = "released"});
}

const struct cli_command cli_renew = {
    .name = "renew",
    .summary = "start the time of a lease again",
    .help = "Usage: weir renew KEY LIMITS ID [--json]\n"
            "                  [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Starts the time of the lease ID again, so that it does not end. KEY and LIMITS\n"
            "are those of the `weir acquire` that printed ID. If the lease has ended already,\n"
            "the exit code is 1.\n"
            "\n"
            "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir renew deploy \"concurrent 1 lease 10m\" \"$id\"\n"
            "  while sleep 60; do weir renew job \"concurrent 3\" \"$id\" || break; "
            "done\n" CLI_EXIT_CODES,
    .run = cmd_renew,
};

const struct cli_command cli_release = {
    .name = "release",
    .summary = "give the slots of a lease back",
    .help = "Usage: weir release KEY LIMITS ID [--json]\n"
            "                    [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Gives the slots of the lease ID back. KEY and LIMITS are those of the\n"
            "`weir acquire` that printed ID. If the lease has ended already, the exit code\n"
            "is 1.\n"
            "\n"
            "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir release deploy \"concurrent 1 lease 10m\" \"$id\"\n"
            "  trap 'weir release job \"concurrent 3\" \"$id\"' EXIT\n" CLI_EXIT_CODES,
    .run = cmd_release,
};

/* ---- reset ---- */

static int reset_work(const struct cli_call *call, const struct cli_request *request, void *context)
{
    bool there = false;
    (void)context;
    int code = weir__store_reset(request->store, request->key, &there);
    if (code)
        return cli_refused(call, request->store, code);
    if (request->json) {
        struct cli_json json = settle_begin_json(request);
        cli_json_bool(&json, "reset", there);
        settle_end_json(&json);
    } else {
        printf(there ? "reset: %s\n" : "nothing to reset: %s had no state\n",
               cli_show(request->key.data, request->key.len).text);
    }
    return CLI_OK;
}

static int cmd_reset(const struct cli_call *call)
{
    return cli_request_run_key(call, reset_work);
}

const struct cli_command cli_reset = {
    .name = "reset",
    .summary = "forget a key under all its limits",
    .help = "Usage: weir reset KEY [--json]\n"
            "                  [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Forgets everything about KEY, under all limits. Its next request is decided like\n"
            "the first one. Leases of concurrent limits are forgotten too.\n"
            "\n"
            "Options:\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir reset user:42\n"
            "  weir reset user:42 --store shm:/app --json\n" CLI_EXIT_CODES,
    .run = cmd_reset,
};

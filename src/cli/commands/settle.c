/*
 * `weir settle`, `renew`, `release` and `reset`: each changes what an earlier command left behind.
 * A charge is corrected, a lease is extended or ended, a key is forgotten.
 */
#include "cli/request.h"

#include "store/store.h"

#include <inttypes.h>

/* ---- settle ---- */

static int settle_work(const struct cli_call *call, const struct cli_request *request)
{
    weir_error err = {0};
    int code = cli_is_server(request->store)
                   ? cli_server_settle(request->store, request->key, request->limit,
                                       request->receipt, request->actual, &err)
                   : weir_settle(request->store, request->key, request->limit, request->receipt,
                                 request->actual, &err);
    bool before = code == WEIR_ESETTLED;
    if (code && !before)
        return cli_fail_with(call, code, &err);
    if (request->json) {
        struct weir__json json = cli_request_json(request);
        weir__json_put_bool(&json, "settled", true);
        if (before)
            weir__json_put_bool(&json, "before", true);
        weir__json_put_int(&json, "actual", request->actual);
        cli_json_end(&json, '}');
    } else if (before) {
        puts("already settled: nothing changed");
    } else {
        printf("settled: the charge is now %" PRId64 "\n", request->actual);
    }
    return CLI_OK;
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
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_RECEIPT,
    .work = settle_work,
};

/* ---- renew and release ---- */

/* weir_renew or weir_release; the answer says "renewed" or "released". */
typedef int lease_verb(weir_store *store, weir_key key, const weir_limit *limit, uint64_t lease);

static int lease_change(const struct cli_call *call, const struct cli_request *request,
                        lease_verb *verb, const char *done)
{
    int code = verb(request->store, request->key, request->limit, request->lease);
    if (code == WEIR_EUNSUPPORTED)
        return cli_fail_concurrent(call, request->limit);
    if (code && code != WEIR_ENOLEASE)
        return cli_refused(call, request->store, code);
    if (code)
        cli_fail(call, CLI_DENIED,
                 "\"%s\" does not hold the lease %" PRIu64 ": it has ended, was released, or "
                 "belongs to another key",
                 cli_show(request->key.data, request->key.len).text, request->lease);
    if (request->json) {
        struct weir__json json = cli_request_json(request);
        weir__json_put_int(&json, "lease", (int64_t)request->lease);
        weir__json_put_bool(&json, done, code == 0);
        cli_json_end(&json, '}');
    } else if (code == 0) {
        printf("%s: lease %" PRIu64 "\n", done, request->lease);
    }
    return cli_exit_for(code);
}

static int renew_work(const struct cli_call *call, const struct cli_request *request)
{
    return lease_change(call, request, weir_renew, "renewed");
}

static int release_work(const struct cli_call *call, const struct cli_request *request)
{
    return lease_change(call, request, weir_release, "released");
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
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_LEASE,
    .work = renew_work,
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
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_LEASE,
    .work = release_work,
};

/* ---- reset ---- */

static int reset_work(const struct cli_call *call, const struct cli_request *request)
{
    bool there = false;
    int code = weir__store_reset(request->store, request->key, &there);
    if (code)
        return cli_refused(call, request->store, code);
    if (request->json) {
        struct weir__json json = cli_request_json(request);
        weir__json_put_bool(&json, "reset", there);
        cli_json_end(&json, '}');
    } else {
        printf(there ? "reset: %s\n" : "nothing to reset: %s had no state\n",
               cli_show(request->key.data, request->key.len).text);
    }
    return CLI_OK;
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
    .run = cli_request_run,
    .work = reset_work,
};

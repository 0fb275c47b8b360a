/*
 * What the commands take, peek, wait, acquire, settle, renew, release, reset and show share: a key,
 * mostly limits, the store or server that decides, and how the decision is printed.
 */
#ifndef WEIR_CLI_REQUEST_H
#define WEIR_CLI_REQUEST_H

#include "cli/server_store.h"

struct cli_request {
    /* the arguments */
    const char *key_text, *limits_text, *url;
    struct cli_server server;
    int64_t cost, wait_us;
    bool detail, json;
    /* filled by cli_request_open */
    weir_key key;
    weir_limit *limit;
    weir_store *store;
};

/* Cost 1, and the default wait of the limits. */
extern const struct cli_request cli_request_default;

/* The options that all of them have, at the end of a list of options. */
#define CLI_REQUEST_OPTIONS(request)                                                               \
    {"json", CLI_FLAG, &(request).json, 0}, {"store", CLI_TEXT, &(request).url, 0},                \
        CLI_SERVER_OPTIONS((request).server)
/* KEY and LIMITS, at the beginning of a list of operands. */
#define CLI_REQUEST_OPERANDS(request)                                                              \
    {"KEY", &(request).key_text, false},                                                           \
    {                                                                                              \
        "LIMITS", &(request).limits_text, false                                                    \
    }

/* Reads key and limits, opens the store or the server. Call cli_request_close afterwards, even if
 * it failed. */
int cli_request_open(const struct cli_call *call, struct cli_request *request);
void cli_request_close(struct cli_request *request);

/* What a command does once the request is open; an exit code. */
typedef int cli_request_work(const struct cli_call *call, const struct cli_request *request,
                             void *context);
/* Opens the request, does the work, closes. */
int cli_request_run(const struct cli_call *call, struct cli_request *request,
                    cli_request_work *work, void *context);
/* All of a command that needs only a key: KEY [--json] [--store URL | --server URL]. */
int cli_request_run_key(const struct cli_call *call, cli_request_work *work);

/* For verbs of leases: says that no limit is a `concurrent` one. Returns the exit code. */
int cli_fail_concurrent(const struct cli_call *call, const weir_limit *limit);

/* ---- the decision ---- */

struct cli_decided {
    const weir_decision *decision;
    const weir_decision *detail; /* one row per limit, or NULL */
    bool charged;                /* a take, which has a receipt if it is allowed */
    bool slept;                  /* the delay is over already */
};

/* Prints a decision for people, or as JSON with --json. The exit code: CLI_OK or CLI_DENIED. */
int cli_print_decision(const struct cli_request *request, const struct cli_decided *decided);

#endif

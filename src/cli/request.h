/*
 * What the commands take, peek, wait, acquire, settle, renew, release, reset and show share: a key,
 * mostly limits, the store or server that decides, and how the decision is printed.
 */
#ifndef WEIR_CLI_REQUEST_H
#define WEIR_CLI_REQUEST_H

#include "cli/server_store.h"

/* What a command takes beside KEY, --json, --store, --server and --token. */
enum cli_takes {
    CLI_TAKES_LIMITS = 1 << 0,  /* LIMITS */
    CLI_TAKES_RECEIPT = 1 << 1, /* RECEIPT ACTUAL */
    CLI_TAKES_LEASE = 1 << 2,   /* ID */
    CLI_TAKES_COST = 1 << 3,
    CLI_TAKES_SLOTS = 1 << 4, /* a --cost of at least 1 */
    CLI_TAKES_WAIT = 1 << 5,  /* and --least */
    CLI_TAKES_MAX = 1 << 6,   /* the same, called --max */
    CLI_TAKES_DETAIL = 1 << 7,
    CLI_TAKES_AMOUNT = 1 << 8, /* AMOUNT, --id */
    CLI_TAKES_POLICY = 1 << 9, /* --policy and its options instead of KEY, LIMITS */
};

struct cli_request {
    const char *key_text, *limits_text, *receipt, *actual_text, *lease_text, *amount_text, *url;
    const char *policy, *policy_key, *policy_limit, *attributes, *id; /* NULL: not given */
    struct cli_server server;
    int64_t cost;    /* 1, if it is not given */
    int64_t taken;   /* the cost of a take that is settled; -1: the policy's own */
    int64_t least;   /* 0: all of the cost */
    int64_t wait_us; /* WEIR_WAIT_DEFAULT, if it is not given */
    bool detail, json;
    /* read and opened */
    weir_key key;
    weir_limit *limit; /* NULL: the command takes none, or a policy has them */
    weir_store *store;
    int64_t actual, amount;
    uint64_t lease;
};

/* Runs a command: reads what it takes, opens the store or server, does its work, closes. */
int cli_request_run(const struct cli_call *call);

/* For verbs of leases: says that no limit is a `concurrent` one. Returns the exit code. */
int cli_fail_concurrent(const struct cli_call *call, const weir_limit *limit);
/* Begins the JSON answer {"key": …. */
struct weir__json cli_request_json(const struct cli_request *request);

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

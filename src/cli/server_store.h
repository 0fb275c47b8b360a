/*
 * A running `weir serve` as a store: every verb is sent to it over HTTP, so that commands print and
 * end as with a local store. Nothing is sent twice: a take may have been charged although its
 * answer was lost.
 */
#ifndef WEIR_CLI_SERVER_STORE_H
#define WEIR_CLI_SERVER_STORE_H

#include "base/span.h"
#include "cli/cli.h"

/* The server of the options --server and --token. */
struct cli_server {
    const char *url;   /* NULL: no server, the store is local */
    const char *token; /* NULL: from the environment */
};

/* The given token, or $WEIR_ADMIN_TOKEN, or $WEIR_TOKEN; NULL: none. */
const char *cli_token(const char *given);

/* Opens the server; without one the store `url` (NULL: the default zone of the user). */
int cli_open_server_or_store(const struct cli_call *call, const struct cli_server *server,
                             const char *url, weir_store **ret);

/* The same for what several processes share. Refuses a private store: it would limit nothing. While
 * no server of Redis answers, nothing is allowed, and calls have a deadline of two seconds, unless
 * the address says something else. */
int cli_open_shared_store(const struct cli_call *call, const struct cli_server *server,
                          const char *url, weir_store **ret);

/* Whether the store is a server; the verbs below are for those. */
bool cli_is_server(const weir_store *store);
/* The receipt of the last take; NULL: it has none, or the store is not a server. */
const char *cli_server_receipt(const weir_store *store);
/* Whose charge is corrected, by the text of `limit`; or by a policy: of a refund its limit, or
 * NULL. */
struct cli_server_charge {
    const weir_key *key;                     /* NULL: the attributes say it */
    const char *limit, *policy, *attributes; /* or NULL */
};
struct cli_server_settle {
    struct cli_server_charge charge;
    int64_t cost, least; /* of the take: -1 and 0: the policy's own */
    const char *receipt;
    int64_t actual;
};
/* WEIR_ESETTLED: it was settled before. */
int cli_server_settle(weir_store *store, const struct cli_server_settle *settle, weir_error *err);
/* What a limit gave back, and what is left. Texts are in the memory of the store. */
struct cli_refunded {
    const char *name, *text; /* name: of a policy's limit, or NULL */
    int64_t given, limit, remaining;
    int64_t used;     /* -1: not known */
    const char *last; /* another limit that it was last charged under, or NULL */
    int64_t last_limit, last_remaining;
};
struct cli_server_refund {
    struct cli_server_charge charge;
    const char *id; /* or NULL */
    int64_t amount;
};
/* WEIR_ESETTLED: it was given back before, and the rows say what is left. */
int cli_server_refund(weir_store *store, const struct cli_server_refund *refund,
                      struct cli_refunded ret[WEIR_LIMITS_MAX], size_t *ret_count);
/* The time of the server at its last answer to show; -1: it did not say. */
int64_t cli_server_now(const weir_store *store);

/* What /v1/explain shall explain; all but one may be NULL. */
struct cli_server_question {
    const weir_key *key;
    const char *limits, *policy, *attributes; /* attributes: encoded like a query */
};
/* *ret is the answer, in the memory of the store until the next call; or a WEIR_E…. */
int cli_server_explain(weir_store *store, const struct cli_server_question *question,
                       struct weir__span *ret);

#endif

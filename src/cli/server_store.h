/*
 * A running `weir serve` as a store: every verb of a command asks it over HTTP, so that commands print and
 * end as they do with a store of their own. Nothing is asked twice: a take may have been charged although
 * its answer was lost.
 */
#ifndef WEIR_CLI_SERVER_STORE_H
#define WEIR_CLI_SERVER_STORE_H

#include "base/span.h"
#include "cli/cli.h"

/* Which server, as the options --server and --token say. */
struct cli_server {
    const char *url;   /* NULL: none, the store is local */
    const char *token; /* NULL: of the environment */
};

#define CLI_SERVER_OPTIONS(server)                                                                 \
    {"server", CLI_TEXT, &(server).url, 0},                                                        \
    {                                                                                              \
        "token", CLI_TEXT, &(server).token, 0                                                      \
    }
#define CLI_SERVER_HELP                                                                            \
    "  --server URL  ask a running `weir serve` instead of a store: http://host:port,\n"           \
    "                https://host:port, host:port or unix:/path\n"                                 \
    "  --token TOKEN the server's token; better in $WEIR_TOKEN or $WEIR_ADMIN_TOKEN,\n"            \
    "                which other users cannot see\n"

/* $WEIR_ADMIN_TOKEN or $WEIR_TOKEN where none is given; NULL: none. */
const char *cli_token(const char *given);

/* Opens the server, or the store `url` (NULL: the desk's own) where none is named. */
int cli_open_server_or_store(const struct cli_call *call, const struct cli_server *server,
                             const char *url, weir_store **ret);

/* Whether the store is a server; the verbs below are for those. */
bool cli_is_server(const weir_store *store);
/* The receipt of the last take; NULL: it has none, or the store is no server. */
const char *cli_server_receipt(const weir_store *store);
int cli_server_settle(weir_store *store, weir_key key, const weir_limit *limit, const char *receipt,
                      int64_t actual, weir_error *err);

/* What /v1/explain is asked about; all but one may be NULL. */
struct cli_server_question {
    const weir_key *key;
    const char *limits, *policy, *attributes; /* attributes: encoded like a query */
};
/* Its answer, in the store's memory until the next question; a WEIR_E… and why. */
int cli_server_explain(weir_store *store, const struct cli_server_question *question,
                       struct weir__span *ret, weir_error *err);

#endif

/* What take, peek, wait and acquire have in common: a key, limits, a cost, one question. */
#ifndef WEIR_CLI_ASK_H
#define WEIR_CLI_ASK_H

#include "cli/server_store.h"

struct cli_ask {
    const char *key_text, *limits_text, *url;
    struct cli_server server;
    int64_t cost, wait_us;
    bool detail, json;
    /* filled by cli_ask_open */
    weir_key key;
    weir_limit *limit;
    weir_store *store;
};

/* Cost 1, the limits' own wait. */
extern const struct cli_ask cli_ask_default;

/* Reads key and limits, opens the store or the server. cli_ask_close after it, whatever it returns. */
int cli_ask_open(const struct cli_call *call, struct cli_ask *ask);
void cli_ask_close(struct cli_ask *ask);

/* For take and wait, behind cli_ask_open: a concurrent limit's slots would be held by a lease that nobody was told, so that
 * nobody could release them. An exit code. */
int cli_ask_needs_no_lease(const struct cli_call *call, const struct cli_ask *ask);

/* weir_take_all or weir_peek_all. */
typedef int cli_verb(weir_store *store, const weir_request *requests, size_t n, weir_decision *ret);

/* All of `weir take` and `weir peek`. */
int cli_ask_run(const struct cli_call *call, cli_verb *verb, bool charges);
/* The same for what needs a key only: KEY [--json] [--store URL | --server URL], then `work`. */
int cli_ask_run_key(const struct cli_call *call,
                    int (*work)(const struct cli_call *call, const struct cli_ask *ask));

#endif

/* See lease.h. */
#include "cli/lease.h"

#include "cli/ask.h"
#include "cli/json.h"

#include <inttypes.h>

static int report(const struct cli_call *call, const struct cli_ask *ask, uint64_t lease, int code,
                  const char *done)
{
    if (code == WEIR_ENOLEASE)
        cli_fail(call, CLI_DENIED,
                 "lease %" PRIu64 " of \"%s\" is not held: it lapsed, was released, or is another "
                 "key's",
                 lease, cli_show(ask->key.data, ask->key.len).text);
    else if (code == WEIR_EUNSUPPORTED)
        return cli_fail(call, CLI_USAGE,
                        "limit \"%s\" holds no `concurrent`; leases need one, like "
                        "\"concurrent 20 lease 30s\"",
                        weir_limit_text(ask->limit));
    else if (code)
        return cli_refused(call, ask->store, code);
    if (ask->json) {
        struct cli_json json = {stdout, false};
        cli_json_open(&json, NULL, '{');
        cli_json_key(&json, ask->key.data, ask->key.len);
        cli_json_int(&json, "lease", (int64_t)lease);
        cli_json_bool(&json, done, code == 0);
        cli_json_close(&json, '}');
        cli_json_end(&json);
    } else if (code == 0) {
        printf("%s: lease %" PRIu64 "\n", done, lease);
    }
    return cli_exit_for(code);
}

int cli_lease_run(const struct cli_call *call, cli_lease_verb *verb, const char *done)
{
    struct cli_ask ask = cli_ask_default;
    const char *id = NULL;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &ask.json, 0},
        {"store", CLI_TEXT, &ask.url, 0},
        CLI_SERVER_OPTIONS(ask.server),
    };
    const struct cli_operand operands[] = {
        {"KEY", &ask.key_text, false},
        {"LIMITS", &ask.limits_text, false},
        {"ID", &id, false},
    };
    uint64_t lease;
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = cli_read_lease(call, id, &lease);
    if (code)
        return code;
    code = cli_ask_open(call, &ask);
    if (code == CLI_OK)
        code = report(call, &ask, lease, verb(ask.store, ask.key, ask.limit, lease), done);
    cli_ask_close(&ask);
    return code;
}

/* Opening a request, and printing its decision: see request.h. */
#include "cli/request.h"

#include "limit/limit.h"
#include "remote/remote.h"
#include "store/store.h"

#include <assert.h>
#include <inttypes.h>

/* Whether a policy says the limits, and an option the key. */
static bool request_names_policy(const struct cli_call *call)
{
    for (int i = 0; i < call->argc && call->command->takes & CLI_TAKES_POLICY; i++) {
        if (!strcmp(call->argv[i], "--"))
            return false;
        if (!strcmp(call->argv[i], "--policy") || !strncmp(call->argv[i], "--policy=", 9))
            return true;
    }
    return false;
}

/* The options and operands of a command, in the order in which they are listed and given. */
static int request_parse(const struct cli_call *call, struct cli_request *request)
{
    const struct {
        unsigned takes;
        struct cli_option option;
    } options[] = {
        {CLI_TAKES_COST, {"cost", CLI_COST, &request->cost, 0}},
        {CLI_TAKES_SLOTS, {"cost", CLI_COUNT, &request->cost, WEIR_COST_MAX}},
        {CLI_TAKES_WAIT, {"least", CLI_COUNT, &request->least, WEIR_COST_MAX}},
        {CLI_TAKES_WAIT, {"wait", CLI_WAIT, &request->wait_us, 0}},
        {CLI_TAKES_MAX, {"max", CLI_WAIT, &request->wait_us, 0}},
        {CLI_TAKES_DETAIL, {"detail", CLI_FLAG, &request->detail, 0}},
        {CLI_TAKES_POLICY, {"policy", CLI_TEXT, &request->policy, 0}},
        {CLI_TAKES_POLICY, {"key", CLI_TEXT, &request->policy_key, 0}},
        {CLI_TAKES_POLICY, {"request", CLI_TEXT, &request->attributes, 0}},
        {CLI_TAKES_RECEIPT, {"cost", CLI_COST, &request->taken, 0}},
        {CLI_TAKES_RECEIPT, {"least", CLI_COUNT, &request->least, WEIR_COST_MAX}},
        {CLI_TAKES_AMOUNT, {"limit", CLI_TEXT, &request->policy_limit, 0}},
        {CLI_TAKES_AMOUNT, {"id", CLI_TEXT, &request->id, 0}},
        {0, {"json", CLI_FLAG, &request->json, 0}},
        {0, {"store", CLI_TEXT, &request->url, 0}},
        {0, {"server", CLI_TEXT, &request->server.url, 0}},
        {0, {"token", CLI_TEXT, &request->server.token, 0}},
    };
    const struct {
        unsigned takes;
        struct cli_operand operand;
    } operands[] = {
        {0, {"KEY", &request->key_text, false}},
        {CLI_TAKES_LIMITS, {"LIMITS", &request->limits_text, false}},
        {CLI_TAKES_RECEIPT, {"RECEIPT", &request->receipt, false}},
        {CLI_TAKES_RECEIPT, {"ACTUAL", &request->actual_text, false}},
        {CLI_TAKES_LEASE, {"ID", &request->lease_text, false}},
        {CLI_TAKES_AMOUNT, {"AMOUNT", &request->amount_text, false}},
    };
    struct cli_option own_options[WEIR__COUNT(options)];
    struct cli_operand own_operands[WEIR__COUNT(operands)];
    const unsigned other = ~call->command->takes;
    size_t option_count = 0, operand_count = 0;
    for (size_t i = 0; i < WEIR__COUNT(options); i++) {
        if (!(options[i].takes & other))
            own_options[option_count++] = options[i].option;
    }
    for (size_t i = request_names_policy(call) ? 2 : 0; i < WEIR__COUNT(operands); i++) {
        if (!(operands[i].takes & other))
            own_operands[operand_count++] = operands[i].operand;
    }
    return cli_parse(call, own_options, option_count, own_operands, operand_count);
}

/* An id has its bounds. A policy needs a server and a key, and the options of policies need one. */
static int request_check_policy(const struct cli_call *call, struct cli_request *request)
{
    if (request->id && (!*request->id || strlen(request->id) > WEIR__REFUND_ID_MAX))
        return cli_fail(call, CLI_USAGE,
                        "invalid --id \"%s\": expected 1 to %d bytes, like refund-2041",
                        cli_show_text(request->id).text, WEIR__REFUND_ID_MAX);
    bool settles = call->command->takes & CLI_TAKES_RECEIPT;
    if (!request->policy && (request->policy_key || request->policy_limit || request->attributes ||
                             (settles && (request->taken >= 0 || request->least > 0))))
        return cli_fail(call, CLI_USAGE, "--key, --request%s need --policy NAME and --server URL",
                        settles ? ", --cost and --least" : " and --limit");
    if (!request->policy && !request->key_text) /* "--policy" was the value of an option */
        return cli_fail(call, CLI_USAGE, "KEY is missing; see `weir %s --help`",
                        call->command->name);
    if (!request->policy)
        return CLI_OK;
    if (!request->server.url)
        return cli_fail(call, CLI_USAGE, "--policy needs a server: add --server URL");
    if (!request->policy_key && !request->attributes)
        return cli_fail(call, CLI_USAGE,
                        "--policy needs a key: add --key KEY, a value like bob, or --request "
                        "ATTRIBUTES, like customer=bob");
    request->key_text = request->policy_key;
    return CLI_OK;
}

int cli_request_run(const struct cli_call *call)
{
    struct cli_request request = {.cost = 1, .taken = -1, .wait_us = WEIR_WAIT_DEFAULT};
    int code = request_parse(call, &request);
    if (code == CLI_OK)
        code = request_check_policy(call, &request);
    if (code == CLI_OK && request.actual_text)
        code = cli_read_cost(call, "actual cost", request.actual_text, &request.actual);
    if (code == CLI_OK && request.amount_text)
        code = cli_read_amount(call, request.amount_text, &request.amount);
    if (code == CLI_OK && request.lease_text)
        code = cli_read_lease(call, request.lease_text, &request.lease);
    if (code == CLI_OK && request.key_text)
        code = cli_read_key(call, request.key_text, &request.key);
    if (code == CLI_OK && request.limits_text)
        code = cli_read_limits(call, request.limits_text, &request.limit);
    if (code == CLI_OK)
        code = cli_open_server_or_store(call, &request.server, request.url, &request.store);
    if (code == CLI_OK)
        code = call->command->work(call, &request);
    weir_store_close(request.store);
    weir_limit_free(request.limit);
    return code;
}

struct weir__json cli_request_json(const struct cli_request *request)
{
    struct weir__json json = cli_json_begin('{');
    if (request->key_text)
        weir__json_put_key(&json, request->key.data, request->key.len);
    else
        weir__json_put_string(&json, "request", request->attributes);
    return json;
}

int cli_fail_concurrent(const struct cli_call *call, const weir_limit *limit)
{
    return cli_fail(call, CLI_USAGE,
                    "limit \"%s\" is not a `concurrent` limit; only those have leases, like "
                    "\"concurrent 20 lease 30s\"",
                    weir_limit_text(limit));
}

/* ---- the decision, for people ---- */

/* The receipt of the server, or of the store. */
static const char *decision_receipt(const struct cli_request *request, const weir_decision *d,
                                    char own[WEIR_RECEIPT_SIZE])
{
    const char *receipt = cli_server_receipt(request->store);
    if (receipt)
        return receipt;
    weir_decision named = *d;
    weir_receipt(&named, own);
    return own;
}

static void decision_print_denied(const struct cli_request *request, const weir_decision *d,
                                  const struct cli_style *style)
{
    printf("%sdenied%s", style->bad, style->off);
    if (weir_limit_count(request->limit) > 1 && !d->closed)
        printf(" by %s", weir__limit_text_of(request->limit, d->binding).text);
    if (d->retry_after_us == WEIR_NEVER)
        printf(": a cost of %" PRId64 " is never allowed, the limit is %" PRId64 "\n",
               request->least ? request->least : request->cost, d->limit);
    else if (d->closed) /* what is left is not known */
        printf(": retry in %s%s%s\n", style->bold, cli_about(d->retry_after_us).text, style->off);
    else
        printf(": retry in %s%s%s, %" PRId64 " of %" PRId64 " left\n", style->bold,
               cli_about(d->retry_after_us).text, style->off, d->remaining, d->limit);
}

static void decision_print_allowed(const struct cli_request *request,
                                   const struct cli_decided *decided, const struct cli_style *style)
{
    const weir_decision *d = decided->decision;
    const bool delayed = d->delay_us > 0 && !decided->slept;
    printf("%sallowed%s", style->good, style->off);
    if (request->least)
        printf(", %s%" PRId64 " of %" PRId64 "%s granted", style->bold, d->granted, request->cost,
               style->off);
    if (delayed)
        printf(": go ahead %sin %s%s", style->bold, cli_about(d->delay_us).text, style->off);
    printf("%s %" PRId64 " of %" PRId64 " left", delayed ? "," : ":", d->remaining, d->limit);
    if (d->reset_after_us > 0)
        printf(", resets in %s", cli_about(d->reset_after_us).text);
    putchar('\n');
}

static void decision_print_rows(const struct cli_request *request, const weir_decision *detail,
                                const struct cli_style *style)
{
    for (size_t i = 0; i < weir_limit_count(request->limit); i++) {
        const weir_decision *row = &detail[i];
        printf("  %s%s%s  %s: %" PRId64 " of %" PRId64 " left",
               row->allowed ? style->good : style->bad, row->allowed ? "yes" : "no ", style->off,
               weir__limit_text_of(request->limit, i).text, row->remaining, row->limit);
        if (!row->allowed)
            printf(", retry in %s", cli_about(row->retry_after_us).text);
        if (row->delay_us > 0)
            printf(", delay %s", cli_about(row->delay_us).text);
        if (row->reset_after_us > 0)
            printf(", resets in %s", cli_about(row->reset_after_us).text);
        putchar('\n');
    }
}

/* Whether the address says that all is allowed while no server decides. */
static bool request_fails_open(const struct cli_request *request)
{
    return request->store->engine == &weir__remote_engine &&
           weir__remote_of(request->store)->url.fail == WEIR__FAIL_OPEN;
}

/* Why no server decided, as far as it is known here, and who did: a weir serve does not tell. */
static void decision_print_degraded(const struct cli_request *request, const weir_decision *d,
                                    const struct cli_style *style)
{
    weir_error why;
    bool said = !cli_is_server(request->store) && weir__store_why(request->store, &why);
    printf("%sdegraded%s: the store ", style->bad, style->off);
    if (said && why.code != WEIR_EUNREACHABLE) {
        fputs("refused (", stdout);
        cli_print_masked(why.message, strlen(why.message));
        putchar(')');
    } else if (said) {
        fputs("is unreachable (", stdout);
        cli_print_masked(why.message, strlen(why.message));
        putchar(')');
    } else {
        fputs(cli_is_server(request->store) ? "of the server did not decide"
                                            : "did not answer in time",
              stdout);
    }
    puts(d->closed                     ? ", so fail=closed denies"
         : request_fails_open(request) ? ", so fail=open allows"
                                       : ", the local fallback decided");
}

static void decision_print(const struct cli_request *request, const struct cli_decided *decided)
{
    struct cli_style style = cli_style_of(stdout);
    const weir_decision *d = decided->decision;
    if (d->allowed)
        decision_print_allowed(request, decided, &style);
    else
        decision_print_denied(request, d, &style);
    if (d->full)
        printf("%sfull%s: the store has no room for this key, and keeps those it has; use a larger "
               "size\n",
               style.bad, style.off);
    if (d->degraded)
        decision_print_degraded(request, d, &style);
    if (d->local)
        printf("%slocal%s: decided from a slice, Redis was not asked\n", style.dim, style.off);
    if (decided->detail)
        decision_print_rows(request, decided->detail, &style);
    if (decided->charged && d->allowed && d->charged > 0) {
        char own[WEIR_RECEIPT_SIZE];
        printf("%sreceipt %s%s\n", style.dim, decision_receipt(request, d, own), style.off);
    }
}

/* ---- the decision, as JSON ---- */

static void decision_put_rows(struct weir__json *json, const struct cli_request *request,
                              const weir_decision *detail)
{
    weir__json_open(json, "limits", '[');
    for (size_t i = 0; i < weir_limit_count(request->limit); i++) {
        weir__json_open(json, NULL, '{');
        weir__json_put_rule(json, "text", &request->limit->rules[i]);
        weir__json_put_decision(json, &detail[i]);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void decision_put(const struct cli_request *request, const struct cli_decided *decided)
{
    const weir_decision *d = decided->decision;
    char own[WEIR_RECEIPT_SIZE];
    struct weir__json json = cli_request_json(request);
    weir__json_put_decision(&json, d);
    weir__json_put_int(&json, "binding", d->binding);
    if (d->lease)
        weir__json_put_int(&json, "lease", (int64_t)d->lease);
    weir__json_put_string(&json, "receipt",
                          decided->charged && d->allowed ? decision_receipt(request, d, own)
                                                         : NULL);
    weir__json_put_bool(&json, "degraded", d->degraded);
    weir__json_put_bool(&json, "local", d->local);
    if (d->full || d->closed)
        weir__json_put_string(&json, "reason", d->full ? "full" : "closed");
    if (decided->detail)
        decision_put_rows(&json, request, decided->detail);
    cli_json_end(&json, '}');
}

int cli_print_decision(const struct cli_request *request, const struct cli_decided *decided)
{
    assert(decided->decision->binding < weir_limit_count(request->limit));
    if (request->json)
        decision_put(request, decided);
    else
        decision_print(request, decided);
    if (decided->decision->degraded && decided->decision->allowed &&
        !cli_is_server(request->store) && !request_fails_open(request)) {
        fflush(stdout); /* it is about what was printed */
        fprintf(stderr, "weir: warning: the local fallback remembers nothing between commands; if "
                        "the limit must not be exceeded, use fail=closed in the address\n");
    }
    return decided->decision->allowed ? CLI_OK : CLI_DENIED;
}

/* Opening a request, and printing its decision: see request.h. */
#include "cli/request.h"

#include "cli/json.h"
#include "limit/limit.h"

#include <assert.h>
#include <inttypes.h>

const struct cli_request cli_request_default = {.cost = 1, .wait_us = WEIR_WAIT_DEFAULT};

int cli_request_open(const struct cli_call *call, struct cli_request *request)
{
    int code = cli_read_key(call, request->key_text, &request->key);
    if (code == CLI_OK && request->limits_text)
        code = cli_read_limits(call, request->limits_text, &request->limit);
    if (code == CLI_OK)
        code = cli_open_server_or_store(call, &request->server, request->url, &request->store);
    return code;
}

void cli_request_close(struct cli_request *request)
{
    weir_store_close(request->store);
    weir_limit_free(request->limit);
}

int cli_request_run(const struct cli_call *call, struct cli_request *request,
                    cli_request_work *work, void *context)
{
    int code = cli_request_open(call, request);
    if (code == CLI_OK)
        code = work(call, request, context);
    cli_request_close(request);
    return code;
}

int cli_request_run_key(const struct cli_call *call, cli_request_work *work)
{
    struct cli_request request = cli_request_default;
    const struct cli_option options[] = {CLI_REQUEST_OPTIONS(request)};
    const struct cli_operand operands[] = {{"KEY", &request.key_text, false}};
    int code = CLI_PARSE(call, options, operands);
    return code ? code : cli_request_run(call, &request, work, NULL);
}

int cli_fail_concurrent(const struct cli_call *call, const weir_limit *limit)
{
    return cli_fail(call, CLI_USAGE,
                    "limit \"%s\" is not a `concurrent` limit; only those have leases, like "
                    "\"concurrent 20 lease 30s\"",
                    weir_limit_text(limit));
}

/* ---- the decision, for people ---- */

/* The canonical text of one limit. */
struct rule_text {
    char text[WEIR__RULE_TEXT_MAX];
};

static struct rule_text decision_rule_text(const struct cli_request *request, size_t i)
{
    struct rule_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    assert(i < weir_limit_count(request->limit));
    weir__put_rule(&buffer, &request->limit->rules[i]);
    return ret;
}

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
    if (weir_limit_count(request->limit) > 1)
        printf(" by %s", decision_rule_text(request, d->binding).text);
    if (d->retry_after_us == WEIR_NEVER)
        printf(": a cost of %" PRId64 " is never allowed, the limit is %" PRId64 "\n",
               request->cost, d->limit);
    else
        printf(": retry in %s%s%s, %" PRId64 " of %" PRId64 " left\n", style->bold,
               cli_about(d->retry_after_us).text, style->off, d->remaining, d->limit);
}

static void decision_print_allowed(const struct cli_decided *decided, const struct cli_style *style)
{
    const weir_decision *d = decided->decision;
    const bool delayed = d->delay_us > 0 && !decided->slept;
    printf("%sallowed%s", style->good, style->off);
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
               decision_rule_text(request, i).text, row->remaining, row->limit);
        if (!row->allowed)
            printf(", retry in %s", cli_about(row->retry_after_us).text);
        if (row->delay_us > 0)
            printf(", delay %s", cli_about(row->delay_us).text);
        if (row->reset_after_us > 0)
            printf(", resets in %s", cli_about(row->reset_after_us).text);
        putchar('\n');
    }
}

static void decision_print(const struct cli_request *request, const struct cli_decided *decided)
{
    struct cli_style style = cli_style_of(stdout);
    const weir_decision *d = decided->decision;
    if (d->allowed)
        decision_print_allowed(decided, &style);
    else
        decision_print_denied(request, d, &style);
    if (d->full)
        printf("%sfull%s: the store has no room for this key, and keeps those it has; use a larger "
               "size\n",
               style.bad, style.off);
    if (d->degraded)
        printf("%sdegraded%s: the store is unreachable, the local fallback decided\n", style.bad,
               style.off);
    if (decided->detail)
        decision_print_rows(request, decided->detail, &style);
    if (decided->charged && d->allowed && d->charged > 0) {
        char own[WEIR_RECEIPT_SIZE];
        printf("%sreceipt %s%s\n", style.dim, decision_receipt(request, d, own), style.off);
    }
}

/* ---- the decision, as JSON ---- */

static void decision_put_rows(struct cli_json *json, const struct cli_request *request,
                              const weir_decision *detail)
{
    cli_json_open(json, "limits", '[');
    for (size_t i = 0; i < weir_limit_count(request->limit); i++) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "text", decision_rule_text(request, i).text);
        cli_json_decision(json, &detail[i]);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void decision_put(const struct cli_request *request, const struct cli_decided *decided)
{
    struct cli_json json = {stdout, false};
    const weir_decision *d = decided->decision;
    cli_json_open(&json, NULL, '{');
    cli_json_key(&json, request->key.data, request->key.len);
    cli_json_decision(&json, d);
    cli_json_int(&json, "binding", d->binding);
    if (d->lease)
        cli_json_int(&json, "lease", (int64_t)d->lease);
    if (decided->charged && d->allowed) {
        char own[WEIR_RECEIPT_SIZE];
        cli_json_text(&json, "receipt", decision_receipt(request, d, own));
    } else {
        cli_json_null(&json, "receipt");
    }
    cli_json_bool(&json, "degraded", d->degraded);
    if (d->full)
        cli_json_text(&json, "reason", "full");
    if (decided->detail)
        decision_put_rows(&json, request, decided->detail);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

int cli_print_decision(const struct cli_request *request, const struct cli_decided *decided)
{
    assert(decided->decision->binding < weir_limit_count(request->limit));
    if (request->json)
        decision_put(request, decided);
    else
        decision_print(request, decided);
    return decided->decision->allowed ? CLI_OK : CLI_DENIED;
}

/* See decision.h. */
#include "cli/decision.h"

#include "cli/json.h"
#include "limit/limit.h"

#include <inttypes.h>

/* The canonical text of one limit. */
struct rule_text {
    char text[WEIR__RULE_TEXT_MAX];
};

static struct rule_text rule_text(const struct cli_answer *answer, size_t i)
{
    struct rule_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    weir__put_rule(&buffer, &answer->limit->rules[i]);
    return ret;
}

static const char *receipt_of(const struct cli_answer *answer, char own[WEIR_RECEIPT_SIZE])
{
    if (answer->receipt)
        return answer->receipt;
    weir_decision named = *answer->decision;
    weir_receipt(&named, own);
    return own;
}

/* ---- for people ---- */

static void print_denied(const struct cli_answer *answer, const struct cli_style *style)
{
    const weir_decision *d = answer->decision;
    printf("%sdenied%s", style->bad, style->off);
    if (weir_limit_count(answer->limit) > 1)
        printf(" by %s", rule_text(answer, d->binding).text);
    if (d->retry_after_us == WEIR_NEVER) {
        printf(": a cost of %" PRId64 " is never allowed, the limit is %" PRId64 "\n", answer->cost,
               d->limit);
        return;
    }
    printf(": retry in %s%s%s, %" PRId64 " of %" PRId64 " left\n", style->bold,
           cli_about(d->retry_after_us).text, style->off, d->remaining, d->limit);
}

static void print_allowed(const struct cli_answer *answer, const struct cli_style *style)
{
    const weir_decision *d = answer->decision;
    printf("%sallowed%s", style->good, style->off);
    if (d->delay_us > 0 && !answer->slept)
        printf(": go ahead %sin %s%s", style->bold, cli_about(d->delay_us).text, style->off);
    printf("%s %" PRId64 " of %" PRId64 " left", d->delay_us > 0 && !answer->slept ? "," : ":",
           d->remaining, d->limit);
    if (d->reset_after_us > 0)
        printf(", as new in %s", cli_about(d->reset_after_us).text);
    putchar('\n');
}

static void print_rows(const struct cli_answer *answer, const struct cli_style *style)
{
    for (size_t i = 0; i < weir_limit_count(answer->limit); i++) {
        const weir_decision *row = &answer->detail[i];
        printf("  %s%s%s  %s: %" PRId64 " of %" PRId64 " left",
               row->allowed ? style->good : style->bad, row->allowed ? "yes" : "no ", style->off,
               rule_text(answer, i).text, row->remaining, row->limit);
        if (!row->allowed)
            printf(", retry in %s", cli_about(row->retry_after_us).text);
        if (row->delay_us > 0)
            printf(", delay %s", cli_about(row->delay_us).text);
        if (row->reset_after_us > 0)
            printf(", as new in %s", cli_about(row->reset_after_us).text);
        putchar('\n');
    }
}

void cli_print_answer(const struct cli_answer *answer)
{
    struct cli_style style = cli_style_of(stdout);
    const weir_decision *d = answer->decision;
    if (d->allowed)
        print_allowed(answer, &style);
    else
        print_denied(answer, &style);
    if (d->degraded)
        printf("%sdegraded%s: the store was out of reach, a stand-in decided\n", style.bad,
               style.off);
    if (answer->detail)
        print_rows(answer, &style);
    if (answer->charged && d->allowed && d->charged > 0) {
        char own[WEIR_RECEIPT_SIZE];
        printf("%sreceipt %s%s\n", style.dim, receipt_of(answer, own), style.off);
    }
}

/* ---- JSON ---- */

static void put_rows(struct cli_json *json, const struct cli_answer *answer)
{
    cli_json_open(json, "limits", '[');
    for (size_t i = 0; i < weir_limit_count(answer->limit); i++) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "text", rule_text(answer, i).text);
        cli_json_decision(json, &answer->detail[i]);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

void cli_print_answer_json(const struct cli_answer *answer)
{
    struct cli_json json = {stdout, false};
    const weir_decision *d = answer->decision;
    cli_json_open(&json, NULL, '{');
    cli_json_key(&json, answer->key.data, answer->key.len);
    cli_json_decision(&json, d);
    cli_json_int(&json, "binding", d->binding);
    if (d->lease)
        cli_json_int(&json, "lease", (int64_t)d->lease);
    if (answer->charged && d->allowed) {
        char own[WEIR_RECEIPT_SIZE];
        cli_json_text(&json, "receipt", receipt_of(answer, own));
    } else {
        cli_json_null(&json, "receipt");
    }
    cli_json_bool(&json, "degraded", d->degraded);
    if (answer->detail)
        put_rows(&json, answer);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

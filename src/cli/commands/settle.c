/*
 * `weir settle`, `refund`, `renew`, `release` and `reset`: each changes what an earlier command
 * left behind. A charge is corrected or given back, a lease is extended or ended, a key is
 * forgotten.
 */
#include "cli/request.h"

#include "store/store.h"

#include <assert.h>
#include <inttypes.h>

/* ---- settle ---- */

/* Whose charge a server shall correct. */
static struct cli_server_charge charge_of(const struct cli_request *request)
{
    return (struct cli_server_charge){.key = request->key_text ? &request->key : NULL,
                                      .limit = request->limit ? weir_limit_text(request->limit)
                                                              : request->policy_limit,
                                      .policy = request->policy,
                                      .attributes = request->attributes};
}

static int settle_work(const struct cli_call *call, const struct cli_request *request)
{
    weir_error err = {0};
    const struct cli_server_settle sent = {charge_of(request), request->taken, request->least,
                                           request->receipt, request->actual};
    bool late = weir__settle_is_late(request->store, request->receipt);
    int code = cli_is_server(request->store)
                   ? cli_server_settle(request->store, &sent, &err)
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
        else if (late)
            weir__json_put_bool(&json, "late", true);
        weir__json_put_int(&json, "actual", request->actual);
        cli_json_end(&json, '}');
    } else if (before) {
        puts("already settled: nothing changed");
    } else {
        printf("settled: the charge is now %" PRId64 "%s\n", request->actual,
               late ? "; more than an hour after the take, so do not settle it again: it may count "
                      "twice"
                    : "");
    }
    return CLI_OK;
}

const struct cli_command cli_settle = {
    .name = "settle",
    .summary = "correct a charge when the real cost is known",
    .run = cli_request_run,
    .looks = true,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_RECEIPT | CLI_TAKES_POLICY,
    .work = settle_work,
};

/* ---- refund ---- */

/* What is left, and what is used where that is more than the limit. Without attributes a policy may
 * say the limit of another plan: then by the one that the key was last charged under. */
static void refund_print_left(const struct cli_request *request, const struct cli_refunded *row)
{
    const bool last = row->last && !request->attributes;
    const int64_t limit = last ? row->last_limit : row->limit;
    printf("%" PRId64 " of %" PRId64 " left", last ? row->last_remaining : row->remaining, limit);
    if (row->used > limit)
        printf(", %" PRId64 " used, %" PRId64 " over the limit", row->used, row->used - limit);
    printf(", %s%s", cli_show_text(last ? row->last : row->text).text,
           last ? ", as last charged" : "");
}

/* `before`: another one with this id did it. */
static void refund_print(const struct cli_request *request, const struct cli_refunded *row,
                         bool before)
{
    if (!before && row->given == 0 && row->remaining == row->limit) {
        printf("nothing to give back: %s has used nothing under %s",
               cli_show_text(request->key_text ? request->key_text : request->attributes).text,
               cli_show_text(row->text).text);
    } else {
        if (before)
            fputs("already given back with this id: nothing changed, ", stdout);
        else
            printf("gave back %" PRId64 " of %" PRId64 ": ", row->given, request->amount);
        refund_print_left(request, row);
    }
    if (row->name && request->policy) /* whatever a server says */
        printf(" (limit %s of policy %s)", cli_show_text(row->name).text,
               cli_show_text(request->policy).text);
    putchar('\n');
}

/* Whether something was given back, now or by another one with the same id. */
static bool refund_gave(const struct cli_refunded *rows, size_t n, bool before)
{
    for (size_t i = 0; i < n; i++)
        before = before || rows[i].given > 0;
    return before;
}

static void refund_put(const struct cli_request *request, const struct cli_refunded *rows, size_t n,
                       bool before)
{
    struct weir__json json = cli_request_json(request);
    weir__json_put_bool(&json, "refunded", refund_gave(rows, n, before));
    if (before)
        weir__json_put_bool(&json, "before", true);
    weir__json_put_int(&json, "amount", request->amount);
    weir__json_open(&json, "limits", '[');
    for (size_t i = 0; i < n; i++) {
        weir__json_open(&json, NULL, '{');
        if (rows[i].name)
            weir__json_put_string(&json, "name", rows[i].name);
        weir__json_put_string(&json, "text", rows[i].text);
        weir__json_put_int(&json, "given", rows[i].given);
        weir__json_put_int(&json, "limit", rows[i].limit);
        weir__json_put_int(&json, "remaining", rows[i].remaining);
        if (rows[i].used >= 0)
            weir__json_put_int(&json, "used", rows[i].used);
        if (rows[i].last) {
            weir__json_open(&json, "last_charged", '{');
            weir__json_put_string(&json, "text", rows[i].last);
            weir__json_put_int(&json, "limit", rows[i].last_limit);
            weir__json_put_int(&json, "remaining", rows[i].last_remaining);
            weir__json_close(&json, '}');
        }
        weir__json_close(&json, '}');
    }
    weir__json_close(&json, ']');
    cli_json_end(&json, '}');
}

/* In a store; `texts` has room for what the rows say. */
static int refund_here(const struct cli_request *request, struct weir__rule_text *texts,
                       struct cli_refunded *rows, weir_error *err)
{
    weir_decision left[WEIR_LIMITS_MAX], folded;
    struct weir__used used[WEIR_LIMITS_MAX];
    int64_t given[WEIR_LIMITS_MAX];
    weir_request look = weir_request_make(request->key, request->limit);
    const struct weir__refund refund = {
        request->amount, request->id ? weir__refund_id(request->id, strlen(request->id)) : 0};
    assert(request->limit); /* only a policy's requests have none, and these go to a server */
    look.cost = 0;
    look.detail = left;
    const int done =
        weir__refund(request->store, request->key, request->limit, &refund, given, err);
    int code = done == WEIR_ESETTLED ? 0 : done;
    if (code == 0 && (code = weir__peek_all(request->store, &look, 1, &folded)))
        weir__store_fail(request->store, code, err);
    if (code == 0)
        weir__store_used(request->store, request->key, request->limit, used);
    for (size_t i = 0; code == 0 && i < request->limit->count; i++) {
        texts[i] = weir__limit_text_of(request->limit, i);
        rows[i] = (struct cli_refunded){.text = texts[i].text,
                                        .given = given[i],
                                        .limit = left[i].limit,
                                        .remaining = left[i].remaining,
                                        .used = used[i].amount};
    }
    return code ? code : done;
}

static int refund_work(const struct cli_call *call, const struct cli_request *request)
{
    struct cli_refunded rows[WEIR_LIMITS_MAX];
    struct weir__rule_text texts[WEIR_LIMITS_MAX];
    const weir_limit *limit = request->limit;
    weir_error err = {0};
    size_t count = limit ? limit->count : 0, kept = 0;
    bool server = cli_is_server(request->store);
    const struct cli_server_refund sent = {charge_of(request), request->id, request->amount};
    int code = server ? cli_server_refund(request->store, &sent, rows, &count)
                      : refund_here(request, texts, rows, &err);
    bool before = code == WEIR_ESETTLED;
    if (code && !before)
        return server ? cli_refused(call, request->store, code) : cli_fail_with(call, code, &err);
    for (size_t i = 0; i < count; i++) { /* without those that were left alone */
        if (!limit || (i < limit->count && weir__limit_varies(limit, i)))
            rows[kept++] = rows[i];
    }
    if (request->json)
        refund_put(request, rows, kept, before);
    for (size_t i = 0; i < kept && !request->json; i++)
        refund_print(request, &rows[i], before);
    return refund_gave(rows, kept, before) ? CLI_OK : CLI_DENIED; /* a wrong key is no success */
}

const struct cli_command cli_refund = {
    .name = "refund",
    .summary = "give back what was charged, without a receipt",
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_AMOUNT | CLI_TAKES_POLICY,
    .looks = true,
    .work = refund_work,
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
    .run = cli_request_run,
    .looks = true,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_LEASE,
    .work = renew_work,
};

const struct cli_command cli_release = {
    .name = "release",
    .summary = "give the slots of a lease back",
    .run = cli_request_run,
    .looks = true,
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
        bool own = !request->url && !request->server.url;
        printf(there ? "reset: %s\n"
               : own ? "nothing to reset: %s had no state in this user's own zone; --store or "
                       "--server names another one\n"
                     : "nothing to reset: %s had no state\n",
               cli_show(request->key.data, request->key.len).text);
    }
    return there ? CLI_OK : CLI_DENIED; /* a wrong key must not look like success */
}

const struct cli_command cli_reset = {
    .name = "reset",
    .summary = "forget a key under all its limits",
    .run = cli_request_run,
    .looks = true,
    .work = reset_work,
};

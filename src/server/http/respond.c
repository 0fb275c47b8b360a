/* Responses: status, fields and body; and decisions as such: JSON, rate limit fields, 200 or 429.
 * See http.h. */
#include "server/http/http.h"

#include "limit/explain.h"
#include "limit/receipt.h"
#include "server/grpc/grpc.h"
#include "wire/decision.h"
#include "wire/json.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct {
    int status;
    const char *text;
} texts[] = {
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

const char *server_status_text(int status)
{
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        if (texts[i].status == status)
            return texts[i].text;
    }
    return status < 400 ? "OK" : "Error";
}

const char *server_date(struct server_thread *thread)
{
    time_t now = (time_t)(weir__clock_us() / 1000000);
    if (WEIR__UNLIKELY(now != thread->date_s)) {
        struct tm tm;
        gmtime_r(&now, &tm);
        size_t len =
            strftime(thread->date, sizeof thread->date, "date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
        assert(len == SERVER_DATE_LINE);
        (void)len;
        thread->date_s = now;
    }
    return thread->date;
}

void server_response_begin(struct server_response *response, int status)
{
    response->status = status;
    response->field_count = 0;
    response->body = (struct weir__span){NULL, 0};
    response->owned = NULL;
    response->close = response->head = response->old = false;
    response->room_used = 0;
}

void server_response_field(struct server_response *response, const char *name, const char *value,
                           size_t len)
{
    if (response->field_count < SERVER_FIELDS_MAX)
        response->fields[response->field_count++] = (struct server_field){name, value, len};
}

void server_response_text(struct server_response *response, const char *name, const char *value)
{
    server_response_field(response, name, value, strlen(value));
}

void server_response_fresh(struct server_response *response, int status)
{
    server_response_begin(response, status);
    server_response_field(response, "cache-control", "no-store", 8);
}

struct weir__buffer server_response_buffer(struct server_response *response)
{
    return weir__buffer_over(response->room + response->room_used,
                             sizeof response->room - response->room_used);
}

void server_response_body(struct server_response *response, const char *content_type,
                          const struct weir__buffer *body)
{
    server_response_text(response, "content-type", content_type);
    response->body = (struct weir__span){body->data, body->len};
    response->room_used += body->len + 1;
}

void server_response_own(struct server_response *response, const char *content_type, char *body,
                         size_t len)
{
    server_response_text(response, "content-type", content_type);
    response->body = (struct weir__span){body, len};
    response->owned = body;
}

void server_put_problem(struct weir__buffer *body, int status, const char *detail)
{
    struct weir__json json = {body, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_string(&json, "title", server_status_text(status));
    weir__json_put_int(&json, "status", status);
    weir__json_put_string(&json, "detail", detail);
    weir__json_close(&json, '}');
    weir__put(body, "\n", 1);
}

void server_response_problem(struct server_response *response, int status, const char *format, ...)
{
    char detail[700];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    server_response_fresh(response, status);
    struct weir__buffer body = server_response_buffer(response);
    server_put_problem(&body, status, detail);
    if (status == 503)
        server_response_field(response, "retry-after", "1", 1);
    server_response_body(response, "application/problem+json", &body);
}

/* ---- decisions ---- */

#define QUOTA_EXCEEDED "https://iana.org/assignments/http-problem-types#quota-exceeded"

static void respond_put_edges(struct weir__json *json, const struct weir__rule *rule,
                              int64_t now_us)
{
    char edges[WEIR__EDGES_SHOWN][WEIR__EDGE_MAX], began[WEIR__EDGE_MAX];
    if (!weir__explain_edges(rule, now_us, edges))
        return;
    weir__explain_began(rule, now_us, began);
    weir__json_put_string(json, "began", began);
    weir__json_open(json, "next_edges", '[');
    for (int i = 0; i < WEIR__EDGES_SHOWN; i++)
        weir__json_put_string(json, NULL, edges[i]);
    weir__json_close(json, ']');
}

/* What is used, also above the limit, and the limit that it was last charged under. */
static void respond_put_used(struct weir__json *json, const struct weir__used *used)
{
    if (used->amount >= 0)
        weir__json_put_int(json, "used", used->amount);
    if (!used->differs)
        return;
    weir__json_open(json, "last_charged", '{');
    weir__json_put_rule(json, "text", &used->last);
    weir__json_put_int(json, "limit", used->last.count);
    weir__json_put_int(json, "remaining", used->last_left);
    weir__json_close(json, '}');
}

/* One limit's row, and where it is from. `cost`: of the request. `used`: NULL, nobody looked. */
static void respond_put_row(struct weir__json *json, const struct weir__item *planned,
                            const weir_limit *limit, size_t i, int64_t cost,
                            const weir_decision *row, const struct weir__used *used,
                            const struct server_ask *ask)
{
    weir__json_open(json, NULL, '{');
    if (planned) {
        weir__json_put_string(json, "policy", planned->policy->name);
        weir__json_put_string(json, "name", planned->entry->name);
        weir__json_put_key(json, planned->key.data, planned->key.len);
        weir__json_put_bool(json, "shadow", planned->entry->shadow);
    }
    weir__json_put_limit(json, "text", limit, i);
    if (ask->explain) {
        struct weir__facts facts;
        weir__explain_limit(limit, i, &facts);
        weir__json_put_string(json, "meaning", facts.what);
        respond_put_edges(json, &limit->rules[i], row->time_us);
        weir__json_put_int(json, "cost", weir__limit_asked(limit, i, cost));
    }
    if (ask->kind == SERVER_ASK_REFUND)
        weir__json_put_int(json, "given", -row->charged);
    weir__json_put_decision(json, row);
    if (used)
        respond_put_used(json, used);
    weir__json_close(json, '}');
}

static void respond_put_planned_rows(struct weir__json *json, const struct weir__item *planned,
                                     size_t n, const weir_decision *rows, size_t stride,
                                     const struct weir__used *used, const struct server_ask *ask)
{
    for (size_t i = 0; i < n; i++) {
        size_t limits = weir_limit_count(planned[i].limit);
        for (size_t j = 0; j < limits; j++)
            respond_put_row(json, &planned[i], planned[i].limit, j, planned[i].cost, &rows[j],
                            used ? &used[j] : NULL, ask);
        rows += stride ? stride : limits;
        used = used ? used + limits : NULL;
    }
}

static void respond_put_rows(struct weir__json *json, const struct server_ask *ask)
{
    const bool looked = ask->explain || ask->kind == SERVER_ASK_REFUND;
    weir__json_open(json, "limits", '[');
    if (ask->about == SERVER_ABOUT_PLAN) {
        const struct server_planned *it = ask->planned;
        respond_put_planned_rows(json, it->plan.enforced, it->plan.enforced_count, it->several.rows,
                                 0, looked ? it->several.used : NULL, ask);
        respond_put_planned_rows(json, it->plan.shadow, it->plan.shadow_count, it->shadow_rows[0],
                                 WEIR_LIMITS_MAX, NULL, ask);
    } else {
        const struct server_several *it = ask->several;
        size_t n = 0;
        for (size_t i = 0; i < it->count; i++) {
            for (size_t j = 0; j < it->requests[i].limit->count; j++, n++)
                respond_put_row(json, NULL, it->requests[i].limit, j, it->requests[i].cost,
                                &it->rows[n], looked ? &it->used[n] : NULL, ask);
        }
    }
    weir__json_close(json, ']');
}

/* ---- fields ---- */

static size_t respond_gather_rated(const struct server_ask *ask, const weir_request *request,
                                   const weir_decision *decision, struct weir__rated *ret)
{
    const struct server_several *several = server_ask_several(ask);
    if (!several) {
        ret[0] = (struct weir__rated){NULL, &request->limit->rules[0], decision};
        return request->limit->count == 1;
    }
    size_t n = 0;
    for (size_t i = 0; i < several->count; i++) {
        const weir_limit *limit = several->requests[i].limit;
        const char *name =
            ask->about == SERVER_ABOUT_PLAN ? ask->planned->plan.enforced[i].entry->name : NULL;
        for (size_t j = 0; j < limit->count; j++, n++)
            ret[n] = (struct weir__rated){name, &limit->rules[j], &several->rows[n]};
    }
    assert(n <= WEIR_LIMITS_MAX);
    return n;
}

static void respond_add_rate_fields(struct server_response *ret, const struct server_ask *ask,
                                    const weir_request *request, const weir_decision *decision)
{
    struct weir__rated rated[WEIR_LIMITS_MAX];
    size_t n = respond_gather_rated(ask, request, decision, rated);
    enum weir__field_style style = n > 0 ? ask->http.style : WEIR__FIELDS_OFF;
    weir__rate_fields(style, rated, n, decision, &ret->rates);
    for (size_t i = 0; i < ret->rates.count; i++)
        server_response_field(ret, ret->rates.items[i].name, ret->rates.items[i].value,
                              ret->rates.items[i].value_len);
}

/* ---- bodies ---- */

/* Why it was refused: a limit, which time heals; a deny list or an attribute that is missing, which
 * it does not; or the store is out of reach, and the policy says closed. */
static const char *respond_reason_of(const struct server_ask *ask, const weir_decision *decision)
{
    static const char *const denials[] = {"deny", "missing"};
    if (decision->full)
        return "full";
    if (decision->closed)
        return "closed";
    if (ask->about != SERVER_ABOUT_PLAN)
        return "limit";
    const struct server_planned *it = ask->planned;
    if (it->plan.verdict == WEIR__VERDICT_DENY || it->plan.listed)
        return denials[it->plan.listed ? WEIR__DENIED_LISTED : it->plan.denial];
    if (!decision->degraded)
        return "limit";
    bool closed = true; /* what the local fallback allowed by itself */
    for (size_t i = 0; i < it->several.row_count; i++)
        closed = closed && it->several.rows[i].allowed;
    return closed ? "closed" : "limit";
}

static void respond_put_problem(struct weir__json *json, const struct server_ask *ask,
                                const weir_decision *decision)
{
    const char *reason = respond_reason_of(ask, decision);
    if (!strcmp(reason, "limit"))
        weir__json_put_text(json, "type", QUOTA_EXCEEDED, sizeof QUOTA_EXCEEDED - 1);
    weir__json_put_string(json, "title", server_status_text(ask->http.deny_status));
    weir__json_put_int(json, "status", ask->http.deny_status);
    weir__json_put_string(json, "reason", reason);
    if (ask->about != SERVER_ABOUT_PLAN)
        return;
    const struct weir__plan *plan = &ask->planned->plan;
    weir__json_open(json, "violated-policies", '[');
    if (plan->verdict == WEIR__VERDICT_DENY)
        weir__json_put_string(json, NULL, plan->by->name);
    size_t row = 0;
    for (size_t i = 0; i < plan->enforced_count && !decision->allowed; i++) {
        const struct weir__item *it = &plan->enforced[i];
        size_t limits = weir_limit_count(it->limit);
        bool denied = false;
        for (size_t j = 0; j < limits; j++, row++)
            denied = denied || !ask->planned->several.rows[row].allowed;
        if (denied)
            weir__json_put_string(json, NULL, it->entry->name);
    }
    weir__json_close(json, ']');
}

static void respond_put_receipt(struct server_conn *conn, struct weir__json *json,
                                const struct server_ask *ask, const weir_request *simple,
                                const weir_decision *decision)
{
    char receipt[SERVER_RECEIPT_SIZE];
    const struct server_several *several = server_ask_several(ask);
    const weir_request *request = several ? several->requests : simple;
    bool charged =
        decision->allowed && !weir__verb_reads(ask->verb) && (!several || several->count > 0);
    if (!charged) {
        weir__json_put_null(json, "receipt");
        return;
    }
    weir_decision named = *decision;
    uint64_t id = weir__receipt_id(&named);
    if (!id && ask->about == SERVER_ABOUT_PLAN) { /* what is charged later is charged once */
        id = weir__receipt_draw_id();
        weir__receipt_set_id(&named, id);
    }
    const struct server_charged all = server_ask_charged(ask, request);
    size_t len =
        server_receipt_write(conn->thread->server, &conn->thread->receipts, &all, &named, receipt);
    weir__json_put_text(json, "receipt", receipt, len);
    if (ask->verb != WEIR__VERB_TAKEALL)
        return;
    weir__json_open(json, "receipts", '['); /* one per key: each is settled by itself */
    for (size_t i = 0; i < several->count; i++) {
        int64_t granted = request[i].least ? decision->granted : request[i].cost;
        weir_decision one = {.time_us = decision->time_us,
                             .charged = decision->degraded ? 0 : granted};
        weir__receipt_set_id(&one, id); /* the same: settled in either way, it is settled */
        const struct server_charged alone = {&request[i], 1, 1};
        len = server_receipt_write(conn->thread->server, &conn->thread->receipts, &alone, &one,
                                   receipt);
        weir__json_put_text(json, NULL, receipt, len);
    }
    weir__json_close(json, ']');
}

static void respond_put_reason(struct weir__json *json, const struct server_batch *batch,
                               const struct server_ask *ask, const weir_decision *decision)
{
    char why[512];
    struct weir__buffer buffer = weir__buffer_over(why, sizeof why);
    weir__json_put_string(json, "reason", respond_reason_of(ask, decision));
    if (ask->about != SERVER_ABOUT_PLAN ||
        (ask->planned->plan.verdict != WEIR__VERDICT_DENY && !ask->planned->plan.listed))
        return;
    weir__put_denial(&buffer, server_batch_rules(batch)->policies, &ask->planned->plan);
    weir__json_put_string(json, "detail", why);
}

static void respond_put_decision(struct server_conn *conn, struct weir__json *json,
                                 const struct server_batch *batch, size_t i)
{
    const struct server_ask *ask = &batch->asks[i];
    const weir_decision *decision = &batch->decided[i];
    if (ask->about == SERVER_ABOUT_PLAN) {
        const struct weir__plan *plan = &ask->planned->plan;
        weir__json_put_string(
            json, "verdict", weir__verdict_word(plan->listed ? WEIR__VERDICT_DENY : plan->verdict));
    }
    weir__json_put_decision(json, decision);
    if (ask->held_us > 0)
        weir__json_put_seconds(json, "held", ask->held_us);
    weir__json_put_int(json, "binding", decision->binding);
    if (ask->acquires)
        weir__json_put_int(json, "lease", (int64_t)decision->lease);
    respond_put_receipt(conn, json, ask, &batch->simple[i], decision);
    weir__json_put_bool(json, "degraded", decision->degraded);
    weir__json_put_bool(json, "local", decision->local);
    if (ask->explain && !decision->allowed)
        respond_put_reason(json, batch, ask, decision);
    if (ask->about != SERVER_ABOUT_ONE &&
        (ask->http.detail || ask->explain || ask->verb == WEIR__VERB_TAKEALL))
        respond_put_rows(json, ask);
}

static int respond_status_of(int code)
{
    switch (code) {
    case WEIR_EINVAL:
    case WEIR_ESYNTAX:
    case WEIR_ERECEIPT:
    case WEIR_EUNSUPPORTED:
    case WEIR_ESHARED:
    case WEIR_ESLOTS:
        return 400;
    case WEIR_ENOLEASE:
        return 404;
    case WEIR_EFULL:
    case WEIR_EBUSY:
    case WEIR_EUNREACHABLE:
    case WEIR_EGONE:
    case SERVER_EOVERLOAD:
        return 503;
    default:
        return 500;
    }
}

static void respond_done(const struct server_ask *ask, struct server_response *ret)
{
    static const char *const bodies[WEIR__VERB_COUNT] = {
        [WEIR__VERB_SETTLE] = "{\"settled\":true}\n",
        [WEIR__VERB_RESET] = "{\"reset\":true}\n",
        [WEIR__VERB_RENEW] = "{\"renewed\":true}\n",
        [WEIR__VERB_RELEASE] = "{\"released\":true}\n",
    };
    server_response_fresh(ret, 200);
    struct weir__buffer body = server_response_buffer(ret);
    if (ask->verb == WEIR__VERB_RESET && !ask->there)
        weir__put_text(&body, "{\"reset\":false}\n"); /* there was nothing to forget */
    else if (ask->code == WEIR_ESETTLED)
        weir__put_text(&body, "{\"settled\":true,\"before\":true}\n");
    else
        weir__put_text(&body, bodies[ask->verb]);
    server_response_body(ret, "application/json", &body);
}

/* What was given back and what is left, limit by limit. */
static void respond_refunded(const struct server_ask *ask, struct server_response *ret)
{
    bool before = ask->code == WEIR_ESETTLED;
    server_response_fresh(ret, 200);
    struct weir__buffer body = server_response_buffer(ret);
    struct weir__json json = {&body, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_bool(&json, "refunded", before || server_ask_gave_back(ask));
    if (before)
        weir__json_put_bool(&json, "before", true);
    weir__json_put_int(&json, "amount", ask->refund.give.amount);
    respond_put_rows(&json, ask);
    weir__json_close(&json, '}');
    weir__put(&body, "\n", 1);
    server_response_body(ret, "application/json", &body);
}

static void respond_shown(const struct server_ask *ask, struct server_response *ret)
{
    server_response_fresh(ret, 200);
    struct weir__buffer body = server_response_buffer(ret);
    struct weir__json json = {&body, false};
    weir__json_open(&json, NULL, '{');
    weir__json_put_int(&json, "now", ask->shown->now_us);
    weir__json_open(&json, "states", '[');
    for (size_t i = 0; i < ask->shown->count; i++)
        weir__json_put_state(&json, &ask->shown->states[i]);
    weir__json_close(&json, ']');
    weir__json_close(&json, '}');
    weir__put(&body, "\n", 1);
    assert(!body.cut); /* 40 states of a few hundred bytes */
    server_response_body(ret, "application/json", &body);
}

static void respond_decision(struct server_conn *conn, struct server_batch *batch, size_t i,
                             struct server_response *ret)
{
    const struct server_ask *ask = &batch->asks[i];
    const weir_decision *decision = &batch->decided[i];
    bool allowed = decision->allowed || ask->explain;
    server_response_fresh(ret, allowed ? 200 : ask->http.deny_status);
    if (!allowed)
        server_response_text(ret, "weir-reason", respond_reason_of(ask, decision));
    respond_add_rate_fields(ret, ask, &batch->simple[i], decision);
    struct weir__buffer body = server_response_buffer(ret);
    struct weir__json json = {&body, false};
    weir__json_open(&json, NULL, '{');
    if (!allowed)
        respond_put_problem(&json, ask, decision);
    respond_put_decision(conn, &json, batch, i);
    weir__json_close(&json, '}');
    weir__put(&body, "\n", 1);
    server_response_body(ret, allowed ? "application/json" : "application/problem+json", &body);
}

static const char *respond_failure_text(const struct server_ask *ask)
{
    if (ask->code == SERVER_EOVERLOAD)
        return SERVER_OVERLOAD_TEXT;
    if (ask->code == WEIR_ERECEIPT)
        return "invalid receipt for these keys and limits: expected what the take replied, with "
               "the same key, limit, policy, cost, least and attributes; " SERVER_RECEIPT_HINT;
    if (ask->code == WEIR_EINVAL && ask->about == SERVER_ABOUT_PLAN &&
        (ask->kind == SERVER_ASK_SETTLE || ask->kind == SERVER_ASK_RESET))
        return "no policy applies, so there is nothing to settle or reset; give key and limit, "
               "policy, or "
               "attributes";
    return weir_strerror(ask->code);
}

static void respond_worked(struct server_work *work, struct server_response *ret)
{
    if (work->dropped) {
        server_response_problem(
            ret, 503, "not started, because the server stops or the client left; try again");
        return;
    }
    if (!work->answer) {
        server_response_problem(ret, 503, "out of memory for the answer; try again");
        return;
    }
    server_response_fresh(ret, work->status);
    const char *type = work->status < 400 ? "application/json" : "application/problem+json";
    server_response_own(ret, type, work->answer, work->answer_len);
    work->answer = NULL;
}

static void respond_asked(struct server_conn *conn, struct server_batch *batch, size_t i,
                          struct server_response *ret)
{
    const struct server_ask *ask = &batch->asks[i];
    switch (ask->kind) {
    case SERVER_ASK_DECIDE:
        respond_decision(conn, batch, i, ret);
        return;
    case SERVER_ASK_SETTLE:
    case SERVER_ASK_RESET:
    case SERVER_ASK_LEASE:
        respond_done(ask, ret);
        return;
    case SERVER_ASK_REFUND:
        respond_refunded(ask, ret);
        return;
    case SERVER_ASK_SHOW:
        respond_shown(ask, ret);
        return;
    case SERVER_ASK_CALL:
    case SERVER_ASK_WORK:
    case SERVER_ASK_SAID:
        break;
    }
    assert(!"an ask that is answered elsewhere");
}

void server_http_respond(struct server_conn *conn, struct server_batch *batch, size_t i,
                         struct server_response *ret)
{
    const struct server_ask *ask = &batch->asks[i];
    if (WEIR__UNLIKELY(ask->kind == SERVER_ASK_CALL))
        server_grpc_json_respond(conn, &batch->asks[i], ret);
    else if (WEIR__UNLIKELY(ask->kind == SERVER_ASK_WORK && ask->code != SERVER_EOVERLOAD))
        respond_worked(ask->work, ret);
    else if (WEIR__UNLIKELY(ask->code && ask->code != WEIR_ESETTLED))
        server_response_problem(ret, respond_status_of(ask->code), "%s", respond_failure_text(ask));
    else
        respond_asked(conn, batch, i, ret);
    if (WEIR__UNLIKELY(ask->code == SERVER_EOVERLOAD))
        server_count_fault(conn, conn->protocol->counted_as, SERVER_FAULT_OVERLOAD);
    ret->head = ask->http.head;
    ret->old = ask->http.old;
    ret->close = ask->close;
}

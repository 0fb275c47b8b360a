/* From a decided plan to the answer, in protobuf and in JSON: see rls.h. */
#include "policy/envoy/rls.h"

#include <stdio.h>
#include <string.h>

#define MICROSECONDS 1000000
#define MILLION 1000000
#define HEADERS 3

/* ---- statuses ---- */

/* When to come back: what was denied waits for what lets it in, everything else for a fresh state. What
 * nothing will let in is told the unit: there is no reason to come back earlier. */
static int64_t exact_reset_of(const struct server_rls_item *item)
{
    const weir_decision *decision = &item->decision;
    if (item->denies)
        return weir__envoy_unit_us(item->unit);
    if (item->outcome != SERVER_RLS_DENIED)
        return decision->reset_after_us;
    return decision->retry_after_us != WEIR_NEVER
               ? decision->retry_after_us
               : weir__max(decision->reset_after_us, weir__envoy_unit_us(item->unit));
}

/* In whole seconds, rounded up: Envoy drops what is less than one, and a client that comes early is
 * denied again. */
static int64_t reset_seconds(const struct server_rls_item *item)
{
    return weir__div_up(weir__max(0, exact_reset_of(item)), MICROSECONDS);
}

static struct weir__rls_status status_of(const struct server_rls_item *item)
{
    struct weir__rls_status status = {.code = WEIR__RLS_OK};
    if (item->outcome == SERVER_RLS_DENIED)
        status.code = WEIR__RLS_OVER_LIMIT;
    if (item->outcome == SERVER_RLS_UNLIMITED)
        status.remaining = UINT32_MAX;
    if (!item->limit && !item->denies)
        return status;
    status.has_limit = true;
    status.unit = item->unit;
    status.requests_per_unit = item->requests_per_unit;
    if (item->requests_per_unit == 0 && !item->denies)
        status.requests_per_unit = (uint32_t)weir__min(item->decision.limit, UINT32_MAX);
    status.remaining = (uint32_t)weir__min(item->decision.remaining, UINT32_MAX);
    status.reset_us = reset_seconds(item) * MICROSECONDS;
    if (item->rule)
        status.name = (struct weir__span){item->rule->limit_name, strlen(item->rule->limit_name)};
    return status;
}

/* ---- headers ---- */

static bool denies_by_itself(const struct server_rls_item *item)
{
    return item->outcome == SERVER_RLS_DENIED && !item->quota;
}

/* Whether the client is better told of a than of b: of what denies, and of that what denies longest; else
 * of what has least left. */
static bool is_nearer(const struct server_rls_item *a, const struct server_rls_item *b)
{
    if (denies_by_itself(a) != denies_by_itself(b))
        return denies_by_itself(a);
    if (denies_by_itself(a))
        return exact_reset_of(a) > exact_reset_of(b);
    return a->decision.remaining < b->decision.remaining;
}

/* The descriptor that the headers are about; NULL: none has a limit. */
static const struct server_rls_item *nearest(const struct server_rls_plan *plan)
{
    const struct server_rls_item *best = NULL;
    for (size_t i = 0; i < plan->count; i++) {
        const struct server_rls_item *item = &plan->items[i];
        if ((item->limit || item->denies) && (!best || is_nearer(item, best)))
            best = item;
    }
    return best;
}

struct headers {
    char values[HEADERS][24];
    struct weir__rls_header items[HEADERS];
    size_t count;
};

static void set_headers(const struct server_rls_plan *plan, struct headers *ret)
{
    static const char *const names[HEADERS] = {"RateLimit-Limit", "RateLimit-Remaining",
                                               "RateLimit-Reset"};
    const struct server_rls_item *item = plan->options.headers ? nearest(plan) : NULL;
    ret->count = item ? HEADERS : 0;
    if (!item)
        return;
    const int64_t numbers[HEADERS] = {item->decision.limit, item->decision.remaining,
                                      reset_seconds(item)};
    for (size_t i = 0; i < HEADERS; i++) {
        snprintf(ret->values[i], sizeof ret->values[i], "%lld", (long long)numbers[i]);
        ret->items[i] = (struct weir__rls_header){names[i], ret->values[i]};
    }
}

/* ---- answers ---- */

struct answer {
    struct weir__rls_status statuses[WEIR__RLS_DESCRIPTORS_MAX];
    struct headers headers;
    struct weir__rls_response response;
};

static void make(const struct server_rls_plan *plan, struct answer *ret)
{
    bool over = plan->over && !plan->options.shadow;
    for (size_t i = 0; i < plan->count; i++)
        ret->statuses[i] = status_of(&plan->items[i]);
    set_headers(plan, &ret->headers);
    ret->response = (struct weir__rls_response){
        .overall = over ? WEIR__RLS_OVER_LIMIT : WEIR__RLS_OK,
        .statuses = ret->statuses,
        .status_count = plan->count,
        .headers = ret->headers.items,
        .header_count = ret->headers.count,
    };
}

bool server_rls_answer(const struct server_rls_plan *plan, struct weir__buffer *out)
{
    struct answer answer;
    make(plan, &answer);
    size_t begun = weir__grpc_frame_begin(out);
    weir__rls_put(out, &answer.response);
    return weir__grpc_frame_end(out, begun);
}

void server_rls_answer_unread(struct weir__buffer *out)
{
    static const struct weir__rls_response over = {.overall = WEIR__RLS_OVER_LIMIT};
    size_t begun = weir__grpc_frame_begin(out);
    weir__rls_put(out, &over);
    weir__grpc_frame_end(out, begun);
}

static void put_text(struct weir__json *json, const char *name, const char *text)
{
    weir__json_put_text(json, name, text, strlen(text));
}

static const char *code_name(enum weir__rls_code code)
{
    return code == WEIR__RLS_OVER_LIMIT ? "OVER_LIMIT" : "OK";
}

/* Protobuf's durations; ours are of whole seconds. */
static void put_duration(struct weir__json *json, const char *name, int64_t us)
{
    char text[32];
    snprintf(text, sizeof text, "%llds", (long long)(us / MICROSECONDS));
    put_text(json, name, text);
}

static void put_status(struct weir__json *json, const struct weir__rls_status *status)
{
    weir__json_open(json, NULL, '{');
    put_text(json, "code", code_name(status->code));
    if (status->has_limit) {
        weir__json_open(json, "currentLimit", '{');
        if (status->name.len > 0)
            weir__json_put_text(json, "name", status->name.data, status->name.len);
        weir__json_put_uint(json, "requestsPerUnit", status->requests_per_unit);
        put_text(json, "unit", weir__envoy_unit_name(status->unit));
        weir__json_close(json, '}');
    }
    if (status->has_limit || status->remaining > 0)
        weir__json_put_uint(json, "limitRemaining", status->remaining);
    if (status->has_limit)
        put_duration(json, "durationUntilReset", status->reset_us);
    weir__json_close(json, '}');
}

static void put_header(struct weir__json *json, const struct weir__rls_header *header)
{
    weir__json_open(json, NULL, '{');
    put_text(json, "key", header->key);
    put_text(json, "value", header->value);
    weir__json_close(json, '}');
}

int server_rls_answer_json(const struct server_rls_plan *plan, struct weir__buffer *out)
{
    struct answer answer;
    struct weir__json json = {out, false};
    make(plan, &answer);
    weir__json_open(&json, NULL, '{');
    put_text(&json, "overallCode", code_name(answer.response.overall));
    weir__json_open(&json, "statuses", '[');
    for (size_t i = 0; i < plan->count; i++)
        put_status(&json, &answer.statuses[i]);
    weir__json_close(&json, ']');
    if (answer.headers.count > 0) {
        weir__json_open(&json, "responseHeadersToAdd", '[');
        for (size_t i = 0; i < answer.headers.count; i++)
            put_header(&json, &answer.headers.items[i]);
        weir__json_close(&json, ']');
    }
    weir__json_close(&json, '}');
    return answer.response.overall == WEIR__RLS_OVER_LIMIT ? 429 : 200;
}

int server_rls_http_status(int code)
{
    if (code == WEIR_EUNSUPPORTED)
        return 501;
    enum weir__grpc_code grpc = weir__grpc_code_of(code);
    if (grpc == WEIR__GRPC_UNAVAILABLE || grpc == WEIR__GRPC_RESOURCE_EXHAUSTED)
        return 503;
    return grpc == WEIR__GRPC_INVALID_ARGUMENT ? 400 : 500;
}

/* ---- counting ---- */

struct server_rls_tally server_rls_tally(const struct server_rls_item *item, int64_t near_ppm)
{
    struct server_rls_tally tally = {0};
    uint64_t hits = (uint64_t)item->hits;
    const weir_decision *decision = &item->decision;
    switch (item->outcome) {
    case SERVER_RLS_DENIED:
        tally.hits = tally.over = hits;
        break;
    case SERVER_RLS_SHADOWED:
        tally.hits = tally.over = tally.shadow = hits;
        break;
    case SERVER_RLS_ALLOWED: {
        int64_t mark =
            decision->limit / MILLION * near_ppm + decision->limit % MILLION * near_ppm / MILLION;
        int64_t after = decision->limit - decision->remaining;
        tally.hits = tally.within = hits;
        tally.near = (uint64_t)weir__max(0, weir__min(after - mark, item->hits));
        break;
    }
    case SERVER_RLS_NONE:
    case SERVER_RLS_UNLIMITED:
    case SERVER_RLS_REPLACED:
    case SERVER_RLS_REFUNDED:
        break;
    }
    return tally;
}

/* From a decided plan to the answer, in protobuf and in JSON: see service.h. */
#include "policy/envoy/service.h"

#include <stdio.h>
#include <string.h>

#define MICROSECONDS 1000000
#define MILLION 1000000
#define HEADERS 3

/* ---- statuses ---- */

/* When to come back: what was denied waits for what lets it in, everything else for a fresh state.
 * What nothing will let in is reported the unit: there is no reason to come back earlier. */
static int64_t rls_exact_reset_of(const struct weir__rls_asked *asked)
{
    const weir_decision *decision = &asked->decision;
    if (asked->denies)
        return weir__envoy_unit_us(asked->unit);
    if (asked->outcome != WEIR__RLS_DENIED)
        return decision->reset_after_us;
    return decision->retry_after_us != WEIR_NEVER
               ? decision->retry_after_us
               : weir__max(decision->reset_after_us, weir__envoy_unit_us(asked->unit));
}

/* In whole seconds, rounded up: Envoy drops what is less than one, and a client that comes early is
 * denied again. */
static int64_t rls_reset_seconds(const struct weir__rls_asked *asked)
{
    return weir__div_up(weir__max(0, rls_exact_reset_of(asked)), MICROSECONDS);
}

/* Whether there is a limit to report: deny lists of policies have none. */
static bool rls_has_limit(const struct weir__rls_asked *asked)
{
    return asked->limit || (asked->denies && asked->verdict != WEIR__VERDICT_DENY);
}

static struct weir__rls_status rls_status_of(const struct weir__rls_asked *asked)
{
    struct weir__rls_status status = {.code = WEIR__RLS_OK};
    if (asked->outcome == WEIR__RLS_DENIED)
        status.code = WEIR__RLS_OVER_LIMIT;
    if (asked->outcome == WEIR__RLS_UNLIMITED)
        status.remaining = UINT32_MAX;
    if (!rls_has_limit(asked))
        return status;
    status.has_limit = true;
    status.unit = asked->unit;
    status.requests_per_unit = asked->requests_per_unit;
    if (asked->requests_per_unit == 0 && !asked->denies)
        status.requests_per_unit = (uint32_t)weir__min(asked->decision.limit, UINT32_MAX);
    status.remaining = (uint32_t)weir__min(asked->decision.remaining, UINT32_MAX);
    status.reset_us = rls_reset_seconds(asked) * MICROSECONDS;
    if (asked->rule)
        status.name = weir__span_of(asked->rule->limit_name);
    else if (asked->item && asked->item->entry)
        status.name = weir__span_of(asked->item->entry->name);
    return status;
}

/* ---- headers ---- */

static bool rls_denies_by_itself(const struct weir__rls_asked *asked)
{
    return asked->outcome == WEIR__RLS_DENIED && !asked->quota;
}

/* Whether the client is better shown a than b: of what denies, and of that what denies
 * longest; else of what has least left. */
static bool rls_is_nearer(const struct weir__rls_asked *a, const struct weir__rls_asked *b)
{
    if (rls_denies_by_itself(a) != rls_denies_by_itself(b))
        return rls_denies_by_itself(a);
    if (rls_denies_by_itself(a))
        return rls_exact_reset_of(a) > rls_exact_reset_of(b);
    return a->decision.remaining < b->decision.remaining;
}

/* The descriptor that the headers are about; NULL: none has a limit. */
static const struct weir__rls_asked *rls_nearest(const struct weir__rls_call *call)
{
    const struct weir__rls_asked *best = NULL;
    for (size_t i = 0; i < call->count; i++) {
        const struct weir__rls_asked *asked = &call->asked[i];
        if (rls_has_limit(asked) && (!best || rls_is_nearer(asked, best)))
            best = asked;
    }
    return best;
}

struct headers {
    char values[HEADERS][24];
    struct weir__rls_header items[HEADERS + 1];
    size_t count;
};

/* Why a descriptor is denied that no limit denies: the store has no room, or is out of reach; NULL:
 * there is none. */
static const char *rls_reason(const struct weir__rls_call *call)
{
    const char *reason = NULL;
    for (size_t i = 0; i < call->count; i++) {
        const weir_decision *decision = &call->asked[i].decision;
        if (call->asked[i].outcome == WEIR__RLS_DENIED && (decision->full || decision->closed))
            reason = decision->full ? "full" : "closed";
    }
    return reason;
}

static void rls_set_headers(const struct weir__rls_call *call, struct headers *ret)
{
    static const char *const names[HEADERS] = {"RateLimit-Limit", "RateLimit-Remaining",
                                               "RateLimit-Reset"};
    const struct weir__rls_asked *asked = call->options.headers ? rls_nearest(call) : NULL;
    ret->count = 0;
    const char *reason = rls_reason(call);
    if (reason) /* whatever the options say: it is not the client's doing */
        ret->items[ret->count++] = (struct weir__rls_header){"weir-reason", reason};
    if (!asked)
        return;
    const int64_t numbers[HEADERS] = {asked->decision.limit, asked->decision.remaining,
                                      rls_reset_seconds(asked)};
    for (size_t i = 0; i < HEADERS; i++) {
        snprintf(ret->values[i], sizeof ret->values[i], "%lld", (long long)numbers[i]);
        ret->items[ret->count++] = (struct weir__rls_header){names[i], ret->values[i]};
    }
}

/* ---- answers ---- */

struct answer {
    struct weir__rls_status statuses[WEIR__RLS_DESCRIPTORS_MAX];
    struct headers headers;
    struct weir__rls_response response;
};

static void rls_make_answer(const struct weir__rls_call *call, struct answer *ret)
{
    bool over = call->over && !call->options.shadow;
    for (size_t i = 0; i < call->count; i++)
        ret->statuses[i] = rls_status_of(&call->asked[i]);
    rls_set_headers(call, &ret->headers);
    ret->response = (struct weir__rls_response){
        .overall = over ? WEIR__RLS_OVER_LIMIT : WEIR__RLS_OK,
        .statuses = ret->statuses,
        .status_count = call->count,
        .headers = ret->headers.items,
        .header_count = ret->headers.count,
    };
}

bool weir__rls_answer(const struct weir__rls_call *call, struct weir__buffer *out)
{
    struct answer answer;
    rls_make_answer(call, &answer);
    size_t begun = weir__grpc_frame_begin(out);
    weir__rls_put(out, &answer.response);
    return weir__grpc_frame_end(out, begun);
}

void weir__rls_answer_unread(struct weir__buffer *out)
{
    static const struct weir__rls_response over = {.overall = WEIR__RLS_OVER_LIMIT};
    size_t begun = weir__grpc_frame_begin(out);
    weir__rls_put(out, &over);
    weir__grpc_frame_end(out, begun);
}

static const char *rls_code_name(enum weir__rls_code code)
{
    return code == WEIR__RLS_OVER_LIMIT ? "OVER_LIMIT" : "OK";
}

/* Protobuf's durations; ours are of whole seconds. */
static void rls_put_duration(struct weir__json *json, const char *name, int64_t us)
{
    char text[32];
    snprintf(text, sizeof text, "%llds", (long long)(us / MICROSECONDS));
    weir__json_put_string(json, name, text);
}

static void rls_put_status(struct weir__json *json, const struct weir__rls_status *status)
{
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "code", rls_code_name(status->code));
    if (status->has_limit) {
        weir__json_open(json, "currentLimit", '{');
        if (status->name.len > 0)
            weir__json_put_text(json, "name", status->name.data, status->name.len);
        weir__json_put_uint(json, "requestsPerUnit", status->requests_per_unit);
        weir__json_put_string(json, "unit", weir__envoy_unit_name(status->unit));
        weir__json_close(json, '}');
    }
    if (status->has_limit || status->remaining > 0)
        weir__json_put_uint(json, "limitRemaining", status->remaining);
    if (status->has_limit)
        rls_put_duration(json, "durationUntilReset", status->reset_us);
    weir__json_close(json, '}');
}

static void rls_put_header(struct weir__json *json, const struct weir__rls_header *header)
{
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "key", header->key);
    weir__json_put_string(json, "value", header->value);
    weir__json_close(json, '}');
}

int weir__rls_answer_json(const struct weir__rls_call *call, struct weir__buffer *out)
{
    struct answer answer;
    struct weir__json json = {out, false};
    rls_make_answer(call, &answer);
    weir__json_open(&json, NULL, '{');
    weir__json_put_string(&json, "overallCode", rls_code_name(answer.response.overall));
    weir__json_open(&json, "statuses", '[');
    for (size_t i = 0; i < call->count; i++)
        rls_put_status(&json, &answer.statuses[i]);
    weir__json_close(&json, ']');
    if (answer.headers.count > 0) {
        weir__json_open(&json, "responseHeadersToAdd", '[');
        for (size_t i = 0; i < answer.headers.count; i++)
            rls_put_header(&json, &answer.headers.items[i]);
        weir__json_close(&json, ']');
    }
    weir__json_close(&json, '}');
    return answer.response.overall == WEIR__RLS_OVER_LIMIT ? 429 : 200;
}

int weir__rls_http_status(int code)
{
    if (code == WEIR_EUNSUPPORTED)
        return 501;
    enum weir__grpc_code grpc = weir__grpc_code_of(code);
    if (grpc == WEIR__GRPC_UNAVAILABLE || grpc == WEIR__GRPC_RESOURCE_EXHAUSTED)
        return 503;
    return grpc == WEIR__GRPC_INVALID_ARGUMENT ? 400 : 500;
}

/* ---- counting ---- */

struct weir__rls_tally weir__rls_tally(const struct weir__rls_asked *asked, int64_t near_ppm)
{
    struct weir__rls_tally tally = {0};
    uint64_t hits = (uint64_t)asked->hits;
    const weir_decision *decision = &asked->decision;
    switch (asked->outcome) {
    case WEIR__RLS_DENIED:
        tally.hits = tally.over = hits;
        break;
    case WEIR__RLS_SHADOWED:
        tally.hits = tally.over = tally.shadow = hits;
        break;
    case WEIR__RLS_ALLOWED: {
        int64_t mark =
            decision->limit / MILLION * near_ppm + decision->limit % MILLION * near_ppm / MILLION;
        int64_t after = decision->limit - decision->remaining;
        tally.hits = tally.within = hits;
        tally.near = (uint64_t)weir__max(0, weir__min(after - mark, asked->hits));
        break;
    }
    case WEIR__RLS_NO_RULE:
    case WEIR__RLS_UNLIMITED:
    case WEIR__RLS_REPLACED:
    case WEIR__RLS_REFUNDED:
        break;
    }
    return tally;
}

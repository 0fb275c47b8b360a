/*
 * A question's answer: from its zones at once, or from Redis later, with the zones standing in where it
 * is out of reach.
 *
 * Limits in one zone are decided in one go. Where a location's limits lie in several zones, all are
 * peeked at first, then taken one zone after the other; should another worker have been faster in
 * between, what was taken is given back. So the promise holds there, too: a request that is denied is
 * charged nothing.
 */
#include "ngx_http_weir.h"

#include "base/clock.h"
#include "limit/receipt.h"

/* ---- the clock of tests ---- */

static int64_t test_now_us = -1;

static int64_t read_test_clock(void *context)
{
    (void)context;
    return test_now_us >= 0 ? test_now_us : weir__clock_us();
}

const weir_clock ngx_http_weir_test_clock = {.now = read_test_clock};

void ngx_http_weir_set_clock_to(int64_t now_us)
{
    test_now_us = now_us;
}

bool ngx_http_weir_set_clock(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf)
{
    ngx_str_t text;
    test_now_us = -1;
    return conf->test_clock && ngx_http_complex_value(r, conf->test_clock, &text) == NGX_OK &&
           weir__resp_read_integer((const char *)text.data, text.len, &test_now_us);
}

/* ---- zones ---- */

/* The requests of a question, zone by zone. */
struct parts {
    size_t count;
    weir_store *zones[WEIR_LIMITS_MAX];
    size_t ends[WEIR_LIMITS_MAX]; /* in requests */
    weir_request requests[WEIR_LIMITS_MAX];
    weir_decision folded[WEIR_LIMITS_MAX];
};

static void part(const ngx_http_weir_ask_t *ask, struct parts *ret)
{
    size_t n = 0;
    ret->count = 0;
    for (ngx_uint_t i = 0; i < ask->count; i++) {
        weir_store *zone = ask->confs[i]->zone->store;
        bool seen = false;
        for (size_t j = 0; j < ret->count; j++)
            seen = seen || ret->zones[j] == zone;
        if (seen)
            continue;
        for (ngx_uint_t j = i; j < ask->count; j++) {
            if (ask->confs[j]->zone->store == zone)
                ret->requests[n++] = ask->requests[j];
        }
        ret->zones[ret->count] = zone;
        ret->ends[ret->count++] = n;
    }
}

/* One zone's part; `standin`: where it stands in for Redis, how; or NULL. */
static int decide_part(const struct weir__standin *standin, struct parts *parts, size_t i,
                       enum weir__mode mode)
{
    size_t start = i ? parts->ends[i - 1] : 0, n = parts->ends[i] - start;
    weir_store *zone = parts->zones[i];
    const weir_request *requests = parts->requests + start;
    parts->folded[i] = (weir_decision){0};
    if (standin) {
        struct weir__standin here = {standin->fail, standin->peers, zone};
        return weir__standin_decide(&here, requests, n, mode, weir__store_now(zone),
                                    &parts->folded[i]);
    }
    return mode == WEIR__TAKE ? weir_take_all(zone, requests, n, &parts->folded[i])
                              : weir_peek_all(zone, requests, n, &parts->folded[i]);
}

/* Gives back what the zones of the parts before `end` were charged. */
static void give_back(const struct weir__standin *standin, const struct parts *parts, size_t end)
{
    if (standin && standin->fail != WEIR__FAIL_LOCAL)
        return;
    for (size_t i = 0, at = 0; i < end; i++) {
        for (; at < parts->ends[i]; at++) {
            const weir_request *request = &parts->requests[at];
            const weir_limit *limit = request->limit;
            char receipt[WEIR_RECEIPT_SIZE];
            weir_limit share;
            if (standin) {
                weir__share(limit, standin->peers, &share);
                limit = &share;
            }
            weir__receipt_write(request->detail[0].time_us, request->cost, 0, receipt);
            if (weir_settle(parts->zones[i], request->key, limit, receipt, 0, NULL))
                continue; /* it is gone: nothing to give back */
        }
    }
}

static int decide_parts(const struct weir__standin *standin, struct parts *parts)
{
    for (size_t i = 0; i < parts->count && parts->count > 1; i++) {
        int code = decide_part(standin, parts, i, WEIR__PEEK);
        if (code)
            return code;
    }
    for (size_t i = 0; i < parts->count && parts->count > 1; i++) {
        if (!parts->folded[i].allowed)
            return 0;
    }
    for (size_t i = 0; i < parts->count; i++) {
        int code = decide_part(standin, parts, i, WEIR__TAKE);
        if (code == 0 && parts->folded[i].allowed)
            continue;
        give_back(standin, parts, i);
        return code;
    }
    return 0;
}

/* One limit, nothing special: what nearly every request asks. */
static bool is_plain(const ngx_http_weir_ask_t *ask)
{
    return ask->limits == 1 && ask->verb == WEIR__VERB_TAKE &&
           ask->requests[0].wait_us == WEIR_WAIT_DEFAULT;
}

static int decide_zones(const struct weir__standin *standin, ngx_http_weir_ask_t *ask)
{
    struct parts parts;
    const weir_request *first = &ask->requests[0];
    if (!standin && is_plain(ask)) {
        int code = weir_take(ask->confs[0]->zone->store, first->key, first->limit, first->cost,
                             &ask->rows[0]);
        ask->folded = ask->rows[0];
        return code;
    }
    part(ask, &parts);
    int code = decide_parts(standin, &parts);
    if (code)
        return code;
    if (parts.count == 1)
        ask->folded = parts.folded[0];
    else
        weir__fold(ask->rows, ask->limits, &ask->folded);
    return 0;
}

/* In the zones. `standin` is not NULL where they stand in for Redis; its own zone is not used. */
static void decide_here(const struct weir__standin *standin, ngx_http_weir_ask_t *ask,
                        ngx_http_request_t *r)
{
    int code = decide_zones(standin, ask);
    if (code == 0)
        return;
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "weir: nothing could be decided in zone \"%V\" (%s): let pass",
                  &ask->confs[0]->zone->name, weir_strerror(code));
    ask->failed = 1;
    ask->folded = (weir_decision){.allowed = true, .degraded = true};
}

/* ---- Redis ---- */

/* The slot that it got, or may have got, is given back. */
static void give_back_slot(ngx_http_weir_job_t *job)
{
    struct weir__job *it = &job->job;
    bool got = it->code == 0 && it->ret->lease;
    if (it->verb != WEIR__VERB_ACQUIRE || !(got || (it->code == WEIR_EUNREACHABLE && it->lease))) {
        ngx_http_weir_job_end(job);
        return;
    }
    it->verb = WEIR__VERB_RELEASE;
    it->lease = got ? it->ret->lease : it->lease;
    job->until_us = weir__mono_us() + it->requests[0].limit->rules[0].period_us;
    ngx_http_weir_job_give(job);
}

static void take_over(const ngx_http_weir_job_t *job, ngx_http_weir_ask_t *ask)
{
    const ngx_http_weir_store_t *store = job->store;
    ngx_memcpy(ask->rows, job->job.rows, ask->limits * sizeof *ask->rows);
    ask->folded = *job->job.ret;
    if (store->denied && !ask->folded.allowed && ask->verb == WEIR__VERB_TAKE)
        ngx_http_weir_denied_note(store->denied, ask, job->job.deadline_us - store->url.deadline_us,
                                  store->denial_cache_us);
}

/* Redis said no to the question itself, which a client may have brought about by its keys: then the zone
 * decides, whatever is to be done while Redis is away. */
static bool is_own_fault(int code)
{
    return code == WEIR_ESLOTS || code == WEIR_ESHARED || code == WEIR_EFULL || code == WEIR_EINVAL;
}

void ngx_http_weir_stand_in(const ngx_http_weir_store_t *store, int code, ngx_http_weir_ask_t *ask,
                            ngx_http_request_t *r)
{
    struct weir__standin standin = {is_own_fault(code) ? WEIR__FAIL_LOCAL : store->url.fail,
                                    store->url.peers, NULL};
    ask->local = standin.fail == WEIR__FAIL_LOCAL;
    decide_here(&standin, ask, r);
}

static void answered(ngx_http_weir_job_t *job)
{
    ngx_http_weir_ctx_t *ctx = job->ctx;
    if (!ctx) {
        give_back_slot(job);
        return;
    }
    ctx->job = NULL;
    job->ctx = NULL;
    if (job->job.code == 0) {
        take_over(job, ctx->ask);
        ngx_http_weir_job_end(job);
    } else {
        ngx_http_weir_stand_in(job->store, job->job.code, ctx->ask, ctx->request);
        give_back_slot(job); /* Redis may have given one all the same, too late */
    }
    ngx_http_weir_resume(ctx);
}

/* Whether it was denied a moment ago. */
static bool known(ngx_http_weir_store_t *store, ngx_http_weir_ask_t *ask)
{
    if (!store->denial_cache_us || ask->verb != WEIR__VERB_TAKE)
        return false;
    if (!store->denied)
        store->denied = ngx_http_weir_denied_make();
    if (!store->denied || !ngx_http_weir_denied_find(store->denied, ask, weir__mono_us()))
        return false;
    store->cached_denials++;
    return true;
}

ngx_int_t ngx_http_weir_decide(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                               ngx_http_weir_ask_t *ask)
{
    ngx_http_weir_store_t *store = conf->store;
    ask->test_us = test_now_us;
    if (!store)
        decide_here(NULL, ask, ctx->request);
    if (!store || known(store, ask))
        return NGX_OK;
    ngx_http_weir_job_t *job = ngx_http_weir_job_make(store, ask->verb, ask->requests, ask->count);
    if (job) {
        job->done = answered;
        job->ctx = ctx;
        job->job.time_us = test_now_us;
        if (ngx_http_weir_job_send(job) == NGX_OK) {
            ctx->job = job;
            return NGX_AGAIN;
        }
        ngx_http_weir_job_free(job);
    }
    ngx_http_weir_stand_in(store, WEIR_EUNREACHABLE, ask, ctx->request);
    return NGX_OK;
}

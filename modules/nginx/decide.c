/*
 * Deciding a plan: in its zones at once, or in Redis later, with the zones as the local fallback
 * while Redis is out of reach.
 *
 * The limits of one zone are decided in one go. Where a location's limits are in several zones,
 * weir__take_or_undo takes from them one after the other, or gives back what was taken: a request
 * that is denied is charged nothing.
 */
#include "ngx_http_weir.h"

#include "base/clock.h"
#include "store/take_or_undo.h"

/* ---- the test clock ---- */

static int64_t decide_test_now_us = -1;

static int64_t decide_read_test_clock(void *context)
{
    (void)context;
    return decide_test_now_us >= 0 ? decide_test_now_us : weir__clock_us();
}

const weir_clock ngx_http_weir_test_clock = {.now = decide_read_test_clock};

void ngx_http_weir_set_clock_to(int64_t now_us)
{
    decide_test_now_us = now_us;
}

bool ngx_http_weir_set_clock(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf)
{
    ngx_str_t text;
    decide_test_now_us = -1;
    return conf->test_clock && ngx_http_complex_value(r, conf->test_clock, &text) == NGX_OK &&
           weir__resp_read_integer((const char *)text.data, text.len, &decide_test_now_us);
}

/* ---- zones ---- */

/* The requests of a plan, zone by zone. */
struct decide_parts {
    size_t count;
    struct weir__part parts[WEIR_LIMITS_MAX];
    weir_request requests[WEIR_LIMITS_MAX];
};

static void decide_split(const ngx_http_weir_plan_t *plan, struct decide_parts *ret)
{
    weir_request *next = ret->requests;
    assert(plan->count <= WEIR_LIMITS_MAX);
    ret->count = 0;
    for (ngx_uint_t i = 0; i < plan->count; i++) {
        weir_store *zone = plan->confs[i]->zone->store;
        bool seen = false;
        for (size_t j = 0; j < ret->count; j++)
            seen = seen || ret->parts[j].store == zone;
        if (seen)
            continue;
        struct weir__part *part = &ret->parts[ret->count++];
        *part = (struct weir__part){.store = zone, .requests = next};
        for (ngx_uint_t j = i; j < plan->count; j++) {
            if (plan->confs[j]->zone->store == zone)
                *next++ = plan->requests[j];
        }
        part->count = (size_t)(next - part->requests);
    }
    assert((size_t)(next - ret->requests) == plan->count);
}

/* How a zone decides in the place of Redis. */
static int decide_by_fallback(const struct weir__taking *taking, struct weir__part *part,
                              enum weir__mode mode)
{
    struct weir__fallback fallback = *(const struct weir__fallback *)taking->context;
    fallback.local = part->store;
    return weir__fallback_decide(&fallback, part->requests, part->count, mode,
                                 weir__store_now(part->store), &part->decision);
}

static int decide_undo_fallback(const struct weir__taking *taking, const struct weir__part *part,
                                const weir_request *request)
{
    const struct weir__fallback *fallback = taking->context;
    weir_limit share;
    if (fallback->fail != WEIR__FAIL_LOCAL)
        return 0;
    weir__share(request->limit, fallback->peers, &share);
    return weir__part_give_back(part, request, &share);
}

/* One limit, nothing special: the plan of nearly every request. */
static bool decide_is_plain(const ngx_http_weir_plan_t *plan)
{
    return plan->limits == 1 && plan->verb == WEIR__VERB_TAKE &&
           plan->requests[0].wait_us == WEIR_WAIT_DEFAULT && !plan->requests[0].least;
}

/* `fallback`: how the zones decide in the place of Redis (its own zone is not used), or NULL. */
static int decide_zones(const struct weir__fallback *fallback, ngx_http_weir_plan_t *plan)
{
    struct decide_parts parts;
    const weir_request *first = &plan->requests[0];
    if (!fallback && decide_is_plain(plan)) {
        int code = weir_take(plan->confs[0]->zone->store, first->key, first->limit, first->cost,
                             &plan->rows[0]);
        plan->folded = plan->rows[0];
        return code;
    }
    decide_split(plan, &parts);
    struct weir__taking taking = {.parts = parts.parts,
                                  .count = parts.count,
                                  .peek_first = true,
                                  .decide = fallback ? decide_by_fallback : NULL,
                                  .undo = fallback ? decide_undo_fallback : NULL,
                                  .context = fallback};
    int code = weir__take_or_undo(&taking);
    if (code)
        return code;
    if (parts.count == 1)
        plan->folded = parts.parts[0].decision;
    else
        weir__fold(plan->rows, plan->limits, &plan->folded);
    if (plan->folded.allowed)
        plan->folded.granted = weir__granted(plan->requests, plan->count, plan->rows);
    return 0;
}

static void decide_here(const struct weir__fallback *fallback, ngx_http_weir_plan_t *plan,
                        ngx_http_request_t *r)
{
    int code = decide_zones(fallback, plan);
    if (code == 0)
        return;
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "weir: nothing could be decided in zone \"%V\" (%s): let pass",
                  &plan->confs[0]->zone->name, weir_strerror(code));
    plan->failed = 1;
    plan->folded =
        (weir_decision){.allowed = true, .degraded = true, .granted = plan->requests[0].cost};
}

/* ---- Redis ---- */

void ngx_http_weir_job_return_slot(ngx_http_weir_job_t *job)
{
    struct weir__job *it = &job->job;
    bool got = it->code == 0 && it->ret->lease;
    if (it->verb != WEIR__VERB_ACQUIRE || !(got || (it->code == WEIR_EUNREACHABLE && it->lease))) {
        ngx_http_weir_job_end(job);
        return;
    }
    it->verb = WEIR__VERB_RELEASE;
    job->decides = 0;
    it->lease = got ? it->ret->lease : it->lease;
    job->until_us = weir__mono_us() + it->requests[0].limit->rules[0].period_us;
    ngx_http_weir_job_give(job);
}

static void decide_take_answer(const ngx_http_weir_job_t *job, ngx_http_weir_plan_t *plan)
{
    ngx_http_weir_store_t *store = job->store;
    ngx_memcpy(plan->rows, job->job.rows, plan->limits * sizeof *plan->rows);
    plan->folded = *job->job.ret;
    if (store->slicer)
        ngx_http_weir_slices_hear(store, plan);
    if (job->remembers && !plan->folded.allowed)
        ngx_http_weir_denied_note(store->denied, &job->denied, plan,
                                  job->job.deadline_us - store->url.deadline_us,
                                  store->denial_cache_us);
}

/* Redis refused the query itself, which a client may have caused by its keys. Then the zone
 * decides, whatever fail= says. */
static bool decide_is_query_at_fault(int code)
{
    return code == WEIR_ESLOTS || code == WEIR_ESHARED || code == WEIR_EFULL || code == WEIR_EINVAL;
}

void ngx_http_weir_fall_back(const ngx_http_weir_store_t *store, int code,
                             ngx_http_weir_plan_t *plan, ngx_http_request_t *r)
{
    struct weir__fallback fallback = {.fail = decide_is_query_at_fault(code) ? WEIR__FAIL_LOCAL
                                                                             : store->url.fail,
                                      .peers = store->url.peers};
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_ctx(r);
    if (code == WEIR_EUNREACHABLE && ctx && !ctx->missed) {
        ctx->missed = 1;
        ngx_http_weir_fleet_missed(store);
    }
    plan->local = fallback.fail == WEIR__FAIL_LOCAL;
    plan->closed = fallback.fail == WEIR__FAIL_CLOSED;
    decide_here(&fallback, plan, r);
}

static void decide_answered(ngx_http_weir_job_t *job)
{
    ngx_http_weir_ctx_t *ctx = job->ctx;
    if (!ctx) {
        ngx_http_weir_job_return_slot(job);
        return;
    }
    assert(ctx->job == job && ctx->plan);
    ctx->job = NULL;
    job->ctx = NULL;
    if (job->job.code == 0) {
        if (job->store->pools && job->job.verb == WEIR__VERB_TAKE)
            ngx_http_weir_pools_count(job->store->pools, NGX_HTTP_WEIR_CENTRAL, 1);
        decide_take_answer(job, ctx->plan);
        ngx_http_weir_job_end(job);
    } else {
        ngx_http_weir_fall_back(job->store, job->job.code, ctx->plan, ctx->request);
        ngx_http_weir_job_return_slot(job); /* Redis may have given one all the same, too late */
    }
    ngx_http_weir_resume(ctx);
}

/* Whether it was denied a moment ago: then the answer is in the plan. */
static bool decide_was_denied(ngx_http_weir_store_t *store, ngx_http_weir_plan_t *plan)
{
    if (!store->denial_cache_us || plan->verb != WEIR__VERB_TAKE || plan->test_us >= 0)
        return false;
    if (!store->denied)
        store->denied = ngx_http_weir_denied_make(&store->url);
    if (!store->denied || !ngx_http_weir_denied_find(store->denied, plan, weir__mono_us()))
        return false;
    store->cached_denials++;
    return true;
}

ngx_int_t ngx_http_weir_ask(ngx_http_weir_ctx_t *ctx, ngx_http_weir_store_t *store,
                            ngx_http_weir_plan_t *plan, int64_t by_us)
{
    ngx_http_weir_job_t *job =
        ngx_http_weir_job_make(store, plan->verb, plan->requests, plan->count);
    if (job) {
        job->done = decide_answered;
        job->ctx = ctx;
        job->by_us = by_us;
        job->remembers = store->denied && plan->test_us < 0 &&
                         ngx_http_weir_denied_call(store->denied, plan, &job->denied);
        job->job.time_us = plan->test_us;
        if (ngx_http_weir_job_send(job) == NGX_OK) {
            ctx->job = job;
            return NGX_AGAIN;
        }
        ngx_http_weir_job_free(job);
    }
    ngx_http_weir_fall_back(store, WEIR_EUNREACHABLE, plan, ctx->request);
    return NGX_OK;
}

/* All queries of a request share its deadline. A tenth of it is there for each in any case, so that
 * Redis is asked at all. 0: it has waited for none yet. */
static int64_t decide_by_us(const ngx_http_weir_ctx_t *ctx, const ngx_http_weir_store_t *store)
{
    int64_t whole_us = store->url.deadline_us;
    if (ctx->waited_us == 0)
        return 0;
    return weir__mono_us() + ngx_max(whole_us - ctx->waited_us, whole_us / 10);
}

ngx_int_t ngx_http_weir_decide(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                               ngx_http_weir_plan_t *plan)
{
    ngx_http_weir_store_t *store = conf->store;
    plan->test_us = decide_test_now_us;
    if (!store)
        decide_here(NULL, plan, ctx->request);
    if (!store)
        return NGX_OK;
    ngx_int_t rc = store->slicer ? ngx_http_weir_slices_take(ctx, store, plan) : NGX_DECLINED;
    if (rc != NGX_DECLINED)
        return rc;
    return decide_was_denied(store, plan)
               ? NGX_OK
               : ngx_http_weir_ask(ctx, store, plan, decide_by_us(ctx, store));
}

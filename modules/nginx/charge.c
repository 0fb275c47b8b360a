/*
 * Limits that are charged by the answer: on=401,403 and charge_if=$variable.
 *
 *     decided: charged, as any limit ─► the answer's head ─► it counts: the charge stays
 *                                                        └─► it does not: given back
 *
 * The charge comes first, so that a limit is never exceeded: requests that are in progress at the
 * same time count as if they will be charged. If an answer never had a head (its client left), the
 * charge stays: otherwise whoever hangs up early could guess passwords for free.
 *
 * What holds:
 *   1. A charge is judged once, by the status that the client gets ($status), and given back at
 *      most once.
 *   2. Where two limits of the request had equal keys and became one, the charge stays: the other
 *      one may count every request.
 */
#include "ngx_http_weir.h"

#include "limit/receipt.h"

/* ---- the option ---- */

#define STATUS_FIRST 100
#define STATUS_LAST 599

static void charge_set(u_char *set, ngx_int_t first, ngx_int_t last, bool on)
{
    for (ngx_int_t i = first - STATUS_FIRST; i <= last - STATUS_FIRST; i++)
        set[i / 8] = on ? set[i / 8] | 1 << i % 8 : set[i / 8] & ~(1 << i % 8);
}

/* "404", "4xx", "!404"; false: it is something else. */
static bool charge_read_item(u_char *set, u_char *data, size_t len)
{
    bool on = data[0] != '!';
    data += !on;
    len -= !on;
    if (len == 3 && data[0] >= '1' && data[0] <= '5' && ngx_tolower(data[1]) == 'x' &&
        ngx_tolower(data[2]) == 'x') {
        ngx_int_t first = 100 * (data[0] - '0');
        charge_set(set, first, first + 99, on);
        return true;
    }
    ngx_int_t status = len == 3 ? ngx_atoi(data, len) : NGX_ERROR;
    if (status < STATUS_FIRST || status > STATUS_LAST)
        return false;
    charge_set(set, status, status, on);
    return true;
}

bool ngx_http_weir_charge_read(u_char set[NGX_HTTP_WEIR_STATUSES], const ngx_str_t *text)
{
    u_char *at = text->data, *end = at + text->len;
    ngx_memset(set, 0, NGX_HTTP_WEIR_STATUSES);
    if (at < end && *at == '!') /* all but these */
        charge_set(set, STATUS_FIRST, STATUS_LAST, true);
    while (at <= end) {
        u_char *comma = ngx_strlchr(at, end, ',');
        comma = comma ? comma : end;
        if (comma == at || !charge_read_item(set, at, (size_t)(comma - at)))
            return false;
        at = comma + 1;
    }
    return true;
}

/* ---- noting what was charged ---- */

struct ngx_http_weir_charge_s {
    ngx_http_weir_charge_t *next;
    const ngx_http_weir_loc_conf_t *conf;
    ngx_http_weir_plan_t *plan;
    ngx_uint_t index; /* of the plan's request */
};

static bool charge_depends(const ngx_http_weir_limit_t *limit)
{
    return limit->on || limit->charge_if;
}

ngx_int_t ngx_http_weir_charge_note(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                                    ngx_http_weir_plan_t *plan)
{
    ngx_pool_t *pool = ctx->request->pool;
    if (!plan->depends || plan->merged || plan->failed || !plan->folded.allowed)
        return NGX_OK;
    for (ngx_uint_t i = 0; i < plan->count; i++) {
        weir_request *request = &plan->requests[i];
        if (!charge_depends(plan->confs[i]) || request->cost == 0)
            continue;
        ngx_http_weir_charge_t *charge = ngx_palloc(pool, sizeof *charge);
        if (!charge || ngx_http_weir_keep_key(pool, &request->key) != NGX_OK)
            return NGX_ERROR;
        *charge = (ngx_http_weir_charge_t){ctx->charges, conf, plan, i};
        ctx->charges = charge;
    }
    return NGX_OK;
}

/* ---- judging ---- */

static bool charge_stays(ngx_http_request_t *r, const ngx_http_weir_limit_t *limit,
                         ngx_uint_t status)
{
    ngx_str_t value;
    if (limit->on && status >= STATUS_FIRST && status <= STATUS_LAST) {
        ngx_uint_t bit = status - STATUS_FIRST;
        if (!(limit->on[bit / 8] & 1 << bit % 8))
            return false;
    }
    return !limit->charge_if || ngx_http_complex_value(r, limit->charge_if, &value) != NGX_OK ||
           ngx_http_weir_says_yes(&value);
}

static void charge_return_zone(ngx_http_request_t *r, const ngx_http_weir_charge_t *charge,
                               const char *receipt)
{
    const ngx_http_weir_plan_t *plan = charge->plan;
    const weir_request *request = &plan->requests[charge->index];
    const weir_limit *limit = request->limit;
    const ngx_http_weir_zone_t *zone = plan->confs[charge->index]->zone;
    weir_limit share;
    weir_error err;
    if (plan->folded.degraded && charge->conf->store) {
        weir__share(limit, charge->conf->store->url.peers, &share);
        limit = &share;
    }
    if (weir_settle(zone->store, request->key, limit, receipt, 0, &err))
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "weir: a charge is not given back in zone \"%V\": %s", &zone->name,
                      err.message);
}

/* Nobody waits for it. If Redis is away for too long, it stays charged. */
static void charge_return_redis(const ngx_http_weir_charge_t *charge, const char *receipt)
{
    ngx_http_weir_plan_t *plan = charge->plan;
    const weir_request *request = &plan->requests[charge->index];
    ngx_http_weir_job_t *job =
        ngx_http_weir_job_make(charge->conf->store, WEIR__VERB_SETTLE, request, 1);
    if (!job)
        return;
    job->job.time_us = plan->test_us;
    if (!weir__receipt_read(receipt, &job->job.correction)) {
        ngx_http_weir_job_free(job);
        return;
    }
    job->job.correction.actual = 0;
    job->until_us = weir__mono_us() + request->detail[0].reset_after_us;
    ngx_http_weir_job_give(job);
    ngx_http_weir_slices_forgive(charge->conf->store, request);
}

/* Corrects what the answer's fields and variables show. Limits that judge by time have times only.
 * */
static void charge_show(ngx_http_weir_plan_t *plan, const weir_request *request)
{
    for (size_t i = 0; i < request->limit->count; i++) {
        weir_decision *row = &request->detail[i];
        if (!weir__algorithm_of(&request->limit->rules[i])->by_time) {
            row->remaining = ngx_min(row->limit, row->remaining + request->cost);
            if (row->remaining == row->limit)
                row->reset_after_us = 0; /* nothing is used */
        }
        row->charged = 0;
    }
    weir_decision before = plan->folded;
    weir__fold(plan->rows, plan->limits, &plan->folded);
    plan->folded.degraded = before.degraded;
    plan->folded.delay_us = before.delay_us;
}

/* What would only be delayed counts as dry_run, not as passed: given back is taken off passed. */
static bool charge_is_dry_delay(const ngx_http_weir_charge_t *charge)
{
    return charge->plan->folded.delay_us > 0 &&
           ngx_http_weir_is_dry(charge->conf, charge->plan->confs[charge->index]);
}

static void charge_return(ngx_http_request_t *r, const ngx_http_weir_charge_t *charge)
{
    ngx_http_weir_plan_t *plan = charge->plan;
    assert(charge->index < plan->count && !plan->failed && !plan->merged);
    const weir_request *request = &plan->requests[charge->index];
    const ngx_http_weir_store_t *store = charge->conf->store;
    char receipt[WEIR_RECEIPT_SIZE];
    weir_decision charged = request->detail[0];
    charged.charged = request->cost; /* the rows of the local fallback do not say it */
    weir_receipt(&charged, receipt);
    ngx_http_weir_set_clock_to(plan->test_us);
    if (store && !plan->folded.degraded)
        charge_return_redis(charge, receipt);
    else if (!store || plan->local)
        charge_return_zone(r, charge, receipt);
    if (!charge_is_dry_delay(charge))
        ngx_http_weir_count_given_back(plan->confs[charge->index]->zone);
    charge_show(plan, request);
}

/* Whether filters behind ours may still change the status: to 304, 206 or 416. */
static bool charge_may_change(const ngx_http_request_t *r)
{
    const ngx_http_headers_in_t *in = &r->headers_in;
    return r->headers_out.status == NGX_HTTP_OK &&
           (in->if_modified_since || in->if_unmodified_since || in->if_match || in->if_none_match ||
            in->range);
}

void ngx_http_weir_charge_judge(ngx_http_weir_ctx_t *ctx, bool last)
{
    ngx_http_request_t *r = ctx->request;
    if (!last && charge_may_change(r))
        return;
    for (ngx_http_weir_charge_t *it = ctx->charges; it; it = it->next) {
        if (!charge_stays(r, it->plan->confs[it->index], r->headers_out.status))
            charge_return(r, it);
    }
    ctx->charges = NULL;
}

/*
 * A request's way through its limits, in the two phases that decide:
 *
 *     overload ─► slots (weir_conn) ─► limits ─► limits in dry run ─► delay ─► go on
 *                     └── rejected ──────┴──► the slots are given back, the answer is the status
 *
 * Every step may have to wait, for Redis or for its time. The phase handler then returns NGX_AGAIN,
 * and is called again at the same step by ngx_http_weir_resume. While it waits, a client that
 * leaves ends the request, and its context's cleanup releases everything.
 */
#include "ngx_http_weir.h"

#include "base/duration.h"

/* ---- the context ---- */

/* The request does not wait any more, and nothing may wake it. */
static void handler_abandon(ngx_http_weir_ctx_t *ctx)
{
    if (ctx->waits && ctx->timer.timer_set)
        ngx_del_timer(&ctx->timer);
    if (ctx->job)
        ngx_http_weir_job_abandon(ctx->job);
    if (ctx->join)
        ngx_http_weir_slices_abandon(ctx->join);
    ctx->job = NULL;
    ctx->join = NULL;
}

static void handler_clean_up(void *data)
{
    ngx_http_weir_ctx_t *ctx = data;
    handler_abandon(ctx);
    if (ctx->held)
        ngx_http_weir_slots_release(ctx);
    if (ctx->rate)
        ngx_http_weir_rate_end(ctx);
}

ngx_http_weir_ctx_t *ngx_http_weir_ctx(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_weir_module);
    if (ctx || !(r->internal || r->filter_finalize))
        return ctx;
    for (ngx_pool_cleanup_t *it = r->pool->cleanup; it; it = it->next) {
        if (it->handler == handler_clean_up && ((ngx_http_weir_ctx_t *)it->data)->request == r) {
            ngx_http_set_ctx(r, it->data, ngx_http_weir_module);
            return it->data;
        }
    }
    return NULL;
}

ngx_http_weir_ctx_t *ngx_http_weir_ctx_make(ngx_http_request_t *r)
{
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_ctx(r);
    if (ctx)
        return ctx;
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof *ctx);
    if (!cleanup)
        return NULL;
    cleanup->handler = handler_clean_up;
    ctx = cleanup->data;
    ngx_memzero(ctx, offsetof(ngx_http_weir_ctx_t, timer));
    ctx->request = r;
    ngx_http_set_ctx(r, ctx, ngx_http_weir_module);
    return ctx;
}

/* ---- waiting ---- */

/* The write handler of a request that waits: it does nothing. While it is set, the request still
 * waits; otherwise its client may have left, and a post_action may be in progress. */
static void handler_stay(ngx_http_request_t *r)
{
    (void)r;
}

static void handler_go_on(ngx_http_weir_ctx_t *ctx)
{
    ngx_http_request_t *r = ctx->request;
    ngx_connection_t *c = r->connection;
    if (r->write_event_handler != handler_stay)
        return;
    ngx_http_set_log_request(c->log, r);
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
    ngx_http_run_posted_requests(c);
}

void ngx_http_weir_resume(ngx_http_weir_ctx_t *ctx)
{
    assert(ctx->waits && ctx->plan && !ctx->job && !ctx->join);
    if (ctx->timer.timer_set)
        ngx_del_timer(&ctx->timer);
    ctx->answered = 1;
    handler_go_on(ctx);
}

/* The answer is long overdue: the threads that keep its deadline must have been held up. */
static void handler_miss(ngx_http_weir_ctx_t *ctx)
{
    ngx_http_weir_store_t *store =
        ctx->job ? ctx->job->store : ngx_http_weir_slices_store(ctx->join);
    handler_abandon(ctx);
    ngx_http_weir_fall_back(store, WEIR_EUNREACHABLE, ctx->plan, ctx->request);
    ngx_http_weir_resume(ctx);
}

/* Never earlier than due: nginx counts in milliseconds, rounded down. */
static void handler_wake(ngx_event_t *event)
{
    ngx_http_weir_ctx_t *ctx = event->data;
    if (ctx->job || ctx->join) {
        handler_miss(ctx);
        return;
    }
    int64_t left_us = ctx->due_us - weir__mono_us();
    if (left_us > 0) {
        ngx_add_timer(event, (ngx_msec_t)((left_us + 999) / 1000));
        return;
    }
    handler_go_on(ctx);
}

static ngx_int_t handler_suspend(ngx_http_weir_ctx_t *ctx, int64_t milliseconds)
{
    ngx_http_request_t *r = ctx->request;
    ngx_event_t *read = r->connection->read;
    if (read->ready) { /* its client may have left already; there would be no further event */
        ngx_post_event(read, &ngx_posted_events);
    } else if (ngx_handle_read_event(read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = handler_stay;
    if (!ctx->waits)
        ngx_memzero(&ctx->timer, sizeof ctx->timer);
    ctx->waits = 1;
    ctx->timer.handler = handler_wake;
    ctx->timer.data = ctx;
    ctx->timer.log = r->connection->log;
    ngx_add_timer(&ctx->timer, (ngx_msec_t)milliseconds);
    return NGX_AGAIN;
}

/* ---- outcomes ---- */

static void handler_note_status(ngx_http_weir_ctx_t *ctx, ngx_http_weir_status_e status)
{
    ctx->status = ngx_max(ctx->status, status);
}

static void handler_log(ngx_http_weir_ctx_t *ctx, ngx_uint_t level, const char *what,
                        const ngx_http_weir_plan_t *plan)
{
    const ngx_http_weir_limit_t *conf;
    char seconds[64] = "";
    ngx_log_t *log = ctx->request->connection->log;
    if (log->log_level < level)
        return;
    ngx_http_weir_rule(plan, plan->folded.binding, &conf);
    bool denied = !plan->folded.allowed;
    if (denied && plan->closed) { /* no limit is to blame */
        ngx_log_error(level, log, 0, "%s, Redis did not decide (fail=closed), zone \"%V\"", what,
                      &conf->zone->name);
        return;
    }
    struct weir__buffer buffer = weir__buffer_over(seconds, sizeof seconds);
    int64_t time_us = plan->folded.allowed ? plan->folded.delay_us : plan->folded.retry_after_us;
    if (time_us != WEIR_NEVER) {
        weir__put_text(&buffer, plan->folded.allowed ? ", delay: " : ", retry after: ");
        weir__put_seconds(&buffer, time_us);
    }
    ngx_log_error(level, log, 0, "%s%s by %s%V%s%s%s, zone \"%V\"", what,
                  denied && plan->folded.full ? ", no room for a new key" : "",
                  conf->name.len ? "\"" : "", &conf->name, conf->name.len ? "\": " : "",
                  ngx_http_weir_bound_text(plan).text, seconds, &conf->zone->name);
}

static ngx_int_t handler_reject(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                                ngx_uint_t phase, ngx_http_weir_plan_t *plan)
{
    const ngx_http_weir_limit_t *by;
    ngx_http_weir_rule(plan, plan->folded.binding, &by);
    ctx->rejected = 1;
    ctx->shown[phase] = plan;
    ctx->steps[phase] = NGX_HTTP_WEIR_AT_END;
    handler_note_status(ctx, plan->closed        ? NGX_HTTP_WEIR_CLOSED
                             : plan->folded.full ? NGX_HTTP_WEIR_FULL
                                                 : NGX_HTTP_WEIR_REJECTED);
    ngx_http_weir_count(plan, false);
    ngx_http_weir_slots_release(ctx);
    handler_log(ctx, conf->log_level, "weir: rejected", plan);
    return by->status ? (ngx_int_t)by->status : (ngx_int_t)conf->status;
}

static void handler_note_shadow(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                                const ngx_http_weir_plan_t *plan)
{
    if (plan->failed || (plan->folded.allowed && plan->folded.delay_us == 0)) {
        ngx_http_weir_count(plan, false);
        return;
    }
    handler_note_status(ctx, NGX_HTTP_WEIR_DRY_RUN);
    if (!ctx->would || ctx->would->folded.allowed)
        ctx->would = plan;
    ngx_http_weir_count(plan, true);
    handler_log(ctx, conf->log_level + 1,
                plan->folded.allowed ? "weir: dry run, would be delayed"
                                     : "weir: dry run, would be rejected",
                plan);
}

/* ---- the steps ---- */

/* A step is decided once per request, wherever it is redirected to. A step that no location on its
 * way has decided yet is still decided. */
static ngx_uint_t handler_step_bit(ngx_http_weir_step_e step, ngx_uint_t phase)
{
    return (ngx_uint_t)1 << (2 * step + phase);
}

static bool handler_step_is_done(const ngx_http_weir_ctx_t *ctx, ngx_http_weir_step_e step,
                                 ngx_uint_t phase)
{
    return ctx->done_steps & handler_step_bit(step, phase);
}

static void handler_note_step(ngx_http_weir_ctx_t *ctx, ngx_http_weir_step_e step, ngx_uint_t phase)
{
    ctx->done_steps |= handler_step_bit(step, phase);
}

/* Whether the main request has decided the same already: a subrequest's location may have inherited
 * it. */
static bool handler_step_is_done_above(const ngx_http_weir_ctx_t *ctx,
                                       const ngx_http_weir_loc_conf_t *conf,
                                       ngx_http_weir_step_e step, ngx_uint_t phase)
{
    ngx_http_request_t *main = ctx->request->main;
    const ngx_http_weir_ctx_t *above = ctx->request == main ? NULL : ngx_http_weir_ctx(main);
    const ngx_http_weir_loc_conf_t *other = above ? above->confs[phase] : NULL;
    if (!other)
        return false;
    return step == NGX_HTTP_WEIR_AT_OVERLOAD ? other->overload == conf->overload
           : step == NGX_HTTP_WEIR_AT_CONN   ? other->conns == conf->conns
                                             : other->limits == conf->limits;
}

/* How long an answer is waited for, in ms. The threads keep the store's deadline; what a request
 * has left of it for its later queries they do not keep while they are at work for others. */
static int64_t handler_patience_ms(const ngx_http_weir_ctx_t *ctx,
                                   const ngx_http_weir_store_t *store)
{
    int64_t by_us = ctx->job ? ctx->job->by_us : 0, now_us = weir__mono_us();
    return by_us ? ngx_max(by_us - now_us, 0) / 1000 + 2
                 : store->url.deadline_us / 1000 + NGX_HTTP_WEIR_GUARD_MS;
}

/* Plans and decides some limits, or continues with the answer that was awaited. NGX_OK: *ret is
 * decided, or NULL if none of them applies. */
static ngx_int_t handler_decide(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                                ngx_http_weir_limit_t *const *limits, ngx_uint_t n,
                                enum weir__verb verb, ngx_http_weir_plan_t **ret)
{
    ngx_int_t rc = NGX_OK;
    *ret = NULL;
    if (!ctx->answered && n > 0) {
        rc = ngx_http_weir_plan_make(ctx->request, limits, n, verb, &ctx->plan);
        if (rc == NGX_OK && ctx->plan)
            rc = ngx_http_weir_decide(ctx, conf, ctx->plan);
        if (rc == NGX_AGAIN)
            rc = handler_suspend(ctx, handler_patience_ms(ctx, conf->store));
        ctx->asked_us = weir__mono_us();
        if (rc == NGX_AGAIN)
            return rc;
        if (ctx->job || ctx->join)
            handler_abandon(ctx);
    }
    if (ctx->answered)
        ctx->waited_us += weir__mono_us() - ctx->asked_us;
    *ret = ctx->plan;
    if (*ret)
        ctx->conf = conf;
    ctx->plan = NULL;
    ctx->answered = 0;
    return rc == NGX_ERROR ? NGX_HTTP_INTERNAL_SERVER_ERROR : rc;
}

static ngx_int_t handler_step_overload(ngx_http_weir_ctx_t *ctx,
                                       const ngx_http_weir_loc_conf_t *conf)
{
    if (!conf->overload || handler_step_is_done(ctx, NGX_HTTP_WEIR_AT_OVERLOAD, 0) ||
        handler_step_is_done_above(ctx, conf, NGX_HTTP_WEIR_AT_OVERLOAD, NGX_HTTP_WEIR_PREACCESS))
        return NGX_OK;
    handler_note_step(ctx, NGX_HTTP_WEIR_AT_OVERLOAD, 0);
    ctx->conf = conf;
    if (!ngx_http_weir_is_overloaded(conf->overload))
        return NGX_OK;
    ctx->rejected = 1;
    handler_note_status(ctx, NGX_HTTP_WEIR_OVERLOADED);
    ngx_log_error(conf->log_level, ctx->request->connection->log, 0, "weir: rejected, overloaded");
    return (ngx_int_t)conf->overload->status;
}

/* A slot becomes free when a request ends, and nobody knows when that will be: the leases only show
 * the latest time. So no time is shown, except the one of fail=closed and of a zone without
 * room. */
static void handler_forget_when(ngx_http_weir_plan_t *plan)
{
    if (plan->folded.allowed || plan->folded.full || plan->closed)
        return;
    plan->folded.retry_after_us = plan->rows[0].retry_after_us = WEIR_NEVER;
}

static ngx_int_t handler_step_conn(ngx_http_weir_ctx_t *ctx, ngx_http_weir_loc_conf_t *conf)
{
    ngx_http_weir_limit_t **conns = conf->conns ? conf->conns->elts : NULL;
    ngx_uint_t n = conf->conns ? conf->conns->nelts : 0;
    bool any = ctx->held != NULL;
    if (handler_step_is_done(ctx, NGX_HTTP_WEIR_AT_CONN, 0) ||
        handler_step_is_done_above(ctx, conf, NGX_HTTP_WEIR_AT_CONN, NGX_HTTP_WEIR_PREACCESS))
        return NGX_OK;
    for (; ctx->conn_index < n; ctx->conn_index++) {
        ngx_http_weir_limit_t **conn = &conns[ctx->conn_index];
        ngx_http_weir_plan_t *plan;
        ngx_int_t rc = handler_decide(ctx, conf, conn, 1, WEIR__VERB_ACQUIRE, &plan);
        if (rc == NGX_AGAIN || (rc != NGX_OK && !ngx_http_weir_is_dry(conf, *conn)))
            return rc;
        if (rc != NGX_OK)
            plan = NULL;
        any = any || plan;
        if (!plan || plan->failed)
            continue;
        handler_note_status(ctx,
                            plan->folded.degraded ? NGX_HTTP_WEIR_DEGRADED : NGX_HTTP_WEIR_PASSED);
        if (plan->folded.allowed)
            ngx_http_weir_count(plan, false);
        if (plan->folded.allowed && ngx_http_weir_slot_hold(ctx, conf->store, plan) != NGX_OK)
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        if (plan->folded.allowed)
            continue;
        handler_forget_when(plan);
        if (!ngx_http_weir_is_dry(conf, *conn))
            return handler_reject(ctx, conf, NGX_HTTP_WEIR_PREACCESS, plan);
        handler_note_shadow(ctx, conf, plan);
    }
    if (any)
        handler_note_step(ctx, NGX_HTTP_WEIR_AT_CONN, 0);
    return NGX_OK;
}

/* Decides the limits of a step, enforced or in dry run, unless that was done before. As
 * handler_decide. */
static ngx_int_t handler_decide_step(ngx_http_weir_ctx_t *ctx, ngx_http_weir_loc_conf_t *conf,
                                     ngx_uint_t phase, ngx_http_weir_step_e step,
                                     ngx_http_weir_plan_t **ret)
{
    bool dry = step == NGX_HTTP_WEIR_AT_DRY_RUN;
    ngx_array_t *limits =
        &conf->limits_of[phase][dry ? NGX_HTTP_WEIR_SHADOW : NGX_HTTP_WEIR_ENFORCED];
    *ret = NULL;
    if (limits->nelts == 0 || handler_step_is_done(ctx, step, phase) ||
        handler_step_is_done_above(ctx, conf, step, phase))
        return NGX_OK;
    ngx_int_t rc = handler_decide(ctx, conf, limits->elts, limits->nelts, WEIR__VERB_TAKE, ret);
    if (rc == NGX_OK && *ret)
        handler_note_step(ctx, step, phase);
    return rc;
}

static ngx_int_t handler_step_limit(ngx_http_weir_ctx_t *ctx, ngx_http_weir_loc_conf_t *conf,
                                    ngx_uint_t phase)
{
    ngx_http_weir_plan_t *plan;
    ngx_int_t rc = handler_decide_step(ctx, conf, phase, NGX_HTTP_WEIR_AT_LIMIT, &plan);
    if (rc != NGX_OK || !plan)
        return rc;
    if (!plan->folded.allowed)
        return handler_reject(ctx, conf, phase, plan);
    ngx_http_weir_count(plan, false);
    handler_note_status(ctx, plan->folded.degraded       ? NGX_HTTP_WEIR_DEGRADED
                             : plan->folded.delay_us > 0 ? NGX_HTTP_WEIR_DELAYED
                                                         : NGX_HTTP_WEIR_PASSED);
    if (plan->failed)
        return NGX_OK;
    if (plan->depends && ngx_http_weir_charge_note(ctx, conf, plan) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    ctx->shown[phase] = plan;
    ctx->delay_us = plan->folded.delay_us;
    if (ctx->delay_us > 0) {
        ctx->due_us = weir__mono_us() + ctx->delay_us;
        handler_log(ctx, conf->log_level + 1, "weir: delayed", plan);
    }
    return NGX_OK;
}

/* What a limit in dry run would have rejected, those behind it would not have seen. */
static ngx_int_t handler_step_dry_run(ngx_http_weir_ctx_t *ctx, ngx_http_weir_loc_conf_t *conf,
                                      ngx_uint_t phase)
{
    ngx_http_weir_plan_t *plan;
    if (ctx->would && !ctx->would->folded.allowed)
        return NGX_OK;
    ngx_int_t rc = handler_decide_step(ctx, conf, phase, NGX_HTTP_WEIR_AT_DRY_RUN, &plan);
    if (rc != NGX_OK || !plan) /* what is invalid was logged, and rejects nothing here */
        return rc == NGX_AGAIN ? rc : NGX_OK;
    handler_note_status(ctx, plan->folded.degraded ? NGX_HTTP_WEIR_DEGRADED : NGX_HTTP_WEIR_PASSED);
    if (!plan->failed)
        ctx->shadow[phase] = plan;
    if (plan->depends && ngx_http_weir_charge_note(ctx, conf, plan) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    handler_note_shadow(ctx, conf, plan);
    return NGX_OK;
}

static ngx_int_t handler_step_delay(ngx_http_weir_ctx_t *ctx, ngx_http_weir_loc_conf_t *conf)
{
    bool delayed = ctx->delay_us > 0;
    ctx->delay_us = 0;
    if (!delayed || ngx_http_weir_set_clock(ctx->request, conf))
        return NGX_OK;
    int64_t left_us = ctx->due_us - weir__mono_us();
    if (left_us <= 0)
        return NGX_OK;
    ngx_time_update(); /* timers count from nginx's own time */
    return handler_suspend(ctx, (left_us + 999) / 1000);
}

static ngx_int_t handler_take_step(ngx_http_weir_ctx_t *ctx, ngx_http_weir_loc_conf_t *conf,
                                   ngx_uint_t phase)
{
    switch (ctx->steps[phase]) {
    case NGX_HTTP_WEIR_AT_OVERLOAD:
        return handler_step_overload(ctx, conf);
    case NGX_HTTP_WEIR_AT_CONN:
        return handler_step_conn(ctx, conf);
    case NGX_HTTP_WEIR_AT_LIMIT:
        return handler_step_limit(ctx, conf, phase);
    case NGX_HTTP_WEIR_AT_DRY_RUN:
        return handler_step_dry_run(ctx, conf, phase);
    case NGX_HTTP_WEIR_AT_DELAY:
        return handler_step_delay(ctx, conf);
    case NGX_HTTP_WEIR_AT_END:
        break;
    }
    assert(!"the end is not a step");
    return NGX_DECLINED;
}

static ngx_int_t handler_run_phase(ngx_http_request_t *r, ngx_uint_t phase)
{
    ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!conf->applies[phase] || (r != r->main && !conf->subrequests))
        return NGX_DECLINED;
    const ngx_http_weir_ctx_t *above = r == r->main ? NULL : ngx_http_weir_ctx(r->main);
    if (above && above->rejected)
        return NGX_DECLINED;
    ngx_http_weir_ctx_t *ctx = ngx_http_weir_ctx_make(r);
    if (!ctx)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    if (ctx->rejected)
        return NGX_DECLINED;
    if (ctx->waits && ctx->timer.timer_set) {
        if (r->write_event_handler == handler_stay)
            return NGX_AGAIN;
        handler_abandon(ctx);
        ctx->rejected = 1; /* its client has left; this is a post_action */
        return NGX_DECLINED;
    }
    if (ctx->confs[phase] != conf) {
        ctx->confs[phase] = conf;
        ctx->steps[phase] = conf->first_step[phase];
        ctx->conn_index = 0;
    }
    ngx_http_weir_set_clock(r, conf);
    while (ctx->steps[phase] != NGX_HTTP_WEIR_AT_END) {
        bool delay = ctx->steps[phase] == NGX_HTTP_WEIR_AT_DELAY;
        ngx_int_t rc = handler_take_step(ctx, conf, phase);
        if (rc == NGX_OK || delay) /* after a delay it continues behind it */
            ctx->steps[phase]++;
        if (rc >= NGX_HTTP_BAD_REQUEST) /* whatever it was, its error page is not limited */
            ctx->rejected = 1;
        if (rc != NGX_OK)
            return rc;
    }
    return NGX_DECLINED;
}

ngx_int_t ngx_http_weir_preaccess_handler(ngx_http_request_t *r)
{
    return handler_run_phase(r, NGX_HTTP_WEIR_PREACCESS);
}

ngx_int_t ngx_http_weir_precontent_handler(ngx_http_request_t *r)
{
    return handler_run_phase(r, NGX_HTTP_WEIR_PRECONTENT);
}

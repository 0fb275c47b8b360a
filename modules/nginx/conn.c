/*
 * Slots of weir_conn that a request holds: given back when it ends, however it ends. A slot is a lease,
 * renewed three times in its life for as long as the request lives, so that only a worker that died
 * loses any, and only until the lease lapses.
 */
#include "ngx_http_weir.h"

#define RENEWALS 3

struct ngx_http_weir_held_s {
    ngx_http_weir_held_t *next;   /* of the request's */
    ngx_queue_t among_all;        /* of the worker's */
    ngx_http_weir_store_t *store; /* NULL: the zone gave it */
    weir_store *zone;
    weir_request request; /* its key, and a reference to its limit */
    uint64_t lease;
    ngx_event_t timer;
};

static ngx_queue_t all = {&all, &all};

/* A change that nobody waits for. Where Redis cannot be asked for too long the lease lapses by itself. */
static void ask_change(const ngx_http_weir_held_t *held, enum weir__verb verb)
{
    ngx_http_weir_job_t *job = ngx_http_weir_job_make(held->store, verb, &held->request, 1);
    if (!job)
        return;
    job->job.lease = held->lease;
    if (verb == WEIR__VERB_RELEASE) {
        job->until_us = weir__mono_us() + held->request.limit->rules[0].period_us;
        ngx_http_weir_job_give(job);
        return;
    }
    job->done = ngx_http_weir_job_end;
    if (ngx_http_weir_job_send(job) != NGX_OK)
        ngx_http_weir_job_free(job);
}

static void change(const ngx_http_weir_held_t *held, enum weir__verb verb)
{
    int code = 0;
    if (held->store)
        ask_change(held, verb);
    else if (verb == WEIR__VERB_RENEW)
        code = weir_renew(held->zone, held->request.key, held->request.limit, held->lease);
    else
        code = weir_release(held->zone, held->request.key, held->request.limit, held->lease);
    (void)code; /* no such lease: it was evicted, or its time was over; nothing is held */
}

static void plan_renewal(ngx_http_weir_held_t *held)
{
    int64_t lease_us = held->request.limit->rules[0].period_us;
    ngx_add_timer(&held->timer, (ngx_msec_t)ngx_max(1, lease_us / 1000 / RENEWALS));
}

static void renew(ngx_event_t *event)
{
    ngx_http_weir_held_t *held = event->data;
    change(held, WEIR__VERB_RENEW);
    plan_renewal(held);
}

/* A key that lives as long as the request; a variable's may be set anew. */
static ngx_int_t keep_key(ngx_pool_t *pool, weir_key *key)
{
    u_char *copy = ngx_pnalloc(pool, key->len);
    if (!copy)
        return NGX_ERROR;
    ngx_memcpy(copy, key->data, key->len);
    key->data = copy;
    return NGX_OK;
}

ngx_int_t ngx_http_weir_hold(ngx_http_weir_ctx_t *ctx, ngx_http_weir_store_t *store,
                             const ngx_http_weir_ask_t *ask)
{
    ngx_http_weir_held_t *held = ngx_pcalloc(ctx->request->pool, sizeof *held);
    if (ask->folded.lease == 0) /* nobody decided, or fail=open: nothing to give back */
        return NGX_OK;
    if (!held)
        return NGX_ERROR;
    held->store = ask->folded.degraded ? NULL : store;
    held->zone = ask->confs[0]->zone->store;
    held->request = ask->requests[0];
    if (keep_key(ctx->request->pool, &held->request.key) != NGX_OK)
        return NGX_ERROR;
    held->request.limit = weir__limit_ref(ask->requests[0].limit);
    held->lease = ask->folded.lease;
    held->timer.handler = renew;
    held->timer.data = held;
    held->timer.log = ngx_cycle->log;
    held->timer.cancelable = 1; /* it keeps no worker that is to end */
    ngx_queue_insert_tail(&all, &held->among_all);
    held->next = ctx->held;
    ctx->held = held;
    plan_renewal(held);
    return NGX_OK;
}

void ngx_http_weir_let_go(ngx_http_weir_ctx_t *ctx)
{
    for (ngx_http_weir_held_t *held = ctx->held; held; held = held->next) {
        if (held->timer.timer_set)
            ngx_del_timer(&held->timer);
        change(held, WEIR__VERB_RELEASE);
        ngx_queue_remove(&held->among_all);
        weir_limit_free((weir_limit *)held->request.limit);
    }
    ctx->held = NULL;
}

void ngx_http_weir_let_all_go(void)
{
    for (ngx_queue_t *it = ngx_queue_head(&all); it != &all; it = ngx_queue_next(it))
        change(ngx_queue_data(it, ngx_http_weir_held_t, among_all), WEIR__VERB_RELEASE);
}

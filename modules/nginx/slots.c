/*
 * The slots of weir_conn that a request holds. They are given back when it ends, however it ends. A
 * slot is a lease. It is renewed three times per period while the request lives: so slots are lost
 * only by a worker that dies, and only until their leases expire.
 */
#include "ngx_http_weir.h"

#define RENEWALS 3

struct ngx_http_weir_held_s {
    ngx_http_weir_held_t *next;   /* of the same request */
    ngx_queue_t among_all;        /* of this worker */
    ngx_http_weir_store_t *store; /* NULL: the zone gave it */
    weir_store *zone;
    weir_request request; /* its key, and a reference to its limit */
    uint64_t lease;
    ngx_event_t timer;
};

static ngx_queue_t slots_held = {&slots_held, &slots_held};

/* A change that nobody waits for. If Redis is away for too long, the lease expires by itself. */
static void slot_query_redis(const ngx_http_weir_held_t *held, enum weir__verb verb)
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

static void slot_change(const ngx_http_weir_held_t *held, enum weir__verb verb)
{
    int code = 0;
    if (held->store)
        slot_query_redis(held, verb);
    else if (verb == WEIR__VERB_RENEW)
        code = weir_renew(held->zone, held->request.key, held->request.limit, held->lease);
    else
        code = weir_release(held->zone, held->request.key, held->request.limit, held->lease);
    (void)code; /* no such lease: it was evicted, or it has expired; nothing is held */
}

static void slot_schedule_renewal(ngx_http_weir_held_t *held)
{
    int64_t lease_us = held->request.limit->rules[0].period_us;
    ngx_add_timer(&held->timer, (ngx_msec_t)ngx_max(1, lease_us / 1000 / RENEWALS));
}

static void slot_renew(ngx_event_t *event)
{
    ngx_http_weir_held_t *held = event->data;
    slot_change(held, WEIR__VERB_RENEW);
    slot_schedule_renewal(held);
}

ngx_int_t ngx_http_weir_slot_hold(ngx_http_weir_ctx_t *ctx, ngx_http_weir_store_t *store,
                                  const ngx_http_weir_plan_t *plan)
{
    assert(plan->verb == WEIR__VERB_ACQUIRE && plan->count == 1 && plan->folded.allowed);
    if (plan->folded.lease == 0) /* nobody decided, or fail=open: nothing to give back */
        return NGX_OK;
    ngx_http_weir_held_t *held = ngx_pcalloc(ctx->request->pool, sizeof *held);
    if (!held)
        return NGX_ERROR;
    held->store = plan->folded.degraded ? NULL : store;
    held->zone = plan->confs[0]->zone->store;
    held->request = plan->requests[0];
    if (ngx_http_weir_keep_key(ctx->request->pool, &held->request.key) != NGX_OK)
        return NGX_ERROR;
    held->request.limit = weir__limit_ref(plan->requests[0].limit);
    held->lease = plan->folded.lease;
    held->timer.handler = slot_renew;
    held->timer.data = held;
    held->timer.log = ngx_cycle->log;
    held->timer.cancelable = 1; /* a worker that ends does not wait for it */
    ngx_queue_insert_tail(&slots_held, &held->among_all);
    held->next = ctx->held;
    ctx->held = held;
    slot_schedule_renewal(held);
    return NGX_OK;
}

void ngx_http_weir_slots_release(ngx_http_weir_ctx_t *ctx)
{
    for (ngx_http_weir_held_t *held = ctx->held; held; held = held->next) {
        if (held->timer.timer_set)
            ngx_del_timer(&held->timer);
        slot_change(held, WEIR__VERB_RELEASE);
        ngx_queue_remove(&held->among_all);
        weir_limit_free((weir_limit *)held->request.limit);
    }
    ctx->held = NULL;
}

void ngx_http_weir_slots_release_all(void)
{
    for (ngx_queue_t *it = ngx_queue_head(&slots_held); it != &slots_held; it = ngx_queue_next(it))
        slot_change(ngx_queue_data(it, ngx_http_weir_held_t, among_all), WEIR__VERB_RELEASE);
}

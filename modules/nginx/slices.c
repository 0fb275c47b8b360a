/*
 * Slices in a worker: takes that the pools of this nginx (pools.c) answer without a query.
 * slices_calls.c asks for slices.
 *
 *     take ─► pool: LOCAL, DENIED ─────────────────────────────────────────────► answered
 *              ├──► REFILL: a job asks for a slice, without a request ─► Redis ─► pool
 *              ├──► JOIN: the request waits for that answer, whoever asked for it, and takes again
 *              └──► ASK: Redis is asked for the request itself
 *
 * A request waits by its store's deadline at most. It asks for itself if another worker's slice has
 * not come by half of it: that worker may not run. So it does if it got nothing of some slices that
 * came, because others were faster.
 */
#include "ngx_http_weir.h"

#include "base/clock.h"

#define CALLS_MAX 1024   /* slices of others that requests of this worker wait for */
#define WAITERS_MAX 4096 /* requests of this worker that wait */
#define JOINS_MAX 4      /* slices that one request waits for; then it asks for itself */

struct ngx_http_weir_join_s {
    ngx_queue_t link; /* among a call's waiters */
    ngx_http_weir_ctx_t *ctx;
    ngx_http_weir_store_t *store;
    int64_t until_us; /* monotonic: then it has waited long enough */
    unsigned joins;   /* the slices that it has waited for */
};

/* ---- taking ---- */

/* What a take found. */
struct slices_found {
    enum weir__spend spend;
    bool again; /* the request was counted already */
    struct weir__slice_ask ask;
    bool begins; /* a call */
    bool slot;   /* this worker sees to it */
    ngx_http_weir_slot_turn_t turn;
};

/* Whether a plan may be answered from a slice at all. */
static bool slices_fits(const ngx_http_weir_pools_t *pools, const ngx_http_weir_plan_t *plan,
                        struct weir__slice_terms *ret)
{
    const weir_request *request = &plan->requests[0];
    if (plan->verb != WEIR__VERB_TAKE || plan->limits != 1 || plan->depends || plan->test_us >= 0)
        return false;
    if (request->cost < 1 || request->least || !weir__limit_varies(request->limit, 0) ||
        (request->wait_us != WEIR_WAIT_DEFAULT && request->wait_us != 0))
        return false;
    return weir__slice_terms(&pools->slicing, &request->limit->rules[0], ret);
}

/* A request is counted once, however often it comes. */
static void slices_uncount(struct weir__pool *pool, int64_t cost)
{
    pool->takes -= pool->takes > 0;
    pool->wanted = weir__max(0, pool->wanted - cost);
}

/* Under the lock. Without a pool Redis is asked. */
static void slices_spend(ngx_http_weir_slicer_t *slicer, const weir_request *request,
                         const struct weir__slice_terms *terms, struct slices_found *found,
                         weir_decision *ret)
{
    ngx_http_weir_pools_t *pools = slicer->pools;
    const struct weir__rule *rule = &request->limit->rules[0];
    struct weir__pool_now now = ngx_http_weir_pools_now(pools, weir__boot_us());
    bool refill = false, has_slot = now.now_us < now.slot_us;
    int64_t withheld;
    ngx_http_weir_pools_set(pools, found->ask.tag);
    struct weir__pool *pool = weir__pools_place(pools->table, found->ask.tag, request->key, rule,
                                                terms, now.now_us, &withheld);
    if (!pool)
        return;
    if (now.now_us < pools->memory->mute_us)
        now.slot_us = 0;
    if (found->again)
        slices_uncount(pool, request->cost);
    found->spend = weir__pool_spend(pool, &now, request->cost, ret, &refill);
    if (refill || found->spend == WEIR__SPEND_REFILL)
        found->begins = weir__pool_ask(
            pool, &now, refill ? 0 : request->cost,
            now.now_us + slicer->store->url.deadline_us + NGX_HTTP_WEIR_LATE_US, &found->ask.call);
    if (found->begins)
        pool->asker = ngx_pid;
    if (found->spend == WEIR__SPEND_JOIN)
        found->ask.call.serial = pool->serial;
    if (found->spend == WEIR__SPEND_REFILL && !found->begins)
        found->spend = WEIR__SPEND_ASK;
    if (!has_slot)
        found->slot = ngx_http_weir_peer_slot_turn(slicer->store, now.now_us, &found->turn);
}

/* Whether it may wait, or wait again: later, or more often, it would miss its deadline for slices
 * of which others are served. */
static bool slices_may_wait(const ngx_http_weir_join_t *join)
{
    return !join || (join->joins < JOINS_MAX &&
                     weir__mono_us() < join->until_us - join->store->url.deadline_us / 2);
}

/* The request waits for a call. */
static ngx_int_t slices_wait(ngx_http_weir_slicer_t *slicer, ngx_http_weir_call_t *call,
                             ngx_http_weir_ctx_t *ctx, ngx_http_weir_join_t *join)
{
    if (!join) {
        join = ngx_palloc(ctx->request->pool, sizeof *join);
        if (!join ||
            ngx_http_weir_keep_key(ctx->request->pool, &ctx->plan->requests[0].key) != NGX_OK)
            return NGX_DECLINED;
        join->ctx = ctx;
        join->store = slicer->store;
        join->until_us = weir__mono_us() + slicer->store->url.deadline_us;
        join->joins = 0;
    } else { /* this answer has a later deadline than the request */
        int64_t left_us = weir__max(0, join->until_us - weir__mono_us());
        if (ctx->timer.timer_set)
            ngx_del_timer(&ctx->timer);
        ngx_add_timer(&ctx->timer, (ngx_msec_t)((left_us + 999) / 1000));
    }
    join->joins++;
    ngx_queue_insert_tail(&call->waiters, &join->link);
    slicer->waiters++;
    ctx->join = join;
    if (!call->own)
        ngx_http_weir_calls_poll(slicer);
    return NGX_AGAIN;
}

/* As ngx_http_weir_slices_take; `join` NULL: it has not waited yet. */
static ngx_int_t slices_take(ngx_http_weir_slicer_t *slicer, ngx_http_weir_ctx_t *ctx,
                             ngx_http_weir_plan_t *plan, ngx_http_weir_join_t *join)
{
    const weir_request *request = &plan->requests[0];
    struct slices_found found = {.spend = WEIR__SPEND_ASK, .again = join != NULL};
    ngx_http_weir_call_t *call = NULL;
    struct weir__slice_terms terms;
    weir_decision row = {0};
    if (!slices_fits(slicer->pools, plan, &terms))
        return NGX_DECLINED;
    weir__pools_tag(slicer->pools->table, request->key, &request->limit->rules[0], found.ask.tag);
    if (!ngx_http_weir_pools_lock(slicer->pools))
        return NGX_DECLINED;
    slices_spend(slicer, request, &terms, &found, &row);
    ngx_http_weir_pools_unlock(slicer->pools);
    if (found.slot)
        ngx_http_weir_peer_slot_ask(slicer->store, &found.turn);
    if (found.begins)
        call = ngx_http_weir_calls_begin(slicer, &found.ask, request);
    switch (found.spend) {
    case WEIR__SPEND_LOCAL:
    case WEIR__SPEND_DENIED:
        ngx_http_weir_pools_count(slicer->pools,
                                  row.allowed ? NGX_HTTP_WEIR_LOCAL : NGX_HTTP_WEIR_DENIED, 1);
        plan->rows[0] = plan->folded = row;
        return NGX_OK;
    case WEIR__SPEND_REFILL:
        if (call)
            return slices_may_wait(join) ? slices_wait(slicer, call, ctx, join) : NGX_DECLINED;
        ngx_http_weir_fall_back(slicer->store, WEIR_EUNREACHABLE, plan, ctx->request);
        return NGX_OK;
    case WEIR__SPEND_JOIN:
        if (slicer->waiters >= WAITERS_MAX || !slices_may_wait(join))
            return NGX_DECLINED;
        call = ngx_http_weir_calls_find(slicer, found.ask.tag, found.ask.call.serial);
        if (!call && slicer->others < CALLS_MAX)
            call = ngx_http_weir_calls_add(slicer, &found.ask, false);
        return call && !call->answer ? slices_wait(slicer, call, ctx, join) : NGX_DECLINED;
    case WEIR__SPEND_ASK:
        return NGX_DECLINED;
    }
    assert(!"every result is handled");
    return NGX_DECLINED;
}

ngx_int_t ngx_http_weir_slices_take(ngx_http_weir_ctx_t *ctx, ngx_http_weir_store_t *store,
                                    ngx_http_weir_plan_t *plan)
{
    return slices_take(store->slicer, ctx, plan, NULL);
}

/* What was waited for has come, or has failed with that code: then it asks for itself, unless Redis
 * is out of reach. */
static void slices_retry(ngx_http_weir_join_t *join, int code)
{
    ngx_http_weir_ctx_t *ctx = join->ctx;
    ngx_http_weir_store_t *store = join->store;
    ngx_http_weir_plan_t *plan = ctx->plan;
    ngx_int_t rc = NGX_DECLINED;
    assert(ctx->join == join && plan && !ctx->job);
    ctx->join = NULL;
    if (code == WEIR_EUNREACHABLE || weir__mono_us() >= join->until_us) {
        ngx_http_weir_fall_back(store, WEIR_EUNREACHABLE, plan, ctx->request);
        rc = NGX_OK;
    } else if (code == 0) {
        rc = slices_take(store->slicer, ctx, plan, join);
    }
    if (rc == NGX_DECLINED)
        rc = ngx_http_weir_ask(ctx, store, plan, join->until_us);
    if (rc == NGX_OK)
        ngx_http_weir_resume(ctx);
}

void ngx_http_weir_slices_wake(ngx_http_weir_slicer_t *slicer, ngx_queue_t *waiters, int code)
{
    while (!ngx_queue_empty(waiters)) {
        ngx_http_weir_join_t *join =
            ngx_queue_data(ngx_queue_head(waiters), ngx_http_weir_join_t, link);
        ngx_queue_remove(&join->link);
        ngx_queue_init(&join->link); /* it is in no queue */
        assert(slicer->waiters > 0);
        slicer->waiters--;
        slices_retry(join, code);
    }
}

void ngx_http_weir_slices_abandon(ngx_http_weir_join_t *join)
{
    ngx_http_weir_slicer_t *slicer = join->store->slicer;
    if (!slicer) /* the worker ends */
        return;
    ngx_queue_remove(&join->link);
    assert(slicer->waiters > 0);
    slicer->waiters--;
}

ngx_http_weir_store_t *ngx_http_weir_slices_store(const ngx_http_weir_join_t *join)
{
    return join->store;
}

/* ---- for those who ask Redis ---- */

int64_t ngx_http_weir_slices_withheld(ngx_http_weir_store_t *store, weir_key key,
                                      const struct weir__rule *rule)
{
    ngx_http_weir_pools_t *pools = store->pools;
    struct weir__slice_terms terms;
    uint64_t tag[2];
    if (!pools || !weir__slice_terms(&pools->slicing, rule, &terms))
        return 0;
    int64_t withheld = terms.withheld;
    weir__pools_tag(pools->table, key, rule, tag);
    /* Without the lock: what is written once, when the pool of that tag begins. */
    const struct weir__pool *set = weir__pools_set(pools->table, tag);
    for (size_t i = 0; i < WEIR__POOLS_WAYS; i++) {
        if (set[i].tag[0] == tag[0] && set[i].tag[1] == tag[1])
            withheld = weir__max(withheld, set[i].withheld);
    }
    return withheld;
}

void ngx_http_weir_slices_hear(ngx_http_weir_store_t *store, const ngx_http_weir_plan_t *plan)
{
    ngx_http_weir_pools_t *pools = store->pools;
    struct weir__slice_terms terms;
    if (!slices_fits(pools, plan, &terms) || !ngx_http_weir_pools_lock(pools))
        return;
    struct weir__pool *pool = ngx_http_weir_pools_of_request(pools, &plan->requests[0], 0);
    struct weir__pool_now now = ngx_http_weir_pools_now(pools, weir__boot_us());
    if (pool)
        weir__pool_hear(pool, &now, &plan->rows[0]);
    ngx_http_weir_pools_unlock(pools);
}

void ngx_http_weir_slices_forgive(ngx_http_weir_store_t *store, const weir_request *request)
{
    ngx_http_weir_pools_t *pools = store->pools;
    ngx_http_weir_denied_forget(store->denied, request->key);
    if (!pools || !ngx_http_weir_pools_lock(pools))
        return;
    for (size_t i = 0; i < request->limit->count; i++) {
        struct weir__pool *pool = ngx_http_weir_pools_of_request(pools, request, i);
        if (pool)
            weir__pool_forgive(pool);
    }
    ngx_http_weir_pools_unlock(pools);
}

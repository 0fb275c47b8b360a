/*
 * Slices in a worker: takes that the pools of this nginx (pools.c) answer without a query.
 *
 *     take ─► pool: LOCAL, DENIED ─────────────────────────────────────────────► answered
 *              ├──► REFILL: a job asks for a slice, without a request ─► Redis ─► pool
 *              ├──► JOIN: the request waits for that answer, whoever asked for it, and takes again
 *              └──► ASK: Redis is asked for the request itself
 *
 * What holds:
 *   1. A request waits by its store's deadline at most. It asks for itself if another worker's
 *      slice has not come by half of it: that worker may not run. So it does if it got nothing of
 *      some slices that came, because others were faster. A call of a worker that has died is over.
 *   2. Requests that wait for a slice of this worker are told when it comes. For those of another
 *      worker the pool is looked at each millisecond.
 *   3. A query that changes a pool knows it by its tag and its call's serial. So an answer that
 *      comes too late finds nothing to change, and its units are lost.
 */
#include "ngx_http_weir.h"

#include "base/clock.h"

#define BUCKETS 64
#define CALLS_MAX 1024   /* slices of others that requests of this worker wait for */
#define WAITERS_MAX 4096 /* requests of this worker that wait */
#define JOINS_MAX 4      /* slices that one request waits for; then it asks for itself */
#define POLL_MS 1
#define SLICES_ASK WEIR_EFULL /* what those are told who are to ask for themselves */
#define MUTE_US 10000000

/* A slice that was asked for, by this worker or by another. */
struct slices_call {
    ngx_queue_t link; /* in its bucket */
    ngx_queue_t waiters;
    struct weir__slice_ask ask;
    int64_t patience_us;         /* another worker's: until then it is waited for */
    ngx_http_weir_job_t *answer; /* of our own that Redis has answered; the lock was not free yet */
    bool own;
};

struct ngx_http_weir_join_s {
    ngx_queue_t link; /* among a call's waiters */
    ngx_http_weir_ctx_t *ctx;
    ngx_http_weir_store_t *store;
    int64_t until_us; /* monotonic: then it has waited long enough */
    unsigned joins;   /* the slices that it has waited for */
};

struct ngx_http_weir_slicer_s {
    ngx_http_weir_store_t *store;
    ngx_http_weir_pools_t *pools;
    ngx_queue_t calls[BUCKETS];
    ngx_uint_t others;  /* calls of other workers */
    ngx_uint_t waiters; /* of all calls */
    ngx_event_t poll, tick;
};

/* ---- calls ---- */

static ngx_queue_t *calls_bucket(ngx_http_weir_slicer_t *slicer, const uint64_t tag[2])
{
    return &slicer->calls[tag[0] % BUCKETS];
}

static struct slices_call *calls_find(ngx_http_weir_slicer_t *slicer, const uint64_t tag[2],
                                      uint32_t serial)
{
    ngx_queue_t *bucket = calls_bucket(slicer, tag);
    for (ngx_queue_t *it = ngx_queue_head(bucket); it != bucket; it = ngx_queue_next(it)) {
        struct slices_call *call = ngx_queue_data(it, struct slices_call, link);
        const struct weir__slice_ask *ask = &call->ask;
        if (ask->tag[0] == tag[0] && ask->tag[1] == tag[1] && ask->call.serial == serial)
            return call;
    }
    return NULL;
}

static struct slices_call *calls_add(ngx_http_weir_slicer_t *slicer,
                                     const struct weir__slice_ask *ask, bool own)
{
    struct slices_call *call = malloc(sizeof *call);
    if (!call)
        return NULL;
    *call =
        (struct slices_call){.ask = *ask,
                             .own = own,
                             .patience_us = weir__boot_us() + slicer->store->url.deadline_us / 2};
    ngx_queue_init(&call->waiters);
    ngx_queue_insert_tail(calls_bucket(slicer, ask->tag), &call->link);
    slicer->others += !own;
    return call;
}

/* Moves a call's waiters to `ret`. */
static void calls_release(struct slices_call *call, ngx_queue_t *ret)
{
    ngx_queue_init(ret);
    if (!ngx_queue_empty(&call->waiters)) {
        ngx_queue_add(ret, &call->waiters);
    }
    ngx_queue_init(&call->waiters);
}

/* Takes a call out, too. */
static void calls_remove(ngx_http_weir_slicer_t *slicer, struct slices_call *call, ngx_queue_t *ret)
{
    calls_release(call, ret);
    ngx_queue_remove(&call->link);
    assert(call->own || slicer->others > 0);
    slicer->others -= !call->own;
    free(call);
}

static void slices_lose(ngx_http_weir_slicer_t *slicer, const struct weir__slice_ask *ask)
{
    if (!ngx_http_weir_pools_lock(slicer->pools))
        return; /* it is over by its deadline */
    struct weir__pool *pool = ngx_http_weir_pools_find(slicer->pools, ask->tag);
    if (pool)
        weir__pool_lose(pool, &ask->call);
    ngx_http_weir_pools_unlock(slicer->pools);
}

/* ---- answers to calls ---- */

/* Under the lock. Puts what Redis said into the pool; false: nothing was put. */
static bool slices_put(ngx_http_weir_pools_t *pools, const struct weir__slice_ask *ask,
                       const struct weir__job *said)
{
    struct weir__pool *pool = ngx_http_weir_pools_find(pools, ask->tag);
    struct weir__pool_now now = ngx_http_weir_pools_now(pools, weir__boot_us());
    if (pool && said->code == 0)
        return weir__pool_answer(pool, &now, &ask->call, said->ret);
    if (pool)
        weir__pool_lose(pool, &ask->call);
    return false;
}

/* A server that refuses slices is older than LEAST: it is asked for each request, and for a slice
 * again after a while. */
static void slices_mute(ngx_http_weir_store_t *store, const struct weir__job *job)
{
    ngx_http_weir_pools_memory_t *memory = store->pools->memory;
    int64_t now_us = weir__boot_us();
    if (!strstr(job->error, "LEAST") || now_us < memory->mute_us)
        return;
    memory->mute_us = now_us + MUTE_US;
    ngx_http_weir_slices_tell(store, WEIR__TROUBLE_LEAST, "");
}

/* Redis has granted or denied one. */
static void slices_unmute(ngx_http_weir_store_t *store)
{
    ngx_http_weir_pools_memory_t *memory = store->pools->memory;
    if (memory->mute_us)
        memory->mute_us = 0;
    ngx_http_weir_slices_tell(store, WEIR__TROUBLE_NONE, "");
}

static void slices_retry(ngx_http_weir_join_t *join, int code);

static void slices_tell(ngx_http_weir_slicer_t *slicer, ngx_queue_t *waiters, int code)
{
    while (!ngx_queue_empty(waiters)) {
        ngx_http_weir_join_t *join =
            ngx_queue_data(ngx_queue_head(waiters), ngx_http_weir_join_t, link);
        ngx_queue_remove(&join->link);
        assert(slicer->waiters > 0);
        slicer->waiters--;
        slices_retry(join, code);
    }
}

/* The end of a call that was answered. False: not yet. A slice waits for the lock as long as it can
 * be spent. */
static bool slices_finish(ngx_http_weir_slicer_t *slicer, struct slices_call *call)
{
    ngx_http_weir_job_t *job = call->answer;
    ngx_http_weir_pools_t *pools = slicer->pools;
    int code = job->job.code;
    int64_t granted = code == 0 && job->job.ret->allowed ? job->job.ret->granted : 0;
    bool locked = ngx_http_weir_pools_lock(pools), put = false;
    ngx_queue_t waiters;
    if (!locked && code == 0 && weir__boot_us() < call->ask.call.end_us)
        return false;
    if (locked) {
        put = slices_put(pools, &call->ask, &job->job);
        ngx_http_weir_pools_unlock(pools);
    }
    if (code == 0)
        slices_unmute(slicer->store);
    else if (code != WEIR_EUNREACHABLE)
        slices_mute(slicer->store, &job->job);
    ngx_http_weir_pools_count(pools, NGX_HTTP_WEIR_SLICES_TAKEN, granted > 0);
    ngx_http_weir_pools_count(pools, NGX_HTTP_WEIR_UNITS_TAKEN, granted);
    ngx_http_weir_pools_count(pools, NGX_HTTP_WEIR_UNITS_LOST, put ? 0 : granted);
    calls_remove(slicer, call, &waiters);
    ngx_http_weir_job_end(job);
    slices_tell(slicer, &waiters, code);
    return true;
}

static void slices_answered(ngx_http_weir_job_t *job)
{
    ngx_http_weir_slicer_t *slicer = job->store->slicer;
    struct slices_call *call = job->data;
    ngx_queue_t waiters;
    call->answer = job;
    if (slices_finish(slicer, call))
        return;
    if (!slicer->poll.timer_set)
        ngx_add_timer(&slicer->poll, POLL_MS);
    calls_release(call, &waiters);
    slices_tell(slicer, &waiters, SLICES_ASK);
}

/* One of our own calls that was answered; NULL: there is none. */
static struct slices_call *slices_unfinished(ngx_http_weir_slicer_t *slicer)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        ngx_queue_t *bucket = &slicer->calls[i];
        for (ngx_queue_t *it = ngx_queue_head(bucket); it != bucket; it = ngx_queue_next(it)) {
            struct slices_call *call = ngx_queue_data(it, struct slices_call, link);
            if (call->answer)
                return call;
        }
    }
    return NULL;
}

/* Asks for a slice, which is begun in the pool. NULL: that is not possible, and it is lost. */
static struct slices_call *slices_refill(ngx_http_weir_slicer_t *slicer,
                                         const struct weir__slice_ask *ask, const weir_request *of)
{
    weir_request request = weir__slice_request(ask, of->key, of->limit);
    ngx_http_weir_job_t *job = ngx_http_weir_job_make(slicer->store, WEIR__VERB_TAKE, &request, 1);
    struct slices_call *call = job ? calls_add(slicer, ask, true) : NULL;
    if (call) {
        job->data = call;
        job->done = slices_answered;
        if (ngx_http_weir_job_send(job) == NGX_OK)
            return call;
    }
    ngx_queue_t none;
    if (call)
        calls_remove(slicer, call, &none);
    if (job)
        ngx_http_weir_job_free(job);
    slices_lose(slicer, ask);
    return NULL;
}

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

/* Under the lock. */
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
    if (now.now_us < pools->memory->mute_us)
        now.slot_us = 0;
    if (pool && found->again)
        slices_uncount(pool, request->cost);
    if (pool)
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
    if (pool && !has_slot)
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
static ngx_int_t slices_wait(ngx_http_weir_slicer_t *slicer, struct slices_call *call,
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
    if (!call->own && !slicer->poll.timer_set)
        ngx_add_timer(&slicer->poll, POLL_MS);
    return NGX_AGAIN;
}

/* As ngx_http_weir_slices_take; `join` NULL: it has not waited yet. */
static ngx_int_t slices_take(ngx_http_weir_slicer_t *slicer, ngx_http_weir_ctx_t *ctx,
                             ngx_http_weir_plan_t *plan, ngx_http_weir_join_t *join)
{
    const weir_request *request = &plan->requests[0];
    struct slices_found found = {.spend = WEIR__SPEND_ASK, .again = join != NULL};
    struct slices_call *call = NULL;
    struct weir__slice_terms terms;
    weir_decision row;
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
        call = slices_refill(slicer, &found.ask, request);
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
        call = calls_find(slicer, found.ask.tag, found.ask.call.serial);
        if (!call && slicer->others < CALLS_MAX)
            call = calls_add(slicer, &found.ask, false);
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

/* ---- calls of other workers ---- */

/* Which workers have died, as far as one look has asked: many calls are of few workers. */
struct slices_dead {
    struct {
        ngx_pid_t pid;
        bool dead;
    } known[8];
};

static bool slices_has_died(struct slices_dead *dead, ngx_pid_t pid)
{
    size_t i = (size_t)pid % WEIR__COUNT(dead->known);
    if (dead->known[i].pid != pid) {
        dead->known[i].pid = pid;
        dead->known[i].dead = kill(pid, 0) != 0 && ngx_errno == NGX_ESRCH;
    }
    return dead->known[i].dead;
}

/* Under the lock. What Redis grants to the dead is lost: another call may begin. */
static bool slices_is_over(ngx_http_weir_pools_t *pools, const struct slices_call *call,
                           int64_t now_us, struct slices_dead *dead)
{
    struct weir__pool *pool = ngx_http_weir_pools_find(pools, call->ask.tag);
    if (!pool || pool->asked == 0 || pool->serial != call->ask.call.serial ||
        now_us >= pool->asked_until_us)
        return true;
    if (!slices_has_died(dead, pool->asker))
        return false;
    weir__pool_lose(pool, &call->ask.call);
    return true;
}

/* Those that are over are taken out, and those that nobody waits for any more. Their waiters go to
 * `over`, or to `late` if it was waited for long enough. */
static void slices_look(ngx_http_weir_slicer_t *slicer, ngx_queue_t *over, ngx_queue_t *late)
{
    bool locked = ngx_http_weir_pools_lock(slicer->pools);
    int64_t now_us = weir__boot_us();
    struct slices_dead dead = {0};
    ngx_queue_t some;
    for (size_t i = 0; i < BUCKETS; i++) {
        ngx_queue_t *bucket = &slicer->calls[i], *next;
        for (ngx_queue_t *it = ngx_queue_head(bucket); it != bucket; it = next) {
            struct slices_call *call = ngx_queue_data(it, struct slices_call, link);
            next = ngx_queue_next(it);
            bool is_late = now_us >= call->patience_us || ngx_queue_empty(&call->waiters);
            if (call->own ||
                !(is_late || (locked && slices_is_over(slicer->pools, call, now_us, &dead))))
                continue;
            calls_remove(slicer, call, &some);
            if (!ngx_queue_empty(&some)) {
                ngx_queue_add(is_late ? late : over, &some);
            }
        }
    }
    if (locked)
        ngx_http_weir_pools_unlock(slicer->pools);
}

static void slices_poll(ngx_event_t *event)
{
    ngx_http_weir_slicer_t *slicer = event->data;
    ngx_queue_t over, late;
    struct slices_call *call;
    ngx_queue_init(&over);
    ngx_queue_init(&late);
    while ((call = slices_unfinished(slicer)) && slices_finish(slicer, call))
        ;
    slices_look(slicer, &over, &late);
    if ((slicer->others > 0 || call) && !event->timer_set)
        ngx_add_timer(event, POLL_MS);
    slices_tell(slicer, &over, 0);
    slices_tell(slicer, &late, SLICES_ASK);
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

/* ---- its life ---- */

ngx_http_weir_slicer_t *ngx_http_weir_slicer_make(ngx_http_weir_store_t *store)
{
    ngx_http_weir_slicer_t *slicer = calloc(1, sizeof *slicer);
    if (!slicer)
        return NULL;
    slicer->store = store;
    slicer->pools = store->pools;
    for (size_t i = 0; i < BUCKETS; i++) {
        ngx_queue_init(&slicer->calls[i]);
    }
    slicer->poll = (ngx_event_t){.handler = slices_poll, .data = slicer, .log = ngx_cycle->log};
    slicer->tick = (ngx_event_t){.handler = ngx_http_weir_slices_tick,
                                 .data = store,
                                 .log = ngx_cycle->log,
                                 .cancelable = 1};
    ngx_add_timer(&slicer->tick, 1);
    return slicer;
}

void ngx_http_weir_slicer_free(ngx_http_weir_slicer_t *slicer)
{
    ngx_queue_t none;
    if (slicer->poll.timer_set)
        ngx_del_timer(&slicer->poll);
    if (slicer->tick.timer_set)
        ngx_del_timer(&slicer->tick);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (!ngx_queue_empty(&slicer->calls[i])) {
            struct slices_call *call =
                ngx_queue_data(ngx_queue_head(&slicer->calls[i]), struct slices_call, link);
            if (call->answer)
                ngx_http_weir_job_free(call->answer);
            calls_remove(slicer, call, &none);
        }
    }
    free(slicer);
}

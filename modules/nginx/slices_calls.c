/*
 * Calls for slices, of this worker and of others: who waits for them, and what their answers
 * change.
 *
 * What holds:
 *   1. Requests that wait for a slice of this worker are told when it comes. For those of another
 *      worker the pool is looked at each millisecond. A call of a worker that has died is over.
 *   2. A query that changes a pool knows it by its tag and its call's serial. So an answer that
 *      comes too late finds nothing to change, and its units are lost.
 */
#include "ngx_http_weir.h"

#include "base/clock.h"

#include <signal.h>

#define POLL_MS 1
#define MUTE_US 10000000
#define SLICES_ASK WEIR_EFULL /* what those are told who are to ask for themselves */

/* ---- calls ---- */

static ngx_queue_t *calls_bucket(ngx_http_weir_slicer_t *slicer, const uint64_t tag[2])
{
    return &slicer->calls[tag[0] % NGX_HTTP_WEIR_CALL_BUCKETS];
}

ngx_http_weir_call_t *ngx_http_weir_calls_find(ngx_http_weir_slicer_t *slicer,
                                               const uint64_t tag[2], uint32_t serial)
{
    ngx_queue_t *bucket = calls_bucket(slicer, tag);
    for (ngx_queue_t *it = ngx_queue_head(bucket); it != bucket; it = ngx_queue_next(it)) {
        ngx_http_weir_call_t *call = ngx_queue_data(it, ngx_http_weir_call_t, link);
        const struct weir__slice_ask *ask = &call->ask;
        if (ask->tag[0] == tag[0] && ask->tag[1] == tag[1] && ask->call.serial == serial)
            return call;
    }
    return NULL;
}

ngx_http_weir_call_t *ngx_http_weir_calls_add(ngx_http_weir_slicer_t *slicer,
                                              const struct weir__slice_ask *ask, bool own)
{
    ngx_http_weir_call_t *call = malloc(sizeof *call);
    if (!call)
        return NULL;
    *call =
        (ngx_http_weir_call_t){.ask = *ask,
                               .own = own,
                               .patience_us = weir__boot_us() + slicer->store->url.deadline_us / 2};
    ngx_queue_init(&call->waiters);
    ngx_queue_insert_tail(calls_bucket(slicer, ask->tag), &call->link);
    slicer->others += !own;
    return call;
}

/* Moves a call's waiters to `ret`. */
static void calls_release(ngx_http_weir_call_t *call, ngx_queue_t *ret)
{
    ngx_queue_init(ret);
    if (!ngx_queue_empty(&call->waiters)) {
        ngx_queue_add(ret, &call->waiters);
    }
    ngx_queue_init(&call->waiters);
}

/* Takes a call out, too. */
static void calls_remove(ngx_http_weir_slicer_t *slicer, ngx_http_weir_call_t *call,
                         ngx_queue_t *ret)
{
    calls_release(call, ret);
    ngx_queue_remove(&call->link);
    assert(call->own || slicer->others > 0);
    slicer->others -= !call->own;
    free(call);
}

static void calls_lose(ngx_http_weir_slicer_t *slicer, const struct weir__slice_ask *ask)
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
static bool calls_put(ngx_http_weir_pools_t *pools, const struct weir__slice_ask *ask,
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
static void calls_mute(ngx_http_weir_store_t *store, const struct weir__job *job)
{
    ngx_http_weir_pools_memory_t *memory = store->pools->memory;
    int64_t now_us = weir__boot_us();
    if (!strstr(job->error, "LEAST") || now_us < memory->mute_us)
        return;
    memory->mute_us = now_us + MUTE_US;
    ngx_http_weir_slices_tell(store, WEIR__TROUBLE_LEAST, "");
}

/* Redis has granted or denied one. */
static void calls_unmute(ngx_http_weir_store_t *store)
{
    ngx_http_weir_pools_memory_t *memory = store->pools->memory;
    if (memory->mute_us)
        memory->mute_us = 0;
    ngx_http_weir_slices_tell(store, WEIR__TROUBLE_NONE, "");
}

/* The end of a call that was answered. False: not yet. A slice waits for the lock as long as it can
 * be spent. */
static bool calls_finish(ngx_http_weir_slicer_t *slicer, ngx_http_weir_call_t *call)
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
        put = calls_put(pools, &call->ask, &job->job);
        ngx_http_weir_pools_unlock(pools);
    }
    if (code == 0)
        calls_unmute(slicer->store);
    else if (code != WEIR_EUNREACHABLE)
        calls_mute(slicer->store, &job->job);
    ngx_http_weir_pools_count(pools, NGX_HTTP_WEIR_SLICES_TAKEN, granted > 0);
    ngx_http_weir_pools_count(pools, NGX_HTTP_WEIR_UNITS_TAKEN, granted);
    ngx_http_weir_pools_count(pools, NGX_HTTP_WEIR_UNITS_LOST, put ? 0 : granted);
    calls_remove(slicer, call, &waiters);
    ngx_http_weir_job_end(job);
    ngx_http_weir_slices_wake(slicer, &waiters, code);
    return true;
}

static void calls_answered(ngx_http_weir_job_t *job)
{
    ngx_http_weir_slicer_t *slicer = job->store->slicer;
    ngx_http_weir_call_t *call = job->data;
    ngx_queue_t waiters;
    call->answer = job;
    if (calls_finish(slicer, call))
        return;
    ngx_http_weir_calls_poll(slicer);
    calls_release(call, &waiters);
    ngx_http_weir_slices_wake(slicer, &waiters, SLICES_ASK);
}

/* One of our own calls that was answered; NULL: there is none. */
static ngx_http_weir_call_t *calls_unfinished(ngx_http_weir_slicer_t *slicer)
{
    for (size_t i = 0; i < NGX_HTTP_WEIR_CALL_BUCKETS; i++) {
        ngx_queue_t *bucket = &slicer->calls[i];
        for (ngx_queue_t *it = ngx_queue_head(bucket); it != bucket; it = ngx_queue_next(it)) {
            ngx_http_weir_call_t *call = ngx_queue_data(it, ngx_http_weir_call_t, link);
            if (call->answer)
                return call;
        }
    }
    return NULL;
}

/* Asks for a slice, which is begun in the pool. NULL: that is not possible, and it is lost. */
ngx_http_weir_call_t *ngx_http_weir_calls_begin(ngx_http_weir_slicer_t *slicer,
                                                const struct weir__slice_ask *ask,
                                                const weir_request *of)
{
    weir_request request = weir__slice_request(ask, of->key, of->limit);
    ngx_http_weir_job_t *job = ngx_http_weir_job_make(slicer->store, WEIR__VERB_TAKE, &request, 1);
    ngx_http_weir_call_t *call = job ? ngx_http_weir_calls_add(slicer, ask, true) : NULL;
    if (call) {
        job->data = call;
        job->done = calls_answered;
        if (ngx_http_weir_job_send(job) == NGX_OK)
            return call;
    }
    ngx_queue_t none;
    if (call)
        calls_remove(slicer, call, &none);
    if (job)
        ngx_http_weir_job_free(job);
    calls_lose(slicer, ask);
    return NULL;
}

/* ---- calls of other workers ---- */

/* Which workers have died, as far as one look has asked: many calls are of few workers. */
struct calls_dead {
    struct {
        ngx_pid_t pid;
        bool dead;
    } known[8];
};

static bool calls_has_died(struct calls_dead *dead, ngx_pid_t pid)
{
    size_t i = (size_t)pid % WEIR__COUNT(dead->known);
    if (dead->known[i].pid != pid) {
        dead->known[i].pid = pid;
        dead->known[i].dead = kill(pid, 0) != 0 && ngx_errno == NGX_ESRCH;
    }
    return dead->known[i].dead;
}

/* Under the lock. What Redis grants to the dead is lost: another call may begin. */
static bool calls_is_over(ngx_http_weir_pools_t *pools, const ngx_http_weir_call_t *call,
                          int64_t now_us, struct calls_dead *dead)
{
    struct weir__pool *pool = ngx_http_weir_pools_find(pools, call->ask.tag);
    if (!pool || pool->asked == 0 || pool->serial != call->ask.call.serial ||
        now_us >= pool->asked_until_us)
        return true;
    if (!calls_has_died(dead, pool->asker))
        return false;
    weir__pool_lose(pool, &call->ask.call);
    return true;
}

/* Those that are over are taken out, and those that nobody waits for any more. Their waiters go to
 * `over`, or to `late` if it was waited for long enough. */
static void calls_look(ngx_http_weir_slicer_t *slicer, ngx_queue_t *over, ngx_queue_t *late)
{
    bool locked = ngx_http_weir_pools_lock(slicer->pools);
    int64_t now_us = weir__boot_us();
    struct calls_dead dead = {0};
    ngx_queue_t some;
    for (size_t i = 0; i < NGX_HTTP_WEIR_CALL_BUCKETS; i++) {
        ngx_queue_t *bucket = &slicer->calls[i], *next;
        for (ngx_queue_t *it = ngx_queue_head(bucket); it != bucket; it = next) {
            ngx_http_weir_call_t *call = ngx_queue_data(it, ngx_http_weir_call_t, link);
            next = ngx_queue_next(it);
            bool is_late = now_us >= call->patience_us || ngx_queue_empty(&call->waiters);
            if (call->own ||
                !(is_late || (locked && calls_is_over(slicer->pools, call, now_us, &dead))))
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

void ngx_http_weir_calls_poll(ngx_http_weir_slicer_t *slicer)
{
    if (!slicer->poll.timer_set)
        ngx_add_timer(&slicer->poll, POLL_MS);
}

static void calls_poll(ngx_event_t *event)
{
    ngx_http_weir_slicer_t *slicer = event->data;
    ngx_queue_t over, late;
    ngx_http_weir_call_t *call;
    ngx_queue_init(&over);
    ngx_queue_init(&late);
    while ((call = calls_unfinished(slicer)) && calls_finish(slicer, call))
        ;
    calls_look(slicer, &over, &late);
    if (slicer->others > 0 || call)
        ngx_http_weir_calls_poll(slicer);
    ngx_http_weir_slices_wake(slicer, &over, 0);
    ngx_http_weir_slices_wake(slicer, &late, SLICES_ASK);
}

/* ---- its life ---- */

ngx_http_weir_slicer_t *ngx_http_weir_slicer_make(ngx_http_weir_store_t *store)
{
    ngx_http_weir_slicer_t *slicer = calloc(1, sizeof *slicer);
    if (!slicer)
        return NULL;
    slicer->store = store;
    slicer->pools = store->pools;
    for (size_t i = 0; i < NGX_HTTP_WEIR_CALL_BUCKETS; i++) {
        ngx_queue_init(&slicer->calls[i]);
    }
    slicer->poll = (ngx_event_t){.handler = calls_poll, .data = slicer, .log = ngx_cycle->log};
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
    for (size_t i = 0; i < NGX_HTTP_WEIR_CALL_BUCKETS; i++) {
        ngx_queue_t *bucket = &slicer->calls[i], *next;
        for (ngx_queue_t *it = ngx_queue_head(bucket); it != bucket; it = next) {
            ngx_http_weir_call_t *call = ngx_queue_data(it, ngx_http_weir_call_t, link);
            next = ngx_queue_next(it);
            if (call->answer)
                ngx_http_weir_job_free(call->answer);
            calls_remove(slicer, call, &none);
        }
    }
    free(slicer);
}

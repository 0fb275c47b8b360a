/*
 * Questions about one key, in order: what gives something back comes before what asks next.
 *
 * Redis is asked by several threads, and a question may have to be put twice (a script that must be
 * loaded first, a slot of a cluster that has moved). So a release and the next acquire of the same key
 * could overtake each other, and a client would be refused because of its own slot. Therefore a question
 * waits here while something of one of its keys is being given back. Questions that give nothing back do
 * not wait for each other, and other keys are not touched.
 *
 *     bucket ─► give (newest) ─► give ─► … (oldest)      every give with the questions behind it:
 *                 └─ waiters      └─ waiters              they wait for it and for all older ones
 *
 * What holds:
 *   1. All of it belongs to the worker's own thread.
 *   2. A give has one key. A question hangs on the newest give of each of its keys. Where that is done
 *      before an older one, the question moves on to the older one.
 *   3. A job that waits is on no other list, and is not asked.
 */
#include "ngx_http_weir.h"

#include "base/hash.h"
#include "base/random.h"

ngx_int_t ngx_http_weir_order_init(ngx_http_weir_order_t *order)
{
    for (size_t i = 0; i < NGX_HTTP_WEIR_ORDER_BUCKETS; i++) {
        ngx_queue_init(&order->buckets[i]);
    }
    return weir__random_bytes(order->secret, sizeof order->secret) ? NGX_ERROR : NGX_OK;
}

static weir_key order_key(const ngx_http_weir_turn_t *turn)
{
    const ngx_http_weir_job_t *job = turn->job;
    return job->job.requests[turn - job->turns].key;
}

static ngx_queue_t *order_bucket(ngx_http_weir_order_t *order, const ngx_http_weir_turn_t *turn)
{
    return &order->buckets[turn->hash % NGX_HTTP_WEIR_ORDER_BUCKETS];
}

static void order_hash(const ngx_http_weir_order_t *order, ngx_http_weir_turn_t *turn)
{
    weir_key key = order_key(turn);
    uint64_t hash[2];
    weir__hash(order->secret, key.data, key.len, hash);
    turn->hash = hash[0];
}

/* The next give of that key, from behind `it` on, older and older; NULL: there is none. */
static ngx_http_weir_turn_t *order_find(ngx_queue_t *bucket, ngx_queue_t *it,
                                        const ngx_http_weir_turn_t *wanted)
{
    weir_key key = order_key(wanted);
    for (it = ngx_queue_next(it); it != bucket; it = ngx_queue_next(it)) {
        ngx_http_weir_turn_t *give = ngx_queue_data(it, ngx_http_weir_turn_t, link);
        weir_key other = order_key(give);
        if (give->hash == wanted->hash && key.len == other.len &&
            !ngx_memcmp(key.data, other.data, key.len))
            return give;
    }
    return NULL;
}

void ngx_http_weir_order_give(ngx_http_weir_order_t *order, ngx_http_weir_job_t *job)
{
    ngx_http_weir_turn_t *turn = &job->turns[0];
    assert(job->job.count == 1 && job->blocked == 0);
    if (job->gives)
        return;
    job->gives = 1;
    order->gives++;
    order_hash(order, turn);
    ngx_queue_init(&turn->waiters);
    ngx_queue_insert_head(order_bucket(order, turn), &turn->link);
}

bool ngx_http_weir_order_wait(ngx_http_weir_order_t *order, ngx_http_weir_job_t *job)
{
    assert(!job->gives && job->blocked == 0);
    for (size_t i = 0; i < job->job.count && order->gives > 0; i++) {
        ngx_http_weir_turn_t *turn = &job->turns[i];
        order_hash(order, turn);
        ngx_queue_t *bucket = order_bucket(order, turn);
        ngx_http_weir_turn_t *give = order_find(bucket, bucket, turn);
        turn->waits = give != NULL;
        if (!give)
            continue;
        ngx_queue_insert_tail(&give->waiters, &turn->link);
        job->blocked++;
    }
    return job->blocked > 0;
}

void ngx_http_weir_order_cancel(ngx_http_weir_job_t *job)
{
    for (size_t i = 0; i < job->job.count && job->blocked > 0; i++) {
        if (!job->turns[i].waits)
            continue;
        ngx_queue_remove(&job->turns[i].link);
        job->turns[i].waits = 0;
        job->blocked--;
    }
}

void ngx_http_weir_order_done(ngx_http_weir_order_t *order, ngx_http_weir_job_t *job,
                              ngx_http_weir_jobs_t *ret)
{
    ngx_http_weir_turn_t *turn = &job->turns[0];
    assert(job->gives && order->gives > 0);
    ngx_http_weir_turn_t *older = order_find(order_bucket(order, turn), &turn->link, turn);
    job->gives = 0;
    order->gives--;
    ngx_queue_remove(&turn->link);
    if (ngx_queue_empty(&turn->waiters))
        return;
    if (older) {
        ngx_queue_add(&older->waiters, &turn->waiters);
        return;
    }
    for (ngx_queue_t *it = ngx_queue_head(&turn->waiters); it != &turn->waiters;) {
        ngx_http_weir_turn_t *waiter = ngx_queue_data(it, ngx_http_weir_turn_t, link);
        it = ngx_queue_next(it);
        waiter->waits = 0;
        if (--waiter->job->blocked == 0)
            ngx_http_weir_jobs_put(ret, waiter->job);
    }
    ngx_queue_init(&turn->waiters);
}

/*
 * Queries to Redis as memory of their own, lists of them, and the order of those that have a key in
 * common: what gives something back comes before the next query.
 *
 * Redis is queried by several threads, and a query may have to be sent twice (a script that must be
 * loaded first, a slot of a cluster that has moved). So a release and the next acquire of the same
 * key could overtake each other, and a client would be rejected because of its own slot. Therefore
 * a job waits here while something of one of its keys is being given back. Jobs that give nothing
 * back do not wait for each other, and jobs of other keys are not affected.
 *
 *     bucket ─► give (newest) ─► give ─► … (oldest)      every give with the jobs behind it:
 *                 └─ waiters      └─ waiters              they wait for it and for all older ones
 *
 * What holds:
 *   1. All of it belongs to the worker's own thread.
 *   2. A give has one key. A job waits for the newest give of each of its keys. If that one is done
 *      before an older one, the job waits for the older one from then on.
 *   3. A job that waits is on no other list, and is not sent.
 */
#include "ngx_http_weir.h"

#include "base/hash.h"
#include "base/random.h"

/* ---- jobs ---- */

static size_t job_align(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

ngx_http_weir_job_t *ngx_http_weir_job_make(ngx_http_weir_store_t *store, enum weir__verb verb,
                                            const weir_request *requests, ngx_uint_t n)
{
    size_t limits = 0, keys = 0;
    for (ngx_uint_t i = 0; i < n; i++) {
        limits += requests[i].limit->count;
        keys += requests[i].key.len;
    }
    size_t at_requests = job_align(sizeof(ngx_http_weir_job_t));
    size_t at_turns = job_align(at_requests + n * sizeof *requests);
    size_t at_rows = job_align(at_turns + n * sizeof(ngx_http_weir_turn_t));
    size_t at_keys = at_rows + (1 + limits) * sizeof(weir_decision);
    char *block = malloc(at_keys + keys), *key_room = block + at_keys;
    if (!block)
        return NULL;
    ngx_http_weir_job_t *job = (ngx_http_weir_job_t *)block;
    weir_decision *rows = (weir_decision *)(block + at_rows) + 1;
    ngx_memzero(job, sizeof *job);
    job->store = store;
    job->turns = (ngx_http_weir_turn_t *)(block + at_turns);
    job->job = (struct weir__job){.verb = verb,
                                  .requests = (weir_request *)(block + at_requests),
                                  .count = n,
                                  .time_us = -1,
                                  .ret = rows - 1,
                                  .rows = rows};
    job->decides = weir__verb_decides(verb);
    bool withholds = store->pools && job->decides;
    size_t row = 0;
    assert(limits <= WEIR_LIMITS_MAX);
    for (ngx_uint_t i = 0; i < n; i++) {
        weir_request *request = &job->job.requests[i];
        weir_key key = requests[i].key;
        for (size_t j = 0; j < requests[i].limit->count && withholds; j++)
            job->job.withheld[row++] =
                ngx_http_weir_slices_withheld(store, key, &requests[i].limit->rules[j]);
        *request = requests[i];
        request->key = weir_key_bytes(memcpy(key_room, key.data, key.len), key.len);
        request->limit = weir__limit_ref(requests[i].limit);
        request->detail = rows;
        job->turns[i] = (ngx_http_weir_turn_t){.job = job};
        key_room += key.len;
        rows += request->limit->count;
    }
    return job;
}

void ngx_http_weir_job_free(ngx_http_weir_job_t *job)
{
    assert(!job->gives && job->blocked == 0);
    for (size_t i = 0; i < job->job.count; i++)
        weir_limit_free((weir_limit *)job->job.requests[i].limit);
    free(job);
}

void ngx_http_weir_jobs_put(ngx_http_weir_jobs_t *jobs, ngx_http_weir_job_t *job)
{
    assert(!jobs->first == !jobs->last && job->blocked == 0);
    job->next = NULL;
    if (jobs->last)
        jobs->last->next = job;
    else
        jobs->first = job;
    jobs->last = job;
}

ngx_http_weir_job_t *ngx_http_weir_jobs_take(ngx_http_weir_jobs_t *jobs)
{
    ngx_http_weir_job_t *job = jobs->first;
    if (job)
        jobs->first = job->next;
    if (!jobs->first)
        jobs->last = NULL;
    return job;
}

/* ---- their order ---- */

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

/* The next older give of that key, after `it`; NULL: there is none. */
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

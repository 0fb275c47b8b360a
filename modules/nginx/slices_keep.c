/*
 * What slices need besides requests: the slot among the peers is kept, and units that nobody needs
 * are given back.
 *
 *     tick, of every worker ─► one of them renews the slot
 *                           └► one of them takes out what is over or cold ─► Redis
 *     the last worker ends ─► everything that is held, and then the slot
 *
 * What holds:
 *   1. Units leave their pool before they are given back, and that is sent once, at once or never.
 *      They count as held until Redis has answered.
 *   2. The slot is held once for all workers. What it allows ends before its lease does.
 *   3. The slot is given back after the units, and only if Redis has answered for all of them.
 */
#include "ngx_http_weir.h"

#include "base/clock.h"

#define SWEEP_SETS 64 /* under one lock */
#define TICK_MIN_MS 10

/* ---- jobs ---- */

static ngx_http_weir_job_t *keep_job(ngx_http_weir_store_t *store, enum weir__verb verb,
                                     const weir_request *request)
{
    ngx_http_weir_job_t *job = ngx_http_weir_job_make(store, verb, request, 1);
    if (!job)
        return NULL;
    job->sent_us = weir__boot_us();
    job->decides = 0; /* for no request */
    return job;
}

/* Redis has what it was given, or it said why not. If it did not answer, it may still have it. */
static void keep_returned(ngx_http_weir_job_t *job)
{
    ngx_http_weir_pools_t *pools = job->store->pools;
    const weir_request *request = &job->job.requests[0];
    const struct weir__pool_return back = {.left = job->job.correction.charged};
    bool done = job->job.code == 0;
    ngx_http_weir_pools_count(pools, done ? NGX_HTTP_WEIR_UNITS_RETURNED : NGX_HTTP_WEIR_UNITS_LOST,
                              back.left);
    ngx_http_weir_pools_count(pools, NGX_HTTP_WEIR_SLICES_RETURNED, done);
    if (job->job.code != WEIR_EUNREACHABLE && ngx_http_weir_pools_lock(pools)) {
        struct weir__pool *pool = ngx_http_weir_pools_of_request(pools, request, 0);
        if (pool)
            weir__pool_gave_back(pool, &back);
        ngx_http_weir_pools_unlock(pools);
    }
    ngx_http_weir_slices_forgive(job->store, request);
    ngx_http_weir_job_end(job);
}

/* The job that gives units back which were charged then; NULL: no memory. */
static ngx_http_weir_job_t *keep_return_job(ngx_http_weir_store_t *store, weir_key key,
                                            const weir_limit *limit,
                                            const struct weir__pool_return *back)
{
    weir_request request = weir_request_make(key, limit);
    ngx_http_weir_job_t *job = keep_job(store, WEIR__VERB_SETTLE, &request);
    if (!job)
        return NULL;
    job->job.correction =
        (struct weir__correction){.charged_at_us = back->time_us, .charged = back->left};
    job->by_us = weir__mono_us() + WEIR__POOL_DOUBT_US / 2;
    job->done = keep_returned;
    return job;
}

static void keep_give(ngx_http_weir_store_t *store, ngx_http_weir_job_t *job, int64_t units)
{
    if (job && ngx_http_weir_job_send(job) == NGX_OK)
        return;
    if (job)
        ngx_http_weir_job_free(job);
    ngx_http_weir_pools_count(store->pools, NGX_HTTP_WEIR_UNITS_LOST, units);
}

/* ---- the slot ---- */

/* How long an answer about the slot is waited for: no longer than until it is asked for again. If
 * the answer is lost, because another worker had the lock, little time is. */
static int64_t slot_patience_us(const ngx_http_weir_store_t *store)
{
    return weir__min(store->url.deadline_us, WEIR__SLOT_RETRY_US);
}

bool ngx_http_weir_peer_slot_turn(ngx_http_weir_store_t *store, int64_t now_us,
                                  ngx_http_weir_slot_turn_t *ret)
{
    const ngx_http_weir_peer_slot_t *seen = &store->pools->memory->slot;
    if (now_us < seen->due_us || now_us < seen->asked_till_us)
        return false;
    ngx_http_weir_peer_slot_t *slot = ngx_http_weir_pools_slot(store->pools);
    if (now_us >= slot->until_us)
        slot->lease = 0; /* Redis has forgotten it, too, or will in a moment */
    slot->asked_till_us = now_us + slot_patience_us(store) + NGX_HTTP_WEIR_LATE_US;
    *ret = (ngx_http_weir_slot_turn_t){slot->lease ? WEIR__VERB_RENEW : WEIR__VERB_ACQUIRE,
                                       slot->lease};
    return true;
}

void ngx_http_weir_slices_tell(ngx_http_weir_store_t *store, enum weir__trouble trouble,
                               const char *said)
{
    _Atomic uint32_t *told = &store->pools->memory->told;
    char text[WEIR__TROUBLE_MAX];
    if (*told == trouble || atomic_exchange(told, trouble) == trouble)
        return;
    weir__trouble_text(trouble, said, text);
    if (trouble) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "weir: %V: no slices are taken: %s; Redis is asked for each request that it "
                      "may allow",
                      &store->text, text);
    } else {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "weir: %V: slices can be taken again",
                      &store->text);
    }
}

/* Notes what Redis said; false: somebody else has the lock. */
static bool slot_note(const ngx_http_weir_job_t *job, bool held, uint64_t lease)
{
    ngx_http_weir_pools_t *pools = job->store->pools;
    if (!ngx_http_weir_pools_lock(pools))
        return false;
    int64_t now_us = weir__boot_us();
    ngx_http_weir_peer_slot_t *slot = ngx_http_weir_pools_slot(pools);
    if (job->job.verb == WEIR__VERB_ACQUIRE)
        weir__slot_tried(&slot->tried, &job->job);
    if (job->job.verb == WEIR__VERB_ACQUIRE || slot->lease == lease) {
        slot->lease = held ? lease : 0;
        slot->until_us = held ? job->sent_us + WEIR__SLOT_LIFE_US : 0;
        slot->due_us = now_us + (held ? WEIR__SLOT_RENEW_US : WEIR__SLOT_RETRY_US);
        slot->asked_till_us = 0;
    }
    ngx_http_weir_pools_unlock(pools);
    return true;
}

/* Where no server can be reached, the log says that instead. */
static void slot_acquired(ngx_http_weir_job_t *job)
{
    struct weir__slot_try tried;
    bool held = weir__slot_tried(&tried, &job->job);
    bool older = job->store->pools->memory->told == WEIR__TROUBLE_LEAST; /* until a slice comes */
    if (held ? !older : ngx_http_weir_fleet_reachable(job->store))
        ngx_http_weir_slices_tell(job->store, tried.trouble, tried.said);
    if (slot_note(job, held, job->job.ret->lease) && held)
        ngx_http_weir_job_end(job);
    else
        ngx_http_weir_job_return_slot(job); /* Redis may have given one all the same */
}

/* While Redis is away, the slot is held until its time is over. */
static void slot_renewed(ngx_http_weir_job_t *job)
{
    if (job->job.code == 0)
        slot_note(job, job->job.integer == 1, job->job.lease);
    ngx_http_weir_job_end(job);
}

void ngx_http_weir_peer_slot_ask(ngx_http_weir_store_t *store,
                                 const ngx_http_weir_slot_turn_t *turn)
{
    weir_request request = weir_request_make(weir__slot_key(), store->pools->slot_limit);
    request.acquire = turn->verb == WEIR__VERB_ACQUIRE;
    ngx_http_weir_job_t *job = keep_job(store, turn->verb, &request);
    if (!job)
        return;
    job->job.lease = turn->lease;
    job->by_us = weir__mono_us() + slot_patience_us(store);
    job->done = request.acquire ? slot_acquired : slot_renewed;
    if (ngx_http_weir_job_send(job) != NGX_OK)
        ngx_http_weir_job_free(job);
}

/* ---- giving back ---- */

/* One grant of a pool that is to be given back. */
struct keep_return {
    struct weir__pool_return units;
    struct weir__rule rule;
    size_t key_len;
    char key[WEIR__POOL_KEY_MAX];
};

static bool keep_take_out(ngx_http_weir_pools_t *pools, struct weir__pool *pool, bool all,
                          struct keep_return *ret)
{
    struct weir__pool_now now = ngx_http_weir_pools_now(pools, weir__boot_us());
    if ((pool->tag[0] == 0 && pool->tag[1] == 0) ||
        !weir__pool_give_back(pool, &now, all, &ret->units))
        return false;
    ret->rule = pool->rule;
    ret->key_len = pool->key_len;
    ngx_memcpy(ret->key, pool->key, pool->key_len);
    return true;
}

static ngx_http_weir_job_t *keep_return_of(ngx_http_weir_store_t *store,
                                           const struct keep_return *it)
{
    weir_limit *limit;
    if (weir__limit_of_rules(&it->rule, &(int64_t){0}, 1, &limit, NULL))
        return NULL;
    ngx_http_weir_job_t *job =
        keep_return_job(store, weir_key_bytes(it->key, it->key_len), limit, &it->units);
    weir_limit_free(limit);
    return job;
}

/* From some sets, up to the room in `ret`. Goes on at *set. */
static size_t keep_collect(ngx_http_weir_pools_t *pools, uint32_t *set, bool all,
                           struct keep_return *ret, size_t room)
{
    size_t n = 0;
    if (!ngx_http_weir_pools_lock(pools))
        return 0;
    for (uint32_t i = 0; i < SWEEP_SETS && *set < ngx_http_weir_pools_sets(); i++) {
        struct weir__pool *pool = ngx_http_weir_pools_of_set(pools, *set);
        for (size_t way = 0; way < WEIR__POOLS_WAYS; way++) {
            while (n < room && keep_take_out(pools, &pool[way], all, &ret[n]))
                n++;
        }
        if (n == room)
            break;
        ++*set;
    }
    ngx_http_weir_pools_unlock(pools);
    return n;
}

/* Everything that is over or cold goes back to Redis. */
static void keep_sweep(ngx_http_weir_store_t *store, bool all, ngx_http_weir_jobs_t *ret)
{
    struct keep_return some[WEIR__POOLS_WAYS * WEIR__POOL_GRANTS];
    uint32_t set = 0;
    for (uint32_t tries = 0; set < ngx_http_weir_pools_sets(); tries++) {
        uint32_t from = set;
        size_t n = keep_collect(store->pools, &set, all, some, WEIR__COUNT(some));
        for (size_t i = 0; i < n; i++) {
            int64_t left = some[i].units.left;
            ngx_http_weir_pools_count(store->pools, NGX_HTTP_WEIR_UNITS_LOST, some[i].units.lost);
            if (left == 0)
                continue;
            ngx_http_weir_job_t *job = keep_return_of(store, &some[i]);
            if (job && ret)
                ngx_http_weir_jobs_put(ret, job);
            else
                keep_give(store, job, left);
        }
        if (n == 0 && set == from) /* no lock */
            return;
    }
}

/* Every worker sees that it is counted, one of them sweeps, and one sees to the slot. If there is
 * trouble with it, one tries again, so that it becomes known when that is over. */
void ngx_http_weir_slices_tick(ngx_event_t *event)
{
    ngx_http_weir_store_t *store = event->data;
    ngx_http_weir_pools_memory_t *memory = store->pools->memory;
    int64_t each_us = store->pools->slicing.life_us / 4;
    ngx_http_weir_slot_turn_t turn;
    bool sweeps = false, slot = false;
    if (ngx_http_weir_pools_lock(store->pools)) {
        int64_t now_us = weir__boot_us();
        ngx_http_weir_pools_enter(store->pools);
        sweeps = now_us >= memory->sweep_us;
        if (sweeps)
            memory->sweep_us = now_us + each_us;
        slot = (memory->slot.lease || memory->slot.tried.trouble) &&
               ngx_http_weir_peer_slot_turn(store, now_us, &turn);
        ngx_http_weir_pools_unlock(store->pools);
    }
    if (slot)
        ngx_http_weir_peer_slot_ask(store, &turn);
    if (sweeps)
        keep_sweep(store, false, NULL);
    ngx_add_timer(event, (ngx_msec_t)weir__max(TICK_MIN_MS, each_us / 1000));
}

/* ---- the end ---- */

/* The last worker takes out all that is held. */
bool ngx_http_weir_slices_end(ngx_http_weir_store_t *store, ngx_http_weir_jobs_t *ret)
{
    if (!store->slicer || !ngx_http_weir_pools_leave(store->pools))
        return false;
    keep_sweep(store, true, ret);
    for (ngx_http_weir_job_t *job = ret->first; job; job = job->next) {
        job->owed = 1;
        job->job.code = WEIR_EUNREACHABLE; /* until it is answered */
    }
    return true;
}

/* And then the slot, once Redis has the rest. Otherwise its lease expires. */
void ngx_http_weir_slices_leave(ngx_http_weir_store_t *store, const ngx_http_weir_jobs_t *given,
                                ngx_http_weir_jobs_t *ret)
{
    ngx_http_weir_pools_t *pools = store->pools;
    bool missing = false;
    for (const ngx_http_weir_job_t *job = given->first; job; job = job->next) {
        missing = missing || job->job.code == WEIR_EUNREACHABLE;
        ngx_http_weir_pools_count(
            pools, job->job.code ? NGX_HTTP_WEIR_UNITS_LOST : NGX_HTTP_WEIR_UNITS_RETURNED,
            job->job.correction.charged);
    }
    if (!ngx_http_weir_pools_lock(pools))
        return;
    ngx_http_weir_peer_slot_t *slot = ngx_http_weir_pools_slot(pools);
    uint64_t lease = slot->lease;
    ngx_memzero(slot, sizeof *slot);
    ngx_http_weir_pools_unlock(pools);
    weir_request request = weir_request_make(weir__slot_key(), pools->slot_limit);
    ngx_http_weir_job_t *job =
        lease && !missing ? keep_job(store, WEIR__VERB_RELEASE, &request) : NULL;
    if (!job)
        return;
    job->job.lease = lease;
    job->owed = 1;
    ngx_http_weir_jobs_put(ret, job);
}

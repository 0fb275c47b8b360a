/*
 * The thread of a sliced store, its slot among the peers, and the life of all of it: see slices.h.
 *
 *           ┌──────────────── the bell, or it is time ─────────────────┐
 *           ▼                                                          │
 *     refill what is half gone ─► keep the slot ─► give back what is over or cold ─► sleep
 */
#include "remote/slices.h"

#include "base/futex.h"
#include "remote/remote.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define SLOT_IDLE_US 10000000 /* without use it is given back */
#define LONGEST_US 60000000
#define BACK_US (WEIR__POOL_DOUBT_US / 2) /* for returns, whatever the deadline is */
#define INTERVALS 4 /* of a life: how often it is looked for what nobody wants */
#define CALL_PATIENCE_US 1000000
#define STACK (2 * sizeof(struct keep_batch) + 262144)

void weir__slices_ring(struct weir__slices *slices)
{
    atomic_fetch_add(&slices->bell, 1);
    if (atomic_load(&slices->asleep))
        weir__futex_wake(&slices->bell, false);
}

/* ---- jobs of our own ---- */

/* A question about one pool, with copies of what the pool says. */
struct keep_job {
    struct weir__job job;
    struct weir__slice_ask ask;    /* of a refill */
    struct weir__pool_return back; /* of a return */
    weir_request request;
    weir_decision ret, row;
    weir_limit limit;
    struct weir__rule_text text;
    char key[WEIR__POOL_KEY_MAX];
};

struct keep_batch {
    struct keep_job jobs[WEIR__JOBS_MAX];
    size_t count;
};

static struct keep_job *keep_add(struct keep_batch *batch, const struct weir__pool *pool)
{
    assert(batch->count < WEIR__JOBS_MAX);
    struct keep_job *it = &batch->jobs[batch->count++];
    it->text = weir__rule_text(&pool->rule);
    it->limit = (weir_limit){.count = 1, .text = it->text.text};
    it->limit.rules[0] = pool->rule;
    memcpy(it->key, pool->key, pool->key_len);
    it->ask = (struct weir__slice_ask){.tag = {pool->tag[0], pool->tag[1]}};
    it->request = weir_request_make(weir_key_bytes(it->key, pool->key_len), &it->limit);
    it->job = (struct weir__job){
        .requests = &it->request, .count = 1, .time_us = -1, .ret = &it->ret, .rows = &it->row};
    return it;
}

static int64_t keep_deadline_us(const struct weir__slices *slices)
{
    return weir__min(slices->last_us, weir__mono_us() + slices->remote->url.deadline_us);
}

static void keep_send(struct weir__slices *slices, struct keep_batch *batch, int64_t deadline_us)
{
    struct weir__job *jobs[WEIR__JOBS_MAX];
    for (size_t i = 0; i < batch->count; i++) {
        batch->jobs[i].job.deadline_us = deadline_us;
        jobs[i] = &batch->jobs[i].job;
    }
    if (batch->count)
        weir__remote_send(slices->remote, jobs, batch->count);
}

/* ---- refilling ---- */

/* Under the lock of the stripe. */
static void keep_ask(struct weir__slices *slices, struct weir__pool *pool, struct keep_batch *batch)
{
    struct weir__pool_now now = weir__slices_now(slices);
    struct weir__pool_call call;
    int64_t until_us = now.now_us + slices->remote->url.deadline_us + CALL_PATIENCE_US;
    if (!weir__pool_ask(pool, &now, 0, until_us, &call))
        return;
    struct keep_job *it = keep_add(batch, pool);
    it->ask.call = call;
    it->job.verb = WEIR__VERB_TAKE;
    it->request = weir__slice_request(&it->ask, it->request.key, &it->limit);
}

/* Up to a batch of pools. True: there may be more. */
static bool keep_refill(struct weir__slices *slices, struct keep_batch *batch)
{
    batch->count = 0;
    for (size_t i = 0; i < WEIR__SLICES_STRIPES; i++) {
        struct weir__slices_stripe *stripe = &slices->stripes[i];
        if (atomic_load(&stripe->refill) == 0)
            continue;
        weir__lock_take(&stripe->lock);
        while (stripe->refill && batch->count < WEIR__JOBS_MAX) {
            size_t j = (size_t)__builtin_ctzll(stripe->refill);
            stripe->refill &= stripe->refill - 1;
            keep_ask(slices, &slices->pools.pools[i * WEIR__SLICES_PER_STRIPE + j], batch);
        }
        weir__lock_release(&stripe->lock);
    }
    keep_send(slices, batch, keep_deadline_us(slices));
    for (size_t i = 0; i < batch->count; i++)
        weir__slice_answer(slices, &batch->jobs[i].ask, &batch->jobs[i].job, 0, NULL);
    return batch->count == WEIR__JOBS_MAX;
}

/* ---- giving back ---- */

/* Redis has answered a settle, or has not. */
static void keep_settled(struct weir__slices *slices, const struct keep_job *it)
{
    struct weir__slices_stripe *stripe = weir__slices_stripe(slices, it->ask.tag);
    if (it->job.code == WEIR_EUNREACHABLE) {
        slices->doubt_us = weir__boot_us() + WEIR__POOL_DOUBT_US;
        weir__slices_lose(slices, 1, it->back.left);
        return;
    }
    weir__lock_take(&stripe->lock);
    struct weir__pool *pool = weir__slices_find(slices, it->ask.tag);
    if (pool)
        weir__pool_gave_back(pool, &it->back);
    weir__lock_release(&stripe->lock);
    if (it->job.code) {
        weir__slices_lose(slices, 1, it->back.left);
        return;
    }
    atomic_fetch_add(&slices->slices_returned, 1);
    atomic_fetch_add(&slices->units_returned, (uint64_t)it->back.left);
}

static void keep_settle(struct weir__slices *slices, struct keep_batch *batch)
{
    keep_send(slices, batch, weir__min(keep_deadline_us(slices), weir__mono_us() + BACK_US));
    for (size_t i = 0; i < batch->count; i++)
        keep_settled(slices, &batch->jobs[i]);
    batch->count = 0;
}

/* Takes what nobody wants out of one pool, under its lock. False: the batch is full. */
static bool keep_empty(struct weir__slices *slices, struct weir__pool *pool, bool all,
                       struct keep_batch *batch)
{
    struct weir__pool_now now = weir__slices_now(slices);
    struct weir__pool_return it;
    while (batch->count < WEIR__JOBS_MAX) {
        if (!weir__pool_give_back(pool, &now, all, &it))
            return true;
        if (it.left == 0) {
            weir__slices_lose(slices, 1, it.lost);
            continue;
        }
        struct keep_job *job = keep_add(batch, pool);
        job->back = it;
        job->job.verb = WEIR__VERB_SETTLE;
        job->job.correction = (struct weir__correction){
            .now_us = it.time_us, .charged_at_us = it.time_us, .charged = it.left};
    }
    return false;
}

/* Whether a pool needs to be looked at again. */
static bool keep_is_used(const struct weir__pool *pool)
{
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++) {
        if (pool->grants[i].left > 0)
            return true;
    }
    return false;
}

/* One stripe. False: the batch is full before it is done. */
static bool keep_scan_stripe(struct weir__slices *slices, size_t i, bool all,
                             struct keep_batch *batch, bool *ret_used)
{
    struct weir__slices_stripe *stripe = &slices->stripes[i];
    bool done = true;
    weir__lock_take(&stripe->lock);
    for (uint64_t left = stripe->held; left && done; left &= left - 1) {
        size_t j = (size_t)__builtin_ctzll(left);
        struct weir__pool *pool = &slices->pools.pools[i * WEIR__SLICES_PER_STRIPE + j];
        done = keep_empty(slices, pool, all, batch);
        if (keep_is_used(pool))
            *ret_used = true;
        else
            stripe->held &= ~(UINT64_C(1) << j);
    }
    weir__lock_release(&stripe->lock);
    return done;
}

/* All pools that hold something, one stripe after the other. True: some are in use. */
static bool keep_scan(struct weir__slices *slices, struct keep_batch *batch, bool all)
{
    bool used = false;
    batch->count = 0;
    for (size_t i = 0; i < WEIR__SLICES_STRIPES; i++) {
        while (!keep_scan_stripe(slices, i, all, batch, &used))
            keep_settle(slices, batch);
    }
    keep_settle(slices, batch);
    return used;
}

/* ---- the slot ---- */

static void keep_slot_job(struct weir__slices *slices, enum weir__verb verb, uint64_t lease,
                          struct weir__job *job, weir_request *request, weir_decision *ret)
{
    *request = weir_request_make(weir__slot_key(), slices->remote->slot_limit);
    request->acquire = verb == WEIR__VERB_ACQUIRE;
    *job = (struct weir__job){.verb = verb,
                              .requests = request,
                              .count = 1,
                              .lease = lease,
                              .deadline_us = keep_deadline_us(slices),
                              .time_us = -1,
                              .ret = ret};
    weir__remote_send(slices->remote, (struct weir__job *const[]){job}, 1);
}

/* A try that nobody answered may have got a slot all the same, which others lack then. False: that
 * is not answered, either. */
static bool keep_give_up(struct weir__slices *slices)
{
    weir_request request;
    struct weir__job job;
    if (slices->tried_lease)
        keep_slot_job(slices, WEIR__VERB_RELEASE, slices->tried_lease, &job, &request, NULL);
    if (slices->tried_lease && job.code == WEIR_EUNREACHABLE)
        return false;
    slices->tried_lease = 0;
    return true;
}

/* While a return may still be on its way, the slot stays taken until it runs out. */
static void keep_release(struct weir__slices *slices)
{
    weir_request request;
    struct weir__job job;
    slices->slot_us = 0;
    if (slices->lease && weir__boot_us() >= slices->doubt_us)
        keep_slot_job(slices, WEIR__VERB_RELEASE, slices->lease, &job, &request, NULL);
    slices->lease = 0;
}

/* Not wanted: no key is hot any more. Then a slot only shows that the trouble is over. */
static void keep_acquire(struct weir__slices *slices, int64_t now_us, bool wanted)
{
    weir_request request;
    weir_decision ret;
    struct weir__job job;
    slices->slot_next_us = now_us + WEIR__SLOT_RETRY_US;
    if (!keep_give_up(slices))
        return;
    keep_slot_job(slices, WEIR__VERB_ACQUIRE, 0, &job, &request, &ret);
    slices->tried_lease = job.code == WEIR_EUNREACHABLE ? job.lease : 0;
    weir__lock_take(&slices->remote->lock);
    bool got = weir__slot_tried(&slices->slot_try, &job);
    weir__lock_release(&slices->remote->lock);
    if (!got)
        return;
    slices->lease = ret.lease;
    if (!wanted) {
        keep_release(slices);
        return;
    }
    slices->slot_us = now_us + WEIR__SLOT_LIFE_US;
    slices->slot_next_us = now_us + WEIR__SLOT_RENEW_US;
    slices->idle_since_us = now_us;
}

static void keep_renew(struct weir__slices *slices, int64_t now_us)
{
    weir_request request;
    struct weir__job job;
    keep_slot_job(slices, WEIR__VERB_RENEW, slices->lease, &job, &request, NULL);
    bool gone = job.code == 0 && job.integer != 1;
    if (job.code == 0 && !gone)
        slices->slot_us = now_us + WEIR__SLOT_LIFE_US;
    slices->slot_next_us = now_us + (job.code == 0 ? WEIR__SLOT_RENEW_US : WEIR__SLOT_RETRY_US);
    if (gone || now_us >= slices->slot_us) { /* another may have it */
        slices->slot_us = 0;
        slices->lease = 0;
        slices->slot_next_us = now_us;
    }
}

/* Nothing is taken under the slot any more. It is given back when calls that were on their way are
 * over: what they bring must not be spent under another slot. */
static void keep_rest(struct weir__slices *slices, int64_t now_us)
{
    slices->slot_us = 0;
    slices->slot_wanted = 0;
    slices->slot_next_us = now_us + slices->remote->url.deadline_us + CALL_PATIENCE_US;
}

/* Only this thread writes slot_try, so it needs no lock to read it. */
static bool keep_lacks_slot(const struct weir__slices *slices)
{
    return !slices->lease && (slices->slot_wanted || slices->slot_try.trouble);
}

static void keep_slot(struct weir__slices *slices, bool used)
{
    int64_t now_us = weir__boot_us();
    bool rests = slices->lease && !slices->slot_us;
    slices->idle_since_us = used || (rests && slices->slot_wanted) ? now_us : slices->idle_since_us;
    bool idle = now_us - slices->idle_since_us >= SLOT_IDLE_US;
    if (rests && idle && now_us >= slices->slot_next_us)
        keep_release(slices);
    else if (slices->lease && !rests && idle)
        keep_rest(slices, now_us);
    else if (slices->lease && !idle &&
             (rests || now_us >= slices->slot_next_us || atomic_exchange(&slices->slot_doubted, 0)))
        keep_renew(slices, now_us);
    if (keep_lacks_slot(slices) && now_us >= slices->slot_next_us)
        keep_acquire(slices, now_us, atomic_exchange(&slices->slot_wanted, 0));
}

/* ---- the thread ---- */

/* Until when there is nothing to do, unless the bell rings. */
static int64_t keep_next_us(const struct weir__slices *slices)
{
    int64_t next_us = weir__boot_us() + LONGEST_US;
    if (slices->lease || keep_lacks_slot(slices))
        next_us = weir__min(next_us, slices->slot_next_us);
    if (slices->lease && slices->slot_us)
        next_us = weir__min(next_us, slices->idle_since_us + SLOT_IDLE_US);
    if (slices->busy)
        next_us = weir__min(next_us, slices->scan_next_us);
    return next_us;
}

static void keep_sleep(struct weir__slices *slices, uint32_t seen)
{
    int64_t us = keep_next_us(slices) - weir__boot_us();
    atomic_store(&slices->asleep, 1);
    if (us > 0)
        weir__futex_wait(&slices->bell, seen, us, false);
    atomic_store(&slices->asleep, 0);
}

/* Looks for what is to be given back. Once there is nothing, it does not look any more, until
 * somebody who got a slice finds it idle and rings. */
static void keep_tend(struct weir__slices *slices, struct keep_batch *batch, int64_t now_us)
{
    slices->scan_next_us = now_us + weir__max(1000, slices->slicing.life_us / INTERVALS);
    atomic_store(&slices->busy, 0);
    if (keep_scan(slices, batch, false))
        atomic_store(&slices->busy, 1);
}

static void *keep_run(void *argument)
{
    struct weir__slices *slices = argument;
    struct keep_batch batch;
    while (!atomic_load(&slices->stop)) {
        uint32_t seen = atomic_load(&slices->bell);
        int64_t now_us = weir__boot_us();
        bool more = keep_refill(slices, &batch);
        if (batch.count)
            atomic_store(&slices->busy, 1);
        if (now_us >= slices->scan_next_us)
            keep_tend(slices, &batch, now_us);
        keep_slot(slices, slices->busy);
        if (!more)
            keep_sleep(slices, seen);
    }
    slices->last_us = keep_deadline_us(slices);
    keep_scan(slices, &batch, true);
    keep_release(slices);
    return NULL;
}

/* The thread handles no signals: those belong to the program. Its batches need more room than some
 * C libraries give a thread (musl: 128 KiB). */
static int keep_start_thread(struct weir__slices *slices)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    size_t stack = 0;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    if (pthread_attr_getstacksize(&attributes, &stack) == 0 && stack < STACK)
        pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&slices->thread, &attributes, keep_run, slices);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

/* ---- life ---- */

static size_t keep_size(void)
{
    return sizeof(struct weir__slices) - sizeof(struct weir__pools) +
           weir__pools_size(WEIR__SLICES_SETS);
}

/* A stripe's lock is held for some nanoseconds: who finds it taken spins before it sleeps. */
static void keep_init_stripe(struct weir__slices_stripe *stripe)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
#ifdef __GLIBC__
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    weir__lock_init(&stripe->lock);
    pthread_mutex_init(&stripe->lock.mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    weir__cond_init(&stripe->answered);
}

static int keep_begin(struct weir__remote *remote, weir_error *err)
{
    struct weir__slices *slices = remote->slices;
    if (slices->owner) /* of a parent, and not wiped */
        memset(slices, 0, keep_size());
    slices->wiped = madvise(slices, keep_size(), MADV_WIPEONFORK) == 0;
    slices->remote = remote;
    slices->slicing = weir__slicing_of(&remote->url);
    slices->last_us = INT64_MAX;
    for (size_t i = 0; i < WEIR__SLICES_STRIPES; i++)
        keep_init_stripe(&slices->stripes[i]);
    if (weir__pools_init(&slices->pools, WEIR__SLICES_SETS) ||
        weir__denied_init(&slices->denied, &slices->slicing))
        return weir__fail(err, WEIR_ESYSTEM, 0, "no random numbers for slices");
    int error = keep_start_thread(slices);
    if (error)
        return weir__fail(err, WEIR_ESYSTEM, 0, "no thread for slices: %s", strerror(error));
    atomic_store(&slices->owner, getpid());
    return 0;
}

static void keep_free(struct weir__remote *remote)
{
    munmap(remote->slices, keep_size());
    weir_limit_free(remote->slot_limit);
    remote->slices = NULL;
    remote->slot_limit = NULL;
}

int weir__slices_open(struct weir__remote *remote, weir_error *err)
{
    if (remote->url.slices == 0)
        return 0;
    int code = weir__slot_limit(remote->url.peers, &remote->slot_limit, err);
    if (code)
        return code;
    void *room =
        mmap(NULL, keep_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) {
        weir_limit_free(remote->slot_limit);
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for slices");
    }
    remote->slices = room;
    code = keep_begin(remote, err);
    if (code)
        keep_free(remote);
    return code;
}

int weir__slices_start(struct weir__remote *remote)
{
    return remote->slices ? keep_begin(remote, NULL) : 0;
}

void weir__slices_close(struct weir__remote *remote)
{
    struct weir__slices *slices = remote->slices;
    if (!slices)
        return;
    if (weir__slices_alive(slices)) {
        atomic_store(&slices->stop, 1);
        weir__slices_ring(slices);
        pthread_join(slices->thread, NULL);
    }
    keep_free(remote);
}

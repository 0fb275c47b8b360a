/* See slices.h. What takes meet: pools, remembered denials, and answers to calls for slices. */
#include "remote/slices.h"

#include "remote/remote.h"

#include <string.h>

#define REFUSED_US 10000000 /* so long a server that does not know LEAST is not asked again */

_Static_assert(WEIR__DENIED_SETS % WEIR__SLICES_STRIPES == 0, "denials share the locks");

/* ---- pools ---- */

/* Whether a request may be answered from a pool. */
bool weir__slices_fits(const weir_request *request)
{
    return request->limit->count == 1 && !request->limit->costs && request->cost >= 1 &&
           !request->least && !request->acquire &&
           (request->wait_us == WEIR_WAIT_DEFAULT || request->wait_us == 0) &&
           request->key.len <= WEIR__POOL_KEY_MAX;
}

struct weir__slices_want weir__slices_want(const struct weir__slices *slices, weir_key key,
                                           const struct weir__rule *rule, int64_t cost)
{
    struct weir__slices_want want = {.key = key, .rule = rule, .cost = cost};
    weir__pools_tag(&slices->pools, key, rule, want.tag);
    return want;
}

/* Its pool, under the lock; NULL: it has none. */
static struct weir__pool *slices_pool(struct weir__slices *slices,
                                      const struct weir__slices_want *want, int64_t now_us)
{
    struct weir__pool *pool = weir__slices_find(slices, want->tag);
    struct weir__slice_terms terms;
    int64_t withheld;
    if (WEIR__LIKELY(pool && !memcmp(&pool->rule, want->rule, sizeof *want->rule)))
        return pool;
    if (!weir__slice_terms(&slices->slicing, want->rule, &terms))
        return NULL;
    return weir__pools_place(&slices->pools, want->tag, want->key, want->rule, &terms, now_us,
                             &withheld);
}

/* ---- one step of a request ---- */

static void slices_uncount(struct weir__pool *pool, int64_t cost)
{
    pool->takes -= pool->takes > 0;
    pool->wanted = weir__max(0, pool->wanted - cost);
}

/* A request is counted once, however often it comes. */
static enum weir__spend slices_spend(struct weir__pool *pool, const struct weir__pool_now *now,
                                     int64_t cost, bool again, weir_decision *ret, bool *ret_refill)
{
    if (again)
        slices_uncount(pool, cost);
    return weir__pool_spend(pool, now, cost, ret, ret_refill);
}

static void slices_mark(struct weir__slices *slices, struct weir__slices_stripe *stripe,
                        struct weir__pool *pool)
{
    pool->queued = true;
    atomic_fetch_or(&stripe->refill, weir__slices_bit(slices, pool));
}

/* A key is hot, but there is no slot. */
static bool slices_wants_slot(struct weir__slices *slices, const struct weir__pool *pool,
                              const struct weir__pool_now *now)
{
    if (now->slot_us > now->now_us || !weir__pool_is_hot(pool))
        return false;
    return !atomic_exchange_explicit(&slices->slot_wanted, 1, memory_order_relaxed);
}

/* What a step means for its caller, under the lock. */
static enum weir__slices_step slices_after(struct weir__slices *slices, struct weir__pool *pool,
                                           const struct weir__pool_now *now, enum weir__spend spend,
                                           int64_t cost, int64_t until_us,
                                           struct weir__pool_call *ret)
{
    switch (spend) {
    case WEIR__SPEND_LOCAL:
    case WEIR__SPEND_DENIED:
        return WEIR__SLICES_DONE;
    case WEIR__SPEND_JOIN:
        ret->serial = pool->serial;
        return WEIR__SLICES_JOIN;
    case WEIR__SPEND_REFILL:
        if (weir__slices_may_ask(slices, now->now_us) &&
            weir__pool_ask(pool, now, cost, until_us, ret))
            return WEIR__SLICES_REFILL;
        break;
    case WEIR__SPEND_ASK:
        break;
    }
    return WEIR__SLICES_SEND;
}

static void slices_count_spend(struct weir__slices_stripe *stripe, enum weir__spend spend)
{
    if (spend == WEIR__SPEND_LOCAL)
        weir__count_add(&stripe->local, 1);
    else if (spend == WEIR__SPEND_DENIED)
        weir__count_add(&stripe->denied, 1);
}

/* Spends, if it can, or may ask for a slice, for that long; under the lock. *ret_ring: the thread
 * has something to do. */
static inline enum weir__slices_step
slices_step_pool(struct weir__slices *slices, struct weir__slices_stripe *stripe,
                 struct weir__pool *pool, const struct weir__pool_now *now, int64_t cost,
                 bool again, int64_t asks_us, struct weir__pool_call *call, weir_decision *ret,
                 bool *ret_ring)
{
    enum weir__slices_step step = WEIR__SLICES_SEND;
    bool refill;
    enum weir__spend spend = slices_spend(pool, now, cost, again, ret, &refill);
    slices_count_spend(stripe, spend);
    if (WEIR__UNLIKELY(refill) && weir__slices_may_ask(slices, now->now_us)) {
        slices_mark(slices, stripe, pool);
        *ret_ring = true;
    }
    if (WEIR__LIKELY(spend == WEIR__SPEND_LOCAL || spend == WEIR__SPEND_DENIED))
        step = WEIR__SLICES_DONE;
    else if (asks_us > 0)
        step = slices_after(slices, pool, now, spend, cost, now->now_us + asks_us, call);
    if (spend == WEIR__SPEND_ASK)
        *ret_ring = slices_wants_slot(slices, pool, now) || *ret_ring;
    if (WEIR__UNLIKELY(step != WEIR__SLICES_DONE && asks_us == WEIR__SLICES_TRY))
        slices_uncount(pool, cost);
    return step;
}

static inline enum weir__slices_step slices_step(struct weir__slices *slices,
                                                 const struct weir__slices_want *want, bool again,
                                                 int64_t asks_us, struct weir__pool_call *call,
                                                 weir_decision *ret)
{
    struct weir__slices_stripe *stripe = weir__slices_stripe(slices, want->tag);
    struct weir__pool_now now = weir__slices_now(slices);
    enum weir__slices_step step = WEIR__SLICES_SEND;
    bool ring = false;
    weir__lock_take(&stripe->lock);
    struct weir__pool *pool = slices_pool(slices, want, now.now_us);
    if (WEIR__LIKELY(pool != NULL))
        step = slices_step_pool(slices, stripe, pool, &now, want->cost, again, asks_us, call, ret,
                                &ring);
    weir__lock_release(&stripe->lock);
    if (WEIR__UNLIKELY(ring))
        weir__slices_ring(slices);
    return step;
}

enum weir__slices_step weir__slices_step(struct weir__slices *slices,
                                         const struct weir__slices_want *want, bool again,
                                         int64_t asks_us, struct weir__pool_call *call,
                                         weir_decision *ret)
{
    return slices_step(slices, want, again, asks_us, call, ret);
}

/* ---- remembered denials ---- */

static struct weir__slices_stripe *slices_denied_stripe(struct weir__slices *slices,
                                                        const struct weir__denied_call *call)
{
    return &slices->stripes[call->set % WEIR__SLICES_STRIPES];
}

/* Waits are not remembered: what is ahead of them may go away. */
bool weir__slices_remembers(const weir_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (requests[i].wait_us != WEIR_WAIT_DEFAULT && requests[i].wait_us != 0)
            return false;
    }
    return true;
}

bool weir__slices_recall(struct weir__slices *slices, const struct weir__denied_call *call,
                         weir_decision *rows, weir_decision *ret)
{
    weir_decision unused[WEIR__DENIED_LIMITS];
    struct weir__slices_stripe *stripe = slices_denied_stripe(slices, call);
    int64_t now_us = weir__boot_us();
    weir__lock_take(&stripe->lock);
    bool found = weir__denied_find(&slices->denied, call, now_us, rows ? rows : unused, ret);
    if (found)
        weir__count_add(&stripe->denied, 1);
    weir__lock_release(&stripe->lock);
    return found;
}

void weir__slices_note(struct weir__slices *slices, const struct weir__denied_call *call,
                       const struct weir__job *job, int64_t asked_us)
{
    const weir_decision *rows = job->rows ? job->rows : job->ret;
    if (job->code || job->ret->allowed)
        return;
    if (!job->rows && call->limits != 1) /* nobody wanted the rows */
        return;
    struct weir__slices_stripe *stripe = slices_denied_stripe(slices, call);
    weir__lock_take(&stripe->lock);
    weir__denied_note(&slices->denied, call, rows, job->ret, asked_us, weir__boot_us(),
                      slices->slicing.life_us);
    weir__lock_release(&stripe->lock);
}

/* ---- answers without a call ---- */

static bool slices_spends(struct weir__slices *slices, weir_key key, const weir_limit *limit,
                          int64_t cost, weir_decision *ret)
{
    const struct weir__slices_want want = weir__slices_want(slices, key, &limit->rules[0], cost);
    return slices_step(slices, &want, false, WEIR__SLICES_TRY, NULL, ret) == WEIR__SLICES_DONE;
}

/* Whether slices are this store's and this process's, and the clock is not a test's. */
static bool slices_serve(const weir_store *store, const struct weir__slices *slices)
{
    assert(store->engine == &weir__remote_engine);
    return slices && weir__slices_alive(slices) && !store->clock.now;
}

bool weir__slices_take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                       weir_decision *ret)
{
    struct weir__slices *slices = weir__remote_of(store)->slices;
    assert(limit->count == 1 && !limit->costs);
    return slices_serve(store, slices) && cost >= 1 && key.len <= WEIR__POOL_KEY_MAX &&
           slices_spends(slices, key, limit, cost, ret);
}

bool weir__slices_try(weir_store *store, const weir_request *request, weir_decision *ret)
{
    struct weir__slices *slices = weir__remote_of(store)->slices;
    struct weir__denied_call denied;
    if (!slices_serve(store, slices))
        return false;
    if (WEIR__LIKELY(weir__slices_fits(request)) &&
        WEIR__LIKELY(slices_spends(slices, request->key, request->limit, request->cost, ret))) {
        if (request->detail)
            *request->detail = *ret;
        return true;
    }
    return !request->acquire && request->cost > 0 && weir__slices_remembers(request, 1) &&
           weir__denied_call(&slices->denied, request, 1, &denied) &&
           weir__slices_recall(slices, &denied, request->detail, ret);
}

/* ---- calls for slices ---- */

/* Limits that shape know no least: they are asked for that much and no more. */
weir_request weir__slice_request(const struct weir__slice_ask *ask, weir_key key,
                                 const weir_limit *limit)
{
    weir_request request = weir_request_make(key, limit);
    bool shapes = weir__algorithm_of(&limit->rules[0])->shapes;
    request.cost = shapes ? ask->call.least : ask->call.cost;
    request.least = shapes ? 0 : ask->call.least;
    return request;
}

/* The server is older than LEAST. It is asked again after a while. */
static void slices_heed_refusal(struct weir__slices *slices, const struct weir__job *job)
{
    if (job->code && job->code != WEIR_EUNREACHABLE && strstr(job->error, "LEAST"))
        atomic_store(&slices->refused_until_us, weir__boot_us() + REFUSED_US);
    else if (job->code == 0 && job->requests[0].least && slices->refused_until_us)
        atomic_store(&slices->refused_until_us, 0);
    if (job->code == WEIR_EUNREACHABLE) /* it may have forgotten all, or be another one now */
        atomic_store(&slices->slot_doubted, 1);
}

void weir__slices_lose(struct weir__slices *slices, uint64_t count, int64_t units)
{
    atomic_fetch_add(&slices->slices_lost, count);
    atomic_fetch_add(&slices->units_lost, (uint64_t)units);
}

bool weir__slice_answer(struct weir__slices *slices, const struct weir__slice_ask *ask,
                        const struct weir__job *job, int64_t need, weir_decision *ret)
{
    struct weir__slices_stripe *stripe = weir__slices_stripe(slices, ask->tag);
    struct weir__pool_now now = weir__slices_now(slices);
    const weir_decision *row = &job->rows[0];
    bool granted = job->code == 0 && row->allowed, kept = false, done = false, ring = false;
    if (job->code != WEIR_EUNREACHABLE)
        atomic_fetch_add_explicit(&slices->calls, 1, memory_order_relaxed);
    slices_heed_refusal(slices, job);
    weir__lock_take(&stripe->lock);
    struct weir__pool *pool = weir__slices_find(slices, ask->tag);
    if (pool && job->code == 0)
        kept = weir__pool_answer(pool, &now, &ask->call, row);
    else if (pool)
        weir__pool_lose(pool, &ask->call);
    if (granted && kept)
        stripe->held |= weir__slices_bit(slices, pool);
    if (kept && need)
        done = slices_step_pool(slices, stripe, pool, &now, need, true, WEIR__SLICES_SPEND, NULL,
                                ret, &ring) == WEIR__SLICES_DONE;
    if (granted) {
        weir__count_add(&stripe->slices_taken, 1);
        weir__count_add(&stripe->units_taken, (uint64_t)row->granted);
    }
    if (stripe->joined)
        pthread_cond_broadcast(&stripe->answered);
    weir__lock_release(&stripe->lock);
    if (granted && !kept)
        weir__slices_lose(slices, 1, row->granted);
    else if ((granted && !atomic_exchange(&slices->busy, 1)) || ring)
        weir__slices_ring(slices); /* it may have to be given back one day */
    return done;
}

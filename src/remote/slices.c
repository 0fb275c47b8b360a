/* See slices.h. What takes meet: spending, joining, asking. slices_keep.c has the thread,
 * slices_keys.c what else happens to keys. */
#include "remote/slices.h"

#include "remote/remote.h"

#include <string.h>

#define JOINS_MAX 4         /* then the request goes to Redis by itself */
#define REFUSED_US 10000000 /* so long a server that does not know LEAST is not asked again */
#define PATIENCE_US 1000000 /* beyond its deadline a call counts as in flight: its caller ends it */

_Static_assert(WEIR__DENIED_SETS % WEIR__SLICES_STRIPES == 0, "denials share the locks");

/* ---- pools ---- */

/* Whether a request may be answered from a pool. */
static bool slices_fits(const weir_request *request)
{
    return request->limit->count == 1 && !request->limit->costs && request->cost >= 1 &&
           !request->least && !request->acquire &&
           (request->wait_us == WEIR_WAIT_DEFAULT || request->wait_us == 0) &&
           request->key.len <= WEIR__POOL_KEY_MAX;
}

/* What a request wants of its pool. */
struct slices_want {
    uint64_t tag[2];
    weir_key key;
    const struct weir__rule *rule;
    int64_t cost;
};

static struct slices_want slices_want(const struct weir__slices *slices, weir_key key,
                                      const struct weir__rule *rule, int64_t cost)
{
    struct slices_want want = {.key = key, .rule = rule, .cost = cost};
    weir__pools_tag(&slices->pools, key, rule, want.tag);
    return want;
}

/* Its pool, under the lock; NULL: it has none. */
static struct weir__pool *slices_pool(struct weir__slices *slices, const struct slices_want *want,
                                      int64_t now_us)
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

enum slices_step {
    SLICES_DONE,   /* it is answered */
    SLICES_REFILL, /* its caller asks for a slice */
    SLICES_JOIN,   /* another does */
    SLICES_SEND,   /* it goes to Redis by itself */
};

struct slices_turn {
    struct slices_want want;
    bool takes;  /* it is a take, by the clock of the servers */
    bool pooled; /* it may be answered from a pool */
    bool again;  /* it was counted already */
    unsigned joins;
    enum slices_step step;
    struct weir__pool_call call; /* REFILL: which; JOIN: its serial */
    bool notes;                  /* a denial of it is worth remembering */
    struct weir__denied_call denied;
    int64_t asked_us; /* before it was */
    /* what the job says while it asks for a slice */
    weir_request refill, *requests;
    weir_decision answer, row, *ret, *rows;
};

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
static enum slices_step slices_after(struct weir__slices *slices, struct weir__pool *pool,
                                     const struct weir__pool_now *now, enum weir__spend spend,
                                     int64_t cost, int64_t until_us, struct weir__pool_call *ret)
{
    switch (spend) {
    case WEIR__SPEND_LOCAL:
    case WEIR__SPEND_DENIED:
        return SLICES_DONE;
    case WEIR__SPEND_JOIN:
        ret->serial = pool->serial;
        return SLICES_JOIN;
    case WEIR__SPEND_REFILL:
        if (weir__slices_may_ask(slices, now->now_us) &&
            weir__pool_ask(pool, now, cost, until_us, ret))
            return SLICES_REFILL;
        break;
    case WEIR__SPEND_ASK:
        break;
    }
    return SLICES_SEND;
}

static void slices_count_spend(struct weir__slices_stripe *stripe, enum weir__spend spend)
{
    if (spend == WEIR__SPEND_LOCAL)
        weir__count_add(&stripe->local, 1);
    else if (spend == WEIR__SPEND_DENIED)
        weir__count_add(&stripe->denied, 1);
}

/* Instead of a time. */
#define SLICES_SPEND 0  /* it does not ask for a slice */
#define SLICES_TRY (-1) /* nor does it count if it cannot spend: it will come again */

/* Spends, if it can, or may ask for a slice, for that long; under the lock. *ret_ring: the thread
 * has something to do. */
static inline enum slices_step
slices_step_pool(struct weir__slices *slices, struct weir__slices_stripe *stripe,
                 struct weir__pool *pool, const struct weir__pool_now *now, int64_t cost,
                 bool again, int64_t asks_us, struct weir__pool_call *call, weir_decision *ret,
                 bool *ret_ring)
{
    enum slices_step step = SLICES_SEND;
    bool refill;
    enum weir__spend spend = slices_spend(pool, now, cost, again, ret, &refill);
    slices_count_spend(stripe, spend);
    if (WEIR__UNLIKELY(refill) && weir__slices_may_ask(slices, now->now_us)) {
        slices_mark(slices, stripe, pool);
        *ret_ring = true;
    }
    if (WEIR__LIKELY(spend == WEIR__SPEND_LOCAL || spend == WEIR__SPEND_DENIED))
        step = SLICES_DONE;
    else if (asks_us > 0)
        step = slices_after(slices, pool, now, spend, cost, now->now_us + asks_us, call);
    if (spend == WEIR__SPEND_ASK)
        *ret_ring = slices_wants_slot(slices, pool, now) || *ret_ring;
    if (WEIR__UNLIKELY(step != SLICES_DONE && asks_us == SLICES_TRY))
        slices_uncount(pool, cost);
    return step;
}

static inline enum slices_step slices_step(struct weir__slices *slices,
                                           const struct slices_want *want, bool again,
                                           int64_t asks_us, struct weir__pool_call *call,
                                           weir_decision *ret)
{
    struct weir__slices_stripe *stripe = weir__slices_stripe(slices, want->tag);
    struct weir__pool_now now = weir__slices_now(slices);
    enum slices_step step = SLICES_SEND;
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

/* ---- remembered denials ---- */

static struct weir__slices_stripe *slices_denied_stripe(struct weir__slices *slices,
                                                        const struct weir__denied_call *call)
{
    return &slices->stripes[call->set % WEIR__SLICES_STRIPES];
}

/* Waits are not remembered: what is ahead of them may go away. */
static bool slices_remembers(const weir_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (requests[i].wait_us != WEIR_WAIT_DEFAULT && requests[i].wait_us != 0)
            return false;
    }
    return true;
}

static bool slices_recall(struct weir__slices *slices, const struct weir__denied_call *call,
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

static void slices_note(struct weir__slices *slices, const struct slices_turn *turn,
                        const struct weir__job *job)
{
    const weir_decision *rows = job->rows ? job->rows : job->ret;
    if (!turn->notes || job->code || job->ret->allowed)
        return;
    if (!job->rows && turn->denied.limits != 1) /* nobody wanted the rows */
        return;
    struct weir__slices_stripe *stripe = slices_denied_stripe(slices, &turn->denied);
    weir__lock_take(&stripe->lock);
    weir__denied_note(&slices->denied, &turn->denied, rows, job->ret, turn->asked_us,
                      weir__boot_us(), slices->slicing.life_us);
    weir__lock_release(&stripe->lock);
}

/* ---- answers without a call ---- */

static bool slices_spends(struct weir__slices *slices, weir_key key, const weir_limit *limit,
                          int64_t cost, weir_decision *ret)
{
    const struct slices_want want = slices_want(slices, key, &limit->rules[0], cost);
    return slices_step(slices, &want, false, SLICES_TRY, NULL, ret) == SLICES_DONE;
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
    if (WEIR__LIKELY(slices_fits(request)) &&
        WEIR__LIKELY(slices_spends(slices, request->key, request->limit, request->cost, ret))) {
        if (request->detail)
            *request->detail = *ret;
        return true;
    }
    return !request->acquire && request->cost > 0 && slices_remembers(request, 1) &&
           weir__denied_call(&slices->denied, request, 1, &denied) &&
           slices_recall(slices, &denied, request->detail, ret);
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
        done = slices_step_pool(slices, stripe, pool, &now, need, true, SLICES_SPEND, NULL, ret,
                                &ring) == SLICES_DONE;
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

/* ---- jobs ---- */

/* It is answered here. */
static void slices_done(struct slices_turn *turn, struct weir__job *job, int code)
{
    turn->step = SLICES_DONE;
    job->code = code;
    job->error[0] = 0;
}

/* Whether a denial is known that answers it. If not, its own will be worth remembering. */
static bool slices_knows(struct weir__slices *slices, struct slices_turn *turn,
                         const struct weir__job *job)
{
    turn->asked_us = weir__boot_us();
    turn->notes = turn->takes && job->requests[0].cost > 0 &&
                  slices_remembers(job->requests, job->count) &&
                  weir__denied_call(&slices->denied, job->requests, job->count, &turn->denied);
    return turn->notes && slices_recall(slices, &turn->denied, job->rows, job->ret);
}

static void slices_step_job(struct weir__slices *slices, struct slices_turn *turn,
                            struct weir__job *job)
{
    int64_t left_us = weir__max(0, job->deadline_us - weir__mono_us());
    int64_t asks_us = turn->joins < JOINS_MAX ? left_us + PATIENCE_US : SLICES_SPEND;
    turn->step = SLICES_SEND;
    if (turn->pooled)
        turn->step = slices_step(slices, &turn->want, turn->again, asks_us, &turn->call, job->ret);
    turn->again = true;
    if (turn->step == SLICES_DONE && job->rows)
        job->rows[0] = *job->ret;
    if (turn->step == SLICES_SEND && slices_knows(slices, turn, job))
        turn->step = SLICES_DONE;
    if (turn->step == SLICES_DONE)
        slices_done(turn, job, 0);
}

static void slices_begin(struct weir__slices *slices, struct slices_turn *turn,
                         struct weir__job *job)
{
    const weir_request *request = &job->requests[0];
    bool takes = job->verb == WEIR__VERB_TAKE && job->time_us < 0;
    turn->again = turn->pooled = turn->notes = false;
    turn->joins = 0;
    if (takes && job->count == 1 && slices_fits(request)) {
        turn->pooled = true;
        turn->want = slices_want(slices, request->key, &request->limit->rules[0], request->cost);
    }
    turn->takes = takes;
    slices_step_job(slices, turn, job);
}

/* The job asks for a slice, until slices_refilled. */
static void slices_refill(struct slices_turn *turn, struct weir__job *job)
{
    const struct weir__slice_ask ask = {.call = turn->call};
    turn->requests = job->requests;
    turn->ret = job->ret;
    turn->rows = job->rows;
    turn->refill = weir__slice_request(&ask, job->requests[0].key, job->requests[0].limit);
    job->requests = &turn->refill;
    job->ret = &turn->answer;
    job->rows = &turn->row;
}

static void slices_refilled(struct weir__slices *slices, struct slices_turn *turn,
                            struct weir__job *job)
{
    const struct weir__slice_ask ask = {.tag = {turn->want.tag[0], turn->want.tag[1]},
                                        .call = turn->call};
    bool done = weir__slice_answer(slices, &ask, job, turn->want.cost, turn->ret);
    job->requests = turn->requests;
    job->ret = turn->ret;
    job->rows = turn->rows;
    turn->step = job->code == WEIR_EUNREACHABLE ? SLICES_DONE : SLICES_SEND;
    if (done) { /* otherwise others have spent what was held beside it */
        if (job->rows)
            job->rows[0] = *job->ret;
        slices_done(turn, job, 0);
    }
}

/* Redis has answered a request itself. */
static void slices_sent(struct weir__slices *slices, struct slices_turn *turn,
                        struct weir__job *job)
{
    turn->step = SLICES_DONE;
    if (!weir__verb_decides(job->verb))
        return;
    atomic_fetch_add_explicit(&slices->central, 1, memory_order_relaxed);
    slices_note(slices, turn, job);
    if (!turn->pooled || job->code)
        return;
    struct weir__slices_stripe *stripe = weir__slices_stripe(slices, turn->want.tag);
    struct weir__pool_now now = weir__slices_now(slices);
    weir__lock_take(&stripe->lock);
    struct weir__pool *pool = weir__slices_find(slices, turn->want.tag);
    if (pool && pool->size == job->ret->limit)
        weir__pool_hear(pool, &now, job->ret);
    weir__lock_release(&stripe->lock);
}

/* Waits until the call is over that it joined. */
static void slices_join(struct weir__slices *slices, const struct slices_turn *turn,
                        int64_t deadline_us)
{
    struct weir__slices_stripe *stripe = weir__slices_stripe(slices, turn->want.tag);
    weir__lock_take(&stripe->lock);
    stripe->joined++;
    for (;;) {
        const struct weir__pool *pool = weir__slices_find(slices, turn->want.tag);
        if (!pool || pool->asked == 0 || pool->serial != turn->call.serial ||
            weir__mono_us() >= deadline_us)
            break;
        weir__cond_wait(&stripe->answered, &stripe->lock, deadline_us);
    }
    stripe->joined--;
    weir__lock_release(&stripe->lock);
}

/* Sends what is to be sent; false: nothing is. */
static bool slices_send(struct weir__remote *remote, struct weir__job *const jobs[], size_t n,
                        struct slices_turn *turns)
{
    struct weir__job *sent[WEIR__JOBS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (turns[i].step == SLICES_REFILL)
            slices_refill(&turns[i], jobs[i]);
        if (turns[i].step == SLICES_REFILL || turns[i].step == SLICES_SEND)
            sent[count++] = jobs[i];
    }
    if (count == 0)
        return false;
    weir__remote_send(remote, sent, count);
    for (size_t i = 0; i < n; i++) {
        if (turns[i].step == SLICES_REFILL)
            slices_refilled(remote->slices, &turns[i], jobs[i]);
        else if (turns[i].step == SLICES_SEND)
            slices_sent(remote->slices, &turns[i], jobs[i]);
    }
    return true;
}

/* Those that joined look again, until `join_us` they may join again. False: none is left. */
static bool slices_look_again(struct weir__slices *slices, struct weir__job *const jobs[], size_t n,
                              struct slices_turn *turns, int64_t join_us)
{
    bool some = false;
    for (size_t i = 0; i < n; i++) {
        if (turns[i].step == SLICES_JOIN) {
            turns[i].joins = weir__mono_us() < join_us ? turns[i].joins + 1 : JOINS_MAX;
            slices_step_job(slices, &turns[i], jobs[i]);
            if (turns[i].step != SLICES_DONE && weir__mono_us() >= jobs[i]->deadline_us)
                slices_done(&turns[i], jobs[i], WEIR_EUNREACHABLE);
        }
        some = some || turns[i].step != SLICES_DONE;
    }
    return some;
}

/* Who joins leaves half of the time for a call of its own: one that is sent too late would cost
 * everybody the connection. */
static void slices_run(struct weir__remote *remote, struct weir__job *const jobs[], size_t n,
                       struct slices_turn *turns)
{
    struct weir__slices *slices = remote->slices;
    int64_t now_us = weir__mono_us(), deadline_us = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        slices_begin(slices, &turns[i], jobs[i]);
        deadline_us = weir__min(deadline_us, jobs[i]->deadline_us);
    }
    const int64_t join_us = now_us + weir__max(0, deadline_us - now_us) / 2;
    do {
        size_t first = 0;
        if (slices_send(remote, jobs, n, turns))
            continue;
        while (first < n && turns[first].step != SLICES_JOIN)
            first++;
        if (first < n)
            slices_join(slices, &turns[first], join_us);
    } while (slices_look_again(slices, jobs, n, turns, join_us));
}

/* Not inlined: a single job needs room for one turn. */
static __attribute__((noinline)) void slices_run_many(struct weir__remote *remote,
                                                      struct weir__job *const jobs[], size_t n)
{
    struct slices_turn turns[WEIR__JOBS_MAX];
    assert(n <= WEIR__JOBS_MAX);
    slices_run(remote, jobs, n, turns);
}

void weir__slices_do(struct weir__remote *remote, struct weir__job *const jobs[], size_t n)
{
    struct slices_turn turn;
    if (!weir__slices_alive(remote->slices))
        weir__remote_send(remote, jobs, n);
    else if (n == 1)
        slices_run(remote, jobs, 1, &turn);
    else
        slices_run_many(remote, jobs, n);
}

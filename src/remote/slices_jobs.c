/* See slices.h. Jobs of a store that slices: each is answered here, asks for a slice, joins one
 * that another asks for, or goes to Redis by itself. */
#include "remote/slices.h"

#include "remote/remote.h"

#define JOINS_MAX 4         /* then the request goes to Redis by itself */
#define PATIENCE_US 1000000 /* beyond its deadline a call counts as in flight: its caller ends it */

/* A job on its way. */
struct slices_turn {
    struct weir__slices_want want;
    bool takes;  /* it is a take, by the clock of the servers */
    bool pooled; /* it may be answered from a pool */
    bool again;  /* it was counted already */
    unsigned joins;
    enum weir__slices_step step;
    struct weir__pool_call call; /* REFILL: which; JOIN: its serial */
    bool notes;                  /* a denial of it is worth remembering */
    struct weir__denied_call denied;
    int64_t asked_us; /* before it was */
    /* what the job says while it asks for a slice */
    weir_request refill, *requests;
    weir_decision answer, row, *ret, *rows;
};

/* It is answered here. */
static void slices_done(struct slices_turn *turn, struct weir__job *job, int code)
{
    turn->step = WEIR__SLICES_DONE;
    job->code = code;
    job->error[0] = 0;
}

/* Whether a denial is known that answers it. If not, its own will be worth remembering. */
static bool slices_knows(struct weir__slices *slices, struct slices_turn *turn,
                         const struct weir__job *job)
{
    turn->asked_us = weir__boot_us();
    turn->notes = turn->takes && job->requests[0].cost > 0 &&
                  weir__slices_remembers(job->requests, job->count) &&
                  weir__denied_call(&slices->denied, job->requests, job->count, &turn->denied);
    return turn->notes && weir__slices_recall(slices, &turn->denied, job->rows, job->ret);
}

static void slices_step_job(struct weir__slices *slices, struct slices_turn *turn,
                            struct weir__job *job)
{
    int64_t left_us = weir__max(0, job->deadline_us - weir__mono_us());
    int64_t asks_us = turn->joins < JOINS_MAX ? left_us + PATIENCE_US : WEIR__SLICES_SPEND;
    turn->step = WEIR__SLICES_SEND;
    if (turn->pooled)
        turn->step =
            weir__slices_step(slices, &turn->want, turn->again, asks_us, &turn->call, job->ret);
    turn->again = true;
    if (turn->step == WEIR__SLICES_DONE && job->rows)
        job->rows[0] = *job->ret;
    if (turn->step == WEIR__SLICES_SEND && slices_knows(slices, turn, job))
        turn->step = WEIR__SLICES_DONE;
    if (turn->step == WEIR__SLICES_DONE)
        slices_done(turn, job, 0);
}

static void slices_begin(struct weir__slices *slices, struct slices_turn *turn,
                         struct weir__job *job)
{
    const weir_request *request = &job->requests[0];
    bool takes = job->verb == WEIR__VERB_TAKE && job->time_us < 0;
    turn->again = turn->pooled = turn->notes = false;
    turn->joins = 0;
    if (takes && job->count == 1 && weir__slices_fits(request)) {
        turn->pooled = true;
        turn->want =
            weir__slices_want(slices, request->key, &request->limit->rules[0], request->cost);
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
    turn->step = job->code == WEIR_EUNREACHABLE ? WEIR__SLICES_DONE : WEIR__SLICES_SEND;
    if (done) { /* otherwise others have spent what was held beside it */
        if (job->rows)
            job->rows[0] = *job->ret;
        slices_done(turn, job, 0);
    }
}

/* A request was asked of Redis by itself. */
static void slices_sent(struct weir__slices *slices, struct slices_turn *turn,
                        struct weir__job *job)
{
    turn->step = WEIR__SLICES_DONE;
    if (!weir__verb_decides(job->verb))
        return;
    if (job->code != WEIR_EUNREACHABLE)
        atomic_fetch_add_explicit(&slices->central, 1, memory_order_relaxed);
    if (turn->notes)
        weir__slices_note(slices, &turn->denied, job, turn->asked_us);
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
        if (turns[i].step == WEIR__SLICES_REFILL)
            slices_refill(&turns[i], jobs[i]);
        if (turns[i].step == WEIR__SLICES_REFILL || turns[i].step == WEIR__SLICES_SEND)
            sent[count++] = jobs[i];
    }
    if (count == 0)
        return false;
    weir__remote_send(remote, sent, count);
    for (size_t i = 0; i < n; i++) {
        if (turns[i].step == WEIR__SLICES_REFILL)
            slices_refilled(remote->slices, &turns[i], jobs[i]);
        else if (turns[i].step == WEIR__SLICES_SEND)
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
        if (turns[i].step == WEIR__SLICES_JOIN) {
            turns[i].joins = weir__mono_us() < join_us ? turns[i].joins + 1 : JOINS_MAX;
            slices_step_job(slices, &turns[i], jobs[i]);
            if (turns[i].step != WEIR__SLICES_DONE && weir__mono_us() >= jobs[i]->deadline_us)
                slices_done(&turns[i], jobs[i], WEIR_EUNREACHABLE);
        }
        some = some || turns[i].step != WEIR__SLICES_DONE;
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
        while (first < n && turns[first].step != WEIR__SLICES_JOIN)
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

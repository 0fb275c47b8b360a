/*
 * The redis:// store behind the library's verbs: queries to the servers, and the local fallback
 * where none of them decides. remote.c opens and closes the store.
 */
#include "remote/remote.h"

#include "remote/slices.h"

#include <assert.h>
#include <string.h>

#define REFUSED_US 10000000 /* a server refuses for so long after the last call that it refused */

/* ---- queries ---- */

/* How much of the deadline is left for requests that may have waited already. */
static int64_t engine_time_left_us(const struct weir__remote *remote, const weir_request *requests,
                                   size_t n)
{
    int64_t waited_us = 0;
    for (size_t i = 0; i < n; i++)
        waited_us = weir__max(waited_us, requests[i].waited_us);
    return weir__max(0, remote->url.deadline_us - waited_us);
}

/* So little time that it is the wait's fault, not the server's, if there is no answer. */
static bool engine_is_short(const struct weir__remote *remote, int64_t left_us)
{
    return left_us < remote->url.deadline_us / 2;
}

/* Whether the last call to the server of this key got no answer in time. */
static bool engine_is_silent(const struct weir__remote *remote, const weir_request *request)
{
    struct weir__redis_query query = {.url = &remote->url, .requests = request, .count = 1};
    weir__redis_query_slot(&query);
    const struct weir__node *node = weir__fleet_route(remote->fleet, query.slot);
    return node && node->undecided == WEIR__UNDECIDED_LATE;
}

/* Whether requests that have waited are sent: servers are likely to answer in the time that is
 * left. An answer that comes too late helps nobody, costs others their time, and may be charged.
 * To a silent server nothing short is sent: it would not be noticed that it has gone. */
static bool engine_in_time(const struct weir__remote *remote, const weir_request *requests,
                           int64_t left_us)
{
    return left_us > 0 &&
           left_us >= atomic_load_explicit(&remote->answer_us, memory_order_relaxed) &&
           !(engine_is_short(remote, left_us) && engine_is_silent(remote, requests));
}

/* Learns how long servers take: quickly that it is longer, slowly that it is shorter. What has
 * waited for less than a quarter of the deadline is always sent, so this goes on. */
static void engine_learn(struct weir__remote *remote, int64_t took_us)
{
    const int64_t all_us = remote->url.deadline_us;
    int64_t known_us = atomic_load_explicit(&remote->answer_us, memory_order_relaxed);
    const int64_t more_us = weir__min(took_us, all_us - all_us / 4) - known_us;
    known_us += more_us > 0 ? more_us / 2 : more_us / 8;
    atomic_store_explicit(&remote->answer_us, known_us, memory_order_relaxed);
}

static void engine_prepare(struct weir__remote *remote, enum weir__verb verb,
                           const weir_request *requests, size_t n, int64_t now,
                           struct weir__redis_query *ret)
{
    *ret = (struct weir__redis_query){.url = &remote->url,
                                      .verb = verb,
                                      .requests = requests,
                                      .count = n,
                                      .wait_us = requests[0].wait_us,
                                      .time_us = remote->base.clock.now ? now : -1};
    for (size_t i = 0; i < n && requests[i].limit; i++)
        ret->limits += requests[i].limit->count;
    const int64_t left_us = engine_time_left_us(remote, requests, n);
    ret->call.deadline_us = weir__mono_us() + left_us;
    ret->call.quiet = engine_is_short(remote, left_us);
}

/* The limits as the servers are asked for them, `at_least` reduced by so much; NULL: by what is
 * known here. */
static void engine_withhold(struct weir__remote *remote, struct weir__redis_query *query,
                            const int64_t *at_least)
{
    int64_t known[WEIR_LIMITS_MAX] = {0};
    if (WEIR__LIKELY(remote->url.slices == 0) || !weir__verb_decides(query->verb))
        return;
    if (at_least)
        memcpy(known, at_least, sizeof known);
    weir__slices_withheld(remote, query->requests, query->count, known);
    weir__redis_query_withhold(query, known);
}

/* Whether an answer shows that a server refuses no more. One that does not write may answer
 * releases, peeks and denials all the while. So a denial shows it only if nothing was refused for
 * long. */
static bool engine_refuses_no_more(const struct weir__node *node,
                                   const struct weir__redis_query *query, int code)
{
    bool charges = weir__verb_decides(query->verb) && !weir__verb_reads(query->verb);
    return code == 0 && charges &&
           (query->ret->allowed || weir__mono_us() - node->refused_us >= REFUSED_US);
}

/* What became of a call, for weir__remote_look: of its server. */
static void engine_note_node(struct weir__node *node, const struct weir__redis_query *query,
                             int code)
{
    enum weir__undecided now = code != WEIR_EUNREACHABLE ? WEIR__UNDECIDED_NOT
                               : query->failed           ? WEIR__UNDECIDED_REFUSED
                                                         : WEIR__UNDECIDED_LATE;
    if (now == WEIR__UNDECIDED_REFUSED)
        node->refused_us = weir__mono_us();
    if (WEIR__LIKELY(node->undecided == now))
        return;
    if (now || node->undecided != WEIR__UNDECIDED_REFUSED ||
        engine_refuses_no_more(node, query, code))
        node->undecided = now;
}

/* Keeps what a server said, for weir_store_check, until one decides again. */
static int engine_note(struct weir__remote *remote, const struct weir__redis_query *query, int code)
{
    bool said = code != 0 && query->failed;
    if (code == 0 && WEIR__UNLIKELY(!remote->decided))
        remote->decided = true;
    if (WEIR__LIKELY(query->node != NULL))
        engine_note_node(query->node, query, code);
    if (WEIR__LIKELY(!said && (code != 0 || !remote->refused)))
        return code;
    weir__lock_take(&remote->lock);
    memcpy(remote->refusal, said ? query->error : "", said ? sizeof remote->refusal : 1);
    if (said && code == WEIR_EUNREACHABLE)
        memcpy(remote->undecided, query->error, sizeof remote->undecided);
    remote->refused = said;
    weir__lock_release(&remote->lock);
    return code;
}

/* All are sent, then all are awaited: so they share a round trip. Queries whose code is set already
 * are not sent. */
static void engine_query_all(struct weir__remote *remote, struct weir__redis_query *queries,
                             size_t n, int *codes)
{
    const int64_t begun_us = weir__mono_us();
    bool timed = false;
    for (size_t i = 0; i < n; i++) {
        if (codes[i] == 0)
            weir__redis_query_begin(remote->fleet, &queries[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (codes[i] == 0)
            weir__redis_query_flush(&queries[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (codes[i])
            continue;
        codes[i] =
            engine_note(remote, &queries[i], weir__redis_query_finish(remote->fleet, &queries[i]));
        timed = timed || queries[i].call.status == WEIR__CALL_DONE ||
                queries[i].call.status == WEIR__CALL_LATE;
        if (codes[i] == WEIR_EUNREACHABLE && !remote->bare && queries[i].verb == WEIR__VERB_ACQUIRE)
            weir__redis_query_give_back(&queries[i]);
    }
    if (timed)
        engine_learn(remote, weir__mono_us() - begun_us);
}

static int engine_query(struct weir__remote *remote, struct weir__redis_query *query)
{
    int code = weir__redis_query_slot(query) ? 0 : WEIR_ESLOTS;
    engine_query_all(remote, query, 1, &code);
    return code;
}

/* ---- take and peek ---- */

static void engine_hand_out(const weir_request *requests, size_t n, const weir_decision *rows)
{
    for (size_t i = 0; i < n; rows += requests[i].limit->count, i++) {
        if (requests[i].detail)
            memcpy(requests[i].detail, rows, requests[i].limit->count * sizeof *rows);
    }
}

/* What the commands can express: one wait for all requests. */
static int engine_check_together(const weir_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (requests[i].wait_us != requests[0].wait_us)
            return WEIR_EUNSUPPORTED;
    }
    return 0;
}

static enum weir__verb engine_take_verb(const weir_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (requests[i].acquire)
            return WEIR__VERB_ACQUIRE;
    }
    return WEIR__VERB_TAKE;
}

/* What was peeked one by one, as a call over all keys grants it: one amount where all allow it,
 * else what each limit would grant alone. */
static int64_t engine_grant(const weir_request *requests, size_t n, bool allowed,
                            weir_decision *rows)
{
    const struct weir__budget budget = weir__budget_of(requests, n);
    int64_t together = budget.most;
    weir_decision *row = rows;
    for (size_t i = 0; i < n && budget.least; i++) {
        for (size_t j = 0; j < requests[i].limit->count; j++, row++) {
            if (!requests[i].least || !row->allowed || !weir__limit_varies(requests[i].limit, j))
                continue;
            row->granted = weir__min(budget.most, row->remaining);
            together = weir__min(together, row->granted);
        }
    }
    row = rows;
    for (size_t i = 0; i < n && budget.least && allowed; i++) {
        for (size_t j = 0; j < requests[i].limit->count; j++, row++) {
            if (requests[i].least && weir__limit_varies(requests[i].limit, j))
                row->granted = together;
        }
    }
    return !allowed ? 0 : budget.least ? together : requests[0].cost;
}

/* Several keys are peeked one by one, in one round trip, and folded here. */
static int engine_peek_each(struct weir__remote *remote, const weir_request *requests, size_t n,
                            int64_t now, weir_decision *rows, weir_decision *ret)
{
    struct weir__redis_query queries[WEIR_LIMITS_MAX], whole;
    weir_decision each[WEIR_LIMITS_MAX];
    weir_request alone[WEIR_LIMITS_MAX];
    int codes[WEIR_LIMITS_MAX] = {0};
    const struct weir__budget budget = weir__budget_of(requests, n);
    size_t at = 0;
    assert(n <= WEIR_LIMITS_MAX);
    engine_prepare(remote, WEIR__VERB_PEEK, requests, n, now, &whole);
    if (!weir__redis_query_slot(&whole))
        return WEIR_ESLOTS;
    for (size_t i = 0; i < n; at += requests[i].limit->count, i++) {
        alone[i] = requests[i];
        if (alone[i].least) {
            alone[i].least = budget.least;
            alone[i].cost = budget.most;
        }
        engine_prepare(remote, WEIR__VERB_PEEK, &alone[i], 1, now, &queries[i]);
        engine_withhold(remote, &queries[i], NULL);
        queries[i].slot = whole.slot;
        queries[i].rows = rows + at;
        queries[i].ret = &each[i];
    }
    engine_query_all(remote, queries, n, codes);
    for (size_t i = 0; i < n; i++) {
        if (codes[i])
            return codes[i];
    }
    weir__fold(rows, at, ret);
    ret->granted = engine_grant(requests, n, ret->allowed, rows);
    return 0;
}

static void engine_do(struct weir__remote *remote, struct weir__job *const jobs[], size_t n);

static int engine_take_there(struct weir__remote *remote, const weir_request *requests, size_t n,
                             int64_t now, weir_decision *ret)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    const int64_t left_us = engine_time_left_us(remote, requests, n);
    struct weir__job job = {.verb = engine_take_verb(requests, n),
                            .requests = (weir_request *)requests,
                            .count = n,
                            .deadline_us = weir__mono_us() + left_us,
                            .quiet = engine_is_short(remote, left_us),
                            .time_us = remote->base.clock.now ? now : -1,
                            .ret = &folded,
                            .rows = rows};
    engine_do(remote, (struct weir__job *const[]){&job}, 1);
    if (job.code)
        return job.code;
    engine_hand_out(requests, n, rows);
    *ret = folded;
    return 0;
}

static int engine_peek_there(struct weir__remote *remote, const weir_request *requests, size_t n,
                             int64_t now, weir_decision *ret)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    struct weir__redis_query query;
    int code;
    if (n > 1) {
        code = engine_peek_each(remote, requests, n, now, rows, &folded);
    } else {
        engine_prepare(remote, WEIR__VERB_PEEK, requests, n, now, &query);
        engine_withhold(remote, &query, NULL);
        query.rows = rows;
        query.ret = &folded;
        code = engine_query(remote, &query);
    }
    if (code)
        return code;
    engine_hand_out(requests, n, rows);
    *ret = folded;
    return 0;
}

static int engine_decide_alive(struct weir__remote *remote, const weir_request *requests, size_t n,
                               enum weir__mode mode, int64_t now, weir_decision *ret)
{
    int code = weir__remote_ensure_alive(remote);
    if (code == 0)
        code = engine_check_together(requests, n);
    if (code == 0 && !engine_in_time(remote, requests, engine_time_left_us(remote, requests, n)))
        code = WEIR_EUNREACHABLE;
    if (code == 0)
        code = mode == WEIR__PEEK ? engine_peek_there(remote, requests, n, now, ret)
                                  : engine_take_there(remote, requests, n, now, ret);
    return code == WEIR_EUNREACHABLE ? weir__remote_fall_back(remote, requests, n, mode, ret)
                                     : code;
}

static int engine_decide(weir_store *store, const weir_request *requests, size_t n,
                         enum weir__mode mode, int64_t now, weir_decision *ret)
{
    if (n == 1 && mode == WEIR__TAKE && weir__remote_of(store)->slices &&
        weir__slices_try(store, requests, ret))
        return 0;
    return engine_decide_alive(weir__remote_of(store), requests, n, mode, now, ret);
}

/* Not inlined: an answer from a slice needs no room for a call. */
static __attribute__((noinline)) int engine_take_slowly(weir_store *store, weir_key key,
                                                        const weir_limit *limit, int64_t cost,
                                                        weir_decision *ret)
{
    weir_request request = weir_request_make(key, limit);
    int64_t now = weir__store_now(store);
    if (now < 0)
        return WEIR_EINVAL;
    request.cost = cost;
    int state = weir__store_begin(store);
    int code = engine_decide_alive(weir__remote_of(store), &request, 1, WEIR__TAKE, now, ret);
    weir__store_end(store, state);
    weir__store_count(store, code, ret);
    return code;
}

/* One limit, one key: from a slice if there is one. */
static int engine_take(weir_store *store, weir_key key, const weir_limit *limit, int64_t cost,
                       weir_decision *ret)
{
    bool slices = weir__remote_of(store)->slices;
    if (WEIR__LIKELY(slices && weir__slices_take(store, key, limit, cost, ret))) {
        weir__store_count_quick(store, 0, ret);
        return 0;
    }
    return engine_take_slowly(store, key, limit, cost, ret);
}

/* A pool has a hash of its own. */
static int engine_take_hashed(weir_store *store, const weir_hashed_key *key,
                              const weir_limit *limit, int64_t cost, weir_decision *ret)
{
    return engine_take(store, key->key, limit, cost, ret);
}

static int engine_take_batch(struct weir__remote *remote, const weir_request *requests, size_t n,
                             int64_t now, weir_decision *rets)
{
    struct weir__job jobs[WEIR__JOBS_MAX], *these[WEIR__JOBS_MAX];
    int64_t now_us = weir__mono_us();
    size_t count = 0;
    int first = 0;
    assert(n <= WEIR__JOBS_MAX);
    for (size_t i = 0; i < n; i++) {
        int64_t left_us = engine_time_left_us(remote, &requests[i], 1);
        const bool sent = engine_in_time(remote, &requests[i], left_us);
        if (sent)
            these[count++] = &jobs[i];
        jobs[i] = (struct weir__job){.verb = engine_take_verb(&requests[i], 1),
                                     .requests = (weir_request *)&requests[i],
                                     .count = 1,
                                     .deadline_us = now_us + left_us,
                                     .quiet = engine_is_short(remote, left_us),
                                     .code = WEIR_EUNREACHABLE,
                                     .time_us = remote->base.clock.now ? now : -1,
                                     .ret = &rets[i],
                                     .rows = requests[i].detail};
        if (!sent && remote->slices && weir__slices_try(&remote->base, &requests[i], &rets[i]))
            jobs[i].code = 0;
    }
    if (count > 0)
        engine_do(remote, these, count);
    for (size_t i = 0; i < n; i++) {
        int code = jobs[i].code;
        if (code == WEIR_EUNREACHABLE)
            code = weir__remote_fall_back(remote, &requests[i], 1, WEIR__TAKE, &rets[i]);
        if (code)
            rets[i] = (weir_decision){.code = code};
        first = first ? first : code;
    }
    return first;
}

static int engine_take_many(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                            weir_decision *rets)
{
    struct weir__remote *remote = weir__remote_of(store);
    int dead = weir__remote_ensure_alive(remote), first = dead;
    for (size_t i = 0; i < n && dead; i++)
        rets[i] = (weir_decision){.code = dead};
    for (size_t done = 0; done < n && !dead; done += WEIR__JOBS_MAX) {
        size_t some = n - done < WEIR__JOBS_MAX ? n - done : WEIR__JOBS_MAX;
        int code = engine_take_batch(remote, requests + done, some, now, rets + done);
        first = first ? first : code;
    }
    return first;
}

/* ---- jobs ---- */

/* Whether an acquire that failed may have got a lease all the same, now or later. */
static bool engine_may_hold(const struct weir__redis_query *query)
{
    enum weir__call_status status = query->call.status;
    return status == WEIR__CALL_LATE || status == WEIR__CALL_LOST;
}

/* A job as a query; 0, or why it cannot be sent. */
static int engine_prepare_job(struct weir__remote *remote, const struct weir__job *job,
                              struct weir__redis_query *ret)
{
    engine_prepare(remote, job->verb, job->requests, job->count, 0, ret);
    ret->time_us = job->time_us;
    ret->call.deadline_us = job->deadline_us;
    ret->call.quiet = job->quiet;
    ret->lease = job->lease;
    ret->correction = &job->correction;
    ret->ret = job->ret;
    ret->rows = job->rows;
    engine_withhold(remote, ret, job->withheld);
    if (job->verb == WEIR__VERB_ACQUIRE)
        ret->lease = weir__redis_query_chosen(ret);
    if (job->verb == WEIR__VERB_ACQUIRE && !ret->lease && weir__lease_id(&ret->lease))
        return WEIR_ESYSTEM;
    int code = engine_check_together(job->requests, job->count);
    return code == 0 && !weir__redis_query_slot(ret) ? WEIR_ESLOTS : code;
}

static void engine_send(struct weir__remote *remote, struct weir__job *const jobs[], size_t n,
                        struct weir__redis_query *queries, int *codes)
{
    for (size_t i = 0; i < n; i++)
        codes[i] = engine_prepare_job(remote, jobs[i], &queries[i]);
    engine_query_all(remote, queries, n, codes);
    for (size_t i = 0; i < n; i++) {
        struct weir__job *job = jobs[i];
        job->code = codes[i];
        job->integer = queries[i].integer;
        job->lease = queries[i].lease;
        if (job->verb == WEIR__VERB_ACQUIRE && job->code && !engine_may_hold(&queries[i]))
            job->lease = 0;
        job->error[0] = 0;
        if (queries[i].failed)
            memcpy(job->error, queries[i].error, sizeof job->error);
        if (job->verb == WEIR__VERB_SETTLE || job->verb == WEIR__VERB_RELEASE)
            weir__slices_forgive(remote, job->requests[0].key, job->requests[0].limit);
    }
}

/* Not inlined: a single job needs room for one query. */
static __attribute__((noinline)) void engine_send_many(struct weir__remote *remote,
                                                       struct weir__job *const jobs[], size_t n)
{
    struct weir__redis_query queries[WEIR__JOBS_MAX];
    int codes[WEIR__JOBS_MAX];
    assert(n <= WEIR__JOBS_MAX);
    engine_send(remote, jobs, n, queries, codes);
}

void weir__remote_send(struct weir__remote *remote, struct weir__job *const jobs[], size_t n)
{
    struct weir__redis_query query;
    int code;
    if (n == 1)
        engine_send(remote, jobs, 1, &query, &code);
    else
        engine_send_many(remote, jobs, n);
}

static void engine_do(struct weir__remote *remote, struct weir__job *const jobs[], size_t n)
{
    if (remote->slices)
        weir__slices_do(remote, jobs, n);
    else
        weir__remote_send(remote, jobs, n);
}

void weir__remote_do(weir_store *store, struct weir__job *const jobs[], size_t n)
{
    struct weir__remote *remote = weir__remote_of(store);
    int dead = weir__remote_ensure_alive(remote);
    if (WEIR__LIKELY(dead == 0))
        engine_do(remote, jobs, n);
    for (size_t i = 0; i < n && dead; i++) {
        jobs[i]->code = dead;
        jobs[i]->error[0] = 0;
    }
}

/* ---- the other verbs, of one key ---- */

static int engine_settle(weir_store *store, weir_key key, const weir_limit *limit,
                         const struct weir__correction *correction)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_request_make(key, limit);
    struct weir__redis_query query;
    int code = weir__remote_ensure_alive(remote);
    if (code)
        return code;
    int local = weir__fallback_settle(weir__remote_zone(remote), key, limit, correction);
    bool there = weir__settles_there(correction);
    if (!there && local != WEIR_EUNREACHABLE)
        return local;
    engine_prepare(remote, WEIR__VERB_SETTLE, &request, 1, correction->now_us, &query);
    query.correction = correction;
    code = engine_query(remote, &query);
    weir__slices_forgive(remote, key, limit);
    if (code == WEIR_EUNREACHABLE && !there)
        return 0; /* they were charged nothing, and are to be charged nothing */
    return code == 0 && query.integer ? WEIR_ESETTLED : code;
}

static int engine_change_lease(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                               uint64_t lease, enum weir__lease_verb verb, int64_t now)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_request_make(key, limit);
    struct weir__redis_query query;
    int code = weir__remote_ensure_alive(remote);
    (void)i;
    if (code)
        return code;
    engine_prepare(remote, verb == WEIR__RENEW ? WEIR__VERB_RENEW : WEIR__VERB_RELEASE, &request, 1,
                   now, &query);
    query.lease = lease;
    code = engine_query(remote, &query);
    weir__slices_forgive(remote, key, limit);
    if (code == 0 && query.integer == 1)
        return 0;
    if (code && code != WEIR_EUNREACHABLE)
        return code;
    if (weir__fallback_lease(weir__remote_zone(remote), key, limit, lease, verb) == 0)
        return 0;
    if (code && verb == WEIR__RELEASE) /* not everybody comes again */
        weir__redis_query_give_back(&query);
    return code ? code : WEIR_ENOLEASE;
}

/* A verb that takes a key and nothing else. */
static int engine_query_key(struct weir__remote *remote, enum weir__verb verb, weir_key key,
                            int64_t now, struct weir__shown *shown, struct weir__redis_query *ret)
{
    weir_request request = weir_request_make(key, NULL);
    engine_prepare(remote, verb, &request, 1, now, ret);
    ret->shown = shown;
    return engine_query(remote, ret);
}

static int engine_reset(weir_store *store, weir_key key, int64_t now, bool *ret)
{
    struct weir__remote *remote = weir__remote_of(store);
    struct weir__redis_query query;
    int code = weir__remote_ensure_alive(remote);
    if (code)
        return code;
    bool local = weir__fallback_reset(weir__remote_zone(remote), key);
    code = engine_query_key(remote, WEIR__VERB_RESET, key, now, NULL, &query);
    weir__slices_reset(remote, key);
    *ret = local || (code == 0 && query.integer == 1);
    return code;
}

static int engine_show(weir_store *store, weir_key key, int64_t now, struct weir__shown *ret,
                       size_t *ret_count)
{
    struct weir__remote *remote = weir__remote_of(store);
    struct weir__redis_query query;
    int code = weir__remote_ensure_alive(remote);
    if (code == 0)
        code = engine_query_key(remote, WEIR__VERB_SHOW, key, now, ret, &query);
    *ret_count = code == 0 ? query.shown_count : 0;
    return code;
}

/* In a child that has not asked yet, the fleet is the parent's. A key that is no key has no lane:
 * it is refused later, and its bytes may not be there. */
static unsigned engine_lane(const weir_store *store, weir_key key)
{
    struct weir__remote *remote = weir__remote_of((weir_store *)store);
    const weir_request request = weir_request_make(key, NULL);
    struct weir__redis_query query = {.url = &remote->url,
                                      .requests = &request,
                                      .count = 1,
                                      .time_us = remote->base.clock.now ? 0 : -1};
    if (remote->url.kind != WEIR__REDIS_CLUSTER || remote->owner != getpid() ||
        !weir__key_in_bounds(key))
        return 0;
    weir__redis_query_slot(&query);
    const struct weir__node *node = weir__fleet_route(remote->fleet, query.slot);
    return node ? 1 + weir__fleet_index(remote->fleet, node) : 0;
}

const struct weir__engine weir__remote_engine = {
    .blocks = true,
    .decide = engine_decide,
    .take = engine_take,
    .take_hashed = engine_take_hashed,
    .take_many = engine_take_many,
    .settle = engine_settle,
    .change_lease = engine_change_lease,
    .reset = engine_reset,
    .show = engine_show,
    .lane = engine_lane,
    .check = weir__remote_check,
    .why = weir__remote_explain,
    .close = weir__remote_close,
};

/* The redis:// store behind the library's verbs: questions to the servers, the stand-in where none
 * decides. */
#include "remote/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whose process this is: after fork everything but the address is made anew. */
static inline int be_alive(struct weir__remote *remote)
{
    return WEIR__LIKELY(remote->owner == getpid()) ? 0 : weir__remote_revive(remote);
}

/* ---- asking ---- */

static void prepare(struct weir__remote *remote, enum weir__verb verb, const weir_request *requests,
                    size_t n, int64_t now, struct weir__ask *ret)
{
    *ret = (struct weir__ask){.url = &remote->url,
                              .verb = verb,
                              .requests = requests,
                              .count = n,
                              .wait_us = requests[0].wait_us,
                              .time_us = remote->base.clock.now ? now : -1};
    for (size_t i = 0; i < n && requests[i].limit; i++)
        ret->limits += requests[i].limit->count;
    ret->call.deadline_us = weir__mono_us() + remote->url.deadline_us;
}

/* Keeps what a server said, for weir_store_check, until one decides again. */
static int note(struct weir__remote *remote, const struct weir__ask *ask, int code)
{
    bool said = code != 0 && ask->failed;
    if (code == 0 && WEIR__UNLIKELY(!remote->decided))
        remote->decided = true;
    if (WEIR__LIKELY(!said && (code != 0 || !remote->refused)))
        return code;
    pthread_mutex_lock(&remote->lock);
    memcpy(remote->refusal, said ? ask->error : "", said ? sizeof remote->refusal : 1);
    remote->refused = said;
    pthread_mutex_unlock(&remote->lock);
    return code;
}

/* All sent, then all awaited: how many questions share a round trip. Codes that are set already stay,
 * and their questions unasked. */
static void ask_all(struct weir__remote *remote, struct weir__ask *asks, size_t n, int *codes)
{
    for (size_t i = 0; i < n; i++) {
        if (codes[i] == 0)
            weir__ask_begin(remote->fleet, &asks[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (codes[i] == 0)
            weir__ask_flush(&asks[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (codes[i] == 0)
            codes[i] = note(remote, &asks[i], weir__ask_finish(remote->fleet, &asks[i]));
    }
}

static int ask_and_wait(struct weir__remote *remote, struct weir__ask *ask)
{
    if (!weir__ask_slot(ask))
        return WEIR_ESLOTS;
    weir__ask_begin(remote->fleet, ask);
    weir__ask_flush(ask);
    return note(remote, ask, weir__ask_finish(remote->fleet, ask));
}

/* ---- take and peek ---- */

static void hand_out(const weir_request *requests, size_t n, const weir_decision *rows)
{
    for (size_t i = 0; i < n; rows += requests[i].limit->count, i++) {
        if (requests[i].detail)
            memcpy(requests[i].detail, rows, requests[i].limit->count * sizeof *rows);
    }
}

/* What the commands can say: one wait for all, leases of one key alone. */
static int check_group(const weir_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (requests[i].wait_us != requests[0].wait_us || (requests[i].acquire && n > 1))
            return WEIR_EUNSUPPORTED;
    }
    return 0;
}

/* The verb of a single request, and the lease a script will name. */
static int set_verb(const weir_request *request, enum weir__mode mode, struct weir__ask *ask)
{
    ask->verb = mode == WEIR__PEEK ? WEIR__VERB_PEEK
                : request->acquire ? WEIR__VERB_ACQUIRE
                                   : WEIR__VERB_TAKE;
    return ask->verb == WEIR__VERB_ACQUIRE && weir__lease_id(&ask->lease) ? WEIR_ESYSTEM : 0;
}

/* Several keys are peeked one by one, in one round trip, and folded here. */
static int peek_each(struct weir__remote *remote, const weir_request *requests, size_t n,
                     int64_t now, weir_decision *rows, weir_decision *ret)
{
    struct weir__ask asks[WEIR_LIMITS_MAX], whole;
    weir_decision each[WEIR_LIMITS_MAX];
    int codes[WEIR_LIMITS_MAX] = {0};
    size_t at = 0;
    prepare(remote, WEIR__VERB_PEEK, requests, n, now, &whole);
    if (!weir__ask_slot(&whole))
        return WEIR_ESLOTS;
    for (size_t i = 0; i < n; at += requests[i].limit->count, i++) {
        prepare(remote, WEIR__VERB_PEEK, &requests[i], 1, now, &asks[i]);
        asks[i].slot = whole.slot;
        asks[i].rows = rows + at;
        asks[i].ret = &each[i];
    }
    ask_all(remote, asks, n, codes);
    for (size_t i = 0; i < n; i++) {
        if (codes[i])
            return codes[i];
    }
    weir__fold(rows, at, ret);
    return 0;
}

static int decide_there(struct weir__remote *remote, const weir_request *requests, size_t n,
                        enum weir__mode mode, int64_t now, weir_decision *ret)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    struct weir__ask ask;
    int code;
    if (n > 1 && mode == WEIR__PEEK) {
        code = peek_each(remote, requests, n, now, rows, &folded);
    } else {
        prepare(remote, WEIR__VERB_TAKE, requests, n, now, &ask);
        ask.rows = rows;
        ask.ret = &folded;
        code = set_verb(&requests[0], mode, &ask);
        if (code == 0)
            code = ask_and_wait(remote, &ask);
    }
    if (code)
        return code;
    hand_out(requests, n, rows);
    *ret = folded;
    return 0;
}

static int decide(weir_store *store, const weir_request *requests, size_t n, enum weir__mode mode,
                  int64_t now, weir_decision *ret)
{
    struct weir__remote *remote = weir__remote_of(store);
    int code = be_alive(remote);
    if (code == 0)
        code = check_group(requests, n);
    if (code == 0)
        code = decide_there(remote, requests, n, mode, now, ret);
    return code == WEIR_EUNREACHABLE ? weir__fallback_decide(remote, requests, n, mode, ret) : code;
}

static int take_batch(struct weir__remote *remote, const weir_request *requests, size_t n,
                      int64_t now, weir_decision *rets)
{
    struct weir__ask asks[WEIR__JOBS_MAX];
    weir_decision answers[WEIR__JOBS_MAX];
    int codes[WEIR__JOBS_MAX], first = 0;
    for (size_t i = 0; i < n; i++) {
        struct weir__ask *ask = &asks[i];
        prepare(remote, WEIR__VERB_TAKE, &requests[i], 1, now, ask);
        ask->rows = requests[i].detail;
        ask->ret = &answers[i];
        codes[i] = set_verb(&requests[i], WEIR__TAKE, ask);
        weir__ask_slot(ask);
    }
    ask_all(remote, asks, n, codes);
    for (size_t i = 0; i < n; i++) {
        if (codes[i] == 0)
            rets[i] = answers[i];
        else if (codes[i] == WEIR_EUNREACHABLE)
            codes[i] = weir__fallback_decide(remote, &requests[i], 1, WEIR__TAKE, &rets[i]);
        first = first ? first : codes[i];
    }
    return first;
}

static int take_many(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                     weir_decision *rets)
{
    struct weir__remote *remote = weir__remote_of(store);
    int code = be_alive(remote);
    for (size_t done = 0; done < n && code == 0; done += WEIR__JOBS_MAX)
        code = take_batch(remote, requests + done,
                          n - done < WEIR__JOBS_MAX ? n - done : WEIR__JOBS_MAX, now, rets + done);
    return code;
}

/* ---- jobs ---- */

/* A job as a question; 0, or why it cannot be put. */
static int prepare_job(struct weir__remote *remote, const struct weir__job *job,
                       struct weir__ask *ret)
{
    prepare(remote, job->verb, job->requests, job->count, 0, ret);
    ret->time_us = job->time_us;
    ret->call.deadline_us = job->deadline_us;
    ret->lease = job->lease;
    ret->correction = &job->correction;
    ret->ret = job->ret;
    ret->rows = job->rows;
    if (job->verb == WEIR__VERB_ACQUIRE && weir__lease_id(&ret->lease))
        return WEIR_ESYSTEM;
    int code = check_group(job->requests, job->count);
    return code == 0 && !weir__ask_slot(ret) ? WEIR_ESLOTS : code;
}

void weir__remote_do(weir_store *store, struct weir__job *const jobs[], size_t n)
{
    struct weir__remote *remote = weir__remote_of(store);
    struct weir__ask asks[WEIR__JOBS_MAX];
    int codes[WEIR__JOBS_MAX], alive = be_alive(remote);
    for (size_t i = 0; i < n; i++) {
        codes[i] = prepare_job(remote, jobs[i], &asks[i]);
        codes[i] = alive ? alive : codes[i];
    }
    ask_all(remote, asks, n, codes);
    for (size_t i = 0; i < n; i++) {
        jobs[i]->code = codes[i];
        jobs[i]->integer = asks[i].integer;
        jobs[i]->lease = asks[i].lease;
        snprintf(jobs[i]->error, sizeof jobs[i]->error, "%s", asks[i].failed ? asks[i].error : "");
    }
}

/* ---- the other verbs ---- */

static int settle(weir_store *store, weir_key key, const weir_limit *limit,
                  const struct weir__correction *correction)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_request_make(key, limit);
    struct weir__ask ask;
    int code = be_alive(remote);
    if (code)
        return code;
    prepare(remote, WEIR__VERB_SETTLE, &request, 1, correction->now_us, &ask);
    ask.correction = correction;
    code = ask_and_wait(remote, &ask);
    return code == 0 && ask.integer ? WEIR_ESETTLED : code;
}

static int change_lease(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                        uint64_t lease, enum weir__lease_verb verb, int64_t now)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_request_make(key, limit);
    struct weir__ask ask;
    int code = be_alive(remote);
    (void)i;
    if (code)
        return code;
    prepare(remote, verb == WEIR__RENEW ? WEIR__VERB_RENEW : WEIR__VERB_RELEASE, &request, 1, now,
            &ask);
    ask.lease = lease;
    code = ask_and_wait(remote, &ask);
    if (code == 0 && ask.integer == 1)
        return 0;
    if (code && code != WEIR_EUNREACHABLE)
        return code;
    int local = weir__fallback_lease(remote, key, limit, lease, verb);
    return local == 0 ? 0 : code == 0 ? WEIR_ENOLEASE : code;
}

static int reset(weir_store *store, weir_key key, int64_t now, bool *ret)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_request_make(key, NULL);
    struct weir__ask ask;
    int code = be_alive(remote);
    if (code)
        return code;
    prepare(remote, WEIR__VERB_RESET, &request, 1, now, &ask);
    bool local = weir__fallback_reset(remote, key);
    code = ask_and_wait(remote, &ask);
    *ret = local || (code == 0 && ask.integer == 1);
    return code;
}

static int show(weir_store *store, weir_key key, int64_t now, struct weir__shown *ret,
                size_t *ret_count)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_request_make(key, NULL);
    struct weir__ask ask;
    int code = be_alive(remote);
    if (code)
        return code;
    prepare(remote, WEIR__VERB_SHOW, &request, 1, now, &ask);
    ask.shown = ret;
    code = ask_and_wait(remote, &ask);
    *ret_count = ask.shown_count;
    return code;
}

int weir__remote_why(weir_store *store, weir_error *err)
{
    struct weir__remote *remote = weir__remote_of(store);
    int code = be_alive(remote);
    if (code)
        return weir__fail(err, code, 0, "%s", weir_strerror(code));
    return weir__fleet_check(remote->fleet, err);
}

bool weir__remote_reachable(weir_store *store)
{
    struct weir__remote *remote = weir__remote_of(store);
    return remote->owner != getpid() || weir__fleet_reachable(remote->fleet);
}

void weir__remote_look(weir_store *store, struct weir__remote_look *ret)
{
    static const char *const standins[] = {
        [WEIR__FAIL_LOCAL] = "a zone of this process decides",
        [WEIR__FAIL_OPEN] = "everything is allowed",
        [WEIR__FAIL_CLOSED] = "everything is denied",
    };
    struct weir__remote *remote = weir__remote_of(store);
    weir_error err;
    bool reached = weir__remote_why(store, &err) == 0;
    bool decided = atomic_exchange(&remote->decided, false);
    *ret = (struct weir__remote_look){
        .decided = remote->stood_in, .standin = standins[remote->url.fail], .reached = reached};
    bool grew = ret->decided != remote->look.decided && remote->look.reached;
    if (!reached || (decided && !remote->refused))
        remote->look.undecided = false;
    else if (grew)
        remote->look.undecided = true;
    ret->down = !reached || remote->look.undecided;
    remote->look.decided = ret->decided;
    remote->look.reached = reached;
    snprintf(ret->why, sizeof ret->why, "%s",
             reached ? "answers do not come in time" : err.message);
    pthread_mutex_lock(&remote->lock);
    if (reached && remote->refusal[0])
        snprintf(ret->why, sizeof ret->why, "%s", remote->refusal);
    pthread_mutex_unlock(&remote->lock);
}

/* 0 while every server can be reached and none has refused anything. */
static int check(weir_store *store, weir_error *err)
{
    struct weir__remote *remote = weir__remote_of(store);
    int code = weir__remote_why(store, err);
    if (code)
        return code;
    pthread_mutex_lock(&remote->lock);
    if (remote->refusal[0])
        code = weir__fail(err, WEIR_ESYSTEM, 0, "a server refused: %s", remote->refusal);
    pthread_mutex_unlock(&remote->lock);
    return code;
}

/* In the server's own words where it has said something. */
static bool why(weir_store *store, weir_error *err)
{
    struct weir__remote *remote = weir__remote_of(store);
    pthread_mutex_lock(&remote->lock);
    bool said = remote->refusal[0] != 0;
    if (said)
        weir__fail(err, WEIR_ESYSTEM, 0, "%s", remote->refusal);
    pthread_mutex_unlock(&remote->lock);
    return said || weir__remote_why(store, err) != 0;
}

static void close_remote(weir_store *store)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir__fleet_stop(remote->fleet, remote->owner != getpid());
    weir_store_close(remote->standin.local);
    pthread_mutex_destroy(&remote->lock);
    free(remote);
}

const struct weir__engine weir__remote_engine = {
    .decide = decide,
    .take_many = take_many,
    .settle = settle,
    .change_lease = change_lease,
    .reset = reset,
    .show = show,
    .check = check,
    .why = why,
    .close = close_remote,
};

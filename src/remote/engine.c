/* The redis:// store behind the library's verbs: questions to the servers, the stand-in where none
 * decides. */
#include "remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 32 /* requests of weir_take_many under way at once */

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

/* Keeps what a server said, for weir_store_check. */
static int note(struct weir__remote *remote, const struct weir__ask *ask, int code)
{
    if (code == 0 || code == WEIR_EUNREACHABLE)
        return code;
    pthread_mutex_lock(&remote->lock);
    memcpy(remote->refusal, ask->error, sizeof remote->refusal);
    pthread_mutex_unlock(&remote->lock);
    return code;
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
    int code = 0;
    size_t at = 0;
    prepare(remote, WEIR__VERB_PEEK, requests, n, now, &whole);
    if (!weir__ask_slot(&whole))
        return WEIR_ESLOTS;
    for (size_t i = 0; i < n; at += requests[i].limit->count, i++) {
        prepare(remote, WEIR__VERB_PEEK, &requests[i], 1, now, &asks[i]);
        asks[i].slot = whole.slot;
        asks[i].rows = rows + at;
        asks[i].ret = &each[i];
        weir__ask_begin(remote->fleet, &asks[i]);
    }
    for (size_t i = 0; i < n; i++)
        weir__ask_flush(&asks[i]);
    for (size_t i = 0; i < n; i++) {
        int one = note(remote, &asks[i], weir__ask_finish(remote->fleet, &asks[i]));
        code = code ? code : one;
    }
    if (code == 0)
        weir__fold(rows, at, ret);
    return code;
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

/* A batch: all sent, then all awaited. */
static int take_batch(struct weir__remote *remote, const weir_request *requests, size_t n,
                      int64_t now, weir_decision *rets)
{
    struct weir__ask asks[BATCH];
    weir_decision answers[BATCH];
    int first = 0;
    for (size_t i = 0; i < n; i++) {
        struct weir__ask *ask = &asks[i];
        prepare(remote, WEIR__VERB_TAKE, &requests[i], 1, now, ask);
        ask->rows = requests[i].detail;
        ask->ret = &answers[i];
        set_verb(&requests[i], WEIR__TAKE, ask);
        weir__ask_slot(ask);
        weir__ask_begin(remote->fleet, ask);
    }
    for (size_t i = 0; i < n; i++)
        weir__ask_flush(&asks[i]);
    for (size_t i = 0; i < n; i++) {
        int code = note(remote, &asks[i], weir__ask_finish(remote->fleet, &asks[i]));
        if (code == 0)
            rets[i] = answers[i];
        else if (code == WEIR_EUNREACHABLE)
            code = weir__fallback_decide(remote, &requests[i], 1, WEIR__TAKE, &rets[i]);
        first = first ? first : code;
    }
    return first;
}

static int take_many(weir_store *store, const weir_request *requests, size_t n, int64_t now,
                     weir_decision *rets)
{
    struct weir__remote *remote = weir__remote_of(store);
    int code = be_alive(remote);
    for (size_t done = 0; done < n && code == 0; done += BATCH)
        code = take_batch(remote, requests + done, n - done < BATCH ? n - done : BATCH, now,
                          rets + done);
    return code;
}

/* ---- the other verbs ---- */

static int settle(weir_store *store, weir_key key, const weir_limit *limit,
                  const struct weir__correction *correction)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_ask(key, limit);
    struct weir__ask ask;
    int code = be_alive(remote);
    if (code)
        return code;
    prepare(remote, WEIR__VERB_SETTLE, &request, 1, correction->now_us, &ask);
    ask.correction = correction;
    return ask_and_wait(remote, &ask);
}

static int change_lease(weir_store *store, weir_key key, const weir_limit *limit, size_t i,
                        uint64_t lease, enum weir__lease_verb verb, int64_t now)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_ask(key, limit);
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

static int reset(weir_store *store, weir_key key)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir_request request = weir_ask(key, NULL);
    struct weir__ask ask;
    int code = be_alive(remote);
    if (code)
        return code;
    int64_t now = weir__store_now(store);
    if (now < 0)
        return WEIR_EINVAL;
    prepare(remote, WEIR__VERB_RESET, &request, 1, now, &ask);
    weir__fallback_reset(remote, key);
    return ask_and_wait(remote, &ask);
}

/* Whether every server that owns keys can be reached; its error says which cannot. */
static int check_reach(struct weir__fleet *fleet, weir_error *err)
{
    char why[WEIR__WHY_SIZE];
    for (unsigned i = 0; i < fleet->count; i++) {
        struct weir__node *node = fleet->nodes[i];
        if (!node->owns || node->link.state == WEIR__LINK_UP)
            continue;
        struct weir__redis_host host = weir__fleet_host(fleet, node);
        weir__link_why(&node->link, why);
        return weir__fail(err, WEIR_EUNREACHABLE, 0, "%s:%u: %s", host.name, (unsigned)host.port,
                          why);
    }
    if (fleet->count > 0)
        return 0;
    pthread_mutex_lock(&fleet->lock);
    memcpy(why, fleet->why, sizeof why);
    pthread_mutex_unlock(&fleet->lock);
    return weir__fail(err, WEIR_EUNREACHABLE, 0, "no server is known yet: %s", why);
}

/* 0 while every server can be reached and none has refused anything. */
static int check(weir_store *store, weir_error *err)
{
    struct weir__remote *remote = weir__remote_of(store);
    int code = be_alive(remote);
    if (code)
        return weir__fail(err, code, 0, "%s", weir_strerror(code));
    code = check_reach(remote->fleet, err);
    if (code)
        return code;
    pthread_mutex_lock(&remote->lock);
    if (remote->refusal[0])
        code = weir__fail(err, WEIR_ESYSTEM, 0, "a server refused: %s", remote->refusal);
    pthread_mutex_unlock(&remote->lock);
    return code;
}

static void close_remote(weir_store *store)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir__fleet_stop(remote->fleet, remote->owner != getpid());
    weir_store_close(remote->local);
    pthread_mutex_destroy(&remote->lock);
    free(remote);
}

const struct weir__engine weir__remote_engine = {
    .decide = decide,
    .take_many = take_many,
    .settle = settle,
    .change_lease = change_lease,
    .reset = reset,
    .check = check,
    .close = close_remote,
};

/*
 * A redis:// store as a whole: opening, closing, its life after fork, and how it is.
 *
 * Opening needs a correct address, but no servers. It waits a second at most for the first
 * connection. It fails only where a server answers that it will not have us: a wrong password, no
 * such database, no module although engine=module wants it. A server that is away is left to the
 * keeper, and to the local fallback until it is back.
 *
 * After fork, the first call in the child makes a fleet and a fallback of its own.
 */
#include "remote/remote.h"

#include "remote/slices.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_WAIT_US 1000000

/* ---- fleet and fallback of this process ---- */

static int remote_open_fallback(const struct weir__redis_url *url, enum weir__redis_fail fail,
                                struct weir__fallback *ret, weir_error *err)
{
    char address[64];
    *ret = (struct weir__fallback){.fail = fail, .peers = url->peers};
    if (fail != WEIR__FAIL_LOCAL)
        return 0;
    snprintf(address, sizeof address, "memory:%llu", (unsigned long long)url->size);
    int code = weir_store_open(address, &ret->local, err);
    if (code == 0)
        ret->charges = weir__charges_create(); /* without them, charges of the zone stay */
    return code;
}

static void remote_close_fallback(struct weir__fallback *fallback)
{
    weir_store_close(fallback->local);
    weir__charges_free(fallback->charges);
}

static void remote_close_fallbacks(struct weir__remote *remote)
{
    struct weir__fallback *asked = atomic_exchange(&remote->asked_local, NULL);
    remote_close_fallback(&remote->fallback);
    if (asked)
        remote_close_fallback(asked);
    free(asked);
}

/* In a child the parent's fleet and zone are only freed: their locks may be held by threads that do
 * not exist here. */
static int remote_make_again(struct weir__remote *remote)
{
    struct weir__fallback local = {0};
    struct weir__fleet *fleet = weir__fleet_start(&remote->url);
    if (!fleet)
        return errno == ENOMEM ? WEIR_ENOMEM : WEIR_ESYSTEM;
    int code =
        remote->bare ? 0 : remote_open_fallback(&remote->url, remote->url.fail, &local, NULL);
    if (code) {
        weir__fleet_stop(fleet, false);
        return code;
    }
    weir__fleet_stop(remote->fleet, true);
    remote_close_fallbacks(remote);
    weir__lock_init(&remote->lock);
    remote->fleet = fleet;
    remote->fallback = local;
    weir__slices_start(remote); /* without them everything is asked of the servers */
    return 0;
}

int weir__remote_revive(struct weir__remote *remote)
{
    pid_t self = getpid();
    while (remote->owner != self) {
        pid_t other = remote->reviver;
        if (other == self || !atomic_compare_exchange_strong(&remote->reviver, &other, self)) {
            sched_yield(); /* another thread of this process is doing it */
            continue;
        }
        int code = remote_make_again(remote);
        if (code == 0)
            remote->owner = self;
        remote->reviver = 0;
        if (code)
            return code;
    }
    return 0;
}

/* ---- no server decides ---- */

/* Whether a zone is to decide although the address says otherwise: the strictest of the requests
 * says local. Those that say nothing follow the address. */
static bool remote_asks_local(const struct weir__remote *remote, const weir_request *requests,
                              size_t n)
{
    bool local = false, closed = false;
    for (size_t i = 0; i < n; i++) {
        uint64_t said = requests[i].spare[1];
        enum weir__redis_fail fail = said ? (enum weir__redis_fail)(said - 1) : remote->url.fail;
        local = local || fail == WEIR__FAIL_LOCAL;
        closed = closed || fail == WEIR__FAIL_CLOSED;
    }
    return local && !closed;
}

/* The zone for these requests, made when one is asked for first. NULL: without memory. */
static struct weir__fallback *remote_asked_local(struct weir__remote *remote)
{
    weir__lock_take(&remote->lock);
    struct weir__fallback *asked = remote->asked_local;
    if (!asked && (asked = calloc(1, sizeof *asked)) &&
        remote_open_fallback(&remote->url, WEIR__FAIL_LOCAL, asked, NULL)) {
        free(asked);
        asked = NULL;
    }
    remote->asked_local = asked;
    weir__lock_release(&remote->lock);
    return asked;
}

int weir__remote_fall_back(struct weir__remote *remote, const weir_request *requests, size_t n,
                           enum weir__mode mode, weir_decision *ret)
{
    const struct weir__fallback *fallback = &remote->fallback;
    int64_t now = weir__store_now(&remote->base);
    if (remote->bare)
        return WEIR_EUNREACHABLE;
    if (now < 0)
        return WEIR_EINVAL;
    if (fallback->fail != WEIR__FAIL_LOCAL && remote_asks_local(remote, requests, n))
        fallback = remote_asked_local(remote);
    if (!fallback)
        return WEIR_ENOMEM;
    remote->by_fallback++;
    if (remote->base.clock.now && fallback->local)
        weir_store_set_clock(fallback->local, &remote->base.clock);
    return weir__fallback_decide(fallback, requests, n, mode, now, ret);
}

/* ---- how it is ---- */

int weir__remote_why(weir_store *store, weir_error *err)
{
    struct weir__remote *remote = weir__remote_of(store);
    int code = weir__remote_ensure_alive(remote);
    if (code)
        return weir__fail(err, code, 0, "%s", weir_strerror(code));
    return weir__fleet_check(remote->fleet, err);
}

unsigned weir__remote_servers(weir_store *store, unsigned *ret_away)
{
    struct weir__remote *remote = weir__remote_of(store);
    struct weir__fleet_owners owners = {0};
    if (remote->owner == getpid())
        owners = weir__fleet_owners(remote->fleet);
    *ret_away = owners.away;
    return owners.all;
}

bool weir__remote_reachable(weir_store *store)
{
    struct weir__remote *remote = weir__remote_of(store);
    return remote->owner != getpid() || weir__fleet_reachable(remote->fleet);
}

/* What a server said to the last call that it did not decide, copied; false: nothing. */
static bool remote_refusal(struct weir__remote *remote, char ret[WEIR__ERROR_MAX])
{
    weir__lock_take(&remote->lock);
    memcpy(ret, remote->refusal, WEIR__ERROR_MAX);
    weir__lock_release(&remote->lock);
    return ret[0] != 0;
}

/* What became of the last calls of servers that can be reached; `named`: and of which server. */
static void remote_put_said(struct weir__remote *remote, const struct weir__fleet_owners *owners,
                            bool named, char ret[WEIR__LOOK_WHY_SIZE])
{
    char said[WEIR__ERROR_MAX] = "answers do not come in time";
    struct weir__redis_host host = {0};
    if (owners->refusing > 0) {
        weir__lock_take(&remote->lock);
        memcpy(said, remote->undecided, sizeof said);
        weir__lock_release(&remote->lock);
    }
    if (owners->one && named)
        host = weir__fleet_host(remote->fleet, owners->one);
    struct weir__buffer why = weir__buffer_over(ret, WEIR__LOOK_WHY_SIZE);
    if (host.name[0])
        weir__put_format(&why, "%s:%u: ", host.name, (unsigned)host.port);
    weir__put_text(&why, said);
}

/* Why servers did not decide: one that cannot be reached, or what became of its calls. It is named
 * if others do decide. */
static void remote_put_why(struct weir__remote *remote, const struct weir__fleet_owners *owners,
                           const struct weir__remote_look *look, const weir_error *err,
                           char ret[WEIR__LOOK_WHY_SIZE])
{
    if (!look->reached && (look->partly || owners->refusing == 0))
        snprintf(ret, WEIR__LOOK_WHY_SIZE, "%s", err->message);
    else
        remote_put_said(remote, owners, look->partly, ret);
}

void weir__remote_look(weir_store *store, struct weir__remote_look *ret)
{
    static const char *const meanwhile[] = {
        [WEIR__FAIL_LOCAL] = "this process decides alone",
        [WEIR__FAIL_OPEN] = "everything is allowed",
        [WEIR__FAIL_CLOSED] = "everything is denied",
    };
    struct weir__remote *remote = weir__remote_of(store);
    weir_error err;
    bool reached = weir__remote_why(store, &err) == 0;
    bool decided = atomic_exchange(&remote->decided, false);
    struct weir__fleet_owners owners = weir__fleet_owners(remote->fleet);
    *ret = (struct weir__remote_look){.by_fallback = remote->by_fallback,
                                      .meanwhile = meanwhile[remote->url.fail],
                                      .deadline_us = remote->url.deadline_us,
                                      .closed = remote->url.fail == WEIR__FAIL_CLOSED,
                                      .servers = owners.all,
                                      .away = owners.away,
                                      .undecided = owners.late + owners.refusing,
                                      .refusing = owners.refusing,
                                      .reached = reached};
    if (!reached || (decided && owners.refusing == 0))
        remote->look.undecided = false;
    else if (ret->by_fallback != remote->look.by_fallback && remote->look.reached)
        remote->look.undecided = true;
    ret->down = !reached || remote->look.undecided;
    /* Where a server is away, the others go on as long as they do not refuse. */
    ret->partly =
        ret->servers > 1 && ret->away + (reached ? ret->undecided : owners.refusing) < ret->servers;
    remote->look.by_fallback = ret->by_fallback;
    remote->look.reached = reached;
    remote_put_why(remote, &owners, ret, &err, ret->why);
}

unsigned weir__remote_refusing(weir_store *store, weir_error *err)
{
    struct weir__remote *remote = weir__remote_of(store);
    struct weir__fleet_owners owners = {0};
    if (remote->owner == getpid())
        owners = weir__fleet_owners(remote->fleet);
    if (owners.refusing > 0) {
        *err = (weir_error){.code = WEIR_EUNREACHABLE};
        remote_put_said(remote, &owners, owners.all > 1, err->message);
    }
    return owners.refusing;
}

/* 0 while every server can be reached and none has refused anything. */
int weir__remote_check(weir_store *store, weir_error *err)
{
    char refusal[WEIR__ERROR_MAX];
    int code = weir__remote_why(store, err);
    if (code == 0 && remote_refusal(weir__remote_of(store), refusal))
        code = weir__fail(err, WEIR_ESYSTEM, 0, "a server refused: %s", refusal);
    return code;
}

/* In the server's own words where it has said something. */
bool weir__remote_explain(weir_store *store, weir_error *err)
{
    char refusal[WEIR__ERROR_MAX];
    if (!remote_refusal(weir__remote_of(store), refusal))
        return weir__remote_why(store, err) != 0;
    weir__fail(err, WEIR_ESYSTEM, 0, "%s", refusal);
    return true;
}

/* ---- opening and closing ---- */

void weir__remote_close(weir_store *store)
{
    struct weir__remote *remote = weir__remote_of(store);
    weir__slices_close(remote);
    weir__fleet_stop(remote->fleet, remote->owner != getpid());
    remote_close_fallbacks(remote);
    pthread_mutex_destroy(&remote->lock.mutex);
    free(remote);
}

/* The refusal by which a server answered in the first round, if there is one. */
static int remote_first_answer(struct weir__fleet *fleet, weir_error *err)
{
    if (!weir__fleet_wait(fleet, weir__mono_us() + FIRST_WAIT_US))
        return 0;
    weir__lock_take(&fleet->lock);
    int code = 0;
    if (fleet->result == WEIR__TALK_REFUSED)
        code = weir__fail(err, WEIR_ESYSTEM, 0, "%s", fleet->why);
    weir__lock_release(&fleet->lock);
    return code;
}

/* Starts the keeper; the address and all else is set. */
static int remote_start(struct weir__remote *remote, weir_error *err)
{
    remote->base.engine = &weir__remote_engine;
    remote->owner = getpid();
    weir__lock_init(&remote->lock);
    remote->fleet = weir__fleet_start(&remote->url);
    if (remote->fleet)
        return 0;
    return weir__fail(err, errno == ENOMEM ? WEIR_ENOMEM : WEIR_ESYSTEM, 0,
                      "no thread for a redis:// store: %s", strerror(errno));
}

/* The keeper runs: hears what a server says first, and starts to slice. */
static int remote_begin(struct weir__remote *remote, weir_error *err)
{
    int code = remote_first_answer(remote->fleet, err);
    return code ? code : weir__slices_open(remote, err);
}

static int remote_open(struct weir__remote *remote, const char *url, weir_error *err)
{
    int code = weir__redis_url_parse(url, &remote->url, err);
    if (code == 0)
        code = remote_open_fallback(&remote->url, remote->url.fail, &remote->fallback, err);
    if (code == 0)
        code = remote_start(remote, err);
    if (code == 0 && (code = remote_begin(remote, err)) != 0)
        weir__fleet_stop(remote->fleet, false);
    if (code)
        remote_close_fallbacks(remote);
    return code;
}

static struct weir__remote *remote_alloc(weir_error *err)
{
    struct weir__remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a store");
    return remote;
}

/* Frees what could not be opened. */
static int remote_opened(struct weir__remote *remote, int code, weir_store **ret)
{
    if (code)
        free(remote);
    else
        *ret = &remote->base;
    return code;
}

int weir__remote_open(const char *url, weir_store **ret, weir_error *err)
{
    struct weir__remote *remote = remote_alloc(err);
    return remote ? remote_opened(remote, remote_open(remote, url, err), ret) : WEIR_ENOMEM;
}

int weir__remote_open_bare(const struct weir__redis_url *url, weir_store **ret, weir_error *err)
{
    struct weir__remote *remote = remote_alloc(err);
    if (!remote)
        return WEIR_ENOMEM;
    remote->url = *url;
    remote->bare = true;
    return remote_opened(remote, remote_start(remote, err), ret);
}

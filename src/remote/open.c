/*
 * Opening a redis:// store. The address must be right; the servers need not be there. Opening waits
 * a second at most for the first connection, and fails only where a server answered that it will
 * not have us (a wrong password, no such database, no module where engine=module wants one): a
 * server that is away is the keeper's business, and the stand-in's until it is back.
 */
#include "remote/remote.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_WAIT_US 1000000

static int open_local(const struct weir__redis_url *url, weir_store **ret, weir_error *err)
{
    char address[64];
    snprintf(address, sizeof address, "memory:%llu", (unsigned long long)url->size);
    return url->fail == WEIR__FAIL_LOCAL ? weir_store_open(address, ret, err) : 0;
}

/* In a child the parent's fleet and zone are let go: their locks may be held by threads that do not
 * exist here, so nothing of them is used but what is freed. */
static int make_anew(struct weir__remote *remote)
{
    weir_store *local = NULL;
    struct weir__fleet *fleet = weir__fleet_start(&remote->url);
    if (!fleet)
        return errno == ENOMEM ? WEIR_ENOMEM : WEIR_ESYSTEM;
    int code = remote->bare ? 0 : open_local(&remote->url, &local, NULL);
    if (code) {
        weir__fleet_stop(fleet, false);
        return code;
    }
    weir__fleet_stop(remote->fleet, true);
    weir_store_close(remote->standin.local);
    pthread_mutex_init(&remote->lock, NULL);
    remote->fleet = fleet;
    remote->standin.local = local;
    return 0;
}

int weir__remote_revive(struct weir__remote *remote)
{
    pid_t self = getpid();
    while (remote->owner != self) {
        pid_t other = remote->reviver;
        if (other == self || !atomic_compare_exchange_strong(&remote->reviver, &other, self)) {
            sched_yield(); /* another thread of this process is at it */
            continue;
        }
        int code = make_anew(remote);
        if (code == 0)
            remote->owner = self;
        remote->reviver = 0;
        if (code)
            return code;
    }
    return 0;
}

/* What the first round came to, if a server has answered with a refusal. */
static int first_answer(struct weir__fleet *fleet, weir_error *err)
{
    if (!weir__fleet_wait(fleet, weir__mono_us() + FIRST_WAIT_US))
        return 0;
    pthread_mutex_lock(&fleet->lock);
    int code = 0;
    if (fleet->result == WEIR__TALK_REFUSED)
        code = weir__fail(err, WEIR_ESYSTEM, 0, "%s", fleet->why);
    pthread_mutex_unlock(&fleet->lock);
    return code;
}

/* Of this process, with its keeper; the address and all else is set. */
static int start(struct weir__remote *remote, weir_error *err)
{
    remote->base.engine = &weir__remote_engine;
    remote->owner = getpid();
    pthread_mutex_init(&remote->lock, NULL);
    remote->fleet = weir__fleet_start(&remote->url);
    if (remote->fleet)
        return 0;
    return weir__fail(err, errno == ENOMEM ? WEIR_ENOMEM : WEIR_ESYSTEM, 0,
                      "no thread for a redis:// store: %s", strerror(errno));
}

int weir__remote_open(const char *url, weir_store **ret, weir_error *err)
{
    struct weir__remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a store");
    int code = weir__redis_url_parse(url, &remote->url, err);
    if (code == 0) {
        remote->standin = (struct weir__standin){remote->url.fail, remote->url.peers, NULL};
        code = open_local(&remote->url, &remote->standin.local, err);
    }
    if (code == 0)
        code = start(remote, err);
    if (code == 0 && (code = first_answer(remote->fleet, err)) != 0)
        weir__fleet_stop(remote->fleet, false);
    if (code) {
        weir_store_close(remote->standin.local);
        free(remote);
        return code;
    }
    *ret = &remote->base;
    return 0;
}

int weir__remote_open_bare(const struct weir__redis_url *url, weir_store **ret, weir_error *err)
{
    struct weir__remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a store");
    remote->url = *url;
    remote->bare = true;
    int code = start(remote, err);
    if (code) {
        free(remote);
        return code;
    }
    *ret = &remote->base;
    return 0;
}

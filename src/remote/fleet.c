/* The table of nodes and the map from cluster slots to them: see fleet.h. */
#include "remote/fleet.h"

#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WANTED_US 60000000 /* a node to which somebody was sent is kept for a minute */

/* ---- nodes ---- */

/* A node that nobody needs: no slots, nobody sent there, no connection. Under the lock. */
static struct weir__node *fleet_spare_node(struct weir__fleet *fleet)
{
    int64_t now = weir__mono_us();
    WEIR__ASSERT_LOCKED(&fleet->lock);
    for (unsigned i = 0; i < fleet->count; i++) {
        struct weir__node *node = fleet->nodes[i];
        if (!node->owns && node->wanted_us < now && node->link.state == WEIR__LINK_DOWN)
            return node;
    }
    return NULL;
}

/* Under the lock. */
static struct weir__node *fleet_add_node(struct weir__fleet *fleet,
                                         const struct weir__redis_host *host)
{
    WEIR__ASSERT_LOCKED(&fleet->lock);
    assert(fleet->count <= WEIR__NODES_MAX);
    if (fleet->count == WEIR__NODES_MAX) {
        struct weir__node *spare = fleet_spare_node(fleet);
        if (spare)
            spare->host = *host;
        return spare;
    }
    struct weir__node *node = calloc(1, sizeof *node);
    if (!node || weir__link_init(&node->link, fleet->wake_fd)) {
        free(node);
        return NULL;
    }
    node->host = *host;
    fleet->nodes[fleet->count] = node;
    fleet->count++;
    return node;
}

struct weir__node *weir__fleet_node(struct weir__fleet *fleet, const struct weir__redis_host *host)
{
    struct weir__node *node = NULL;
    bool added = false;
    weir__lock_take(&fleet->lock);
    for (unsigned i = 0; i < fleet->count && !node; i++) {
        struct weir__node *it = fleet->nodes[i];
        if (it->host.port == host->port && !strcmp(it->host.name, host->name))
            node = it;
    }
    if (!node) {
        node = fleet_add_node(fleet, host);
        added = true;
    }
    weir__lock_release(&fleet->lock);
    if (node) {
        int64_t now = weir__mono_us();
        added = added || node->wanted_us < now;
        node->wanted_us = now + WANTED_US;
        if (added && node->link.state != WEIR__LINK_UP)
            weir__fleet_wake(fleet);
    }
    return node;
}

struct weir__redis_host weir__fleet_host(struct weir__fleet *fleet, const struct weir__node *node)
{
    weir__lock_take(&fleet->lock);
    struct weir__redis_host host = node->host;
    weir__lock_release(&fleet->lock);
    return host;
}

unsigned weir__fleet_index(const struct weir__fleet *fleet, const struct weir__node *node)
{
    unsigned i = 0;
    while (i < fleet->count && fleet->nodes[i] != node)
        i++;
    return i;
}

struct weir__node *weir__fleet_route(struct weir__fleet *fleet, uint16_t slot)
{
    assert(slot < WEIR__CLUSTER_SLOTS);
    if (fleet->url->kind != WEIR__REDIS_CLUSTER)
        return fleet->nodes[0];
    uint16_t entry = atomic_load_explicit(&fleet->slots[slot], memory_order_acquire);
    assert(entry <= fleet->count);
    return entry ? fleet->nodes[entry - 1] : NULL;
}

void weir__fleet_moved(struct weir__fleet *fleet, uint16_t slot, const struct weir__node *node)
{
    unsigned i = weir__fleet_index(fleet, node);
    if (i < fleet->count)
        fleet->slots[slot] = (uint16_t)(i + 1);
    fleet->stale = true;
    weir__fleet_wake(fleet);
}

/* ---- who can be reached ---- */

/* Says which server it is, unless the reason begins with that already. */
static int fleet_fail_of_node(struct weir__fleet *fleet, struct weir__node *node, weir_error *err)
{
    char why[WEIR__WHY_SIZE];
    struct weir__redis_host host = weir__fleet_host(fleet, node);
    const char *name = fleet->url->kind == WEIR__REDIS_UNIX ? fleet->url->path : host.name;
    weir__link_why(&node->link, why);
    if (!name[0])
        return weir__fail(err, WEIR_EUNREACHABLE, 0, "no server is known yet: %s", why);
    if (!strncmp(why, name, strlen(name)))
        return weir__fail(err, WEIR_EUNREACHABLE, 0, "%s", why);
    if (fleet->url->kind == WEIR__REDIS_UNIX)
        return weir__fail(err, WEIR_EUNREACHABLE, 0, "%s: %s", name, why);
    return weir__fail(err, WEIR_EUNREACHABLE, 0, "%s:%u: %s", name, (unsigned)host.port, why);
}

int weir__fleet_check(struct weir__fleet *fleet, weir_error *err)
{
    char why[WEIR__WHY_SIZE];
    for (unsigned i = 0; i < fleet->count; i++) {
        struct weir__node *node = fleet->nodes[i];
        if (node->owns && node->link.state != WEIR__LINK_UP)
            return fleet_fail_of_node(fleet, node, err);
    }
    if (fleet->gaps > 0)
        return weir__fail(err, WEIR_EUNREACHABLE, 0,
                          "%u of %d slots of the cluster have no node: see redis-cli --cluster "
                          "check",
                          (unsigned)fleet->gaps, WEIR__CLUSTER_SLOTS);
    if (fleet->count > 0)
        return 0;
    weir__lock_take(&fleet->lock);
    memcpy(why, fleet->why, sizeof why);
    weir__lock_release(&fleet->lock);
    return weir__fail(err, WEIR_EUNREACHABLE, 0, "no server is known yet: %s", why);
}

struct weir__fleet_owners weir__fleet_owners(struct weir__fleet *fleet)
{
    struct weir__fleet_owners ret = {.all = fleet->gaps > 0, .away = fleet->gaps > 0};
    for (unsigned i = 0; i < fleet->count; i++) {
        const struct weir__node *node = fleet->nodes[i];
        bool up = node->link.state == WEIR__LINK_UP;
        uint32_t undecided = up ? node->undecided : WEIR__UNDECIDED_NOT;
        if (!node->owns)
            continue;
        ret.all++;
        ret.away += !up;
        ret.late += undecided == WEIR__UNDECIDED_LATE;
        ret.refusing += undecided == WEIR__UNDECIDED_REFUSED;
        if (undecided == WEIR__UNDECIDED_REFUSED || (undecided && !ret.refusing))
            ret.one = node;
    }
    assert(ret.away + ret.late + ret.refusing <= ret.all);
    return ret;
}

bool weir__fleet_reachable(struct weir__fleet *fleet)
{
    for (unsigned i = 0; i < fleet->count; i++) {
        if (fleet->nodes[i]->owns && fleet->nodes[i]->link.state != WEIR__LINK_DOWN)
            return true;
    }
    return fleet->count == 0 && !weir__fleet_wait(fleet, 0);
}

/* ---- the keeper, from outside ---- */

void weir__fleet_wake(struct weir__fleet *fleet)
{
    uint64_t one = 1;
    (void)!write(fleet->wake_fd, &one, sizeof one);
}

bool weir__fleet_wait(struct weir__fleet *fleet, int64_t deadline_us)
{
    weir__lock_take(&fleet->lock);
    while (!fleet->tried && weir__mono_us() < deadline_us)
        weir__cond_wait(&fleet->changed, &fleet->lock, deadline_us);
    bool tried = fleet->tried;
    weir__lock_release(&fleet->lock);
    return tried;
}

/* The keeper handles no signals: those belong to the program. */
static int fleet_start_keeper(struct weir__fleet *fleet)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&fleet->keeper, NULL, weir__keeper_run, fleet);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static void fleet_destroy(struct weir__fleet *fleet, bool forked)
{
    for (unsigned i = 0; i < fleet->count; i++) {
        weir__link_destroy(&fleet->nodes[i]->link, forked);
        free(fleet->nodes[i]);
    }
    if (fleet->wake_fd >= 0)
        close(fleet->wake_fd);
    if (fleet->stop_fd >= 0)
        close(fleet->stop_fd);
    free(fleet);
}

struct weir__fleet *weir__fleet_start(const struct weir__redis_url *url)
{
    struct weir__fleet *fleet = calloc(1, sizeof *fleet);
    if (!fleet)
        return NULL;
    fleet->url = url;
    weir__lock_init(&fleet->lock);
    weir__cond_init(&fleet->changed);
    fleet->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fleet->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    weir__random_bytes(&fleet->random, sizeof fleet->random);
    int error = fleet->wake_fd < 0 || fleet->stop_fd < 0 ? errno : 0;
    if (!error && url->kind != WEIR__REDIS_CLUSTER) {
        static const struct weir__redis_host unknown;
        weir__lock_take(&fleet->lock);
        struct weir__node *node =
            fleet_add_node(fleet, url->kind == WEIR__REDIS_SENTINEL ? &unknown : &url->hosts[0]);
        weir__lock_release(&fleet->lock);
        error = node ? 0 : ENOMEM;
        if (node)
            node->owns = true;
    }
    if (!error)
        error = fleet_start_keeper(fleet);
    if (!error)
        return fleet;
    fleet_destroy(fleet, false);
    errno = error;
    return NULL;
}

void weir__fleet_stop(struct weir__fleet *fleet, bool forked)
{
    if (!forked) {
        uint64_t one = 1;
        (void)!write(fleet->stop_fd, &one, sizeof one);
        pthread_join(fleet->keeper, NULL);
    }
    fleet_destroy(fleet, forked);
}

/*
 * The keeper: one background thread per fleet. It alone connects and closes.
 *
 *           ┌──────────── every 100 ms, or when woken: a link went down, a slot moved ───────────┐
 *           ▼                                                                                    │
 *     look at the topology, if due ─► for every node: connect if due, check if in use, drop if not
 *
 * A node's connection:
 *
 *            connected, let in, ready                lost
 *     due ───────────────────────────► UP ─────────────────────► due at once, if it lasted a second
 *      │ ▲                                                        else after the pause
 *      ▼ │ pause: 25 ms, doubled each time up to a second, shortened by up to a half at random
 *     failed
 *
 * What holds: once a server is back, recovery takes at most the longest pause and one handshake.
 * Nothing here is done under a lock that callers need.
 */
#include "remote/fleet.h"

#include "base/random.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TICK_US 100000
#define PAUSE_US 25000
#define PAUSE_MAX_US 1000000
#define ATTEMPT_US 500000 /* at least; ten times the deadline where that is longer */
#define LASTING_US 1000000
#define CHECK_US 1000000 /* how often a server in use is checked */
#define CHECK_WAIT_MAX_US 500000
#define LOOK_SOON_US 250000 /* topology: while something is wrong */
#define LOOK_CLUSTER_US 10000000
#define LOOK_SENTINEL_US 2000000

static struct weir__patience keeper_attempt(const struct weir__fleet *fleet)
{
    int64_t longest = weir__max(ATTEMPT_US, 10 * fleet->url->deadline_us);
    return (struct weir__patience){weir__mono_us() + longest, fleet->stop_fd};
}

static int64_t keeper_pause_us(struct weir__fleet *fleet, unsigned failures)
{
    int64_t pause = failures < 6 ? (int64_t)PAUSE_US << failures : PAUSE_MAX_US;
    pause = weir__min(pause, PAUSE_MAX_US);
    uint64_t random = weir__random_next(&fleet->random);
    return pause - (int64_t)(random % (uint64_t)(pause / 2));
}

static bool keeper_wants(const struct weir__fleet *fleet, const struct weir__node *node,
                         int64_t now)
{
    bool known = node->host.name[0] || fleet->url->kind == WEIR__REDIS_UNIX;
    return known && (node->owns || node->wanted_us >= now);
}

/* ---- one node ---- */

static enum weir__talk_result keeper_connect(struct weir__fleet *fleet, struct weir__node *node,
                                             char why[WEIR__WHY_SIZE])
{
    struct weir__patience patience = keeper_attempt(fleet);
    struct weir__conn conn;
    struct weir__server server;
    weir__link_stop(&node->link, "connecting again");
    enum weir__talk_result result =
        weir__handshake(fleet->url, &node->host, &patience, &conn, &server, why);
    if (result) {
        weir__link_failed(&node->link, why);
        node->next_try_us = weir__mono_us() + keeper_pause_us(fleet, node->failures++);
        return result;
    }
    node->was_up = true;
    node->up_since_us = weir__mono_us();
    node->next_check_us = node->up_since_us + CHECK_US;
    node->undecided = WEIR__UNDECIDED_NOT;
    weir__link_start(&node->link, &conn, &server);
    return WEIR__TALK_OK;
}

/* ---- whether it is still the right server ---- */

struct keeper_check_call {
    struct weir__call call;
    const char *command;
    bool replica;
};

static unsigned keeper_write_check(struct weir__call *call, const struct weir__server *server,
                                   struct weir__buffer *buffer)
{
    const char *command = ((struct keeper_check_call *)call)->command;
    (void)server;
    weir__resp_put_header(buffer, WEIR__RESP_ARRAY, 1, 2);
    weir__resp_put_bulk(buffer, command, strlen(command));
    return 1;
}

static void keeper_read_check(struct weir__call *call, unsigned i, const char *data,
                              const struct weir__resp_node *nodes)
{
    (void)i;
    ((struct keeper_check_call *)call)->replica = nodes[0].type == WEIR__RESP_ARRAY &&
                                                  nodes[0].len > 0 &&
                                                  weir__node_starts(data, &nodes[1], "slave");
}

/* A script that has nothing to write gets no READONLY from a server that became a replica, and an
 * idle connection does not show that its server hangs. So a server in use is asked now and then. (A
 * node of a cluster redirects calls that are not its own.) */
static void keeper_check(const struct weir__fleet *fleet, struct weir__node *node)
{
    int64_t longest = weir__min(fleet->url->deadline_us, CHECK_WAIT_MAX_US);
    struct keeper_check_call check = {
        .call = {.write = keeper_write_check,
                 .read = keeper_read_check,
                 .deadline_us = weir__mono_us() + longest,
                 .quiet = longest < fleet->url->deadline_us},
        .command = fleet->url->kind == WEIR__REDIS_CLUSTER ? "PING" : "ROLE",
    };
    if (weir__link_submit(&node->link, &check.call) == WEIR__CALL_WAITING) {
        weir__link_flush(&node->link, check.call.deadline_us);
        weir__link_await(&check.call);
    }
    if (check.replica)
        weir__link_break(&check.call, "the server has become a replica, which cannot decide");
    node->next_check_us = weir__mono_us() + CHECK_US;
}

/* A connection was lost. How long it lasted decides how soon to try again. */
static void keeper_note_loss(struct weir__fleet *fleet, struct weir__node *node, int64_t now)
{
    node->was_up = false;
    if (now - node->up_since_us >= LASTING_US) {
        node->failures = 0;
        node->next_try_us = now;
    } else {
        node->next_try_us = now + keeper_pause_us(fleet, node->failures++);
    }
}

static enum weir__talk_result keeper_tend(struct weir__fleet *fleet, struct weir__node *node,
                                          char why[WEIR__WHY_SIZE])
{
    assert(weir__fleet_is_keeper(fleet));
    int64_t now = weir__mono_us();
    bool up = node->link.state == WEIR__LINK_UP;
    if (up && keeper_wants(fleet, node, now)) {
        weir__link_tend(&node->link);
        if (now >= node->next_check_us)
            keeper_check(fleet, node);
        return WEIR__TALK_OK;
    }
    if (up) {
        weir__link_stop(&node->link, "the node has no slots any more");
        node->was_up = false;
        return WEIR__TALK_OK;
    }
    if (node->was_up) {
        fleet->stale = true; /* another server may have taken its place */
        keeper_note_loss(fleet, node, now);
    }
    if (!keeper_wants(fleet, node, now) || now < node->next_try_us)
        return WEIR__TALK_OK;
    return keeper_connect(fleet, node, why);
}

/* ---- all of them ---- */

static bool keeper_is_whole(const struct weir__fleet *fleet)
{
    for (unsigned i = 0; i < fleet->count; i++) {
        if (fleet->nodes[i]->owns && fleet->nodes[i]->link.state != WEIR__LINK_UP)
            return false;
    }
    return fleet->count > 0 && fleet->gaps == 0;
}

static enum weir__talk_result keeper_look(struct weir__fleet *fleet, char why[WEIR__WHY_SIZE])
{
    int64_t now = weir__mono_us();
    bool due = now >= (fleet->stale ? fleet->last_look_us + TICK_US : fleet->next_look_us);
    if (!due ||
        (fleet->url->kind != WEIR__REDIS_CLUSTER && fleet->url->kind != WEIR__REDIS_SENTINEL))
        return WEIR__TALK_OK;
    fleet->stale = false;
    fleet->last_look_us = now;
    struct weir__patience patience = keeper_attempt(fleet);
    enum weir__talk_result result = weir__topology_look(fleet, &patience, why);
    bool sound = result == WEIR__TALK_OK && keeper_is_whole(fleet);
    int64_t later = fleet->url->kind == WEIR__REDIS_CLUSTER ? LOOK_CLUSTER_US : LOOK_SENTINEL_US;
    fleet->next_look_us = weir__mono_us() + (sound ? later : LOOK_SOON_US);
    return result;
}

static void keeper_go_round(struct weir__fleet *fleet)
{
    char why[WEIR__WHY_SIZE] = "", worst_why[WEIR__WHY_SIZE] = "";
    enum weir__talk_result worst = keeper_look(fleet, worst_why);
    for (unsigned i = 0; i < fleet->count; i++) {
        enum weir__talk_result result = keeper_tend(fleet, fleet->nodes[i], why);
        if (result < worst) {
            worst = result;
            memcpy(worst_why, why, sizeof why);
        }
    }
    weir__lock_take(&fleet->lock);
    fleet->result = worst;
    if (worst)
        memcpy(fleet->why, worst_why, sizeof worst_why);
    fleet->tried = true;
    pthread_cond_broadcast(&fleet->changed);
    weir__lock_release(&fleet->lock);
}

/* When something is due next; a tick from now at the latest. */
static int64_t keeper_next_due(const struct weir__fleet *fleet)
{
    int64_t now = weir__mono_us(), due = now + TICK_US;
    for (unsigned i = 0; i < fleet->count; i++) {
        const struct weir__node *node = fleet->nodes[i];
        if (node->link.state != WEIR__LINK_UP && keeper_wants(fleet, node, now))
            due = weir__min(due, weir__max(now, node->next_try_us));
    }
    return due;
}

/* Waits until something is due or somebody wakes us; false: stop. */
static bool keeper_rest(struct weir__fleet *fleet)
{
    struct pollfd fds[2] = {{fleet->wake_fd, POLLIN, 0}, {fleet->stop_fd, POLLIN, 0}};
    int64_t left = weir__max(0, keeper_next_due(fleet) - weir__mono_us());
    struct timespec timeout = {left / 1000000, left % 1000000 * 1000};
    ppoll(fds, 2, &timeout, NULL);
    uint64_t count;
    (void)!read(fleet->wake_fd, &count, sizeof count);
    return !(fds[1].revents & POLLIN);
}

void *weir__keeper_run(void *context)
{
    struct weir__fleet *fleet = context;
    fleet->keeper_self = pthread_self();
    do
        keeper_go_round(fleet);
    while (keeper_rest(fleet));
    return NULL;
}

/*
 * The servers of a store, as this process sees them: one node per server with its link, the map
 * from cluster slots to nodes, and the keeper's thread, which makes and repairs all of it. There is
 * one fleet per store and process: after fork the child makes its own.
 *
 * Who writes what: links have their own locks. The table of nodes grows under `lock`, and a node is
 * never freed before the fleet is, so that callers need no lock to use one. The map is written slot
 * by slot; a caller that reads an old entry is redirected by the server (MOVED).
 */
#ifndef WEIR_FLEET_H
#define WEIR_FLEET_H

#include "remote/link.h"
#include "remote/talk.h"

#define WEIR__NODES_MAX 1024
#define WEIR__CLUSTER_SLOTS 16384 /* by which a Redis Cluster divides its keys */

/* Why a server that can be reached did not decide. */
enum weir__undecided {
    WEIR__UNDECIDED_NOT, /* it did */
    WEIR__UNDECIDED_LATE,
    WEIR__UNDECIDED_REFUSED, /* by an error: OOM, MISCONF, … */
};

struct weir__node {
    struct weir__link link;
    struct weir__redis_host host; /* under the fleet's lock; only the keeper changes it */
    _Atomic uint32_t owns;        /* it has slots, or is the only server */
    _Atomic int64_t wanted_us;    /* somebody was sent there: a connection is wanted until then */
    _Atomic uint32_t undecided;   /* enum weir__undecided: what became of its last call */
    _Atomic int64_t refused_us;   /* when it refused the last one that it refused */
    /* the keeper's */
    int64_t next_try_us, next_check_us, up_since_us;
    unsigned failures; /* attempts, and short lives, in a row */
    bool was_up;
};

struct weir__fleet {
    const struct weir__redis_url *url;
    struct weir__lock lock;
    pthread_cond_t changed;
    struct weir__node *nodes[WEIR__NODES_MAX];
    _Atomic unsigned count;
    _Atomic uint16_t slots[WEIR__CLUSTER_SLOTS]; /* index of a node plus 1; 0: not known */
    _Atomic uint32_t stale;                      /* somebody found the map wrong */
    _Atomic uint32_t gaps;         /* slots without a node, in the map that was read last */
    int wake_fd, stop_fd;          /* eventfds: go round now; stop */
    bool tried;                    /* the first round is over; under the lock */
    enum weir__talk_result result; /* of the last round's worst attempt; under the lock */
    char why[WEIR__WHY_SIZE];      /* under the lock */
    /* the keeper's */
    pthread_t keeper;      /* for joining it */
    pthread_t keeper_self; /* the same, as it sees itself */
    uint64_t random;
    int64_t last_look_us, next_look_us; /* at the topology */
    unsigned turn;                      /* which server is asked first */
};

/* ---- fleet.c ---- */

/* Starts the keeper; NULL with errno. The url must outlive the fleet. */
struct weir__fleet *weir__fleet_start(const struct weir__redis_url *url);
/* Ends the keeper, closes everything. `forked`: in a child, where there is no keeper and the
 * connections are the parent's. */
void weir__fleet_stop(struct weir__fleet *fleet, bool forked);

/* The node for a cluster slot; NULL: not known. Without a cluster the slot does not matter. */
struct weir__node *weir__fleet_route(struct weir__fleet *fleet, uint16_t slot);
/* The node of an address, made if there is none; a connection to it is wanted for a while. NULL:
 * too many nodes. */
struct weir__node *weir__fleet_node(struct weir__fleet *fleet, const struct weir__redis_host *host);
/* A server said that this node has the cluster slot now. */
void weir__fleet_moved(struct weir__fleet *fleet, uint16_t slot, const struct weir__node *node);
/* Has the keeper go round now. */
void weir__fleet_wake(struct weir__fleet *fleet);
/* Waits until the keeper has gone round once; false: not in time. */
bool weir__fleet_wait(struct weir__fleet *fleet, int64_t deadline_us);
/* A node's address, copied. */
struct weir__redis_host weir__fleet_host(struct weir__fleet *fleet, const struct weir__node *node);
/* 0 while every server that owns keys can be reached, else WEIR_EUNREACHABLE and why. */
int weir__fleet_check(struct weir__fleet *fleet, weir_error *err);
/* The servers that own keys. Each of them is counted once at most beside `all`. Slots without a
 * node count as one that is away. */
struct weir__fleet_owners {
    unsigned all, away, late, refusing; /* away: cannot be reached now */
    const struct weir__node *one;       /* of those that refuse, or else are late; or NULL */
};
struct weir__fleet_owners weir__fleet_owners(struct weir__fleet *fleet);
/* Whether one of them can be, or was not tried yet. */
bool weir__fleet_reachable(struct weir__fleet *fleet);
/* The index of a node; the count if it is not one of them. */
unsigned weir__fleet_index(const struct weir__fleet *fleet, const struct weir__node *node);

/* Whether this thread is the keeper, which alone connects and closes. Asked by the keeper's
 * side. */
static inline bool weir__fleet_is_keeper(const struct weir__fleet *fleet)
{
    return pthread_equal(fleet->keeper_self, pthread_self());
}

/* ---- keeper.c ---- */

void *weir__keeper_run(void *fleet);

/* ---- topology.c ---- */

/* The cluster slot of a key: of what stands between its first '{' and the next '}', if that is not
 * empty, else of all of it. The key is given in two parts, prefix and name. */
uint16_t weir__cluster_slot(const char *prefix, size_t prefix_len, const char *name,
                            size_t name_len);

/* Asks the cluster for its slots, or the Sentinels for the master, and updates nodes and map. */
enum weir__talk_result weir__topology_look(struct weir__fleet *fleet,
                                           const struct weir__patience *patience,
                                           char why[WEIR__WHY_SIZE]);

#endif

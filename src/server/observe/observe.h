/*
 * What the files of this folder share: the state of the metrics, which two reports read, and how
 * long texts are cut.
 */
#ifndef WEIR_SERVER_OBSERVE_H
#define WEIR_SERVER_OBSERVE_H

#include "server/observe/metrics.h"

#include <pthread.h>

/*
 * Pairs of names and their ids: policy and entry, domain and rule. Ids are given in order, never
 * taken back, and there are never more than `max`; further pairs get none. Not thread-safe:
 * server_metrics locks.
 */
#define SERVER_NAME_MAX 1024 /* bytes of both names of a pair; a longer pair gets no id */
#define SERVER_NO_NAME UINT32_MAX

struct server_name {
    char *first;        /* owned; the second stands after its NUL */
    const char *second; /* "" for a first name by itself */
    uint32_t child;     /* the first pair of this first name, 0: none */
    uint32_t last;      /* the last of them */
    uint32_t next;      /* the next pair of the same first name, 0: none */
    bool gone;          /* its policy is no longer loaded */
    bool shadow;        /* the entry is not enforced */
};

struct server_names {
    struct server_name *names;
    uint32_t count, max;
    uint32_t *slots; /* id + 1, or 0 */
    uint32_t mask;
    uint64_t refused;           /* pairs that got no id */
    size_t bytes;               /* of all names */
    size_t firsts, first_bytes; /* first names by themselves, and the bytes of these */
};

/* ---- the metrics ---- */

#define SERVER_METRICS_WINDOW 10 /* ticks of "the last ten seconds" */

/* The state at a tick. */
struct server_metrics_moment {
    int64_t time_us;
    uint64_t degraded;
    struct server_histogram latency;
};

/* ---- the last hour: history.c ---- */

#define SERVER_HISTORY_BINS 360
#define SERVER_HISTORY_SERIES 256 /* further ones have none */
#define SERVER_HISTORY_QUANTILES 3

/* What a series counted in one bin. */
struct server_history_counts {
    uint32_t allowed, denied, shadow_denied;
};

struct server_history_sums {
    uint64_t allowed, denied, shadow_denied;
};

struct server_history_bin {
    int64_t begin_us, end_us;
    uint64_t latency_ns[SERVER_HISTORY_QUANTILES]; /* 0: nothing was decided */
};

struct server_history {
    uint64_t done;   /* bins that were closed; the newest is the one before it */
    int64_t last_us; /* when the last one was closed, or when the server started */
    struct server_history_bin bins[SERVER_HISTORY_BINS];
    struct server_history_counts *series[SERVER_HISTORY_SERIES]; /* a ring of bins, or NULL */
    struct server_history_sums before[SERVER_HISTORY_SERIES];    /* when the last bin was closed */
    struct server_histogram latency;                             /* likewise */
};

struct server_metrics;
int server_history_create(int64_t now_us, struct server_history **ret);
void server_history_destroy(struct server_history *history);
/* Under the lock: closes a bin, if it is time. */
void server_history_tick(struct server_metrics *metrics, int64_t now_us);

struct server_metrics {
    struct server_metrics_setup setup;
    struct server_counters **threads;
    pthread_mutex_t lock; /* protects everything below */
    struct server_names series, rules;
    struct server_counters sums; /* over all threads at the last report, its arrays too */
    struct server_history *history;
    struct server_metrics_moment moments[SERVER_METRICS_WINDOW];
    uint64_t ticks;
    size_t policies_loaded;
    uint64_t reloads_ok, reloads_failed;
    int64_t reloaded_us; /* the last successful reload, or the start */
    bool reload_failing;
    bool zone_deleted;           /* its file */
    int64_t certificate_expires; /* seconds since the epoch; 0: no certificate */
};

/* Under the lock: brings the sums up to date. */
void server_metrics_sum(struct server_metrics *metrics);
/* What was recorded since the oldest moment that is kept. The sums must be up to date. */
struct server_metrics_window {
    struct server_histogram latency;
    uint64_t degraded;
    int64_t span_us;
};
void server_metrics_window(const struct server_metrics *metrics, int64_t now_us,
                           struct server_metrics_window *ret);

/* Whether the lock is held, by this thread or another one: for assertions. */
static inline bool server_lock_is_held(pthread_mutex_t *lock)
{
    if (pthread_mutex_trylock(lock) != 0)
        return true;
    pthread_mutex_unlock(lock);
    return false;
}

/* ---- texts ---- */

/* How many of len bytes to keep, at most `most`. UTF-8 text does not end in half of a character. */
static inline size_t server_cut(const void *data, size_t len, size_t most)
{
    if (len <= most)
        return len;
    const unsigned char *const bytes = data;
    for (size_t kept = most; kept > 0 && kept + 3 >= most; kept--) {
        if ((bytes[kept] & 0xc0) != 0x80)
            return kept;
    }
    return most;
}

#endif

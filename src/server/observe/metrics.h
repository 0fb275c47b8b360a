/*
 * What the server counts, and how it reports it: Prometheus, OpenMetrics, and JSON for the
 * dashboard.
 *
 *     loop thread                                    any thread, now and then
 *     counters = server_metrics_thread(m, i)         server_metrics_tick(m, now)    once a second
 *     server_count_decision(counters, id, …)         server_metrics_write(m, now, …)
 *          │ plain adds to its own memory                 │ sums over all threads
 *          └──────────────────► counters[i] ◄─────────────┘
 *
 * What holds:
 *   1. Each server_counters is written by one thread only; a count is one relaxed load and store.
 *   2. Names become ids when policies are loaded (server_metrics_series), never on the hot path.
 *   3. The same names always get the same id, so counts survive a reload. The counts of a policy
 *      that
 *      was removed stay until the server ends.
 *   4. There are at most SERVER_SERIES_MAX series. Further names count together as policy
 *      "(other)";
 *      weir_series_refused_total says how many there were. The totals are always right.
 *   5. A key is never a label.
 */
#ifndef WEIR_SERVER_METRICS_H
#define WEIR_SERVER_METRICS_H

#include "base/buffer.h"
#include "server/observe/histogram.h"

#include <assert.h>
#include <stdatomic.h>

struct server_metrics;
struct server_access_log;
struct weir__policies;

/* ---- what is counted separately ---- */

enum server_protocol { SERVER_HTTP, SERVER_RESP, SERVER_GRPC, SERVER_PROTOCOLS };
extern const char *const server_protocol_names[SERVER_PROTOCOLS]; /* "http", "resp", "grpc" */

/* Why a connection was refused. */
#define SERVER_REFUSALS(X)                                                                         \
    X(LIMIT, "limit")       /* the maximum is open already */                                      \
    X(FILES, "files")       /* no file descriptors left */                                         \
    X(MEMORY, "memory")     /* no memory for it */                                                 \
    X(TLS, "tls")           /* the handshake failed */                                             \
    X(STOPPING, "stopping") /* the server is stopping */

/* Why the server did not accept what a client sent. */
#define SERVER_FAULTS(X)                                                                           \
    X(MALFORMED, "malformed")       /* not the protocol, or broken */                              \
    X(TOO_LARGE, "too_large")       /* above a limit */                                            \
    X(TIMEOUT, "timeout")           /* was too late */                                             \
    X(UNAUTHORIZED, "unauthorized") /* no token, or wrong */                                       \
    X(UNKNOWN, "unknown")           /* no such path, command or method */                          \
    X(INVALID, "invalid")           /* well-formed, but with wrong values: 400, -ERR */            \
    X(OVERLOAD, "overload")         /* too much is in progress: 503, -BUSY */

#define SERVER_REFUSAL_NAME(name, text) SERVER_REFUSED_##name,
enum server_refusal { SERVER_REFUSALS(SERVER_REFUSAL_NAME) SERVER_REFUSALS_COUNT };
#undef SERVER_REFUSAL_NAME
#define SERVER_FAULT_NAME(name, text) SERVER_FAULT_##name,
enum server_fault { SERVER_FAULTS(SERVER_FAULT_NAME) SERVER_FAULTS_COUNT };
#undef SERVER_FAULT_NAME

/* ---- counters of one thread ---- */

/* Decisions of one series: a policy as a whole, or one of its entries. One cache line. */
struct server_series {
    uint64_t allowed, denied;
    uint64_t failed;   /* no decision: the store failed */
    uint64_t degraded; /* of allowed and denied: decided by the local fallback, or a shadow was */
    uint64_t shadow_allowed, shadow_denied;
    uint64_t list_allowed, list_denied; /* by the lists of the policy, without its limits */
};

/* What became of a settle. */
#define SERVER_SETTLES(X)                                                                          \
    X(SETTLED, "settled")                                                                          \
    X(LATE, "late")       /* settled, but so late that a repetition would no longer be noticed */  \
    X(BEFORE, "before")   /* the receipt was settled before: nothing changed */                    \
    X(REFUSED, "refused") /* the receipt is not ours, or of another key, limit or policy */        \
    X(FAILED, "failed")   /* the store failed, or too much is in progress */

/* What became of a refund. */
#define SERVER_REFUNDS(X)                                                                          \
    X(GIVEN, "given")                                                                              \
    X(NOTHING, "nothing") /* nothing was in use */                                                 \
    X(BEFORE, "before")   /* the id came before: nothing changed */                                \
    X(FAILED, "failed")   /* likewise; perhaps some of its limits got it */

#define SERVER_SETTLE_NAME(name, text) SERVER_SETTLE_##name,
enum server_settle { SERVER_SETTLES(SERVER_SETTLE_NAME) SERVER_SETTLES_COUNT };
#undef SERVER_SETTLE_NAME
#define SERVER_REFUND_NAME(name, text) SERVER_REFUND_##name,
enum server_refund { SERVER_REFUNDS(SERVER_REFUND_NAME) SERVER_REFUNDS_COUNT };
#undef SERVER_REFUND_NAME

/* Settles and refunds of a policy: most have none, so they lie apart from its decisions. */
struct server_corrections {
    uint64_t settles[SERVER_SETTLES_COUNT];
    uint64_t refunds[SERVER_REFUNDS_COUNT];
};

#define SERVER_SERIES_MAX 32768
/* Ids that always exist. */
#define SERVER_SERIES_TOTAL 0 /* every request once, whatever policies applied */
#define SERVER_SERIES_ADHOC 1 /* limits named by the request itself: policy "" */
#define SERVER_SERIES_OTHER 2 /* names that found no room */

/* One rule of Envoy's rate limit service. */
struct server_rule {
    uint64_t hits; /* units requested, as envoyproxy/ratelimit counts them */
    uint64_t over, near, within, shadow;
    uint64_t unmatched; /* of a domain (name ""): descriptors without a rule */
};

#define SERVER_RULES_MAX 4096
#define SERVER_RULE_OTHER 0 /* names that found no room */

/* Why a request of Envoy was answered OVER_LIMIT without a limit being checked. */
#define SERVER_UNREADS(X)                                                                          \
    X(TOO_LARGE, "too_large") /* too much metadata, body or memory */                              \
    X(MALFORMED, "malformed") /* not a message of the service */                                   \
    X(TOO_MANY, "too_many")   /* descriptors, entries, limits or hits; or contradicting limits */

#define SERVER_UNREAD_NAME(name, text) SERVER_UNREAD_##name,
enum server_unread { SERVER_UNREADS(SERVER_UNREAD_NAME) SERVER_UNREADS_COUNT };
#undef SERVER_UNREAD_NAME

struct server_counters {
    uint64_t requests[SERVER_PROTOCOLS];
    uint64_t statuses[5]; /* HTTP answers: 1xx to 5xx */
    uint64_t accepted[SERVER_PROTOCOLS], closed[SERVER_PROTOCOLS];
    uint64_t silent_began, silent_ended; /* connections whose protocol is not known yet */
    uint64_t refused[SERVER_REFUSALS_COUNT];
    uint64_t bytes_in[SERVER_PROTOCOLS], bytes_out[SERVER_PROTOCOLS];
    uint64_t faults[SERVER_PROTOCOLS][SERVER_FAULTS_COUNT];
    uint64_t unmatched; /* of the total: no policy had a limit or a list for the request */
    uint64_t envoy_unread[SERVER_UNREADS_COUNT];
    uint64_t envoy_unknown_domains; /* requests of a domain that is in no file */
    uint64_t envoy_long_keys;       /* descriptors with a text too long for a key */
    struct server_histogram
        latency;                  /* of a decision, from the parsed request to the written answer */
    struct server_series *series; /* SERVER_SERIES_MAX; only those in use take memory */
    struct server_corrections *corrections; /* by the ids of series, likewise */
    struct server_rule *rules;              /* SERVER_RULES_MAX, likewise */
};

/* Adds to a counter that belongs to the calling thread. */
static inline void server_count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* One enforced decision. Call it once for SERVER_SERIES_TOTAL, once for each policy that applied
 * and once for each of its entries (allowed: the answer of this entry). */
static inline void server_count_decision(struct server_counters *counters, uint32_t id,
                                         bool allowed, bool degraded)
{
    assert(id < SERVER_SERIES_MAX);
    struct server_series *const series = &counters->series[id];
    server_count(allowed ? &series->allowed : &series->denied, 1);
    if (WEIR__UNLIKELY(degraded))
        server_count(&series->degraded, 1);
}

/* The local fallback decided a policy's limit in shadow, although none of those enforced: once per
 * request. In the total such a request counts as degraded. */
static inline void server_count_degraded(struct server_counters *counters, uint32_t id)
{
    assert(id < SERVER_SERIES_MAX);
    server_count(&counters->series[id].degraded, 1);
}

/* What a shadow entry would have decided: only for the series of the entry, the total is a sum. */
static inline void server_count_shadow(struct server_counters *counters, uint32_t id, bool allowed)
{
    assert(id < SERVER_SERIES_MAX);
    struct server_series *const series = &counters->series[id];
    server_count(allowed ? &series->shadow_allowed : &series->shadow_denied, 1);
}

/* An allow list or a deny list decided. Count it for the policy and for SERVER_SERIES_TOTAL. */
static inline void server_count_listed(struct server_counters *counters, uint32_t id, bool allowed)
{
    assert(id < SERVER_SERIES_MAX);
    struct server_series *const series = &counters->series[id];
    server_count(allowed ? &series->list_allowed : &series->list_denied, 1);
}

static inline void server_count_failed(struct server_counters *counters, uint32_t id)
{
    assert(id < SERVER_SERIES_MAX);
    server_count(&counters->series[id].failed, 1);
}

/* A settle or a refund, once for each policy whose limits it is about. */
static inline void server_count_settle(struct server_counters *counters, uint32_t id,
                                       enum server_settle result)
{
    assert(id < SERVER_SERIES_MAX && result < SERVER_SETTLES_COUNT);
    server_count(&counters->corrections[id].settles[result], 1);
}

static inline void server_count_refund(struct server_counters *counters, uint32_t id,
                                       enum server_refund result)
{
    assert(id < SERVER_SERIES_MAX && result < SERVER_REFUNDS_COUNT);
    server_count(&counters->corrections[id].refunds[result], 1);
}

static inline void server_count_status(struct server_counters *counters, int status)
{
    assert(status >= 100 && status <= 599);
    server_count(&counters->statuses[status / 100 - 1], 1);
}

/* ---- the whole ---- */

struct server_metrics_setup {
    size_t threads;
    int64_t now_us;                       /* when the server started */
    weir_store *store;                    /* each report reads the state of its zone; NULL: none */
    weir_store *remote;                   /* each report counts its servers; NULL: it has none */
    weir_store *sliced;                   /* each report counts its slices; NULL: it has none */
    const char *store_kind;               /* "memory", "shm", "file", "redis"; must live as long */
    struct server_access_log *access_log; /* for its counts; NULL: none */
    const atomic_uint_fast64_t *kept;     /* bytes kept for connections; NULL: not reported */
};

int server_metrics_create(const struct server_metrics_setup *setup, struct server_metrics **ret,
                          weir_error *err);
void server_metrics_destroy(struct server_metrics *metrics);

/* The counters that thread i writes. */
struct server_counters *server_metrics_thread(struct server_metrics *metrics, size_t i);

/* The id of a policy (entry NULL or "") or of one of its entries. Names are copied. Thread-safe.
 * Never fails: without room or memory the id is SERVER_SERIES_OTHER. */
uint32_t server_metrics_series(struct server_metrics *metrics, const char *policy,
                               const char *entry);
/* The id of a rule. `name` is the configured name of the rule ("generic_key_api.path"), never a
 * value from a request. "": the whole domain. SERVER_RULE_BROUGHT: limits that requests bring. */
#define SERVER_RULE_BROUGHT "(override)"
uint32_t server_metrics_rule(struct server_metrics *metrics, const char *domain, const char *name);

/* The ids of a whole set of policies, for one loaded set. */
struct server_series_ids {
    uint32_t *policies; /* by weir__policy.index */
    uint32_t *entries;  /* by weir__entry.index */
};
/* Also remembers which policies exist now: all others are reported as gone. 0 or WEIR_ENOMEM. */
int server_metrics_resolve(struct server_metrics *metrics, const struct weir__policies *policies,
                           struct server_series_ids *ret);
void server_series_ids_free(struct server_series_ids *ids);

/* The policies were read again, or could not be. Thread-safe. */
void server_metrics_reloaded(struct server_metrics *metrics, bool ok, int64_t now_us);
/* Whether the zone's file was deleted while it is in use, so that its states end with us.
 * Thread-safe. */
void server_metrics_zone_deleted(struct server_metrics *metrics, bool deleted);
/* When the certificate in use expires, in seconds since the epoch; 0: there is no certificate. */
void server_metrics_certificate(struct server_metrics *metrics, int64_t expires);

/* Call it once a second, from one thread: it keeps what reports of "the last ten seconds" need. */
void server_metrics_tick(struct server_metrics *metrics, int64_t now_us);

/* Decisions so far, each request once; *ret_degraded: of them by the local fallback. */
uint64_t server_metrics_decided(struct server_metrics *metrics, uint64_t *ret_degraded);

/* ---- reports (thread-safe; not for the hot path: they sum over all threads and series) ---- */

#define SERVER_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define SERVER_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Bytes that are enough for either report now, the NUL included. If names are added meanwhile, a
 * report may need more: then the buffer is cut, and the caller tries again. */
size_t server_metrics_room(struct server_metrics *metrics);
void server_metrics_write(struct server_metrics *metrics, int64_t now_us, bool openmetrics,
                          struct weir__buffer *out);
/* The body of GET /v1/stats. */
void server_metrics_json(struct server_metrics *metrics, int64_t now_us, struct weir__buffer *out);
/* The body of GET /v1/history: what was counted in the last so many seconds. The buffer should
 * grow. */
#define SERVER_HISTORY_BIN_SECONDS 10
#define SERVER_HISTORY_SECONDS 3600
void server_metrics_history(struct server_metrics *metrics, int64_t now_us, int64_t seconds,
                            struct weir__buffer *out);

#endif

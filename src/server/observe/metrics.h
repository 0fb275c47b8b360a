/*
 * What the server counts, and how it tells: Prometheus, OpenMetrics, and JSON for the dashboard.
 *
 *     loop thread                                    any thread, now and then
 *     counters = server_metrics_thread(m, i)         server_metrics_tick(m, now)    once a second
 *     server_count_decision(counters, id, …)         server_metrics_write(m, now, …)
 *          │ plain adds to memory of its own              │ sums over all threads
 *          └──────────────────► counters[i] ◄─────────────┘
 *
 * What holds:
 *   1. Each server_counters is written by one thread only; a count is one relaxed load and store.
 *   2. Names become ids when policies are loaded (server_metrics_series), never on the hot path.
 *   3. The same names get the same id ever after, so that counts outlive a reload. Those of a policy
 *      that is gone stay until the server ends.
 *   4. There are at most SERVER_SERIES_MAX series. Names beyond count as policy "(other)", together;
 *      weir_series_refused_total says how many were asked for. The totals are right in any case.
 *   5. A key is never a label.
 */
#ifndef WEIR_SERVER_METRICS_H
#define WEIR_SERVER_METRICS_H

#include "base/buffer.h"
#include "server/observe/histogram.h"
#include <stdatomic.h>

struct server_metrics;
struct server_access_log;
struct weir__policies;

/* ---- what is told apart ---- */

enum server_protocol { SERVER_HTTP, SERVER_RESP, SERVER_GRPC, SERVER_PROTOCOLS };

/* Why a connection was turned away at the door. */
#define SERVER_REFUSALS(X)                                                                         \
    X(LIMIT, "limit")       /* as many are open as may be */                                       \
    X(FILES, "files")       /* the system has no descriptors left */                               \
    X(MEMORY, "memory")     /* no memory for it */                                                 \
    X(TLS, "tls")           /* the handshake failed */                                             \
    X(STOPPING, "stopping") /* the server is on its way out */

/* Why a peer's bytes were not understood, or not wanted. */
#define SERVER_FAULTS(X)                                                                           \
    X(MALFORMED, "malformed")       /* not the protocol, or broken */                              \
    X(TOO_LARGE, "too_large")       /* beyond a bound */                                           \
    X(TIMEOUT, "timeout")           /* did not come in time */                                     \
    X(UNAUTHORIZED, "unauthorized") /* no or a wrong token */                                      \
    X(UNKNOWN, "unknown")           /* no such path, command or method */                          \
    X(INVALID, "invalid")           /* well-formed, but of wrong values: 400, -ERR */              \
    X(OVERLOAD, "overload")         /* too much is under way: 503, -BUSY */

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
    uint64_t degraded; /* of allowed and denied: by a stand-in */
    uint64_t shadow_allowed, shadow_denied;
    uint64_t list_allowed, list_denied; /* by the policy's lists, no limit asked */
};

#define SERVER_SERIES_MAX 32768
/* Ids that are always there. */
#define SERVER_SERIES_TOTAL 0 /* every request once, whatever policies applied */
#define SERVER_SERIES_ADHOC 1 /* limits that the request itself brought: policy "" */
#define SERVER_SERIES_OTHER 2 /* names for which there was no room */

/* One rule of Envoy's rate limit service. */
struct server_rule {
    uint64_t hits; /* units asked for, as envoyproxy/ratelimit counts them */
    uint64_t over, near, within, shadow;
    uint64_t unmatched; /* of a domain (name ""): descriptors that no rule is for */
};

#define SERVER_RULES_MAX 4096
#define SERVER_RULE_OTHER 0 /* names for which there was no room */

/* Why a request of Envoy's was answered OVER_LIMIT without asking a limit. */
#define SERVER_UNREADS(X)                                                                          \
    X(TOO_LARGE, "too_large") /* more metadata, body or memory than is taken */                    \
    X(MALFORMED, "malformed") /* not a message of the service */                                   \
    X(TOO_MANY, "too_many")   /* descriptors, entries, limits or hits; or limits that contradict */

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
    uint64_t envoy_unread[SERVER_UNREADS_COUNT];
    uint64_t envoy_unknown_domains;  /* requests of a domain that no file has */
    uint64_t envoy_long_keys;        /* descriptors with a text too long to be a key as it is */
    struct server_histogram latency; /* a decision, from the parsed request to the written answer */
    struct server_series *series;    /* SERVER_SERIES_MAX; memory only for what is used */
    struct server_rule *rules;       /* SERVER_RULES_MAX, likewise */
};

/* Adds to a counter of the calling thread's own. */
static inline void server_count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* One enforced decision. Ask once for SERVER_SERIES_TOTAL, once for each policy that applied and once
 * for each of its entries (allowed: this entry's own answer). */
static inline void server_count_decision(struct server_counters *counters, uint32_t id,
                                         bool allowed, bool degraded)
{
    struct server_series *const series = &counters->series[id];
    server_count(allowed ? &series->allowed : &series->denied, 1);
    if (WEIR__UNLIKELY(degraded))
        server_count(&series->degraded, 1);
}

/* What a shadow entry would have said: of the entry's series only, the total is summed from these. */
static inline void server_count_shadow(struct server_counters *counters, uint32_t id, bool allowed)
{
    struct server_series *const series = &counters->series[id];
    server_count(allowed ? &series->shadow_allowed : &series->shadow_denied, 1);
}

/* An allow or a deny list decided; count it for the policy and for SERVER_SERIES_TOTAL. */
static inline void server_count_listed(struct server_counters *counters, uint32_t id, bool allowed)
{
    struct server_series *const series = &counters->series[id];
    server_count(allowed ? &series->list_allowed : &series->list_denied, 1);
}

static inline void server_count_failed(struct server_counters *counters, uint32_t id)
{
    server_count(&counters->series[id].failed, 1);
}

static inline void server_count_status(struct server_counters *counters, int status)
{
    server_count(&counters->statuses[status / 100 - 1], 1); /* 100 to 599 */
}

/* ---- the whole ---- */

struct server_metrics_setup {
    size_t threads;
    int64_t now_us;                       /* when the server started */
    weir_store *store;                    /* asked for its zone at each report; NULL: none */
    const char *store_kind;               /* "memory", "shm", "file", "redis"; lives as long */
    struct server_access_log *access_log; /* for its counts; NULL: none */
    const atomic_uint_fast64_t *kept;     /* bytes kept for connections; NULL: not told */
};

int server_metrics_create(const struct server_metrics_setup *setup, struct server_metrics **ret,
                          weir_error *err);
void server_metrics_destroy(struct server_metrics *metrics);

/* The counters that thread i writes. */
struct server_counters *server_metrics_thread(struct server_metrics *metrics, size_t i);

/* The id of a policy (entry NULL or "") or of one of its entries. Names are copied. Thread-safe, never
 * fails: without room or memory it is SERVER_SERIES_OTHER. */
uint32_t server_metrics_series(struct server_metrics *metrics, const char *policy,
                               const char *entry);
/* The id of a rule. `name` is of the rule as configured ("generic_key_api.path"), never of values that
 * a request brought; "": the domain as a whole; SERVER_RULE_BROUGHT: limits that requests bring. */
#define SERVER_RULE_BROUGHT "(override)"
uint32_t server_metrics_rule(struct server_metrics *metrics, const char *domain, const char *name);

/* The ids of a whole set of policies, for one loaded set. */
struct server_series_ids {
    uint32_t *policies; /* by weir__policy.index */
    uint32_t *entries;  /* by weir__entry.index */
};
/* Also remembers which policies there are now: the others are told as gone. 0 or WEIR_ENOMEM. */
int server_metrics_resolve(struct server_metrics *metrics, const struct weir__policies *policies,
                           struct server_series_ids *ret);
void server_series_ids_free(struct server_series_ids *ids);

/* The policies were read anew, or could not be. Thread-safe. */
void server_metrics_reloaded(struct server_metrics *metrics, bool ok, int64_t now_us);
/* When the certificate in use expires, in seconds since the epoch; 0: there is none. */
void server_metrics_certificate(struct server_metrics *metrics, int64_t expires);

/* Once a second, from any one thread: keeps what "the last ten seconds" is told from. */
void server_metrics_tick(struct server_metrics *metrics, int64_t now_us);

/* ---- telling (thread-safe; not for the hot path: sums over all threads and series) ---- */

#define SERVER_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define SERVER_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Bytes that are enough for either report as things stand, the NUL included. A report after more names
 * were added may need more: then the buffer is cut, and asking again helps. */
size_t server_metrics_room(struct server_metrics *metrics);
void server_metrics_write(struct server_metrics *metrics, int64_t now_us, bool openmetrics,
                          struct weir__buffer *out);
/* The body of GET /v1/stats. */
void server_metrics_json(struct server_metrics *metrics, int64_t now_us, struct weir__buffer *out);

#endif

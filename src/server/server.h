/*
 * `weir serve`: the parts of a running server and who owns what.
 *
 *     listener ─► connection ─► protocol.feed ─► asks (a batch) ─► store ─► protocol.answer ─►
 *     bytes
 *                 (conn.c)      http, resp, h2    (batch.c)        │           of the connection
 *                                                                  └ remote: by askers (askers.c)
 *
 * What holds:
 *   1. A thread per core, each with its own epoll, listeners, connections, counters and caches.
 *      Nothing of a connection is touched by another thread, but for a batch that askers carry to a
 *      remote store.
 *   2. Policies, Envoy's rules and their counters' ids are one immutable struct server_rules; a
 *      reload makes a new one, whole or not at all. Threads take it up between two wake-ups, so
 *      that one request sees one of them only; the old one goes when its last user lets go.
 *   3. Everything a client can make us hold is bounded by struct server_config.
 *   4. An idle connection owns no buffers: reading and writing go through the thread's, and only
 *      what is incomplete, or could not be written, is kept.
 */
#ifndef WEIR_SERVER_H
#define WEIR_SERVER_H

#include "policy/envoy/envoy.h"
#include "policy/policy.h"
#include "server/observe/access_log.h"
#include "server/observe/metrics.h"
#include "server/observe/top.h"
#include "wire/limit_cache.h"

#include <stdatomic.h>
#include <sys/socket.h>

#define SERVER_PORT 7311
#define SERVER_LISTENERS_MAX 16 /* addresses */
#define SERVER_SOCKETS_MAX 1024 /* one per thread and address */
#define SERVER_ENVOY_FILES_MAX 64
#define SERVER_THREADS_MAX 64
#define SERVER_TOKEN_MAX 256

/* Everything that can be set; cli/commands/serve.c fills it. Texts live as long as the server. */
struct server_config {
    struct server_listen {
        const char *address; /* "127.0.0.1:7311", "[::1]:7311", "unix:/path" */
        bool tls;
    } listens[SERVER_LISTENERS_MAX];
    size_t listen_count;
    const char *tls_cert, *tls_key;
    const char *tls_client_ca; /* NULL: clients need no certificate */
    const char *store_url;
    const char *policies_path;                       /* NULL: the built-in demonstration */
    const char *envoy_paths[SERVER_ENVOY_FILES_MAX]; /* files and directories */
    size_t envoy_count;
    bool envoy_charge_denied;
    bool envoy_headers;
    bool envoy_merge;       /* files of one domain are put together */
    int64_t envoy_near_ppm; /* as weir__rls_options has it */
    int threads;
    char token[SERVER_TOKEN_MAX]; /* for data; empty: none is asked for */
    char admin_token[SERVER_TOKEN_MAX];
    bool public_without_token;
    int64_t max_connections, max_connections_per_client;
    int64_t max_head, max_body;
    int64_t max_memory;         /* bytes kept for all connections together */
    int64_t idle_timeout_us;    /* a connection without a request */
    int64_t request_timeout_us; /* from a request's first byte to its last; also for writing */
    int64_t drain_timeout_us;
    int64_t max_age_us;        /* of an HTTP/2 connection; 0: any */
    int64_t max_age_grace_us;  /* what is pending then has so long */
    int64_t shutdown_delay_us; /* not ready any more, but still listening */
    int64_t max_delay_us;      /* the longest wait that a request may ask for */
    enum weir__field_style style;
    const char *access_log;
    int64_t access_log_sample;
    bool access_log_denials;
    bool access_log_request; /* address, method and path of what policies decide */
    bool watch;              /* reload when the files change */
    bool health_store;       /* no longer healthy while the store cannot decide */
    bool test_clock;
    bool demo_load;
    const char *const *allowed_hosts; /* NULL-terminated, beside loopback names */
};

/* What requests are held against, as loaded at one moment. */
struct server_rules {
    atomic_uint users;
    struct weir__policies *policies;
    struct weir__envoy *envoy; /* NULL: none */
    struct server_series_ids series;
    uint32_t *shadow_tops; /* likewise, of the keys that limits in shadow would have denied */
    uint32_t *tops;        /* a top-K id a policy, by its index */
    uint32_t *envoy_rules; /* ids of counters, by a rule's index */
    struct server_envoy_domain {
        uint32_t whole, brought; /* of counters: the domain, and limits that requests bring */
        uint32_t top;
    } * envoy_domains; /* by a domain's index */
    uint64_t generation;
};

struct server {
    struct server_config config;
    weir_store *store;
    const char *store_kind;
    bool remote;      /* the store is asked over a network: askers do it */
    weir_store *near; /* of its slices alone; NULL: it has none */
    uint64_t receipt_secret[2];
    struct server_rules *rules; /* the newest; rules.c guards it */
    atomic_uint_fast64_t rules_generation;
    struct server_metrics *metrics;
    struct server_top *top;
    struct server_access_log *access_log; /* NULL: none */
    struct server_askers *askers;         /* NULL: the store is local */
    struct server_workers *workers;
    struct server_tls *tls;                 /* NULL: none */
    struct server_health *health;           /* NULL: nobody looks after the store */
    struct server_store_watch *store_watch; /* remote stores alone */
    struct server_spelling *spelling;       /* likewise */
    struct server_clients *clients;         /* how many connections each address has */
    struct server_failures *failures;       /* which addresses bring wrong tokens */
    struct server_thread *threads[SERVER_THREADS_MAX];
    int thread_count;
    atomic_int_fast64_t connections;
    atomic_int accepting;      /* threads that let connections in */
    atomic_uint_fast64_t kept; /* bytes kept for connections */
    uint64_t max_memory;       /* of them: as configured, or less where a cgroup leaves less */
    atomic_bool draining, stopping, ready;
    atomic_bool leaving;             /* not ready any more: it will drain */
    atomic_bool store_lost;          /* another file is at its path, or it is damaged */
    atomic_bool handed_over;         /* a successor has the sockets */
    atomic_int_fast64_t test_now_us; /* test clock: -1 is not set */
};

/* ---- run.c ---- */

/* Starts, serves until SIGTERM or SIGINT, drains. An exit code as cli.h has them; says why on
 * stderr. */
int server_run(const struct server_config *config, char *const *argv);

/* ---- report.c ---- */

/* A line on stderr, with the time unless it goes to systemd's journal. */
void server_report(const char *format, ...) WEIR__PRINTF(1, 2);
/* Why the server does not start: the command's last words, without a time. */
void server_report_refusal(const char *message);
/* A line on stderr, once for each address and format. By any thread. */
void server_report_once(const char *address, const char *format, ...) WEIR__PRINTF(2, 3);

/* Tells systemd how we are (sd_notify), without its library: a datagram to $NOTIFY_SOCKET. */
void server_notify(const char *state);
enum { SERVER_BY_TIME = 1, SERVER_BY_SIGNAL };

/* Reads files again if they have changed, or if a signal asks for it; tells what has become of the
 * zone's file. By a worker: it may wait for disks. */
void server_errands(struct server *server, int reason);
/* Reads the files of rules again, and tells what came of it; `why`: who asked. 0, or a code and
 * why. */
int server_reload(struct server *server, const char *why, struct weir__json *told, weir_error *err);
/* Tells if the certificate expires soon. */
void server_warn_of_expiry(const struct server *server);
/* Tells how many lines the access log has lost since it last did; at most every ten seconds, or for
 * the last time. */
void server_look_at_log(const struct server *server, bool last);

/* ---- memory.c ---- */

/* The least bound on memory of the cgroups that this process is in, in bytes; 0: none. `root` is
 * "", or where a test has its files. */
uint64_t server_cgroup_bound(const char *root);

struct server_memory {
    uint64_t kept;        /* bytes for what connections make us keep */
    uint64_t connections; /* how many */
};
/* Lowers both to what fits into a bound beside a store of that size; whether that changed
 * anything. */
bool server_memory_fit(uint64_t bound, uint64_t store_bytes, bool tls,
                       struct server_memory *memory);

/* ---- demo.c: requests of made-up users to the demonstration's policies ---- */

int server_demo_start(struct server *server);
void server_demo_stop(void);

struct weir__json;

/* ---- rules.c ---- */

#define SERVER_NOTES_TOLD 10 /* then a line says that there are more */

/* Reads the files, certificates included, and puts them in force, or changes nothing. The report is
 * for people and JSON. Warnings and notes go to the log, and into an object, `told`, which may be
 * NULL. */
int server_rules_load(struct server *server, struct weir__json *told, weir_error *err);
void server_rules_release(struct server_rules *rules);
struct server_rules *server_rules_hold(struct server_rules *rules);
/* What the calling loop goes by from now on: the newest, in place of the old one, which may be
 * NULL. */
struct server_rules *server_rules_newest(struct server *server, struct server_rules *old);
/* Whether one of the files has changed since it was read. */
bool server_rules_stale(struct server *server);
/* The whole text of a file, malloc'ed. */
int server_rules_read_file(const char *path, char **ret, size_t *ret_len, weir_error *err);
/* Whether the built-in demonstration is in force: nobody named a file. */
bool server_has_demo(const struct server *server);
/* The built-in demonstration's text. */
extern const char server_demo_policies[];

/* ---- health.c ---- */

/* Reports when a remote store is away, and when it is back. */
int server_store_watch_start(struct server *server, weir_error *err);
void server_store_watch_stop(struct server *server);
int server_health_start(struct server *server, weir_error *err);
/* False: it waits for the store still. */
bool server_health_stop(struct server *server);
/* Whether a balancer may send requests here. */
bool server_is_ready(const struct server *server);

/* ---- spelling.c: keys of a remote store that others charge under another limit ---- */

int server_spelling_create(struct server_spelling **ret, weir_error *err);
void server_spelling_destroy(struct server_spelling *spelling);
/* A plan that was decided; NULL: the store is local. By a loop. */
void server_spelling_offer(struct server_spelling *spelling, struct server_rules *rules,
                           const struct weir__plan *plan);
/* Looks at what was offered, if it is time. By a worker: it asks the store. */
void server_spelling_look(struct server *server);

/* ---- receipts.c: signed, so that nobody can settle what was never charged ---- */

#define SERVER_RECEIPT_SIZE 65
/* What to do about receipts of other servers. */
#define SERVER_RECEIPT_HINT                                                                        \
    "counts and bursts may have changed since the take, but not the algorithm, period, "           \
    "precision, zone or anchor, nor the order of the limits; if another server gave it, all of "   \
    "them need the same WEIR_RECEIPT_SECRET"
int server_receipts_open(struct server *server, weir_error *err);
/* What consecutive receipts of a thread have in common. Starts as zeros. */
struct server_receipt_cache {
    const weir_limit *limit; /* NULL: none; to be forgotten before a limit is freed */
    uint64_t limit_hash[2];
    int64_t time_us;
    size_t digit_count;
    char digits[WEIR__DIGITS]; /* of time_us; 0 is written as any other time */
};
/* What was charged together. */
struct server_charged {
    const weir_request *requests;
    size_t count;
    uint32_t settled; /* bit i: a settle corrects request i; of one, it is not looked at */
};
/* Writes the receipt of a charge; the length. */
size_t server_receipt_write(const struct server *server, struct server_receipt_cache *cache,
                            const struct server_charged *charged, const weir_decision *decision,
                            char ret[SERVER_RECEIPT_SIZE]);
/* Checks it and gives the library's own, of the first; false: it is not one of ours, or of other
 * keys, states or, but for the first, costs that a settle corrects. Counts and bursts may be
 * others. */
bool server_receipt_read(const struct server *server, const struct server_charged *charged,
                         struct weir__span text, char ret[WEIR_RECEIPT_SIZE]);

/* ---- auth.c ---- */

enum server_access { SERVER_NOBODY, SERVER_DATA, SERVER_ADMIN };
/* What a token opens; "" is no token. */
enum server_access server_access_of(const struct server *server, struct weir__span token);
/* What is open without a token. */
static inline enum server_access server_open_access(const struct server *server)
{
    return server_access_of(server, (struct weir__span){"", 0});
}
/* Whether a Host or Origin names us: loopback, an address we listen on, or an allowed name. */
bool server_host_allowed(const struct server *server, struct weir__span host);
bool server_origin_allowed(const struct server *server, struct weir__span origin,
                           struct weir__span host);

int server_clients_create(int64_t most_each, int64_t most, struct server_clients **ret);
void server_clients_destroy(struct server_clients *clients);
/* Counts one more connection of an address; false: it has as many as it may. */
bool server_clients_enter(struct server_clients *clients, const struct sockaddr *address);
void server_clients_leave(struct server_clients *clients, const struct sockaddr *address);
/* Whom an address stands for: an IPv4 address, or 64 bits of an IPv6 one. */
struct server_client {
    unsigned char bytes[9]; /* IPv4: four bytes, then zeros, then 1 */
};
/* False: of this host, zeros. */
bool server_client_of(const struct sockaddr *address, struct server_client *ret);
static inline bool server_client_is(const struct server_client *a, const struct server_client *b)
{
    return !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

int server_failures_create(struct server_failures **ret);
void server_failures_destroy(struct server_failures *failures);

#endif

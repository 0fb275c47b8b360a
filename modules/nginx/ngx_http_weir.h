/*
 * The nginx module: what its files share.
 *
 *     configuration       module.c  conf_store.c  conf_limit.c  conf_check.c
 *          │
 *     request ─► handler.c ─► plan.c ─► decide.c ─► zones, at once       ─► handler.c: go on, wait,
 *                overload.c   slots.c      └─────► fleet.c: Redis, later ─┘       reject
 *                                          jobs.c  denied.c  slices*.c pools.c   │
 *     answer  ◄─ rate.c (bandwidth) ◄── charge.c ◄── fields.c (and variables) ◄── context
 *
 * What holds:
 *   1. A worker never blocks: zones are decided at once, Redis is queried by threads (fleet.c),
 *      delays are timers.
 *   2. A main request is decided once per phase. Its context is found again after internal
 *      redirects, which clear nginx's own pointer to it: it is the data of a cleanup of the
 *      request's pool.
 *   3. Whatever outlives a request (a query in progress) is memory of its own, and knows when the
 *      request is gone.
 *   4. Limits, zones and stores belong to the configuration's cycle, which outlives its requests.
 */
#ifndef NGX_HTTP_WEIR_H
#define NGX_HTTP_WEIR_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "remote/denied.h"
#include "remote/remote.h"
#include "remote/slices.h"
#include "store/zone/store.h"
#include "wire/fields.h"
#include "wire/limit_cache.h"

#include <assert.h>

extern ngx_module_t ngx_http_weir_module;

/* ---- configuration ---- */

/* Where in the configuration something is: for errors that are found later. */
typedef struct {
    ngx_str_t file;
    ngx_uint_t line;
} ngx_http_weir_place_t;

typedef struct {
    ngx_str_t name;
    size_t size; /* 0: named, not declared yet */
    unsigned large_percent;
    bool keeps;                  /* full=deny */
    bool has_fleet;              /* a weir_store keeps the states of some of its limits in Redis */
    ngx_http_weir_place_t place; /* of its declaration, or of its first use */
    struct weir__layout layout;  /* what the size will hold, to check limits against */
    ngx_shm_zone_t *shm;
    weir_store *store; /* this cycle's view of the memory */
    struct ngx_http_weir_counts_s *counts;
} ngx_http_weir_zone_t;

/* One weir_limit, weir_conn or weir_rate. */
typedef struct {
    ngx_str_t name; /* empty: it has no name */
    ngx_str_t key_text;
    ngx_int_t key_index; /* where it is one variable: which; else NGX_CONF_UNSET */
    size_t
        key_fixed_len; /* of the text beside variables; a key of this length has only empty ones */
    time_t bare_at;    /* when such a key was last logged */
    ngx_http_complex_value_t key;
    ngx_http_weir_zone_t *zone;
    weir_limit *limit;                   /* NULL: the text has variables */
    ngx_http_complex_value_t *text;      /* NULL: it has none */
    ngx_http_complex_value_t *cost;      /* NULL: 1 */
    ngx_http_complex_value_t *least;     /* NULL: all of the cost */
    u_char *on;                          /* statuses that are charged, as bits; NULL: all */
    ngx_http_complex_value_t *charge_if; /* likewise, of the answer; NULL: always */
    ngx_http_complex_value_t *unless;    /* for whom it does not apply; NULL: it applies to all */
    int64_t wait_us;
    ngx_uint_t status; /* 0: weir_status */
    ngx_flag_t dry_run;
    ngx_flag_t precontent;
    ngx_flag_t key_checked; /* conf_check.c has looked whether it lacks a variable */
    ngx_http_weir_place_t place;
} ngx_http_weir_limit_t;

typedef struct ngx_http_weir_worker_s ngx_http_weir_worker_t;
typedef struct ngx_http_weir_slicer_s ngx_http_weir_slicer_t;
typedef struct ngx_http_weir_pools_s ngx_http_weir_pools_t;
typedef struct weir__denied ngx_http_weir_denied_t;

typedef struct {
    ngx_str_t text; /* the address as people may see it: no password */
    struct weir__redis_url url;
    int64_t denial_cache_us;      /* 0: off */
    ngx_http_weir_pools_t *pools; /* NULL: it does not slice */
    /* this process's */
    ngx_http_weir_worker_t *worker; /* fleet.c; NULL before it runs */
    ngx_http_weir_slicer_t *slicer; /* slices.c; NULL: it asks for everything */
    ngx_http_weir_denied_t *denied; /* NULL: off, or nothing was denied yet */
    uint64_t cached_denials;
} ngx_http_weir_store_t;

typedef struct {
    ngx_uint_t connections; /* 0: not looked at */
    double load;            /* 0: not looked at */
    ngx_uint_t status;
} ngx_http_weir_overload_t;

typedef struct {
    ngx_array_t zones;     /* of ngx_http_weir_zone_t * */
    ngx_array_t stores;    /* of ngx_http_weir_store_t * */
    ngx_array_t checked;   /* of limits of all locations, by conf_check.c */
    ngx_flag_t test_clock; /* some location has a weir_test_clock */
} ngx_http_weir_main_conf_t;

typedef struct {
    ngx_array_t *limits; /* of ngx_http_weir_limit_t *; NULL: none on this level; empty: off */
    ngx_array_t *conns;
    ngx_http_weir_limit_t *rate;        /* NULL: off */
    ngx_http_weir_overload_t *overload; /* NULL: off */
    ngx_http_weir_store_t *store;       /* NULL: off */
    ngx_http_complex_value_t *test_clock;
    ngx_uint_t status;
    ngx_uint_t log_level;
    ngx_uint_t headers; /* enum weir__field_style, and NGX_HTTP_WEIR_REPLACE */
    ngx_flag_t dry_run;
    ngx_flag_t subrequests;
    ngx_flag_t info_text;       /* weir_info prometheus */
    ngx_http_weir_zone_t *keys; /* weir_keys; NULL: this location has none */
    /* merged: what is decided together, by phase and by dry run */
    ngx_array_t limits_of[2][2]; /* of ngx_http_weir_limit_t * */
    ngx_flag_t applies[2];       /* whether a phase has anything to do */
    ngx_uint_t first_step[2];    /* and with which step it begins */
} ngx_http_weir_loc_conf_t;

/* A flag beside the style: fields that an upstream sent are removed. */
#define NGX_HTTP_WEIR_REPLACE 16

enum { NGX_HTTP_WEIR_PREACCESS, NGX_HTTP_WEIR_PRECONTENT };
enum { NGX_HTTP_WEIR_ENFORCED, NGX_HTTP_WEIR_SHADOW };

/* ---- module.c: what readers of directives share ---- */

ngx_http_weir_place_t ngx_http_weir_place(const ngx_conf_t *cf);
/* Reads a duration ("50ms"); or NGX_ERROR. */
ngx_int_t ngx_http_weir_duration(const ngx_str_t *text, int64_t *ret);
/* The status of a rejection, 400 to 599; or NGX_ERROR. */
ngx_int_t ngx_http_weir_read_status(const ngx_str_t *text);
/* Logs what is wrong with the directive that is being read; NGX_CONF_ERROR. */
#define ngx_http_weir_conf_fail(cf, ...)                                                           \
    (ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, __VA_ARGS__), NGX_CONF_ERROR)
/* Logs what is wrong with a word of the directive that is being read; NGX_CONF_ERROR. */
char *ngx_http_weir_word_fail(ngx_conf_t *cf, const ngx_str_t *word, const char *expected);

static inline bool ngx_http_weir_same(const ngx_str_t *a, const ngx_str_t *b)
{
    return a->len == b->len && !ngx_memcmp(a->data, b->data, a->len);
}

static inline bool ngx_http_weir_is(const ngx_str_t *text, const char *word)
{
    return text->len == ngx_strlen(word) && !ngx_memcmp(text->data, word, text->len);
}

/* Whether the value of unless= or charge_if= says yes. Several variables, each 0, say no. */
static inline bool ngx_http_weir_says_yes(const ngx_str_t *value)
{
    for (size_t i = 0; i < value->len; i++) {
        if (value->data[i] != '0')
            return true;
    }
    return false;
}

typedef struct {
    ngx_str_t name; /* with its "=" */
    char *(*read)(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value, void *conf);
} ngx_http_weir_option_t;
/* Reads a word by the option that it begins with. `seen` has one bit per option: each is given
 * once. `unknown`: what to say about a word that begins with none of them. */
char *ngx_http_weir_read_option(ngx_conf_t *cf, const ngx_http_weir_option_t *options, size_t n,
                                const ngx_str_t *word, unsigned *seen, const char *unknown,
                                void *conf);

/* ---- conf_store.c ---- */

char *ngx_http_weir_store(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* A zone by its name, declared or not. */
ngx_http_weir_zone_t *ngx_http_weir_zone_named(ngx_conf_t *cf, const ngx_str_t *name);
/* At the end of the configuration: every zone that was named is declared. */
ngx_int_t ngx_http_weir_zones_check(ngx_conf_t *cf);

/* ---- conf_limit.c ---- */

char *ngx_http_weir_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf); /* and weir_conn */
char *ngx_http_weir_rate(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* ---- conf_check.c: what only the whole configuration shows ---- */

/* The limits of one location, merged: their number, their store, states they would share. */
char *ngx_http_weir_check_location(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf);
/* Warns of keys that lack the $ of their variable, once for each limit. */
void ngx_http_weir_check_keys(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf);

/* ---- a request ---- */

typedef enum {
    NGX_HTTP_WEIR_NONE,
    NGX_HTTP_WEIR_PASSED,
    NGX_HTTP_WEIR_DELAYED,
    NGX_HTTP_WEIR_DEGRADED,
    NGX_HTTP_WEIR_DRY_RUN,
    NGX_HTTP_WEIR_REJECTED,
    NGX_HTTP_WEIR_FULL,   /* rejected, too: its zone had no room */
    NGX_HTTP_WEIR_CLOSED, /* and this: Redis did not decide */
    NGX_HTTP_WEIR_OVERLOADED,
} ngx_http_weir_status_e; /* the later one wins */

/* What a request takes under limits that are decided together, and the answer. In the request's
 * pool. */
typedef struct {
    enum weir__verb verb;                /* TAKE or ACQUIRE */
    ngx_uint_t count;                    /* requests */
    ngx_uint_t limits;                   /* of all of them: rows */
    weir_request *requests;              /* their details point into rows */
    const ngx_http_weir_limit_t **confs; /* of each request */
    weir_decision *rows;                 /* one per limit */
    /* the answer */
    weir_decision folded;
    ngx_flag_t failed;    /* nothing could be decided: it passes */
    int64_t test_us;      /* the time of weir_test_clock that it was decided at; -1: the real one */
    unsigned depends : 1; /* whether some of it stays charged depends on the answer */
    unsigned merged : 1;  /* keys were equal, and limits became one */
    unsigned local : 1;   /* the zone decided in the place of Redis, and was charged */
    unsigned closed : 1;  /* Redis did not decide, and fail=closed rejects */
} ngx_http_weir_plan_t;

typedef struct ngx_http_weir_charge_s ngx_http_weir_charge_t;

/* A slot of weir_conn that is held. */
typedef struct ngx_http_weir_held_s ngx_http_weir_held_t;

typedef struct ngx_http_weir_job_s ngx_http_weir_job_t;

/* A request that waits for a slice. */
typedef struct ngx_http_weir_join_s ngx_http_weir_join_t;

typedef enum {
    NGX_HTTP_WEIR_AT_OVERLOAD,
    NGX_HTTP_WEIR_AT_CONN,
    NGX_HTTP_WEIR_AT_LIMIT,
    NGX_HTTP_WEIR_AT_DRY_RUN,
    NGX_HTTP_WEIR_AT_DELAY,
    NGX_HTTP_WEIR_AT_END,
} ngx_http_weir_step_e;

typedef struct {
    ngx_http_request_t *request;          /* the main request, or a subrequest that is decided */
    const ngx_http_weir_loc_conf_t *conf; /* of the location that decided last; NULL: none did */
    const ngx_http_weir_loc_conf_t *confs[2]; /* of the one that each phase is at, or was last */
    ngx_uint_t done_steps;                    /* bits: what was decided for this request already */
    ngx_http_weir_step_e steps[2];            /* preaccess, precontent: where it is */
    ngx_uint_t conn_index;                    /* the weir_conn being decided */
    ngx_http_weir_plan_t *plan;               /* being decided, or NULL */
    ngx_http_weir_job_t *job;                 /* in progress for the plan, or NULL */
    ngx_http_weir_join_t *join;               /* waits for a slice instead, or NULL */
    ngx_flag_t answered;                      /* the job's answer is in the plan */
    ngx_flag_t missed;                        /* Redis did not decide some of it */
    int64_t asked_us;                         /* when the plan was asked for, monotonic */
    int64_t waited_us;                        /* for all answers so far */
    int64_t delay_us;                         /* to be waited out in this phase */
    int64_t due_us;                           /* when it is over, monotonic */
    ngx_http_weir_held_t *held;               /* list of slots */
    ngx_http_weir_charge_t *charges;          /* that depend on the answer */
    void *rate;                               /* rate.c */
    /* what is shown */
    ngx_http_weir_status_e status;
    ngx_http_weir_plan_t *shown[2];    /* enforced limits, by phase; a weir_conn that rejected */
    ngx_http_weir_plan_t *shadow[2];   /* limits in dry run */
    const ngx_http_weir_plan_t *would; /* of dry run: the first that would reject, or else delay */
    ngx_flag_t rejected;
    /* zeroed when it is first used: most requests never wait */
    ngx_flag_t waits;
    ngx_event_t timer; /* of the delay, or of the guard while a job is in progress */
} ngx_http_weir_ctx_t;

/* ---- handler.c ---- */

ngx_int_t ngx_http_weir_preaccess_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_weir_precontent_handler(ngx_http_request_t *r);
/* The context of a request; NULL: it has none. A subrequest has one where weir_subrequests is
 * on. */
ngx_http_weir_ctx_t *ngx_http_weir_ctx(ngx_http_request_t *r);
/* The same; made if there is none. NULL: no memory. */
ngx_http_weir_ctx_t *ngx_http_weir_ctx_make(ngx_http_request_t *r);
/* An answer that was awaited has come: go on with the request. */
void ngx_http_weir_resume(ngx_http_weir_ctx_t *ctx);
/* How long after its deadline an answer is still waited for. The threads keep deadlines; this is
 * only for the case that they are held up. */
#define NGX_HTTP_WEIR_GUARD_MS 1000

/* ---- plan.c ---- */

/* The plan for some limits of a location; *ret NULL: none of them applies. NGX_OK, NGX_ERROR, or an
 * HTTP status: a cost or a limit's text is invalid. */
ngx_int_t ngx_http_weir_plan_make(ngx_http_request_t *r, ngx_http_weir_limit_t *const *limits,
                                  ngx_uint_t n, enum weir__verb verb, ngx_http_weir_plan_t **ret);
/* The worker ends. */
void ngx_http_weir_plan_end(void);
/* Copies a key into a pool, so that it lives as long as that. */
ngx_int_t ngx_http_weir_keep_key(ngx_pool_t *pool, weir_key *key);
/* Frees a limit with a pool; NGX_ERROR: no memory for that, and it is freed at once. */
ngx_int_t ngx_http_weir_free_with(ngx_pool_t *pool, weir_limit *limit);
/* 0, or why a limit cannot grant less than the cost. */
int ngx_http_weir_check_least(const weir_limit *limit, weir_error *err);
/* Whether a limit with a cost of its own is to be charged by the answer: it cannot be. */
bool ngx_http_weir_depends_on_costs(const ngx_http_weir_limit_t *conf, const weir_limit *limit);
/* Whether a limit of a location is in dry run. */
static inline bool ngx_http_weir_is_dry(const ngx_http_weir_loc_conf_t *conf,
                                        const ngx_http_weir_limit_t *limit)
{
    return conf->dry_run || limit->dry_run;
}

/* ---- decide.c ---- */

/* Decides a plan in its zones, or sends it to Redis. NGX_OK: the answer is in the plan. NGX_AGAIN:
 * ngx_http_weir_resume will be called. */
ngx_int_t ngx_http_weir_decide(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                               ngx_http_weir_plan_t *plan);
/* Asks Redis for the plan itself. `by_us`: monotonic, at the latest then; 0: by the store's
 * deadline. As ngx_http_weir_decide. */
ngx_int_t ngx_http_weir_ask(ngx_http_weir_ctx_t *ctx, ngx_http_weir_store_t *store,
                            ngx_http_weir_plan_t *plan, int64_t by_us);
/* Decides in the place of Redis, which ended with that code. */
void ngx_http_weir_fall_back(const ngx_http_weir_store_t *store, int code,
                             ngx_http_weir_plan_t *plan, ngx_http_request_t *r);
/* Sets the zones' clock by weir_test_clock; false: it is the real one. */
bool ngx_http_weir_set_clock(ngx_http_request_t *r, const ngx_http_weir_loc_conf_t *conf);
void ngx_http_weir_set_clock_to(int64_t now_us);
/* The clock that zones are given under weir_test_clock. */
extern const weir_clock ngx_http_weir_test_clock;

/* ---- jobs.c, fleet.c: Redis, queried by threads ---- */

/* One key of a job, in the order of that key. */
typedef struct {
    ngx_http_weir_job_t *job;
    ngx_queue_t link;    /* a give: in its bucket; another: among a give's waiters */
    ngx_queue_t waiters; /* of a give */
    uint64_t hash;
    unsigned waits : 1;
} ngx_http_weir_turn_t;

/* A query in progress, in memory of its own: keys are copied, limits referenced. */
struct ngx_http_weir_job_s {
    ngx_http_weir_job_t *next;
    struct weir__job job;
    /* Called in the worker when it is answered, or could not be sent (job.code). `ctx` NULL: the
     * request is gone. Ends the job, or keeps it. */
    void (*done)(ngx_http_weir_job_t *job);
    ngx_http_weir_ctx_t *ctx;
    ngx_http_weir_store_t *store;
    ngx_http_weir_turn_t *turns; /* one per request */
    ngx_uint_t lane;             /* fleet.c's */
    ngx_uint_t blocked;          /* how many of them wait; the job is not sent until none does */
    unsigned gives : 1;          /* others wait for it */
    unsigned owed : 1;           /* kept until Redis is back; not in progress */
    unsigned lost : 1;           /* not answered, before its deadline: there is no connection */
    unsigned remembers : 1;      /* a denial, as `denied` */
    unsigned decides : 1;        /* for requests: not a renewal, a release, a settlement */
    struct weir__denied_call denied;
    int64_t by_us;    /* its deadline is no later than this; 0: the store's; monotonic */
    void *data;       /* of who made it */
    int64_t sent_us;  /* weir__boot_us before it was sent */
    int64_t until_us; /* a give: after this it has no effect any more; monotonic */
    int64_t due_us;   /* a give that is owed: when it is tried again */
    int64_t pause_us; /* before that, when it was last owed; 0: it was not yet */
};

/* A job for these requests; NULL: no memory. */
ngx_http_weir_job_t *ngx_http_weir_job_make(ngx_http_weir_store_t *store, enum weir__verb verb,
                                            const weir_request *requests, ngx_uint_t n);
void ngx_http_weir_job_free(ngx_http_weir_job_t *job);

typedef struct {
    ngx_http_weir_job_t *first, *last;
} ngx_http_weir_jobs_t; /* all zeros: none */
void ngx_http_weir_jobs_put(ngx_http_weir_jobs_t *jobs, ngx_http_weir_job_t *job);
ngx_http_weir_job_t *ngx_http_weir_jobs_take(ngx_http_weir_jobs_t *jobs); /* NULL: none is left */

#define NGX_HTTP_WEIR_ORDER_BUCKETS 256
typedef struct {
    uint64_t secret[2];
    ngx_uint_t gives; /* in progress */
    ngx_queue_t buckets[NGX_HTTP_WEIR_ORDER_BUCKETS];
} ngx_http_weir_order_t;

ngx_int_t ngx_http_weir_order_init(ngx_http_weir_order_t *order);
/* From now on, jobs of the same key wait for it. */
void ngx_http_weir_order_give(ngx_http_weir_order_t *order, ngx_http_weir_job_t *job);
/* Whether the job has to wait; then it is on the lists here. */
bool ngx_http_weir_order_wait(ngx_http_weir_order_t *order, ngx_http_weir_job_t *job);
/* The job does not wait any more: nobody needs it. */
void ngx_http_weir_order_cancel(ngx_http_weir_job_t *job);
/* The job has given back, or failed to. Jobs that waited for nothing else are appended to `ret`. */
void ngx_http_weir_order_done(ngx_http_weir_order_t *order, ngx_http_weir_job_t *job,
                              ngx_http_weir_jobs_t *ret);

/* Sends it, in the order of its keys; `done` is called later, never from within this call.
 * NGX_DECLINED: too many are in progress, or the store is known to be out of reach; the job is
 * still the caller's. */
ngx_int_t ngx_http_weir_job_send(ngx_http_weir_job_t *job);
/* Sends a job that gives something back (a release, a settlement) and that nobody waits for; it is
 * the fleet's from then on. What Redis did not get is kept, and sent when Redis is back, until its
 * until_us. */
void ngx_http_weir_job_give(ngx_http_weir_job_t *job);
/* The request that waited for the job is gone. A job that was not sent yet is freed. A slot that it
 * gets is given back before the next job of that key. */
void ngx_http_weir_job_abandon(ngx_http_weir_job_t *job);
/* The end of a job that was sent: those that waited for it go on. */
void ngx_http_weir_job_end(ngx_http_weir_job_t *job);
/* The end of a job that acquires: the slot that it got, or may have got, is given back. */
void ngx_http_weir_job_return_slot(ngx_http_weir_job_t *job);
/* The threads of a worker's stores. */
ngx_int_t ngx_http_weir_fleet_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *conf);
void ngx_http_weir_fleet_stop(ngx_http_weir_main_conf_t *conf);

typedef struct {
    uint64_t up;            /* 1: some server can be reached; or 0 */
    uint64_t servers, away; /* that own keys; of them: that cannot be reached now */
    uint64_t reached;       /* the others */
    uint64_t refusing;      /* of these: that refused what they were last asked to decide */
    char why[WEIR__WHY_SIZE];
    uint64_t asked, answered, unreachable, cached_denials;
    uint64_t queue; /* in progress now */
    uint64_t owed;  /* to be given back when Redis is back */
} ngx_http_weir_fleet_info_t;
void ngx_http_weir_fleet_info(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_info_t *ret);

/* A request is decided without Redis, which did not decide. Called once per request. */
void ngx_http_weir_fleet_missed(const ngx_http_weir_store_t *store);
/* Whether some server can be, as far as this worker knows. */
bool ngx_http_weir_fleet_reachable(const ngx_http_weir_store_t *store);

/* ---- fleet_tell.c: what the log says of a store ---- */

#define NGX_HTTP_WEIR_LOOK_MS 1000 /* how often changes are logged, at most */

/* How the queries of one worker that decide for requests ended, and what it has told of that. */
typedef struct {
    uint64_t asked, done, unreachable;
    bool decides;      /* the last one was decided: neither missed nor refused */
    uint64_t lost;     /* of the unreachable: before their deadline, without a connection */
    uint64_t requests; /* that something else decided, since Redis did not */
    struct {
        uint64_t done, unreachable, lost;
    } last;                 /* at the last look */
    int64_t refusal_us;     /* when a refusal was last logged */
    uint64_t down_requests; /* before it went down */
    unsigned told;          /* how much of the store does not decide, as the log says */
    struct {                /* answers that come too late, where Redis decides */
        int64_t first_us, told_us;
        uint64_t done, unreachable, lost, requests; /* what is told of begins here */
    } late;
    char why[WEIR__ERROR_MAX]; /* what a server said that did not decide, or empty */
} ngx_http_weir_fleet_seen_t;

/* Counts a query that was sent and has ended; logs a refusal. */
void ngx_http_weir_fleet_note(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_seen_t *seen,
                              const ngx_http_weir_job_t *job);
/* Logs what has changed since the last look. Every NGX_HTTP_WEIR_LOOK_MS. True: an outage is over.
 */
bool ngx_http_weir_fleet_tell(const ngx_http_weir_store_t *store, weir_store *remote,
                              ngx_http_weir_fleet_seen_t *seen);
/* Who decides while Redis does not. */
const char *ngx_http_weir_fleet_meanwhile(const ngx_http_weir_store_t *store);

/* ---- pools.c: slices of all workers ---- */

typedef enum {
    NGX_HTTP_WEIR_SLICES_TAKEN,
    NGX_HTTP_WEIR_SLICES_RETURNED,
    NGX_HTTP_WEIR_UNITS_TAKEN,
    NGX_HTTP_WEIR_UNITS_RETURNED,
    NGX_HTTP_WEIR_UNITS_LOST,
    NGX_HTTP_WEIR_LOCAL,   /* decisions from a slice */
    NGX_HTTP_WEIR_DENIED,  /* by what Redis said before */
    NGX_HTTP_WEIR_CENTRAL, /* of Redis */
    NGX_HTTP_WEIR_POOL_COUNTS
} ngx_http_weir_pool_count_e;

/* The slot among the peers. Times are weir__boot_us. */
typedef struct {
    uint64_t lease;        /* 0: none */
    int64_t until_us;      /* until then slices may be taken and spent */
    int64_t due_us;        /* when it is to be renewed, or tried again */
    int64_t asked_till_us; /* until then a worker is at it */
    struct weir__slot_try tried;
} ngx_http_weir_peer_slot_t;

#define NGX_HTTP_WEIR_POOL_WORKERS 256

/* At the start of the memory; the table of pools follows. */
typedef struct {
    size_t pool_size;
    _Atomic uint32_t changing; /* what its holder changes; 0: nothing, 1 …: a set of pools */
    uint32_t own_size;
    ngx_http_weir_peer_slot_t slot;
    int64_t sweep_us;        /* when the next sweep is due */
    _Atomic int64_t mute_us; /* until then no slice is asked for: the server does not know LEAST */
    _Atomic uint32_t told;   /* enum weir__trouble: what the log says */
    ngx_pid_t workers[NGX_HTTP_WEIR_POOL_WORKERS];
    _Atomic uint64_t counts[NGX_HTTP_WEIR_POOL_COUNTS];
} ngx_http_weir_pools_memory_t;

struct ngx_http_weir_pools_s {
    ngx_str_t name;
    struct weir__slicing slicing;
    const weir_limit *slot_limit;
    ngx_slab_pool_t *slab;
    ngx_http_weir_pools_memory_t *memory;
    struct weir__pools *table;
};

/* With a store's directive: the memory of its pools, if it slices. */
ngx_int_t ngx_http_weir_pools_declare(ngx_conf_t *cf, ngx_http_weir_store_t *store);
/* Never waits. False: a worker that does not run holds the lock. */
bool ngx_http_weir_pools_lock(ngx_http_weir_pools_t *pools);
void ngx_http_weir_pools_unlock(ngx_http_weir_pools_t *pools);
/* The rest is used under the lock. What was returned last may be changed, and nothing else. */
struct weir__pool *ngx_http_weir_pools_set(ngx_http_weir_pools_t *pools, const uint64_t tag[2]);
struct weir__pool *ngx_http_weir_pools_find(ngx_http_weir_pools_t *pools, const uint64_t tag[2]);
struct weir__pool *ngx_http_weir_pools_of_request(ngx_http_weir_pools_t *pools,
                                                  const weir_request *request, size_t i);
uint32_t ngx_http_weir_pools_sets(void);
struct weir__pool *ngx_http_weir_pools_of_set(ngx_http_weir_pools_t *pools, uint32_t set);
ngx_http_weir_peer_slot_t *ngx_http_weir_pools_slot(ngx_http_weir_pools_t *pools);
struct weir__pool_now ngx_http_weir_pools_now(const ngx_http_weir_pools_t *pools, int64_t now_us);
/* This worker uses them from now on (under the lock; again does no harm); and no longer. Leaving
 * is true for the last one. */
void ngx_http_weir_pools_enter(ngx_http_weir_pools_t *pools);
bool ngx_http_weir_pools_leave(ngx_http_weir_pools_t *pools);

static inline void ngx_http_weir_pools_count(ngx_http_weir_pools_t *pools,
                                             ngx_http_weir_pool_count_e what, int64_t n)
{
    atomic_fetch_add_explicit(&pools->memory->counts[what], (uint64_t)n, memory_order_relaxed);
}

typedef struct {
    uint64_t counts[NGX_HTTP_WEIR_POOL_COUNTS];
    uint64_t slices, units;            /* held now */
    uint64_t slot;                     /* 1, or 0 */
    uint64_t troubles[WEIR__TROUBLES]; /* 1, or 0 */
    char trouble[WEIR__TROUBLE_MAX];
} ngx_http_weir_pools_info_t;
void ngx_http_weir_pools_info(const ngx_http_weir_store_t *store, ngx_http_weir_pools_info_t *ret);

/* ---- slices.c: a worker's part of them ---- */

/* NGX_OK: the answer is in the plan. NGX_AGAIN: ngx_http_weir_resume will be called. NGX_DECLINED:
 * Redis is to be asked for the plan itself. */
ngx_int_t ngx_http_weir_slices_take(ngx_http_weir_ctx_t *ctx, ngx_http_weir_store_t *store,
                                    ngx_http_weir_plan_t *plan);
/* The request does not wait for a slice any more. */
void ngx_http_weir_slices_abandon(ngx_http_weir_join_t *join);
ngx_http_weir_store_t *ngx_http_weir_slices_store(const ngx_http_weir_join_t *join);
/* By how much less than its size Redis is asked for a limit. */
int64_t ngx_http_weir_slices_withheld(ngx_http_weir_store_t *store, weir_key key,
                                      const struct weir__rule *rule);
/* Redis has answered a plan by itself. */
void ngx_http_weir_slices_hear(ngx_http_weir_store_t *store, const ngx_http_weir_plan_t *plan);
/* Something of this key was given back: denials of it are forgotten. */
void ngx_http_weir_slices_forgive(ngx_http_weir_store_t *store, const weir_request *request);
/* Those who waited for a slice: it has come, or has failed with that code. Empties the queue. */
void ngx_http_weir_slices_wake(ngx_http_weir_slicer_t *slicer, ngx_queue_t *waiters, int code);

/* ---- slices_calls.c: asking for slices ---- */

#define NGX_HTTP_WEIR_CALL_BUCKETS 64

/* A slice that was asked for, by this worker or by another. */
typedef struct {
    ngx_queue_t link; /* in its bucket */
    ngx_queue_t waiters;
    struct weir__slice_ask ask;
    int64_t patience_us;         /* another worker's: until then it is waited for */
    ngx_http_weir_job_t *answer; /* of our own that Redis has answered; the lock was not free yet */
    bool own;
} ngx_http_weir_call_t;

struct ngx_http_weir_slicer_s {
    ngx_http_weir_store_t *store;
    ngx_http_weir_pools_t *pools;
    ngx_queue_t calls[NGX_HTTP_WEIR_CALL_BUCKETS];
    ngx_uint_t others;  /* calls of other workers */
    ngx_uint_t waiters; /* of all calls */
    ngx_event_t poll, tick;
};

/* Begins in this worker. NULL: no memory. */
ngx_http_weir_slicer_t *ngx_http_weir_slicer_make(ngx_http_weir_store_t *store);
void ngx_http_weir_slicer_free(ngx_http_weir_slicer_t *slicer);
/* Asks for a slice, which is begun in the pool. NULL: that is not possible, and it is lost. */
ngx_http_weir_call_t *ngx_http_weir_calls_begin(ngx_http_weir_slicer_t *slicer,
                                                const struct weir__slice_ask *ask,
                                                const weir_request *of);
/* A call that is known here; and one of another worker's from now on. NULL: none, or no memory. */
ngx_http_weir_call_t *ngx_http_weir_calls_find(ngx_http_weir_slicer_t *slicer,
                                               const uint64_t tag[2], uint32_t serial);
ngx_http_weir_call_t *ngx_http_weir_calls_add(ngx_http_weir_slicer_t *slicer,
                                              const struct weir__slice_ask *ask, bool own);
/* Looks soon what has become of those of other workers. */
void ngx_http_weir_calls_poll(ngx_http_weir_slicer_t *slicer);

/* ---- slices_keep.c: their slot, and what is given back ---- */

/* How long after its deadline a query still counts. */
#define NGX_HTTP_WEIR_LATE_US 100000

typedef struct {
    enum weir__verb verb;
    uint64_t lease;
} ngx_http_weir_slot_turn_t;
/* Under the lock: whether this worker is to see to the slot now. Then _ask, without the lock. */
bool ngx_http_weir_peer_slot_turn(ngx_http_weir_store_t *store, int64_t now_us,
                                  ngx_http_weir_slot_turn_t *ret);
void ngx_http_weir_peer_slot_ask(ngx_http_weir_store_t *store,
                                 const ngx_http_weir_slot_turn_t *turn);
void ngx_http_weir_slices_tick(ngx_event_t *event); /* its data: the store */
/* Logs why no slices are taken, or that they can be taken again, once for all workers. */
void ngx_http_weir_slices_tell(ngx_http_weir_store_t *store, enum weir__trouble trouble,
                               const char *said);
/* The worker ends, its threads have ended. True: it is the last one, and what is to be given back
 * is in `ret`, for ngx_http_weir_slices_leave when that was sent. */
bool ngx_http_weir_slices_end(ngx_http_weir_store_t *store, ngx_http_weir_jobs_t *ret);
void ngx_http_weir_slices_leave(ngx_http_weir_store_t *store, const ngx_http_weir_jobs_t *given,
                                ngx_http_weir_jobs_t *ret);

/* ---- denied.c: denials remembered by a worker ---- */

/* NULL: no memory. */
ngx_http_weir_denied_t *ngx_http_weir_denied_make(const struct weir__redis_url *url);
void ngx_http_weir_denied_free(ngx_http_weir_denied_t *denied);
/* Whether the same was denied a moment ago: then the answer is in the plan. */
bool ngx_http_weir_denied_find(ngx_http_weir_denied_t *denied, ngx_http_weir_plan_t *plan,
                               int64_t now_us);
/* A plan as it is known here, before Redis is asked: what is given back meanwhile is noticed.
 * False: such plans are not remembered. */
bool ngx_http_weir_denied_call(const ngx_http_weir_denied_t *denied,
                               const ngx_http_weir_plan_t *plan, struct weir__denied_call *ret);
/* Remembers a denial for `longest_us` at most. `asked_us`: when the query was sent, so that the
 * denial is never remembered for longer than it holds. */
void ngx_http_weir_denied_note(ngx_http_weir_denied_t *denied, const struct weir__denied_call *call,
                               const ngx_http_weir_plan_t *plan, int64_t asked_us,
                               int64_t longest_us);
/* This worker gave something back to a key. The table may be NULL. */
void ngx_http_weir_denied_forget(ngx_http_weir_denied_t *denied, weir_key key);

/* ---- slots.c ---- */

/* A slot was acquired: holds it until the request ends. */
ngx_int_t ngx_http_weir_slot_hold(ngx_http_weir_ctx_t *ctx, ngx_http_weir_store_t *store,
                                  const ngx_http_weir_plan_t *plan);
/* Gives back all that a request holds. */
void ngx_http_weir_slots_release(ngx_http_weir_ctx_t *ctx);
/* Gives back the slots of all requests of this worker, which ends now. */
void ngx_http_weir_slots_release_all(void);

/* ---- rate.c ---- */

char *ngx_http_weir_rate_check(ngx_conf_t *cf, const ngx_http_weir_limit_t *limit);
ngx_int_t ngx_http_weir_rate_init(ngx_conf_t *cf); /* postconfiguration: the body filter */
void ngx_http_weir_rate_end(ngx_http_weir_ctx_t *ctx);

/* ---- charge.c ---- */

#define NGX_HTTP_WEIR_STATUSES 63 /* bytes: 100 to 599, a bit each */
/* Reads on=: "401,403,5xx,!503"; false: it cannot be read. */
bool ngx_http_weir_charge_read(u_char set[NGX_HTTP_WEIR_STATUSES], const ngx_str_t *text);
/* A plan was decided: remembers what of it depends on the answer. */
ngx_int_t ngx_http_weir_charge_note(ngx_http_weir_ctx_t *ctx, const ngx_http_weir_loc_conf_t *conf,
                                    ngx_http_weir_plan_t *plan);
/* The answer's status is known, and may still change unless it is the `last` time: gives back what
 * it does not charge. */
void ngx_http_weir_charge_judge(ngx_http_weir_ctx_t *ctx, bool last);

/* ---- overload.c ---- */

char *ngx_http_weir_overload(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
bool ngx_http_weir_is_overloaded(const ngx_http_weir_overload_t *overload);

/* ---- fields.c, info.c ---- */

ngx_int_t ngx_http_weir_fields_init(ngx_conf_t *cf);   /* postconfiguration: the header filter */
ngx_int_t ngx_http_weir_variables_add(ngx_conf_t *cf); /* preconfiguration */
/* The rule of a row of a decided plan, and whose it is. */
const struct weir__rule *ngx_http_weir_rule(const ngx_http_weir_plan_t *plan, ngx_uint_t row,
                                            const ngx_http_weir_limit_t **ret_conf);
/* The canonical text of the limit that bound a plan. */
struct weir__rule_text ngx_http_weir_bound_text(const ngx_http_weir_plan_t *plan);

/* ---- info.c, keys.c: what administrators ask ---- */

char *ngx_http_weir_info(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_weir_keys(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
/* Answers with a body of the request's pool, not to be cached. What a content handler returns. */
ngx_int_t ngx_http_weir_send(ngx_http_request_t *r, ngx_uint_t status, const ngx_str_t *type,
                             ngx_buf_t *body);

/* ---- counts.c ---- */

typedef enum {
    NGX_HTTP_WEIR_OF_LIMIT,
    NGX_HTTP_WEIR_OF_CONN,
    NGX_HTTP_WEIR_KINDS
} ngx_http_weir_kind_e;
typedef enum {
    NGX_HTTP_WEIR_DID_PASS,
    NGX_HTTP_WEIR_DID_DELAY,
    NGX_HTTP_WEIR_DID_REJECT,
    NGX_HTTP_WEIR_WOULD_REJECT, /* or delay: in dry run */
    NGX_HTTP_WEIR_DID_CLOSE,    /* rejected because Redis did not decide */
    NGX_HTTP_WEIR_OUTCOMES
} ngx_http_weir_outcome_e;

/* With a zone's declaration: the memory of its counts. */
ngx_int_t ngx_http_weir_counts_declare(ngx_conf_t *cf, ngx_http_weir_zone_t *zone);
/* Counts a decided plan in its zones; `dry_run`: it would have rejected or delayed. What a dry run
 * would let pass has passed. */
void ngx_http_weir_count(const ngx_http_weir_plan_t *plan, bool dry_run);
uint64_t ngx_http_weir_counted(const ngx_http_weir_zone_t *zone, ngx_http_weir_kind_e kind,
                               ngx_http_weir_outcome_e outcome);
/* Likewise, charges that the answer gives back: on= and charge_if=. */
void ngx_http_weir_count_given_back(const ngx_http_weir_zone_t *zone);
uint64_t ngx_http_weir_given_back(const ngx_http_weir_zone_t *zone);

#endif

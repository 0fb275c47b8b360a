/*
 * The Node-API addon: the library as functions of JavaScript. index.js is its only caller: it makes
 * stores, limits and decisions of what stands here, and checks what users give it.
 *
 * What holds
 *   - Everything belongs to one environment (the main thread or a worker thread) and is used on its
 *     thread alone. Only job_run is called by threads of the pool, and it calls no Node-API.
 *   - No function here throws. Verbs return undefined, or a negative code; what went wrong is in
 *     addon->error, which lastError() reads.
 *   - A decision is a row of ROW_SIZE doubles. All its numbers are below 2^53, so nothing is lost.
 *     Verbs write rows into `out`, which index.js reads before it calls anything else.
 *   - Stores and limits are counted: by JavaScript (its finalizers), by every job and every watch.
 *   - At the end of an environment its jobs complete first, then addon_clean closes its watches,
 *     then the finalizers run. None of these may call JavaScript then, and none needs to.
 */
#ifndef WEIR_ADDON_H
#define WEIR_ADDON_H

#define NAPI_VERSION 8
#include <node_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>
#include <weir.h>

/* One decision as numbers; index.js has the same list. */
enum row {
    ROW_ALLOWED,
    ROW_LIMIT,
    ROW_REMAINING,
    ROW_RETRY,
    ROW_RESET,
    ROW_DELAY,
    ROW_GRANTED,
    ROW_CHARGED,
    ROW_TIME,
    ROW_LEASE,
    ROW_BINDING,
    ROW_DEGRADED,
    ROW_LOCAL,
    ROW_CLOSED,
    ROW_FULL,
    ROW_RECEIPT, /* the id that it has already; -1: it has no receipt */
    ROW_CODE,
    ROW_SIZE
};

#define OUT_ROWS (1 + WEIR_LIMITS_MAX) /* the folded answer, and one row per limit */
#define MANY_MAX 65536                 /* requests of takeMany */
#define BATCH_MAX 64                   /* calls that one thread of the pool makes in turn */
#define TOGETHER_MAX 32                /* takes that share a round trip; others wait for it */
#define BATCHES_MAX 2                  /* threads of the pool that a store keeps busy */
#define LANES 64                       /* of more servers of a Cluster, some share one */

struct watch;

/* Of one environment; counted by it and by its watches. */
struct addon {
    unsigned refs;
    double *out; /* OUT_ROWS rows, the memory of a Float64Array that is never freed before this */
    napi_ref out_ref;
    weir_error error; /* of the last call that failed */
    struct watch *watches;
    napi_async_cleanup_hook_handle hook;
    unsigned closing; /* watches that the loop has not closed yet */
    bool cleaning;    /* its environment ends: watches are being closed */
    bool stopped;     /* JavaScript cannot be called any more */
};

/* A limit of JavaScript's. */
struct limit {
    unsigned refs;
    weir_limit *limit;
};

/* A store of JavaScript's. */
struct store {
    unsigned refs;
    struct addon *addon;
    weir_store *store; /* NULL: closed, or a remote one that was not opened yet */
    bool remote, closed;
    int64_t since_us; /* when it took the place of a zone that was replaced; 0: it is the first */
    char *url;
    /* remote: jobs wait here; under `opening` is what threads of the pool write */
    struct lane {
        struct job *first, **last;
        bool busy;          /* a thread is at work for it */
    } lanes[LANES];         /* of servers; the first one: of all where there is no Cluster */
    unsigned turn;          /* the lane that is looked at first */
    unsigned batches, jobs; /* threads at work; jobs that wait or run */
    napi_ref closer;        /* called when it is closed */
    pthread_mutex_t opening;
    weir_error open_error; /* code 0: opening has not failed */
    int64_t failed_at_ms;
    atomic_bool opened; /* a remote one is there from now on, until it is closed */
};

/* ---- addon.c ---- */

struct addon *addon_of(napi_env env);
void addon_unref(struct addon *addon);
/* undefined for 0, otherwise the code. */
napi_value addon_code(napi_env env, int code);
/* Fills addon->error; returns its code. */
int addon_fail(struct addon *addon, int code, const char *message);
/* Adds a function to an object, with data that its callback gets. */
void addon_function(napi_env env, napi_value object, const char *name, napi_callback function,
                    void *data);

/* ---- values.c ---- */

#define KEY_ROOM 512 /* longer keys are copied to the heap */

struct key {
    const void *data;
    size_t len;
    char *heap; /* NULL, or what value_key_free frees */
    char room[KEY_ROOM];
};

/* Reads a key, which is a string or a Uint8Array: false with addon->error. The bytes of an array
 * are borrowed. */
bool value_key(napi_env env, struct addon *addon, napi_value value, struct key *ret);
void value_key_free(struct key *key);
/* A whole number from least to most; false with addon->error. */
bool value_whole(napi_env env, struct addon *addon, napi_value value, double least, double most,
                 int64_t *ret);
/* A string with a 0 behind, and without one inside, to be freed; NULL with addon->error. */
char *value_text(napi_env env, struct addon *addon, napi_value value, size_t *ret_len);
struct limit *value_limit(napi_env env, napi_value value);
struct store *value_store(napi_env env, napi_value value);
void row_write(double *row, const weir_decision *decision);
void row_read(const double *row, weir_decision *ret);

/* ---- limit.c ---- */

void limit_unref(struct limit *limit);
void limit_init(napi_env env, napi_value exports);

/* ---- store.c ---- */

void store_unref(struct store *store);
/* The store is open and may be asked: 0, or a code with addon->error. */
int store_usable(struct store *store);
static inline bool store_is_open(struct store *store)
{
    return !store->remote || atomic_load_explicit(&store->opened, memory_order_acquire);
}
void store_init(napi_env env, napi_value exports);

/* ---- job.c: any verb with any number of requests, now or in a thread of the pool ---- */

/* index.js has the same list. */
enum verb {
    VERB_TAKE,
    VERB_PEEK,
    VERB_MANY,
    VERB_SETTLE,
    VERB_RESET,
    VERB_RENEW,
    VERB_RELEASE,
    VERB_CHECK,
    VERB_OPEN
};

struct job {
    struct job *next;
    struct store *store;
    enum verb verb;
    size_t n, row_count;
    weir_request *requests;
    weir_decision *folded, *rows; /* one answer, or n of VERB_MANY; one row per limit */
    struct limit **limits;        /* n; NULL where a verb has no limit */
    char *keys;
    int64_t number; /* VERB_SETTLE: the real cost; renew, release: the lease */
    char receipt[WEIR_RECEIPT_SIZE];
    int code;
    weir_error error;
    napi_ref callback; /* of one that is queued */
    unsigned lane;
    int64_t queued_us;
};

void job_run(struct job *job, weir_store *store);
void job_free(napi_env env, struct job *job);
/* Calls the callback: (code, rows, message, column). */
void job_tell(napi_env env, struct job *job);
void job_init(napi_env env, napi_value exports);

/* ---- queue.c: jobs of remote stores ---- */

void queue_add(napi_env env, struct store *store, struct job *job);
/* Closes a remote store as soon as no job is left; calls the callback then. */
void queue_close(napi_env env, struct store *store, napi_value callback);

/* ---- watch.c: freed slots, told by the event loop ---- */

/* All of a store's; NULL: all of them. */
void watch_close_all(struct addon *addon, const struct store *store);
void watch_init(napi_env env, napi_value exports);

#endif

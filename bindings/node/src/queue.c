/*
 * Jobs of a remote store. They wait in a queue; at most BATCHES_MAX threads of the pool work on
 * them, each on up to BATCH_MAX jobs. So a store keeps most of the pool free, whatever is asked of
 * it. Plain takes that follow each other are one weir_take_many, so that they share a round trip:
 * TOGETHER_MAX at most, because the others still wait, and that counts.
 *
 * In a Cluster the jobs of each server are a lane, with one thread at most: while one server is
 * late, the others go on. The deadline of a take or peek counts from when it was queued.
 *
 * The queue is touched on the environment's thread alone. A thread of the pool has its batch, and
 * the store, which cannot be closed while a batch is in progress.
 */
#include "addon.h"

#include "remote/remote.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RETRY_MS 1000 /* a store that could not be opened is tried again after this */

struct batch {
    napi_async_work work;
    struct store *store;
    size_t n, done; /* done: so many were run, the others wait again */
    bool closes;    /* it closes the store, and has no jobs */
    struct job *jobs[BATCH_MAX];
};

static int64_t queue_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static int64_t queue_now_ms(void)
{
    return queue_now_us() / 1000;
}

/* ---- in a thread of the pool ---- */

/* The first job opens the store. *ret is NULL on failure. */
static int batch_open(struct store *store, weir_store **ret, weir_error *err)
{
    pthread_mutex_lock(&store->opening);
    const bool again = !store->open_error.code || queue_now_ms() - store->failed_at_ms >= RETRY_MS;
    if (!store->store && again) {
        store->open_error.code = 0;
        if (weir_store_open(store->url, &store->store, &store->open_error))
            store->failed_at_ms = queue_now_ms();
    }
    *ret = store->store;
    if (!store->store)
        *err = store->open_error;
    else
        atomic_store_explicit(&store->opened, true, memory_order_release);
    pthread_mutex_unlock(&store->opening);
    return *ret ? 0 : err->code;
}

static bool batch_is_plain(const struct job *job)
{
    return job->verb == VERB_TAKE && job->n == 1 && !job->requests->acquire;
}

static void batch_count_wait(struct job *job)
{
    const int64_t waited_us = queue_now_us() - job->queued_us;
    for (size_t i = 0; i < job->n; i++)
        job->requests[i].waited_us = waited_us;
}

/* So many takes at once, each as if it were alone. */
static void batch_take_many(struct job *const *jobs, size_t n, weir_store *store)
{
    weir_request requests[BATCH_MAX];
    weir_decision decisions[BATCH_MAX];
    assert(n > 0 && n <= BATCH_MAX);
    memset(requests, 0, n * sizeof *requests);
    memset(decisions, 0, n * sizeof *decisions);
    for (size_t i = 0; i < n; i++) {
        jobs[i]->requests->error = &jobs[i]->error;
        batch_count_wait(jobs[i]);
        requests[i] = *jobs[i]->requests;
    }
    int code = weir_take_many(store, requests, n, decisions);
    for (size_t i = 0; i < n; i++) {
        jobs[i]->code = decisions[i].code;
        *jobs[i]->folded = decisions[i];
        code = code && decisions[i].code ? 0 : code;
        if (jobs[i]->code && !jobs[i]->error.code)
            strncpy(jobs[i]->error.message, weir_strerror(jobs[i]->code),
                    sizeof jobs[i]->error.message - 1);
    }
    for (size_t i = 0; code && i < n; i++) /* the call failed, and no decision says so */
        jobs[i]->code = code;
}

/* How many takes go together, from the first on. They are answered when the last of them is: so
 * they are about as old as each other. */
static size_t batch_together(struct job *const *jobs, size_t n, weir_store *store)
{
    const int64_t apart_us = weir__remote_of(store)->url.deadline_us / 4;
    size_t plain = 0;
    while (plain < n && plain < TOGETHER_MAX && batch_is_plain(jobs[plain]) &&
           jobs[plain]->queued_us - jobs[0]->queued_us <= apart_us)
        plain++;
    return plain;
}

/* Whether no server decided it. Then the others of its batch may take long, and it is told now. */
static bool batch_is_undecided(const struct job *job)
{
    return job->code == WEIR_EUNREACHABLE || (job->n > 0 && job->folded[0].degraded);
}

static void batch_execute(napi_env env, void *data)
{
    struct batch *batch = data;
    weir_store *store = NULL;
    weir_error error = {0};
    (void)env;
    if (batch->closes) {
        weir_store_close(batch->store->store);
        return;
    }
    int code = batch_open(batch->store, &store, &error);
    for (bool late = false; batch->done < batch->n && !late;) {
        struct job *const *jobs = batch->jobs + batch->done;
        size_t plain = code ? 0 : batch_together(jobs, batch->n - batch->done, store);
        if (code) {
            jobs[0]->code = code;
            jobs[0]->error = error;
        } else if (plain > 1) {
            batch_take_many(jobs, plain, store);
        } else {
            batch_count_wait(jobs[0]);
            job_run(jobs[0], store);
        }
        for (size_t end = batch->done + (plain > 1 ? plain : 1); batch->done < end; batch->done++)
            late = late || batch_is_undecided(batch->jobs[batch->done]);
    }
}

/* ---- on the environment's thread ---- */

static void queue_pump(napi_env env, struct store *store);

/* What was not run is the next in its lane. */
static void batch_put_back(struct batch *batch)
{
    for (; batch->n > batch->done; batch->n--) {
        struct job *job = batch->jobs[batch->n - 1];
        struct lane *lane = &batch->store->lanes[job->lane];
        job->next = lane->first;
        lane->last = lane->first ? lane->last : &job->next;
        lane->first = job;
    }
}

static void batch_complete(napi_env env, napi_status status, void *data)
{
    struct batch *batch = data;
    struct store *store = batch->store;
    (void)status; /* it is never cancelled */
    assert(store->batches > 0);
    store->batches--;
    batch_put_back(batch);
    store->jobs -= (unsigned)batch->n;
    if (!batch->closes)
        store->lanes[batch->jobs[0]->lane].busy = false;
    if (batch->closes) {
        napi_value callback = NULL, undefined = NULL, ignored = NULL;
        store->store = NULL;
        napi_get_undefined(env, &undefined);
        if (napi_get_reference_value(env, store->closer, &callback) == napi_ok && callback)
            napi_call_function(env, undefined, callback, 0, NULL, &ignored);
        napi_delete_reference(env, store->closer);
        store->closer = NULL;
    }
    for (size_t i = 0; i < batch->n; i++) {
        napi_handle_scope scope = NULL;
        if (napi_open_handle_scope(env, &scope) == napi_ok) {
            job_tell(env, batch->jobs[i]);
            napi_close_handle_scope(env, scope);
        }
        job_free(env, batch->jobs[i]);
    }
    queue_pump(env, store);
    napi_delete_async_work(env, batch->work);
    store_unref(store);
    free(batch);
}

/* Begins a batch; false: not now, there is no memory or the environment ends. */
static bool batch_start(napi_env env, struct store *store, struct batch *batch)
{
    napi_value name = NULL;
    if (napi_create_string_latin1(env, "weir", NAPI_AUTO_LENGTH, &name) ||
        napi_create_async_work(env, NULL, name, batch_execute, batch_complete, batch, &batch->work))
        return false;
    batch->store = store;
    if (napi_queue_async_work(env, batch->work) != napi_ok) {
        napi_delete_async_work(env, batch->work);
        return false;
    }
    store->refs++;
    store->batches++;
    if (!batch->closes)
        store->lanes[batch->jobs[0]->lane].busy = batch->jobs[0]->lane > 0;
    return true;
}

/* Jobs that cannot be run: they fail, and nobody waits for them for ever. */
static void queue_drop(napi_env env, struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        struct job *job = batch->jobs[i];
        job->store->jobs--;
        job->code = WEIR_ENOMEM;
        strncpy(job->error.message, weir_strerror(WEIR_ENOMEM), sizeof job->error.message - 1);
        if (!job->store->addon->stopped)
            job_tell(env, job);
        job_free(env, job);
    }
    free(batch);
}

/* The next lane that has jobs and no thread, in turn; NULL: there is none. */
static struct lane *queue_next_lane(struct store *store)
{
    for (unsigned i = 0; i < LANES; i++) {
        struct lane *lane = &store->lanes[(store->turn + i) % LANES];
        if (!lane->first || lane->busy)
            continue;
        store->turn = (unsigned)(lane - store->lanes) + 1;
        return lane;
    }
    return NULL;
}

static void queue_pump(napi_env env, struct store *store)
{
    struct lane *lane;
    while (store->batches < BATCHES_MAX && (lane = queue_next_lane(store))) {
        struct batch *batch = calloc(1, sizeof *batch);
        if (!batch)
            return; /* the next call tries again */
        while (lane->first && batch->n < BATCH_MAX) {
            batch->jobs[batch->n++] = lane->first;
            lane->first = lane->first->next;
        }
        if (!lane->first)
            lane->last = &lane->first;
        if (store->addon->stopped || !batch_start(env, store, batch))
            queue_drop(env, batch);
    }
    if (!store->closer || store->addon->stopped || store->jobs > 0 || store->batches > 0)
        return;
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch) {
        batch->closes = true;
        if (batch_start(env, store, batch))
            return;
    }
    free(batch); /* the last reference closes it */
}

/* Until the store is open, its servers are not known. */
static unsigned queue_lane_of(struct store *store, const struct job *job)
{
    if (job->n == 0 || !store_is_open(store))
        return 0;
    unsigned lane = weir__store_lane(store->store, job->requests[0].key);
    return lane ? 1 + lane % (LANES - 1) : 0;
}

void queue_add(napi_env env, struct store *store, struct job *job)
{
    assert(!store->closed && store->remote);
    job->queued_us = queue_now_us();
    job->lane = queue_lane_of(store, job);
    *store->lanes[job->lane].last = job;
    store->lanes[job->lane].last = &job->next;
    store->jobs++;
    queue_pump(env, store);
}

void queue_close(napi_env env, struct store *store, napi_value callback)
{
    assert(store->closed && !store->closer);
    if (napi_create_reference(env, callback, 1, &store->closer) == napi_ok)
        queue_pump(env, store);
}

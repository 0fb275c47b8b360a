/*
 * Redis, queried by a few threads of the worker: the library's store waits for its answers, a
 * worker never does.
 *
 *     worker: job_send ─► lanes ─► a thread takes up to 32 ─► the store: all sent, then all awaited
 *                                                                │
 *     worker: done(job) ◄── eventfd ◄────── answered jobs ◄──────┘
 *
 * What holds:
 *   1. A job belongs to the worker before it is sent and when it is done, and to the threads in
 *      between. The lock covers the two lists and nothing else. Counters are the worker's alone.
 *   2. Every job sent is done once, by its deadline (plus a sixteenth, and what the scheduler
 *      adds), or freed at the end.
 *   3. The eventfd is written when the list of answered jobs was empty: one wake brings all of
 *      them.
 *   4. While no server can be reached, nothing is sent at all.
 *   5. A worker that shuts down waits for jobs in progress, and for nothing else of ours: the timer
 *      that writes the log can be cancelled. What is owed then is tried once more, with one
 *      deadline for all.
 *   6. Jobs of one key are sent in order (jobs.c). Those that wait count as in progress.
 *   7. In a Cluster each server has a lane, and half of the threads at most: while one is late,
 *      jobs for the others go on.
 */
#include "ngx_http_weir.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#define THREADS 4
#define LANES 64 /* of more servers, some share one */
#define LANE_THREADS (THREADS / 2)
#define LATE_PART 16              /* by so much of its deadline a job may be late */
#define QUEUE_MAX 4096            /* jobs in progress */
#define OWED_MAX 4096             /* releases and settles kept for a Redis that is away */
#define PAUSE_US INT64_C(1000000) /* before one that it did not take is tried again; it doubles */
#define PAUSE_MAX_US INT64_C(16000000)

struct ngx_http_weir_worker_s {
    ngx_http_weir_store_t *store;
    weir_store *remote;
    ngx_connection_t *wake; /* around the eventfd */
    int wake_fd;
    pthread_t threads[THREADS];
    ngx_uint_t thread_count;
    /* under the lock */
    struct weir__lock lock;
    pthread_cond_t some;
    ngx_http_weir_jobs_t queued[LANES], answered;
    ngx_uint_t busy[LANES]; /* threads that query for it */
    ngx_uint_t turn;        /* the lane that is looked at first */
    ngx_uint_t idle;        /* threads that wait */
    bool stopping;
    /* the worker's alone */
    ngx_event_t alive; /* while jobs are in progress: a worker that shuts down waits for it */
    ngx_event_t look;
    ngx_uint_t in_progress;
    ngx_http_weir_order_t order;
    ngx_http_weir_jobs_t owed;
    ngx_uint_t owed_count;
    int64_t owed_due_us; /* when the first of them is due */
    ngx_http_weir_fleet_seen_t seen;
};

/* ---- sending ---- */

static void fleet_queue(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    unsigned lane = weir__store_lane(worker->remote, job->job.requests[0].key);
    job->lane = lane ? 1 + lane % (LANES - 1) : 0;
    weir__lock_take(&worker->lock);
    ngx_http_weir_jobs_put(&worker->queued[job->lane], job);
    if (worker->idle > 0)
        pthread_cond_signal(&worker->some);
    weir__lock_release(&worker->lock);
}

static bool fleet_can_send(const ngx_http_weir_worker_t *worker)
{
    return worker->in_progress < QUEUE_MAX && weir__remote_reachable(worker->remote);
}

static void fleet_send(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    assert(!job->owed && job->blocked == 0 && worker->in_progress <= QUEUE_MAX);
    const int64_t now_us = weir__mono_us(), all_us = worker->store->url.deadline_us;
    job->job.deadline_us = job->by_us ? ngx_min(now_us + all_us, job->by_us) : now_us + all_us;
    job->job.quiet = job->job.deadline_us < now_us + all_us / 2;
    worker->in_progress++;
    ngx_add_timer(&worker->alive, worker->store->url.deadline_us / 1000 + NGX_HTTP_WEIR_GUARD_MS);
    if (job->job.verb == WEIR__VERB_RELEASE || job->job.verb == WEIR__VERB_SETTLE)
        ngx_http_weir_order_give(&worker->order, job);
    else if (ngx_http_weir_order_wait(&worker->order, job))
        return;
    fleet_queue(worker, job);
}

static void fleet_keep(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    if (worker->owed_count == 0 || job->due_us < worker->owed_due_us)
        worker->owed_due_us = job->due_us;
    ngx_http_weir_jobs_put(&worker->owed, job);
    worker->owed_count++;
    assert(worker->owed_count <= OWED_MAX);
}

/* What is owed to Redis is sent first: then the next job of that key waits for it. */
static void fleet_pay(ngx_http_weir_worker_t *worker)
{
    ngx_http_weir_jobs_t owed = worker->owed;
    int64_t now_us = weir__mono_us();
    worker->owed = (ngx_http_weir_jobs_t){0};
    worker->owed_count = 0;
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&owed));) {
        if (now_us >= job->until_us) {
            ngx_http_weir_job_free(job);
        } else if (now_us >= job->due_us && fleet_can_send(worker)) {
            job->owed = 0;
            fleet_send(worker, job);
        } else {
            fleet_keep(worker, job);
        }
    }
}

ngx_int_t ngx_http_weir_job_send(ngx_http_weir_job_t *job)
{
    ngx_http_weir_worker_t *worker = job->store->worker;
    if (!worker)
        return NGX_DECLINED;
    worker->seen.asked += job->decides;
    if (!fleet_can_send(worker)) {
        worker->seen.unreachable += job->decides;
        worker->seen.decides = worker->seen.decides && !job->decides;
        worker->seen.lost += job->decides && worker->in_progress < QUEUE_MAX;
        return NGX_DECLINED;
    }
    if (worker->owed_count > 0 && weir__mono_us() >= worker->owed_due_us)
        fleet_pay(worker);
    fleet_send(worker, job);
    return NGX_OK;
}

static void fleet_leave(ngx_http_weir_worker_t *worker)
{
    assert(worker->in_progress > 0);
    if (--worker->in_progress == 0 && worker->alive.timer_set)
        ngx_del_timer(&worker->alive);
}

/* ---- giving back ---- */

/* The jobs that waited for this one are sent. */
static void fleet_give_way(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    ngx_http_weir_jobs_t free = {0};
    if (job->gives)
        ngx_http_weir_order_done(&worker->order, job, &free);
    for (ngx_http_weir_job_t *next; (next = ngx_http_weir_jobs_take(&free));)
        fleet_queue(worker, next);
}

void ngx_http_weir_job_end(ngx_http_weir_job_t *job)
{
    fleet_give_way(job->store->worker, job);
    ngx_http_weir_job_free(job);
}

/* Keeps what Redis did not get, or may not have got. If it can be reached, it refuses or is late:
 * each time it gets twice the time. */
static void fleet_owe(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    int64_t now_us = weir__mono_us();
    fleet_give_way(worker, job);
    if (now_us >= job->until_us || worker->owed_count >= OWED_MAX) {
        ngx_http_weir_job_free(job);
        return;
    }
    job->owed = 1;
    job->due_us = now_us;
    if (weir__remote_reachable(worker->remote)) {
        job->pause_us = job->pause_us ? ngx_min(2 * job->pause_us, PAUSE_MAX_US) : PAUSE_US;
        job->due_us += job->pause_us;
    }
    fleet_keep(worker, job);
}

/* A lease is released once, and a receipt settled once: sending them again does no harm. */
static void fleet_given(ngx_http_weir_job_t *job)
{
    if (job->job.code == WEIR_EUNREACHABLE)
        fleet_owe(job->store->worker, job);
    else
        ngx_http_weir_job_end(job);
}

void ngx_http_weir_job_give(ngx_http_weir_job_t *job)
{
    ngx_http_weir_worker_t *worker = job->store->worker;
    job->done = fleet_given;
    if (ngx_http_weir_job_send(job) == NGX_OK)
        return;
    if (worker)
        fleet_owe(worker, job);
    else
        ngx_http_weir_job_free(job);
}

void ngx_http_weir_job_abandon(ngx_http_weir_job_t *job)
{
    ngx_http_weir_worker_t *worker = job->store->worker;
    job->ctx = NULL;
    if (job->blocked > 0) {
        ngx_http_weir_order_cancel(job);
        fleet_leave(worker);
        ngx_http_weir_job_free(job);
    } else if (job->job.verb == WEIR__VERB_ACQUIRE) {
        ngx_http_weir_order_give(&worker->order, job);
    }
}

/* ---- the threads ---- */

/* The next lane that has jobs and needs a thread, in turn; LANES: there is none. The lock is
 * held. */
static ngx_uint_t fleet_next_lane(ngx_http_weir_worker_t *worker)
{
    for (ngx_uint_t i = 0; i < LANES; i++) {
        ngx_uint_t lane = (worker->turn + i) % LANES;
        if (!worker->queued[lane].first || (lane > 0 && worker->busy[lane] >= LANE_THREADS))
            continue;
        worker->turn = lane + 1;
        return lane;
    }
    return LANES;
}

/* A job that is answered waits for the others of its batch. So their deadlines are not far apart:
 * if the server is silent, none is much later than its own. */
static size_t fleet_take_together(const ngx_http_weir_worker_t *worker, ngx_http_weir_jobs_t *lane,
                                  ngx_http_weir_job_t *ret[])
{
    const int64_t latest_us =
        lane->first->job.deadline_us + worker->store->url.deadline_us / LATE_PART;
    size_t n = 0;
    while (n < WEIR__JOBS_MAX && lane->first && lane->first->job.deadline_us <= latest_us)
        ret[n++] = ngx_http_weir_jobs_take(lane);
    assert(n > 0);
    return n;
}

/* Waits for jobs, which are of one lane; 0: the thread ends. */
static size_t fleet_take_queued(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *ret[])
{
    size_t n = 0;
    ngx_uint_t lane;
    weir__lock_take(&worker->lock);
    worker->idle++;
    while ((lane = fleet_next_lane(worker)) == LANES && !worker->stopping)
        weir__cond_wait(&worker->some, &worker->lock, WEIR__NO_DEADLINE);
    worker->idle--;
    if (lane < LANES) {
        n = fleet_take_together(worker, &worker->queued[lane], ret);
        worker->busy[lane]++;
    }
    weir__lock_release(&worker->lock);
    return n;
}

/* Sends jobs and waits for their answers. Those that were queued for too long are not sent. */
static void fleet_query(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *const jobs[], size_t n)
{
    struct weir__job *asked[WEIR__JOBS_MAX];
    int64_t now = weir__mono_us();
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        struct weir__job *job = &jobs[i]->job;
        job->code = WEIR_EUNREACHABLE;
        job->error[0] = 0;
        if (now < job->deadline_us)
            asked[count++] = job;
    }
    if (count > 0)
        weir__remote_do(worker->remote, asked, count);
    now = weir__mono_us();
    for (size_t i = 0; i < n; i++)
        jobs[i]->lost = jobs[i]->job.code == WEIR_EUNREACHABLE && now < jobs[i]->job.deadline_us;
}

static void fleet_bring_back(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *const jobs[],
                             size_t n)
{
    uint64_t one = 1;
    weir__lock_take(&worker->lock);
    bool first = !worker->answered.first;
    assert(n > 0 && n <= WEIR__JOBS_MAX && worker->busy[jobs[0]->lane] > 0);
    worker->busy[jobs[0]->lane]--;
    for (size_t i = 0; i < n; i++)
        ngx_http_weir_jobs_put(&worker->answered, jobs[i]);
    weir__lock_release(&worker->lock);
    if (first)
        (void)!write(worker->wake_fd, &one, sizeof one);
}

static void *fleet_run_thread(void *argument)
{
    ngx_http_weir_worker_t *worker = argument;
    ngx_http_weir_job_t *jobs[WEIR__JOBS_MAX];
    size_t n;
    while ((n = fleet_take_queued(worker, jobs)) > 0) {
        fleet_query(worker, jobs, n);
        fleet_bring_back(worker, jobs, n);
    }
    return NULL;
}

/* Signals go to nginx's own thread. */
static ngx_int_t fleet_start_threads(ngx_http_weir_worker_t *worker)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (worker->thread_count < THREADS &&
           !pthread_create(&worker->threads[worker->thread_count], NULL, fleet_run_thread, worker))
        worker->thread_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return worker->thread_count > 0 ? NGX_OK : NGX_ERROR;
}

/* ---- answers ---- */

static void fleet_finish(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    fleet_leave(worker);
    ngx_http_weir_fleet_note(worker->store, &worker->seen, job);
    job->done(job);
}

static void fleet_take_answers(ngx_event_t *event)
{
    ngx_connection_t *connection = event->data;
    ngx_http_weir_worker_t *worker = connection->data;
    uint64_t count;
    (void)!read(worker->wake_fd, &count, sizeof count);
    weir__lock_take(&worker->lock);
    ngx_http_weir_jobs_t jobs = worker->answered;
    worker->answered = (ngx_http_weir_jobs_t){0};
    weir__lock_release(&worker->lock);
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&jobs));)
        fleet_finish(worker, job);
}

/* The timer only has to exist. */
static void fleet_stay_alive(ngx_event_t *event)
{
    ngx_http_weir_worker_t *worker = event->data;
    if (worker->in_progress > 0)
        ngx_add_timer(event, NGX_HTTP_WEIR_GUARD_MS);
}

/* ---- now and then ---- */

static void fleet_look(ngx_event_t *event)
{
    ngx_http_weir_worker_t *worker = event->data;
    bool again = ngx_http_weir_fleet_tell(worker->store, worker->remote, &worker->seen);
    for (ngx_http_weir_job_t *job = worker->owed.first; job && again; job = job->next)
        job->due_us = 0;
    if (worker->owed_count > 0)
        fleet_pay(worker);
    if (!ngx_exiting)
        ngx_add_timer(event, NGX_HTTP_WEIR_LOOK_MS);
}

void ngx_http_weir_fleet_info(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_info_t *ret)
{
    const ngx_http_weir_worker_t *worker = store->worker;
    weir_error error = {.message = "not used by this process"};
    ngx_memzero(ret, sizeof *ret);
    ret->cached_denials = store->cached_denials;
    if (worker) {
        unsigned away;
        bool all = !weir__remote_why(worker->remote, &error);
        if (all)
            error.message[0] = 0;
        ret->servers = weir__remote_servers(worker->remote, &away);
        ret->away = away;
        ret->reached = ret->servers - away;
        ret->up = all || ret->reached > 0;
        ret->refusing = weir__remote_refusing(worker->remote, &error);
        ret->asked = worker->seen.asked;
        ret->answered = worker->seen.done;
        ret->unreachable = worker->seen.unreachable;
        ret->queue = worker->in_progress;
        ret->owed = worker->owed_count;
    }
    ngx_cpystrn((u_char *)ret->why, (u_char *)error.message, sizeof ret->why);
}

void ngx_http_weir_fleet_missed(const ngx_http_weir_store_t *store)
{
    if (store->worker)
        store->worker->seen.requests++;
}

bool ngx_http_weir_fleet_reachable(const ngx_http_weir_store_t *store)
{
    return store->worker && weir__remote_reachable(store->worker->remote);
}

/* ---- starting and stopping ---- */

static ngx_int_t fleet_start_waking(ngx_http_weir_worker_t *worker, ngx_log_t *log)
{
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0)
        return NGX_ERROR;
    ngx_connection_t *connection = ngx_get_connection(worker->wake_fd, log);
    if (!connection)
        return NGX_ERROR;
    worker->wake = connection;
    connection->data = worker;
    connection->log = log;
    connection->read->handler = fleet_take_answers;
    connection->read->log = log;
    connection->write->log = log;
    return ngx_add_event(connection->read, NGX_READ_EVENT, 0);
}

static void fleet_start_timers(ngx_http_weir_worker_t *worker, ngx_log_t *log)
{
    worker->alive = (ngx_event_t){.handler = fleet_stay_alive, .data = worker, .log = log};
    worker->look =
        (ngx_event_t){.handler = fleet_look, .data = worker, .log = log, .cancelable = 1};
    ngx_add_timer(&worker->look, NGX_HTTP_WEIR_LOOK_MS);
}

/* Whether there is something to give back: a slot that was acquired while the worker ended, or a
 * release that Redis did not get. Then the job becomes that release. */
static bool fleet_gives_last(ngx_http_weir_job_t *job)
{
    struct weir__job *it = &job->job;
    if (it->verb == WEIR__VERB_ACQUIRE && it->code == 0 && it->ret->lease) {
        it->verb = WEIR__VERB_RELEASE;
        it->lease = it->ret->lease;
        return true;
    }
    return job->owed || (it->verb == WEIR__VERB_RELEASE && it->code == WEIR_EUNREACHABLE);
}

/* The last things that the worker gives back, by its own thread, with one deadline for all. */
static void fleet_give_last(ngx_http_weir_worker_t *worker, ngx_http_weir_jobs_t *jobs)
{
    int64_t deadline_us = weir__mono_us() + worker->store->url.deadline_us;
    struct weir__job *batch[WEIR__JOBS_MAX];
    ngx_http_weir_job_t *job = jobs->first;
    while (job && weir__remote_reachable(worker->remote) && weir__mono_us() < deadline_us) {
        size_t n = 0;
        for (; job && n < WEIR__JOBS_MAX; job = job->next) {
            if (!fleet_gives_last(job))
                continue;
            job->job.deadline_us = deadline_us;
            batch[n++] = &job->job;
        }
        if (n > 0)
            weir__remote_do(worker->remote, batch, n);
    }
}

/* The slices of this nginx, if the worker is its last one, and then its slot among the peers. */
static void fleet_give_slices(ngx_http_weir_worker_t *worker)
{
    ngx_http_weir_jobs_t slices = {0}, slot = {0};
    if (!ngx_http_weir_slices_end(worker->store, &slices))
        return;
    fleet_give_last(worker, &slices);
    ngx_http_weir_slices_leave(worker->store, &slices, &slot);
    fleet_give_last(worker, &slot);
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&slices));)
        ngx_http_weir_job_free(job);
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&slot));)
        ngx_http_weir_job_free(job);
}

/* Frees all jobs: those sent, those owed, and those that wait for them. */
static void fleet_clear(ngx_http_weir_worker_t *worker)
{
    ngx_http_weir_jobs_t all = worker->answered;
    for (ngx_uint_t lane = 0; lane < LANES; lane++) {
        for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&worker->queued[lane]));)
            ngx_http_weir_jobs_put(&all, job);
    }
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&worker->owed));)
        ngx_http_weir_jobs_put(&all, job);
    fleet_give_last(worker, &all);
    fleet_give_slices(worker);
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&all));) {
        if (job->gives)
            ngx_http_weir_order_done(&worker->order, job, &all);
        ngx_http_weir_job_free(job);
    }
}

static void fleet_stop_worker(ngx_http_weir_worker_t *worker)
{
    weir__lock_take(&worker->lock);
    worker->stopping = true;
    pthread_cond_broadcast(&worker->some);
    weir__lock_release(&worker->lock);
    for (ngx_uint_t i = 0; i < worker->thread_count; i++)
        pthread_join(worker->threads[i], NULL);
    if (worker->alive.timer_set)
        ngx_del_timer(&worker->alive);
    if (worker->look.timer_set)
        ngx_del_timer(&worker->look);
    if (worker->wake)
        ngx_close_connection(worker->wake);
    else if (worker->wake_fd >= 0)
        close(worker->wake_fd);
    fleet_clear(worker);
    weir_store_close(worker->remote);
    pthread_cond_destroy(&worker->some);
    pthread_mutex_destroy(&worker->lock.mutex);
    free(worker);
}

static ngx_http_weir_worker_t *fleet_start_worker(ngx_http_weir_store_t *store, ngx_log_t *log)
{
    weir_error error = {.message = "no memory"};
    ngx_http_weir_worker_t *worker = calloc(1, sizeof *worker);
    if (!worker || weir__remote_open_bare(&store->url, &worker->remote, &error)) {
        ngx_log_error(NGX_LOG_ALERT, log, 0, "weir: %V: %s", &store->text, error.message);
        free(worker);
        return NULL;
    }
    worker->store = store;
    worker->wake_fd = -1;
    weir__lock_init(&worker->lock);
    weir__cond_init(&worker->some);
    if (ngx_http_weir_order_init(&worker->order) == NGX_OK &&
        fleet_start_waking(worker, log) == NGX_OK && fleet_start_threads(worker) == NGX_OK) {
        fleet_start_timers(worker, log);
        return worker;
    }
    ngx_log_error(NGX_LOG_ALERT, log, ngx_errno, "weir: %V: no threads for its queries, %s",
                  &store->text, ngx_http_weir_fleet_meanwhile(store));
    fleet_stop_worker(worker);
    return NULL;
}

/* A store without threads is out of reach: the worker works without it. */
ngx_int_t ngx_http_weir_fleet_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_store_t **stores = conf->stores.elts;
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++) {
        stores[i]->worker = fleet_start_worker(stores[i], cycle->log);
        if (stores[i]->worker && stores[i]->pools)
            stores[i]->slicer = ngx_http_weir_slicer_make(stores[i]);
    }
    return NGX_OK;
}

void ngx_http_weir_fleet_stop(ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_store_t **stores = conf->stores.elts;
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++) {
        if (stores[i]->worker)
            fleet_stop_worker(stores[i]->worker);
        stores[i]->worker = NULL;
        if (stores[i]->slicer)
            ngx_http_weir_slicer_free(stores[i]->slicer);
        stores[i]->slicer = NULL;
        ngx_http_weir_denied_free(stores[i]->denied);
        stores[i]->denied = NULL;
    }
}

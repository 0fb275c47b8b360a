/*
 * Redis, asked by a few threads of the worker: the library's store waits for its answers, a worker never
 * does.
 *
 *     worker: job_send ─► queue ─► an asker takes up to 32 ─► the store: all sent, then all awaited
 *                                                                │
 *     worker: done(job) ◄── eventfd ◄────── answered jobs ◄──────┘
 *
 * What holds:
 *   1. A job belongs to the worker before it is sent and when it is done, in between to the threads; the
 *      lock covers the two lists and nothing else. Counters are the worker's alone.
 *   2. Every job sent is done once, by its deadline (and what the scheduler adds), or freed at the end.
 *   3. The eventfd is written when the first job gets onto the list of answered ones, so one wake brings
 *      all that are there.
 *   4. While no server can be reached nothing is sent at all.
 *   5. A worker that shuts down waits for jobs under way, and for nothing else of ours: the timer that
 *      looks after the log can be cancelled. What is owed then is tried once more, for a deadline in all.
 *   6. Questions of one key are put in order (order.c); those that wait count as under way.
 */
#include "ngx_http_weir.h"

#include "base/duration.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#define THREADS 4
#define QUEUE_MAX 4096 /* jobs under way */
#define OWED_MAX                                                                                   \
    4096 /* releases and settles kept for a Redis that is away; more lapse by themselves */
#define LOOK_MS 1000        /* how often the log is told of changes, at most */
#define REFUSALS_US 1000000 /* and how often of refusals */

struct ngx_http_weir_worker_s {
    ngx_http_weir_store_t *store;
    weir_store *remote;
    ngx_connection_t *wake; /* around the eventfd */
    int wake_fd;
    pthread_t threads[THREADS];
    ngx_uint_t thread_count;
    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t some;
    ngx_http_weir_jobs_t queued, answered;
    ngx_uint_t idle; /* askers that wait */
    bool stopping;
    /* the worker's alone */
    ngx_event_t alive; /* while jobs are under way: keeps a worker that shuts down waiting */
    ngx_event_t look;
    ngx_uint_t in_progress;
    ngx_http_weir_order_t order;
    ngx_http_weir_jobs_t owed;
    ngx_uint_t owed_count;
    uint64_t asked, done, unreachable;
    uint64_t seen_done, seen_unreachable; /* when last looked */
    int64_t refusal_us;                   /* when one was logged */
    uint64_t down_unreachable;            /* before it went down */
    bool told_down;
    char why[WEIR__ERROR_MAX]; /* what a server said that did not decide; empty: nothing */
};

/* ---- sending ---- */

static void fleet_queue(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    pthread_mutex_lock(&worker->lock);
    ngx_http_weir_jobs_put(&worker->queued, job);
    if (worker->idle > 0)
        pthread_cond_signal(&worker->some);
    pthread_mutex_unlock(&worker->lock);
}

static bool fleet_can_send(const ngx_http_weir_worker_t *worker)
{
    return worker->in_progress < QUEUE_MAX && weir__remote_reachable(worker->remote);
}

static void fleet_send(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    job->job.deadline_us = weir__mono_us() + worker->store->url.deadline_us;
    worker->in_progress++;
    ngx_add_timer(&worker->alive, worker->store->url.deadline_us / 1000 + NGX_HTTP_WEIR_GUARD_MS);
    if (job->job.verb == WEIR__VERB_RELEASE || job->job.verb == WEIR__VERB_SETTLE)
        ngx_http_weir_order_give(&worker->order, job);
    else if (ngx_http_weir_order_wait(&worker->order, job))
        return;
    fleet_queue(worker, job);
}

/* What was owed to Redis goes first: then the next question of that key waits for it. */
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
            worker->asked++;
            job->owed = 0;
            fleet_send(worker, job);
        } else {
            ngx_http_weir_jobs_put(&worker->owed, job);
            worker->owed_count++;
        }
    }
}

ngx_int_t ngx_http_weir_job_send(ngx_http_weir_job_t *job)
{
    ngx_http_weir_worker_t *worker = job->store->worker;
    if (!worker)
        return NGX_DECLINED;
    worker->asked++;
    if (!fleet_can_send(worker)) {
        worker->unreachable++;
        return NGX_DECLINED;
    }
    if (worker->owed_count > 0)
        fleet_pay(worker);
    fleet_send(worker, job);
    return NGX_OK;
}

static void fleet_leave(ngx_http_weir_worker_t *worker)
{
    if (--worker->in_progress == 0 && worker->alive.timer_set)
        ngx_del_timer(&worker->alive);
}

/* ---- giving back ---- */

/* Those that waited for the job go on. */
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

/* Keeps what Redis did not get, or may not have got. Where Redis is there, but late, it is not hurried. */
static void fleet_owe(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    int64_t now_us = weir__mono_us();
    fleet_give_way(worker, job);
    if (now_us >= job->until_us || worker->owed_count >= OWED_MAX) {
        ngx_http_weir_job_free(job);
        return;
    }
    job->owed = 1;
    job->due_us = weir__remote_reachable(worker->remote) ? now_us + LOOK_MS * 1000 : now_us;
    ngx_http_weir_jobs_put(&worker->owed, job);
    worker->owed_count++;
}

/* A lease is released once, and a receipt settled once: neither is harmed where Redis got it after all. */
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

/* Waits for jobs; none: it is over. */
static size_t fleet_take_queued(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *ret[])
{
    size_t n = 0;
    pthread_mutex_lock(&worker->lock);
    worker->idle++;
    while (!worker->queued.first && !worker->stopping)
        pthread_cond_wait(&worker->some, &worker->lock);
    worker->idle--;
    while (n < WEIR__JOBS_MAX && worker->queued.first)
        ret[n++] = ngx_http_weir_jobs_take(&worker->queued);
    pthread_mutex_unlock(&worker->lock);
    return n;
}

/* Those whose time is over were queued for too long: they are not asked. */
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
}

static void fleet_bring_back(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *const jobs[],
                             size_t n)
{
    uint64_t one = 1;
    pthread_mutex_lock(&worker->lock);
    bool first = !worker->answered.first;
    for (size_t i = 0; i < n; i++)
        ngx_http_weir_jobs_put(&worker->answered, jobs[i]);
    pthread_mutex_unlock(&worker->lock);
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

/* Signals are for nginx's own thread. */
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

static void fleet_log_refusal(ngx_http_weir_worker_t *worker, const struct weir__job *job)
{
    int64_t now = weir__mono_us();
    if (worker->refusal_us && now - worker->refusal_us < REFUSALS_US)
        return;
    worker->refusal_us = now;
    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "weir: %V: the server refused: %s",
                  &worker->store->text, job->error[0] ? job->error : weir_strerror(job->code));
}

static void fleet_finish(ngx_http_weir_worker_t *worker, ngx_http_weir_job_t *job)
{
    fleet_leave(worker);
    if (job->job.code == WEIR_EUNREACHABLE) {
        worker->unreachable++;
        ngx_memcpy(worker->why, job->job.error, sizeof worker->why);
    } else {
        worker->done++;
        if (job->job.code)
            fleet_log_refusal(worker, &job->job);
    }
    job->done(job);
}

static void fleet_take_answers(ngx_event_t *event)
{
    ngx_connection_t *connection = event->data;
    ngx_http_weir_worker_t *worker = connection->data;
    uint64_t count;
    (void)!read(worker->wake_fd, &count, sizeof count);
    pthread_mutex_lock(&worker->lock);
    ngx_http_weir_jobs_t jobs = worker->answered;
    worker->answered = (ngx_http_weir_jobs_t){0};
    pthread_mutex_unlock(&worker->lock);
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&jobs));)
        fleet_finish(worker, job);
}

/* Only there to be there. */
static void fleet_stay_alive(ngx_event_t *event)
{
    ngx_http_weir_worker_t *worker = event->data;
    if (worker->in_progress > 0)
        ngx_add_timer(event, NGX_HTTP_WEIR_GUARD_MS);
}

/* ---- the log ---- */

static const char *fleet_meanwhile(const ngx_http_weir_store_t *store)
{
    switch (store->url.fail) {
    case WEIR__FAIL_OPEN:
        return "everything passes meanwhile";
    case WEIR__FAIL_CLOSED:
        return "everything is rejected meanwhile";
    default:
        return "the zone decides meanwhile";
    }
}

/* The same when it is over, before a number of requests. */
static const char *fleet_decided_by(const ngx_http_weir_store_t *store)
{
    switch (store->url.fail) {
    case WEIR__FAIL_OPEN:
        return "requests that passed";
    case WEIR__FAIL_CLOSED:
        return "requests that were rejected";
    default:
        return "requests that the zone decided";
    }
}

/* Whether the store decides, as far as its last questions tell; else why not. */
static bool fleet_is_up(const ngx_http_weir_worker_t *worker, struct weir__buffer *why)
{
    weir_error error;
    uint64_t missed = worker->unreachable - worker->seen_unreachable;
    uint64_t done = worker->done - worker->seen_done;
    if (weir__remote_why(worker->remote, &error)) {
        weir__put_text(why, error.message);
        return false;
    }
    if (missed <= done)
        return true;
    if (worker->why[0]) {
        weir__put_text(why, worker->why);
        return false;
    }
    weir__put_format(why, "%llu of %llu answers did not come within ", (unsigned long long)missed,
                     (unsigned long long)missed + done);
    weir__put_duration(why, worker->store->url.deadline_us, false);
    return false;
}

/* What changed since it last looked goes into the log. */
static void fleet_look(ngx_event_t *event)
{
    ngx_http_weir_worker_t *worker = event->data;
    const ngx_http_weir_store_t *store = worker->store;
    char room[WEIR__WHY_SIZE];
    struct weir__buffer why = weir__buffer_over(room, sizeof room);
    bool up = fleet_is_up(worker, &why);
    if (!up && !worker->told_down)
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "weir: %V: %s; %s", &store->text, room,
                      fleet_meanwhile(store));
    if (up && worker->told_down)
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "weir: %V: decides again; meanwhile %s: %uL",
                      &store->text, fleet_decided_by(store),
                      (uint64_t)(worker->unreachable - worker->down_unreachable));
    if (up)
        worker->down_unreachable = worker->unreachable;
    worker->told_down = !up;
    worker->seen_done = worker->done;
    worker->seen_unreachable = worker->unreachable;
    if (worker->owed_count > 0)
        fleet_pay(worker);
    if (!ngx_exiting)
        ngx_add_timer(event, LOOK_MS);
}

void ngx_http_weir_fleet_info(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_info_t *ret)
{
    const ngx_http_weir_worker_t *worker = store->worker;
    weir_error error = {.message = "not asked by this process"};
    ngx_memzero(ret, sizeof *ret);
    ret->cached_denials = store->cached_denials;
    if (worker) {
        ret->up = !weir__remote_why(worker->remote, &error);
        ret->asked = worker->asked;
        ret->answered = worker->done;
        ret->unreachable = worker->unreachable;
        ret->queue = worker->in_progress;
        ret->owed = worker->owed_count;
    }
    if (!ret->up)
        ngx_cpystrn((u_char *)ret->why, (u_char *)error.message, sizeof ret->why);
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
    ngx_add_timer(&worker->look, LOOK_MS);
}

/* A slot that was got while the worker ended, or a release that Redis did not get. */
static bool fleet_is_held(ngx_http_weir_job_t *job)
{
    struct weir__job *it = &job->job;
    if (it->verb == WEIR__VERB_ACQUIRE && it->code == 0 && it->ret->lease) {
        it->verb = WEIR__VERB_RELEASE;
        it->lease = it->ret->lease;
        return true;
    }
    return job->owed || (it->verb == WEIR__VERB_RELEASE && it->code == WEIR_EUNREACHABLE);
}

/* The last that the worker gives back, by its own thread: one deadline for all of it. */
static void fleet_give_last(ngx_http_weir_worker_t *worker, ngx_http_weir_jobs_t *jobs)
{
    int64_t deadline_us = weir__mono_us() + worker->store->url.deadline_us;
    struct weir__job *batch[WEIR__JOBS_MAX];
    ngx_http_weir_job_t *job = jobs->first;
    while (job && weir__remote_reachable(worker->remote) && weir__mono_us() < deadline_us) {
        size_t n = 0;
        for (; job && n < WEIR__JOBS_MAX; job = job->next) {
            if (!fleet_is_held(job))
                continue;
            job->job.deadline_us = deadline_us;
            batch[n++] = &job->job;
        }
        if (n > 0)
            weir__remote_do(worker->remote, batch, n);
    }
}

/* Frees all jobs: those asked, those owed, and those that wait for them. */
static void fleet_clear(ngx_http_weir_worker_t *worker)
{
    ngx_http_weir_jobs_t all = worker->answered;
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&worker->queued));)
        ngx_http_weir_jobs_put(&all, job);
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&worker->owed));)
        ngx_http_weir_jobs_put(&all, job);
    fleet_give_last(worker, &all);
    for (ngx_http_weir_job_t *job; (job = ngx_http_weir_jobs_take(&all));) {
        if (job->gives)
            ngx_http_weir_order_done(&worker->order, job, &all);
        ngx_http_weir_job_free(job);
    }
}

static void fleet_stop_worker(ngx_http_weir_worker_t *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    pthread_cond_broadcast(&worker->some);
    pthread_mutex_unlock(&worker->lock);
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
    pthread_mutex_destroy(&worker->lock);
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
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->some, NULL);
    if (ngx_http_weir_order_init(&worker->order) == NGX_OK &&
        fleet_start_waking(worker, log) == NGX_OK && fleet_start_threads(worker) == NGX_OK) {
        fleet_start_timers(worker, log);
        return worker;
    }
    ngx_log_error(NGX_LOG_ALERT, log, ngx_errno, "weir: %V: no threads to ask it, %s", &store->text,
                  fleet_meanwhile(store));
    fleet_stop_worker(worker);
    return NULL;
}

/* A store that cannot be asked is one out of reach: the worker works without it. */
ngx_int_t ngx_http_weir_fleet_start(ngx_cycle_t *cycle, ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_store_t **stores = conf->stores.elts;
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++)
        stores[i]->worker = fleet_start_worker(stores[i], cycle->log);
    return NGX_OK;
}

void ngx_http_weir_fleet_stop(ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_store_t **stores = conf->stores.elts;
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++) {
        if (stores[i]->worker)
            fleet_stop_worker(stores[i]->worker);
        stores[i]->worker = NULL;
        ngx_http_weir_denied_free(stores[i]->denied);
        stores[i]->denied = NULL;
    }
}

/*
 * Workers: threads for long work that is no decision. Simulations have one, reloads have another,
 * so that neither an administrator nor a signal waits for the playground.
 *
 * What holds:
 *   1. A queue has a bound: for all, for one address, for one connection. Who goes beyond is told
 *      to come back, before anything is kept for him (server_work_admit).
 *   2. What waits is counted as memory kept, with the room for its answer.
 *   3. A simulation for a connection or stream that is gone is dropped, or stopped if it runs. A
 *      reload is done.
 *   4. A server that drains drops what has not begun, and one that stops waits for no work.
 */
#include "server/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAITING_MAX 64      /* work for one thread, the running one included … */
#define OF_ADDRESS_MAX 16   /* … of these for one address … */
#define OF_CONNECTION_MAX 4 /* … and for one connection */
#define STUCK_MS 200        /* for work that cannot be stopped, on the way out */

struct lane {
    struct server_workers *workers;
    pthread_t thread;
    bool begun;
    pthread_cond_t some;
    struct server_batch *first, **last;
    struct server_batch *running;
    size_t count; /* admitted and not back */
};

struct server_workers {
    struct server *server;
    pthread_mutex_t lock;
    bool draining, stopping;
    void (*errand)(struct server *, int); /* NULL: none waits */
    int errand_reason;
    struct lane lanes[SERVER_LANES];
};

static struct server_work *work_of(const struct server_batch *batch)
{
    const struct server_ask *last = &batch->asks[batch->count - 1];
    assert(last->kind == SERVER_ASK_WORK && last->work);
    return last->work;
}

/* ---- the threads ---- */

/* What has not begun is answered with 503, and nothing else of its batch is done. */
static void work_drop(struct server_batch *batch)
{
    server_batch_give_up(batch);
    work_of(batch)->dropped = true;
    server_batch_bring_back(batch);
}

/* The lock is held before and after, but not during the work. */
static void work_run_errand(struct server_workers *workers)
{
    void (*errand)(struct server *, int) = workers->errand;
    int reason = workers->errand_reason;
    workers->errand = NULL;
    workers->errand_reason = 0;
    pthread_mutex_unlock(&workers->lock);
    errand(workers->server, reason);
    pthread_mutex_lock(&workers->lock);
}

static struct server_batch *work_next(struct lane *lane)
{
    struct server_workers *workers = lane->workers;
    pthread_mutex_lock(&workers->lock);
    lane->running = NULL;
    while (!lane->first && !workers->stopping) {
        if (lane == &workers->lanes[SERVER_LANE_ADMIN] && workers->errand)
            work_run_errand(workers);
        else
            pthread_cond_wait(&lane->some, &workers->lock);
    }
    struct server_batch *batch = lane->first;
    if (batch) {
        lane->first = batch->next;
        if (!lane->first)
            lane->last = &lane->first;
    }
    lane->running = batch;
    pthread_mutex_unlock(&workers->lock);
    return batch;
}

static void *work_run_all(void *argument)
{
    struct lane *lane = argument;
    struct server_batch *batch;
    while ((batch = work_next(lane))) {
        server_batch_run(lane->workers->server, batch);
        pthread_mutex_lock(&lane->workers->lock);
        lane->running = NULL; /* from here on it is the loop's */
        pthread_mutex_unlock(&lane->workers->lock);
        server_batch_bring_back(batch);
    }
    return NULL;
}

/* ---- coming in ---- */

static bool work_same_address(const struct server_conn *a, const struct server_conn *b)
{
    struct server_client x, y;
    server_client_of((const struct sockaddr *)&a->peer, &x);
    server_client_of((const struct sockaddr *)&b->peer, &y);
    return server_client_is(&x, &y);
}

/* How many of this address wait or run. */
static size_t work_count_of_address(const struct lane *lane, const struct server_conn *conn)
{
    size_t count = lane->running && work_same_address(lane->running->conn, conn);
    for (const struct server_batch *it = lane->first; it; it = it->next)
        count += work_same_address(it->conn, conn);
    return count;
}

bool server_work_admit(struct server_conn *conn, enum server_lane which, size_t bytes)
{
    struct server *server = conn->thread->server;
    struct server_workers *workers = server->workers;
    struct lane *lane = &workers->lanes[which];
    if (conn->works[which] >= OF_CONNECTION_MAX || !server_keep(server, bytes))
        return false;
    pthread_mutex_lock(&workers->lock);
    bool fits = !workers->draining && lane->count < WAITING_MAX &&
                work_count_of_address(lane, conn) < OF_ADDRESS_MAX;
    lane->count += fits;
    pthread_mutex_unlock(&workers->lock);
    conn->works[which] += fits;
    if (!fits)
        atomic_fetch_sub(&server->kept, bytes);
    return fits;
}

void server_work_leave(struct server_conn *conn, enum server_lane which, size_t bytes)
{
    struct server *server = conn->thread->server;
    assert(conn->works[which] > 0);
    conn->works[which]--;
    atomic_fetch_sub(&server->kept, bytes);
    pthread_mutex_lock(&server->workers->lock);
    server->workers->lanes[which].count--;
    pthread_mutex_unlock(&server->workers->lock);
}

void server_work_end(struct server_conn *conn, struct server_work *work)
{
    if (!work)
        return;
    server_work_leave(conn, work->lane, work->kept);
    free(work->body);
    free(work->answer);
    free(work);
}

void server_workers_give(struct server_workers *workers, struct server_batch *batch)
{
    struct lane *lane = &workers->lanes[work_of(batch)->lane];
    batch->next = NULL;
    pthread_mutex_lock(&workers->lock);
    bool late = workers->draining;
    if (!late) {
        *lane->last = batch;
        lane->last = &batch->next;
        pthread_cond_signal(&lane->some);
    }
    pthread_mutex_unlock(&workers->lock);
    if (late)
        work_drop(batch);
}

void server_workers_errand(struct server_workers *workers, void (*errand)(struct server *, int),
                           int reason)
{
    pthread_mutex_lock(&workers->lock);
    workers->errand = errand;
    workers->errand_reason = workers->errand_reason > reason ? workers->errand_reason : reason;
    if (!workers->draining)
        pthread_cond_signal(&workers->lanes[SERVER_LANE_ADMIN].some);
    pthread_mutex_unlock(&workers->lock);
}

/* ---- going ---- */

/* Takes out of a lane what `conn` has there; conn NULL: everything. A list. */
static struct server_batch *work_take_out(struct lane *lane, const struct server_conn *conn,
                                          int32_t stream)
{
    struct server_batch *out = NULL, **at = &lane->first;
    while (*at) {
        struct server_batch *it = *at;
        int32_t of = it->asks[it->count - 1].http.stream;
        if (conn && (it->conn != conn || (stream != SERVER_ALL_STREAMS && of != stream))) {
            at = &it->next;
            continue;
        }
        *at = it->next;
        it->next = out;
        out = it;
    }
    lane->last = at;
    return out;
}

static void work_drop_all(struct server_batch *list)
{
    while (list) {
        struct server_batch *next = list->next;
        work_drop(list);
        list = next;
    }
}

void server_work_cancel(struct server_conn *conn, int32_t stream)
{
    struct server_workers *workers = conn->thread->server->workers;
    if (conn->works[SERVER_LANE_PLAY] == 0)
        return;
    struct lane *lane = &workers->lanes[SERVER_LANE_PLAY];
    pthread_mutex_lock(&workers->lock);
    const struct server_batch *running = lane->running;
    struct server_batch *out = work_take_out(lane, conn, stream);
    if (running && running->conn == conn &&
        (stream == SERVER_ALL_STREAMS || running->asks[running->count - 1].http.stream == stream))
        atomic_store(&work_of(running)->cancelled, true);
    pthread_mutex_unlock(&workers->lock);
    work_drop_all(out);
}

void server_workers_drain(struct server_workers *workers)
{
    struct server_batch *out[SERVER_LANES] = {NULL};
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->draining = true;
    for (size_t i = 0; i < SERVER_LANES; i++)
        out[i] = work_take_out(&workers->lanes[i], NULL, SERVER_ALL_STREAMS);
    pthread_mutex_unlock(&workers->lock);
    for (size_t i = 0; i < SERVER_LANES; i++)
        work_drop_all(out[i]);
}

struct timespec server_time_in(clockid_t clock, int64_t ms)
{
    struct timespec at;
    clock_gettime(clock, &at);
    at.tv_nsec += ms % 1000 * 1000000;
    at.tv_sec += ms / 1000 + at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

bool server_join_within(pthread_t thread, int64_t ms)
{
    struct timespec until = server_time_in(CLOCK_REALTIME, ms);
    return !pthread_timedjoin_np(thread, NULL, &until);
}

bool server_workers_stop(struct server_workers *workers)
{
    bool ended = true;
    if (!workers)
        return true;
    server_workers_drain(workers);
    pthread_mutex_lock(&workers->lock);
    workers->stopping = true;
    for (size_t i = 0; i < SERVER_LANES; i++) {
        if (workers->lanes[i].running)
            atomic_store(&work_of(workers->lanes[i].running)->cancelled, true);
        pthread_cond_broadcast(&workers->lanes[i].some);
    }
    pthread_mutex_unlock(&workers->lock);
    for (size_t i = 0; i < SERVER_LANES; i++) {
        struct lane *lane = &workers->lanes[i];
        lane->begun = lane->begun && !server_join_within(lane->thread, STUCK_MS);
        ended = ended && !lane->begun;
    }
    return ended;
}

int server_workers_create(struct server *server, struct server_workers **ret, weir_error *err)
{
    struct server_workers *workers = calloc(1, sizeof *workers);
    if (!workers)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for long work");
    workers->server = server;
    pthread_mutex_init(&workers->lock, NULL);
    *ret = workers;
    for (size_t i = 0; i < SERVER_LANES; i++) {
        struct lane *lane = &workers->lanes[i];
        lane->workers = workers;
        lane->last = &lane->first;
        pthread_cond_init(&lane->some, NULL);
    }
    for (size_t i = 0; i < SERVER_LANES; i++) {
        struct lane *lane = &workers->lanes[i];
        lane->begun = !pthread_create(&lane->thread, NULL, work_run_all, lane);
        if (!lane->begun)
            return weir__fail(err, WEIR_ESYSTEM, 0, "no thread for long work: %s", strerror(errno));
    }
    return 0;
}

void server_workers_destroy(struct server_workers *workers)
{
    if (!workers)
        return;
    for (size_t i = 0; i < SERVER_LANES; i++) {
        assert(!workers->lanes[i].begun && !workers->lanes[i].first);
        pthread_cond_destroy(&workers->lanes[i].some);
    }
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

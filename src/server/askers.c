/*
 * Askers: threads that carry batches to a remote store and wait for it, so that no loop does. The
 * store itself puts their requests together on few connections. The queue holds what connections
 * may have pending (batch.h). Connections take turns: one whose batches are many, or have questions
 * that go to the store one after the other, waits behind the others again and again, so that a few
 * do not keep all askers busy.
 */
#include "server/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ASKERS 64
#define STUCK_MS 1000 /* for a store that does not answer, on the way out */

struct server_askers {
    struct server *server;
    pthread_t threads[ASKERS];
    size_t count;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct server_conn *first, *last; /* whose batches wait, in turn */
    bool stopping;
};

/* ---- whose turn it is, under the lock ---- */

static void askers_enter(struct server_askers *askers, struct server_conn *conn)
{
    conn->asked_next = NULL;
    if (askers->first)
        askers->last->asked_next = conn;
    else
        askers->first = conn;
    askers->last = conn;
}

static void askers_push(struct server_askers *askers, struct server_batch *batch)
{
    struct server_conn *conn = batch->conn;
    batch->next = NULL;
    if (conn->asked_first) {
        conn->asked_last->next = batch;
    } else {
        conn->asked_first = batch;
        askers_enter(askers, conn);
    }
    conn->asked_last = batch;
}

/* The first of the connection whose turn it is, which waits behind the others then. */
static struct server_batch *askers_pop(struct server_askers *askers)
{
    struct server_conn *conn = askers->first;
    struct server_batch *batch = conn->asked_first;
    conn->asked_first = batch->next;
    askers->first = conn->asked_next;
    if (conn->asked_first)
        askers_enter(askers, conn);
    return batch;
}

/* ---- the threads ---- */

static struct server_batch *askers_next(struct server_askers *askers)
{
    pthread_mutex_lock(&askers->lock);
    while (!askers->first && !askers->stopping)
        pthread_cond_wait(&askers->some, &askers->lock);
    struct server_batch *batch = askers->first ? askers_pop(askers) : NULL;
    pthread_mutex_unlock(&askers->lock);
    return batch;
}

void server_batch_bring_back(struct server_batch *batch)
{
    struct server_thread *thread = batch->thread;
    struct server_batch *top = atomic_load(&thread->back);
    do
        batch->next = top;
    while (!atomic_compare_exchange_weak(&thread->back, &top, batch));
    server_thread_wake(thread);
}

static void *askers_run(void *argument)
{
    struct server_askers *askers = argument;
    struct server_batch *batch;
    while ((batch = askers_next(askers))) {
        if (atomic_load(&askers->server->stopping)) /* what waits is not asked any more */
            server_batch_give_up(batch);
        else if (!server_batch_run_some(askers->server, batch)) {
            server_askers_give(askers, batch); /* on behind the others */
            continue;
        }
        server_batch_bring_back(batch);
    }
    return NULL;
}

void server_askers_give(struct server_askers *askers, struct server_batch *batch)
{
    pthread_mutex_lock(&askers->lock);
    askers_push(askers, batch);
    pthread_cond_signal(&askers->some);
    pthread_mutex_unlock(&askers->lock);
}

int server_askers_create(struct server *server, struct server_askers **ret, weir_error *err)
{
    struct server_askers *askers = calloc(1, sizeof *askers);
    if (!askers)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for asking the store");
    askers->server = server;
    pthread_mutex_init(&askers->lock, NULL);
    pthread_cond_init(&askers->some, NULL);
    while (askers->count < ASKERS &&
           !pthread_create(&askers->threads[askers->count], NULL, askers_run, askers))
        askers->count++;
    if (askers->count == 0) {
        server_askers_destroy(askers);
        return weir__fail(err, WEIR_ESYSTEM, 0, "no thread for asking the store: %s",
                          strerror(errno));
    }
    *ret = askers;
    return 0;
}

bool server_askers_stop(struct server_askers *askers)
{
    if (!askers)
        return true;
    pthread_mutex_lock(&askers->lock);
    askers->stopping = true;
    pthread_cond_broadcast(&askers->some);
    pthread_mutex_unlock(&askers->lock);
    struct timespec until = server_time_in(CLOCK_REALTIME, STUCK_MS);
    while (askers->count > 0 &&
           !pthread_timedjoin_np(askers->threads[askers->count - 1], NULL, &until))
        askers->count--;
    return askers->count == 0;
}

void server_askers_destroy(struct server_askers *askers)
{
    if (!askers)
        return;
    bool ended = server_askers_stop(askers);
    assert(ended);
    (void)ended;
    pthread_cond_destroy(&askers->some);
    pthread_mutex_destroy(&askers->lock);
    free(askers);
}

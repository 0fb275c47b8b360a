/*
 * Askers: threads that carry batches to a remote store and wait for it, so that no loop does. The store
 * itself puts their requests together on few connections. A queue that is full makes loops wait: reading
 * stops where batches are under way, so it holds at most a batch a connection.
 */
#include "server/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ASKERS 64

struct server_askers {
    struct server *server;
    pthread_t threads[ASKERS];
    size_t count;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct server_batch *first, **last;
    bool stopping;
};

static struct server_batch *next_batch(struct server_askers *askers)
{
    pthread_mutex_lock(&askers->lock);
    while (!askers->first && !askers->stopping)
        pthread_cond_wait(&askers->some, &askers->lock);
    struct server_batch *batch = askers->first;
    if (batch) {
        askers->first = batch->next;
        if (!askers->first)
            askers->last = &askers->first;
    }
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

static void *ask(void *argument)
{
    struct server_askers *askers = argument;
    struct server_batch *batch;
    while ((batch = next_batch(askers))) {
        server_receipts_forget();                   /* limits of earlier batches may be gone */
        if (atomic_load(&askers->server->stopping)) /* what waits is not asked any more */
            server_batch_give_up(batch);
        else
            server_batch_run(askers->server, batch);
        server_batch_bring_back(batch);
    }
    return NULL;
}

void server_askers_give(struct server_askers *askers, struct server_batch *batch)
{
    batch->next = NULL;
    pthread_mutex_lock(&askers->lock);
    *askers->last = batch;
    askers->last = &batch->next;
    pthread_cond_signal(&askers->some);
    pthread_mutex_unlock(&askers->lock);
}

int server_askers_create(struct server *server, struct server_askers **ret, weir_error *err)
{
    struct server_askers *askers = calloc(1, sizeof *askers);
    if (!askers)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for asking the store");
    askers->server = server;
    askers->last = &askers->first;
    pthread_mutex_init(&askers->lock, NULL);
    pthread_cond_init(&askers->some, NULL);
    while (askers->count < ASKERS &&
           !pthread_create(&askers->threads[askers->count], NULL, ask, askers))
        askers->count++;
    if (askers->count == 0) {
        server_askers_destroy(askers);
        return weir__fail(err, WEIR_ESYSTEM, 0, "no thread for asking the store: %s",
                          strerror(errno));
    }
    *ret = askers;
    return 0;
}

void server_askers_stop(struct server_askers *askers)
{
    if (!askers)
        return;
    pthread_mutex_lock(&askers->lock);
    askers->stopping = true;
    pthread_cond_broadcast(&askers->some);
    pthread_mutex_unlock(&askers->lock);
    for (size_t i = 0; i < askers->count; i++)
        pthread_join(askers->threads[i], NULL);
    askers->count = 0;
}

void server_askers_destroy(struct server_askers *askers)
{
    if (!askers)
        return;
    server_askers_stop(askers);
    pthread_cond_destroy(&askers->some);
    pthread_mutex_destroy(&askers->lock);
    free(askers);
}

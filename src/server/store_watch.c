/*
 * Tells operators when the servers of a remote store stop deciding, and when they decide again: one line
 * each on stderr, with who decides in between. A thread looks a few times a second; whatever happens
 * between two looks is one change at most.
 */
#include "server/conn.h"

#include "base/duration.h"
#include "remote/look.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_MS 200

struct server_store_watch {
    weir_store *store;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stops;
    /* the thread's */
    bool down;
    int64_t down_us;  /* since when */
    uint64_t decided; /* by the stand-in, before it was down */
};

static void watch_tell_down(struct server_store_watch *watch, const struct weir__remote_look *look)
{
    watch->down = true;
    watch->down_us = weir__mono_us();
    server_tell("the store %s: %s; meanwhile %s",
                look->reached ? "does not decide" : "cannot be reached", look->why, look->standin);
}

static void watch_tell_up(struct server_store_watch *watch, const struct weir__remote_look *look)
{
    char room[64];
    struct weir__buffer lasted = weir__buffer_over(room, sizeof room);
    int64_t us = weir__mono_us() - watch->down_us;
    weir__put_duration(&lasted, weir__max(us - us % 1000, 1000), false);
    watch->down = false;
    server_tell("the store decides again, after %s; requests decided meanwhile (%s): %llu", room,
                look->standin, (unsigned long long)(look->decided - watch->decided));
}

static void watch_look(struct server_store_watch *watch)
{
    struct weir__remote_look look;
    weir__remote_look(watch->store, &look);
    if (look.down && !watch->down)
        watch_tell_down(watch, &look);
    else if (!look.down && watch->down)
        watch_tell_up(watch, &look);
    if (!look.down)
        watch->decided = look.decided;
}

static void *watch_run(void *argument)
{
    struct server_store_watch *watch = argument;
    pthread_mutex_lock(&watch->lock);
    while (!watch->stops) {
        struct timespec until;
        pthread_mutex_unlock(&watch->lock);
        watch_look(watch);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&watch->lock);
        while (!watch->stops && pthread_cond_timedwait(&watch->wake, &watch->lock, &until) == 0)
            ;
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

int server_store_watch_start(struct server *server, weir_error *err)
{
    pthread_condattr_t monotonic;
    struct server_store_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for watching the store");
    watch->store = server->store;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&watch->thread, NULL, watch_run, watch)) {
        free(watch);
        return weir__fail(err, WEIR_ESYSTEM, 0, "no thread for watching the store");
    }
    server->store_watch = watch;
    return 0;
}

void server_store_watch_stop(struct server *server)
{
    struct server_store_watch *watch = server->store_watch;
    if (!watch)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->stops = true;
    pthread_cond_signal(&watch->wake);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->wake);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
    server->store_watch = NULL;
}

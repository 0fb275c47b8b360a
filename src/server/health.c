/*
 * Whether the server can do its work, for balancers: /readyz and gRPC's health. With --health-store
 * a thread asks the store once a second, since only an answer shows that it is there; what was
 * never asked about counts as gone.
 */
#include "server/server.h"

#include "base/clock.h"
#include "base/duration.h"
#include "remote/remote.h"
#include "server/conn.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define EVERY_SECONDS 1
#define SILENT_S 2 /* so long without an answer, and the store cannot decide */
#define STUCK_S 1  /* for a store that does not answer, on the way out */

struct server_health {
    weir_store *store;
    weir_limit *limit;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stops;
    atomic_bool store_decides;
    _Atomic int64_t asked_s; /* when the question pending was asked; 0: none is */
};

static int64_t health_now_s(void)
{
    return weir__mono_us() / 1000000;
}

/* What it said last, unless it is silent for long now, whatever its deadline is. */
static bool health_store_decides(struct server_health *health)
{
    int64_t asked_s = atomic_load(&health->asked_s);
    return atomic_load(&health->store_decides) &&
           (asked_s == 0 || health_now_s() - asked_s <= SILENT_S);
}

bool server_is_ready(const struct server *server)
{
    return atomic_load(&server->ready) && !atomic_load(&server->leaving) &&
           (!server->health || health_store_decides(server->health));
}

/* Looks, changes nothing. No room for one more state is no reason to go elsewhere. */
static bool health_can_decide(const struct server_health *health)
{
    weir_decision decision = {0};
    int code =
        weir_peek(health->store, weir_key_bytes("weir:health", 11), health->limit, 0, &decision);
    return code == WEIR_EFULL || (code == 0 && !decision.degraded);
}

static void *health_look(void *argument)
{
    struct server_health *health = argument;
    pthread_mutex_lock(&health->lock);
    while (!health->stops) {
        struct timespec until;
        pthread_mutex_unlock(&health->lock);
        atomic_store(&health->asked_s, health_now_s());
        atomic_store(&health->store_decides, health_can_decide(health));
        atomic_store(&health->asked_s, 0);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += EVERY_SECONDS;
        pthread_mutex_lock(&health->lock);
        while (!health->stops && pthread_cond_timedwait(&health->wake, &health->lock, &until) == 0)
            ;
    }
    pthread_mutex_unlock(&health->lock);
    return NULL;
}

int server_health_start(struct server *server, weir_error *err)
{
    pthread_condattr_t monotonic;
    if (!server->config.health_store)
        return 0;
    struct server_health *health = calloc(1, sizeof *health);
    if (!health)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for health checks");
    int code = weir_limit_parse("fixed-window 1/s", &health->limit, err);
    if (code) {
        free(health);
        return code;
    }
    health->store = server->store;
    pthread_mutex_init(&health->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&health->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&health->thread, NULL, health_look, health)) {
        weir_limit_free(health->limit);
        free(health);
        return weir__fail(err, WEIR_ESYSTEM, 0, "no thread for health checks");
    }
    server->health = health;
    return 0;
}

bool server_health_stop(struct server *server)
{
    struct server_health *health = server->health;
    struct timespec until;
    if (!health)
        return true;
    pthread_mutex_lock(&health->lock);
    health->stops = true;
    pthread_cond_signal(&health->wake);
    pthread_mutex_unlock(&health->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STUCK_S;
    if (pthread_timedjoin_np(health->thread, NULL, &until))
        return false;
    pthread_cond_destroy(&health->wake);
    pthread_mutex_destroy(&health->lock);
    weir_limit_free(health->limit);
    free(health);
    server->health = NULL;
    return true;
}

/* ---- a remote store that is away ---- */

/*
 * Tells operators when the servers of a remote store stop deciding, and when they decide again:
 * one line each on stderr, with who decides in between. A thread looks a few times a second;
 * whatever happens between two looks is one change at most.
 */

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
    uint64_t decided; /* by the local fallback, before it was down */
};

static void watch_tell_down(struct server_store_watch *watch, const struct weir__remote_look *look)
{
    watch->down = true;
    watch->down_us = weir__mono_us();
    server_report("the store %s: %s; meanwhile %s",
                  look->reached ? "does not decide" : "cannot be reached", look->why,
                  look->meanwhile);
}

static void watch_tell_up(struct server_store_watch *watch, const struct weir__remote_look *look)
{
    char room[64];
    struct weir__buffer lasted = weir__buffer_over(room, sizeof room);
    int64_t us = weir__mono_us() - watch->down_us;
    weir__put_duration(&lasted, weir__max(us - us % 1000, 1000), false);
    watch->down = false;
    server_report("the store decides again, after %s; requests decided meanwhile (%s): %llu", room,
                  look->meanwhile, (unsigned long long)(look->by_fallback - watch->decided));
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
        watch->decided = look.by_fallback;
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

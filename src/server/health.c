/*
 * Two threads that look at the store now and then.
 *
 * One finds out whether the server can do its work, for balancers: /readyz and gRPC's health. With
 * --health-store it asks the store once a second, since only an answer shows that it is there; what
 * was never asked about counts as gone.
 *
 * The other tells operators when the servers of a remote store stop deciding, and when they decide
 * again: one line each on stderr, with who decides in between. It looks a few times a second;
 * whatever happens between two looks is one change at most.
 */
#include "server/server.h"

#include "base/clock.h"
#include "base/duration.h"
#include "remote/remote.h"
#include "remote/slices.h"
#include "server/conn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ASK_EVERY_MS 1000
#define LOOK_EVERY_MS 200
#define SILENT_S 2    /* so long without an answer, and the store cannot decide */
#define STUCK_MS 1000 /* for a store that does not answer, on the way out */

/* ---- looking now and then ---- */

struct looker {
    void (*look)(struct looker *looker);
    int every_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stops;
};

static void *looker_run(void *argument)
{
    struct looker *it = argument;
    pthread_mutex_lock(&it->lock);
    while (!it->stops) {
        pthread_mutex_unlock(&it->lock);
        it->look(it);
        struct timespec until = server_time_in(CLOCK_MONOTONIC, it->every_ms);
        pthread_mutex_lock(&it->lock);
        while (!it->stops && pthread_cond_timedwait(&it->wake, &it->lock, &until) == 0)
            ;
    }
    pthread_mutex_unlock(&it->lock);
    return NULL;
}

/* False: no thread. */
static bool looker_start(struct looker *it, void (*look)(struct looker *), int every_ms)
{
    pthread_condattr_t monotonic;
    it->look = look;
    it->every_ms = every_ms;
    pthread_mutex_init(&it->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&it->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return !pthread_create(&it->thread, NULL, looker_run, it);
}

/* False: it looks still, after the time there is. */
static bool looker_stop(struct looker *it, int64_t most_ms)
{
    pthread_mutex_lock(&it->lock);
    it->stops = true;
    pthread_cond_signal(&it->wake);
    pthread_mutex_unlock(&it->lock);
    if (!server_join_within(it->thread, most_ms))
        return false;
    pthread_cond_destroy(&it->wake);
    pthread_mutex_destroy(&it->lock);
    return true;
}

/* ---- health ---- */

struct server_health {
    struct looker looker; /* first */
    weir_store *store;
    weir_limit *limit;
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
static void health_look(struct looker *looker)
{
    struct server_health *health = (struct server_health *)looker;
    weir_decision decision = {0};
    atomic_store(&health->asked_s, health_now_s());
    int code =
        weir_peek(health->store, weir_key_bytes("weir:health", 11), health->limit, 0, &decision);
    atomic_store(&health->store_decides, code == WEIR_EFULL || (code == 0 && !decision.degraded));
    atomic_store(&health->asked_s, 0);
}

int server_health_start(struct server *server, weir_error *err)
{
    if (!server->config.health_store)
        return 0;
    struct server_health *health = calloc(1, sizeof *health);
    if (!health)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for health checks");
    health->store = server->store;
    int code = weir_limit_parse("fixed-window 1/s", &health->limit, err);
    if (code == 0 && !looker_start(&health->looker, health_look, ASK_EVERY_MS))
        code = weir__fail(err, WEIR_ESYSTEM, 0, "no thread for health checks");
    if (code == 0) {
        server->health = health;
        return 0;
    }
    weir_limit_free(health->limit);
    free(health);
    return code;
}

bool server_health_stop(struct server *server)
{
    struct server_health *health = server->health;
    if (!health)
        return true;
    if (!looker_stop(&health->looker, STUCK_MS))
        return false;
    weir_limit_free(health->limit);
    free(health);
    server->health = NULL;
    return true;
}

/* ---- a remote store that is away ---- */

struct server_store_watch {
    struct looker looker; /* first */
    weir_store *store;
    bool down;
    int64_t down_us;       /* since when */
    uint64_t decided;      /* by the local fallback, before it was down */
    char slices_told[256]; /* why there were none, the last time it was told */
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

/* Once for each reason: what is asked of Redis meanwhile is right, but dear. */
static void watch_tell_slices(struct server_store_watch *watch)
{
    const char *trouble = weir__slices_trouble(watch->store);
    if (!trouble || !strncmp(trouble, watch->slices_told, sizeof watch->slices_told - 1))
        return;
    server_report("no slices are taken: %s; Redis is asked for each request", trouble);
    snprintf(watch->slices_told, sizeof watch->slices_told, "%s", trouble);
}

static void watch_look(struct looker *looker)
{
    struct server_store_watch *watch = (struct server_store_watch *)looker;
    struct weir__remote_look look;
    weir__remote_look(watch->store, &look);
    if (look.down && !watch->down)
        watch_tell_down(watch, &look);
    else if (!look.down && watch->down)
        watch_tell_up(watch, &look);
    if (!look.down)
        watch->decided = look.by_fallback;
    watch_tell_slices(watch);
}

int server_store_watch_start(struct server *server, weir_error *err)
{
    struct server_store_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for watching the store");
    watch->store = server->store;
    if (!looker_start(&watch->looker, watch_look, LOOK_EVERY_MS)) {
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
    looker_stop(&watch->looker, INT32_MAX);
    free(watch);
    server->store_watch = NULL;
}

/*
 * Whether the server can do its work, for balancers: /readyz and gRPC's health. With --health-store a thread
 * asks the store once a second, since only an answer shows that it is there; what was never asked
 * about counts as gone.
 */
#include "server/server.h"

#include "base/clock.h"

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
    _Atomic int64_t asked_s; /* when the question under way was asked; 0: none is */
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

/*
 * Two threads that look at the store now and then.
 *
 * One finds out whether the server can do its work, for balancers: /readyz and gRPC's health. With
 * --health-store it asks the store once a second, since only an answer shows that it is there; what
 * was never asked about counts as gone.
 *
 * The other tells operators when the servers of a remote store stop deciding, why, and when they
 * decide again: one line each on stderr, with who decides in between, and one if the reason
 * changes; and, once a minute at most, how many decisions the local fallback made where answers
 * came too late. It looks a few times a second; whatever happens between two looks is one change.
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

#define QUIET_US 1000000      /* so long without the fallback, and it is back */
#define BACK_US 10000000      /* likewise, although a call misses the deadline now and then */
#define CHANGED_US 1000000    /* so long for another reason, and that is told, too */
#define TELL_EVERY_US 5000000 /* but no sooner after the last line */
#define LATE_EVERY_US 60000000
#define LATE_AFTER_US 2000000

struct server_store_watch {
    struct looker looker; /* first */
    weir_store *store;
    struct server_metrics *metrics;
    enum { WATCH_UP, WATCH_PARTLY, WATCH_DOWN } told;
    struct watch_cause {
        bool reached;  /* it refuses, or answers too late */
        char word[64]; /* the first of the reason: which server, or the code of its error */
    } told_cause;
    int64_t told_us;      /* when it was told */
    int64_t changed_us;   /* since when there is another one; 0: there is none */
    int64_t down_us;      /* since when */
    int64_t back_us;      /* it decides, as it seems; 0: it does not */
    int64_t quiet_us;     /* since when the fallback decides nothing */
    uint64_t by_fallback; /* its calls at the last look */
    uint64_t degraded;    /* requests that the fallback had decided before it was down */
    struct {              /* calls that miss the deadline, where all is well otherwise */
        int64_t since_us, told_us;
        int64_t first_us;           /* the first of them; 0: none */
        uint64_t decided, degraded; /* at that time */
    } late;
    enum weir__trouble told_trouble; /* why no slices are taken, as it was told */
};

/* The rest of a reason may change with every attempt. */
static struct watch_cause watch_cause_of(const struct weir__remote_look *look)
{
    struct watch_cause cause = {.reached = look->reached};
    snprintf(cause.word, sizeof cause.word, "%.*s", (int)strcspn(look->why, " "), look->why);
    return cause;
}

/* Whether servers do not decide for another reason than was told: one that was away is replaced by
 * one that refuses. */
static bool watch_changed(struct server_store_watch *watch, const struct weir__remote_look *look)
{
    int64_t now = weir__mono_us();
    struct watch_cause cause = watch_cause_of(look);
    bool other = look->down && (cause.reached != watch->told_cause.reached ||
                                strcmp(cause.word, watch->told_cause.word) != 0);
    watch->changed_us = !other ? 0 : watch->changed_us ? watch->changed_us : now;
    return other && now - watch->changed_us >= CHANGED_US && now - watch->told_us >= TELL_EVERY_US;
}

/* Told again where the rest of the servers stops deciding later, and where the reason changes. */
static void watch_tell_down(struct server_store_watch *watch, const struct weir__remote_look *look)
{
    if (watch->told == WATCH_UP)
        watch->down_us = weir__mono_us();
    watch->told_cause = watch_cause_of(look);
    watch->told_us = weir__mono_us();
    watch->changed_us = 0;
    watch->told = look->partly ? WATCH_PARTLY : WATCH_DOWN;
    if (look->partly)
        server_report("%u of %u servers of the store %s: %s; meanwhile, for their keys, %s",
                      (unsigned)weir__max(1, look->reached ? look->undecided : look->away),
                      look->servers, look->reached ? "did not decide" : "cannot be reached",
                      look->why, look->meanwhile);
    else
        server_report("the store %s: %s; meanwhile %s",
                      look->reached || look->away < look->servers ? "does not decide"
                                                                  : "cannot be reached",
                      look->why, look->meanwhile);
}

static void watch_tell_up(struct server_store_watch *watch, const struct weir__remote_look *look,
                          uint64_t degraded)
{
    char room[64];
    struct weir__buffer lasted = weir__buffer_over(room, sizeof room);
    weir__put_about(&lasted, weir__max(1000, watch->back_us - watch->down_us));
    server_report("the store decides again, after %s; requests decided meanwhile (%s): %llu", room,
                  look->meanwhile, (unsigned long long)(degraded - watch->degraded));
    watch->told = WATCH_UP;
}

/* A server that comes back refuses for a while, or decides for some keys only: all of that is one
 * outage, which is over when the fallback has nothing left to do. */
static bool watch_is_back(struct server_store_watch *watch, const struct weir__remote_look *look)
{
    int64_t now = weir__mono_us();
    if (look->by_fallback != watch->by_fallback)
        watch->quiet_us = now;
    watch->by_fallback = look->by_fallback;
    watch->back_us = look->down ? 0 : watch->back_us ? watch->back_us : now;
    return watch->back_us && (now - weir__max(watch->back_us, watch->quiet_us) >= QUIET_US ||
                              now - watch->back_us >= BACK_US);
}

static void watch_forget_late(struct server_store_watch *watch, uint64_t decided, uint64_t degraded)
{
    watch->late.since_us = weir__mono_us();
    watch->late.first_us = 0;
    watch->late.decided = decided;
    watch->late.degraded = degraded;
}

/* Calls that are decided by the fallback although the servers decide: one line a minute at most. */
static void watch_tell_late(struct server_store_watch *watch, const struct weir__remote_look *look,
                            uint64_t decided, uint64_t degraded)
{
    int64_t now = weir__mono_us();
    char room[64], deadline[64];
    if (degraded == watch->late.degraded || decided <= watch->late.decided) {
        if (now - watch->late.since_us >= LATE_EVERY_US)
            watch_forget_late(watch, decided, degraded);
        return;
    }
    if (!watch->late.first_us)
        watch->late.first_us = now;
    if (now - watch->late.first_us < LATE_AFTER_US || /* it may be the begin of an outage */
        (watch->late.told_us && now - watch->late.told_us < LATE_EVERY_US))
        return;
    struct weir__buffer span = weir__buffer_over(room, sizeof room);
    struct weir__buffer within = weir__buffer_over(deadline, sizeof deadline);
    weir__put_about(&span, now - watch->late.since_us);
    weir__put_duration(&within, look->deadline_us, false);
    server_report("%llu of %llu decisions in the last %s were made without the store (%s): no "
                  "answer within %s; raise deadline=%s",
                  (unsigned long long)(degraded - watch->late.degraded),
                  (unsigned long long)(decided - watch->late.decided), room, look->meanwhile,
                  deadline,
                  look->closed ? "" : ", and use fail=closed for limits that must not be exceeded");
    watch->late.told_us = now;
    watch_forget_late(watch, decided, degraded);
}

/* What metric and statistics say, at each change: what is asked of Redis meanwhile is right, but
 * dear. While no server decides, there is something else to be told. */
static void watch_tell_slices(struct server_store_watch *watch)
{
    char trouble[WEIR__TROUBLE_MAX];
    enum weir__trouble now = weir__slices_trouble(watch->store, trouble);
    if (now == watch->told_trouble || (now && watch->told == WATCH_DOWN))
        return;
    if (now)
        server_report("no slices are taken: %s; %s", trouble,
                      now == WEIR__TROUBLE_REFUSED || now == WEIR__TROUBLE_UNREACHABLE
                          ? "servers that decide are asked for each request"
                          : "Redis is asked for each request that it may allow");
    else
        server_report("slices can be taken again");
    watch->told_trouble = now;
}

static void watch_look(struct looker *looker)
{
    struct server_store_watch *watch = (struct server_store_watch *)looker;
    struct weir__remote_look look;
    uint64_t degraded, decided = server_metrics_decided(watch->metrics, &degraded);
    weir__remote_look(watch->store, &look);
    bool back = watch_is_back(watch, &look);
    bool changed = watch_changed(watch, &look);
    if (look.down &&
        (watch->told == WATCH_UP || (watch->told == WATCH_PARTLY && !look.partly) || changed))
        watch_tell_down(watch, &look);
    else if (watch->told == WATCH_UP)
        watch_tell_late(watch, &look, decided, degraded);
    else if (back)
        watch_tell_up(watch, &look, degraded);
    if (watch->told == WATCH_UP)
        watch->degraded = degraded;
    else
        watch_forget_late(watch, decided, degraded);
    watch_tell_slices(watch);
}

int server_store_watch_start(struct server *server, weir_error *err)
{
    struct server_store_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for watching the store");
    watch->store = server->store;
    watch->metrics = server->metrics;
    watch->late.since_us = weir__mono_us();
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

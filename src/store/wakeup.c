/*
 * Wake-up descriptors: an event loop polls one instead of sleeping in a thread. It is a timer, so
 * that it also becomes readable by itself where nobody tells us of a release:
 *
 *                  a release of this process   of another process        if nobody says anything
 *     memory:      at once                                               never
 *     shm:, file:  at once                     at once, by our thread    after 1 s
 *     redis:// …   at once                     as asking again finds it  after 50 to 100 ms
 *
 * A futex cannot be polled. So for zones that are shared the first descriptor starts one thread per
 * store, which sleeps on the zone's bell and makes descriptors readable whose key's bell has rung.
 */
#include "store/wait.h"

#include "base/futex.h"
#include "base/random.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PACE_FIRST_US INT64_C(10000)
#define PACE_MOST_US INT64_C(250000)
#define PACE_LOOP_US INT64_C(100000) /* of event loops, which say nothing about success */

struct weir_wakeup {
    struct weir__spot spot;
    weir_store *store;
    struct weir__waiting *waiting;
    pid_t owner;
    char key[];
};

/* ---- alarms ---- */

int weir__alarm_open(void)
{
    return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
}

static void alarm_set_ns(int alarm, int64_t ns)
{
    const struct itimerspec when = {.it_value = {ns / 1000000000, ns % 1000000000}};
    int failed =
        timerfd_settime(alarm, 0, &when, NULL); /* what it has counted so far is forgotten */
    assert(!failed);
    (void)failed;
}

void weir__alarm_set(int alarm, int64_t us)
{
    alarm_set_ns(alarm, us * 1000);
}

void weir__alarm_ring(int alarm)
{
    alarm_set_ns(alarm, 1);
}

/* Less up to a half, so that those who were denied together do not ask together. */
static int64_t pace_jitter(int64_t us)
{
    return us - (int64_t)(weir__random_distinct() % (uint64_t)(us / 2));
}

int64_t weir__pace_us(unsigned asked)
{
    return pace_jitter(asked < 5 ? weir__min(PACE_FIRST_US << asked, PACE_MOST_US) : PACE_MOST_US);
}

/* ---- the thread ---- */

static void *watch_run(void *argument)
{
    struct weir__waiting *waiting = argument;
    struct weir__watch *watch = weir__waiting_watch(waiting);
    struct weir__bell *bell = watch->bells.all;
    while (!atomic_load(&watch->stop)) {
        uint32_t seen = atomic_load(&bell->rung);
        atomic_store(&bell->wanted, 1);
        weir__spots_listen(waiting);
        if (!atomic_load(&watch->stop))
            weir__futex_wait(&bell->rung, seen, WEIR__BELL_TRUST_US, watch->bells.shared);
    }
    return NULL;
}

int weir__watch_start(struct weir__waiting *waiting, const struct weir__bells *bells,
                      weir_error *err)
{
    struct weir__watch *watch = weir__waiting_watch(waiting);
    sigset_t all, before;
    int failed = 0;
    assert(bells->all && bells->shared);
    pthread_mutex_lock(&watch->lock);
    if (!watch->running) {
        watch->bells = *bells;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failed = pthread_create(&watch->thread, NULL, watch_run, waiting);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        watch->running = failed == 0;
    }
    pthread_mutex_unlock(&watch->lock);
    return failed ? weir__fail(err, WEIR_ESYSTEM, 0, "cannot start a thread that listens: %s",
                               strerror(failed))
                  : 0;
}

void weir__watch_stop(struct weir__watch *watch)
{
    if (!watch->running)
        return;
    atomic_store(&watch->stop, true);
    atomic_fetch_add(&watch->bells.all->rung, 1);
    weir__futex_wake(&watch->bells.all->rung, true);
    pthread_join(watch->thread, NULL);
    watch->running = false;
}

/* ---- descriptors ---- */

static int64_t wakeup_quiet_us(const struct weir_wakeup *wakeup)
{
    if (!wakeup->spot.bells.key)
        return pace_jitter(PACE_LOOP_US);
    return wakeup->spot.bells.shared ? WEIR__BELL_TRUST_US : 0;
}

static int wakeup_make(weir_store *store, weir_key key, weir_wakeup **ret, weir_error *err)
{
    struct weir__waiting *waiting = weir__waiting_of(store);
    weir_wakeup *wakeup = waiting ? calloc(1, sizeof *wakeup + key.len) : NULL;
    if (!wakeup)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a wake-up");
    memcpy(wakeup->key, key.data, key.len);
    weir__spot_init(&wakeup->spot, weir_key_bytes(wakeup->key, key.len));
    wakeup->store = store;
    wakeup->waiting = waiting;
    wakeup->owner = getpid();
    if (store->engine->bells)
        store->engine->bells(store, key, &wakeup->spot.bells);
    int code = wakeup->spot.bells.shared ? weir__watch_start(waiting, &wakeup->spot.bells, err) : 0;
    wakeup->spot.alarm = code ? -1 : weir__alarm_open();
    if (code == 0 && wakeup->spot.alarm < 0)
        code = weir__fail(err, WEIR_ESYSTEM, 0, "no descriptor for a wake-up: %s", strerror(errno));
    if (code) {
        free(wakeup);
        return code;
    }
    weir__spot_take(waiting, &wakeup->spot);
    weir__spot_arm(waiting, &wakeup->spot, wakeup_quiet_us(wakeup));
    *ret = wakeup;
    return 0;
}

int weir_wakeup_open(weir_store *store, weir_key key, const weir_limit *limit, weir_wakeup **ret,
                     weir_error *err)
{
    weir_request request = weir_request_make(key, limit);
    request.acquire = true; /* one of its limits has leases */
    int code = weir__request_check(store, &request, err);
    if (code)
        return code;
    if (!ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the result is NULL");
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    code = wakeup_make(store, key, ret, err);
    pthread_setcancelstate(state, NULL);
    return code;
}

int weir_wakeup_fd(const weir_wakeup *wakeup)
{
    return wakeup ? wakeup->spot.alarm : -1;
}

int weir_wakeup_arm(weir_wakeup *wakeup)
{
    if (!wakeup || wakeup->owner != getpid()) /* a child would disturb its parent's */
        return WEIR_EINVAL;
    weir__spot_arm(wakeup->waiting, &wakeup->spot, wakeup_quiet_us(wakeup));
    return 0;
}

void weir_wakeup_close(weir_wakeup *wakeup)
{
    int state;
    if (!wakeup)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    if (wakeup->owner == getpid())
        weir__spot_leave(wakeup->waiting, &wakeup->spot);
    close(wakeup->spot.alarm);
    free(wakeup);
    pthread_setcancelstate(state, NULL);
}

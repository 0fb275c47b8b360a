/*
 * How a wait sleeps, and what ends a sleep early: a wake-up of its spot, its deadline, another
 * thread that cancels it by its waiter, a descriptor, a signal. Without a descriptor it sleeps on a
 * word, otherwise it polls the descriptor together with its own alarm.
 */
#include "store/wait.h"

#include "base/futex.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cancelled once, it stays so. */
struct weir_waiter {
    pthread_mutex_t lock;
    pid_t owner;
    _Atomic uint32_t cancelled;
    struct weir__spot *spots; /* of the waits that have begun */
};

/* ---- cancelling ---- */

int weir_waiter_create(weir_waiter **ret, weir_error *err)
{
    if (!ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the result is NULL");
    weir_waiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a waiter");
    pthread_mutex_init(&waiter->lock, NULL);
    waiter->owner = getpid();
    *ret = waiter;
    return 0;
}

bool weir__waiter_is_ours(const weir_waiter *waiter)
{
    return waiter->owner == getpid();
}

void weir_waiter_cancel(weir_waiter *waiter)
{
    if (!waiter || !weir__waiter_is_ours(waiter))
        return;
    pthread_mutex_lock(&waiter->lock);
    atomic_store(&waiter->cancelled, true);
    for (struct weir__spot *it = waiter->spots; it; it = it->beside)
        weir__spot_wake(it);
    pthread_mutex_unlock(&waiter->lock);
}

void weir_waiter_free(weir_waiter *waiter)
{
    if (!waiter)
        return;
    assert(!waiter->spots || !weir__waiter_is_ours(waiter));
    free(waiter);
}

void weir__waiter_add(weir_waiter *waiter, struct weir__spot *spot)
{
    pthread_mutex_lock(&waiter->lock);
    spot->before = NULL;
    spot->beside = waiter->spots;
    if (spot->beside)
        spot->beside->before = spot;
    waiter->spots = spot;
    pthread_mutex_unlock(&waiter->lock);
}

void weir__waiter_remove(weir_waiter *waiter, struct weir__spot *spot)
{
    pthread_mutex_lock(&waiter->lock);
    *(spot->before ? &spot->before->beside : &waiter->spots) = spot->beside;
    if (spot->beside)
        spot->beside->before = spot->before;
    pthread_mutex_unlock(&waiter->lock);
}

static int wait_fail_cancelled(const struct weir__wait *wait)
{
    return weir__fail(wait->err, WEIR_ECANCELED, 0, "%s", weir_strerror(WEIR_ECANCELED));
}

/* Polls the descriptor that cancels, and the alarm. 0, a code, or EINTR. */
static int wait_poll(const struct weir__wait *wait, int64_t us)
{
    struct pollfd fds[2] = {{.fd = *wait->options->cancel_fd, .events = POLLIN},
                            {.fd = wait->spot.alarm, .events = POLLIN}};
    struct timespec most = {us / 1000000, us % 1000000 * 1000};
    if (ppoll(fds, 2, &most, NULL) < 0)
        return errno == EINTR ? EINTR
                              : weir__fail(wait->err, WEIR_ESYSTEM, 0, "poll: %s", strerror(errno));
    if (fds[0].revents & POLLNVAL)
        return weir__fail(wait->err, WEIR_EINVAL, 0,
                          "invalid cancel_fd %d: expected an open descriptor", fds[0].fd);
    return fds[0].revents ? wait_fail_cancelled(wait) : 0;
}

int weir__wait_look(const struct weir__wait *wait)
{
    if (wait->options->waiter && atomic_load(&wait->options->waiter->cancelled))
        return wait_fail_cancelled(wait);
    int code = wait->options->cancel_fd ? wait_poll(wait, 0) : 0;
    return code == EINTR ? 0 : code;
}

/* ---- sleeping ---- */

void weir__wait_prepare(struct weir__wait *wait, struct weir__bell *bell)
{
    _Atomic uint32_t *on = bell && wait->spot.alarm < 0 ? &bell->rung : &wait->spot.word;
    atomic_store(&wait->spot.sleeps_on, on);
    wait->seen = atomic_load(on);
    if (wait->spot.alarm >= 0 && wait->waiting)
        weir__spot_arm(wait->waiting, &wait->spot, 0);
    else if (wait->spot.alarm >= 0)
        weir__alarm_set(wait->spot.alarm, 0);
    else if (bell)
        atomic_store(&bell->wanted, 1);
}

int weir__wait_doze(struct weir__wait *wait, int64_t us)
{
    _Atomic uint32_t *on = atomic_load(&wait->spot.sleeps_on);
    int64_t until = weir__mono_us() + us;
    for (;;) {
        int64_t left = until - weir__mono_us();
        int code = weir__wait_look(wait);
        if (code || left <= 0 || atomic_load(on) != wait->seen)
            return code;
        code = wait->spot.alarm >= 0
                   ? wait_poll(wait, left)
                   : weir__futex_wait(on, wait->seen, left,
                                      on != &wait->spot.word && wait->spot.bells.shared);
        if (code == EINTR && wait->options->interruptible)
            return weir__fail(wait->err, WEIR_EINTR, 0, "%s", weir_strerror(WEIR_EINTR));
        if (code < 0)
            return code;
    }
}

int weir__wait_pause(struct weir__wait *wait, int64_t us)
{
    if (!weir__wait_is_virtual(wait))
        return weir__wait_doze(wait, us);
    wait->store->clock.sleep(wait->store->clock.context, us);
    return weir__wait_look(wait);
}

int weir__wait_delay(struct weir__wait *wait)
{
    int code = 0;
    assert(wait->granted);
    if (!weir__wait_can_sleep(wait))
        return 0;
    while (code == 0) {
        int64_t left = wait->due_us - weir__wait_now(wait);
        if (left <= 0)
            break;
        weir__wait_prepare(wait, NULL);
        code = weir__wait_pause(wait, left);
        if (weir__wait_is_virtual(wait))
            break;
    }
    return code;
}

/*
 * The zone's locks. Private zones: one word, taken by one compare-and-swap and given back by a plain
 * store, then spinning, yielding and napping rather than a futex: less to get right. (It is no faster:
 * giving back by an exchange measured the same.) That will do, since threads of one process die
 * together. Shared zones: robust process-shared mutexes; the one who finds
 * its owner dead repairs the stripe before using it. A lock word holding a pid would not do: between
 * unrelated processes pids are reused and live in namespaces.
 */
#include "store/zone/zone.h"

#include "base/clock.h"
#include "base/futex.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <time.h>

#define SPINS 500 /* some microseconds: many decisions */
#define YIELDS 20
#define NAP_US 50
#define SLEEP_MAX_NS 5000000 /* for a shared lock, before it is looked at again */
#define HELD_US 1000000      /* for so long after patience ended … */
#define HELD_PATIENCE_US 200 /* … others wait only so long */

#ifdef __SANITIZE_THREAD__ /* which knows of no clocklock */
#define SLEEP_CLOCK CLOCK_REALTIME
#define lock_until(mutex, until) pthread_mutex_timedlock(mutex, until)
#else
#define SLEEP_CLOCK CLOCK_MONOTONIC
#define lock_until(mutex, until) pthread_mutex_clocklock(mutex, SLEEP_CLOCK, until)
#endif

/* The holder is a thread of this process: at work, so spin; or waiting for a core, so let it have
 * ours, in the end by sleeping, which helps it whatever the priorities. */
static void word_lock_slow(_Atomic uint32_t *word)
{
    for (unsigned tries = 0;; tries++) {
        if (atomic_load_explicit(word, memory_order_relaxed) == 0 && weir__word_trylock(word))
            return;
        if (tries < SPINS) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        } else if (tries < SPINS + YIELDS) {
            sched_yield();
        } else {
            int state; /* other stripes may be locked: no thread is cancelled here */
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
            weir__clock_sleep_us(NAP_US);
            pthread_setcancelstate(state, NULL);
        }
    }
}

/* The lock is ours and its last owner is dead. */
static void inherit(struct weir__zone *zone, uint32_t stripe)
{
    pthread_mutex_consistent(&zone->stripes[stripe].robust);
    zone->stripes[stripe].counters[WEIR__REPAIRS]++;
    if (stripe < zone->layout.stripes)
        weir__stripe_repair(zone, stripe);
    if (stripe > weir__rows_stripe(zone))
        weir__arena_repair(zone, stripe - weir__rows_stripe(zone) - 1);
}

void weir__stripes_init(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++) {
        struct weir__stripe *stripe = &zone->stripes[i];
        if (!zone->shared) {
            atomic_store(&stripe->word, 0);
            continue;
        }
        pthread_mutexattr_t robust;
        pthread_mutexattr_init(&robust);
        pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&stripe->robust, &robust);
        pthread_mutexattr_destroy(&robust);
    }
}

/* A robust mutex can be free while somebody sleeps for it: a process is woken and killed before it has
 * the lock, a third takes it meanwhile, knowing of no sleeper, and wakes nobody. So no sleep is without
 * end; whoever wakes by the clock finds the lock free. */
static int robust_wait(pthread_mutex_t *mutex, int64_t most_us)
{
    const int64_t most_ns = most_us > 0 ? most_us * 1000 : INT64_MAX;
    int code = EBUSY;
    for (int64_t waited_ns = 0; (code == EBUSY || code == ETIMEDOUT) && waited_ns < most_ns;) {
        struct timespec until;
        int64_t nap_ns = weir__min(SLEEP_MAX_NS, most_ns - waited_ns);
        clock_gettime(SLEEP_CLOCK, &until);
        until.tv_nsec += (long)nap_ns;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        code = lock_until(mutex, &until);
        waited_ns += nap_ns;
    }
    return code;
}

void weir__zone_be_patient(struct weir__zone *zone, int64_t us)
{
    zone->patience_us = us;
}

bool weir__zone_is_held(struct weir__zone *zone)
{
    int64_t until = atomic_load_explicit(&zone->held_until_us, memory_order_relaxed);
    return until > 0 && weir__mono_us() < until;
}

/* Somebody else has it. Only the first one to find it held waits in full. */
static int lock_contended(struct weir__zone *zone, pthread_mutex_t *mutex)
{
    if (zone->patience_us == 0)
        return robust_wait(mutex, 0);
    bool held = weir__zone_is_held(zone);
    int code = robust_wait(mutex, held ? HELD_PATIENCE_US : zone->patience_us);
    if (code == ETIMEDOUT || code == EBUSY) {
        if (!held)
            atomic_store(&zone->held_until_us, weir__mono_us() + HELD_US);
        return EBUSY;
    }
    return code;
}

bool weir__stripe_lock_slow(struct weir__zone *zone, uint32_t stripe)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    if (!zone->shared) {
        word_lock_slow(&it->word);
        return true;
    }
    int code = pthread_mutex_trylock(&it->robust);
    if (WEIR__UNLIKELY(code == EBUSY))
        code = lock_contended(zone, &it->robust);
    if (WEIR__UNLIKELY(code == EBUSY))
        return false;
    if (WEIR__UNLIKELY(code == EOWNERDEAD))
        inherit(zone, stripe);
    if (WEIR__UNLIKELY(!zone->header->dirty)) /* closed by a parent, still used by its child */
        zone->header->dirty = 1;
    return true;
}

bool weir__stripe_trylock(struct weir__zone *zone, uint32_t stripe)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    if (!zone->shared)
        return weir__word_trylock(&it->word);
    int code = pthread_mutex_trylock(&it->robust);
    if (code == EOWNERDEAD)
        inherit(zone, stripe);
    return code == 0 || code == EOWNERDEAD;
}

bool weir__stripes_lock_all(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < zone->layout.stripes; i++) {
        if (weir__stripe_lock(zone, i))
            continue;
        while (i > 0)
            weir__stripe_unlock(zone, --i);
        return false;
    }
    return true;
}

void weir__stripes_unlock_all(struct weir__zone *zone)
{
    for (uint32_t i = zone->layout.stripes; i > 0; i--)
        weir__stripe_unlock(zone, i - 1);
}

/* ---- bells ---- */

/* `wanted` is cleared before `rung` changes: who sets it again after that reads the new `rung` or
 * is woken (store.h). */
static bool bell_ring(struct weir__bell *bell, bool shared)
{
    if (WEIR__LIKELY(!atomic_load(&bell->wanted)))
        return false;
    atomic_store(&bell->wanted, 0);
    atomic_fetch_add(&bell->rung, 1);
    weir__futex_wake(&bell->rung, shared);
    return true;
}

void weir__zone_ring(struct weir__zone *zone, uint32_t stripe)
{
    assert(stripe < zone->layout.stripes);
    if (bell_ring(&zone->stripes[stripe].bell, zone->shared))
        bell_ring(&zone->header->bell, zone->shared);
}

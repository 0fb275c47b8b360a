/*
 * The zone's locks. Private zones: one word, taken by one compare-and-swap and given back by a
 * plain store, then spinning, yielding and napping rather than a futex: less to get right. Shared
 * zones: robust process-shared mutexes. A lock word with a pid would not do for them: between
 * unrelated processes pids are reused and live in namespaces.
 *
 * Nobody waits without end. A holder works for microseconds, dies, or is stopped; after the zone's
 * patience (100 ms) the request fails and has changed nothing. Patience counts naps, not the clock:
 * if the whole machine stood still, the holder did not get its chance either. Who runs out of
 * patience leaves a note in the stripe, so that others do not wait in full for the same holder. The
 * next one who gets the lock takes the note away.
 *
 * Whoever finds the owner of a lock dead repairs what it covers before using it; of a stripe the
 * page that it needs (zone/repair.c). Owners of shared
 * locks die with their process, as the kernel says. Owners of private ones die with a fork: the
 * child has none of its parent's other threads (zone/fork.c).
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
#define NAPS_SHORT 20
#define NAP_SHORT_US 50
#define NAP_US 1000
#define SLEEP_MAX_NS 5000000    /* for a shared lock, before it is looked at again */
#define HELD_US 1000000         /* for so long after patience ended … */
#define HELD_PATIENCE_US 200    /* … others wait only so long for it, … */
#define OTHERS_PATIENCE_US 5000 /* … and so long for other locks */

#if defined(__SANITIZE_THREAD__) || !defined(__GLIBC__) /* which know of no clocklock */
#define SLEEP_CLOCK CLOCK_REALTIME
#define lock_until(mutex, until) pthread_mutex_timedlock(mutex, until)
#else
#define SLEEP_CLOCK CLOCK_MONOTONIC
#define lock_until(mutex, until) pthread_mutex_clocklock(mutex, SLEEP_CLOCK, until)
#endif

/* The holder is a thread of this process: at work, so spin; or waiting for a core, so let it have
 * ours, in the end by sleeping, which helps it whatever the priorities. Returns how it was got: 0,
 * EOWNERDEAD or EBUSY. */
int weir__word_lock(_Atomic uint32_t *word, uint32_t to, int64_t most_us)
{
    int64_t waited_us = 0;
    for (unsigned tries = 0;; tries++) {
        uint32_t found = atomic_load_explicit(word, memory_order_relaxed);
        if ((found == WEIR__WORD_FREE || found == WEIR__WORD_DEAD) &&
            weir__word_swap(word, found, to))
            return found == WEIR__WORD_DEAD ? EOWNERDEAD : 0;
        if (tries < SPINS) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        } else if (tries < SPINS + YIELDS) {
            sched_yield();
        } else if (most_us > 0 && waited_us >= most_us) {
            return EBUSY;
        } else {
            int64_t nap_us = tries < SPINS + YIELDS + NAPS_SHORT ? NAP_SHORT_US : NAP_US;
            int state; /* other stripes may be locked: no thread is cancelled here */
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
            weir__clock_sleep_us(nap_us);
            pthread_setcancelstate(state, NULL);
            waited_us += nap_us;
        }
    }
}

/* Whether this is the first that is heard of the death of that owner. A process may have died with
 * several locks. */
static bool lock_is_new_death(struct weir__zone *zone, uint64_t owner)
{
    _Atomic uint64_t *place = &zone->header->dead[owner % WEIR__COUNT(zone->header->dead)];
    return owner == 0 || atomic_exchange(place, owner) != owner;
}

/* The lock is ours and its last owner is dead. */
static void lock_inherit(struct weir__zone *zone, uint32_t stripe)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    if (zone->shared)
        pthread_mutex_consistent(&it->robust);
    if (lock_is_new_death(zone, it->owner))
        it->counters[WEIR__REPAIRS]++;
    if (stripe < zone->layout.stripes)
        weir__stripe_tear(zone, stripe);
    if (stripe == weir__rows_stripe(zone))
        weir__rows_repair(zone);
    if (stripe > weir__rows_stripe(zone))
        weir__arena_repair(zone, stripe - weir__rows_stripe(zone) - 1);
}

void weir__stripes_init(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++) {
        struct weir__stripe *stripe = &zone->stripes[i];
        stripe->owner = 0;
        atomic_store(&stripe->held_until_us, 0);
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

/* A robust mutex can be free while somebody sleeps for it: a process is woken and killed before it
 * has the lock, a third takes it meanwhile, knowing of no sleeper, and wakes nobody. So no sleep is
 * without end; whoever wakes by the clock finds the lock free. */
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
    bool own = !zone->shared && us > 0;
    zone->patience_us = own ? weir__max(us, WEIR__OWN_PATIENCE_US) : us;
}

bool weir__zone_waits(struct weir__zone *zone, int64_t *since_us)
{
    int64_t now = weir__mono_us();
    *since_us = *since_us ? *since_us : now;
    sched_yield();
    return zone->patience_us == 0 || now - *since_us < zone->patience_us;
}

bool weir__zone_is_held(struct weir__zone *zone)
{
    int64_t until = atomic_load_explicit(&zone->held_until_us, memory_order_relaxed);
    return until > 0 && weir__mono_us() < until;
}

/* How long to wait for a lock of a shared zone: in full, unless its holder, or one of another lock,
 * was waited for in full a moment ago. (A thread of this process may have to wait for a core, but
 * it is not stopped alone.) */
static int64_t lock_patience(struct weir__zone *zone, const struct weir__stripe *it)
{
    int64_t now = weir__mono_us(), noted = atomic_load(&it->held_until_us);
    if (!zone->shared || zone->patience_us == 0)
        return zone->patience_us;
    if (noted > now && noted <= now + HELD_US)
        return weir__min(HELD_PATIENCE_US, zone->patience_us);
    if (atomic_load(&zone->held_until_us) > now)
        return weir__min(OTHERS_PATIENCE_US, zone->patience_us);
    return zone->patience_us;
}

/* Somebody else has it. */
static int lock_contended(struct weir__zone *zone, struct weir__stripe *it)
{
    int64_t most_us = lock_patience(zone, it);
    int code = zone->shared ? robust_wait(&it->robust, most_us)
                            : weir__word_lock(&it->word, WEIR__WORD_HELD, most_us);
    if (code != ETIMEDOUT && code != EBUSY)
        return code;
    int64_t until = weir__mono_us() + HELD_US;
    if (most_us > HELD_PATIENCE_US)
        atomic_store(&it->held_until_us, until);
    if (most_us == zone->patience_us)
        atomic_store(&zone->held_until_us, until);
    return EBUSY;
}

/* What every new owner does. */
static void lock_own(struct weir__zone *zone, uint32_t stripe, int code)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    assert(code == 0 || code == EOWNERDEAD);
    if (WEIR__UNLIKELY(code == EOWNERDEAD))
        lock_inherit(zone, stripe);
    if (WEIR__UNLIKELY(atomic_load_explicit(&it->held_until_us, memory_order_relaxed))) {
        atomic_store_explicit(&it->held_until_us, 0, memory_order_relaxed);
        atomic_store_explicit(&zone->held_until_us, 0, memory_order_relaxed);
    }
    if (!zone->shared)
        return;
    it->owner = zone->owner;
    if (WEIR__UNLIKELY(!zone->header->dirty)) /* closed by a parent, still used by its child */
        zone->header->dirty = 1;
}

bool weir__stripe_lock_slow(struct weir__zone *zone, uint32_t stripe)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    int code = zone->shared ? pthread_mutex_trylock(&it->robust) : EBUSY;
    if (WEIR__UNLIKELY(code == EBUSY))
        code = lock_contended(zone, it);
    if (WEIR__UNLIKELY(code == EBUSY))
        return false;
    lock_own(zone, stripe, code);
    return true;
}

bool weir__stripe_trylock(struct weir__zone *zone, uint32_t stripe)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    int code = zone->shared ? pthread_mutex_trylock(&it->robust)
               : weir__word_swap(&it->word, WEIR__WORD_FREE, WEIR__WORD_HELD) ? 0
               : weir__word_swap(&it->word, WEIR__WORD_DEAD, WEIR__WORD_HELD) ? EOWNERDEAD
                                                                              : EBUSY;
    if (code != 0 && code != EOWNERDEAD)
        return false;
    lock_own(zone, stripe, code);
    return true;
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

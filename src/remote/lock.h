/*
 * A mutex that knows in debug builds who holds it, so that "the lock is held" can be asserted, and
 * conditions that wait by the monotonic clock.
 */
#ifndef WEIR_LOCK_H
#define WEIR_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct weir__lock {
    pthread_mutex_t mutex;
#ifndef NDEBUG
    pthread_t owner; /* while held */
    bool held;
#endif
};

#ifdef NDEBUG
#define WEIR__LOCK_NOTE(lock, yes) ((void)0)
#define WEIR__ASSERT_LOCKED(lock) ((void)0)
#else
#define WEIR__LOCK_NOTE(lock, yes) ((lock)->owner = pthread_self(), (lock)->held = (yes))
#define WEIR__ASSERT_LOCKED(lock)                                                                  \
    assert((lock)->held &&pthread_equal((lock)->owner, pthread_self()))
#endif

/* In a child process also over a lock that a thread of the parent held. */
static inline void weir__lock_init(struct weir__lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL);
    WEIR__LOCK_NOTE(lock, false);
}

static inline void weir__lock_take(struct weir__lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    WEIR__LOCK_NOTE(lock, true);
}

static inline void weir__lock_release(struct weir__lock *lock)
{
    WEIR__ASSERT_LOCKED(lock);
    WEIR__LOCK_NOTE(lock, false);
    pthread_mutex_unlock(&lock->mutex);
}

static inline void weir__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

#define WEIR__NO_DEADLINE INT64_MAX

/* Waits until the deadline at most; the lock is held before and after, but not meanwhile. */
static inline void weir__cond_wait(pthread_cond_t *cond, struct weir__lock *lock,
                                   int64_t deadline_us)
{
    struct timespec until = {deadline_us / 1000000, deadline_us % 1000000 * 1000};
    WEIR__ASSERT_LOCKED(lock);
    WEIR__LOCK_NOTE(lock, false);
    if (deadline_us == WEIR__NO_DEADLINE)
        pthread_cond_wait(cond, &lock->mutex);
    else
        pthread_cond_timedwait(cond, &lock->mutex, &until);
    WEIR__LOCK_NOTE(lock, true);
}

#endif

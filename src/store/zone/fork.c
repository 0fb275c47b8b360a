/*
 * Zones in a process that forks. A child has a copy of every private zone, and none of its parent's
 * other threads. So whoever forks takes all private locks first, for a moment: the copy is whole
 * then, and the child has the locks. One that was not to be had in time is dead in the child, and
 * who gets it repairs what it covers, as after a death. Takes without a lock go on meanwhile: each
 * of them is one swap of 16 bytes, which is in the copy or is not.
 *
 * Of shared zones a child needs only a name of its own, so that its death is not taken for its
 * parent's.
 */
#include "base/clock.h"
#include "store/zone/zone.h"

#include <errno.h>
#include <unistd.h>

#define FORK_PATIENCE_US 100000 /* for all locks together, more or less */

/* All zones of this process. Who forks holds the list's lock until that is over. */
static struct {
    pthread_mutex_t lock;
    struct weir__zone *first;
    pthread_once_t once;
    int code;
} forks = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* A dead one stays dead. */
static void fork_lock(_Atomic uint32_t *word, int64_t until_us)
{
    int64_t most_us = weir__mono_us() < until_us ? FORK_PATIENCE_US : 1;
    if (weir__word_lock(word, WEIR__WORD_FORKING, most_us) == EOWNERDEAD)
        atomic_store(word, WEIR__WORD_DEAD);
}

/* In the order of all others: rows, stripes, arenas. */
static void fork_prepare(void)
{
    pthread_mutex_lock(&forks.lock);
    int64_t until_us = weir__mono_us() + FORK_PATIENCE_US;
    for (struct weir__zone *zone = forks.first; zone; zone = zone->next) {
        uint32_t rows = weir__rows_stripe(zone);
        if (zone->shared)
            continue;
        fork_lock(&zone->stripes[rows].word, until_us);
        for (uint32_t i = 0; i < weir__lock_count(&zone->layout); i++) {
            if (i != rows)
                fork_lock(&zone->stripes[i].word, until_us);
        }
    }
}

static void fork_in_parent(void)
{
    for (struct weir__zone *zone = forks.first; zone; zone = zone->next) {
        for (uint32_t i = 0; !zone->shared && i < weir__lock_count(&zone->layout); i++)
            weir__word_swap(&zone->stripes[i].word, WEIR__WORD_FORKING, WEIR__WORD_FREE);
    }
    pthread_mutex_unlock(&forks.lock);
}

/* Its only thread is the one that forked. What others held is held by nobody. */
static void fork_in_child(void)
{
    for (struct weir__zone *zone = forks.first; zone; zone = zone->next) {
        zone->owner ^= (uint64_t)getpid() << 32; /* its death is another than its parent's */
        for (uint32_t i = 0; !zone->shared && i < weir__lock_count(&zone->layout); i++) {
            weir__word_swap(&zone->stripes[i].word, WEIR__WORD_FORKING, WEIR__WORD_FREE);
            if (weir__word_swap(&zone->stripes[i].word, WEIR__WORD_HELD, WEIR__WORD_DEAD))
                zone->stripes[i].owner = zone->owner;
        }
    }
    pthread_mutex_unlock(&forks.lock);
}

static void fork_watch(void)
{
    forks.code = pthread_atfork(fork_prepare, fork_in_parent, fork_in_child);
}

int weir__zone_watch_forks(struct weir__zone *zone)
{
    pthread_once(&forks.once, fork_watch);
    if (forks.code)
        return WEIR_ENOMEM;
    pthread_mutex_lock(&forks.lock);
    zone->next = forks.first;
    forks.first = zone;
    pthread_mutex_unlock(&forks.lock);
    return 0;
}

void weir__zone_leave_forks(struct weir__zone *zone)
{
    pthread_mutex_lock(&forks.lock);
    struct weir__zone **at = &forks.first;
    while (*at && *at != zone)
        at = &(*at)->next;
    if (*at)
        *at = zone->next;
    pthread_mutex_unlock(&forks.lock);
}

/* Locks of a zone: of a stripe, of the rows, of an arena; and what becomes of them in a fork. */
#ifndef WEIR_ZONE_LOCK_H
#define WEIR_ZONE_LOCK_H

#include "store/zone/layout.h"

/* ---- zone/lock.c ---- */

void weir__stripes_init(struct weir__zone *zone);
/* Who locks waits at most so long, 100 ms unless this is called; 0: as long as it takes. Beyond it
 * the request fails with WEIR__HELD and nothing is changed. After that, for a second, others wait
 * only a moment for the same lock. In a private zone the holder is a thread of our own process,
 * which is not stopped alone but may wait for a core: there it is at least 1 s. */
#define WEIR__OWN_PATIENCE_US 1000000
void weir__zone_be_patient(struct weir__zone *zone, int64_t us);
/* After WEIR__WANTED: lets others go on; whether patience lasts. *since_us: 0 at first. */
bool weir__zone_waits(struct weir__zone *zone, int64_t *since_us);
/* Whether somebody was found to hold a lock too long just now. */
bool weir__zone_is_held(struct weir__zone *zone);
/* Words of private zones. */
enum { WEIR__WORD_FREE, WEIR__WORD_HELD, WEIR__WORD_DEAD, WEIR__WORD_FORKING };
/* Puts `to` into a word that is free or dead; 0, EOWNERDEAD or EBUSY. */
int weir__word_lock(_Atomic uint32_t *word, uint32_t to, int64_t most_us);
static inline bool weir__word_swap(_Atomic uint32_t *word, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(word, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

/* These: false where patience ended. */
bool weir__stripe_lock_slow(struct weir__zone *zone, uint32_t stripe);
bool weir__stripe_trylock(struct weir__zone *zone, uint32_t stripe);
bool weir__stripes_lock_all(struct weir__zone *zone) __attribute__((warn_unused_result));
void weir__stripes_unlock_all(struct weir__zone *zone);

static inline bool weir__word_trylock(_Atomic uint32_t *word)
{
    uint32_t free = 0;
    return atomic_compare_exchange_strong_explicit(word, &free, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

__attribute__((warn_unused_result)) static inline bool weir__stripe_lock(struct weir__zone *zone,
                                                                         uint32_t stripe)
{
    if (zone->shared || WEIR__UNLIKELY(!weir__word_trylock(&zone->stripes[stripe].word)))
        return weir__stripe_lock_slow(zone, stripe);
    return true;
}

static inline void weir__stripe_unlock(struct weir__zone *zone, uint32_t stripe)
{
    if (zone->shared) {
        zone->stripes[stripe].owner = 0;
        pthread_mutex_unlock(&zone->stripes[stripe].robust);
    } else
        atomic_store_explicit(&zone->stripes[stripe].word, 0, memory_order_release);
}

static inline uint32_t weir__rows_stripe(const struct weir__zone *zone)
{
    return zone->layout.stripes;
}

static inline uint32_t weir__arena_lock(const struct weir__zone *zone, uint32_t arena)
{
    assert(arena < zone->layout.arenas);
    return zone->layout.stripes + 1 + arena;
}

/* Locks of all sorts. */
static inline uint32_t weir__lock_count(const struct weir__layout *layout)
{
    return layout->stripes + 1 + layout->arenas;
}

/* ---- zone/fork.c ---- */

/* From now on, until it is left, a child of fork finds the private locks free, or inherits what
 * they cover. The zone must stay where it is. 0 or WEIR_ENOMEM. */
int weir__zone_watch_forks(struct weir__zone *zone);
void weir__zone_leave_forks(struct weir__zone *zone);

#endif

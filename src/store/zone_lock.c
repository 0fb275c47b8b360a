/*
 * The zone's locks. Private zones: one word (0 free, 1 held, 2 held and awaited) and a futex, since
 * threads of one process die together. Shared zones: robust process-shared mutexes; the one who finds
 * its owner dead repairs the stripe before using it. A lock word holding a pid would not do: between
 * unrelated processes pids are reused and live in namespaces.
 */
#include "store/zone.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 100 /* a decision takes about as long: worth a short wait before asking the kernel */

static void word_lock_slow(_Atomic uint32_t *word)
{
    for (int i = 0; i < SPINS; i++) {
        uint32_t free = 0;
        if (atomic_load_explicit(word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(word, &free, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    while (atomic_exchange_explicit(word, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static bool word_trylock(_Atomic uint32_t *word)
{
    uint32_t free = 0;
    return atomic_compare_exchange_strong_explicit(word, &free, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void word_unlock(_Atomic uint32_t *word)
{
    if (WEIR__UNLIKELY(atomic_exchange_explicit(word, 0, memory_order_release) == 2))
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* The lock is ours and its last owner is dead. */
static void inherit(struct weir__zone *zone, uint32_t stripe)
{
    pthread_mutex_consistent(&zone->stripes[stripe].robust);
    zone->stripes[stripe].counters[WEIR__REPAIRS]++;
    if (stripe < zone->layout.stripes)
        weir__stripe_repair(zone, stripe);
    else if (stripe == weir__blocks_stripe(zone))
        atomic_store(&zone->header->blocks_suspect, 1);
}

void weir__stripes_init(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < zone->layout.stripes + 2; i++) {
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

void weir__stripe_lock(struct weir__zone *zone, uint32_t stripe)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    if (!zone->shared) {
        if (WEIR__UNLIKELY(!word_trylock(&it->word)))
            word_lock_slow(&it->word);
        return;
    }
    if (WEIR__UNLIKELY(pthread_mutex_lock(&it->robust) == EOWNERDEAD))
        inherit(zone, stripe);
    if (WEIR__UNLIKELY(!zone->header->dirty)) /* closed by a parent, still used by its child */
        zone->header->dirty = 1;
}

bool weir__stripe_trylock(struct weir__zone *zone, uint32_t stripe)
{
    struct weir__stripe *it = &zone->stripes[stripe];
    if (!zone->shared)
        return word_trylock(&it->word);
    int code = pthread_mutex_trylock(&it->robust);
    if (code == EOWNERDEAD)
        inherit(zone, stripe);
    return code == 0 || code == EOWNERDEAD;
}

void weir__stripe_unlock(struct weir__zone *zone, uint32_t stripe)
{
    if (!zone->shared)
        word_unlock(&zone->stripes[stripe].word);
    else
        pthread_mutex_unlock(&zone->stripes[stripe].robust);
}

void weir__stripes_lock_all(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < zone->layout.stripes; i++)
        weir__stripe_lock(zone, i);
}

void weir__stripes_unlock_all(struct weir__zone *zone)
{
    for (uint32_t i = zone->layout.stripes; i > 0; i--)
        weir__stripe_unlock(zone, i - 1);
}

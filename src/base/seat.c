/* See seat.h. */
#include "base/seat.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

_Static_assert(WEIR__SEATS == 64, "a bit of a word for each");

_Thread_local uint32_t weir__seat;
static _Thread_local bool seat_sought; /* there was none: the thread does not ask again */

static _Atomic uint64_t seats_free = ~UINT64_C(1);
static pthread_once_t seat_once = PTHREAD_ONCE_INIT;
static pthread_key_t seat_key;
static bool seat_has_key; /* without a key no end is noticed, and no seat is given */

static void seat_give_back(void *seat)
{
    uintptr_t number = (uintptr_t)seat;
    assert(number > 0 && number < WEIR__SEATS);
    weir__seat = 0; /* destructors that run later share a place */
    seat_sought = true;
    atomic_fetch_or_explicit(&seats_free, UINT64_C(1) << number, memory_order_release);
}

static void seat_prepare(void)
{
    seat_has_key = pthread_key_create(&seat_key, seat_give_back) == 0;
}

/* A module that is unloaded leaves no function behind for threads to end with. */
__attribute__((destructor)) static void seat_forget(void)
{
    if (seat_has_key)
        pthread_key_delete(seat_key);
}

uint32_t weir__seat_take(void)
{
    if (seat_sought)
        return weir__seat;
    seat_sought = true;
    pthread_once(&seat_once, seat_prepare);
    uint64_t left = atomic_load_explicit(&seats_free, memory_order_relaxed);
    while (seat_has_key && left) {
        uint32_t seat = (uint32_t)__builtin_ctzll(left);
        if (!atomic_compare_exchange_weak_explicit(&seats_free, &left,
                                                   left & ~(UINT64_C(1) << seat),
                                                   memory_order_acquire, memory_order_relaxed))
            continue;
        if (pthread_setspecific(seat_key, (void *)(uintptr_t)seat)) {
            atomic_fetch_or(&seats_free, UINT64_C(1) << seat);
            return 0;
        }
        weir__seat = seat * WEIR__SEAT_BYTES;
        return weir__seat;
    }
    return 0;
}

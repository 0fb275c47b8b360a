/*
 * A seat: a place that is a thread's own while it lives, so that the thread may count where nobody
 * else writes. Seats are few. A thread that finds all of them taken has none, and shares seat 0
 * with others like it, where it must count by an atomic addition. The next thread that gets a seat
 * goes on where the last one ended.
 */
#ifndef WEIR_SEAT_H
#define WEIR_SEAT_H

#include "base/base.h"

#define WEIR__SEATS 64       /* seat 0 is nobody's own */
#define WEIR__SEAT_BYTES 128 /* from one to the next */

/* Where this thread's own is, in bytes from the first; 0: it has none, or has not asked
 * (weir__seat_take). */
extern _Thread_local uint32_t weir__seat __attribute__((tls_model("initial-exec")));

/* Takes a seat, if there is one; the thread's end gives it back. Returns weir__seat. */
uint32_t weir__seat_take(void);

#endif

/*
 * The one clock: microseconds since the Unix epoch, CLOCK_REALTIME.
 *
 * Reading the vDSO makes a take of 30 ns one of 44. Where the kernel itself keeps time by an
 * invariant TSC, each thread reads CLOCK_REALTIME once a millisecond and in between adds the ticks
 * since. What holds:
 *   1. An answer is off by at most the drift of one millisecond (well under 1 µs) while the TSC
 *      ticks
 *      as the kernel says it does.
 *   2. A step of the system clock is seen within a millisecond.
 *   3. A TSC that jumps (a migrated guest) or runs back makes the thread read the real clock at
 *      once.
 *   4. Without such a TSC every call reads the real clock.
 * Threads may disagree by under a microsecond; the rule that time never runs backwards for a key
 * absorbs that.
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Where a thread last saw the real clock. `window` 0: no rate is known yet, or the fast way is not
 * in use. */
struct weir__anchor {
    uint64_t tsc;
    uint64_t window; /* how many ticks it serves */
    int64_t us;
    uint64_t part_q32; /* of a microsecond, beyond `us` */
    uint64_t us_per_tick_q32;
    int64_t ns; /* the same time, for the next rate */
};
/* One of CLOCK_REALTIME, one of CLOCK_BOOTTIME. */
extern _Thread_local struct weir__anchor weir__anchor __attribute__((tls_model("initial-exec")));
extern _Thread_local struct weir__anchor weir__boot_anchor
    __attribute__((tls_model("initial-exec")));

/* Now, by the system's own clock, and finds out whether there is a faster way. */
int64_t weir__clock_look(void);
int64_t weir__boot_look(void);

/* A fast clock. (No pointer to the anchor: UBSan would compare it with NULL by the flags of an
 * addition, which ld then replaces by a lea, which sets none.) */
#if defined(__x86_64__)
#define WEIR__FAST_CLOCK(name, anchor, look)                                                       \
    static inline int64_t name(void)                                                               \
    {                                                                                              \
        if (__builtin_expect(anchor.window != 0, 1)) {                                             \
            uint64_t since = __builtin_ia32_rdtsc() - anchor.tsc;                                  \
            if (__builtin_expect(since < anchor.window, 1))                                        \
                return anchor.us +                                                                 \
                       (int64_t)((anchor.part_q32 + since * anchor.us_per_tick_q32) >> 32);        \
        }                                                                                          \
        return look();                                                                             \
    }
#else
#define WEIR__FAST_CLOCK(name, anchor, look)                                                       \
    static inline int64_t name(void)                                                               \
    {                                                                                              \
        return look();                                                                             \
    }
#endif

/* Now, by the fast way where there is one. */
WEIR__FAST_CLOCK(weir__clock_us, weir__anchor, weir__clock_look)
/* CLOCK_BOOTTIME: as the monotonic clock, but it also counts while the machine is suspended. For
 * what must end here no later than elsewhere. */
WEIR__FAST_CLOCK(weir__boot_us, weir__boot_anchor, weir__boot_look)

/* Now, always by the system call: what the fast way is tested against. */
int64_t weir__clock_real_us(void);
/* Whether the fast way is in use. */
int weir__clock_is_fast(void);
/* CLOCK_MONOTONIC: for deadlines and for how long something took. */
static inline int64_t weir__mono_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t weir__mono_us(void)
{
    return weir__mono_ns() / 1000;
}

/* Sleeps at least that long; signals do not cut it short. */
void weir__clock_sleep_us(int64_t microseconds);

#endif

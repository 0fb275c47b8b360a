/* What bench-stalls knows of the zone's locks: it stands in front of the calls of the C library by
 * which they are taken and given back (meson.build: --wrap). */
#ifndef WEIR_STALLS_LOCKS_H
#define WEIR_STALLS_LOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline int64_t read_ns(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static inline int64_t clock_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

/* How long this thread waited for locks since it set this to 0. */
extern _Thread_local int64_t stalls_waited_ns;

/* The longest that others had a lock: in time of the processor, and by the clock. In shared memory
 * beside the zone's, so that processes that are killed have told it. */
struct stalls_held {
    _Atomic int64_t cpu_ns, wall_ns;
};

/* `beside`: this process is one of the others. */
struct stalls_held *stalls_watch(const char *zone, bool beside);
void stalls_forget(const char *zone);

#endif

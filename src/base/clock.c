/* See clock.h for what holds. */
#include "base/clock.h"
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { UNKNOWN, FAST, SLOW };

static _Atomic int mode;
_Thread_local struct weir__anchor weir__anchor, weir__boot_anchor;

static int64_t clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t weir__clock_real_us(void)
{
    return clock_read_ns(CLOCK_REALTIME) / 1000;
}

void weir__clock_sleep_us(int64_t microseconds)
{
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

#if defined(__x86_64__)
#include <cpuid.h>

#define ANCHOR_NS 1000000      /* how long an anchor serves */
#define READING_TICKS_MAX 1000 /* some 0.3 µs, ten times what a reading takes */

/* The kernel validates the TSC across cores before it uses it as its clock source: trust it
 * then. */
static int clock_detect(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8))
        return SLOW;
    char source[8] = "";
    ssize_t n = 0;
    int state; /* reading a file is a cancellation point, which verbs are not */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, source, sizeof source - 1);
        close(fd);
    }
    pthread_setcancelstate(state, NULL);
    return n >= 4 && !memcmp(source, "tsc\n", 4) ? FAST : SLOW;
}

/* Reads a clock and learns the rate from the last anchor if that is recent enough. A thread
 * held up in the middle of it knows the time, but not at which tick that was: no anchor then. */
static int64_t clock_drop_anchor(struct weir__anchor *anchor, clockid_t clock)
{
    uint64_t before = __builtin_ia32_rdtsc();
    int64_t ns = clock_read_ns(clock);
    uint64_t reading = __builtin_ia32_rdtsc() - before;
    if (reading > READING_TICKS_MAX)
        return ns;
    uint64_t tsc = before + reading / 2;
    uint64_t ticks = tsc - anchor->tsc;
    int64_t elapsed = ns - anchor->ns;
    if (anchor->ns && elapsed >= ANCHOR_NS && elapsed < 100 * ANCHOR_NS &&
        ticks < UINT64_C(1) << 40) {
        anchor->window = ticks * ANCHOR_NS / (uint64_t)elapsed;
        anchor->us_per_tick_q32 = ((uint64_t)elapsed << 32) / (ticks * 1000 | 1);
    } else if (!anchor->window && anchor->ns && elapsed >= 0 && elapsed < ANCHOR_NS) {
        return ns; /* keep the first anchor until the interval is long enough to learn from */
    }
    anchor->tsc = tsc;
    anchor->ns = ns;
    anchor->us = ns / 1000;
    anchor->part_q32 = ((uint64_t)(ns % 1000) << 32) / 1000;
    return ns;
}

static int64_t clock_look(struct weir__anchor *anchor, clockid_t clock)
{
    int how = atomic_load_explicit(&mode, memory_order_relaxed);
    if (WEIR__LIKELY(how == FAST))
        return clock_drop_anchor(anchor, clock) / 1000;
    if (how == UNKNOWN)
        atomic_store_explicit(&mode, clock_detect(), memory_order_relaxed);
    return clock_read_ns(clock) / 1000;
}
#else
static int64_t clock_look(struct weir__anchor *anchor, clockid_t clock)
{
    (void)anchor;
    atomic_store_explicit(&mode, SLOW, memory_order_relaxed);
    return clock_read_ns(clock) / 1000;
}
#endif

int64_t weir__clock_look(void)
{
    return clock_look(&weir__anchor, CLOCK_REALTIME);
}

int64_t weir__boot_look(void)
{
    return clock_look(&weir__boot_anchor, CLOCK_BOOTTIME);
}

int weir__clock_is_fast(void)
{
    weir__clock_us();
    return atomic_load_explicit(&mode, memory_order_relaxed) == FAST;
}

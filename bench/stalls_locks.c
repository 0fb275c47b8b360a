/* See stalls_locks.h. */
#include "stalls_locks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HELD_MAX = 16 };

_Thread_local int64_t stalls_waited_ns;
static bool is_beside;
static struct stalls_held *held;
static _Thread_local struct {
    const pthread_mutex_t *mutex;
    int64_t cpu_ns, wall_ns;
} since[HELD_MAX];

static void lock_is_had(const pthread_mutex_t *mutex, int code)
{
    if (!is_beside || (code != 0 && code != EOWNERDEAD))
        return;
    for (int i = 0; i < HELD_MAX; i++) {
        if (since[i].mutex)
            continue;
        since[i].mutex = mutex;
        since[i].cpu_ns = read_ns(CLOCK_THREAD_CPUTIME_ID);
        since[i].wall_ns = clock_ns();
        return;
    }
}

static void keep_longest(_Atomic int64_t *longest, int64_t ns)
{
    int64_t known = atomic_load(longest);
    while (ns > known && !atomic_compare_exchange_weak(longest, &known, ns))
        ;
}

int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __real_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until);
int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    int code = __real_pthread_mutex_trylock(mutex);
    lock_is_had(mutex, code);
    return code;
}

int __wrap_pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock,
                                   const struct timespec *until)
{
    int64_t before = clock_ns();
    int code = __real_pthread_mutex_clocklock(mutex, clock, until);
    stalls_waited_ns += clock_ns() - before;
    lock_is_had(mutex, code);
    return code;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    for (int i = 0; is_beside && i < HELD_MAX; i++) {
        if (since[i].mutex != mutex)
            continue;
        keep_longest(&held->cpu_ns, read_ns(CLOCK_THREAD_CPUTIME_ID) - since[i].cpu_ns);
        keep_longest(&held->wall_ns, clock_ns() - since[i].wall_ns);
        since[i].mutex = NULL;
    }
    return __real_pthread_mutex_unlock(mutex);
}

static const char *held_path(const char *zone)
{
    static char path[80];
    snprintf(path, sizeof path, "%s-held", zone);
    return path;
}

struct stalls_held *stalls_watch(const char *zone, bool beside)
{
    int fd = shm_open(held_path(zone), O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *held))
        abort();
    held = mmap(NULL, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (held == MAP_FAILED)
        abort();
    close(fd);
    is_beside = beside;
    return held;
}

void stalls_forget(const char *zone)
{
    shm_unlink(held_path(zone));
}

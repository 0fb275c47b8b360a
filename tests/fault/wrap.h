/*
 * Every allocation and system call of the library that can fail goes through here: the linker puts
 * __wrap_x in the place of x (-Wl,--wrap=x, the list is in the build file). While armed, the n-th
 * of them fails. What is got and given back is counted, failed or not.
 */
#ifndef WEIR_WRAP_H
#define WEIR_WRAP_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static struct {
    bool armed;
    long fail_at, calls; /* the fail_at-th call since it was armed fails */
    const char *failed;  /* its name; NULL: none did */
    bool optional;       /* the library can do without it */
    long blocks;         /* of memory not freed */
    long bytes;          /* mapped */
} fault;

/* The functions, each with whether it was ever failed. */
#define FAULTS(X)                                                                                  \
    X(malloc)                                                                                      \
    X(calloc)                                                                                      \
    X(mmap)                                                                                        \
    X(madvise)                                                                                     \
    X(open)                                                                                        \
    X(shm_open)                                                                                    \
    X(fstat)                                                                                       \
    X(fcntl)                                                                                       \
    X(ftruncate)                                                                                   \
    X(posix_fallocate)                                                                             \
    X(getrandom)                                                                                   \
    X(read)                                                                                        \
    X(pread)                                                                                       \
    X(pwrite)

#define FAULT_NAME(name) #name,
static const char *const fault_names[] = {FAULTS(FAULT_NAME)};
#define FAULT_COUNT (sizeof fault_names / sizeof fault_names[0])
static long fault_hits[FAULT_COUNT];

static inline void fault_arm(long n)
{
    fault.armed = true;
    fault.fail_at = n;
    fault.calls = 0;
    fault.failed = NULL;
    fault.optional = false;
}

static inline bool fault_strikes(const char *name)
{
    if (!fault.armed || ++fault.calls != fault.fail_at)
        return false;
    fault.failed = name;
    for (size_t i = 0; i < FAULT_COUNT; i++)
        fault_hits[i] += !strcmp(fault_names[i], name);
    return true;
}

/* With 64-bit offsets, Meson's default, the C library knows some of them under another name. */
#if defined(_FILE_OFFSET_BITS) && _FILE_OFFSET_BITS == 64
#define WIDE_REAL(name) __real_##name##64
#define WIDE_WRAP(name) __wrap_##name##64
#else
#define WIDE_REAL(name) __real_##name
#define WIDE_WRAP(name) __wrap_##name
#endif

#define WRAP_AS(type, name, real, wrap, parameters, arguments, code, failure)                      \
    type real parameters;                                                                          \
    type wrap parameters;                                                                          \
    type wrap parameters                                                                           \
    {                                                                                              \
        if (fault_strikes(name)) {                                                                 \
            errno = code;                                                                          \
            return failure;                                                                        \
        }                                                                                          \
        return real arguments;                                                                     \
    }
#define WRAP(type, name, parameters, arguments, code, failure)                                     \
    WRAP_AS(type, #name, __real_##name, __wrap_##name, parameters, arguments, code, failure)
#define WRAP_WIDE(type, name, parameters, arguments, code, failure)                                \
    WRAP_AS(type, #name, WIDE_REAL(name), WIDE_WRAP(name), parameters, arguments, code, failure)

WRAP(int, shm_open, (const char *path, int flags, mode_t mode), (path, flags, mode), EMFILE, -1)
WRAP_WIDE(int, fstat, (int fd, struct stat *ret), (fd, ret), EIO, -1)
WRAP_WIDE(int, ftruncate, (int fd, off_t size), (fd, size), EIO, -1)
WRAP_WIDE(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), 0, ENOSPC)
WRAP(ssize_t, getrandom, (void *to, size_t size, unsigned flags), (to, size, flags), ENOSYS, -1)
WRAP_WIDE(ssize_t, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), EIO, -1)
WRAP_WIDE(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at),
          ENOSPC, -1)

int WIDE_REAL(fcntl)(int fd, int command, ...);
int WIDE_WRAP(fcntl)(int fd, int command, ...);
int WIDE_WRAP(fcntl)(int fd, int command, ...)
{
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    if (fault_strikes("fcntl")) {
        errno = ENOLCK;
        return -1;
    }
    return WIDE_REAL(fcntl)(fd, command, argument);
}

/* What the system says about itself is good to know, no more. */
int WIDE_REAL(open)(const char *path, int flags, ...);
int WIDE_WRAP(open)(const char *path, int flags, ...);
int WIDE_WRAP(open)(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    if (fault_strikes("open")) {
        fault.optional = !strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5) ||
                         flags & O_DIRECTORY; /* a directory is only written to the disk */
        errno = EMFILE;
        return -1;
    }
    return WIDE_REAL(open)(path, flags, mode);
}

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size)
{
    if (fault_strikes("read")) {
        fault.optional = true;
        errno = EIO;
        return -1;
    }
    return __real_read(fd, to, size);
}

int __real_madvise(void *base, size_t size, int advice);
int __wrap_madvise(void *base, size_t size, int advice);
int __wrap_madvise(void *base, size_t size, int advice)
{
    if (fault_strikes("madvise")) {
        fault.optional = true;
        errno = EINVAL;
        return -1;
    }
    return __real_madvise(base, size, advice);
}

void *WIDE_REAL(mmap)(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *WIDE_WRAP(mmap)(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *WIDE_WRAP(mmap)(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    if (fault_strikes("mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    fault.bytes += (long)size;
    return WIDE_REAL(mmap)(at, size, protection, flags, fd, offset);
}

int __real_munmap(void *base, size_t size);
int __wrap_munmap(void *base, size_t size);
int __wrap_munmap(void *base, size_t size)
{
    fault.bytes -= (long)size;
    return __real_munmap(base, size);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    errno = ENOMEM;
    if (fault_strikes("malloc"))
        return NULL;
    fault.blocks++;
    return __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    errno = ENOMEM;
    if (fault_strikes("calloc"))
        return NULL;
    fault.blocks++;
    return __real_calloc(count, size);
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    fault.blocks -= block != NULL;
    __real_free(block);
}

#endif

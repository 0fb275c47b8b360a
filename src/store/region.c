/* See region.h; and what happens when a file goes away under a zone that is in use. */
#include "store/region.h"

#include "base/clock.h"
#include "store/zone/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_STORE 3
#define DEFAULT_SIZE (UINT64_C(64) << 20)
#define DEFAULT_LARGE_PERCENT 12
#define LOCK_PATIENCE_US 5000000
#define LOCK_PAUSE_US 1000

static const char *shown(const struct weir__region *region)
{
    return region->kind == WEIR__MEMORY ? "memory" : region->path;
}

static int system_error(const struct weir__region *region, const char *doing, weir_error *err)
{
    int code = errno == ENOMEM ? WEIR_ENOMEM : WEIR_ESYSTEM;
    return weir__fail(err, code, 0, "%s: cannot %s: %s", shown(region), doing, strerror(errno));
}

static unsigned large_share(const struct weir__region *region)
{
    return region->large_percent < 0 ? DEFAULT_LARGE_PERCENT : (unsigned)region->large_percent;
}

static int open_memory(struct weir__region *region, weir_error *err)
{
    uint64_t size = region->size ? region->size : DEFAULT_SIZE;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return system_error(region, "get that much memory", err);
    madvise(base, size, MADV_HUGEPAGE); /* fewer TLB misses where the system allows it */
    int code = weir__zone_format(base, size, large_share(region), false, &region->zone, err);
    if (code)
        munmap(base, size);
    return code;
}

/* Opens or creates, never through a symbolic link, for its owner only. */
static int open_fd(struct weir__region *region, weir_error *err)
{
    int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    region->fd = region->kind == WEIR__SHM ? shm_open(region->path, flags, 0600)
                                           : open(region->path, flags, 0600);
    if (region->fd < 0 && errno == ELOOP)
        return weir__fail(err, WEIR_ESYSTEM, 0, "%s: it is a symbolic link; name the file itself",
                          shown(region));
    return region->fd < 0 ? system_error(region, "open it for reading and writing", err) : 0;
}

static int check_owner(struct weir__region *region, struct stat *ret, weir_error *err)
{
    if (fstat(region->fd, ret))
        return system_error(region, "look at it", err);
    if (!S_ISREG(ret->st_mode))
        return weir__fail(err, WEIR_EFOREIGN, 0, "%s: it is not an ordinary file", shown(region));
    if (ret->st_uid != geteuid())
        return weir__fail(err, WEIR_EOWNER, 0,
                          "%s: it belongs to user %u, not to you (%u); choose another path",
                          shown(region), (unsigned)ret->st_uid, (unsigned)geteuid());
    if ((ret->st_mode & 0777) != 0600)
        return weir__fail(err, ret->st_mode & 0077 ? WEIR_EOWNER : WEIR_ESYSTEM, 0,
                          "%s: its permissions are %04o, a zone needs 0600: chmod 600 it if it is "
                          "yours",
                          shown(region), (unsigned)(ret->st_mode & 07777));
    return 0;
}

/* F_WRLCK or F_RDLCK. Not flock: an upgrade it refuses costs the shared lock, and with that, after
 * fork, the lock of everybody who inherited the file. */
static int try_lock(const struct weir__region *region, short type)
{
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(region->fd, F_OFD_SETLK, &whole);
}

/* The exclusive lock if nobody else has it open, else a shared one. */
static int lock_file(struct weir__region *region, bool *ret_alone, weir_error *err)
{
    for (int64_t waited = 0; waited < LOCK_PATIENCE_US; waited += LOCK_PAUSE_US) {
        if (try_lock(region, F_WRLCK) == 0) {
            *ret_alone = true;
            return 0;
        }
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return system_error(region, "lock it", err);
        if (try_lock(region, F_RDLCK) == 0) {
            *ret_alone = false;
            return 0;
        }
        weir__clock_sleep_us(LOCK_PAUSE_US);
    }
    return weir__fail(err, WEIR_EBUSY, 0,
                      "%s: another process has been opening it for %d seconds; is it stopped?",
                      shown(region), LOCK_PATIENCE_US / 1000000);
}

static void read_boot_id(uint64_t ret[2])
{
    char text[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) < 0)
            text[0] = 0;
        close(fd);
    }
    unsigned long long a = 0, b = 0, c = 0, d = 0, e = 0;
    if (sscanf(text, "%8llx-%4llx-%4llx-%4llx-%12llx", &a, &b, &c, &d, &e) == 5) {
        ret[0] = a << 32 | b << 16 | c;
        ret[1] = d << 48 | e;
    }
}

/* Whether there is no zone yet: an empty file, or one whose making was cut short. 1, 0 or -1. */
static int is_unmade(const struct weir__region *region, const struct stat *stat)
{
    uint64_t magic = 0;
    if (stat->st_size == 0)
        return 1;
    ssize_t n = pread(region->fd, &magic, sizeof magic, 0);
    return n < 0 ? -1 : n == sizeof magic && magic == WEIR__ZONE_UNMADE;
}

static int map_file(struct weir__region *region, uint64_t size, uint8_t **ret, weir_error *err)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    if (base == MAP_FAILED)
        return system_error(region, "map it", err);
    *ret = base;
    return 0;
}

/* Puts the path before a message that has none yet. */
static int name_it(const struct weir__region *region, int code, weir_error *err)
{
    if (code && err) {
        char message[sizeof err->message];
        memcpy(message, err->message, sizeof message);
        snprintf(err->message, sizeof err->message, "%.200s: %.300s", shown(region), message);
    }
    return code;
}

/* Empty but for the mark of a zone in the making, its space reserved; 0 or an errno. */
static int reserve_space(const struct weir__region *region, uint64_t size)
{
    const uint64_t magic = WEIR__ZONE_UNMADE;
    if (ftruncate(region->fd, 0) || pwrite(region->fd, &magic, sizeof magic, 0) < 0)
        return errno;
    int code;
    do
        code = posix_fallocate(region->fd, 0, (off_t)size);
    while (code == EINTR);
    return code;
}

static int make_zone(struct weir__region *region, weir_error *err)
{
    uint64_t size = region->size ? region->size : DEFAULT_SIZE;
    uint8_t *base = NULL;
    errno = reserve_space(region, size);
    if (errno)
        return system_error(region, "reserve its space", err);
    int code = map_file(region, size, &base, err);
    if (code)
        return code;
    code = weir__zone_format(base, size, large_share(region), true, &region->zone, err);
    if (code)
        munmap(base, size);
    return name_it(region, code, err);
}

static int refuse_other_size(const struct weir__region *region, weir_error *err)
{
    const struct weir__zone *zone = &region->zone;
    if (region->size && region->size != zone->layout.size)
        return weir__fail(err, WEIR_EURL, 0,
                          "it has %llu bytes, not %llu; leave the size out or remove it",
                          (unsigned long long)zone->layout.size, (unsigned long long)region->size);
    if (region->large_percent >= 0 &&
        (unsigned)region->large_percent != zone->header->large_percent)
        return weir__fail(err, WEIR_EURL, 0, "it has large=%u%%; leave that out or remove it",
                          zone->header->large_percent);
    return 0;
}

static int open_zone(struct weir__region *region, uint64_t size, bool alone, weir_error *err)
{
    uint8_t *base = NULL;
    uint64_t magic = 0;
    ssize_t n = pread(region->fd, &magic, sizeof magic, 0);
    if (n < 0)
        return system_error(region, "read it", err);
    if (n < (ssize_t)sizeof magic || magic != WEIR__ZONE_MAGIC)
        return weir__fail(err, WEIR_EFOREIGN, 0, "%s: it is not a weir zone; choose another path",
                          shown(region));
    if (size < WEIR__ZONE_SIZE_MIN)
        return weir__fail(
            err, WEIR_ETRUNCATED, 0,
            "%s: it is truncated to %llu bytes; remove it and let weir make a new one",
            shown(region), (unsigned long long)size);
    int code = map_file(region, size, &base, err);
    if (code)
        return code;
    code = weir__zone_attach(base, size, true, &region->zone, err);
    if (code == 0)
        code = refuse_other_size(region, err);
    if (code == 0 && alone)
        code = weir__zone_recover(&region->zone, err);
    if (code)
        munmap(base, size);
    else if (size > region->zone.layout.size)
        munmap(base + region->zone.layout.size, size - region->zone.layout.size);
    return name_it(region, code, err);
}

/* Maps a file of ours, made or opened; `alone` says whether we may change what nobody else uses. */
static int open_locked(struct weir__region *region, bool alone, weir_error *err)
{
    struct stat stat;
    int code = check_owner(region, &stat, err);
    if (code)
        return code;
    int unmade = alone ? is_unmade(region, &stat) : 0;
    if (unmade < 0)
        return system_error(region, "read it", err);
    code = unmade ? make_zone(region, err) : open_zone(region, (uint64_t)stat.st_size, alone, err);
    if (code && unmade && region->kind == WEIR__FILE)
        unlink(region->path);
    else if (code && unmade)
        shm_unlink(region->path);
    if (code)
        return code;
    struct weir__zone_header *header = region->zone.header;
    if (alone)
        read_boot_id(header->boot);
    header->dirty = 1;
    return 0;
}

/* Opens and locks the file the path names now: one that was removed meanwhile is tried again. */
static int open_linked(struct weir__region *region, bool *ret_alone, weir_error *err)
{
    for (;;) {
        struct stat stat;
        int code = open_fd(region, err);
        if (code == 0)
            code = lock_file(region, ret_alone, err);
        if (code)
            return code;
        if (fstat(region->fd, &stat))
            return system_error(region, "look at it", err);
        if (stat.st_nlink > 0)
            return 0;
        close(region->fd);
    }
}

int weir__region_open(struct weir__region *region, weir_error *err)
{
    if (region->kind == WEIR__MEMORY)
        return open_memory(region, err);
    bool alone = false;
    int code = open_linked(region, &alone, err);
    if (code == 0)
        code = open_locked(region, alone, err);
    if (code == 0 && alone && try_lock(region, F_RDLCK)) {
        code = system_error(region, "share it", err);
        munmap(region->zone.base, region->zone.layout.size);
    }
    if (code && region->fd >= 0)
        close(region->fd);
    return code;
}

/* The last one out marks the zone clean. The lock is shared again before it is left: a child that
 * inherited the file keeps it as it is. */
void weir__region_close(struct weir__region *region)
{
    if (region->fd >= 0 && try_lock(region, F_WRLCK) == 0) {
        /* Having every lock once means having repaired what the dead left under theirs. */
        weir__zone_be_patient(&region->zone, 0);
        bool all = weir__stripes_lock_all(&region->zone);
        assert(all);
        weir__stripes_unlock_all(&region->zone);
        region->zone.header->dirty = all ? 0 : 1;
        try_lock(region, F_RDLCK);
    }
    if (region->kind != WEIR__BORROWED)
        munmap(region->zone.base, region->zone.layout.size);
    if (region->fd >= 0)
        close(region->fd);
}

/* ---- files that go away ---- */

/* Memory behind a file that was truncated cannot be read: the kernel sends SIGBUS. A library installs
 * no handlers, so programs of ours ask for this one. */
static struct {
    const uint8_t *base;
    uint64_t size;
    char words[512];
} guarded;

static void guard_speaks(int number, siginfo_t *info, void *context)
{
    const uint8_t *at = info->si_addr;
    (void)context;
    if (at < guarded.base || at >= guarded.base + guarded.size) {
        signal(number, SIG_DFL); /* none of ours: it comes again, and ends us */
        return;
    }
    ssize_t written = write(STDERR_FILENO, guarded.words, strlen(guarded.words));
    (void)written;
    _exit(EXIT_STORE);
}

void weir__store_guard(weir_store *store, const char *program, const char *url)
{
    const struct weir__region *region = weir__store_region(store);
    if (!region || region->fd < 0)
        return;
    guarded.base = region->zone.base;
    guarded.size = region->zone.layout.size;
    snprintf(
        guarded.words, sizeof guarded.words,
        "%s: the store %.300s was truncated while it was in use, and its state is gone; remove "
        "it and start again\n",
        program, url);
    struct sigaction action = {.sa_sigaction = guard_speaks, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

enum weir__file_state weir__store_file_state(weir_store *store)
{
    const struct weir__region *region = weir__store_region(store);
    struct stat open_one, there;
    char path[sizeof region->path + 16];
    if (!region || region->fd < 0 || fstat(region->fd, &open_one))
        return WEIR__FILE_THERE;
    if ((uint64_t)open_one.st_size < region->zone.layout.size)
        return WEIR__FILE_TRUNCATED;
    snprintf(path, sizeof path, "%s%s", region->kind == WEIR__SHM ? "/dev/shm" : "", region->path);
    bool same = stat(path, &there) == 0 && there.st_dev == open_one.st_dev &&
                there.st_ino == open_one.st_ino;
    return same ? WEIR__FILE_THERE : WEIR__FILE_GONE;
}

/* See region.h: opening, making, closing. */
#include "store/region.h"

#include "base/clock.h"
#include "store/zone/carry.h"
#include "store/zone/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_SIZE (UINT64_C(64) << 20)
#define DEFAULT_LARGE_PERCENT 12
#define LOCK_PATIENCE_US 5000000
#define LOCK_PAUSE_US 1000
#define REPLACED_MAX 100 /* how often a file may be replaced while it is opened */

const char *weir__region_shown(const struct weir__region *region)
{
    return region->kind == WEIR__MEMORY ? "memory" : region->path;
}

void weir__region_path(const struct weir__region *region, char ret[WEIR__REGION_PATH_MAX])
{
    snprintf(ret, WEIR__REGION_PATH_MAX, "%s%s", region->kind == WEIR__SHM ? "/dev/shm" : "",
             region->path);
}

int weir__region_fail(const struct weir__region *region, const char *doing, weir_error *err)
{
    int code = errno == ENOMEM ? WEIR_ENOMEM : WEIR_ESYSTEM;
    return weir__fail(err, code, 0, "%s: cannot %s: %s", weir__region_shown(region), doing,
                      strerror(errno));
}

static unsigned region_large_share(const struct weir__region *region)
{
    return region->large_percent < 0 ? DEFAULT_LARGE_PERCENT : (unsigned)region->large_percent;
}

static int region_open_memory(struct weir__region *region, weir_error *err)
{
    uint64_t size = region->size ? region->size : DEFAULT_SIZE;
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return weir__region_fail(region, "get that much memory", err);
    madvise(base, size, MADV_HUGEPAGE); /* fewer TLB misses where the system allows it */
    int code = weir__zone_format(base, size, region_large_share(region), false, &region->zone, err);
    if (code)
        munmap(base, size);
    return code;
}

/* ---- the file ---- */

/* Never through a symbolic link. A new one is its owner's only, until it is given to a group. */
int weir__region_open_fd(const struct weir__region *region, int flags)
{
    flags |= O_RDWR | O_NOFOLLOW | O_CLOEXEC;
    return region->kind == WEIR__SHM ? shm_open(region->path, flags, WEIR__MODE_OWN)
                                     : open(region->path, flags, WEIR__MODE_OWN);
}

void weir__region_unlink(const struct weir__region *region)
{
    if (region->kind == WEIR__SHM)
        shm_unlink(region->path);
    else
        unlink(region->path);
}

/* Whether somebody of another user has just made the file, and has not given it to the group
 * yet. */
static bool region_is_begun(const struct weir__region *region)
{
    struct stat there;
    char path[WEIR__REGION_PATH_MAX];
    weir__region_path(region, path);
    return stat(path, &there) == 0 && S_ISREG(there.st_mode) && there.st_size == 0 &&
           (there.st_mode & 0777) != region->mode;
}

/* Whose it is, if that can be seen. */
static int region_fail_access(const struct weir__region *region, weir_error *err)
{
    char path[WEIR__REGION_PATH_MAX];
    struct stat there;
    weir__region_path(region, path);
    if (stat(path, &there)) {
        errno = EACCES;
        return weir__region_fail(region, "open it for reading and writing", err);
    }
    bool shared = (there.st_mode & 0777) == WEIR__MODE_GROUP;
    return weir__fail(
        err, WEIR_ESYSTEM, 0,
        "%s: cannot open it: Permission denied: it belongs to user %u, group %u, with "
        "permissions %04o, and you are user %u; run as user %u, or %s",
        weir__region_shown(region), (unsigned)there.st_uid, (unsigned)there.st_gid,
        (unsigned)(there.st_mode & 07777), (unsigned)geteuid(), (unsigned)there.st_uid,
        shared ? "as a member of its group"
               : "remove it and share it by mode=0660&group=NAME in all addresses");
}

static int region_fail_absent(const struct weir__region *region, weir_error *err)
{
    return weir__fail(err, WEIR_ESYSTEM, 0,
                      "%s: there is no zone; check its name, or start the program that makes it",
                      weir__region_shown(region));
}

/* Opens what is there, or creates it. One after the other: in directories like /dev/shm the system
 * does not open files of others for who would create them. */
static int region_open_or_create(struct weir__region *region, weir_error *err)
{
    int64_t waited = 0;
    for (;;) {
        region->fd = weir__region_open_fd(region, 0);
        if (region->fd < 0 && errno == ENOENT && !region->present)
            region->fd = weir__region_open_fd(region, O_CREAT | O_EXCL);
        if (region->fd >= 0)
            return 0;
        int why = errno;
        if (why == EEXIST)
            continue;
        bool waits = why == EACCES && waited < LOCK_PATIENCE_US && region_is_begun(region);
        errno = why;
        if (!waits)
            break;
        weir__clock_sleep_us(LOCK_PAUSE_US);
        waited += LOCK_PAUSE_US;
    }
    if (errno == ENOENT && region->present)
        return region_fail_absent(region, err);
    if (errno == ELOOP)
        return weir__fail(err, WEIR_ESYSTEM, 0, "%s: it is a symbolic link; name the file itself",
                          weir__region_shown(region));
    return errno == EACCES ? region_fail_access(region, err)
                           : weir__region_fail(region, "open it for reading and writing", err);
}

/* Not flock: an upgrade it refuses costs the shared lock, and with that, after fork, the lock of
 * everybody who inherited the file. */
int weir__region_try_lock(const struct weir__region *region, short type)
{
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(region->fd, F_OFD_SETLK, &whole);
}

/* The exclusive lock if nobody else has it open, else a shared one. */
static int region_lock(struct weir__region *region, bool *ret_alone, weir_error *err)
{
    for (int64_t waited = 0; waited < LOCK_PATIENCE_US; waited += LOCK_PAUSE_US) {
        if (weir__region_try_lock(region, F_WRLCK) == 0) {
            *ret_alone = true;
            return 0;
        }
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return weir__region_fail(region, "lock it", err);
        if (weir__region_try_lock(region, F_RDLCK) == 0) {
            *ret_alone = false;
            return 0;
        }
        weir__clock_sleep_us(LOCK_PAUSE_US);
    }
    return weir__fail(err, WEIR_EBUSY, 0,
                      "%s: another process has been opening it for %d seconds; is it stopped?",
                      weir__region_shown(region), LOCK_PATIENCE_US / 1000000);
}

/* Whether the open file is the one at the path: 1, 0, or -1 with errno. */
static int region_is_linked(const struct weir__region *region)
{
    struct stat open_one, there;
    char path[WEIR__REGION_PATH_MAX];
    weir__region_path(region, path);
    if (fstat(region->fd, &open_one))
        return -1;
    if (open_one.st_nlink == 0 || stat(path, &there))
        return 0;
    return there.st_dev == open_one.st_dev && there.st_ino == open_one.st_ino;
}

int weir__region_open_file(struct weir__region *region, bool *ret_alone, weir_error *err)
{
    for (int tries = 0; tries < REPLACED_MAX; tries++) {
        int code = region_open_or_create(region, err);
        if (code == 0)
            code = region_lock(region, ret_alone, err);
        if (code)
            return code;
        int linked = region_is_linked(region);
        if (linked < 0)
            return weir__region_fail(region, "look at it", err);
        if (linked)
            return 0;
        close(region->fd); /* it was removed or replaced before we had the lock */
        region->fd = -1;
    }
    return weir__fail(err, WEIR_EBUSY, 0, "%s: somebody replaces it again and again",
                      weir__region_shown(region));
}

/* ---- whose it is ---- */

static int region_check_own(const struct weir__region *region, const struct stat *stat,
                            weir_error *err)
{
    unsigned mode = stat->st_mode & 0777;
    if (stat->st_uid != geteuid())
        return weir__fail(err, WEIR_EOWNER, 0,
                          "%s: it belongs to user %u, not to you (%u); run as user %u, choose "
                          "another path, or share it by mode=0660&group=NAME",
                          weir__region_shown(region), (unsigned)stat->st_uid, (unsigned)geteuid(),
                          (unsigned)stat->st_uid);
    if (mode != WEIR__MODE_OWN)
        return weir__fail(
            err, mode & 0077 ? WEIR_EOWNER : WEIR_ESYSTEM, 0,
            "%s: its permissions are %04o, this address needs 0600: chmod 600 it if it "
            "is yours%s",
            weir__region_shown(region), (unsigned)(stat->st_mode & 07777),
            mode == WEIR__MODE_GROUP ? ", or add mode=0660&group=NAME" : "");
    return 0;
}

/* Whoever owns it: its group could only be given by a member. */
static int region_check_group(const struct weir__region *region, const struct stat *stat,
                              weir_error *err)
{
    unsigned mode = stat->st_mode & 0777, group = region->group;
    if (stat->st_gid != region->group)
        return weir__fail(
            err, WEIR_EOWNER, 0,
            "%s: it belongs to group %u, the address asks for %u; chgrp %u it if it is "
            "yours, or change the address",
            weir__region_shown(region), (unsigned)stat->st_gid, group, group);
    if (mode != WEIR__MODE_GROUP)
        return weir__fail(
            err, WEIR_EOWNER, 0,
            "%s: its permissions are %04o, the address asks for 0660: chmod 660 it if "
            "it is yours",
            weir__region_shown(region), (unsigned)(stat->st_mode & 07777));
    return 0;
}

/* What the address asks for, whatever the umask is. */
static int region_give(const struct weir__region *region, weir_error *err)
{
    if (region->mode == WEIR__MODE_GROUP && fchown(region->fd, (uid_t)-1, region->group))
        return weir__fail(err, WEIR_ESYSTEM, 0,
                          "%s: cannot give it to group %u: %s; is user %u a member of it?",
                          weir__region_shown(region), (unsigned)region->group, strerror(errno),
                          (unsigned)geteuid());
    return fchmod(region->fd, region->mode) ? weir__region_fail(region, "set its mode", err) : 0;
}

/* Whether there is no zone yet: an empty file, or one whose making was cut short. 1, 0 or -1. */
static int region_is_unmade(const struct weir__region *region, const struct stat *stat)
{
    uint64_t magic = 0;
    if (stat->st_size == 0)
        return 1;
    ssize_t n = pread(region->fd, &magic, sizeof magic, 0);
    return n < 0 ? -1 : n == sizeof magic && magic == WEIR__ZONE_UNMADE;
}

int weir__region_check_file(struct weir__region *region, bool alone, struct stat *ret,
                            bool *ret_unmade, weir_error *err)
{
    if (fstat(region->fd, ret))
        return weir__region_fail(region, "look at it", err);
    if (!S_ISREG(ret->st_mode))
        return weir__fail(err, WEIR_EFOREIGN, 0, "%s: it is not an ordinary file",
                          weir__region_shown(region));
    int unmade = alone ? region_is_unmade(region, ret) : 0;
    if (unmade < 0)
        return weir__region_fail(region, "read it", err);
    if (unmade && region->present)
        return weir__fail(err, WEIR_EFOREIGN, 0, "%s: it is not a weir zone: it is empty",
                          weir__region_shown(region));
    *ret_unmade = unmade;
    if (unmade && ret->st_uid == geteuid() && (ret->st_mode & 0177) == 0)
        return 0; /* made by us, now or before a crash: nobody else can have it open */
    return region->mode == WEIR__MODE_GROUP ? region_check_group(region, ret, err)
                                            : region_check_own(region, ret, err);
}

/* ---- the zone in it ---- */

static void region_read_boot_id(uint64_t ret[2])
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

static int region_map(struct weir__region *region, uint64_t size, uint8_t **ret, weir_error *err)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    if (base == MAP_FAILED)
        return weir__region_fail(region, "map it", err);
    *ret = base;
    return 0;
}

/* Puts the path before a message that has none yet. */
static int region_name_it(const struct weir__region *region, int code, weir_error *err)
{
    if (code && err) {
        char message[sizeof err->message];
        memcpy(message, err->message, sizeof message);
        snprintf(err->message, sizeof err->message, "%.200s: %.300s", weir__region_shown(region),
                 message);
    }
    return code;
}

/* Empty but for the mark of a zone in the making, its space reserved; 0 or an errno. */
static int region_reserve_space(const struct weir__region *region, uint64_t size)
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

int weir__region_make(struct weir__region *region, weir_error *err)
{
    uint64_t size = region->size ? region->size : DEFAULT_SIZE;
    uint8_t *base = NULL;
    int code = region_give(region, err);
    if (code)
        return code;
    errno = region_reserve_space(region, size);
    if (errno)
        return weir__region_fail(region, "reserve its space", err);
    code = region_map(region, size, &base, err);
    if (code)
        return code;
    code = weir__zone_format(base, size, region_large_share(region), true, &region->zone, err);
    if (code)
        munmap(base, size);
    return region_name_it(region, code, err);
}

static int region_attach(struct weir__region *region, uint64_t size, bool alone, weir_error *err)
{
    uint8_t *base = NULL;
    int code = region_map(region, size, &base, err);
    if (code)
        return code;
    if (alone)
        weir__zone_raise(base);
    code = weir__zone_attach(base, size, true, &region->zone, err);
    if (code == 0 && alone)
        code = weir__zone_recover(&region->zone, err);
    if (code)
        munmap(base, size);
    else if (size > region->zone.layout.size)
        munmap(base + region->zone.layout.size, size - region->zone.layout.size);
    return region_name_it(region, code, err);
}

/* Whether the address asks for another zone than the one that is there. */
static bool region_is_other(const struct weir__region *region)
{
    const struct weir__zone *zone = &region->zone;
    return (region->size && region->size != zone->layout.size) ||
           (region->large_percent >= 0 &&
            (unsigned)region->large_percent != zone->header->large_percent);
}

static int region_refuse_other(const struct weir__region *region, weir_error *err)
{
    const struct weir__zone *zone = &region->zone;
    uint64_t size = zone->layout.size;
    const char *unit = weir__region_unit(&size);
    return weir__fail(
        err, WEIR_EURL, 0,
        "%s: it has size=%llu%s and large=%u%%, and another process has it open; end that "
        "process, and the states are carried over, or leave size and large out",
        weir__region_shown(region), (unsigned long long)size, unit, zone->header->large_percent);
}

static int region_open_present(struct weir__region *region, uint64_t size, bool alone,
                               weir_error *err)
{
    int code = region_attach(region, size, alone, err);
    if (code || !region_is_other(region))
        return code;
    code = alone ? weir__region_resize(region, err) : region_refuse_other(region, err);
    if (code)
        munmap(region->zone.base, region->zone.layout.size);
    return code;
}

int weir__region_open_zone(struct weir__region *region, uint64_t size, bool alone, weir_error *err)
{
    struct {
        uint64_t magic;
        uint32_t version;
    } start = {0};
    ssize_t n = pread(region->fd, &start, sizeof start, 0);
    if (n < 0)
        return weir__region_fail(region, "read it", err);
    if (n < (ssize_t)sizeof start.magic || start.magic != WEIR__ZONE_MAGIC)
        return weir__fail(err, WEIR_EFOREIGN, 0, "%s: it is not a weir zone; choose another path",
                          weir__region_shown(region));
    if (size < WEIR__ZONE_SIZE_MIN)
        return weir__fail(err, WEIR_ETRUNCATED, 0,
                          "%s: it is truncated to %llu bytes; " WEIR__ZONE_REMEDY,
                          weir__region_shown(region), (unsigned long long)size);
    bool is_older = start.version == WEIR__ZONE1_VERSION || start.version == WEIR__ZONE2_VERSION;
    if (is_older && !alone)
        return weir__fail(
            err, WEIR_EVERSION, 0,
            "%s: it is a zone of version %u, and a process of that version has it open; "
            "end that process, and the states are carried over",
            weir__region_shown(region), start.version);
    if (start.version != WEIR__ZONE1_VERSION)
        return region_open_present(region, size, alone, err);
    return weir__region_upgrade(region, size, err);
}

/* Maps a file of ours, made or opened; `alone` says whether we may change what nobody else uses. */
static int region_open_locked(struct weir__region *region, bool alone, weir_error *err)
{
    struct stat stat;
    bool unmade = false;
    int code = weir__region_check_file(region, alone, &stat, &unmade, err);
    if (code)
        return code;
    code = unmade ? weir__region_make(region, err)
                  : weir__region_open_zone(region, (uint64_t)stat.st_size, alone, err);
    if (code && unmade)
        weir__region_unlink(region);
    if (code)
        return code;
    region->made = unmade;
    struct weir__zone_header *header = region->zone.header;
    if (alone)
        region_read_boot_id(header->boot);
    header->dirty = 1;
    return 0;
}

int weir__region_open(struct weir__region *region, weir_error *err)
{
    assert(region->fd < 0 && !region->zone.base);
    if (region->kind == WEIR__MEMORY)
        return region_open_memory(region, err);
    bool alone = false;
    int code = weir__region_open_file(region, &alone, err);
    if (code == 0)
        code = region_open_locked(region, alone, err);
    bool mapped = code == 0;
    if (mapped)
        code = weir__region_watch(region, err);
    if (code == 0 && alone && weir__region_try_lock(region, F_RDLCK))
        code = weir__region_fail(region, "share it", err);
    if (code && mapped)
        munmap(region->zone.base, region->zone.layout.size);
    if (code && region->fd >= 0)
        close(region->fd);
    return code;
}

/* The last one out marks the zone clean. The lock is shared again before it is left: a child that
 * inherited the file keeps it as it is. */
void weir__region_close(struct weir__region *region)
{
    if (region->fd >= 0 && weir__region_is_whole(region) &&
        weir__region_try_lock(region, F_WRLCK) == 0) {
        /* Having every lock once means having repaired what the dead left under theirs. */
        weir__zone_be_patient(&region->zone, 0);
        bool all = weir__stripes_lock_all(&region->zone);
        assert(all);
        weir__stripes_unlock_all(&region->zone);
        region->zone.header->dirty = all ? 0 : 1;
        weir__region_try_lock(region, F_RDLCK);
    }
    if (region->kind != WEIR__BORROWED)
        munmap(region->zone.base, region->zone.layout.size);
    if (region->fd >= 0)
        close(region->fd);
}

/* ---- what was opened, for people ---- */

static void region_put_size(uint64_t size, unsigned large_percent, struct weir__buffer *out)
{
    const char *unit = weir__region_unit(&size);
    weir__put_format(out, "size=%llu%s large=%u%%", (unsigned long long)size, unit, large_percent);
}

void weir__store_put_origin(weir_store *store, struct weir__buffer *out)
{
    const struct weir__region *region = weir__store_region(store);
    weir_zone_info info;
    if (!region || region->fd < 0)
        return;
    weir__put_text(out, region->kind == WEIR__FILE ? region->watched : region->path);
    if (region->made) {
        weir__put_text(out, " (a new zone, ");
        region_put_size(region->zone.layout.size, region->zone.header->large_percent, out);
        weir__put_text(out, ")");
    } else if (weir_store_info(store, &info) == 0)
        weir__put_format(out, " (opened, %llu state%s)", (unsigned long long)info.keys,
                         info.keys == 1 ? "" : "s");
    else
        weir__put_text(out, " (opened)"); /* somebody holds its locks */
}

void weir__store_put_change(weir_store *store, struct weir__buffer *out)
{
    const struct weir__region *region = weir__store_region(store);
    if (!region || region->size_before == 0)
        return;
    region_put_size(region->size_before, region->large_percent_before, out);
    weir__put_text(out, ", now ");
    region_put_size(region->zone.layout.size, region->zone.header->large_percent, out);
}

/*
 * Zones made again: in another size, of the version before, or with states from elsewhere.
 *
 * The new zone is made beside the old one, complete and checked, under a name of its own, and then
 * renamed over it. Who does that holds the exclusive lock of both files: nobody has the old one
 * open, and who opens the path meanwhile waits, finds that its file is no longer there, and opens
 * the new one. A crash leaves the old zone, or the new one; and perhaps the beginning of a new one,
 * which the next attempt removes. Power that fails does the same: the new file is on the disk
 * before it gets its name.
 */
#include "store/region.h"

#include "base/clock.h"
#include "store/zone/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BESIDE ".carry" /* the name of the new zone until it is complete */
#define BEFORE ".v1"    /* the name of a zone of version 1 after it was carried over: files only */

/* What a zone is made again from. */
struct remake {
    uint64_t size;
    unsigned large_percent;
    const uint64_t *secret;
    struct weir__zone *from; /* NULL: nothing */
    const struct weir__zone1 *from1;
    const struct weir__load *load; /* NULL: nothing */
    bool may_evict;                /* full is full: the zone was made no smaller */
    bool keeps;                    /* the old file gets another name */
};

static void remake_forget(struct weir__region *region)
{
    if (region->zone.base)
        munmap(region->zone.base, region->zone.layout.size);
    if (region->fd >= 0)
        close(region->fd);
    region->zone.base = NULL;
    region->fd = -1;
}

/* ---- what goes into it ---- */

struct put {
    struct weir__zone *to;
    int64_t now_us;
};

static int remake_put(const struct weir__carried *it, void *context, weir_error *err)
{
    const struct put *put = context;
    return weir__zone_put(put->to, it, put->now_us, err);
}

static int remake_fill(struct weir__zone *to, const struct remake *how, weir_error *err)
{
    struct put put = {to, weir__clock_us()};
    int code = 0;
    if (how->from)
        code = weir__zone_walk(how->from, remake_put, &put, err);
    if (code == 0 && how->from1)
        code = weir__zone1_walk(how->from1, remake_put, &put, err);
    if (code == 0 && how->load)
        code = how->load->fill(to, how->load->context, err);
    return code;
}

/* ---- the file beside it ---- */

/* The region beside another, with another name. */
static int remake_name(const struct weir__region *region, const char *suffix,
                       struct weir__region *ret, weir_error *err)
{
    *ret = (struct weir__region){.kind = region->kind,
                                 .large_percent = -1,
                                 .mode = region->mode,
                                 .group = region->group,
                                 .fd = -1};
    int len = snprintf(ret->path, sizeof ret->path, "%s%s", region->path, suffix);
    if (len >= (int)sizeof ret->path)
        return weir__fail(err, WEIR_EURL, 0, "%.200s…: the path is too long", region->path);
    return 0;
}

/* Removes what a crash left under a name that is needed; anything but an unused zone is left, and
 * refused. */
static int remake_clear(struct weir__region *region, weir_error *err)
{
    uint64_t magic = 0;
    struct stat stat;
    region->fd = weir__region_open_fd(region, 0);
    if (region->fd < 0 && errno == ENOENT)
        return 0;
    if (region->fd < 0)
        return weir__region_fail(region, "open it for reading and writing", err);
    ssize_t n = -1;
    if (fstat(region->fd, &stat) == 0 && S_ISREG(stat.st_mode))
        n = pread(region->fd, &magic, sizeof magic, 0);
    bool ours =
        n == 0 || (n == sizeof magic && (magic == WEIR__ZONE_UNMADE || magic == WEIR__ZONE_MAGIC));
    if (ours && weir__region_try_lock(region, F_WRLCK) == 0)
        weir__region_unlink(region);
    else
        ours = false;
    close(region->fd);
    region->fd = -1;
    return ours ? 0
                : weir__fail(err, WEIR_ESYSTEM, 0,
                             "%s: it is in the way: this name is needed for a moment; rename it",
                             weir__region_shown(region));
}

/* An empty zone under its own name, its lock ours. */
static int remake_begin(struct weir__region *next, const struct remake *how, weir_error *err)
{
    int code = remake_clear(next, err);
    if (code)
        return code;
    next->size = how->size;
    next->large_percent = (int)how->large_percent;
    next->fd = weir__region_open_fd(next, O_CREAT | O_EXCL);
    if (next->fd < 0)
        return weir__region_fail(next, "create it", err);
    if (weir__region_try_lock(next, F_WRLCK))
        code = weir__region_fail(next, "lock it", err);
    if (code == 0)
        code = weir__region_make(next, err);
    if (code == 0)
        weir__zone_set_secret(&next->zone, how->secret);
    return code;
}

/* On the disk, and then under the other's name. */
static int remake_rename(const struct weir__region *region, const struct weir__region *next,
                         weir_error *err)
{
    char from[WEIR__REGION_PATH_MAX], to[WEIR__REGION_PATH_MAX];
    weir__region_path(next, from);
    weir__region_path(region, to);
    if (region->kind == WEIR__FILE && fsync(next->fd))
        return weir__region_fail(next, "write it to the disk", err);
    if (rename(from, to))
        return weir__fail(
            err, WEIR_ESYSTEM, 0,
            "%s: cannot replace it: %s; its owner and who may write its directory can",
            weir__region_shown(region), strerror(errno));
    if (region->kind != WEIR__FILE)
        return 0;
    char *slash = strrchr(to, '/');
    if (slash)
        slash[1] = 0;
    int fd = open(slash ? to : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* of use against power that fails; without it the old zone may come back */
        close(fd);
    }
    return 0;
}

/* The old file under a second name, so that one can go back to the program before. */
static int remake_keep(const struct weir__region *region, weir_error *err)
{
    struct weir__region kept;
    int code = remake_name(region, BEFORE, &kept, err);
    if (code == 0)
        code = remake_clear(&kept, err);
    if (code == 0 && link(region->path, kept.path))
        code = weir__region_fail(&kept, "keep the old zone under this name", err);
    return code;
}

static int remake_check(const struct weir__region *region, struct weir__region *next,
                        const struct remake *how, weir_error *err)
{
    weir_zone_info info;
    int code = weir__zone_check(&next->zone, err);
    if (code == 0)
        code = weir__zone_info(&next->zone, &info);
    if (code)
        return code;
    if (how->may_evict || info.evicted_unused + info.evicted_soonest == 0)
        return 0;
    uint64_t size = how->size;
    const char *unit = weir__region_unit(&size);
    return weir__fail(
        err, WEIR_EFULL, 0,
        "%s: its states do not fit into size=%llu%s and large=%u%%; use a larger size",
        weir__region_shown(region), (unsigned long long)size, unit, how->large_percent);
}

static int remake(struct weir__region *region, const struct remake *how, weir_error *err)
{
    struct weir__region next;
    int code = remake_name(region, BESIDE, &next, err);
    if (code)
        return code;
    code = remake_begin(&next, how, err);
    if (code == 0)
        code = remake_fill(&next.zone, how, err);
    if (code == 0)
        code = remake_check(region, &next, how, err);
    if (code == 0 && how->keeps)
        code = remake_keep(region, err);
    if (code == 0)
        code = remake_rename(region, &next, err);
    if (code) {
        if (next.fd >= 0)
            weir__region_unlink(&next);
        remake_forget(&next);
        return code;
    }
    remake_forget(region); /* whoever waits for its lock sees that it is gone */
    region->fd = next.fd;
    region->zone = next.zone;
    return 0;
}

/* ---- for whom ---- */

static void remake_note(struct weir__region *region, uint64_t size, unsigned large_percent)
{
    region->size_before = size;
    region->large_percent_before = large_percent;
}

int weir__region_resize(struct weir__region *region, weir_error *err)
{
    struct weir__zone old = region->zone;
    unsigned large = old.header->large_percent;
    struct remake how = {.size = region->size ? region->size : old.layout.size,
                         .large_percent =
                             region->large_percent < 0 ? large : (unsigned)region->large_percent,
                         .secret = old.secret,
                         .from = &old};
    uint64_t size = old.layout.size;
    int code = remake(region, &how, err);
    if (code == 0)
        remake_note(region, size, large);
    return code;
}

int weir__region_upgrade(struct weir__region *region, uint64_t size, weir_error *err)
{
    struct weir__zone1 old;
    void *base = mmap(NULL, size, PROT_READ, MAP_SHARED, region->fd, 0);
    if (base == MAP_FAILED)
        return weir__region_fail(region, "map it", err);
    int code = weir__zone1_attach(base, size, &old, err);
    if (code == 0) {
        uint64_t wanted = region->size ? region->size : old.size;
        struct remake how = {.size = wanted,
                             .large_percent = region->large_percent < 0
                                                  ? old.large_percent
                                                  : (unsigned)region->large_percent,
                             .secret = old.secret,
                             .from1 = &old,
                             .may_evict = wanted >= old.size && !region->keeps,
                             .keeps = region->kind == WEIR__FILE};
        code = remake(region, &how, err);
        if (code == 0)
            remake_note(region, old.size, old.large_percent);
    }
    munmap(base, size);
    return code;
}

/* ---- loading ---- */

/* Adds to what is there, or to nothing. */
static int remake_load(struct weir__region *region, bool unmade, const struct weir__load *load,
                       weir_error *err)
{
    struct weir__zone old = region->zone;
    struct remake how = {.size = load->size,
                         .large_percent = load->large_percent,
                         .secret = load->secret,
                         .load = load};
    if (!unmade) {
        weir_zone_info info;
        int code = weir__zone_info(&old, &info);
        if (code)
            return code;
        bool same = !memcmp(old.secret, load->secret, sizeof old.secret);
        if (!same && info.keys > 0)
            return weir__fail(
                err, WEIR_EFOREIGN, 0,
                "%s: it has %llu states and another secret than the file: keys of both "
                "cannot be told apart; load into a new zone",
                weir__region_shown(region), (unsigned long long)info.keys);
        how.size = old.layout.size;
        how.large_percent = old.header->large_percent;
        how.from = same ? &old : NULL;
    }
    if (region->size)
        how.size = region->size;
    if (region->large_percent >= 0)
        how.large_percent = (unsigned)region->large_percent;
    return remake(region, &how, err);
}

/* The zone as it is. */
static int remake_open_old(struct weir__region *region, uint64_t size, weir_error *err)
{
    uint64_t wanted = region->size;
    int large = region->large_percent;
    region->size = 0;
    region->large_percent = -1;
    int code = weir__region_open_zone(region, size, true, err);
    region->size = wanted;
    region->large_percent = large;
    return code;
}

int weir__region_load(const char *url, const struct weir__load *load, weir_error *err)
{
    struct weir__region region;
    struct stat stat;
    bool alone = false, unmade = false;
    int code = weir__region_parse(url, &region, err);
    if (code)
        return code;
    if (region.kind == WEIR__MEMORY)
        return weir__fail(err, WEIR_EURL, 1, "a memory: zone exists only inside its process");
    code = weir__region_open_file(&region, &alone, err);
    if (code == 0 && !alone)
        code =
            weir__fail(err, WEIR_EBUSY, 0,
                       "%s: another process has it open; end that process, or load into a new zone",
                       weir__region_shown(&region));
    if (code == 0)
        code = weir__region_check_file(&region, alone, &stat, &unmade, err);
    if (code == 0 && !unmade)
        code = remake_open_old(&region, (uint64_t)stat.st_size, err);
    if (code == 0)
        code = remake_load(&region, unmade, load, err);
    if (code && unmade)
        weir__region_unlink(&region);
    remake_forget(&region);
    return code;
}

/* What becomes of a zone's file while it is in use. */
#include "store/region.h"
#include "store/zone/store.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_STORE 3

/* Memory behind a file that was truncated cannot be read: the kernel sends SIGBUS. A library
 * installs no handlers, so programs of ours ask for this one. */
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
        "%s: the store %.300s was truncated while it was in use, and its state is gone; restore a "
        "backup (docs/BACKUP.md), or remove it, and start again\n",
        program, url);
    struct sigaction action = {.sa_sigaction = guard_speaks, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

int weir__region_watch(struct weir__region *region, weir_error *err)
{
    struct stat open_one;
    char path[WEIR__REGION_PATH_MAX], directory[WEIR__REGION_PATH_MAX] = "";
    if (fstat(region->fd, &open_one))
        return weir__region_fail(region, "look at it", err);
    weir__region_path(region, path);
    if (path[0] != '/' && !getcwd(directory, sizeof directory))
        return weir__region_fail(region, "find the directory that its path begins in", err);
    snprintf(region->watched, sizeof region->watched, "%s%s%s", directory, directory[0] ? "/" : "",
             path);
    region->device = open_one.st_dev;
    region->inode = open_one.st_ino;
    atomic_store(&region->zone.look_at_us, 0);
    return 0;
}

/* Nothing at the path is no harm: whoever comes makes another zone there, and then it is seen. */
static enum weir__file_state region_compare(const struct weir__region *region)
{
    struct stat there;
    if (atomic_load(&region->lost) == WEIR_EGONE)
        return WEIR__FILE_REPLACED;
    if (!region->watched[0])
        return WEIR__FILE_THERE;
    if (stat(region->watched, &there))
        return errno == ENOENT || errno == ENOTDIR ? WEIR__FILE_GONE : WEIR__FILE_THERE;
    return there.st_dev == region->device && there.st_ino == region->inode ? WEIR__FILE_THERE
                                                                           : WEIR__FILE_REPLACED;
}

static bool region_is_truncated(const struct weir__region *region)
{
    struct stat open_one;
    return region && region->fd >= 0 && !fstat(region->fd, &open_one) &&
           (uint64_t)open_one.st_size < region->zone.layout.size;
}

/* Once harmed it stays so: who was told that may not count on it, even if a copy is back by now. */
bool weir__region_is_whole(const struct weir__region *region)
{
    return atomic_load(&region->lost) != WEIR_EDAMAGED && !region_is_truncated(region) &&
           weir__zone_is_whole(&region->zone);
}

/* What has become of the zone: 0, or why it cannot be used any more. */
static int region_loss(const struct weir__region *region)
{
    if (region_compare(region) == WEIR__FILE_REPLACED)
        return WEIR_EGONE;
    return weir__region_is_whole(region) ? 0 : WEIR_EDAMAGED;
}

int weir__region_look(struct weir__region *region, int64_t now_us)
{
    _Atomic int64_t *look_at_us = &region->zone.look_at_us;
    int64_t at = atomic_load(look_at_us);
    int lost = atomic_load(&region->lost);
    if (lost)
        return lost;
    if (now_us < at ||
        !atomic_compare_exchange_strong(look_at_us, &at, now_us + WEIR__LOOK_EVERY_US))
        return 0; /* another thread does */
    lost = region_loss(region);
    if (lost) {
        atomic_store(&region->lost, lost);
        atomic_store(look_at_us, INT64_MIN); /* every call comes here */
    }
    return lost;
}

static enum weir__file_state region_file_state(const struct weir__region *region)
{
    if (!region || region->fd < 0)
        return WEIR__FILE_THERE;
    return weir__region_is_whole(region) ? region_compare(region) : WEIR__FILE_HARMED;
}

enum weir__file_state weir__store_file_state(weir_store *store)
{
    return region_file_state(weir__store_region(store));
}

/* A file that was only removed is not WEIR_EGONE: who opens the store again would make another
 * zone, and those who still share this one would count apart. */
int weir__region_check(const struct weir__region *region, weir_error *err)
{
    switch (region_file_state(region)) {
    case WEIR__FILE_THERE:
        break;
    case WEIR__FILE_GONE:
        return weir__fail(
            err, WEIR_ESYSTEM, 0,
            "%.300s: the zone was removed while it is in use: who has it open goes on "
            "with it, others make a new one; save it (Zones in docs/RUNBOOK.md), then start all of "
            "them again",
            region->watched);
    case WEIR__FILE_REPLACED:
        return weir__fail(err, WEIR_EGONE, 0, "%.300s: %s", region->watched,
                          weir_strerror(WEIR_EGONE));
    case WEIR__FILE_HARMED:
        return weir__fail(
            err, WEIR_EDAMAGED, 0,
            "%.300s: the zone was truncated or overwritten while it is in use; restore "
            "a backup (docs/BACKUP.md), or remove it, and start again",
            region->watched);
    }
    return 0;
}

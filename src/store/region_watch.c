/* What becomes of a zone's file while it is in use. */
#include "store/region.h"
#include "store/zone/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_STORE 3

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

/*
 * How much memory connections may make us keep: what was asked for, and no more than a container
 * leaves.
 *
 * A cgroup's bound is the least of its own and of those around it. Of it, the store has its size,
 * the program a fixed part, and of the rest one half is for what is kept, the other for connections
 * as such (descriptors, sockets' buffers, what each may have whatever the others do). The kernel
 * kills who goes beyond, so this is on the careful side.
 */
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define PROGRAM_BYTES (24 * MIB)
#define CONNECTION_BYTES (UINT64_C(16) << 10)
#define TLS_CONNECTION_BYTES (UINT64_C(48) << 10)
#define KEPT_LEAST (4 * MIB)
#define CONNECTIONS_LEAST 64
#define UNBOUND (UINT64_C(1) << 60) /* how version 1 writes that there is no bound: larger */

/* ---- what the cgroup allows ---- */

static bool memory_read_text(const char *path, char *ret, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, ret, size - 1);
    if (fd >= 0)
        close(fd);
    ret[got > 0 ? got : 0] = 0;
    return got > 0;
}

static uint64_t memory_read_bound(const char *path)
{
    char text[64];
    char *end;
    if (!memory_read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return 0; /* "max", or none */
    errno = 0;
    uint64_t bound = strtoull(text, &end, 10);
    return errno || bound >= UNBOUND ? 0 : bound;
}

static uint64_t memory_lesser(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 ? a : a < b ? a : b;
}

/* The least of a folder's bound and of those above it, up to the mount; 0: none. A path that is not
 * there, since a container sees only its own part of the tree, leaves the mount's. */
static uint64_t memory_least_bound(const char *mount, const char *path, const char *file)
{
    char folder[1024], name[2048];
    uint64_t least = 0;
    snprintf(folder, sizeof folder, "%s", path);
    for (;;) {
        snprintf(name, sizeof name, "%s%s/%s", mount, folder, file);
        least = memory_lesser(least, memory_read_bound(name));
        char *slash = strrchr(folder, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

/* Lines of /proc/self/cgroup: "0::/path" is version 2, "4:memory:/path" version 1. */
uint64_t server_cgroup_bound(const char *root)
{
    char text[4096], name[1024], mount[1024];
    uint64_t least = 0;
    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    if (!memory_read_text(name, text, sizeof text))
        return 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *controllers = strchr(line, ':'), *path = NULL;
        if (controllers)
            path = strchr(++controllers, ':');
        if (!path)
            continue;
        *path++ = 0;
        if (!strcmp(path, "/"))
            path = "";
        if (!strncmp(line, "0:", 2) && !*controllers) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
            least = memory_lesser(least, memory_least_bound(mount, path, "memory.max"));
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root);
            least = memory_lesser(least, memory_least_bound(mount, path, "memory.max"));
        } else if (strstr(controllers, "memory")) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/memory", root);
            least = memory_lesser(least, memory_least_bound(mount, path, "memory.limit_in_bytes"));
        }
    }
    return least;
}

/* ---- what follows from it ---- */

bool server_memory_fit(uint64_t bound, uint64_t store_bytes, bool tls, struct server_memory *memory)
{
    if (bound == 0)
        return false;
    uint64_t taken = PROGRAM_BYTES + store_bytes;
    uint64_t half = bound > taken ? (bound - taken) / 2 : 0;
    uint64_t kept = half > KEPT_LEAST ? half : KEPT_LEAST;
    uint64_t connections = half / (tls ? TLS_CONNECTION_BYTES : CONNECTION_BYTES);
    connections = connections > CONNECTIONS_LEAST ? connections : CONNECTIONS_LEAST;
    bool less = kept < memory->kept || connections < memory->connections;
    memory->kept = kept < memory->kept ? kept : memory->kept;
    memory->connections = connections < memory->connections ? connections : memory->connections;
    return less;
}

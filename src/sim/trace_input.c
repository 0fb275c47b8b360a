/* Getting a trace's bytes: a regular file is mapped, anything else is read to its end. */
#include "sim/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_MAX (UINT64_C(4) << 30)
#define FIRST_ROOM (UINT64_C(1) << 20)

static int too_long(const char *name, weir_error *err)
{
    return weir__fail(err, WEIR_EINVAL, 0,
                      "%s: more than 4 GiB; split the trace, or replay a part of it", name);
}

static int system_error(const char *name, const char *what, weir_error *err)
{
    return weir__fail(err, WEIR_ESYSTEM, 0, "%s: cannot %s: %s", name, what, strerror(errno));
}

/* From where the descriptor stands; that need not be the beginning. */
static int map(int fd, const char *name, uint64_t size, struct weir__trace *ret, weir_error *err)
{
    off_t from = lseek(fd, 0, SEEK_CUR);
    if (from < 0)
        return system_error(name, "seek", err);
    if ((uint64_t)from >= size)
        return 0;
    if (size > INPUT_MAX)
        return too_long(name, err);
    void *mapping = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED)
        return system_error(name, "map", err);
    madvise(mapping, size, MADV_SEQUENTIAL);
    *ret = (struct weir__trace){(const char *)mapping + from, size - (uint64_t)from, mapping, size};
    return 0;
}

static int slurp(int fd, const char *name, struct weir__trace *ret, weir_error *err)
{
    size_t room = FIRST_ROOM, len = 0;
    char *data = malloc(room);
    ssize_t got = 1;
    while (data && got != 0) {
        got = read(fd, data + len, room - len);
        if (got < 0 && errno != EINTR) {
            int code = system_error(name, "read", err);
            free(data);
            return code;
        }
        len += got > 0 ? (size_t)got : 0;
        if (len > INPUT_MAX) {
            free(data);
            return too_long(name, err);
        }
        if (len == room) {
            char *grown = realloc(data, room *= 2);
            if (!grown)
                free(data);
            data = grown;
        }
    }
    if (!data)
        return weir__fail(err, WEIR_ENOMEM, 0, "%s: out of memory after %zu bytes", name, len);
    *ret = (struct weir__trace){data, len, NULL, 0};
    return 0;
}

int weir__trace_open(const char *path, struct weir__trace *ret, weir_error *err)
{
    bool standard = !path || !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return system_error(name, "open", err);
    struct stat status;
    int code;
    *ret = (struct weir__trace){0};
    if (fstat(fd, &status))
        code = system_error(name, "look at", err);
    else if (S_ISREG(status.st_mode) && status.st_size > 0)
        code = map(fd, name, (uint64_t)status.st_size, ret, err);
    else
        code = slurp(fd, name, ret, err);
    if (!standard)
        close(fd);
    return code;
}

void weir__trace_close(struct weir__trace *trace)
{
    if (trace->mapping)
        munmap(trace->mapping, trace->mapping_size);
    else
        free((void *)(uintptr_t)trace->data);
    *trace = (struct weir__trace){0};
}

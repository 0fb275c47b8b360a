/*
 * Lines into a file, a pipe or a terminal. What holds: a line that was begun is finished before any
 * other, however long that takes; lines that cannot be written are lost whole, and counted.
 */
#include "base/clock.h"
#include "server/observe/access_log_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_MS 100

int server_log_open_file(const char *path)
{
    /* O_NONBLOCK: a FIFO that nobody reads is an error, not a wait. */
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

void server_log_sink_use(struct server_log_sink *sink, int fd)
{
    struct stat facts;
    sink->fd = fd;
    sink->is_file = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
    if (sink->owed) { /* its beginning is in another file */
        memmove(sink->lines.data, sink->lines.data + sink->owed, sink->lines.len - sink->owed);
        sink->lines.len -= sink->owed;
        sink->owed = 0;
        sink->line_count--;
        __atomic_fetch_add(&sink->failed, 1, __ATOMIC_RELAXED);
    }
}

/* Whether there is room for a pipe's worth; waits for it, in steps, so that an end can be asked for. */
static bool wait_for_room(const struct server_log_sink *sink)
{
    for (;;) {
        const int64_t give_up_at = __atomic_load_n(&sink->give_up_at, __ATOMIC_RELAXED);
        const bool late = give_up_at && weir__clock_us() >= give_up_at;
        struct pollfd there = {.fd = sink->fd, .events = POLLOUT};
        const int n = poll(&there, 1, late ? 0 : WAIT_MS);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* what is wrong, write will say */
        if (late) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

/* Writes as much as there is, or until it fails; how much was written. */
static size_t write_lines(struct server_log_sink *sink)
{
    size_t at = 0;
    while (at < sink->lines.len) {
        size_t portion = sink->lines.len - at;
        if (!sink->is_file) {
            portion = portion < PIPE_BUF ? portion : PIPE_BUF;
            if (!wait_for_room(sink))
                break;
        }
        const ssize_t n = write(sink->fd, sink->lines.data + at, portion);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    return at;
}

static uint64_t count_lines(const char *data, size_t len)
{
    uint64_t count = 0;
    for (const char *end = data + len; (data = memchr(data, '\n', (size_t)(end - data))); data++)
        count++;
    return count;
}

void server_log_sink_flush(struct server_log_sink *sink)
{
    struct weir__buffer *const lines = &sink->lines;
    const size_t at = write_lines(sink);
    if (at == lines->len) {
        __atomic_fetch_add(&sink->written, sink->line_count, __ATOMIC_RELAXED);
        sink->line_count = 0;
        sink->owed = 0;
        lines->len = 0;
        return;
    }
    __atomic_store_n(&sink->last_errno, errno, __ATOMIC_RELAXED);
    /* Of the line that is half written the rest is owed; the whole ones behind it are lost. */
    const bool begun = at > 0 ? lines->data[at - 1] != '\n' : sink->owed > 0;
    const char *const stop = memchr(lines->data + at, '\n', lines->len - at);
    const size_t owed = begun ? (size_t)(stop + 1 - (lines->data + at)) : 0;
    const uint64_t done = count_lines(lines->data, at);
    __atomic_fetch_add(&sink->written, done, __ATOMIC_RELAXED);
    __atomic_fetch_add(&sink->failed, sink->line_count - done - begun, __ATOMIC_RELAXED);
    memmove(lines->data, lines->data + at, owed);
    lines->len = owed;
    sink->owed = owed;
    sink->line_count = begun;
}

void server_log_sink_add(struct server_log_sink *sink, const struct server_log_item *item)
{
    if (sink->lines.size - sink->lines.len < SERVER_LOG_LINE_MAX)
        server_log_sink_flush(sink);
    server_log_format(item, &sink->lines);
    sink->line_count++;
}

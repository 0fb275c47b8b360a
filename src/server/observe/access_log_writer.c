/*
 * The log's thread: empties the rings, writes, and sleeps when there is nothing.
 *
 * While lines come, it looks every few milliseconds and nobody wakes it. When none came it says that
 * it is asleep, looks once more, and waits; who then publishes a record wakes it. The two sides'
 * accesses (head, asleep) are in one order, so that no record waits for the next.
 */
#include "server/observe/access_log_inside.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define LINGER_MS 5
#define MANY (SERVER_LOG_RING / 4) /* taken from a ring in one go: do not linger */

static size_t drain(struct server_access_log *log)
{
    size_t most = 0;
    for (size_t i = 0; i < log->thread_count; i++) {
        struct server_log_ring *const ring = &log->threads[i].ring;
        const struct server_log_item *item;
        size_t taken = 0;
        while (taken < SERVER_LOG_RING && (item = server_log_ring_peek(ring))) {
            server_log_sink_add(&log->sink, item);
            taken += item->size;
            server_log_ring_release(ring, item);
        }
        most = taken > most ? taken : most;
    }
    if (log->sink.line_count)
        server_log_sink_flush(&log->sink);
    return most;
}

static void reopen(struct server_access_log *log)
{
    if (!log->path)
        return;
    const int fd = server_log_open_file(log->path);
    if (fd < 0) {
        __atomic_store_n(&log->sink.last_errno, errno, __ATOMIC_RELAXED);
        __atomic_fetch_add(&log->reopen_failures, 1, __ATOMIC_RELAXED);
        return;
    }
    close(log->sink.fd);
    server_log_sink_use(&log->sink, fd);
}

static void wait_for_work(struct server_access_log *log, int milliseconds)
{
    struct pollfd wake = {.fd = log->wake, .events = POLLIN};
    uint64_t times;
    if (poll(&wake, 1, milliseconds) > 0 && read(log->wake, &times, sizeof times) < 0)
        return; /* somebody else's wake was taken back: nothing to do */
}

static bool has_work(struct server_access_log *log)
{
    if (__atomic_load_n(&log->stopping, __ATOMIC_SEQ_CST) ||
        __atomic_load_n(&log->reopening, __ATOMIC_SEQ_CST))
        return true;
    for (size_t i = 0; i < log->thread_count; i++) {
        if (server_log_ring_peek(&log->threads[i].ring))
            return true;
    }
    return false;
}

void *server_log_writer(void *context)
{
    struct server_access_log *const log = context;
    for (;;) {
        const bool stopping = __atomic_load_n(&log->stopping, __ATOMIC_ACQUIRE);
        const size_t taken = drain(log);
        if (__atomic_exchange_n(&log->reopening, 0, __ATOMIC_SEQ_CST))
            reopen(log);
        if (stopping) /* and all that was there before it is drained */
            return NULL;
        if (taken >= MANY)
            continue;
        if (taken) {
            wait_for_work(log, LINGER_MS);
            continue;
        }
        __atomic_store_n(&log->asleep, 1, __ATOMIC_SEQ_CST);
        if (!has_work(log))
            wait_for_work(log, log->sink.owed ? 1000 : -1);
        __atomic_store_n(&log->asleep, 0, __ATOMIC_SEQ_CST);
    }
}

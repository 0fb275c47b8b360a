/*
 * The access log, from a loop to the file: see access_log.h. The parts stand in the order in which
 * a record passes them: the ring, the line of JSON, the sink, the thread that writes. Then come
 * opening and closing, and what the loops call.
 */
#include "server/observe/access_log.h"

#include "base/clock.h"
#include "base/random.h"
#include "server/observe/observe.h"
#include "wire/json.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCESS_LOG_BATCH ((size_t)64 << 10)    /* bytes of lines that are written together */
#define ACCESS_LOG_LINE_MAX ((size_t)24 << 10) /* bytes of one line */
#define ACCESS_LOG_CLOSE_US 2000000            /* closing waits no longer for a slow reader */
#define ACCESS_LOG_WAIT_MS 100
#define ACCESS_LOG_LINGER_MS 5
#define ACCESS_LOG_MANY (SERVER_LOG_RING / 4) /* taken from a ring at once: do not linger */

/*
 * A ring of bytes between one writer and one reader: records of whole words, each in one piece. A
 * record that does not fit before the end of the memory leaves a gap there and stands at the start.
 *
 *     | record | record | gap      |     head: where the next one goes; tail: what is read next;
 *       tail ─►             ◄─ head      both only grow, the memory is addressed modulo its size
 */
struct server_log_ring {
    char *data; /* SERVER_LOG_RING bytes */
    uint64_t head __attribute__((aligned(64)));
    uint64_t tail_seen; /* tail as the writer last read it */
    uint64_t dropped;
    uint64_t tail __attribute__((aligned(64)));
};

/* One record of a ring: this, and then the texts one after the other. */
struct server_log_item {
    uint32_t size; /* of the whole record, a multiple of 8 */
    uint8_t gap;   /* this is not a record but a gap of that size */
    uint8_t protocol;
    bool allowed, decided, degraded, local, full, closed, key_cut;
    uint16_t lens[SERVER_LOG_TEXTS];
    uint32_t shadow_denied;
    enum weir__verdict verdict;
    int64_t time_us, cost;
    int64_t limit, remaining, retry_after_us, reset_after_us, delay_us, granted;
    char texts[];
};

struct server_log_thread {
    struct server_log_sampling sampling; /* first: access_log.h reads it */
    struct server_access_log *log;
    struct server_log_ring ring;
} __attribute__((aligned(64)));

/* Lines that wait to be written to the file. */
struct server_log_sink {
    int fd;
    bool is_file;       /* takes any amount at once; otherwise write PIPE_BUF at a time */
    int64_t give_up_at; /* do not wait for a reader after this time; 0: wait without end */
    struct weir__buffer lines;
    uint64_t line_count; /* in `lines` */
    size_t owed;         /* bytes at the start: the rest of a line that is half written */
    uint64_t written, failed;
    int last_errno;
};

struct server_access_log {
    struct server_log_thread *threads;
    size_t thread_count;
    char *path; /* NULL: standard output */
    pthread_t writer;
    bool started;
    int wake;                /* eventfd */
    int asleep;              /* the writer waits for a wake */
    int stopping, reopening; /* requests to the writer */
    uint64_t reopen_failures;
    struct server_log_sink sink;
};

/* ---- the ring ---- */

#define ACCESS_LOG_MASK (SERVER_LOG_RING - 1)

_Static_assert((SERVER_LOG_RING & ACCESS_LOG_MASK) == 0, "a power of two");
_Static_assert(sizeof(struct server_log_item) % 8 == 0, "records are whole words");

static struct server_log_item *access_log_item_at(struct server_log_ring *ring, uint64_t at)
{
    return (struct server_log_item *)(ring->data + (at & ACCESS_LOG_MASK));
}

/* Whether that many bytes are free after head. Reads tail only if it must. */
static bool access_log_has_room(struct server_log_ring *ring, size_t size)
{
    if (SERVER_LOG_RING - (ring->head - ring->tail_seen) >= size)
        return true;
    ring->tail_seen = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE);
    return SERVER_LOG_RING - (ring->head - ring->tail_seen) >= size;
}

/* Room for a record of that size, a multiple of 8; NULL: none. Publishing makes it readable. */
static struct server_log_item *access_log_ring_reserve(struct server_log_ring *ring, size_t size)
{
    assert(size >= sizeof(struct server_log_item) && size % 8 == 0 && size <= SERVER_LOG_RING);
    assert(ring->head - ring->tail_seen <= SERVER_LOG_RING);
    const size_t to_end = SERVER_LOG_RING - (ring->head & ACCESS_LOG_MASK);
    if (size <= to_end)
        return access_log_has_room(ring, size) ? access_log_item_at(ring, ring->head) : NULL;
    if (!access_log_has_room(ring, to_end + size))
        return NULL;
    struct server_log_item *const gap = access_log_item_at(ring, ring->head);
    gap->size = (uint32_t)to_end; /* at least 8 bytes, so size and gap fit */
    gap->gap = 1;
    __atomic_store_n(&ring->head, ring->head + to_end, __ATOMIC_RELEASE);
    return access_log_item_at(ring, ring->head);
}

static void access_log_ring_publish(struct server_log_ring *ring,
                                    const struct server_log_item *item)
{
    /* Sequentially consistent with `asleep`: either the reader sees this record before it sleeps,
     * or the writer sees that it sleeps. */
    __atomic_store_n(&ring->head, ring->head + item->size, __ATOMIC_SEQ_CST);
}

static void access_log_ring_release(struct server_log_ring *ring,
                                    const struct server_log_item *item)
{
    assert(item->size % 8 == 0 && item->size >= 8 && item->size <= SERVER_LOG_RING);
    __atomic_store_n(&ring->tail, ring->tail + item->size, __ATOMIC_RELEASE);
}

/* The next record, or NULL. It stays until it is released. */
static const struct server_log_item *access_log_ring_peek(struct server_log_ring *ring)
{
    while (ring->tail != __atomic_load_n(&ring->head, __ATOMIC_SEQ_CST)) {
        const struct server_log_item *const item = access_log_item_at(ring, ring->tail);
        if (!item->gap)
            return item;
        access_log_ring_release(ring, item);
    }
    return NULL;
}

/* ---- the line of JSON ---- */

static void access_log_put_line(const struct server_log_item *item, struct weir__buffer *out)
{
    assert(item->protocol < SERVER_PROTOCOLS && !item->gap);
    const char *const protocol = server_protocol_names[item->protocol];
    struct weir__json json = {.out = out};
    static const char *const names[] = {"client", "policy", "entry", "key", "ip", "method", "path"};
    const char *text = item->texts;
    weir__json_open(&json, NULL, '{');
    weir__json_put_seconds(&json, "time", item->time_us);
    weir__json_put_string(&json, "protocol", protocol);
    for (size_t i = 0; i < SERVER_LOG_SHADOWS; text += item->lens[i++]) {
        if (i == SERVER_LOG_KEY)
            weir__json_put_key(&json, text, item->lens[i]);
        else if (i <= SERVER_LOG_POLICY || item->lens[i] > 0)
            weir__json_put_text(&json, names[i], text, item->lens[i]);
        if (i == SERVER_LOG_KEY && item->key_cut)
            weir__json_put_bool(&json, "key_cut", true);
    }
    weir__json_put_int(&json, "cost", item->cost);
    weir__json_put_bool(&json, "allowed", item->allowed);
    const char *verdict = weir__verdict_word(item->verdict);
    weir__json_put_string(&json, "verdict", verdict);
    if (item->decided) {
        const weir_decision decision = {.limit = item->limit,
                                        .remaining = item->remaining,
                                        .retry_after_us = item->retry_after_us,
                                        .reset_after_us = item->reset_after_us,
                                        .delay_us = item->delay_us};
        weir__json_put_numbers(&json, &decision);
        weir__json_put_int(&json, "granted", item->granted);
        weir__json_put_bool(&json, "degraded", item->degraded);
        weir__json_put_bool(&json, "local", item->local);
        if (item->full)
            weir__json_put_bool(&json, "full", true);
        if (item->closed)
            weir__json_put_bool(&json, "closed", true);
    }
    weir__json_put_uint(&json, "shadow_denied", item->shadow_denied);
    if (item->lens[SERVER_LOG_SHADOWS] > 0) {
        weir__json_open(&json, "shadows", '[');
        weir__put(out, text, item->lens[SERVER_LOG_SHADOWS]);
        weir__json_close(&json, ']');
    }
    weir__json_close(&json, '}');
    weir__put(out, "\n", 1);
}

/* ---- the sink ----
 *
 * Lines go to a file, a pipe or a terminal. A line that was begun is finished before any other,
 * however long that takes. Lines that cannot be written are lost whole, and counted. */

static int access_log_open_file(const char *path)
{
    /* O_NONBLOCK: a FIFO that nobody reads is an error, not a wait. */
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

static void access_log_sink_use(struct server_log_sink *sink, int fd)
{
    struct stat facts;
    sink->fd = fd;
    sink->is_file = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
    if (sink->owed) { /* the beginning of this line is in the old file */
        memmove(sink->lines.data, sink->lines.data + sink->owed, sink->lines.len - sink->owed);
        sink->lines.len -= sink->owed;
        sink->owed = 0;
        sink->line_count--;
        __atomic_fetch_add(&sink->failed, 1, __ATOMIC_RELAXED);
    }
}

/* Waits until PIPE_BUF bytes can be written. Waits in steps, so that closing can end it; false: it
 * did. */
static bool access_log_wait_for_room(const struct server_log_sink *sink)
{
    for (;;) {
        const int64_t give_up_at = __atomic_load_n(&sink->give_up_at, __ATOMIC_RELAXED);
        const bool late = give_up_at && weir__clock_us() >= give_up_at;
        struct pollfd there = {.fd = sink->fd, .events = POLLOUT};
        const int n = poll(&there, 1, late ? 0 : ACCESS_LOG_WAIT_MS);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* write reports what is wrong */
        if (late) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

/* Writes all lines, or until it fails. Returns how many bytes were written. */
static size_t access_log_write_lines(struct server_log_sink *sink)
{
    size_t at = 0;
    while (at < sink->lines.len) {
        size_t portion = sink->lines.len - at;
        if (!sink->is_file) {
            portion = portion < PIPE_BUF ? portion : PIPE_BUF;
            if (!access_log_wait_for_room(sink))
                break;
        }
        const ssize_t n = write(sink->fd, sink->lines.data + at, portion);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    return at;
}

static uint64_t access_log_count_lines(const char *data, size_t len)
{
    uint64_t count = 0;
    for (const char *end = data + len; (data = memchr(data, '\n', (size_t)(end - data))); data++)
        count++;
    return count;
}

static void access_log_sink_flush(struct server_log_sink *sink)
{
    struct weir__buffer *const lines = &sink->lines;
    assert(!lines->cut && sink->owed <= lines->len);
    const size_t at = access_log_write_lines(sink);
    if (at == lines->len) {
        __atomic_fetch_add(&sink->written, sink->line_count, __ATOMIC_RELAXED);
        sink->line_count = 0;
        sink->owed = 0;
        lines->len = 0;
        return;
    }
    __atomic_store_n(&sink->last_errno, errno, __ATOMIC_RELAXED);
    /* The rest of a line that is half written is still owed. The whole lines after it are lost. */
    const bool begun = at > 0 ? lines->data[at - 1] != '\n' : sink->owed > 0;
    const char *const stop = memchr(lines->data + at, '\n', lines->len - at);
    assert(!begun || stop); /* every line ends with a line feed */
    const size_t owed = begun ? (size_t)(stop + 1 - (lines->data + at)) : 0;
    const uint64_t done = access_log_count_lines(lines->data, at);
    __atomic_fetch_add(&sink->written, done, __ATOMIC_RELAXED);
    __atomic_fetch_add(&sink->failed, sink->line_count - done - begun, __ATOMIC_RELAXED);
    memmove(lines->data, lines->data + at, owed);
    lines->len = owed;
    sink->owed = owed;
    sink->line_count = begun;
}

static void access_log_sink_add(struct server_log_sink *sink, const struct server_log_item *item)
{
    if (sink->lines.size - sink->lines.len < ACCESS_LOG_LINE_MAX)
        access_log_sink_flush(sink);
    access_log_put_line(item, &sink->lines);
    sink->line_count++;
}

/* ---- the thread ----  It empties the rings, writes, and sleeps when there is nothing. While lines
 * come, it looks every few milliseconds and nobody wakes it. When none came it sets `asleep`, looks
 * once more, and waits; whoever then publishes a record wakes it. The accesses of both sides (head,
 * asleep) are in one order, so that no record has to wait for the next one. */

static size_t access_log_drain(struct server_access_log *log)
{
    size_t most = 0;
    for (size_t i = 0; i < log->thread_count; i++) {
        struct server_log_ring *const ring = &log->threads[i].ring;
        const struct server_log_item *item;
        size_t taken = 0;
        while (taken < SERVER_LOG_RING && (item = access_log_ring_peek(ring))) {
            access_log_sink_add(&log->sink, item);
            taken += item->size;
            access_log_ring_release(ring, item);
        }
        most = taken > most ? taken : most;
    }
    if (log->sink.line_count)
        access_log_sink_flush(&log->sink);
    return most;
}

static void access_log_reopen_file(struct server_access_log *log)
{
    if (!log->path)
        return;
    const int fd = access_log_open_file(log->path);
    if (fd < 0) {
        __atomic_store_n(&log->sink.last_errno, errno, __ATOMIC_RELAXED);
        __atomic_fetch_add(&log->reopen_failures, 1, __ATOMIC_RELAXED);
        return;
    }
    close(log->sink.fd);
    access_log_sink_use(&log->sink, fd);
}

static void access_log_wait_for_work(struct server_access_log *log, int milliseconds)
{
    struct pollfd wake = {.fd = log->wake, .events = POLLIN};
    uint64_t times;
    if (poll(&wake, 1, milliseconds) > 0 && read(log->wake, &times, sizeof times) < 0)
        return; /* another read took the wake: nothing to do */
}

static bool access_log_has_work(struct server_access_log *log)
{
    if (__atomic_load_n(&log->stopping, __ATOMIC_SEQ_CST) ||
        __atomic_load_n(&log->reopening, __ATOMIC_SEQ_CST))
        return true;
    for (size_t i = 0; i < log->thread_count; i++) {
        if (access_log_ring_peek(&log->threads[i].ring))
            return true;
    }
    return false;
}

static void *access_log_writer(void *context)
{
    struct server_access_log *const log = context;
    for (;;) {
        const bool stopping = __atomic_load_n(&log->stopping, __ATOMIC_ACQUIRE);
        const size_t taken = access_log_drain(log);
        if (__atomic_exchange_n(&log->reopening, 0, __ATOMIC_SEQ_CST))
            access_log_reopen_file(log);
        if (stopping) /* all records from before it are drained */
            return NULL;
        if (taken >= ACCESS_LOG_MANY)
            continue;
        if (taken) {
            access_log_wait_for_work(log, ACCESS_LOG_LINGER_MS);
            continue;
        }
        __atomic_store_n(&log->asleep, 1, __ATOMIC_SEQ_CST);
        if (!access_log_has_work(log))
            access_log_wait_for_work(log, log->sink.owed ? 1000 : -1);
        __atomic_store_n(&log->asleep, 0, __ATOMIC_SEQ_CST);
    }
}

/* ---- opening and closing ---- */

static bool access_log_make_parts(struct server_access_log *log,
                                  const struct server_access_log_setup *setup)
{
    char *const lines = malloc(ACCESS_LOG_BATCH);
    if (!lines)
        return false;
    log->sink.lines = weir__buffer_over(lines, ACCESS_LOG_BATCH);
    log->threads = aligned_alloc(64, setup->threads * sizeof *log->threads);
    if (!log->threads)
        return false;
    memset(log->threads, 0, setup->threads * sizeof *log->threads);
    for (; log->thread_count < setup->threads; log->thread_count++) {
        struct server_log_thread *const thread = &log->threads[log->thread_count];
        thread->log = log;
        thread->ring.data = malloc(SERVER_LOG_RING);
        if (!thread->ring.data)
            return false;
        thread->sampling = (struct server_log_sampling){
            .sample = setup->sample,
            .every_denial = setup->every_denial,
            .random = (uint64_t)weir__clock_us() + log->thread_count,
        };
        server_access_log_next_due(&thread->sampling);
    }
    return true;
}

static int access_log_open_sink(struct server_access_log *log, const char *path, weir_error *err)
{
    int fd = STDOUT_FILENO;
    if (strcmp(path, "-") != 0) {
        log->path = strdup(path);
        fd = log->path ? access_log_open_file(path) : -1;
        if (fd < 0)
            return weir__fail(err, WEIR_ESYSTEM, 0,
                              "cannot open the access log \"%s\": %s; name a file in a folder that "
                              "this user may write to, or \"-\" for standard output",
                              path, strerror(errno));
    }
    access_log_sink_use(&log->sink, fd);
    return WEIR_OK;
}

/* This thread takes no signals: the other threads of the server do. */
static int access_log_start(struct server_access_log *log, weir_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    log->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (log->wake < 0)
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot create an eventfd for the access log: %s",
                          strerror(errno));
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int problem = pthread_create(&log->writer, NULL, access_log_writer, log);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (problem)
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot start the thread of the access log: %s",
                          strerror(problem));
    log->started = true;
    return WEIR_OK;
}

int server_access_log_open(const struct server_access_log_setup *setup,
                           struct server_access_log **ret, weir_error *err)
{
    struct server_access_log *const log = calloc(1, sizeof *log);
    if (!log)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the access log");
    log->wake = log->sink.fd = -1;
    int code = access_log_make_parts(log, setup)
                   ? access_log_open_sink(log, setup->path, err)
                   : weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the access log");
    if (code == WEIR_OK)
        code = access_log_start(log, err);
    if (code == WEIR_OK)
        *ret = log;
    else
        server_access_log_close(log);
    return code;
}

static void access_log_wake(struct server_access_log *log)
{
    const uint64_t one = 1;
    if (write(log->wake, &one, sizeof one) < 0)
        return; /* the counter is full: the thread is awake */
}

void server_access_log_close(struct server_access_log *log)
{
    if (!log)
        return;
    if (log->started) {
        __atomic_store_n(&log->sink.give_up_at, weir__clock_us() + ACCESS_LOG_CLOSE_US,
                         __ATOMIC_RELAXED);
        __atomic_store_n(&log->stopping, 1, __ATOMIC_SEQ_CST);
        access_log_wake(log);
        pthread_join(log->writer, NULL);
    }
    if (log->wake >= 0)
        close(log->wake);
    if (log->path && log->sink.fd >= 0)
        close(log->sink.fd);
    for (size_t i = 0; i < log->thread_count; i++)
        free(log->threads[i].ring.data);
    free(log->threads);
    free(log->sink.lines.data);
    free(log->path);
    free(log);
}

struct server_log_thread *server_access_log_thread(struct server_access_log *log, size_t i)
{
    assert(i < log->thread_count);
    return &log->threads[i];
}

/* ---- loops ---- */

void server_access_log_next_due(struct server_log_sampling *sampling)
{
    /* From 0 to 2·sample - 2, so that what comes at regular intervals is not always or never
     * logged. */
    const uint64_t span = sampling->sample ? 2 * (uint64_t)sampling->sample - 1 : 1;
    sampling->due =
        (uint32_t)weir__min((int64_t)(weir__random_next(&sampling->random) % span), UINT32_MAX);
}

static void access_log_fill(struct server_log_item *item, const struct server_log_record *record)
{
    char *at = item->texts;
    for (size_t i = 0; i < SERVER_LOG_TEXTS; at += item->lens[i++]) {
        if (item->lens[i] > 0)
            memcpy(at, record->texts[i].data, item->lens[i]);
    }
    item->protocol = (uint8_t)record->protocol;
    item->allowed = record->allowed;
    item->verdict = record->verdict;
    item->time_us = record->time_us;
    item->cost = record->cost;
    item->shadow_denied = record->shadow_denied;
    const weir_decision *const decision = record->decision;
    if (!decision || record->verdict != WEIR__VERDICT_LIMITS)
        return;
    item->decided = true;
    item->degraded = decision->degraded;
    item->local = decision->local;
    item->full = decision->full;
    item->closed = decision->closed;
    item->limit = decision->limit;
    item->remaining = decision->remaining;
    item->retry_after_us = decision->retry_after_us;
    item->reset_after_us = decision->reset_after_us;
    item->delay_us = decision->delay_us;
    item->granted = decision->granted;
}

void server_access_log_put(struct server_log_thread *thread, const struct server_log_record *record)
{
    struct server_log_item head = {.key_cut =
                                       record->texts[SERVER_LOG_KEY].len > SERVER_LOG_KEY_MAX};
    size_t texts = 0;
    for (size_t i = 0; i < SERVER_LOG_TEXTS; i++) {
        const size_t most = i == SERVER_LOG_KEY       ? SERVER_LOG_KEY_MAX
                            : i == SERVER_LOG_SHADOWS ? SERVER_LOG_SHADOWS_MAX
                                                      : SERVER_LOG_NAME_MAX;
        head.lens[i] = (uint16_t)server_cut(record->texts[i].data, record->texts[i].len, most);
        texts += head.lens[i];
    }
    assert(record->texts[SERVER_LOG_SHADOWS].len <= SERVER_LOG_SHADOWS_MAX);
    head.size = (uint32_t)((sizeof head + texts + 7) / 8 * 8);
    struct server_log_item *const item = access_log_ring_reserve(&thread->ring, head.size);
    if (!item) {
        server_count(&thread->ring.dropped, 1);
        return;
    }
    *item = head;
    access_log_fill(item, record);
    access_log_ring_publish(&thread->ring, item);
    struct server_access_log *const log = thread->log;
    if (__atomic_load_n(&log->asleep, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&log->asleep, 0, __ATOMIC_SEQ_CST))
        access_log_wake(log);
}

/* ---- any thread ---- */

void server_access_log_reopen(struct server_access_log *log)
{
    __atomic_store_n(&log->reopening, 1, __ATOMIC_SEQ_CST);
    access_log_wake(log);
}

void server_access_log_state(struct server_access_log *log, struct server_access_log_state *ret)
{
    *ret = (struct server_access_log_state){
        .written = __atomic_load_n(&log->sink.written, __ATOMIC_RELAXED),
        .failed = __atomic_load_n(&log->sink.failed, __ATOMIC_RELAXED),
        .reopen_failures = __atomic_load_n(&log->reopen_failures, __ATOMIC_RELAXED),
        .last_errno = __atomic_load_n(&log->sink.last_errno, __ATOMIC_RELAXED),
    };
    for (size_t i = 0; i < log->thread_count; i++)
        ret->dropped += __atomic_load_n(&log->threads[i].ring.dropped, __ATOMIC_RELAXED);
}

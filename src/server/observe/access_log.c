/* The access log: opening, closing, and what loops do. */
#include "server/observe/access_log.h"

#include "base/clock.h"
#include "base/random.h"
#include "server/observe/access_log_inside.h"
#include "server/observe/top_cut.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BATCH ((size_t)64 << 10)
#define CLOSE_US 2000000

/* ---- opening and closing ---- */

static bool make_parts(struct server_access_log *log, const struct server_access_log_setup *setup)
{
    char *const lines = malloc(BATCH);
    if (!lines)
        return false;
    log->sink.lines = weir__buffer_over(lines, BATCH);
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

static int open_sink(struct server_access_log *log, const char *path, weir_error *err)
{
    int fd = STDOUT_FILENO;
    if (strcmp(path, "-") != 0) {
        log->path = strdup(path);
        fd = log->path ? server_log_open_file(path) : -1;
        if (fd < 0)
            return weir__fail(err, WEIR_ESYSTEM, 0,
                              "the access log \"%s\" cannot be opened: %s; name a file in a folder "
                              "that this user may write to, or \"-\" for standard output",
                              path, strerror(errno));
    }
    server_log_sink_use(&log->sink, fd);
    return WEIR_OK;
}

/* The thread takes no signals: the server's own threads do. */
static int start(struct server_access_log *log, weir_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    log->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (log->wake < 0)
        return weir__fail(err, WEIR_ESYSTEM, 0, "the access log cannot be woken: %s",
                          strerror(errno));
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int problem = pthread_create(&log->writer, NULL, server_log_writer, log);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (problem)
        return weir__fail(err, WEIR_ESYSTEM, 0, "the access log's thread cannot be started: %s",
                          strerror(problem));
    log->started = true;
    return WEIR_OK;
}

int server_access_log_open(const struct server_access_log_setup *setup,
                           struct server_access_log **ret, weir_error *err)
{
    struct server_access_log *const log = calloc(1, sizeof *log);
    if (!log)
        return weir__fail(err, WEIR_ENOMEM, 0, "no memory for the access log");
    log->wake = log->sink.fd = -1;
    int code = make_parts(log, setup)
                   ? open_sink(log, setup->path, err)
                   : weir__fail(err, WEIR_ENOMEM, 0, "no memory for the access log");
    if (code == WEIR_OK)
        code = start(log, err);
    if (code == WEIR_OK)
        *ret = log;
    else
        server_access_log_close(log);
    return code;
}

static void wake(struct server_access_log *log)
{
    const uint64_t one = 1;
    if (write(log->wake, &one, sizeof one) < 0)
        return; /* the counter is full: it is awake */
}

void server_access_log_close(struct server_access_log *log)
{
    if (!log)
        return;
    if (log->started) {
        __atomic_store_n(&log->sink.give_up_at, weir__clock_us() + CLOSE_US, __ATOMIC_RELAXED);
        __atomic_store_n(&log->stopping, 1, __ATOMIC_SEQ_CST);
        wake(log);
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
    return &log->threads[i];
}

/* ---- loops ---- */

void server_access_log_next_due(struct server_log_sampling *sampling)
{
    /* From 0 to 2·sample - 2, so that nothing that comes at regular intervals is always met. */
    const uint64_t span = sampling->sample ? 2 * (uint64_t)sampling->sample - 1 : 1;
    sampling->due =
        (uint32_t)weir__min((int64_t)(weir__random_next(&sampling->random) % span), UINT32_MAX);
}

static uint16_t kept_of(struct weir__span text, size_t most)
{
    return (uint16_t)server_cut(text.data, text.len, most);
}

static char *put_span(char *at, struct weir__span span, size_t len)
{
    if (len)
        memcpy(at, span.data, len);
    return at + len;
}

static void fill(struct server_log_item *item, const struct server_log_record *record)
{
    char *at = item->texts;
    at = put_span(at, record->client, item->client_len);
    at = put_span(at, record->policy, item->policy_len);
    at = put_span(at, record->entry, item->entry_len);
    at = put_span(at, record->key, item->key_len);
    at = put_span(at, record->ip, item->ip_len);
    at = put_span(at, record->method, item->method_len);
    at = put_span(at, record->path, item->path_len);
    put_span(at, record->shadows, item->shadows_len);
    item->protocol = (uint8_t)record->protocol;
    item->allowed = record->allowed;
    item->verdict = record->verdict;
    item->time_us = record->time_us;
    item->cost = record->cost;
    item->shadow_denied = record->shadow_denied;
    const weir_decision *const decision = record->decision;
    if (!decision || strcmp(record->verdict, "limits") != 0)
        return;
    item->decided = true;
    item->degraded = decision->degraded;
    item->limit = decision->limit;
    item->remaining = decision->remaining;
    item->retry_after_us = decision->retry_after_us;
    item->reset_after_us = decision->reset_after_us;
    item->delay_us = decision->delay_us;
}

void server_access_log_put(struct server_log_thread *thread, const struct server_log_record *record)
{
    struct server_log_item head = {
        .client_len = kept_of(record->client, SERVER_LOG_NAME_MAX),
        .policy_len = kept_of(record->policy, SERVER_LOG_NAME_MAX),
        .entry_len = kept_of(record->entry, SERVER_LOG_NAME_MAX),
        .key_len = kept_of(record->key, SERVER_LOG_KEY_MAX),
        .key_cut = record->key.len > SERVER_LOG_KEY_MAX,
        .ip_len = kept_of(record->ip, SERVER_LOG_NAME_MAX),
        .method_len = kept_of(record->method, SERVER_LOG_NAME_MAX),
        .path_len = kept_of(record->path, SERVER_LOG_NAME_MAX),
        .shadows_len = (uint16_t)record->shadows.len,
    };
    assert(record->shadows.len <= SERVER_LOG_SHADOWS_MAX);
    const size_t texts = (size_t)head.client_len + head.policy_len + head.entry_len + head.key_len +
                         head.ip_len + head.method_len + head.path_len + head.shadows_len;
    head.size = (uint32_t)((sizeof head + texts + 7) / 8 * 8);
    struct server_log_item *const item = server_log_ring_reserve(&thread->ring, head.size);
    if (!item) {
        server_count(&thread->ring.dropped, 1);
        return;
    }
    *item = head;
    fill(item, record);
    server_log_ring_publish(&thread->ring, item);
    struct server_access_log *const log = thread->log;
    if (__atomic_load_n(&log->asleep, __ATOMIC_SEQ_CST) &&
        __atomic_exchange_n(&log->asleep, 0, __ATOMIC_SEQ_CST))
        wake(log);
}

/* ---- any thread ---- */

void server_access_log_reopen(struct server_access_log *log)
{
    __atomic_store_n(&log->reopening, 1, __ATOMIC_SEQ_CST);
    wake(log);
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

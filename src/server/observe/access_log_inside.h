/* What the files of the access log share. */
#ifndef WEIR_SERVER_ACCESS_LOG_INSIDE_H
#define WEIR_SERVER_ACCESS_LOG_INSIDE_H

#include "server/observe/access_log_ring.h"

#include <pthread.h>

struct server_log_thread {
    struct server_log_sampling sampling; /* first: access_log.h looks at it */
    struct server_access_log *log;
    struct server_log_ring ring;
} __attribute__((aligned(64)));

/* Lines on their way into the file. */
struct server_log_sink {
    int fd;
    bool is_file;       /* takes any amount at once; otherwise a pipe's worth at a time */
    int64_t give_up_at; /* do not wait for a reader beyond; 0: as long as it takes */
    struct weir__buffer lines;
    uint64_t line_count; /* in it */
    size_t owed;         /* bytes at its beginning: the rest of a line that is half written */
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
    int asleep;              /* the writer waits to be woken */
    int stopping, reopening; /* asked of the writer */
    int64_t stop_by_us;
    uint64_t reopen_failures;
    struct server_log_sink sink;
};

/* ---- access_log_line.c ---- */

#define SERVER_LOG_LINE_MAX ((size_t)24 << 10)
void server_log_format(const struct server_log_item *item, struct weir__buffer *out);

/* ---- access_log_sink.c ---- */

/* A descriptor to append to, or -1. */
int server_log_open_file(const char *path);
void server_log_sink_use(struct server_log_sink *sink, int fd);
/* Adds a line; writes first if there is no room. */
void server_log_sink_add(struct server_log_sink *sink, const struct server_log_item *item);
void server_log_sink_flush(struct server_log_sink *sink);

/* ---- access_log_writer.c ---- */

void *server_log_writer(void *log);

#endif

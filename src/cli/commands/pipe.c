/*
 * `weir pipe`: copies a stream no faster than a limit allows, by bytes or by lines. cli/pace.h says
 * when a piece may go out, and what is promised.
 *
 *     input ─► buffer ─► pay for a piece ─► wait ─► write it ─► …
 *
 * Nothing is written that is not paid for. A line goes out whole; one that is longer than the
 * buffer is paid for once, when its beginning goes out.
 */
#include "cli/pace.h"
#include "cli/progress.h"
#include "cli/server_store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIPE_BUFFER CLI_PACE_PIECE_MOST

struct pipe {
    const struct cli_call *call;
    const char *limit_text, *key_text, *url;
    struct cli_server server;
    struct cli_list files;
    bool lines, quiet;
    /* read and opened */
    weir_limit *limit;
    weir_store *store; /* NULL: the limit is this stream's own */
    struct cli_pace pace;
    struct cli_progress progress;
    /* the input that is being read */
    const char *name;
    int fd;
    bool ended;  /* nothing more comes from it */
    bool inside; /* a line whose beginning has gone out */
    size_t from, to;
    char buffer[PIPE_BUFFER];
};

/* ---- waiting, reading, writing ---- */

/* Nobody reads what we write. Ends as other filters do. */
static int pipe_gone(const struct pipe *pipe)
{
    raise(SIGPIPE);
    return cli_fail(pipe->call, CLI_FAILED, "cannot write to standard output: it is closed");
}

/* Waits for an event of a descriptor, or until a time, and draws the progress meanwhile. 1: the
 * event; 0: the time; negative: errno. */
static int pipe_poll(struct pipe *pipe, int fd, short events, int64_t until_us)
{
    for (;;) {
        const int64_t now = weir__mono_us();
        cli_progress_show(&pipe->progress, now);
        if (now >= until_us)
            return 0;
        const int64_t us = weir__min(until_us, pipe->progress.next_us) - now;
        const struct timespec most = {us / 1000000, us % 1000000 * 1000};
        struct pollfd one = {.fd = fd, .events = events};
        int ready = ppoll(&one, 1, us > WEIR_DURATION_MAX ? NULL : &most, NULL);
        if (ready > 0)
            return 1;
        if (ready < 0 && errno != EINTR)
            return -errno;
    }
}

/* Until a piece is due. The reader may go away meanwhile. */
static int pipe_sleep(struct pipe *pipe, int64_t us)
{
    if (us <= 0)
        return CLI_OK;
    return pipe_poll(pipe, STDOUT_FILENO, 0, weir__mono_us() + us) ? pipe_gone(pipe) : CLI_OK;
}

/* Reads what there is behind what is in the buffer already. */
static int pipe_fill(struct pipe *pipe)
{
    if (pipe->from > 0)
        memmove(pipe->buffer, pipe->buffer + pipe->from, pipe->to - pipe->from);
    pipe->to -= pipe->from;
    pipe->from = 0;
    assert(pipe->to < sizeof pipe->buffer);
    for (;;) {
        if (pipe->progress.on) /* so that it is drawn while nothing comes */
            pipe_poll(pipe, pipe->fd, POLLIN, INT64_MAX);
        ssize_t got = read(pipe->fd, pipe->buffer + pipe->to, sizeof pipe->buffer - pipe->to);
        if (got >= 0) {
            pipe->ended = got == 0;
            pipe->to += (size_t)got;
            return CLI_OK;
        }
        if (errno == EAGAIN)
            pipe_poll(pipe, pipe->fd, POLLIN, INT64_MAX);
        else if (errno != EINTR)
            return cli_fail(pipe->call, CLI_FAILED, "cannot read %s: %s",
                            cli_show_text(pipe->name).text, strerror(errno));
    }
}

/* Writes the next so many bytes. */
static int pipe_write(struct pipe *pipe, size_t len)
{
    assert(len <= pipe->to - pipe->from);
    for (const size_t end = pipe->from + len; pipe->from < end;) {
        if (pipe->progress.on)
            pipe_poll(pipe, STDOUT_FILENO, POLLOUT, INT64_MAX);
        ssize_t put = write(STDOUT_FILENO, pipe->buffer + pipe->from, end - pipe->from);
        if (put > 0) {
            pipe->from += (size_t)put;
            pipe->progress.bytes += put;
        } else if (put < 0 && errno == EAGAIN) {
            pipe_poll(pipe, STDOUT_FILENO, POLLOUT, INT64_MAX);
        } else if (put < 0 && errno != EINTR) {
            return cli_fail(pipe->call, CLI_FAILED, "cannot write to standard output: %s",
                            strerror(errno));
        }
    }
    return CLI_OK;
}

/* ---- paying ---- */

static int pipe_refused(const struct pipe *pipe, int code)
{
    return cli_refused(pipe->call, pipe->pace.store, code);
}

/* Pays for some of so many units, and waits until they are due. */
static int pipe_pay(struct pipe *pipe, int64_t units, int64_t *ret)
{
    int64_t paid = 0;
    while (paid == 0) {
        int64_t wait_us;
        int code = cli_pace_pay(&pipe->pace, units, &paid, &wait_us);
        if (code)
            return pipe_refused(pipe, code);
        if (pipe->pace.last.degraded)
            return cli_fail(pipe->call, CLI_FAILED,
                            "the store cannot be reached, so nobody decides");
        if (pipe->pace.last.full)
            return cli_fail(pipe->call, CLI_FAILED,
                            "the store has no room for this key; use a larger size");
        code = pipe_sleep(pipe, wait_us);
        if (code)
            return code;
    }
    pipe->progress.units += paid;
    *ret = paid;
    return CLI_OK;
}

/* ---- by bytes ---- */

static int pipe_copy_bytes(struct pipe *pipe)
{
    int code = CLI_OK;
    while (code == CLI_OK) {
        int64_t paid = 0;
        if (pipe->from == pipe->to)
            code = pipe_fill(pipe);
        if (code || pipe->from == pipe->to)
            return code;
        code = pipe_pay(pipe, (int64_t)(pipe->to - pipe->from), &paid);
        if (code == CLI_OK)
            code = pipe_write(pipe, (size_t)paid);
        if (code == CLI_OK)
            cli_pace_sent(&pipe->pace);
    }
    return code;
}

/* ---- by lines ---- */

/* How many whole lines of at most `most` begin here, and their bytes. What the input ends with is a
 * line, too, and so is a buffer without an end of line. */
static int64_t pipe_find_lines(const struct pipe *pipe, int64_t most, size_t *ret_len)
{
    const char *const begin = pipe->buffer + pipe->from, *const end = pipe->buffer + pipe->to;
    const char *at = begin;
    int64_t lines = 0;
    while (lines < most && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline)
            break;
        at = newline + 1;
        lines++;
    }
    const bool whole = pipe->ended || (pipe->from == 0 && pipe->to == sizeof pipe->buffer);
    if (lines == 0 && at < end && whole) {
        lines = 1;
        at = end;
    }
    *ret_len = (size_t)(at - begin);
    return lines;
}

/* The rest of a line whose beginning has gone out: it is paid for. */
static int pipe_finish_line(struct pipe *pipe)
{
    const char *begin = pipe->buffer + pipe->from;
    const char *newline = memchr(begin, '\n', pipe->to - pipe->from);
    pipe->inside = !newline;
    return pipe_write(pipe, newline ? (size_t)(newline + 1 - begin) : pipe->to - pipe->from);
}

static int pipe_send_lines(struct pipe *pipe, int64_t lines)
{
    int64_t paid = 0;
    size_t len;
    int code = pipe_pay(pipe, lines, &paid);
    if (code)
        return code;
    const int64_t found = pipe_find_lines(pipe, paid, &len);
    assert(found == paid && len > 0);
    (void)found;
    pipe->inside = pipe->buffer[pipe->from + len - 1] != '\n';
    code = pipe_write(pipe, len);
    if (code == CLI_OK)
        cli_pace_sent(&pipe->pace);
    return code;
}

static int pipe_copy_lines(struct pipe *pipe)
{
    int code = CLI_OK;
    while (code == CLI_OK) {
        size_t len;
        int64_t lines = 0;
        if (pipe->inside && pipe->from < pipe->to)
            code = pipe_finish_line(pipe);
        else if ((lines = pipe_find_lines(pipe, INT64_MAX, &len)) > 0)
            code = pipe_send_lines(pipe, lines);
        else if (pipe->ended)
            break;
        else
            code = pipe_fill(pipe);
    }
    return code;
}

/* ---- inputs ---- */

/* The bytes that will come from a descriptor; -1: nobody knows. */
static int64_t pipe_size_of(int fd)
{
    struct stat info;
    if (fstat(fd, &info) || !S_ISREG(info.st_mode))
        return -1;
    const off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 || at > info.st_size ? -1 : info.st_size - at;
}

/* Whether this file is also what is written: it would grow for ever. */
static bool pipe_is_output(const struct stat *input)
{
    struct stat output;
    return S_ISREG(input->st_mode) && !fstat(STDOUT_FILENO, &output) &&
           output.st_dev == input->st_dev && output.st_ino == input->st_ino;
}

static int pipe_open(const struct pipe *pipe, const char *name, int *ret)
{
    struct stat info;
    const char *why;
    *ret = strcmp(name, "-") ? open(name, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (*ret < 0 || fstat(*ret, &info))
        why = strerror(errno);
    else if (S_ISDIR(info.st_mode))
        why = strerror(EISDIR);
    else if (pipe_is_output(&info))
        why = "it is also the output";
    else
        return CLI_OK;
    if (*ret > STDIN_FILENO)
        close(*ret);
    return cli_fail(pipe->call, CLI_FAILED, "cannot read %s: %s", cli_show_text(name).text, why);
}

/* All are opened before anything is written. */
static int pipe_copy(struct pipe *pipe)
{
    int fds[CLI_LIST_MAX];
    size_t opened = 0;
    int code = CLI_OK;
    pipe->progress.total = 0;
    for (; code == CLI_OK && opened < pipe->files.count; opened += code == CLI_OK) {
        code = pipe_open(pipe, pipe->files.texts[opened], &fds[opened]);
        const int64_t size = code == CLI_OK ? pipe_size_of(fds[opened]) : -1;
        if (size < 0 || pipe->progress.total < 0)
            pipe->progress.total = -1;
        else
            pipe->progress.total += size;
    }
    cli_progress_begin(&pipe->progress, weir__mono_us());
    for (size_t i = 0; i < opened; i++) {
        pipe->name = pipe->files.texts[i];
        pipe->fd = fds[i];
        pipe->ended = false;
        if (code == CLI_OK)
            code = pipe->lines ? pipe_copy_lines(pipe) : pipe_copy_bytes(pipe);
        if (fds[i] != STDIN_FILENO)
            close(fds[i]);
    }
    cli_progress_end(&pipe->progress, weir__mono_us());
    return code;
}

/* ---- arguments ---- */

static int pipe_read(struct pipe *pipe)
{
    const struct cli_option options[] = {
        {"lines", CLI_FLAG, &pipe->lines, 0},       {"key", CLI_TEXT, &pipe->key_text, 0},
        {"quiet", CLI_FLAG, &pipe->quiet, 0},       {"store", CLI_TEXT, &pipe->url, 0},
        {"server", CLI_TEXT, &pipe->server.url, 0}, {"token", CLI_TEXT, &pipe->server.token, 0},
    };
    const struct cli_operand operands[] = {
        {"LIMIT", &pipe->limit_text, CLI_REQUIRED},
        {"FILE", pipe->files.texts, CLI_MANY},
    };
    int code = CLI_PARSE(pipe->call, options, operands);
    if (code == CLI_OK && !pipe->key_text && (pipe->url || pipe->server.url))
        code = cli_fail(pipe->call, CLI_USAGE,
                        "--%s needs --key KEY, the name by which pipes share the limit",
                        pipe->url ? "store" : "server");
    if (code == CLI_OK)
        code = cli_read_limits(pipe->call, pipe->limit_text, &pipe->limit);
    if (code == CLI_OK && !cli_pace_can(pipe->limit))
        code = cli_fail(pipe->call, CLI_USAGE,
                        "a stream cannot be limited by \"%s\"; write one token-bucket, like "
                        "\"token-bucket 1m/s burst 4m\"",
                        weir_limit_text(pipe->limit));
    while (pipe->files.texts[pipe->files.count])
        pipe->files.count++;
    if (pipe->files.count == 0)
        pipe->files.texts[pipe->files.count++] = "-";
    return code;
}

static int pipe_start(struct pipe *pipe)
{
    weir_error err = {0};
    weir_key key;
    int code = CLI_OK;
    if (!pipe->key_text) {
        code = cli_pace_open(pipe->limit, NULL, &pipe->pace, &err);
        return code ? cli_fail_with(pipe->call, code, &err) : CLI_OK;
    }
    code = cli_read_key(pipe->call, pipe->key_text, &key);
    if (code == CLI_OK)
        code = cli_open_shared_store(pipe->call, &pipe->server, pipe->url, &pipe->store);
    if (code)
        return code;
    code = cli_pace_share(pipe->limit, pipe->store, key, &pipe->pace, &err);
    return code ? cli_fail_with(pipe->call, code, &err) : CLI_OK;
}

static int pipe_run(const struct cli_call *call)
{
    static struct pipe pipe; /* it has a buffer */
    pipe.call = call;
    int code = pipe_read(&pipe);
    if (code == CLI_OK)
        code = pipe_start(&pipe);
    if (code == CLI_OK) {
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* wake up in time */
        pipe.progress.on = !pipe.quiet && isatty(STDERR_FILENO);
        pipe.progress.lines = pipe.lines;
        code = pipe_copy(&pipe);
        cli_pace_close(&pipe.pace);
    }
    weir_store_close(pipe.store);
    weir_limit_free(pipe.limit);
    return code;
}

const struct cli_command cli_pipe = {
    .name = "pipe",
    .summary = "copy a stream no faster than a limit allows",
    .run = pipe_run,
};

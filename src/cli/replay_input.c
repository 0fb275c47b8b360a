/*
 * What `weir replay` reads. A trace is strict: `time,key[,cost]`, checked to its end before
 * anything is decided, so it is read twice. All else is a log. Which of the two it is, the first
 * lines say.
 */
#include "cli/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define PEEK_BYTES (DESK_TRACE_LINE_MAX + 65536)
#define TIME_BYTES 64                /* what is longer was not meant as a time */
#define KEPT_MAX (UINT64_C(4) << 30) /* bytes of a trace that can be read only once */

/* ---- which of the two ---- */

/* Whether a text that is in no known format was meant as a trace: then the trace's own errors say
 * what is wrong. */
static bool input_was_meant_as_trace(struct weir__span text)
{
    while (text.len > 0 && text.data[0] == ' ')
        text.data++, text.len--;
    const char *end = memchr(text.data, '\n', text.len);
    size_t len = end ? (size_t)(end - text.data) : text.len;
    const char *comma = memchr(text.data, ',', len);
    size_t first = comma ? (size_t)(comma - text.data) : len; /* bytes of its first field */
    return first <= TIME_BYTES && len <= DESK_TRACE_LINE_MAX && !memchr(text.data, ' ', first) &&
           !memchr(text.data, 0, first) && (len == 0 || text.data[0] != '{');
}

static bool input_looks_like_trace(struct weir__span text)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (text.len >= 3 && !memcmp(text.data, mark, 3))
        text.data += 3, text.len -= 3;
    while (text.len > 0 && (text.data[0] == '\n' || text.data[0] == '\r'))
        text.data++, text.len--;
    if (text.len == 0 || (text.len >= 8 && !strncasecmp(text.data, "time,key", 8)))
        return true;
    if (desk_is_packed(text))
        return false;
    const char *name = desk_detect(text);
    return name ? !strcmp(name, "trace") : input_was_meant_as_trace(text);
}

/* Reads the beginning. Of standard input that cannot be rewound, it is kept in *ret. */
static int input_peek(struct replay *replay, const char *path, bool *ret_trace)
{
    bool standard = !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat status = {0};
    char *room = malloc(PEEK_BYTES);
    size_t len = 0;
    ssize_t got = 1;
    if (room && fd >= 0 && fstat(fd, &status) == 0) {
        bool regular = S_ISREG(status.st_mode);
        while (got > 0 && len < PEEK_BYTES && (regular || !memchr(room, '\n', len))) {
            got = read(fd, room + len, PEEK_BYTES - len);
            if (got < 0 && errno == EINTR)
                got = 1;
            else if (got > 0)
                len += (size_t)got;
        }
    } else {
        got = -1;
    }
    int error = errno;
    bool directory = S_ISDIR(status.st_mode);
    if (!standard && got >= 0 && !directory && !S_ISREG(status.st_mode)) {
        dup2(fd, STDIN_FILENO); /* a pipe that has a name: it cannot be opened again */
        close(fd);
        fd = STDIN_FILENO;
        replay->logs.paths[0] = "-";
        standard = true;
    }
    if (!standard && fd >= 0)
        close(fd);
    if (got < 0 || directory) {
        free(room);
        return directory
                   ? cli_fail(replay->call, CLI_FAILED, "%s: is a directory; name the files in it",
                              cli_show_text(name).text)
                   : cli_fail(replay->call, CLI_FAILED, "%s: cannot open: %s",
                              cli_show_text(name).text, strerror(error));
    }
    *ret_trace = input_looks_like_trace((struct weir__span){room, len});
    if (standard && lseek(fd, -(off_t)len, SEEK_CUR) < 0) {
        replay->begun = (struct weir__span){room, len};
        return CLI_OK;
    }
    free(room);
    return CLI_OK;
}

/* ---- opening ---- */

static int input_open(struct replay *replay)
{
    weir_error err = {0};
    struct desk_options *log = &replay->logs.options;
    log->paths = replay->logs.paths;
    log->path_count = replay->logs.path_count;
    log->follow = replay->follow;
    log->begun = replay->begun;
    int code = desk_reader_open(log, &replay->reader, &err);
    return code ? cli_fail_with(replay->call, code, &err) : CLI_OK;
}

/* Keeps all of standard input, which comes only once. */
static int input_keep(struct replay *replay)
{
    char *data = (char *)replay->begun.data;
    size_t len = replay->begun.len, room = len;
    ssize_t got = 1;
    while (got != 0) {
        if (len == room) {
            char *grown = len > KEPT_MAX ? NULL : realloc(data, room = 2 * room + PEEK_BYTES);
            if (!grown)
                return cli_fail(replay->call, CLI_USAGE,
                                "standard input: a trace from a pipe is kept in memory, and this "
                                "one is too long; write it to a file first");
            replay->begun.data = data = grown;
        }
        got = read(STDIN_FILENO, data + len, room - len);
        if (got < 0 && errno != EINTR)
            return cli_fail(replay->call, CLI_FAILED, "standard input: cannot read: %s",
                            strerror(errno));
        len += got > 0 ? (size_t)got : 0;
    }
    replay->begun.len = len;
    return CLI_OK;
}

/* Reads a trace to its end, and then again from where it began. */
static int input_open_trace(struct replay *replay)
{
    struct desk_options *log = &replay->logs.options;
    struct desk_arrival arrival;
    weir_error err = {0};
    off_t from = lseek(STDIN_FILENO, 0, SEEK_CUR);
    log->format = "trace";
    log->strict = true;
    log->disorder_us = -1;
    int code = replay->begun.data ? input_keep(replay) : CLI_OK;
    if (code == CLI_OK)
        code = input_open(replay);
    if (code)
        return code;
    while ((code = desk_reader_next(replay->reader, &arrival, &err)) == DESK_ARRIVAL)
        replay->trace_requests++;
    desk_reader_close(replay->reader);
    replay->reader = NULL;
    if (code)
        return cli_fail_with(replay->call, code, &err);
    if (!replay->begun.data && from >= 0)
        lseek(STDIN_FILENO, from, SEEK_SET);
    return input_open(replay);
}

/* Whether options were given that only logs have. */
static bool input_has_log_options(const struct replay *replay)
{
    const struct desk_options *log = &replay->logs.options;
    return log->key || log->cost || log->timezone || replay->logs.where.count ||
           replay->logs.templates.count || replay->logs.fields.count || replay->logs.disorder_us ||
           replay->logs.no_spread || replay->follow || replay->policies || replay->share_by ||
           replay->logs.path_count > 1;
}

int replay_open(struct replay *replay)
{
    const char *format = replay->logs.options.format;
    const char *first = replay->logs.path_count > 0 ? replay->logs.paths[0] : "-";
    replay->is_trace = format && !strcmp(format, "trace");
    if (!format || replay->is_trace) {
        bool trace = false;
        int code = input_peek(replay, first, &trace);
        if (code)
            return code;
        replay->is_trace |= trace;
    }
    if (input_has_log_options(replay))
        replay->is_trace = false;
    if (replay->classes.count > 0) {
        replay->class_field = replay->share_by ? replay->share_by : "class";
        replay->logs.options.carried = &replay->class_field;
        replay->logs.options.carried_count = 1;
        replay->logs.options.carried_as_keys = true;
    }
    return replay->is_trace ? input_open_trace(replay) : input_open(replay);
}

void replay_close(struct replay *replay)
{
    desk_reader_close(replay->reader);
    free((char *)replay->begun.data);
}

/* ---- arrivals ---- */

struct weir__span replay_class_name(const struct desk_arrival *arrival)
{
    struct weir__span ret = {"", 0};
    desk_arrival_value(arrival, 0, &ret);
    return ret;
}

static int input_next(void *source, struct desk_arrival *ret, weir_error *err)
{
    return desk_reader_next(((struct replay *)source)->reader, ret, err);
}

static void input_where(void *source, int64_t *ret_done, int64_t *ret_size)
{
    struct desk_facts facts;
    desk_reader_facts(((struct replay *)source)->reader, &facts);
    *ret_done = facts.done;
    *ret_size = facts.size;
}

static void input_finish(void *source)
{
    desk_reader_finish(((struct replay *)source)->reader);
}

void replay_connect(struct replay *replay, struct desk_flow *flow)
{
    flow->source = replay;
    flow->next = input_next;
    flow->finish = input_finish;
    flow->where = input_where;
}

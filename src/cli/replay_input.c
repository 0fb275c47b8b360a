/*
 * What `weir replay` reads. A trace is strict: `time,key[,cost]`, checked to its end before
 * anything is decided. All else is a log, read by the desk. Which of the two it is, the first lines
 * say.
 */
#include "cli/replay.h"

#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define PEEK_BYTES (1 << 16)

/* ---- which of the two ---- */

static bool input_is_packed(struct weir__span text)
{
    return text.len >= 4 &&
           (!memcmp(text.data, "\x1f\x8b", 2) || !memcmp(text.data, "\x28\xb5\x2f\xfd", 4));
}

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
    return !memchr(text.data, ' ', first) && !memchr(text.data, 0, first) &&
           (len == 0 || text.data[0] != '{');
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
    if (input_is_packed(text))
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

static int input_open_trace(struct replay *replay)
{
    struct weir__trace_facts facts;
    weir_error err = {0};
    int code = weir__trace_open(replay->logs.path_count > 0 ? replay->logs.paths[0] : NULL,
                                replay->begun, &replay->trace, &err);
    replay->trace.classes = replay->classes.count > 0;
    if (code == 0)
        code = weir__trace_check(&replay->trace, &facts, &err);
    if (code)
        return cli_fail_with(replay->call, code, &err);
    replay->trace_requests = facts.requests;
    replay->class_name = weir__buffer_growing();
    weir__trace_begin(&replay->trace_reader, &replay->trace);
    return CLI_OK;
}

static int input_open_log(struct replay *replay)
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

/* Whether options were given that only logs have. */
static bool input_has_log_options(const struct replay *replay)
{
    const struct desk_options *log = &replay->logs.options;
    return log->key || log->cost || log->timezone || replay->logs.where.count ||
           replay->logs.templates.count || replay->logs.fields.count || replay->logs.disorder_us ||
           replay->logs.no_spread || replay->follow || replay->policies ||
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
    if (replay->classes.count > 0 && !replay->is_trace)
        return cli_fail(replay->call, CLI_USAGE,
                        "--share needs a trace with a column of classes: time,key,cost,class");
    return replay->is_trace ? input_open_trace(replay) : input_open_log(replay);
}

void replay_close(struct replay *replay)
{
    desk_reader_close(replay->reader);
    weir__trace_close(&replay->trace);
    weir__buffer_free(&replay->class_name);
    free((char *)replay->begun.data);
}

/* ---- arrivals ---- */

static int input_next_of_trace(void *source, struct desk_arrival *ret, weir_error *err)
{
    static const uint64_t secret[2] = {0, 0};
    struct replay *replay = source;
    struct weir__arrival arrival;
    int64_t line = replay->trace_reader.line;
    int got = weir__trace_next(&replay->trace_reader, &arrival, err);
    if (got <= 0)
        return got < 0 ? got : DESK_END;
    *ret = (struct desk_arrival){.time_us = arrival.time_us,
                                 .key = {arrival.key, arrival.key_len},
                                 .cost = arrival.cost,
                                 .line = line};
    weir__hash(secret, arrival.key, arrival.key_len, ret->hash);
    if (!replay->trace.classes)
        return DESK_ARRIVAL;
    /* Carried as values of logs are: its length, then its bytes. */
    uint32_t len = (uint32_t)arrival.class_name.len;
    replay->class_name.len = 0;
    weir__put(&replay->class_name, (const char *)&len, sizeof len);
    weir__put(&replay->class_name, arrival.class_name.data, len);
    if (replay->class_name.cut)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    ret->carried = replay->class_name.data;
    ret->carried_len = (uint32_t)replay->class_name.len;
    return DESK_ARRIVAL;
}

struct weir__span replay_class_name(const struct desk_arrival *arrival)
{
    struct weir__span ret = {"", 0};
    desk_arrival_value(arrival, 0, &ret);
    return ret;
}

static void input_where_in_trace(void *source, int64_t *ret_done, int64_t *ret_size)
{
    struct replay *replay = source;
    *ret_done = (int64_t)replay->trace_reader.at;
    *ret_size = (int64_t)replay->trace.size;
}

static int input_next_of_log(void *source, struct desk_arrival *ret, weir_error *err)
{
    return desk_reader_next(((struct replay *)source)->reader, ret, err);
}

static void input_where_in_log(void *source, int64_t *ret_done, int64_t *ret_size)
{
    struct desk_facts facts;
    desk_reader_facts(((struct replay *)source)->reader, &facts);
    *ret_done = facts.done;
    *ret_size = facts.size;
}

static void input_finish_log(void *source)
{
    desk_reader_finish(((struct replay *)source)->reader);
}

void replay_connect(struct replay *replay, struct desk_flow *flow)
{
    flow->source = replay;
    flow->next = replay->is_trace ? input_next_of_trace : input_next_of_log;
    flow->finish = replay->is_trace ? NULL : input_finish_log;
    flow->where = replay->is_trace ? input_where_in_trace : input_where_in_log;
}

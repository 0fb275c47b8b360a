/*
 * Traces: see trace.h. First come the bytes (a regular file is mapped, anything else is read to its
 * end), then lines, fields and values, then whole requests.
 */
#include "sim/trace.h"

#include "base/buffer.h"
#include "base/span.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the bytes ---- */

#define INPUT_MAX (UINT64_C(4) << 30)
#define FIRST_ROOM (UINT64_C(1) << 20)

static int trace_too_long(const char *name, weir_error *err)
{
    return weir__fail(err, WEIR_EINVAL, 0,
                      "%s: the input is longer than 4 GiB; split the trace, or replay a part of it",
                      name);
}

static int trace_system_error(const char *name, const char *what, weir_error *err)
{
    return weir__fail(err, WEIR_ESYSTEM, 0, "%s: cannot %s: %s", name, what, strerror(errno));
}

/* From the current offset, which need not be the beginning. */
static int trace_map(int fd, const char *name, uint64_t size, struct weir__trace *ret,
                     weir_error *err)
{
    off_t from = lseek(fd, 0, SEEK_CUR);
    if (from < 0)
        return trace_system_error(name, "seek", err);
    if ((uint64_t)from >= size)
        return 0;
    if (size > INPUT_MAX)
        return trace_too_long(name, err);
    void *mapping = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED)
        return trace_system_error(name, "map", err);
    madvise(mapping, size, MADV_SEQUENTIAL);
    *ret = (struct weir__trace){(const char *)mapping + from, size - (uint64_t)from, mapping, size,
                                false};
    return 0;
}

static int trace_read_all(int fd, const char *name, struct weir__span begun,
                          struct weir__trace *ret, weir_error *err)
{
    size_t room = FIRST_ROOM + begun.len, len = begun.len;
    char *data = malloc(room);
    ssize_t got = 1;
    if (data && begun.len > 0)
        memcpy(data, begun.data, begun.len);
    while (data && got != 0) {
        got = read(fd, data + len, room - len);
        if (got < 0 && errno != EINTR) {
            int code = trace_system_error(name, "read", err);
            free(data);
            return code;
        }
        len += got > 0 ? (size_t)got : 0;
        if (len > INPUT_MAX) {
            free(data);
            return trace_too_long(name, err);
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
    *ret = (struct weir__trace){data, len, NULL, 0, false};
    return 0;
}

int weir__trace_open(const char *path, struct weir__span begun, struct weir__trace *ret,
                     weir_error *err)
{
    bool standard = !path || !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return trace_system_error(name, "open", err);
    struct stat status;
    int code;
    *ret = (struct weir__trace){0};
    if (fstat(fd, &status))
        code = trace_system_error(name, "read the status of", err);
    else if (S_ISREG(status.st_mode) && status.st_size > 0)
        code = trace_map(fd, name, (uint64_t)status.st_size, ret, err);
    else
        code = trace_read_all(fd, name, begun, ret, err);
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

/* A field of the input, without its quotes. */
struct field {
    const char *text;
    size_t len;
    bool doubled; /* holds doubled quotes */
    int64_t line;
    size_t column;
};

#define SHOWN_MAX 40

static int trace_fail(weir_error *err, const struct field *field, const char *what,
                      const char *expected)
{
    char shown[SHOWN_MAX + 8];
    struct weir__buffer buffer = weir__buffer_over(shown, sizeof shown);
    for (size_t i = 0; i < field->len && i < SHOWN_MAX; i++) {
        char c = field->text[i];
        weir__put(&buffer, isprint((unsigned char)c) ? &c : "?", 1);
    }
    if (field->len > SHOWN_MAX)
        weir__put_text(&buffer, "…");
    return weir__fail(err, WEIR_EINVAL, (int)weir__min((int64_t)field->column, INT32_MAX),
                      "line %lld, column %zu: invalid %s \"%s\": expected %s",
                      (long long)field->line, field->column, what, shown, expected);
}

/* ---- lines and fields ---- */

/* Length of the line end at `at`: LF, CRLF, or a CR that ends the input. */
static inline size_t trace_line_end(const struct weir__trace *trace, size_t at)
{
    if (at == trace->size)
        return 0;
    if (trace->data[at] == '\n')
        return 1;
    if (trace->data[at] != '\r')
        return 0;
    if (at + 1 == trace->size)
        return 1;
    return trace->data[at + 1] == '\n' ? 2 : 0;
}

static inline bool trace_at_line_end(const struct weir__trace *trace, size_t at)
{
    return at == trace->size || trace_line_end(trace, at) > 0;
}

static void trace_next_line(struct weir__trace_reader *reader)
{
    reader->at += trace_line_end(reader->trace, reader->at);
    reader->line++;
    reader->line_start = reader->at;
}

/* A quoted field; the reader is at its opening quote. */
static int trace_read_quoted(struct weir__trace_reader *reader, struct field *ret, weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    size_t at = reader->at + 1;
    ret->text = trace->data + at;
    for (;; at++) {
        const char *quote =
            at < trace->size ? memchr(trace->data + at, '"', trace->size - at) : NULL;
        if (!quote) {
            ret->len = trace->size - reader->at - 1;
            return trace_fail(err, ret, "field", "a closing quote before the end of the input");
        }
        at = (size_t)(quote - trace->data) + 1;
        if (at == trace->size || trace->data[at] != '"')
            break;
        ret->doubled = true;
    }
    ret->len = at - 1 - (reader->at + 1);
    for (const char *p = ret->text; (p = memchr(p, '\n', ret->len - (size_t)(p - ret->text)));
         p++) {
        reader->line++;
        reader->line_start = (size_t)(p + 1 - trace->data);
    }
    reader->at = at;
    return 0;
}

/* The next field; what follows it must be a comma or the line's end. */
static int trace_read_field(struct weir__trace_reader *reader, struct field *ret, weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    *ret = (struct field){.line = reader->line, .column = reader->at - reader->line_start + 1};
    if (reader->at < trace->size && trace->data[reader->at] == '"') {
        int code = trace_read_quoted(reader, ret, err);
        if (code)
            return code;
        if (!trace_at_line_end(trace, reader->at) && trace->data[reader->at] != ',')
            return trace_fail(
                err, ret, "quoted field",
                "a comma or the end of the line after its closing quote (write \"\" for a "
                "quote inside)");
        return 0;
    }
    size_t at = reader->at;
    while (at < trace->size && trace->data[at] != ',' && trace->data[at] != '\n' &&
           trace->data[at] != '\r' && trace->data[at] != '"')
        at++;
    ret->text = trace->data + reader->at;
    ret->len = at - reader->at;
    reader->at = at;
    if (!trace_at_line_end(trace, at) && trace->data[at] != ',')
        return trace_fail(
            err, ret, "field",
            "quotes around a field that holds a quote or a line break, like \"a\"\"b\"");
    return 0;
}

/* ---- values ---- */

/* Seconds as microseconds, below 2^53; -1: they are not. */
static int64_t trace_microseconds(const struct field *field)
{
    int64_t number = 0;
    int decimals = -1;
    for (size_t i = 0; i < field->len; i++) {
        char c = field->text[i];
        if (c == '.' && decimals < 0 && i > 0) {
            decimals = 0;
            continue;
        }
        if (c < '0' || c > '9' || decimals == 6 || number > WEIR__EXACT_MAX)
            return -1;
        number = number * 10 + (c - '0');
        decimals += decimals >= 0;
    }
    for (int i = decimals < 0 ? 0 : decimals; i < 6 && number < WEIR__EXACT_MAX; i++)
        number *= 10;
    return field->len == 0 || decimals == 0 || number >= WEIR__EXACT_MAX ? -1 : number;
}

static int trace_read_time(const struct field *field, int64_t *ret, weir_error *err)
{
    int64_t number = trace_microseconds(field);
    if (number < 0)
        return trace_fail(
            err, field, "time",
            "seconds with up to six decimals, from 0 to 9007199254.740991, like 1700000000.25");
    *ret = number;
    return 0;
}

static int trace_read_cost(const struct field *field, int64_t *ret, weir_error *err)
{
    if (weir__span_whole((struct weir__span){field->text, field->len}, 0, WEIR_COST_MAX, ret))
        return 0;
    return trace_fail(
        err, field, "cost",
        "a whole number from 0 to 1000000000000 (without a third field the cost is 1)");
}

/* The key; each doubled quote becomes one. */
static int trace_read_key(struct weir__trace_reader *reader, const struct field *field,
                          struct weir__arrival *ret, weir_error *err)
{
    ret->key = field->text;
    ret->key_len = field->len;
    if (field->doubled) {
        size_t len = 0, at = 0;
        while (at < field->len && len < WEIR_KEY_MAX) {
            reader->unquoted[len++] = field->text[at];
            at += field->text[at] == '"' ? 2 : 1;
        }
        ret->key = reader->unquoted;
        ret->key_len = at < field->len ? WEIR_KEY_MAX + 1 : len;
    }
    if (ret->key_len == 0)
        return trace_fail(err, field, "key", "1 to 65536 bytes");
    if (ret->key_len > WEIR_KEY_MAX)
        return trace_fail(err, field, "key", "1 to 65536 bytes; this one is longer");
    return 0;
}

/* ---- requests ---- */

static bool trace_field_is(const struct field *field, const char *text)
{
    return weir__span_is_word((struct weir__span){field->text, field->len}, text);
}

/* Skips the header line if the trace begins with one: its first field is the word "time". */
static int trace_skip_header(struct weir__trace_reader *reader, weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    size_t from = reader->at;
    int64_t line = reader->line;
    struct field fields[4];
    size_t most = trace->classes ? 4 : 3;
    size_t n = 0;
    int code = trace_read_field(reader, &fields[n++], err);
    if (code || !trace_field_is(&fields[0], "time")) {
        weir__trace_seek(reader, from);
        reader->line = line;
        return 0;
    }
    while (code == 0 && n < most && reader->at < trace->size && trace->data[reader->at] == ',') {
        reader->at++;
        code = trace_read_field(reader, &fields[n++], err);
    }
    if (code)
        return code;
    if (n < 2 || !trace_field_is(&fields[1], "key") ||
        (n > 2 && !trace_field_is(&fields[2], "cost")) ||
        (n > 3 && !trace_field_is(&fields[3], "class")) || !trace_at_line_end(trace, reader->at))
        return trace_fail(err, &fields[0], "header",
                          trace->classes ? "time,key,cost,class"
                                         : "time,key or time,key,cost; a class needs --share");
    trace_next_line(reader);
    return 0;
}

static int trace_start(struct weir__trace_reader *reader, weir_error *err)
{
    static const char mark[] = "\xef\xbb\xbf";
    reader->started = true;
    if (reader->trace->size >= 3 && !memcmp(reader->trace->data, mark, 3))
        reader->at = reader->line_start = 3;
    while (trace_line_end(reader->trace, reader->at) > 0)
        trace_next_line(reader);
    return trace_skip_header(reader, err);
}

void weir__trace_begin(struct weir__trace_reader *reader, const struct weir__trace *trace)
{
    reader->trace = trace;
    reader->at = reader->line_start = 0;
    reader->line = 1;
    reader->started = false;
}

void weir__trace_seek(struct weir__trace_reader *reader, size_t offset)
{
    reader->at = reader->line_start = offset;
    reader->started = true;
}

static int trace_read_request(struct weir__trace_reader *reader, struct weir__arrival *ret,
                              weir_error *err)
{
    const struct weir__trace *trace = reader->trace;
    struct field field;
    int code = trace_read_field(reader, &field, err);
    if (code == 0)
        code = trace_read_time(&field, &ret->time_us, err);
    if (code)
        return code;
    if (trace_at_line_end(trace, reader->at))
        return trace_fail(err, &field, "line", "a comma and a key after the time");
    reader->at++;
    code = trace_read_field(reader, &field, err);
    if (code == 0)
        code = trace_read_key(reader, &field, ret, err);
    if (code || trace_at_line_end(trace, reader->at))
        return code;
    reader->at++;
    code = trace_read_field(reader, &field, err);
    if (code == 0)
        code = trace_read_cost(&field, &ret->cost, err);
    if (code || trace_at_line_end(trace, reader->at))
        return code;
    if (!trace->classes)
        return trace_fail(err, &field, "cost",
                          "the end of the line after it: time,key[,cost]; a class needs --share");
    reader->at++;
    code = trace_read_field(reader, &field, err);
    if (code == 0 && !trace_at_line_end(trace, reader->at))
        return trace_fail(err, &field, "class",
                          "the end of the line after it: time,key[,cost[,class]]");
    if (code == 0 && field.doubled)
        return trace_fail(err, &field, "class", "a name without quotes in it");
    ret->class_name = (struct weir__span){field.text, field.len};
    return code;
}

int weir__trace_next(struct weir__trace_reader *reader, struct weir__arrival *ret, weir_error *err)
{
    int code = reader->started ? 0 : trace_start(reader, err);
    if (code)
        return code;
    while (trace_line_end(reader->trace, reader->at) > 0)
        trace_next_line(reader);
    if (reader->at == reader->trace->size)
        return 0;
    ret->offset = reader->at;
    ret->cost = 1;
    ret->class_name = (struct weir__span){"", 0};
    code = trace_read_request(reader, ret, err);
    if (code)
        return code;
    trace_next_line(reader);
    return 1;
}

int weir__trace_check(const struct weir__trace *trace, struct weir__trace_facts *ret,
                      weir_error *err)
{
    struct weir__trace_reader reader;
    struct weir__arrival arrival = {0};
    struct weir__trace_facts facts = {0, INT64_MAX, 0};
    int code;
    weir__trace_begin(&reader, trace);
    while ((code = weir__trace_next(&reader, &arrival, err)) > 0) {
        facts.requests++;
        facts.first_us = weir__min(facts.first_us, arrival.time_us);
        facts.last_us = weir__max(facts.last_us, arrival.time_us);
    }
    if (code == 0)
        *ret = facts;
    return code;
}

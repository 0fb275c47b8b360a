/*
 * The HTTP/1 reader, from bytes to requests: see http1.h for the contract.
 *
 *     next ─► head: request line, fields line by line ─► body: by length, or chunks ─► request
 *
 * A head is read line by line, each once, when it is whole. What matters of it is kept in the
 * state, since the bytes may move before the next call. Spans are made by the call that completes
 * the request: where an earlier call read the head, it is read once more.
 */
#include "wire/http1.h"

#include "wire/scan.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What comes next. */
enum http1_phase {
    HTTP1_LINE,
    HTTP1_FIELDS,
    HTTP1_BODY,
    HTTP1_CHUNK_LINE,
    HTTP1_CHUNK,
    HTTP1_CHUNK_END,
    HTTP1_TRAILERS,
    HTTP1_DONE,
    HTTP1_FAILED,
};

/* As much of a text as an error quotes, for "%.*s". */
#define HTTP1_QUOTED(text) (int)((text).len < 40 ? (text).len : 40), (text).data

/* Says what to answer and why; returns BROKEN. */
WEIR__PRINTF(3, 4)
static enum weir__http1_status http1_broken(struct weir__http1_reader *reader, int status,
                                            const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reader->why, sizeof reader->why, format, args);
    va_end(args);
    for (char *p = reader->why; *p; p++) {
        if (*p < ' ' || *p > '~')
            *p = '?';
    }
    reader->status = status;
    reader->state.phase = HTTP1_FAILED;
    return WEIR__HTTP1_BROKEN;
}

/* ---- bytes and lines ---- */

enum { TOKEN = 1, HOST = 2 };

/* What a byte may be part of: a method or a field's name; a host, with its port. No comma in hosts,
 * though RFC 3986 has it: two Hosts joined into one would look like that. */
static const unsigned char http1_classes[256] = {['0' ... '9'] = TOKEN | HOST,
                                                 ['A' ... 'Z'] = TOKEN | HOST,
                                                 ['a' ... 'z'] = TOKEN | HOST,
                                                 ['!'] = TOKEN | HOST,
                                                 ['$'] = TOKEN | HOST,
                                                 ['%'] = TOKEN | HOST,
                                                 ['&'] = TOKEN | HOST,
                                                 ['\''] = TOKEN | HOST,
                                                 ['*'] = TOKEN | HOST,
                                                 ['+'] = TOKEN | HOST,
                                                 ['-'] = TOKEN | HOST,
                                                 ['.'] = TOKEN | HOST,
                                                 ['_'] = TOKEN | HOST,
                                                 ['~'] = TOKEN | HOST,
                                                 ['#'] = TOKEN,
                                                 ['^'] = TOKEN,
                                                 ['`'] = TOKEN,
                                                 ['|'] = TOKEN,
                                                 ['('] = HOST,
                                                 [')'] = HOST,
                                                 [':'] = HOST,
                                                 [';'] = HOST,
                                                 ['='] = HOST,
                                                 ['['] = HOST,
                                                 [']'] = HOST};

/* How much of text, from its start on, is of a class. */
static inline size_t http1_run(unsigned char class, struct weir__span text)
{
    size_t i = 0;
    while (i < text.len && http1_classes[(unsigned char)text.data[i]] & class)
        i++;
    return i;
}

/* Whether text is word, which is in lower case, in any case. */
static inline bool http1_is(struct weir__span text, const char *word, size_t len)
{
    if (text.len != len)
        return false;
    unsigned differences = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        differences |= (unsigned)((c >= 'A' && c <= 'Z' ? c | 0x20 : c) ^ (unsigned char)word[i]);
    }
    return differences == 0;
}
#define HTTP1_IS(text, word) http1_is(text, word, sizeof(word) - 1)

/* How long a line may be, CR LF included, and what is answered beyond. */
struct http1_bound {
    size_t most;
    int status;
    const char *why;
};

static enum weir__http1_status http1_control(struct weir__http1_reader *reader, unsigned char c)
{
    if (c == '\n' || c == '\r')
        return http1_broken(reader, 400, "a %s alone; lines end in CR LF",
                            c == '\n' ? "line feed" : "carriage return");
    if (c == 0x16 && reader->state.at == 0)
        return http1_broken(reader, 400, "this looks like TLS, but this port speaks plain HTTP");
    return http1_broken(reader, 400, "control character 0x%02x in a line", c);
}

/* No line ends here: why it is BROKEN, or NEED_MORE. The first control character of data[0 … end)
 * is at stop; bounded: the line may not go on beyond end. */
static enum weir__http1_status http1_no_line(struct weir__http1_reader *reader, const char *data,
                                             size_t stop, size_t end, bool bounded,
                                             const struct http1_bound *bound)
{
    if (stop < end && (data[stop] != '\r' || stop + 1 < end))
        return http1_control(reader, (unsigned char)data[stop]);
    if (bounded)
        return http1_broken(reader, bound->status, "%s", bound->why);
    reader->state.scanned = stop;
    return WEIR__HTTP1_NEED_MORE;
}

/* The line at state.at, without CR LF and without control characters but tabs; state.at and
 * state.scanned are then behind it. REQUEST: it is whole. */
static inline enum weir__http1_status http1_line(struct weir__http1_reader *reader,
                                                 const char *data, size_t len,
                                                 struct http1_bound bound, struct weir__span *ret)
{
    struct weir__http1_state *state = &reader->state;
    bool bounded = len - state->at >= bound.most;
    size_t end = bounded ? state->at + bound.most : len;
    size_t stop = weir__scan(WEIR__STOP_CONTROL, data, state->scanned, end);
    *ret = (struct weir__span){data + state->at, stop - state->at};
    if (WEIR__UNLIKELY(end - stop < 2 || data[stop] != '\r' || data[stop + 1] != '\n'))
        return http1_no_line(reader, data, stop, end, bounded, &bound);
    state->at = state->scanned = stop + 2;
    return WEIR__HTTP1_REQUEST;
}

/* ---- the request line ---- */

#define EMPTY_LINES_MAX 4 /* before a request line, as some clients send after a body */

static enum weir__http_method http1_method(struct weir__span text)
{
    if (text.len == 3 && !memcmp(text.data, "GET", 3))
        return WEIR__HTTP_GET;
    if (text.len == 4 && !memcmp(text.data, "POST", 4))
        return WEIR__HTTP_POST;
    if (text.len == 4 && !memcmp(text.data, "HEAD", 4))
        return WEIR__HTTP_HEAD;
    if (text.len == 7 && !memcmp(text.data, "OPTIONS", 7))
        return WEIR__HTTP_OPTIONS;
    return WEIR__HTTP_OTHER;
}

/* The version that a line ends in; what is before it stays in *line. */
static enum weir__http1_status http1_read_version(struct weir__http1_reader *reader,
                                                  struct weir__span *line)
{
    const char *version = line->len < 9 ? "" : line->data + line->len - 9;
    if (line->len < 9 || memcmp(version, " HTTP/", 6) || version[7] != '.' || version[6] < '0' ||
        version[6] > '9' || version[8] < '0' || version[8] > '9')
        return http1_broken(reader, 400, "the request line is not METHOD TARGET HTTP/1.1: \"%.*s\"",
                            HTTP1_QUOTED(*line));
    if (version[6] != '1')
        return http1_broken(reader, 505, "%.8s is not supported; this server speaks HTTP/1.1",
                            version + 1);
    reader->state.minor = version[8] != '0';
    line->len -= 9;
    return WEIR__HTTP1_REQUEST;
}

/* http://host[:port][/path]: its host; *target becomes the rest. */
static enum weir__http1_status http1_read_absolute(struct weir__http1_reader *reader,
                                                   struct weir__span *target,
                                                   struct weir__span *ret_host)
{
    size_t scheme = 0;
    if (target->len > 7 && HTTP1_IS(((struct weir__span){target->data, 7}), "http://"))
        scheme = 7;
    else if (target->len > 8 && HTTP1_IS(((struct weir__span){target->data, 8}), "https://"))
        scheme = 8;
    if (scheme == 0)
        return http1_broken(reader, 400, "target \"%.*s\": it starts with / or http://",
                            HTTP1_QUOTED(*target));
    struct weir__span rest = {target->data + scheme, target->len - scheme};
    size_t len = http1_run(HOST, rest);
    if (len == 0 || (len < rest.len && rest.data[len] != '/' && rest.data[len] != '?'))
        return http1_broken(reader, 400, "target \"%.*s\": no host in it", HTTP1_QUOTED(*target));
    *ret_host = (struct weir__span){rest.data, len};
    *target = (struct weir__span){rest.data + len, rest.len - len};
    reader->state.absolute = true;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_read_target(struct weir__http1_reader *reader,
                                                 struct weir__span target,
                                                 struct weir__http_request *ret)
{
    size_t stop = weir__scan(WEIR__STOP_TARGET, target.data, 0, target.len);
    if (stop < target.len)
        return http1_broken(reader, 400, "byte 0x%02x in the target; write it as %%%02X",
                            (unsigned char)target.data[stop], (unsigned char)target.data[stop]);
    ret->host = ret->query = (struct weir__span){NULL, 0};
    if (target.len == 1 && target.data[0] == '*' && ret->method == WEIR__HTTP_OPTIONS) {
        ret->path = target;
        return WEIR__HTTP1_REQUEST;
    }
    if (target.len == 0 || target.data[0] != '/') {
        enum weir__http1_status status = http1_read_absolute(reader, &target, &ret->host);
        if (status != WEIR__HTTP1_REQUEST)
            return status;
    }
    const char *mark = target.len ? memchr(target.data, '?', target.len) : NULL;
    if (mark) {
        ret->query = (struct weir__span){mark + 1, (size_t)(target.data + target.len - mark - 1)};
        target.len = (size_t)(mark - target.data);
    }
    ret->path = target.len ? target : (struct weir__span){"/", 1};
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_read_request_line(struct weir__http1_reader *reader,
                                                       struct weir__span line,
                                                       struct weir__http_request *ret)
{
    if (line.len == 0) {
        if (++reader->state.empty_lines > EMPTY_LINES_MAX)
            return http1_broken(reader, 400, "empty lines instead of a request");
        return WEIR__HTTP1_REQUEST;
    }
    enum weir__http1_status status = http1_read_version(reader, &line);
    if (status != WEIR__HTTP1_REQUEST)
        return status;
    size_t len = http1_run(TOKEN, line);
    if (len == 0 || len == line.len || line.data[len] != ' ')
        return http1_broken(reader, 400, "no method and target in \"%.*s\"", HTTP1_QUOTED(line));
    ret->method_text = (struct weir__span){line.data, len};
    ret->method = http1_method(ret->method_text);
    ret->minor = reader->state.minor;
    reader->state.post = ret->method == WEIR__HTTP_POST;
    reader->state.phase = HTTP1_FIELDS;
    return http1_read_target(reader, (struct weir__span){line.data + len + 1, line.len - len - 1},
                             ret);
}

/* ---- fields ---- */

/* The field in a line, checked. */
static enum weir__http1_status http1_field(struct weir__http1_reader *reader,
                                           struct weir__span line, struct weir__http_field *ret)
{
    size_t len = http1_run(TOKEN, line);
    if (WEIR__UNLIKELY(len == 0 || len == line.len || line.data[len] != ':')) {
        char c = line.data[len];
        bool blank = c == ' ' || c == '\t';
        const char *what = len == 0 && blank ? "a folded line"
                           : blank           ? "a space in or after the name of a field"
                                             : "not NAME: VALUE";
        return http1_broken(reader, 400, "%s: \"%.*s\"", what, HTTP1_QUOTED(line));
    }
    const char *start = line.data + len + 1, *end = line.data + line.len;
    while (start < end && (*start == ' ' || *start == '\t'))
        start++;
    while (start < end && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    ret->name = (struct weir__span){line.data, len};
    ret->value = (struct weir__span){start, (size_t)(end - start)};
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_read_host(struct weir__http1_reader *reader,
                                               struct weir__span value,
                                               struct weir__http_request *ret)
{
    if (reader->state.has_host)
        return http1_broken(reader, 400, "a second Host, \"%.*s\"", HTTP1_QUOTED(value));
    if (http1_run(HOST, value) != value.len)
        return http1_broken(reader, 400, "invalid Host \"%.*s\"", HTTP1_QUOTED(value));
    reader->state.has_host = true;
    if (!reader->state.absolute)
        ret->host = value;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_read_length(struct weir__http1_reader *reader,
                                                 struct weir__span value)
{
    if (reader->state.has_length)
        return http1_broken(reader, 400, "a second Content-Length, \"%.*s\"", HTTP1_QUOTED(value));
    size_t size = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return http1_broken(reader, 400, "invalid Content-Length \"%.*s\": expected a number",
                                HTTP1_QUOTED(value));
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, (size_t)(value.data[i] - '0'), &size))
            size = SIZE_MAX; /* and stays: ten times that overflows again */
    }
    if (value.len == 0)
        return http1_broken(reader, 400, "Content-Length is empty");
    reader->state.has_length = true;
    reader->state.body_size = size;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_read_encoding(struct weir__http1_reader *reader,
                                                   struct weir__span value)
{
    if (reader->state.chunked)
        return http1_broken(reader, 400, "a second Transfer-Encoding, \"%.*s\"",
                            HTTP1_QUOTED(value));
    if (!HTTP1_IS(value, "chunked"))
        return http1_broken(reader, 501, "unsupported Transfer-Encoding \"%.*s\": expected chunked",
                            HTTP1_QUOTED(value));
    reader->state.chunked = true;
    return WEIR__HTTP1_REQUEST;
}

/* close, keep-alive or anything else, separated by commas. */
static void http1_read_connection(struct weir__http1_state *state, struct weir__span value)
{
    const char *end = value.data + value.len;
    for (const char *p = value.data; p < end;) {
        const char *start = p;
        while (p < end && *p != ',' && *p != ' ' && *p != '\t')
            p++;
        struct weir__span word = {start, (size_t)(p - start)};
        state->close = state->close || HTTP1_IS(word, "close");
        state->keep_alive = state->keep_alive || HTTP1_IS(word, "keep-alive");
        while (p < end && (*p == ',' || *p == ' ' || *p == '\t'))
            p++;
    }
}

/* The fields that the reader itself needs; their lengths are compared first. */
static enum weir__http1_status http1_use_field(struct weir__http1_reader *reader,
                                               const struct weir__http_field *field,
                                               struct weir__http_request *ret)
{
    struct weir__span name = field->name;
    switch (name.len) {
    case 4:
        return HTTP1_IS(name, "host") ? http1_read_host(reader, field->value, ret)
                                      : WEIR__HTTP1_REQUEST;
    case 6:
        if (HTTP1_IS(name, "expect") && HTTP1_IS(field->value, "100-continue"))
            reader->state.expects = true;
        return WEIR__HTTP1_REQUEST;
    case 10:
        if ((name.data[0] | 0x20) == 'c' && HTTP1_IS(name, "connection"))
            http1_read_connection(&reader->state, field->value);
        return WEIR__HTTP1_REQUEST;
    case 14:
        return HTTP1_IS(name, "content-length") ? http1_read_length(reader, field->value)
                                                : WEIR__HTTP1_REQUEST;
    case 17:
        return HTTP1_IS(name, "transfer-encoding") ? http1_read_encoding(reader, field->value)
                                                   : WEIR__HTTP1_REQUEST;
    default:
        return WEIR__HTTP1_REQUEST;
    }
}

/* The head is whole: what its fields say together. */
static enum weir__http1_status http1_end_head(struct weir__http1_reader *reader,
                                              struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    if (state->minor > 0 && !state->has_host)
        return http1_broken(reader, 400, "the Host field is missing; HTTP/1.1 needs it");
    if (state->chunked && (state->has_length || state->minor == 0))
        return http1_broken(reader, 400, "Transfer-Encoding %s",
                            state->has_length ? "beside Content-Length" : "in HTTP/1.0");
    if (state->minor == 0 && state->post && !state->has_length)
        return http1_broken(reader, 411, "no Content-Length");
    if (state->body_size > reader->limits.body)
        return http1_broken(reader, 413, "the body is longer than %zu bytes", reader->limits.body);
    state->expects = state->expects && state->minor > 0 && (state->chunked || state->body_size > 0);
    state->head_size = state->at;
    state->phase = state->chunked ? HTTP1_CHUNK_LINE : HTTP1_BODY;
    ret->keep_alive = !state->close && (state->minor > 0 || state->keep_alive);
    ret->field_count = state->field_count;
    return WEIR__HTTP1_REQUEST;
}

/* Goes on with the fields; REQUEST: the head is whole. */
static enum weir__http1_status http1_fields(struct weir__http1_reader *reader, const char *data,
                                            size_t len, struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    enum weir__http1_status status;
    do {
        struct weir__span line;
        struct http1_bound bound = {reader->limits.head - state->at, 431, "the head is too long"};
        status = http1_line(reader, data, len, bound, &line);
        if (status != WEIR__HTTP1_REQUEST)
            return status;
        if (line.len == 0)
            return http1_end_head(reader, ret);
        if (state->field_count == WEIR__HTTP_FIELDS_MAX)
            return http1_broken(reader, 431, "more than %d fields", WEIR__HTTP_FIELDS_MAX);
        struct weir__http_field *field = &ret->fields[state->field_count++];
        status = http1_field(reader, line, field);
        if (WEIR__LIKELY(status == WEIR__HTTP1_REQUEST))
            status = http1_use_field(reader, field, ret);
    } while (status == WEIR__HTTP1_REQUEST);
    return status;
}

/* Goes on with the head; REQUEST: it is whole, and if it was begun by this very call, in ret. */
static enum weir__http1_status http1_head(struct weir__http1_reader *reader, const char *data,
                                          size_t len, struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    while (state->phase == HTTP1_LINE) {
        struct http1_bound bound = {reader->limits.head - state->at, 414,
                                    "the request line is too long"};
        if (bound.most > reader->limits.line + 2)
            bound.most = reader->limits.line + 2;
        struct weir__span line;
        enum weir__http1_status status = http1_line(reader, data, len, bound, &line);
        if (status == WEIR__HTTP1_REQUEST)
            status = http1_read_request_line(reader, line, ret);
        if (status != WEIR__HTTP1_REQUEST)
            return status;
    }
    return http1_fields(reader, data, len, ret);
}

/* ---- chunked bodies ----
 *
 * They are put together in place: the body grows from the head's end, the bytes not understood yet
 * start at state.at, and what lies between is of no use any more.
 *
 *     head | body so far | … | at: SIZE[;extension] CR LF bytes CR LF … 0 CR LF [trailer CR LF …]
 *     CR LF
 *
 * What is not body (sizes, extensions, trailers) may be as long as the longest head and body. */

#define CHUNK_LINE_MAX 256 /* bytes of a size and its extensions, CR LF included */

static const char too_much[] = "chunk sizes, extensions and trailers are too long together";

/* How many bytes that are not body may still come. */
static size_t http1_room_left(const struct weir__http1_reader *reader)
{
    const struct weir__http1_state *state = &reader->state;
    return reader->limits.head + reader->limits.body -
           (state->at - state->head_size - state->body_size);
}

static enum weir__http1_status http1_read_chunk_size(struct weir__http1_reader *reader,
                                                     struct weir__span line)
{
    struct weir__http1_state *state = &reader->state;
    size_t most = reader->limits.body - state->body_size, size = 0, i = 0;
    for (; i < line.len && weir__hex_digit(line.data[i]) >= 0; i++) {
        size = size << 4 | (size_t)weir__hex_digit(line.data[i]);
        if (size > most)
            return http1_broken(reader, 413, "the body is longer than %zu bytes",
                                reader->limits.body);
    }
    if (i == 0 || (i < line.len && line.data[i] != ';'))
        return http1_broken(reader, 400, "invalid chunk size \"%.*s\"", HTTP1_QUOTED(line));
    state->chunk_left = size;
    state->phase = size ? HTTP1_CHUNK : HTTP1_TRAILERS;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_read_chunk_line(struct weir__http1_reader *reader,
                                                     const char *data, size_t len)
{
    struct http1_bound bound = {http1_room_left(reader), 413, too_much};
    if (bound.most >= CHUNK_LINE_MAX)
        bound =
            (struct http1_bound){CHUNK_LINE_MAX, 400, "a chunk's size and extensions are too long"};
    struct weir__span line;
    enum weir__http1_status status = http1_line(reader, data, len, bound, &line);
    return status == WEIR__HTTP1_REQUEST ? http1_read_chunk_size(reader, line) : status;
}

static enum weir__http1_status http1_take_chunk(struct weir__http1_state *state, char *data,
                                                size_t len)
{
    size_t n = len - state->at < state->chunk_left ? len - state->at : state->chunk_left;
    memmove(data + state->head_size + state->body_size, data + state->at, n);
    state->body_size += n;
    state->at += n;
    state->chunk_left -= n;
    if (state->chunk_left)
        return WEIR__HTTP1_NEED_MORE;
    state->phase = HTTP1_CHUNK_END;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_end_chunk(struct weir__http1_reader *reader, const char *data,
                                               size_t len)
{
    struct weir__http1_state *state = &reader->state;
    size_t here = len - state->at < 2 ? len - state->at : 2;
    if (http1_room_left(reader) < 2)
        return http1_broken(reader, 413, "%s", too_much);
    if (memcmp(data + state->at, "\r\n", here))
        return http1_broken(reader, 400, "no CR LF after a chunk");
    if (here < 2)
        return WEIR__HTTP1_NEED_MORE;
    state->at = state->scanned = state->at + 2;
    state->phase = HTTP1_CHUNK_LINE;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status http1_read_trailer(struct weir__http1_reader *reader,
                                                  const char *data, size_t len)
{
    struct weir__http_field field;
    struct weir__span line;
    struct http1_bound bound = {http1_room_left(reader), 413, too_much};
    enum weir__http1_status status = http1_line(reader, data, len, bound, &line);
    if (status != WEIR__HTTP1_REQUEST)
        return status;
    if (line.len > 0)
        return http1_field(reader, line, &field);
    reader->state.phase = HTTP1_DONE;
    return WEIR__HTTP1_REQUEST;
}

/* Goes on with a chunked body; REQUEST: it is whole, and state.at is behind it. */
static enum weir__http1_status http1_chunks(struct weir__http1_reader *reader, char *data,
                                            size_t len)
{
    enum weir__http1_status status = WEIR__HTTP1_REQUEST;
    while (status == WEIR__HTTP1_REQUEST && reader->state.phase != HTTP1_DONE) {
        switch ((enum http1_phase)reader->state.phase) {
        case HTTP1_CHUNK_LINE:
            status = http1_read_chunk_line(reader, data, len);
            break;
        case HTTP1_CHUNK:
            status = http1_take_chunk(&reader->state, data, len);
            break;
        case HTTP1_CHUNK_END:
            status = http1_end_chunk(reader, data, len);
            break;
        case HTTP1_TRAILERS:
            status = http1_read_trailer(reader, data, len);
            break;
        case HTTP1_LINE:
        case HTTP1_FIELDS:
        case HTTP1_BODY:
        case HTTP1_DONE:
        case HTTP1_FAILED:
            assert(!"a phase of chunked bodies");
            return WEIR__HTTP1_BROKEN;
        }
    }
    return status;
}

/* ---- requests ---- */

void weir__http1_begin(struct weir__http1_reader *reader, const struct weir__http1_limits *limits)
{
    assert(limits->head <= SIZE_MAX / 8 && limits->body <= SIZE_MAX / 8);
    memset(reader, 0, sizeof *reader);
    reader->limits = *limits;
    if (limits->line > limits->head)
        reader->limits.line = limits->head;
}

/* Whether the body is whole, from the head's end on. */
static enum weir__http1_status http1_read_body(struct weir__http1_reader *reader, char *data,
                                               size_t len)
{
    struct weir__http1_state *state = &reader->state;
    if (state->chunked)
        return http1_chunks(reader, data, len);
    if (len - state->head_size < state->body_size)
        return WEIR__HTTP1_NEED_MORE;
    state->at = state->head_size + state->body_size;
    return WEIR__HTTP1_REQUEST;
}

/* Makes the spans of a head that was read by earlier calls. */
static void http1_read_head_again(const struct weir__http1_reader *reader, const char *data,
                                  struct weir__http_request *ret)
{
    struct weir__http1_reader again;
    weir__http1_begin(&again, &reader->limits);
    enum weir__http1_status status = http1_head(&again, data, reader->state.head_size, ret);
    assert(status == WEIR__HTTP1_REQUEST);
    (void)status;
}

void weir__http1_head_so_far(const struct weir__http1_reader *reader, const char *data,
                             struct weir__http_request *ret, size_t *ret_body, bool *ret_chunked)
{
    assert(reader->state.head_size > 0);
    http1_read_head_again(reader, data, ret);
    ret->body = (struct weir__span){NULL, 0};
    *ret_chunked = reader->state.chunked;
    *ret_body = reader->state.chunked ? 0 : reader->state.body_size;
}

enum weir__http1_status weir__http1_next(struct weir__http1_reader *reader, char *data, size_t len,
                                         struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    if (state->phase == HTTP1_FAILED)
        return WEIR__HTTP1_BROKEN;
    if (state->phase == HTTP1_DONE)
        *state = (struct weir__http1_state){0};
    assert(len >= state->at);
    reader->size = 0;
    reader->expects_continue = reader->head_came = false;
    bool in_one = state->scanned == 0;
    enum weir__http1_status status;
    if (state->phase < HTTP1_BODY) {
        status = http1_head(reader, data, len, ret);
        if (status != WEIR__HTTP1_REQUEST)
            return status;
        reader->expects_continue = state->expects && len == state->head_size;
        reader->head_came = true;
    }
    status = http1_read_body(reader, data, len);
    if (status != WEIR__HTTP1_REQUEST)
        return status;
    reader->head_came = false;
    if (!in_one)
        http1_read_head_again(reader, data, ret);
    ret->body = (struct weir__span){data + state->head_size, state->body_size};
    reader->size = state->at;
    reader->expects_continue = false;
    state->phase = HTTP1_DONE;
    return WEIR__HTTP1_REQUEST;
}

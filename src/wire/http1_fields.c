/* The fields of an HTTP/1 request: their lines, those that the reader itself goes by, and what these say
 * together of the body. */
#include "wire/http1_parts.h"

enum { TOKEN = WEIR__HTTP1_TOKEN, HOST = WEIR__HTTP1_HOST };

/* What a byte may be part of: a method or a field's name; a host, with its port. No comma in hosts,
 * though RFC 3986 has it: two Hosts joined into one would look like that. */
const unsigned char weir__http1_classes[256] = {
    ['0' ... '9'] = TOKEN | HOST,
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
    [']'] = HOST,
};

enum weir__http1_status weir__http1_field(struct weir__http1_reader *reader, struct weir__span line,
                                          struct weir__http_field *ret)
{
    size_t len = weir__http1_run(WEIR__HTTP1_TOKEN, line);
    if (WEIR__UNLIKELY(len == 0 || len == line.len || line.data[len] != ':')) {
        char c = line.data[len];
        bool blank = c == ' ' || c == '\t';
        const char *what = len == 0 && blank ? "a folded line"
                           : blank           ? "a blank in or behind a field's name"
                                             : "not NAME: VALUE";
        return weir__http1_broken(reader, 400, "%s: \"%.*s\"", what, WEIR__HTTP1_QUOTED(line));
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

static enum weir__http1_status read_host(struct weir__http1_reader *reader, struct weir__span value,
                                         struct weir__http_request *ret)
{
    if (reader->state.has_host)
        return weir__http1_broken(reader, 400, "a second Host, \"%.*s\"",
                                  WEIR__HTTP1_QUOTED(value));
    if (weir__http1_run(WEIR__HTTP1_HOST, value) != value.len)
        return weir__http1_broken(reader, 400, "Host \"%.*s\" is none", WEIR__HTTP1_QUOTED(value));
    reader->state.has_host = true;
    if (!reader->state.absolute)
        ret->host = value;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status read_length(struct weir__http1_reader *reader,
                                           struct weir__span value)
{
    if (reader->state.has_length)
        return weir__http1_broken(reader, 400, "a second Content-Length, \"%.*s\"",
                                  WEIR__HTTP1_QUOTED(value));
    size_t size = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return weir__http1_broken(reader, 400, "Content-Length \"%.*s\" is no number",
                                      WEIR__HTTP1_QUOTED(value));
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, (size_t)(value.data[i] - '0'), &size))
            size = SIZE_MAX; /* and stays: ten times that overflows again */
    }
    if (value.len == 0)
        return weir__http1_broken(reader, 400, "Content-Length is empty");
    reader->state.has_length = true;
    reader->state.body_size = size;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status read_encoding(struct weir__http1_reader *reader,
                                             struct weir__span value)
{
    if (reader->state.chunked)
        return weir__http1_broken(reader, 400, "a second Transfer-Encoding, \"%.*s\"",
                                  WEIR__HTTP1_QUOTED(value));
    if (!WEIR__HTTP1_IS(value, "chunked"))
        return weir__http1_broken(reader, 501, "Transfer-Encoding \"%.*s\"; here it is chunked",
                                  WEIR__HTTP1_QUOTED(value));
    reader->state.chunked = true;
    return WEIR__HTTP1_REQUEST;
}

/* close, keep-alive or anything else, separated by commas. */
static void read_connection(struct weir__http1_state *state, struct weir__span value)
{
    const char *end = value.data + value.len;
    for (const char *p = value.data; p < end;) {
        const char *start = p;
        while (p < end && *p != ',' && *p != ' ' && *p != '\t')
            p++;
        struct weir__span word = {start, (size_t)(p - start)};
        state->close = state->close || WEIR__HTTP1_IS(word, "close");
        state->keep_alive = state->keep_alive || WEIR__HTTP1_IS(word, "keep-alive");
        while (p < end && (*p == ',' || *p == ' ' || *p == '\t'))
            p++;
    }
}

/* Heeds the fields that the reader itself goes by; they are told apart by length first. */
static enum weir__http1_status heed(struct weir__http1_reader *reader,
                                    const struct weir__http_field *field,
                                    struct weir__http_request *ret)
{
    struct weir__span name = field->name;
    switch (name.len) {
    case 4:
        return WEIR__HTTP1_IS(name, "host") ? read_host(reader, field->value, ret)
                                            : WEIR__HTTP1_REQUEST;
    case 6:
        if (WEIR__HTTP1_IS(name, "expect") && WEIR__HTTP1_IS(field->value, "100-continue"))
            reader->state.expects = true;
        return WEIR__HTTP1_REQUEST;
    case 10:
        if ((name.data[0] | 0x20) == 'c' && WEIR__HTTP1_IS(name, "connection"))
            read_connection(&reader->state, field->value);
        return WEIR__HTTP1_REQUEST;
    case 14:
        return WEIR__HTTP1_IS(name, "content-length") ? read_length(reader, field->value)
                                                      : WEIR__HTTP1_REQUEST;
    case 17:
        return WEIR__HTTP1_IS(name, "transfer-encoding") ? read_encoding(reader, field->value)
                                                         : WEIR__HTTP1_REQUEST;
    default:
        return WEIR__HTTP1_REQUEST;
    }
}

/* ---- the whole ---- */

/* The head is whole: what its fields say together. */
static enum weir__http1_status finish(struct weir__http1_reader *reader,
                                      struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    if (state->minor > 0 && !state->has_host)
        return weir__http1_broken(reader, 400, "no Host, which HTTP/1.1 needs");
    if (state->chunked && (state->has_length || state->minor == 0))
        return weir__http1_broken(reader, 400, "Transfer-Encoding %s",
                                  state->has_length ? "beside Content-Length" : "in HTTP/1.0");
    if (state->minor == 0 && state->post && !state->has_length)
        return weir__http1_broken(reader, 411, "no Content-Length");
    if (state->body_size > reader->limits.body)
        return weir__http1_broken(reader, 413, "the body is longer than %zu bytes",
                                  reader->limits.body);
    state->expects = state->expects && state->minor > 0 && (state->chunked || state->body_size > 0);
    state->head_size = state->at;
    state->phase = state->chunked ? WEIR__HTTP1_IN_CHUNK_LINE : WEIR__HTTP1_IN_BODY;
    ret->keep_alive = !state->close && (state->minor > 0 || state->keep_alive);
    ret->field_count = state->field_count;
    return WEIR__HTTP1_REQUEST;
}

enum weir__http1_status weir__http1_fields(struct weir__http1_reader *reader, const char *data,
                                           size_t len, struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    enum weir__http1_status status;
    do {
        struct weir__span line;
        struct weir__http1_bound bound = {reader->limits.head - state->at, 431,
                                          "the head is too long"};
        status = weir__http1_line(reader, data, len, bound, &line);
        if (status != WEIR__HTTP1_REQUEST)
            return status;
        if (line.len == 0)
            return finish(reader, ret);
        if (state->field_count == WEIR__HTTP_FIELDS_MAX)
            return weir__http1_broken(reader, 431, "more than %d fields", WEIR__HTTP_FIELDS_MAX);
        struct weir__http_field *field = &ret->fields[state->field_count++];
        status = weir__http1_field(reader, line, field);
        if (WEIR__LIKELY(status == WEIR__HTTP1_REQUEST))
            status = heed(reader, field, ret);
    } while (status == WEIR__HTTP1_REQUEST);
    return status;
}

/* The request line of HTTP/1: method, target, version. */
#include "wire/http1_parts.h"

#include <string.h>

#define EMPTY_LINES_MAX 4 /* before a request line, as some clients send behind a body */

/* ---- the request line ---- */

static enum weir__http_method method_of(struct weir__span text)
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
static enum weir__http1_status read_version(struct weir__http1_reader *reader,
                                            struct weir__span *line)
{
    const char *version = line->len < 9 ? "" : line->data + line->len - 9;
    if (line->len < 9 || memcmp(version, " HTTP/", 6) || version[7] != '.' || version[6] < '0' ||
        version[6] > '9' || version[8] < '0' || version[8] > '9')
        return weir__http1_broken(reader, 400,
                                  "the request line is not METHOD TARGET HTTP/1.1: \"%.*s\"",
                                  WEIR__HTTP1_QUOTED(*line));
    if (version[6] != '1')
        return weir__http1_broken(reader, 505, "%.8s; here is HTTP/1.1", version + 1);
    reader->state.minor = version[8] != '0';
    line->len -= 9;
    return WEIR__HTTP1_REQUEST;
}

/* http://host[:port][/path]: its host; *target becomes the rest. */
static enum weir__http1_status read_absolute(struct weir__http1_reader *reader,
                                             struct weir__span *target, struct weir__span *ret_host)
{
    size_t scheme = 0;
    if (target->len > 7 && WEIR__HTTP1_IS(((struct weir__span){target->data, 7}), "http://"))
        scheme = 7;
    else if (target->len > 8 && WEIR__HTTP1_IS(((struct weir__span){target->data, 8}), "https://"))
        scheme = 8;
    if (scheme == 0)
        return weir__http1_broken(reader, 400, "target \"%.*s\": it starts with / or http://",
                                  WEIR__HTTP1_QUOTED(*target));
    struct weir__span rest = {target->data + scheme, target->len - scheme};
    size_t len = weir__http1_run(WEIR__HTTP1_HOST, rest);
    if (len == 0 || (len < rest.len && rest.data[len] != '/' && rest.data[len] != '?'))
        return weir__http1_broken(reader, 400, "target \"%.*s\": no host in it",
                                  WEIR__HTTP1_QUOTED(*target));
    *ret_host = (struct weir__span){rest.data, len};
    *target = (struct weir__span){rest.data + len, rest.len - len};
    reader->state.absolute = true;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status read_target(struct weir__http1_reader *reader,
                                           struct weir__span target, struct weir__http_request *ret)
{
    size_t stop = weir__scan(WEIR__STOP_TARGET, target.data, 0, target.len);
    if (stop < target.len)
        return weir__http1_broken(reader, 400, "byte 0x%02x in the target; write it as %%%02X",
                                  (unsigned char)target.data[stop],
                                  (unsigned char)target.data[stop]);
    ret->host = ret->query = (struct weir__span){NULL, 0};
    if (target.len == 1 && target.data[0] == '*' && ret->method == WEIR__HTTP_OPTIONS) {
        ret->path = target;
        return WEIR__HTTP1_REQUEST;
    }
    if (target.len == 0 || target.data[0] != '/') {
        enum weir__http1_status status = read_absolute(reader, &target, &ret->host);
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

static enum weir__http1_status read_request_line(struct weir__http1_reader *reader,
                                                 struct weir__span line,
                                                 struct weir__http_request *ret)
{
    if (line.len == 0) {
        if (++reader->state.empty_lines > EMPTY_LINES_MAX)
            return weir__http1_broken(reader, 400, "empty lines instead of a request");
        return WEIR__HTTP1_REQUEST;
    }
    enum weir__http1_status status = read_version(reader, &line);
    if (status != WEIR__HTTP1_REQUEST)
        return status;
    size_t len = weir__http1_run(WEIR__HTTP1_TOKEN, line);
    if (len == 0 || len == line.len || line.data[len] != ' ')
        return weir__http1_broken(reader, 400, "no method and target in \"%.*s\"",
                                  WEIR__HTTP1_QUOTED(line));
    ret->method_text = (struct weir__span){line.data, len};
    ret->method = method_of(ret->method_text);
    ret->minor = reader->state.minor;
    reader->state.post = ret->method == WEIR__HTTP_POST;
    reader->state.phase = WEIR__HTTP1_IN_FIELDS;
    return read_target(reader, (struct weir__span){line.data + len + 1, line.len - len - 1}, ret);
}

enum weir__http1_status weir__http1_head(struct weir__http1_reader *reader, const char *data,
                                         size_t len, struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    while (state->phase == WEIR__HTTP1_IN_LINE) {
        struct weir__http1_bound bound = {reader->limits.head - state->at, 414,
                                          "the request line is too long"};
        if (bound.most > reader->limits.line + 2)
            bound.most = reader->limits.line + 2;
        struct weir__span line;
        enum weir__http1_status status = weir__http1_line(reader, data, len, bound, &line);
        if (status == WEIR__HTTP1_REQUEST)
            status = read_request_line(reader, line, ret);
        if (status != WEIR__HTTP1_REQUEST)
            return status;
    }
    return weir__http1_fields(reader, data, len, ret);
}

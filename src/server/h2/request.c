/*
 * From a stream's fields and data to a request as HTTP/1 would have brought it. nghttp2 has seen to the
 * form (RFC 9113, 8.2 and 8.3): names in lower case, no connection's own fields, every pseudo field once
 * and first, a Content-Length that is true.
 *
 * In the room, fields stand one behind the other, each behind a mark; pseudo fields have no name there.
 */
#include "server/h2/h2.h"

#include "wire/scan.h"

#include <string.h>

struct mark {
    uint32_t name_len, value_len;
};

/* ---- taking ---- */

static bool h2_append(struct server_h2_stream *stream, struct weir__span name,
                      struct weir__span value, struct server_h2_part *ret_value)
{
    struct mark mark = {(uint32_t)name.len, (uint32_t)value.len};
    char *room = server_h2_stream_room(stream, sizeof mark + name.len + value.len);
    if (!room)
        return false;
    memcpy(room, &mark, sizeof mark);
    room += sizeof mark;
    memcpy(room, name.data, name.len);
    room += name.len;
    memcpy(room, value.data, value.len);
    *ret_value = (struct server_h2_part){(uint32_t)(room - stream->room), (uint32_t)value.len};
    stream->head_len = (uint32_t)stream->room_len;
    return true;
}

static bool h2_take_pseudo(struct server_h2_stream *stream, struct weir__span name,
                           struct weir__span value)
{
    struct server_h2_part scheme, *part = &scheme;
    if (weir__span_is(name, ":method"))
        part = &stream->method;
    else if (weir__span_is(name, ":path"))
        part = &stream->path;
    else if (weir__span_is(name, ":authority"))
        part = &stream->authority;
    return h2_append(stream, (struct weir__span){"", 0}, value, part);
}

bool server_h2_take_field(struct server_h2_stream *stream, struct weir__span name,
                          struct weir__span value)
{
    struct server_h2_part part;
    if (name.len == 0 || name.data[0] == ':')
        return h2_take_pseudo(stream, name, value);
    stream->field_count++;
    if (weir__span_is(name, "cookie")) {
        stream->crumbs++;
        stream->cookie_len += (uint32_t)value.len + 2;
    }
    if (weir__span_is(name, "expect"))
        stream->expects = weir__span_is_word(value, "100-continue");
    return h2_append(stream, name, value, &part);
}

bool server_h2_take_body(struct server_h2_stream *stream, const void *data, size_t len)
{
    char *room = server_h2_stream_room(stream, len);
    if (room)
        memcpy(room, data, len);
    return room != NULL;
}

/* ---- the whole ---- */

static enum weir__http_method h2_method_of(struct weir__span text)
{
    static const char *const names[] = {[WEIR__HTTP_GET] = "GET",
                                        [WEIR__HTTP_HEAD] = "HEAD",
                                        [WEIR__HTTP_POST] = "POST",
                                        [WEIR__HTTP_OPTIONS] = "OPTIONS"};
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        if (weir__span_is(text, names[i]))
            return (enum weir__http_method)i;
    }
    return WEIR__HTTP_OTHER;
}

static struct weir__span h2_part_of(const struct server_h2_stream *stream,
                                    struct server_h2_part part)
{
    return (struct weir__span){stream->room + part.at, part.len};
}

/* As strict as with HTTP/1. */
static bool h2_read_target(const struct server_h2_stream *stream, struct weir__http_request *ret)
{
    struct weir__span target = h2_part_of(stream, stream->path);
    if (weir__scan(WEIR__STOP_TARGET, target.data, 0, target.len) < target.len)
        return false;
    const char *mark = target.len ? memchr(target.data, '?', target.len) : NULL;
    ret->path = target;
    ret->query = (struct weir__span){NULL, 0};
    if (mark) {
        ret->path.len = (size_t)(mark - target.data);
        ret->query = (struct weir__span){mark + 1, target.len - ret->path.len - 1};
    }
    if (target.len > 0 && target.data[0] == '/')
        return true;
    return weir__span_is(target, "*") && ret->method == WEIR__HTTP_OPTIONS;
}

/* A cookie may come in crumbs, each a field of its own: here they are one again (RFC 9113, 8.2.3). */
static void h2_read_fields(const struct server_h2_stream *stream, char *cookie,
                           struct weir__http_request *ret)
{
    const char *at = stream->room, *end = stream->room + stream->head_len;
    size_t cookie_len = 0;
    ret->field_count = 0;
    while (at < end) {
        struct mark mark;
        memcpy(&mark, at, sizeof mark);
        at += sizeof mark;
        struct weir__http_field field = {{at, mark.name_len}, {at + mark.name_len, mark.value_len}};
        at += mark.name_len + mark.value_len;
        if (mark.name_len == 0)
            continue;
        if (!cookie || !weir__span_is(field.name, "cookie")) {
            ret->fields[ret->field_count++] = field;
            continue;
        }
        memcpy(cookie + cookie_len, field.value.data, field.value.len);
        cookie_len += field.value.len;
        cookie[cookie_len++] = ';';
        cookie[cookie_len++] = ' ';
    }
    if (cookie)
        ret->fields[ret->field_count++] =
            (struct weir__http_field){{"cookie", 6}, {cookie, cookie_len - 2}};
}

/* :authority, or else Host; two that differ could be understood differently elsewhere. */
static bool h2_read_host(const struct server_h2_stream *stream, struct weir__http_request *ret)
{
    struct weir__span host;
    ret->host = h2_part_of(stream, stream->authority);
    if (!weir__http_field(ret, "host", &host))
        return true;
    if (ret->host.len == 0)
        ret->host = host;
    return ret->host.len == host.len && !strncasecmp(ret->host.data, host.data, host.len);
}

int server_h2_request(struct server_h2_stream *stream, struct weir__http_request *ret)
{
    char *cookie = NULL;
    size_t body_len = stream->room_len - stream->head_len;
    if (stream->crumbs > 1 && !(cookie = server_h2_stream_room(stream, stream->cookie_len)))
        return 431;
    ret->body = (struct weir__span){stream->room + stream->head_len, body_len};
    ret->method_text = h2_part_of(stream, stream->method);
    ret->method = h2_method_of(ret->method_text);
    ret->minor = 2;
    ret->keep_alive = true;
    h2_read_fields(stream, cookie, ret);
    return h2_read_target(stream, ret) && h2_read_host(stream, ret) ? 0 : 400;
}

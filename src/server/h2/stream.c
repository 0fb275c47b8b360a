/* HTTP/2 streams: taken from a thread's pool, filled with a request, given back. See h2.h. */
#include "server/h2/h2.h"

#include "wire/scan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define POOL_MAX 1024 /* streams that a thread keeps for later */

/* ---- whose turn it is ---- */

static void h2_leave(struct server_h2_stream *stream)
{
    struct server_h2_list *list = stream->list;
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        list->first = stream->next;
    if (stream->next)
        stream->next->prev = stream->prev;
    else
        list->last = stream->prev;
    list->count--;
}

static void h2_enter(struct server_h2_stream *stream, struct server_h2_list *list)
{
    stream->list = list;
    stream->next = NULL;
    stream->prev = list->last;
    if (list->last)
        list->last->next = stream;
    else
        list->first = stream;
    list->last = stream;
    list->count++;
}

void server_h2_stream_move(struct server_h2_stream *stream, struct server_h2_list *list)
{
    h2_leave(stream);
    stream->since_us = stream->h2->conn->thread->now_us;
    h2_enter(stream, list);
}

/* ---- memory kept ---- */

static void h2_forget(struct server_h2 *h2, size_t bytes)
{
    h2->held -= bytes;
    atomic_fetch_sub(&h2->conn->thread->server->kept, bytes);
}

static size_t h2_count_of(const struct server_h2 *h2)
{
    return h2->waiting.count + h2->ready.count + h2->acting.count + h2->watched.count;
}

/* One more stream is counted, if it needs to be. */
static bool h2_count_in(struct server_h2 *h2)
{
    if (h2_count_of(h2) < SERVER_H2_FREE + h2->counted)
        return true;
    struct server *server = h2->conn->thread->server;
    size_t chunk = SERVER_H2_CHUNK * sizeof(struct server_h2_stream);
    size_t all = h2->counted * sizeof(struct server_h2_stream) + chunk;
    if (all > server_left(server) / SERVER_AWAY_SHARE || !server_keep(server, chunk))
        return false;
    h2->counted += SERVER_H2_CHUNK;
    return true;
}

static void h2_count_out(struct server_h2 *h2)
{
    if (h2->counted == 0 || h2_count_of(h2) > 0)
        return;
    atomic_fetch_sub(&h2->conn->thread->server->kept,
                     h2->counted * sizeof(struct server_h2_stream));
    h2->counted = 0;
}

/* ---- taking and closing ---- */

struct server_h2_stream *server_h2_stream_take(struct server_h2 *h2, int32_t id)
{
    if (h2_count_of(h2) >= SERVER_H2_STREAMS || h2->conn->away_asks >= SERVER_AWAY_ASKS ||
        h2->owned > SERVER_H2_HELD || !h2_count_in(h2))
        return NULL;
    struct server_h2_stream *stream = server_pool_take(&h2->conn->thread->streams, sizeof *stream);
    if (!stream)
        return NULL;
    memset(stream, 0, offsetof(struct server_h2_stream, first_room));
    stream->h2 = h2;
    stream->id = id;
    stream->room = stream->first_room;
    stream->room_size = sizeof stream->first_room;
    stream->since_us = h2->conn->thread->now_us;
    h2_enter(stream, &h2->waiting);
    return stream;
}

static void h2_free_rooms(struct server_h2_stream *stream)
{
    struct server_h2 *h2 = stream->h2;
    if (stream->room != stream->first_room) {
        h2_forget(h2, stream->room_size);
        free(stream->room);
    }
    if (stream->owned) {
        h2_forget(h2, stream->body_len);
        h2->owned -= stream->body_len;
        free(stream->owned);
    }
}

void server_h2_stream_empty(struct server_h2_stream *stream)
{
    assert(!stream->owned);
    h2_free_rooms(stream);
    stream->room = stream->first_room;
    stream->room_size = sizeof stream->first_room;
    stream->room_len = stream->head_len = 0;
}

void server_h2_stream_close(struct server_h2_stream *stream)
{
    struct server_h2 *h2 = stream->h2;
    server_work_cancel(h2->conn, stream->id);
    h2_leave(stream);
    h2_free_rooms(stream);
    server_pool_give(&h2->conn->thread->streams, stream, POOL_MAX);
    h2_count_out(h2);
}

void server_h2_streams_free(struct server_h2 *h2)
{
    struct server_h2_list *const lists[] = {&h2->waiting, &h2->ready, &h2->acting, &h2->watched};
    for (size_t i = 0; i < WEIR__COUNT(lists); i++) {
        struct server_h2_stream *stream = lists[i]->first, *next;
        for (; stream; stream = next) {
            next = stream->next;
            h2_free_rooms(stream);
            server_pool_give(&h2->conn->thread->streams, stream, POOL_MAX);
        }
        *lists[i] = (struct server_h2_list){0};
    }
    h2_count_out(h2);
}

void server_h2_streams_trim(struct server_h2 *h2)
{
    struct server_h2_stream *stream = h2->acting.first;
    for (; stream && h2->held > 0; stream = stream->next) {
        if (stream->room != stream->first_room && !stream->answered)
            server_h2_stream_empty(stream);
    }
}

/* ---- room ---- */

/* Doubles, and moves out of the first room, which every stream has. */
static bool h2_grow(struct server_h2_stream *stream, size_t n)
{
    struct server_h2 *h2 = stream->h2;
    struct server *server = h2->conn->thread->server;
    bool first = stream->room == stream->first_room;
    size_t size = stream->room_size, had = first ? 0 : stream->room_size;
    while (size < stream->room_len + n)
        size *= 2;
    size_t more = size - had;
    if (h2->held + more > SERVER_H2_HELD + (size_t)server->config.max_body ||
        !server_keep(server, more))
        return false;
    char *bigger = realloc(first ? NULL : stream->room, size);
    if (!bigger) {
        atomic_fetch_sub(&server->kept, more);
        return false;
    }
    if (first)
        memcpy(bigger, stream->first_room, stream->room_len);
    h2->held += more;
    stream->room = bigger;
    stream->room_size = size;
    return true;
}

char *server_h2_stream_room(struct server_h2_stream *stream, size_t n)
{
    if (n > stream->room_size - stream->room_len && !h2_grow(stream, n))
        return NULL;
    char *room = stream->room + stream->room_len;
    stream->room_len += n;
    return room;
}

/* Requests of one portion are taken before the first of them is answered: so it is asked here once
 * more. One such body each may have; more only while much is left. */
bool server_h2_stream_own(struct server_h2_stream *stream, char *memory, struct weir__span body)
{
    struct server_h2 *h2 = stream->h2;
    struct server *server = h2->conn->thread->server;
    size_t all = h2->owned + body.len;
    if (h2->owned > 0 && (all > SERVER_H2_HELD || all > server_left(server) / SERVER_AWAY_SHARE))
        return false;
    if (!server_keep(server, body.len))
        return false;
    stream->owned = memory;
    stream->body = body.data;
    stream->body_len = body.len;
    h2->held += body.len;
    h2->owned += body.len;
    return true;
}

/* ---- requests ---- */

/*
 * From a stream's fields and data to a request as HTTP/1 would have brought it. nghttp2 has seen
 * to the form (RFC 9113, 8.2 and 8.3): names in lower case, no connection's own fields, every
 * pseudo field once and first, a Content-Length that is true.
 *
 * In the room, fields stand one behind the other, each behind a mark; pseudo fields have no name
 * there.
 */

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

/* A cookie may come in crumbs, each a field of its own: here they are one again (RFC 9113,
 * 8.2.3). */
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

/* HTTP/2 streams: taken from a thread's pool, filled with a request, given back. See h2.h. */
#include "server/h2/h2.h"
#include "server/workers.h"

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

void server_h2_stream_wait(struct server_h2_stream *stream)
{
    h2_leave(stream);
    stream->since_us = stream->h2->conn->thread->now_us;
    h2_enter(stream, &stream->h2->waiting);
}

void server_h2_stream_ready(struct server_h2_stream *stream)
{
    h2_leave(stream);
    h2_enter(stream, &stream->h2->ready);
}

void server_h2_stream_act(struct server_h2_stream *stream)
{
    h2_leave(stream);
    h2_enter(stream, &stream->h2->acting);
}

void server_h2_stream_watch(struct server_h2_stream *stream)
{
    h2_leave(stream);
    h2_enter(stream, &stream->h2->watched);
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

/* Requests of one portion are taken before the first of them is answered: so it is asked here once more.
 * One such body each may have; more only while much is left. */
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

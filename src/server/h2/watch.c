/*
 * What happens on an HTTP/2 connection without a request: the health that a peer watches changes,
 * and the connection grows old. See h2.h.
 *
 * A watched stream is sent a status whenever it is another one, the newest only, however slowly the
 * peer reads. It ends when the server drains or the connection is old; the peer then asks another
 * one.
 */
#include "server/h2/h2.h"

#include <string.h>

#define JITTER_PARTS 1024 /* ages are spread over 10 % more and less, in so many steps */

/* ---- health ---- */

static enum weir__health h2_status_of(const struct server_h2_stream *stream)
{
    if (!stream->watch.known)
        return WEIR__HEALTH_SERVICE_UNKNOWN;
    return server_is_ready(stream->h2->conn->thread->server) ? WEIR__HEALTH_SERVING
                                                             : WEIR__HEALTH_NOT_SERVING;
}

/* The newest status as the body that is to be sent. */
static void h2_renew_body(struct server_h2_stream *stream)
{
    struct weir__buffer body = weir__buffer_over(stream->first_room, sizeof stream->first_room);
    stream->watch.sent = stream->watch.now;
    size_t begun = weir__grpc_frame_begin(&body);
    weir__health_put(&body, stream->watch.sent);
    weir__grpc_frame_end(&body, begun);
    stream->body = body.data;
    stream->body_len = body.len;
    stream->body_at = 0;
}

static ssize_t h2_end_watch(nghttp2_session *session, int32_t id, uint32_t *flags)
{
    static const nghttp2_nv trailer = SERVER_H2_FIELD("grpc-status", "14"); /* unavailable */
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return nghttp2_submit_trailer(session, id, &trailer, 1) ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
                                                            : 0;
}

static ssize_t h2_read_status(nghttp2_session *session, int32_t id, uint8_t *room, size_t size,
                              uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct server_h2_stream *stream = source->ptr;
    (void)context;
    if (stream->body_at == stream->body_len && stream->watch.now != stream->watch.sent)
        h2_renew_body(stream);
    size_t left = stream->body_len - stream->body_at, n = left < size ? left : size;
    if (left == 0)
        return stream->watch.ends ? h2_end_watch(session, id, flags) : NGHTTP2_ERR_DEFERRED;
    memcpy(room, stream->body + stream->body_at, n);
    stream->body_at += n;
    return (ssize_t)n;
}

bool server_h2_watch(struct server_h2_stream *stream, bool known)
{
    static const nghttp2_nv head[] = SERVER_H2_GRPC_HEAD;
    if (stream->h2->watched.count >= SERVER_H2_WATCHES)
        return false;
    server_h2_stream_empty(stream);
    server_h2_stream_move(stream, &stream->h2->watched);
    stream->body_len = stream->body_at = 0;
    stream->watch.known = known;
    stream->watch.sent = WEIR__HEALTH_UNKNOWN;
    stream->watch.now = h2_status_of(stream);
    server_h2_submit(stream, head, WEIR__COUNT(head), h2_read_status);
    return true;
}

bool server_h2_tell_watchers(struct server_h2 *h2, bool last)
{
    bool changed = false;
    for (struct server_h2_stream *stream = h2->watched.first; stream; stream = stream->next) {
        enum weir__health now = h2_status_of(stream);
        if (now == stream->watch.now && stream->watch.ends == last)
            continue;
        stream->watch.now = now;
        stream->watch.ends = stream->watch.ends || last;
        nghttp2_session_resume_data(h2->session, stream->id);
        changed = true;
    }
    return changed;
}

/* ---- age ---- */

int64_t server_h2_age_us(const struct server_h2 *h2)
{
    int64_t most = h2->conn->thread->server->config.max_age_us;
    int64_t step = (int64_t)(h2->conn->id * UINT64_C(0x9e3779b97f4a7c15) >> 32) % JITTER_PARTS;
    return most - most / 10 + most / 5 / JITTER_PARTS * step;
}

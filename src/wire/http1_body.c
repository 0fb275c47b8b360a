/*
 * Chunked bodies, put together in place: the body grows from the head's end, the bytes not understood
 * yet start at state.at, and what lies between is of no use any more.
 *
 *     head | body so far | … | at: SIZE[;extension] CR LF  bytes CR LF … 0 CR LF [trailer CR LF …] CR LF
 *
 * All that is not body (sizes, extensions, trailers) may be as long as the longest head and body.
 */
#include "wire/http1_parts.h"

#include <string.h>

#define CHUNK_LINE_MAX 256 /* bytes of a size and its extensions, CR LF included */

static const char too_much[] = "chunk sizes, extensions and trailers are too long together";

/* How many bytes that are not body may still come. */
static size_t room_left(const struct weir__http1_reader *reader)
{
    const struct weir__http1_state *state = &reader->state;
    return reader->limits.head + reader->limits.body -
           (state->at - state->head_size - state->body_size);
}

static enum weir__http1_status read_size(struct weir__http1_reader *reader, struct weir__span line)
{
    struct weir__http1_state *state = &reader->state;
    size_t most = reader->limits.body - state->body_size, size = 0, i = 0;
    for (; i < line.len && weir__http1_hex(line.data[i]) >= 0; i++) {
        size = size << 4 | (size_t)weir__http1_hex(line.data[i]);
        if (size > most)
            return weir__http1_broken(reader, 413, "the body is longer than %zu bytes",
                                      reader->limits.body);
    }
    if (i == 0 || (i < line.len && line.data[i] != ';'))
        return weir__http1_broken(reader, 400, "\"%.*s\" is no chunk size",
                                  WEIR__HTTP1_QUOTED(line));
    state->chunk_left = size;
    state->phase = size ? WEIR__HTTP1_IN_CHUNK : WEIR__HTTP1_IN_TRAILERS;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status read_chunk_line(struct weir__http1_reader *reader, const char *data,
                                               size_t len)
{
    struct weir__http1_bound bound = {room_left(reader), 413, too_much};
    if (bound.most >= CHUNK_LINE_MAX)
        bound = (struct weir__http1_bound){CHUNK_LINE_MAX, 400,
                                           "a chunk's size and extensions are too long"};
    struct weir__span line;
    enum weir__http1_status status = weir__http1_line(reader, data, len, bound, &line);
    return status == WEIR__HTTP1_REQUEST ? read_size(reader, line) : status;
}

static enum weir__http1_status take_chunk(struct weir__http1_state *state, char *data, size_t len)
{
    size_t n = len - state->at < state->chunk_left ? len - state->at : state->chunk_left;
    memmove(data + state->head_size + state->body_size, data + state->at, n);
    state->body_size += n;
    state->at += n;
    state->chunk_left -= n;
    if (state->chunk_left)
        return WEIR__HTTP1_NEED_MORE;
    state->phase = WEIR__HTTP1_BEHIND_CHUNK;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status end_chunk(struct weir__http1_reader *reader, const char *data,
                                         size_t len)
{
    struct weir__http1_state *state = &reader->state;
    size_t here = len - state->at < 2 ? len - state->at : 2;
    if (room_left(reader) < 2)
        return weir__http1_broken(reader, 413, "%s", too_much);
    if (memcmp(data + state->at, "\r\n", here))
        return weir__http1_broken(reader, 400, "no CR LF behind a chunk");
    if (here < 2)
        return WEIR__HTTP1_NEED_MORE;
    state->at = state->scanned = state->at + 2;
    state->phase = WEIR__HTTP1_IN_CHUNK_LINE;
    return WEIR__HTTP1_REQUEST;
}

static enum weir__http1_status read_trailer(struct weir__http1_reader *reader, const char *data,
                                            size_t len)
{
    struct weir__http_field field;
    struct weir__span line;
    struct weir__http1_bound bound = {room_left(reader), 413, too_much};
    enum weir__http1_status status = weir__http1_line(reader, data, len, bound, &line);
    if (status != WEIR__HTTP1_REQUEST)
        return status;
    if (line.len > 0)
        return weir__http1_field(reader, line, &field);
    reader->state.phase = WEIR__HTTP1_DONE;
    return WEIR__HTTP1_REQUEST;
}

enum weir__http1_status weir__http1_chunks(struct weir__http1_reader *reader, char *data,
                                           size_t len)
{
    enum weir__http1_status status = WEIR__HTTP1_REQUEST;
    while (status == WEIR__HTTP1_REQUEST && reader->state.phase != WEIR__HTTP1_DONE) {
        if (reader->state.phase == WEIR__HTTP1_IN_CHUNK_LINE)
            status = read_chunk_line(reader, data, len);
        else if (reader->state.phase == WEIR__HTTP1_IN_CHUNK)
            status = take_chunk(&reader->state, data, len);
        else if (reader->state.phase == WEIR__HTTP1_BEHIND_CHUNK)
            status = end_chunk(reader, data, len);
        else
            status = read_trailer(reader, data, len);
    }
    return status;
}

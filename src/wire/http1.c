/*
 * The HTTP/1 reader: see http1.h for the contract.
 *
 * A head is read line by line, each once, when it is whole; what matters of it is kept in the state,
 * since the bytes may move before the next call. Spans are made by the call that completes the
 * request: where an earlier one read the head, it is read once more.
 */
#include "wire/http1_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void weir__http1_begin(struct weir__http1_reader *reader, const struct weir__http1_limits *limits)
{
    assert(limits->head <= SIZE_MAX / 8 && limits->body <= SIZE_MAX / 8);
    memset(reader, 0, sizeof *reader);
    reader->limits = *limits;
    if (limits->line > limits->head)
        reader->limits.line = limits->head;
}

enum weir__http1_status weir__http1_broken(struct weir__http1_reader *reader, int status,
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
    reader->state.phase = WEIR__HTTP1_FAILED;
    return WEIR__HTTP1_BROKEN;
}

/* ---- lines ---- */

static enum weir__http1_status control(struct weir__http1_reader *reader, unsigned char c)
{
    if (c == '\n' || c == '\r')
        return weir__http1_broken(reader, 400, "a %s alone; lines end in CR LF",
                                  c == '\n' ? "line feed" : "carriage return");
    if (c == 0x16 && reader->state.at == 0)
        return weir__http1_broken(reader, 400, "this looks like TLS; here is plain HTTP");
    return weir__http1_broken(reader, 400, "control character 0x%02x in a line", c);
}

enum weir__http1_status weir__http1_no_line(struct weir__http1_reader *reader, const char *data,
                                            size_t stop, size_t end, bool bounded,
                                            const struct weir__http1_bound *bound)
{
    if (stop < end && (data[stop] != '\r' || stop + 1 < end))
        return control(reader, (unsigned char)data[stop]);
    if (bounded)
        return weir__http1_broken(reader, bound->status, "%s", bound->why);
    reader->state.scanned = stop;
    return WEIR__HTTP1_NEED_MORE;
}

/* ---- requests ---- */

/* Whether the body is whole, from the head's end on. */
static enum weir__http1_status read_body(struct weir__http1_reader *reader, char *data, size_t len)
{
    struct weir__http1_state *state = &reader->state;
    if (state->chunked)
        return weir__http1_chunks(reader, data, len);
    if (len - state->head_size < state->body_size)
        return WEIR__HTTP1_NEED_MORE;
    state->at = state->head_size + state->body_size;
    return WEIR__HTTP1_REQUEST;
}

/* Makes the spans of a head that was read by earlier calls. */
static void read_head_again(const struct weir__http1_reader *reader, const char *data,
                            struct weir__http_request *ret)
{
    struct weir__http1_reader again;
    weir__http1_begin(&again, &reader->limits);
    enum weir__http1_status status = weir__http1_head(&again, data, reader->state.head_size, ret);
    assert(status == WEIR__HTTP1_REQUEST);
    (void)status;
}

void weir__http1_head_so_far(const struct weir__http1_reader *reader, const char *data,
                             struct weir__http_request *ret, size_t *ret_body, bool *ret_chunked)
{
    assert(reader->state.head_size > 0);
    read_head_again(reader, data, ret);
    ret->body = (struct weir__span){NULL, 0};
    *ret_chunked = reader->state.chunked;
    *ret_body = reader->state.chunked ? 0 : reader->state.body_size;
}

enum weir__http1_status weir__http1_next(struct weir__http1_reader *reader, char *data, size_t len,
                                         struct weir__http_request *ret)
{
    struct weir__http1_state *state = &reader->state;
    if (state->phase == WEIR__HTTP1_FAILED)
        return WEIR__HTTP1_BROKEN;
    if (state->phase == WEIR__HTTP1_DONE)
        *state = (struct weir__http1_state){0};
    assert(len >= state->at);
    reader->size = 0;
    reader->expects_continue = reader->head_came = false;
    bool in_one = state->scanned == 0;
    enum weir__http1_status status;
    if (state->phase < WEIR__HTTP1_IN_BODY) {
        status = weir__http1_head(reader, data, len, ret);
        if (status != WEIR__HTTP1_REQUEST)
            return status;
        reader->expects_continue = state->expects && len == state->head_size;
        reader->head_came = true;
    }
    status = read_body(reader, data, len);
    if (status != WEIR__HTTP1_REQUEST)
        return status;
    reader->head_came = false;
    if (!in_one)
        read_head_again(reader, data, ret);
    ret->body = (struct weir__span){data + state->head_size, state->body_size};
    reader->size = state->at;
    reader->expects_continue = false;
    state->phase = WEIR__HTTP1_DONE;
    return WEIR__HTTP1_REQUEST;
}

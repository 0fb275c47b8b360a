/*
 * The RESP reader: see resp.h for the contract.
 *
 * A message is read element by element. reader->at is the element being read; it moves only when
 * the element is complete, so that a call that needs more leaves nothing half done. The stack of
 * frames counts what is still to come: frames[0] awaits the message itself, each aggregate pushes a
 * frame for its children, and the message is complete when frames[0] awaits nothing and nothing is
 * above it. An attribute stands before an element without being one: its frame is pushed, its
 * parent's count stays.
 */
#include "wire/resp_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum weir__resp_status weir__resp_broken(struct weir__resp_reader *reader, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reader->why, sizeof reader->why, format, args);
    va_end(args);
    return WEIR__RESP_BROKEN;
}

enum weir__resp_status weir__resp_need(struct weir__resp_reader *reader, size_t bytes)
{
    reader->need = bytes;
    return WEIR__RESP_NEED_MORE;
}

static void start_message(struct weir__resp_reader *reader)
{
    reader->count = 0;
    reader->size = 0;
    reader->promised = 1;
    reader->depth = 0;
    reader->at = 0;
    reader->scanned = 0;
    reader->frames[0] = (struct weir__resp_frame){.left = 1};
}

void weir__resp_begin(struct weir__resp_reader *reader, enum weir__resp_side side,
                      const struct weir__resp_limits *limits, struct weir__resp_node *nodes,
                      uint32_t room)
{
    assert(room >= 1 && limits->depth >= 1 && limits->depth <= WEIR__RESP_DEPTH_MAX);
    assert(limits->message >= 1 && limits->message <= WEIR__RESP_MESSAGE_MAX);
    memset(reader, 0, sizeof *reader);
    reader->side = side;
    reader->limits = *limits;
    reader->limits.bulk = (uint32_t)weir__min(limits->bulk, limits->message);
    reader->limits.line = (uint32_t)weir__min(limits->line, limits->message);
    reader->nodes = nodes;
    reader->room = room;
    start_message(reader);
    reader->status = WEIR__RESP_NEED_MORE;
}

/* ---- lines ---- */

/* The offset of the line feed that ends the line at reader->at, `most` bytes and CR LF at most. */
static enum weir__resp_status find_end(struct weir__resp_reader *reader, const char *data,
                                       size_t len, size_t most, size_t *ret)
{
    size_t bound = reader->at + most + 2;
    bool message_ends_first = bound > reader->limits.message;
    if (message_ends_first)
        bound = reader->limits.message;
    size_t until = len < bound ? len : bound;
    const char *end = NULL;
    if (until > reader->scanned)
        end = memchr(data + reader->scanned, '\n', until - reader->scanned);
    if (end) {
        *ret = (size_t)(end - data);
        return WEIR__RESP_MESSAGE;
    }
    if (until < bound) {
        reader->scanned = until;
        return weir__resp_need(reader, 1);
    }
    if (message_ends_first)
        return weir__resp_broken(reader, "a message longer than %u bytes", reader->limits.message);
    return weir__resp_broken(reader, "a line longer than %zu bytes", most);
}

/* The line of the element at reader->at, strictly ended by CR LF and without either inside. */
static enum weir__resp_status read_line(struct weir__resp_reader *reader, const char *data,
                                        size_t len, size_t most, struct weir__resp_line *ret)
{
    size_t end = 0;
    enum weir__resp_status status = find_end(reader, data, len, 1 + most, &end);
    if (status != WEIR__RESP_MESSAGE)
        return status;
    ret->text = data + reader->at + 1;
    ret->len = end - reader->at - 1;
    ret->end = end + 1;
    const char *cr = memchr(ret->text, '\r', ret->len);
    if (!cr || (size_t)(cr - ret->text) != ret->len - 1)
        return weir__resp_broken(reader, "a line must end in CR LF and have neither inside");
    ret->len--;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status read_inline(struct weir__resp_reader *reader, char *data, size_t len)
{
    size_t end = 0;
    enum weir__resp_status status = find_end(reader, data, len, reader->limits.line, &end);
    if (status != WEIR__RESP_MESSAGE)
        return status;
    size_t text = end - (end > 0 && data[end - 1] == '\r');
    if (text > reader->limits.line)
        return weir__resp_broken(reader, "a line longer than %u bytes", reader->limits.line);
    reader->at = end + 1;
    reader->frames[0].left = 0;
    return weir__resp_inline(reader, data, text);
}

/* ---- messages ---- */

/* The most bytes of the line that starts with this type byte; -1: there is no such type. */
static int64_t line_max(const struct weir__resp_reader *reader, char type)
{
    switch (type) {
    case '+':
    case '-':
    case '(':
        return reader->limits.line;
    case ',':
        return WEIR__RESP_DOUBLE_MAX;
    default:
        return type && strchr(":_#$!=*%~>|", type) ? WEIR__RESP_NUMBER_MAX : -1;
    }
}

static enum weir__resp_status read_element(struct weir__resp_reader *reader, char *data, size_t len)
{
    if (reader->at == reader->limits.message)
        return weir__resp_broken(reader, "a message longer than %u bytes", reader->limits.message);
    if (reader->at == len)
        return weir__resp_need(reader, 1);
    char type = data[reader->at];
    if (reader->side == WEIR__RESP_REQUESTS) {
        if (reader->depth == 0 && type != '*')
            return read_inline(reader, data, len);
        if (reader->depth == 1 && type != '$')
            return weir__resp_broken(reader, "expected '$', found byte 0x%02x",
                                     (unsigned char)type);
    }
    int64_t most = line_max(reader, type);
    if (most < 0)
        return weir__resp_broken(reader, "no type starts with byte 0x%02x", (unsigned char)type);
    struct weir__resp_line line;
    enum weir__resp_status status = read_line(reader, data, len, (size_t)most, &line);
    return status == WEIR__RESP_MESSAGE ? weir__resp_element(reader, data, len, &line) : status;
}

/* Closes the frames that await nothing; whether the message is complete. */
static bool close_frames(struct weir__resp_reader *reader)
{
    for (; reader->depth > 0 && reader->frames[reader->depth].left == 0; reader->depth--) {
        const struct weir__resp_frame *frame = &reader->frames[reader->depth];
        if (!frame->skipped)
            reader->nodes[frame->node].next = reader->count;
    }
    return reader->depth == 0 && reader->frames[0].left == 0;
}

enum weir__resp_status weir__resp_next(struct weir__resp_reader *reader, char *data, size_t len)
{
    if (reader->status == WEIR__RESP_BROKEN)
        return WEIR__RESP_BROKEN;
    if (reader->status == WEIR__RESP_MESSAGE)
        start_message(reader);
    assert(len >= reader->at);
    if (reader->side == WEIR__RESP_REQUESTS && reader->at == 0 && reader->scanned == 0 &&
        weir__resp_request(reader, data, len)) {
        reader->status = WEIR__RESP_MESSAGE;
        return WEIR__RESP_MESSAGE;
    }
    do
        reader->status = read_element(reader, data, len);
    while (reader->status == WEIR__RESP_MESSAGE && !close_frames(reader));
    reader->size = reader->status == WEIR__RESP_MESSAGE ? reader->at : 0;
    return reader->status;
}

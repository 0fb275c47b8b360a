/*
 * Elements of RESP messages: what stands behind each type byte, checked, and put into its node. An
 * element is counted and reader->at moves behind it only when it is complete.
 */
#include "wire/resp_parts.h"

#include <assert.h>
#include <string.h>

/* Digits only, or "-1": what lengths and counts are. */
static bool read_length(const struct weir__resp_line *line, int64_t *ret)
{
    bool null = line->len == 2 && !memcmp(line->text, "-1", 2);
    if (!null && (line->len == 0 || line->text[0] == '-' || line->text[0] == '+'))
        return false;
    return weir__resp_read_integer(line->text, line->len, ret);
}

/* Room for the element, which ends at `end`. There is some: headers were held against it. */
static struct weir__resp_node *add(struct weir__resp_reader *reader, enum weir__resp_type type,
                                   size_t end)
{
    struct weir__resp_frame *frame = &reader->frames[reader->depth];
    struct weir__resp_node *node = &reader->unwanted;
    assert(frame->left > 0 && (frame->skipped || reader->count < reader->room));
    if (!frame->skipped)
        node = &reader->nodes[reader->count++];
    frame->left--;
    *node = (struct weir__resp_node){.type = type, .next = reader->count};
    reader->at = reader->scanned = end;
    return node;
}

static enum weir__resp_status add_text(struct weir__resp_reader *reader, enum weir__resp_type type,
                                       size_t at, size_t len, size_t end)
{
    struct weir__resp_node *node = add(reader, type, end);
    node->at = (uint32_t)at;
    node->len = (uint32_t)len;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status take_integer(struct weir__resp_reader *reader,
                                           const struct weir__resp_line *line)
{
    int64_t integer;
    if (!weir__resp_read_integer(line->text, line->len, &integer))
        return weir__resp_broken(reader, "\"%.*s\" is no 64-bit integer", (int)line->len,
                                 line->text);
    add(reader, WEIR__RESP_INTEGER, line->end)->integer = integer;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status take_double(struct weir__resp_reader *reader,
                                          const struct weir__resp_line *line)
{
    double number;
    if (!weir__resp_read_double(line->text, line->len, &number))
        return weir__resp_broken(reader, "\"%.*s\" is no double", (int)line->len, line->text);
    add(reader, WEIR__RESP_DOUBLE, line->end)->number = number;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status take_boolean(struct weir__resp_reader *reader,
                                           const struct weir__resp_line *line)
{
    if (line->len != 1 || (line->text[0] != 't' && line->text[0] != 'f'))
        return weir__resp_broken(reader, "\"%.*s\" is no boolean, t or f", (int)line->len,
                                 line->text);
    add(reader, WEIR__RESP_BOOLEAN, line->end)->integer = line->text[0] == 't';
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status take_null(struct weir__resp_reader *reader,
                                        const struct weir__resp_line *line)
{
    if (line->len != 0)
        return weir__resp_broken(reader, "a null has no text, found \"%.*s\"", (int)line->len,
                                 line->text);
    add(reader, WEIR__RESP_NULL, line->end);
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status take_big(struct weir__resp_reader *reader,
                                       const struct weir__resp_line *line)
{
    size_t digits = line->len > 0 && (line->text[0] == '-' || line->text[0] == '+');
    for (size_t i = digits; i < line->len; i++) {
        if (line->text[i] < '0' || line->text[i] > '9')
            return weir__resp_broken(reader, "a big number with byte 0x%02x in it",
                                     (unsigned char)line->text[i]);
    }
    if (digits == line->len)
        return weir__resp_broken(reader, "a big number without digits");
    return add_text(reader, WEIR__RESP_BIG, reader->at + 1, line->len, line->end);
}

/* $, ! and =: a length, that many bytes, CR LF. */
static enum weir__resp_status take_bulk(struct weir__resp_reader *reader, const char *data,
                                        size_t len, const struct weir__resp_line *line)
{
    char type = data[reader->at];
    int64_t length;
    bool may_be_null = type == '$' && reader->side == WEIR__RESP_REPLIES;
    if (!read_length(line, &length) || (length < 0 && !may_be_null))
        return weir__resp_broken(reader, "\"%.*s\" is no length of a bulk string", (int)line->len,
                                 line->text);
    if (length < 0) {
        add(reader, WEIR__RESP_NULL, line->end);
        return WEIR__RESP_MESSAGE;
    }
    if (length > reader->limits.bulk)
        return weir__resp_broken(reader, "a bulk string of %lld bytes, the most is %u",
                                 (long long)length, reader->limits.bulk);
    size_t text = line->end, size = (size_t)length, end = text + size + 2;
    if (end > reader->limits.message)
        return weir__resp_broken(reader, "a message longer than %u bytes", reader->limits.message);
    if (len < end)
        return weir__resp_need(reader, end - len);
    if (memcmp(data + end - 2, "\r\n", 2))
        return weir__resp_broken(reader, "no CR LF behind a bulk string of %zu bytes", size);
    if (type == '!')
        return add_text(reader, WEIR__RESP_ERROR, text, size, end);
    if (type == '$')
        return add_text(reader, WEIR__RESP_BULK, text, size, end);
    if (size < 4 || data[text + 3] != ':')
        return weir__resp_broken(reader, "a verbatim string must start with its format, like txt:");
    return add_text(reader, WEIR__RESP_VERBATIM, text + 4, size - 4, end);
}

/* Opens a frame for the children of an aggregate, or the pairs of an attribute. */
static enum weir__resp_status push(struct weir__resp_reader *reader, char type, uint32_t children,
                                   size_t end)
{
    bool skipped = reader->frames[reader->depth].skipped || type == '|';
    uint32_t node = reader->count;
    if (!skipped)
        reader->promised += children;
    if (type != '|')
        add(reader, (enum weir__resp_type)type, end)->len = children;
    reader->at = reader->scanned = end;
    if (children > 0)
        reader->frames[++reader->depth] = (struct weir__resp_frame){children, node, skipped};
    return WEIR__RESP_MESSAGE;
}

/* *, %, ~, > and |: a count of elements, or of pairs. */
static enum weir__resp_status take_aggregate(struct weir__resp_reader *reader, char type,
                                             const struct weir__resp_line *line)
{
    int64_t count;
    if (!read_length(line, &count) || (count < 0 && type != '*'))
        return weir__resp_broken(reader, "\"%.*s\" is no count of elements", (int)line->len,
                                 line->text);
    if (count < 0 && reader->side == WEIR__RESP_REPLIES) {
        add(reader, WEIR__RESP_NULL, line->end);
        return WEIR__RESP_MESSAGE;
    }
    count = weir__max(count, 0);
    int64_t pair = type == '%' || type == '|' ? 2 : 1;
    /* An attribute takes no nodes; it is held to the whole room all the same, as any aggregate. */
    bool skipped = reader->frames[reader->depth].skipped || type == '|';
    int64_t room = skipped ? reader->room : reader->room - reader->promised;
    if (count > room / pair)
        return weir__resp_broken(reader, "%lld elements, a message has room for %u",
                                 (long long)count, reader->room);
    if (count > 0 && reader->depth == reader->limits.depth)
        return weir__resp_broken(reader, "elements nested more than %u deep", reader->limits.depth);
    return push(reader, type, (uint32_t)(count * pair), line->end);
}

enum weir__resp_status weir__resp_element(struct weir__resp_reader *reader, const char *data,
                                          size_t len, const struct weir__resp_line *line)
{
    char type = data[reader->at];
    switch (type) {
    case '+':
    case '-':
        return add_text(reader, (enum weir__resp_type)type, reader->at + 1, line->len, line->end);
    case ':':
        return take_integer(reader, line);
    case ',':
        return take_double(reader, line);
    case '#':
        return take_boolean(reader, line);
    case '_':
        return take_null(reader, line);
    case '(':
        return take_big(reader, line);
    case '$':
    case '!':
    case '=':
        return take_bulk(reader, data, len, line);
    default:
        return take_aggregate(reader, type, line);
    }
}

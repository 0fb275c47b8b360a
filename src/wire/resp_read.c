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
#include "base/span.h"
#include "wire/resp.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A complete line: its text between the type byte and CR LF, and the offset after it. */
struct resp_line {
    const char *text;
    size_t len;
    size_t end;
};

/* Says why; returns BROKEN. */
WEIR__PRINTF(2, 3)
static enum weir__resp_status resp_broken(struct weir__resp_reader *reader, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reader->why, sizeof reader->why, format, args);
    va_end(args);
    return WEIR__RESP_BROKEN;
}

static enum weir__resp_status resp_need(struct weir__resp_reader *reader, size_t bytes)
{
    reader->need = bytes;
    return WEIR__RESP_NEED_MORE;
}

/* ---- lines ---- */

/* The offset of the line feed that ends the line at reader->at, `most` bytes and CR LF at most. */
static enum weir__resp_status resp_find_end(struct weir__resp_reader *reader, const char *data,
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
        return resp_need(reader, 1);
    }
    if (message_ends_first)
        return resp_broken(reader, "a message longer than %u bytes", reader->limits.message);
    return resp_broken(reader, "a line longer than %zu bytes", most);
}

/* The line of the element at reader->at, strictly ended by CR LF and without either inside. */
static enum weir__resp_status resp_read_line(struct weir__resp_reader *reader, const char *data,
                                             size_t len, size_t most, struct resp_line *ret)
{
    size_t end = 0;
    enum weir__resp_status status = resp_find_end(reader, data, len, 1 + most, &end);
    if (status != WEIR__RESP_MESSAGE)
        return status;
    ret->text = data + reader->at + 1;
    ret->len = end - reader->at - 1;
    ret->end = end + 1;
    const char *cr = memchr(ret->text, '\r', ret->len);
    if (!cr || (size_t)(cr - ret->text) != ret->len - 1)
        return resp_broken(reader, "a line must end in CR LF and contain neither of them");
    ret->len--;
    return WEIR__RESP_MESSAGE;
}

/* ---- elements: what stands after each type byte, checked, and put into its node ---- */

/* Digits only, or "-1": what lengths and counts are. */
static bool resp_read_length(const struct resp_line *line, int64_t *ret)
{
    bool null = line->len == 2 && !memcmp(line->text, "-1", 2);
    if (!null && (line->len == 0 || line->text[0] == '-' || line->text[0] == '+'))
        return false;
    return weir__resp_read_integer(line->text, line->len, ret);
}

/* Room for the element, which ends at `end`. There is some: headers were held against it. */
static struct weir__resp_node *resp_add(struct weir__resp_reader *reader, enum weir__resp_type type,
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

static enum weir__resp_status resp_add_text(struct weir__resp_reader *reader,
                                            enum weir__resp_type type, size_t at, size_t len,
                                            size_t end)
{
    struct weir__resp_node *node = resp_add(reader, type, end);
    node->at = (uint32_t)at;
    node->len = (uint32_t)len;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status resp_take_integer(struct weir__resp_reader *reader,
                                                const struct resp_line *line)
{
    int64_t integer;
    if (!weir__resp_read_integer(line->text, line->len, &integer))
        return resp_broken(reader, "invalid integer \"%.*s\": expected 64 bits", (int)line->len,
                           line->text);
    resp_add(reader, WEIR__RESP_INTEGER, line->end)->integer = integer;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status resp_take_double(struct weir__resp_reader *reader,
                                               const struct resp_line *line)
{
    double number;
    if (!weir__resp_read_double(line->text, line->len, &number))
        return resp_broken(reader, "invalid double \"%.*s\"", (int)line->len, line->text);
    resp_add(reader, WEIR__RESP_DOUBLE, line->end)->number = number;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status resp_take_boolean(struct weir__resp_reader *reader,
                                                const struct resp_line *line)
{
    if (line->len != 1 || (line->text[0] != 't' && line->text[0] != 'f'))
        return resp_broken(reader, "invalid boolean \"%.*s\": expected t or f", (int)line->len,
                           line->text);
    resp_add(reader, WEIR__RESP_BOOLEAN, line->end)->integer = line->text[0] == 't';
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status resp_take_null(struct weir__resp_reader *reader,
                                             const struct resp_line *line)
{
    if (line->len != 0)
        return resp_broken(reader, "a null has no text, found \"%.*s\"", (int)line->len,
                           line->text);
    resp_add(reader, WEIR__RESP_NULL, line->end);
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status resp_take_big(struct weir__resp_reader *reader,
                                            const struct resp_line *line)
{
    size_t digits = line->len > 0 && (line->text[0] == '-' || line->text[0] == '+');
    for (size_t i = digits; i < line->len; i++) {
        if (line->text[i] < '0' || line->text[i] > '9')
            return resp_broken(reader, "a big number with byte 0x%02x in it",
                               (unsigned char)line->text[i]);
    }
    if (digits == line->len)
        return resp_broken(reader, "a big number without digits");
    return resp_add_text(reader, WEIR__RESP_BIG, reader->at + 1, line->len, line->end);
}

/* $, ! and =: a length, that many bytes, CR LF. */
static enum weir__resp_status resp_take_bulk(struct weir__resp_reader *reader, const char *data,
                                             size_t len, const struct resp_line *line)
{
    char type = data[reader->at];
    int64_t length;
    bool may_be_null = type == '$' && reader->side == WEIR__RESP_REPLIES;
    if (!resp_read_length(line, &length) || (length < 0 && !may_be_null))
        return resp_broken(reader, "invalid length of a bulk string \"%.*s\"", (int)line->len,
                           line->text);
    if (length < 0) {
        resp_add(reader, WEIR__RESP_NULL, line->end);
        return WEIR__RESP_MESSAGE;
    }
    if (length > reader->limits.bulk)
        return resp_broken(reader, "a bulk string of %lld bytes, the most is %u", (long long)length,
                           reader->limits.bulk);
    size_t text = line->end, size = (size_t)length, end = text + size + 2;
    if (end > reader->limits.message)
        return resp_broken(reader, "a message longer than %u bytes", reader->limits.message);
    if (len < end)
        return resp_need(reader, end - len);
    if (memcmp(data + end - 2, "\r\n", 2))
        return resp_broken(reader, "no CR LF after a bulk string of %zu bytes", size);
    if (type == '!')
        return resp_add_text(reader, WEIR__RESP_ERROR, text, size, end);
    if (type == '$')
        return resp_add_text(reader, WEIR__RESP_BULK, text, size, end);
    if (size < 4 || data[text + 3] != ':')
        return resp_broken(reader, "a verbatim string must start with its format, like txt:");
    return resp_add_text(reader, WEIR__RESP_VERBATIM, text + 4, size - 4, end);
}

/* Opens a frame for the children of an aggregate, or the pairs of an attribute. */
static enum weir__resp_status resp_push(struct weir__resp_reader *reader, char type,
                                        uint32_t children, size_t end)
{
    bool skipped = reader->frames[reader->depth].skipped || type == '|';
    uint32_t node = reader->count;
    assert(children == 0 || reader->depth < WEIR__RESP_DEPTH_MAX);
    if (!skipped)
        reader->promised += children;
    if (type != '|')
        resp_add(reader, (enum weir__resp_type)type, end)->len = children;
    reader->at = reader->scanned = end;
    if (children > 0)
        reader->frames[++reader->depth] = (struct weir__resp_frame){children, node, skipped};
    return WEIR__RESP_MESSAGE;
}

/* *, %, ~, > and |: a count of elements, or of pairs. */
static enum weir__resp_status resp_take_aggregate(struct weir__resp_reader *reader, char type,
                                                  const struct resp_line *line)
{
    int64_t count;
    if (!resp_read_length(line, &count) || (count < 0 && type != '*'))
        return resp_broken(reader, "invalid count of elements \"%.*s\"", (int)line->len,
                           line->text);
    if (count < 0 && reader->side == WEIR__RESP_REPLIES) {
        resp_add(reader, WEIR__RESP_NULL, line->end);
        return WEIR__RESP_MESSAGE;
    }
    count = weir__max(count, 0);
    int64_t pair = type == '%' || type == '|' ? 2 : 1;
    /* An attribute takes no nodes; it is held to the whole room all the same, as any aggregate. */
    bool skipped = reader->frames[reader->depth].skipped || type == '|';
    int64_t room = skipped ? reader->room : reader->room - reader->promised;
    if (count > room / pair)
        return resp_broken(reader, "%lld elements, a message has room for %u", (long long)count,
                           reader->room);
    if (count > 0 && reader->depth == reader->limits.depth)
        return resp_broken(reader, "elements nested more than %u deep", reader->limits.depth);
    return resp_push(reader, type, (uint32_t)(count * pair), line->end);
}

/* The element at reader->at, whose first line is given. MESSAGE: it is complete and counted, and
 * reader->at is behind it. */
static enum weir__resp_status resp_take_element(struct weir__resp_reader *reader, const char *data,
                                                size_t len, const struct resp_line *line)
{
    char type = data[reader->at];
    switch (type) {
    case '+':
    case '-':
        return resp_add_text(reader, (enum weir__resp_type)type, reader->at + 1, line->len,
                             line->end);
    case ':':
        return resp_take_integer(reader, line);
    case ',':
        return resp_take_double(reader, line);
    case '#':
        return resp_take_boolean(reader, line);
    case '_':
        return resp_take_null(reader, line);
    case '(':
        return resp_take_big(reader, line);
    case '$':
    case '!':
    case '=':
        return resp_take_bulk(reader, data, len, line);
    default:
        return resp_take_aggregate(reader, type, line);
    }
}

/* ---- inline commands ----
 *
 * A line of words, as people type them into a bare connection, by Redis's rules:
 *
 *     WEIR.TAKE user:42 "token-bucket 10/s burst 20"
 *
 * Words are parted by white space. Between double quotes white space is text and a backslash starts
 * \n \r \t \b \a \xHH or the character itself; between single quotes only \' is special. What is
 * decoded is never longer than what was written, so it takes its place. */

static bool resp_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The escape after a backslash at data[at]; returns how many bytes it has. */
static size_t resp_unescape(const char *data, size_t at, size_t len, char *ret)
{
    static const char names[] = "nrtba", bytes[] = "\n\r\t\b\a";
    char c = data[at];
    bool hex = c == 'x' && at + 2 < len;
    int high = hex ? weir__hex_digit(data[at + 1]) : -1;
    int low = hex ? weir__hex_digit(data[at + 2]) : -1;
    if (high >= 0 && low >= 0) {
        *ret = (char)(high << 4 | low);
        return 3;
    }
    const char *name = c ? strchr(names, c) : NULL;
    *ret = name ? bytes[name - names] : c;
    return 1;
}

/* The text between quotes, data[*at] the opening one; written at data[*to]. False: never closed, or
 * something other than space after it. */
static bool resp_read_quoted(char *data, size_t len, size_t *at, size_t *to)
{
    char quote = data[(*at)++];
    while (*at < len && data[*at] != quote) {
        bool escape = data[*at] == '\\' && *at + 1 < len;
        if (escape && quote == '"') {
            char c;
            *at += 1;
            *at += resp_unescape(data, *at, len, &c);
            data[(*to)++] = c;
            continue;
        }
        if (escape && data[*at + 1] == '\'')
            *at += 1;
        data[(*to)++] = data[(*at)++];
    }
    if (*at == len)
        return false;
    *at += 1;
    return *at == len || resp_is_space(data[*at]);
}

/* Splits the complete line data[0 … len) into an array of bulk strings. */
static enum weir__resp_status resp_split_words(struct weir__resp_reader *reader, char *data,
                                               size_t len)
{
    reader->nodes[0] = (struct weir__resp_node){.type = WEIR__RESP_ARRAY};
    reader->count = 1;
    for (size_t at = 0;;) {
        while (at < len && resp_is_space(data[at]))
            at++;
        if (at == len)
            break;
        if (reader->count == reader->room)
            return resp_broken(reader, "more than %u words in an inline command", reader->room - 1);
        size_t start = at, to = at;
        while (at < len && !resp_is_space(data[at])) {
            if (data[at] != '"' && data[at] != '\'')
                data[to++] = data[at++];
            else if (!resp_read_quoted(data, len, &at, &to))
                return resp_broken(reader, "unbalanced quotes in an inline command");
        }
        reader->nodes[reader->count] = (struct weir__resp_node){.type = WEIR__RESP_BULK,
                                                                .next = reader->count + 1,
                                                                .at = (uint32_t)start,
                                                                .len = (uint32_t)(to - start)};
        reader->count++;
    }
    reader->nodes[0].len = reader->count - 1;
    reader->nodes[0].next = reader->count;
    return WEIR__RESP_MESSAGE;
}

static enum weir__resp_status resp_read_inline(struct weir__resp_reader *reader, char *data,
                                               size_t len)
{
    size_t end = 0;
    enum weir__resp_status status = resp_find_end(reader, data, len, reader->limits.line, &end);
    if (status != WEIR__RESP_MESSAGE)
        return status;
    size_t text = end - (end > 0 && data[end - 1] == '\r');
    if (text > reader->limits.line)
        return resp_broken(reader, "a line longer than %u bytes", reader->limits.line);
    reader->at = end + 1;
    reader->frames[0].left = 0;
    return resp_split_words(reader, data, text);
}

/* ---- the short way for requests ----
 *
 * A whole array of bulk strings that is there already, as nearly all requests of a pipeline are.
 * What is incomplete, odd or out of bounds is left to the reader proper, which says why. */

/* Digits and CR LF; bytes they took, 0: not such a number, or not in six digits. */
static inline size_t resp_read_count(const char *text, size_t len, uint32_t *ret)
{
    uint32_t number = 0;
    size_t i = 0;
    for (; i < len && i < 6 && text[i] >= '0' && text[i] <= '9'; i++)
        number = number * 10 + (uint32_t)(text[i] - '0');
    if (i == 0 || i + 2 > len || text[i] != '\r' || text[i + 1] != '\n')
        return 0;
    *ret = number;
    return i + 2;
}

/* Reads a request that is whole and plain: count, size and nodes are set. False: nothing was
 * read. */
static bool resp_read_request(struct weir__resp_reader *reader, const char *data, size_t len)
{
    uint32_t n, size;
    size_t took = len > 4 && data[0] == '*' ? resp_read_count(data + 1, len - 1, &n) : 0;
    if (took == 0 || n == 0 || n >= reader->room)
        return false;
    size_t at = 1 + took;
    for (uint32_t i = 1; i <= n; i++) {
        if (at >= len || data[at] != '$')
            return false;
        took = resp_read_count(data + at + 1, len - at - 1, &size);
        at += 1 + took;
        if (took == 0 || size > reader->limits.bulk || len - at < (size_t)size + 2 ||
            data[at + size] != '\r' || data[at + size + 1] != '\n')
            return false;
        reader->nodes[i] = (struct weir__resp_node){
            .type = WEIR__RESP_BULK, .next = i + 1, .at = (uint32_t)at, .len = size};
        at += size + 2;
    }
    if (at > reader->limits.message)
        return false;
    reader->nodes[0] = (struct weir__resp_node){.type = WEIR__RESP_ARRAY, .next = n + 1, .len = n};
    reader->count = n + 1;
    reader->size = at;
    return true;
}

/* ---- messages ---- */

static void resp_start_message(struct weir__resp_reader *reader)
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
    resp_start_message(reader);
    reader->status = WEIR__RESP_NEED_MORE;
}

/* The most bytes of the line that starts with this type byte; -1: there is no such type. */
static int64_t resp_line_max(const struct weir__resp_reader *reader, char type)
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

static enum weir__resp_status resp_read_element(struct weir__resp_reader *reader, char *data,
                                                size_t len)
{
    if (reader->at == reader->limits.message)
        return resp_broken(reader, "a message longer than %u bytes", reader->limits.message);
    if (reader->at == len)
        return resp_need(reader, 1);
    char type = data[reader->at];
    if (reader->side == WEIR__RESP_REQUESTS) {
        if (reader->depth == 0 && type != '*')
            return resp_read_inline(reader, data, len);
        if (reader->depth == 1 && type != '$')
            return resp_broken(reader, "expected '$', found byte 0x%02x", (unsigned char)type);
    }
    int64_t most = resp_line_max(reader, type);
    if (most < 0)
        return resp_broken(reader, "invalid type byte 0x%02x", (unsigned char)type);
    struct resp_line line;
    enum weir__resp_status status = resp_read_line(reader, data, len, (size_t)most, &line);
    return status == WEIR__RESP_MESSAGE ? resp_take_element(reader, data, len, &line) : status;
}

/* Closes the frames that await nothing; whether the message is complete. */
static bool resp_close_frames(struct weir__resp_reader *reader)
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
        resp_start_message(reader);
    assert(len >= reader->at);
    if (reader->side == WEIR__RESP_REQUESTS && reader->at == 0 && reader->scanned == 0 &&
        resp_read_request(reader, data, len)) {
        reader->status = WEIR__RESP_MESSAGE;
        return WEIR__RESP_MESSAGE;
    }
    do
        reader->status = resp_read_element(reader, data, len);
    while (reader->status == WEIR__RESP_MESSAGE && !resp_close_frames(reader));
    reader->size = reader->status == WEIR__RESP_MESSAGE ? reader->at : 0;
    return reader->status;
}

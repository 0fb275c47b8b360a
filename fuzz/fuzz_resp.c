/*
 * RESP: however the bytes are cut into portions, the same messages come of them or the same
 * failure; hints hold; and what was read is read the same once more when it is written out again.
 *
 * The first four bytes choose the side, the limits, the room for nodes and the cut; the rest is the
 * stream.
 */
#include "fuzz.h"

#include "wire/resp.h"

#define ROOM_MAX 64
#define MESSAGES_MAX 64 /* of a stream; more are not compared */

/* What a stream was read as. */
struct story {
    uint32_t messages;
    struct weir__resp_node nodes[MESSAGES_MAX][ROOM_MAX];
    uint32_t counts[MESSAGES_MAX];
    size_t starts[MESSAGES_MAX + 1];
    char *stream; /* with the escapes decoded */
    bool broken;
    char why[128];
};

struct setting {
    enum weir__resp_side side;
    struct weir__resp_limits limits;
    uint32_t room;
};

static void note(struct story *story, const struct weir__resp_reader *reader, size_t start)
{
    uint32_t i = story->messages++;
    EXPECT(reader->count >= 1 && reader->nodes[0].next == reader->count, "%u nodes", reader->count);
    memcpy(story->nodes[i], reader->nodes, reader->count * sizeof reader->nodes[0]);
    story->counts[i] = reader->count;
    story->starts[i] = start;
    story->starts[i + 1] = start + reader->size;
}

/* Reads up to `cut`, then on in steps, each time from memory that ends there. */
static void resp_describe(const struct setting *setting, const uint8_t *data, size_t size,
                          size_t cut, size_t step, struct story *story)
{
    struct weir__resp_node *nodes = malloc(setting->room * sizeof *nodes);
    struct weir__resp_reader reader;
    size_t start = 0, end = cut, promise = 0;
    EXPECT(nodes, "out of memory");
    memset(story, 0, sizeof *story);
    story->stream = fuzz_text(data, size);
    weir__resp_begin(&reader, setting->side, &setting->limits, nodes, setting->room);
    while (story->messages < MESSAGES_MAX) {
        char *copy = malloc(end - start + (end == start));
        EXPECT(copy, "out of memory");
        memcpy(copy, story->stream + start, end - start);
        enum weir__resp_status status = weir__resp_next(&reader, copy, end - start);
        if (status == WEIR__RESP_MESSAGE) {
            EXPECT(reader.size >= 1 && reader.size <= end - start && end >= promise, "size %zu",
                   reader.size);
            EXPECT(reader.size <= setting->limits.message, "a message of %zu bytes", reader.size);
            memcpy(story->stream + start, copy, reader.size);
            note(story, &reader, start);
            start += reader.size;
        }
        free(copy);
        if (status == WEIR__RESP_MESSAGE)
            continue;
        story->broken = status == WEIR__RESP_BROKEN;
        if (story->broken || end == size)
            break;
        EXPECT(reader.need >= 1 && end - start < setting->limits.message, "needs %zu", reader.need);
        promise = end + reader.need;
        end = size - end < step ? size : end + step;
    }
    memcpy(story->why, reader.why, sizeof story->why);
    free(nodes);
}

static bool same_node(const char *data_a, const struct weir__resp_node *a, const char *data_b,
                      const struct weir__resp_node *b)
{
    if (a->type != b->type || a->next != b->next || a->len != b->len)
        return false;
    switch (a->type) {
    case WEIR__RESP_INTEGER:
    case WEIR__RESP_BOOLEAN:
        return a->integer == b->integer;
    case WEIR__RESP_DOUBLE:
        return a->number == b->number || (a->number != a->number && b->number != b->number);
    case WEIR__RESP_SIMPLE:
    case WEIR__RESP_ERROR:
    case WEIR__RESP_BULK:
    case WEIR__RESP_BIG:
    case WEIR__RESP_VERBATIM:
        return !memcmp(data_a + a->at, data_b + b->at, a->len);
    default:
        return true;
    }
}

static void compare(const struct story *a, const struct story *b)
{
    EXPECT(a->messages == b->messages, "%u messages, %u in portions", a->messages, b->messages);
    EXPECT(a->broken == b->broken && !strcmp(a->why, b->why), "\"%s\", in portions \"%s\"", a->why,
           b->why);
    for (uint32_t i = 0; i < a->messages; i++) {
        EXPECT(a->counts[i] == b->counts[i] && a->starts[i + 1] == b->starts[i + 1],
               "message %u differs", i);
        for (uint32_t k = 0; k < a->counts[i]; k++)
            EXPECT(same_node(a->stream + a->starts[i], &a->nodes[i][k], b->stream + b->starts[i],
                             &b->nodes[i][k]),
                   "message %u, node %u differs", i, k);
    }
}

/* ---- written out again ---- */

static void put_raw(struct weir__buffer *buffer, const char *mark, const char *start,
                    const char *text, size_t len)
{
    weir__put_text(buffer, mark);
    if (start) {
        weir__put_int(buffer, (int64_t)(strlen(start) + len));
        weir__put_text(buffer, "\r\n");
        weir__put_text(buffer, start);
    }
    weir__put(buffer, text, len);
    weir__put_text(buffer, "\r\n");
}

static bool is_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < ' ')
            return false;
    }
    return true;
}

static void put_node(struct weir__buffer *buffer, const char *data,
                     const struct weir__resp_node *node)
{
    const char *text = data + node->at;
    switch (node->type) {
    case WEIR__RESP_SIMPLE:
        if (is_plain(text, node->len))
            weir__resp_put_simple(buffer, text, node->len);
        else
            put_raw(buffer, "+", NULL, text, node->len);
        break;
    case WEIR__RESP_ERROR:
        if (is_plain(text, node->len))
            weir__resp_put_error(buffer, text, node->len);
        else
            put_raw(buffer, "!", "", text, node->len);
        break;
    case WEIR__RESP_INTEGER:
        weir__resp_put_integer(buffer, node->integer);
        break;
    case WEIR__RESP_BULK:
        weir__resp_put_bulk(buffer, text, node->len);
        break;
    case WEIR__RESP_NULL:
        weir__resp_put_null(buffer, node->next % 2 ? 2 : 3);
        break;
    case WEIR__RESP_BOOLEAN:
        weir__put_text(buffer, node->integer ? "#t\r\n" : "#f\r\n");
        break;
    case WEIR__RESP_DOUBLE:
        weir__put_format(buffer, ",%.17g\r\n", node->number);
        break;
    case WEIR__RESP_BIG:
        put_raw(buffer, "(", NULL, text, node->len);
        break;
    case WEIR__RESP_VERBATIM:
        put_raw(buffer, "=", "txt:", text, node->len);
        break;
    case WEIR__RESP_MAP:
        weir__resp_put_header(buffer, node->type, node->len / 2, 3);
        break;
    case WEIR__RESP_ARRAY:
    case WEIR__RESP_SET:
    case WEIR__RESP_PUSH:
        weir__resp_put_header(buffer, node->type, node->len, 3);
        break;
    }
}

static void rewrite(const struct setting *setting, const struct story *story, uint32_t i)
{
    /* Nothing grows but doubles (",1" may become ",1e+17") and lengths in front of texts. */
    size_t room = story->starts[i + 1] - story->starts[i] + 40 * (size_t)story->counts[i] + 1;
    char *written = malloc(room);
    EXPECT(written, "out of memory");
    struct weir__buffer buffer = weir__buffer_over(written, room);
    const char *data = story->stream + story->starts[i];
    for (uint32_t k = 0; k < story->counts[i]; k++)
        put_node(&buffer, data, &story->nodes[i][k]);
    EXPECT(!buffer.cut, "%zu bytes become more than %zu", story->starts[i + 1] - story->starts[i],
           room);
    struct weir__resp_limits wide = {WEIR__RESP_DEPTH_MAX, 1 << 20, 1 << 20, 1 << 20};
    struct weir__resp_node nodes[ROOM_MAX];
    struct weir__resp_reader reader;
    weir__resp_begin(&reader, setting->side, &wide, nodes, setting->room);
    EXPECT(weir__resp_next(&reader, written, buffer.len) == WEIR__RESP_MESSAGE, "%s", reader.why);
    EXPECT(reader.count == story->counts[i] && reader.size == buffer.len, "%u nodes", reader.count);
    for (uint32_t k = 0; k < reader.count; k++)
        EXPECT(same_node(data, &story->nodes[i][k], written, &nodes[k]), "node %u differs", k);
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct story whole, parts;
    static const uint32_t limits[] = {4096, 64, 10, 1};
    struct fuzz_input input = {data, size};
    uint8_t side = fuzz_byte(&input), limit = fuzz_byte(&input), room = fuzz_byte(&input);
    size_t cut = fuzz_byte(&input);
    struct setting setting = {side & 1 ? WEIR__RESP_REQUESTS : WEIR__RESP_REPLIES,
                              {1 + side / 2 % WEIR__RESP_DEPTH_MAX, limits[limit & 3],
                               limits[limit >> 2 & 3], limits[limit >> 4 & 3]},
                              1 + room % ROOM_MAX};
    resp_describe(&setting, input.data, input.size, input.size, 1, &whole);
    for (uint32_t i = 0; i < whole.messages; i++)
        rewrite(&setting, &whole, i);
    cut = cut < input.size ? cut : input.size;
    resp_describe(&setting, input.data, input.size, cut, input.size, &parts);
    compare(&whole, &parts);
    free(parts.stream);
    if (input.size <= 512) { /* byte by byte, every time in new memory: too slow beyond */
        resp_describe(&setting, input.data, input.size, 0, 1, &parts);
        compare(&whole, &parts);
        free(parts.stream);
    }
    free(whole.stream);
    return 0;
}

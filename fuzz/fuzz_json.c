/*
 * JSON: refused with a place, or nodes that hold together; written and read again they are the
 * same; numbers are what libc says they are. Byte 0 chooses how many nodes there is room for.
 */
#include "fuzz.h"

#include "base/span.h"
#include "wire/json.h"

/* Writes the value at a node, its own name before it; returns the node behind. */
static uint32_t put_node(struct weir__json *json, const char *name,
                         const struct weir__json_node *nodes, uint32_t i)
{
    const struct weir__json_node *node = &nodes[i];
    bool object = node->type == WEIR__JSON_OBJECT;
    switch (node->type) {
    case WEIR__JSON_NULL:
        weir__json_put_null(json, name);
        return i + 1;
    case WEIR__JSON_BOOL:
        weir__json_put_bool(json, name, node->truth);
        return i + 1;
    case WEIR__JSON_STRING:
        weir__json_put_text(json, name, node->text, node->len);
        return i + 1;
    case WEIR__JSON_NUMBER: /* as it was: the writer has no numbers of any length */
        weir__json_open(json, name, ' ');
        weir__put(json->out, node->text, node->len);
        json->comma = true;
        return i + 1;
    default:
        break;
    }
    weir__json_open(json, name, object ? '{' : '[');
    uint32_t child = i + 1;
    for (uint32_t k = 0; k < node->len; k++) {
        if (!object) {
            child = put_node(json, NULL, nodes, child);
            continue;
        }
        /* A name with a NUL in it cannot be given as one. */
        struct weir__json as_value = {json->out, json->comma};
        weir__json_put_text(&as_value, NULL, nodes[child].text, nodes[child].len);
        weir__put(json->out, ":", 1);
        json->comma = false;
        child = put_node(json, NULL, nodes, child + 1);
    }
    weir__json_close(json, object ? '}' : ']');
    return child;
}

static void expect_sound(const char *text, size_t len, const struct weir__json_node *nodes,
                         uint32_t count)
{
    EXPECT(nodes[0].next == count, "%u nodes, the first ends at %u", count, nodes[0].next);
    for (uint32_t i = 0; i < count; i++) {
        const struct weir__json_node *node = &nodes[i];
        EXPECT(node->next > i && node->next <= count, "node %u ends at %u", i, node->next);
        if (node->type != WEIR__JSON_STRING && node->type != WEIR__JSON_NUMBER)
            continue;
        EXPECT(node->text >= text && node->text + node->len <= text + len, "node %u outside", i);
        EXPECT(node->type != WEIR__JSON_STRING ||
                   (weir__utf8_valid(node->text, node->len) && node->text[node->len] == 0),
               "node %u is not a text", i);
    }
}

/* long double counts all of int64_t exactly. */
static void check_number(const struct weir__json_node *node)
{
    int64_t number, microseconds;
    char *copy = fuzz_text((const uint8_t *)node->text, node->len);
    long double value = strtold(copy, NULL);
    if (weir__json_integer(node, INT64_MIN, INT64_MAX, &number))
        EXPECT(value == (long double)number, "%s is not %lld", copy, (long long)number);
    else if (node->len <= 18 && !strpbrk(copy, "eE")) /* as many digits as are exact */
        EXPECT(value != (long double)(int64_t)value, "%s is whole", copy);
    if (weir__json_seconds(node, &microseconds)) {
        long double difference = value * 1e6L - (long double)microseconds;
        long double most = 1e-18L * (long double)microseconds;
        EXPECT(microseconds >= 0 && difference <= most && difference >= -most, "%s is not %lld us",
               copy, (long long)microseconds);
    }
    free(copy);
}

static void check_again(const struct weir__json_node *nodes, uint32_t count, size_t len)
{
    size_t room = 6 * len + 2 * count + 64;
    char *written = malloc(room);
    struct weir__json_node *again = malloc(count * sizeof *again);
    EXPECT(written && again, "out of memory");
    struct weir__buffer out = weir__buffer_over(written, room);
    struct weir__json json = {&out, false};
    EXPECT(put_node(&json, NULL, nodes, 0) == count && !out.cut, "%zu bytes", out.len);
    weir_error err = {0};
    int code = weir__json_read(written, out.len, again, count, &err);
    EXPECT(code == (int)count, "%s", err.message);
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(nodes[i].type == again[i].type && nodes[i].next == again[i].next &&
                   nodes[i].len == again[i].len && nodes[i].truth == again[i].truth,
               "node %u differs", i);
        EXPECT(!nodes[i].text || !memcmp(nodes[i].text, again[i].text, nodes[i].len),
               "the text of node %u differs", i);
    }
    free(written);
    free(again);
}

/* What decodes is what it encodes to, but for padding. */
static void check_base64(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *room = malloc(size + 8);
    EXPECT(room, "out of memory");
    struct weir__buffer out = weir__buffer_over(room, size + 8);
    int64_t len = weir__base64_decode(text, size);
    if (len >= 0) {
        weir__put_base64(&out, text, (size_t)len);
        size_t kept = size < out.len ? size : out.len;
        EXPECT(!out.cut && !memcmp(room, data, kept) && out.len - kept <= 2 && kept == size,
               "%s is not %s", (const char *)data, room);
    }
    free(text);
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint32_t room = 1u + fuzz_byte(&input);
    struct weir__json_node *nodes = malloc(room * sizeof *nodes);
    char *text = malloc(input.size + !input.size); /* ends where the text does */
    EXPECT(nodes && text, "out of memory");
    if (input.size > 0)
        memcpy(text, input.data, input.size);
    weir_error err = {0};
    int count = weir__json_read(text, input.size, nodes, room, &err);
    if (count < 0) {
        EXPECT(count == WEIR_EINVAL && err.code == count && err.message[0], "code %d", count);
        EXPECT(err.column >= 1 && (size_t)err.column <= input.size + 1, "column %d", err.column);
    } else {
        EXPECT(count >= 1 && (uint32_t)count <= room, "%d nodes", count);
        expect_sound(text, input.size, nodes, (uint32_t)count);
        for (int i = 0; i < count; i++) {
            if (nodes[i].type == WEIR__JSON_NUMBER)
                check_number(&nodes[i]);
        }
        check_again(nodes, (uint32_t)count, input.size);
    }
    check_base64(input.data, input.size);
    free(nodes);
    free(text);
    return 0;
}

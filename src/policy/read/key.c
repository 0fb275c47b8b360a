/* Keys of a policy file: attributes and constants. */
#include "policy/read/reader.h"

#include <string.h>

/* ---- parts ---- */

static int key_read_constant(struct weir__reader *reader, const struct weir__yaml_node *node,
                             struct weir__key_part *ret)
{
    char room[3 * WEIR__KEY_VALUE_MAX + 1];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    size_t len = node->len - 2;
    if (len == 0 || len > WEIR__KEY_VALUE_MAX)
        return weir__reader_fail(reader, node, "a constant has 1 to 128 bytes");
    weir__put_escaped(&buffer, node->text + 1, len);
    ret->attribute = -1;
    ret->text = weir__arena_text(&reader->set->arena, room, buffer.len);
    return ret->text ? 0 : weir__reader_no_memory(reader);
}

/* The number at the start of text, up to a slash or the end; 0: none, or too large. */
static int key_take_bits(const char **text, int most)
{
    int bits = 0;
    const char *start = *text;
    while (**text >= '0' && **text <= '9' && *text - start < 3)
        bits = bits * 10 + (*(*text)++ - '0');
    return bits <= most && *start != '0' && (**text == 0 || **text == '/') ? bits : 0;
}

/* "/24/64" behind an address. */
static int key_read_bits(struct weir__reader *reader, const struct weir__yaml_node *node,
                         const char *slash, struct weir__key_part *ret)
{
    const char *at = slash + 1;
    int bits4 = key_take_bits(&at, 32), bits6 = WEIR__IP_BITS6;
    if (bits4 && *at == '/') {
        at++;
        bits6 = key_take_bits(&at, 128);
    }
    if (!bits4 || !bits6 || *at)
        return weir__yaml_fail_within(reader->yaml, node, (size_t)(slash - node->text), reader->err,
                                      "\"%s\": after an address write the lengths of its network, "
                                      "for IPv4 (1 to 32) and IPv6 (1 to 128), like ip/24/64",
                                      weir__yaml_quote(node->text, node->len).text);
    ret->bits4 = (uint8_t)bits4;
    ret->bits6 = (uint8_t)bits6;
    return 0;
}

static int key_read_attribute(struct weir__reader *reader, const struct weir__yaml_node *node,
                              struct weir__key_part *ret)
{
    struct weir__policies *set = reader->set;
    const char *slash = strchr(node->text, '/'), *wrong = NULL;
    size_t len = slash ? (size_t)(slash - node->text) : node->len;
    ret->attribute = weir__attribute_read(&set->attributes, &set->arena, node->text, len, &wrong);
    if (ret->attribute < 0 && *wrong)
        return weir__yaml_fail(reader->yaml, node, reader->err,
                               "\"%s\": %s, or a constant like \"'all'\"",
                               weir__yaml_quote(node->text, node->len).text, wrong);
    if (ret->attribute < 0)
        return weir__reader_no_memory(reader);
    const struct weir__attribute *attribute = &set->attributes.items[ret->attribute];
    if (slash && attribute->spelling != WEIR__AS_ADDRESS)
        return weir__reader_fail(reader, node,
                                 "only addresses have networks; write ip(NAME)/24/64");
    /* YAML took the quotes of key: 'all', and an attribute that is never there limits nothing. */
    if (!node->plain && !strchr(attribute->text, '(') && !weir__attribute_known(attribute))
        return weir__yaml_fail(reader->yaml, node, reader->err,
                               "is \"%s\" a constant? Then write \"'%s'\"; for the attribute leave "
                               "the quotes out",
                               attribute->text, attribute->text);
    ret->bits4 = WEIR__IP_BITS4;
    ret->bits6 = WEIR__IP_BITS6;
    return slash ? key_read_bits(reader, node, slash, ret) : 0;
}

/* What stands in hash(…), as a node of its own. */
static bool key_is_hash(struct weir__reader *reader, const struct weir__yaml_node *node,
                        struct weir__yaml_node *ret)
{
    static const char call[] = "hash(";
    size_t len = sizeof call - 1;
    if (node->len < len + 2 || memcmp(node->text, call, len) || node->text[node->len - 1] != ')')
        return false;
    *ret = *node;
    ret->len = node->len - len - 1;
    ret->text = weir__arena_text(&reader->set->arena, node->text + len, ret->len);
    return true;
}

static int key_read_part(struct weir__reader *reader, const struct weir__yaml_node *node,
                         struct weir__key_part *ret)
{
    struct weir__span text = {"", 0};
    struct weir__yaml_node inner;
    int code = weir__read_text(reader, node, "key", &text);
    if (code)
        return code;
    if (text.len >= 2 && text.data[0] == '\'' && text.data[text.len - 1] == '\'')
        return key_read_constant(reader, node, ret);
    ret->hashed = key_is_hash(reader, node, &inner);
    reader->set->hashes = reader->set->hashes || ret->hashed;
    if (ret->hashed && !inner.text)
        return weir__reader_no_memory(reader);
    code = key_read_attribute(reader, ret->hashed ? &inner : node, ret);
    if (code)
        return code;
    char room[WEIR__ATTRIBUTE_NAME_MAX + 32];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    weir__put_format(&buffer, ret->hashed ? "hash(%s)=" : "%s=",
                     reader->set->attributes.items[ret->attribute].text);
    ret->text = weir__arena_text(&reader->set->arena, room, buffer.len);
    return ret->text ? 0 : weir__reader_no_memory(reader);
}

/* ---- the whole ---- */

static void key_put_part(struct weir__buffer *buffer, const struct weir__key_part *part,
                         const struct weir__attributes *attributes)
{
    if (part->attribute < 0) {
        weir__put_format(buffer, "'%s'", part->text);
        return;
    }
    const struct weir__attribute *attribute = &attributes->items[part->attribute];
    weir__put_text(buffer, part->hashed ? "hash(" : "");
    weir__put_text(buffer, attribute->text);
    if (attribute->spelling == WEIR__AS_ADDRESS)
        weir__put_format(buffer, "/%d/%d", part->bits4, part->bits6);
    weir__put_text(buffer, part->hashed ? ")" : "");
}

static const char *key_text_of(const struct weir__reader *reader,
                               const struct weir__key_part *parts, size_t count)
{
    char room[WEIR__KEY_FORM_MAX * (3 * WEIR__KEY_VALUE_MAX + 16)];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            weir__put_text(&buffer, ", ");
        key_put_part(&buffer, &parts[i], &reader->set->attributes);
    }
    return weir__arena_text(&reader->set->arena, room, buffer.len);
}

int weir__read_key(struct weir__reader *reader, const struct weir__yaml_node *node,
                   struct weir__key_form *ret)
{
    size_t count = weir__node_count(node);
    if (count == 0 || count > WEIR__KEY_FORM_MAX)
        return weir__yaml_fail(reader->yaml, node, reader->err,
                               "a key has 1 to %d parts; for one that all requests share write "
                               "\"'all'\"",
                               WEIR__KEY_FORM_MAX);
    struct weir__key_part *parts =
        weir__arena_new(&reader->set->arena, count, sizeof(struct weir__key_part));
    if (!parts)
        return weir__reader_no_memory(reader);
    const struct weir__yaml_node *part = weir__node_first(node);
    for (size_t i = 0; i < count; i++, part = part->next) {
        int code = key_read_part(reader, part, &parts[i]);
        if (code)
            return code;
        for (size_t j = 0; j < i; j++) {
            if (parts[i].attribute >= 0 && parts[i].attribute == parts[j].attribute)
                return weir__reader_fail(reader, part, "is given twice in one key");
        }
    }
    ret->parts = parts;
    ret->count = count;
    ret->text = key_text_of(reader, parts, count);
    return ret->text ? 0 : weir__reader_no_memory(reader);
}

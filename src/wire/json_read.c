/* Reading JSON: see json.h. A value is read where the reader stands, its nodes appended. */
#include "wire/json_parts.h"

#include <string.h>

int weir__json_unexpected(struct weir__json_reader *r, const char *expected)
{
    if (r->at == r->len)
        return WEIR__JSON_FAIL(r, r->at, "the text ends where %s is due", expected);
    unsigned char c = (unsigned char)r->text[r->at];
    if (c > ' ' && c < 0x7f)
        return WEIR__JSON_FAIL(r, r->at, "'%c' where %s is due", c, expected);
    return WEIR__JSON_FAIL(r, r->at, "byte 0x%02x where %s is due", c, expected);
}

static inline void skip_blanks(struct weir__json_reader *r)
{
    while (r->at < r->len && (r->text[r->at] == ' ' || r->text[r->at] == '\n' ||
                              r->text[r->at] == '\r' || r->text[r->at] == '\t'))
        r->at++;
}

/* ---- numbers and words ---- */

static size_t pass_digits(struct weir__json_reader *r)
{
    size_t start = r->at;
    while (r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9')
        r->at++;
    return r->at - start;
}

static int read_number(struct weir__json_reader *r)
{
    size_t start = r->at;
    struct weir__json_node *node = weir__json_add(r, WEIR__JSON_NUMBER);
    if (!node)
        return WEIR_EINVAL;
    weir__json_pass(r, '-');
    if (!weir__json_pass(r, '0') && pass_digits(r) == 0)
        return weir__json_unexpected(r, "a digit");
    if (weir__json_pass(r, '.') && pass_digits(r) == 0)
        return weir__json_unexpected(r, "a digit");
    if (weir__json_pass(r, 'e') || weir__json_pass(r, 'E')) {
        if (!weir__json_pass(r, '+'))
            weir__json_pass(r, '-');
        if (pass_digits(r) == 0)
            return weir__json_unexpected(r, "a digit");
    }
    node->text = r->text + start;
    node->len = (uint32_t)(r->at - start);
    return 0;
}

static int read_word(struct weir__json_reader *r)
{
    static const struct {
        const char *text;
        size_t len;
        enum weir__json_type type;
        bool truth;
    } words[] = {{"true", 4, WEIR__JSON_BOOL, true},
                 {"false", 5, WEIR__JSON_BOOL, false},
                 {"null", 4, WEIR__JSON_NULL, false}};
    for (size_t i = 0; i < WEIR__COUNT(words); i++) {
        if (r->len - r->at < words[i].len || memcmp(r->text + r->at, words[i].text, words[i].len))
            continue;
        struct weir__json_node *node = weir__json_add(r, words[i].type);
        if (!node)
            return WEIR_EINVAL;
        node->truth = words[i].truth;
        r->at += words[i].len;
        return 0;
    }
    return weir__json_unexpected(r, "a value");
}

/* ---- values ---- */

static int read_value(struct weir__json_reader *r, int depth);

/* Whether the name just read is one of the members before it. */
static bool is_twice(const struct weir__json_reader *r, uint32_t object, uint32_t name)
{
    const struct weir__json_node *nodes = r->nodes;
    for (uint32_t i = object + 1; i < name; i = nodes[i + 1].next) {
        if (nodes[i].len == nodes[name].len &&
            !memcmp(nodes[i].text, nodes[name].text, nodes[name].len))
            return true;
    }
    return false;
}

static int read_member(struct weir__json_reader *r, uint32_t object, int depth)
{
    uint32_t name = r->count;
    size_t start = r->at;
    if (r->at == r->len || r->text[r->at] != '"')
        return weir__json_unexpected(r, "a name in quotes");
    int code = weir__json_string(r);
    if (code)
        return code;
    if (is_twice(r, object, name))
        return WEIR__JSON_FAIL(r, start, "\"%.40s\" for the second time", r->nodes[name].text);
    skip_blanks(r);
    if (!weir__json_pass(r, ':'))
        return weir__json_unexpected(r, "':'");
    return read_value(r, depth);
}

/* An array or object; the reader stands at its bracket. */
static int read_group(struct weir__json_reader *r, enum weir__json_type type, int depth)
{
    uint32_t group = r->count;
    bool object = type == WEIR__JSON_OBJECT;
    if (depth == WEIR__JSON_DEPTH_MAX)
        return WEIR__JSON_FAIL(r, r->at, "more than %d brackets in each other",
                               WEIR__JSON_DEPTH_MAX);
    if (!weir__json_add(r, type))
        return WEIR_EINVAL;
    r->at++;
    skip_blanks(r);
    if (weir__json_pass(r, object ? '}' : ']'))
        return 0;
    do {
        skip_blanks(r);
        int code = object ? read_member(r, group, depth + 1) : read_value(r, depth + 1);
        if (code)
            return code;
        r->nodes[group].len++;
        skip_blanks(r);
    } while (weir__json_pass(r, ','));
    if (!weir__json_pass(r, object ? '}' : ']'))
        return weir__json_unexpected(r, object ? "',' or '}'" : "',' or ']'");
    r->nodes[group].next = r->count;
    return 0;
}

static int read_value(struct weir__json_reader *r, int depth)
{
    skip_blanks(r);
    if (r->at == r->len)
        return weir__json_unexpected(r, "a value");
    char c = r->text[r->at];
    if (c == '"')
        return weir__json_string(r);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r);
    if (c == '{')
        return read_group(r, WEIR__JSON_OBJECT, depth);
    if (c == '[')
        return read_group(r, WEIR__JSON_ARRAY, depth);
    return read_word(r);
}

int weir__json_read(char *text, size_t len, struct weir__json_node *nodes, uint32_t room,
                    weir_error *err)
{
    struct weir__json_reader r = {text, len, 0, nodes, room, 0, err};
    if (len >= INT32_MAX || room > INT32_MAX)
        return weir__fail(err, WEIR_EINVAL, 1, "JSON of 2 GiB or more; send less at once");
    int code = read_value(&r, 0);
    if (code)
        return code;
    skip_blanks(&r);
    return r.at == len ? (int)r.count : weir__json_unexpected(&r, "the end");
}

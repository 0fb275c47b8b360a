/* Reading JSON: see json.h. A value is read where the reader stands; its nodes are appended. */
#include "wire/json.h"

#include "base/span.h"
#include "wire/scan.h"

#include <assert.h>
#include <string.h>

struct json_reader {
    char *text;
    size_t len;
    size_t at;
    struct weir__json_node *nodes;
    uint32_t room, count;
    weir_error *err;
};

/* Fails at a byte of the text. */
#define JSON_FAIL(reader, at, format, ...)                                                         \
    weir__fail((reader)->err, WEIR_EINVAL, (int)(at) + 1, "JSON, byte %d: " format, (int)(at) + 1, \
               ##__VA_ARGS__)

/* Fails for what stands here instead of what was expected. */
static int json_unexpected(struct json_reader *r, const char *expected)
{
    if (r->at == r->len)
        return JSON_FAIL(r, r->at, "the text ends where %s is expected", expected);
    unsigned char c = (unsigned char)r->text[r->at];
    if (c > ' ' && c < 0x7f)
        return JSON_FAIL(r, r->at, "'%c' where %s is expected", c, expected);
    return JSON_FAIL(r, r->at, "byte 0x%02x where %s is expected", c, expected);
}

/* Whether c stands here; then it is passed. */
static bool json_pass(struct json_reader *r, char c)
{
    if (r->at == r->len || r->text[r->at] != c)
        return false;
    r->at++;
    return true;
}

/* A new node, or NULL. */
static struct weir__json_node *json_add(struct json_reader *r, enum weir__json_type type)
{
    assert(r->count <= r->room && r->at <= r->len);
    if (r->count == r->room) {
        JSON_FAIL(r, r->at, "more than %u values and names; send less at once", r->room);
        return NULL;
    }
    struct weir__json_node *node = &r->nodes[r->count++];
    *node = (struct weir__json_node){.type = type, .next = r->count};
    return node;
}

static void json_skip_blanks(struct json_reader *r)
{
    while (r->at < r->len && (r->text[r->at] == ' ' || r->text[r->at] == '\n' ||
                              r->text[r->at] == '\r' || r->text[r->at] == '\t'))
        r->at++;
}

/* ---- strings ----
 *
 * They are decoded towards their start: what is written never overtakes what is still to be read.
 * Most are plain ASCII and only looked at. */

/* Four hex digits, or -1. */
static int32_t json_read_unit(const struct json_reader *r, size_t at)
{
    int32_t unit = 0;
    if (r->len - at < 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        int digit = weir__hex_digit(r->text[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* \uXXXX, or two of them that make one character; the reader stands at the backslash. */
static int json_read_code(struct json_reader *r, size_t *to)
{
    int32_t code = json_read_unit(r, r->at + 2);
    size_t size = 6;
    if (code < 0)
        return JSON_FAIL(r, r->at, "expected four hex digits after \\u");
    if (code >= 0xd800 && code <= 0xdfff) {
        int32_t low = -1;
        if (code < 0xdc00 && r->len - r->at >= 8 && !memcmp(r->text + r->at + 6, "\\u", 2))
            low = json_read_unit(r, r->at + 8);
        if (low < 0xdc00 || low > 0xdfff)
            return JSON_FAIL(r, r->at, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        size = 12;
    }
    r->at += size;
    *to += weir__put_utf8((uint32_t)code, r->text + *to);
    return 0;
}

/* What a backslash starts. */
static int json_read_escape(struct json_reader *r, size_t *to)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = r->len - r->at > 1 ? r->text[r->at + 1] : 0;
    if (c == 'u')
        return json_read_code(r, to);
    const char *letter = c ? strchr(letters, c) : NULL;
    if (!letter)
        return JSON_FAIL(r, r->at, "invalid escape; write a backslash as \\\\");
    r->text[(*to)++] = meanings[letter - letters];
    r->at += 2;
    return 0;
}

/* The rest of a string, from a byte on that needs a look; *ret is where it ends. */
static int json_read_odd_string(struct json_reader *r, size_t *ret)
{
    size_t to = r->at;
    while (r->at < r->len && r->text[r->at] != '"') {
        unsigned char c = (unsigned char)r->text[r->at];
        int code = 0;
        size_t run;
        if (c == '\\') {
            code = json_read_escape(r, &to);
        } else if (c < 0x20) {
            code = JSON_FAIL(r, r->at, "control character 0x%02x in a string; write \\u%04x", c, c);
        } else {
            run = c < 0x80 ? weir__scan(WEIR__STOP_JSON, r->text, r->at + 1, r->len) - r->at
                           : weir__utf8_length(r->text + r->at, r->len - r->at);
            if (run == 0)
                code = JSON_FAIL(r, r->at, "byte 0x%02x, which is not UTF-8", c);
            memmove(r->text + to, r->text + r->at, run);
            to += run;
            r->at += run;
        }
        if (code)
            return code;
    }
    *ret = to;
    return 0;
}

/* The string whose opening quote stands here. */
static int json_read_string(struct json_reader *r)
{
    size_t start = r->at + 1, end;
    struct weir__json_node *node = json_add(r, WEIR__JSON_STRING);
    if (!node)
        return WEIR_EINVAL;
    r->at = end = weir__scan(WEIR__STOP_JSON, r->text, start, r->len);
    if (WEIR__UNLIKELY(r->at < r->len && r->text[r->at] != '"')) {
        int code = json_read_odd_string(r, &end);
        if (code)
            return code;
    }
    if (!json_pass(r, '"'))
        return json_unexpected(r, "a string's closing quote");
    r->text[end] = 0;
    node->text = r->text + start;
    node->len = (uint32_t)(end - start);
    return 0;
}

/* ---- numbers and words ---- */

static size_t json_pass_digits(struct json_reader *r)
{
    size_t start = r->at;
    while (r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9')
        r->at++;
    return r->at - start;
}

static int json_read_number(struct json_reader *r)
{
    size_t start = r->at;
    struct weir__json_node *node = json_add(r, WEIR__JSON_NUMBER);
    if (!node)
        return WEIR_EINVAL;
    json_pass(r, '-');
    if (!json_pass(r, '0') && json_pass_digits(r) == 0)
        return json_unexpected(r, "a digit");
    if (json_pass(r, '.') && json_pass_digits(r) == 0)
        return json_unexpected(r, "a digit");
    if (json_pass(r, 'e') || json_pass(r, 'E')) {
        if (!json_pass(r, '+'))
            json_pass(r, '-');
        if (json_pass_digits(r) == 0)
            return json_unexpected(r, "a digit");
    }
    node->text = r->text + start;
    node->len = (uint32_t)(r->at - start);
    return 0;
}

static int json_read_word(struct json_reader *r)
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
        struct weir__json_node *node = json_add(r, words[i].type);
        if (!node)
            return WEIR_EINVAL;
        node->truth = words[i].truth;
        r->at += words[i].len;
        return 0;
    }
    return json_unexpected(r, "a value");
}

/* ---- values ---- */

static int json_read_value(struct json_reader *r, int depth);

/* Whether the name just read is one of the members before it. */
static bool json_is_twice(const struct json_reader *r, uint32_t object, uint32_t name)
{
    const struct weir__json_node *nodes = r->nodes;
    for (uint32_t i = object + 1; i < name; i = nodes[i + 1].next) {
        if (nodes[i].len == nodes[name].len &&
            !memcmp(nodes[i].text, nodes[name].text, nodes[name].len))
            return true;
    }
    return false;
}

static int json_read_member(struct json_reader *r, uint32_t object, int depth)
{
    uint32_t name = r->count;
    size_t start = r->at;
    if (r->at == r->len || r->text[r->at] != '"')
        return json_unexpected(r, "a name in quotes");
    int code = json_read_string(r);
    if (code)
        return code;
    if (json_is_twice(r, object, name))
        return JSON_FAIL(r, start, "\"%.40s\" is given twice", r->nodes[name].text);
    json_skip_blanks(r);
    if (!json_pass(r, ':'))
        return json_unexpected(r, "':'");
    return json_read_value(r, depth);
}

/* An array or object; the reader stands at its bracket. */
static int json_read_brackets(struct json_reader *r, enum weir__json_type type, int depth)
{
    uint32_t brackets = r->count;
    bool object = type == WEIR__JSON_OBJECT;
    if (depth == WEIR__JSON_DEPTH_MAX)
        return JSON_FAIL(r, r->at, "brackets nested more than %d deep", WEIR__JSON_DEPTH_MAX);
    if (!json_add(r, type))
        return WEIR_EINVAL;
    r->at++;
    json_skip_blanks(r);
    if (json_pass(r, object ? '}' : ']'))
        return 0;
    do {
        json_skip_blanks(r);
        int code =
            object ? json_read_member(r, brackets, depth + 1) : json_read_value(r, depth + 1);
        if (code)
            return code;
        r->nodes[brackets].len++;
        json_skip_blanks(r);
    } while (json_pass(r, ','));
    if (!json_pass(r, object ? '}' : ']'))
        return json_unexpected(r, object ? "',' or '}'" : "',' or ']'");
    r->nodes[brackets].next = r->count;
    return 0;
}

static int json_read_value(struct json_reader *r, int depth)
{
    json_skip_blanks(r);
    if (r->at == r->len)
        return json_unexpected(r, "a value");
    char c = r->text[r->at];
    if (c == '"')
        return json_read_string(r);
    if (c == '-' || (c >= '0' && c <= '9'))
        return json_read_number(r);
    if (c == '{')
        return json_read_brackets(r, WEIR__JSON_OBJECT, depth);
    if (c == '[')
        return json_read_brackets(r, WEIR__JSON_ARRAY, depth);
    return json_read_word(r);
}

int weir__json_read(char *text, size_t len, struct weir__json_node *nodes, uint32_t room,
                    weir_error *err)
{
    struct json_reader r = {text, len, 0, nodes, room, 0, err};
    if (len >= INT32_MAX || room > INT32_MAX)
        return weir__fail(err, WEIR_EINVAL, 1, "JSON of 2 GiB or more; send less at once");
    int code = json_read_value(&r, 0);
    if (code)
        return code;
    json_skip_blanks(&r);
    return r.at == len ? (int)r.count : json_unexpected(&r, "the end");
}

/* ---- what the nodes mean: members by name, numbers exactly ---- */

const struct weir__json_node *weir__json_member(const struct weir__json_node *nodes,
                                                const struct weir__json_node *object,
                                                const char *name)
{
    if (!object || object->type != WEIR__JSON_OBJECT)
        return NULL;
    size_t len = strlen(name);
    for (const struct weir__json_node *member = object + 1; member < nodes + object->next;
         member = nodes + member[1].next) {
        if (member->len == len && !memcmp(member->text, name, len))
            return member + 1;
    }
    return NULL;
}

const struct weir__json_node *weir__json_typed(const struct weir__json_node *nodes,
                                               const struct weir__json_node *object,
                                               const char *name, enum weir__json_type type)
{
    const struct weir__json_node *node = weir__json_member(nodes, object, name);
    return node && node->type == type ? node : NULL;
}

#define JSON_EXPONENT_MAX INT64_C(10000000000) /* more than any count of digits there can be */

/* digits * 10^power, without trailing zeros in digits. */
struct json_decimal {
    uint64_t digits;
    int64_t power;
    bool negative;
    bool fits; /* in 64 bits */
};

/* The part after the 'e'. */
static int64_t json_read_exponent(const char *p, const char *end)
{
    bool negative = *p == '-';
    int64_t exponent = 0;
    for (p += *p == '-' || *p == '+'; p < end; p++) {
        if (exponent < JSON_EXPONENT_MAX)
            exponent = exponent * 10 + (*p - '0');
    }
    return negative ? -exponent : exponent;
}

/* The text of a number is known to be one. */
static struct json_decimal json_read_decimal(const struct weir__json_node *node)
{
    struct json_decimal decimal = {.fits = true};
    const char *p = node->text, *end = p + node->len;
    decimal.negative = *p == '-';
    bool fraction = false;
    int64_t zeros = 0; /* seen, and not yet counted as digits */
    for (p += decimal.negative; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        decimal.power -= fraction;
        if (*p == '0') {
            zeros++;
            continue;
        }
        for (zeros = decimal.digits ? zeros : 0; zeros >= 0 && decimal.fits; zeros--)
            decimal.fits = !__builtin_mul_overflow(decimal.digits, 10, &decimal.digits);
        decimal.fits = decimal.fits && !__builtin_add_overflow(decimal.digits, (uint64_t)(*p - '0'),
                                                               &decimal.digits);
        zeros = 0;
    }
    decimal.power += zeros;
    if (p < end)
        decimal.power += json_read_exponent(p + 1, end);
    return decimal;
}

/* number * 10^shift, where that is whole and fits. */
static bool json_read_whole(const struct weir__json_node *node, int shift, int64_t *ret)
{
    if (node->type != WEIR__JSON_NUMBER)
        return false;
    struct json_decimal decimal = json_read_decimal(node);
    if (decimal.fits && decimal.digits == 0) {
        *ret = 0;
        return true;
    }
    decimal.power += shift;
    if (!decimal.fits || decimal.power < 0 || decimal.power > 18)
        return false;
    for (; decimal.power > 0; decimal.power--) {
        if (__builtin_mul_overflow(decimal.digits, 10, &decimal.digits))
            return false;
    }
    if (decimal.digits > (uint64_t)INT64_MAX + decimal.negative)
        return false;
    *ret = (int64_t)(decimal.negative ? 0 - decimal.digits : decimal.digits);
    return true;
}

bool weir__json_integer(const struct weir__json_node *node, int64_t least, int64_t most,
                        int64_t *ret)
{
    int64_t number;
    if (!json_read_whole(node, 0, &number) || number < least || number > most)
        return false;
    *ret = number;
    return true;
}

bool weir__json_seconds(const struct weir__json_node *node, int64_t *ret_us)
{
    int64_t microseconds;
    if (!json_read_whole(node, 6, &microseconds) || microseconds < 0)
        return false;
    *ret_us = microseconds;
    return true;
}

/*
 * Strings of JSON, decoded towards their start: what is written never overtakes what is still to be
 * read. Most are plain ASCII and only looked at.
 */
#include "wire/json_parts.h"

#include "base/utf8.h"
#include "wire/scan.h"

#include <string.h>

/* Four hex digits, or -1. */
static int32_t read_unit(const struct weir__json_reader *r, size_t at)
{
    int32_t unit = 0;
    if (r->len - at < 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        unsigned char c = (unsigned char)r->text[i], letter = c | 0x20;
        if (c >= '0' && c <= '9')
            unit = unit << 4 | (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            unit = unit << 4 | (letter - 'a' + 10);
        else
            return -1;
    }
    return unit;
}

static size_t encode(uint32_t code, char *to)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* \uXXXX, or two of them that make one character; the reader stands at the backslash. */
static int read_code(struct weir__json_reader *r, size_t *to)
{
    int32_t code = read_unit(r, r->at + 2);
    size_t size = 6;
    if (code < 0)
        return WEIR__JSON_FAIL(r, r->at, "no four hex digits behind \\u");
    if (code >= 0xd800 && code <= 0xdfff) {
        int32_t low = -1;
        if (code < 0xdc00 && r->len - r->at >= 8 && !memcmp(r->text + r->at + 6, "\\u", 2))
            low = read_unit(r, r->at + 8);
        if (low < 0xdc00 || low > 0xdfff)
            return WEIR__JSON_FAIL(r, r->at, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        size = 12;
    }
    r->at += size;
    *to += encode((uint32_t)code, r->text + *to);
    return 0;
}

/* What a backslash starts. */
static int read_escape(struct weir__json_reader *r, size_t *to)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = r->len - r->at > 1 ? r->text[r->at + 1] : 0;
    if (c == 'u')
        return read_code(r, to);
    const char *letter = c ? strchr(letters, c) : NULL;
    if (!letter)
        return WEIR__JSON_FAIL(r, r->at, "no escape of JSON's; write a backslash as \\\\");
    r->text[(*to)++] = meanings[letter - letters];
    r->at += 2;
    return 0;
}

/* The rest of a string, from a byte on that needs a look; *ret is where it ends. */
static int read_odd_string(struct weir__json_reader *r, size_t *ret)
{
    size_t to = r->at;
    while (r->at < r->len && r->text[r->at] != '"') {
        unsigned char c = (unsigned char)r->text[r->at];
        int code = 0;
        size_t run;
        if (c == '\\') {
            code = read_escape(r, &to);
        } else if (c < 0x20) {
            code = WEIR__JSON_FAIL(r, r->at, "control character 0x%02x in a string; write \\u%04x",
                                   c, c);
        } else {
            run = c < 0x80 ? weir__scan(WEIR__STOP_JSON, r->text, r->at + 1, r->len) - r->at
                           : weir__utf8_length(r->text + r->at, r->len - r->at);
            if (run == 0)
                code = WEIR__JSON_FAIL(r, r->at, "byte 0x%02x, which is not UTF-8", c);
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

int weir__json_string(struct weir__json_reader *r)
{
    size_t start = r->at + 1, end;
    struct weir__json_node *node = weir__json_add(r, WEIR__JSON_STRING);
    if (!node)
        return WEIR_EINVAL;
    r->at = end = weir__scan(WEIR__STOP_JSON, r->text, start, r->len);
    if (WEIR__UNLIKELY(r->at < r->len && r->text[r->at] != '"')) {
        int code = read_odd_string(r, &end);
        if (code)
            return code;
    }
    if (!weir__json_pass(r, '"'))
        return weir__json_unexpected(r, "a string's closing quote");
    r->text[end] = 0;
    node->text = r->text + start;
    node->len = (uint32_t)(end - start);
    return 0;
}

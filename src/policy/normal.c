/* Paths and hosts in their one spelling: see view.h. */
#include "policy/view.h"

#include <string.h>

/* ---- paths ---- */

static bool normal_is_escape(const char *text, size_t left)
{
    return left >= 3 && text[0] == '%' && weir__hex_digit(text[1]) >= 0 &&
           weir__hex_digit(text[2]) >= 0;
}

/* Copies what stands before a query, without parameters and decoded. Broken escapes stay as they
 * are. */
static size_t normal_path_decode(struct weir__span text, bool parameters, char *room)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == ';' && !parameters) {
            while (i + 1 < text.len && text.data[i + 1] != '/')
                i++;
        } else if (normal_is_escape(text.data + i, text.len - i)) {
            room[n++] =
                (char)(weir__hex_digit(text.data[i + 1]) * 16 + weir__hex_digit(text.data[i + 2]));
            i += 2;
        } else {
            room[n++] = text.data[i];
        }
    }
    return n;
}

/* What a segment is compared as: without parameters that came encoded, blanks around it, dots at
 * its end. One of nothing but dots stays. */
static struct weir__span normal_segment_of(const char *text, size_t len, bool parameters)
{
    const char *cut = parameters ? NULL : memchr(text, ';', len);
    len = cut ? (size_t)(cut - text) : len;
    while (len > 0 && text[len - 1] == ' ')
        len--;
    while (len > 0 && text[0] == ' ')
        text++, len--;
    size_t end = len;
    while (end > 0 && (text[end - 1] == '.' || text[end - 1] == ' '))
        end--;
    return (struct weir__span){text, end > 0 ? end : len};
}

/* The segments of a path that begins with a slash, in place; the root has no parent. */
static size_t normal_path_resolve(char *path, size_t len, bool parameters)
{
    size_t n = 1; /* behind a slash, always */
    for (size_t at = 1; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t end = slash ? (size_t)(slash - path) : len;
        struct weir__span segment = normal_segment_of(path + at, end - at, parameters);
        if (weir__span_is(segment, "..")) {
            while (n > 1 && path[n - 2] != '/')
                n--;
            n -= n > 1;
        } else if (segment.len > 0 && !weir__span_is(segment, ".")) {
            memmove(path + n, segment.data, segment.len);
            n += segment.len;
            if (end < len)
                path[n++] = '/';
        }
        at = end + 1;
    }
    return n;
}

/* "http://host/path" is the path. */
static struct weir__span normal_behind_authority(struct weir__span text)
{
    size_t at = 0;
    while (at < text.len && text.data[at] != ':' && text.data[at] != '/' && text.data[at] != '?')
        at++;
    if (at == 0 || text.len - at < 3 || memcmp(text.data + at, "://", 3))
        return text;
    at += 3;
    while (at < text.len && text.data[at] != '/' && text.data[at] != '?' && text.data[at] != '#')
        at++;
    return (struct weir__span){text.data + at, text.len - at};
}

/* Cuts what is no path off, and says whether the rest may need another spelling. */
static bool normal_path_is_odd(struct weir__span *text, bool parameters)
{
    bool odd = text->len == 0 || text->data[0] != '/';
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = (unsigned char)text->data[i];
        if (c == '?' || c == '#')
            text->len = i;
        else if (c <= ' ' || c == 0x7f || c == '%' || (c == ';' && !parameters))
            odd = true;
        else if (c == '/' && i > 0)
            odd = odd || text->data[i - 1] == '/' || text->data[i - 1] == '.';
        else if (c == '.')
            odd = odd || text->data[i ? i - 1 : 0] == '/';
    }
    return odd || text->len == 0 || text->data[text->len - 1] == '.';
}

static bool normal_has_control(struct weir__span text)
{
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.data[i] < ' ' || text.data[i] == 0x7f)
            return true;
    }
    return false;
}

const char *weir__normal_path(struct weir__span text, bool parameters, char *room, size_t size,
                              struct weir__span *ret)
{
    if (text.len > 0 && text.data[0] != '/')
        text = normal_behind_authority(text);
    if (normal_path_is_odd(&text, parameters)) {
        bool rooted = text.len > 0 && text.data[0] == '/';
        if (text.len + !rooted > size)
            return "is too long";
        if (!rooted)
            room[0] = '/';
        text.len = normal_path_decode(text, parameters, room + !rooted) + !rooted;
        text.data = room;
        if (normal_has_control(text))
            return "has a control character";
        text.len = normal_path_resolve(room, text.len, parameters);
    }
    *ret = text;
    return NULL;
}

const char *weir__normal_path_pattern(struct weir__span text, bool parameters, char *room,
                                      struct weir__span *ret_right)
{
    *ret_right = (struct weir__span){"", 0};
    if (text.len == 0 || (text.data[0] != '/' && text.data[0] != '*' && text.data[0] != '\\'))
        return "a path begins with /";
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '?' || text.data[i] == '#')
            return "paths are compared without the text after a ? or #";
        if (normal_is_escape(text.data + i, text.len - i))
            return "paths are compared decoded; write the character itself, not %XX";
        if (text.data[i] == '/' && i + 1 < text.len && text.data[i + 1] == '/')
            return "paths are compared with / instead of //";
    }
    if (normal_has_control(text))
        return "a path has no control characters";
    /* A star is any letter here: what is wrong with the others is wrong whatever it stands for. */
    size_t skip = text.data[0] != '/';
    weir__normal_path(text, parameters, room, text.len + 1, ret_right);
    ret_right->data += skip;
    ret_right->len -= skip;
    if (ret_right->len == text.len && !memcmp(ret_right->data, text.data, text.len)) {
        *ret_right = (struct weir__span){"", 0};
        return NULL;
    }
    return "paths are compared without dot segments, without spaces and dots at the end of a "
           "segment, and without the text after a ;";
}

/* ---- hosts ---- */

bool weir__normal_lower(struct weir__span text, char *room, size_t size, struct weir__span *ret)
{
    size_t i = 0;
    while (i < text.len && !(text.data[i] >= 'A' && text.data[i] <= 'Z'))
        i++;
    if (i < text.len) {
        if (text.len > size)
            return false;
        memmove(room, text.data, i); /* which may be the same place */
        for (; i < text.len; i++) {
            char c = text.data[i];
            room[i] = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
        }
        text.data = room;
    }
    *ret = text;
    return true;
}

static bool normal_is_digit_of_address(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' ||
           c == '.';
}

/* A name, or an address with or without brackets. What else a proxy lets through, like "user@host",
 * "host:x" or "%68ost", it may have understood as a host that policies know by another spelling. */
static bool normal_is_host(struct weir__span text)
{
    static const char never[] = "/\\@%,:[]?#\"<>^`{|}";
    bool brackets = text.len > 1 && text.data[0] == '[' && text.data[text.len - 1] == ']';
    struct weir__span inner = {text.data + brackets, text.len - (brackets ? 2 : 0)};
    const char *colon = inner.len ? memchr(inner.data, ':', inner.len) : NULL;
    bool several = colon && memchr(colon + 1, ':', inner.len - (size_t)(colon + 1 - inner.data));
    if (brackets && !several)
        return false;
    for (size_t i = 0; i < inner.len; i++) {
        unsigned char c = (unsigned char)inner.data[i];
        if (several ? !normal_is_digit_of_address(inner.data[i])
                    : c <= ' ' || c == 0x7f || strchr(never, c))
            return false;
    }
    return true;
}

const char *weir__normal_host(struct weir__span text, char *room, size_t size,
                              struct weir__span *ret)
{
    size_t end = text.len;
    while (end > 0 && text.data[end - 1] >= '0' && text.data[end - 1] <= '9')
        end--;
    bool port = end > 0 && text.data[end - 1] == ':';
    /* Of an address without brackets the last group is no port. */
    if (port && (text.data[0] == '[' ? end > 1 && text.data[end - 2] == ']'
                                     : !memchr(text.data, ':', end - 1)))
        text.len = end - 1;
    while (text.len > 1 && text.data[text.len - 1] == '.')
        text.len--;
    if (!weir__normal_lower(text, room, size, ret))
        return "is too long";
    return normal_is_host(*ret) ? NULL : "is not a host";
}

const char *weir__normal_host_pattern(struct weir__span text, char *room,
                                      struct weir__span *ret_right)
{
    struct weir__span found = text;
    const char *scheme = memmem(text.data, text.len, "://", 3);
    if (scheme)
        found = (struct weir__span){scheme + 3, text.len - (size_t)(scheme + 3 - text.data)};
    const char *slash = memchr(found.data, '/', found.len);
    if (slash)
        found.len = (size_t)(slash - found.data);
    const char *colon = memchr(found.data, ':', found.len);
    size_t behind = colon ? found.len - (size_t)(colon + 1 - found.data) : 0;
    if (colon && found.data[0] != '[' &&
        !memchr(colon + 1, ':', behind)) /* a port, or "*" for it */
        found.len = (size_t)(colon - found.data);
    weir__normal_host(found, room, text.len + 1, ret_right);
    if (ret_right->len == text.len)
        return NULL;
    return "hosts are compared without scheme, port, path and final dot";
}

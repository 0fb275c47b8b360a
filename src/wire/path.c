/* Paths in their one spelling: see path.h. */
#include "wire/path.h"

#include "core/core.h"

#include <string.h>

static bool path_is_escape(const char *text, size_t left)
{
    return left >= 3 && text[0] == '%' && weir__hex_digit(text[1]) >= 0 &&
           weir__hex_digit(text[2]) >= 0;
}

/* Copies what stands before a query, without parameters and decoded. Broken escapes stay as they
 * are. */
static size_t path_decode(struct weir__span text, bool parameters, char *room)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == ';' && !parameters) {
            while (i + 1 < text.len && text.data[i + 1] != '/')
                i++;
        } else if (path_is_escape(text.data + i, text.len - i)) {
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
static struct weir__span path_segment_of(const char *text, size_t len, bool parameters)
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
static size_t path_resolve(char *path, size_t len, bool parameters)
{
    size_t n = 1; /* behind a slash, always */
    for (size_t at = 1; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t end = slash ? (size_t)(slash - path) : len;
        struct weir__span segment = path_segment_of(path + at, end - at, parameters);
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
static struct weir__span path_behind_authority(struct weir__span text)
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
static bool path_is_odd(struct weir__span *text, bool parameters)
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

static bool path_has_control(struct weir__span text)
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
        text = path_behind_authority(text);
    if (path_is_odd(&text, parameters)) {
        bool rooted = text.len > 0 && text.data[0] == '/';
        if (text.len + !rooted > size)
            return "is too long";
        if (!rooted)
            room[0] = '/';
        text.len = path_decode(text, parameters, room + !rooted) + !rooted;
        text.data = room;
        if (path_has_control(text))
            return "has a control character";
        text.len = path_resolve(room, text.len, parameters);
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
    bool doubled = false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '?' || text.data[i] == '#')
            return "paths are compared without the text after a ? or #";
        if (path_is_escape(text.data + i, text.len - i))
            return "paths are compared decoded; write the character itself, not %XX";
        if (text.data[i] == '/' && i + 1 < text.len && text.data[i + 1] == '/')
            doubled = true;
    }
    if (path_has_control(text))
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
    if (doubled)
        return "in paths // is read as /";
    return "paths are compared without dot segments, without spaces and dots at the end of a "
           "segment, and without the text after a ;";
}

int weir_path(const char *path, size_t len, char *ret, size_t size, size_t *ret_len,
              weir_error *err)
{
    struct weir__span found;
    if ((!path && len) || !ret || !ret_len)
        return weir__fail(err, WEIR_EINVAL, 0, "an argument of weir_path is NULL");
    if (size <= len)
        return weir__fail(err, WEIR_EINVAL, 0, "no room for a path: expected %zu bytes", len + 1);
    const char *wrong =
        weir__normal_path((struct weir__span){path ? path : "", len}, false, ret, size, &found);
    if (wrong)
        return weir__fail(err, WEIR_EINVAL, 0, "the path %s", wrong);
    memmove(ret, found.data, found.len);
    *ret_len = found.len;
    return 0;
}

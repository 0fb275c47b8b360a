/* See normal.h. */
#include "policy/normal.h"

#include <string.h>

/* ---- paths ---- */

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_escape(const char *text, size_t left)
{
    return left >= 3 && text[0] == '%' && digit(text[1]) >= 0 && digit(text[2]) >= 0;
}

/* Broken escapes stay as they are. */
static size_t decode(struct weir__span text, char *room)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (is_escape(text.data + i, text.len - i)) {
            room[n++] = (char)(digit(text.data[i + 1]) * 16 + digit(text.data[i + 2]));
            i += 2;
        } else {
            room[n++] = text.data[i];
        }
    }
    return n;
}

/* Empty, "." and ".." segments of a path that begins with a slash, in place; the root has no parent. */
static size_t resolve(char *path, size_t len)
{
    size_t n = 1; /* behind a slash, always */
    for (size_t at = 1; at < len;) {
        size_t end = at;
        while (end < len && path[end] != '/')
            end++;
        size_t segment = end - at;
        bool dots = segment > 0 && segment <= 2 && path[at] == '.' && path[end - 1] == '.';
        if (dots && segment == 2) {
            while (n > 1 && path[n - 2] != '/')
                n--;
            n -= n > 1;
        } else if (!dots && segment > 0) {
            memmove(path + n, path + at, segment);
            n += segment;
            if (end < len)
                path[n++] = '/';
        }
        at = end + 1;
    }
    return n;
}

bool weir__normal_path(struct weir__span text, char *room, size_t size, struct weir__span *ret)
{
    bool odd = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '?' || c == '#')
            text.len = i;
        else if (c == '%' || (c == '/' && i + 1 < text.len &&
                              (text.data[i + 1] == '/' || text.data[i + 1] == '.')))
            odd = true;
    }
    if (odd && text.len > size)
        return false;
    if (odd) {
        text.len = decode(text, room);
        text.data = room;
        if (text.len > 0 && room[0] == '/')
            text.len = resolve(room, text.len);
    }
    *ret = text;
    return true;
}

const char *weir__normal_path_pattern(const char *text, size_t len)
{
    if (len == 0 || (text[0] != '/' && text[0] != '*' && text[0] != '\\'))
        return "a path begins with /";
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '?' || text[i] == '#')
            return "paths are compared without what follows a ? or #";
        if (is_escape(text + i, len - i))
            return "paths are compared decoded; write the character itself, not %XX";
        if (text[i] == '/' && i + 1 < len && text[i + 1] == '/')
            return "paths are compared with // made /";
    }
    return NULL;
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

bool weir__normal_host(struct weir__span text, char *room, size_t size, struct weir__span *ret)
{
    size_t end = text.len;
    while (end > 0 && text.data[end - 1] >= '0' && text.data[end - 1] <= '9')
        end--;
    bool port = end > 0 && text.data[end - 1] == ':';
    /* Of an address without brackets the last group is no port. */
    if (port && (text.data[0] == '[' ? end > 1 && text.data[end - 2] == ']'
                                     : !memchr(text.data, ':', end - 1)))
        text.len = end - 1;
    if (text.len > 1 && text.data[text.len - 1] == '.')
        text.len--;
    return weir__normal_lower(text, room, size, ret);
}

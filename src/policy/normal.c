/* Hosts in their one spelling: see view.h. */
#include "policy/view.h"

#include <string.h>

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

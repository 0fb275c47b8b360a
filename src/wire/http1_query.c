/* Looking things up in a request: fields by name, the pairs of a query. */
#include "wire/http1.h"

#include <string.h>

bool weir__http_field(const struct weir__http_request *request, const char *name,
                      struct weir__span *ret)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < request->field_count; i++) {
        struct weir__span it = request->fields[i].name;
        if (it.len == len && !strncasecmp(it.data, name, len)) {
            *ret = request->fields[i].value;
            return true;
        }
    }
    return false;
}

/* Decodes text into room; false: an escape is broken. */
static bool query_decode(struct weir__span text, char *room, struct weir__span *ret)
{
    char *to = room;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            int high = text.len - i < 3 ? -1 : weir__hex_digit(text.data[i + 1]);
            int low = high < 0 ? -1 : weir__hex_digit(text.data[i + 2]);
            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        *to++ = c;
    }
    *ret = (struct weir__span){room, (size_t)(to - room)};
    return true;
}

/* What is before the first `mark` of text; *text becomes what is behind it. */
static struct weir__span query_cut(struct weir__span *text, char mark)
{
    const char *found = text->len ? memchr(text->data, mark, text->len) : NULL;
    size_t len = found ? (size_t)(found - text->data) : text->len;
    struct weir__span before = {text->data, len};
    text->data += len + (found != NULL);
    text->len -= len + (found != NULL);
    return before;
}

bool weir__query_next(struct weir__query *query, char *room, struct weir__span *ret_name,
                      struct weir__span *ret_value)
{
    while (query->rest.len > 0) {
        struct weir__span value = query_cut(&query->rest, '&'), decoded_name, decoded_value;
        if (value.len == 0)
            continue;
        struct weir__span name = query_cut(&value, '=');
        if (query_decode(name, room, &decoded_name) &&
            query_decode(value, room + decoded_name.len, &decoded_value)) {
            *ret_name = decoded_name;
            *ret_value = decoded_value;
            return true;
        }
        query->bad = true;
        query->rest.len = 0;
    }
    return false;
}

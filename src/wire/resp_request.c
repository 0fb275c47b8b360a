/*
 * The short way for requests: a whole array of bulk strings that is there already, as nearly all of a
 * pipeline are. What is incomplete, odd or out of bounds is left to the reader proper, which says why.
 */
#include "wire/resp_parts.h"

#include <string.h>

/* Digits and CR LF; bytes they took, 0: not such a number, or not in six digits. */
static inline size_t read_count(const char *text, size_t len, uint32_t *ret)
{
    uint32_t number = 0;
    size_t i = 0;
    for (; i < len && i < 6 && text[i] >= '0' && text[i] <= '9'; i++)
        number = number * 10 + (uint32_t)(text[i] - '0');
    if (i == 0 || i + 2 > len || text[i] != '\r' || text[i + 1] != '\n')
        return 0;
    *ret = number;
    return i + 2;
}

bool weir__resp_request(struct weir__resp_reader *reader, const char *data, size_t len)
{
    uint32_t n, size;
    size_t took = len > 4 && data[0] == '*' ? read_count(data + 1, len - 1, &n) : 0;
    if (took == 0 || n == 0 || n >= reader->room)
        return false;
    size_t at = 1 + took;
    for (uint32_t i = 1; i <= n; i++) {
        if (at >= len || data[at] != '$')
            return false;
        took = read_count(data + at + 1, len - at - 1, &size);
        at += 1 + took;
        if (took == 0 || size > reader->limits.bulk || len - at < (size_t)size + 2 ||
            data[at + size] != '\r' || data[at + size + 1] != '\n')
            return false;
        reader->nodes[i] = (struct weir__resp_node){
            .type = WEIR__RESP_BULK, .next = i + 1, .at = (uint32_t)at, .len = size};
        at += size + 2;
    }
    if (at > reader->limits.message)
        return false;
    reader->nodes[0] = (struct weir__resp_node){.type = WEIR__RESP_ARRAY, .next = n + 1, .len = n};
    reader->count = n + 1;
    reader->size = at;
    return true;
}

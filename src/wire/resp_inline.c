/*
 * Inline commands: a line of words, as people type them into a bare connection, by Redis's rules.
 *
 *     WEIR.TAKE user:42 "token-bucket 10/s burst 20"
 *
 * Words are parted by white space. Between double quotes white space is text and a backslash starts
 * \n \r \t \b \a \xHH or the character itself; between single quotes only \' is special. What is
 * decoded is never longer than what was written, so it takes its place.
 */
#include "wire/resp_parts.h"

#include <string.h>

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The escape behind a backslash at data[at]; returns how many bytes it has. */
static size_t unescape(const char *data, size_t at, size_t len, char *ret)
{
    static const char names[] = "nrtba", bytes[] = "\n\r\t\b\a";
    char c = data[at];
    if (c == 'x' && at + 2 < len && hex(data[at + 1]) >= 0 && hex(data[at + 2]) >= 0) {
        *ret = (char)(hex(data[at + 1]) << 4 | hex(data[at + 2]));
        return 3;
    }
    const char *name = c ? strchr(names, c) : NULL;
    *ret = name ? bytes[name - names] : c;
    return 1;
}

/* The text between quotes, data[*at] the opening one; written at data[*to]. False: never closed, or
 * something other than space behind it. */
static bool read_quoted(char *data, size_t len, size_t *at, size_t *to)
{
    char quote = data[(*at)++];
    while (*at < len && data[*at] != quote) {
        bool escape = data[*at] == '\\' && *at + 1 < len;
        if (escape && quote == '"') {
            char c;
            *at += 1;
            *at += unescape(data, *at, len, &c);
            data[(*to)++] = c;
            continue;
        }
        if (escape && data[*at + 1] == '\'')
            *at += 1;
        data[(*to)++] = data[(*at)++];
    }
    if (*at == len)
        return false;
    *at += 1;
    return *at == len || is_space(data[*at]);
}

enum weir__resp_status weir__resp_inline(struct weir__resp_reader *reader, char *data, size_t len)
{
    reader->nodes[0] = (struct weir__resp_node){.type = WEIR__RESP_ARRAY};
    reader->count = 1;
    for (size_t at = 0;;) {
        while (at < len && is_space(data[at]))
            at++;
        if (at == len)
            break;
        if (reader->count == reader->room)
            return weir__resp_broken(reader, "more than %u words in an inline command",
                                     reader->room - 1);
        size_t start = at, to = at;
        while (at < len && !is_space(data[at])) {
            if (data[at] != '"' && data[at] != '\'')
                data[to++] = data[at++];
            else if (!read_quoted(data, len, &at, &to))
                return weir__resp_broken(reader, "unbalanced quotes in an inline command");
        }
        reader->nodes[reader->count] = (struct weir__resp_node){.type = WEIR__RESP_BULK,
                                                                .next = reader->count + 1,
                                                                .at = (uint32_t)start,
                                                                .len = (uint32_t)(to - start)};
        reader->count++;
    }
    reader->nodes[0].len = reader->count - 1;
    reader->nodes[0].next = reader->count;
    return WEIR__RESP_MESSAGE;
}

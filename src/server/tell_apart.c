/*
 * Which protocol a connection speaks, by its first bytes.
 *
 * A page in a browser can make it send HTTP to any port, and what follows the request line is the page's own.
 * So what is not surely RESP is HTTP, which reads nothing behind a request that it refuses. RESP begins with
 * an array, or with a whole line whose first word is one of our commands and that does not end as a request
 * line of HTTP does. Whatever the method, `Host:` or `POST`, no line of HTTP becomes a command.
 */
#include "server/resp/resp.h"

#include <string.h>
#include <strings.h>

#define EMPTY_LINES_MAX 16          /* before a connection's first request */
#define LINE_MAX_UNTOLD (16u << 10) /* a longer line is refused by whoever reads it */
#define WORD_MAX 16                 /* no command is longer */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* Empty lines before the first request, which either protocol passes over. */
static size_t protocol_skip_empty_lines(const char *data, size_t len)
{
    size_t at = 0;
    for (int lines = 0; lines < EMPTY_LINES_MAX && at < len; lines++) {
        if (data[at] == '\n')
            at++;
        else if (data[at] == '\r' && (at + 1 == len || data[at + 1] == '\n'))
            at += at + 1 == len ? 1 : 2;
        else
            break;
    }
    return at;
}

/* Whether `len` bytes are a command's name, in any case; whole: all of it, or else its beginning. */
static bool protocol_is_command(const char *command, const char *word, size_t len, bool whole)
{
    size_t size = strlen(command);
    return (whole ? len == size : len <= size) && !strncasecmp(word, command, len);
}

/* Whether the first word can be, or become, one of our commands. */
static bool protocol_begins_as_command(const char *data, size_t len)
{
    size_t word = 0;
    while (word < len && word <= WORD_MAX && !strchr(" \t\r\n", data[word] ? data[word] : 'x'))
        word++;
    bool whole = word < len, found = false;
    for (size_t i = 0; i < WEIR__VERB_COUNT && !found; i++)
        found = protocol_is_command(weir__verbs[i].name, data, word, whole);
    for (size_t i = 0; server_resp_command(i) && !found; i++)
        found = protocol_is_command(server_resp_command(i), data, word, whole);
    return found;
}

/* "… HTTP/1.1": a request line, whatever its method is. */
static bool protocol_ends_as_http(const char *line, size_t len)
{
    static const char version[] = " HTTP/";
    const size_t size = sizeof version - 1;
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' '))
        len--;
    const char *space = len ? memrchr(line, ' ', len) : NULL;
    return space && len - (size_t)(space - line) >= size && !strncasecmp(space, version, size);
}

/* The protocol of a first portion; NULL: not known yet. */
const struct server_protocol_ops *server_tell_apart(const char *data, size_t len)
{
    size_t empty = protocol_skip_empty_lines(data, len);
    data += empty;
    len -= empty;
    if (len == 0)
        return NULL;
    size_t compared = len < sizeof preface - 1 ? len : sizeof preface - 1;
    if (!memcmp(data, preface, compared))
        return compared == sizeof preface - 1 || len >= 16 ? &server_h2 : NULL;
    if (data[0] == '*')
        return &server_resp;
    if (!protocol_begins_as_command(data, len))
        return &server_http1;
    const char *end = memchr(data, '\n', len);
    if (!end)
        return len > LINE_MAX_UNTOLD ? &server_resp : NULL; /* which refuses it and closes */
    return protocol_ends_as_http(data, (size_t)(end - data)) ? &server_http1 : &server_resp;
}

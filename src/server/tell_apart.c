/* Which protocol a connection speaks, by its first bytes. */
#include "server/conn.h"

#include <string.h>

#define EMPTY_LINES_MAX 16 /* before a connection's first request */

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static bool begins(const char *data, size_t len, const char *word, size_t word_len)
{
    return len >= word_len && !memcmp(data, word, word_len);
}

/* A method, a space and the beginning of a target: no inline command looks like that. */
static bool looks_like_http(const char *data, size_t len)
{
    size_t at = 0;
    while (at < len && at < 20 && data[at] >= 'A' && data[at] <= 'Z')
        at++;
    if (at == 0 || at + 1 >= len || data[at] != ' ')
        return false;
    return data[at + 1] == '/' || data[at + 1] == '*' ||
           (len - at > 5 && !memcmp(data + at + 1, "http", 4) &&
            (data[at + 5] == 's' || data[at + 5] == ':'));
}

/* The protocol of a first portion; NULL: not known yet. */
const struct server_protocol_ops *server_tell_apart(const char *data, size_t len)
{
    const char *const end = data + len;
    for (int lines = 0; lines < EMPTY_LINES_MAX && len > 0 && data[0] == '\r'; lines++) {
        data += len < 2 ? len : 2; /* an empty line before either */
        len = (size_t)(end - data);
    }
    if (len == 0)
        return NULL;
    size_t compared = len < sizeof preface - 1 ? len : sizeof preface - 1;
    if (!memcmp(data, preface, compared))
        return compared == sizeof preface - 1 || len >= 16 ? &server_h2 : NULL;
    if (data[0] == '*' || data[0] == '$' || data[0] == '\n')
        return &server_resp;
    if (looks_like_http(data, len))
        return &server_http1;
    bool letter = (data[0] | 32) >= 'a' && (data[0] | 32) <= 'z';
    if (!letter) /* garbage: HTTP's answer is the one that people can read */
        return &server_http1;
    bool line = memchr(data, '\n', len) != NULL;
    bool method = begins(data, len, "GET", 3) || begins(data, len, "POST", 4) ||
                  begins(data, len, "HEAD", 4) || begins(data, len, "PUT", 3) ||
                  begins(data, len, "DELETE", 6) || begins(data, len, "OPTIONS", 7);
    if (line)
        return memmem(data, len, " HTTP/", 6) ? &server_http1 : &server_resp;
    return len > 64 && !method ? &server_resp : len > 4096 ? &server_http1 : NULL;
}

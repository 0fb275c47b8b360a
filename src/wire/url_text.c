/* The parts of an address as text: quoted in messages, decoded and encoded. */
#include "wire/url_parts.h"

#include <stdio.h>
#include <string.h>

struct weir__url_quote weir__url_quote(const struct weir__url_reader *reader, const char *part,
                                       size_t len)
{
    struct weir__url_quote quote = {"***"};
    if (part < reader->quotable)
        return quote;
    size_t n = len < sizeof quote.text - 4 ? len : sizeof quote.text - 4;
    for (size_t i = 0; i < n; i++)
        quote.text[i] = (unsigned char)part[i] < ' ' || part[i] == 0x7f ? '?' : part[i];
    strcpy(quote.text + n, n < len ? "..." : "");
    return quote;
}

int weir__url_fail(const struct weir__url_reader *reader, const char *part, const char *format, ...)
{
    if (!reader->err)
        return WEIR_EURL;
    int column = (int)(part - reader->text) + 1;
    char message[sizeof reader->err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return weir__fail(reader->err, WEIR_EURL, column, "store address, column %d: %.460s", column,
                      message);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int weir__url_decode(const struct weir__url_reader *reader, const char *what, const char *part,
                     size_t len, char *ret, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = part[i];
        if (c == '%') {
            if (i + 2 >= len || hex(part[i + 1]) < 0 || hex(part[i + 2]) < 0)
                return weir__url_fail(
                    reader, part + i,
                    "no two hex digits behind the %% in the %s; write a %% itself "
                    "as %%25",
                    what);
            c = (char)(hex(part[i + 1]) << 4 | hex(part[i + 2]));
            if (c == 0)
                return weir__url_fail(reader, part + i, "a %%00 in the %s; leave it out", what);
            i += 2;
        }
        if (n + 1 == size)
            return weir__url_fail(reader, part, "the %s is too long; it has at most %zu bytes",
                                  what, size - 1);
        ret[n++] = c;
    }
    ret[n] = 0;
    return 0;
}

void weir__url_encode(struct weir__buffer *buffer, const char *text, const char *as_it_is)
{
    for (; *text; text++) {
        char c = *text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) || strchr(as_it_is, c);
        if (plain)
            weir__put(buffer, &c, 1);
        else
            weir__put_format(buffer, "%%%02X", (unsigned char)c);
    }
}

bool weir__url_number(const char *part, size_t len, int64_t least, int64_t most, int64_t *ret)
{
    int64_t number = 0;
    for (size_t i = 0; i < len; i++) {
        if (part[i] < '0' || part[i] > '9')
            return false;
        number = number * 10 + (part[i] - '0');
        if (number > most)
            return false;
    }
    if (len == 0 || number < least)
        return false;
    *ret = number;
    return true;
}

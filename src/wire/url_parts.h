/* What url.c (the address), url_options.c (behind its question mark) and url_text.c share. */
#ifndef WEIR_URL_PARTS_H
#define WEIR_URL_PARTS_H

#include "wire/url.h"

/* An address being read. */
struct weir__url_reader {
    const char *text;
    const char *quotable; /* nothing before it is quoted: behind the last '@' */
    struct weir__redis_url *url;
    bool password_given;
    unsigned seen; /* a bit an option */
    weir_error *err;
};

/* A part of the address as messages may show it. */
struct weir__url_quote {
    char text[72];
};
struct weir__url_quote weir__url_quote(const struct weir__url_reader *reader, const char *part,
                                       size_t len);

/* Fills the error; the message starts with the place of `part`. Returns WEIR_EURL. */
int weir__url_fail(const struct weir__url_reader *reader, const char *part, const char *format, ...)
    WEIR__PRINTF(3, 4);

/* Percent-decodes a part into a field of `size` bytes; `what` names it in messages, which never
 * quote the part itself. */
int weir__url_decode(const struct weir__url_reader *reader, const char *what, const char *part,
                     size_t len, char *ret, size_t size);
/* The other way round; letters, digits, -._~ and what is in `as_it_is` need no encoding. */
void weir__url_encode(struct weir__buffer *buffer, const char *text, const char *as_it_is);

/* A whole number of digits only, within bounds. */
bool weir__url_number(const char *part, size_t len, int64_t least, int64_t most, int64_t *ret);

/* The options: their defaults; reading them, `text` being behind the question mark. */
void weir__url_option_defaults(struct weir__redis_url *url);
int weir__url_options(struct weir__url_reader *reader, const char *text);
/* Those that are not at their defaults, the first after a '?'. */
void weir__url_put_options(struct weir__buffer *buffer, const struct weir__redis_url *url);

#endif

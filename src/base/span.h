/* Borrowed bytes, and what text needs: words in any case, hex digits, UTF-8, names that were
 * mistyped. */
#ifndef WEIR_SPAN_H
#define WEIR_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

struct weir__span {
    const char *data;
    size_t len;
};

static inline struct weir__span weir__span_of(const char *text)
{
    return (struct weir__span){text, strlen(text)};
}

static inline bool weir__span_is(struct weir__span span, const char *text)
{
    size_t len = strlen(text);
    return span.len == len && !memcmp(span.data, text, len);
}

/* In any case of ASCII letters. */
static inline bool weir__span_is_word(struct weir__span span, const char *word)
{
    size_t len = strlen(word);
    return span.len == len && !strncasecmp(span.data, word, len);
}

/* A whole number, digits only, within bounds; false: it is not one. least is not negative. */
bool weir__span_whole(struct weir__span text, int64_t least, int64_t most, int64_t *ret);

/* What a hex digit stands for, or -1. */
static inline int weir__hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes of the character at the start of text, 0 if there is none (surrogates, overlong forms and
 * anything beyond U+10FFFF are not characters). */
size_t weir__utf8_length(const char *text, size_t len);
/* Whether a character of so many bytes can do harm where it is shown. A terminal could take it for
 * a command: controls, also those from U+0080 on, like U+009B, which begins what ESC [ begins. Or
 * it turns the direction of writing, so that a text looks like another one. 0 bytes: it is not
 * UTF-8. */
bool weir__utf8_is_harmful(const char *text, size_t bytes);

/* The first full-width character of a text, as input methods write them (`／`, `１`), and what it is
 * in ASCII: its length in bytes, or 0: there is no such character. */
size_t weir__full_width(const char *text, size_t len, size_t *ret_at, char *ret_ascii);

/* Writes a character of at most 21 bits, 1 … 4 bytes; how many. */
size_t weir__put_utf8(uint32_t code, char *to);

/* Whether all of it is UTF-8. */
bool weir__utf8_valid(const char *text, size_t len);

/* The name nearest to a mistyped word among a NULL-terminated list, or NULL if none is near. */
const char *weir__nearest(const char *word, size_t len, const char *const *names);
/* The same for a word that may be right, too: only a name that it is most likely a slip of. */
const char *weir__misspelt(const char *word, size_t len, const char *const *names);

#endif

/* Telling UTF-8 from other bytes. */
#ifndef WEIR_UTF8_H
#define WEIR_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at the start of text, 0 if there is none (surrogates, overlong forms and
 * anything beyond U+10FFFF are none). */
size_t weir__utf8_length(const char *text, size_t len);

/* The first full-width character of a text, as input methods write them (`／`, `１`), and what it is in
 * ASCII: its length in bytes, or 0: there is none. */
size_t weir__full_width(const char *text, size_t len, size_t *ret_at, char *ret_ascii);

/* Whether all of it is UTF-8. */
bool weir__utf8_valid(const char *text, size_t len);

#endif

/* Telling UTF-8 from other bytes. */
#ifndef WEIR_UTF8_H
#define WEIR_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at the start of text, 0 if there is none (surrogates, overlong forms and
 * anything beyond U+10FFFF are none). */
size_t weir__utf8_length(const char *text, size_t len);

/* Whether all of it is UTF-8. */
bool weir__utf8_valid(const char *text, size_t len);

#endif

/* Bytes of somebody else's, borrowed. */
#ifndef WEIR_SPAN_H
#define WEIR_SPAN_H

#include <stdbool.h>
#include <stddef.h>
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

/* Whatever the case of ASCII letters. */
static inline bool weir__span_is_word(struct weir__span span, const char *word)
{
    size_t len = strlen(word);
    return span.len == len && !strncasecmp(span.data, word, len);
}

#endif

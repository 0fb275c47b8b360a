/*
 * The one buffer type: a text writer that always keeps a terminating NUL, and remembers whether
 * anything was cut. It is bounded by the memory of the caller, or it owns memory that grows.
 */
#ifndef WEIR_BUFFER_H
#define WEIR_BUFFER_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct weir__buffer {
    char *data;
    size_t size; /* bytes there are, the NUL included; at least 1 */
    size_t len;
    bool cut;
    bool grows; /* the data is malloc'ed; weir__buffer_free frees it */
};

struct weir__buffer weir__buffer_over(char *data, size_t size);
/* One that grows as needed, and is cut only if there is no memory. */
struct weir__buffer weir__buffer_growing(void);
void weir__buffer_free(struct weir__buffer *buffer);

/* How many of so many bytes fit that do not fit yet: all, if the buffer grows; else it is cut. */
size_t weir__buffer_make_room(struct weir__buffer *buffer, size_t len);

/* Here, so that a text of known length costs a few stores. */
static inline void weir__put(struct weir__buffer *buffer, const char *text, size_t len)
{
    if (WEIR__UNLIKELY(len > buffer->size - 1 - buffer->len))
        len = weir__buffer_make_room(buffer, len);
    memcpy(buffer->data + buffer->len, text, len);
    buffer->len += len;
    buffer->data[buffer->len] = 0;
}

#define WEIR__DIGITS 24 /* bytes that hold any number, its sign included */
/* Writes a number at the end of a room of WEIR__DIGITS bytes; its first character. */
char *weir__digits(char room[WEIR__DIGITS], int64_t number);
void weir__put_text(struct weir__buffer *buffer, const char *text);
void weir__put_int(struct weir__buffer *buffer, int64_t number);
void weir__put_format(struct weir__buffer *buffer, const char *format, ...) WEIR__PRINTF(2, 3);

#endif

/*
 * The one buffer type: a bounded text writer over memory of the caller's. It never allocates,
 * always keeps a terminating NUL, and remembers whether anything was cut.
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
};

struct weir__buffer weir__buffer_over(char *data, size_t size);

/* Here, so that a text of known length costs a few stores. */
static inline void weir__put(struct weir__buffer *buffer, const char *text, size_t len)
{
    size_t room = buffer->size - 1 - buffer->len;
    if (WEIR__UNLIKELY(len > room)) {
        len = room;
        buffer->cut = true;
    }
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

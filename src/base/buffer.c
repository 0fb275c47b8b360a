/* See buffer.h. */
#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROWING_FROM 1024

struct weir__buffer weir__buffer_over(char *data, size_t size)
{
    data[0] = 0;
    return (struct weir__buffer){.data = data, .size = size};
}

struct weir__buffer weir__buffer_growing(void)
{
    static char none[1];
    char *data = malloc(GROWING_FROM);
    struct weir__buffer buffer = weir__buffer_over(data ? data : none, data ? GROWING_FROM : 1);
    buffer.grows = data != NULL;
    buffer.cut = !data;
    return buffer;
}

void weir__buffer_free(struct weir__buffer *buffer)
{
    if (buffer->grows)
        free(buffer->data);
    *buffer = (struct weir__buffer){0};
}

size_t weir__buffer_make_room(struct weir__buffer *buffer, size_t len)
{
    size_t size = buffer->size;
    while (buffer->grows && size - 1 - buffer->len < len)
        size *= 2;
    char *data = buffer->grows ? realloc(buffer->data, size) : NULL;
    if (!data) {
        buffer->cut = true;
        return buffer->size - 1 - buffer->len;
    }
    buffer->data = data;
    buffer->size = size;
    return len;
}

void weir__put_text(struct weir__buffer *buffer, const char *text)
{
    weir__put(buffer, text, strlen(text));
}

/* Two digits at a time: numbers are much of what is written. */
char *weir__digits(char room[WEIR__DIGITS], int64_t number)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    char *p = room + WEIR__DIGITS;
    for (; rest >= 100; rest /= 100)
        memcpy(p -= 2, pairs + 2 * (rest % 100), 2);
    if (rest >= 10)
        memcpy(p -= 2, pairs + 2 * rest, 2);
    else
        *--p = (char)('0' + rest);
    if (number < 0)
        *--p = '-';
    return p;
}

void weir__put_int(struct weir__buffer *buffer, int64_t number)
{
    char digits[WEIR__DIGITS];
    char *p = weir__digits(digits, number);
    weir__put(buffer, p, (size_t)(digits + sizeof digits - p));
}

void weir__put_format(struct weir__buffer *buffer, const char *format, ...)
{
    size_t room = buffer->size - 1 - buffer->len, wanted = 0;
    do {
        va_list args;
        va_start(args, format);
        int n = vsnprintf(buffer->data + buffer->len, room + 1, format, args);
        va_end(args);
        wanted = n < 0 ? 0 : (size_t)n;
    } while (wanted > room && (room = weir__buffer_make_room(buffer, wanted)) == wanted);
    buffer->len += wanted < room ? wanted : room;
}

/* See buffer.h. */
#include "base/buffer.h"

#include <stdio.h>
#include <string.h>

struct weir__buffer weir__buffer_over(char *data, size_t size)
{
    data[0] = 0;
    return (struct weir__buffer){data, size, 0, false};
}

void weir__put(struct weir__buffer *buffer, const char *text, size_t len)
{
    size_t room = buffer->size - 1 - buffer->len;
    if (len > room) {
        len = room;
        buffer->cut = true;
    }
    memcpy(buffer->data + buffer->len, text, len);
    buffer->len += len;
    buffer->data[buffer->len] = 0;
}

void weir__put_text(struct weir__buffer *buffer, const char *text)
{
    weir__put(buffer, text, strlen(text));
}

void weir__put_int(struct weir__buffer *buffer, int64_t number)
{
    char digits[24];
    char *p = digits + sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        *--p = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        *--p = '-';
    weir__put(buffer, p, (size_t)(digits + sizeof digits - p));
}

void weir__put_format(struct weir__buffer *buffer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buffer->data + buffer->len, buffer->size - buffer->len, format, args);
    va_end(args);
    size_t room = buffer->size - 1 - buffer->len;
    if (n > 0 && (size_t)n > room)
        buffer->cut = true;
    buffer->len += n < 0 ? 0 : (size_t)n > room ? room : (size_t)n;
}

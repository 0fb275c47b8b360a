/* The RESP writer: see resp.h. */
#include "wire/resp.h"

#include <string.h>

#define NUMBER_LINE_MAX (1 + WEIR__DIGITS + 2) /* bytes of a number's line */

/* Where there is room, without asking for it piece by piece: replies are mostly numbers. */
static void put_number_line(struct weir__buffer *buffer, char type, int64_t number)
{
    char digits[WEIR__DIGITS];
    char *first = weir__digits(digits, number);
    size_t len = (size_t)(digits + sizeof digits - first);
    char *p = buffer->data + buffer->len;
    if (WEIR__UNLIKELY(buffer->size - buffer->len <= NUMBER_LINE_MAX)) {
        weir__put(buffer, &type, 1);
        weir__put(buffer, first, len);
        weir__put(buffer, "\r\n", 2);
        return;
    }
    *p++ = type;
    for (size_t i = 0; i < len; i++)
        *p++ = first[i];
    memcpy(p, "\r\n", 3); /* and the NUL */
    buffer->len += len + 3;
}

void weir__resp_put_header(struct weir__buffer *buffer, enum weir__resp_type type, size_t n,
                           int protocol)
{
    if (protocol < 3 && type == WEIR__RESP_MAP)
        n *= 2;
    put_number_line(buffer, protocol < 3 ? '*' : (char)type, (int64_t)n);
}

void weir__resp_put_bulk(struct weir__buffer *buffer, const void *data, size_t len)
{
    put_number_line(buffer, '$', (int64_t)len);
    if (len > 0)
        weir__put(buffer, data, len);
    weir__put(buffer, "\r\n", 2);
}

void weir__resp_put_bulk_integer(struct weir__buffer *buffer, int64_t integer)
{
    char digits[24];
    struct weir__buffer text = weir__buffer_over(digits, sizeof digits);
    weir__put_int(&text, integer);
    weir__resp_put_bulk(buffer, digits, text.len);
}

void weir__resp_put_integer(struct weir__buffer *buffer, int64_t integer)
{
    put_number_line(buffer, ':', integer);
}

static void put_text_line(struct weir__buffer *buffer, char type, const char *text, size_t len)
{
    weir__put(buffer, &type, 1);
    for (size_t at = 0; at < len;) {
        size_t plain = at;
        while (plain < len && (unsigned char)text[plain] >= ' ')
            plain++;
        weir__put(buffer, text + at, plain - at);
        if (plain < len)
            weir__put(buffer, " ", 1);
        at = plain + 1;
    }
    weir__put(buffer, "\r\n", 2);
}

void weir__resp_put_simple(struct weir__buffer *buffer, const char *text, size_t len)
{
    put_text_line(buffer, '+', text, len);
}

void weir__resp_put_error(struct weir__buffer *buffer, const char *text, size_t len)
{
    put_text_line(buffer, '-', text, len);
}

void weir__resp_put_null(struct weir__buffer *buffer, int protocol)
{
    weir__put_text(buffer, protocol < 3 ? "$-1\r\n" : "_\r\n");
}

void weir__resp_put_boolean(struct weir__buffer *buffer, bool value, int protocol)
{
    if (protocol < 3)
        put_number_line(buffer, ':', value);
    else
        weir__put_text(buffer, value ? "#t\r\n" : "#f\r\n");
}

bool weir__resp_put_command(struct weir__buffer *buffer, const struct weir__resp_arg *args,
                            size_t n)
{
    struct weir__buffer before = *buffer;
    buffer->cut = false;
    put_number_line(buffer, '*', (int64_t)n);
    for (size_t i = 0; i < n && !buffer->cut; i++) {
        if (args[i].data)
            weir__resp_put_bulk(buffer, args[i].data, args[i].len);
        else
            weir__resp_put_bulk_integer(buffer, args[i].integer);
    }
    bool fits = !buffer->cut;
    if (!fits) {
        buffer->len = before.len;
        buffer->data[buffer->len] = 0;
    }
    buffer->cut = before.cut;
    return fits;
}

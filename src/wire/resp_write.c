/* The RESP writer: see resp.h. */
#include "wire/resp.h"

#include <string.h>

/* In place where there is room: replies are mostly numbers. */
static void resp_put_number(struct weir__buffer *buffer, char type, int64_t number)
{
    char line[WEIR__RESP_NUMBER_LINE];
    if (WEIR__UNLIKELY(buffer->size - buffer->len <= sizeof line)) {
        weir__put(buffer, line, (size_t)(weir__resp_write_number(line, type, number) - line));
        return;
    }
    char *end = weir__resp_write_number(buffer->data + buffer->len, type, number);
    *end = 0;
    buffer->len = (size_t)(end - buffer->data);
}

void weir__resp_put_header(struct weir__buffer *buffer, enum weir__resp_type type, size_t n,
                           int protocol)
{
    if (protocol < 3 && type == WEIR__RESP_MAP)
        n *= 2;
    resp_put_number(buffer, protocol < 3 ? '*' : (char)type, (int64_t)n);
}

void weir__resp_put_bulk(struct weir__buffer *buffer, const void *data, size_t len)
{
    resp_put_number(buffer, '$', (int64_t)len);
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
    resp_put_number(buffer, ':', integer);
}

static void resp_put_line(struct weir__buffer *buffer, char type, const char *text, size_t len)
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
    resp_put_line(buffer, '+', text, len);
}

void weir__resp_put_error(struct weir__buffer *buffer, const char *text, size_t len)
{
    resp_put_line(buffer, '-', text, len);
}

void weir__resp_put_null(struct weir__buffer *buffer, int protocol)
{
    weir__put_text(buffer, protocol < 3 ? "$-1\r\n" : "_\r\n");
}

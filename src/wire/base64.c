/* Base64 (RFC 4648, section 4): see json.h. */
#include "wire/json.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void weir__put_base64(struct weir__buffer *buffer, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        bits |= n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        bits |= n > 2 ? bytes[i + 2] : 0;
        char group[4] = {digits[bits >> 18], digits[bits >> 12 & 63], '=', '='};
        if (n > 1)
            group[2] = digits[bits >> 6 & 63];
        if (n > 2)
            group[3] = digits[bits & 63];
        weir__put(buffer, group, 4);
    }
}

/* What a digit stands for, or -1. */
static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int64_t weir__base64_decode(char *text, size_t len)
{
    /* One or two '=' fill up the last group of four; without them it is just shorter. */
    if (len % 4 == 0 && len > 0 && text[len - 1] == '=')
        len -= text[len - 2] == '=' ? 2 : 1;
    if (len % 4 == 1)
        return -1;
    uint32_t bits = 0;
    int held = 0; /* bits not written yet */
    char *to = text;
    for (size_t i = 0; i < len; i++) {
        int value = value_of(text[i]);
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held >= 8) {
            held -= 8;
            *to++ = (char)(bits >> held);
        }
    }
    if (bits & ((1u << held) - 1))
        return -1;
    return to - text;
}

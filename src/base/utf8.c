/* See utf8.h. */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

size_t weir__utf8_length(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    if (len == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t need = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len < need)
        return 0;
    uint32_t code = p[0] & (0x7fu >> need);
    for (size_t i = 1; i < need; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3fu);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < least[need] || code > 0x10ffff || surrogate ? 0 : need;
}

size_t weir__full_width(const char *text, size_t len, size_t *ret_at, char *ret_ascii)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i + 3 <= len; i++) {
        unsigned code = (p[i] & 0xfu) << 12 | (p[i + 1] & 0x3fu) << 6 | (p[i + 2] & 0x3fu);
        if (p[i] >> 4 != 0xe || weir__utf8_length(text + i, len - i) != 3)
            continue;
        char ascii = code >= 0xff01 && code <= 0xff5e ? (char)(code - 0xfee0)
                     : code == 0x3000                 ? ' '
                     : code == 0x3001                 ? ','
                                                      : 0;
        if (!ascii)
            continue;
        *ret_at = i;
        *ret_ascii = ascii;
        return 3;
    }
    return 0;
}

bool weir__utf8_valid(const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        uint64_t eight;
        if (len - at >= sizeof eight) { /* most text is ASCII */
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        size_t step = weir__utf8_length(text + at, len - at);
        if (step == 0)
            return false;
        at += step;
    }
    return true;
}

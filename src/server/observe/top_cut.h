/* Cutting texts that are too long to keep. */
#ifndef WEIR_SERVER_TOP_CUT_H
#define WEIR_SERVER_TOP_CUT_H

#include <stddef.h>

/* How many of len bytes to keep, at most `most`: no half of a character at the end, if it is UTF-8. */
static inline size_t server_cut(const void *data, size_t len, size_t most)
{
    if (len <= most)
        return len;
    const unsigned char *const bytes = data;
    for (size_t kept = most; kept > 0 && kept + 3 >= most; kept--) {
        if ((bytes[kept] & 0xc0) != 0x80)
            return kept;
    }
    return most;
}

#endif

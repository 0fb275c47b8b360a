/*
 * Finding the end of a line, and the first byte that a target may not hold: sixteen bytes at a time
 * where the machine has SSE2. Nothing outside [0, end) is read.
 */
#ifndef WEIR_HTTP1_SCAN_H
#define WEIR_HTTP1_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum weir__http1_stop {
    WEIR__HTTP1_CONTROLS, /* control characters but tabs */
    WEIR__HTTP1_UNFIT,    /* what a target cannot hold: controls, blanks, '#', DEL and beyond */
};

static inline bool weir__http1_stops(enum weir__http1_stop stop, unsigned char c)
{
    if (stop == WEIR__HTTP1_CONTROLS)
        return (c < 0x20 && c != '\t') || c == 0x7f;
    return c <= 0x20 || c >= 0x7f || c == '#';
}

#ifdef __SSE2__
/* A bit for each of the sixteen bytes that stops. */
static inline unsigned weir__http1_stop_bits(enum weir__http1_stop stop, const char *data)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)data);
    __m128i most = _mm_set1_epi8(stop == WEIR__HTTP1_CONTROLS ? 0x1f : 0x20);
    __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, most), bytes);
    __m128i delete = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f));
    if (stop == WEIR__HTTP1_CONTROLS) {
        __m128i tab = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\t'));
        return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, low), delete));
    }
    /* Bytes from 0x80 on have the bit that movemask takes. */
    __m128i hash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('#'));
    __m128i high = _mm_or_si128(_mm_or_si128(delete, hash), bytes);
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(low, high));
}
#endif

/* The first byte of data[from … end) that stops, or end. */
static inline size_t weir__http1_scan(enum weir__http1_stop stop, const char *data, size_t from,
                                      size_t end)
{
#ifdef __SSE2__
    for (; end - from >= 16; from += 16) {
        unsigned bits = weir__http1_stop_bits(stop, data + from);
        if (bits)
            return from + (size_t)__builtin_ctz(bits);
    }
    if (end >= 16 && from < end) { /* the last sixteen, of which some were looked at */
        unsigned bits = weir__http1_stop_bits(stop, data + end - 16) >> (16 - (end - from));
        return bits ? from + (size_t)__builtin_ctz(bits) : end;
    }
#endif
    while (from < end && !weir__http1_stops(stop, (unsigned char)data[from]))
        from++;
    return from;
}

#endif

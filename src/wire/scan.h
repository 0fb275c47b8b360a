/*
 * Finding the first byte that needs a look: sixteen bytes at a time where the machine has SSE2.
 * Nothing outside data[0 … end) is read. `stop` is to be a constant where these are called.
 */
#ifndef WEIR_SCAN_H
#define WEIR_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum weir__stop {
    WEIR__STOP_CONTROL, /* control characters but tabs */
    WEIR__STOP_JSON,    /* in a string of JSON: controls, quotes, backslashes, DEL and beyond */
    WEIR__STOP_TARGET,  /* in a target of HTTP: controls, blanks, '#', DEL and beyond */
};

static inline bool weir__stops(enum weir__stop stop, unsigned char c)
{
    if (stop == WEIR__STOP_CONTROL)
        return (c < 0x20 && c != '\t') || c == 0x7f;
    if (stop == WEIR__STOP_JSON)
        return c < 0x20 || c >= 0x7f || c == '"' || c == '\\';
    return c <= 0x20 || c >= 0x7f || c == '#';
}

#ifdef __SSE2__
/* A bit for each of the sixteen bytes that stops. */
static inline unsigned weir__stop_bits(enum weir__stop stop, const char *data)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)data);
    __m128i most = _mm_set1_epi8(stop == WEIR__STOP_TARGET ? 0x20 : 0x1f);
    __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, most), bytes);
    __m128i delete = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f));
    if (stop == WEIR__STOP_CONTROL) {
        __m128i tab = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\t'));
        return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_andnot_si128(tab, low), delete));
    }
    /* Bytes from 0x80 on have the bit that movemask takes. */
    __m128i high = _mm_or_si128(delete, bytes);
    if (stop == WEIR__STOP_JSON) {
        __m128i quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
        __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
        high = _mm_or_si128(high, _mm_or_si128(quote, slash));
    } else {
        high = _mm_or_si128(high, _mm_cmpeq_epi8(bytes, _mm_set1_epi8('#')));
    }
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(low, high));
}
#endif

/* The first byte of data[from … end) that stops, or end. */
static inline size_t weir__scan(enum weir__stop stop, const char *data, size_t from, size_t end)
{
#ifdef __SSE2__
    for (; end - from >= 16; from += 16) {
        unsigned bits = weir__stop_bits(stop, data + from);
        if (bits)
            return from + (size_t)__builtin_ctz(bits);
    }
    if (end >= 16 && from < end) { /* the last sixteen, of which some were looked at */
        unsigned bits = weir__stop_bits(stop, data + end - 16) >> (16 - (end - from));
        return bits ? from + (size_t)__builtin_ctz(bits) : end;
    }
#endif
    while (from < end && !weir__stops(stop, (unsigned char)data[from]))
        from++;
    return from;
}

#endif

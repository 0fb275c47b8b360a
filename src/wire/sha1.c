/* SHA-1 as FIPS 180-4 gives it. */
#include "wire/sha1.h"

#include <string.h>

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static void take_block(uint32_t state[5], const uint8_t *block)
{
    uint32_t w[80];
    for (int t = 0; t < 16; t++, block += 4)
        w[t] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
    for (int t = 16; t < 80; t++)
        w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 80; t++) {
        uint32_t f, k;
        if (t < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (t < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (t < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + k + w[t];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

void weir__sha1(const void *data, size_t len, uint8_t ret[20])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const uint8_t *p = data;
    size_t left = len;
    for (; left >= 64; left -= 64, p += 64)
        take_block(state, p);
    /* What is left, a 1 bit, zeros, and the length in bits: one block or two. */
    uint8_t last[128] = {0};
    size_t size = left < 56 ? 64 : 128;
    if (left > 0)
        memcpy(last, p, left);
    last[left] = 0x80;
    for (size_t i = 0; i < 8; i++)
        last[size - 1 - i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
    for (size_t at = 0; at < size; at += 64)
        take_block(state, last + at);
    for (size_t i = 0; i < 20; i++)
        ret[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void weir__sha1_hex(const void *data, size_t len, char ret[WEIR__SHA1_HEX_SIZE])
{
    uint8_t digest[20];
    weir__sha1(data, len, digest);
    for (size_t i = 0; i < 40; i++)
        ret[i] = "0123456789abcdef"[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
    ret[40] = 0;
}

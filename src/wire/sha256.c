/* SHA-256 as FIPS 180-4 gives it. */
#include "wire/sha256.h"

#include <string.h>

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

static void fill_schedule(uint32_t w[64], const uint8_t *block)
{
    for (int t = 0; t < 16; t++, block += 4)
        w[t] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
    for (int t = 16; t < 64; t++) {
        uint32_t early = w[t - 15], late = w[t - 2];
        w[t] = w[t - 16] + w[t - 7] + (rotate(early, 7) ^ rotate(early, 18) ^ early >> 3) +
               (rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
    }
}

static void take_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];
    fill_schedule(w, block);
    memcpy(s, state, sizeof s);
    for (int t = 0; t < 64; t++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + choice +
                       constants[t] + w[t];
        uint32_t two = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void weir__sha256(const void *data, size_t len, uint8_t ret[32])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
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
    for (size_t i = 0; i < 32; i++)
        ret[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void weir__sha256_hex(const void *data, size_t len, char ret[WEIR__SHA256_HEX_SIZE])
{
    uint8_t digest[32];
    weir__sha256(data, len, digest);
    for (size_t i = 0; i < 64; i++)
        ret[i] = "0123456789abcdef"[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
    ret[64] = 0;
}

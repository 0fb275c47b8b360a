/* SHA-1 and SHA-256 as FIPS 180-4 gives them: two ways to take a block, one way to fill blocks. */
#include "wire/sha.h"

#include <string.h>

#define SHA_BLOCK 64 /* bytes */

static uint32_t rotate_left(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static uint32_t rotate_right(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

/* The sixteen words of a block. */
static void sha_load(uint32_t *w, const uint8_t *block)
{
    for (int t = 0; t < 16; t++, block += 4)
        w[t] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
}

/* ---- SHA-1 ---- */

static void sha1_take_block(uint32_t state[5], const uint8_t *block)
{
    uint32_t w[80];
    sha_load(w, block);
    for (int t = 16; t < 80; t++)
        w[t] = rotate_left(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
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
        uint32_t next = rotate_left(a, 5) + f + e + k + w[t];
        e = d;
        d = c;
        c = rotate_left(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

/* ---- SHA-256 ---- */

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static void sha256_schedule(uint32_t w[64], const uint8_t *block)
{
    sha_load(w, block);
    for (int t = 16; t < 64; t++) {
        uint32_t early = w[t - 15], late = w[t - 2];
        w[t] = w[t - 16] + w[t - 7] +
               (rotate_right(early, 7) ^ rotate_right(early, 18) ^ early >> 3) +
               (rotate_right(late, 17) ^ rotate_right(late, 19) ^ late >> 10);
    }
}

static void sha256_take_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];
    sha256_schedule(w, block);
    memcpy(s, state, sizeof s);
    for (int t = 0; t < 64; t++) {
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] +
                       (rotate_right(s[4], 6) ^ rotate_right(s[4], 11) ^ rotate_right(s[4], 25)) +
                       choice + sha256_constants[t] + w[t];
        uint32_t two =
            (rotate_right(s[0], 2) ^ rotate_right(s[0], 13) ^ rotate_right(s[0], 22)) + majority;
        memmove(s + 1, s, 7 * sizeof s[0]);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

/* ---- both ---- */

typedef void sha_take_block(uint32_t *state, const uint8_t *block);

/* All blocks of data; the last one or two hold what is left, a 1 bit, zeros and the length in
 * bits. */
static void sha_digest(sha_take_block *take, uint32_t *state, const void *data, size_t len,
                       uint8_t *ret, size_t ret_len)
{
    const uint8_t *p = data;
    size_t left = len;
    for (; left >= SHA_BLOCK; left -= SHA_BLOCK, p += SHA_BLOCK)
        take(state, p);
    uint8_t last[2 * SHA_BLOCK] = {0};
    size_t size = left < SHA_BLOCK - 8 ? SHA_BLOCK : 2 * SHA_BLOCK;
    if (left > 0)
        memcpy(last, p, left);
    last[left] = 0x80;
    for (size_t i = 0; i < 8; i++)
        last[size - 1 - i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
    for (size_t at = 0; at < size; at += SHA_BLOCK)
        take(state, last + at);
    for (size_t i = 0; i < ret_len; i++)
        ret[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void weir__sha1(const void *data, size_t len, uint8_t ret[20])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    sha_digest(sha1_take_block, state, data, len, ret, 20);
}

static void sha_put_hex(const uint8_t *digest, size_t len, char *ret)
{
    for (size_t i = 0; i < 2 * len; i++)
        ret[i] = "0123456789abcdef"[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
    ret[2 * len] = 0;
}

void weir__sha1_hex(const void *data, size_t len, char ret[WEIR__SHA1_HEX_SIZE])
{
    uint8_t digest[20];
    weir__sha1(data, len, digest);
    sha_put_hex(digest, sizeof digest, ret);
}

void weir__sha256_hex(const void *data, size_t len, char ret[WEIR__SHA256_HEX_SIZE])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t digest[32];
    sha_digest(sha256_take_block, state, data, len, digest, sizeof digest);
    sha_put_hex(digest, sizeof digest, ret);
}

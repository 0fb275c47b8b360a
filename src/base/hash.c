/* SipHash-1-3 (Aumasson, Bernstein), from the paper's description. */
#include "base/hash.h"

#include <string.h>

struct hash_sip {
    uint64_t a, b, c, d;
};

static inline uint64_t hash_rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void hash_sip_round(struct hash_sip *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = hash_rotate(s->b, 13) ^ s->a;
    s->d = hash_rotate(s->d, 16) ^ s->c;
    s->a = hash_rotate(s->a, 32);
    s->c += s->b;
    s->a += s->d;
    s->b = hash_rotate(s->b, 17) ^ s->c;
    s->d = hash_rotate(s->d, 21) ^ s->a;
    s->c = hash_rotate(s->c, 32);
}

static inline uint64_t hash_load_le(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* 0 to 7 bytes, low byte first: for keys shorter than a word, which no overlapping load can
 * reach. */
static inline uint64_t hash_load_tail(const uint8_t *p, size_t len)
{
    uint64_t word = 0;
    for (size_t i = 0; i < len; i++)
        word |= (uint64_t)p[i] << (8 * i);
    return word;
}

static inline void hash_absorb(struct hash_sip *s, uint64_t word)
{
    s->d ^= word;
    hash_sip_round(s);
    s->a ^= word;
}

void weir__hash(const uint64_t secret[2], const void *data, size_t len, uint64_t ret[2])
{
    const uint8_t *p = data;
    struct hash_sip s = {
        secret[0] ^ UINT64_C(0x736f6d6570736575),
        secret[1] ^ UINT64_C(0x646f72616e646f6d),
        secret[0] ^ UINT64_C(0x6c7967656e657261),
        secret[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t words = len / 8;
    for (size_t i = 0; i < words; i++)
        hash_absorb(&s, hash_load_le(p + 8 * i));
    uint64_t tail = len & 7;
    uint64_t last = (uint64_t)len << 56;
    if (tail && len >= 8)
        last |= hash_load_le(p + len - 8) >> (8 * (8 - tail));
    else
        last |= hash_load_tail(p, tail);
    hash_absorb(&s, last);
    s.c ^= 0xff;
    hash_sip_round(&s);
    hash_sip_round(&s);
    hash_sip_round(&s);
    ret[0] = s.a ^ s.b ^ s.c ^ s.d;
    ret[1] = s.a ^ s.c;
}

/* Four keys at once: the rounds of SipHash-1-3 (hash.c) on four lanes of a vector, where the
 * processor has AVX2. */
#include "base/hash.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define HASH_AVX2 __attribute__((target("avx2")))

struct hash_lanes {
    __m256i a, b, c, d;
};

HASH_AVX2 static inline __m256i hash_rotate(__m256i x, int bits)
{
    return _mm256_or_si256(_mm256_slli_epi64(x, bits), _mm256_srli_epi64(x, 64 - bits));
}

HASH_AVX2 static inline __m256i hash_rotate_32(__m256i x)
{
    return _mm256_shuffle_epi32(x, 0xb1);
}

HASH_AVX2 static inline __m256i hash_rotate_16(__m256i x)
{
    const __m256i order = _mm256_set_epi64x(0x0d0c0b0a09080f0e, 0x0504030201000706,
                                            0x0d0c0b0a09080f0e, 0x0504030201000706);
    return _mm256_shuffle_epi8(x, order);
}

HASH_AVX2 static inline void hash_round(struct hash_lanes *s)
{
    s->a = _mm256_add_epi64(s->a, s->b);
    s->c = _mm256_add_epi64(s->c, s->d);
    s->b = _mm256_xor_si256(hash_rotate(s->b, 13), s->a);
    s->d = _mm256_xor_si256(hash_rotate_16(s->d), s->c);
    s->a = hash_rotate_32(s->a);
    s->c = _mm256_add_epi64(s->c, s->b);
    s->a = _mm256_add_epi64(s->a, s->d);
    s->b = _mm256_xor_si256(hash_rotate(s->b, 17), s->c);
    s->d = _mm256_xor_si256(hash_rotate(s->d, 21), s->a);
    s->c = hash_rotate_32(s->c);
}

HASH_AVX2 static inline void hash_absorb(struct hash_lanes *s, __m256i words)
{
    s->d = _mm256_xor_si256(s->d, words);
    hash_round(s);
    s->a = _mm256_xor_si256(s->a, words);
}

/* Eight bytes of each key, from so far on. */
HASH_AVX2 static inline __m256i hash_words(const struct weir__hash_key keys[4],
                                           const size_t from[4])
{
    uint64_t words[4];
    for (int i = 0; i < 4; i++)
        memcpy(&words[i], (const uint8_t *)keys[i].data + from[i], 8);
    return _mm256_set_epi64x((int64_t)words[3], (int64_t)words[2], (int64_t)words[1],
                             (int64_t)words[0]);
}

/* Keys of at least eight bytes, and of equally many words. */
HASH_AVX2 static void hash_four(const uint64_t secret[2], const struct weir__hash_key keys[4],
                                uint64_t ret[4])
{
    const __m256i first = _mm256_set1_epi64x((int64_t)secret[0]);
    const __m256i second = _mm256_set1_epi64x((int64_t)secret[1]);
    struct hash_lanes s = {
        _mm256_xor_si256(first, _mm256_set1_epi64x(0x736f6d6570736575)),
        _mm256_xor_si256(second, _mm256_set1_epi64x(0x646f72616e646f6d)),
        _mm256_xor_si256(first, _mm256_set1_epi64x(0x6c7967656e657261)),
        _mm256_xor_si256(second, _mm256_set1_epi64x(0x7465646279746573)),
    };
    for (size_t at = 0, end = keys[0].len & ~(size_t)7; at < end; at += 8)
        hash_absorb(&s, hash_words(keys, (const size_t[4]){at, at, at, at}));
    __m256i lens = _mm256_set_epi64x((int64_t)keys[3].len, (int64_t)keys[2].len,
                                     (int64_t)keys[1].len, (int64_t)keys[0].len);
    __m256i tails = _mm256_and_si256(lens, _mm256_set1_epi64x(7));
    __m256i ends = hash_words(keys, (const size_t[4]){keys[0].len - 8, keys[1].len - 8,
                                                      keys[2].len - 8, keys[3].len - 8});
    __m256i beside = _mm256_sub_epi64(_mm256_set1_epi64x(64), _mm256_slli_epi64(tails, 3));
    __m256i last = _mm256_srlv_epi64(ends, beside); /* by 64: nothing is left */
    hash_absorb(&s, _mm256_or_si256(last, _mm256_slli_epi64(lens, 56)));
    s.c = _mm256_xor_si256(s.c, _mm256_set1_epi64x(0xff));
    hash_round(&s);
    hash_round(&s);
    hash_round(&s);
    __m256i all = _mm256_xor_si256(_mm256_xor_si256(s.a, s.b), _mm256_xor_si256(s.c, s.d));
    _mm256_storeu_si256((__m256i *)ret, all);
}

static inline bool hash_four_can(const struct weir__hash_key keys[4])
{
    size_t words = keys[0].len / 8;
    return __builtin_cpu_supports("avx2") && words > 0 && keys[1].len / 8 == words &&
           keys[2].len / 8 == words && keys[3].len / 8 == words;
}
#endif

void weir__hash_four(const uint64_t secret[2], const struct weir__hash_key keys[4], uint64_t ret[4])
{
#if defined(__x86_64__)
    if (__builtin_expect(hash_four_can(keys), 1)) {
        hash_four(secret, keys, ret);
        return;
    }
#endif
    for (int i = 0; i < 4; i++) {
        uint64_t hash[2];
        weir__hash(secret, keys[i].data, keys[i].len, hash);
        ret[i] = hash[0];
    }
}

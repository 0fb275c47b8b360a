/*
 * The keyed hash against values of an independent SipHash-1-3, written in Python from the paper
 * (its row 0 is also the first vector of Rust's). The second word is v0 ^ v2 of the same final
 * state.
 */
#include "base/hash.h"
#include "test.h"

#include <stdlib.h>

/* Key 00 01 … 0f; row n: the bytes 00 01 … n-1. */
static const uint64_t expected[][2] = {
    {UINT64_C(0xabac0158050fc4dc), UINT64_C(0x42a39431a2079a46)},
    {UINT64_C(0xc9f49bf37d57ca93), UINT64_C(0xc3790d93b3f58c46)},
    {UINT64_C(0x82cb9b024dc7d44d), UINT64_C(0x280209f86e964235)},
    {UINT64_C(0x8bf80ab8e7ddf7fb), UINT64_C(0x139b50d64be15f57)},
    {UINT64_C(0xcf75576088d38328), UINT64_C(0x257239edb882ebda)},
    {UINT64_C(0xdef9d52f49533b67), UINT64_C(0xa9f9101a445bfd84)},
    {UINT64_C(0xc50d2b50c59f22a7), UINT64_C(0xd0d565cb71d263f1)},
    {UINT64_C(0xd3927d989bb11140), UINT64_C(0xc6897f384a130bdf)},
    {UINT64_C(0x369095118d299a8e), UINT64_C(0x46b8110375a04847)},
    {UINT64_C(0x25a48eb36c063de4), UINT64_C(0xc94efe36da2cb449)},
    {UINT64_C(0x79de85ee92ff097f), UINT64_C(0xe52aecd2f349bf4e)},
    {UINT64_C(0x70c118c1f94dc352), UINT64_C(0x050ef983641d53f0)},
    {UINT64_C(0x78a384b157b4d9a2), UINT64_C(0x9cd39dff1ac5bdc7)},
    {UINT64_C(0x306f760c1229ffa7), UINT64_C(0x497743f9720bb1bf)},
    {UINT64_C(0x605aa111c0f95d34), UINT64_C(0x890878869341867e)},
    {UINT64_C(0xd320d86d2a519956), UINT64_C(0x4c95f27398040aa5)},
    {UINT64_C(0xcc4fdd1a7d908b66), UINT64_C(0x2fba6bd3f9e8e515)},
    {UINT64_C(0x9cf2689063dbd80c), UINT64_C(0xb1476f4d36bc1bd1)},
    {UINT64_C(0x8ffc389cb473e63e), UINT64_C(0x5a02274804592dea)},
    {UINT64_C(0xf21f9de58d297d1c), UINT64_C(0xe23ceeb97858eb6a)},
    {UINT64_C(0xc0dc2f46a6cce040), UINT64_C(0x94ea49677a3a59b3)},
    {UINT64_C(0xb992abfe2b45f844), UINT64_C(0x5aa97e30cd57a4c0)},
    {UINT64_C(0x7ffe7b9ba320872e), UINT64_C(0x626abc05b85a1194)},
    {UINT64_C(0x525a0e7fdae6c123), UINT64_C(0x7279686d36ec1a54)},
    {UINT64_C(0xf464aeb267349c8c), UINT64_C(0x5a5f292eaaf96b27)},
    {UINT64_C(0x45cd5928705b0979), UINT64_C(0x9412e1f7914510fa)},
    {UINT64_C(0x3a3e35e3ca9913a5), UINT64_C(0x80d99b949bb63cfa)},
    {UINT64_C(0xa91dc74e4ade3b35), UINT64_C(0xe29b31b84a6d9041)},
    {UINT64_C(0xfb0bed02ef6cd00d), UINT64_C(0x3ff6e8834830a784)},
    {UINT64_C(0x88d93cb44ab1e1f4), UINT64_C(0xbcdf68e07f88f98e)},
    {UINT64_C(0x540f11d643c5e663), UINT64_C(0xd467029564564160)},
    {UINT64_C(0x2370dd1f8c21d1bc), UINT64_C(0xc9d48a8ff42b5ac6)},
    {UINT64_C(0x81157b6c16a7b60d), UINT64_C(0x707720af8a1ce343)},
};

static void check(uint64_t k0, uint64_t k1, const void *data, size_t len, uint64_t first,
                  uint64_t second)
{
    uint64_t secret[2] = {k0, k1}, got[2];
    weir__hash(secret, data, len, got);
    CHECK(got[0] == first);
    CHECK(got[1] == second);
}

static void test_lengths(void)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    for (size_t n = 0; n < sizeof expected / sizeof expected[0]; n++)
        check(UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908), bytes, n, expected[n][0],
              expected[n][1]);
}

static void test_others(void)
{
    char many[1000];
    memset(many, 'a', sizeof many);
    check(0, 0, "", 0, UINT64_C(0xd1fba762150c532c), UINT64_C(0xf578af5f91991f93));
    check(UINT64_MAX, UINT64_MAX, "user:42", 7, UINT64_C(0x98890a8be14411fb),
          UINT64_C(0x47ec7c2113b62d3a));
    check(UINT64_C(0x6b6a696867666564), UINT64_C(0x737271706f6e6d6c), many, sizeof many,
          UINT64_C(0x966fd251039e45b7), UINT64_C(0x7787614652847fff));
}

/* It reads its bytes and no others, wherever they begin. */
static void test_any_place(void)
{
    uint8_t bytes[80];
    uint64_t secret[2] = {1, 2}, first[2], got[2];
    for (size_t len = 0; len <= 20; len++) {
        for (size_t at = 0; at < 9; at++) {
            memset(bytes, (int)(0xa0 + at), sizeof bytes);
            for (size_t i = 0; i < len; i++)
                bytes[at + i] = (uint8_t)(i * 7);
            weir__hash(secret, bytes + at, len, got);
            if (at == 0)
                memcpy(first, got, sizeof first);
            CHECK(!memcmp(first, got, sizeof first));
        }
    }
}

/* Four at once are what each is alone: keys of one length, of lengths with equally many words, and
 * of any. Each lies in memory of its own, so that sanitizers see what is read beside it. */
static void test_four(void)
{
    uint64_t secret[2] = {3, UINT64_MAX - 5};
    for (size_t round = 0; round < 4000; round++) {
        struct weir__hash_key keys[4];
        uint8_t *bytes[4];
        uint64_t four[4], alone[2];
        for (size_t i = 0; i < 4; i++) {
            size_t base = round % 50, more = round * (i + 1) / 50;
            size_t len = round % 3 == 0   ? base
                         : round % 3 == 1 ? (base & ~(size_t)7) + more % 8
                                          : more;
            bytes[i] = malloc(len + !len);
            for (size_t at = 0; at < len; at++)
                bytes[i][at] = (uint8_t)(round * 31 + at * (i + 3));
            keys[i] = (struct weir__hash_key){bytes[i], len};
        }
        weir__hash_four(secret, keys, four);
        for (size_t i = 0; i < 4; i++) {
            weir__hash(secret, keys[i].data, keys[i].len, alone);
            CHECK(four[i] == alone[0]);
            free(bytes[i]);
        }
    }
}

int main(void)
{
    test_lengths();
    test_others();
    test_any_place();
    test_four();
    return test_report();
}

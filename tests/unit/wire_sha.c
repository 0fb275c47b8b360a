/* SHA-1 and SHA-256 against FIPS 180's vectors, every padding, and a digest that Redis itself
 * gave. */
#include "test.h"

#include "wire/sha.h"

static const char *sha1(const char *text, size_t len)
{
    static char hex[WEIR__SHA1_HEX_SIZE];
    weir__sha1_hex(text, len, hex);
    return hex;
}

static void test_sha1_vectors(void)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static const char four[] = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                               "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    CHECK_TEXT(sha1("", 0), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    CHECK_TEXT(sha1(NULL, 0), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    CHECK_TEXT(sha1("abc", 3), "a9993e364706816aba3e25717850c26c9cd0d89d");
    CHECK_TEXT(sha1(two, 56), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    CHECK_TEXT(sha1(four, 112), "a49b2446a02c645bf419f995b67091253a04a259");
    /* SCRIPT LOAD "return 1" */
    CHECK_TEXT(sha1("return 1", 8), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    static char million[1000000];
    memset(million, 'a', sizeof million);
    CHECK_TEXT(sha1(million, sizeof million), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

/* All lengths around the block edges: the digests of 0 … 129 times 'x', digested together. */
static void test_sha1_paddings(void)
{
    char text[130], all[130 * 40];
    memset(text, 'x', sizeof text);
    for (size_t len = 0; len < sizeof text; len++)
        memcpy(all + len * 40, sha1(text, len), 40);
    CHECK_TEXT(sha1(all, sizeof all), "3bbe88bdb89312954ced71b5ab31e144c9122748");
}

static const char *sha256(const char *text, size_t len)
{
    static char hex[WEIR__SHA256_HEX_SIZE];
    weir__sha256_hex(text, len, hex);
    return hex;
}

static void test_sha256_vectors(void)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    CHECK_TEXT(sha256(NULL, 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK_TEXT(sha256("abc", 3),
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK_TEXT(sha256(two, 56), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static char million[1000000];
    memset(million, 'a', sizeof million);
    CHECK_TEXT(sha256(million, sizeof million),
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* All lengths around the block edges: the digests of 0 … 129 times 'x', digested together. */
static void test_sha256_paddings(void)
{
    char text[130], all[130 * 64];
    memset(text, 'x', sizeof text);
    for (size_t len = 0; len < sizeof text; len++)
        memcpy(all + len * 64, sha256(text, len), 64);
    CHECK_TEXT(sha256(all, sizeof all),
               "199af942eba7fa5d1e16d475169eb24018b14e69339c93d26a9ea6d873b4ace6");
}

int main(void)
{
    test_sha1_vectors();
    test_sha1_paddings();
    test_sha256_vectors();
    test_sha256_paddings();
    return test_report();
}

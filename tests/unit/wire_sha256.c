/* SHA-256 against FIPS 180's vectors and every padding. */
#include "test.h"

#include "wire/sha256.h"

static const char *sha256(const char *text, size_t len)
{
    static char hex[WEIR__SHA256_HEX_SIZE];
    weir__sha256_hex(text, len, hex);
    return hex;
}

static void test_vectors(void)
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
static void test_paddings(void)
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
    test_vectors();
    test_paddings();
    return test_report();
}

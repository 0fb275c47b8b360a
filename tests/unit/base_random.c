/* The seeded generator against the published values of splitmix64; the system's randomness. */
#include "base/random.h"
#include "test.h"

static void test_splitmix(void)
{
    static const uint64_t expected[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821)};
    uint64_t state = 1234567;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        CHECK(weir__random_next(&state) == expected[i]);
}

static void test_bytes(void)
{
    uint8_t room[64] = {0}, zeros[64] = {0};
    CHECK_INT(weir__random_bytes(room, 0), 0);
    CHECK(!memcmp(room, zeros, sizeof room));
    CHECK_INT(weir__random_bytes(room, 32), 0);
    CHECK(memcmp(room, zeros, 32));
    CHECK(!memcmp(room + 32, zeros, 32)); /* not a byte more */
}

int main(void)
{
    test_splitmix();
    test_bytes();
    return test_report();
}

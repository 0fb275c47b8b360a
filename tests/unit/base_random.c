/* The seeded generator against the published values of splitmix64; the system's randomness. */
#include "base/random.h"
#include "test.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int compare_words(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int draw_distinct(uint64_t *ret)
{
    *ret = weir__random_distinct();
    return 0;
}

/* More words than the stock holds, in two processes: none is drawn twice. */
static void test_words(int (*draw)(uint64_t *))
{
    enum { EACH = 1500 };
    static uint64_t words[2 * EACH];
    int ends[2];
    CHECK_INT(draw(&words[0]), 0); /* the stock is there before the fork */
    CHECK_INT(pipe(ends), 0);
    pid_t child = fork();
    uint64_t *mine = words + (child ? 0 : EACH);
    for (size_t i = 0; i < EACH; i++)
        CHECK_INT(draw(&mine[i]), 0);
    if (child == 0)
        _exit(write(ends[1], mine, EACH * sizeof *mine) != EACH * sizeof *mine);
    int status = -1;
    CHECK(read(ends[0], words + EACH, EACH * sizeof *words) == EACH * sizeof *words);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    qsort(words, 2 * EACH, sizeof *words, compare_words);
    for (size_t i = 1; i < 2 * EACH; i++)
        CHECK(words[i] != words[i - 1]);
    CHECK(words[0] != 0);
}

int main(void)
{
    test_splitmix();
    test_bytes();
    test_words(weir__random_word);
    test_words(draw_distinct);
    return test_report();
}

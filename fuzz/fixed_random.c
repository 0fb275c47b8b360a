/* Stands in for base/random.c: the same bytes in every run, so that every crash repeats. */
#include "base/random.h"
#include "fuzz.h"

static uint64_t state;

void fuzz_random_reset(void)
{
    state = 1;
}

int weir__random_bytes(void *ret, size_t len)
{
    uint8_t *p = ret;
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)weir__random_next(&state);
    return 0;
}

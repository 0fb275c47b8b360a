/* Stands in for the system's randomness: the same bytes in every run, so that every crash
 * repeats. */
#include "base/random.h"
#include "fuzz.h"

#include <sys/random.h>

static uint64_t state;

void fuzz_random_reset(void)
{
    state = 1;
}

ssize_t getrandom(void *ret, size_t len, unsigned flags)
{
    uint8_t *p = ret;
    (void)flags;
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)weir__random_next(&state);
    return (ssize_t)len;
}

/* Randomness: the system's for secrets, a small seeded generator for everything that must
 * replay. */
#ifndef WEIR_RANDOM_H
#define WEIR_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills with the system's randomness; 0, or -1 with errno. */
int weir__random_bytes(void *ret, size_t len);
/* A word of the same, from a stock: hundreds of words per system call. Any thread, also after
 * fork. */
int weir__random_word(uint64_t *ret);
/* A word that differs from others, but is not a secret: whoever saw one can guess the next. It
 * costs no system call and no shared write, and never fails. Any thread, also after fork. */
uint64_t weir__random_distinct(void);

/* splitmix64: every seed is good, one word of state. */
static inline uint64_t weir__random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

#endif

/*
 * The keyed hash of keys: SipHash-1-3.
 *
 * Keys come from attackers, and two keys with one hash would share a quota. Without the secret
 * nobody can make such a pair. ret[0] is SipHash-1-3 itself, what keys are told apart by; ret[1] is
 * another half of the same final state, for placing them: a second squeeze, as 128-bit SipHash has
 * it, would add 4 ns to a take and nothing that the first does not give.
 */
#ifndef WEIR_HASH_H
#define WEIR_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void weir__hash(const uint64_t secret[2], const void *data, size_t len, uint64_t ret[2]);

struct weir__hash_key {
    const void *data;
    size_t len;
};

/* The first word of the hashes of four keys, which is cheaper than one after the other. */
void weir__hash_four(const uint64_t secret[2], const struct weir__hash_key keys[4],
                     uint64_t ret[4]);

#endif

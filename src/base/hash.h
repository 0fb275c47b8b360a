/*
 * The keyed hash of keys: SipHash-1-3 with 128 bits of output.
 *
 * Keys come from attackers, and two keys with one hash would share a quota. Without the secret nobody
 * can make such a pair; by chance it takes 2^64 keys. Chosen over faster unkeyed mixes for that.
 */
#ifndef WEIR_HASH_H
#define WEIR_HASH_H

#include <stddef.h>
#include <stdint.h>

void weir__hash(const uint64_t secret[2], const void *data, size_t len, uint64_t ret[2]);

#endif

/*
 * SHA-1, since Redis names scripts by it (EVALSHA): a name, not a proof, and nothing relies on it.
 * SHA-256, for texts that are too long to be a key: nobody can make two texts of one digest.
 */
#ifndef WEIR_SHA_H
#define WEIR_SHA_H

#include <stddef.h>
#include <stdint.h>

#define WEIR__SHA1_HEX_SIZE 41   /* 40 digits and a NUL */
#define WEIR__SHA256_HEX_SIZE 65 /* 64 digits and a NUL */

void weir__sha1(const void *data, size_t len, uint8_t ret[20]);
/* In lower case, as Redis writes it. */
void weir__sha1_hex(const void *data, size_t len, char ret[WEIR__SHA1_HEX_SIZE]);
void weir__sha256_hex(const void *data, size_t len, char ret[WEIR__SHA256_HEX_SIZE]);

#endif

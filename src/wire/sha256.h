/* SHA-256: what stands for a text that is too long to be a key. Nobody can make two texts of one digest. */
#ifndef WEIR_SHA256_H
#define WEIR_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define WEIR__SHA256_HEX_SIZE 65 /* 64 digits and a NUL */

void weir__sha256(const void *data, size_t len, uint8_t ret[32]);
/* In lower case. */
void weir__sha256_hex(const void *data, size_t len, char ret[WEIR__SHA256_HEX_SIZE]);

#endif

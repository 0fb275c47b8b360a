/* SHA-1, since Redis names scripts by it (EVALSHA). A name, not a proof: nothing relies on it. */
#ifndef WEIR_SHA1_H
#define WEIR_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define WEIR__SHA1_HEX_SIZE 41 /* 40 digits and a NUL */

void weir__sha1(const void *data, size_t len, uint8_t ret[20]);
/* In lower case, as Redis writes it. */
void weir__sha1_hex(const void *data, size_t len, char ret[WEIR__SHA1_HEX_SIZE]);

#endif

/* Where a key lives in a cluster. */
#ifndef WEIR_SLOT_H
#define WEIR_SLOT_H

#include <stddef.h>
#include <stdint.h>

#define WEIR__HASH_SLOTS 16384

/* The slot of a key: of what stands between its first '{' and the next '}', if that is not empty,
 * else of all of it. The key is given in two parts, prefix and name. */
uint16_t weir__slot_of(const char *prefix, size_t prefix_len, const char *name, size_t name_len);

#endif

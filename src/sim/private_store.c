/* See private_store.h. */
#include "sim/private_store.h"

#include "limit/limit.h"

#include <inttypes.h>

/* A slot of a full table takes 26 bytes, so 64 keep it far from full. A state of cells takes a
 * block of at least 64 bytes that doubles as it grows; 192 per request leave room for
 * fragmentation. */
#define SLOT_ROOM 64
#define CELLS_ROOM 192
#define SPARE_ROOM (INT64_C(32) << 20)

void weir__private_store_url(const weir_limit *limit, int64_t requests, struct weir__buffer *ret)
{
    int64_t large = 0;
    for (size_t i = 0; i < limit->count; i++)
        large += weir__is_large(&limit->rules[i]);
    int64_t table = SPARE_ROOM + requests * SLOT_ROOM * (int64_t)limit->count;
    int64_t cells = large ? SPARE_ROOM + requests * CELLS_ROOM * large : 0;
    int64_t size = table + cells;
    weir__put_format(ret, "memory:%" PRId64 "?large=%" PRId64 "%%", size, cells * 100 / size);
}

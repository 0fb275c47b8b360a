/* See replay.h. */
#include "sim/replay.h"

#include "limit/limit.h"

#include <inttypes.h>

/* A slot of a full table takes 26 bytes, so 64 keep it far from full. A state of cells takes a
 * block of at least 64 bytes that doubles as it grows; 192 per request leave room for
 * fragmentation. */
#define SLOT_ROOM 64
#define CELLS_ROOM 192
#define SPARE_ROOM (INT64_C(32) << 20)

void weir__replay_store_url(const weir_limit *limit, int64_t requests, struct weir__buffer *ret)
{
    int64_t large = 0;
    for (size_t i = 0; i < limit->count; i++)
        large += weir__is_large(&limit->rules[i]);
    int64_t table = SPARE_ROOM + requests * SLOT_ROOM * (int64_t)limit->count;
    int64_t cells = large ? SPARE_ROOM + requests * CELLS_ROOM * large : 0;
    int64_t size = table + cells;
    weir__put_format(ret, "memory:%" PRId64 "?large=%" PRId64 "%%", size, cells * 100 / size);
}

void weir__put_csv(struct weir__buffer *buffer, const char *text, size_t len)
{
    bool plain = true;
    for (size_t i = 0; i < len && plain; i++)
        plain = text[i] != ',' && text[i] != '"' && text[i] != '\n' && text[i] != '\r';
    if (plain) {
        weir__put(buffer, text, len);
        return;
    }
    weir__put(buffer, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            weir__put(buffer, "\"", 1);
        weir__put(buffer, text + i, 1);
    }
    weir__put(buffer, "\"", 1);
}

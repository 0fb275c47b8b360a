/* See replay.h. */
#include "sim/replay.h"

#include "limit/limit.h"
#include "sim/virtual_clock.h"

#include <inttypes.h>

#define PROGRESS_EVERY 16384 /* requests */

int weir__replay_run(const struct weir__replay *replay, const struct weir__trace *trace,
                     weir_error *err)
{
    struct weir__virtual_clock clock = {0};
    struct weir__trace_reader reader;
    struct weir__arrival arrival;
    weir_request request = {.limit = replay->limit, .wait_us = replay->wait_us};
    int code;
    weir__virtual_clock_install(&clock, replay->store);
    weir__trace_begin(&reader, trace);
    for (uint64_t i = 1; (code = weir__trace_next(&reader, &arrival, err)) > 0; i++) {
        weir_decision decision;
        clock.now_us = arrival.time_us;
        request.key = weir_key_bytes(arrival.key, arrival.key_len);
        request.cost = arrival.cost;
        code = weir_take_all(replay->store, &request, 1, &decision);
        if (code == 0 && decision.degraded) /* a stand-in's decisions are not what was asked for */
            code = WEIR_EUNREACHABLE;
        if (code)
            return weir__fail(err, code, 0, "line %lld: %s", (long long)reader.line - 1,
                              weir_strerror(code));
        code = replay->decided(replay->context, &arrival, &decision);
        if (code)
            return code;
        if (replay->progress && i % PROGRESS_EVERY == 0)
            replay->progress(replay->context, reader.at, trace->size);
    }
    return code;
}

/* A table slot takes 26 bytes full, so 64 leave it loose; a state of cells takes a block of at
 * least 64 bytes that doubles as it grows, and 192 a request leave room for torn free space. */
#define SLOT_ROOM 64
#define CELLS_ROOM 192
#define SPARE_ROOM (INT64_C(32) << 20)

void weir__replay_store_url(const weir_limit *limit, int64_t requests, struct weir__buffer *ret)
{
    int64_t large = 0;
    for (size_t i = 0; i < limit->count; i++)
        large += weir__algorithm_of(&limit->rules[i])->large;
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

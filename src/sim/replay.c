/* Replaying a trace, and adding up what was decided: see replay.h. */
#include "sim/replay.h"

#include "base/hash.h"
#include "base/random.h"
#include "limit/limit.h"
#include "sim/virtual_clock.h"
#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

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
        struct weir__class *class =
            replay->classes ? weir__classes_find(replay->classes, arrival.class_name) : NULL;
        if (class)
            request.limit = class->limit;
        code = weir__take_all(replay->store, &request, 1, &decision);
        if (code == 0 && decision.degraded) /* the local fallback decided, not the store */
            code = WEIR_EUNREACHABLE;
        if (code)
            return weir__fail(err, code, 0, "line %lld: %s", (long long)reader.line - 1,
                              weir_strerror(code));
        if (class) {
            class->requests++;
            class->allowed += decision.allowed;
        }
        code = replay->decided(replay->context, &arrival, &decision);
        if (code)
            return code;
        if (replay->progress && i % PROGRESS_EVERY == 0)
            replay->progress(replay->context, reader.at, trace->size);
    }
    return code;
}

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

/* ---- the tally ---- */

#define FIRST_CAPACITY 1024

int weir__tally_init(struct weir__tally *tally, const struct weir__trace_facts *facts, size_t bins,
                     weir_error *err)
{
    *tally = (struct weir__tally){.capacity = FIRST_CAPACITY};
    if (weir__random_bytes(tally->secret, sizeof tally->secret))
        return weir__fail(err, WEIR_ESYSTEM, 0, "cannot get random bytes from the system");
    tally->table = calloc(tally->capacity, sizeof *tally->table);
    if (!tally->table)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the keys of the trace");
    int64_t start_us = facts->requests > 0 ? facts->first_us : 0;
    weir__timeline_init(&tally->timeline, start_us, facts->last_us - start_us + 1, bins);
    return 0;
}

void weir__tally_free(struct weir__tally *tally)
{
    free(tally->table);
    tally->table = NULL;
}

/* The place of a hash, or the empty one where it belongs. The table is never full. */
static struct weir__tally_key *tally_place(struct weir__tally_key *table, size_t capacity,
                                           const uint64_t hash[2])
{
    size_t i = hash[0] & (capacity - 1);
    while (table[i].requests > 0 && (table[i].hash[0] != hash[0] || table[i].hash[1] != hash[1]))
        i = (i + 1) & (capacity - 1);
    return &table[i];
}

static int tally_grow(struct weir__tally *tally)
{
    size_t capacity = tally->capacity * 2;
    struct weir__tally_key *table = calloc(capacity, sizeof *table);
    if (!table)
        return WEIR_ENOMEM;
    for (size_t i = 0; i < tally->capacity; i++) {
        if (tally->table[i].requests > 0)
            *tally_place(table, capacity, tally->table[i].hash) = tally->table[i];
    }
    free(tally->table);
    tally->table = table;
    tally->capacity = capacity;
    return 0;
}

static void tally_add_saturating(int64_t *sum, int64_t amount)
{
    if (__builtin_add_overflow(*sum, amount, sum))
        *sum = INT64_MAX;
}

int weir__tally_add(struct weir__tally *tally, const struct weir__arrival *arrival,
                    const weir_decision *decision)
{
    if (tally->keys * 2 >= tally->capacity && tally_grow(tally))
        return WEIR_ENOMEM;
    assert(tally->keys < tally->capacity && (tally->capacity & (tally->capacity - 1)) == 0);
    uint64_t hash[2];
    weir__hash(tally->secret, arrival->key, arrival->key_len, hash);
    struct weir__tally_key *key = tally_place(tally->table, tally->capacity, hash);
    if (key->requests == 0) {
        *key = (struct weir__tally_key){{hash[0], hash[1]}, arrival->offset, 0, 0};
        tally->keys++;
    }
    key->requests++;
    tally->requests++;
    struct weir__bin *bin = weir__timeline_bin(&tally->timeline, arrival->time_us);
    assert(bin); /* weir__trace_check found the first and the last time */
    if (decision->allowed) {
        tally->allowed++;
        tally_add_saturating(&tally->cost_allowed, arrival->cost);
        bin->through++;
        tally->longest_delay_us = weir__max(tally->longest_delay_us, decision->delay_us);
    } else {
        tally->denied++;
        tally_add_saturating(&tally->cost_denied, arrival->cost);
        bin->denied++;
        key->denied++;
    }
    return 0;
}

/* More denials first; of equals the one that came first. */
static bool tally_comes_before(const struct weir__tally_key *a, const struct weir__tally_key *b)
{
    return a->denied != b->denied ? a->denied > b->denied : a->offset < b->offset;
}

size_t weir__tally_most_denied(const struct weir__tally *tally, struct weir__tally_key *ret,
                               size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < tally->capacity; i++) {
        const struct weir__tally_key *key = &tally->table[i];
        if (key->denied == 0 || (found == n && !tally_comes_before(key, &ret[n - 1])))
            continue;
        size_t place = found < n ? found++ : n - 1;
        for (; place > 0 && tally_comes_before(key, &ret[place - 1]); place--)
            ret[place] = ret[place - 1];
        ret[place] = *key;
    }
    return found;
}

/*
 * What the engine knows about keys: an index by hash, entries of one size in chunks that never
 * move, and the texts of keys. When the bound on memory is reached, the place of one key is given
 * to another: see engine.h for who goes first.
 */
#include "desk/engine.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_INDEX 4096
#define CHUNK_BYTES (256 << 10)
#define TEXT_UNIT 8
#define TEXT_LEAST 24 /* bytes that each key has room for */
#define TEXT_CHUNK (256 << 10)
#define LOOKED_AT 32 /* keys that are compared before one is forgotten */
#define REGISTER_BITS 12

/* ---- places ---- */

static struct desk_key *keys_entry(const struct desk_engine *engine, size_t i)
{
    assert(i < engine->entries);
    char *chunk = engine->chunks[i / engine->chunk_entries];
    return (struct desk_key *)(chunk + i % engine->chunk_entries * engine->stride);
}

static char *keys_text(const struct desk_engine *engine, const struct desk_key *key)
{
    size_t at = (size_t)key->text * TEXT_UNIT;
    return engine->texts[at / TEXT_CHUNK] + at % TEXT_CHUNK;
}

static bool keys_is(const struct desk_key *key, const uint64_t hash[2])
{
    return key->hash[0] == hash[0] && key->hash[1] == hash[1];
}

static uint64_t keys_slot_of(const uint64_t hash[2], size_t entry)
{
    return (hash[0] & UINT64_C(0xffffffff00000000)) | (uint64_t)(entry + 1);
}

static size_t keys_home(const struct desk_engine *engine, const uint64_t hash[2])
{
    return hash[1] & (engine->index_size - 1);
}

/* The slot of a hash, or the free one where it belongs. The index is never full. */
static size_t keys_slot(const struct desk_engine *engine, const uint64_t hash[2])
{
    size_t i = keys_home(engine, hash);
    for (;; i = (i + 1) & (engine->index_size - 1)) {
        uint64_t slot = engine->index[i];
        if (slot == 0)
            return i;
        if (((slot ^ hash[0]) >> 32) == 0 && keys_is(keys_entry(engine, (uint32_t)slot - 1), hash))
            return i;
    }
}

void desk_engine_expect(const struct desk_engine *engine, const uint64_t hash[2])
{
    __builtin_prefetch(&engine->index[keys_home(engine, hash)]);
}

void desk_engine_expect_key(const struct desk_engine *engine, const uint64_t hash[2])
{
    size_t i = keys_home(engine, hash);
    uint64_t slot = engine->index[i];
    if (slot == 0)
        return;
    const char *entry = (const char *)keys_entry(engine, (uint32_t)slot - 1);
    for (size_t at = 0; at < engine->stride && at < 256; at += 64)
        __builtin_prefetch(entry + at, 1);
}

/* ---- memory ---- */

/* Whether so many more bytes stay within the bound. */
static bool keys_fits(const struct desk_engine *engine, size_t bytes)
{
    return engine->used + (int64_t)bytes <= engine->options.memory;
}

int desk_keys_make(struct desk_engine *engine)
{
    engine->chunk_entries = 1024;
    while (engine->chunk_entries > 8 && engine->chunk_entries * engine->stride > CHUNK_BYTES)
        engine->chunk_entries /= 2;
    engine->index_size = FIRST_INDEX;
    engine->index = calloc(engine->index_size, sizeof *engine->index);
    engine->registers = calloc(1, 1 << REGISTER_BITS);
    engine->all = calloc(1, engine->stride);
    engine->used = (int64_t)(engine->index_size * sizeof *engine->index);
    return engine->index && engine->registers && engine->all ? 0 : WEIR_ENOMEM;
}

void desk_keys_free(struct desk_engine *engine)
{
    for (size_t i = 0; engine->chunks && i < engine->entries; i++)
        desk_judge_drop(engine, keys_entry(engine, i));
    for (size_t i = 0; engine->chunks && i < engine->chunk_count; i++)
        free(engine->chunks[i]);
    for (size_t i = 0; engine->texts && i < engine->text_chunks; i++)
        free(engine->texts[i]);
    if (engine->all)
        desk_judge_drop(engine, engine->all);
    free(engine->all);
    free(engine->chunks);
    free(engine->texts);
    free(engine->index);
    free(engine->registers);
}

/* Adds a chunk to a list of them. */
static int keys_add_chunk(char ***list, size_t *count, size_t *room, size_t bytes)
{
    if (*count == *room) {
        size_t more = *room ? 2 * *room : 16;
        char **grown = realloc(*list, more * sizeof *grown);
        if (!grown)
            return WEIR_ENOMEM;
        *list = grown;
        *room = more;
    }
    char *chunk = calloc(1, bytes);
    if (!chunk)
        return WEIR_ENOMEM;
    (*list)[(*count)++] = chunk;
    return 0;
}

/* Doubles the index. False: there is no room for it within the bound. */
static bool keys_widen(struct desk_engine *engine)
{
    size_t size = 2 * engine->index_size;
    if (!keys_fits(engine, size * sizeof *engine->index))
        return false;
    uint64_t *index = calloc(size, sizeof *index);
    if (!index)
        return false;
    uint64_t *old = engine->index;
    size_t old_size = engine->index_size;
    engine->index = index;
    engine->index_size = size;
    engine->used += (int64_t)((size - old_size) * sizeof *index);
    for (size_t i = 0; i < old_size; i++) {
        if (old[i])
            index[keys_slot(engine, keys_entry(engine, (uint32_t)old[i] - 1)->hash)] = old[i];
    }
    free(old);
    return true;
}

/* ---- forgetting ---- */

/* Takes a slot out of the index, closing the gap. */
static void keys_unlink(struct desk_engine *engine, size_t slot)
{
    size_t mask = engine->index_size - 1, gap = slot;
    for (size_t i = (slot + 1) & mask; engine->index[i]; i = (i + 1) & mask) {
        size_t home = keys_home(engine, keys_entry(engine, (uint32_t)engine->index[i] - 1)->hash);
        if (((i - home) & mask) >= ((i - gap) & mask)) {
            engine->index[gap] = engine->index[i];
            gap = i;
        }
    }
    engine->index[gap] = 0;
}

static bool keys_was_denied(const struct desk_engine *engine, struct desk_key *key)
{
    for (size_t i = 0; i < engine->count; i++) {
        if (desk_marks(engine, key)[i].denied > 0)
            return true;
    }
    return false;
}

/* Forgets one key and returns its number. Entries that make no difference go first, else the one
 * with fewest requests of those that were looked at. */
static size_t keys_forget(struct desk_engine *engine, const struct desk_key *keep)
{
    size_t best = SIZE_MAX;
    bool harmless = false;
    for (size_t n = 0; n < LOOKED_AT || best == SIZE_MAX; n++) {
        size_t i = engine->hand;
        engine->hand = i + 1 < engine->entries ? i + 1 : 0;
        struct desk_key *key = keys_entry(engine, i);
        if (key == keep || key->requests == 0)
            continue;
        if (best == SIZE_MAX || key->requests < keys_entry(engine, best)->requests)
            best = i;
        if (!keys_was_denied(engine, key) && desk_judge_is_fresh(engine, key)) {
            best = i;
            harmless = true;
            break;
        }
    }
    struct desk_key *key = keys_entry(engine, best);
    desk_tally_forget(engine, key);
    keys_unlink(engine, keys_slot(engine, key->hash));
    desk_judge_drop(engine, key);
    memset((char *)key + sizeof *key, 0, engine->stride - sizeof *key);
    key->requests = key->cost = 0;
    engine->keys--;
    engine->forgotten++;
    engine->lossy += !harmless;
    return best;
}

void *desk_keys_grow(struct desk_engine *engine, void *old, size_t old_size, size_t size,
                     const struct desk_key *keep)
{
    while (!keys_fits(engine, size) && engine->keys > 1)
        keys_forget(engine, keep);
    void *grown = realloc(old, size);
    if (grown)
        engine->used += (int64_t)size - (int64_t)old_size;
    return grown;
}

/* ---- new keys ---- */

/* A place for a text; false: there is none within the bound, and the text is cut to what fits. */
static bool keys_new_text(struct desk_engine *engine, struct desk_key *key, size_t bytes)
{
    bool first = key->text_room == 0; /* what each key has was kept free for it */
    size_t room = (bytes + TEXT_UNIT - 1) / TEXT_UNIT * TEXT_UNIT;
    room = room < TEXT_LEAST ? TEXT_LEAST : room;
    if (engine->text_chunks == 0 || TEXT_CHUNK - engine->text_used < room) {
        if (!first && !keys_fits(engine, TEXT_CHUNK))
            return false;
        if (first && !keys_fits(engine, TEXT_CHUNK))
            room = TEXT_LEAST;
        if (keys_add_chunk(&engine->texts, &engine->text_chunks, &engine->text_room, TEXT_CHUNK))
            return false;
        engine->used += TEXT_CHUNK;
        engine->text_used = 0;
    }
    size_t at = (engine->text_chunks - 1) * TEXT_CHUNK + engine->text_used;
    key->text = (uint32_t)(at / TEXT_UNIT);
    key->text_room = (uint8_t)(room / TEXT_UNIT);
    engine->text_used += room;
    return true;
}

static void keys_put_text(struct desk_engine *engine, struct desk_key *key, struct weir__span text)
{
    size_t len = text.len < DESK_TEXT_MAX ? text.len : DESK_TEXT_MAX;
    if (len > (size_t)key->text_room * TEXT_UNIT)
        keys_new_text(engine, key, len);
    if (len > (size_t)key->text_room * TEXT_UNIT)
        len = (size_t)key->text_room * TEXT_UNIT;
    if (len > 0)
        memcpy(keys_text(engine, key), text.data, len);
    key->text_len = (uint8_t)len;
    key->text_cut = len < text.len;
}

/* A free entry: a new one, or that of another key. SIZE_MAX: no memory. */
static size_t keys_take_entry(struct desk_engine *engine)
{
    size_t bytes = engine->chunk_entries * engine->stride;
    if (engine->entries < engine->chunk_count * engine->chunk_entries)
        return engine->entries++;
    if (engine->chunk_count == 0 || keys_fits(engine, bytes + engine->chunk_entries * TEXT_LEAST)) {
        if (keys_add_chunk(&engine->chunks, &engine->chunk_count, &engine->chunk_room, bytes))
            return SIZE_MAX;
        engine->used += (int64_t)bytes;
        return engine->entries++;
    }
    /* States may have grown into the room of keys: entries may be free. */
    for (size_t n = 0; engine->keys < engine->entries && n < LOOKED_AT; n++) {
        size_t i = engine->hand;
        engine->hand = i + 1 < engine->entries ? i + 1 : 0;
        if (keys_entry(engine, i)->requests == 0)
            return i;
    }
    return keys_forget(engine, NULL);
}

/* Counts distinct keys: each register has the longest run of zeros that it saw. */
static void keys_register(struct desk_engine *engine, const uint64_t hash[2])
{
    size_t i = hash[0] & ((1 << REGISTER_BITS) - 1);
    uint64_t rest = hash[0] >> REGISTER_BITS;
    uint8_t run = (uint8_t)(rest ? __builtin_ctzll(rest) + 1 : 64 - REGISTER_BITS + 1);
    if (run > engine->registers[i])
        engine->registers[i] = run;
}

struct desk_key *desk_keys_get(struct desk_engine *engine, const struct desk_arrival *arrival)
{
    size_t slot = keys_slot(engine, arrival->hash);
    if (WEIR__LIKELY(engine->index[slot] != 0))
        return keys_entry(engine, (uint32_t)engine->index[slot] - 1);
    size_t entry = SIZE_MAX;
    if (engine->keys * 2 >= engine->index_size && !keys_widen(engine) &&
        engine->keys * 8 >= engine->index_size * 7)
        entry = keys_forget(engine, NULL);
    if (entry == SIZE_MAX)
        entry = keys_take_entry(engine);
    if (entry == SIZE_MAX || entry >= UINT32_MAX - 1)
        return NULL;
    struct desk_key *key = keys_entry(engine, entry);
    assert(key->requests == 0);
    key->hash[0] = arrival->hash[0];
    key->hash[1] = arrival->hash[1];
    keys_put_text(engine, key, arrival->key);
    slot = keys_slot(engine, arrival->hash);
    assert(engine->index[slot] == 0 && engine->keys < engine->index_size);
    engine->index[slot] = keys_slot_of(arrival->hash, entry);
    engine->keys++;
    keys_register(engine, arrival->hash);
    key->spared = desk_spare_has(engine, arrival->key);
    engine->spared_keys += key->spared;
    key->suspect = !key->spared && engine->options.answers &&
                   desk_suspects_has(engine->options.answers, arrival->hash);
    engine->suspect_keys += key->suspect;
    return key;
}

/* ---- reading ---- */

const struct desk_key *desk_engine_key(const struct desk_engine *engine, size_t i)
{
    const struct desk_key *key = keys_entry(engine, i);
    return key->requests > 0 ? key : NULL;
}

const struct desk_key *desk_engine_find(const struct desk_engine *engine, const uint64_t hash[2])
{
    uint64_t slot = engine->index[keys_slot(engine, hash)];
    return slot ? keys_entry(engine, (uint32_t)slot - 1) : NULL;
}

struct weir__span desk_key_text(const struct desk_engine *engine, const struct desk_key *key)
{
    return (struct weir__span){key->text_len ? keys_text(engine, key) : "", key->text_len};
}

const struct desk_mark *desk_key_mark(const struct desk_engine *engine, const struct desk_key *key,
                                      size_t candidate)
{
    assert(candidate < engine->count);
    return (const struct desk_mark *)((const char *)key + engine->marks_at) + candidate;
}

const struct desk_peak *desk_key_peaks(const struct desk_engine *engine, const struct desk_key *key)
{
    return engine->options.peaks ? (const struct desk_peak *)(key + 1) : NULL;
}

int64_t desk_engine_distinct(const struct desk_engine *engine, bool *ret_about)
{
    const double m = 1 << REGISTER_BITS;
    double sum = 0;
    int64_t empty = 0;
    *ret_about = engine->forgotten > 0;
    if (!*ret_about)
        return (int64_t)engine->keys;
    for (size_t i = 0; i < 1 << REGISTER_BITS; i++) {
        sum += ldexp(1, -engine->registers[i]);
        empty += engine->registers[i] == 0;
    }
    double about = 0.7213 / (1 + 1.079 / m) * m * m / sum;
    if (about < 2.5 * m && empty > 0)
        about = m * log(m / (double)empty);
    return weir__max((int64_t)about, (int64_t)engine->keys);
}

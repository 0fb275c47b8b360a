/*
 * Reading zones of version 1: what their bytes mean, and nothing else. The present format is
 * layout.h's; these constants never change. Everything is checked before use, and nothing is
 * written.
 *
 *   header │ stripes │ rows: rules of 64 bytes │ table: groups of 128 bytes │ map │ blocks of 64
 *   bytes and up
 *
 * A group is a word, five tags and five states of 16 bytes. A state, from the lowest bit: row 11,
 * newest time 54, then
 *   DEBT, COUNT   amount less one 53
 *   PAIR          previous 31, current 31
 *   PERMITS       a double without its sign 63
 *   RING          first unit of its block 32, order 5
 * A block: head and len u32, sum u64, 16 bytes that do not matter here, then (4 << order) - 2
 * cells.
 */
#include "store/zone/carry.h"

#include "base/hash.h"
#include "core/ring.h"
#include "limit/limit.h"

#include <stddef.h>
#include <string.h>

#define VERSION WEIR__ZONE1_VERSION
#define HEADER_SIZE 4096
#define SLOTS 5
#define ROW_BITS 11
#define TIME_BITS 54
#define REST_AT (ROW_BITS + TIME_BITS)
#define UNIT 64
#define ORDER_MAX 16
#define BLOCK_HEAD 32
#define PAGE_BITS_MAX 8

struct layout1 {
    uint64_t size;
    uint32_t stripes, rows, pages, page_bits, units, zero;
    uint64_t stripes_at, rows_at, table_at, map_at, blocks_at;
};

struct header1 {
    uint64_t magic;
    uint32_t version, mutex_size;
    struct layout1 layout;
    uint64_t secret[2], boot[2], check;
    uint32_t dirty, large_percent;
};

struct state1 {
    uint64_t lo, hi;
};

struct group1 {
    uint64_t head;
    uint64_t tags[SLOTS];
    struct state1 states[SLOTS];
};
_Static_assert(sizeof(struct group1) == 128, "as it was");

struct block1 {
    uint32_t head, len;
    int64_t sum;
    uint64_t rest[2];
};
_Static_assert(sizeof(struct block1) == BLOCK_HEAD, "as it was");

static const struct header1 *version1_header(const struct weir__zone1 *zone)
{
    return (const struct header1 *)zone->base;
}

/* Whether every part lies behind the one before, and within the zone. */
static bool version1_layout_sound(const struct layout1 *layout, uint64_t size)
{
    uint64_t rows = (uint64_t)layout->rows * sizeof(struct weir__rule);
    uint64_t table = ((uint64_t)layout->pages << layout->page_bits % 64) * sizeof(struct group1);
    uint64_t blocks = (uint64_t)layout->units * UNIT;
    return layout->size <= size && layout->size >= WEIR__ZONE_SIZE_MIN &&
           layout->page_bits <= PAGE_BITS_MAX && layout->rows_at >= HEADER_SIZE &&
           layout->rows_at % 8 == 0 && layout->table_at % 16 == 0 &&
           layout->blocks_at % UNIT == 0 && layout->rows_at <= layout->table_at &&
           rows <= layout->table_at - layout->rows_at && layout->table_at <= layout->map_at &&
           table <= layout->map_at - layout->table_at && layout->map_at <= layout->blocks_at &&
           layout->blocks_at <= layout->size && blocks <= layout->size - layout->blocks_at;
}

int weir__zone1_attach(const uint8_t *base, uint64_t size, struct weir__zone1 *ret, weir_error *err)
{
    const struct header1 *header = (const struct header1 *)base;
    uint64_t key[2] = {WEIR__ZONE_MAGIC, VERSION}, hash[2];
    if (size < HEADER_SIZE || header->magic != WEIR__ZONE_MAGIC || header->version != VERSION)
        return weir__fail(err, WEIR_EFOREIGN, 0, "it is not a zone of version 1");
    weir__hash(key, header, offsetof(struct header1, boot), hash);
    if (header->check != hash[0])
        return weir__zone_fail_part(err, "header");
    if (header->layout.size > size)
        return weir__zone_fail_short(err, size, header->layout.size);
    if (!version1_layout_sound(&header->layout, size) || header->large_percent > 90)
        return weir__zone_fail_part(err, "layout");
    *ret = (struct weir__zone1){
        .base = base, .size = header->layout.size, .large_percent = header->large_percent};
    memcpy(ret->secret, header->secret, sizeof ret->secret);
    return 0;
}

static uint64_t version1_bits(struct state1 from, int at, int width)
{
    unsigned __int128 all = (unsigned __int128)from.hi << 64 | from.lo;
    return (uint64_t)(all >> at) & ((UINT64_C(1) << width) - 1);
}

/* The ring of a state; false: it cannot be. The sum is counted again, and the newest time is what
 * the entries say: a process may have died in between. */
static bool version1_ring(const struct weir__zone1 *zone, struct state1 from,
                          struct weir__carried *it)
{
    const struct layout1 *layout = &version1_header(zone)->layout;
    uint64_t unit = version1_bits(from, REST_AT, 32), order = version1_bits(from, REST_AT + 32, 5);
    if (order > ORDER_MAX || unit + (UINT64_C(1) << order) > layout->units)
        return false;
    const uint8_t *at = zone->base + layout->blocks_at + unit * UNIT;
    const struct block1 *block = (const struct block1 *)at;
    struct weir__ring ring = {(struct weir__cell *)(at + BLOCK_HEAD), (UINT32_C(4) << order) - 2,
                              block->head, block->len, 0};
    if (ring.head >= ring.capacity || ring.len > ring.capacity)
        return false;
    for (uint32_t i = 0; i < ring.len; i++) {
        int64_t weight = weir__cell_weight(&it->rule, weir__ring_cell(&ring, i));
        if (weight < 1 || weight > WEIR__EXACT_MAX - ring.sum)
            return false;
        ring.sum += weight;
    }
    it->state.ring = ring;
    if (ring.len == 0)
        return true;
    int64_t newest = weir__ring_last(&ring)->stamp;
    bool leases = weir__algorithm_of(&it->rule)->leases;
    it->state.at = leases ? weir__max(it->state.at, newest - WEIR_DURATION_MAX) : newest;
    return true;
}

static bool version1_unpack(const struct weir__zone1 *zone, struct state1 from,
                            struct weir__carried *it)
{
    struct weir__state *state = &it->state;
    state->present = true;
    state->at = (int64_t)version1_bits(from, ROW_BITS, TIME_BITS);
    switch (weir__algorithm_of(&it->rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        state->amount = (int64_t)version1_bits(from, REST_AT, 53) + 1;
        return true;
    case WEIR__SHAPE_PAIR:
        state->before = (int64_t)version1_bits(from, REST_AT, 31);
        state->amount = (int64_t)version1_bits(from, REST_AT + 31, 31);
        return true;
    case WEIR__SHAPE_PERMITS: {
        uint64_t stored = version1_bits(from, REST_AT, 63);
        memcpy(&state->stored, &stored, sizeof stored);
        return true;
    }
    case WEIR__SHAPE_RING:
        break;
    }
    return version1_ring(zone, from, it);
}

/* What a walk needs. */
struct walk1 {
    const struct weir__zone1 *zone;
    weir__visit *visit;
    void *context;
    weir_error *err;
    bool sound[1 << ROW_BITS]; /* rows that were found to be so */
};

/* The rule of a row; false: it is not one. Most states share a few rows, and checking one takes a
 * while. */
static bool version1_rule(struct walk1 *walk, uint32_t row, struct weir__rule *ret)
{
    const struct layout1 *layout = &version1_header(walk->zone)->layout;
    *ret = weir__mark_rule;
    if (row == WEIR__MARK_ROW)
        return true;
    if (row >= layout->rows)
        return false;
    memcpy(ret, walk->zone->base + layout->rows_at + row * sizeof *ret, sizeof *ret);
    walk->sound[row] = walk->sound[row] || weir__rule_sound(ret);
    return walk->sound[row];
}

static int version1_visit_slot(struct walk1 *walk, uint64_t g, unsigned slot)
{
    const struct weir__zone1 *zone = walk->zone;
    const struct layout1 *layout = &version1_header(zone)->layout;
    const struct group1 *group = (const struct group1 *)(zone->base + layout->table_at) + g;
    struct state1 from = group->states[slot];
    uint32_t row = (uint32_t)version1_bits(from, 0, ROW_BITS);
    struct weir__carried it = {.tag = group->tags[slot]};
    if (it.tag == 0)
        return 0;
    if (!version1_rule(walk, row, &it.rule))
        return weir__zone_fail_slot(walk->err, "a state without a limit", g, slot);
    if (!version1_unpack(zone, from, &it))
        return weir__zone_fail_slot(walk->err, "a state is invalid", g, slot);
    if (weir__is_large(&it.rule) && it.state.ring.len == 0)
        return 0; /* what a death may leave of a log that began again */
    const char *flaw = weir__carried_flaw(&it);
    return flaw ? weir__zone_fail_slot(walk->err, flaw, g, slot)
                : walk->visit(&it, walk->context, walk->err);
}

int weir__zone1_walk(const struct weir__zone1 *zone, weir__visit *visit, void *context,
                     weir_error *err)
{
    const struct layout1 *layout = &version1_header(zone)->layout;
    uint64_t groups = (uint64_t)layout->pages << layout->page_bits;
    struct walk1 walk = {.zone = zone, .visit = visit, .context = context, .err = err};
    int code = 0;
    for (uint64_t g = 0; g < groups && code == 0; g++) {
        for (unsigned slot = 0; slot < SLOTS && code == 0; slot++)
            code = version1_visit_slot(&walk, g, slot);
    }
    return code;
}

/*
 * States in 16 bytes. Bits from the lowest:
 *
 *   all shapes    row, low part 11 │ newest time 54 │ …                                │ frozen 1
 *   DEBT, COUNT                                     │ amount, less one 53 │ row, high part 9
 *   RING                                            │ first unit 32 │ order 5 │ … row, high part 9
 *   PAIR                                            │ previous 31 │ current 31
 *   PERMITS                                         │ stored permits 62
 *
 * The row tells the shape: that of a low part alone is known (weir__packed_row). Stored permits are
 * a double without its sign and with its exponent moved: 0, or 2^-510 up to 2^513. What is smaller
 * becomes 0.
 *
 * In a slot a state is sealed (weir__seal). The frozen bit is never set by weir__pack: it belongs
 * to who holds the stripe's lock (zone/table.c).
 */
#include "store/zone/zone.h"

#include <string.h>

typedef unsigned __int128 bits;

#define REST_AT WEIR__REST_AT
#define PERMITS_BITS 62
#define PERMITS_SHIFT (UINT64_C(512) << 52) /* of the exponent */
#define PERMITS_LEAST 0x1p-510
#define PERMITS_MOST 0x1p513

static bits pack_field(uint64_t value, int at)
{
    return (bits)value << at;
}

static uint64_t pack_get(bits packed, int at, int width)
{
    return (uint64_t)(packed >> at) & ((UINT64_C(1) << width) - 1);
}

static uint64_t pack_permits(double stored)
{
    uint64_t word;
    assert(stored >= 0 && stored < PERMITS_MOST);
    if (stored < PERMITS_LEAST)
        return 0;
    memcpy(&word, &stored, sizeof word);
    return word - PERMITS_SHIFT;
}

static double pack_permits_of(uint64_t word)
{
    double stored;
    if (word == 0)
        return 0;
    word += PERMITS_SHIFT;
    memcpy(&stored, &word, sizeof stored);
    return stored;
}

struct weir__packed weir__pack_small(const struct weir__rule *rule, uint32_t row,
                                     const struct weir__state *state)
{
    bits packed = (row & WEIR__ROW_LOW_MASK) | pack_field((uint64_t)state->at, WEIR__ROW_LOW_BITS);
    assert(!weir__is_narrow(rule) || row <= WEIR__ROW_LOW_MASK);
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        return weir__pack_amount(row, state->at, state->amount);
    case WEIR__SHAPE_PAIR:
        packed |= pack_field((uint64_t)state->before, REST_AT) |
                  pack_field((uint64_t)state->amount, REST_AT + 31);
        break;
    case WEIR__SHAPE_PERMITS:
        packed |= pack_field(pack_permits(state->stored), REST_AT);
        break;
    case WEIR__SHAPE_RING:
        assert(!"a small state");
        break;
    }
    return (struct weir__packed){(uint64_t)packed, (uint64_t)(packed >> 64)};
}

static struct weir__packed pack_ring(uint32_t row, int64_t at, uint32_t unit, unsigned order)
{
    bits packed = (row & WEIR__ROW_LOW_MASK) | pack_field((uint64_t)at, WEIR__ROW_LOW_BITS) |
                  pack_field(unit, REST_AT) | pack_field(order, REST_AT + 32) |
                  pack_field(row >> WEIR__ROW_LOW_BITS, WEIR__ROW_HIGH_AT);
    return (struct weir__packed){(uint64_t)packed, (uint64_t)(packed >> 64)};
}

struct weir__packed weir__pack(const struct weir__zone *zone, const struct weir__rule *rule,
                               uint32_t row, uint64_t tag, const struct weir__state *state,
                               uint32_t unit, unsigned order)
{
    struct weir__packed clear = weir__is_large(rule) ? pack_ring(row, state->at, unit, order)
                                                     : weir__pack_small(rule, row, state);
    return weir__seal(clear, tag, weir__row_generation(zone, row));
}

/* A large state: its block must lie in the zone and its header make sense. */
static bool pack_read_ring(const struct weir__zone *zone, bits packed, struct weir__state *ret,
                           uint32_t *ret_unit, unsigned *ret_order)
{
    uint32_t unit = (uint32_t)pack_get(packed, REST_AT, 32);
    unsigned order = (unsigned)pack_get(packed, REST_AT + 32, 5);
    if (order > WEIR__ORDER_MAX || (uint64_t)unit + (UINT64_C(1) << order) > zone->layout.units)
        return false;
    struct weir__block *block = weir__block_at(zone, unit);
    struct weir__ring ring = {(struct weir__cell *)(block + 1), weir__block_cells(order),
                              block->head, block->len, block->sum};
    if (ring.head >= ring.capacity || ring.len > ring.capacity)
        return false;
    ret->ring = ring;
    ret->ring_header = (uint64_t *)block;
    *ret_unit = unit;
    *ret_order = order;
    return true;
}

bool weir__unpack(const struct weir__zone *zone, uint64_t tag, struct weir__packed sealed,
                  const struct weir__rule **ret_rule, struct weir__state *ret, uint32_t *ret_unit,
                  unsigned *ret_order)
{
    uint32_t row = weir__packed_row(zone, sealed);
    const struct weir__rule *rule = weir__row_at(zone, row);
    if (WEIR__UNLIKELY(!rule))
        return false;
    struct weir__packed clear = weir__seal(sealed, tag, weir__row_generation(zone, row));
    *ret_rule = rule;
    if (weir__is_large(rule)) {
        ret->present = true;
        ret->at = weir__packed_at(clear);
        return pack_read_ring(zone, (bits)clear.hi << 64 | clear.lo, ret, ret_unit, ret_order);
    }
    weir__unpack_small(rule, clear, ret);
    return true;
}

void weir__unpack_small(const struct weir__rule *rule, struct weir__packed clear,
                        struct weir__state *ret)
{
    bits packed = (bits)clear.hi << 64 | clear.lo;
    ret->present = true;
    ret->at = weir__packed_at(clear);
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        ret->amount = weir__packed_amount(clear);
        break;
    case WEIR__SHAPE_PAIR:
        ret->before = (int64_t)pack_get(packed, REST_AT, 31);
        ret->amount = (int64_t)pack_get(packed, REST_AT + 31, 31);
        break;
    case WEIR__SHAPE_PERMITS:
        ret->stored = pack_permits_of(pack_get(packed, REST_AT, PERMITS_BITS));
        break;
    case WEIR__SHAPE_RING:
        assert(!"a small state");
        break;
    }
}

/*
 * States in 16 bytes. Bits from the lowest:
 *
 *   all shapes     row 11 │ newest time 54 │ …
 *   DEBT, COUNT                            │ amount, less one 53
 *   PAIR                                   │ previous 31 │ current 31
 *   PERMITS                                │ stored permits: a double without its sign 63
 *   RING                                   │ block's first unit 32 │ order 5
 */
#include "store/zone/zone.h"

#include <string.h>

typedef unsigned __int128 bits;

#define REST_AT WEIR__REST_AT

static bits field(uint64_t value, int at)
{
    return (bits)value << at;
}

static uint64_t get(bits packed, int at, int width)
{
    return (uint64_t)(packed >> at) & ((UINT64_C(1) << width) - 1);
}

struct weir__packed weir__pack(const struct weir__rule *rule, uint32_t row,
                               const struct weir__state *state, uint32_t unit, unsigned order)
{
    bits packed = row | field((uint64_t)state->at, WEIR__ROW_BITS);
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        return weir__pack_amount(row, state->at, state->amount);
    case WEIR__SHAPE_PAIR:
        packed |=
            field((uint64_t)state->before, REST_AT) | field((uint64_t)state->amount, REST_AT + 31);
        break;
    case WEIR__SHAPE_PERMITS: {
        uint64_t stored;
        memcpy(&stored, &state->stored, sizeof stored);
        packed |= field(stored, REST_AT);
        break;
    }
    case WEIR__SHAPE_RING:
        packed |= field(unit, REST_AT) | field(order, REST_AT + 32);
        break;
    }
    return (struct weir__packed){(uint64_t)packed, (uint64_t)(packed >> 64)};
}

/* A large state: its block must lie in the zone and its header make sense. */
static bool unpack_ring(const struct weir__zone *zone, bits packed, struct weir__state *ret,
                        uint32_t *ret_unit, unsigned *ret_order)
{
    uint32_t unit = (uint32_t)get(packed, REST_AT, 32);
    unsigned order = (unsigned)get(packed, REST_AT + 32, 5);
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

bool weir__unpack(const struct weir__zone *zone, struct weir__packed from,
                  const struct weir__rule **ret_rule, struct weir__state *ret, uint32_t *ret_unit,
                  unsigned *ret_order)
{
    const struct weir__rule *rule = weir__row_at(zone, weir__packed_row(from));
    if (WEIR__UNLIKELY(!rule))
        return false;
    bits packed = (bits)from.hi << 64 | from.lo;
    ret->present = true;
    ret->at = weir__packed_at(from);
    *ret_rule = rule;
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        ret->amount = weir__packed_amount(from);
        return true;
    case WEIR__SHAPE_PAIR:
        ret->before = (int64_t)get(packed, REST_AT, 31);
        ret->amount = (int64_t)get(packed, REST_AT + 31, 31);
        return true;
    case WEIR__SHAPE_PERMITS: {
        uint64_t stored = get(packed, REST_AT, 63);
        memcpy(&ret->stored, &stored, sizeof stored);
        return ret->stored >= 0 && ret->stored < 1e300;
    }
    case WEIR__SHAPE_RING:
        return unpack_ring(zone, packed, ret, ret_unit, ret_order);
    }
    return false;
}

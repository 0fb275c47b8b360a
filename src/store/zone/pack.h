/* A state in sixteen bytes: its row, its time, the rest; sealed with the tag of its key. */
#ifndef WEIR_ZONE_PACK_H
#define WEIR_ZONE_PACK_H

#include "store/zone/row.h"

#define WEIR__TIME_BITS 54
#define WEIR__REST_AT (WEIR__ROW_LOW_BITS + WEIR__TIME_BITS)
#define WEIR__ROW_HIGH_AT 118
#define WEIR__FROZEN (UINT64_C(1) << 63) /* in hi */

/* Shapes that need the bits of the row's high part for themselves. */
static inline bool weir__is_narrow(const struct weir__rule *rule)
{
    enum weir__shape shape = weir__algorithm_of(rule)->shape;
    return shape == WEIR__SHAPE_PAIR || shape == WEIR__SHAPE_PERMITS;
}

/* Whether a low part is that of a narrow row, in use or last. That row may be written meanwhile,
 * but then no state has this low part, or it stays wide. */
static inline bool weir__low_is_narrow(const struct weir__zone *zone, uint32_t low)
{
    if (low == WEIR__MARK_ROW || low >= zone->layout.rows)
        return false;
    struct weir__rule rule = {.kind = __atomic_load_n(&zone->rows[low].kind, __ATOMIC_RELAXED)};
    return rule.kind < WEIR__KIND_COUNT && weir__is_narrow(&rule);
}

/* The row of a state, sealed or not. Where the row of its low part is a narrow one, there is no
 * high part. */
static inline uint32_t weir__packed_row(const struct weir__zone *zone, struct weir__packed packed)
{
    uint32_t low = packed.lo & WEIR__ROW_LOW_MASK;
    uint32_t high = packed.hi >> (WEIR__ROW_HIGH_AT - 64) & WEIR__ROW_HIGH_MASK;
    if (WEIR__LIKELY(high == 0))
        return low;
    return weir__low_is_narrow(zone, low) ? low : low | high << WEIR__ROW_LOW_BITS;
}

/* Whether a state is one of this row, whose rule is that of row `row`. */
static inline bool weir__packed_is_of(struct weir__packed packed, const struct weir__rule *rule,
                                      uint32_t row)
{
    uint64_t high = packed.hi >> (WEIR__ROW_HIGH_AT - 64) & WEIR__ROW_HIGH_MASK;
    return ((packed.lo ^ row) & WEIR__ROW_LOW_MASK) == 0 &&
           (high == row >> WEIR__ROW_LOW_BITS || weir__is_narrow(rule));
}

static inline bool weir__is_frozen(struct weir__packed packed)
{
    return packed.hi & WEIR__FROZEN;
}

static inline struct weir__packed weir__packed_xor(struct weir__packed a, struct weir__packed b)
{
    uint64_t lo = a.lo ^ b.lo, hi = a.hi ^ b.hi;
    __asm__("" : "+r"(hi)); /* no vector of both: to move it to and fro takes longer */
    return (struct weir__packed){lo, hi};
}

/* The two halves of a pad, which leaves row and frozen bit alone (and what narrow shapes keep in
 * the place of the row's high part). */
static inline struct weir__packed weir__pad_masked(uint64_t lo, uint64_t hi)
{
    return (struct weir__packed){lo & ~(uint64_t)WEIR__ROW_LOW_MASK,
                                 hi & ((UINT64_C(1) << (WEIR__ROW_HIGH_AT - 64)) - 1)};
}

static inline struct weir__packed weir__pad_of_tag(uint64_t tag)
{
    return weir__pad_masked(tag, tag << 32 | tag >> 32);
}

static inline struct weir__packed weir__pad_of_generation(uint32_t generation)
{
    uint64_t use = generation >> 1;
    return weir__pad_masked(use * UINT64_C(0x9e3779b97f4a7c15), use * UINT64_C(0xd1342543de82ef95));
}

/* A state as it lies in a slot: XOR a pad of the tag and the row's generation. So one state is
 * never the same bytes for two keys, nor for two limits that had one row. Sealing twice gives the
 * state back. */
static inline struct weir__packed weir__seal(struct weir__packed packed, uint64_t tag,
                                             uint32_t generation)
{
    return weir__packed_xor(
        packed, weir__packed_xor(weir__pad_of_tag(tag), weir__pad_of_generation(generation)));
}

/* The row of a state, and nothing else. */
static inline struct weir__packed weir__pack_row(uint32_t row)
{
    uint64_t low = row & WEIR__ROW_LOW_MASK, high = row >> WEIR__ROW_LOW_BITS;
    return (struct weir__packed){low, high << (WEIR__ROW_HIGH_AT - 64)};
}

/* Buckets and fixed windows: newest time, and debt or count less one. Not sealed. */
static inline struct weir__packed weir__pack_amount(uint32_t row, int64_t at, int64_t amount)
{
    uint64_t time = (uint64_t)at, rest = (uint64_t)amount - 1;
    uint64_t low = row & WEIR__ROW_LOW_MASK, high = row >> WEIR__ROW_LOW_BITS;
    assert(amount >= 1 && amount <= WEIR__EXACT_MAX);
    return (struct weir__packed){low | time << WEIR__ROW_LOW_BITS,
                                 time >> (64 - WEIR__ROW_LOW_BITS) | rest << (WEIR__REST_AT - 64) |
                                     high << (WEIR__ROW_HIGH_AT - 64)};
}

static inline int64_t weir__packed_at(struct weir__packed packed)
{
    uint64_t high = packed.hi & ((UINT64_C(1) << (WEIR__REST_AT - 64)) - 1);
    return (int64_t)(packed.lo >> WEIR__ROW_LOW_BITS | high << (64 - WEIR__ROW_LOW_BITS));
}

static inline int64_t weir__packed_amount(struct weir__packed packed)
{
    uint64_t rest = packed.hi >> (WEIR__REST_AT - 64) & ((UINT64_C(1) << 53) - 1);
    return (int64_t)rest + 1;
}

/* The two counts of a sliding counter. */
struct weir__counts {
    int64_t before, now;
};

static inline struct weir__counts weir__packed_counts(struct weir__packed packed)
{
    const uint64_t mask = (UINT64_C(1) << 31) - 1;
    uint64_t rest = packed.hi >> (WEIR__REST_AT - 64);
    return (struct weir__counts){(int64_t)(rest & mask), (int64_t)(rest >> 31 & mask)};
}

/* A small state under a row, not sealed. */
struct weir__packed weir__pack_small(const struct weir__rule *rule, uint32_t row,
                                     const struct weir__state *state);
/* A state of a key under a row, sealed and not frozen. */
struct weir__packed weir__pack(const struct weir__zone *zone, const struct weir__rule *rule,
                               uint32_t row, uint64_t tag, const struct weir__state *state,
                               uint32_t unit, unsigned order);
/* Reads a sealed state of a key; false where it makes no sense. *ret_unit and *ret_order: large
 * states'. */
bool weir__unpack(const struct weir__zone *zone, uint64_t tag, struct weir__packed sealed,
                  const struct weir__rule **ret_rule, struct weir__state *ret, uint32_t *ret_unit,
                  unsigned *ret_order);

/* Reads a small state that is not sealed. */
void weir__unpack_small(const struct weir__rule *rule, struct weir__packed clear,
                        struct weir__state *ret);

#endif

/* Rows of a zone: the rules that its states were written under. zone/rows.h is for those who make
 * and sweep them. */
#ifndef WEIR_ZONE_ROW_H
#define WEIR_ZONE_ROW_H

#include "store/zone/lock.h"

/* ---- marks: settled receipts ---- */

/* A mark is a window of an hour in a place of its own, named by key, state and receipt. It is there
 * while the receipt is remembered, and is evicted before any limit's state. Marks need no row of
 * the zone's: theirs is row 0, so that limits cannot crowd them out, nor they a limit. */
#define WEIR__MARK_ROW 0
extern const struct weir__rule weir__mark_rule;

static inline bool weir__is_mark(const struct weir__rule *rule)
{
    return rule->flags & WEIR__MARK;
}

/* One was forgotten in its hour, or not remembered at all, because there was no room. */
static inline void weir__count_mark_lost(struct weir__zone *zone)
{
    atomic_fetch_add_explicit(&zone->header->marks_lost, 1, memory_order_relaxed);
}

/* How many are remembered. Others go on meanwhile. */
uint64_t weir__zone_marks(const struct weir__zone *zone, int64_t now_us);

/* ---- zone/rows.c ---- */

/* A row's number: 11 bits of low part, 9 of high part. */
#define WEIR__ROW_LOW_BITS 11
#define WEIR__ROW_HIGH_BITS 9
#define WEIR__ROW_BITS (WEIR__ROW_LOW_BITS + WEIR__ROW_HIGH_BITS)
#define WEIR__ROW_LOW_MASK ((UINT32_C(1) << WEIR__ROW_LOW_BITS) - 1)
#define WEIR__ROW_HIGH_MASK ((UINT32_C(1) << WEIR__ROW_HIGH_BITS) - 1)

/* Rows beyond those of the layout lie in blocks. The first of a chunk's places is the block's
 * header, so there is no row whose high part is a multiple of 64 other than 0. */
#define WEIR__CHUNK_ORDER 6
#define WEIR__CHUNK_ROWS 64
#define WEIR__LOW_CHUNKS 8 /* chunks with rows of one low part */
_Static_assert(WEIR__CHUNK_ROWS *WEIR__LOW_CHUNKS == WEIR__ROW_HIGH_MASK + 1, "all high parts");
_Static_assert(sizeof(struct weir__rule) * WEIR__CHUNK_ROWS == 64 << WEIR__CHUNK_ORDER, "fits");

/* In the place of a row where there is none, with this for its generation as well: no state names
 * it, and nothing is written under it. */
#define WEIR__NO_ROW UINT32_MAX

/* The row of a rule, made if need be; 0 where there is no room. It is good while the row has that
 * generation. */
uint32_t weir__row_find(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us,
                        uint32_t *ret_generation);

/* Gives each of these rules a row, and has this process keep it, until the next call: n are sorted
 * by weir__rule_order, no two alike. They are malloc'ed, and the zone's from now on unless a code
 * comes back: WEIR__HELD, or WEIR_EFULL. */
int weir__rows_pin(struct weir__zone *zone, struct weir__rule *rules, size_t n, int64_t now_us);
int weir__rule_order(const void *a, const void *b);

/* How many rows there can be of rules of that class; and of both together. */
uint32_t weir__rows_most(const struct weir__zone *zone, bool narrow);
static inline uint32_t weir__rows_all(const struct weir__layout *layout)
{
    return layout->rows - 1 + layout->chunks * (WEIR__CHUNK_ROWS - 1);
}

/* After a death with the rows' lock held: counts. The lock is held. */
void weir__rows_repair(struct weir__zone *zone);
/* Whether every row makes sense, some at a time; no lock is held. WEIR_EDAMAGED: *ret_row does
 * not; WEIR_EVERSION: it is of a kind that only a newer weir knows; or WEIR__HELD. */
int weir__rows_check(struct weir__zone *zone, uint32_t *ret_row);
/* A block that says it is a chunk of rows, or was to be one: frees it where it is not. No lock is
 * held. False: a lock is held by somebody. */
struct weir__sample;
bool weir__chunk_free_nobodys(struct weir__zone *zone, const struct weir__sample *it);
/* Nobody else has the zone open: builds the index again. */
void weir__rows_recover(struct weir__zone *zone);

/* The number of the chunk that a row would lie in; it may be beyond all chunks. */
static inline uint32_t weir__row_chunk(const struct weir__zone *zone, uint32_t row)
{
    uint32_t low = row & WEIR__ROW_LOW_MASK, high = row >> WEIR__ROW_LOW_BITS;
    return (zone->layout.rows - 1 - low) * WEIR__LOW_CHUNKS + high / WEIR__CHUNK_ROWS;
}

static inline struct weir__block *weir__block_at(const struct weir__zone *zone, uint32_t unit);

/* Where a row lies; NULL: nowhere. */
static inline struct weir__rule *weir__row_place(const struct weir__zone *zone, uint32_t row)
{
    if (WEIR__LIKELY(row < zone->layout.rows))
        return &zone->rows[row];
    uint32_t chunk = weir__row_chunk(zone, row),
             in = (row >> WEIR__ROW_LOW_BITS) % WEIR__CHUNK_ROWS;
    if ((row & WEIR__ROW_LOW_MASK) >= zone->layout.rows || chunk >= zone->layout.chunks || in == 0)
        return NULL;
    uint32_t unit = atomic_load_explicit(&zone->chunks[chunk], memory_order_acquire);
    if (unit == 0 || unit - 1 + (UINT64_C(1) << WEIR__CHUNK_ORDER) > zone->layout.units)
        return NULL;
    return (struct weir__rule *)weir__block_at(zone, unit - 1) + in;
}

/* The row a slot names, or NULL where it cannot be. */
static inline const struct weir__rule *weir__row_at(const struct weir__zone *zone, uint32_t row)
{
    if (WEIR__UNLIKELY(row == WEIR__MARK_ROW))
        return &weir__mark_rule;
    const struct weir__rule *rule = weir__row_place(zone, row);
    bool sound = rule && rule->kind < WEIR__KIND_COUNT && rule->count > 0 && rule->period_us > 0;
    return WEIR__LIKELY(sound) ? rule : NULL;
}

/* Whether a row is of a kind that only a newer weir knows. Kinds are numbered one after the other,
 * so a number far beyond ours is damage. */
#define WEIR__KIND_NEWEST 63
static inline bool weir__row_is_newer(const struct weir__zone *zone, uint32_t row)
{
    const struct weir__rule *rule = row == WEIR__MARK_ROW ? NULL : weir__row_place(zone, row);
    return rule && rule->kind >= WEIR__KIND_COUNT && rule->kind <= WEIR__KIND_NEWEST &&
           rule->count > 0 && rule->period_us > 0;
}

/* Of the row's use: even while it is in use, odd when retired. What a state is sealed with. Of a
 * row that is nowhere: one that no row has. */
static inline uint32_t weir__row_generation(const struct weir__zone *zone, uint32_t row)
{
    if (row == WEIR__MARK_ROW)
        return 0;
    const struct weir__rule *rule = weir__row_place(zone, row);
    return WEIR__LIKELY(rule != NULL) ? __atomic_load_n(&rule->generation, __ATOMIC_ACQUIRE)
                                      : WEIR__NO_ROW;
}

/* What a limit remembers of its row: the row, its generation, and of which zone it is, as many bits
 * of the serial as fit. 0: nothing. */
#define WEIR__HINT_GENERATION_AT WEIR__ROW_BITS
#define WEIR__HINT_SERIAL_AT (WEIR__HINT_GENERATION_AT + 16)

static inline bool weir__hint_is_of(const struct weir__zone *zone, uint64_t hint)
{
    return (hint ^ zone->serial << WEIR__HINT_SERIAL_AT) >> WEIR__HINT_SERIAL_AT == 0 && hint != 0;
}

static inline uint32_t weir__hint_row(uint64_t hint)
{
    return (uint32_t)hint & ((UINT32_C(1) << WEIR__ROW_BITS) - 1);
}

static inline uint32_t weir__hint_generation(uint64_t hint)
{
    return (uint32_t)(hint >> WEIR__HINT_GENERATION_AT) & UINT16_MAX;
}

/* Whether the row that an op was given is no longer its limit's. Asked after the state was read. */
static inline bool weir__op_is_stale(const struct weir__zone *zone, const struct weir__op *op)
{
    return weir__row_generation(zone, op->row) != op->generation;
}

#endif

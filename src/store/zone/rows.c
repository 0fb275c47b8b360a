/*
 * Rows: the limits in use, so that a slot can name its limit in 20 bits and eviction can judge it.
 *
 * Rows 1 … 2047 (fewer in small zones) lie in the layout. Further ones lie in chunks of 63, which
 * are blocks of the large area, named by a directory in the layout. A chunk, once made, stays. A
 * row is written whole before any slot names it, and is free again only when no slot does
 * (zone/sweep.c).
 *
 * A row's number has a low and a high part. Most kinds ("wide") keep both in their states. Those
 * whose states have no room for the high part ("narrow": sliding-counter, smooth, warmup) need a
 * row of the layout whose low part no other row in use has. So wide limits first take as few low
 * parts as possible: a chunk's rows all have the same one, and chunks are made from the highest low
 * part down. They never take more than the upper half of the low parts. Narrow limits begin at the
 * lowest.
 *
 * Rows of rules that this process has pinned are never freed by it, whether a state names them or
 * not.
 */
#include "store/zone/rows.h"

#include "limit/limit.h"

#include <sched.h>
#include <string.h>

#define EARLY_SHARE 8     /* fewer than one row in so many is free: look for rows to free */
#define SHORT_SHARE 64    /* fewer than one in so many: free rows even if they have live states */
#define NARROW_SHARE 1024 /* the same, of those for narrow limits */
#define FIRST_LOWS 44     /* one low part in so many is for wide limits before any chunk is made */
#define STEPS 4           /* of a sweep for each new row while rows are scarce */
#define STEPS_NONE_FREE 128 /* and where there is none */
#define COUNTED_EVERY 16    /* new rows: whether rows are scarce */
#define CHECKED_AT_ONCE 128 /* rows, while the lock is held */
#define SWEEPS_TO_PIN 8     /* that may find nothing before a rule has no row */

static bool rows_low_is_taken(const struct weir__zone *zone, uint32_t low)
{
    return weir__row_is_taken(zone, low);
}

/* Whether a row in a chunk with this low part is taken. */
static bool rows_low_is_shared(const struct weir__zone *zone, uint32_t low)
{
    uint32_t first = (zone->layout.rows - 1 - low) * WEIR__LOW_CHUNKS;
    for (uint32_t c = first; c < first + WEIR__LOW_CHUNKS && c < zone->layout.chunks; c++) {
        if (weir__taken_word(zone, WEIR__DIRECT_BITS / 64 + c))
            return true;
    }
    return false;
}

/* The lowest low part that wide limits may have. */
static uint32_t rows_wide_from(const struct weir__zone *zone)
{
    return zone->layout.chunks > 0 ? zone->layout.rows / 2 : 1;
}

bool weir__row_suits(const struct weir__zone *zone, uint32_t row, bool narrow)
{
    uint32_t low = row & WEIR__ROW_LOW_MASK;
    if (narrow)
        return row == low && !rows_low_is_shared(zone, low);
    return row != low || low >= rows_wide_from(zone);
}

uint32_t weir__rows_most(const struct weir__zone *zone, bool narrow)
{
    if (narrow)
        return zone->layout.rows - 1;
    return zone->layout.rows - rows_wide_from(zone) + zone->layout.chunks * (WEIR__CHUNK_ROWS - 1);
}

/* Rows that wide limits have or could have, over one low part. */
static struct weir__row_room rows_room_over(const struct weir__zone *zone, uint32_t low,
                                            bool growing)
{
    bool taken = rows_low_is_taken(zone, low);
    uint32_t first = (zone->layout.rows - 1 - low) * WEIR__LOW_CHUNKS;
    struct weir__row_room room = {1, !taken};
    if (taken && weir__low_is_narrow(zone, low))
        return (struct weir__row_room){0, 0};
    for (uint32_t c = first; c < first + WEIR__LOW_CHUNKS && c < zone->layout.chunks; c++) {
        if (!growing && !atomic_load_explicit(&zone->chunks[c], memory_order_relaxed))
            continue;
        uint64_t word = weir__taken_word(zone, WEIR__DIRECT_BITS / 64 + c);
        room.usable += WEIR__CHUNK_ROWS - 1;
        room.free += WEIR__CHUNK_ROWS - 1 - (uint32_t)__builtin_popcountll(word);
    }
    return room;
}

struct weir__row_room weir__rows_room(const struct weir__zone *zone, bool narrow)
{
    struct weir__row_room room = {0, 0};
    bool growing = !atomic_load(&zone->header->chunks_refused);
    for (uint32_t low = narrow ? 1 : rows_wide_from(zone); low < zone->layout.rows; low++) {
        struct weir__row_room over = {1, 0};
        if (!narrow)
            over = rows_room_over(zone, low, growing);
        else if (!rows_low_is_taken(zone, low))
            over.free = !rows_low_is_shared(zone, low);
        room.usable += over.usable;
        room.free += over.free;
    }
    return room;
}

/* ---- a free row; the rows' lock is held ---- */

/* A free row of the layout, from low part `from` down to `to`; 0: none. */
static uint32_t rows_free_direct(const struct weir__zone *zone, uint32_t from, uint32_t to)
{
    for (uint32_t low = from; low >= to && low > 0; low--) {
        if (!rows_low_is_taken(zone, low))
            return low;
    }
    return 0;
}

static uint32_t rows_free_narrow(const struct weir__zone *zone)
{
    for (uint32_t low = 1; low < zone->layout.rows; low++) {
        if (!rows_low_is_taken(zone, low) && !rows_low_is_shared(zone, low))
            return low;
    }
    return 0;
}

/* Whether a chunk's rows can be used: its low part is not that of a narrow row. */
static bool rows_chunk_is_wide(const struct weir__zone *zone, uint32_t chunk)
{
    uint32_t low = zone->layout.rows - 1 - chunk / WEIR__LOW_CHUNKS;
    return !rows_low_is_taken(zone, low) || !weir__low_is_narrow(zone, low);
}

/* Makes a chunk, evicting large states if need be. */
static bool rows_add_chunk(struct weir__zone *zone, uint32_t chunk, int64_t now_us)
{
    struct weir__want want = weir__chunk_want(chunk);
    uint32_t unit;
    int64_t since_us = 0;
    int code;
    do { /* who has a stripe does not wait for rows */
        code = weir__block_get(zone, NULL, 0, now_us, &want, &unit);
    } while (code == WEIR__WANTED && weir__zone_waits(zone, &since_us));
    atomic_store(&zone->header->chunks_refused, code != 0);
    if (code)
        return false;
    struct weir__rule *places = (struct weir__rule *)weir__block_at(zone, unit);
    memset(places + 1, 0, (WEIR__CHUNK_ROWS - 1) * sizeof *places);
    atomic_store_explicit(&zone->chunks[chunk], unit + 1, memory_order_release);
    atomic_fetch_add(&zone->header->chunks_made, 1);
    return true;
}

/* A free row of a chunk that is there, or of a new one; 0: none. */
static uint32_t rows_free_in_chunks(struct weir__zone *zone, int64_t now_us)
{
    uint32_t chunks = zone->layout.chunks, missing = chunks;
    uint32_t hand = zone->header->chunk_hand < chunks ? zone->header->chunk_hand : 0;
    for (uint32_t n = 0; n < chunks; n++) {
        uint32_t c = hand + n < chunks ? hand + n : hand + n - chunks;
        if (!rows_chunk_is_wide(zone, c))
            continue;
        if (!atomic_load_explicit(&zone->chunks[c], memory_order_relaxed)) {
            missing = c < missing ? c : missing;
            continue;
        }
        uint64_t free = ~weir__taken_word(zone, WEIR__DIRECT_BITS / 64 + c) & ~UINT64_C(1);
        if (free) {
            zone->header->chunk_hand = c;
            return weir__row_of_bit(zone, WEIR__DIRECT_BITS + c * WEIR__CHUNK_ROWS +
                                              (uint32_t)__builtin_ctzll(free));
        }
    }
    if (missing == chunks || !rows_add_chunk(zone, missing, now_us))
        return 0;
    zone->header->chunk_hand = missing;
    return weir__row_of_bit(zone, WEIR__DIRECT_BITS + missing * WEIR__CHUNK_ROWS + 1);
}

static uint32_t rows_free_wide(struct weir__zone *zone, int64_t now_us)
{
    uint32_t top = zone->layout.rows - 1, from = rows_wide_from(zone);
    uint32_t row = rows_free_direct(zone, top, top - top / FIRST_LOWS);
    if (!row)
        row = rows_free_in_chunks(zone, now_us);
    return row ? row : rows_free_direct(zone, top, from);
}

/* ---- making a row; the rows' lock is held ---- */

/* Writes all but the generation, which is odd meanwhile. */
static void rows_write(struct weir__rule *row, const struct weir__rule *rule, uint32_t generation)
{
    struct weir__rule whole = *rule;
    uint64_t words[sizeof whole / sizeof(uint64_t)], *to = (uint64_t *)row;
    assert(generation % 2 == 1);
    whole.generation = (uint16_t)generation;
    memcpy(words, &whole, sizeof words);
    for (size_t i = 0; i < WEIR__COUNT(words); i++)
        __atomic_store_n(&to[i], words[i], __ATOMIC_RELEASE);
}

static uint32_t rows_odd(const struct weir__rule *row)
{
    return __atomic_load_n(&row->generation, __ATOMIC_RELAXED) | 1u;
}

/* A row for a rule that has none; 0: there is no room. */
static uint32_t rows_make(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us,
                          uint32_t *ret_generation)
{
    uint32_t row = weir__is_narrow(rule) ? rows_free_narrow(zone) : rows_free_wide(zone, now_us);
    if (!row)
        return 0;
    struct weir__rule *place = weir__row_place(zone, row);
    struct weir__rule *direct = &zone->rows[row & WEIR__ROW_LOW_MASK];
    assert(place && rule->generation == 0);
    weir__row_set_generation(place, rows_odd(place));
    weir__row_set_taken(zone, weir__bit_of_row(zone, row), true);
    if (direct != place &&
        weir__low_is_narrow(
            zone, row & WEIR__ROW_LOW_MASK)) { /* free: it told that no row shares its part */
        static const struct weir__rule none;
        rows_write(direct, &none, rows_odd(direct));
    }
    rows_write(place, rule, rows_odd(place));
    uint32_t generation = (rows_odd(place) + 1) & UINT16_MAX;
    generation += generation == 0 ? 2 : 0; /* 0: never used */
    weir__row_set_generation(place, generation);
    if (!weir__index_add(zone, rule, row)) {
        weir__row_set_generation(place, generation + 1);
        weir__row_set_taken(zone, weir__bit_of_row(zone, row), false);
        return 0;
    }
    *ret_generation = generation;
    return row;
}

/* The row of a rule, found or made; 0: no room. *ret_held: somebody holds the lock. */
static uint32_t rows_get(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us,
                         uint32_t *ret_generation, bool *ret_held)
{
    *ret_held = !weir__stripe_lock(zone, weir__rows_stripe(zone));
    if (*ret_held)
        return 0;
    uint32_t row = weir__index_find(zone, rule, ret_generation);
    if (!row)
        row = rows_make(zone, rule, now_us, ret_generation);
    weir__stripe_unlock(zone, weir__rows_stripe(zone));
    return row;
}

/* Narrow limits have few rows, and are promised nearly all of them. */
static enum weir__sweep_need rows_need(const struct weir__zone *zone, bool narrow)
{
    struct weir__row_room room = weir__rows_room(zone, narrow);
    uint32_t least = room.usable / (narrow && zone->layout.chunks ? NARROW_SHARE : SHORT_SHARE);
    return room.free <= least                      ? WEIR__SWEEP_SHORT
           : room.free < room.usable / EARLY_SHARE ? WEIR__SWEEP_EARLY
                                                   : WEIR__SWEEP_GO_ON;
}

bool weir__rows_are_short(const struct weir__zone *zone, bool narrow)
{
    return rows_need(zone, narrow) == WEIR__SWEEP_SHORT;
}

/* A portion of a sweep, if rows are scarce. Counting those that are free takes a while, so where
 * there are many, that is not done for each new one. */
static void rows_help(struct weir__zone *zone, bool narrow, int64_t now_us)
{
    uint32_t taken = atomic_load_explicit(&zone->header->rows_taken, memory_order_relaxed);
    if (atomic_load_explicit(&zone->sweep.is_idle, memory_order_relaxed) &&
        zone->layout.chunks > 0 && taken % COUNTED_EVERY != 0)
        return;
    enum weir__sweep_need need = rows_need(zone, narrow);
    bool helps = weir__sweep_help(zone, now_us, need, STEPS);
    atomic_store_explicit(&zone->sweep.is_idle, need == WEIR__SWEEP_GO_ON && !helps,
                          memory_order_relaxed);
}

/* There is no room for a row: no row. */
static uint32_t rows_refuse(struct weir__zone *zone)
{
    uint32_t rows = weir__rows_stripe(zone);
    if (weir__stripe_lock(zone, rows)) {
        zone->stripes[rows].counters[WEIR__REFUSED]++;
        weir__stripe_unlock(zone, rows);
    }
    return 0;
}

uint32_t weir__row_find(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us,
                        uint32_t *ret_generation)
{
    uint32_t row = weir__index_find(zone, rule, ret_generation);
    if (WEIR__LIKELY(row))
        return row;
    bool held;
    rows_help(zone, weir__is_narrow(rule), now_us);
    for (unsigned steps = 0;; steps += STEPS) {
        row = rows_get(zone, rule, now_us, ret_generation, &held);
        if (row || held)
            return row;
        if (steps >= STEPS_NONE_FREE || !weir__sweep_help(zone, now_us, WEIR__SWEEP_SHORT, STEPS))
            return rows_refuse(zone);
    }
}

/* ---- pinning ---- */

int weir__rule_order(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct weir__rule));
}

/* A row for a pinned rule, however long it takes to free one. */
static int rows_pin_one(struct weir__zone *zone, const struct weir__rule *rule, int64_t now_us)
{
    uint32_t generation, begun = atomic_load(&zone->header->sweeps);
    bool held;
    while (!rows_get(zone, rule, now_us, &generation, &held)) {
        if (held || weir__zone_is_held(zone))
            return WEIR__HELD;
        if (atomic_load(&zone->header->sweeps) - begun > SWEEPS_TO_PIN)
            return WEIR_EFULL;
        if (!weir__sweep_help(zone, now_us, WEIR__SWEEP_NOW, STEPS_NONE_FREE))
            sched_yield(); /* another thread of ours is at it */
    }
    return 0;
}

int weir__rows_pin(struct weir__zone *zone, struct weir__rule *rules, size_t n, int64_t now_us)
{
    struct weir__rule *old = rules;
    size_t old_count = n;
    int code = 0;
    weir__sweep_swap_pinned(zone, &old, &old_count);
    for (size_t i = 0; i < n && code == 0; i++)
        code = rows_pin_one(zone, &rules[i], now_us);
    if (code)
        weir__sweep_swap_pinned(zone, &old, &old_count);
    else
        free(old);
    return code;
}

/* ---- after a death, and for the check ---- */

void weir__rows_repair(struct weir__zone *zone)
{
    uint32_t taken = 0, made = 0;
    for (uint32_t word = 0; word < weir__row_bits(zone) / 64; word++)
        taken += (uint32_t)__builtin_popcountll(weir__taken_word(zone, word));
    for (uint32_t c = 0; c < zone->layout.chunks; c++)
        made += atomic_load_explicit(&zone->chunks[c], memory_order_relaxed) != 0;
    atomic_store(&zone->header->rows_taken, taken);
    atomic_store(&zone->header->chunks_made, made);
}

bool weir__chunk_free_nobodys(struct weir__zone *zone, const struct weir__sample *it)
{
    if (it->slot < zone->layout.chunks &&
        atomic_load_explicit(&zone->chunks[it->slot], memory_order_acquire) == it->unit + 1)
        return true;
    if (!weir__stripe_lock(zone, weir__rows_stripe(zone)))
        return false;
    if (it->slot >= zone->layout.chunks ||
        atomic_load_explicit(&zone->chunks[it->slot], memory_order_acquire) != it->unit + 1)
        weir__block_free_owned(zone, it->unit, it->order, WEIR__NO_GROUP, it->slot);
    weir__stripe_unlock(zone, weir__rows_stripe(zone));
    return true;
}

/* Whether a chunk's block is where the directory says. */
static bool rows_chunk_is_sound(const struct weir__zone *zone, uint32_t chunk)
{
    uint64_t unit = atomic_load_explicit(&zone->chunks[chunk], memory_order_relaxed);
    if (unit == 0)
        return weir__taken_word(zone, WEIR__DIRECT_BITS / 64 + chunk) == 0;
    if (unit - 1 + (UINT64_C(1) << WEIR__CHUNK_ORDER) > zone->layout.units)
        return false;
    const struct weir__block *block = weir__block_at(zone, (uint32_t)unit - 1);
    return atomic_load_explicit(&block->group, memory_order_relaxed) == WEIR__NO_GROUP &&
           atomic_load_explicit(&block->slot, memory_order_relaxed) == chunk;
}

/* 0, WEIR_EVERSION or WEIR_EDAMAGED. */
static int rows_check_row(const struct weir__zone *zone, uint32_t bit)
{
    uint32_t row = weir__row_of_bit(zone, bit);
    if (!weir__row_is_taken(zone, bit))
        return 0;
    if (bit >= WEIR__DIRECT_BITS && !rows_chunk_is_sound(zone, weir__row_chunk(zone, row)))
        return WEIR_EDAMAGED;
    const struct weir__rule *place = weir__row_place(zone, row);
    if (!place || row == WEIR__MARK_ROW)
        return WEIR_EDAMAGED;
    struct weir__rule rule = *place;
    bool made = rule.generation % 2 == 0; /* or retired, or half made by somebody who died */
    rule.generation = 0;
    if (!made || weir__rule_sound(&rule))
        return 0;
    return weir__row_is_newer(zone, row) ? WEIR_EVERSION : WEIR_EDAMAGED;
}

int weir__rows_check(struct weir__zone *zone, uint32_t *ret_row)
{
    for (uint32_t bit = 0, bits = weir__row_bits(zone); bit < bits;) {
        if (!weir__stripe_lock(zone, weir__rows_stripe(zone)))
            return WEIR__HELD;
        int code = 0;
        for (uint32_t end = bit + CHECKED_AT_ONCE; code == 0 && bit < end && bit < bits; bit++)
            code = rows_check_row(zone, bit);
        weir__stripe_unlock(zone, weir__rows_stripe(zone));
        if (code) {
            *ret_row = weir__row_of_bit(zone, bit - 1);
            return code;
        }
    }
    return 0;
}

void weir__rows_recover(struct weir__zone *zone)
{
    for (uint32_t i = 0; i < zone->layout.index_words; i++)
        atomic_store_explicit(&zone->index[i], 0, memory_order_relaxed);
    for (uint32_t bit = 1; bit < weir__row_bits(zone); bit++) {
        uint32_t row = weir__row_of_bit(zone, bit);
        const struct weir__rule *place =
            weir__row_is_taken(zone, bit) ? weir__row_place(zone, row) : NULL;
        if (place && place->generation % 2 == 0)
            (void)weir__index_add(zone, place, row);
    }
    weir__rows_repair(zone);
}

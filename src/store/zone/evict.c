/* See evict.h. */
#include "store/zone/evict.h"

#include "base/random.h"

#include <assert.h>

/* Where no more than FEW of a row are not being denied, up to AGED others lose their bit. Chosen
 * by the floods of tests/unit/zone_flood.c: more of either protects who keeps asking better, and
 * who stays away worse. */
#define FEW 1
#define AGED 8

/* Shares in steps: four for every power of two, so that shares within an eighth to a quarter
 * count as equal. Finer steps would make a bucket's oldest state the next to go, which is what a
 * flood of equal keys is after. */
static uint8_t share_level(uint32_t share)
{
    assert(share >= 1 && share <= WEIR__SHARE_ONE);
    unsigned power = 31 - (unsigned)__builtin_clz(share);
    return (uint8_t)(power << 2 | ((share << 2 >> power) & 3));
}

static enum weir__standing standing_of(const struct weir__candidates *it,
                                       const struct weir__group *group, unsigned slot)
{
    if (WEIR__UNLIKELY(it->row == WEIR__MARK_ROW))
        return WEIR__STANDS_MARK;
    if (!it->plain && weir__algorithm_of(it->rule)->leases)
        return WEIR__STANDS_KEPT;
    return weir__slot_denied(group, slot) ? WEIR__STANDS_DENIED : WEIR__STANDS_QUIET;
}

/* Looks a row up, for all candidates in a row that have it. */
static void know_row(const struct weir__zone *zone, struct weir__candidates *it, uint32_t row)
{
    it->mixed = it->mixed || it->count > 0;
    it->row = row;
    it->rule = weir__row_at(zone, row);
    it->plain = false;
    if (!it->rule)
        return;
    enum weir__shape shape = weir__algorithm_of(it->rule)->shape;
    it->plain = shape == WEIR__SHAPE_DEBT || shape == WEIR__SHAPE_COUNT;
    it->generation = weir__row_generation(zone, row);
}

/* The share of a slot's state: weir__unpack and weir__state_share, with a short way for amounts. */
static uint32_t share_of(const struct weir__zone *zone, const struct weir__candidates *it,
                         uint64_t tag, struct weir__packed sealed, int64_t now_us)
{
    struct weir__state state;
    const struct weir__rule *rule;
    uint32_t unit;
    unsigned order;
    if (WEIR__LIKELY(it->plain)) {
        struct weir__packed clear = weir__seal(sealed, tag, it->generation);
        state.present = true;
        state.at = weir__packed_at(clear);
        state.amount = weir__packed_amount(clear);
        return weir__state_share(it->rule, &state, now_us);
    }
    state = (struct weir__state){0};
    if (!it->rule || !weir__unpack(zone, tag, sealed, &rule, &state, &unit, &order))
        return 0;
    return weir__state_share(rule, &state, now_us);
}

bool weir__candidates_add(struct weir__zone *zone, struct weir__candidates *it,
                          struct weir__group *group, unsigned slot, int64_t now_us)
{
    unsigned i = it->count;
    assert(i < WEIR__CANDIDATES_MAX && slot < WEIR__SLOTS);
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    uint32_t row = weir__packed_row(zone, sealed);
    if (row != it->row || i == 0)
        know_row(zone, it, row);
    uint32_t share = share_of(zone, it, weir__slot_tag(group, slot), sealed, now_us);
    enum weir__standing standing = share ? standing_of(it, group, slot) : WEIR__STANDS_FRESH;
    it->count = i + 1;
    it->groups[i] = group;
    it->judged[i] = sealed;
    it->slots[i] = (uint8_t)slot;
    it->standings[i] = (uint8_t)standing;
    it->levels[i] = share ? share_level(share) : 0;
    it->rows[i] = row;
    if (standing < it->lowest)
        it->lowest = standing;
    return standing == WEIR__STANDS_FRESH;
}

/* ---- the choice ---- */

/* Which of n is a matter of chance, which only this process knows. Threads that draw at once may
 * draw the same. */
static unsigned draw(struct weir__zone *zone, unsigned n)
{
    uint64_t chance = atomic_load_explicit(&zone->chance, memory_order_relaxed);
    uint64_t word = weir__random_next(&chance);
    atomic_store_explicit(&zone->chance, chance, memory_order_relaxed);
    return (unsigned)((word >> 32) * n >> 32);
}

static bool may_go(const struct weir__candidates *it, unsigned i)
{
    return it->standings[i] < WEIR__STANDS_KEPT;
}

/* The row of most candidates that may go; of several such rows one at random. */
static uint32_t fullest_row(struct weir__zone *zone, const struct weir__candidates *it)
{
    uint32_t rows[WEIR__CANDIDATES_MAX];
    uint8_t counts[WEIR__CANDIDATES_MAX];
    unsigned n = 0, best = 0;
    if (WEIR__LIKELY(!it->mixed))
        return it->rows[0];
    for (unsigned i = 0; i < it->count; i++) {
        unsigned r = 0;
        while (r < n && rows[r] != it->rows[i])
            r++;
        if (r == n) {
            rows[n] = it->rows[i];
            counts[n++] = 0;
        }
        counts[r] = (uint8_t)(counts[r] + may_go(it, i));
    }
    unsigned from = n > 1 ? draw(zone, n) : 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned r = from + i < n ? from + i : from + i - n;
        if (i == 0 || counts[r] > counts[best])
            best = r;
    }
    assert(counts[best] > 0);
    return rows[best];
}

/* Of a row: how many are not being denied. */
static unsigned count_quiet(const struct weir__candidates *it, uint32_t row)
{
    unsigned n = 0;
    for (unsigned i = 0; i < it->count; i++)
        n += it->rows[i] == row && it->standings[i] == WEIR__STANDS_QUIET;
    return n;
}

/* Nearly all of a row are being denied: some have to be denied again before they count as such. */
static void age(struct weir__zone *zone, const struct weir__candidates *it, uint32_t row)
{
    for (unsigned i = 0; i < AGED; i++) {
        unsigned one = draw(zone, it->count);
        if (it->rows[one] == row && it->standings[one] == WEIR__STANDS_DENIED)
            weir__slot_allow(it->groups[one], it->slots[one]);
    }
}

/* Of a row and a standing: the lowest level, at random. */
static int choose_lowest(struct weir__zone *zone, const struct weir__candidates *it, uint32_t row,
                         enum weir__standing standing)
{
    uint8_t ties[WEIR__CANDIDATES_MAX] = {0}, level = UINT8_MAX;
    unsigned n = 0;
    for (unsigned i = 0; i < it->count; i++) {
        if (it->standings[i] != standing || it->rows[i] != row || it->levels[i] > level)
            continue;
        if (it->levels[i] < level)
            n = 0;
        level = it->levels[i];
        ties[n++] = (uint8_t)i;
    }
    assert(n > 0);
    return ties[n > 1 ? draw(zone, n) : 0];
}

int weir__candidates_choose(struct weir__zone *zone, const struct weir__candidates *it)
{
    if (it->count == 0 || !weir__may_go(zone, it->lowest))
        return -1;
    if (it->lowest == WEIR__STANDS_FRESH)
        return (int)it->count - 1; /* it was the last to be looked at */
    if (it->lowest == WEIR__STANDS_MARK)
        return choose_lowest(zone, it, WEIR__MARK_ROW, WEIR__STANDS_MARK);
    uint32_t row = fullest_row(zone, it);
    unsigned quiet = count_quiet(it, row);
    int chosen = choose_lowest(zone, it, row, quiet > 0 ? WEIR__STANDS_QUIET : WEIR__STANDS_DENIED);
    if (quiet <= FEW)
        age(zone, it, row);
    return chosen;
}

enum weir__counter weir__evicted_as(enum weir__standing standing)
{
    switch (standing) {
    case WEIR__STANDS_FRESH:
    case WEIR__STANDS_MARK:
        return WEIR__EVICTED_FRESH;
    case WEIR__STANDS_QUIET:
        return WEIR__EVICTED_UNUSED;
    case WEIR__STANDS_DENIED:
        return WEIR__EVICTED_SOONEST;
    case WEIR__STANDS_KEPT:
        break;
    }
    assert(!"a standing of one that may go");
    return WEIR__EVICTED_SOONEST;
}

/* See evict.h. */
#include "store/zone/evict.h"

#include "base/random.h"

#include <assert.h>

/* Where no more than FEW of a row are not being denied, up to AGED others lose their bit. Chosen
 * by the floods of tests/unit/zone_flood.c: more of either protects who keeps asking better, and
 * who stays away worse. */
#define FEW 1
#define AGED 8

/* Looks a row up, for all candidates in a row that have it. */
static __attribute__((noinline)) void know_row(const struct weir__zone *zone, uint32_t row,
                                               int64_t now_us, struct weir__known *ret)
{
    const struct weir__rule *rule = weir__row_at(zone, row);
    ret->row = row;
    ret->stands = row == WEIR__MARK_ROW ? WEIR__STANDS_MARK : WEIR__STANDS_QUIET;
    ret->weighed = WEIR__WEIGHED_ALONE;
    if (!rule)
        return;
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    if (algorithm->leases)
        ret->stands = WEIR__STANDS_KEPT;
    ret->generation = weir__row_generation(zone, row);
    if (weir__scale_make(rule, now_us, &ret->scale))
        ret->weighed =
            algorithm->shape == WEIR__SHAPE_PAIR ? WEIR__WEIGHED_PAIR : WEIR__WEIGHED_AMOUNT;
}

/* The level of a state by itself; one that makes no sense goes first, one that only a newer weir
 * understands goes last. */
static __attribute__((noinline)) uint8_t level_alone(const struct weir__zone *zone, uint64_t tag,
                                                     struct weir__packed sealed, int64_t now_us)
{
    struct weir__state state = {0};
    const struct weir__rule *rule;
    uint32_t unit;
    unsigned order;
    if (!weir__unpack(zone, tag, sealed, &rule, &state, &unit, &order))
        return weir__row_is_newer(zone, weir__packed_row(zone, sealed)) ? UINT8_MAX
                                                                        : WEIR__LEVEL_FRESH;
    return weir__share_level(weir__state_share(rule, &state, now_us));
}

/* The level of a slot's state, whose row is known. */
static inline uint8_t level_of(const struct weir__zone *zone, const struct weir__known *known,
                               uint64_t tag, struct weir__packed sealed, int64_t now_us)
{
    if (known->weighed == WEIR__WEIGHED_ALONE)
        return level_alone(zone, tag, sealed, now_us);
    struct weir__packed clear = weir__seal(sealed, tag, known->generation);
    int64_t at = weir__packed_at(clear);
    if (WEIR__LIKELY(known->weighed == WEIR__WEIGHED_AMOUNT))
        return weir__scale_amount(&known->scale, at, weir__packed_amount(clear));
    if (at <= known->scale.now) {
        struct weir__counts counts = weir__packed_counts(clear);
        return weir__scale_pair(&known->scale, at, counts.before, counts.now);
    }
    return level_alone(zone, tag, sealed, now_us);
}

/* `denied`: the bits of the group. */
static inline bool add_slot(struct weir__zone *zone, struct weir__candidates *it,
                            struct weir__group *group, unsigned slot, uint64_t denied,
                            int64_t now_us)
{
    struct weir__known *known = &it->known;
    unsigned i = it->count;
    assert(i < WEIR__CANDIDATES_MAX && slot < WEIR__SLOTS);
    struct weir__packed sealed = weir__load16(&group->states[slot]);
    uint32_t row = weir__packed_row(zone, sealed);
    if (WEIR__UNLIKELY(row != known->row || i == 0)) {
        it->mixed = it->mixed || i > 0;
        know_row(zone, row, now_us, known);
    }
    uint8_t level = level_of(zone, known, weir__slot_tag(group, slot), sealed, now_us);
    enum weir__standing standing = known->stands;
    standing += standing == WEIR__STANDS_QUIET && denied >> slot & 1;
    standing = level == WEIR__LEVEL_FRESH ? WEIR__STANDS_FRESH : standing;
    it->count = i + 1;
    it->groups[i] = group;
    it->judged[i] = sealed;
    it->slots[i] = (uint8_t)slot;
    it->ranks[i] = (uint16_t)(standing << 8 | level);
    it->rows[i] = row;
    if (standing < it->lowest)
        it->lowest = standing;
    return standing == WEIR__STANDS_FRESH;
}

static inline uint64_t denied_bits(const struct weir__group *group)
{
    return atomic_load_explicit(&group->head, memory_order_relaxed) >> WEIR__DENIED_AT;
}

bool weir__candidates_add_group(struct weir__zone *zone, struct weir__candidates *it,
                                struct weir__group *group, unsigned mask, int64_t now_us)
{
    uint64_t denied = denied_bits(group);
    for (unsigned slot = 0; mask != 0; slot++, mask >>= 1) {
        if (mask & 1 && add_slot(zone, it, group, slot, denied, now_us))
            return true;
    }
    return false;
}

bool weir__candidates_add(struct weir__zone *zone, struct weir__candidates *it,
                          struct weir__group *group, unsigned slot, int64_t now_us)
{
    return add_slot(zone, it, group, slot, denied_bits(group), now_us);
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
    return weir__candidate_stands(it, i) < WEIR__STANDS_KEPT;
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

/* Nearly all of a row are being denied: some have to be denied again before they count as such. */
static void age(struct weir__zone *zone, const struct weir__candidates *it, uint32_t row)
{
    for (unsigned i = 0; i < AGED; i++) {
        unsigned one = draw(zone, it->count);
        if (it->rows[one] == row && weir__candidate_stands(it, one) == WEIR__STANDS_DENIED)
            weir__slot_allow(it->groups[one], it->slots[one]);
    }
}

/* Of a row: the lowest rank, at random. *ret_quiet: how many of it are not being denied. */
static int choose_lowest(struct weir__zone *zone, const struct weir__candidates *it, uint32_t row,
                         unsigned *ret_quiet)
{
    uint8_t ties[WEIR__CANDIDATES_MAX] = {0};
    uint16_t lowest = UINT16_MAX;
    unsigned n = 0, quiet = 0;
    for (unsigned i = 0; i < it->count; i++) {
        bool of_row = !it->mixed || it->rows[i] == row;
        uint16_t rank = of_row ? it->ranks[i] : UINT16_MAX;
        quiet += rank >> 8 == WEIR__STANDS_QUIET;
        if (rank > lowest || !of_row)
            continue;
        n = rank < lowest ? 0 : n;
        lowest = rank;
        ties[n++] = (uint8_t)i;
    }
    assert(n > 0 && lowest >> 8 < WEIR__STANDS_KEPT);
    *ret_quiet = quiet;
    return ties[n > 1 ? draw(zone, n) : 0];
}

int weir__candidates_choose(struct weir__zone *zone, const struct weir__candidates *it)
{
    if (it->count == 0 || !weir__may_go(zone, it->lowest))
        return -1;
    if (it->lowest == WEIR__STANDS_FRESH)
        return (int)it->count - 1; /* it was the last to be looked at */
    unsigned quiet;
    if (it->lowest == WEIR__STANDS_MARK)
        return choose_lowest(zone, it, WEIR__MARK_ROW, &quiet);
    uint32_t row = fullest_row(zone, it);
    int chosen = choose_lowest(zone, it, row, &quiet);
    if (quiet <= FEW)
        age(zone, it, row);
    return chosen;
}

void weir__count_evicted(struct weir__zone *zone, const struct weir__group *group,
                         enum weir__standing standing)
{
    uint64_t *counters =
        zone->stripes[weir__stripe_of(zone, (uint32_t)(group - zone->groups))].counters;
    assert(standing < WEIR__STANDS_KEPT);
    switch (standing) {
    case WEIR__STANDS_FRESH:
        counters[WEIR__EVICTED_FRESH]++;
        break;
    case WEIR__STANDS_MARK:
        weir__count_mark_lost(zone);
        break;
    case WEIR__STANDS_QUIET:
        counters[WEIR__EVICTED_UNUSED]++;
        break;
    case WEIR__STANDS_DENIED:
    case WEIR__STANDS_KEPT:
        counters[WEIR__EVICTED_SOONEST]++;
        break;
    }
}

/*
 * The index of rows: from a rule to its row, by hash. Words of 32 bits with open addressing: row 20
 * bits, and in the other 12 how far the word lies from where the rule's hash points. So most words
 * of other rules are passed by without looking at their rows, and a word can be moved without
 * knowing its rule.
 *
 * A word is a guess. It counts only if the row is in use and is that very rule, before and after it
 * was compared, so readers need no lock. Words are added by one store and taken out by moving later
 * ones back, each before its old place is given up. A death in between leaves a word twice or one
 * of a row that is gone, and both do no harm: rows are compared, removal takes out all words of a
 * row, and words of free rows are overwritten.
 */
#include "store/zone/rows.h"

#include "base/hash.h"

#include <string.h>

#define ROW_MASK ((UINT32_C(1) << WEIR__ROW_BITS) - 1)
#define AWAY_MAX ((UINT32_C(1) << (32 - WEIR__ROW_BITS)) - 1)

static uint32_t index_home(const struct weir__zone *zone, const struct weir__rule *rule)
{
    uint64_t hash[2];
    struct weir__rule plain = *rule;
    plain.generation = 0;
    weir__hash(zone->secret, &plain, sizeof plain, hash);
    return (uint32_t)((hash[0] >> 32) * zone->layout.index_words >> 32);
}

static inline _Atomic uint32_t *index_at(const struct weir__zone *zone, uint32_t home,
                                         uint32_t away)
{
    uint32_t at = home + away;
    return &zone->index[at < zone->layout.index_words ? at : at - zone->layout.index_words];
}

static inline uint32_t index_load(const struct weir__zone *zone, uint32_t home, uint32_t away)
{
    return atomic_load_explicit(index_at(zone, home, away), memory_order_acquire);
}

static inline uint32_t index_most_away(const struct weir__zone *zone)
{
    return zone->layout.index_words - 1 < AWAY_MAX ? zone->layout.index_words - 1 : AWAY_MAX;
}

/* Whether a row in use is this rule; its generation, or 0: it is not. The row may change meanwhile:
 * its generation is odd before the first byte of it does. */
static uint32_t index_compare(const struct weir__rule *row, const struct weir__rule *rule)
{
    const uint64_t *there = (const uint64_t *)row, *wanted = (const uint64_t *)rule;
    const struct weir__rule mask = {.generation = UINT16_MAX};
    uint64_t ignored, differs = 0;
    memcpy(&ignored, &mask, sizeof ignored);
    uint32_t generation = __atomic_load_n(&row->generation, __ATOMIC_ACQUIRE);
    for (size_t i = 0; i < sizeof *row / sizeof *there; i++) {
        uint64_t word = __atomic_load_n(&there[i], __ATOMIC_ACQUIRE);
        differs |= (word ^ wanted[i]) & (i == 0 ? ~ignored : ~UINT64_C(0));
    }
    bool same = differs == 0 && generation % 2 == 0 &&
                __atomic_load_n(&row->generation, __ATOMIC_ACQUIRE) == generation;
    return same ? generation : 0;
}

uint32_t weir__index_find(const struct weir__zone *zone, const struct weir__rule *rule,
                          uint32_t *ret_generation)
{
    uint32_t home = index_home(zone, rule), most = index_most_away(zone);
    for (uint32_t away = 0; away <= most; away++) {
        uint32_t word = index_load(zone, home, away);
        if (word == 0)
            return 0;
        if (word >> WEIR__ROW_BITS != away)
            continue;
        const struct weir__rule *row = weir__row_place(zone, word & ROW_MASK);
        uint32_t generation = row ? index_compare(row, rule) : 0;
        if (generation) {
            *ret_generation = generation;
            return word & ROW_MASK;
        }
    }
    return 0;
}

bool weir__index_add(struct weir__zone *zone, const struct weir__rule *rule, uint32_t row)
{
    uint32_t home = index_home(zone, rule), most = index_most_away(zone);
    for (uint32_t away = 0; away <= most; away++) {
        uint32_t word = index_load(zone, home, away);
        bool gone = word && (!weir__row_place(zone, word & ROW_MASK) ||
                             !weir__row_is_taken(zone, weir__bit_of_row(zone, word & ROW_MASK)));
        if (word && !gone)
            continue;
        atomic_store_explicit(index_at(zone, home, away), row | away << WEIR__ROW_BITS,
                              memory_order_release);
        return true;
    }
    return false;
}

/* Takes one word out, moving back those behind it that may come nearer to where they belong. */
static void index_close_gap(struct weir__zone *zone, uint32_t home, uint32_t gap)
{
    for (uint32_t next = gap + 1; next - gap <= AWAY_MAX && next < zone->layout.index_words;
         next++) {
        uint32_t word = index_load(zone, home, next), away = word >> WEIR__ROW_BITS;
        if (word == 0)
            break;
        if (away < next - gap)
            continue;
        atomic_store_explicit(index_at(zone, home, gap), word - ((next - gap) << WEIR__ROW_BITS),
                              memory_order_release);
        gap = next;
    }
    atomic_store_explicit(index_at(zone, home, gap), 0, memory_order_release);
}

void weir__index_remove(struct weir__zone *zone, const struct weir__rule *rule, uint32_t row)
{
    uint32_t home = index_home(zone, rule), most = index_most_away(zone);
    for (uint32_t away = 0; away <= most; away++) {
        uint32_t word = index_load(zone, home, away);
        if (word == 0)
            return;
        if (word == (row | away << WEIR__ROW_BITS))
            index_close_gap(zone, home, away--); /* what came here is looked at, too */
    }
}

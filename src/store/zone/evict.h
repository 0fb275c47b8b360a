/*
 * Who goes where there is no room: one order for slots of the table and for blocks.
 *
 *   1. states that are fresh: nobody can tell;
 *   2. marks of settled receipts;
 *   3. states of the row that has most of those in reach: a flood pays with the states of its own
 *      limit. Leases never go;
 *   4. of these one whose last take was not denied, before those that are being denied;
 *   5. the smallest share of its limit that forgetting gives back, in steps of a quarter or less;
 *   6. at random. Any other rule, like the oldest first, tells a flood how to push out a certain
 *      key.
 *
 * Whether a state was denied is one bit in its group's head: set by a denial, cleared by the next
 * charge. Where nearly all are being denied, some of them lose their bit. Who keeps asking gets it
 * back before the next one has to go; a flood of keys that were denied once does not.
 */
#ifndef WEIR_ZONE_EVICT_H
#define WEIR_ZONE_EVICT_H

#include "core/scale.h"
#include "store/zone/zone.h"

#define WEIR__CANDIDATES_MAX (WEIR__REACH * WEIR__SLOTS)

/* In the order in which they go. */
enum weir__standing {
    WEIR__STANDS_FRESH,
    WEIR__STANDS_MARK,
    WEIR__STANDS_QUIET,  /* live, its last take was not denied … */
    WEIR__STANDS_DENIED, /* … or it was */
    WEIR__STANDS_KEPT    /* a live lease */
};

/* How the states of a row are weighed. */
enum weir__weighed {
    WEIR__WEIGHED_ALONE,  /* each by itself */
    WEIR__WEIGHED_AMOUNT, /* a time and an amount, on a scale */
    WEIR__WEIGHED_PAIR    /* a time and two counts, on a scale */
};

/* A row of candidates. Where it is damaged, each is looked at alone. */
struct weir__known {
    uint32_t row, generation;
    enum weir__standing stands; /* those of it that are live and not denied */
    enum weir__weighed weighed;
    struct weir__scale scale;
};

/* The occupied slots that one of has to go, in any order. Its user adds each once, under the
 * lock of its stripe. */
struct weir__candidates {
    unsigned count;
    enum weir__standing lowest;
    bool mixed;                           /* of several rows */
    uint16_t ranks[WEIR__CANDIDATES_MAX]; /* standing, then the level of the share: lowest first */
    uint8_t slots[WEIR__CANDIDATES_MAX];
    uint32_t rows[WEIR__CANDIDATES_MAX];
    struct weir__group *groups[WEIR__CANDIDATES_MAX];
    struct weir__packed judged[WEIR__CANDIDATES_MAX]; /* by this state; it may be another by now */
    struct weir__known known;                         /* of the row of the last one added */
};

static inline void weir__candidates_begin(struct weir__candidates *it)
{
    it->count = 0;
    it->mixed = false;
    it->lowest = WEIR__STANDS_KEPT;
}

static inline enum weir__standing weir__candidate_stands(const struct weir__candidates *it,
                                                         unsigned i)
{
    assert(i < it->count);
    return (enum weir__standing)(it->ranks[i] >> 8);
}

/* Adds a slot that is not empty. True: it is fresh, and so the last one added is the one to go. */
bool weir__candidates_add(struct weir__zone *zone, struct weir__candidates *it,
                          struct weir__group *group, unsigned slot, int64_t now_us);
/* Likewise the slots of a group that are in a mask. */
bool weir__candidates_add_group(struct weir__zone *zone, struct weir__candidates *it,
                                struct weir__group *group, unsigned mask, int64_t now_us);
/* Which of them goes: an index, or -1 where none may (with full=deny no live one). May clear
 * bits of others. */
int weir__candidates_choose(struct weir__zone *zone, const struct weir__candidates *it);

/* Whether a state of that standing may go in this zone: with full=deny no live one does. */
static inline bool weir__may_go(const struct weir__zone *zone, enum weir__standing standing)
{
    return standing <= (zone->keeps ? WEIR__STANDS_MARK : WEIR__STANDS_DENIED);
}

/* Counts an eviction. The stripe of the group is held. */
void weir__count_evicted(struct weir__zone *zone, const struct weir__group *group,
                         enum weir__standing standing);

#endif

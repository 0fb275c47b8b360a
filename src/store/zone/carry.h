/*
 * States on their way from one zone to another, or to a text and back: one routine that walks every
 * state of a zone, and one that puts a state into another. A state's place follows from its tag,
 * and its tag from the key and the secret. So a zone with the same secret finds it, whatever its
 * size is.
 */
#ifndef WEIR_CARRY_H
#define WEIR_CARRY_H

#include "store/zone/zone.h"

struct weir__carried {
    uint64_t tag;
    struct weir__rule rule;   /* the limit as it was last charged under; weir__mark_rule: a mark */
    struct weir__state state; /* the cells of a ring are the source's */
    bool denied;
};

/* A state is borrowed for the call. With a lock held: it must not wait. 0, or a code that ends the
 * walk. */
typedef int weir__visit(const struct weir__carried *it, void *context, weir_error *err);

/* Every state and mark of a page, at one instant; pages: zone->layout.pages. A key lies in one
 * page. */
int weir__zone_walk_page(struct weir__zone *zone, uint32_t page, weir__visit *visit, void *context,
                         weir_error *err);
/* Every page, one after the other. */
int weir__zone_walk(struct weir__zone *zone, weir__visit *visit, void *context, weir_error *err);

/* What is wrong with one from elsewhere, whose rule is sound; NULL: nothing. */
const char *weir__carried_flaw(const struct weir__carried *it);

/* Puts one into a zone. Of two states of one key and limit the later stays; of two of the same
 * time, the one with more charged. WEIR_EFULL: there is no room for its limit or its cells. A mark
 * without room is left out. */
int weir__zone_put(struct weir__zone *zone, const struct weir__carried *it, int64_t now_us,
                   weir_error *err);

/* ---- zone/version1.c: zones of version 1, which earlier programs made ---- */

#define WEIR__ZONE1_VERSION 1

struct weir__zone1 {
    const uint8_t *base;
    uint64_t size;
    uint64_t secret[2];
    unsigned large_percent;
};

/* Checks header and layout; the memory is only read. */
int weir__zone1_attach(const uint8_t *base, uint64_t size, struct weir__zone1 *ret,
                       weir_error *err);
/* Every state and mark. Nobody changes it meanwhile. */
int weir__zone1_walk(const struct weir__zone1 *zone, weir__visit *visit, void *context,
                     weir_error *err);

#endif

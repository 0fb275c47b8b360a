/* See carry.h. */
#include "store/zone/carry.h"

#include "core/ring.h"

#include <string.h>

#define STORED_MOST 0x1p512 /* permits that a slot can hold, and more than any limit saves */

/* ---- walking ---- */

/* One slot that is not empty. What a death may leave of a log that began again is nothing. */
static int carry_visit_slot(struct weir__zone *zone, const struct weir__group *group, unsigned slot,
                            weir__visit *visit, void *context, weir_error *err)
{
    struct weir__carried it = {.tag = weir__slot_tag(group, slot),
                               .denied = weir__slot_denied(group, slot)};
    const struct weir__rule *rule;
    uint32_t unit;
    unsigned order;
    if (!weir__slot_unpack(zone, group, slot, &rule, &it.state, &unit, &order)) {
        uint32_t row = weir__slot_row(zone, group, slot);
        return weir__row_is_newer(zone, row)
                   ? weir__zone_fail_newer(err, zone, row)
                   : weir__zone_fail_slot(err, "a state is invalid",
                                          (uint64_t)(group - zone->groups), slot);
    }
    it.rule = *rule;
    it.rule.generation = 0;
    if (weir__is_large(rule) && it.state.ring.len == 0)
        return 0;
    return visit(&it, context, err);
}

int weir__zone_walk_page(struct weir__zone *zone, uint32_t page, weir__visit *visit, void *context,
                         weir_error *err)
{
    assert(page < zone->layout.pages);
    uint64_t first = (uint64_t)page << zone->layout.page_bits;
    uint64_t last = (uint64_t)(page + 1) << zone->layout.page_bits;
    uint32_t stripe = weir__stripe_of(zone, (uint32_t)first);
    int code = 0;
    if (!weir__page_lock(zone, (uint32_t)first))
        return weir__fail(err, WEIR_EBUSY, 0,
                          "another process holds a lock of the zone; is it stopped?");
    for (uint64_t g = first; g < last && code == 0; g++) {
        for (unsigned slot = 0; slot < WEIR__SLOTS && code == 0; slot++) {
            if (weir__slot_tag(&zone->groups[g], slot))
                code = carry_visit_slot(zone, &zone->groups[g], slot, visit, context, err);
        }
    }
    weir__stripe_unlock(zone, stripe);
    return code;
}

int weir__zone_walk(struct weir__zone *zone, weir__visit *visit, void *context, weir_error *err)
{
    int code = 0;
    for (uint32_t page = 0; page < zone->layout.pages && code == 0; page++)
        code = weir__zone_walk_page(zone, page, visit, context, err);
    return code;
}

/* ---- judging what comes from elsewhere ---- */

static const char *carry_ring_flaw(const struct weir__rule *rule, const struct weir__state *state)
{
    const struct weir__ring *ring = &state->ring;
    int64_t sum = 0, last = 0;
    if (ring->len < 1 || ring->len > WEIR__CELLS_MAX)
        return "it has too few or too many entries";
    for (uint32_t i = 0; i < ring->len; i++) {
        const struct weir__cell *cell = weir__ring_cell(ring, i);
        int64_t weight = weir__cell_weight(rule, cell);
        if (cell->stamp < last)
            return "its entries are out of order";
        if (weight < 1 || weight > WEIR__EXACT_MAX - sum)
            return "an entry has no weight, or too much";
        last = cell->stamp;
        sum += weight;
    }
    if (sum != ring->sum)
        return "its entries do not add up";
    int64_t ahead = weir__algorithm_of(rule)->leases ? WEIR_DURATION_MAX : 0;
    bool newest = ahead ? last <= state->at + ahead : last == state->at;
    return newest ? NULL : "its newest entry is not its newest";
}

const char *weir__carried_flaw(const struct weir__carried *it)
{
    const struct weir__rule *rule = &it->rule;
    const struct weir__state *state = &it->state;
    if (it->tag == 0)
        return "its tag is 0";
    if (weir__is_mark(rule)) {
        bool mark = !memcmp(rule, &weir__mark_rule, sizeof *rule);
        return mark && state->amount == 1 && state->at >= 1 && weir__state_sound(rule, state)
                   ? NULL
                   : "the mark is invalid";
    }
    if (!weir__state_sound(rule, state))
        return "a number is out of bounds";
    switch (weir__algorithm_of(rule)->shape) {
    case WEIR__SHAPE_DEBT:
    case WEIR__SHAPE_COUNT:
        return state->amount >= 1 ? NULL : "nothing is charged in it";
    case WEIR__SHAPE_PAIR:
        return state->amount + state->before >= 1 ? NULL : "nothing is charged in it";
    case WEIR__SHAPE_PERMITS:
        return state->stored >= 0 && state->stored < STORED_MOST ? NULL
                                                                 : "the permits are out of bounds";
    case WEIR__SHAPE_RING:
        break;
    }
    return carry_ring_flaw(rule, state);
}

/* ---- putting ---- */

/* Whether a state that is there stays, and another one of its key and limit does not come. */
static bool carry_stays(const struct weir__rule *rule, const struct weir__state *there,
                        const struct weir__state *other)
{
    if (there->at != other->at || weir__algorithm_of(rule)->shape == WEIR__SHAPE_PERMITS)
        return there->at >= other->at;
    if (weir__is_large(rule))
        return there->ring.sum >= other->ring.sum;
    return there->amount + there->before >= other->amount + other->before;
}

/* Room for the ring of an op that has none: as if its last cells were charged now. */
static int carry_put_ring(struct weir__zone *zone, struct weir__op *op,
                          const struct weir__ring *from)
{
    uint32_t last = 1u + weir__algorithm_of(op->rule)->leases; /* what is asked room for */
    op->state.ring = *from;
    op->state.ring.len = from->len < last ? 0 : from->len - last;
    op->has_block = false;
    int code = weir__ring_reserve(zone, op, op, 1);
    if (code)
        return code;
    for (uint32_t i = op->state.ring.len; i < from->len; i++)
        weir__ring_append(&op->state.ring, *weir__ring_cell(from, i));
    return 0;
}

/* The stripe's lock is held. */
static int carry_put(struct weir__zone *zone, struct weir__op *op, const struct weir__carried *it)
{
    int code = weir__table_find(zone, op);
    if (code)
        return code;
    if (op->group && carry_stays(op->rule, &op->state, &it->state))
        return 0;
    if (op->group)
        weir__slot_clear(zone, op->group, op->slot);
    op->group = NULL;
    code = weir__table_place(zone, op, op, 1);
    if (code)
        return code;
    op->state = it->state;
    op->state.ring_header = NULL;
    if (weir__is_large(op->rule))
        code = carry_put_ring(zone, op, &it->state.ring);
    if (code)
        return code;
    weir__table_write(zone, op);
    if (it->denied)
        weir__slot_deny(op->group, op->slot);
    return 0;
}

int weir__zone_put(struct weir__zone *zone, const struct weir__carried *it, int64_t now_us,
                   weir_error *err)
{
    bool mark = weir__is_mark(&it->rule);
    struct weir__op op = {.rule = &it->rule,
                          .row = WEIR__MARK_ROW,
                          .tag = it->tag,
                          .home = weir__home_of(zone, it->tag),
                          .request = {now_us, 1, 0}};
    assert(!weir__carried_flaw(it));
    if (!mark)
        op.row = weir__row_find(zone, &it->rule, now_us, &op.generation);
    if (!mark && !op.row)
        return weir__fail(err, WEIR_EFULL, 0,
                          "it has no room for so many different limits; use a "
                          "larger size");
    int64_t since_us = 0;
    int code;
    do {
        if (!weir__page_lock(zone, op.home))
            return weir__fail(err, WEIR_EBUSY, 0,
                              "another process holds a lock of the zone; is it stopped?");
        code = carry_put(zone, &op, it);
        weir__stripe_unlock(zone, weir__stripe_of(zone, op.home));
    } while (code == WEIR__WANTED && weir__zone_waits(zone, &since_us));
    if (code == WEIR__WANTED || code == WEIR__HELD)
        return weir__fail(err, WEIR_EBUSY, 0, "there was no room in time; open it again");
    if (code == 0 || (mark && code == WEIR_EFULL))
        return 0;
    return weir__fail(err, code, 0,
                      "%s; use a larger size or a larger share for large=", weir_strerror(code));
}

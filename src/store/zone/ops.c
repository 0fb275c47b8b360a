/* Requests to ops: rows for limits, places for keys; see ops.h. */
#include "store/zone/ops.h"

#include "store/zone/rows.h"

#define BEHIND_RETRIES 8 /* others served between reading the clock and locking */

uint64_t weir__key_tag(const struct weir__zone *zone, weir_key key)
{
    uint64_t hash[2];
    weir__key_hash_of(zone, key, hash);
    return weir__tag_of(hash);
}

/* A log grows by moving to a block twice the size, and blocks lie at multiples of it: with two
 * places for the largest, one is never in its own way. Leases fill half of the units at most, and
 * while they move they have both blocks. */
bool weir__zone_fits(const struct weir__layout *layout, const struct weir__rule *rule)
{
    if (!weir__is_large(rule))
        return true;
    bool leases = weir__algorithm_of(rule)->leases;
    unsigned order = weir__order_for(weir__rule_cells(rule) + leases); /* one to spare */
    uint64_t size = UINT64_C(1) << order;
    if (leases && (size + (order > 0 ? size / 2 : 0)) * 2 > layout->units)
        return false;
    return size << (order > 0) <= layout->units;
}

/* Finds the row of a limit the hint knows nothing of; 0: no room. */
static uint64_t ops_find_row(struct weir__zone *zone, const weir_limit *limit, size_t i,
                             int64_t now_us)
{
    uint32_t generation;
    if (!weir__zone_fits(&zone->layout, &limit->rules[i]))
        return 0;
    uint64_t row = weir__row_find(zone, &limit->rules[i], now_us, &generation);
    if (row)
        row |= zone->serial << WEIR__HINT_SERIAL_AT | (uint64_t)generation
                                                          << WEIR__HINT_GENERATION_AT;
    /* Whoever reads the hint may name the row in a slot: it must see the row whole. */
    atomic_store_explicit((_Atomic uint64_t *)&limit->hints[i], row, memory_order_release);
    return row;
}

/* A peek changes nothing: where the limit has no row, none is made for it. False: its states would
 * not fit. */
static bool ops_peek_row(const struct weir__zone *zone, const weir_limit *limit, size_t i,
                         struct weir__op *op)
{
    if (!weir__zone_fits(&zone->layout, &limit->rules[i]))
        return false;
    op->generation = WEIR__NO_ROW;
    uint32_t row = weir__index_find(zone, &limit->rules[i], &op->generation);
    op->row = row ? row : WEIR__NO_ROW;
    return true;
}

/* The row of limit i, by its hint or by searching; false: no room. */
static bool ops_set_row(struct weir__zone *zone, const weir_limit *limit, size_t i,
                        enum weir__mode mode, int64_t now_us, struct weir__op *op)
{
    uint64_t hint = atomic_load_explicit(&limit->hints[i], memory_order_acquire);
    if (WEIR__UNLIKELY(!weir__hint_is_of(zone, hint))) {
        if (mode == WEIR__PEEK)
            return ops_peek_row(zone, limit, i, op);
        hint = ops_find_row(zone, limit, i, now_us);
    }
    op->row = weir__hint_row(hint);
    op->generation = weir__hint_generation(hint);
    return op->row != 0;
}

void weir__hints_forget(const weir_limit *limit)
{
    for (size_t i = 0; i < limit->count; i++)
        atomic_store((_Atomic uint64_t *)&limit->hints[i], 0);
}

int weir__no_row(struct weir__zone *zone)
{
    return weir__zone_is_held(zone) ? WEIR_EBUSY : WEIR_EFULL;
}

bool weir__deny_full(const struct weir__zone *zone, const weir_limit *limit, int64_t now_us,
                     int64_t cost, weir_decision *rows)
{
    for (size_t i = 0; i < limit->count; i++) {
        const struct weir__rule *rule = &limit->rules[i];
        const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
        struct weir__state state = {0};
        struct weir__request request = {now_us, weir__limit_asked(limit, i, cost),
                                        weir__wait_for(rule, WEIR_WAIT_ANY)};
        if (!zone->full_denies || !weir__zone_fits(&zone->layout, rule))
            return false;
        rows[i] = (weir_decision){.time_us = now_us};
        weir__load(rule, NULL, &state, now_us);
        algorithm->judge(rule, &state, &request, &rows[i]);
        algorithm->report(rule, &state, now_us, &rows[i]);
        rows[i].allowed = false;
        rows[i].full = true;
        rows[i].delay_us = rows[i].remaining = 0;
        rows[i].retry_after_us = WEIR__FULL_RETRY_US;
    }
    return true;
}

bool weir__op_set(struct weir__zone *zone, const weir_limit *limit, size_t i, enum weir__mode mode,
                  uint64_t tag, int64_t now_us, int64_t cost, int64_t wait_us, struct weir__op *op)
{
    op->rule = &limit->rules[i];
    op->tag = tag;
    op->home = weir__home_of(zone, tag);
    op->request.now_us = now_us;
    op->request.cost = cost;
    op->request.wait_us = weir__wait_for(op->rule, wait_us);
    op->lease_id = 0;
    op->ahead_us = 0;
    return ops_set_row(zone, limit, i, mode, now_us, op);
}

int weir__ops_add(struct weir__zone *zone, const weir_request *request, enum weir__mode mode,
                  int64_t least, uint64_t *lease, uint64_t tag, int64_t now_us,
                  struct weir__op *ops, weir_decision *rows)
{
    if (request->acquire && !*lease)
        *lease = weir__request_lease(request);
    if (request->acquire && !*lease && weir__lease_id(lease))
        return WEIR_ESYSTEM;
    int64_t judged = request->least ? least : request->cost;
    for (size_t i = 0; i < request->limit->count; i++) {
        int64_t cost = weir__limit_asked(request->limit, i, judged);
        if (!weir__op_set(zone, request->limit, i, mode, tag, now_us, cost, request->wait_us,
                          &ops[i]))
            return weir__no_row(zone);
        ops[i].lease_id = request->acquire ? *lease : 0;
        ops[i].ret = rows ? &rows[i] : NULL;
    }
    return (int)request->limit->count;
}

void weir__catch_up(weir_store *store, const struct weir__op *ops, int tries, int64_t *now,
                    int64_t *ahead)
{
    int64_t later = weir__store_now(store);
    if (later >= ops->ahead_us)
        *now = later;
    else
        *ahead = ops->ahead_us;
    if (tries >= BEHIND_RETRIES)
        *ahead = INT64_MAX;
}

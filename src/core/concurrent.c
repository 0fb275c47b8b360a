/*
 * Concurrency: a sliding log whose entries can be released early. A cell is a lease: its expiry, its
 * id and the slots it holds; cells stand in the order of their expiries. `at` is the newest acquire
 * or renewal.
 */
#include "core/algorithms.h"
#include "core/ring.h"

static int64_t slots(const struct weir__cell *cell)
{
    return (int64_t)(cell->lease & ((UINT64_C(1) << WEIR__LEASE_SHIFT) - 1));
}

void weir__concurrent_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us)
{
    (void)rule;
    struct weir__ring *ring = &state->ring;
    state->now_us = state->present ? weir__max(now_us, state->at) : now_us;
    while (ring->len > 0 && weir__ring_cell(ring, 0)->stamp <= state->now_us) {
        ring->sum -= slots(weir__ring_cell(ring, 0));
        weir__ring_shift(ring);
    }
}

void weir__concurrent_judge(const struct weir__rule *rule, const struct weir__state *state,
                            const struct weir__request *request, weir_decision *ret)
{
    const struct weir__ring *ring = &state->ring;
    int64_t excess = ring->sum + request->cost - rule->count;
    ret->limit = rule->count;
    ret->allowed = excess <= 0;
    if (ret->allowed)
        return;
    ret->retry_after_us = WEIR_NEVER;
    if (request->cost > rule->count)
        return;
    uint32_t i = 0;
    while ((excess -= slots(weir__ring_cell(ring, i))) > 0)
        i++;
    ret->retry_after_us = weir__ring_cell(ring, i)->stamp - request->now_us;
}

/* Leases may differ in length, so a new one may belong before others. */
static void insert(struct weir__ring *ring, struct weir__cell cell)
{
    weir__ring_append(ring, cell);
    for (uint32_t i = ring->len - 1; i > 0 && weir__ring_cell(ring, i - 1)->stamp > cell.stamp;
         i--) {
        *weir__ring_cell(ring, i) = *weir__ring_cell(ring, i - 1);
        *weir__ring_cell(ring, i - 1) = cell;
    }
}

void weir__lease_acquire(const struct weir__rule *rule, struct weir__state *state, int64_t cost,
                         uint64_t id)
{
    struct weir__cell cell = {state->now_us + rule->period_us,
                              {.lease = id << WEIR__LEASE_SHIFT | (uint64_t)cost}};
    insert(&state->ring, cell);
    state->ring.sum += cost;
    state->at = state->now_us;
    state->present = true;
}

/* A take: a lease under id 0, which nobody can name. */
void weir__concurrent_charge(const struct weir__rule *rule, struct weir__state *state,
                             const struct weir__request *request)
{
    weir__lease_acquire(rule, state, request->cost, 0);
}

void weir__concurrent_report(const struct weir__rule *rule, const struct weir__state *state,
                             int64_t now_us, weir_decision *ret)
{
    const struct weir__ring *ring = &state->ring;
    ret->remaining = weir__max(0, rule->count - ring->sum);
    if (ring->len > 0)
        ret->reset_after_us = weir__ring_last(ring)->stamp - now_us;
}

/* Index of a lease, or len. */
static uint32_t find(const struct weir__ring *ring, uint64_t id)
{
    uint32_t i = 0;
    while (i < ring->len && weir__ring_cell(ring, i)->lease >> WEIR__LEASE_SHIFT != id)
        i++;
    return id == 0 ? ring->len : i;
}

bool weir__lease_renew(const struct weir__rule *rule, struct weir__state *state, uint64_t id)
{
    struct weir__ring *ring = &state->ring;
    uint32_t i = find(ring, id);
    if (i == ring->len)
        return false;
    struct weir__cell cell = *weir__ring_cell(ring, i);
    weir__ring_remove(ring, i);
    cell.stamp = state->now_us + rule->period_us;
    insert(ring, cell);
    state->at = state->now_us;
    return true;
}

bool weir__lease_release(struct weir__state *state, uint64_t id)
{
    struct weir__ring *ring = &state->ring;
    uint32_t i = find(ring, id);
    if (i == ring->len)
        return false;
    ring->sum -= slots(weir__ring_cell(ring, i));
    weir__ring_remove(ring, i);
    state->present = ring->len > 0;
    return true;
}

int64_t weir__concurrent_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    (void)rule;
    return state->ring.len > 0 ? weir__ring_last(&state->ring)->stamp : 0;
}

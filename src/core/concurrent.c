/*
 * Concurrency: a sliding log whose entries can be released early. A cell is a lease: its expiry,
 * its id and the slots it holds; cells stand in the order of their expiries. `at` is the newest
 * acquire or renewal.
 */
#include "core/ring.h"

static void concurrent_load(const struct weir__rule *rule, struct weir__state *state,
                            int64_t now_us)
{
    (void)rule;
    struct weir__ring *ring = &state->ring;
    state->now_us = state->present ? weir__max(now_us, state->at) : now_us;
    while (ring->len > 0 && weir__ring_cell(ring, 0)->stamp <= state->now_us) {
        ring->sum -= weir__lease_slots(weir__ring_cell(ring, 0));
        weir__ring_shift(ring);
    }
}

static void concurrent_judge(const struct weir__rule *rule, const struct weir__state *state,
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
    uint32_t i = 0; /* the last to go at the latest, even where damage made their sum a lie */
    while (i + 1 < ring->len && (excess -= weir__lease_slots(weir__ring_cell(ring, i))) > 0)
        i++;
    ret->retry_after_us = weir__ring_cell(ring, i)->stamp - request->now_us;
}

/* Leases may differ in length, so a new one may belong before others: its index. Whatever moment a
 * death picks, no other lease is missing: they move up one by one, once the ring is one longer. */
static uint32_t lease_insert(struct weir__state *state, struct weir__cell cell)
{
    struct weir__ring *ring = &state->ring;
    uint32_t at = ring->len;
    while (at > 0 && weir__ring_cell(ring, at - 1)->stamp > cell.stamp)
        at--;
    weir__state_append(state, at < ring->len ? *weir__ring_last(ring) : cell);
    if (at + 1 == ring->len)
        return at;
    weir__ring_publish(state);
    for (uint32_t i = ring->len - 2; i > at; i--) {
        *weir__ring_cell(ring, i) = *weir__ring_cell(ring, i - 1);
        atomic_signal_fence(memory_order_seq_cst);
    }
    *weir__ring_cell(ring, at) = cell;
    return at;
}

void weir__lease_acquire(const struct weir__rule *rule, struct weir__state *state, int64_t cost,
                         uint64_t id)
{
    assert(cost >= 1 && cost < 1 << WEIR__LEASE_SHIFT && id <= WEIR__LEASE_MASK);
    struct weir__cell cell = {state->now_us + rule->period_us,
                              {.lease = id << WEIR__LEASE_SHIFT | (uint64_t)cost}};
    lease_insert(state, cell);
    state->ring.sum += cost;
    state->at = state->now_us;
    state->present = true;
}

/* A take: a lease under id 0, which nobody can name. */
static void concurrent_charge(const struct weir__rule *rule, struct weir__state *state,
                              const struct weir__request *request)
{
    weir__lease_acquire(rule, state, request->cost, 0);
}

static void concurrent_report(const struct weir__rule *rule, const struct weir__state *state,
                              int64_t now_us, weir_decision *ret)
{
    const struct weir__ring *ring = &state->ring;
    ret->remaining = weir__max(0, rule->count - ring->sum);
    if (ring->len > 0)
        ret->reset_after_us = weir__ring_last(ring)->stamp - now_us;
}

/* Index of a lease, or len. */
static uint32_t lease_find(const struct weir__ring *ring, uint64_t id)
{
    uint32_t i = 0;
    while (i < ring->len && weir__ring_cell(ring, i)->lease >> WEIR__LEASE_SHIFT != id)
        i++;
    return id == 0 ? ring->len : i;
}

/* Moves lease i to where its new expiry belongs. Where others look, and there is a cell to spare,
 * the new one is in before the old one goes. */
static void lease_move(struct weir__state *state, uint32_t i, struct weir__cell cell)
{
    struct weir__ring *ring = &state->ring;
    if (!state->ring_header || ring->len == ring->capacity) {
        weir__ring_remove(ring, i);
        lease_insert(state, cell);
        return;
    }
    uint32_t at = lease_insert(state, cell);
    weir__ring_publish(state);
    weir__ring_remove(ring, at <= i ? i + 1 : i);
}

bool weir__lease_renew(const struct weir__rule *rule, struct weir__state *state, uint64_t id)
{
    struct weir__ring *ring = &state->ring;
    uint32_t i = lease_find(ring, id);
    if (i == ring->len)
        return false;
    struct weir__cell cell = *weir__ring_cell(ring, i);
    cell.stamp = state->now_us + rule->period_us;
    lease_move(state, i, cell);
    state->at = state->now_us;
    return true;
}

bool weir__lease_release(struct weir__state *state, uint64_t id)
{
    struct weir__ring *ring = &state->ring;
    uint32_t i = lease_find(ring, id);
    if (i == ring->len)
        return false;
    ring->sum -= weir__lease_slots(weir__ring_cell(ring, i));
    weir__ring_remove(ring, i);
    state->present = ring->len > 0;
    return true;
}

static int64_t concurrent_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    (void)rule;
    return state->ring.len > 0 ? weir__ring_last(&state->ring)->stamp : 0;
}

/* For those who compare: stores evict no leases. */
static uint32_t concurrent_share(const struct weir__rule *rule, const struct weir__state *state,
                                 int64_t now_us)
{
    if (now_us >= concurrent_fresh_at(rule, state))
        return 0;
    return weir__share_of(state->ring.sum, rule->count);
}

static const char *concurrent_flaw(const struct weir__rule *rule)
{
    return rule->count > WEIR__LOG_COUNT_MAX ? "the count is at most 100k here" : NULL;
}

const struct weir__algorithm weir__algorithm_concurrent = {
    .name = "concurrent",
    .full_name = "concurrent",
    .example = "concurrent 20 lease 30s",
    .shape = WEIR__SHAPE_RING,
    .leases = true,
    .load = concurrent_load,
    .judge = concurrent_judge,
    .charge = concurrent_charge,
    .report = concurrent_report,
    .fresh_at = concurrent_fresh_at,
    .share = concurrent_share,
    .flaw = concurrent_flaw,
    .most = weir__rule_count,
    .window_us = weir__rule_period_us,
    .ahead_us = weir__rule_period_us,
    .flood_us = weir__rule_period_us,
};

/*
 * What sliding log and sliding window share: cells of (stamp, count), each counting whole while
 * t' < stamp + W. They differ only in how a charge joins the newest cell.
 */
#include "core/ring.h"

void weir__ring_remove(struct weir__ring *ring, uint32_t i)
{
    for (; i + 1 < ring->len; i++) {
        *weir__ring_cell(ring, i) = *weir__ring_cell(ring, i + 1);
        atomic_signal_fence(memory_order_seq_cst);
    }
    ring->len--;
}

bool weir__stamps_join(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t slot = rule->kind == WEIR__SLIDING_WINDOW ? rule->extra : 1;
    return state->ring.len > 0 &&
           weir__ring_last(&state->ring)->stamp / slot == state->now_us / slot;
}

void weir__stamps_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us)
{
    struct weir__ring *ring = &state->ring;
    state->now_us = state->present ? weir__max(now_us, state->at) : now_us;
    while (ring->len > 0 && weir__ring_cell(ring, 0)->stamp + rule->period_us <= state->now_us) {
        ring->sum -= weir__ring_cell(ring, 0)->count;
        weir__ring_shift(ring);
    }
}

/* When enough of the oldest have gone to make room for `excess`: at the latest, all of them, even
 * where damage made their sum a lie. */
static int64_t gone_at(const struct weir__rule *rule, const struct weir__ring *ring, int64_t excess)
{
    uint32_t i = 0;
    while (i + 1 < ring->len && (excess -= weir__ring_cell(ring, i)->count) > 0)
        i++;
    return weir__ring_cell(ring, i)->stamp + rule->period_us;
}

void weir__stamps_judge(const struct weir__rule *rule, const struct weir__state *state,
                        const struct weir__request *request, weir_decision *ret)
{
    int64_t excess = state->ring.sum + request->cost - rule->count;
    ret->limit = rule->count;
    ret->allowed = excess <= 0;
    if (ret->allowed)
        return;
    ret->retry_after_us = request->cost > rule->count
                              ? WEIR_NEVER
                              : gone_at(rule, &state->ring, excess) - request->now_us;
}

void weir__stamps_report(const struct weir__rule *rule, const struct weir__state *state,
                         int64_t now_us, weir_decision *ret)
{
    const struct weir__ring *ring = &state->ring;
    ret->remaining = weir__max(0, rule->count - ring->sum);
    if (ring->len > 0)
        ret->reset_after_us = weir__ring_last(ring)->stamp + rule->period_us - now_us;
}

int64_t weir__stamps_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    return state->at + rule->period_us;
}

/* Index of the oldest cell stamped t0 or later, or len. */
static uint32_t find_stamp(const struct weir__ring *ring, int64_t t0)
{
    uint32_t low = 0, high = ring->len;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (weir__ring_cell(ring, middle)->stamp < t0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A surcharge whose entry is gone. A log that settles have filled to the brim renews its newest cell
 * instead of adding one: stricter, and bounded. */
static void charge_now(const struct weir__rule *rule, struct weir__state *state,
                       const struct weir__correction *correction, int64_t cost)
{
    struct weir__ring *ring = &state->ring;
    if (ring->len >= WEIR__CELLS_MAX)
        weir__ring_last(ring)->stamp = state->now_us;
    struct weir__request request = {correction->now_us, cost, 0};
    weir__algorithm_of(rule)->charge(rule, state, &request);
}

/* Counts saturate in sum, so that they stay exact everywhere. */
bool weir__stamps_settle(const struct weir__rule *rule, struct weir__state *state,
                         const struct weir__correction *correction)
{
    struct weir__ring *ring = &state->ring;
    int64_t change =
        weir__min(correction->actual - correction->charged, WEIR__EXACT_MAX - ring->sum);
    uint32_t i = find_stamp(ring, correction->charged_at_us);
    if (i == ring->len) {
        if (change <= 0)
            return false;
        charge_now(rule, state, correction, change);
        return true;
    }
    struct weir__cell *cell = weir__ring_cell(ring, i);
    int64_t count = weir__max(0, cell->count + change);
    ring->sum += count - cell->count;
    if (count == 0)
        weir__ring_remove(ring, i);
    else
        cell->count = count;
    state->present = ring->len > 0;
    if (state->present)
        state->at = weir__ring_last(ring)->stamp;
    return true;
}

/*
 * Sliding log and sliding window: cells of (stamp, count), each counting whole while
 * t' < stamp + W.
 *
 *     log      every charge with its own stamp, one cell per instant; exact
 *     window   slots of `precision`, each remembering its last stamp, which a charge renews. Never
 *              more than N in any span of W, at most one precision too strict, exact for a lone
 *              request
 *
 * A log is a window whose slots are 1 µs long.
 */
#include "core/ring.h"

#define SLOTS_MAX 10000

static void stamps_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us)
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
static int64_t stamps_gone_at(const struct weir__rule *rule, const struct weir__ring *ring,
                              int64_t excess)
{
    uint32_t i = 0;
    while (i + 1 < ring->len && (excess -= weir__ring_cell(ring, i)->count) > 0)
        i++;
    return weir__ring_cell(ring, i)->stamp + rule->period_us;
}

static void stamps_judge(const struct weir__rule *rule, const struct weir__state *state,
                         const struct weir__request *request, weir_decision *ret)
{
    int64_t excess = state->ring.sum + request->cost - rule->count;
    ret->limit = rule->count;
    ret->allowed = excess <= 0;
    if (ret->allowed)
        return;
    ret->retry_after_us = request->cost > rule->count
                              ? WEIR_NEVER
                              : stamps_gone_at(rule, &state->ring, excess) - request->now_us;
}

static void stamps_charge(const struct weir__rule *rule, struct weir__state *state,
                          const struct weir__request *request)
{
    struct weir__ring *ring = &state->ring;
    assert(request->cost >= 1 && (!state->present || state->now_us >= state->at)); /* loaded */
    if (weir__stamps_join(rule, state)) {
        weir__ring_last(ring)->count += request->cost;
        weir__ring_last(ring)->stamp = state->now_us;
    } else {
        weir__state_append(state, (struct weir__cell){state->now_us, {request->cost}});
    }
    ring->sum += request->cost;
    state->at = state->now_us;
    state->present = true;
}

static void stamps_report(const struct weir__rule *rule, const struct weir__state *state,
                          int64_t now_us, weir_decision *ret)
{
    const struct weir__ring *ring = &state->ring;
    ret->remaining = weir__max(0, rule->count - ring->sum);
    if (ring->len > 0)
        ret->reset_after_us = weir__ring_last(ring)->stamp + rule->period_us - now_us;
}

static int64_t stamps_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    return state->at + rule->period_us;
}

/* Index of the oldest cell stamped t0 or later, or len. */
static uint32_t stamps_find(const struct weir__ring *ring, int64_t t0)
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

/* Where some cells have gone, the others are taken to weigh as much on average: the sum of a
 * long log is not counted for this. */
static uint32_t stamps_share(const struct weir__rule *rule, const struct weir__state *state,
                             int64_t now_us)
{
    const struct weir__ring *ring = &state->ring;
    if (now_us >= stamps_fresh_at(rule, state))
        return 0;
    if (ring->len == 0)
        return 1; /* what a death left of one */
    int64_t last_gone = now_us - rule->period_us, sum = ring->sum;
    if (weir__ring_cell(ring, 0)->stamp <= last_gone)
        sum = (int64_t)((__int128)sum * (ring->len - stamps_find(ring, last_gone + 1)) / ring->len);
    return weir__share_of(sum, rule->count);
}

/* A surcharge whose entry is gone. A log that settles have filled to the brim renews its newest
 * cell instead of adding one: stricter, and bounded. */
static void stamps_charge_now(const struct weir__rule *rule, struct weir__state *state,
                              const struct weir__correction *correction, int64_t cost)
{
    struct weir__ring *ring = &state->ring;
    if (ring->len >= WEIR__CELLS_MAX)
        weir__ring_last(ring)->stamp = state->now_us;
    struct weir__request request = {correction->now_us, cost, 0};
    stamps_charge(rule, state, &request);
}

/* Corrects the entry of t0, or charges a surcharge now where that entry is gone. Counts saturate in
 * sum, so that they stay exact everywhere. */
static bool stamps_settle(const struct weir__rule *rule, struct weir__state *state,
                          const struct weir__correction *correction)
{
    struct weir__ring *ring = &state->ring;
    int64_t change =
        weir__min(correction->actual - correction->charged, WEIR__EXACT_MAX - ring->sum);
    uint32_t i = stamps_find(ring, correction->charged_at_us);
    if (i == ring->len) {
        if (change <= 0)
            return false;
        stamps_charge_now(rule, state, correction, change);
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

static const char *sliding_log_flaw(const struct weir__rule *rule)
{
    return rule->count > WEIR__LOG_COUNT_MAX ? "the count is at most 100k here" : NULL;
}

static const char *sliding_window_flaw(const struct weir__rule *rule)
{
    if (rule->extra > rule->period_us)
        return "precision must not exceed the period";
    if (rule->period_us > rule->extra * SLOTS_MAX)
        return "precision is too fine: at most 10000 slots per period";
    return NULL;
}

/* What both have in common. */
#define STAMPS_FUNCTIONS                                                                           \
    .load = stamps_load, .judge = stamps_judge, .charge = stamps_charge, .report = stamps_report,  \
    .settle = stamps_settle, .fresh_at = stamps_fresh_at, .share = stamps_share,                   \
    .most = weir__rule_count, .window_us = weir__rule_period_us, .ahead_us = weir__rule_period_us, \
    .flood_us = weir__rule_period_us

const struct weir__algorithm weir__algorithm_sliding_log = {
    .name = "sliding-log",
    .full_name = "sliding-log",
    .example = "sliding-log 5/m",
    .shape = WEIR__SHAPE_RING,
    .sliced = true,
    STAMPS_FUNCTIONS,
    .flaw = sliding_log_flaw,
};

const struct weir__algorithm weir__algorithm_sliding_window = {
    .name = "sliding-window",
    .full_name = "sliding-window",
    .example = "sliding-window 240/h precision 1m",
    .shape = WEIR__SHAPE_RING,
    .extra = WEIR__EXTRA_PRECISION,
    .sliced = true,
    STAMPS_FUNCTIONS,
    .flaw = sliding_window_flaw,
};

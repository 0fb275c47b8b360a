/* The rows of token bucket and leaky bucket; bucket.h says what they are. */
#include "core/bucket.h"

#include "core/scale.h"

/* debt += (c1 - c0) * w, within 0 … 2^53. */
static bool bucket_settle(const struct weir__rule *rule, struct weir__state *state,
                          const struct weir__correction *correction)
{
    int64_t change = correction->actual - correction->charged, units;
    if (change < 0 && !state->present)
        return false;
    if (__builtin_mul_overflow(change, rule->ticks, &units))
        units = change < 0 ? -WEIR__EXACT_MAX : WEIR__EXACT_MAX;
    units = weir__max(-WEIR__EXACT_MAX, weir__min(WEIR__EXACT_MAX, units));
    state->amount = weir__max(0, weir__min(WEIR__EXACT_MAX, state->amount + units));
    state->present = state->amount > 0;
    return true;
}

static int64_t bucket_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    return (state->at + weir__div_up(state->amount, rule->count)) * weir__tick_us(rule);
}

static uint32_t bucket_share(const struct weir__rule *rule, const struct weir__state *state,
                             int64_t now_us)
{
    int64_t tick = weir__tick_us(rule), now = tick == 1 ? now_us : now_us / tick, earned;
    int64_t elapsed = weir__max(0, now - state->at);
    if (__builtin_mul_overflow(elapsed, rule->count, &earned) || earned >= state->amount)
        return 0;
    return weir__share_of(state->amount - earned, rule->cap);
}

static void bucket_scale(const struct weir__rule *rule, int64_t now_us, struct weir__scale *ret)
{
    ret->now = now_us / weir__tick_us(rule);
    ret->rate = rule->count;
    ret->whole = rule->cap;
}

/* ---- what others need to know ---- */

/* burst tokens of w units each must stay below 2^53. */
static const char *bucket_flaw(const struct weir__rule *rule)
{
    int64_t most = weir__algorithm_of(rule)->most(rule);
    if (rule->period_us % weir__tick_us(rule))
        return "a bucket's period above one minute must be whole milliseconds";
    if ((__int128)most * (rule->period_us / weir__tick_us(rule)) >= WEIR__EXACT_MAX)
        return "burst times period is too large to count exactly (2^53); use a smaller burst or a "
               "shorter period";
    return NULL;
}

static const char *leaky_bucket_flaw(const struct weir__rule *rule)
{
    const char *flaw = bucket_flaw(rule);
    if (flaw)
        return flaw;
    return rule->extra > rule->burst ? "delay must not exceed burst" : NULL;
}

static int64_t token_bucket_most(const struct weir__rule *rule)
{
    return rule->burst;
}

static int64_t leaky_bucket_most(const struct weir__rule *rule)
{
    return rule->burst + 1;
}

static int64_t bucket_window_us(const struct weir__rule *rule)
{
    return weir__div_up(rule->cap, rule->count) * weir__tick_us(rule);
}

/* Until the burst is used up or the queue is full. */
static int64_t bucket_flood_us(const struct weir__rule *rule)
{
    return (int64_t)((__int128)rule->burst * rule->period_us / rule->count);
}

/* ---- the rows ---- */

/* What both have in common. */
#define BUCKET_FUNCTIONS                                                                           \
    .load = weir__bucket_load, .judge = weir__bucket_judge, .charge = weir__bucket_charge,         \
    .report = weir__bucket_report, .settle = bucket_settle, .fresh_at = bucket_fresh_at,           \
    .share = bucket_share, .scale = bucket_scale, .window_us = bucket_window_us,                   \
    .ahead_us = bucket_window_us, .flood_us = bucket_flood_us

const struct weir__algorithm weir__algorithm_token_bucket = {
    .name = "token-bucket",
    .full_name = "token-bucket",
    .example = "token-bucket 10/s burst 20",
    .shape = WEIR__SHAPE_DEBT,
    .unit = WEIR__UNIT_TICK,
    .waits = true,
    .quick = true,
    .sliced = true,
    .flows = true,
    BUCKET_FUNCTIONS,
    .flaw = bucket_flaw,
    .most = token_bucket_most,
};

const struct weir__algorithm weir__algorithm_leaky_bucket = {
    .name = "leaky-bucket",
    .full_name = "leaky-bucket",
    .example = "leaky-bucket 10/s burst 5 nodelay",
    .shape = WEIR__SHAPE_DEBT,
    .unit = WEIR__UNIT_TICK,
    .extra = WEIR__EXTRA_DELAY,
    .shapes = true,
    .waits = true,
    .quick = true,
    .sliced = true,
    .overflows = true,
    BUCKET_FUNCTIONS,
    .flaw = leaky_bucket_flaw,
    .most = leaky_bucket_most,
};

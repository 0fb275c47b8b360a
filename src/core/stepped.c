/*
 * Stepped token bucket: the whole count arrives at once every period. In microseconds and whole
 * tokens: `at` is the last step, debt what is still owed.
 */
#include "core/core.h"

/* When x tokens have come, relative to t. (A debt settled up to 2^53 tokens may take longer than
 * 63 bits of microseconds: then as good as never.) */
static int64_t stepped_tokens_in(const struct weir__rule *rule, const struct weir__state *state,
                                 int64_t x, int64_t now_us)
{
    if (x <= 0)
        return 0;
    int64_t span;
    if (__builtin_mul_overflow(weir__div_up(x, rule->count), rule->period_us, &span) ||
        span > INT64_MAX / 2)
        span = INT64_MAX / 2;
    return state->at + span - now_us;
}

static void stepped_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us)
{
    int64_t now = state->present ? weir__max(now_us, state->at) : now_us;
    if (state->present) {
        int64_t steps = (now - state->at) / rule->period_us, earned;
        if (__builtin_mul_overflow(steps, rule->count, &earned) || earned > state->amount)
            earned = state->amount;
        state->amount -= earned;
        state->at += steps * rule->period_us;
    }
    if (!state->present || state->amount <= 0) {
        state->amount = 0;
        state->at = now;
    }
}

static void stepped_judge(const struct weir__rule *rule, const struct weir__state *state,
                          const struct weir__request *request, weir_decision *ret)
{
    ret->limit = rule->burst;
    if (request->cost > rule->burst) {
        ret->retry_after_us = WEIR_NEVER;
        return;
    }
    int64_t debt = state->amount + request->cost;
    int64_t delay = stepped_tokens_in(rule, state, debt - rule->burst, request->now_us);
    int64_t beyond = debt - WEIR__EXACT_MAX;
    ret->allowed = delay <= request->wait_us && beyond <= 0;
    if (ret->allowed)
        ret->delay_us = delay;
    else
        ret->retry_after_us = weir__saturated(weir__max(
            delay - request->wait_us, stepped_tokens_in(rule, state, beyond, request->now_us)));
}

static void stepped_charge(const struct weir__rule *rule, struct weir__state *state,
                           const struct weir__request *request)
{
    (void)rule;
    state->amount += request->cost;
    state->present = true;
}

static void stepped_report(const struct weir__rule *rule, const struct weir__state *state,
                           int64_t now_us, weir_decision *ret)
{
    ret->remaining = weir__max(0, rule->burst - state->amount);
    ret->reset_after_us = weir__saturated(stepped_tokens_in(rule, state, state->amount, now_us));
}

static bool stepped_settle(const struct weir__rule *rule, struct weir__state *state,
                           const struct weir__correction *correction)
{
    (void)rule;
    int64_t change = correction->actual - correction->charged;
    if (change < 0 && !state->present)
        return false;
    state->amount = weir__max(0, weir__min(WEIR__EXACT_MAX, state->amount + change));
    state->present = state->amount > 0;
    return true;
}

static int64_t stepped_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    return stepped_tokens_in(rule, state, state->amount, 0);
}

static uint32_t stepped_share(const struct weir__rule *rule, const struct weir__state *state,
                              int64_t now_us)
{
    if (now_us >= stepped_fresh_at(rule, state))
        return 0;
    struct weir__state now = *state;
    stepped_load(rule, &now, now_us);
    return weir__share_of(now.amount, rule->burst);
}

static const char *stepped_flaw(const struct weir__rule *rule)
{
    if ((__int128)weir__div_up(rule->burst, rule->count) * rule->period_us >= WEIR__EXACT_MAX)
        return "refilling that burst takes longer than can be counted exactly (2^53 µs); use a "
               "smaller burst or a shorter period";
    return NULL;
}

static int64_t stepped_most(const struct weir__rule *rule)
{
    return rule->burst;
}

static int64_t stepped_window_us(const struct weir__rule *rule)
{
    return weir__div_up(rule->burst, rule->count) * rule->period_us;
}

static int64_t stepped_flood_us(const struct weir__rule *rule)
{
    return (int64_t)((__int128)rule->burst * rule->period_us / rule->count);
}

const struct weir__algorithm weir__algorithm_stepped = {
    .name = "token-bucket",
    .full_name = "token-bucket stepped",
    .example = "token-bucket 10/s burst 20 stepped",
    .shape = WEIR__SHAPE_DEBT,
    .sliced = true,
    .waits = true,
    .load = stepped_load,
    .judge = stepped_judge,
    .charge = stepped_charge,
    .report = stepped_report,
    .settle = stepped_settle,
    .fresh_at = stepped_fresh_at,
    .share = stepped_share,
    .flaw = stepped_flaw,
    .most = stepped_most,
    .window_us = stepped_window_us,
    .ahead_us = stepped_window_us,
    .flood_us = stepped_flood_us,
};

/*
 * Guava's RateLimiter (31.1), SmoothBursty and SmoothWarmingUp, operation for operation in doubles:
 * compiled without floating-point contraction. `at` is the next free time, `stored` the permits.
 * The request goes at the next free time; the one after it pays.
 */
#include "core/core.h"

#include <math.h>

#define DAY_US INT64_C(86400000000)

/* What Guava's constructors compute. */
struct guava_shape {
    double stable, max, cooldown;
    double threshold, slope; /* warmup only */
};

static struct guava_shape guava_shape_of(const struct weir__rule *rule)
{
    double pps = (double)rule->count * 1e6 / (double)rule->period_us;
    double span = (double)rule->extra;
    struct guava_shape shape = {.stable = 1e6 / pps};
    if (rule->kind == WEIR__SMOOTH) {
        shape.max = span / 1e6 * pps;
        shape.cooldown = shape.stable;
        return shape;
    }
    double cold_interval = shape.stable * ((double)rule->cold_millionths / 1e6);
    shape.threshold = 0.5 * span / shape.stable;
    shape.max = shape.threshold + 2.0 * span / (shape.stable + cold_interval);
    shape.slope = (cold_interval - shape.stable) / (shape.max - shape.threshold);
    shape.cooldown = span / shape.max;
    return shape;
}

/* (int64)x as Java casts, saturating where counting stops being exact. */
static int64_t guava_truncated(double x)
{
    return x >= (double)WEIR__EXACT_MAX ? WEIR__EXACT_MAX : (int64_t)x;
}

/* When a limiter left alone has saved all it can, rounded up. (A state from a damaged zone may
 * claim more than that.) */
static int64_t guava_full_at(const struct guava_shape *shape, const struct weir__state *state)
{
    double missing = fmax(0.0, shape->max - state->stored);
    return state->at + guava_truncated(ceil(missing * shape->cooldown));
}

/* From when on a state is absent: a fresh warmup is full, while a smooth one's savings are worth
 * keeping for another day. */
static int64_t guava_forgotten_at(const struct weir__rule *rule, const struct guava_shape *shape,
                                  const struct weir__state *state)
{
    return guava_full_at(shape, state) + (rule->kind == WEIR__SMOOTH ? DAY_US : 0);
}

static void guava_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us)
{
    struct guava_shape shape = guava_shape_of(rule);
    if (state->present && state->stored > shape.max)
        state->stored = shape.max;
    if (state->present && now_us >= guava_forgotten_at(rule, &shape, state))
        state->present = false;
    if (!state->present) {
        state->at = now_us;
        state->stored = rule->kind == WEIR__SMOOTH ? 0.0 : shape.max;
    }
    state->now_us = now_us;
}

static void guava_judge(const struct weir__rule *rule, const struct weir__state *state,
                        const struct weir__request *request, weir_decision *ret)
{
    struct guava_shape shape = guava_shape_of(rule);
    int64_t ahead = weir__max(0, state->at - request->now_us);
    ret->limit = weir__max(1, guava_truncated(floor(shape.max)));
    ret->allowed = ahead <= request->wait_us;
    if (ret->allowed)
        ret->delay_us = ahead;
    else
        ret->retry_after_us = ahead - request->wait_us;
}

/* Guava's resync: what was saved since the next free time. */
static void guava_resync(const struct guava_shape *shape, struct weir__state *state, int64_t now_us)
{
    if (now_us <= state->at)
        return;
    state->stored =
        fmin(shape->max, state->stored + (double)(now_us - state->at) / shape->cooldown);
    state->at = now_us;
}

/* The price of s stored permits: dearer the longer the limiter has been idle. */
static int64_t guava_stored_time(const struct guava_shape *shape, double stored, double spend)
{
    double above = stored - shape->threshold;
    int64_t time = 0;
    if (above > 0.0) {
        double n = fmin(above, spend);
        double from = shape->stable + above * shape->slope;
        double to = shape->stable + (above - n) * shape->slope;
        time = guava_truncated(n * (from + to) / 2.0);
        spend -= n;
    }
    return time + guava_truncated(shape->stable * spend);
}

static void guava_charge(const struct weir__rule *rule, struct weir__state *state,
                         const struct weir__request *request)
{
    struct guava_shape shape = guava_shape_of(rule);
    guava_resync(&shape, state, request->now_us);
    double cost = (double)request->cost;
    double spend = fmin(cost, state->stored);
    int64_t time = rule->kind == WEIR__WARMUP ? guava_stored_time(&shape, state->stored, spend) : 0;
    time += guava_truncated((cost - spend) * shape.stable);
    state->at = weir__min(WEIR__EXACT_MAX, state->at + time);
    state->stored -= spend;
    state->present = true;
}

static void guava_report(const struct weir__rule *rule, const struct weir__state *state,
                         int64_t now_us, weir_decision *ret)
{
    struct guava_shape shape = guava_shape_of(rule);
    struct weir__state current = *state;
    guava_resync(&shape, &current, now_us);
    ret->remaining = guava_truncated(floor(current.stored));
    ret->reset_after_us = weir__saturated(weir__max(0, guava_full_at(&shape, &current) - now_us));
}

/* Brought up to now, then the next free time moves by the difference at the stable rate. */
static bool guava_settle(const struct weir__rule *rule, struct weir__state *state,
                         const struct weir__correction *correction)
{
    struct guava_shape shape = guava_shape_of(rule);
    int64_t change = correction->actual - correction->charged;
    if (change < 0 && !state->present)
        return false;
    guava_resync(&shape, state, correction->now_us);
    double time = (double)change * shape.stable;
    int64_t moved = time < 0 ? -guava_truncated(-time) : guava_truncated(time);
    state->at = weir__min(WEIR__EXACT_MAX, weir__max(correction->now_us, state->at + moved));
    state->present = true;
    return true;
}

static int64_t guava_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    struct guava_shape shape = guava_shape_of(rule);
    return guava_forgotten_at(rule, &shape, state);
}

/* What they save up, or one permit where they save none. */
static int64_t guava_window_us(const struct weir__rule *rule)
{
    return weir__max(rule->extra, weir__div_up(rule->period_us, rule->count));
}

/* What is owed: how far the next free time is ahead. Forgetting savings, or that a limiter is
 * warm, gives its user nothing. */
static uint32_t guava_share(const struct weir__rule *rule, const struct weir__state *state,
                            int64_t now_us)
{
    if (now_us >= guava_fresh_at(rule, state))
        return 0;
    return weir__share_of(state->at - now_us, guava_window_us(rule));
}

static const char *warmup_flaw(const struct weir__rule *rule)
{
    if (rule->extra == 0)
        return "warmup needs \"over\" and a duration";
    if (rule->cold_millionths <= 1000000 || rule->cold_millionths > 1000000000)
        return "cold must be over 1 and at most 1000";
    return NULL;
}

static int64_t guava_most(const struct weir__rule *rule)
{
    (void)rule;
    return INT64_MAX;
}

/* One request of a high cost moves the next free time as far as it likes. */
static int64_t guava_ahead_us(const struct weir__rule *rule)
{
    (void)rule;
    return INT64_MAX;
}

static int64_t guava_flood_us(const struct weir__rule *rule)
{
    return 2 * rule->extra;
}

/* What both have in common. */
#define GUAVA_FACTS                                                                                \
    .shape = WEIR__SHAPE_PERMITS, .extra = WEIR__EXTRA_SPAN, .shapes = true, .waits = true,        \
    .by_time = true, .load = guava_load, .judge = guava_judge, .charge = guava_charge,             \
    .report = guava_report, .settle = guava_settle, .fresh_at = guava_fresh_at,                    \
    .share = guava_share, .most = guava_most, .window_us = guava_window_us,                        \
    .ahead_us = guava_ahead_us, .flood_us = guava_flood_us

const struct weir__algorithm weir__algorithm_smooth = {
    .name = "smooth",
    .full_name = "smooth",
    .example = "smooth 5/s burst-for 2s",
    GUAVA_FACTS,
    .flaw = weir__rule_no_flaw,
};

const struct weir__algorithm weir__algorithm_warmup = {
    .name = "warmup",
    .full_name = "warmup",
    .example = "warmup 5/s over 3s cold 3",
    GUAVA_FACTS,
    .flaw = warmup_flaw,
};

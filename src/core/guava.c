/*
 * Guava's RateLimiter (31.1), SmoothBursty and SmoothWarmingUp, operation for operation in doubles:
 * compiled without floating-point contraction. `at` is the next free time, `stored` the permits. The
 * request goes at the next free time; the one after it pays.
 */
#include "core/algorithms.h"

#include <math.h>

#define DAY_US INT64_C(86400000000)

/* What Guava's constructors compute. */
struct shape {
    double stable, max, cooldown;
    double threshold, slope; /* warmup only */
};

static struct shape shape_of(const struct weir__rule *rule)
{
    double pps = (double)rule->count * 1e6 / (double)rule->period_us;
    double span = (double)rule->extra;
    struct shape shape = {.stable = 1e6 / pps};
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
static int64_t truncated(double x)
{
    return x >= (double)WEIR__EXACT_MAX ? WEIR__EXACT_MAX : (int64_t)x;
}

/* When a limiter left alone has saved all it can, rounded up. (A state from a damaged zone may claim
 * more than that.) */
static int64_t full_at(const struct shape *shape, const struct weir__state *state)
{
    double missing = fmax(0.0, shape->max - state->stored);
    return state->at + truncated(ceil(missing * shape->cooldown));
}

/* From when on a state is absent: a fresh warmup is full, while a smooth one's savings are worth keeping
 * for another day. */
static int64_t forgotten_at(const struct weir__rule *rule, const struct shape *shape,
                            const struct weir__state *state)
{
    return full_at(shape, state) + (rule->kind == WEIR__SMOOTH ? DAY_US : 0);
}

void weir__guava_load(const struct weir__rule *rule, struct weir__state *state, int64_t now_us)
{
    struct shape shape = shape_of(rule);
    if (state->present && state->stored > shape.max)
        state->stored = shape.max;
    if (state->present && now_us >= forgotten_at(rule, &shape, state))
        state->present = false;
    if (!state->present) {
        state->at = now_us;
        state->stored = rule->kind == WEIR__SMOOTH ? 0.0 : shape.max;
    }
    state->now_us = now_us;
}

void weir__guava_judge(const struct weir__rule *rule, const struct weir__state *state,
                       const struct weir__request *request, weir_decision *ret)
{
    struct shape shape = shape_of(rule);
    int64_t ahead = weir__max(0, state->at - request->now_us);
    ret->limit = weir__max(1, truncated(floor(shape.max)));
    ret->allowed = ahead <= request->wait_us;
    if (ret->allowed)
        ret->delay_us = ahead;
    else
        ret->retry_after_us = ahead - request->wait_us;
}

/* Guava's resync: what was saved since the next free time. */
static void resync(const struct shape *shape, struct weir__state *state, int64_t now_us)
{
    if (now_us <= state->at)
        return;
    state->stored =
        fmin(shape->max, state->stored + (double)(now_us - state->at) / shape->cooldown);
    state->at = now_us;
}

/* The price of s stored permits: dearer the longer the limiter has been idle. */
static int64_t stored_time(const struct shape *shape, double stored, double spend)
{
    double above = stored - shape->threshold;
    int64_t time = 0;
    if (above > 0.0) {
        double n = fmin(above, spend);
        double from = shape->stable + above * shape->slope;
        double to = shape->stable + (above - n) * shape->slope;
        time = truncated(n * (from + to) / 2.0);
        spend -= n;
    }
    return time + truncated(shape->stable * spend);
}

void weir__guava_charge(const struct weir__rule *rule, struct weir__state *state,
                        const struct weir__request *request)
{
    struct shape shape = shape_of(rule);
    resync(&shape, state, request->now_us);
    double cost = (double)request->cost;
    double spend = fmin(cost, state->stored);
    int64_t time = rule->kind == WEIR__WARMUP ? stored_time(&shape, state->stored, spend) : 0;
    time += truncated((cost - spend) * shape.stable);
    state->at = weir__min(WEIR__EXACT_MAX, state->at + time);
    state->stored -= spend;
    state->present = true;
}

void weir__guava_report(const struct weir__rule *rule, const struct weir__state *state,
                        int64_t now_us, weir_decision *ret)
{
    struct shape shape = shape_of(rule);
    struct weir__state current = *state;
    resync(&shape, &current, now_us);
    ret->remaining = truncated(floor(current.stored));
    ret->reset_after_us = weir__saturated(weir__max(0, full_at(&shape, &current) - now_us));
}

/* Brought up to now, then the next free time moves by the difference at the stable rate. */
bool weir__guava_settle(const struct weir__rule *rule, struct weir__state *state,
                        const struct weir__correction *correction)
{
    struct shape shape = shape_of(rule);
    int64_t change = correction->actual - correction->charged;
    if (change < 0 && !state->present)
        return false;
    resync(&shape, state, correction->now_us);
    double time = (double)change * shape.stable;
    int64_t moved = time < 0 ? -truncated(-time) : truncated(time);
    state->at = weir__min(WEIR__EXACT_MAX, weir__max(correction->now_us, state->at + moved));
    state->present = true;
    return true;
}

int64_t weir__guava_fresh_at(const struct weir__rule *rule, const struct weir__state *state)
{
    struct shape shape = shape_of(rule);
    return forgotten_at(rule, &shape, state);
}

/* The table of algorithms, and what all of them share. */
#include "core/algorithms.h"
#include "core/bucket.h"
#include "core/ring.h"

#define OWN(prefix)                                                                                \
    .load = prefix##_load, .judge = prefix##_judge, .charge = prefix##_charge,                     \
    .report = prefix##_report, .settle = prefix##_settle, .fresh_at = prefix##_fresh_at
#define BUCKET(prefix)                                                                             \
    .load = weir__bucket_load, .judge = prefix##_judge, .charge = weir__bucket_charge,             \
    .report = weir__bucket_report, .settle = weir__bucket_settle,                                  \
    .fresh_at = weir__bucket_fresh_at
#define STAMPS(prefix)                                                                             \
    .large = true, .load = weir__stamps_load, .judge = weir__stamps_judge,                         \
    .charge = prefix##_charge, .report = weir__stamps_report, .settle = weir__stamps_settle,       \
    .fresh_at = weir__stamps_fresh_at
#define LEASES(prefix)                                                                             \
    .large = true, .leases = true, .load = prefix##_load, .judge = prefix##_judge,                 \
    .charge = prefix##_charge, .report = prefix##_report, .fresh_at = prefix##_fresh_at

const struct weir__algorithm weir__algorithms[WEIR__KINDS] = {
    [WEIR__TOKEN_BUCKET] = {"token-bucket", .waits = true, BUCKET(weir__token_bucket)},
    [WEIR__STEPPED] = {"token-bucket", .waits = true, OWN(weir__stepped)},
    [WEIR__LEAKY_BUCKET] = {"leaky-bucket", .shapes = true, .waits = true,
                            BUCKET(weir__leaky_bucket)},
    [WEIR__FIXED_WINDOW] = {"fixed-window", OWN(weir__fixed_window)},
    [WEIR__FROM_FIRST] = {"fixed-window", OWN(weir__fixed_window)},
    [WEIR__SLIDING_LOG] = {"sliding-log", STAMPS(weir__sliding_log)},
    [WEIR__SLIDING_WINDOW] = {"sliding-window", STAMPS(weir__sliding_window)},
    [WEIR__SLIDING_COUNTER] = {"sliding-counter", OWN(weir__sliding_counter)},
    [WEIR__SMOOTH] = {"smooth", .shapes = true, .waits = true, OWN(weir__guava)},
    [WEIR__WARMUP] = {"warmup", .shapes = true, .waits = true, OWN(weir__guava)},
    [WEIR__CONCURRENT] = {"concurrent", LEASES(weir__concurrent)},
};

#define MINUTE_US INT64_C(60000000)

/* How far ahead of the clock a state may honestly be. A thread that read the clock and was then held
 * up must not find its key's state absurd, so never under a minute. */
static int64_t horizon(const struct weir__rule *rule)
{
    int64_t span = rule->period_us;
    switch ((enum weir__kind)rule->kind) {
    case WEIR__TOKEN_BUCKET:
    case WEIR__LEAKY_BUCKET:
        span = weir__div_up(rule->cap, rule->count) * weir__tick_us(rule);
        break;
    case WEIR__STEPPED:
        span = weir__div_up(rule->burst, rule->count) * rule->period_us;
        break;
    case WEIR__SLIDING_COUNTER:
        span = 2 * rule->period_us;
        break;
    case WEIR__SMOOTH:
    case WEIR__WARMUP:
        return INT64_MAX;
    default:
        break;
    }
    return weir__max(MINUTE_US, span);
}

void weir__rule_derive(struct weir__rule *rule)
{
    if (rule->kind == WEIR__TOKEN_BUCKET || rule->kind == WEIR__LEAKY_BUCKET) {
        int64_t tokens = rule->burst + (rule->kind == WEIR__LEAKY_BUCKET);
        rule->ticks = rule->period_us / weir__tick_us(rule);
        rule->cap = tokens * rule->ticks;
    }
    rule->horizon_us = horizon(rule);
}

bool weir__rule_same_state(const struct weir__rule *a, const struct weir__rule *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == WEIR__CONCURRENT)
        return true;
    if (a->kind == WEIR__SLIDING_WINDOW && a->extra != b->extra)
        return false;
    return a->period_us == b->period_us;
}

int64_t weir__rule_cells(const struct weir__rule *rule)
{
    if (rule->kind == WEIR__SLIDING_WINDOW)
        return rule->period_us / rule->extra + 2;
    return rule->count;
}

/* The newest time in a state, in µs. */
static int64_t newest_us(const struct weir__rule *rule, const struct weir__state *state)
{
    switch ((enum weir__kind)rule->kind) {
    case WEIR__TOKEN_BUCKET:
    case WEIR__LEAKY_BUCKET:
        return state->at * weir__tick_us(rule);
    case WEIR__SLIDING_COUNTER:
        return state->at * rule->period_us;
    default:
        return state->at;
    }
}

/* Every stored time is a time, every amount exact. */
bool weir__state_sound(const struct weir__rule *rule, const struct weir__state *state)
{
    int64_t unit = newest_us(rule, &(struct weir__state){.at = 1});
    int64_t most = rule->kind == WEIR__SLIDING_COUNTER ? INT64_C(2000000000) : WEIR__EXACT_MAX;
    return state->at >= 0 && state->at <= WEIR__EXACT_MAX / unit && state->amount >= 0 &&
           state->amount <= most && state->before >= 0 && state->before <= most;
}

static void forget(struct weir__state *state)
{
    state->present = false;
    state->ring.len = 0;
    state->ring.sum = 0;
}

static bool is_nonsense(const struct weir__rule *rule, const struct weir__state *state,
                        int64_t now_us)
{
    return newest_us(rule, state) - now_us > rule->horizon_us;
}

bool weir__is_fresh(const struct weir__rule *rule, const struct weir__state *state, int64_t now_us)
{
    return now_us >= weir__algorithm_of(rule)->fresh_at(rule, state) ||
           is_nonsense(rule, state, now_us);
}

void weir__load(const struct weir__rule *rule, const struct weir__rule *written_under,
                struct weir__state *state, int64_t now_us)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    if (state->present && is_nonsense(rule, state, now_us))
        forget(state);
    if (state->present && written_under && now_us >= algorithm->fresh_at(written_under, state))
        forget(state);
    algorithm->load(rule, state, now_us);
}

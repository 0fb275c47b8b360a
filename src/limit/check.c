/* The bounds of each limit, so that all its arithmetic stays exact below 2^53. */
#include "limit/limit.h"

#include "core/bucket.h"

#include <string.h>

#define LOG_COUNT_MAX 100000
#define COUNTER_COUNT_MAX 1000000000
#define SLOTS_MAX 10000

static bool refuse(struct weir__buffer *why, const char *reason)
{
    weir__put_text(why, reason);
    return false;
}

/* burst tokens of w units each must stay below 2^53. */
static bool check_bucket(const struct weir__rule *rule, struct weir__buffer *why)
{
    if (rule->period_us % weir__tick_us(rule))
        return refuse(why, "a bucket's period above one minute must be whole milliseconds");
    int64_t tokens = rule->burst + (rule->kind == WEIR__LEAKY_BUCKET);
    if ((__int128)tokens * (rule->period_us / weir__tick_us(rule)) >= WEIR__EXACT_MAX)
        return refuse(why, "burst times period is too large to count exactly (2^53); use a smaller "
                           "burst or a shorter period");
    if (rule->kind == WEIR__LEAKY_BUCKET && rule->extra > rule->burst)
        return refuse(why, "delay must not exceed burst");
    return true;
}

static bool check_stepped(const struct weir__rule *rule, struct weir__buffer *why)
{
    if ((__int128)weir__div_up(rule->burst, rule->count) * rule->period_us >= WEIR__EXACT_MAX)
        return refuse(why,
                      "refilling that burst takes longer than can be counted exactly (2^53 µs); "
                      "use a smaller burst or a shorter period");
    return true;
}

static bool check_window(const struct weir__rule *rule, struct weir__buffer *why)
{
    if (rule->extra > rule->period_us)
        return refuse(why, "precision must not exceed the period");
    if (rule->period_us > rule->extra * SLOTS_MAX)
        return refuse(why, "precision is too fine: at most 10000 slots a period");
    return true;
}

static bool check_warmup(const struct weir__rule *rule, struct weir__buffer *why)
{
    if (rule->extra == 0)
        return refuse(why, "warmup needs \"over\" and a duration");
    if (rule->cold_millionths <= 1000000 || rule->cold_millionths > 1000000000)
        return refuse(why, "cold must be over 1 and at most 1000");
    return true;
}

static bool check_kind(const struct weir__rule *rule, struct weir__buffer *why)
{
    switch ((enum weir__kind)rule->kind) {
    case WEIR__TOKEN_BUCKET:
    case WEIR__LEAKY_BUCKET:
        return check_bucket(rule, why);
    case WEIR__STEPPED:
        return check_stepped(rule, why);
    case WEIR__SLIDING_LOG:
    case WEIR__CONCURRENT:
        return rule->count <= LOG_COUNT_MAX || refuse(why, "the count is at most 100k here");
    case WEIR__SLIDING_WINDOW:
        return check_window(rule, why);
    case WEIR__SLIDING_COUNTER:
        return rule->count <= COUNTER_COUNT_MAX || refuse(why, "the count is at most 1g here");
    case WEIR__WARMUP:
        return check_warmup(rule, why);
    default:
        return true;
    }
}

bool weir__rule_check(struct weir__rule *rule, struct weir__buffer *why)
{
    if (!check_kind(rule, why))
        return false;
    weir__rule_derive(rule);
    return true;
}

static bool within(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most;
}

bool weir__rule_sound(const struct weir__rule *rule)
{
    char reason[128];
    struct weir__buffer why = weir__buffer_over(reason, sizeof reason);
    struct weir__rule copy = *rule;
    if (rule->kind >= WEIR__KINDS || rule->zero != 0 || rule->flags > WEIR__NODELAY ||
        !within(rule->count, 1, WEIR_COST_MAX) || !within(rule->period_us, 1, WEIR_DURATION_MAX) ||
        !within(rule->burst, 0, WEIR_COST_MAX) || !within(rule->extra, 0, WEIR_DURATION_MAX))
        return false;
    bool spanned = rule->kind == WEIR__SLIDING_WINDOW || rule->kind == WEIR__SMOOTH;
    if (spanned && rule->extra == 0)
        return false;
    copy.ticks = copy.cap = copy.horizon_us = 0;
    return weir__rule_check(&copy, &why) && !memcmp(&copy, rule, sizeof copy);
}

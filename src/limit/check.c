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

static bool check_count(const struct weir__rule *rule, int64_t most, const char *reason,
                        struct weir__buffer *why)
{
    if (rule->count > most)
        return refuse(why, reason);
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
        return check_count(rule, LOG_COUNT_MAX, "the count is at most 100k here", why);
    case WEIR__SLIDING_WINDOW:
        return check_window(rule, why);
    case WEIR__SLIDING_COUNTER:
        return check_count(rule, COUNTER_COUNT_MAX, "the count is at most 1g here", why);
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

/* What it prints must read as the same bytes again; whatever is out of bounds prints as text that is
 * refused or reads as something else. */
bool weir__rule_sound(const struct weir__rule *rule)
{
    if (rule->kind >= WEIR__KINDS)
        return false;
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    struct weir__rule read[WEIR_LIMITS_MAX];
    size_t count;
    weir__put_rule(&buffer, rule);
    return weir__rules_parse(text, read, &count, NULL) == 0 && !memcmp(read, rule, sizeof *rule);
}

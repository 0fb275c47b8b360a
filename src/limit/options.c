/* See options.h. Canonical text has options in the order of this table. */
#include "limit/options.h"

#include "core/calendar.h"

#include <assert.h>
#include <string.h>

static int64_t preset_count(const struct weir__rule *rule)
{
    return rule->count;
}

static int64_t preset_tenth(const struct weir__rule *rule)
{
    return weir__div_up(rule->period_us, 10);
}

static int64_t preset_anchor(const struct weir__rule *rule)
{
    return rule->kind == WEIR__CALENDAR ? weir__anchor_preset(weir__calendar_of(rule).unit) : 0;
}

#define KINDS(KIND) WEIR__KIND_BIT(WEIR__##KIND)
#define FIELD(name) .field = offsetof(struct weir__rule, name)
#define FLAG(bit) .type = WEIR__OPTION_FLAG, .flag = (bit)
#define BECOMES(KIND) .type = WEIR__OPTION_KIND, .kind = WEIR__##KIND
#define COUNT(name, from) .type = WEIR__OPTION_COUNT, FIELD(name), .least = (from)
#define DURATION(name) .type = WEIR__OPTION_DURATION, FIELD(name)
#define DECIMAL(name) .type = WEIR__OPTION_DECIMAL, FIELD(name)

static const char no_or_some_delay[] = "nodelay or delay, not both";
static const char first_or_clock[] = "from-first, or from and zone, not both";
#define WINDOWS (KINDS(FIXED_WINDOW) | KINDS(FROM_FIRST) | KINDS(CALENDAR))

const struct weir__option weir__options[WEIR__OPTIONS] = {
    {"burst", KINDS(TOKEN_BUCKET) | KINDS(STEPPED), COUNT(burst, 1), .preset_of = preset_count},
    {"burst", KINDS(LEAKY_BUCKET), COUNT(burst, 0)},
    {"stepped", KINDS(TOKEN_BUCKET) | KINDS(STEPPED), BECOMES(STEPPED)},
    {"nodelay", KINDS(LEAKY_BUCKET), FLAG(WEIR__NODELAY), .excludes = no_or_some_delay},
    {"delay", KINDS(LEAKY_BUCKET), COUNT(extra, 0), .excludes = no_or_some_delay},
    {"from-first", WINDOWS, BECOMES(FROM_FIRST), .excludes = first_or_clock},
    {"from", WINDOWS, .type = WEIR__OPTION_ANCHOR, .excludes = first_or_clock, .camp = 1,
     .preset_of = preset_anchor},
    {"zone", WINDOWS, .type = WEIR__OPTION_ZONE, .excludes = first_or_clock, .camp = 1},
    {"precision", KINDS(SLIDING_WINDOW), DURATION(extra), .preset_of = preset_tenth},
    {"burst-for", KINDS(SMOOTH), DURATION(extra), .preset = 1000000},
    {"over", KINDS(WARMUP), DURATION(extra)},
    {"cold", KINDS(WARMUP), DECIMAL(cold_millionths), .preset = 3000000},
    {"lease", KINDS(CONCURRENT), DURATION(period_us), .preset = 60000000},
};

static bool option_is_calendar(const struct weir__option *option)
{
    return option->type == WEIR__OPTION_ANCHOR || option->type == WEIR__OPTION_ZONE;
}

int64_t weir__option_value(const struct weir__option *option, const struct weir__rule *rule)
{
    int64_t value;
    uint32_t decimal;
    assert(option->type != WEIR__OPTION_FLAG && option->type != WEIR__OPTION_KIND);
    if (option_is_calendar(option)) {
        if (rule->kind == WEIR__FROM_FIRST)
            return 0;
        struct weir__calendar it = weir__calendar_of(rule);
        return option->type == WEIR__OPTION_ANCHOR ? it.anchor : it.zone;
    }
    if (option->type == WEIR__OPTION_DECIMAL) {
        memcpy(&decimal, (const char *)rule + option->field, sizeof decimal);
        return decimal;
    }
    memcpy(&value, (const char *)rule + option->field, sizeof value);
    return value;
}

void weir__option_set(const struct weir__option *option, struct weir__rule *rule, int64_t value)
{
    uint32_t decimal = (uint32_t)value;
    assert(option->type != WEIR__OPTION_FLAG && option->type != WEIR__OPTION_KIND);
    assert(!option_is_calendar(option)); /* weir__rule_set_calendar does that */
    if (option->type == WEIR__OPTION_DECIMAL)
        memcpy((char *)rule + option->field, &decimal, sizeof decimal);
    else
        memcpy((char *)rule + option->field, &value, sizeof value);
}

int64_t weir__option_preset(const struct weir__option *option, const struct weir__rule *rule)
{
    return option->preset_of ? option->preset_of(rule) : option->preset;
}

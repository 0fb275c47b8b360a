/*
 * Limits from numbers, without text to read. A member is what the limit language calls an option,
 * so the same table (options.h) says which kinds have it, its bounds and what it is where it is
 * left out.
 */
#include "limit/calendar.h"
#include "limit/limit.h"
#include "limit/options.h"

#include <assert.h>
#include <string.h>

/* A member of weir_limit_numbers that is an option's value. */
struct numbers_member {
    const char *option;
    const char *name;
    size_t at;
};

#define MEMBER(option, name)                                                                       \
    {                                                                                              \
        option, #name, offsetof(weir_limit_numbers, name)                                          \
    }

static const struct numbers_member members[] = {
    MEMBER("burst", burst),
    MEMBER("delay", delay),
    MEMBER("lease", period_us),
    MEMBER("precision", precision_us),
    MEMBER("burst-for", burst_for_us),
    MEMBER("over", over_us),
    MEMBER("cold", cold_millionths),
};

/* Where the numbers of one limit are read to. */
struct numbers_reader {
    const weir_limit_numbers *numbers;
    size_t i; /* which limit of the list */
    struct weir__rule *rule;
    weir_error *err;
};

#define LEASE 2 /* of the members: the period of all limits that have no leases */

static int numbers_refuse(const struct numbers_reader *reader, const char *name, int64_t value,
                          const char *expected)
{
    return weir__fail(reader->err, WEIR_EINVAL, 0, "limit %zu: invalid %s %lld: expected %s",
                      reader->i + 1, name, (long long)value, expected);
}

static int numbers_check_count(const struct numbers_reader *reader, const char *name, int64_t value,
                               int64_t least)
{
    assert(least == 0 || least == 1);
    if (value >= least && value <= WEIR_COST_MAX)
        return 0;
    return numbers_refuse(reader, name, value, least ? "1 to 10^12" : "0 to 10^12");
}

static int numbers_check_duration(const struct numbers_reader *reader, const char *name,
                                  int64_t value)
{
    if (value >= 1 && value <= WEIR_DURATION_MAX)
        return 0;
    return numbers_refuse(reader, name, value, "1 to 31622400000000 (366 days) microseconds");
}

/* The option of that name that this kind may have; NULL: none. Kinds have three at most. */
static const struct weir__option *numbers_option(const char *text, enum weir__kind kind)
{
    for (size_t i = 0; i < WEIR__OPTIONS; i++) {
        if (weir__option_fits(&weir__options[i], kind) && !strcmp(weir__options[i].text, text))
            return &weir__options[i];
    }
    return NULL;
}

static int numbers_read_option(const struct numbers_reader *reader,
                               const struct numbers_member *member)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(reader->rule);
    const struct weir__option *option = numbers_option(member->option, reader->rule->kind);
    int64_t value;
    int code = 0;
    memcpy(&value, (const char *)reader->numbers + member->at, sizeof value);
    if (!option && value != 0 && member != &members[LEASE])
        return weir__fail(reader->err, WEIR_EINVAL, 0,
                          "limit %zu: invalid %s %lld: expected 0, since %s has no %s",
                          reader->i + 1, member->name, (long long)value, algorithm->full_name,
                          member->option);
    if (!option)
        return 0;
    if (value == 0)
        value = weir__option_preset(option, reader->rule);
    else if (option->type == WEIR__OPTION_COUNT)
        code = numbers_check_count(reader, member->name, value, option->least);
    else if (option->type == WEIR__OPTION_DURATION)
        code = numbers_check_duration(reader, member->name, value);
    else if (value < 0 || value > UINT32_MAX)
        code = numbers_refuse(reader, member->name, value, "1000001 to 1000000000");
    if (code == 0)
        weir__option_set(option, reader->rule, value);
    return code;
}

static int numbers_read_nodelay(const struct numbers_reader *reader)
{
    const weir_limit_numbers *numbers = reader->numbers;
    if (!numbers->nodelay)
        return 0;
    const struct weir__option *option = numbers_option("nodelay", reader->rule->kind);
    if (!option)
        return numbers_refuse(reader, "nodelay", 1, "0, since only leaky-bucket has it");
    if (numbers->delay != 0)
        return numbers_refuse(reader, "delay", numbers->delay, "0 beside nodelay");
    reader->rule->flags |= option->flag;
    return 0;
}

/* The member that only windows of the calendar have, where another limit has it; NULL: none. */
static const char *numbers_calendar_member(const weir_limit_numbers *numbers, int64_t *ret)
{
    const struct {
        const char *name;
        int64_t value;
    } given[] = {{"unit", numbers->unit},
                 {"from_month", numbers->from_month},
                 {"from_day", numbers->from_day},
                 {"zone_minutes", numbers->zone_minutes}};
    for (size_t i = 0; i < WEIR__COUNT(given); i++) {
        *ret = given[i].value;
        if (given[i].value != 0)
            return given[i].name;
    }
    return NULL;
}

/* Perhaps one that the unit does not have. */
static int numbers_anchor(const weir_limit_numbers *numbers, enum weir__calendar_unit unit)
{
    if (!numbers->from_month && !numbers->from_day)
        return weir__anchor_preset(unit);
    if (unit != WEIR__YEAR)
        return numbers->from_day;
    return numbers->from_day <= 31 ? weir__year_anchor(numbers->from_month, numbers->from_day) : -1;
}

/* unit, from_month, from_day and zone_minutes */
static int numbers_read_calendar(const struct numbers_reader *reader)
{
    const weir_limit_numbers *numbers = reader->numbers;
    int64_t value;
    const char *member = numbers_calendar_member(numbers, &value);
    if (!member)
        return 0;
    if (reader->rule->kind != WEIR__FIXED_WINDOW)
        return numbers_refuse(reader, member, value, "0, since only fixed-window has it");
    if (numbers->unit > WEIR_YEAR)
        return numbers_refuse(reader, "unit", numbers->unit, "0, WEIR_MONTH or WEIR_YEAR");
    if (numbers->unit && numbers->period_us)
        return numbers_refuse(reader, "period_us", numbers->period_us, "0 beside a unit");
    if (numbers->zone_minutes < WEIR__ZONE_MIN || numbers->zone_minutes > WEIR__ZONE_MAX)
        return numbers_refuse(reader, "zone_minutes", numbers->zone_minutes, "-720 to 840");
    struct weir__calendar calendar = {WEIR__SPAN, 0, (int)numbers->zone_minutes};
    bool week = reader->rule->period_us == 7 * WEIR__DAY_US && numbers->from_day;
    if (numbers->unit)
        calendar.unit = numbers->unit == WEIR_MONTH ? WEIR__MONTH : WEIR__YEAR;
    else if (week)
        calendar.unit = WEIR__WEEK;
    if (numbers->from_month && calendar.unit != WEIR__YEAR)
        return numbers_refuse(reader, "from_month", numbers->from_month,
                              "0, since only a year has it");
    if (numbers->from_month > 12)
        return numbers_refuse(reader, "from_month", numbers->from_month, "1 to 12");
    calendar.anchor = numbers_anchor(numbers, calendar.unit);
    if (!weir__anchor_fits(calendar.unit, calendar.anchor))
        return numbers_refuse(reader, "from_day", numbers->from_day,
                              weir__anchor_expected(calendar.unit));
    weir__rule_set_calendar(reader->rule, calendar);
    return 0;
}

static bool numbers_spare_is_zero(const weir_limit_numbers *numbers)
{
    uint64_t any = 0;
    for (size_t i = 0; i < WEIR__COUNT(numbers->spare); i++)
        any |= numbers->spare[i];
    return any == 0;
}

/* A limit that never admits its own cost would deny everything. */
static int numbers_check_cost(const struct numbers_reader *reader)
{
    int64_t cost = reader->numbers->cost,
            most = weir__algorithm_of(reader->rule)->most(reader->rule);
    if (cost >= 0 && cost <= weir__min(most, WEIR_COST_MAX))
        return 0;
    return weir__fail(
        reader->err, WEIR_EINVAL, 0,
        "limit %zu: invalid cost %lld: expected 0 (none of its own) to %lld, which is "
        "all that the limit admits at once",
        reader->i + 1, (long long)cost, (long long)weir__min(most, WEIR_COST_MAX));
}

static int numbers_read(const struct numbers_reader *reader)
{
    const weir_limit_numbers *numbers = reader->numbers;
    /* Windows of the calendar are fixed windows here, as in the language. */
    _Static_assert((int)WEIR_CONCURRENT == (int)WEIR__CALENDAR &&
                       (int)WEIR__KIND_COUNT == (int)WEIR__CALENDAR + 1,
                   "the same kinds in both lists");
    if (numbers->kind < 1 || numbers->kind > WEIR_CONCURRENT)
        return numbers_refuse(reader, "kind", numbers->kind,
                              "a WEIR_TOKEN_BUCKET … WEIR_CONCURRENT");
    if (!numbers_spare_is_zero(numbers))
        return weir__fail(reader->err, WEIR_EINVAL, 0,
                          "limit %zu: its spare room is not zero; use an initialiser",
                          reader->i + 1);
    *reader->rule =
        (struct weir__rule){.kind = (uint8_t)(numbers->kind - 1), .count = numbers->count};
    int code = numbers_check_count(reader, "count", numbers->count, 1);
    if (code == 0 && !weir__algorithm_of(reader->rule)->leases && !numbers->unit) {
        code = numbers_check_duration(reader, "period_us", numbers->period_us);
        reader->rule->period_us = numbers->period_us;
    }
    if (code == 0)
        code = numbers_read_calendar(reader);
    for (size_t i = 0; i < WEIR__COUNT(members) && code == 0; i++)
        code = numbers_read_option(reader, &members[i]);
    if (code == 0)
        code = numbers_read_nodelay(reader);
    if (code)
        return code;
    const char *flaw = weir__rule_check(reader->rule);
    if (!flaw)
        return numbers_check_cost(reader);
    return weir__fail(reader->err, WEIR_EINVAL, 0, "limit %zu: invalid \"%s\": %s", reader->i + 1,
                      weir__rule_text(reader->rule).text, flaw);
}

int weir_limit_make(const weir_limit_numbers *numbers, size_t n, weir_limit **ret, weir_error *err)
{
    struct weir__rule rules[WEIR_LIMITS_MAX];
    int64_t costs[WEIR_LIMITS_MAX];
    if (!numbers || !ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the %s NULL",
                          numbers ? "result is" : "numbers are");
    if (n < 1 || n > WEIR_LIMITS_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "invalid number of limits %zu: expected 1 to %d", n,
                          WEIR_LIMITS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct numbers_reader reader = {&numbers[i], i, &rules[i], err};
        int code = numbers_read(&reader);
        if (code)
            return code;
        costs[i] = numbers[i].cost;
        for (size_t j = 0; j < i; j++) {
            if (weir__rule_same_state(&rules[j], &rules[i]))
                return weir__fail(
                    err, WEIR_EINVAL, 0,
                    "limit %zu is of the same kind and period as limit %zu and would "
                    "share its state; use another kind or period_us, or a key of its own",
                    i + 1, j + 1);
        }
    }
    return weir__limit_of_rules(rules, costs, n, ret, err);
}

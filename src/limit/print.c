/* Rules to canonical text, and the public face of limits. */
#include "base/duration.h"
#include "limit/limit.h"
#include "limit/options.h"

#include <stdlib.h>
#include <string.h>

static void put_decimal(struct weir__buffer *buffer, int64_t millionths)
{
    weir__put_int(buffer, millionths / 1000000);
    int64_t rest = millionths % 1000000;
    if (rest == 0)
        return;
    char decimals[16];
    struct weir__buffer digits = weir__buffer_over(decimals, sizeof decimals);
    weir__put_format(&digits, ".%06d", (int)rest);
    while (decimals[digits.len - 1] == '0')
        digits.len--;
    weir__put(buffer, decimals, digits.len);
}

static bool option_is_given(const struct weir__option *option, const struct weir__rule *rule)
{
    switch (option->type) {
    case WEIR__OPTION_FLAG:
        return rule->flags & option->flag;
    case WEIR__OPTION_KIND:
        return rule->kind == option->kind;
    case WEIR__OPTION_COUNT:
    case WEIR__OPTION_DURATION:
    case WEIR__OPTION_DECIMAL:
        break;
    }
    return weir__option_value(option, rule) != weir__option_preset(option, rule);
}

static void put_option(struct weir__buffer *buffer, const struct weir__option *option,
                       const struct weir__rule *rule)
{
    weir__put_text(buffer, " ");
    weir__put_text(buffer, option->text);
    switch (option->type) {
    case WEIR__OPTION_FLAG:
    case WEIR__OPTION_KIND:
        return;
    case WEIR__OPTION_COUNT:
        weir__put_text(buffer, " ");
        weir__put_int(buffer, weir__option_value(option, rule));
        return;
    case WEIR__OPTION_DURATION:
        weir__put_text(buffer, " ");
        weir__put_duration(buffer, weir__option_value(option, rule), false);
        return;
    case WEIR__OPTION_DECIMAL:
        weir__put_text(buffer, " ");
        put_decimal(buffer, weir__option_value(option, rule));
        return;
    }
}

void weir__put_rule(struct weir__buffer *buffer, const struct weir__rule *rule)
{
    weir__put_text(buffer, weir__algorithm_of(rule)->name);
    weir__put_text(buffer, " ");
    weir__put_int(buffer, rule->count);
    if (!weir__algorithm_of(rule)->leases) {
        weir__put_text(buffer, "/");
        weir__put_duration(buffer, rule->period_us, true);
    }
    for (size_t i = 0; i < WEIR__OPTIONS; i++) {
        const struct weir__option *option = &weir__options[i];
        if (weir__option_fits(option, rule->kind) && option_is_given(option, rule))
            put_option(buffer, option, rule);
    }
}

int weir_limit_parse(const char *text, weir_limit **ret, weir_error *err)
{
    struct weir_limit parsed = {0};
    if (!text)
        return weir__fail(err, WEIR_EINVAL, 0, "no limit text given");
    int code = weir__rules_parse(text, parsed.rules, &parsed.count, err);
    if (code)
        return code;
    char canonical[WEIR_LIMITS_MAX * WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(canonical, sizeof canonical);
    for (size_t i = 0; i < parsed.count; i++) {
        if (i > 0)
            weir__put_text(&buffer, ", ");
        weir__put_rule(&buffer, &parsed.rules[i]);
    }
    struct weir_limit *limit = malloc(sizeof *limit + buffer.len + 1);
    if (!limit)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a limit");
    memcpy(limit, &parsed, sizeof *limit);
    limit->text = (char *)(limit + 1);
    memcpy(limit->text, canonical, buffer.len + 1);
    *ret = limit;
    return 0;
}

const weir_limit *weir__limit_ref(const weir_limit *limit)
{
    atomic_fetch_add(&((weir_limit *)limit)->others, 1);
    return limit;
}

void weir_limit_free(weir_limit *limit)
{
    if (limit && atomic_fetch_sub(&limit->others, 1) == 0)
        free(limit);
}

size_t weir_limit_count(const weir_limit *limit)
{
    return limit->count;
}

const char *weir_limit_text(const weir_limit *limit)
{
    return limit->text;
}

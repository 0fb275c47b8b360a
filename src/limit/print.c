/* Rules to canonical text, and the public face of limits. */
#include "base/duration.h"
#include "limit/calendar.h"
#include "limit/limit.h"
#include "limit/options.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 65536 /* bytes of a limit text that says its length */

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
    case WEIR__OPTION_ANCHOR:
    case WEIR__OPTION_ZONE:
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
    case WEIR__OPTION_ANCHOR:
        weir__put_text(buffer, " ");
        weir__put_anchor(buffer, weir__calendar_of(rule));
        return;
    case WEIR__OPTION_ZONE:
        weir__put_text(buffer, " ");
        weir__put_zone(buffer, (int)weir__option_value(option, rule));
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
        weir__put_period(buffer, rule);
    }
    for (size_t i = 0; i < WEIR__OPTIONS; i++) {
        const struct weir__option *option = &weir__options[i];
        if (weir__option_fits(option, rule->kind) && option_is_given(option, rule))
            put_option(buffer, option, rule);
    }
}

struct weir__rule_text weir__rule_text(const struct weir__rule *rule)
{
    struct weir__rule_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    weir__put_rule(&buffer, rule);
    return ret;
}

static void put_cost(struct weir__buffer *buffer, int64_t cost)
{
    if (cost == 0)
        return;
    weir__put_text(buffer, " cost ");
    weir__put_int(buffer, cost);
}

void weir__put_limit(struct weir__buffer *buffer, const weir_limit *limit, size_t i)
{
    weir__put_rule(buffer, &limit->rules[i]);
    put_cost(buffer, limit->costs ? limit->costs[i] : 0);
}

struct weir__rule_text weir__limit_text_of(const weir_limit *limit, size_t i)
{
    struct weir__rule_text ret;
    struct weir__buffer buffer = weir__buffer_over(ret.text, sizeof ret.text);
    weir__put_limit(&buffer, limit, i);
    return ret;
}

int weir__limit_of_rules(const struct weir__rule *rules, const int64_t *costs, size_t n,
                         weir_limit **ret, weir_error *err)
{
    char canonical[WEIR__LIMITS_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(canonical, sizeof canonical);
    size_t charged = 0;
    assert(n >= 1 && n <= WEIR_LIMITS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            weir__put_text(&buffer, ", ");
        weir__put_rule(&buffer, &rules[i]);
        put_cost(&buffer, costs[i]);
        charged += costs[i] != 0;
    }
    WEIR__CHECK(!buffer.cut);
    size_t size = offsetof(struct weir_limit, rules) + n * sizeof *rules;
    size_t own = charged ? n * sizeof *costs : 0;
    char *room = malloc(size + own + buffer.len + 1);
    if (!room)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a limit");
    struct weir_limit *limit = memset(room, 0, size);
    limit->count = n;
    limit->costs = charged ? memcpy(room + size, costs, own) : NULL;
    limit->text = room + size + own;
    memcpy(limit->rules, rules, n * sizeof *rules);
    memcpy(limit->text, canonical, buffer.len + 1);
    *ret = limit;
    return 0;
}

int weir_limit_parse(const char *text, weir_limit **ret, weir_error *err)
{
    struct weir__rule rules[WEIR_LIMITS_MAX];
    int64_t costs[WEIR_LIMITS_MAX];
    size_t count;
    if (!text || !ret)
        return weir__fail(err, WEIR_EINVAL, 0, "the %s is NULL", text ? "result" : "limit text");
    int code = weir__limits_parse(text, rules, costs, &count, err);
    return code ? code : weir__limit_of_rules(rules, costs, count, ret, err);
}

int weir_limit_parse_n(const char *text, size_t len, weir_limit **ret, weir_error *err)
{
    if (!text || len > TEXT_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "invalid limit text of %zu bytes: expected 1 to %d",
                          len, TEXT_MAX);
    const char *nul = memchr(text, 0, len);
    if (nul)
        return weir__fail(err, WEIR_ESYNTAX, (int)(nul - text) + 1, "column %d: a NUL byte",
                          (int)(nul - text) + 1);
    char *copy = malloc(len + 1);
    if (!copy)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for a limit");
    memcpy(copy, text, len);
    copy[len] = 0;
    int code = weir_limit_parse(copy, ret, err);
    free(copy);
    return code;
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
    return limit ? limit->count : 0;
}

const char *weir_limit_text(const weir_limit *limit)
{
    return limit ? limit->text : "";
}

/* Rule i; NULL: there is none. */
static const struct weir__rule *limit_rule(const weir_limit *limit, size_t i)
{
    return limit && i < limit->count ? &limit->rules[i] : NULL;
}

const char *weir_limit_kind(const weir_limit *limit, size_t i)
{
    const struct weir__rule *rule = limit_rule(limit, i);
    return rule ? weir__algorithm_of(rule)->name : NULL;
}

int64_t weir_limit_amount(const weir_limit *limit, size_t i)
{
    const struct weir__rule *rule = limit_rule(limit, i);
    return rule ? rule->count : 0;
}

int64_t weir_limit_period_us(const weir_limit *limit, size_t i)
{
    const struct weir__rule *rule = limit_rule(limit, i);
    return rule ? rule->period_us : 0;
}

int64_t weir_limit_burst(const weir_limit *limit, size_t i)
{
    const struct weir__rule *rule = limit_rule(limit, i);
    return rule ? rule->burst : 0;
}

int64_t weir_limit_cost(const weir_limit *limit, size_t i)
{
    return limit && i < limit->count && limit->costs ? limit->costs[i] : 0;
}

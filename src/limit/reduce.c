/* Shares: a part of a limit's size. The reduced limit has the same rate and the same state. */
#include "limit/limit.h"

#include <string.h>

#define DECIMALS 4 /* of a percentage: one millionth of the whole */

/* ---- text ---- */

/* The digits at *at become a part of *number, which stays small enough to be compared; how many. */
static size_t share_read_digits(struct weir__span text, size_t *at, int64_t *number)
{
    size_t start = *at;
    for (; *at < text.len && text.data[*at] >= '0' && text.data[*at] <= '9'; ++*at)
        *number = weir__min(*number * 10 + (text.data[*at] - '0'), 10 * WEIR__SHARE_WHOLE);
    return *at - start;
}

const char *weir__share_read(struct weir__span text, uint32_t *ret)
{
    static const char form[] = "expected a percentage like 50% or 12.5%";
    size_t at = 0, decimals = 0;
    int64_t number = 0;
    if (share_read_digits(text, &at, &number) == 0)
        return form;
    if (at < text.len && text.data[at] == '.') {
        at++;
        decimals = share_read_digits(text, &at, &number);
        if (decimals == 0)
            return form;
    }
    if (at == text.len)
        return "a share needs its percent sign, like 50%";
    if (text.data[at] != '%' || at + 1 != text.len)
        return form;
    if (decimals > DECIMALS)
        return "a share has at most four decimals, like 12.5%";
    for (; decimals < DECIMALS; decimals++)
        number *= 10;
    if (number < 1 || number > WEIR__SHARE_WHOLE)
        return "a share is more than 0% and at most 100%";
    *ret = (uint32_t)number;
    return NULL;
}

void weir__put_share(struct weir__buffer *buffer, uint32_t millionths)
{
    char decimals[8];
    uint32_t part = millionths % 10000, len = DECIMALS;
    weir__put_int(buffer, millionths / 10000);
    for (uint32_t i = DECIMALS; i > 0; i--, part /= 10)
        decimals[i - 1] = (char)('0' + part % 10);
    while (len > 0 && decimals[len - 1] == '0')
        len--;
    if (len > 0)
        weir__put(buffer, ".", 1);
    weir__put(buffer, decimals, len);
    weir__put(buffer, "%", 1);
}

/* ---- limits ---- */

bool weir__rule_has_size(const struct weir__rule *rule)
{
    return !weir__algorithm_of(rule)->by_time;
}

/* The size of a bucket is its burst (leaky: and the one that is served), of all others the count.
 * The product stays below 2^63: a size is at most 10^12 + 1. */
static void reduce_rule(struct weir__rule *rule, uint32_t millionths)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    int64_t size = algorithm->most(rule);
    int64_t less = size - weir__max(1, size * millionths / WEIR__SHARE_WHOLE);
    assert(weir__rule_has_size(rule) && size >= 1 && size <= WEIR_COST_MAX + 1);
    if (algorithm->shape == WEIR__SHAPE_DEBT)
        rule->burst -= less;
    else
        rule->count -= less;
    if (algorithm->extra == WEIR__EXTRA_DELAY)
        rule->extra = weir__min(rule->extra, rule->burst);
    weir__rule_derive(rule);
    assert(algorithm->most(rule) == size - less && weir__rule_sound(rule));
}

/* A limit's own cost is at most what it admits. */
static int reduce_fail_cost(const weir_limit *limit, size_t i, uint32_t millionths, int64_t size,
                            weir_error *err)
{
    char share[16];
    struct weir__buffer buffer = weir__buffer_over(share, sizeof share);
    weir__put_share(&buffer, millionths);
    return weir__fail(err, WEIR_EINVAL, 0,
                      "%s of \"%s\" is %lld, less than its own cost of %lld; use a larger share",
                      share, weir__limit_text_of(limit, i).text, (long long)size,
                      (long long)limit->costs[i]);
}

int weir__limit_reduce(const weir_limit *limit, uint32_t millionths, weir_limit **ret,
                       weir_error *err)
{
    struct weir__rule rules[WEIR_LIMITS_MAX];
    int64_t costs[WEIR_LIMITS_MAX];
    assert(millionths >= 1 && millionths <= WEIR__SHARE_WHOLE);
    memcpy(rules, limit->rules, limit->count * sizeof rules[0]);
    for (size_t i = 0; i < limit->count; i++) {
        reduce_rule(&rules[i], millionths);
        int64_t size = weir__algorithm_of(&rules[i])->most(&rules[i]);
        costs[i] = weir_limit_cost(limit, i);
        if (costs[i] > size)
            return reduce_fail_cost(limit, i, millionths, size, err);
    }
    return weir__limit_of_rules(rules, costs, limit->count, ret, err);
}

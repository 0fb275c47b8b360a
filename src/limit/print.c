/* Rules to canonical text, and the public face of limits. */
#include "base/duration.h"
#include "limit/limit.h"

#include <stdlib.h>
#include <string.h>

static void put_count_option(struct weir__buffer *buffer, const char *name, int64_t count)
{
    weir__put_format(buffer, " %s ", name);
    weir__put_int(buffer, count);
}

static void put_duration_option(struct weir__buffer *buffer, const char *name, int64_t us)
{
    weir__put_format(buffer, " %s ", name);
    weir__put_duration(buffer, us, false);
}

static void put_cold(struct weir__buffer *buffer, uint32_t millionths)
{
    weir__put_format(buffer, " cold %u", millionths / 1000000);
    uint32_t rest = millionths % 1000000;
    if (rest == 0)
        return;
    char decimals[16];
    struct weir__buffer digits = weir__buffer_over(decimals, sizeof decimals);
    weir__put_format(&digits, ".%06u", rest);
    while (decimals[digits.len - 1] == '0')
        digits.len--;
    weir__put(buffer, decimals, digits.len);
}

static void put_options(struct weir__buffer *buffer, const struct weir__rule *rule)
{
    switch ((enum weir__kind)rule->kind) {
    case WEIR__TOKEN_BUCKET:
    case WEIR__STEPPED:
        if (rule->burst != rule->count)
            put_count_option(buffer, "burst", rule->burst);
        if (rule->kind == WEIR__STEPPED)
            weir__put_text(buffer, " stepped");
        break;
    case WEIR__LEAKY_BUCKET:
        if (rule->burst != 0)
            put_count_option(buffer, "burst", rule->burst);
        if (rule->flags & WEIR__NODELAY)
            weir__put_text(buffer, " nodelay");
        if (rule->extra != 0)
            put_count_option(buffer, "delay", rule->extra);
        break;
    case WEIR__FROM_FIRST:
        weir__put_text(buffer, " from-first");
        break;
    case WEIR__SLIDING_WINDOW:
        if (rule->extra != weir__div_up(rule->period_us, 10))
            put_duration_option(buffer, "precision", rule->extra);
        break;
    case WEIR__SMOOTH:
        if (rule->extra != 1000000)
            put_duration_option(buffer, "burst-for", rule->extra);
        break;
    case WEIR__WARMUP:
        put_duration_option(buffer, "over", rule->extra);
        if (rule->cold_millionths != 3000000)
            put_cold(buffer, rule->cold_millionths);
        break;
    case WEIR__CONCURRENT:
        if (rule->period_us != 60000000)
            put_duration_option(buffer, "lease", rule->period_us);
        break;
    default:
        break;
    }
}

void weir__put_rule(struct weir__buffer *buffer, const struct weir__rule *rule)
{
    weir__put_text(buffer, weir__algorithm_of(rule)->name);
    weir__put_text(buffer, " ");
    weir__put_int(buffer, rule->count);
    if (rule->kind != WEIR__CONCURRENT) {
        weir__put_text(buffer, "/");
        weir__put_duration(buffer, rule->period_us, true);
    }
    put_options(buffer, rule);
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

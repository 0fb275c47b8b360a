/* What `weir suggest` is asked for: percentages, a rate, keys to spare, what keys are made of. */
#include "cli/suggest.h"

#include "policy/view.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* "0.1%" as millionths, at most four decimals. */
static int goal_read_percent(const struct suggest *suggest, const char *name, const char *text,
                             int64_t *ret)
{
    int64_t number = 0, unit = 10000;
    const char *p = text;
    *ret = -1;
    if (!text)
        return CLI_OK;
    for (; isdigit((unsigned char)*p) && p < text + 3; p++)
        number = number * 10 + (*p - '0') * 10000;
    bool good = p > text;
    if (*p == '.') {
        good = good && isdigit((unsigned char)p[1]);
        for (p++; isdigit((unsigned char)*p) && unit > 1; p++)
            number += (*p - '0') * (unit /= 10);
    }
    if (!good || strcmp(p, "%") != 0 || number > DESK_MILLION)
        return cli_fail(suggest->call, CLI_USAGE,
                        "invalid --%s \"%s\": expected a part from 0%% to 100%% with at most four "
                        "decimals, like %s",
                        name, cli_show_text(text).text, strcmp(name, "deny-keys") ? "0.1%" : "1%");
    *ret = number;
    return CLI_OK;
}

/* ---- conditions ---- */

/* Where the values begin of a condition NAME!=VALUES; NULL: it is another one. */
static const char *where_left_out(const char *where)
{
    const char *equals = strchr(where, '=');
    return equals && equals > where + 1 && equals[-1] == '!' ? equals + 1 : NULL;
}

/* Both conditions in one, which takes the place of the first; whatever has no value has none of
 * these, either. False: they are about different fields. */
static bool where_join(struct suggest *suggest, const char **first, const char *second)
{
    const char *a = where_left_out(*first), *b = where_left_out(second);
    if (!a || !b || a - *first != b - second || strncmp(*first, second, (size_t)(a - *first)) != 0)
        return false;
    if (!strcmp(b, "*"))
        *first = second;
    if (!strcmp(a, "*") || !strcmp(b, "*"))
        return true;
    if (suggest->joined_count == SUGGEST_JOINED)
        return false;
    struct weir__buffer *out = &suggest->joined[suggest->joined_count++];
    *out = weir__buffer_growing();
    weir__put_format(out, "%s|%s", *first, b);
    *first = out->data;
    return true;
}

void suggest_where_join(struct suggest *suggest)
{
    struct cli_list *where = &suggest->logs.where;
    size_t kept = 0;
    for (size_t i = 0; i < where->count; i++) {
        size_t to = 0;
        while (to < kept && !where_join(suggest, &where->texts[to], where->texts[i]))
            to++;
        if (to == kept)
            where->texts[kept++] = where->texts[i];
    }
    where->count = kept;
    suggest->logs.options.where_count = kept;
}

/* "500/s", "30k/m": read as a limit is. */
static int goal_read_rate(struct suggest *suggest)
{
    const char *text = suggest->protect_text;
    char limit[64];
    struct weir__buffer buffer = weir__buffer_over(limit, sizeof limit);
    weir_limit *parsed = NULL;
    if (!text)
        return CLI_OK;
    weir__put_format(&buffer, "fixed-window %s", text);
    bool good = strlen(text) < 32 && strspn(text, "0123456789kmgrKMGRsS/") == strlen(text) &&
                weir_limit_parse(limit, &parsed, NULL) == 0;
    int64_t count = good ? parsed->rules[0].count : 0;
    int64_t period_us = good ? parsed->rules[0].period_us : 0;
    weir_limit_free(parsed);
    if (!good || (period_us != 1000000 && period_us != 60000000) || count > 1000000000)
        return cli_fail(suggest->call, CLI_USAGE,
                        "invalid --protect \"%s\": expected requests per second or minute, up to "
                        "10^9, like 500/s or 20k/m",
                        cli_show_text(text).text);
    suggest->goal.protect = count;
    suggest->goal.protect_us = period_us;
    return CLI_OK;
}

/* The parts of the key, as policies write them: commas between them, but not in brackets. */
static int goal_split_key(struct suggest *suggest, const char *text)
{
    int depth = 0;
    bool quoted = false;
    const char *from = text;
    for (const char *p = text;; p++) {
        quoted ^= *p == '\'';
        depth += !quoted && *p == '(' ? 1 : !quoted && *p == ')' ? -1 : 0;
        if (*p && (quoted || depth > 0 || *p != ','))
            continue;
        struct weir__span part = {from, (size_t)(p - from)};
        while (part.len > 0 && part.data[0] == ' ')
            part.data++, part.len--;
        while (part.len > 0 && part.data[part.len - 1] == ' ')
            part.len--;
        if (suggest->key_count == SUGGEST_PARTS)
            return cli_fail(suggest->call, CLI_USAGE, "invalid --key \"%s\": more than %d parts",
                            cli_show_text(text).text, SUGGEST_PARTS);
        suggest->key[suggest->key_count++] = part;
        if (!*p)
            return CLI_OK;
        from = p + 1;
    }
}

/* What keys of the log are by themselves: addresses, or something that only the log knows. */
static const char *goal_key_of_log(const struct suggest *suggest)
{
    const struct desk_engine *engine = suggest->result->whole;
    const struct desk_key *top;
    struct weir__network network;
    if (desk_engine_heaviest(engine, &top, 1) == 0)
        return "ip";
    struct weir__span text = desk_key_text(engine, top);
    return weir__network_read(text.data, text.len, &network) ? "key" : "ip";
}

int suggest_key_read(struct suggest *suggest)
{
    const char *text = suggest->logs.options.key;
    struct weir__buffer buffer = weir__buffer_over(suggest->key_text, sizeof suggest->key_text);
    suggest->key_count = 0;
    if (!text && suggest->result)
        text = goal_key_of_log(suggest);
    weir__put_text(&buffer, cli_show_text(text ? text : "ip").text);
    return goal_split_key(suggest, text ? text : "ip");
}

int suggest_goal_read(struct suggest *suggest)
{
    struct desk_goal *goal = &suggest->goal;
    int code = goal_read_percent(suggest, "deny-keys", suggest->keys_text, &goal->keys);
    if (code == CLI_OK)
        code = goal_read_percent(suggest, "deny-requests", suggest->requests_text, &goal->requests);
    if (code == CLI_OK)
        code = goal_read_rate(suggest);
    if (code == CLI_OK)
        code = cli_logs_check_spare(suggest->call, &suggest->spare);
    goal->usual = goal->keys < 0 && goal->requests < 0 && goal->protect == 0;
    return code == CLI_OK ? suggest_key_read(suggest) : code;
}

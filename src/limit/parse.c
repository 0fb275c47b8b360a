/*
 * Limit text to rules. A limit is a name, an amount (`10/s`, or a plain count for concurrent) and
 * options in any order, once each; words are separated by spaces, limits by commas.
 */
#include "base/duration.h"
#include "base/span.h"
#include "limit/calendar.h"
#include "limit/limit.h"
#include "limit/options.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

struct reader {
    const char *text;
    size_t at;
    int64_t *costs; /* NULL: no limit may have one of its own */
    weir_error *err;
};

struct word {
    const char *text;
    size_t len;
    int column;
};

#define SHOWN_MAX 40 /* of a wrong word in a message */

static void parse_skip_spaces(struct reader *reader)
{
    while (reader->text[reader->at] == ' ')
        reader->at++;
}

/* The next word, up to a space, a comma or the end; empty at a comma or the end. */
static struct word parse_next_word(struct reader *reader)
{
    parse_skip_spaces(reader);
    struct word word = {reader->text + reader->at, 0, (int)reader->at + 1};
    while (word.text[word.len] && word.text[word.len] != ' ' && word.text[word.len] != ',')
        word.len++;
    reader->at += word.len;
    return word;
}

static bool parse_word_is(struct word word, const char *text)
{
    return word.len == strlen(text) && !strncasecmp(word.text, text, word.len);
}

/* A word in quotes as it can be shown: UTF-8 as it is, other bytes and what cannot be printed as
 * `?`. */
static void parse_show_word(struct word word, char ret[SHOWN_MAX + 8])
{
    size_t at = 0;
    *ret++ = '"';
    while (at < word.len) {
        size_t n = weir__utf8_length(word.text + at, word.len - at);
        bool printed = n > 1 ? (unsigned char)word.text[at] != 0xc2 /* control characters */
                             : n == 1 && isprint((unsigned char)word.text[at]);
        n = n ? n : 1;
        if (at + n > SHOWN_MAX)
            break;
        if (printed)
            memcpy(ret, word.text + at, n);
        else
            *ret = '?';
        ret += printed ? n : 1;
        at += n;
    }
    strcpy(ret, at < word.len ? "…\"" : "\"");
}

/* The column in characters. */
static int parse_column_of(const struct reader *reader, const char *place)
{
    int column = 1;
    for (const char *p = reader->text; p < place; p++)
        column += ((unsigned char)*p & 0xc0) != 0x80;
    return column;
}

/* Complains about a word: what is wrong, what stands there, an example. */
static int parse_refuse(struct reader *reader, struct word word, const char *verb, const char *what,
                        const char *example)
{
    char shown[SHOWN_MAX + 8] = "the end", ascii;
    size_t at;
    if (word.len > 0)
        parse_show_word(word, shown);
    else if (word.text[0] == ',')
        strcpy(shown, "\",\"");
    int column = parse_column_of(reader, word.text);
    size_t wide = weir__full_width(word.text, word.len, &at, &ascii);
    if (wide) {
        column = parse_column_of(reader, word.text + at);
        return weir__fail(
            reader->err, WEIR_ESYNTAX, column,
            "column %d: \"%.*s\" is a full-width character, write \"%c\" instead; found %s; "
            "example: %s",
            column, (int)wide, word.text + at, ascii, shown, example);
    }
    return weir__fail(reader->err, WEIR_ESYNTAX, column, "column %d: %s%s, found %s; example: %s",
                      column, verb, what, shown, example);
}

static int parse_complain(struct reader *reader, struct word word, const char *expected,
                          const char *example)
{
    return parse_refuse(reader, word, "expected ", expected, example);
}

/* A count with its optional suffixes; the length read, or 0. */
static size_t parse_read_count(const char *text, size_t len, int64_t *ret)
{
    size_t at = 0;
    int64_t count = 0;
    while (at < len && isdigit((unsigned char)text[at])) {
        count = weir__min(count * 10 + (text[at] - '0'), WEIR_COST_MAX + 1);
        at++;
    }
    if (at == 0)
        return 0;
    static const char suffixes[] = "kmg";
    const char *suffix =
        at < len ? memchr(suffixes, tolower((unsigned char)text[at]), sizeof suffixes - 1) : NULL;
    for (const char *p = suffixes; suffix && p <= suffix; p++)
        count = weir__min(count * 1000, WEIR_COST_MAX + 1);
    at += suffix != NULL;
    at += at < len && tolower((unsigned char)text[at]) == 'r';
    *ret = count;
    return at;
}

static int parse_count_in_bounds(struct reader *reader, struct word word, int64_t count,
                                 int64_t least, const char *example)
{
    if (count < least)
        return parse_complain(reader, word, "a count of at least 1", example);
    if (count > WEIR_COST_MAX)
        return parse_complain(reader, word, "a count of at most 1000g (10^12)", example);
    return 0;
}

/* The period `month` or `year`; other words are left to who reads durations. */
static int parse_read_civil(struct reader *reader, const struct weir__algorithm *algorithm,
                            struct word word, struct weir__rule *rule, bool *ret_civil)
{
    bool plain;
    enum weir__calendar_unit unit = weir__unit_read(word.text, word.len, &plain);
    if (unit == WEIR__SPAN)
        return 0;
    const char *example = weir__algorithm_calendar.example;
    if (rule->kind != WEIR__FIXED_WINDOW)
        return parse_refuse(reader, word, "",
                            unit == WEIR__MONTH
                                ? "only fixed-window counts by months: write 30d here"
                                : "only fixed-window counts by years: write 365d here",
                            algorithm->example);
    if (!plain)
        return parse_complain(reader, word,
                              unit == WEIR__MONTH ? "month alone, like 5000/month"
                                                  : "year alone, like 5000/year",
                              example);
    weir__rule_set_calendar(rule,
                            (struct weir__calendar){unit, weir__anchor_preset(unit), /* UTC */ 0});
    *ret_civil = true;
    return 0;
}

/* `10/s`, or for concurrent `20`. */
static int parse_read_amount(struct reader *reader, const struct weir__algorithm *algorithm,
                             struct weir__rule *rule)
{
    struct word word = parse_next_word(reader);
    bool rate = !algorithm->leases;
    size_t at = parse_read_count(word.text, word.len, &rule->count);
    const char *expected = rate ? "a rate like 10/s" : "a count like 20";
    if (at == 0 || (rate ? at >= word.len || word.text[at] != '/' : at != word.len))
        return parse_complain(reader, word, expected, algorithm->example);
    int code = parse_count_in_bounds(reader, word, rule->count, 1, algorithm->example);
    if (code || !rate)
        return code;
    const char *why = NULL;
    at++;
    struct word period = {word.text + at, word.len - at, word.column + (int)at};
    bool civil = false;
    code = parse_read_civil(reader, algorithm, period, rule, &civil);
    if (code || civil)
        return code;
    size_t used = weir__duration_parse(period.text, period.len, &rule->period_us, &why);
    if (why == weir__duration_needs_unit && rule->kind == WEIR__FIXED_WINDOW)
        why = "a period needs a unit: us, ms, s, m, h, d, w, month or year (or sec, min, hour, "
              "day, week)";
    if (used == 0)
        return parse_refuse(reader, period, "", why, algorithm->example);
    if (used != period.len)
        return parse_complain(reader, period, "a period like s, 10s or 1h30m", algorithm->example);
    return 0;
}

/* A decimal of at most six places, in millionths. */
static bool parse_read_millionths(struct word word, int64_t *ret)
{
    uint64_t value = 0;
    int decimals = -1;
    if (word.len == 0 || !isdigit((unsigned char)word.text[0]) ||
        !isdigit((unsigned char)word.text[word.len - 1]))
        return false;
    for (size_t i = 0; i < word.len; i++) {
        if (word.text[i] == '.' && decimals < 0) {
            decimals = 0;
        } else if (isdigit((unsigned char)word.text[i]) && decimals < 6 && value < 100000000000) {
            value = value * 10 + (uint64_t)(word.text[i] - '0');
            decimals += decimals >= 0;
        } else {
            return false;
        }
    }
    for (int i = decimals > 0 ? decimals : 0; i < 6; i++)
        value *= 10;
    *ret = value > UINT32_MAX ? UINT32_MAX : (int64_t)value;
    return true;
}

/* `from 15` */
static int parse_read_anchor(struct reader *reader, struct word option, struct weir__rule *rule)
{
    struct weir__calendar calendar = weir__calendar_of(rule);
    const char *example = weir__algorithm_calendar.example;
    if (calendar.unit == WEIR__SPAN && rule->period_us == 7 * WEIR__DAY_US)
        calendar.unit = WEIR__WEEK;
    if (calendar.unit == WEIR__SPAN)
        return parse_refuse(reader, option, "",
                            "only a period of one week, a month or a year has from", example);
    struct word word = parse_next_word(reader);
    if (!weir__anchor_read(calendar.unit, word.text, word.len, &calendar.anchor))
        return parse_complain(reader, word, weir__anchor_expected(calendar.unit), example);
    weir__rule_set_calendar(rule, calendar);
    return 0;
}

/* `zone +08:00` */
static int parse_read_zone(struct reader *reader, struct weir__rule *rule)
{
    struct word word = parse_next_word(reader);
    struct weir__calendar calendar = weir__calendar_of(rule);
    const char *example = weir__algorithm_calendar.example;
    if (word.len > 0 && isalpha((unsigned char)word.text[0]))
        return parse_refuse(reader, word, "",
                            "a zone has no name here, only an offset from UTC like +01:00 (no "
                            "summer time)",
                            example);
    if (!weir__zone_read(word.text, word.len, &calendar.zone))
        return parse_complain(reader, word,
                              "an offset like +08:00 or -03:30, from -12:00 to +14:00", example);
    weir__rule_set_calendar(rule, calendar);
    return 0;
}

/* An option's value into the rule's field for it. */
static int parse_read_value(struct reader *reader, const struct weir__algorithm *algorithm,
                            const struct weir__option *option, struct weir__rule *rule)
{
    struct word word = parse_next_word(reader);
    int64_t value = 0;
    int code = 0;
    if (option->type == WEIR__OPTION_DURATION) {
        const char *why = NULL;
        size_t used = weir__duration_parse(word.text, word.len, &value, &why);
        if (used == 0)
            return parse_refuse(reader, word, "", why, algorithm->example);
        if (used != word.len)
            return parse_complain(reader, word, "a duration like 30s", algorithm->example);
    } else if (option->type == WEIR__OPTION_DECIMAL) {
        if (!parse_read_millionths(word, &value))
            return parse_complain(reader, word, "a number like 3 or 2.5 (at most six decimals)",
                                  algorithm->example);
    } else {
        assert(option->type == WEIR__OPTION_COUNT);
        if (word.len == 0 || parse_read_count(word.text, word.len, &value) != word.len)
            return parse_complain(reader, word, "a count like 20", algorithm->example);
        code = parse_count_in_bounds(reader, word, value, option->least, algorithm->example);
    }
    weir__option_set(option, rule, value);
    return code;
}

/* "burst, stepped or the end": what may follow this limit. */
static void parse_expected_options(const struct reader *reader, enum weir__kind kind, char *ret,
                                   size_t size)
{
    struct weir__buffer buffer = weir__buffer_over(ret, size);
    for (size_t i = 0; i < WEIR__OPTIONS; i++) {
        if (weir__option_fits(&weir__options[i], kind))
            weir__put_format(&buffer, "\"%s\", ", weir__options[i].text);
    }
    weir__put_text(&buffer, reader->costs ? "\"cost\", " : "");
    weir__put_text(&buffer, "a comma or the end");
}

/* Whether an option was read that this one cannot stand with: they name the same exclusion and are
 * not of one camp. */
static bool parse_excluded(const struct weir__option *option, unsigned seen)
{
    for (size_t i = 0; i < WEIR__OPTIONS && option->excludes; i++) {
        const struct weir__option *other = &weir__options[i];
        bool allied = option->camp != 0 && option->camp == other->camp;
        if (seen & 1u << i && other != option && !allied && other->excludes == option->excludes)
            return true;
    }
    return false;
}

/* Reads an option into the rule; *seen has a bit for each that was read. */
static int parse_read_option(struct reader *reader, const struct weir__algorithm *algorithm,
                             struct word word, unsigned *seen, struct weir__rule *rule)
{
    for (size_t i = 0; i < WEIR__OPTIONS; i++) {
        const struct weir__option *option = &weir__options[i];
        if (!weir__option_fits(option, rule->kind) || !parse_word_is(word, option->text))
            continue;
        if (*seen & 1u << i)
            return parse_complain(reader, word, "each option once", algorithm->example);
        *seen |= 1u << i;
        if (parse_excluded(option, *seen))
            return parse_complain(reader, word, option->excludes, algorithm->example);
        switch (option->type) {
        case WEIR__OPTION_FLAG:
            rule->flags |= option->flag;
            return 0;
        case WEIR__OPTION_KIND:
            if (rule->kind == WEIR__CALENDAR)
                return parse_refuse(reader, word, "",
                                    "a month or a year starts by the calendar, not with its first "
                                    "request: leave this out",
                                    weir__algorithm_calendar.example);
            rule->kind = (uint8_t)option->kind;
            return 0;
        case WEIR__OPTION_ANCHOR:
            return parse_read_anchor(reader, word, rule);
        case WEIR__OPTION_ZONE:
            return parse_read_zone(reader, rule);
        case WEIR__OPTION_COUNT:
        case WEIR__OPTION_DURATION:
        case WEIR__OPTION_DECIMAL:
            break;
        }
        return parse_read_value(reader, algorithm, option, rule);
    }
    char expected[160];
    parse_expected_options(reader, rule->kind, expected, sizeof expected);
    return parse_complain(reader, word, expected, algorithm->example);
}

/* `cost 5`: every limit may have one. *ret_word: the 5. */
static int parse_read_cost(struct reader *reader, const struct weir__algorithm *algorithm,
                           struct word word, int64_t *cost, struct word *ret_word)
{
    if (*cost)
        return parse_complain(reader, word, "each option once", algorithm->example);
    *ret_word = parse_next_word(reader);
    if (ret_word->len == 0 ||
        parse_read_count(ret_word->text, ret_word->len, cost) != ret_word->len)
        return parse_complain(reader, *ret_word, "a count like 20", algorithm->example);
    return parse_count_in_bounds(reader, *ret_word, *cost, 1, algorithm->example);
}

/* A limit that never admits its own cost would deny everything. */
static int parse_check_cost(struct reader *reader, const struct weir__rule *rule, struct word word,
                            int64_t cost)
{
    const struct weir__algorithm *algorithm = weir__algorithm_of(rule);
    char expected[96];
    int64_t most = algorithm->most(rule);
    if (cost <= most)
        return 0;
    struct weir__buffer buffer = weir__buffer_over(expected, sizeof expected);
    weir__put_format(&buffer, "a cost of at most %lld, which is all that the limit admits at once",
                     (long long)most);
    return parse_complain(reader, word, expected, algorithm->example);
}

static void parse_set_presets(struct weir__rule *rule, unsigned seen)
{
    for (size_t i = 0; i < WEIR__OPTIONS; i++) {
        const struct weir__option *option = &weir__options[i];
        int64_t preset = weir__option_preset(option, rule);
        bool apart = option->type == WEIR__OPTION_ANCHOR; /* it came with the period */
        if (preset && !apart && weir__option_fits(option, rule->kind) && !(seen & 1u << i))
            weir__option_set(option, rule, preset);
    }
}

/* The first kind of that name; its siblings are reached by options. */
static enum weir__kind parse_find_kind(struct word word)
{
    int kind = 0;
    if (parse_word_is(word, "gcra"))
        return WEIR__TOKEN_BUCKET;
    while (kind < WEIR__KIND_COUNT && !parse_word_is(word, weir__algorithms[kind]->name))
        kind++;
    return (enum weir__kind)kind;
}

/* "the name of a limit (token-bucket, leaky-bucket, …)" */
static void parse_expected_names(char *ret, size_t size)
{
    struct weir__buffer buffer = weir__buffer_over(ret, size);
    for (int kind = 0; kind < WEIR__KIND_COUNT; kind++) {
        const struct weir__algorithm *algorithm = weir__algorithms[kind];
        bool sibling = strcmp(algorithm->name, algorithm->full_name) != 0;
        if (!sibling) {
            weir__put_text(&buffer, kind == 0 ? "the name of a limit (" : ", ");
            weir__put_text(&buffer, algorithm->name);
        }
    }
    weir__put_text(&buffer, ")");
}

/* A line of nginx: what to write instead. */
static int parse_refuse_limit_req(struct reader *reader, struct word word)
{
    char here[SHOWN_MAX * 4];
    struct weir__buffer buffer = weir__buffer_over(here, sizeof here);
    int column = parse_column_of(reader, word.text);
    weir__put_limit_req(&buffer, word.text);
    return weir__fail(reader->err, WEIR_ESYNTAX, column,
                      "column %d: this is limit_req of nginx; write %s", column, here);
}

static int parse_read_rule(struct reader *reader, struct weir__rule *rule, int64_t *cost)
{
    struct word first = parse_next_word(reader), cost_word = first;
    enum weir__kind kind = parse_find_kind(first);
    if (kind == WEIR__KIND_COUNT) {
        char expected[256];
        if (weir__limit_req_is(first.text))
            return parse_refuse_limit_req(reader, first);
        parse_expected_names(expected, sizeof expected);
        return parse_complain(reader, first, expected, weir__algorithms[0]->example);
    }
    const struct weir__algorithm *algorithm = weir__algorithms[kind];
    *rule = (struct weir__rule){.kind = (uint8_t)kind};
    int code = parse_read_amount(reader, algorithm, rule);
    unsigned seen = 0;
    while (code == 0) {
        struct word word = parse_next_word(reader);
        if (word.len == 0)
            break;
        code = reader->costs && parse_word_is(word, "cost")
                   ? parse_read_cost(reader, algorithm, word, cost, &cost_word)
                   : parse_read_option(reader, algorithm, word, &seen, rule);
    }
    if (code)
        return code;
    parse_set_presets(rule, seen);
    const char *flaw = weir__rule_check(rule);
    if (!flaw)
        return parse_check_cost(reader, rule, cost_word, *cost);
    return weir__fail(reader->err, WEIR_ESYNTAX, first.column, "column %d: %s; example: %s",
                      first.column, flaw, algorithm->example);
}

static int parse_refuse_shared(struct reader *reader, const struct weir__rule *rules, size_t i,
                               int column)
{
    for (size_t j = 0; j < i; j++) {
        if (weir__rule_same_state(&rules[j], &rules[i]))
            return weir__fail(
                reader->err, WEIR_ESYNTAX, column,
                "column %d: limit %zu is of the same kind and period as limit %zu and "
                "would share its state; use another period or a key of its own",
                column, i + 1, j + 1);
    }
    return 0;
}

static int parse_limits(struct reader *reader, struct weir__rule *ret_rules, size_t *ret_count)
{
    const char *text = reader->text;
    for (size_t i = 0;; i++) {
        parse_skip_spaces(reader);
        int column = (int)reader->at + 1;
        if (i == WEIR_LIMITS_MAX)
            return weir__fail(reader->err, WEIR_ESYNTAX, column, "column %d: at most %d limits",
                              column, WEIR_LIMITS_MAX);
        int64_t cost = 0;
        int code = parse_read_rule(reader, &ret_rules[i], &cost);
        if (code == 0)
            code = parse_refuse_shared(reader, ret_rules, i, column);
        if (code)
            return code;
        if (reader->costs)
            reader->costs[i] = cost;
        if (text[reader->at] == 0) {
            *ret_count = i + 1;
            return 0;
        }
        reader->at++; /* the comma */
    }
}

int weir__limits_parse(const char *text, struct weir__rule *ret_rules, int64_t *ret_costs,
                       size_t *ret_count, weir_error *err)
{
    return parse_limits(&(struct reader){text, 0, ret_costs, err}, ret_rules, ret_count);
}

int weir__rules_parse(const char *text, struct weir__rule *ret_rules, size_t *ret_count,
                      weir_error *err)
{
    return parse_limits(&(struct reader){text, 0, NULL, err}, ret_rules, ret_count);
}

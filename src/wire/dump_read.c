/* Reading a dump: see dump.h. */
#include "wire/dump.h"

#include "limit/limit.h"
#include "wire/json.h"
#include "wire/state.h"

#define NODES 16 /* a line has five members at most */

/* One line, read. */
struct dump_line {
    const struct weir__dump_reader *reader;
    struct weir__json_node nodes[NODES];
    weir_error *err;
};

#define DUMP_FAIL(it, format, ...)                                                                 \
    weir__fail((it)->err, WEIR_EINVAL, 0, "line %llu: " format,                                    \
               (unsigned long long)(it)->reader->line, ##__VA_ARGS__)

static int dump_parse(struct dump_line *line, char *text, size_t len)
{
    weir_error err = {0};
    if (len > 0 && text[len - 1] == '\n')
        len--;
    if (weir__json_read(text, len, line->nodes, NODES, &err) < 0)
        return DUMP_FAIL(line, "%.300s; make the dump again", err.message);
    if (line->nodes[0].type != WEIR__JSON_OBJECT)
        return DUMP_FAIL(line, "expected an object; make the dump again");
    return 0;
}

static const struct weir__json_node *dump_member(const struct dump_line *line, const char *name)
{
    return weir__json_member(line->nodes, &line->nodes[0], name);
}

/* Whether a line has as many members as these, so that none is overlooked. */
static int dump_expect(const struct dump_line *line, uint32_t members, const char *what)
{
    if (line->nodes[0].len == members)
        return 0;
    return DUMP_FAIL(line, "expected %s", what);
}

static int dump_hex(const struct dump_line *line, const char *name, uint64_t *ret, size_t n)
{
    const struct weir__json_node *node = dump_member(line, name);
    bool good = node && node->type == WEIR__JSON_STRING && node->len == 16 * n;
    for (size_t i = 0; good && i < 16 * n; i++) {
        char c = node->text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        good = digit >= 0;
        ret[i / 16] = ret[i / 16] << 4 | (unsigned)(digit & 15);
    }
    return good ? 0 : DUMP_FAIL(line, "invalid %s: expected %zu hexadecimal digits", name, 16 * n);
}

static int dump_integer(const struct dump_line *line, const char *name, int64_t least, int64_t most,
                        int64_t *ret)
{
    const struct weir__json_node *node = dump_member(line, name);
    if (node && weir__json_integer(node, least, most, ret))
        return 0;
    return DUMP_FAIL(line, "invalid %s: expected a number from %lld to %lld", name,
                     (long long)least, (long long)most);
}

int weir__dump_read_head(struct weir__dump_reader *reader, char *text, size_t len, weir_error *err)
{
    struct dump_line line = {.reader = reader, .err = err};
    int64_t version = 0, size = 0, large = 0;
    *reader = (struct weir__dump_reader){.line = 1};
    int code = dump_parse(&line, text, len);
    if (code == 0 && !dump_member(&line, "weir_zone"))
        code = DUMP_FAIL(&line, "this is not a dump of a zone; make one with weir zone --dump");
    if (code == 0)
        code = dump_integer(&line, "weir_zone", WEIR__DUMP_VERSION, WEIR__DUMP_VERSION, &version);
    if (code == 0)
        code = dump_expect(&line, 4, "weir_zone, secret, size and large");
    if (code == 0)
        code = dump_hex(&line, "secret", reader->head.secret, 2);
    if (code == 0)
        code = dump_integer(&line, "size", (int64_t)WEIR__ZONE_SIZE_MIN,
                            (int64_t)WEIR__ZONE_SIZE_MAX, &size);
    if (code == 0)
        code = dump_integer(&line, "large", 0, 90, &large);
    reader->head.size = (uint64_t)size;
    reader->head.large_percent = (unsigned)large;
    return code;
}

/* ---- states and marks ---- */

static int dump_read_limit(const struct dump_line *line, struct weir__rule *ret)
{
    const struct weir__json_node *node = dump_member(line, "limit");
    struct weir__rule rules[WEIR_LIMITS_MAX];
    weir_error err = {0};
    size_t count = 0;
    if (!node || node->type != WEIR__JSON_STRING || memchr(node->text, 0, node->len))
        return DUMP_FAIL(line, "invalid limit: expected a text like \"token-bucket 10/s\"");
    if (weir__rules_parse(node->text, rules, &count, &err))
        return DUMP_FAIL(line, "invalid limit \"%.100s\": %.200s", node->text, err.message);
    if (count != 1)
        return DUMP_FAIL(line, "invalid limit \"%.100s\": expected one limit, found %zu",
                         node->text, count);
    *ret = rules[0];
    return 0;
}

/* Whether a section was written under this rule. */
static bool dump_is_of(const struct weir__section *section, const struct weir__rule *rule)
{
    bool debt = weir__algorithm_of(rule)->shape == WEIR__SHAPE_DEBT;
    return weir__rule_same_state(&section->rule, rule) &&
           section->rule.period_us == rule->period_us &&
           (!debt || section->rule.count == rule->count);
}

/* The bytes of the line become those of the state. */
static int dump_read_state(const struct dump_line *line, struct weir__carried *it)
{
    const struct weir__json_node *node = dump_member(line, "state");
    const struct weir__json_node *denied = dump_member(line, "denied");
    struct weir__value value;
    int code = dump_expect(line, denied ? 4 : 3, "tag, limit, state, and perhaps denied");
    if (code == 0)
        code = dump_read_limit(line, &it->rule);
    if (code)
        return code;
    if (denied && denied->type != WEIR__JSON_BOOL)
        return DUMP_FAIL(line, "invalid denied: expected true or false");
    it->denied = denied && denied->truth;
    char *text = node && node->type == WEIR__JSON_STRING ? (char *)node->text : NULL;
    int64_t len = text ? weir__base64_decode(text, node->len) : -1;
    if (len < 1)
        return DUMP_FAIL(line, "invalid state: expected base64");
    if (!weir__value_parse((uint8_t *)text, (size_t)len, &value) || value.count != 1 ||
        value.marks_count > 0)
        return DUMP_FAIL(line, "invalid state: expected one section as docs/STATE.md says");
    if (!dump_is_of(&value.sections[0], &it->rule))
        return DUMP_FAIL(line, "the state is not one of the limit; make the dump again");
    it->state = value.sections[0].state;
    return 0;
}

static int dump_read_mark(const struct dump_line *line, struct weir__carried *it)
{
    int64_t until = 0;
    int code = dump_expect(line, 2, "tag and settled_until");
    if (code == 0)
        code = dump_integer(line, "settled_until", WEIR__SETTLED_US + 1, WEIR__EXACT_MAX, &until);
    it->rule = weir__mark_rule;
    it->state = (struct weir__state){.present = true, .at = until - WEIR__SETTLED_US, .amount = 1};
    return code;
}

static int dump_read_last(const struct dump_line *line, struct weir__dump_reader *reader)
{
    int64_t states = 0, marks = 0;
    int code = dump_expect(line, 2, "states and marks");
    if (code == 0)
        code = dump_integer(line, "states", 0, INT64_MAX, &states);
    if (code == 0)
        code = dump_integer(line, "marks", 0, INT64_MAX, &marks);
    if (code == 0 && ((uint64_t)states != reader->states || (uint64_t)marks != reader->marks))
        code = DUMP_FAIL(line,
                         "it counts %lld states and %lld marks, and there are %llu and %llu; lines "
                         "are missing, make the dump again",
                         (long long)states, (long long)marks, (unsigned long long)reader->states,
                         (unsigned long long)reader->marks);
    reader->ended = code == 0;
    return code;
}

int weir__dump_read(struct weir__dump_reader *reader, char *text, size_t len, weir_error *err)
{
    struct dump_line line = {.reader = reader, .err = err};
    struct weir__carried it = {0};
    weir_error why = {0};
    reader->line++;
    if (reader->ended)
        return DUMP_FAIL(&line, "nothing may follow the last line; make the dump again");
    int code = dump_parse(&line, text, len);
    if (code)
        return code;
    if (dump_member(&line, "states"))
        return dump_read_last(&line, reader);
    bool mark = dump_member(&line, "settled_until");
    code = dump_hex(&line, "tag", &it.tag, 1);
    if (code == 0)
        code = mark ? dump_read_mark(&line, &it) : dump_read_state(&line, &it);
    if (code)
        return code;
    const char *flaw = weir__carried_flaw(&it);
    if (flaw)
        return DUMP_FAIL(&line, "%s; make the dump again", flaw);
    reader->states += !mark;
    reader->marks += mark;
    code = weir__zone_put(reader->zone, &it, reader->now_us, &why);
    return code ? weir__fail(err, code, 0, "line %llu: %.300s", (unsigned long long)reader->line,
                             why.message)
                : 0;
}

int weir__dump_read_end(const struct weir__dump_reader *reader, weir_error *err)
{
    if (reader->ended)
        return 0;
    return weir__fail(
        err, WEIR_EINVAL, 0,
        "line %llu: the file ends before its last line, it was cut off; make the dump "
        "again",
        (unsigned long long)reader->line + 1);
}

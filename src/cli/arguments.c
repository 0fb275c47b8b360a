/*
 * Reading the arguments of a command. First single values: each is read from its text, or the error
 * names the value and what was expected. Then the options (`--name value`, `--name=value`) before,
 * after and between the operands. `--` ends the options. A `-` before a digit begins a number, not
 * an option.
 */
#include "cli/cli.h"

#include "base/duration.h"
#include "base/span.h"

#include <assert.h>
#include <string.h>

/* ---- values ---- */

/* A whole number of at most `most`. False: it is something else, for example a sign or a space. */
static bool values_read_digits(const char *text, uint64_t most, uint64_t *ret)
{
    uint64_t number = 0;
    if (!*text)
        return false;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        uint64_t digit = (uint64_t)(*p - '0');
        if (number > most / 10 || number * 10 > most - digit)
            return false;
        number = number * 10 + digit;
    }
    *ret = number;
    return true;
}

/* What is wrong with a value. Full-width characters are reported first. */
static struct cli_shown values_full_width(const char *text, const char *otherwise)
{
    struct cli_shown shown;
    struct weir__buffer buffer = weir__buffer_over(shown.text, sizeof shown.text);
    char ascii;
    size_t at, wide = weir__full_width(text, strlen(text), &at, &ascii);
    if (wide)
        weir__put_format(&buffer, "\"%.*s\" is a full-width character, write \"%c\" instead",
                         (int)wide, text + at, ascii);
    else
        weir__put_text(&buffer, otherwise);
    return shown;
}

int cli_read_cost(const struct cli_call *call, const char *what, const char *text, int64_t *ret)
{
    uint64_t number;
    if (!values_read_digits(text, WEIR_COST_MAX, &number))
        return cli_fail(
            call, CLI_USAGE, "invalid %s \"%s\": %s", what, cli_show_text(text).text,
            values_full_width(text, "expected a whole number from 0 to 1000000000000, like 1")
                .text);
    *ret = (int64_t)number;
    return CLI_OK;
}

static int values_read_count(const struct cli_call *call, const char *what, const char *text,
                             int64_t most, int64_t *ret)
{
    uint64_t number;
    if (!values_read_digits(text, (uint64_t)most, &number) || number == 0)
        return cli_fail(call, CLI_USAGE,
                        "invalid %s \"%s\": expected a whole number from 1 to %lld", what,
                        cli_show_text(text).text, (long long)most);
    *ret = (int64_t)number;
    return CLI_OK;
}

static int values_read_ratio(const struct cli_call *call, const char *what, const char *text,
                             int64_t *ret)
{
    const char *point = text[0] ? text + 1 : text;
    int64_t millionths = (text[0] - '0') * INT64_C(1000000), unit = 100000;
    bool good = (text[0] == '0' || text[0] == '1') && (!*point || (*point == '.' && point[1]));
    for (const char *p = good && *point ? point + 1 : ""; *p && good; p++, unit /= 10) {
        good = *p >= '0' && *p <= '9' && unit > 0;
        millionths += (*p - '0') * unit;
    }
    if (!good || millionths > 1000000)
        return cli_fail(
            call, CLI_USAGE,
            "invalid %s \"%s\": expected a number from 0 to 1 with at most six decimals, like "
            "0.8",
            what, cli_show_text(text).text);
    *ret = millionths;
    return CLI_OK;
}

int cli_read_amount(const struct cli_call *call, const char *text, int64_t *ret)
{
    return values_read_count(call, "amount", text, WEIR_COST_MAX, ret);
}

int cli_read_lease(const struct cli_call *call, const char *text, uint64_t *ret)
{
    if (!values_read_digits(text, UINT64_MAX, ret) || *ret == 0)
        return cli_fail(call, CLI_USAGE,
                        "invalid lease id \"%s\": expected the number that `weir acquire` printed",
                        cli_show_text(text).text);
    return CLI_OK;
}

typedef size_t duration_parser(const char *text, size_t len, int64_t *ret_us, const char **ret_why);

static int values_read_duration(const struct cli_call *call, const char *what, const char *text,
                                duration_parser *parse, int64_t *ret)
{
    const char *why = "expected a duration like 500ms, 10s or 1h30m";
    size_t len = strlen(text);
    int64_t microseconds;
    size_t used = parse(text, len, &microseconds, &why);
    if (used == 0 || used != len)
        return cli_fail(call, CLI_USAGE, "invalid %s \"%s\": %s; examples: 500ms, 10s, 1h30m", what,
                        cli_show_text(text).text, values_full_width(text, why).text);
    *ret = microseconds;
    return CLI_OK;
}

static int values_read_wait(const struct cli_call *call, const char *what, const char *text,
                            int64_t *ret)
{
    if (!strcmp(text, "any")) {
        *ret = WEIR_WAIT_ANY;
        return CLI_OK;
    }
    return values_read_duration(call, what, text, weir__wait_parse, ret);
}

static int values_read_seconds(const struct cli_call *call, const char *what, const char *text,
                               bool zero, int64_t *ret)
{
    uint64_t seconds;
    if (!values_read_digits(text, WEIR_DURATION_MAX / 1000000, &seconds) || seconds == 0)
        return values_read_duration(call, what, text,
                                    zero ? weir__wait_parse : weir__duration_parse, ret);
    *ret = (int64_t)seconds * 1000000;
    return CLI_OK;
}

int cli_read_key(const struct cli_call *call, const char *text, weir_key *ret)
{
    size_t len = strlen(text);
    if (len == 0)
        return cli_fail(call, CLI_USAGE, "invalid key \"\": expected 1 to %d bytes, like user:42",
                        WEIR_KEY_MAX);
    if (len > WEIR_KEY_MAX)
        return cli_fail(call, CLI_USAGE,
                        "invalid key \"%s\" of %zu bytes: expected 1 to %d bytes; hash longer keys",
                        cli_show(text, 40).text, len, WEIR_KEY_MAX);
    *ret = weir_key_bytes(text, len);
    return CLI_OK;
}

int cli_read_limits(const struct cli_call *call, const char *text, weir_limit **ret)
{
    weir_error err = {0};
    int code = weir_limit_parse(text, ret, &err);
    if (code == 0)
        return CLI_OK;
    if (code == WEIR_ENOMEM)
        return cli_fail(call, CLI_FAILED, "%s", err.message);
    cli_fail(call, CLI_USAGE, "invalid limit \"%s\": %s", cli_show_text(text).text, err.message);
    if (err.column > 0 && err.column <= 60 && !strchr(text, '\n'))
        fprintf(stderr, "    %s\n    %*s^\n", cli_show_text(text).text, err.column - 1, "");
    return CLI_USAGE;
}

/* ---- options and operands ---- */

#define OPTIONS_MAX 60

struct parser {
    const struct cli_call *call;
    const struct cli_option *options;
    size_t option_count;
    const struct cli_operand *operands;
    size_t operand_count;
    size_t operands_read;
    size_t many;   /* of the operand that is a list */
    uint64_t seen; /* one bit per option */
    int at;        /* index into argv */
};

static bool options_is_option(const char *argument)
{
    return argument[0] == '-' && argument[1] && !(argument[1] >= '0' && argument[1] <= '9');
}

static int options_unknown_option(const struct parser *parser, const char *argument)
{
    const char *names[OPTIONS_MAX + 2];
    assert(parser->option_count <= OPTIONS_MAX);
    for (size_t i = 0; i < parser->option_count; i++)
        names[i] = parser->options[i].name;
    names[parser->option_count] = "help";
    names[parser->option_count + 1] = NULL;
    const char *word = argument + strspn(argument, "-");
    char name[40];
    struct weir__buffer buffer = weir__buffer_over(name, sizeof name);
    weir__put(&buffer, word, strcspn(word, "="));
    const char *nearest = weir__nearest(name, buffer.len, names);
    const char *command = parser->call->command->name;
    if (nearest)
        return cli_fail(parser->call, CLI_USAGE,
                        "unknown option \"%s\"; did you mean --%s? See `weir %s --help`",
                        cli_show_text(argument).text, nearest, command);
    return cli_fail(parser->call, CLI_USAGE,
                    "unknown option \"%s\"; see `weir %s --help`, and -- goes before an "
                    "argument that begins with a dash",
                    cli_show_text(argument).text, command);
}

static int options_add_text(const struct parser *parser, const struct cli_option *option,
                            const char *text)
{
    struct cli_list *list = option->ret;
    if (list->count == CLI_LIST_MAX)
        return cli_fail(parser->call, CLI_USAGE, "too many --%s: expected at most %d", option->name,
                        CLI_LIST_MAX);
    list->texts[list->count++] = text;
    return CLI_OK;
}

static int options_store_value(const struct parser *parser, const struct cli_option *option,
                               const char *text)
{
    char what[40];
    struct weir__buffer buffer = weir__buffer_over(what, sizeof what);
    weir__put_format(&buffer, "--%s", option->name);
    switch (option->type) {
    case CLI_COST:
        return cli_read_cost(parser->call, what, text, option->ret);
    case CLI_WAIT:
        return values_read_wait(parser->call, what, text, option->ret);
    case CLI_SECONDS:
    case CLI_DELAY:
        return values_read_seconds(parser->call, what, text, option->type == CLI_DELAY,
                                   option->ret);
    case CLI_RATIO:
        return values_read_ratio(parser->call, what, text, option->ret);
    case CLI_COUNT:
        return values_read_count(parser->call, what, text, option->most, option->ret);
    case CLI_TEXT:
        *(const char **)option->ret = text;
        return CLI_OK;
    case CLI_LIST:
        return options_add_text(parser, option, text);
    case CLI_FLAG:
        break;
    }
    *(bool *)option->ret = true;
    return CLI_OK;
}

/* The option that the argument names, and its value if it follows a "=". */
static const struct cli_option *options_named(const struct parser *parser, const char *argument,
                                              const char **ret_value)
{
    const char *name = argument + 2;
    if (!strcmp(argument, "-f"))
        name = "follow";
    else if (strncmp(argument, "--", 2))
        return NULL;
    size_t len = strcspn(name, "=");
    for (size_t i = 0; i < parser->option_count; i++) {
        const char *candidate = parser->options[i].name;
        if (strlen(candidate) == len && !strncmp(candidate, name, len)) {
            *ret_value = name[len] ? name + len + 1 : NULL;
            return &parser->options[i];
        }
    }
    return NULL;
}

static int options_read_option(struct parser *parser)
{
    const char *argument = parser->call->argv[parser->at];
    const char *value = NULL;
    const struct cli_option *option = options_named(parser, argument, &value);
    if (!option)
        return options_unknown_option(parser, argument);
    uint64_t bit = UINT64_C(1) << (option - parser->options);
    if (parser->seen & bit && option->type != CLI_LIST)
        return cli_fail(parser->call, CLI_USAGE, "--%s is given twice: expected once",
                        option->name);
    parser->seen |= bit;
    if (option->type == CLI_FLAG && value)
        return cli_fail(parser->call, CLI_USAGE, "invalid value \"%s\": --%s takes no value",
                        cli_show_text(value).text, option->name);
    if (option->type != CLI_FLAG && !value) {
        if (parser->at + 1 == parser->call->argc)
            return cli_fail(parser->call, CLI_USAGE, "--%s needs a value; see `weir %s --help`",
                            option->name, parser->call->command->name);
        value = parser->call->argv[++parser->at];
    }
    return options_store_value(parser, option, value);
}

static bool options_is_name(const struct parser *parser, const char *argument)
{
    for (size_t i = 0; i < parser->option_count; i++) {
        if (!strcmp(parser->options[i].name, argument))
            return true;
    }
    return false;
}

/* There is one operand too many: an option without its dashes, or a limit without its quotes. */
static int options_refuse_operand(const struct parser *parser, const char *argument)
{
    const char *dashless = options_is_name(parser, argument) ? argument : NULL;
    bool limits = false;
    for (size_t i = 0; i < parser->operand_count; i++)
        limits = limits || strstr(parser->operands[i].name, "LIMIT");
    for (size_t i = 0; i < parser->operand_count && !dashless && !limits; i++) {
        assert(*parser->operands[i].ret);
        if (options_is_name(parser, *parser->operands[i].ret))
            dashless = *parser->operands[i].ret;
    }
    if (dashless)
        return cli_fail(parser->call, CLI_USAGE, "unexpected argument \"%s\"; did you mean --%s?",
                        dashless, dashless);
    if (limits)
        return cli_fail(parser->call, CLI_USAGE,
                        "unexpected argument \"%s\"; write a limit in quotes, like "
                        "\"token-bucket 10/s burst 20\"",
                        cli_show_text(argument).text);
    return cli_fail(parser->call, CLI_USAGE, "unexpected argument \"%s\"; see `weir %s --help`",
                    cli_show_text(argument).text, parser->call->command->name);
}

static int options_read_operand(struct parser *parser)
{
    const char *argument = parser->call->argv[parser->at];
    if (parser->operands_read == parser->operand_count)
        return options_refuse_operand(parser, argument);
    assert(parser->operands_read < parser->operand_count);
    const struct cli_operand *operand = &parser->operands[parser->operands_read];
    if (operand->need >= CLI_MANY && parser->many == (size_t)operand->need)
        return cli_fail(parser->call, CLI_USAGE, "too many %s: expected at most %d", operand->name,
                        (int)operand->need);
    if (operand->need >= CLI_MANY) {
        operand->ret[parser->many++] = argument;
        operand->ret[parser->many] = NULL;
        return CLI_OK;
    }
    *operand->ret = argument;
    parser->operands_read++;
    return CLI_OK;
}

/* For shell completion: one option per line, with the kind of its value. */
static void options_list_options(const struct parser *parser)
{
    static const char *const kinds[] = {
        [CLI_FLAG] = "",         [CLI_TEXT] = " text",    [CLI_COST] = " number",
        [CLI_WAIT] = " time",    [CLI_SECONDS] = " time", [CLI_DELAY] = " time",
        [CLI_COUNT] = " number", [CLI_RATIO] = " number", [CLI_LIST] = " text again",
    };
    for (size_t i = 0; i < parser->option_count; i++)
        printf("--%s%s\n", parser->options[i].name, kinds[parser->options[i].type]);
    puts("--help");
}

int cli_parse(const struct cli_call *call, const struct cli_option *options, size_t option_count,
              const struct cli_operand *operands, size_t operand_count)
{
    struct parser parser = {
        .call = call,
        .options = options,
        .option_count = option_count,
        .operands = operands,
        .operand_count = operand_count,
    };
    bool options_ended = false;
    assert(option_count <= OPTIONS_MAX); /* one bit each in `seen` */
    if (call->argc == 1 && !strcmp(call->argv[0], "--list-options")) {
        options_list_options(&parser);
        return CLI_LISTED;
    }
    for (; parser.at < call->argc; parser.at++) {
        const char *argument = call->argv[parser.at];
        if (!options_ended && !strcmp(argument, "--")) {
            options_ended = true;
            continue;
        }
        bool option = !options_ended && options_is_option(argument);
        int code = option ? options_read_option(&parser) : options_read_operand(&parser);
        if (code)
            return code;
    }
    if (parser.operands_read < operand_count && operands[parser.operands_read].need == CLI_REQUIRED)
        return cli_fail(call, CLI_USAGE, "%s is missing; see `weir %s --help`",
                        operands[parser.operands_read].name, call->command->name);
    return CLI_OK;
}

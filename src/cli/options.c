/*
 * Reading a command's arguments: options (`--name value`, `--name=value`) before, after and between
 * the operands; `--` ends the options. A `-` before a digit is a number, not an option.
 */
#include "cli/cli.h"

#include "base/span.h"

#include <assert.h>
#include <string.h>

#define OPTIONS_MAX 60

struct parser {
    const struct cli_call *call;
    const struct cli_option *options;
    size_t option_count;
    const struct cli_operand *operands;
    size_t operand_count;
    size_t operands_read;
    uint64_t seen; /* a bit an option */
    int at;        /* index into argv */
};

static bool is_option(const char *argument)
{
    return argument[0] == '-' && argument[1] && !(argument[1] >= '0' && argument[1] <= '9');
}

static int unknown_option(const struct parser *parser, const char *argument)
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
                        "unknown option \"%s\"; did you mean --%s? `weir %s --help` lists all",
                        cli_show_text(argument).text, nearest, command);
    return cli_fail(parser->call, CLI_USAGE,
                    "unknown option \"%s\"; `weir %s --help` lists all, and -- goes before an "
                    "argument that begins with a dash",
                    cli_show_text(argument).text, command);
}

static int add_text(const struct parser *parser, const struct cli_option *option, const char *text)
{
    struct cli_list *list = option->ret;
    if (list->count == WEIR__COUNT(list->texts))
        return cli_fail(parser->call, CLI_USAGE, "--%s can be given %zu times at most",
                        option->name, WEIR__COUNT(list->texts));
    list->texts[list->count++] = text;
    return CLI_OK;
}

static int store_value(const struct parser *parser, const struct cli_option *option,
                       const char *text)
{
    char what[40];
    struct weir__buffer buffer = weir__buffer_over(what, sizeof what);
    weir__put_format(&buffer, "--%s", option->name);
    switch (option->type) {
    case CLI_COST:
        return cli_read_cost(parser->call, what, text, option->ret);
    case CLI_WAIT:
        return cli_read_wait(parser->call, what, text, option->ret);
    case CLI_SECONDS:
    case CLI_DELAY:
        return cli_read_seconds(parser->call, what, text, option->type == CLI_DELAY, option->ret);
    case CLI_RATIO:
        return cli_read_ratio(parser->call, what, text, option->ret);
    case CLI_COUNT:
        return cli_read_count(parser->call, what, text, option->most, option->ret);
    case CLI_TEXT:
        *(const char **)option->ret = text;
        return CLI_OK;
    case CLI_LIST:
        return add_text(parser, option, text);
    case CLI_FLAG:
        break;
    }
    *(bool *)option->ret = true;
    return CLI_OK;
}

/* The option that the argument names, and its value if that stands behind a "=". */
static const struct cli_option *find_option(const struct parser *parser, const char *argument,
                                            const char **ret_value)
{
    if (strncmp(argument, "--", 2))
        return NULL;
    const char *name = argument + 2;
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

static int read_option(struct parser *parser)
{
    const char *argument = parser->call->argv[parser->at];
    const char *value = NULL;
    const struct cli_option *option = find_option(parser, argument, &value);
    if (!option)
        return unknown_option(parser, argument);
    uint64_t bit = UINT64_C(1) << (option - parser->options);
    if (parser->seen & bit && option->type != CLI_LIST)
        return cli_fail(parser->call, CLI_USAGE, "--%s is given twice; give it once", option->name);
    parser->seen |= bit;
    if (option->type == CLI_FLAG && value)
        return cli_fail(parser->call, CLI_USAGE, "--%s takes no value, but \"%s\" was given",
                        option->name, cli_show_text(value).text);
    if (option->type != CLI_FLAG && !value) {
        if (parser->at + 1 == parser->call->argc)
            return cli_fail(parser->call, CLI_USAGE,
                            "--%s needs a value; `weir %s --help` shows an example", option->name,
                            parser->call->command->name);
        value = parser->call->argv[++parser->at];
    }
    return store_value(parser, option, value);
}

static int read_operand(struct parser *parser)
{
    const char *argument = parser->call->argv[parser->at];
    if (parser->operands_read == parser->operand_count)
        return cli_fail(parser->call, CLI_USAGE,
                        "unexpected argument \"%s\"; quote a limit as one word, like "
                        "\"token-bucket 10/s burst 20\"",
                        cli_show_text(argument).text);
    *parser->operands[parser->operands_read++].ret = argument;
    return CLI_OK;
}

/* What a shell's completion must know, one option a line, with the kind of its value. */
static void list_options(const struct parser *parser)
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
    if (call->argc == 1 && !strcmp(call->argv[0], "--list-options")) {
        list_options(&parser);
        return CLI_LISTED;
    }
    for (; parser.at < call->argc; parser.at++) {
        const char *argument = call->argv[parser.at];
        if (!options_ended && !strcmp(argument, "--")) {
            options_ended = true;
            continue;
        }
        bool option = !options_ended && is_option(argument);
        int code = option ? read_option(&parser) : read_operand(&parser);
        if (code)
            return code;
    }
    if (parser.operands_read < operand_count && !operands[parser.operands_read].optional)
        return cli_fail(call, CLI_USAGE, "%s is missing; `weir %s --help` shows examples",
                        operands[parser.operands_read].name, call->command->name);
    return CLI_OK;
}

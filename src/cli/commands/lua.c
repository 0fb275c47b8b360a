/* `weir lua`: the scripts for Redis and Valkey servers that allow no modules, and their
 * arguments. */
#include "base/span.h"
#include "cli/cli.h"
#include "remote/scripts.h"
#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* The take that --args describes. */
struct take {
    const char *limits;
    int64_t cost;
    int64_t least;
    int64_t wait_us;
};

static int lua_unknown_script(const struct cli_call *call, const char *name)
{
    const char *names[64] = {NULL};
    assert(weir__script_count < WEIR__COUNT(names));
    for (size_t i = 0; i < weir__script_count; i++)
        names[i] = weir__scripts[i].name;
    const char *nearest = weir__nearest(name, strlen(name), names);
    return cli_fail(call, CLI_USAGE, "unknown script \"%s\"%s%s; see `weir lua --list`",
                    cli_show_text(name).text, nearest ? "; did you mean " : "",
                    nearest ? nearest : "");
}

/* ---- arguments ---- */

/* The numbers of a script for one kind of limit, in the order of its arguments. */
static int lua_print_lean(const struct cli_call *call, const struct weir__script *script,
                          const struct take *take, const weir_limit *limit)
{
    const struct weir__rule *rule = &limit->rules[0];
    if (limit->costs || take->least)
        return cli_fail(call, CLI_USAGE,
                        "%s is for a take of the whole cost, under a limit without a cost of its "
                        "own; without this name you get the numbers of the general script",
                        script->name);
    if (limit->count != 1 || rule->kind != script->kind)
        return cli_fail(
            call, CLI_USAGE,
            "invalid limit \"%s\": %s expects one limit of its kind; without this name you "
            "get the numbers of the general script",
            cli_show_text(take->limits).text, script->name);
    int64_t numbers[WEIR__LEAN_NUMBERS];
    size_t n = weir__script_lean_numbers(script, rule, take->cost, take->wait_us, numbers);
    for (size_t i = 0; i < n; i++)
        printf("%s%" PRId64, i > 0 ? " " : "", numbers[i]);
    putchar('\n');
    return CLI_OK;
}

/* verb options wait lease, then the cost, the least if there is one, the number of limits, and
 * seven numbers per limit, or eight if one of them has a cost of its own. */
static int lua_print_general(const struct take *take, const weir_limit *limit)
{
    printf("0 %d %" PRId64 " 0 %" PRId64, (take->least ? 2 : 0) + (limit->costs ? 4 : 0),
           weir__script_wait(take->wait_us), take->cost);
    if (take->least)
        printf(" %" PRId64, take->least);
    printf(" %zu", limit->count);
    for (size_t i = 0; i < limit->count; i++) {
        int64_t numbers[WEIR__RULE_NUMBERS];
        weir__script_rule_numbers(&limit->rules[i], numbers);
        for (size_t j = 0; j < WEIR__RULE_NUMBERS; j++)
            printf(" %" PRId64, numbers[j]);
        if (limit->costs)
            printf(" %" PRId64, limit->costs[i]);
    }
    putchar('\n');
    return CLI_OK;
}

static int lua_print_arguments(const struct cli_call *call, const struct weir__script *script,
                               const struct take *take)
{
    weir_limit *limit = NULL;
    weir_error err;
    int code = cli_read_limits(call, take->limits, &limit);
    if (code)
        return code;
    weir_request request = weir_request_make(weir_key_text("k"), limit);
    request.cost = take->cost;
    request.least = take->least;
    request.wait_us = take->wait_us;
    if (take->least && weir__least_check(&request, &err))
        code = cli_fail(call, CLI_USAGE, "--least: %s", err.message);
    else
        code = script->kind >= 0 ? lua_print_lean(call, script, take, limit)
                                 : lua_print_general(take, limit);
    weir_limit_free(limit);
    return code;
}

/* ---- scripts ---- */

static void lua_put_members(struct weir__json *json, const struct weir__script *script)
{
    weir__json_put_string(json, "name", script->name);
    weir__json_put_string(json, "sha1", script->sha1);
    weir__json_put_string(json, "arguments", script->arguments);
}

static int lua_print_list(void)
{
    for (size_t i = 0; i < weir__script_count; i++)
        printf("%-26s %s  %s\n", weir__scripts[i].name, weir__scripts[i].sha1,
               weir__scripts[i].arguments);
    return CLI_OK;
}

static int lua_print_list_json(void)
{
    struct weir__json json = cli_json_begin('[');
    for (size_t i = 0; i < weir__script_count; i++) {
        weir__json_open(&json, NULL, '{');
        lua_put_members(&json, &weir__scripts[i]);
        weir__json_close(&json, '}');
    }
    cli_json_end(&json, ']');
    return CLI_OK;
}

static int lua_print_script(const struct weir__script *script, bool only_sha, bool as_json)
{
    if (as_json) {
        struct weir__json json = cli_json_begin('{');
        lua_put_members(&json, script);
        if (!only_sha)
            weir__json_put_string(&json, "script", script->text);
        cli_json_end(&json, '}');
    } else if (only_sha) {
        puts(script->sha1);
    } else {
        fputs(script->text, stdout);
        if (isatty(STDOUT_FILENO)) /* otherwise the bytes must be exactly those of the SHA1 */
            putchar('\n');
    }
    return CLI_OK;
}

static int cmd_lua(const struct cli_call *call)
{
    const char *name = NULL;
    struct take take = {NULL, 1, 0, WEIR_WAIT_DEFAULT};
    bool only_sha = false, function = false, list = false, as_json = false;
    const struct cli_option options[] = {
        {"args", CLI_TEXT, &take.limits, 0},
        {"cost", CLI_COST, &take.cost, 0},
        {"function", CLI_FLAG, &function, 0},
        {"json", CLI_FLAG, &as_json, 0},
        {"least", CLI_COUNT, &take.least, WEIR_COST_MAX},
        {"list", CLI_FLAG, &list, 0},
        {"sha", CLI_FLAG, &only_sha, 0},
        {"wait", CLI_WAIT, &take.wait_us, 0},
    };
    const struct cli_operand operands[] = {{"NAME", &name, true}};
    int code = CLI_PARSE(call, options, operands);
    if (code)
        return code;
    if (list)
        return as_json ? lua_print_list_json() : lua_print_list();
    if (name && function)
        return cli_fail(call, CLI_USAGE,
                        "--function prints one library of all scripts; leave out %s",
                        cli_show_text(name).text);
    if (!name)
        name = function && !take.limits ? WEIR__SCRIPT_LIBRARY : WEIR__SCRIPT_GENERAL;
    const struct weir__script *script = weir__script_named(name);
    if (!script)
        return lua_unknown_script(call, name);
    if (take.limits)
        return lua_print_arguments(call, script, &take);
    return lua_print_script(script, only_sha, as_json);
}

const struct cli_command cli_lua = {
    .name = "lua",
    .summary = "print the scripts for Redis and Valkey, and their arguments",
    .run = cmd_lua,
};

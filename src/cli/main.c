/* `weir`: finds the subcommand, and handles --help and --version. */
#include "cli/cli.h"

#include "base/span.h"
#include "cli/help.h"

#include <assert.h>
#include <signal.h>
#include <string.h>

static const struct cli_command *const commands[] = {
    &cli_take,    &cli_peek,    &cli_wait,    &cli_settle,      &cli_refund, &cli_reset,
    &cli_acquire, &cli_renew,   &cli_release, &cli_run,         &cli_pipe,   &cli_explain,
    &cli_replay,  &cli_suggest, &cli_demo,    &cli_bench,       &cli_zone,   &cli_lua,
    &cli_serve,   &cli_top,     &cli_check,   &cli_show_states,
};

/* The help of a command; "weir": what is around the list of all of them. */
static const char *main_help_of(const char *name)
{
    size_t i = 0;
    while (i < WEIR__COUNT(main_helps) && strcmp(main_helps[i].name, name))
        i++;
    assert(i < WEIR__COUNT(main_helps)); /* every command has its text */
    return main_helps[i].text;
}

static void main_print_usage(FILE *stream)
{
    const char *text = main_help_of("weir"), *rest = strstr(text, "\nExamples:");
    fwrite(text, 1, (size_t)(rest - text), stream);
    for (size_t i = 0; i < WEIR__COUNT(commands); i++)
        fprintf(stream, "  %-8s  %s\n", commands[i]->name, commands[i]->summary);
    fputs(rest, stream);
}

static const struct cli_command *main_find_command(const char *name)
{
    for (size_t i = 0; i < WEIR__COUNT(commands); i++) {
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    }
    return NULL;
}

static int main_unknown_command(const struct cli_call *call, const char *name)
{
    const char *names[WEIR__COUNT(commands) + 2] = {NULL};
    for (size_t i = 0; i < WEIR__COUNT(commands); i++)
        names[i] = commands[i]->name;
    names[WEIR__COUNT(commands)] = "help";
    const char *nearest = weir__nearest(name, strlen(name), names);
    if (nearest)
        return cli_fail(call, CLI_USAGE,
                        "unknown command \"%s\"; did you mean %s? See `weir --help`",
                        cli_show_text(name).text, nearest);
    return cli_fail(call, CLI_USAGE, "unknown command \"%s\"; see `weir --help`",
                    cli_show_text(name).text);
}

static bool main_wants_help(const struct cli_call *call)
{
    for (int i = 0; i < call->argc && strcmp(call->argv[i], "--"); i++) {
        if (!strcmp(call->argv[i], "--help") || !strcmp(call->argv[i], "-h"))
            return true;
    }
    return false;
}

static int main_print_help(const struct cli_call *call, const char *name)
{
    if (name && !main_find_command(name))
        return main_unknown_command(call, name);
    if (name)
        fputs(main_help_of(name), stdout);
    else
        main_print_usage(stdout);
    return CLI_OK;
}

static int main_run(int argc, char **argv)
{
    struct cli_call call = {NULL, argc - 2, argv + 2};
    if (argc < 2) {
        main_print_usage(stderr);
        return CLI_USAGE;
    }
    const char *first = argv[1];
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
        puts("weir " WEIR_VERSION);
        return CLI_OK;
    }
    if (!strcmp(first, "help"))
        return main_print_help(&call, argc > 2 ? argv[2] : NULL);
    if (!strcmp(first, "--help") || !strcmp(first, "-h"))
        return main_print_help(&call, NULL);
    call.command = main_find_command(first);
    if (!call.command)
        return main_unknown_command(&call, first);
    int code = main_wants_help(&call) ? main_print_help(&call, first) : call.command->run(&call);
    return code == CLI_LISTED ? CLI_OK : code;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_DFL);
    int code = main_run(argc, argv);
    struct cli_call whole = {NULL, 0, NULL};
    return cli_finish(&whole, code);
}

/*
 * The store that a command works on: the given one, or by default a zone in a file in the state
 * directory of the user, so that calls remember each other.
 */
#include "store/store.h"
#include "cli/server_store.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int cli_exit_for(int code)
{
    switch (code) {
    case WEIR_OK:
        return CLI_OK;
    case WEIR_ENOLEASE:
        return CLI_DENIED;
    case WEIR_EINVAL:
    case WEIR_ESYNTAX:
    case WEIR_EURL:
    case WEIR_ESHARED:
    case WEIR_ERECEIPT:
    case WEIR_EUNSUPPORTED:
        return CLI_USAGE;
    default:
        return CLI_FAILED;
    }
}

int cli_refused(const struct cli_call *call, weir_store *store, int code)
{
    weir_error err;
    if (cli_is_server(store) && weir__store_why(store, &err))
        return cli_fail(call, cli_exit_for(code), "%s", err.message);
    if (weir__store_why(store, &err))
        return cli_fail(call, cli_exit_for(code), "%s: %s (%s)", weir_strerror(code), err.message,
                        weir_errname(code));
    return cli_fail(call, cli_exit_for(code), "%s (%s)", weir_strerror(code), weir_errname(code));
}

/* mkdir -p with mode 0700. The path is changed meanwhile, and restored. */
static int store_make_directories(const struct cli_call *call, char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int failed = mkdir(path, 0700) && errno != EEXIST ? errno : 0;
        if (failed)
            cli_fail(
                call, CLI_FAILED,
                "cannot create the directory %s for the default store: %s; choose another store "
                "with --store",
                path, strerror(failed));
        *slash = '/';
        if (failed)
            return CLI_FAILED;
    }
    return CLI_OK;
}

/* The path of the default zone. Missing directories are created, unless the command only looks. */
static int store_default_path(const struct cli_call *call, char *ret, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct weir__buffer path = weir__buffer_over(ret, size);
    if (state && state[0] == '/')
        weir__put_format(&path, "%s/weir/zone", state);
    else if (home && home[0] == '/')
        weir__put_format(&path, "%s/.local/state/weir/zone", home);
    else
        return cli_fail(
            call, CLI_FAILED,
            "no default store: neither XDG_STATE_HOME nor HOME is set; choose a store with "
            "--store, like --store file:/tmp/zone");
    if (path.cut || strchr(ret, '?'))
        return cli_fail(
            call, CLI_FAILED,
            "invalid path of the default store \"%s\": it is too long or contains a question "
            "mark; choose another store with --store",
            cli_show_text(ret).text);
    return call->command->looks ? CLI_OK : store_make_directories(call, ret);
}

/* Adds an option to an address that does not have it. */
static void store_preset(struct weir__buffer *url, const char *name, const char *value)
{
    const char *given = strchr(url->data, '?');
    if (given && strstr(given, name))
        return;
    weir__put_text(url, given ? "&" : "?");
    weir__put_text(url, name);
    weir__put_text(url, value);
}

/* Someone at a shell waits for an answer rather than for 50 ms: a command has to connect first. Who
 * mistypes the name of a zone wants to know, and not to have a new one. */
static int store_open(const struct cli_call *call, const char *url, weir_store **ret,
                      weir_error *err)
{
    struct weir__buffer full = weir__buffer_growing();
    weir__put_text(&full, url);
    if (!full.cut && !strncmp(url, "redis", 5))
        store_preset(&full, "deadline=", "2s");
    else if (!full.cut && call->command->looks &&
             (!strncmp(url, "shm:", 4) || !strncmp(url, "file:", 5)))
        store_preset(&full, "create=", "no");
    int code = full.cut ? WEIR_ENOMEM : weir_store_open(full.data, ret, err);
    weir__buffer_free(&full);
    return code;
}

int cli_open_store(const struct cli_call *call, const char *url, weir_store **ret)
{
    char preset[PATH_MAX + 8] = "file:";
    if (!url) {
        int code = store_default_path(call, preset + 5, sizeof preset - 5);
        if (code)
            return code;
        url = preset;
    }
    weir_error err = {0};
    int code = store_open(call, url, ret, &err);
    if (code == 0) {
        weir__store_guard(*ret, "weir", url);
        weir__store_deny_full(*ret); /* exit 1, not 3: scripts may take a failure for a yes */
    }
    if (code == 0)
        return CLI_OK;
    return cli_fail(call, cli_exit_for(code), "%s",
                    err.message[0] ? err.message : weir_strerror(code));
}

int cli_open_shared_store(const struct cli_call *call, const struct cli_server *server,
                          const char *url, weir_store **ret)
{
    if (url && !strncmp(url, "memory:", 7))
        return cli_fail(call, CLI_USAGE,
                        "invalid --store \"%s\": a memory: store is private to one process and "
                        "limits nothing; use file:/path, shm:/name or redis://host",
                        cli_show_text(url).text);
    struct weir__buffer closed = weir__buffer_growing();
    if (url && !strncmp(url, "redis", 5)) {
        weir__put_text(&closed, url);
        if (!closed.cut)
            store_preset(&closed, "fail=", "closed");
        url = closed.data;
    }
    int code = closed.cut ? cli_fail(call, CLI_FAILED, "out of memory")
                          : cli_open_server_or_store(call, server, url, ret);
    weir__buffer_free(&closed);
    return code;
}

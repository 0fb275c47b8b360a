/*
 * The store that a command works on: the one named, or the desk's own zone, a file in the user's
 * state directory, so that repeated calls remember each other.
 */
#include "cli/server_store.h"
#include "store/store.h"

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

/* mkdir -p with mode 0700; path is written to meanwhile, and restored. */
static int make_directories(const struct cli_call *call, char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int failed = mkdir(path, 0700) && errno != EEXIST ? errno : 0;
        if (failed)
            cli_fail(call, CLI_FAILED,
                     "cannot create the directory %s for the default store: %s; name another store "
                     "with --store",
                     path, strerror(failed));
        *slash = '/';
        if (failed)
            return CLI_FAILED;
    }
    return CLI_OK;
}

/* The path of the desk's zone; its directories are made. */
static int desk_path(const struct cli_call *call, char *ret, size_t size)
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
            "neither XDG_STATE_HOME nor HOME says where to keep state; name a store with "
            "--store, like --store file:/tmp/zone");
    if (path.cut || strchr(ret, '?'))
        return cli_fail(
            call, CLI_FAILED,
            "the path of the default store, \"%s\", is too long or holds a question mark; "
            "name another store with --store",
            cli_show_text(ret).text);
    return make_directories(call, ret);
}

int cli_open_store(const struct cli_call *call, const char *url, weir_store **ret)
{
    char desk[PATH_MAX + 8] = "file:";
    if (!url) {
        int code = desk_path(call, desk + 5, sizeof desk - 5);
        if (code)
            return code;
        url = desk;
    }
    weir_error err = {0};
    int code = weir_store_open(url, ret, &err);
    if (code == 0)
        weir__store_guard(*ret, "weir", url);
    if (code == 0)
        return CLI_OK;
    return cli_fail(call, cli_exit_for(code), "%s",
                    err.message[0] ? err.message : weir_strerror(code));
}

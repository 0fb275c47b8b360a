/* `weir serve` and `weir check` of a build without the server: they say so. */
#include "cli/replay.h"
#include "cli/suggest.h"

#define WITHOUT "this weir was built without the server and its policies"

static int without_run(const struct cli_call *call)
{
    return cli_fail(call, CLI_USAGE, WITHOUT "; build it with meson's -Dserver=true");
}

const struct cli_command cli_serve = {
    .name = "serve", .summary = "(" WITHOUT ")", .run = without_run};

const struct cli_command cli_check = {
    .name = "check", .summary = "(" WITHOUT ")", .run = without_run};

int replay_policies_open(struct replay *replay)
{
    return without_run(replay->call);
}

void replay_policies_close(struct replay *replay)
{
    (void)replay;
}

int replay_policies_take(struct replay *replay, const struct desk_arrival *arrival,
                         weir_decision *ret, weir_error *err)
{
    (void)replay, (void)arrival, (void)ret;
    return weir__fail(err, WEIR_EUNSUPPORTED, 0, WITHOUT);
}

int suggest_check_policies(const char *text, size_t len, weir_error *err)
{
    (void)text, (void)len;
    return weir__fail(err, WEIR_EUNSUPPORTED, 0, WITHOUT);
}

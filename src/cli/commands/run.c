/*
 * `weir run`: waits for limits, runs a command, and keeps its slots while it runs. run.h has the
 * parts and what holds.
 */
#include "cli/run.h"
#include "cli/server_store.h"

#include "base/clock.h"
#include "store/wait.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define RUN_KILL_US 10000000 /* between SIGTERM and SIGKILL, if the lease is lost */
#define RUN_FOREVER INT64_MAX

struct run {
    const struct cli_call *call;
    const char *key_text, *limits_text, *url, *on_lost;
    struct cli_server server;
    int64_t cost, wait_us, denied_code, failed_code;
    bool quiet;
    char *const *command;
    /* read and opened */
    bool stops; /* the command, if the lease is lost */
    weir_key key;
    weir_limit *limit;
    weir_store *store;
    struct cli_signals signals;
    weir_decision decision;
};

/* ---- arguments ---- */

static int run_check_code(const struct cli_call *call, const char *name, int64_t code)
{
    if (code <= 255)
        return CLI_OK;
    return cli_fail(call, CLI_USAGE, "invalid --%s \"%lld\": expected 0 to 255", name,
                    (long long)code);
}

/* What stands before `--` is ours, the rest is the command. */
static int run_split(const struct cli_call *whole, struct cli_call *ret, char *const **ret_command)
{
    int own = 0;
    while (own < whole->argc && strcmp(whole->argv[own], "--"))
        own++;
    *ret = *whole;
    ret->argc = own;
    *ret_command = own < whole->argc ? whole->argv + own + 1 : NULL;
    if (*ret_command && (*ret_command)[0])
        return CLI_OK;
    if (whole->argc == 1 && !strcmp(whole->argv[0], "--list-options"))
        return CLI_OK;
    return cli_fail(whole, CLI_USAGE,
                    "the command is missing: write it after --, like `weir run KEY LIMITS -- "
                    "./job`");
}

static int run_read(struct run *run)
{
    const struct cli_option options[] = {
        {"wait", CLI_WAIT, &run->wait_us, 0},
        {"cost", CLI_COUNT, &run->cost, WEIR_COST_MAX},
        {"quiet", CLI_FLAG, &run->quiet, 0},
        {"on-lost", CLI_TEXT, &run->on_lost, 0},
        {"denied-code", CLI_COST, &run->denied_code, 0},
        {"failed-code", CLI_COST, &run->failed_code, 0},
        {"store", CLI_TEXT, &run->url, 0},
        {"server", CLI_TEXT, &run->server.url, 0},
        {"token", CLI_TEXT, &run->server.token, 0},
    };
    const struct cli_operand operands[] = {
        {"KEY", &run->key_text, false},
        {"LIMITS", &run->limits_text, false},
    };
    int code = CLI_PARSE(run->call, options, operands);
    if (code == CLI_OK)
        code = run_check_code(run->call, "denied-code", run->denied_code);
    if (code == CLI_OK)
        code = run_check_code(run->call, "failed-code", run->failed_code);
    run->stops = !strcmp(run->on_lost, "stop");
    if (code == CLI_OK && !run->stops && strcmp(run->on_lost, "go-on"))
        code = cli_fail(run->call, CLI_USAGE, "invalid --on-lost \"%s\": expected stop or go-on",
                        cli_show_text(run->on_lost).text);
    if (code == CLI_OK)
        code = cli_read_key(run->call, run->key_text, &run->key);
    return code ? code : cli_read_limits(run->call, run->limits_text, &run->limit);
}

/* ---- waiting ---- */

static struct cli_shown run_key(const struct run *run)
{
    return cli_show(run->key.data, run->key.len);
}

static weir_request run_request(const struct run *run)
{
    weir_request request = weir_request_make(run->key, run->limit);
    request.cost = run->cost;
    request.acquire = weir__has_leases(run->limit);
    return request;
}

/* For people: that it waits, if it does. */
static void run_tell_wait(const struct run *run)
{
    weir_decision now;
    weir_request request = run_request(run);
    request.wait_us = 0;
    if (run->quiet || run->wait_us == 0 || !isatty(STDERR_FILENO) ||
        weir__peek_all(run->store, &request, 1, &now) || now.allowed || now.retry_after_us <= 0)
        return;
    fprintf(stderr, "weir run: \"%s\" waits, at most about %s\n", run_key(run).text,
            cli_about(now.retry_after_us).text);
}

/* Sleeps; WEIR_ECANCELED: a signal came. */
static int run_sleep(const struct run *run, int64_t us)
{
    struct pollfd signal = {.fd = run->signals.fd, .events = POLLIN};
    struct timespec most = {us / 1000000, us % 1000000 * 1000};
    return ppoll(&signal, 1, &most, NULL) > 0 ? WEIR_ECANCELED : 0;
}

/* How long to sleep after a denial; beyond `left`: no use to ask again in time. */
static int64_t run_pause_us(const struct run *run, const weir_decision *rows, unsigned asked,
                            int64_t left)
{
    int64_t certain = 0, slots = 0;
    for (size_t i = 0; i < run->limit->count; i++) {
        if (rows[i].allowed)
            continue;
        if (weir__algorithm_of(&run->limit->rules[i])->leases)
            slots = weir__min(rows[i].retry_after_us, weir__pace_us(asked));
        else
            certain = weir__max(certain, rows[i].retry_after_us);
    }
    return certain > left ? certain : weir__min(weir__max(certain, slots), left);
}

/* Slots beside other limits. A reservation would let the lease run while nobody uses it, perhaps to
 * its end. So nothing is reserved: it asks again until all of them allow it now. */
static int run_acquire_among(struct run *run)
{
    const int64_t deadline = weir__mono_us() + weir__min(run->wait_us, WEIR_DURATION_MAX);
    weir_decision rows[WEIR_LIMITS_MAX];
    weir_request request = run_request(run);
    request.wait_us = 0;
    request.detail = rows;
    for (unsigned asked = 0;; asked++) {
        int code = weir__take_all(run->store, &request, 1, &run->decision);
        const int64_t left = weir__max(0, deadline - weir__mono_us());
        if (code ? code != WEIR_EBUSY || left == 0
                 : run->decision.allowed || run->decision.retry_after_us == WEIR_NEVER)
            return code;
        int64_t pause =
            code ? weir__min(weir__pace_us(asked), left) : run_pause_us(run, rows, asked, left);
        if (left == 0 || pause > left)
            return 0;
        code = run_sleep(run, weir__max(1, pause));
        if (code)
            return code;
    }
}

/* 0 with a decision, or a WEIR_E…; WEIR_ECANCELED: a signal came, and nothing is charged. */
static int run_wait(struct run *run, weir_error *err)
{
    const weir_wait_options options = {
        .max_wait_us = run->wait_us,
        .cancel_fd = &run->signals.fd,
    };
    const weir_request request = run_request(run);
    if (request.acquire && run->limit->count > 1)
        return run_acquire_among(run);
    int code = weir__wait(run->store, &request, &options, &run->decision, err);
    const char *receipt = code ? cli_server_receipt(run->store) : NULL;
    if (!receipt || request.acquire || code == WEIR_ECANCELED)
        return code;
    /* a server's own receipt, which the library cannot settle */
    const struct cli_server_settle back = {
        {.key = &run->key, .limit = weir_limit_text(run->limit)}, -1, 0, receipt, 0};
    return cli_server_settle(run->store, &back, err) ? code : WEIR_ECANCELED;
}

/* Ends like a command that the signal ends, with nothing left behind. */
static int run_end_by(struct run *run, int number)
{
    weir_store_close(run->store);
    run->store = NULL;
    cli_signals_close(&run->signals);
    signal(number, SIG_DFL);
    raise(number);
    return 128 + number;
}

static int run_tell_denied(const struct run *run)
{
    const weir_decision *d = &run->decision;
    if (d->degraded)
        return cli_fail(run->call, (int)run->failed_code,
                        "the store cannot be reached, so nobody decides");
    if (run->quiet)
        return (int)run->denied_code;
    if (d->full)
        return cli_fail(run->call, (int)run->denied_code,
                        "denied: the store has no room for this key; use a larger size");
    assert(d->binding < run->limit->count);
    const struct weir__rule_text limit = weir__rule_text(&run->limit->rules[d->binding]);
    if (d->retry_after_us == WEIR_NEVER)
        return cli_fail(run->call, (int)run->denied_code,
                        "denied by %s: a cost of %lld is never allowed, the limit is %lld",
                        limit.text, (long long)run->cost, (long long)d->limit);
    return cli_fail(run->call, (int)run->denied_code, "denied by %s: retry in %s", limit.text,
                    cli_about(d->retry_after_us).text);
}

/* ---- the command ---- */

/* The lease is lost. When to kill the command that was asked to end. */
static int64_t run_lose(const struct run *run, pid_t pid, bool gone)
{
    cli_fail(run->call, CLI_FAILED, "\"%s\" has lost its lease: %s; the command %s",
             run_key(run).text,
             gone ? "the store does not know it any more" : "it could not be renewed in time",
             run->stops ? "gets SIGTERM" : "goes on without it");
    if (!run->stops)
        return RUN_FOREVER;
    kill(pid, SIGTERM);
    return weir__mono_us() + RUN_KILL_US;
}

static void run_doze(struct pollfd *fds, nfds_t count, int64_t until_us)
{
    const int64_t left = weir__max(0, until_us - weir__mono_us());
    const struct timespec most = {left / 1000000, left % 1000000 * 1000};
    if (ppoll(fds, count, until_us == RUN_FOREVER ? NULL : &most, NULL) < 0)
        for (nfds_t i = 0; i < count; i++)
            fds[i].revents = 0;
}

static void run_forward(const struct run *run, pid_t pid)
{
    bool typed;
    int number;
    while ((number = cli_signals_next(&run->signals, &typed)) != 0) {
        if (!typed)
            kill(pid, number);
    }
}

/* Until the command has ended. Its exit code; *ret_lost: the lease was lost. */
static int run_watch(const struct run *run, pid_t pid, struct cli_keeper *keeper, bool *ret_lost)
{
    struct pollfd fds[] = {{.fd = run->signals.fd, .events = POLLIN},
                           {.fd = run->signals.child_fd, .events = POLLIN},
                           {.fd = keeper ? keeper->lost_fd : -1, .events = POLLIN}};
    char drained[sizeof(uint64_t) * 64];
    int64_t kill_us = RUN_FOREVER;
    int code = 0;
    *ret_lost = false;
    while (!cli_child_ended(pid, &code)) {
        const bool held = keeper && !*ret_lost;
        run_doze(fds, WEIR__COUNT(fds), held ? atomic_load(&keeper->held_until_us) : kill_us);
        while (read(run->signals.child_fd, drained, sizeof drained) > 0)
            continue;
        run_forward(run, pid);
        const int64_t now = weir__mono_us();
        if (held && (fds[2].revents || now >= atomic_load(&keeper->held_until_us))) {
            *ret_lost = true;
            kill_us = run_lose(run, pid, fds[2].revents != 0);
            fds[2].fd = -1;
        } else if (now >= kill_us) {
            kill(pid, SIGKILL);
            kill_us = RUN_FOREVER;
        }
    }
    return code;
}

static int run_start(const struct run *run, bool dies, pid_t *ret)
{
    int failed = cli_child_start(&run->signals, run->command, dies, ret);
    if (!failed)
        return CLI_OK;
    return cli_fail(run->call, failed == ENOENT ? 127 : 126, "cannot run \"%s\": %s",
                    cli_show_text(run->command[0]).text, strerror(failed));
}

static void run_release(const struct run *run)
{
    int code = weir_release(run->store, run->key, run->limit, run->decision.lease);
    if (code == WEIR_ENOLEASE)
        cli_fail(run->call, CLI_FAILED, "the lease had ended before the command did");
    else if (code)
        cli_fail(run->call, CLI_FAILED, "cannot release the lease, it ends after its time: %s",
                 weir_strerror(code));
}

/* With a lease that is renewed. `since_us`: it was held then. */
static int run_command_with_lease(const struct run *run, int64_t since_us)
{
    struct cli_keeper keeper = {
        .call = run->call,
        .store = run->store,
        .key = run->key,
        .limit = run->limit,
        .lease = run->decision.lease,
    };
    pid_t pid;
    bool lost = false;
    int code = run_start(run, run->stops, &pid);
    if (code == CLI_OK) {
        code = cli_keeper_start(&keeper, since_us);
        if (code == CLI_OK) {
            code = run_watch(run, pid, &keeper, &lost);
            cli_keeper_stop(&keeper);
        } else {
            kill(pid, SIGKILL);
            run_watch(run, pid, NULL, &lost);
        }
    }
    if (!lost)
        run_release(run);
    return lost && run->stops ? (int)run->failed_code : code;
}

static int run_command(const struct run *run)
{
    pid_t pid;
    bool lost;
    if (run->decision.degraded)
        cli_fail(run->call, CLI_FAILED,
                 "the store cannot be reached: the command runs, because the address says fail=");
    if (!run->decision.lease || run->decision.degraded) {
        int code = run_start(run, false, &pid);
        return code ? code : run_watch(run, pid, NULL, &lost);
    }
    const int64_t sent_us = weir__mono_us(); /* from here on it is known how long it is held */
    int code = weir_renew(run->store, run->key, run->limit, run->decision.lease);
    if (code == 0)
        return run_command_with_lease(run, sent_us);
    cli_refused(run->call, run->store, code);
    return (int)run->failed_code;
}

/* ---- the whole ---- */

static int run_decide_and_go(struct run *run)
{
    weir_error err = {0};
    bool typed;
    if (cli_signals_open(&run->signals))
        return cli_fail(run->call, (int)run->failed_code, "cannot receive signals: %s",
                        strerror(errno));
    run_tell_wait(run);
    int code = run_wait(run, &err);
    int number = code ? cli_signals_next(&run->signals, &typed) : 0;
    if (number) {
        if (code != WEIR_ECANCELED)
            cli_fail(run->call, CLI_FAILED, "%s", err.message);
        return run_end_by(run, number);
    }
    if (code)
        cli_refused(run->call, run->store, code);
    code = code ? (cli_exit_for(code) == CLI_USAGE ? CLI_USAGE : (int)run->failed_code)
           : !run->decision.allowed ? run_tell_denied(run)
                                    : run_command(run);
    cli_signals_close(&run->signals);
    return code;
}

static int run_run(const struct cli_call *whole)
{
    struct cli_call own;
    struct run run = {
        .call = &own,
        .cost = 1,
        .wait_us = WEIR_WAIT_ANY,
        .on_lost = "stop",
        .denied_code = CLI_DENIED,
        .failed_code = CLI_FAILED,
        .signals = {.fd = -1, .child_fd = -1},
    };
    int code = run_split(whole, &own, &run.command);
    if (code == CLI_OK)
        code = run_read(&run);
    if (code == CLI_OK) {
        code = cli_open_shared_store(&own, &run.server, run.url, &run.store);
        if (code == CLI_OK)
            code = run_decide_and_go(&run);
        else if (code == CLI_FAILED)
            code = (int)run.failed_code;
    }
    weir_store_close(run.store);
    weir_limit_free(run.limit);
    return code;
}

const struct cli_command cli_run = {
    .name = "run",
    .summary = "run a command when limits allow it, and hold its slots",
    .run = run_run,
};

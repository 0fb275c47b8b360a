/* `weir take`, `peek`, `wait` and `acquire`: each decides one request and prints the decision. */
#include "cli/request.h"

#include "store/store.h"

#include <inttypes.h>

/* take and wait print no lease. So nobody could release the slots of a concurrent limit. */
static int take_check_limits(const struct cli_call *call, const struct cli_request *request)
{
    if (!weir__has_leases(request->limit))
        return CLI_OK;
    return cli_fail(
        call, CLI_USAGE,
        "limit \"%s\": use `weir acquire` for a `concurrent` limit: it prints the lease "
        "that `weir release` needs",
        weir_limit_text(request->limit));
}

/* ---- take and peek ---- */

/* weir__take_all or weir__peek_all. */
typedef int take_verb(weir_store *store, const weir_request *requests, size_t n,
                      weir_decision *ret);

/* Whether the request's least can be granted. */
static int take_check_least(const struct cli_call *call, const struct cli_request *request)
{
    weir_error err;
    weir_request single = weir_request_make(request->key, request->limit);
    single.cost = request->cost;
    single.least = request->least;
    single.wait_us = request->wait_us;
    if (!request->least || !weir__least_check(&single, &err))
        return CLI_OK;
    return cli_fail(call, CLI_USAGE, "--least: %s", err.message);
}

static int take_decide(const struct cli_call *call, const struct cli_request *request,
                       take_verb *verb, bool charges)
{
    weir_decision decision, detail[WEIR_LIMITS_MAX];
    weir_request single = weir_request_make(request->key, request->limit);
    single.cost = request->cost;
    single.least = request->least;
    single.wait_us = request->wait_us;
    single.detail = request->detail ? detail : NULL;
    int code = take_check_least(call, request);
    if (code)
        return code;
    code = verb(request->store, &single, 1, &decision);
    if (code)
        return cli_refused(call, request->store, code);
    return cli_print_decision(
        request,
        &(struct cli_decided){.decision = &decision, .detail = single.detail, .charged = charges});
}

static int take_work(const struct cli_call *call, const struct cli_request *request)
{
    int code = take_check_limits(call, request);
    return code ? code : take_decide(call, request, weir__take_all, true);
}

static int peek_work(const struct cli_call *call, const struct cli_request *request)
{
    return take_decide(call, request, weir__peek_all, false);
}

const struct cli_command cli_take = {
    .name = "take",
    .summary = "decide a request, and charge it if it is allowed",
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_COST | CLI_TAKES_WAIT | CLI_TAKES_DETAIL,
    .work = take_work,
};

const struct cli_command cli_peek = {
    .name = "peek",
    .summary = "show what take would answer, without charging",
    .run = cli_request_run,
    .looks = true,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_COST | CLI_TAKES_WAIT | CLI_TAKES_DETAIL,
    .work = peek_work,
};

/* ---- wait ---- */

static int wait_work(const struct cli_call *call, const struct cli_request *request)
{
    const bool any = request->wait_us == WEIR_WAIT_DEFAULT || request->wait_us > WEIR_DURATION_MAX;
    weir_decision decision;
    int code = take_check_limits(call, request);
    if (code)
        return code;
    code = weir_wait(request->store, request->key, request->limit, request->cost,
                     any ? WEIR_DURATION_MAX : request->wait_us, &decision);
    if (code)
        return cli_refused(call, request->store, code);
    return cli_print_decision(
        request, &(struct cli_decided){.decision = &decision, .charged = true, .slept = true});
}

const struct cli_command cli_wait = {
    .name = "wait",
    .summary = "take, and sleep until the request may go ahead",
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_COST | CLI_TAKES_MAX,
    .work = wait_work,
};

/* ---- acquire ---- */

static int acquire_work(const struct cli_call *call, const struct cli_request *request)
{
    weir_decision decision;
    const bool waits = request->wait_us != WEIR_WAIT_DEFAULT;
    weir_request single = weir_request_make(request->key, request->limit);
    single.cost = request->cost;
    single.least = request->least;
    single.acquire = true;
    int code = take_check_least(call, request);
    if (code)
        return code;
    code = waits ? weir_acquire_wait(request->store, request->key, request->limit, request->cost,
                                     request->wait_us, &decision)
                 : weir__take_all(request->store, &single, 1, &decision);
    if (code == WEIR_EUNSUPPORTED)
        return cli_fail_concurrent(call, request->limit);
    if (code)
        return cli_refused(call, request->store, code);
    if (request->json || !decision.allowed)
        return cli_print_decision(request,
                                  &(struct cli_decided){.decision = &decision, .slept = waits});
    printf("%" PRIu64 "\n", decision.lease);
    if (request->least)
        fprintf(stderr, "granted %" PRId64 " of %" PRId64 "\n", decision.granted, request->cost);
    if (decision.delay_us > 0 && !waits)
        fprintf(stderr, "go ahead in %s\n", cli_about(decision.delay_us).text);
    return CLI_OK;
}

const struct cli_command cli_acquire = {
    .name = "acquire",
    .summary = "hold slots of a concurrent limit; prints a lease",
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_SLOTS | CLI_TAKES_WAIT,
    .work = acquire_work,
};

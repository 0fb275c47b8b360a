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

static int take_decide(const struct cli_call *call, const struct cli_request *request,
                       take_verb *verb, bool charges)
{
    weir_decision decision, detail[WEIR_LIMITS_MAX];
    weir_request single = weir_request_make(request->key, request->limit);
    single.cost = request->cost;
    single.wait_us = request->wait_us;
    single.detail = request->detail ? detail : NULL;
    int code = verb(request->store, &single, 1, &decision);
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
    .help =
        "Usage: weir take KEY LIMITS [--cost N] [--wait T|any] [--detail] [--json]\n"
        "                 [--store URL] [--server URL [--token TOKEN]]\n"
        "\n"
        "Decides one request of KEY. If it is allowed, it is charged. A denied request\n"
        "charges nothing.\n" CLI_LIMITS_HELP "\n"
        "Options:\n"
        "  --cost N      what the request costs, 0 to 1000000000000 (default 1; 0 charges\n"
        "                nothing)\n"
        "  --wait T      accept a delay of up to T: a duration like 500ms, 0, or `any`.\n"
        "                The answer then says when to go ahead. take does not sleep;\n"
        "                `weir wait` does. Default: any for leaky-bucket, smooth and\n"
        "                warmup, otherwise 0\n"
        "  --detail      also print the answer of each limit\n" CLI_JSON_HELP CLI_STORE_HELP
            CLI_SERVER_HELP "\n"
        "An allowed take prints a receipt. Give it to `weir settle` when you know the\n"
        "real cost.\n"
        "\n"
        "Examples:\n"
        "  weir take user:42 \"token-bucket 10/s burst 20\"\n"
        "  weir take user:42 \"sliding-log 5/m, fixed-window 1000/d\" --cost 3 --detail\n"
        "  weir take api \"leaky-bucket 10/s burst 5\" --store file:/var/lib/app/zone\n"
        "  if weir take mail:ann \"fixed-window 20/h\" >/dev/null; then send; fi\n" CLI_EXIT_CODES,
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_COST | CLI_TAKES_WAIT | CLI_TAKES_DETAIL,
    .work = take_work,
};

const struct cli_command cli_peek = {
    .name = "peek",
    .summary = "show what take would answer, without charging",
    .help = "Usage: weir peek KEY LIMITS [--cost N] [--wait T|any] [--detail] [--json]\n"
            "                 [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Shows whether a request would be allowed now, and what is left. It charges\n"
            "nothing.\n" CLI_LIMITS_HELP "\n"
            "Options:\n"
            "  --cost N      what the request would cost, 0 to 1000000000000 (default 1)\n"
            "  --wait T      the longest delay to accept: a duration, 0 or `any`\n"
            "  --detail      also print the answer of each limit\n" CLI_JSON_HELP CLI_STORE_HELP
                CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir peek user:42 \"token-bucket 10/s burst 20\"\n"
            "  weir peek user:42 \"sliding-log 5/m, fixed-window 1000/d\" --detail "
            "--json\n" CLI_EXIT_CODES,
    .run = cli_request_run,
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
    .help = "Usage: weir wait KEY LIMITS [--cost N] [--max T|any] [--json]\n"
            "                 [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Takes like `weir take`, but sleeps until the request may go ahead. If it cannot\n"
            "go ahead within --max, it is denied at once.\n" CLI_LIMITS_HELP "\n"
            "Options:\n"
            "  --cost N      what the request costs, 0 to 1000000000000 (default 1)\n"
            "  --max T       sleep at most T in total: a duration, 0 or `any` (default: any,\n"
            "                which is 366 days)\n" CLI_JSON_HELP CLI_STORE_HELP CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  weir wait api.example.com \"token-bucket 2/s\" && curl https://api.example.com/\n"
            "  weir wait backup \"fixed-window 1/d\" --max 1h\n" CLI_EXIT_CODES,
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_COST | CLI_TAKES_MAX,
    .work = wait_work,
};

/* ---- acquire ---- */

static int acquire_work(const struct cli_call *call, const struct cli_request *request)
{
    weir_decision decision;
    const bool waits = request->wait_us != WEIR_WAIT_DEFAULT;
    int code = waits ? weir_acquire_wait(request->store, request->key, request->limit,
                                         request->cost, request->wait_us, &decision)
                     : weir_acquire(request->store, request->key, request->limit, request->cost,
                                    &decision);
    if (code == WEIR_EUNSUPPORTED)
        return cli_fail_concurrent(call, request->limit);
    if (code)
        return cli_refused(call, request->store, code);
    if (request->json || !decision.allowed)
        return cli_print_decision(request,
                                  &(struct cli_decided){.decision = &decision, .slept = waits});
    printf("%" PRIu64 "\n", decision.lease);
    if (decision.delay_us > 0 && !waits)
        fprintf(stderr, "go ahead in %s\n", cli_about(decision.delay_us).text);
    return CLI_OK;
}

const struct cli_command cli_acquire = {
    .name = "acquire",
    .summary = "hold slots of a concurrent limit; prints a lease",
    .help = "Usage: weir acquire KEY LIMITS [--cost N] [--wait T|any] [--json]\n"
            "                    [--store URL] [--server URL [--token TOKEN]]\n"
            "\n"
            "Takes N slots of the `concurrent` limit in LIMITS and prints the id of the lease\n"
            "that holds them. `weir release` gives the slots back, `weir renew` extends the\n"
            "lease. Otherwise the lease ends after its time.\n" CLI_LIMITS_HELP "\n"
            "Options:\n"
            "  --cost N      slots to hold, at least 1 (default 1)\n"
            "  --wait T      sleep until there is a slot, at most T: a duration, 0 or `any`.\n"
            "                A release ends the sleep at once, or in Redis and with --server\n"
            "                within a quarter of a second\n" CLI_JSON_HELP CLI_STORE_HELP
                CLI_SERVER_HELP "\n"
            "Examples:\n"
            "  id=$(weir acquire deploy \"concurrent 1 lease 10m\" --wait 5m) || exit\n"
            "  id=$(weir acquire deploy \"concurrent 1 lease 10m\") || exit\n"
            "  ./deploy; weir release deploy \"concurrent 1 lease 10m\" \"$id\"\n" CLI_EXIT_CODES,
    .run = cli_request_run,
    .takes = CLI_TAKES_LIMITS | CLI_TAKES_SLOTS | CLI_TAKES_WAIT,
    .work = acquire_work,
};

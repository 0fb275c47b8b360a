/* `weir replay`: a trace decided under a virtual clock. */
#include "cli/progress.h"
#include "cli/replay_report.h"

#include <inttypes.h>

struct job {
    const struct cli_call *call;
    const char *limits_text, *url, *path;
    int64_t wait_us;
    bool decisions, json;
    weir_limit *limit;
    weir_store *store;
    struct weir__trace trace;
    struct weir__trace_facts facts;
    struct weir__tally tally;
    struct cli_decisions lines;
    struct cli_progress progress;
};

static int decided(void *context, const struct weir__arrival *arrival,
                   const weir_decision *decision)
{
    struct job *job = context;
    return job->decisions ? cli_decisions_add(&job->lines, arrival, decision)
                          : weir__tally_add(&job->tally, arrival, decision);
}

static void progressed(void *context, size_t done, size_t all)
{
    cli_progress_show(&((struct job *)context)->progress, done, all);
}

/* Everything that can be wrong with the input is found before anything is opened or decided. */
static int prepare(struct job *job)
{
    weir_error err = {0};
    int code = cli_read_limits(job->call, job->limits_text, &job->limit);
    if (code)
        return code;
    code = weir__trace_open(job->path, &job->trace, &err);
    if (code == 0)
        code = weir__trace_check(&job->trace, &job->facts, &err);
    if (code)
        return cli_fail(job->call, cli_exit_for(code), "%s", err.message);
    char url[96];
    struct weir__buffer buffer = weir__buffer_over(url, sizeof url);
    weir__replay_store_url(job->limit, job->facts.requests, &buffer);
    return cli_open_store(job->call, job->url ? job->url : url, &job->store);
}

static int start_report(struct job *job)
{
    weir_error err = {0};
    int code = job->decisions ? cli_decisions_start(&job->lines, job->json)
                              : weir__tally_init(&job->tally, &job->facts, CLI_SUMMARY_BINS, &err);
    return code ? cli_fail(job->call, CLI_FAILED, "%s",
                           err.message[0] ? err.message : weir_strerror(code))
                : CLI_OK;
}

static void end_report(struct job *job, bool good)
{
    struct cli_summary summary = {job->limit, &job->trace, &job->facts, &job->tally};
    if (job->decisions) {
        cli_decisions_end(&job->lines);
        return;
    }
    if (good && job->json)
        cli_print_summary_json(&summary);
    else if (good)
        cli_print_summary(&summary);
    weir__tally_free(&job->tally);
}

static uint64_t live_evictions(weir_store *store)
{
    weir_zone_info info;
    return weir_store_info(store, &info) ? 0 : info.evicted_unused + info.evicted_soonest;
}

static int decide_all(struct job *job)
{
    struct weir__replay replay = {
        .store = job->store,
        .limit = job->limit,
        .wait_us = job->wait_us,
        .decided = decided,
        .progress = progressed,
        .context = job,
    };
    uint64_t evicted = live_evictions(job->store);
    job->progress = cli_progress_start();
    weir_error err = {0};
    int code = weir__replay_run(&replay, &job->trace, &err);
    cli_progress_end(&job->progress);
    end_report(job, code == 0);
    if (code)
        return cli_fail(job->call, CLI_FAILED, "%s",
                        err.message[0] ? err.message : weir_strerror(code));
    evicted = live_evictions(job->store) - evicted;
    if (evicted > 0)
        return cli_fail(job->call, CLI_FAILED,
                        "%" PRIu64
                        " states were evicted while in use, so some answers are too lenient; "
                        "name a larger store, like --store memory:4g",
                        evicted);
    return CLI_OK;
}

static int run(const struct cli_call *call)
{
    struct job job = {.call = call, .wait_us = WEIR_WAIT_DEFAULT};
    const struct cli_option options[] = {
        {"store", CLI_TEXT, &job.url, 0},
        {"wait", CLI_WAIT, &job.wait_us, 0},
        {"decisions", CLI_FLAG, &job.decisions, 0},
        {"json", CLI_FLAG, &job.json, 0},
    };
    const struct cli_operand operands[] = {
        {"LIMITS", &job.limits_text, false},
        {"FILE", &job.path, true},
    };
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = prepare(&job);
    if (code == CLI_OK)
        code = start_report(&job);
    if (code == CLI_OK)
        code = decide_all(&job);
    weir_store_close(job.store);
    weir__trace_close(&job.trace);
    weir_limit_free(job.limit);
    return code;
}

const struct cli_command cli_replay = {
    .name = "replay",
    .summary = "what a limit would have decided on a log",
    .help = "Usage: weir replay LIMITS [--wait T|any] [--decisions] [--json] [--store URL]\n"
            "                   [FILE]\n"
            "\n"
            "Decides every request of a trace at the trace's own times, from FILE or standard\n"
            "input, and sums up what would have been allowed and denied. All of the input is\n"
            "checked first; one bad line and nothing is decided.\n" CLI_LIMITS_HELP "\n"
            "A line is `time,key[,cost]`: the time in seconds with up to six decimals, the\n"
            "key quoted as in RFC 4180 where it holds a comma, a quote or a line break. A\n"
            "header line `time,key,cost` and empty lines are skipped.\n"
            "\n"
            "Options:\n"
            "  --wait T      the longest delay that callers accept: a duration, `0` or `any`\n"
            "  --decisions   print a line a request instead of the summary: time,key,cost,\n"
            "                allowed,limit,remaining,retry_after,reset_after,delay\n"
            "  --json        print the summary as one JSON object; with --decisions an object\n"
            "                a line\n"
            "  --store URL   decide on the states of this store (file:, shm:, memory: or\n"
            "                redis://), under the trace's clock; without it nothing is kept\n"
            "\n"
            "Examples:\n"
            "  weir replay \"token-bucket 10/s burst 20\" trace.csv\n"
            "  weir replay \"sliding-log 5/m\" --decisions < trace.csv > decisions.csv\n"
            "  awk '{print $1 \",\" $2}' access.log | weir replay \"fixed-window 100/m\" --json\n"
            "\n"
            "The exit code tells whether the replay worked, not what it decided.\n" CLI_EXIT_CODES,
    .run = run,
};

/*
 * `weir replay`: a trace decided under a virtual clock. It prints one line per decision, or a
 * summary with a plot.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/duration.h"
#include "cli/json.h"
#include "sim/replay.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the progress bar: on stderr, only on a terminal, only if it takes a while ---- */

struct progress {
    bool shown;         /* a bar is on the terminal */
    bool wanted;        /* stderr is a terminal */
    int64_t started_us; /* and drawn_us: when it was last drawn */
    int64_t drawn_us;
};

#define PATIENCE_US 200000 /* nothing is drawn earlier */
#define PAUSE_US 50000     /* between two drawings */
#define BAR_WIDTH 40

static struct progress progress_start(void)
{
    const char *term = getenv("TERM");
    bool wanted = isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
    return (struct progress){.wanted = wanted, .started_us = weir__clock_us()};
}

static void progress_show(struct progress *progress, size_t done, size_t all)
{
    if (!progress->wanted || all == 0)
        return;
    int64_t now = weir__clock_us();
    if (now - progress->started_us < PATIENCE_US || now - progress->drawn_us < PAUSE_US)
        return;
    progress->drawn_us = now;
    progress->shown = true;
    assert(done <= all);
    size_t filled = done * BAR_WIDTH / all;
    fputs("\r▕", stderr);
    for (size_t i = 0; i < BAR_WIDTH; i++)
        fputs(i < filled ? "█" : " ", stderr);
    fprintf(stderr, "▏ %3zu%%", done * 100 / all);
    fflush(stderr);
}

static void progress_end(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

/* ---- one line per decision ---- */

/* Lines for stdout, written in large pieces. */
struct decisions {
    struct weir__buffer buffer;
    bool json; /* one object per line, instead of CSV */
};

#define BUFFER_BYTES (1 << 20)
#define LINE_MAX_BYTES (2 * WEIR_KEY_MAX + 256) /* every byte of a key can be a quote */

static void decisions_flush(struct decisions *decisions)
{
    fwrite(decisions->buffer.data, 1, decisions->buffer.len, stdout);
    decisions->buffer.len = 0;
}

static int decisions_start(struct decisions *decisions, bool json)
{
    char *memory = malloc(BUFFER_BYTES);
    if (!memory)
        return WEIR_ENOMEM;
    decisions->buffer = weir__buffer_over(memory, BUFFER_BYTES);
    decisions->json = json;
    if (!json)
        weir__put_text(&decisions->buffer,
                       "time,key,cost,allowed,limit,remaining,retry_after,reset_after,delay\n");
    return 0;
}

static void decisions_put_json(const struct weir__arrival *arrival, const weir_decision *decision)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_seconds(&json, "time", arrival->time_us);
    cli_json_key(&json, arrival->key, arrival->key_len);
    cli_json_int(&json, "cost", arrival->cost);
    cli_json_decision(&json, decision);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

static int decisions_put(struct decisions *decisions, const struct weir__arrival *arrival,
                         const weir_decision *decision)
{
    if (decisions->json) {
        decisions_put_json(arrival, decision);
        return ferror(stdout) ? WEIR_ESYSTEM : 0;
    }
    struct weir__buffer *buffer = &decisions->buffer;
    if (buffer->size - buffer->len < LINE_MAX_BYTES)
        decisions_flush(decisions);
    assert(buffer->size - buffer->len >= LINE_MAX_BYTES);
    weir__put_seconds(buffer, arrival->time_us);
    weir__put(buffer, ",", 1);
    weir__put_csv(buffer, arrival->key, arrival->key_len);
    weir__put(buffer, ",", 1);
    weir__put_int(buffer, arrival->cost);
    weir__put(buffer, decision->allowed ? ",1," : ",0,", 3);
    weir__put_int(buffer, decision->limit);
    weir__put(buffer, ",", 1);
    weir__put_int(buffer, decision->remaining);
    weir__put(buffer, ",", 1);
    weir__put_seconds(buffer, decision->retry_after_us);
    weir__put(buffer, ",", 1);
    weir__put_seconds(buffer, decision->reset_after_us);
    weir__put(buffer, ",", 1);
    weir__put_seconds(buffer, decision->delay_us);
    weir__put(buffer, "\n", 1);
    return ferror(stdout) ? WEIR_ESYSTEM : 0;
}

static void decisions_end(struct decisions *decisions)
{
    decisions_flush(decisions);
    free(decisions->buffer.data);
}

/* ---- the summary ---- */

struct summary {
    const weir_limit *limit;
    const struct weir__trace *trace;
    const struct weir__trace_facts *facts;
    const struct weir__tally *tally;
};

#define SUMMARY_BINS 60

#define TOP_KEYS 10
#define CHART_ROWS 8

/* Reads the text of a key again, at its place in the trace. */
static struct weir__arrival summary_first_of(const struct summary *summary,
                                             struct weir__trace_reader *reader, size_t offset)
{
    struct weir__arrival arrival = {.key = "?", .key_len = 1};
    weir__trace_begin(reader, summary->trace);
    weir__trace_seek(reader, offset);
    weir__trace_next(reader, &arrival, NULL);
    return arrival;
}

static double summary_percent(int64_t part, int64_t all)
{
    return all > 0 ? 100.0 * (double)part / (double)all : 0;
}

/* ---- for people ---- */

static void summary_print_top(const struct summary *summary)
{
    struct weir__tally_key top[TOP_KEYS];
    size_t n = weir__tally_most_denied(summary->tally, top, TOP_KEYS);
    struct weir__trace_reader reader;
    struct cli_style style = cli_style_of(stdout);
    if (n == 0)
        return;
    printf("\n%sMost denied%s\n", style.bold, style.off);
    for (size_t i = 0; i < n; i++) {
        struct weir__arrival arrival = summary_first_of(summary, &reader, top[i].offset);
        printf("  %10" PRId64 " of %-10" PRId64 " %s\n", top[i].denied, top[i].requests,
               cli_show(arrival.key, arrival.key_len).text);
    }
}

static void summary_print_totals(const struct summary *summary)
{
    const struct weir__tally *tally = summary->tally;
    struct cli_style style = cli_style_of(stdout);
    int64_t span = tally->requests > 0 ? summary->facts->last_us - summary->facts->first_us : 0;
    printf("%s%s%s\n", style.bold, weir_limit_text(summary->limit), style.off);
    printf("  requests       %10" PRId64 "  of %zu keys over %s\n", tally->requests, tally->keys,
           cli_about(span).text);
    printf("  allowed        %s%10" PRId64 "%s  %.2f%%\n", style.good, tally->allowed, style.off,
           summary_percent(tally->allowed, tally->requests));
    printf("  denied         %s%10" PRId64 "%s  %.2f%%\n", tally->denied ? style.bad : "",
           tally->denied, tally->denied ? style.off : "",
           summary_percent(tally->denied, tally->requests));
    if (tally->cost_allowed + tally->cost_denied != tally->requests)
        printf("  cost           %10" PRId64 "  allowed, %" PRId64 " denied\n", tally->cost_allowed,
               tally->cost_denied);
    printf("  longest delay  %10s\n", cli_about(tally->longest_delay_us).text);
}

static void summary_print_plot(const struct summary *summary)
{
    const struct weir__timeline *timeline = &summary->tally->timeline;
    struct cli_style style = cli_style_of(stdout);
    struct weir__plot plot = {timeline, 1, CHART_ROWS, weir__timeline_peak(timeline), style.colour};
    char first[32], last[32];
    struct weir__buffer buffer = weir__buffer_over(first, sizeof first);
    weir__put_seconds(&buffer, summary->facts->first_us);
    buffer = weir__buffer_over(last, sizeof last);
    weir__put_seconds(&buffer, summary->facts->last_us);
    putchar('\n');
    cli_print_chart(&plot, first, last);
    cli_print_legend(style.colour, "allowed", "denied");
}

static void summary_print(const struct summary *summary)
{
    summary_print_totals(summary);
    if (summary->tally->requests > 0)
        summary_print_plot(summary);
    summary_print_top(summary);
}

/* ---- JSON ---- */

static void summary_put_top(struct cli_json *json, const struct summary *summary)
{
    struct weir__tally_key top[TOP_KEYS];
    size_t n = weir__tally_most_denied(summary->tally, top, TOP_KEYS);
    struct weir__trace_reader reader;
    cli_json_open(json, "most_denied", '[');
    for (size_t i = 0; i < n; i++) {
        struct weir__arrival arrival = summary_first_of(summary, &reader, top[i].offset);
        cli_json_open(json, NULL, '{');
        cli_json_key(json, arrival.key, arrival.key_len);
        cli_json_int(json, "requests", top[i].requests);
        cli_json_int(json, "denied", top[i].denied);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static void summary_put_timeline(struct cli_json *json, const struct weir__timeline *timeline)
{
    cli_json_open(json, "timeline", '{');
    cli_json_seconds(json, "start", timeline->start_us);
    cli_json_seconds(json, "span", timeline->span_us);
    cli_json_open(json, "allowed", '[');
    for (size_t i = 0; i < timeline->count; i++)
        cli_json_int(json, NULL, timeline->bins[i].through);
    cli_json_close(json, ']');
    cli_json_open(json, "denied", '[');
    for (size_t i = 0; i < timeline->count; i++)
        cli_json_int(json, NULL, timeline->bins[i].denied);
    cli_json_close(json, ']');
    cli_json_close(json, '}');
}

static void summary_print_json(const struct summary *summary)
{
    const struct weir__tally *tally = summary->tally;
    bool any = tally->requests > 0;
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_text(&json, "limits", weir_limit_text(summary->limit));
    cli_json_int(&json, "requests", tally->requests);
    cli_json_int(&json, "allowed", tally->allowed);
    cli_json_int(&json, "denied", tally->denied);
    cli_json_int(&json, "keys", (int64_t)tally->keys);
    cli_json_int(&json, "cost_allowed", tally->cost_allowed);
    cli_json_int(&json, "cost_denied", tally->cost_denied);
    cli_json_seconds(&json, "longest_delay", tally->longest_delay_us);
    cli_json_seconds(&json, "first", any ? summary->facts->first_us : -1);
    cli_json_seconds(&json, "last", any ? summary->facts->last_us : -1);
    summary_put_top(&json, summary);
    summary_put_timeline(&json, &tally->timeline);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

/* ---- the command ---- */

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
    struct decisions lines;
    struct progress progress;
};

static int replay_decided(void *context, const struct weir__arrival *arrival,
                          const weir_decision *decision)
{
    struct job *job = context;
    return job->decisions ? decisions_put(&job->lines, arrival, decision)
                          : weir__tally_add(&job->tally, arrival, decision);
}

static void replay_progressed(void *context, size_t done, size_t all)
{
    progress_show(&((struct job *)context)->progress, done, all);
}

/* Finds everything that is wrong with the input before anything is opened or decided. */
static int replay_prepare(struct job *job)
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

static int replay_start_report(struct job *job)
{
    weir_error err = {0};
    int code = job->decisions ? decisions_start(&job->lines, job->json)
                              : weir__tally_init(&job->tally, &job->facts, SUMMARY_BINS, &err);
    return code ? cli_fail(job->call, CLI_FAILED, "%s",
                           err.message[0] ? err.message : weir_strerror(code))
                : CLI_OK;
}

static void replay_end_report(struct job *job, bool good)
{
    struct summary summary = {job->limit, &job->trace, &job->facts, &job->tally};
    if (job->decisions) {
        decisions_end(&job->lines);
        return;
    }
    if (good && job->json)
        summary_print_json(&summary);
    else if (good)
        summary_print(&summary);
    weir__tally_free(&job->tally);
}

static uint64_t replay_live_evictions(weir_store *store)
{
    weir_zone_info info;
    return weir_store_info(store, &info) ? 0 : info.evicted_unused + info.evicted_soonest;
}

static int replay_decide_all(struct job *job)
{
    struct weir__replay replay = {
        .store = job->store,
        .limit = job->limit,
        .wait_us = job->wait_us,
        .decided = replay_decided,
        .progress = replay_progressed,
        .context = job,
    };
    uint64_t evicted = replay_live_evictions(job->store);
    job->progress = progress_start();
    weir_error err = {0};
    int code = weir__replay_run(&replay, &job->trace, &err);
    progress_end(&job->progress);
    replay_end_report(job, code == 0);
    if (code)
        return cli_fail(job->call, CLI_FAILED, "%s",
                        err.message[0] ? err.message : weir_strerror(code));
    evicted = replay_live_evictions(job->store) - evicted;
    if (evicted > 0)
        return cli_fail(job->call, CLI_FAILED,
                        "%" PRIu64
                        " states in use were evicted, so some answers are too lenient; use a "
                        "larger store, like --store memory:4g",
                        evicted);
    return CLI_OK;
}

static int cmd_replay(const struct cli_call *call)
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
        code = replay_prepare(&job);
    if (code == CLI_OK)
        code = replay_start_report(&job);
    if (code == CLI_OK)
        code = replay_decide_all(&job);
    weir_store_close(job.store);
    weir__trace_close(&job.trace);
    weir_limit_free(job.limit);
    return code;
}

const struct cli_command cli_replay = {
    .name = "replay",
    .summary = "show what a limit would have decided for a log",
    .help = "Usage: weir replay LIMITS [--wait T|any] [--decisions] [--json] [--store URL]\n"
            "                   [FILE]\n"
            "\n"
            "Reads a trace from FILE or standard input, decides every request at the time in\n"
            "the trace, and sums up what would have been allowed and denied. All of the input\n"
            "is checked first: if one line is wrong, nothing is decided.\n" CLI_LIMITS_HELP "\n"
            "A line is `time,key[,cost]`. The time is in seconds with up to six decimals. A\n"
            "key with a comma, a quote or a line break is quoted as in RFC 4180. A header\n"
            "line `time,key,cost` and empty lines are skipped.\n"
            "\n"
            "Options:\n"
            "  --wait T      the longest delay that callers accept: a duration, 0 or `any`\n"
            "  --decisions   print one line per request, not the summary: time,key,cost,\n"
            "                allowed,limit,remaining,retry_after,reset_after,delay\n"
            "  --json        print the summary as one JSON object; with --decisions one\n"
            "                object per line\n"
            "  --store URL   use the states of this store (file:, shm:, memory: or redis://),\n"
            "                with the times of the trace; without it nothing is kept\n"
            "\n"
            "Examples:\n"
            "  weir replay \"token-bucket 10/s burst 20\" trace.csv\n"
            "  weir replay \"sliding-log 5/m\" --decisions < trace.csv > decisions.csv\n"
            "  awk '{print $1 \",\" $2}' access.log | weir replay \"fixed-window 100/m\" --json\n"
            "\n"
            "The exit code says whether the replay worked, not what it decided.\n" CLI_EXIT_CODES,
    .run = cmd_replay,
};

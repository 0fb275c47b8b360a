/*
 * `weir replay`: a trace decided under a virtual clock. It prints one line per decision, or a
 * summary with a plot.
 */
#include "cli/cli.h"
#include "cli/log.h"

#include "base/clock.h"
#include "base/duration.h"
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

#define FLUSH_BYTES (1 << 20) /* lines are written in large pieces */

static void decisions_flush(struct weir__buffer *lines)
{
    fwrite(lines->data, 1, lines->len, stdout);
    lines->len = 0;
}

static void decisions_put_json(const struct weir__arrival *arrival, bool classes,
                               const weir_decision *decision)
{
    struct weir__json json = cli_json_begin('{');
    weir__json_put_seconds(&json, "time", arrival->time_us);
    weir__json_put_key(&json, arrival->key, arrival->key_len);
    weir__json_put_int(&json, "cost", arrival->cost);
    if (classes)
        weir__json_put_text(&json, "class", arrival->class_name.data, arrival->class_name.len);
    weir__json_put_decision(&json, decision);
    cli_json_end(&json, '}');
}

static void decisions_put_csv(struct weir__buffer *buffer, const struct weir__arrival *arrival,
                              bool classes, const weir_decision *decision)
{
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
    if (classes) {
        weir__put(buffer, ",", 1);
        weir__put_csv(buffer, arrival->class_name.data, arrival->class_name.len);
    }
    weir__put(buffer, "\n", 1);
}

/* ---- the command's state ---- */

struct job {
    const struct cli_call *call;
    const char *limits_text, *share_text, *url;
    struct cli_log *log;
    bool is_log; /* not a trace */
    int64_t wait_us;
    bool decisions, json;
    weir_limit *limit;
    struct weir__classes classes; /* none without --share */
    weir_store *store;
    struct weir__trace trace;
    struct weir__trace_facts facts;
    struct weir__tally tally;
    struct weir__buffer lines;
    struct progress progress;
};

/* ---- the summary ---- */

#define SUMMARY_BINS 60

#define TOP_KEYS 10
#define CHART_ROWS 8

/* Reads the text of a key again, at its place in the trace. */
static struct weir__arrival summary_first_of(const struct job *job,
                                             struct weir__trace_reader *reader, size_t offset)
{
    struct weir__arrival arrival = {.key = "?", .key_len = 1};
    weir__trace_begin(reader, &job->trace);
    weir__trace_seek(reader, offset);
    weir__trace_next(reader, &arrival, NULL);
    return arrival;
}

static double summary_percent(int64_t part, int64_t all)
{
    return all > 0 ? 100.0 * (double)part / (double)all : 0;
}

/* ---- for people ---- */

static void summary_print_top(const struct job *job)
{
    struct weir__tally_key top[TOP_KEYS];
    size_t n = weir__tally_most_denied(&job->tally, top, TOP_KEYS);
    struct weir__trace_reader reader;
    struct cli_style style = cli_style_of(stdout);
    if (n == 0)
        return;
    printf("\n%sMost denied%s\n", style.bold, style.off);
    for (size_t i = 0; i < n; i++) {
        struct weir__arrival arrival = summary_first_of(job, &reader, top[i].offset);
        printf("  %10" PRId64 " of %-10" PRId64 " %s\n", top[i].denied, top[i].requests,
               cli_show(arrival.key, arrival.key_len).text);
    }
}

static void summary_print_totals(const struct job *job)
{
    const struct weir__tally *tally = &job->tally;
    struct cli_style style = cli_style_of(stdout);
    int64_t span = tally->requests > 0 ? job->facts.last_us - job->facts.first_us : 0;
    printf("%s%s%s\n", style.bold, weir_limit_text(job->limit), style.off);
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

static struct weir__span summary_share(const struct weir__class *it, char *room, size_t size)
{
    struct weir__buffer buffer = weir__buffer_over(room, size);
    weir__put_share(&buffer, it->millionths);
    return (struct weir__span){room, buffer.len};
}

static void summary_print_classes(const struct job *job)
{
    struct cli_style style = cli_style_of(stdout);
    if (job->classes.count == 0)
        return;
    printf("\n%sClasses%s\n", style.bold, style.off);
    for (size_t i = 0; i < job->classes.count; i++) {
        const struct weir__class *it = &job->classes.items[i];
        char share[16];
        printf("  %10" PRId64 " of %-10" PRId64 " allowed  %s, %s: %s\n", it->allowed, it->requests,
               cli_show(it->name.data, it->name.len).text,
               summary_share(it, share, sizeof share).data, weir_limit_text(it->limit));
    }
}

static void summary_print_plot(const struct job *job)
{
    const struct weir__timeline *timeline = &job->tally.timeline;
    struct cli_style style = cli_style_of(stdout);
    struct weir__plot plot = {timeline, 1, CHART_ROWS, weir__timeline_peak(timeline), style.colour};
    char first[32], last[32];
    struct weir__buffer buffer = weir__buffer_over(first, sizeof first);
    weir__put_seconds(&buffer, job->facts.first_us);
    buffer = weir__buffer_over(last, sizeof last);
    weir__put_seconds(&buffer, job->facts.last_us);
    putchar('\n');
    cli_print_chart(&plot, first, last);
    cli_print_legend(style.colour, "allowed", "denied");
}

static void summary_print(const struct job *job)
{
    if (job->is_log)
        cli_log_print(job->log);
    summary_print_totals(job);
    summary_print_classes(job);
    if (job->tally.requests > 0)
        summary_print_plot(job);
    summary_print_top(job);
}

/* ---- JSON ---- */

static void summary_put_top(struct weir__json *json, const struct job *job)
{
    struct weir__tally_key top[TOP_KEYS];
    size_t n = weir__tally_most_denied(&job->tally, top, TOP_KEYS);
    struct weir__trace_reader reader;
    weir__json_open(json, "most_denied", '[');
    for (size_t i = 0; i < n; i++) {
        struct weir__arrival arrival = summary_first_of(job, &reader, top[i].offset);
        weir__json_open(json, NULL, '{');
        weir__json_put_key(json, arrival.key, arrival.key_len);
        weir__json_put_int(json, "requests", top[i].requests);
        weir__json_put_int(json, "denied", top[i].denied);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void summary_put_classes(struct weir__json *json, const struct job *job)
{
    if (job->classes.count == 0)
        return;
    weir__json_open(json, "classes", '[');
    for (size_t i = 0; i < job->classes.count; i++) {
        const struct weir__class *it = &job->classes.items[i];
        char share[16];
        weir__json_open(json, NULL, '{');
        weir__json_put_text(json, "class", it->name.data, it->name.len);
        weir__json_put_string(json, "share", summary_share(it, share, sizeof share).data);
        weir__json_put_string(json, "limit", weir_limit_text(it->limit));
        weir__json_put_int(json, "requests", it->requests);
        weir__json_put_int(json, "allowed", it->allowed);
        weir__json_put_int(json, "denied", it->requests - it->allowed);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

static void summary_put_timeline(struct weir__json *json, const struct weir__timeline *timeline)
{
    weir__json_open(json, "timeline", '{');
    weir__json_put_seconds(json, "start", timeline->start_us);
    weir__json_put_seconds(json, "span", timeline->span_us);
    weir__json_open(json, "allowed", '[');
    for (size_t i = 0; i < timeline->count; i++)
        weir__json_put_int(json, NULL, timeline->bins[i].through);
    weir__json_close(json, ']');
    weir__json_open(json, "denied", '[');
    for (size_t i = 0; i < timeline->count; i++)
        weir__json_put_int(json, NULL, timeline->bins[i].denied);
    weir__json_close(json, ']');
    weir__json_close(json, '}');
}

static void summary_print_json(const struct job *job)
{
    const struct weir__tally *tally = &job->tally;
    bool any = tally->requests > 0;
    struct weir__json json = cli_json_begin('{');
    weir__json_put_string(&json, "limits", weir_limit_text(job->limit));
    weir__json_put_int(&json, "requests", tally->requests);
    weir__json_put_int(&json, "allowed", tally->allowed);
    weir__json_put_int(&json, "denied", tally->denied);
    weir__json_put_int(&json, "keys", (int64_t)tally->keys);
    weir__json_put_int(&json, "cost_allowed", tally->cost_allowed);
    weir__json_put_int(&json, "cost_denied", tally->cost_denied);
    weir__json_put_seconds(&json, "longest_delay", tally->longest_delay_us);
    weir__json_put_seconds(&json, "first", any ? job->facts.first_us : -1);
    weir__json_put_seconds(&json, "last", any ? job->facts.last_us : -1);
    summary_put_classes(&json, job);
    summary_put_top(&json, job);
    summary_put_timeline(&json, &tally->timeline);
    if (job->is_log)
        cli_log_put_json(job->log, &json);
    cli_json_end(&json, '}');
}

/* ---- the command ---- */

static int replay_decided(void *context, const struct weir__arrival *arrival,
                          const weir_decision *decision)
{
    struct job *job = context;
    if (!job->decisions)
        return weir__tally_add(&job->tally, arrival, decision);
    if (job->json)
        decisions_put_json(arrival, job->trace.classes, decision);
    else
        decisions_put_csv(&job->lines, arrival, job->trace.classes, decision);
    if (job->lines.len > FLUSH_BYTES)
        decisions_flush(&job->lines);
    return ferror(stdout) ? WEIR_ESYSTEM : job->lines.cut ? WEIR_ENOMEM : 0;
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
    if (job->share_text)
        code = weir__classes_read(job->share_text, job->limit, &job->classes, &err);
    if (code)
        return cli_fail_with(job->call, code, &err);
    code = cli_log_begin(job->call, job->log, &job->is_log);
    if (code == CLI_OK && job->is_log)
        code = cli_log_to_trace(job->call, job->log, &job->trace);
    if (code)
        return code;
    if (!job->is_log)
        code = weir__trace_open(job->log->paths[0], cli_log_begun(job->log), &job->trace, &err);
    job->trace.classes = job->classes.count > 0;
    if (code == 0)
        code = weir__trace_check(&job->trace, &job->facts, &err);
    if (code)
        return cli_fail_with(job->call, code, &err);
    char url[96];
    struct weir__buffer buffer = weir__buffer_over(url, sizeof url);
    weir__replay_store_url(job->limit, job->facts.requests, &buffer);
    return cli_open_store(job->call, job->url ? job->url : url, &job->store);
}

static int replay_start_report(struct job *job)
{
    weir_error err = {0};
    if (job->decisions) {
        job->lines = weir__buffer_growing();
        if (!job->json)
            weir__put_format(
                &job->lines,
                "time,key,cost,allowed,limit,remaining,retry_after,reset_after,delay%s\n",
                job->trace.classes ? ",class" : "");
        return CLI_OK;
    }
    int code = weir__tally_init(&job->tally, &job->facts, SUMMARY_BINS, &err);
    return code ? cli_fail(job->call, CLI_FAILED, "%s", err.message) : CLI_OK;
}

static void replay_end_report(struct job *job, bool good)
{
    if (job->decisions)
        decisions_flush(&job->lines);
    else if (good && job->json)
        summary_print_json(job);
    else if (good)
        summary_print(job);
    weir__buffer_free(&job->lines);
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
        .classes = job->classes.count > 0 ? &job->classes : NULL,
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
    return job->is_log ? cli_log_verdict(job->call, job->log, job->decisions) : CLI_OK;
}

static int cmd_replay(const struct cli_call *call)
{
    static struct cli_log log;
    struct job job = {.call = call, .wait_us = WEIR_WAIT_DEFAULT, .log = &log};
    const struct cli_option options[] = {
        CLI_LOG_OPTIONS(log),
        {"store", CLI_TEXT, &job.url, 0},
        {"wait", CLI_WAIT, &job.wait_us, 0},
        {"share", CLI_TEXT, &job.share_text, 0},
        {"decisions", CLI_FLAG, &job.decisions, 0},
        {"json", CLI_FLAG, &job.json, 0},
    };
    const struct cli_operand operands[] = {
        {"LIMITS", &job.limits_text, false},
        {"FILE", log.paths, CLI_MANY_LOGS},
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
    weir__classes_free(&job.classes);
    cli_log_close(&log);
    weir_limit_free(job.limit);
    return code;
}

const struct cli_command cli_replay = {
    .name = "replay",
    .summary = "show what a limit would have decided for a log",
    .run = cmd_replay,
};

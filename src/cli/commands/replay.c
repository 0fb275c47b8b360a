/*
 * `weir replay`: what limits would have decided about a trace or a log. Several candidates are
 * decided in one pass. It prints a summary with charts, one line per decision, JSON, or writes a
 * page.
 */
#include "cli/replay.h"

#include "base/clock.h"
#include "base/duration.h"
#include "sim/private_store.h"
#include "store/store.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one line per decision ---- */

#define FLUSH_BYTES (1 << 20) /* lines are written in large pieces */

static void decisions_flush(struct weir__buffer *lines)
{
    fwrite(lines->data, 1, lines->len, stdout);
    lines->len = 0;
}

static void decisions_put_json(const struct replay *replay, const struct desk_arrival *arrival,
                               const weir_decision *decision, size_t candidate)
{
    struct weir__json json = cli_json_begin('{');
    weir__json_put_seconds(&json, "time", arrival->time_us);
    weir__json_put_key(&json, arrival->key.data, arrival->key.len);
    weir__json_put_int(&json, "cost", arrival->cost);
    if (replay->limit_texts.count > 0)
        weir__json_put_string(&json, "candidate", replay->shown[candidate].name);
    if (replay->classes.count > 0) {
        struct weir__span name = replay_class_name(arrival);
        weir__json_put_text(&json, "class", name.data, name.len);
    }
    weir__json_put_decision(&json, decision);
    cli_json_end(&json, '}');
}

static void decisions_put_csv(struct replay *replay, const struct desk_arrival *arrival,
                              const weir_decision *decision, size_t candidate)
{
    struct weir__buffer *buffer = &replay->lines;
    weir__put_seconds(buffer, arrival->time_us);
    weir__put(buffer, ",", 1);
    desk_put_csv(buffer, arrival->key.data, arrival->key.len);
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
    if (replay->limit_texts.count > 0) {
        weir__put(buffer, ",", 1);
        weir__put_text(buffer, replay->shown[candidate].name);
    }
    if (replay->classes.count > 0) {
        struct weir__span name = replay_class_name(arrival);
        weir__put(buffer, ",", 1);
        desk_put_csv(buffer, name.data, name.len);
    }
    weir__put(buffer, "\n", 1);
}

static void decisions_begin(struct replay *replay)
{
    replay->lines = weir__buffer_growing();
    if (replay->decisions && !replay->json)
        weir__put_format(
            &replay->lines,
            "time,key,cost,allowed,limit,remaining,retry_after,reset_after,delay%s%s\n",
            replay->limit_texts.count > 0 ? ",candidate" : "",
            replay->classes.count > 0 ? ",class" : "");
}

static int decisions_put(struct replay *replay, const struct desk_arrival *arrival,
                         const weir_decision *decisions)
{
    for (size_t i = 0; i < replay->count; i++) {
        if (replay->json)
            decisions_put_json(replay, arrival, &decisions[i], i);
        else
            decisions_put_csv(replay, arrival, &decisions[i], i);
    }
    if (replay->lines.len > FLUSH_BYTES)
        decisions_flush(&replay->lines);
    return ferror(stdout) ? WEIR_ESYSTEM : replay->lines.cut ? WEIR_ENOMEM : 0;
}

/* ---- deciding ---- */

static int decide_by_store(struct replay *replay, const struct desk_arrival *arrival,
                           weir_decision *ret, weir_error *err)
{
    weir_request request = {.key = weir_key_bytes(arrival->key.data, arrival->key.len),
                            .limit = replay->limits[0],
                            .cost = arrival->cost,
                            .wait_us = replay->wait_us};
    struct weir__class *class = NULL;
    if (replay->classes.count > 0) {
        class = weir__classes_find(&replay->classes, replay_class_name(arrival));
        request.limit = class->limit;
    }
    replay->clock.now_us = arrival->time_us;
    int code = weir__take_all(replay->store, &request, 1, ret);
    if (code == 0 && ret->degraded) /* the local fallback decided, not the store */
        code = WEIR_EUNREACHABLE;
    if (code)
        return weir__fail(err, code, 0, "line %" PRId64 ": %s", arrival->line, weir_strerror(code));
    if (class) {
        class->requests++;
        class->allowed += ret->allowed;
    }
    return 0;
}

static int decide(void *context, const struct desk_arrival *arrival, weir_error *err)
{
    struct replay *replay = context;
    weir_decision decisions[DESK_CANDIDATES_MAX];
    int64_t shadowed = replay->shown[0].shadow_denied;
    int code = 0;
    if (replay->policies)
        code = replay_policies_take(replay, arrival, decisions, err);
    else if (replay->store)
        code = decide_by_store(replay, arrival, decisions, err);
    else
        code = desk_engine_take(replay->engine, arrival, replay->decisions ? decisions : NULL);
    if (code == 0 && replay->store)
        code = desk_engine_note(replay->engine, arrival, decisions);
    if (code == 0 && replay->shown[0].shadow_denied > shadowed)
        ++*desk_key_noted(replay->engine, desk_engine_find(replay->engine, arrival->hash));
    if (code == 0 && replay->decisions)
        code = decisions_put(replay, arrival, decisions);
    return code;
}

/* After each batch. */
static void passed(void *context, int64_t done, int64_t size, bool idle)
{
    struct replay *replay = context;
    replay->progress.bytes = done;
    replay->progress.total = size;
    replay->progress.units = replay->engine->requests;
    cli_progress_show(&replay->progress, weir__mono_us());
    if (!idle || !replay->decisions)
        return;
    decisions_flush(&replay->lines);
    fflush(stdout);
}

static _Atomic int stop; /* set by a signal, read by the reading thread */

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static uint64_t live_evictions(weir_store *store)
{
    weir_zone_info info;
    return !store || weir_store_info(store, &info) ? 0 : info.evicted_unused + info.evicted_soonest;
}

/* Whether the states are in a store of its own beside the engine, of half the memory: how many
 * there will be is not known. */
static bool has_half_store(const struct replay *replay)
{
    return replay->policies || (replay->classes.count > 0 && !replay->url && !replay->is_trace);
}

static int decide_all(struct replay *replay)
{
    struct desk_flow flow = {.context = replay,
                             .take = decide,
                             .passed = passed,
                             .engine = replay->engine,
                             .stop = &stop};
    const char *term = getenv("TERM");
    uint64_t evicted = live_evictions(replay->store);
    weir_error err = {0};
    replay_connect(replay, &flow);
    replay->progress.on = isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
    replay->progress.lines = true;
    if (replay->follow) { /* what came until then is summed up */
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
    }
    cli_progress_begin(&replay->progress, weir__mono_us());
    int code = desk_flow_run(&flow, &err);
    if (replay->progress.drawn > 1)
        fputs("\r\033[K", stderr);
    if (replay->decisions)
        decisions_flush(&replay->lines);
    if (code)
        return cli_fail(replay->call, code == WEIR_EINVAL ? CLI_USAGE : CLI_FAILED, "%s",
                        err.message[0] ? err.message : weir_strerror(code));
    desk_engine_end(replay->engine);
    evicted = live_evictions(replay->store) - evicted;
    if (evicted > 0 && has_half_store(replay))
        replay->engine->lossy += (int64_t)evicted;
    else if (evicted > 0)
        return cli_fail(replay->call, CLI_FAILED,
                        "%" PRIu64
                        " states in use were evicted, so some answers are too lenient; use a "
                        "larger store, like --store memory:4g",
                        evicted);
    return CLI_OK;
}

/* ---- the report ---- */

/* What of the log could not be read is in the report; here it decides the exit code. */
static int report_damage(const struct replay *replay)
{
    if (replay->is_trace)
        return CLI_OK;
    if (replay->decisions)
        cli_logs_print_unread(&replay->facts);
    return cli_logs_check_damage(replay->call, &replay->facts);
}

static void report_put_classes(struct weir__json *json, const struct replay *replay)
{
    if (replay->classes.count == 0)
        return;
    weir__json_open(json, "classes", '[');
    for (size_t i = 0; i < replay->classes.count; i++) {
        const struct weir__class *it = &replay->classes.items[i];
        char share[16];
        struct weir__buffer text = weir__buffer_over(share, sizeof share);
        weir__put_share(&text, it->millionths);
        weir__json_open(json, NULL, '{');
        weir__json_put_text(json, "class", it->name.data, it->name.len);
        weir__json_put_string(json, "share", share);
        weir__json_put_string(json, "limit", weir_limit_text(it->limit));
        weir__json_put_int(json, "requests", it->requests);
        weir__json_put_int(json, "allowed", it->allowed);
        weir__json_put_int(json, "denied", it->requests - it->allowed);
        weir__json_close(json, '}');
    }
    weir__json_close(json, ']');
}

/* What only a replay knows. */
static void report_put_more(struct weir__json *json, void *context)
{
    const struct replay *replay = context;
    report_put_classes(json, replay);
    replay_policies_put_idle(json, replay);
}

/* An input without a request: it is named, because the summary of a trace does not name it. */
static void report_tell_empty(const struct replay *replay)
{
    if (replay->is_trace && replay->engine->requests == 0)
        cli_fail(replay->call, CLI_OK, "%s has no requests",
                 cli_logs_name(replay->logs.path_count > 0 ? replay->logs.paths[0] : "-").text);
}

static int report(struct replay *replay)
{
    struct desk_report report = {
        .engine = replay->engine,
        .shown = replay->shown,
        .facts = replay->is_trace ? NULL : &replay->facts,
        .path = replay->logs.path_count > 0 ? replay->logs.paths[0] : "standard input",
        .key = replay->is_trace           ? "key"
               : replay->logs.options.key ? replay->logs.options.key
                                          : "ip",
        .command = "weir replay",
        .heading = "What limits would have done",
        .several = replay->limit_texts.count > 0,
        .more = report_put_more,
        .context = replay,
    };
    int code = CLI_OK;
    if (!replay->is_trace)
        desk_reader_facts(replay->reader, &replay->facts);
    if (!replay->is_trace)
        code = cli_logs_check_readable(replay->call, &replay->facts);
    size_t unmatched = desk_engine_unmatched(replay->engine);
    if (code == CLI_OK && unmatched < replay->spare.count && replay->engine->requests > 0)
        code = cli_logs_tell_spare(replay->call, &replay->logs, replay->spare.texts[unmatched]);
    if (code)
        return code;
    if (replay->report_path)
        code = cli_write_report(replay->call, &report, replay->report_path);
    if (!replay->decisions && replay->json) {
        struct weir__json json = cli_json_begin('{');
        desk_report_json(&report, &json);
        cli_json_end(&json, '}');
    } else if (!replay->decisions) {
        replay_print(replay, &report);
    }
    if (replay->engine->requests > 0) {
        replay_policies_tell_idle(replay);
        replay_policies_tell_unseen(replay);
    }
    report_tell_empty(replay);
    int damage = report_damage(replay);
    return code ? code : damage;
}

/* ---- candidates ---- */

static int candidate_add(struct replay *replay, const char *name, size_t len, const char *text)
{
    if (replay->count == DESK_CANDIDATES_MAX)
        return cli_fail(replay->call, CLI_USAGE, "too many --limit: expected at most %d",
                        DESK_CANDIDATES_MAX);
    size_t i = replay->count;
    memcpy(replay->names[i], name, len);
    replay->names[i][len] = 0;
    for (size_t j = 0; j < i; j++) {
        if (!strcmp(replay->names[j], replay->names[i]))
            return cli_fail(replay->call, CLI_USAGE,
                            "--limit: the name \"%s\" is given twice; names tell candidates apart",
                            replay->names[i]);
    }
    int code = cli_read_limits(replay->call, text, &replay->limits[i]);
    if (code)
        return code;
    replay->candidates[i] =
        (struct desk_candidate){replay->names[i], replay->limits[i], false, true};
    replay->shown[i] = (struct desk_shown){.name = replay->names[i],
                                           .limit = replay->limits[i],
                                           .text = weir_limit_text(replay->limits[i])};
    replay->count++;
    return CLI_OK;
}

/* NAME=LIMITS */
static int candidate_read(struct replay *replay, const char *text)
{
    size_t len = 0;
    while (isalnum((unsigned char)text[len]) || (text[len] && strchr("_.-", text[len])))
        len++;
    if (len == 0 || len > REPLAY_NAME_MAX || text[len] != '=')
        return cli_fail(replay->call, CLI_USAGE,
                        "invalid --limit \"%s\": expected NAME=LIMITS, like --limit "
                        "\"tight=token-bucket 5/s burst 10\"; a name has at most %d letters, "
                        "digits, dots, dashes or underscores",
                        cli_show_text(text).text, REPLAY_NAME_MAX);
    return candidate_add(replay, text, len, text + len + 1);
}

/* Whether the first file is not there and is a limit: somebody wrote LIMITS beside --limit or
 * --policies. */
static bool candidates_have_limits(const struct replay *replay)
{
    weir_limit *limit = NULL;
    if ((!replay->policies_path && replay->limit_texts.count == 0) ||
        replay->logs.path_count == 0 || access(replay->logs.paths[0], F_OK) == 0)
        return false;
    bool is = weir_limit_parse(replay->logs.paths[0], &limit, NULL) == 0;
    weir_limit_free(limit);
    return is;
}

/* What is to be decided by what. Without --limit and --policies the first operand is the limits. */
static int candidates_read(struct replay *replay)
{
    const struct cli_call *call = replay->call;
    if (replay->policies_path && replay->limit_texts.count > 0)
        return cli_fail(call, CLI_USAGE,
                        "--limit and --policies exclude each other: drop one of them; to compare "
                        "both, run it twice");
    if (candidates_have_limits(replay))
        return cli_fail(call, CLI_USAGE, "LIMITS \"%s\" and %s exclude each other: drop %s",
                        cli_show_text(replay->logs.paths[0]).text,
                        replay->policies_path ? "--policies" : "--limit",
                        replay->policies_path ? "one of them; to compare both, run it twice"
                                              : "LIMITS, or write it as --limit NAME=LIMITS");
    if (replay->url && (replay->policies_path || replay->limit_texts.count > 0))
        return cli_fail(call, CLI_USAGE,
                        "--store keeps the states of one limit: write LIMITS, without --limit and "
                        "--policies");
    if (replay->share_text && (replay->policies_path || replay->limit_texts.count > 0))
        return cli_fail(call, CLI_USAGE,
                        "--share divides one limit: write LIMITS, without --limit and --policies");
    if (replay->spare.count > 0 && (replay->policies_path || replay->url || replay->share_text))
        return cli_fail(call, CLI_USAGE,
                        "--spare leaves keys out of LIMITS and --limit: a policy file says it by "
                        "itself (allow), and --store and --share have no exemptions");
    if (replay->share_by && !replay->share_text)
        return cli_fail(call, CLI_USAGE,
                        "--share-by says what the class of a request is; --share says what the "
                        "classes may use, like --share batch=50%%,default=100%%");
    if (replay->policies_path)
        return replay_policies_open(replay);
    for (size_t i = 0; i < replay->limit_texts.count; i++) {
        int code = candidate_read(replay, replay->limit_texts.texts[i]);
        if (code)
            return code;
    }
    if (replay->count > 0)
        return CLI_OK;
    if (replay->logs.path_count == 0)
        return cli_fail(call, CLI_USAGE, "LIMITS is missing; see `weir replay --help`");
    replay->limits_text = replay->logs.paths[0];
    replay->logs.path_count--;
    memmove(replay->logs.paths, replay->logs.paths + 1,
            replay->logs.path_count * sizeof *replay->logs.paths);
    int code = candidate_add(replay, "limits", 6, replay->limits_text);
    if (code || !replay->share_text)
        return code;
    weir_error err = {0};
    code = weir__classes_read(replay->share_text, replay->limits[0], &replay->classes, &err);
    return code ? cli_fail_with(call, code, &err) : CLI_OK;
}

/* ---- the command ---- */

static int replay_open_store(struct replay *replay)
{
    char url[96];
    struct weir__buffer own = weir__buffer_over(url, sizeof url);
    if (!replay->url && replay->classes.count == 0)
        return CLI_OK;
    if (has_half_store(replay))
        weir__put_format(&own, "memory:%" PRId64 "?large=40%%", replay->logs.memory / 2);
    else
        weir__private_store_url(replay->limits[0], replay->trace_requests, &own);
    int code = cli_open_store(replay->call, replay->url ? replay->url : url, &replay->store);
    if (code == CLI_OK)
        weir__virtual_clock_install(&replay->clock, replay->store);
    replay->candidates[0].limit = NULL; /* the store decides */
    return code;
}

static int replay_make_engine(struct replay *replay)
{
    weir_error err = {0};
    struct desk_engine_options options = {.candidates = replay->candidates,
                                          .count = replay->count,
                                          .wait_us = replay->wait_us,
                                          .memory = replay->logs.memory,
                                          .notes = replay->shown[0].shadowed != NULL,
                                          .spare = replay->spare.texts,
                                          .spare_count = replay->spare.count};
    if (has_half_store(replay))
        options.memory = weir__max(replay->logs.memory / 2, DESK_MEMORY_LEAST);
    int code = desk_engine_make(&options, &replay->engine, &err);
    return code ? cli_fail_with(replay->call, code, &err) : CLI_OK;
}

static int replay_run(struct replay *replay)
{
    int code = cli_logs_read(replay->call, &replay->logs);
    if (code == CLI_OK)
        code = cli_logs_check_spare(replay->call, &replay->spare);
    if (code == CLI_OK)
        code = candidates_read(replay);
    if (code == CLI_OK)
        code = cli_logs_check_report(replay->call, &replay->logs, replay->report_path);
    if (code == CLI_OK)
        code = replay_open(replay);
    if (code == CLI_OK)
        code = replay_open_store(replay);
    if (code == CLI_OK)
        code = replay_make_engine(replay);
    if (code == CLI_OK) {
        decisions_begin(replay);
        code = decide_all(replay);
    }
    return code == CLI_OK ? report(replay) : code;
}

static int cmd_replay(const struct cli_call *call)
{
    struct replay *replay = calloc(1, sizeof *replay);
    const char **paths = calloc(CLI_MANY_LOGS + 1, sizeof *paths);
    if (!replay || !paths) {
        free(replay);
        free(paths);
        return cli_fail(call, CLI_FAILED, "out of memory");
    }
    replay->call = call;
    replay->logs.paths = paths;
    replay->wait_us = WEIR_WAIT_DEFAULT;
    const struct cli_option options[] = {
        {"limit", CLI_LIST, &replay->limit_texts, 0},
        {"spare", CLI_LIST, &replay->spare, 0},
        {"policies", CLI_TEXT, &replay->policies_path, 0},
        {"store", CLI_TEXT, &replay->url, 0},
        {"wait", CLI_WAIT, &replay->wait_us, 0},
        {"share", CLI_TEXT, &replay->share_text, 0},
        {"share-by", CLI_TEXT, &replay->share_by, 0},
        CLI_LOGS_OPTIONS(&replay->logs),
        {"follow", CLI_FLAG, &replay->follow, 0},
        {"report", CLI_TEXT, &replay->report_path, 0},
        {"decisions", CLI_FLAG, &replay->decisions, 0},
        {"json", CLI_FLAG, &replay->json, 0},
    };
    const struct cli_operand operands[] = {{"FILE", paths, CLI_MANY_LOGS}};
    int code = CLI_PARSE(call, options, operands);
    if (code == CLI_OK)
        code = replay_run(replay);
    desk_engine_free(replay->engine);
    replay_close(replay);
    weir_store_close(replay->store);
    replay_policies_close(replay);
    weir__classes_free(&replay->classes);
    for (size_t i = 0; i < DESK_CANDIDATES_MAX; i++)
        weir_limit_free(replay->limits[i]);
    weir__buffer_free(&replay->lines);
    free(replay);
    free(paths);
    return code;
}

const struct cli_command cli_replay = {
    .name = "replay",
    .summary = "show what limits would have decided for a log",
    .run = cmd_replay,
};

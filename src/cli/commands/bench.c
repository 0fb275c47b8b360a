/* `weir bench`: how fast the library decides here. A quick look, not a study. */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/random.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- one row: threads that take for a while ---- */

#define BENCH_THREADS_MAX 64
#define BENCH_BATCH_MAX 1024

enum bench_how {
    BENCH_HASHED, /* one key, hashed once */
    BENCH_TEXT,   /* one key, hashed each time */
    BENCH_RANDOM, /* random keys, one by one */
    BENCH_BATCH,  /* random keys by weir_take_many */
};

struct bench_row {
    const char *name, *limits;
    enum bench_how how;
};

struct bench_job {
    weir_store *store;
    const weir_limit *limit;
    enum bench_how how;
    uint64_t keys;
    size_t batch;
    int64_t span_us;
};

struct bench_result {
    int64_t takes, allowed;
    double ns_per_take; /* for one thread */
    double per_second;  /* for all threads */
};

#define TAKES_PER_LOOK 1024 /* between two looks at the clock */
#define PREFIX "weir-bench:"
#define DIGITS 8

struct text_key {
    char text[sizeof PREFIX - 1 + DIGITS];
};

/* On the heap: a thread of musl has a stack of 128 KiB. */
struct bench_batch {
    struct text_key texts[BENCH_BATCH_MAX];
    weir_request requests[BENCH_BATCH_MAX];
    weir_decision decisions[BENCH_BATCH_MAX];
};

struct worker {
    const struct bench_job *job;
    struct bench_batch *batch;
    uint64_t random;
    int64_t takes, allowed, spent_ns;
    int code;
    pthread_t thread;
};

/* Key number n as text: 8 hexadecimal digits are enough for all keys. */
static void bench_write_key(struct text_key *key, uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGITS; i++)
        key->text[sizeof PREFIX - 1 + i] = digits[n >> (4 * i) & 15];
}

static uint64_t bench_random_key(struct worker *worker)
{
    uint64_t number = weir__random_next(&worker->random);
    return (uint64_t)((unsigned __int128)number * worker->job->keys >> 64);
}

static int bench_take_hot(struct worker *worker)
{
    const struct bench_job *job = worker->job;
    weir_key key = weir_key_text(PREFIX "hot");
    weir_hashed_key hashed;
    int code = weir_key_hash(job->store, key, &hashed);
    if (code)
        return code;
    for (int i = 0; i < TAKES_PER_LOOK; i++) {
        weir_decision decision;
        code = job->how == BENCH_HASHED
                   ? weir_take_hashed(job->store, &hashed, job->limit, 1, &decision)
                   : weir_take(job->store, key, job->limit, 1, &decision);
        if (code)
            return code;
        worker->allowed += decision.allowed;
    }
    worker->takes += TAKES_PER_LOOK;
    return 0;
}

static int bench_take_random(struct worker *worker)
{
    const struct bench_job *job = worker->job;
    struct text_key text = {PREFIX};
    for (int i = 0; i < TAKES_PER_LOOK; i++) {
        weir_decision decision;
        bench_write_key(&text, bench_random_key(worker));
        int code = weir_take(job->store, weir_key_bytes(text.text, sizeof text.text), job->limit, 1,
                             &decision);
        if (code)
            return code;
        worker->allowed += decision.allowed;
    }
    worker->takes += TAKES_PER_LOOK;
    return 0;
}

static int bench_take_batch(struct worker *worker)
{
    const struct bench_job *job = worker->job;
    struct text_key *texts = worker->batch->texts;
    weir_request *requests = worker->batch->requests;
    weir_decision *decisions = worker->batch->decisions;
    for (size_t i = 0; i < job->batch; i++) {
        memcpy(texts[i].text, PREFIX, sizeof PREFIX - 1);
        requests[i] =
            weir_request_make(weir_key_bytes(texts[i].text, sizeof texts[i].text), job->limit);
    }
    for (size_t done = 0; done < TAKES_PER_LOOK; done += job->batch) {
        for (size_t i = 0; i < job->batch; i++)
            bench_write_key(&texts[i], bench_random_key(worker));
        int code = weir_take_many(job->store, requests, job->batch, decisions);
        if (code)
            return code;
        for (size_t i = 0; i < job->batch; i++)
            worker->allowed += decisions[i].allowed;
        worker->takes += (int64_t)job->batch;
    }
    return 0;
}

static void *bench_work(void *context)
{
    struct worker *worker = context;
    static int (*const ways[])(struct worker *) = {
        [BENCH_HASHED] = bench_take_hot,
        [BENCH_TEXT] = bench_take_hot,
        [BENCH_RANDOM] = bench_take_random,
        [BENCH_BATCH] = bench_take_batch,
    };
    int64_t start = weir__mono_ns();
    do {
        worker->code = ways[worker->job->how](worker);
        worker->spent_ns = weir__mono_ns() - start;
    } while (worker->code == 0 && worker->spent_ns < worker->job->span_us * 1000);
    return NULL;
}

static int bench_measure(const struct bench_job *job, size_t threads, struct bench_result *ret)
{
    struct worker workers[BENCH_THREADS_MAX];
    struct bench_result result = {0};
    size_t started = 0;
    assert(threads >= 1 && threads <= BENCH_THREADS_MAX && job->batch <= BENCH_BATCH_MAX);
    int code = 0;
    for (; started < threads && code == 0; started++) {
        struct worker *worker = &workers[started];
        *worker = (struct worker){.job = job, .random = started + 1};
        worker->batch = malloc(sizeof *worker->batch);
        if (!worker->batch)
            code = WEIR_ENOMEM;
        else if (pthread_create(&worker->thread, NULL, bench_work, worker))
            code = WEIR_ESYSTEM;
        if (code)
            free(worker->batch);
    }
    started -= code != 0;
    double spent_ns = 0;
    for (size_t i = 0; i < started; i++) {
        struct worker *worker = &workers[i];
        pthread_join(worker->thread, NULL);
        free(worker->batch);
        code = code ? code : worker->code;
        result.takes += worker->takes;
        result.allowed += worker->allowed;
        spent_ns += (double)worker->spent_ns;
        result.per_second += (double)worker->takes * 1e9 / (double)worker->spent_ns;
    }
    result.ns_per_take = spent_ns / (double)weir__max(1, result.takes);
    if (code == 0)
        *ret = result;
    return code;
}

/* ---- the command ---- */

#define KEYS_MAX INT64_C(100000000)
#define SECONDS_MAX_US INT64_C(600000000)
#define STATE_ROOM 64  /* bytes of the zone per key */
#define LARGE_ROOM 512 /* the same with a log, window or lease */
#define SPARE_ROOM (16 << 20)

/* The first never denies; the second always denies once its only token is used. */
#define GENEROUS "token-bucket 1g/s"
#define STINGY "token-bucket 1/d"

static const struct bench_row rows[] = {
    {"one key, hashed once", GENEROUS, BENCH_HASHED},   {"one key, as text", GENEROUS, BENCH_TEXT},
    {"one key, denied", STINGY, BENCH_HASHED},          {"random keys", GENEROUS, BENCH_RANDOM},
    {"random keys, in batches", GENEROUS, BENCH_BATCH},
};

struct settings {
    const char *url, *limits;
    int64_t keys, threads, span_us, batch;
    bool json;
};

static void bench_print_row(const struct bench_row *row, const struct bench_result *result)
{
    double allowed = 100.0 * (double)result->allowed / (double)weir__max(1, result->takes);
    printf("  %-26s %10.1f %14.2f %9.1f%%\n", row->name, result->ns_per_take,
           result->per_second / 1e6, allowed);
    fflush(stdout);
}

static void bench_put_row(struct weir__json *json, const struct settings *settings,
                          const struct bench_row *row, const struct bench_result *result)
{
    weir__json_open(json, NULL, '{');
    weir__json_put_string(json, "what", row->name);
    weir__json_put_string(json, "limits", settings->limits ? settings->limits : row->limits);
    weir__json_put_double(json, "ns_per_take", result->ns_per_take);
    weir__json_put_double(json, "takes_per_second", result->per_second);
    weir__json_put_int(json, "takes", result->takes);
    weir__json_put_int(json, "allowed", result->allowed);
    weir__json_close(json, '}');
}

static int bench_measure_row(const struct cli_call *call, const struct settings *settings,
                             weir_store *store, const struct bench_row *row,
                             struct bench_result *ret)
{
    weir_limit *limit = NULL;
    int code = cli_read_limits(call, settings->limits ? settings->limits : row->limits, &limit);
    if (code)
        return code;
    struct bench_job job = {
        .store = store,
        .limit = limit,
        .how = row->how,
        .keys = (uint64_t)settings->keys,
        .batch = (size_t)settings->batch,
        .span_us = settings->span_us / (int64_t)WEIR__COUNT(rows),
    };
    code = bench_measure(&job, (size_t)settings->threads, ret);
    weir_limit_free(limit);
    return code ? cli_refused(call, store, code) : CLI_OK;
}

static int bench_measure_all(const struct cli_call *call, const struct settings *settings,
                             weir_store *store)
{
    struct cli_style style = cli_style_of(stdout);
    struct bench_result result;
    int code = CLI_OK;
    printf("%s%" PRId64 " thread%s, %" PRId64 " keys, batches of %" PRId64 "%s\n", style.bold,
           settings->threads, settings->threads == 1 ? "" : "s", settings->keys, settings->batch,
           style.off);
    printf("%s  %-26s %10s %14s %10s%s\n", style.dim, "", "ns/take", "million/s", "allowed",
           style.off);
    for (size_t i = 0; i < WEIR__COUNT(rows) && code == CLI_OK; i++) {
        code = bench_measure_row(call, settings, store, &rows[i], &result);
        if (code == CLI_OK)
            bench_print_row(&rows[i], &result);
    }
    return code;
}

static int bench_measure_all_json(const struct cli_call *call, const struct settings *settings,
                                  weir_store *store)
{
    struct bench_result result;
    int code = CLI_OK;
    struct weir__json json = cli_json_begin('{');
    weir__json_put_int(&json, "threads", settings->threads);
    weir__json_put_int(&json, "keys", settings->keys);
    weir__json_put_int(&json, "batch", settings->batch);
    weir__json_open(&json, "rows", '[');
    for (size_t i = 0; i < WEIR__COUNT(rows) && code == CLI_OK; i++) {
        code = bench_measure_row(call, settings, store, &rows[i], &result);
        if (code == CLI_OK)
            bench_put_row(&json, settings, &rows[i], &result);
    }
    weir__json_close(&json, ']');
    cli_json_end(&json, '}');
    return code;
}

/* A private zone with room for every key. */
static int bench_open_store(const struct cli_call *call, const struct settings *settings,
                            weir_store **ret)
{
    char url[64];
    struct weir__buffer buffer = weir__buffer_over(url, sizeof url);
    int64_t room = settings->limits ? LARGE_ROOM : STATE_ROOM;
    weir__put_format(&buffer, "memory:%" PRId64 "%s", SPARE_ROOM + settings->keys * room,
                     settings->limits ? "?large=50%" : "");
    return cli_open_store(call, settings->url ? settings->url : url, ret);
}

static int cmd_bench(const struct cli_call *call)
{
    struct settings settings = {.keys = 1000000, .threads = 1, .span_us = 3000000, .batch = 16};
    const struct cli_option options[] = {
        {"store", CLI_TEXT, &settings.url, 0},
        {"keys", CLI_COUNT, &settings.keys, KEYS_MAX},
        {"threads", CLI_COUNT, &settings.threads, BENCH_THREADS_MAX},
        {"seconds", CLI_SECONDS, &settings.span_us, 0},
        {"limit", CLI_TEXT, &settings.limits, 0},
        {"batch", CLI_COUNT, &settings.batch, BENCH_BATCH_MAX},
        {"json", CLI_FLAG, &settings.json, 0},
    };
    int code = cli_parse(call, options, WEIR__COUNT(options), NULL, 0);
    if (code == CLI_OK && settings.span_us > SECONDS_MAX_US)
        code = cli_fail(call, CLI_USAGE, "invalid --seconds \"%s\": expected at most 10m",
                        cli_exact(settings.span_us).text);
    weir_limit *limit = NULL;
    if (code == CLI_OK && settings.limits)
        code = cli_read_limits(call, settings.limits, &limit);
    weir_limit_free(limit);
    weir_store *store = NULL;
    if (code == CLI_OK)
        code = bench_open_store(call, &settings, &store);
    if (code == CLI_OK)
        code = settings.json ? bench_measure_all_json(call, &settings, store)
                             : bench_measure_all(call, &settings, store);
    weir_store_close(store);
    return code;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "measure how fast the library decides here",
    .run = cmd_bench,
};

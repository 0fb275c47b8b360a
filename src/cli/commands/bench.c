/* `weir bench`: how fast the library decides here. A quick look, not a study. */
#include "cli/bench_run.h"
#include "cli/json.h"

#include <inttypes.h>

#define KEYS_MAX INT64_C(100000000)
#define SECONDS_MAX_US INT64_C(600000000)
#define STATE_ROOM 64  /* bytes of a zone a key */
#define LARGE_ROOM 512 /* and with a log, window or lease */
#define SPARE_ROOM (16 << 20)

/* Never denied, and always denied once its one token is spent. */
#define GENEROUS "token-bucket 1g/s"
#define STINGY "token-bucket 1/d"

static const struct cli_bench_row rows[] = {
    {"one key, hashed once", GENEROUS, CLI_BENCH_HASHED},
    {"one key, as text", GENEROUS, CLI_BENCH_TEXT},
    {"one key, denied", STINGY, CLI_BENCH_HASHED},
    {"random keys", GENEROUS, CLI_BENCH_RANDOM},
    {"random keys, in batches", GENEROUS, CLI_BENCH_BATCH},
};

struct settings {
    const char *url, *limits;
    int64_t keys, threads, span_us, batch;
    bool json;
};

static void print_row(const struct settings *settings, const struct cli_bench_row *row,
                      const struct cli_bench_result *result, struct cli_json *json)
{
    double allowed = 100.0 * (double)result->allowed / (double)weir__max(1, result->takes);
    if (settings->json) {
        cli_json_open(json, NULL, '{');
        cli_json_text(json, "what", row->name);
        cli_json_text(json, "limits", settings->limits ? settings->limits : row->limits);
        cli_json_double(json, "ns_per_take", result->ns_per_take);
        cli_json_double(json, "takes_per_second", result->per_second);
        cli_json_int(json, "takes", result->takes);
        cli_json_int(json, "allowed", result->allowed);
        cli_json_close(json, '}');
    } else {
        printf("  %-26s %10.1f %14.2f %9.1f%%\n", row->name, result->ns_per_take,
               result->per_second / 1e6, allowed);
        fflush(stdout);
    }
}

static int measure(const struct cli_call *call, const struct settings *settings, weir_store *store,
                   const struct cli_bench_row *row, int64_t span_us, struct cli_json *json)
{
    weir_limit *limit = NULL;
    int code = cli_read_limits(call, settings->limits ? settings->limits : row->limits, &limit);
    if (code)
        return code;
    struct cli_bench_job job = {
        .store = store,
        .limit = limit,
        .how = row->how,
        .keys = (uint64_t)settings->keys,
        .batch = (size_t)settings->batch,
        .span_us = span_us,
    };
    struct cli_bench_result result;
    code = cli_bench_measure(&job, (size_t)settings->threads, &result);
    weir_limit_free(limit);
    if (code)
        return cli_refused(call, store, code);
    print_row(settings, row, &result, json);
    return CLI_OK;
}

static int measure_all(const struct cli_call *call, const struct settings *settings,
                       weir_store *store)
{
    struct cli_json json = {stdout, false};
    struct cli_style style = cli_style_of(stdout);
    if (settings->json) {
        cli_json_open(&json, NULL, '{');
        cli_json_int(&json, "threads", settings->threads);
        cli_json_int(&json, "keys", settings->keys);
        cli_json_int(&json, "batch", settings->batch);
        cli_json_open(&json, "rows", '[');
    } else {
        printf("%s%" PRId64 " thread%s, %" PRId64 " keys, batches of %" PRId64 "%s\n", style.bold,
               settings->threads, settings->threads == 1 ? "" : "s", settings->keys,
               settings->batch, style.off);
        printf("%s  %-26s %10s %14s %10s%s\n", style.dim, "", "ns a take", "million a s", "allowed",
               style.off);
    }
    int code = CLI_OK;
    for (size_t i = 0; i < WEIR__COUNT(rows) && code == CLI_OK; i++)
        code = measure(call, settings, store, &rows[i],
                       settings->span_us / (int64_t)WEIR__COUNT(rows), &json);
    if (settings->json) {
        cli_json_close(&json, ']');
        cli_json_close(&json, '}');
        cli_json_end(&json);
    }
    return code;
}

/* A private zone with room for every key. */
static int open_store(const struct cli_call *call, const struct settings *settings,
                      weir_store **ret)
{
    char url[64];
    struct weir__buffer buffer = weir__buffer_over(url, sizeof url);
    int64_t room = settings->limits ? LARGE_ROOM : STATE_ROOM;
    weir__put_format(&buffer, "memory:%" PRId64 "%s", SPARE_ROOM + settings->keys * room,
                     settings->limits ? "?large=50%" : "");
    return cli_open_store(call, settings->url ? settings->url : url, ret);
}

static int run(const struct cli_call *call)
{
    struct settings settings = {.keys = 1000000, .threads = 1, .span_us = 3000000, .batch = 16};
    const struct cli_option options[] = {
        {"store", CLI_TEXT, &settings.url, 0},
        {"keys", CLI_COUNT, &settings.keys, KEYS_MAX},
        {"threads", CLI_COUNT, &settings.threads, CLI_BENCH_THREADS_MAX},
        {"seconds", CLI_SECONDS, &settings.span_us, 0},
        {"limit", CLI_TEXT, &settings.limits, 0},
        {"batch", CLI_COUNT, &settings.batch, CLI_BENCH_BATCH_MAX},
        {"json", CLI_FLAG, &settings.json, 0},
    };
    int code = cli_parse(call, options, WEIR__COUNT(options), NULL, 0);
    if (code == CLI_OK && settings.span_us > SECONDS_MAX_US)
        code = cli_fail(call, CLI_USAGE, "--seconds \"%s\": at most 10m",
                        cli_exact(settings.span_us).text);
    weir_limit *limit = NULL;
    if (code == CLI_OK && settings.limits)
        code = cli_read_limits(call, settings.limits, &limit);
    weir_limit_free(limit);
    weir_store *store = NULL;
    if (code == CLI_OK)
        code = open_store(call, &settings, &store);
    if (code == CLI_OK)
        code = measure_all(call, &settings, store);
    weir_store_close(store);
    return code;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "how fast the library decides here",
    .help =
        "Usage: weir bench [--keys N] [--threads N] [--seconds T] [--limit LIMITS]\n"
        "                  [--batch N] [--store URL] [--json]\n"
        "\n"
        "Measures takes of the local library: one hot key, random keys, batches by\n"
        "weir_take_many. A thread's time for one take, and what all threads do in a\n"
        "second.\n"
        "\n"
        "Options:\n"
        "  --keys N      different keys, 1 to 100000000 (default 1000000)\n"
        "  --threads N   1 to 64 (default 1)\n"
        "  --seconds T   for all rows together, up to 10m, like 5 or 500ms (default 3)\n"
        "  --limit L     measure these limits (default: a token bucket that allows all,\n"
        "                and one that denies all)\n"
        "  --batch N     requests a batch, 1 to 1024 (default 16)\n"
        "  --store URL   measure this store (file:, shm:, memory: or redis://); its keys\n"
        "                begin with weir-bench: (default: a private memory: zone with\n"
        "                room for all keys)\n"
        "  --json        print one JSON object\n"
        "\n"
        "Examples:\n"
        "  weir bench\n"
        "  weir bench --threads 2 --keys 10000000 --seconds 10\n"
        "  weir bench --store shm:/bench --limit \"sliding-window 100/m\" --json\n" CLI_EXIT_CODES,
    .run = run,
};

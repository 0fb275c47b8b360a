/* See bench_run.h. */
#include "cli/bench_run.h"

#include "base/clock.h"
#include "base/random.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define TAKES_A_LOOK 1024 /* between looks at the time */
#define PREFIX "weir-bench:"
#define DIGITS 8

struct text_key {
    char text[sizeof PREFIX - 1 + DIGITS];
};

struct worker {
    const struct cli_bench_job *job;
    uint64_t random;
    int64_t takes, allowed, spent_ns;
    int code;
    pthread_t thread;
};

/* Key number n as text; 8 hexadecimal digits tell all keys apart. */
static void write_key(struct text_key *key, uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < DIGITS; i++)
        key->text[sizeof PREFIX - 1 + i] = digits[n >> (4 * i) & 15];
}

static uint64_t random_key(struct worker *worker)
{
    uint64_t number = weir__random_next(&worker->random);
    return (uint64_t)((unsigned __int128)number * worker->job->keys >> 64);
}

static int take_hot(struct worker *worker)
{
    const struct cli_bench_job *job = worker->job;
    weir_key key = weir_key_text(PREFIX "hot");
    weir_hashed hashed;
    if (job->how == CLI_BENCH_HASHED)
        key = weir_key_hash(job->store, key, &hashed);
    for (int i = 0; i < TAKES_A_LOOK; i++) {
        weir_decision decision;
        int code = weir_take(job->store, key, job->limit, 1, &decision);
        if (code)
            return code;
        worker->allowed += decision.allowed;
    }
    worker->takes += TAKES_A_LOOK;
    return 0;
}

static int take_random(struct worker *worker)
{
    const struct cli_bench_job *job = worker->job;
    struct text_key text = {PREFIX};
    for (int i = 0; i < TAKES_A_LOOK; i++) {
        weir_decision decision;
        write_key(&text, random_key(worker));
        int code = weir_take(job->store, weir_key_bytes(text.text, sizeof text.text), job->limit, 1,
                             &decision);
        if (code)
            return code;
        worker->allowed += decision.allowed;
    }
    worker->takes += TAKES_A_LOOK;
    return 0;
}

static int take_batch(struct worker *worker)
{
    const struct cli_bench_job *job = worker->job;
    struct text_key texts[CLI_BENCH_BATCH_MAX];
    weir_request requests[CLI_BENCH_BATCH_MAX];
    weir_decision decisions[CLI_BENCH_BATCH_MAX];
    for (size_t i = 0; i < job->batch; i++) {
        memcpy(texts[i].text, PREFIX, sizeof PREFIX - 1);
        requests[i] =
            weir_request_make(weir_key_bytes(texts[i].text, sizeof texts[i].text), job->limit);
    }
    for (size_t done = 0; done < TAKES_A_LOOK; done += job->batch) {
        for (size_t i = 0; i < job->batch; i++)
            write_key(&texts[i], random_key(worker));
        int code = weir_take_many(job->store, requests, job->batch, decisions);
        if (code)
            return code;
        for (size_t i = 0; i < job->batch; i++)
            worker->allowed += decisions[i].allowed;
        worker->takes += (int64_t)job->batch;
    }
    return 0;
}

static void *work(void *context)
{
    struct worker *worker = context;
    static int (*const ways[])(struct worker *) = {
        [CLI_BENCH_HASHED] = take_hot,
        [CLI_BENCH_TEXT] = take_hot,
        [CLI_BENCH_RANDOM] = take_random,
        [CLI_BENCH_BATCH] = take_batch,
    };
    int64_t start = weir__mono_ns();
    do {
        worker->code = ways[worker->job->how](worker);
        worker->spent_ns = weir__mono_ns() - start;
    } while (worker->code == 0 && worker->spent_ns < worker->job->span_us * 1000);
    return NULL;
}

int cli_bench_measure(const struct cli_bench_job *job, size_t threads, struct cli_bench_result *ret)
{
    struct worker workers[CLI_BENCH_THREADS_MAX];
    struct cli_bench_result result = {0};
    size_t started = 0;
    int code = 0;
    for (; started < threads && code == 0; started++) {
        workers[started] = (struct worker){.job = job, .random = started + 1};
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]))
            code = WEIR_ESYSTEM;
    }
    started -= code != 0;
    double spent_ns = 0;
    for (size_t i = 0; i < started; i++) {
        struct worker *worker = &workers[i];
        pthread_join(worker->thread, NULL);
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

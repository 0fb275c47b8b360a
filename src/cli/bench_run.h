/* One row of `weir bench`: threads that take for a while. */
#ifndef WEIR_CLI_BENCH_RUN_H
#define WEIR_CLI_BENCH_RUN_H

#include "cli/cli.h"

#define CLI_BENCH_THREADS_MAX 64
#define CLI_BENCH_BATCH_MAX 1024

enum cli_bench_how {
    CLI_BENCH_HASHED, /* one key, hashed once */
    CLI_BENCH_TEXT,   /* one key, hashed each time */
    CLI_BENCH_RANDOM, /* random keys, one by one */
    CLI_BENCH_BATCH,  /* random keys by weir_take_many */
};

struct cli_bench_row {
    const char *name, *limits;
    enum cli_bench_how how;
};

struct cli_bench_job {
    weir_store *store;
    const weir_limit *limit;
    enum cli_bench_how how;
    uint64_t keys;
    size_t batch;
    int64_t span_us;
};

struct cli_bench_result {
    int64_t takes, allowed;
    double ns_per_take; /* of one thread */
    double per_second;  /* of all */
};

/* The library's code on failure. */
int cli_bench_measure(const struct cli_bench_job *job, size_t threads,
                      struct cli_bench_result *ret);

#endif

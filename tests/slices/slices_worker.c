/*
 * A process that takes from a sliced store until it is told to end (SIGTERM), and writes down what
 * was admitted, so that a kill at any time loses nothing that was written. real.py runs many.
 *
 *     slices_worker URL FILE SEED LIMIT … -- ZIPF-KEYS LIMIT
 *
 * Key i of the first limits is hot-i. The others are zipf-0 …, the first of them the most wanted.
 */
#include "base/random.h"
#include "weir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ADMISSIONS_MAX 1000000
#define LIMITS_MAX 16
#define AT_ONCE 16

struct admission {
    int64_t before_us, after_us;
    int32_t key, local;
};

struct record {
    _Atomic uint64_t count; /* of admissions that are whole */
    _Atomic uint64_t takes, local, degraded;
    struct admission admissions[ADMISSIONS_MAX];
};

static struct record *record;
static weir_store *store;
static weir_limit *hot[LIMITS_MAX], *zipf;
static int hots, zipfs;
static volatile sig_atomic_t ended;

static void worker_end(int number)
{
    (void)number;
    ended = 1;
}

static int64_t worker_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void worker_take(int number)
{
    char name[32];
    bool is_hot = number < hots;
    snprintf(name, sizeof name, "%s-%d", is_hot ? "hot" : "zipf", is_hot ? number : number - hots);
    weir_request request =
        weir_request_make(weir_key_bytes(name, strlen(name)), is_hot ? hot[number] : zipf);
    weir_decision decision;
    int64_t before_us = worker_now();
    int code = weir_take_all(store, &request, 1, &decision);
    int64_t after_us = worker_now();
    record->takes++;
    if (code)
        return;
    record->local += decision.local;
    record->degraded += decision.degraded;
    uint64_t count = record->count;
    if (!decision.allowed || count == ADMISSIONS_MAX)
        return;
    record->admissions[count] =
        (struct admission){before_us, after_us, number, decision.local ? 1 : 0};
    atomic_store(&record->count, count + 1);
}

/* Number r with a chance of about 1 / r. */
static int worker_zipf(uint64_t *chance)
{
    int number = 0;
    for (int span = zipfs; span > 1; span /= 2) {
        if (weir__random_next(chance) % 8 < 1 + (uint64_t)(span < 4)) {
            number = span / 2 + (int)(weir__random_next(chance) % (uint64_t)(span - span / 2));
            break;
        }
    }
    return number;
}

static void worker_run(uint64_t chance)
{
    while (!ended) {
        int number = (int)(weir__random_next(&chance) % (uint64_t)(hots + 2));
        for (int i = 0; i < AT_ONCE; i++)
            worker_take(number < hots ? number : hots + worker_zipf(&chance));
        nanosleep(&(struct timespec){0, 500000 + (long)(weir__random_next(&chance) % 1000000)},
                  NULL);
    }
}

static void worker_parse(const char *text, weir_limit **ret)
{
    weir_error err;
    if (weir_limit_parse(text, ret, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    weir_error err;
    int fd = argc > 6 ? open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *record))
        return 2;
    record = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (record == MAP_FAILED)
        return 2;
    for (int i = 4; i < argc && strcmp(argv[i], "--") != 0 && hots < LIMITS_MAX; i++)
        worker_parse(argv[i], &hot[hots++]);
    zipfs = atoi(argv[argc - 2]);
    worker_parse(argv[argc - 1], &zipf);
    signal(SIGTERM, worker_end);
    if (weir_store_open(argv[1], &store, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    worker_run(strtoull(argv[3], NULL, 10));
    weir_store_close(store);
    return 0;
}

/*
 * How long a take waits for others: a zone in shared memory with millions of keys, one thread that
 * takes known keys and looks at the clock before and after each, and other processes that check the
 * zone, sweep its limits, flood it with new logs, or are killed in the middle of their work.
 *
 *     bench-stalls [SIZE [KEYS [KILLS]]]        1g, 3000000, 100
 *
 * It needs idle cores: two at least. A take during which the kernel gave the core to somebody else
 * says nothing about the zone; such takes are counted apart.
 */
#include "weir.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AIM_US = 5000, SAMPLES_MAX = 1 << 25, LOGS = 8 /* one key in so many has a log */ };

static char url[128], name[64];
static uint64_t keys = 3000000;
static int kills = 100;
static _Atomic uint64_t busy; /* takes of this process that gave up waiting */

/* What the bystander has seen. */
static struct {
    uint32_t *ns; /* of each take */
    uint64_t count, preempted;
    int64_t longest_ns;
    _Atomic int stop;
    weir_store *store;
    weir_limit *bucket, *log;
} by;

static int64_t clock_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static weir_store *open_store(void)
{
    weir_store *store = NULL;
    weir_error err;
    if (weir_store_open(url, &store, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return store;
}

static weir_limit *parse(const char *text)
{
    weir_limit *limit = NULL;
    if (weir_limit_parse(text, &limit, NULL))
        abort();
    return limit;
}

static void take(weir_store *store, uint64_t key, const weir_limit *limit)
{
    weir_decision decision;
    int code = weir_take(store, weir_key_bytes(&key, sizeof key), limit, 1, &decision);
    if (code == WEIR_EBUSY)
        atomic_fetch_add(&busy, 1);
    else if (code && code != WEIR_EFULL)
        abort();
}

/* ---- the bystander ---- */

static long preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

static void *stand_by(void *argument)
{
    uint64_t seed = 88172645463325252u;
    long lost = preemptions();
    (void)argument;
    while (!atomic_load_explicit(&by.stop, memory_order_relaxed) && by.count < SAMPLES_MAX) {
        uint64_t key = (next(&seed) >> 32) * keys >> 32;
        int64_t before = clock_ns();
        take(by.store, key, key % LOGS ? by.bucket : by.log);
        int64_t ns = clock_ns() - before;
        if (ns > 20000) { /* was the core ours? */
            long now = preemptions();
            bool preempted = now != lost;
            lost = now;
            by.preempted += preempted;
            if (preempted)
                continue;
        }
        by.ns[by.count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
        by.longest_ns = ns > by.longest_ns ? ns : by.longest_ns;
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Runs something beside the bystander, and says what it has seen. */
static void measure(const char *what, void (*work)(void))
{
    pthread_t thread;
    by.count = by.preempted = 0;
    by.longest_ns = 0;
    atomic_store(&by.stop, 0);
    int64_t start = clock_ns();
    if (pthread_create(&thread, NULL, stand_by, NULL))
        abort();
    work();
    atomic_store(&by.stop, 1);
    pthread_join(thread, NULL);
    int64_t took = clock_ns() - start;
    qsort(by.ns, by.count, sizeof *by.ns, compare);
    printf("  %-22s %6.1f s %9llu takes  p50 %6.2f  p99.9 %8.2f  longest %9.2f µs  %s (%llu more "
           "lost their core)\n",
           what, (double)took / 1e9, (unsigned long long)by.count,
           by.count ? by.ns[by.count / 2] / 1e3 : 0,
           by.count ? by.ns[by.count - 1 - by.count / 1000] / 1e3 : 0, (double)by.longest_ns / 1e3,
           by.longest_ns <= AIM_US * INT64_C(1000) ? "met" : "MISSED",
           (unsigned long long)by.preempted);
    fflush(stdout);
}

/* ---- the others, each a process ---- */

static pid_t start(void (*work)(weir_store *, uint64_t seed), uint64_t seed)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        work(open_store(), seed);
        _exit(0);
    }
    return pid;
}

static void run(void (*work)(weir_store *, uint64_t seed))
{
    int status = 0;
    if (waitpid(start(work, 1), &status, 0) < 0 || status) {
        fprintf(stderr, "a process beside the bystander failed: %d\n", status);
        exit(1);
    }
}

static void sleep_ms(int ms)
{
    struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&nap, NULL);
}

static void rest(void)
{
    sleep_ms(3000);
}

static void check_some(weir_store *store, uint64_t seed)
{
    weir_error err;
    (void)seed;
    for (int i = 0; i < 3; i++) {
        if (weir_store_check(store, &err)) {
            fprintf(stderr, "%s\n", err.message);
            _exit(1);
        }
    }
}

static void check_beside(void)
{
    run(check_some);
}

static void make_limits(weir_store *store, uint64_t seed)
{
    int64_t until = clock_ns() + INT64_C(5000000000);
    for (uint64_t i = 1; clock_ns() < until; i++) {
        char text[64];
        snprintf(text, sizeof text, "fixed-window %llu/s", (unsigned long long)i % 90000000 + 1);
        weir_limit *limit = parse(text);
        take(store, seed + i, limit);
        weir_limit_free(limit);
    }
}

static void limits_beside(void)
{
    run(make_limits);
}

static void flood(weir_store *store, uint64_t seed)
{
    weir_limit *log = parse("sliding-log 10/h");
    int64_t until = clock_ns() + INT64_C(5000000000);
    while (clock_ns() < until)
        take(store, next(&seed), log);
}

static void flood_beside(void)
{
    run(flood);
}

static void kill_some(void)
{
    uint64_t seed = 12345;
    for (int i = 0; i < kills; i++) {
        pid_t pid = start(flood, next(&seed));
        sleep_ms(5 + (int)(next(&seed) % 20));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    const char *size = argc > 1 ? argv[1] : "1g";
    keys = argc > 2 ? strtoull(argv[2], NULL, 10) : keys;
    kills = argc > 3 ? atoi(argv[3]) : kills;
    snprintf(name, sizeof name, "/weir-stalls-%d", (int)getpid());
    snprintf(url, sizeof url, "shm:%s?size=%s", name, size);
    by.ns = malloc(SAMPLES_MAX * sizeof *by.ns);
    by.store = open_store();
    by.bucket = parse("token-bucket 1000/s burst 1000000");
    by.log = parse("sliding-window 1000000/h precision 30m");
    if (!by.ns || keys == 0)
        return 1;
    for (uint64_t key = 0; key < keys; key++)
        take(by.store, key, key % LOGS ? by.bucket : by.log);
    printf("%s of shared memory, %llu keys: takes of known keys; aim: none longer than %d ms\n",
           size, (unsigned long long)keys, AIM_US / 1000);
    measure("nothing else", rest);
    measure("check", check_beside);
    measure("new limits", limits_beside);
    measure("new logs", flood_beside);
    measure("processes killed", kill_some);
    measure("check, again", check_beside);
    weir_zone_info info;
    if (weir_store_info(by.store, &info))
        return 1;
    printf("  %llu repairs, %llu live states evicted, %llu takes gave up\n",
           (unsigned long long)info.repairs,
           (unsigned long long)(info.evicted_unused + info.evicted_soonest),
           (unsigned long long)busy);
    weir_store_close(by.store);
    shm_unlink(name);
    return 0;
}

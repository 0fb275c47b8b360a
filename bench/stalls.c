/*
 * How long a take waits for others: a zone in shared memory with millions of keys, one thread that
 * takes known keys and looks at the clock before and after each, and other processes that check the
 * zone, sweep its limits, flood it with new logs, or are killed in the middle of their work.
 *
 *     bench-stalls [SIZE [KEYS [KILLS]]]        1g, 3000000, 100
 *
 * It needs idle cores: two at least. What others do to the machine is told apart from what the zone
 * does, in four ways.
 *
 * - The bystander does something else in turn, for as long: controls, which are reads of a private
 *   table that nobody else knows of. A virtual machine takes a core away without a word, from
 *   controls as from takes. Where the kernel gave the core to somebody else it says so; these are
 *   counted apart.
 * - How long a take waited for locks is known: stalls_locks.c stands in front of the zone's calls
 *   of the C library (meson.build: --wrap).
 * - A take whose state was evicted meanwhile is one of a new key, which makes room for itself.
 *   These are shown apart, too.
 * - How long the others had a lock is known, too, in time of the processor: who loses its
 *   core while it has a lock makes others wait for as long as the machine likes.
 *
 * The aim is that no take is longer than 5 ms. A take that is does not count against the zone if it
 * waited for a lock that nobody had for 5 ms of work. Of those that were long without waiting there
 * may be twice as many as of such controls, and two more.
 */
#include "stalls_locks.h"
#include "weir.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
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

enum { AIM_NS = 5000000, MS_NS = 1000000, SAMPLES_MAX = 1 << 25, LOGS = 8 /* keys per log */ };
enum { FILLED = 4096 /* evictions: the area is full */ };
enum { TABLE_WORDS = 1 << 27 /* 1 GiB */, PHASE_S = 5 };

extern char **environ;
static char url[128], name[64];
static uint64_t keys = 3000000;
static int kills = 100;
static struct stalls_held *held;
static _Atomic uint64_t busy; /* takes of this process that gave up waiting */

/* What takes, or controls, have shown. */
struct seen {
    uint32_t *ns; /* of each */
    uint64_t count, lost_core, over_ms, over_aim;
    uint64_t own_over_aim; /* without what it waited for locks */
    int64_t longest_ns, longest_wait_ns, sum_ns;
};

static struct {
    struct seen takes, returned, controls; /* returned: of states that had been evicted */
    int reads;                             /* of a control */
    uint64_t *table;
    _Atomic int stop;
    weir_store *store;
    weir_limit *bucket, *log;
} by;

/* ---- a store and its keys ---- */

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

/* Whether it is the first charge of its state. */
static bool take(weir_store *store, uint64_t key, const weir_limit *limit)
{
    weir_decision decision;
    int code = weir_take(store, weir_key_bytes(&key, sizeof key), limit, 1, &decision);
    if (code == WEIR_EBUSY)
        atomic_fetch_add(&busy, 1);
    else if (code && code != WEIR_EFULL)
        abort();
    return code == 0 && decision.charged > 0 && decision.remaining + 1 == decision.limit;
}

/* Whether its log was gone. (Buckets are often full again; in so large a zone none is evicted.) */
static bool take_known(weir_store *store, uint64_t *seed)
{
    uint64_t key = (next(seed) >> 32) * keys >> 32;
    bool first = take(store, key, key % LOGS ? by.bucket : by.log);
    return first && key % LOGS == 0;
}

static void make_known_limits(void)
{
    by.bucket = parse("token-bucket 1000/s burst 1000000");
    by.log = parse("sliding-window 1000000/h precision 30m");
}

/* ---- the bystander ---- */

static long preemptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

/* Reads at random places, each of which depends on the last. */
static void control(uint64_t *seed)
{
    for (int i = 0; i < by.reads; i++)
        *seed += by.table[next(seed) % TABLE_WORDS];
    __asm__ volatile("" ::"r"(*seed) : "memory");
}

/* What took so long, of which it waited for locks; unless it lost its core. */
static void note(struct seen *seen, int64_t ns, int64_t waited, long *preempted)
{
    seen->sum_ns += ns;
    if (ns > 20000) {
        long now = preemptions();
        bool lost = now != *preempted;
        *preempted = now;
        seen->lost_core += lost;
        if (lost)
            return;
    }
    seen->ns[seen->count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
    seen->longest_ns = ns > seen->longest_ns ? ns : seen->longest_ns;
    seen->longest_wait_ns = waited > seen->longest_wait_ns ? waited : seen->longest_wait_ns;
    seen->over_ms += ns > MS_NS;
    seen->over_aim += ns > AIM_NS;
    seen->own_over_aim += ns - waited > AIM_NS;
}

static void *stand_by(void *argument)
{
    uint64_t seed = 88172645463325252u, place = seed;
    long preempted = preemptions();
    (void)argument;
    while (!atomic_load_explicit(&by.stop, memory_order_relaxed) && by.takes.count < SAMPLES_MAX) {
        stalls_waited_ns = 0;
        int64_t before = clock_ns();
        bool gone = take_known(by.store, &seed);
        note(gone ? &by.returned : &by.takes, clock_ns() - before, stalls_waited_ns, &preempted);
        while (by.controls.sum_ns < by.takes.sum_ns && by.controls.count < SAMPLES_MAX) {
            before = clock_ns();
            control(&place);
            note(&by.controls, clock_ns() - before, 0, &preempted);
        }
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* In µs; the figures are sorted. */
static double part(const struct seen *seen, uint64_t one_in)
{
    return seen->count ? seen->ns[seen->count - 1 - seen->count / one_in] / 1e3 : 0;
}

static const char *verdict(void)
{
    if (by.takes.longest_ns <= AIM_NS && by.returned.longest_ns <= AIM_NS)
        return "met";
    bool explained = held->cpu_ns <= AIM_NS && by.takes.own_over_aim + by.returned.own_over_aim <=
                                                   2 * by.controls.own_over_aim + 2;
    return explained ? "met: that was the machine" : "MISSED";
}

static void show(const char *what, const struct seen *seen)
{
    printf("  %-22s %9llu  p50 %6.2f  p99.9 %8.2f  longest %9.2f µs  over 1 ms %4llu  over 5 ms "
           "%3llu  (%llu lost their core)",
           what, (unsigned long long)seen->count, part(seen, 2), part(seen, 1000),
           (double)seen->longest_ns / 1e3, (unsigned long long)seen->over_ms,
           (unsigned long long)seen->over_aim, (unsigned long long)seen->lost_core);
}

/* Runs something beside the bystander, and says what it has seen. The p99.9 of takes in µs. */
static double measure(const char *what, void (*work)(void))
{
    pthread_t thread;
    by.takes = (struct seen){.ns = by.takes.ns};
    by.returned = (struct seen){.ns = by.returned.ns};
    by.controls = (struct seen){.ns = by.controls.ns};
    held->cpu_ns = held->wall_ns = 0;
    atomic_store(&by.stop, 0);
    if (pthread_create(&thread, NULL, stand_by, NULL))
        abort();
    work();
    atomic_store(&by.stop, 1);
    pthread_join(thread, NULL);
    qsort(by.takes.ns, by.takes.count, sizeof *by.takes.ns, compare);
    qsort(by.returned.ns, by.returned.count, sizeof *by.returned.ns, compare);
    qsort(by.controls.ns, by.controls.count, sizeof *by.controls.ns, compare);
    show(what, &by.takes);
    printf(
        "\n  %-22s waited for locks %.2f µs at most; others had one for %.2f µs, %.2f of them at "
        "work: %s\n",
        "", (double)by.takes.longest_wait_ns / 1e3, (double)held->wall_ns / 1e3,
        (double)held->cpu_ns / 1e3, verdict());
    if (by.returned.count) {
        show("  evicted meanwhile", &by.returned);
        putchar('\n');
    }
    show("  controls", &by.controls);
    putchar('\n');
    fflush(stdout);
    return part(&by.takes, 1000);
}

/* As many reads as make a control about as long as a take. */
static void calibrate(void)
{
    uint64_t seed = 1, place = 2;
    enum { ROUNDS = 100000 };
    by.reads = 1;
    int64_t start = clock_ns();
    for (int i = 0; i < ROUNDS; i++)
        take_known(by.store, &seed);
    int64_t middle = clock_ns();
    for (int i = 0; i < ROUNDS; i++)
        control(&place);
    int64_t end = clock_ns();
    by.reads = (int)((middle - start) / (end - middle + 1)) + 1;
}

/* ---- the others, each a process ---- */

static void sleep_ms(int ms)
{
    struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&nap, NULL);
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

static void take_some(weir_store *store, uint64_t seed)
{
    int64_t until = clock_ns() + PHASE_S * INT64_C(1000000000);
    make_known_limits();
    while (clock_ns() < until)
        take_known(store, &seed);
}

static void make_limits(weir_store *store, uint64_t seed)
{
    int64_t until = clock_ns() + PHASE_S * INT64_C(1000000000);
    for (uint64_t i = 1; clock_ns() < until; i++) {
        char text[64];
        snprintf(text, sizeof text, "fixed-window %llu/s", (unsigned long long)i % 90000000 + 1);
        weir_limit *limit = parse(text);
        take(store, seed + i, limit);
        weir_limit_free(limit);
    }
}

static void flood(weir_store *store, uint64_t seed)
{
    weir_limit *log = parse("sliding-log 10/h");
    int64_t until = clock_ns() + PHASE_S * INT64_C(1000000000);
    while (clock_ns() < until)
        take(store, next(&seed), log);
}

/* New logs, until they have filled the area for large states: each evicts another by now. */
static void fill(weir_store *store, uint64_t seed)
{
    weir_limit *log = parse("sliding-log 10/h");
    weir_zone_info info = {0};
    for (uint64_t i = 0; i % 4096 || info.evicted_unused + info.evicted_soonest < FILLED; i++) {
        take(store, next(&seed), log);
        if (i % 4096 == 4095 && (weir_store_info(store, &info) || i > info.large_bytes / 16))
            _exit(1);
    }
}

static const struct beside {
    const char *name;
    void (*work)(weir_store *, uint64_t seed);
} besides[] = {{"check", check_some}, {"take", take_some}, {"limits", make_limits},
               {"flood", flood},      {"fill", fill},      {NULL, NULL}};

/* By exec, not by fork alone: a copy of this process would have its pages, and the bystander would
 * pay for that. */
static pid_t start(const char *what, uint64_t seed)
{
    char keys_text[32], seed_text[32];
    snprintf(keys_text, sizeof keys_text, "%llu", (unsigned long long)keys);
    snprintf(seed_text, sizeof seed_text, "%llu", (unsigned long long)seed);
    char *arguments[] = {"bench-stalls", "beside", (char *)(uintptr_t)what, url, name, keys_text,
                         seed_text,      NULL};
    pid_t pid;
    fflush(stdout);
    if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ)) {
        fprintf(stderr, "no process can be started\n");
        exit(1);
    }
    return pid;
}

static int be_beside(char **argv)
{
    const struct beside *it = besides;
    while (it->name && strcmp(it->name, argv[2]) != 0)
        it++;
    if (!it->name)
        return 1;
    snprintf(url, sizeof url, "%s", argv[3]);
    snprintf(name, sizeof name, "%s", argv[4]);
    keys = strtoull(argv[5], NULL, 10);
    stalls_watch(name, true);
    it->work(open_store(), strtoull(argv[6], NULL, 10));
    _exit(0); /* as it stands: nothing is closed */
}

static void run(const char *what)
{
    int status = 0;
    if (waitpid(start(what, 1), &status, 0) < 0 || status) {
        fprintf(stderr, "a process beside the bystander failed: %s, %d\n", what, status);
        exit(1);
    }
}

static void rest(void)
{
    sleep_ms(PHASE_S * 1000);
}

static void check_beside(void)
{
    run("check");
}

static void takes_beside(void)
{
    run("take");
}

static void limits_beside(void)
{
    run("limits");
}

static void fill_beside(void)
{
    run("fill");
}

static void flood_beside(void)
{
    run("flood");
}

static void kill_some(void)
{
    uint64_t seed = 12345;
    for (int i = 0; i < kills; i++) {
        pid_t pid = start("flood", next(&seed));
        sleep_ms(5 + (int)(next(&seed) % 20));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "beside") == 0)
        return be_beside(argv);
    const char *size = argc > 1 ? argv[1] : "1g";
    keys = argc > 2 ? strtoull(argv[2], NULL, 10) : keys;
    kills = argc > 3 ? atoi(argv[3]) : kills;
    snprintf(name, sizeof name, "/weir-stalls-%d", (int)getpid());
    snprintf(url, sizeof url, "shm:%s?size=%s", name, size);
    by.takes.ns = calloc(SAMPLES_MAX, sizeof *by.takes.ns);
    by.returned.ns = calloc(SAMPLES_MAX, sizeof *by.returned.ns);
    by.controls.ns = calloc(SAMPLES_MAX, sizeof *by.controls.ns);
    by.table = malloc(TABLE_WORDS * sizeof *by.table);
    by.store = open_store();
    held = stalls_watch(name, false);
    make_known_limits();
    if (!by.takes.ns || !by.returned.ns || !by.controls.ns || !by.table || keys == 0)
        return 1;
    for (size_t i = 0; i < TABLE_WORDS; i++)
        by.table[i] = i;
    for (uint64_t key = 0; key < keys; key++)
        take(by.store, key, key % LOGS ? by.bucket : by.log);
    calibrate();
    printf("%s of shared memory, %llu keys: takes of known keys, none longer than %d ms; controls "
           "of %d reads\n",
           size, (unsigned long long)keys, AIM_NS / MS_NS, by.reads);
    measure("nothing else", rest);
    double usual = measure("known keys", takes_beside);
    measure("check", check_beside);
    measure("new limits", limits_beside);
    measure("new logs", fill_beside);
    double full = measure("new logs, area full", flood_beside);
    measure("processes killed", kill_some);
    measure("check, again", check_beside);
    weir_zone_info info;
    if (weir_store_info(by.store, &info))
        return 1;
    printf("  %llu repairs, %llu live states evicted, %llu takes gave up\n",
           (unsigned long long)info.repairs,
           (unsigned long long)(info.evicted_unused + info.evicted_soonest),
           (unsigned long long)busy);
    printf("  p99.9 beside new logs in a full area / beside takes of known keys: %.2f\n",
           full / usual);
    weir_store_close(by.store);
    shm_unlink(name);
    stalls_forget(name);
    return 0;
}

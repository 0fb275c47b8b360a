/*
 * A store at the end of a pipe: the Python tests say what to ask, one command a line, words
 * separated by tabs, and get one line back.
 *
 *     store_driver URL
 *
 *     take KEY LIMIT COST           code allowed limit remaining retry reset delay degraded charged
 *     peek KEY LIMIT COST             lease binding us receipt local
 *     part KEY LIMIT COST LEAST     like take, with a least
 *     waited KEY LIMIT COST US      like take, by somebody who has waited for so long already
 *     acquire (KEY LIMIT COST) …    a lease of those that are concurrent
 *     takeall (KEY LIMIT COST) …    peekall (KEY LIMIT COST) …
 *     many N KEY LIMIT              code allowed degraded us     N requests, keys KEY:0 …
 *     settle KEY LIMIT RECEIPT N    code us
 *     reset KEY                     code us
 *     renew KEY LIMIT LEASE         release KEY LIMIT LEASE      code us
 *     check                         code message
 *     hammer THREADS PAUSE_US KEYS KEY LIMIT   takes in the background, KEYS keys in turn
 *     report                        calls allowed degraded errors worst_us code, since the last one
 *     stop                          the same, since hammer
 *     exact THREADS TAKES KEY LIMIT            as many takes by each thread; the same six
 *     fork CHILDREN TAKES KEY LIMIT            as many takes by each child; the same six
 *     cancel THREADS TAKES KEY LIMIT           by threads that are cancelled already; the same six
 *     wait KEY LIMIT COST MAX_US CANCEL_US     like take; cancelled after so long, -1: never
 *     hold KEY LIMIT COST MAX_US CANCEL_US     like acquire
 *     slots THREADS TURNS KEY LIMIT            waits for slots: turns, errors, most holders
 *     odd BYTES TAKES LIMIT         takes of a key of so many bytes, NULs among them: allowed local
 *     time US                       sets a test clock
 *     slices                        what weir__slices_count says, then weir__slices_trouble
 */
#include "remote/slices.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS_MAX 64
#define THREADS_MAX 64
#define MANY_MAX 1024

struct tally {
    long calls, allowed, degraded, errors, worst_us, code; /* of the last error */
};

struct crew {
    weir_limit *limit;
    const char *key;
    long pause_us, keys, takes; /* takes 0: until stopped */
    atomic_bool stop;
    struct tally recent, total;
    pthread_t threads[THREADS_MAX];
    int count;
};

static weir_store *store;

static long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static weir_limit *parse(const char *text)
{
    weir_limit *limit = NULL;
    weir_error err;
    if (weir_limit_parse(text, &limit, &err)) {
        printf("bad limit: %s\n", err.message);
        exit(2);
    }
    return limit;
}

/* ---- many takes ---- */

/* A report has all of a call or nothing of it. */
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static void add(struct tally *tally, int code, const weir_decision *d, long us)
{
    pthread_mutex_lock(&counting);
    tally->calls++;
    tally->errors += code != 0;
    tally->code = code ? code : tally->code;
    tally->allowed += code == 0 && d->allowed;
    tally->degraded += code == 0 && d->degraded;
    if (us > tally->worst_us)
        tally->worst_us = us;
    pthread_mutex_unlock(&counting);
}

static void print_tally(struct tally *tally)
{
    printf("%ld\t%ld\t%ld\t%ld\t%ld\t%ld\n", tally->calls, tally->allowed, tally->degraded,
           tally->errors, tally->worst_us, tally->code);
}

static void *work(void *context)
{
    struct crew *crew = context;
    unsigned turn = (unsigned)(uintptr_t)&turn >> 12;
    for (long i = 0; !crew->stop && (crew->takes == 0 || i < crew->takes); i++) {
        char key[256];
        weir_decision d = {0};
        if (crew->keys > 1)
            snprintf(key, sizeof key, "%s:%ld", crew->key, (long)(turn++ % crew->keys));
        else
            snprintf(key, sizeof key, "%s", crew->key);
        long start = now_us();
        int code = weir_take(store, weir_key_text(key), crew->limit, 1, &d);
        long us = now_us() - start;
        add(&crew->recent, code, &d, us);
        add(&crew->total, code, &d, us);
        if (crew->pause_us)
            usleep((useconds_t)crew->pause_us);
    }
    return NULL;
}

static struct crew *start_crew(int threads, long pause_us, long keys, long takes, const char *key,
                               const char *limit)
{
    struct crew *crew = calloc(1, sizeof *crew);
    crew->limit = parse(limit);
    crew->key = strdup(key);
    crew->pause_us = pause_us;
    crew->keys = keys;
    crew->takes = takes;
    crew->count = threads < THREADS_MAX ? threads : THREADS_MAX;
    for (int i = 0; i < crew->count; i++)
        pthread_create(&crew->threads[i], NULL, work, crew);
    return crew;
}

static void end_crew(struct crew *crew, bool stop)
{
    crew->stop = stop;
    for (int i = 0; i < crew->count; i++)
        pthread_join(crew->threads[i], NULL);
    print_tally(&crew->total);
    weir_limit_free(crew->limit);
    free((char *)crew->key);
    free(crew);
}

static void add_tally(struct tally *tally, const struct tally *more)
{
    tally->calls += more->calls;
    tally->allowed += more->allowed;
    tally->degraded += more->degraded;
    tally->errors += more->errors;
    tally->code = more->code ? more->code : tally->code;
    if (more->worst_us > tally->worst_us)
        tally->worst_us = more->worst_us;
}

/* Children of a process that has used the store: each makes connections of its own, and has a tally
 * of its own, since no lock is shared with the others. */
static void fork_children(int children, long takes, const char *key, const char *limit)
{
    size_t size = (size_t)children * sizeof(struct crew);
    struct crew *crews =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    weir_limit *parsed = parse(limit);
    struct tally total = {0};
    fflush(stdout);
    for (int i = 0; i < children; i++) {
        crews[i] = (struct crew){.limit = parsed, .key = key, .keys = 1, .takes = takes};
        if (fork() == 0) {
            work(&crews[i]);
            weir_store_close(store);
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        ;
    for (int i = 0; i < children; i++)
        add_tally(&total, &crews[i].total);
    print_tally(&total);
    weir_limit_free(parsed);
    munmap(crews, size);
}

/* Any cancellation point ends such a thread before it has counted what it took. */
static void *work_cancelled(void *crew)
{
    pthread_cancel(pthread_self());
    return work(crew);
}

static void cancel_threads(int n, long takes, const char *key, const char *limit)
{
    struct crew crew = {.limit = parse(limit), .key = key, .keys = 1, .takes = takes};
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work_cancelled, &crew) == 0)
            pthread_join(thread, NULL);
    }
    print_tally(&crew.total);
    weir_limit_free(crew.limit);
}

static void take_many(long n, const char *key, weir_limit *limit)
{
    static char keys[MANY_MAX][256];
    static weir_request requests[MANY_MAX];
    static weir_decision rets[MANY_MAX];
    long allowed = 0, degraded = 0;
    n = n < MANY_MAX ? n : MANY_MAX;
    for (long i = 0; i < n; i++) {
        snprintf(keys[i], sizeof keys[i], "%s:%ld", key, i);
        requests[i] = weir_request_make(weir_key_text(keys[i]), limit);
    }
    long start = now_us();
    int code = weir_take_many(store, requests, (size_t)n, rets);
    for (long i = 0; i < n; i++) {
        allowed += rets[i].limit >= 0 && rets[i].allowed;
        degraded += rets[i].limit >= 0 && rets[i].degraded;
    }
    printf("%d\t%ld\t%ld\t%ld\n", code, allowed, degraded, now_us() - start);
}

/* ---- single questions ---- */

static void print_decision(int code, weir_decision *d, long us)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_receipt(d, receipt);
    printf("%d\t%d\t%lld\t%lld\t%lld\t%lld\t%lld\t%d\t%lld\t%llu\t%d\t%ld\t%s\t%d\n", code,
           d->allowed, (long long)d->limit, (long long)d->remaining, (long long)d->retry_after_us,
           (long long)d->reset_after_us, (long long)d->delay_us, d->degraded, (long long)d->charged,
           (unsigned long long)d->lease, d->binding, us, receipt, d->local);
}

static void ask(const char *verb, char **words, int n)
{
    weir_request requests[WORDS_MAX / 3];
    weir_decision d = {0};
    size_t count = 0;
    for (int i = 0; i + 2 < n; i += 3) {
        requests[count] = weir_request_make(weir_key_text(words[i]), parse(words[i + 1]));
        requests[count].cost = atoll(words[i + 2]);
        if (requests[count].cost == 0)
            requests[count].cost = WEIR_COST_NONE;
        requests[count++].acquire = !strcmp(verb, "acquire") && strstr(words[i + 1], "concurrent");
    }
    long start = now_us();
    int code = verb[0] == 'p' ? weir_peek_all(store, requests, count, &d)
                              : weir_take_all(store, requests, count, &d);
    print_decision(code, &d, now_us() - start);
    for (size_t i = 0; i < count; i++)
        weir_limit_free((weir_limit *)requests[i].limit);
}

static void change(const char *verb, char **words)
{
    weir_limit *limit = strcmp(verb, "reset") ? parse(words[1]) : NULL;
    weir_key key = weir_key_text(words[0]);
    long start = now_us();
    int code =
        !strcmp(verb, "reset")    ? weir_reset(store, key)
        : !strcmp(verb, "settle") ? weir_settle(store, key, limit, words[2], atoll(words[3]), NULL)
        : !strcmp(verb, "renew")  ? weir_renew(store, key, limit, strtoull(words[2], NULL, 10))
                                  : weir_release(store, key, limit, strtoull(words[2], NULL, 10));
    printf("%d\t%ld\n", code, now_us() - start);
    weir_limit_free(limit);
}

static void check(void)
{
    weir_error err = {0};
    int code = weir_store_check(store, &err);
    printf("%d\t%s\n", code, err.message);
}

/* ---- waiting ---- */

struct canceller {
    weir_waiter *waiter;
    long after_us;
};

static void *cancel_later(void *context)
{
    const struct canceller *it = context;
    usleep((useconds_t)it->after_us);
    weir_waiter_cancel(it->waiter);
    return NULL;
}

static void wait_one(bool acquire, char **words)
{
    weir_limit *limit = parse(words[1]);
    weir_request request = {.key = weir_key_text(words[0]), .limit = limit, .acquire = acquire};
    struct canceller canceller = {.after_us = atol(words[4])};
    weir_decision d = {0};
    pthread_t thread;
    if (weir_waiter_create(&canceller.waiter, NULL))
        exit(2);
    weir_wait_options options = {.max_wait_us = atoll(words[3]), .waiter = canceller.waiter};
    request.cost = atoll(words[2]);
    long start = now_us();
    if (canceller.after_us >= 0 && pthread_create(&thread, NULL, cancel_later, &canceller))
        exit(2);
    int code = weir_wait_with(store, &request, &options, &d);
    print_decision(code, &d, now_us() - start);
    if (canceller.after_us >= 0)
        pthread_join(thread, NULL);
    weir_waiter_free(canceller.waiter);
    weir_limit_free(limit);
}

struct turns {
    weir_limit *limit;
    weir_key key;
    long rounds;
    _Atomic long turns, errors, holders, most;
};

static void *take_turns(void *context)
{
    struct turns *it = context;
    for (long i = 0; i < it->rounds; i++) {
        weir_decision d = {0};
        if (weir_acquire_wait(store, it->key, it->limit, 1, WEIR_WAIT_ANY, &d) || !d.allowed) {
            it->errors++;
            continue;
        }
        long holders = ++it->holders, most = it->most;
        while (holders > most && !atomic_compare_exchange_weak(&it->most, &most, holders))
            ;
        it->turns++;
        it->holders--;
        it->errors += weir_release(store, it->key, it->limit, d.lease) != 0;
    }
    return NULL;
}

static void slots(int threads, long rounds, const char *key, const char *limit)
{
    struct turns turns = {.limit = parse(limit), .key = weir_key_text(key), .rounds = rounds};
    pthread_t crew[THREADS_MAX];
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    for (int i = 0; i < threads; i++)
        pthread_create(&crew[i], NULL, take_turns, &turns);
    for (int i = 0; i < threads; i++)
        pthread_join(crew[i], NULL);
    printf("%ld\t%ld\t%ld\n", turns.turns, turns.errors, turns.most);
    weir_limit_free(turns.limit);
}

/* ---- slices ---- */

static void part(char **words)
{
    weir_limit *limit = parse(words[1]);
    weir_request request = weir_request_make(weir_key_text(words[0]), limit);
    weir_decision d = {0};
    request.cost = atoll(words[2]);
    request.least = atoll(words[3]);
    long start = now_us();
    int code = weir_take_all(store, &request, 1, &d);
    print_decision(code, &d, now_us() - start);
    weir_limit_free(limit);
}

static void waited(char **words)
{
    weir_limit *limit = parse(words[1]);
    weir_request request = weir_request_make(weir_key_text(words[0]), limit);
    weir_decision d = {0};
    request.cost = atoll(words[2]);
    request.waited_us = atoll(words[3]);
    long start = now_us();
    int code = weir_take_all(store, &request, 1, &d);
    print_decision(code, &d, now_us() - start);
    weir_limit_free(limit);
}

static void odd(size_t bytes, long takes, const char *text)
{
    weir_limit *limit = parse(text);
    char *key = calloc(1, bytes);
    long allowed = 0, local = 0;
    memset(key, 'k', bytes / 2);
    for (long i = 0; i < takes; i++) {
        weir_decision d = {0};
        if (weir_take(store, weir_key_bytes(key, bytes), limit, 1, &d))
            exit(2);
        allowed += d.allowed;
        local += d.local;
    }
    printf("%ld\t%ld\n", allowed, local);
    free(key);
    weir_limit_free(limit);
}

static void print_slices(void)
{
    struct weir__slices_counts it;
    weir__slices_count(store, &it);
    char trouble[WEIR__TROUBLE_MAX];
    weir__slices_trouble(store, trouble);
    const uint64_t counts[] = {it.on,          it.slot,         it.slices,
                               it.units,       it.slices_taken, it.slices_returned,
                               it.slices_lost, it.units_taken,  it.units_returned,
                               it.units_lost,  it.local,        it.denied,
                               it.central,     it.calls};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        printf("%llu\t", (unsigned long long)counts[i]);
    printf("%s\n", trouble);
}

/* ---- the loop ---- */

static struct crew *hammering;

static void report(void)
{
    pthread_mutex_lock(&counting);
    struct tally recent = hammering->recent;
    hammering->recent = (struct tally){0};
    pthread_mutex_unlock(&counting);
    print_tally(&recent);
}

static void run(char **words, int n)
{
    const char *verb = words[0];
    if (!strcmp(verb, "check")) {
        check();
    } else if (!strcmp(verb, "slices")) {
        print_slices();
    } else if (!strcmp(verb, "part") && n == 5) {
        part(words + 1);
    } else if (!strcmp(verb, "waited") && n == 5) {
        waited(words + 1);
    } else if (!strcmp(verb, "odd") && n == 4) {
        odd((size_t)atol(words[1]), atol(words[2]), words[3]);
    } else if (!strcmp(verb, "time") && n == 2) {
        printf("%d\n", weir_store_set_time(store, atoll(words[1])));
    } else if (!strcmp(verb, "report")) {
        report();
    } else if (!strcmp(verb, "stop")) {
        end_crew(hammering, true);
    } else if (!strcmp(verb, "hammer") && n == 6) {
        hammering =
            start_crew(atoi(words[1]), atol(words[2]), atol(words[3]), 0, words[4], words[5]);
        printf("ok\n");
    } else if (!strcmp(verb, "exact") && n == 5) {
        end_crew(start_crew(atoi(words[1]), 0, 1, atol(words[2]), words[3], words[4]), false);
    } else if (!strcmp(verb, "fork") && n == 5) {
        fork_children(atoi(words[1]), atol(words[2]), words[3], words[4]);
    } else if (!strcmp(verb, "cancel") && n == 5) {
        cancel_threads(atoi(words[1]), atol(words[2]), words[3], words[4]);
    } else if ((!strcmp(verb, "wait") || !strcmp(verb, "hold")) && n == 6) {
        wait_one(verb[0] == 'h', words + 1);
    } else if (!strcmp(verb, "slots") && n == 5) {
        slots(atoi(words[1]), atol(words[2]), words[3], words[4]);
    } else if (!strcmp(verb, "many") && n == 4) {
        weir_limit *limit = parse(words[3]);
        take_many(atol(words[1]), words[2], limit);
        weir_limit_free(limit);
    } else if (!strcmp(verb, "settle") || !strcmp(verb, "reset") || !strncmp(verb, "re", 2)) {
        change(verb, words + 1);
    } else {
        ask(verb, words + 1, n - 1);
    }
}

int main(int argc, char **argv)
{
    char line[65536];
    weir_error err = {0};
    long start = now_us();
    int code = argc == 2 ? weir_store_open(argv[1], &store, &err) : WEIR_EINVAL;
    printf("%d\t%ld\t%s\n", code, now_us() - start, err.message);
    fflush(stdout);
    while (code == 0 && fgets(line, sizeof line, stdin)) {
        char *words[WORDS_MAX + 1] = {0};
        int n = 0;
        line[strcspn(line, "\n")] = 0;
        for (char *word = strtok(line, "\t"); word && n < WORDS_MAX; word = strtok(NULL, "\t"))
            words[n++] = word;
        run(words, n);
        fflush(stdout);
    }
    weir_store_close(store);
    return 0;
}

/*
 * Processes that are stopped (SIGSTOP) in the middle of whatever they do, one at a time, while the
 * others go on.
 *
 *     stop [COUNT]
 *
 * First all of them take from keys that are known, one hot key and many others: no take waits for a
 * stopped process, so none fails, and every other process gets on while the victim stands still.
 * Then new keys, groups, logs and refunds are among them: a call may fail with WEIR_EBUSY, and the
 * others still get on. In the end each key is charged exactly what was told.
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "base/random.h"

#include <signal.h>
#include <sys/wait.h>

#define WORKERS 4
#define KEYS 100000
#define PROGRESS 50    /* calls that everybody else does while one stands still */
#define PATIENCE_S 900 /* who takes that long waits for ever */

enum { WINDOW, FIRST, PAIR, BUCKET, SMALLS, LOG = SMALLS, LIMITS };
static const char *const texts[LIMITS] = {
    "fixed-window 1000000000/366d", "fixed-window 1000000000/366d from-first",
    "sliding-counter 1000000000/366d", "token-bucket 1000000/s burst 1000000",
    "sliding-log 1000/366d"};

/* In memory that all share. */
struct worker {
    _Atomic long calls, wrong, busy;
    _Atomic long told[SMALLS]; /* on keys that are known, of each limit */
    _Atomic long hot;          /* on the hot key */
    uint64_t padding[8];
};

struct shared {
    struct worker workers[WORKERS];
    _Atomic bool mixed; /* the second part */
    _Atomic bool over;
};

static struct shared *shared;
static weir_store *store;
static weir_limit *limits[LIMITS];

static weir_key key_number(char room[24], uint64_t number)
{
    snprintf(room, 24, "known %d", (int)(number % KEYS));
    return weir_key_text(room);
}

/* ---- workers ---- */

static void judge(struct worker *me, int code)
{
    if (code == WEIR_EBUSY && atomic_load(&shared->mixed))
        atomic_fetch_add(&me->busy, 1);
    else if (code && code != WEIR_ESETTLED)
        atomic_fetch_add(&me->wrong, 1);
}

/* Known keys by the limit that their number names, or the hot one. */
static void take_known(struct worker *me, uint64_t chance)
{
    char room[24];
    bool hot = chance % 2;
    uint64_t number = chance / 2 % KEYS;
    weir_key key = hot ? weir_key_text("hot") : key_number(room, number);
    uint64_t kind = hot ? WINDOW : number % SMALLS;
    weir_decision decision = {0};
    int code = chance / KEYS % 8 == 0 ? weir_peek(store, key, limits[kind], 1, &decision)
                                      : weir_take(store, key, limits[kind], 1, &decision);
    judge(me, code);
    atomic_fetch_add(hot ? &me->hot : &me->told[kind], decision.charged);
}

static void take_group(struct worker *me, uint64_t chance)
{
    char room[24];
    uint64_t number = chance % (KEYS / SMALLS) * SMALLS + FIRST;
    weir_decision decision = {0};
    weir_request requests[2] = {weir_request_make(weir_key_text("hot"), limits[WINDOW]),
                                weir_request_make(key_number(room, number), limits[FIRST])};
    judge(me, weir_take_all(store, requests, 2, &decision));
    atomic_fetch_add(&me->hot, decision.charged);
    atomic_fetch_add(&me->told[FIRST], decision.charged);
}

/* A charge of 3 that becomes 1; where the refund was not to be had, it stays 3. */
static void take_and_settle(struct worker *me)
{
    char receipt[WEIR_RECEIPT_SIZE];
    weir_decision decision = {0};
    int code = weir_take(store, weir_key_text("hot"), limits[WINDOW], 3, &decision);
    judge(me, code);
    atomic_fetch_add(&me->hot, decision.charged);
    if (code || !decision.allowed)
        return;
    weir_receipt(&decision, receipt);
    code = weir_settle(store, weir_key_text("hot"), limits[WINDOW], receipt, 1, NULL);
    judge(me, code);
    if (code == 0)
        atomic_fetch_sub(&me->hot, 2);
}

static void take_new(struct worker *me, uint64_t chance)
{
    char room[24];
    weir_decision decision;
    snprintf(room, sizeof room, "new %d", (int)(chance % 5000));
    judge(me, weir_take(store, weir_key_text(room), limits[chance % 3 ? LOG : PAIR], 1, &decision));
    if (chance % 64 == 0)
        judge(me, weir_reset(store, weir_key_text(room)));
}

static void work(int number)
{
    struct worker *me = &shared->workers[number];
    uint64_t chance = (uint64_t)number + 1;
    while (!atomic_load(&shared->over)) {
        uint64_t it = weir__random_next(&chance);
        bool mixed = atomic_load(&shared->mixed) && it % 4 == 0;
        if (!mixed)
            take_known(me, it / 16);
        else if (it / 4 % 4 == 0)
            take_group(me, it / 16);
        else if (it / 4 % 4 == 1)
            take_and_settle(me);
        else
            take_new(me, it / 16);
        atomic_fetch_add(&me->calls, 1);
    }
}

/* ---- stopping them ---- */

static pid_t start(int number)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        work(number);
        _exit(0);
    }
    return pid;
}

/* Stops one; true when it stands still. */
static bool stop(pid_t pid)
{
    int status = 0;
    kill(pid, SIGSTOP);
    return waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
}

static void expect_progress(int victim)
{
    long before[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        before[i] = atomic_load(&shared->workers[i].calls);
    for (int i = 0; i < WORKERS; i++) {
        while (i != victim && atomic_load(&shared->workers[i].calls) < before[i] + PROGRESS)
            usleep(50);
    }
}

static void stop_some(const pid_t *pids, int count, uint64_t seed)
{
    for (int i = 0; i < count; i++) {
        int victim = (int)(weir__random_next(&seed) % WORKERS);
        CHECK(stop(pids[victim]));
        expect_progress(victim);
        kill(pids[victim], SIGCONT);
    }
}

/* ---- what was charged ---- */

static long charged_on(const char *key, const weir_limit *limit)
{
    weir_decision peeked = test_peek(store, key, limit, 0);
    return (long)(peeked.limit - peeked.remaining);
}

static void expect_exact(void)
{
    long hot = 1, told[SMALLS] = {0}, charged[SMALLS] = {0}, busy = 0; /* 1: to make it known */
    for (int i = 0; i < WORKERS; i++) {
        const struct worker *it = &shared->workers[i];
        CHECK_INT(it->wrong, 0);
        hot += it->hot;
        busy += it->busy;
        for (int kind = 0; kind < SMALLS; kind++)
            told[kind] += it->told[kind];
    }
    for (uint64_t i = 0; i < KEYS; i++) {
        char room[24];
        if (i % SMALLS != BUCKET) /* which refills meanwhile */
            charged[i % SMALLS] += charged_on(key_number(room, i).data, limits[i % SMALLS]) - 1;
    }
    CHECK_INT(charged_on("hot", limits[WINDOW]), hot);
    for (int kind = 0; kind < BUCKET; kind++)
        CHECK_INT(charged[kind], told[kind]);
    printf("%ld charges on the hot key, %ld calls gave up\n", hot, busy);
}

/* A thread of our own process is not stopped alone, it only waits for a core: to give up early
 * would be an error for nothing, however impatient a server is with other processes. */
static void expect_patience_with_own_threads(void)
{
    weir_store *own = NULL;
    CHECK_INT(weir_store_open("memory:1m", &own, NULL), 0);
    CHECK_INT(test_zone(own)->patience_us, SECOND);
    weir__store_be_patient(own, 1000);
    CHECK_INT(test_zone(own)->patience_us, SECOND);
    weir_store_close(own);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 60;
    pid_t pids[WORKERS];
    char room[24];
    alarm(PATIENCE_S);
    expect_patience_with_own_threads();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    store = test_open(test_url(TEST_SHM, "stop", "size=32m&large=30%"), NULL);
    weir__store_be_patient(store, 100000); /* as everybody's */
    for (int i = 0; i < LIMITS; i++)
        limits[i] = test_limit(texts[i]);
    test_take(store, "hot", limits[WINDOW], 1);
    for (uint64_t i = 0; i < KEYS; i++)
        test_take(store, key_number(room, i).data, limits[i % SMALLS], 1);
    for (int i = 0; i < WORKERS; i++)
        pids[i] = start(i);
    stop_some(pids, count / 2, 1);
    for (int i = 0; i < WORKERS; i++)
        CHECK_INT(shared->workers[i].wrong, 0);
    atomic_store(&shared->mixed, true);
    stop_some(pids, count - count / 2, 2);
    atomic_store(&shared->over, true);
    for (int i = 0; i < WORKERS; i++)
        CHECK_INT(waitpid(pids[i], NULL, 0), pids[i]);
    expect_exact();
    test_sound(store);
    weir_store_close(store);
    test_remove(TEST_SHM, "stop");
    for (int i = 0; i < LIMITS; i++)
        weir_limit_free(limits[i]);
    return test_report();
}

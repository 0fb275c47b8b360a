/*
 * Processes that wait for the slots of one zone: a release in one wakes the others, a holder or a
 * waiter that is killed stops nobody, a child does not inherit its parent's queue, and a descriptor
 * tells of releases elsewhere.
 *
 *     waits_processes [shm|file] [rounds]
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"

#include "base/clock.h"
#include "store/wait.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#define PROCESSES 8
#define THREADS 8

static enum test_kind kind = TEST_SHM;
static char url[512]; /* the parent's, also in children */
static weir_key key;
/* Its leases do not expire during the test: a wake-up that is lost is never made good. */
static weir_limit *slot;

/* What the processes share beside the zone. */
static struct {
    _Atomic int holders, worst, failed, turns[PROCESSES][THREADS];
    _Atomic uint64_t lease;
    _Atomic int64_t at_us; /* when something happened */
} * shared;

static weir_store *open_zone(void)
{
    return test_open(url, NULL);
}

/* Waits for what a child does, with a clean end; the number of what went wrong in it. */
static void child_join(pid_t child)
{
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A machine that is busy may keep a lock's holder from its core for longer than others wait for
 * it. */
static int release(weir_store *store, uint64_t lease)
{
    int code;
    do
        code = weir_release(store, key, slot, lease);
    while (code == WEIR_EBUSY);
    return code;
}

/* Until somebody listens to the key's bell. */
static void await_listener(weir_store *store)
{
    struct weir__bells bells;
    store->engine->bells(store, key, &bells);
    while (!atomic_load(&bells.key->wanted))
        sched_yield();
}

/* Until the first thread of a process that listens sleeps. */
static void await_sleeper(weir_store *store, pid_t child)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    await_listener(store);
    for (const char *state = text; !state || strncmp(state, ") S", 3) != 0;) {
        FILE *file = fopen(path, "r");
        size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file)
            fclose(file);
        text[len] = 0;
        state = strrchr(text, ')');
        sched_yield();
    }
}

/* ---- everybody gets its turns ---- */

struct worker {
    weir_store *store;
    int process, thread, rounds;
};

static void *worker_run(void *argument)
{
    struct worker *it = argument;
    for (int i = 0; i < it->rounds; i++) {
        weir_decision d = {0};
        if (weir_acquire_wait(it->store, key, slot, 1, WEIR_WAIT_ANY, &d) || !d.allowed) {
            atomic_fetch_add(&shared->failed, 1);
            continue;
        }
        if (atomic_fetch_add(&shared->holders, 1) != 0)
            atomic_fetch_add(&shared->worst, 1);
        if (i % 4 == 0)
            sched_yield();
        atomic_fetch_sub(&shared->holders, 1);
        atomic_fetch_add(&shared->turns[it->process][it->thread], 1);
        if (release(it->store, d.lease))
            atomic_fetch_add(&shared->failed, 1);
    }
    return NULL;
}

static void process_run(int process, int rounds)
{
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    weir_store *store = open_zone();
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){store, process, i, rounds};
        if (pthread_create(&threads[i], NULL, worker_run, &workers[i]))
            _exit(1);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    weir_store_close(store);
    _exit(0);
}

static void test_turns(int rounds)
{
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0)
            process_run(i, rounds);
    }
    for (int i = 0; i < PROCESSES; i++)
        child_join(children[i]);
    CHECK_INT(shared->worst, 0);
    CHECK_INT(shared->failed, 0);
    for (int i = 0; i < PROCESSES; i++) {
        for (int j = 0; j < THREADS; j++)
            CHECK_INT(shared->turns[i][j], rounds);
    }
}

/* ---- a release elsewhere ---- */

/* A bell is not trusted for more than a second. So a wake-up that does not work would take about
 * one second each time; with one that does, most are quick on the busiest machine. */
static void test_woken(weir_store *store, bool by_descriptor)
{
    const int rounds = 10;
    int quick = 0;
    for (int i = 0; i < rounds; i++) {
        weir_decision held;
        CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
        pid_t child = fork();
        if (child == 0) {
            weir_store *own = open_zone();
            int never = eventfd(0, EFD_CLOEXEC);
            weir_request request = {.key = key, .limit = slot, .acquire = true};
            weir_wait_options options = {.max_wait_us = WEIR_WAIT_ANY,
                                         .cancel_fd = by_descriptor ? &never : NULL};
            weir_decision d = {0};
            int code = weir_wait_with(own, &request, &options, &d);
            atomic_store(&shared->at_us, weir__mono_us());
            _exit(code || !d.allowed || release(own, d.lease));
        }
        await_sleeper(store, child);
        int64_t released = weir__mono_us();
        CHECK_INT(release(store, held.lease), 0);
        child_join(child);
        quick += shared->at_us - released < WEIR__BELL_TRUST_US / 2;
    }
    CHECK(quick > rounds / 2);
}

static void test_wakeup(weir_store *store)
{
    const int rounds = 10;
    weir_wakeup *wakeup = NULL;
    int quick = 0;
    CHECK_INT(weir_wakeup_open(store, key, slot, &wakeup, NULL), 0);
    struct pollfd fd = {.fd = weir_wakeup_fd(wakeup), .events = POLLIN};
    for (int i = 0; i < rounds; i++) {
        pid_t child;
        weir_decision d = {.allowed = true};
        atomic_store(&shared->lease, 0);
        child = fork();
        if (child == 0) {
            weir_store *own = open_zone();
            if (weir_acquire(own, key, slot, 1, &d) || !d.allowed)
                _exit(1);
            atomic_store(&shared->lease, d.lease);
            while (atomic_load(&shared->lease))
                sched_yield();
            atomic_store(&shared->at_us, weir__mono_us());
            _exit(release(own, d.lease) != 0);
        }
        while (!atomic_load(&shared->lease))
            sched_yield();
        while (d.allowed || d.limit == 0) {
            CHECK_INT(weir_wakeup_arm(wakeup), 0);
            CHECK(weir_acquire(store, key, slot, 1, &d) == 0 && !d.allowed);
        }
        atomic_store(&shared->lease, 0); /* from here on it is released */
        do {                             /* it may also be readable without a reason */
            CHECK_INT(poll(&fd, 1, -1), 1);
            quick += weir__mono_us() - shared->at_us < WEIR__BELL_TRUST_US / 2;
            CHECK_INT(weir_wakeup_arm(wakeup), 0);
            CHECK_INT(weir_acquire(store, key, slot, 1, &d), 0);
        } while (!d.allowed);
        CHECK_INT(release(store, d.lease), 0);
        child_join(child);
    }
    CHECK(quick > rounds / 2);
    weir_wakeup_close(wakeup);
}

/* ---- deaths ---- */

/* A holder is killed: its lease runs out, and not before that somebody else has the slot. */
static void test_killed_holder(weir_store *store)
{
    weir_limit *brief = test_limit("concurrent 1 lease 300ms");
    weir_decision d = {0};
    atomic_store(&shared->lease, 0);
    pid_t child = fork();
    if (child == 0) {
        weir_store *own = open_zone();
        if (weir_acquire(own, weir_key_text("brief"), brief, 1, &d) || !d.allowed)
            _exit(1);
        atomic_store(&shared->at_us, d.time_us);
        atomic_store(&shared->lease, d.lease);
        for (;;)
            pause();
    }
    while (!atomic_load(&shared->lease))
        sched_yield();
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_INT(weir_acquire_wait(store, weir_key_text("brief"), brief, 1, WEIR_WAIT_ANY, &d), 0);
    CHECK(d.allowed && d.time_us >= shared->at_us + 300000);
    CHECK_INT(weir_release(store, weir_key_text("brief"), brief, d.lease), 0);
    weir_limit_free(brief);
}

/* Waiters are killed in their sleep: those who are left go on. */
static void test_killed_waiters(weir_store *store)
{
    weir_decision held, d;
    pid_t children[4];
    struct weir__bells bells;
    store->engine->bells(store, key, &bells);
    CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
    for (int i = 0; i < 4; i++) {
        atomic_store(&bells.key->wanted, 0);
        children[i] = fork();
        if (children[i] == 0) {
            weir_store *own = open_zone();
            int code = weir_acquire_wait(own, key, slot, 1, WEIR_WAIT_ANY, &d);
            _exit(code || !d.allowed || release(own, d.lease));
        }
        await_sleeper(store, children[i]);
    }
    for (int i = 0; i < 3; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    CHECK_INT(release(store, held.lease), 0);
    child_join(children[3]);
    CHECK(weir_acquire_wait(store, key, slot, 1, WEIR_WAIT_ANY, &d) == 0 && d.allowed);
    CHECK_INT(release(store, d.lease), 0);
}

/* ---- fork ---- */

static void *parent_wait(void *argument)
{
    weir_store *store = argument;
    weir_decision d = {0};
    if (weir_acquire_wait(store, key, slot, 1, WEIR_WAIT_ANY, &d) || !d.allowed ||
        release(store, d.lease))
        atomic_fetch_add(&shared->failed, 1);
    return NULL;
}

/* Threads of the parent wait. The child has not got them, so nobody is ahead of it. */
static void test_fork(weir_store *store)
{
    weir_limit *other = test_limit("fixed-window 1/10ms");
    weir_decision held, d;
    weir_waiter *waiter = NULL;
    weir_wakeup *wakeup = NULL;
    pthread_t threads[2];
    CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
    CHECK(weir_waiter_create(&waiter, NULL) == 0 &&
          weir_wakeup_open(store, key, slot, &wakeup, NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, parent_wait, store), 0);
    while (weir__waiting_count(store) < 3)
        sched_yield();
    pid_t child = fork();
    if (child == 0) {
        weir_request request = {.key = key, .limit = slot};
        weir_wait_options options = {.waiter = waiter};
        int wrong = weir_wait_with(store, &request, &options, &d) != WEIR_EINVAL ||
                    weir_wakeup_arm(wakeup) != WEIR_EINVAL;
        weir_wakeup_close(wakeup);
        weir_waiter_cancel(waiter);
        weir_waiter_free(waiter);
        for (int i = 0; i < 3; i++)
            wrong |= weir_wait(store, key, other, 1, WEIR_WAIT_ANY, &d) || !d.allowed;
        wrong |= release(store, held.lease); /* the parent's threads go on */
        wrong |= weir_acquire_wait(store, key, slot, 1, WEIR_WAIT_ANY, &d) || !d.allowed;
        wrong |= release(store, d.lease);
        weir_store_close(store);
        _exit(wrong);
    }
    child_join(child);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(shared->failed, 0);
    weir_wakeup_close(wakeup);
    weir_waiter_free(waiter);
    weir_limit_free(other);
}

int main(int argc, char **argv)
{
    kind = argc > 1 && !strcmp(argv[1], "file") ? TEST_FILE : TEST_SHM;
    alarm(300); /* a wait that never ends has failed */
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    key = weir_key_text("key");
    slot = test_limit("concurrent 1 lease 1h");
    snprintf(url, sizeof url, "%s", test_url(kind, "waits", "size=256k&large=30%"));
    weir_store *store = open_zone();
    test_turns(argc > 2 ? atoi(argv[2]) : 20);
    test_woken(store, false);
    test_woken(store, true);
    test_wakeup(store);
    test_killed_holder(store);
    test_killed_waiters(store);
    test_fork(store);
    CHECK_INT(weir__waiting_count(store), 0);
    CHECK_INT(test_peek(store, "key", slot, 1).remaining, 1);
    test_sound(store);
    weir_store_close(store);
    test_remove(kind, "waits");
    if (kind == TEST_FILE)
        test_remove_directory();
    weir_limit_free(slot);
    return test_report();
}

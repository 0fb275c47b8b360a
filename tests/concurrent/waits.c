/*
 * Threads that wait: the order in which they are served, what ends a wait early, and what it leaves
 * behind. Order is counted, not timed: every thread has its spot before the first one is served.
 */
#include "../unit/store_test.h"

#include "store/wait.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>

#define THREADS 8
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Atomic int64_t now = START;
static weir_store *store;

/* ---- a clock that waits for the test ---- */

static _Atomic bool gate; /* open: sleeps go on */
static _Atomic int sleeping;

static void gated_sleep(void *context, int64_t us)
{
    atomic_fetch_add(&sleeping, 1);
    while (!atomic_load(&gate))
        sched_yield();
    atomic_fetch_sub(&sleeping, 1);
    test_clock_sleep(context, us);
}

static void begin_virtual(bool open)
{
    weir_clock clock = {test_clock_now, gated_sleep, &now};
    now = START;
    gate = open;
    store = test_open("memory:256k?large=30%", NULL);
    weir_store_set_clock(store, &clock);
}

static void begin_real(void)
{
    store = test_open("memory:256k?large=30%", NULL);
}

static void end(void)
{
    CHECK_INT(weir__waiting_count(store), 0);
    test_sound(store);
    weir_store_close(store);
}

static void await_spots(uint32_t n)
{
    while (weir__waiting_count(store) != n)
        sched_yield();
}

/* ---- a thread that waits ---- */

struct waiting {
    const weir_limit *limit;
    const char *key;
    int64_t cost, max_us;
    bool acquire;
    weir_wait_options options;
    /* out */
    pthread_t thread;
    int code;
    int turn; /* which of all it was that came back */
    weir_decision decision;
    _Atomic bool done;
};

static _Atomic int turns;

static void *waiting_run(void *argument)
{
    struct waiting *it = argument;
    weir_request request = weir_request_make(weir_key_text(it->key ? it->key : "key"), it->limit);
    request.cost = it->cost ? it->cost : 1;
    request.acquire = it->acquire;
    it->options.max_wait_us = it->max_us ? it->max_us : WEIR_WAIT_ANY;
    it->code = weir_wait_with(store, &request, &it->options, &it->decision);
    it->turn = atomic_fetch_add(&turns, 1);
    atomic_store(&it->done, true);
    return NULL;
}

static void waiting_start(struct waiting *it)
{
    CHECK_INT(pthread_create(&it->thread, NULL, waiting_run, it), 0);
}

static void waiting_join(struct waiting *it)
{
    CHECK_INT(pthread_join(it->thread, NULL), 0);
}

/* ---- order ---- */

static const struct {
    const char *limit;
    int64_t full; /* what uses it up */
} kinds[] = {
    {"fixed-window 1/s", 1},
    {"fixed-window 1/s from-first", 1},
    {"sliding-log 1/s", 1},
    {"sliding-window 1/s", 1},
    {"sliding-counter 1/s", 1},
    {"concurrent 1 lease 1s", 1},
    {"leaky-bucket 1/s burst 1 nodelay", 2},
    {"sliding-log 2/s, fixed-window 1/s", 1},
    {"token-bucket 100/s, fixed-window 1/s", 1},
};

/* All queue up behind one that sleeps; then they are served in the order in which they came. */
static void test_order(void)
{
    for (size_t kind = 0; kind < COUNT(kinds); kind++) {
        weir_limit *limit = test_limit(kinds[kind].limit);
        struct waiting waits[THREADS] = {0};
        begin_virtual(false);
        turns = 0;
        CHECK(test_take(store, "key", limit, kinds[kind].full).allowed);
        for (int i = 0; i < THREADS; i++) {
            waits[i].limit = limit;
            waiting_start(&waits[i]);
            await_spots((uint32_t)i + 1);
        }
        gate = true;
        for (int i = 0; i < THREADS; i++)
            waiting_join(&waits[i]);
        int64_t last = 0;
        for (int i = 0; i < THREADS; i++) {
            CHECK(waits[i].code == 0 && waits[i].decision.allowed);
            CHECK(waits[i].decision.time_us > last); /* each had to wait for the one before */
            last = waits[i].decision.time_us;
        }
        end();
        weir_limit_free(limit);
    }
}

/* The first waits for its cost. Who needs less waits behind it, although there would be enough. */
static void test_costs(void)
{
    weir_limit *limit = test_limit("sliding-log 3/s");
    struct waiting large = {.limit = limit, .cost = 3}, small = {.limit = limit, .cost = 1};
    begin_virtual(false);
    CHECK(test_take(store, "key", limit, 1).allowed);
    waiting_start(&large);
    await_spots(1);
    waiting_start(&small);
    await_spots(2);
    gate = true;
    waiting_join(&large);
    waiting_join(&small);
    CHECK(large.decision.allowed && large.decision.time_us == START + SECOND);
    CHECK(small.decision.allowed && small.decision.time_us == START + 2 * SECOND);
    end();
    weir_limit_free(limit);
}

/* Only who wants the same state of the same key stands in the same queue. */
static void test_queues_apart(void)
{
    weir_limit *window = test_limit("fixed-window 1/h"),
               *slot = test_limit("concurrent 1 lease 1m"),
               *both = test_limit("concurrent 1 lease 9m, fixed-window 1/h"),
               *log = test_limit("sliding-log 1/h");
    struct waiting first = {.limit = window}, second = {.limit = both};
    weir_decision d;
    begin_virtual(false);
    CHECK(test_take(store, "key", window, 1).allowed);
    waiting_start(&first);
    await_spots(1);
    waiting_start(&second);
    await_spots(2);
    /* Neither the queue of the window nor that of the slots concerns these. */
    CHECK(weir_wait(store, weir_key_text("key"), log, 1, SECOND, &d) == 0 && d.allowed);
    CHECK(weir_wait(store, weir_key_text("other"), window, 1, SECOND, &d) == 0 && d.allowed);
    /* This one does: it is behind the second, at its own deadline at once. */
    CHECK(weir_acquire_wait(store, weir_key_text("key"), slot, 1, 0, &d) == 0 && d.allowed);
    CHECK_INT(weir_release(store, weir_key_text("key"), slot, d.lease), 0);
    gate = true;
    waiting_join(&first);
    waiting_join(&second);
    CHECK(first.decision.time_us < second.decision.time_us);
    end();
    weir_limit_free(window);
    weir_limit_free(slot);
    weir_limit_free(both);
    weir_limit_free(log);
}

/* Who cannot make it in time is told at once if that is known, and at its deadline otherwise. */
static void test_deadlines(void)
{
    weir_limit *window = test_limit("fixed-window 1/s"),
               *slot = test_limit("concurrent 1 lease 1h");
    struct waiting first = {.limit = window}, second = {.limit = window, .max_us = 3 * SECOND / 2},
                   third = {.limit = window};
    weir_decision d, held;
    begin_virtual(false);
    CHECK(test_take(store, "key", window, 1).allowed);
    waiting_start(&first);
    await_spots(1);
    CHECK(weir_wait(store, weir_key_text("key"), window, 1, SECOND - 1, &d) == 0 && !d.allowed);
    CHECK_INT(d.retry_after_us, SECOND);
    CHECK(weir_wait(store, weir_key_text("key"), window, 2, WEIR_WAIT_ANY, &d) == 0);
    CHECK(!d.allowed && d.retry_after_us == WEIR_NEVER);
    waiting_start(&second); /* could be served after one second, but is second */
    await_spots(2);
    waiting_start(&third);
    await_spots(3);
    gate = true;
    waiting_join(&first);
    waiting_join(&second);
    waiting_join(&third);
    CHECK(first.decision.allowed && first.decision.time_us == START + SECOND);
    CHECK(second.code == 0 && !second.decision.allowed && second.decision.charged == 0);
    CHECK(third.decision.allowed && third.decision.time_us == START + 2 * SECOND);
    end();

    begin_real(); /* a slot that nobody releases: both come back, the first and who is behind it */
    CHECK(weir_acquire(store, weir_key_text("key"), slot, 1, &held) == 0 && held.allowed);
    first = (struct waiting){.limit = slot, .max_us = SECOND / 50, .acquire = true};
    second = (struct waiting){.limit = slot, .max_us = SECOND / 100, .acquire = true};
    waiting_start(&first);
    waiting_start(&second);
    waiting_join(&first);
    waiting_join(&second);
    CHECK(first.code == 0 && !first.decision.allowed && first.decision.retry_after_us > 0);
    CHECK(second.code == 0 && !second.decision.allowed && second.decision.lease == 0);
    CHECK_INT(weir_release(store, weir_key_text("key"), slot, held.lease), 0);
    CHECK_INT(test_peek(store, "key", slot, 1).remaining, 1);
    end();
    weir_limit_free(window);
    weir_limit_free(slot);
}

/* ---- slots ---- */

/* A release serves the one that came first; a refund and a reset are as good. */
static void test_release(void)
{
    weir_limit *slot = test_limit("concurrent 1 lease 1h");
    weir_key key = weir_key_text("key");
    struct waiting waits[THREADS] = {0};
    weir_decision held;
    begin_real();
    turns = 0;
    CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
    for (int i = 0; i < THREADS; i++) {
        waits[i] = (struct waiting){.limit = slot, .acquire = true};
        waiting_start(&waits[i]);
        await_spots((uint32_t)i + 1);
    }
    for (int i = 0; i < THREADS; i++) {
        if (i == THREADS / 2)
            CHECK_INT(weir_reset(store, key), 0);
        else
            CHECK_INT(weir_release(store, key, slot, held.lease), 0);
        waiting_join(&waits[i]);
        held = waits[i].decision;
        CHECK(waits[i].code == 0 && held.allowed && held.lease && waits[i].turn == i);
    }
    CHECK_INT(weir_release(store, key, slot, held.lease), 0);
    end();
    weir_limit_free(slot);
}

static void test_refund(void)
{
    weir_limit *window = test_limit("fixed-window 1/d from-first");
    struct waiting wait = {.limit = window};
    weir_decision d;
    char receipt[WEIR_RECEIPT_SIZE];
    begin_real();
    d = test_take(store, "key", window, 1);
    weir_receipt(&d, receipt);
    waiting_start(&wait);
    await_spots(1);
    CHECK_INT(weir_settle(store, weir_key_text("key"), window, receipt, 0, NULL), 0);
    waiting_join(&wait);
    CHECK(wait.code == 0 && wait.decision.allowed);
    end();
    weir_limit_free(window);
}

struct slots {
    const weir_limit *limit;
    _Atomic int holders;
    _Atomic int worst;
    int rounds;
};

static void *slots_run(void *argument)
{
    struct slots *slots = argument;
    weir_key key = weir_key_text("key");
    for (int i = 0; i < slots->rounds; i++) {
        weir_decision d = {0};
        if (weir_acquire_wait(store, key, slots->limit, 1, WEIR_WAIT_ANY, &d) || !d.allowed)
            atomic_store(&slots->worst, 1000);
        int holders = atomic_fetch_add(&slots->holders, 1) + 1;
        int worst = atomic_load(&slots->worst);
        while (holders > worst && !atomic_compare_exchange_weak(&slots->worst, &worst, holders))
            ;
        sched_yield();
        atomic_fetch_sub(&slots->holders, 1);
        if (weir_release(store, key, slots->limit, d.lease))
            atomic_store(&slots->worst, 1000);
    }
    return NULL;
}

/* Everybody gets its turns, and never too many hold a slot. No lease expires meanwhile, so a
 * wake-up that is lost would never end. */
static void test_slots(const char *text, int most, int rounds)
{
    struct slots slots = {.limit = test_limit(text), .rounds = rounds};
    pthread_t threads[THREADS];
    begin_real();
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, slots_run, &slots), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(slots.worst <= most);
    CHECK_INT(test_peek(store, "key", slots.limit, 1).remaining, most);
    end();
    weir_limit_free((weir_limit *)slots.limit);
}

/* ---- cancelling ---- */

static weir_waiter *make_waiter(void)
{
    weir_waiter *waiter = NULL;
    CHECK_INT(weir_waiter_create(&waiter, NULL), 0);
    return waiter;
}

/* The first in the queue, one behind it, and a bucket's reservation. */
static void test_cancel(void)
{
    weir_limit *slot = test_limit("concurrent 1 lease 1h"),
               *bucket = test_limit("token-bucket 1/h burst 2"),
               *group = test_limit("concurrent 3 lease 1h, token-bucket 1/h burst 2");
    weir_waiter *waiter = make_waiter(), *other = make_waiter();
    weir_key key = weir_key_text("key");
    weir_decision held;
    begin_real();
    CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
    struct waiting first = {.limit = slot, .acquire = true, .options.waiter = waiter},
                   behind = {.limit = slot, .acquire = true, .options.waiter = waiter},
                   last = {.limit = slot, .acquire = true, .options.waiter = other};
    waiting_start(&first);
    await_spots(1);
    waiting_start(&behind);
    await_spots(2);
    waiting_start(&last);
    await_spots(3);
    weir_waiter_cancel(waiter);
    waiting_join(&first);
    waiting_join(&behind);
    CHECK(first.code == WEIR_ECANCELED && behind.code == WEIR_ECANCELED && !last.done);
    CHECK_INT(weir_release(store, key, slot, held.lease), 0);
    waiting_join(&last);
    CHECK(last.code == 0 && last.decision.allowed);
    weir_waiter_cancel(other); /* too late for it, in time for the next */
    struct waiting late = {.limit = bucket, .options.waiter = other};
    waiting_start(&late);
    waiting_join(&late);
    CHECK_INT(late.code, WEIR_ECANCELED);
    weir_waiter_free(waiter);
    waiter = make_waiter();

    CHECK(test_take(store, "bucket", bucket, 2).allowed);
    struct waiting booked = {.limit = bucket, .key = "bucket", .options.waiter = waiter};
    waiting_start(&booked);
    while (test_peek(store, "bucket", bucket, 0).reset_after_us <= 2 * HOUR)
        sched_yield();
    weir_waiter_cancel(waiter);
    waiting_join(&booked);
    CHECK_INT(booked.code, WEIR_ECANCELED);
    CHECK(test_peek(store, "bucket", bucket, 0).reset_after_us <= 2 * HOUR);
    weir_waiter_free(waiter);
    waiter = make_waiter();

    /* A slot that is held while a bucket's turn is waited for. */
    CHECK(test_take(store, "group", bucket, 2).allowed);
    struct waiting both = {.limit = group, .key = "group", .options.waiter = waiter};
    waiting_start(&both);
    while (test_peek(store, "group", bucket, 0).reset_after_us <= 2 * HOUR)
        sched_yield();
    weir_waiter_cancel(waiter);
    waiting_join(&both);
    CHECK_INT(both.code, WEIR_ECANCELED);
    CHECK(test_peek(store, "group", bucket, 0).reset_after_us <= 2 * HOUR);
    CHECK_INT(test_peek(store, "group", slot, 0).reset_after_us, 0);
    weir_waiter_free(waiter);
    weir_waiter_free(other);
    end();
    weir_limit_free(slot);
    weir_limit_free(bucket);
    weir_limit_free(group);
}

static void *cancel_run(void *argument)
{
    weir_waiter_cancel(argument);
    return NULL;
}

/* A release and a cancellation at the same moment: it has the slot, or it was cancelled and the
 * slot is free. */
static void test_cancel_races(int rounds)
{
    weir_limit *slot = test_limit("concurrent 1 lease 1h");
    weir_key key = weir_key_text("key");
    int served = 0;
    begin_real();
    for (int i = 0; i < rounds; i++) {
        weir_waiter *waiter = make_waiter();
        int event = i % 2 ? eventfd(0, EFD_CLOEXEC) : -1;
        weir_decision held;
        CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
        struct waiting wait = {
            .limit = slot,
            .acquire = true,
            .options = {.waiter = waiter, .cancel_fd = event < 0 ? NULL : &event}};
        pthread_t canceller;
        waiting_start(&wait);
        if (i % 4 < 2)
            await_spots(1);
        if (i % 3 == 0 && event >= 0)
            CHECK_INT(eventfd_write(event, 1), 0);
        CHECK_INT(pthread_create(&canceller, NULL, cancel_run, waiter), 0);
        CHECK_INT(weir_release(store, key, slot, held.lease), 0);
        waiting_join(&wait);
        pthread_join(canceller, NULL);
        served += wait.code == 0;
        CHECK(wait.code == 0 ? wait.decision.allowed : wait.code == WEIR_ECANCELED);
        CHECK_INT(test_peek(store, "key", slot, 1).remaining, wait.code != 0);
        if (wait.code == 0)
            CHECK_INT(weir_release(store, key, slot, wait.decision.lease), 0);
        weir_waiter_free(waiter);
        if (event >= 0)
            close(event);
    }
    printf("%d of %d were served\n", served, rounds);
    end();
    weir_limit_free(slot);
}

/* A descriptor cancels, also one that was readable before, and a pipe whose writer is gone. */
static void test_descriptor(void)
{
    weir_limit *bucket = test_limit("token-bucket 1/h"),
               *slot = test_limit("concurrent 1 lease 1h");
    int event = eventfd(0, EFD_CLOEXEC), ends[2];
    begin_real();
    CHECK(pipe(ends) == 0 && event >= 0);
    CHECK(test_take(store, "key", bucket, 1).allowed);
    struct waiting wait = {.limit = bucket, .options.cancel_fd = &event};
    waiting_start(&wait);
    while (test_peek(store, "key", bucket, 0).reset_after_us <= HOUR)
        sched_yield();
    CHECK_INT(eventfd_write(event, 1), 0);
    waiting_join(&wait);
    CHECK_INT(wait.code, WEIR_ECANCELED);
    CHECK(test_peek(store, "key", bucket, 0).reset_after_us <= HOUR);
    waiting_run(&wait);
    CHECK_INT(wait.code, WEIR_ECANCELED);

    struct waiting piped = {.limit = slot, .acquire = true, .options.cancel_fd = &ends[0]},
                   served = piped;
    weir_decision held;
    CHECK(weir_acquire(store, weir_key_text("key"), slot, 1, &held) == 0 && held.allowed);
    waiting_start(&served);
    await_spots(1);
    CHECK_INT(weir_release(store, weir_key_text("key"), slot, held.lease), 0);
    waiting_join(&served);
    CHECK(served.code == 0 && served.decision.allowed);
    waiting_start(&piped);
    await_spots(1);
    close(ends[1]);
    waiting_join(&piped);
    CHECK_INT(piped.code, WEIR_ECANCELED);
    close(ends[0]);
    close(event);
    end();
    weir_limit_free(bucket);
    weir_limit_free(slot);
}

/* pthread_cancel leaves no spot and no charge behind. */
static void test_thread_cancel(void)
{
    weir_limit *slot = test_limit("concurrent 1 lease 1h"),
               *bucket = test_limit("token-bucket 1/h");
    int event = eventfd(0, EFD_CLOEXEC);
    weir_decision held;
    begin_real();
    CHECK(weir_acquire(store, weir_key_text("key"), slot, 1, &held) == 0 && held.allowed);
    struct waiting first = {.limit = slot, .acquire = true},
                   second = {.limit = slot, .acquire = true, .options.cancel_fd = &event},
                   third = {.limit = slot, .acquire = true};
#ifdef __SANITIZE_THREAD__ /* takes a thread that was cancelled in poll for one in poll for ever */
    second.options.cancel_fd = NULL;
#endif
    waiting_start(&first);
    await_spots(1);
    waiting_start(&second);
    await_spots(2);
    waiting_start(&third);
    await_spots(3);
    pthread_cancel(second.thread);
    waiting_join(&second);
    pthread_cancel(first.thread);
    waiting_join(&first);
    CHECK(!first.done && !second.done);
    await_spots(1);
    CHECK_INT(weir_release(store, weir_key_text("key"), slot, held.lease), 0);
    waiting_join(&third);
    CHECK(third.code == 0 && third.decision.allowed);

    CHECK(test_take(store, "key", bucket, 1).allowed);
    struct waiting booked = {.limit = bucket};
    waiting_start(&booked);
    while (test_peek(store, "key", bucket, 0).reset_after_us <= HOUR)
        sched_yield();
    pthread_cancel(booked.thread);
    waiting_join(&booked);
    CHECK(!booked.done && test_peek(store, "key", bucket, 0).reset_after_us <= HOUR);
    close(event);
    end();
    weir_limit_free(slot);
    weir_limit_free(bucket);
}

/* ---- signals ---- */

static _Atomic int handled;

static void handle(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void test_signals(bool restart)
{
    weir_limit *slot = test_limit("concurrent 1 lease 1h");
    struct sigaction action = {.sa_handler = handle, .sa_flags = restart ? SA_RESTART : 0};
    int event = eventfd(0, EFD_CLOEXEC);
    weir_decision held;
    begin_real();
    sigaction(SIGUSR1, &action, NULL);
    CHECK(weir_acquire(store, weir_key_text("key"), slot, 1, &held) == 0 && held.allowed);
    struct waiting deaf = {.limit = slot, .acquire = true},
                   first = {.limit = slot, .acquire = true, .options.interruptible = true},
                   second = {.limit = slot,
                             .acquire = true,
                             .options = {.interruptible = true, .cancel_fd = &event}};
    waiting_start(&deaf);
    await_spots(1);
    waiting_start(&first);
    waiting_start(&second);
    await_spots(3);
    for (int before = handled; handled < before + 3; sched_yield())
        pthread_kill(deaf.thread, SIGUSR1);
    while (!first.done || !second.done) { /* one that comes before the sleep is missed */
        if (!first.done)
            pthread_kill(first.thread, SIGUSR1);
        if (!second.done)
            pthread_kill(second.thread, SIGUSR1);
        sched_yield();
    }
    waiting_join(&first);
    waiting_join(&second);
    CHECK(first.code == WEIR_EINTR && second.code == WEIR_EINTR && !deaf.done);
    CHECK_INT(weir_release(store, weir_key_text("key"), slot, held.lease), 0);
    waiting_join(&deaf);
    CHECK(deaf.code == 0 && deaf.decision.allowed);
    close(event);
    end();
    weir_limit_free(slot);
}

/* ---- event loops ---- */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, timeout_ms) == 1;
}

static void test_wakeup(void)
{
    weir_limit *slot = test_limit("concurrent 1 lease 1h");
    weir_key key = weir_key_text("key"), other = weir_key_text("other");
    weir_wakeup *wakeup = NULL, *elsewhere = NULL;
    weir_decision held, d;
    begin_real();
    CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
    CHECK(weir_acquire(store, other, slot, 1, &d) == 0 && d.allowed);
    CHECK_INT(weir_wakeup_open(store, key, slot, &wakeup, NULL), 0);
    CHECK_INT(weir_wakeup_open(store, other, slot, &elsewhere, NULL), 0);
    CHECK(!readable(weir_wakeup_fd(wakeup), 0));
    CHECK_INT(weir_release(store, key, slot, held.lease), 0);
    CHECK(readable(weir_wakeup_fd(wakeup), -1));
    CHECK(!readable(weir_wakeup_fd(elsewhere), 0));
    CHECK_INT(weir_wakeup_arm(wakeup), 0);
    CHECK(!readable(weir_wakeup_fd(wakeup), 0));
    CHECK(weir_acquire(store, key, slot, 1, &held) == 0 && held.allowed);
    CHECK_INT(weir_reset(store, key), 0);
    CHECK(readable(weir_wakeup_fd(wakeup), -1));
    weir_wakeup_close(elsewhere);
    weir_wakeup_close(wakeup);
    end();
    weir_limit_free(slot);
}

/* ---- nothing is left ---- */

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    alarm(300); /* a wait that never ends has failed */
    int before = count_descriptors();
    test_order();
    test_costs();
    test_queues_apart();
    test_deadlines();
    test_release();
    test_refund();
    test_slots("concurrent 1 lease 1h", 1, rounds);
    test_slots("concurrent 3 lease 1h", 3, rounds);
    test_cancel();
    test_cancel_races(rounds);
    test_descriptor();
    test_thread_cancel();
    test_signals(false);
    test_signals(true);
    test_wakeup();
    CHECK_INT(count_descriptors(), before);
    return test_report();
}

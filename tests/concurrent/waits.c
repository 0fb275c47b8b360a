/* Threads that wait: the order in which they are served, and what wakes them. */
#include "waits.h"

#include <poll.h>

/* ---- order ---- */

static const struct {
    const char *limit;
    int64_t full; /* what uses it up */
} kinds[] = {
    {"fixed-window 1/s", 1},
    {"fixed-window 1/s from-first", 1},
    {"fixed-window 1/s zone -00:30", 1},
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

/* Who may use all of a limit does not wait behind who may use a part of it: that one may have to
 * wait much longer. The other way round it does. */
static void test_shares(void)
{
    weir_limit *whole = test_limit("concurrent 3 lease 1h"),
               *part = test_limit("concurrent 1 lease 1h");
    weir_key key = weir_key_text("key");
    struct waiting batch = {.limit = part, .acquire = true},
                   first = {.limit = whole, .acquire = true, .max_us = MINUTE}, second = first,
                   later = batch;
    struct waiting *const all[] = {&batch, &first, &second, &later};
    weir_decision one, two;
    begin_real();
    turns = 0;
    CHECK(weir_acquire(store, key, whole, 1, &one) == 0 && one.allowed);
    CHECK(weir_acquire(store, key, whole, 2, &two) == 0 && two.allowed);
    for (uint32_t i = 0; i < COUNT(all); i++) {
        waiting_start(all[i]);
        await_spots(i + 1);
    }
    CHECK_INT(weir_release(store, key, whole, two.lease), 0);
    waiting_join(&first);
    waiting_join(&second);
    CHECK(first.decision.allowed && second.decision.allowed && !atomic_load(&batch.done));
    CHECK_INT(weir_release(store, key, whole, one.lease), 0);
    CHECK_INT(weir_release(store, key, whole, first.decision.lease), 0);
    CHECK_INT(weir_release(store, key, whole, second.decision.lease), 0);
    waiting_join(&batch);
    CHECK(batch.decision.allowed && batch.turn == 2 && !atomic_load(&later.done));
    CHECK_INT(weir_release(store, key, part, batch.decision.lease), 0);
    waiting_join(&later);
    CHECK(later.decision.allowed);
    CHECK_INT(weir_release(store, key, part, later.decision.lease), 0);
    end();
    weir_limit_free(whole);
    weir_limit_free(part);
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
    test_shares();
    test_refund();
    test_slots("concurrent 1 lease 1h", 1, rounds);
    test_slots("concurrent 3 lease 1h", 3, rounds);
    test_wakeup();
    CHECK_INT(count_descriptors(), before);
    return test_report();
}

/* Waits that end early: another thread, a descriptor, pthread_cancel, a signal. They leave nothing
 * behind. */
#include "waits.h"

#include <signal.h>
#include <sys/eventfd.h>

/* ---- cancelling ---- */

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

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    alarm(300); /* a wait that never ends has failed */
    int before = count_descriptors();
    test_cancel();
    test_cancel_races(rounds);
    test_descriptor();
    test_thread_cancel();
    test_signals(false);
    test_signals(true);
    CHECK_INT(count_descriptors(), before);
    return test_report();
}

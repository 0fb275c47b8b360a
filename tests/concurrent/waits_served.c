/*
 * Waits that are served by others of their queue. Who is awake asks for those in front, so a thread
 * that does not run holds nobody up. What is granted to a thread that is cancelled or comes to its
 * deadline at that moment is used or given back, once.
 */
#include "waits.h"

#include <signal.h>

#define MOST 16
#ifdef __SANITIZE_THREAD__ /* lets no handler run while a thread sleeps */
#define HANDLERS_RUN false
#else
#define HANDLERS_RUN true
#endif

/* ---- claims by the test ---- */

/* A spot of the test behind `n` others, and all of them claimed: they are asleep. */
static void claim(struct weir__spot *spot, const weir_limit *limit, size_t n,
                  struct weir__spot **claimed)
{
    struct weir__waiting *waiting = weir__waiting_of(store);
    weir__spot_init(spot, weir_key_text("key"));
    spot->limit = limit;
    weir__spot_take(waiting, spot);
    for (;;) {
        size_t count = weir__spots_claim(waiting, spot, false, claimed, MOST);
        if (count == n + 1)
            return;
        weir__spots_unclaim(waiting, spot, claimed, 0, count);
        sched_yield();
    }
}

/* The first `served` of them are, the others sleep on; the test leaves. */
static void unclaim(struct weir__spot *spot, size_t n, size_t served, struct weir__spot **claimed)
{
    struct weir__waiting *waiting = weir__waiting_of(store);
    CHECK(claimed[n] == spot);
    weir__spots_unclaim(waiting, spot, claimed, served, n + 1);
    CHECK(!weir__spot_leave(waiting, spot));
}

static void await_sleepers(const weir_limit *limit, size_t n)
{
    struct weir__spot spot, *claimed[MOST];
    claim(&spot, limit, n, claimed);
    unclaim(&spot, n, 0, claimed);
}

static void grant(struct weir__spot *spot)
{
    struct weir__wait *wait =
        (struct weir__wait *)((char *)spot - offsetof(struct weir__wait, spot));
    CHECK(weir__take_all(store, &wait->request, 1, &wait->folded) == 0 && wait->folded.allowed);
    weir__wait_grant(wait);
}

static void yield_often(void)
{
    for (int i = 0; i < 1000; i++)
        sched_yield();
}

/* A wait that is cancelled while somebody asks for it ends when the answer is there. */
static void test_cancelled_while_claimed(void)
{
    weir_limit *slot = test_limit("concurrent 2 lease 1h");
    weir_key key = weir_key_text("key");
    weir_waiter *waiters[2] = {make_waiter(), make_waiter()};
    struct weir__spot spot, *claimed[MOST];
    struct waiting waits[4] = {0};
    weir_decision held;
    begin_real();
    CHECK(weir_acquire(store, key, slot, 2, &held) == 0 && held.allowed);
    for (int i = 0; i < 4; i++) {
        waits[i] = (struct waiting){.limit = slot, .acquire = true};
        waits[i].options.waiter = i == 1 || i == 2 ? waiters[i - 1] : NULL;
        waiting_start(&waits[i]);
        await_spots((uint32_t)i + 1);
    }
    claim(&spot, slot, 4, claimed); /* the answer is no */
    weir_waiter_cancel(waiters[1]);
    yield_often();
    CHECK(!waits[2].done);
    unclaim(&spot, 4, 0, claimed);
    waiting_join(&waits[2]);
    CHECK(waits[2].code == WEIR_ECANCELED && !waits[0].done && !waits[1].done && !waits[3].done);

    claim(&spot, slot, 3, claimed); /* it is yes for the first two */
    weir_waiter_cancel(waiters[0]);
    pthread_cancel(waits[0].thread);
    yield_often();
    CHECK_INT(weir_release(store, key, slot, held.lease), 0);
    grant(claimed[0]);
    grant(claimed[1]);
    CHECK_INT(test_peek(store, "key", slot, 0).remaining, 0);
    unclaim(&spot, 3, 2, claimed);
    waiting_join(&waits[0]);
    waiting_join(&waits[1]);
    CHECK(!waits[0].done); /* the thread ended, and gave its slot back: the last one gets it */
    CHECK(waits[1].code == 0 && waits[1].decision.allowed);
    waiting_join(&waits[3]);
    CHECK(waits[3].code == 0 && waits[3].decision.allowed);
    CHECK_INT(test_peek(store, "key", slot, 0).remaining, 0);
    CHECK_INT(weir_release(store, key, slot, waits[1].decision.lease), 0);
    CHECK_INT(weir_release(store, key, slot, waits[3].decision.lease), 0);
    CHECK_INT(test_peek(store, "key", slot, 0).remaining, 2);
    end();
    weir_waiter_free(waiters[0]);
    weir_waiter_free(waiters[1]);
    weir_limit_free(slot);
}

/* ---- threads that do not run ---- */

static _Atomic int held_up;
static _Atomic bool let_go;

static void hold_up(int number)
{
    (void)number;
    atomic_fetch_add(&held_up, 1);
    while (!atomic_load(&let_go))
        sched_yield();
}

static void hold_thread(pthread_t thread)
{
    struct sigaction action = {.sa_handler = hold_up};
    sigaction(SIGUSR1, &action, NULL);
    held_up = 0;
    let_go = false;
    CHECK_INT(pthread_kill(thread, SIGUSR1), 0);
    while (!atomic_load(&held_up))
        sched_yield();
}

/* The one in the middle, or the first. The others go on, and it has its permit when it wakes up. */
static void test_held_up(const char *text, int which)
{
    weir_limit *limit = test_limit(text);
    struct waiting waits[3] = {0};
    if (which == 0)
        begin_real(); /* a virtual clock is moved by the first alone */
    else
        begin_virtual(false);
    CHECK(test_take(store, "key", limit, 3).allowed);
    for (int i = 0; i < 3; i++) {
        waits[i].limit = limit;
        waiting_start(&waits[i]);
        await_spots((uint32_t)i + 1);
    }
    await_sleepers(limit, 3);
    hold_thread(waits[which].thread);
    gate = true;
    for (int i = 0; i < 3; i++) {
        if (i != which)
            waiting_join(&waits[i]);
    }
    CHECK(!waits[which].done);
    CHECK_INT(test_peek(store, "key", limit, 0).remaining, 0);
    let_go = true;
    waiting_join(&waits[which]);
    for (int i = 0; i < 3; i++)
        CHECK(waits[i].code == 0 && waits[i].decision.allowed);
    CHECK(waits[0].decision.remaining == 2 && waits[1].decision.remaining == 1);
    end();
    weir_limit_free(limit);
}

/* Nobody asks for one that has come to its deadline, nor for those behind it before it has left. */
static void test_late(void)
{
    weir_limit *limit = test_limit("fixed-window 3/s");
    struct waiting waits[3] = {0};
    begin_virtual(false);
    CHECK(test_take(store, "key", limit, 3).allowed);
    for (int i = 0; i < 3; i++) {
        waits[i] = (struct waiting){.limit = limit, .max_us = i == 1 ? 3 * SECOND / 2 : 0};
        waiting_start(&waits[i]);
        await_spots((uint32_t)i + 1);
    }
    await_sleepers(limit, 3);
    hold_thread(waits[1].thread);
    now = START + 2 * SECOND;
    gate = true;
    waiting_join(&waits[0]);
    CHECK_INT(test_peek(store, "key", limit, 0).remaining, 2);
    CHECK(!waits[1].done && !waits[2].done);
    let_go = true;
    waiting_join(&waits[1]);
    waiting_join(&waits[2]);
    CHECK(waits[0].decision.allowed && waits[2].decision.allowed);
    CHECK_INT(test_peek(store, "key", limit, 0).remaining, waits[1].decision.allowed ? 0 : 1);
    end();
    weir_limit_free(limit);
}

/* ---- everything at once ---- */

struct mix {
    const weir_limit *limit;
    bool leases;
    _Atomic int64_t holding;
    _Atomic int failed;
    _Atomic bool stop;
    pthread_mutex_t lock;
    weir_waiter *waiters[THREADS]; /* of the waits that go on; the lock guards them */
};

struct mixer {
    struct mix *mix;
    uint64_t chance;
    int number, rounds;
};

static uint64_t next_chance(uint64_t *chance)
{
    *chance = *chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *chance >> 33;
}

static void mix_give_back(struct mix *mix, weir_decision *decision)
{
    weir_key key = weir_key_text("key");
    char receipt[WEIR_RECEIPT_SIZE];
    weir_receipt(decision, receipt);
    if (mix->leases ? weir_release(store, key, mix->limit, decision->lease)
                    : weir_settle(store, key, mix->limit, receipt, 0, NULL))
        atomic_fetch_add(&mix->failed, 1);
}

/* One wait, of a random cost and patience. */
static void mix_wait(struct mix *mix, weir_waiter *waiter, uint64_t *chance)
{
    weir_request request = weir_request_make(weir_key_text("key"), mix->limit);
    weir_wait_options options = {.waiter = waiter, .max_wait_us = WEIR_WAIT_ANY};
    weir_decision decision = {0};
    request.cost = 1 + (int64_t)(next_chance(chance) % 3);
    request.acquire = mix->leases;
    if (waiter && next_chance(chance) % 3 == 0)
        options.max_wait_us = (int64_t)(next_chance(chance) % 2000);
    int code = weir_wait_with(store, &request, &options, &decision);
    if (code && code != WEIR_ECANCELED)
        atomic_fetch_add(&mix->failed, 1);
    if (code || !decision.allowed)
        return;
    if (atomic_fetch_add(&mix->holding, request.cost) + request.cost > 3)
        atomic_fetch_add(&mix->failed, 1);
    sched_yield();
    atomic_fetch_sub(&mix->holding, request.cost);
    mix_give_back(mix, &decision);
}

static void *mixer_run(void *argument)
{
    struct mixer *mixer = argument;
    struct mix *mix = mixer->mix;
    for (int i = 0; i < mixer->rounds; i++) {
        weir_waiter *waiter = NULL;
        if (weir_waiter_create(&waiter, NULL))
            atomic_fetch_add(&mix->failed, 1);
        pthread_mutex_lock(&mix->lock);
        mix->waiters[mixer->number] = waiter;
        pthread_mutex_unlock(&mix->lock);
        mix_wait(mix, waiter, &mixer->chance);
        pthread_mutex_lock(&mix->lock);
        mix->waiters[mixer->number] = NULL;
        pthread_mutex_unlock(&mix->lock);
        weir_waiter_free(waiter);
    }
    return NULL;
}

/* A thread that is cancelled, wherever it is. */
static void *victim_run(void *argument)
{
    struct mixer *mixer = argument;
    mix_wait(mixer->mix, NULL, &mixer->chance);
    return NULL;
}

static void *canceller_run(void *argument)
{
    struct mixer *mixer = argument;
    struct mix *mix = mixer->mix;
    while (!atomic_load(&mix->stop)) {
        struct mixer victim = {.mix = mix, .chance = next_chance(&mixer->chance)};
        pthread_t thread;
        if (pthread_create(&thread, NULL, victim_run, &victim)) {
            atomic_fetch_add(&mix->failed, 1);
            break;
        }
        pthread_mutex_lock(&mix->lock);
        weir_waiter_cancel(mix->waiters[next_chance(&mixer->chance) % THREADS]);
        pthread_mutex_unlock(&mix->lock);
        for (uint64_t i = next_chance(&mixer->chance) % 30; i > 0; i--)
            sched_yield();
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    return NULL;
}

/* Nothing is held twice, and in the end everything is back. */
static void test_mix(const char *text, bool leases, int rounds)
{
    struct mix mix = {
        .limit = test_limit(text), .leases = leases, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct mixer mixers[THREADS], canceller = {.mix = &mix, .chance = 99};
    pthread_t threads[THREADS], cancelling;
    begin_real();
    for (int i = 0; i < THREADS; i++) {
        mixers[i] =
            (struct mixer){.mix = &mix, .chance = (uint64_t)i + 1, .number = i, .rounds = rounds};
        CHECK_INT(pthread_create(&threads[i], NULL, mixer_run, &mixers[i]), 0);
    }
    CHECK_INT(pthread_create(&cancelling, NULL, canceller_run, &canceller), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    mix.stop = true;
    pthread_join(cancelling, NULL);
    CHECK_INT(mix.failed, 0);
    CHECK_INT(mix.holding, 0);
    if (!CHECK(test_peek(store, "key", mix.limit, 0).remaining == 3))
        printf("%s: %lld are left\n", text,
               (long long)test_peek(store, "key", mix.limit, 0).remaining);
    end();
    weir_limit_free((weir_limit *)mix.limit);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    alarm(300); /* a wait that never ends has failed */
    test_cancelled_while_claimed();
    if (HANDLERS_RUN) {
        test_held_up("fixed-window 3/s", 1);
        test_held_up("sliding-log 3/s", 1);
        test_held_up("sliding-log 3/2s", 0);
        test_late();
    }
    test_mix("concurrent 3 lease 1h", true, rounds);
    test_mix("fixed-window 3/d from-first", false, rounds);
    test_mix("concurrent 3 lease 1h, token-bucket 1000000/s", true, rounds);
    return test_report();
}

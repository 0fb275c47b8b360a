/*
 * Many threads and every verb: groups over several keys in any order, batches, corrections, leases,
 * several limits at once. What was told adds up to what the states hold; nothing deadlocks.
 *
 *     threads_groups [ROUNDS [SEED]]
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "crew.h"

#define KEYS 6

static const char *const names[KEYS] = {"a", "b", "c", "d", "e", "f"};

struct job {
    weir_store *store;
    weir_limit *limits[KEYS];
    int turns;
    _Atomic long told[KEYS];
    _Atomic long held;
    _Atomic long failures;
};

static void forget(struct job *job)
{
    for (int i = 0; i < KEYS; i++) {
        CHECK_INT(weir_reset(job->store, weir_key_text(names[i])), 0);
        weir_limit_free(job->limits[i]);
        job->limits[i] = NULL;
        job->told[i] = 0;
    }
    CHECK_INT(job->failures, 0);
    job->failures = 0;
    test_sound(job->store);
}

/* What the states hold is what was told, key by key. */
static void add_up(struct job *job)
{
    for (int i = 0; i < KEYS; i++) {
        weir_decision peeked = test_peek(job->store, names[i], job->limits[i], 0);
        CHECK_INT(peeked.limit - peeked.remaining, job->told[i]);
    }
}

/* All or nothing over a random choice of keys, in random order. */
static void take_groups(struct hand *hand)
{
    struct job *job = hand->job;
    for (int turn = 0; turn < job->turns; turn++) {
        int order[KEYS], count = 1 + (int)hand_random(hand, KEYS);
        weir_request requests[KEYS];
        for (int i = 0; i < KEYS; i++) {
            int at = (int)hand_random(hand, (uint64_t)i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        for (int i = 0; i < count; i++) {
            requests[i] = weir_request_make(weir_key_text(names[order[i]]), job->limits[order[i]]);
            requests[i].cost = 1 + (int64_t)hand_random(hand, 3);
        }
        weir_decision decision;
        if (weir_take_all(job->store, requests, (size_t)count, &decision))
            job->failures++;
        for (int i = 0; i < count && decision.allowed; i++)
            job->told[order[i]] += requests[i].cost;
    }
}

static void test_groups(struct job *job, uint64_t seed)
{
    static const char *const kinds[KEYS] = {"token-bucket",   "fixed-window",    "sliding-log",
                                            "sliding-window", "sliding-counter", "fixed-window"};
    for (int i = 0; i < KEYS; i++)
        job->limits[i] = test_limit_of("%s %d/d", kinds[i], 4000 + 500 * i);
    crew_run(take_groups, job, seed);
    add_up(job);
    CHECK_INT(test_peek(job->store, names[0], job->limits[0], 1).allowed, false);
    forget(job);
}

/* Whole groups only: all keys agree, and the smallest limit bound. */
static void take_whole(struct hand *hand)
{
    struct job *job = hand->job;
    for (int turn = 0; turn < job->turns; turn++) {
        weir_request requests[KEYS];
        weir_decision decision;
        for (int i = 0; i < KEYS; i++) {
            int key = (i * (hand->number % 2 ? 1 : KEYS - 1) + hand->number) % KEYS;
            requests[i] = weir_request_make(weir_key_text(names[key]), job->limits[key]);
        }
        if (weir_take_all(job->store, requests, KEYS, &decision))
            job->failures++;
        else if (decision.allowed)
            job->told[0]++;
    }
}

static void test_whole(struct job *job, uint64_t seed)
{
    for (int i = 0; i < KEYS; i++)
        job->limits[i] = test_limit_of("fixed-window %d/d", i == 4 ? 5000 : 8000);
    crew_run(take_whole, job, seed);
    CHECK_INT(job->told[0], 5000);
    for (int i = 1; i < KEYS; i++)
        job->told[i] = job->told[0];
    add_up(job);
    forget(job);
}

/* Batches of independent requests. */
static void take_batches(struct hand *hand)
{
    struct job *job = hand->job;
    enum { BATCH = 50 };
    for (int turn = 0; turn < job->turns / BATCH * 4; turn++) {
        weir_request requests[BATCH];
        weir_decision decisions[BATCH];
        int keys[BATCH];
        for (int i = 0; i < BATCH; i++) {
            keys[i] = (int)hand_random(hand, KEYS);
            requests[i] = weir_request_make(weir_key_text(names[keys[i]]), job->limits[keys[i]]);
        }
        if (weir_take_many(job->store, requests, BATCH, decisions))
            job->failures++;
        for (int i = 0; i < BATCH; i++)
            job->told[keys[i]] += decisions[i].allowed;
    }
}

static void test_batches(struct job *job, uint64_t seed)
{
    for (int i = 0; i < KEYS; i++)
        job->limits[i] = test_limit_of(i % 2 ? "token-bucket %d/d" : "sliding-log %d/d", 2000 + i);
    crew_run(take_batches, job, seed);
    for (int i = 0; i < KEYS; i++)
        CHECK_INT(job->told[i], 2000 + i);
    add_up(job);
    forget(job);
}

/* Every charge is corrected to something else. */
static void take_and_settle(struct hand *hand)
{
    struct job *job = hand->job;
    for (int turn = 0; turn < job->turns; turn++) {
        int key = (int)hand_random(hand, KEYS);
        int64_t actual = (int64_t)hand_random(hand, 20);
        char receipt[WEIR_RECEIPT_SIZE];
        weir_decision decision;
        if (weir_take(job->store, weir_key_text(names[key]), job->limits[key], 10, &decision) ||
            !decision.allowed) {
            job->failures++;
            continue;
        }
        weir_receipt(&decision, receipt);
        if (weir_settle(job->store, weir_key_text(names[key]), job->limits[key], receipt, actual,
                        NULL))
            job->failures++;
        job->told[key] += actual;
    }
}

static void test_settle(struct job *job, uint64_t seed)
{
    static const char *const kinds[KEYS] = {"token-bucket 1m/d",
                                            "fixed-window 1m/d",
                                            "sliding-log 8k/d, fixed-window 1m/w",
                                            "leaky-bucket 1/d burst 999999",
                                            "sliding-counter 1m/d",
                                            "sliding-window 1m/d"};
    int turns = job->turns;
    job->turns = turns / 4 > 1500 ? 1500 : turns / 4;
    for (int i = 0; i < KEYS; i++)
        job->limits[i] = test_limit(kinds[i]);
    crew_run(take_and_settle, job, seed);
    add_up(job);
    forget(job);
    job->turns = turns;
}

/* Never more held than the count: held is raised after and lowered before the zone does. */
static void hold(struct hand *hand)
{
    struct job *job = hand->job;
    weir_key key = weir_key_text(names[0]);
    uint64_t leases[4] = {0};
    long costs[4] = {0};
    for (int turn = 0; turn < job->turns; turn++) {
        int at = (int)hand_random(hand, 4);
        if (leases[at] && hand_random(hand, 3) == 0) {
            job->failures += weir_renew(job->store, key, job->limits[0], leases[at]) != 0;
        } else if (leases[at]) {
            job->held -= costs[at];
            job->failures += weir_release(job->store, key, job->limits[0], leases[at]) != 0;
            leases[at] = 0;
        } else {
            weir_decision decision = {0};
            costs[at] = 1 + (long)hand_random(hand, 3);
            job->failures +=
                weir_acquire(job->store, key, job->limits[0], costs[at], &decision) != 0;
            leases[at] = decision.lease;
            if (decision.allowed && atomic_fetch_add(&job->held, costs[at]) + costs[at] > 20)
                job->failures++;
        }
    }
    for (int at = 0; at < 4; at++) {
        if (!leases[at])
            continue;
        job->held -= costs[at];
        job->failures += weir_release(job->store, key, job->limits[0], leases[at]) != 0;
    }
}

static void test_leases(struct job *job, uint64_t seed)
{
    for (int i = 0; i < KEYS; i++)
        job->limits[i] = test_limit("concurrent 20 lease 1h, fixed-window 1g/d");
    crew_run(hold, job, seed);
    CHECK_INT(job->held, 0);
    CHECK_INT(test_peek(job->store, names[0], job->limits[0], 20).allowed, true);
    forget(job);
}

/* Several limits at once: the strictest decides, the others are charged no more than it. */
static void take_several(struct hand *hand)
{
    struct job *job = hand->job;
    for (int turn = 0; turn < job->turns; turn++) {
        weir_decision decision = {0};
        int key = turn % KEYS;
        if (weir_take(job->store, weir_key_text(names[key]), job->limits[key], 1, &decision))
            job->failures++;
        job->told[key] += decision.allowed;
    }
}

static void test_several(struct job *job, uint64_t seed)
{
    for (int i = 0; i < KEYS; i++)
        job->limits[i] = test_limit_of("token-bucket 900/d, fixed-window 800/d, sliding-log %d/d, "
                                       "sliding-counter 900/d, concurrent 900 lease 1d",
                                       300 + i);
    crew_run(take_several, job, seed);
    for (int i = 0; i < KEYS; i++)
        CHECK_INT(job->told[i], 300 + i);
    add_up(job);
    forget(job);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    _Atomic int64_t now = START;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int kind = 0; kind < TEST_KINDS; kind++) {
        weir_store *store =
            test_open_patiently(test_url(kind, "groups", "size=1m&large=50%"), &now);
        for (int round = 0; round < rounds; round++) {
            struct job job = {.store = store, .turns = 2000};
            test_groups(&job, seed + (uint64_t)round);
            test_whole(&job, seed + (uint64_t)round);
            test_batches(&job, seed + (uint64_t)round);
            test_settle(&job, seed + (uint64_t)round);
            test_leases(&job, seed + (uint64_t)round);
            test_several(&job, seed + (uint64_t)round);
        }
        weir_zone_info info = test_info(store);
        CHECK_INT(info.evicted_unused + info.evicted_soonest, 0);
        CHECK_INT(info.keys, 0);
        CHECK_INT(info.large_used, 4096); /* of states nothing: a chunk of rows stays */
        weir_store_close(store);
        test_remove(kind, "groups");
    }
    test_remove_directory();
    return test_report();
}

/*
 * Everything at once in a zone far too small: keys and logs that evict each other, more limits than
 * there are rows, resets, leases, corrections, checks and counts, all by many threads. Nothing
 * crashes, deadlocks or is damaged, and nothing is lost: when all keys are forgotten all room is
 * free again.
 *
 *     threads_chaos [TURNS [SEED]]
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "crew.h"

#define LIMITS 90 /* a zone of 64k has 64 rows */
#define KEYS 600
#define HELD 8

struct job {
    weir_store *store;
    weir_limit *limits[LIMITS];
    _Atomic int64_t *now;
    int turns;
    _Atomic long wrong; /* codes that should not come */
    _Atomic long worked, full;
};

struct lease {
    int key, limit;
    uint64_t id;
};

static weir_limit *limit_number(int i)
{
    static const char *const forms[] = {
        "token-bucket %d/s burst 5",
        "fixed-window %d/s",
        "sliding-log %d/s",
        "sliding-window %d/2s",
        "sliding-counter %d/s",
        "smooth %d/s",
        "concurrent %d lease 1s",
        "leaky-bucket %d/m burst 9, sliding-log 30/3s",
        "warmup %d/s over 1s",
        "token-bucket %d/m stepped",
        "fixed-window %d/s zone +14:00",
        "fixed-window %d/month from 31 zone +08:00",
    };
    enum { FORMS = sizeof forms / sizeof forms[0] };
    char text[128];
    snprintf(text, sizeof text, "%s", forms[i % FORMS]);
    char *number = strstr(text, "%d");
    char rest[128];
    snprintf(rest, sizeof rest, "%s", number + 2);
    snprintf(number, sizeof text - (size_t)(number - text), "%d%s", 10 + i, rest);
    return test_limit(text);
}

static weir_key key_number(char room[16], int key)
{
    snprintf(room, 16, "key %d", key);
    return weir_key_text(room);
}

static void judge(struct job *job, int code)
{
    if (code == WEIR_EFULL)
        job->full++;
    else if (code == 0)
        job->worked++;
    else if (code != WEIR_ENOLEASE && code != WEIR_EUNSUPPORTED && code != WEIR_ESHARED)
        job->wrong++;
}

static void take(struct hand *hand, weir_key key, const weir_limit *limit)
{
    struct job *job = hand->job;
    weir_decision decision;
    char receipt[WEIR_RECEIPT_SIZE];
    int code = weir_take(job->store, key, limit, 1 + (int64_t)hand_random(hand, 3), &decision);
    judge(job, code);
    if (code || hand_random(hand, 4))
        return;
    weir_receipt(&decision, receipt);
    int64_t actual = (int64_t)hand_random(hand, 5);
    judge(job, weir_settle(job->store, key, limit, receipt, actual, NULL));
}

static void take_group(struct hand *hand)
{
    struct job *job = hand->job;
    weir_request requests[4];
    char rooms[4][16];
    weir_decision decision;
    for (int i = 0; i < 4; i++) {
        weir_key key = key_number(rooms[i], (int)hand_random(hand, KEYS));
        requests[i] = weir_request_make(key, job->limits[hand_random(hand, LIMITS)]);
    }
    judge(job, weir_take_all(job->store, requests, 4, &decision));
}

static void hold(struct hand *hand, struct lease *lease)
{
    struct job *job = hand->job;
    char room[16];
    weir_decision decision = {0};
    if (lease->id) {
        weir_key key = key_number(room, lease->key);
        const weir_limit *limit = job->limits[lease->limit];
        judge(job, weir_renew(job->store, key, limit, lease->id));
        judge(job, weir_release(job->store, key, limit, lease->id));
    }
    lease->key = (int)hand_random(hand, 30);
    lease->limit = 6 + 10 * (int)hand_random(hand, LIMITS / 10);
    judge(job, weir_acquire(job->store, key_number(room, lease->key), job->limits[lease->limit], 1,
                            &decision));
    lease->id = decision.lease;
}

static void look(struct hand *hand)
{
    struct job *job = hand->job;
    weir_zone_info info;
    weir_error err = {0};
    judge(job, weir_store_info(job->store, &info));
    int code = weir_store_check(job->store, &err);
    if (code && job->wrong == 0)
        printf("%s\n", err.message);
    judge(job, code);
}

static void work(struct hand *hand)
{
    struct job *job = hand->job;
    struct lease leases[HELD] = {0};
    for (int turn = 0; turn < job->turns; turn++) {
        char room[16];
        /* Half the work on few keys, half on all; limits drift, so that rows come free. */
        uint64_t span = hand_random(hand, 2) ? 20 : KEYS;
        weir_key key = key_number(room, (int)hand_random(hand, span));
        const weir_limit *limit =
            job->limits[((uint64_t)turn / 64 + hand_random(hand, 30)) % LIMITS];
        uint64_t what = hand_random(hand, 100);
        if (what < 70)
            take(hand, key, limit);
        else if (what < 80)
            take_group(hand);
        else if (what < 90)
            hold(hand, &leases[hand_random(hand, HELD)]);
        else if (what < 98)
            judge(job, weir_reset(job->store, key));
        else if (hand->number == 0 || what == 99)
            look(hand);
        atomic_fetch_add(job->now, 137);
    }
}

static void run(enum test_kind kind, int turns, uint64_t seed)
{
    _Atomic int64_t now = START;
    weir_store *store = test_open_patiently(test_url(kind, "chaos", "size=64k&large=30%"), &now);
    struct job job = {.store = store, .now = &now, .turns = turns};
    for (int i = 0; i < LIMITS; i++)
        job.limits[i] = limit_number(i);
    crew_run(work, &job, seed);
    test_sound(store);
    CHECK_INT(job.wrong, 0);
    CHECK(job.worked > job.full);
    weir_zone_info info = test_info(store);
    CHECK(info.evicted_fresh > 0);
    CHECK(info.evicted_unused > 0);
    for (int i = 0; i < KEYS; i++) {
        char room[16];
        CHECK_INT(weir_reset(store, key_number(room, i)), 0);
    }
    info = test_info(store);
    CHECK_INT(info.keys, 0);
    CHECK_INT(info.large_used, 0);
    CHECK(info.limits <= 64);
    for (int i = 0; i < LIMITS; i++)
        weir_limit_free(job.limits[i]);
    weir_store_close(store);
    test_remove(kind, "chaos");
}

int main(int argc, char **argv)
{
    int turns = argc > 1 ? atoi(argv[1]) : 10000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int kind = 0; kind < TEST_KINDS; kind++)
        run(kind, turns, seed);
    test_remove_directory();
    return test_report();
}

/*
 * One holder at a time, whatever others do to the room: threads hold leases of `concurrent 1` while
 * they flood a zone that is far too small with buckets and logs, let some logs grow, and check.
 * Nobody is admitted beside a holder.
 *
 *     threads_leases [TURNS [SEED]]
 */
#include "../unit/store_inside.h"
#include "../unit/store_test.h"
#include "crew.h"

#define KEYS 64
#define GROWING 8

struct job {
    weir_store *store;
    weir_limit *one, *log, *bucket;
    int turns;
    _Atomic int holders[KEYS];
    _Atomic int64_t now;
    _Atomic long beside, held, refused, wrong;
};

static void judge(struct job *job, int code)
{
    if (code == WEIR_EFULL)
        job->refused++;
    else if (code)
        job->wrong++;
}

static void flood(struct job *job, struct hand *hand, const weir_limit *limit)
{
    weir_decision decision;
    uint64_t key = weir__random_next(&hand->chance);
    judge(job, weir_take(job->store, weir_key_bytes(&key, sizeof key), limit, 1, &decision));
}

static void grow(struct job *job, struct hand *hand)
{
    char key[24];
    weir_decision decision;
    snprintf(key, sizeof key, "growing %d", (int)hand_random(hand, GROWING));
    judge(job, weir_take(job->store, weir_key_text(key), job->log, 1, &decision));
    job->now += 3;
}

/* Holds a lease while it does something else. */
static void hold(struct job *job, struct hand *hand)
{
    char text[24];
    weir_decision decision = {0};
    int number = (int)hand_random(hand, KEYS);
    snprintf(text, sizeof text, "held %d", number);
    weir_key key = weir_key_text(text);
    int code = weir_acquire(job->store, key, job->one, 1, &decision);
    judge(job, code);
    if (code || !decision.allowed)
        return;
    job->held++;
    job->beside += atomic_fetch_add(&job->holders[number], 1) != 0;
    for (uint64_t i = hand_random(hand, 30); i > 0; i--)
        flood(job, hand, i % 2 ? job->log : job->bucket);
    atomic_fetch_sub(&job->holders[number], 1);
    job->wrong += weir_release(job->store, key, job->one, decision.lease) != 0;
}

static void work(struct hand *hand)
{
    struct job *job = hand->job;
    for (int i = 0; i < job->turns; i++) {
        uint64_t what = hand_random(hand, 200);
        if (what == 0)
            job->wrong += weir_store_check(job->store, NULL) != 0;
        else if (what < 60)
            grow(job, hand);
        else if (what < 120)
            flood(job, hand, what % 2 ? job->log : job->bucket);
        else
            hold(job, hand);
    }
}

int main(int argc, char **argv)
{
    int turns = argc > 1 ? atoi(argv[1]) : 1000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    for (int kind = 0; kind < TEST_KINDS; kind++) {
        static struct job job;
        job = (struct job){
            .store = test_open_patiently(test_url(kind, "leases", "size=128k&large=40%"), NULL),
            .one = test_limit("concurrent 1 lease 1h"),
            .log = test_limit("sliding-log 60/h"),
            .bucket = test_limit("token-bucket 10/h"),
            .turns = turns,
            .now = START};
        test_use_clock(job.store, &job.now);
        crew_run(work, &job, seed);
        CHECK_INT(job.beside, 0);
        CHECK_INT(job.wrong, 0);
        CHECK(job.held > turns);
        CHECK(test_info(job.store).evicted_unused + test_info(job.store).evicted_soonest > 100);
        test_sound(job.store);
        printf("%ld leases held, %ld requests refused for want of room\n", job.held, job.refused);
        weir_store_close(job.store);
        weir_limit_free(job.one);
        weir_limit_free(job.log);
        weir_limit_free(job.bucket);
        test_remove(kind, "leases");
    }
    test_remove_directory();
    return test_report();
}

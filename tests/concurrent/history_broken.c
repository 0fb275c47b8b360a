/*
 * The checker of histories finds what is wrong: the zone's own code, with one thing broken after
 * the other (broken.h), makes histories that nobody can explain. With nothing broken, and the same
 * unusual schedule, all of them are explained.
 *
 *     history_broken [TRIALS [SEED]]      at most so many for each
 */
#include "history_trial.h"

#include "broken.h"

enum broken broken;
_Thread_local uint64_t broken_chance;

static const char *const names[BROKEN_KINDS] = {
    [BROKEN_NOTHING] = "nothing is broken",
    [BROKEN_COMPARE] = "a swap that does not compare",
    [BROKEN_WRITE] = "a swap that does not write",
    [BROKEN_HALVES] = "a swap of halves",
    [BROKEN_TAG] = "a tag that is not read again",
    [BROKEN_SEAL] = "a state that is not sealed",
    [BROKEN_LOOK] = "a state that was read earlier",
    [BROKEN_FREEZE] = "a lock without freezing",
    [BROKEN_FROZEN] = "a frozen state that is changed",
    [BROKEN_THAW] = "a state that is thawed too early",
    [BROKEN_REPORT] = "what is left is told too early",
};

/* Where it would show. */
static struct trial broken_trial(uint64_t seed)
{
    struct trial trial = trial_of(seed);
    trial.processes = false;
    trial.home = TEST_MEMORY;
    trial.clock = RECORD_VIRTUAL;
    trial.hands = 4;
    if (broken == BROKEN_TAG || broken == BROKEN_SEAL)
        trial.shape = 3;
    if (broken == BROKEN_SEAL) { /* fixed windows that have just begun are all alike */
        trial.kind = 3;
        trial.pace_us = 0;
        trial.resets = 45;
    }
    return trial;
}

static bool broken_is_found(struct record_page *page, struct check *check, long trials,
                            uint64_t seed)
{
    struct trial_sum sum = {0};
    for (long i = 0; i < trials; i++) {
        struct trial trial = broken_trial(seed + (uint64_t)i);
        alarm(RECORD_PATIENCE_S);
        if (trial_run(&trial, page, check, !broken, &sum) == CHECK_UNEXPLAINED) {
            printf("%s: found after %ld calls\n", names[broken], sum.calls);
            return true;
        }
    }
    printf("%s: all of %ld calls are explained\n", names[broken], sum.calls);
    return false;
}

int main(int argc, char **argv)
{
    long trials = argc > 1 ? atol(argv[1]) : 4000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct record_page *page = record_page_new();
    struct check *check = check_new();
    for (broken = BROKEN_NOTHING; broken < BROKEN_KINDS; broken++) {
        bool found = broken_is_found(page, check, broken ? trials : 100, seed);
        test_check(found == (broken != BROKEN_NOTHING), __FILE__, __LINE__, names[broken]);
    }
    check_free(check);
    munmap(page, sizeof *page);
    test_remove_directory();
    return test_report();
}

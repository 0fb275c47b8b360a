/*
 * Every answer of a hot key is explained: histories of threads and processes, for every small kind
 * of limit, with takes, peeks, resets, settles, batches and groups, are linearizable. There is an
 * order of all calls that respects real time, and in which the core answers every call as it was
 * answered, field for field (history_check.h).
 *
 *     history [CALLS [SEED]]
 *
 * history_broken shows that the checker finds what is wrong.
 */
#include "history_trial.h"

int main(int argc, char **argv)
{
    long calls = argc > 1 ? atol(argv[1]) : 200000;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct trial_sum sum = {0};
    struct record_page *page = record_page_new();
    struct check *check = check_new();
    while (sum.calls < calls) {
        struct trial trial = trial_of(seed + (uint64_t)sum.trials);
        alarm(RECORD_PATIENCE_S);
        enum check_verdict verdict = trial_run(&trial, page, check, true, &sum);
        test_check(verdict == CHECK_EXPLAINED, __FILE__, __LINE__, "the history is linearizable");
    }
    CHECK(sum.overlaps > 0);
    printf("%ld calls in %ld histories, %ld met a call of another hand; at most %zu ways in one\n",
           sum.calls, sum.trials, sum.overlaps, check->most);
    check_free(check);
    munmap(page, sizeof *page);
    test_remove_directory();
    return test_report();
}

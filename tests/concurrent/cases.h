/*
 * One limit of every algorithm, and what it admits to any number of callers when the clock stands
 * still, is moved on, stands still again: in quarters of the count N, so that the same table serves
 * few keys with high counts and many with low ones.
 */
#ifndef WEIR_CASES_H
#define WEIR_CASES_H

#include "../unit/store_test.h"

#define PHASES 4

static const struct test_case {
    const char *limit; /* @ stands for N, a multiple of 4 that divides a million; # for N-1 */
    int64_t wait_us;
    int64_t step_us; /* between phases */
    int quarters[PHASES];
    int plus; /* admitted in every phase on top of that */
} test_cases[] = {
    {"token-bucket @/s", WEIR_WAIT_DEFAULT, SECOND / 4, {4, 1, 1, 1}, 0},
    {"token-bucket @/h", WEIR_WAIT_DEFAULT, HOUR / 4, {4, 1, 1, 1}, 0},
    {"token-bucket @/s stepped", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 4, 0}, 0},
    {"token-bucket @/s burst @", SECOND / 2, SECOND / 4, {6, 1, 1, 1}, 0},
    {"leaky-bucket @/s burst #", WEIR_WAIT_DEFAULT, SECOND / 4, {4, 1, 1, 1}, 0},
    {"leaky-bucket @/s burst # nodelay", WEIR_WAIT_DEFAULT, SECOND / 4, {4, 1, 1, 1}, 0},
    {"fixed-window @/s", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 4, 0}, 0},
    {"fixed-window @/s from-first", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 4, 0}, 0},
    {"fixed-window @/s zone +05:45", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 4, 0}, 0},
    {"sliding-log @/s", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 4, 0}, 0},
    {"sliding-window @/s precision 100ms", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 4, 0}, 0},
    {"sliding-counter @/s", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 0, 2}, 0},
    {"smooth @/s", SECOND / 4 - 1, SECOND / 4, {1, 1, 1, 1}, 0},
    {"warmup @/s over 10ms", 0, SECOND / 4, {0, 0, 0, 0}, 1},
    {"concurrent @ lease 1s", WEIR_WAIT_DEFAULT, SECOND / 2, {4, 0, 4, 0}, 0},
};

#define TEST_CASES (sizeof test_cases / sizeof test_cases[0])

static inline weir_limit *test_case_limit(const struct test_case *it, int n)
{
    char text[256];
    size_t len = 0;
    for (const char *p = it->limit; *p && len < sizeof text - 16; p++) {
        if (*p == '@' || *p == '#')
            len += (size_t)snprintf(text + len, 16, "%d", *p == '@' ? n : n - 1);
        else
            text[len++] = *p;
    }
    text[len] = 0;
    return test_limit(text);
}

static inline long test_case_admits(const struct test_case *it, int phase, int n)
{
    return (long)it->quarters[phase] * n / 4 + it->plus;
}

/* Asks with the case's wait; by the short way where that is the default. */
static inline int test_case_ask(weir_store *store, weir_key key, const weir_hashed_key *hashed,
                                const struct test_case *it, const weir_limit *limit,
                                weir_decision *ret)
{
    if (it->wait_us == WEIR_WAIT_DEFAULT)
        return hashed ? weir_take_hashed(store, hashed, limit, 1, ret)
                      : weir_take(store, key, limit, 1, ret);
    weir_request request = {.key = key, .limit = limit, .hashed = hashed, .wait_us = it->wait_us};
    return weir_take_all(store, &request, 1, ret);
}

#endif

/*
 * The test harness: checks that count, print what failed with file and line, and one closing line.
 *
 *     int main(void) { test_something(); return test_report(); }
 */
#ifndef WEIR_TEST_H
#define WEIR_TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long test_passed, test_failed;

#define TEST_FAILURES_SHOWN 20

static inline int test_check(int ok, const char *file, int line, const char *what)
{
    if (ok) {
        test_passed++;
    } else if (test_failed++ < TEST_FAILURES_SHOWN) {
        printf("FAIL %s:%d: %s\n", file, line, what);
    }
    return ok;
}

/* Of a random test: what was given, else $WEIR_SEED, which make test sets, else a new one. */
static inline uint64_t test_seed(const char *given)
{
    const char *seed = given ? given : getenv("WEIR_SEED");
    uint64_t value = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)value);
    return value;
}

#define CHECK(condition) test_check(!!(condition), __FILE__, __LINE__, #condition)

#define CHECK_INT(got, expected)                                                                   \
    do {                                                                                           \
        long long test_got = (long long)(got), test_expected = (long long)(expected);              \
        char test_what[256];                                                                       \
        snprintf(test_what, sizeof test_what, "%s is %lld, expected %lld", #got, test_got,         \
                 test_expected);                                                                   \
        test_check(test_got == test_expected, __FILE__, __LINE__, test_what);                      \
    } while (0)

#define CHECK_TEXT(got, expected)                                                                  \
    do {                                                                                           \
        const char *test_got = (got), *test_expected = (expected);                                 \
        char test_what[512];                                                                       \
        snprintf(test_what, sizeof test_what, "%s is \"%s\", expected \"%s\"", #got, test_got,     \
                 test_expected);                                                                   \
        test_check(!strcmp(test_got, test_expected), __FILE__, __LINE__, test_what);               \
    } while (0)

static inline int test_report(void)
{
    printf("%ld passed, %ld failed\n", test_passed, test_failed);
    return test_failed ? 1 : 0;
}

#endif

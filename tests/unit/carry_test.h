/*
 * States of every kind, for tests that carry them from one zone to another: the same calls in two
 * stores must leave states that decide the same, at the same time and later.
 */
#ifndef WEIR_CARRY_TEST_H
#define WEIR_CARRY_TEST_H

#include "store_test.h"

static const char *const carry_limits[] = {
    "token-bucket 10/m",
    "token-bucket 1000/h burst 2000",
    "token-bucket 10/m stepped",
    "leaky-bucket 5/s burst 10",
    "fixed-window 10/d",
    "fixed-window 10/w from-first",
    "sliding-log 300/h",
    "sliding-window 100/m precision 6s",
    "sliding-counter 100/h",
    "smooth 5/s",
    "warmup 5/s over 1m",
    "concurrent 4 lease 1h",
    "token-bucket 7/h, sliding-log 9/h, fixed-window 3/d",
    /* from here on: not in the zone of version 1 that is kept */
    "fixed-window 10/month from 31 zone +08:00",
    "fixed-window 10/year",
    "fixed-window 10/w from mon",
    "fixed-window 10/d zone -12:00",
};
#define CARRY_LIMITS (sizeof carry_limits / sizeof carry_limits[0])
#define CARRY_LIMITS_1 13
static size_t carry_count = CARRY_LIMITS; /* that are filled and compared */
#define CARRY_KEYS 3                      /* of each limit */

static inline const char *carry_key(size_t limit, int i)
{
    static char key[32];
    snprintf(key, sizeof key, "key %zu/%d", limit, i);
    return key;
}

/* What is charged: a bit more for every key, some of it denied. Leaves *now where it ended. */
static inline void carry_fill(weir_store *store, _Atomic int64_t *now, uint64_t leases[CARRY_KEYS],
                              char receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE])
{
    for (size_t l = 0; l < carry_count; l++) {
        weir_limit *limit = test_limit(carry_limits[l]);
        bool leased = strstr(carry_limits[l], "concurrent");
        for (int i = 0; i < CARRY_KEYS; i++) {
            for (int n = 0; n < (leased ? 2 : 5 + 40 * i); n++) {
                test_take(store, carry_key(l, i), limit, 1 + n % 2);
                *now += 70001;
            }
            weir_decision decision = {0};
            if (leased &&
                weir_acquire(store, weir_key_text(carry_key(l, i)), limit, 1, &decision) == 0)
                leases[i] = decision.lease;
        }
        weir_limit_free(limit);
    }
    weir_limit *limit = test_limit("fixed-window 100/d");
    for (int i = 0; i < CARRY_KEYS; i++) {
        weir_decision decision = test_take(store, carry_key(99, i), limit, 10);
        weir_receipt(&decision, receipts[i]);
        if (i > 0)
            CHECK_INT(
                weir_settle(store, weir_key_text(carry_key(99, i)), limit, receipts[i], 3, NULL),
                0);
    }
    weir_limit_free(limit);
}

static inline void carry_same(const char *file, int line, const char *what, weir_decision a,
                              weir_decision b)
{
    char text[400];
    snprintf(text, sizeof text,
             "%s: allowed %d %d, remaining %lld %lld, retry %lld %lld, reset %lld %lld, delay %lld "
             "%lld",
             what, a.allowed, b.allowed, (long long)a.remaining, (long long)b.remaining,
             (long long)a.retry_after_us, (long long)b.retry_after_us, (long long)a.reset_after_us,
             (long long)b.reset_after_us, (long long)a.delay_us, (long long)b.delay_us);
    test_check(a.allowed == b.allowed && a.remaining == b.remaining &&
                   a.retry_after_us == b.retry_after_us && a.reset_after_us == b.reset_after_us &&
                   a.delay_us == b.delay_us && a.limit == b.limit,
               file, line, text);
}

/* Every key decides the same in both stores, now and later. */
static inline void carry_compare(const char *file, int line, weir_store *a, weir_store *b,
                                 _Atomic int64_t *now)
{
    static const int64_t later[] = {0,           1,        999999,  30 * SECOND,
                                    20 * MINUTE, 2 * HOUR, 2 * DAY, 40 * DAY};
    int64_t begin = *now;
    for (size_t l = 0; l < carry_count; l++) {
        weir_limit *limit = test_limit(carry_limits[l]);
        for (int i = 0; i < CARRY_KEYS; i++) {
            for (size_t t = 0; t < sizeof later / sizeof later[0]; t++) {
                *now = begin + later[t];
                for (int64_t cost = 0; cost < 4; cost++)
                    carry_same(file, line, carry_limits[l],
                               test_peek(a, carry_key(l, i), limit, cost),
                               test_peek(b, carry_key(l, i), limit, cost));
            }
        }
        weir_limit_free(limit);
    }
    *now = begin;
}

/* The leases are held, the receipts are known. */
static inline void carry_compare_rest(weir_store *store, const uint64_t leases[CARRY_KEYS],
                                      char receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE])
{
    weir_limit *limit = test_limit("concurrent 4 lease 1h");
    for (int i = 0; i < CARRY_KEYS; i++) {
        if (leases[i])
            CHECK_INT(weir_release(store, weir_key_text(carry_key(11, i)), limit, leases[i]), 0);
    }
    weir_limit_free(limit);
    limit = test_limit("fixed-window 100/d");
    for (int i = 0; i < CARRY_KEYS; i++)
        CHECK_INT(weir_settle(store, weir_key_text(carry_key(99, i)), limit, receipts[i], 3, NULL),
                  i > 0 ? WEIR_ESETTLED : 0);
    weir_limit_free(limit);
}

#endif

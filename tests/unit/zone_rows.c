/*
 * Limits by the hundred thousand: each has a row of its own, is found again by whoever asks for the
 * same limit, and keeps its count. What goes when there are more than fit is in zone_limits.c.
 */
#include "store/zone/rows.h"
#include "store_inside.h"
#include "store_test.h"

static _Atomic int64_t now = START;

/* The n-th limit of a kind: no two alike. */
static weir_limit *numbered(enum weir_kind kind, int n)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    weir_limit_numbers numbers = {.kind = (int32_t)kind,
                                  .count = 10 + n % 1000,
                                  .period_us = HOUR + n / 1000 * SECOND,
                                  .over_us = kind == WEIR_WARMUP ? MINUTE : 0};
    if (weir_limit_make(&numbers, 1, &limit, &err))
        test_give_up("numbered", err.message);
    return limit;
}

static weir_key key_of(char room[32], enum weir_kind kind, int n)
{
    snprintf(room, 32, "key %d of %d", n, (int)kind);
    return weir_key_text(room);
}

/* Takes once under limits from … to; how many had no row. */
static int take_from(weir_store *store, enum weir_kind kind, int from, int to)
{
    int full = 0, others = 0;
    for (int i = from; i < to; i++) {
        char room[32];
        weir_decision decision;
        weir_limit *limit = numbered(kind, i);
        int code = weir_take(store, key_of(room, kind, i), limit, 1, &decision);
        full += code == WEIR_EFULL;
        others += code && code != WEIR_EFULL;
        weir_limit_free(limit);
    }
    CHECK_INT(others, 0);
    return full;
}

/* How many of these keys are not charged once. */
static int forgotten(weir_store *store, enum weir_kind kind, int from, int to, int step)
{
    int count = 0;
    for (int i = from; i < to; i += step) {
        char room[32];
        weir_limit *limit = numbered(kind, i);
        weir_decision decision = {0};
        CHECK_INT(weir_peek(store, key_of(room, kind, i), limit, 0, &decision), 0);
        count += decision.remaining != weir_limit_amount(limit, 0) - 1;
        weir_limit_free(limit);
    }
    return count;
}

/* Small states: none is lost, none is another's. */
static void test_many(enum weir_kind kind, int n)
{
    weir_store *store = test_open("memory:64m", &now);
    CHECK_INT(take_from(store, kind, 0, n), 0);
    weir_zone_info info = test_info(store);
    CHECK_INT(info.limits, n);
    CHECK_INT(info.keys, n);
    CHECK(info.limits_max >= 100000);
    CHECK_INT(info.evicted_unused + info.evicted_soonest, 0);
    CHECK_INT(forgotten(store, kind, 0, n, 7), 0);
    CHECK_INT(test_info(store).limits, n); /* asking found them all */
    test_sound(store);
    weir_store_close(store);
}

int main(void)
{
    test_many(WEIR_TOKEN_BUCKET, 100000);
    test_many(WEIR_FROM_FIRST, 100000);
    test_many(WEIR_SLIDING_COUNTER, 2000);
    return test_report();
}

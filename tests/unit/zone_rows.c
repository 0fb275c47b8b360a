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

/* Large states beside as many rows of the same area: others of them go, no limit is refused. */
static void test_many_large(enum weir_kind kind, int n)
{
    weir_store *store = test_open("memory:64m", &now);
    CHECK_INT(take_from(store, kind, 0, n), 0);
    CHECK(test_info(store).keys > 15000); /* in what the rows leave of the area */
    /* Which go is drawn at random: of the last hundred one goes now and then, never many. */
    CHECK(forgotten(store, kind, n - 100, n, 1) <= 10);
    test_sound(store);
    weir_store_close(store);
}

/* Holds one slot of limits from … to, each of a key of its own; how many had no room. With `freed`
 * each is released at once. */
static int hold_from(weir_store *store, int from, int to, bool freed)
{
    int full = 0;
    for (int i = from; i < to; i++) {
        char room[32];
        weir_decision decision = {0};
        weir_limit *limit = numbered(WEIR_CONCURRENT, i);
        weir_key key = key_of(room, WEIR_CONCURRENT, i);
        int code = weir_acquire(store, key, limit, 1, &decision);
        CHECK(code == WEIR_EFULL || (code == 0 && decision.allowed));
        full += code == WEIR_EFULL;
        if (freed && code == 0)
            CHECK_INT(weir_release(store, key, limit, decision.lease), 0);
        weir_limit_free(limit);
    }
    return full;
}

/* Leases never go. So a zone holds as many as fill half of its large area, beside the rows; and any
 * number of limits whose leases are released. */
static void test_many_leases(void)
{
    weir_store *store = test_open("memory:64m", &now);
    CHECK_INT(hold_from(store, 0, 100000, true), 0);
    test_sound(store);
    weir_store_close(store);
    store = test_open("memory:64m?large=32%", &now); /* 6.4 MB of leases, twice, and 6.5 of rows */
    CHECK_INT(hold_from(store, 0, 100000, false), 0);
    CHECK_INT(test_info(store).limits, 100000);
    CHECK_INT(forgotten(store, WEIR_CONCURRENT, 0, 100000, 7), 0);
    test_sound(store);
    weir_store_close(store);
}

/* Limits that need one of the first rows, beside many that do not, in any order. */
static void test_narrow_beside_wide(void)
{
    static const enum weir_kind narrow[] = {WEIR_SLIDING_COUNTER, WEIR_SMOOTH, WEIR_WARMUP};
    weir_store *store = test_open("memory:64m", &now);
    CHECK_INT(take_from(store, WEIR_FIXED_WINDOW, 0, 20000), 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(take_from(store, narrow[i], 0, 666), 0);
    CHECK_INT(take_from(store, WEIR_FIXED_WINDOW, 20000, 23000), 0);
    CHECK_INT(test_info(store).limits, 24998);
    CHECK_INT(forgotten(store, WEIR_FIXED_WINDOW, 0, 23000, 11), 0);
    CHECK_INT(forgotten(store, WEIR_SLIDING_COUNTER, 0, 666, 1), 0);
    test_sound(store);
    weir_store_close(store);
}

/* Somebody makes up limits without end. A limit that is denied and one that was reserved stay. */
static void test_flood(enum weir_kind kind, int n)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *known = test_limit("fixed-window 3/366d from-first");
    const weir_limit *kept = test_limit("sliding-counter 100/366d");
    weir_decision decision;
    CHECK_INT(weir__store_reserve(store, &kept, 1, NULL), 0);
    for (int i = 0; i < 5; i++)
        CHECK_INT(test_take(store, "known", known, 1).allowed, i < 3);
    CHECK_INT(test_take(store, "kept", kept, 40).allowed, true);
    int full = 0;
    for (int i = 0; i < n; i += 100) {
        now += SECOND / 10; /* a thousand in a second: more than go in a second */
        full += take_from(store, kind, i, i + 100);
        CHECK_INT(weir_take(store, weir_key_text("known"), known, 1, &decision), 0);
        CHECK(!decision.allowed);
    }
    CHECK(full < n);
    CHECK_INT(test_peek(store, "kept", kept, 0).remaining, 60);
    CHECK(test_info(store).limits <= test_info(store).limits_max);
    test_sound(store);
    weir_limit_free(known);
    weir_limit_free((weir_limit *)kept);
    weir_store_close(store);
}

/* Rows whose states are fresh are found without anybody's losing one: ten times as many as fit, a
 * few at a time. */
static void test_passing(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *known = test_limit("fixed-window 3/366d from-first");
    int full = 0;
    for (int i = 0; i < 5; i++)
        CHECK_INT(test_take(store, "known", known, 1).allowed, i < 3);
    for (int i = 0; i < 16000; i += 100) {
        now += 10 * MINUTE; /* six hundred of them are live */
        full += take_from(store, i / 100 % 4 ? WEIR_TOKEN_BUCKET : WEIR_FIXED_WINDOW, i, i + 100);
    }
    CHECK_INT(full, 0);
    CHECK_INT(test_info(store).evicted_unused + test_info(store).evicted_soonest, 0);
    CHECK(!test_take(store, "known", known, 1).allowed);
    test_sound(store);
    weir_limit_free(known);
    weir_store_close(store);
}

int main(void)
{
    test_many(WEIR_TOKEN_BUCKET, 100000);
    test_many(WEIR_FROM_FIRST, 100000);
    test_many(WEIR_SLIDING_COUNTER, 2000);
    test_many_large(WEIR_SLIDING_LOG, 100000);
    test_many_large(WEIR_SLIDING_WINDOW, 100000);
    test_many_leases();
    test_narrow_beside_wide();
    test_passing();
    test_flood(WEIR_FIXED_WINDOW, 100000);
    test_flood(WEIR_SLIDING_COUNTER, 30000);
    return test_report();
}

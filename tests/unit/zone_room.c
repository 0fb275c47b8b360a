/*
 * Who gets room in a full large area: a lease or a log is refused only where there is none to be
 * had. One lapsed lease among thousands is found, one log beside thousands of leases and rows makes
 * way, and a ring that grows is not stopped by small leases between the logs.
 */
#include "store_inside.h"
#include "store_test.h"

#include "base/random.h"

static _Atomic int64_t now = START;

/* A zone whose keys lie where they lay in the last run. */
static weir_store *open_seeded(const char *url, uint64_t seed)
{
    weir_store *store = test_open(url, &now);
    const uint64_t secret[2] = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1, seed};
    weir__zone_set_secret(test_zone(store), secret);
    return store;
}

static weir_key name_key(char room[32], const char *what, long i)
{
    snprintf(room, 32, "%s %ld", what, i);
    return weir_key_text(room);
}

static int acquire(weir_store *store, const char *what, long i, const weir_limit *limit)
{
    char room[32];
    weir_decision decision = {0};
    int code = weir_acquire(store, name_key(room, what, i), limit, 1, &decision);
    CHECK(code || decision.allowed);
    return code;
}

static int take(weir_store *store, const char *what, long i, const weir_limit *limit)
{
    char room[32];
    weir_decision decision = {0};
    int code = weir_take(store, name_key(room, what, i), limit, 1, &decision);
    CHECK(code || decision.allowed);
    return code;
}

/* How many leases of one slot fit. */
static long leases_in(weir_store *store)
{
    return (long)(test_info(store).large_bytes / 2 / WEIR__BLOCK_UNIT);
}

/* Leases fill their half, `lapsing` of them are over soon: so many others get their place, and not
 * one more. */
static void test_lapsed(const char *url, uint64_t seed, long lapsing)
{
    weir_store *store = open_seeded(url, seed);
    weir_limit *lasting = test_limit("concurrent 3 lease 1h"), *soon = test_limit("concurrent 2 "
                                                                                  "lease 1s");
    long most = leases_in(store);
    uint64_t chance = seed;
    for (long i = 0, left = lapsing; i < most; i++) {
        bool lapses = (long)(weir__random_next(&chance) % (uint64_t)(most - i)) < left;
        CHECK_INT(acquire(store, "lease", i, lapses ? soon : lasting), 0);
        left -= lapses;
    }
    CHECK_INT(acquire(store, "early", 0, lasting), WEIR_EFULL);
    now += 2 * SECOND;
    for (long i = 0; i < lapsing; i++)
        CHECK_INT(acquire(store, "next", i, lasting), 0);
    CHECK_INT(acquire(store, "next", lapsing, lasting), WEIR_EFULL);
    test_sound(store);
    weir_limit_free(lasting);
    weir_limit_free(soon);
    weir_store_close(store);
}

/* Fills the half of the leases and then everything else with rows, but for a few blocks. */
static void fill_with_leases_and_rows(weir_store *store, const weir_limit *lease)
{
    struct weir__zone *zone = test_zone(store);
    const uint64_t chunk = WEIR__BLOCK_UNIT << WEIR__CHUNK_ORDER;
    for (long i = 0, most = leases_in(store); i < most; i++)
        CHECK_INT(acquire(store, "lease", i, lease), 0);
    for (long i = 0; test_info(store).large_bytes - weir__blocks_used(zone) >= 2 * chunk; i++) {
        weir_limit *limit = NULL;
        weir_limit_numbers numbers = {.kind = WEIR_FIXED_WINDOW,
                                      .count = 10 + i % 1000,
                                      .period_us = HOUR + i / 1000 * SECOND};
        if (weir_limit_make(&numbers, 1, &limit, NULL) || take(store, "row", i, limit))
            test_give_up("a row", "was not to be had");
        weir_limit_free(limit);
    }
}

/* Few logs beside very many leases and rows: new logs take the place of older ones. */
static void test_few_logs(const char *url, uint64_t seed)
{
    weir_store *store = open_seeded(url, seed);
    weir_limit *lease = test_limit("concurrent 3 lease 1h"), *log = test_limit("sliding-log 5/h");
    int full = 0;
    fill_with_leases_and_rows(store, lease);
    for (long i = 0; i < 1000; i++)
        full += take(store, "log", i, log) == WEIR_EFULL;
    CHECK_INT(full, 0);
    test_sound(store);
    weir_limit_free(lease);
    weir_limit_free(log);
    weir_store_close(store);
}

/* With full=deny no live log makes way, but one that is fresh is found among all others. */
static void test_one_fresh(const char *url, uint64_t seed)
{
    weir_store *store = open_seeded(url, seed);
    weir_limit *lasting = test_limit("sliding-log 5/h"), *soon = test_limit("sliding-log 5/s");
    long most = (long)(test_info(store).large_bytes / WEIR__BLOCK_UNIT);
    long one = (long)(seed * 7919 % (uint64_t)most);
    for (long i = 0; i < most; i++)
        CHECK_INT(take(store, "log", i, i == one ? soon : lasting), 0);
    CHECK_INT(take(store, "early", 0, lasting), WEIR_EFULL);
    now += 2 * SECOND;
    CHECK_INT(take(store, "next", 0, lasting), 0);
    CHECK_INT(take(store, "next", 1, lasting), WEIR_EFULL);
    test_sound(store);
    weir_limit_free(lasting);
    weir_limit_free(soon);
    weir_store_close(store);
}

/* Logs fill the area, every eighth place has a small lease. A ring of leases and a log grow to
 * several hundred cells all the same; nobody's lease is lost. (The log may be, on the way.) */
static void test_growth_between_leases(const char *url, uint64_t seed)
{
    weir_store *store = open_seeded(url, seed);
    weir_limit *one = test_limit("concurrent 1 lease 1h"),
               *many = test_limit("concurrent 500 lease 1h");
    weir_limit *log = test_limit("sliding-log 5/h"), *big = test_limit("sliding-log 500/h");
    long most = (long)(test_info(store).large_bytes / WEIR__BLOCK_UNIT), leases = most / 8;
    for (long i = 0; i < most; i++)
        CHECK_INT(i % 8 ? take(store, "log", i, log) : acquire(store, "lease", i / 8, one), 0);
    int full = 0;
    for (int i = 0; i < 400; i++) {
        full += acquire(store, "many", 0, many) == WEIR_EFULL;
        full += take(store, "big", 0, big) == WEIR_EFULL;
        now++;
    }
    CHECK_INT(full, 0);
    CHECK_INT(test_peek(store, "many 0", many, 0).remaining, 100);
    for (long i = 0; i < leases; i++) {
        char room[32];
        weir_decision decision = {0};
        CHECK_INT(weir_acquire(store, name_key(room, "lease", i), one, 1, &decision), 0);
        CHECK(!decision.allowed);
    }
    test_sound(store);
    weir_limit_free(one);
    weir_limit_free(many);
    weir_limit_free(log);
    weir_limit_free(big);
    weir_store_close(store);
}

/* ---- what those are told who find no room ---- */

/* A denial because there is no room; `in`: when its key may come again. */
static void check_full(weir_store *store, const char *what, long i, const weir_limit *limit,
                       int64_t in)
{
    char room[32];
    uint64_t before = test_info(store).refused;
    weir_decision decision = {0};
    CHECK_INT(weir_take(store, name_key(room, what, i), limit, 1, &decision), 0);
    CHECK(!decision.allowed && decision.full);
    CHECK_INT(decision.retry_after_us, in);
    CHECK_INT(test_info(store).refused, before + 1);
}

/* Logs of one key each fill the area, one every millisecond. Whoever comes then is told when the
 * first of them is fresh, wherever in the table its own key would be, and gets its place then. */
static void test_told_of_logs(const char *url, uint64_t seed, const char *text)
{
    weir_store *store = open_seeded(url, seed);
    weir_limit *limit = test_limit(text);
    long most = (long)(test_info(store).large_bytes / WEIR__BLOCK_UNIT);
    int64_t began = now;
    weir__store_deny_full(store);
    for (long i = 0; i < most; i++, now += 1000)
        CHECK_INT(take(store, "log", i, limit), 0);
    for (long i = 0; i < 500; i++)
        check_full(store, "new", i, limit, began + MINUTE - now);
    CHECK_INT(test_info(store).refused, 500);
    CHECK_INT(test_info(store).evicted_fresh, 0);
    now = began + MINUTE;
    CHECK_INT(take(store, "new", 0, limit), 0);
    check_full(store, "new", 1, limit, SECOND); /* the next is fresh in 1 ms: not before a second */
    test_sound(store);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* Leases fill their half: the first that lapses makes room for another, and no log does. */
static void test_told_of_leases(const char *url)
{
    weir_store *store = open_seeded(url, 1);
    weir_limit *lease = test_limit("concurrent 3 lease 1h"), *log = test_limit("sliding-log 5/m");
    char room[32];
    weir_decision decision = {0};
    weir__store_deny_full(store);
    CHECK_INT(take(store, "log", 0, log), 0);
    for (long i = leases_in(store); i > 0; i--, now += SECOND)
        CHECK_INT(acquire(store, "lease", i, lease), 0);
    int64_t in = HOUR - leases_in(store) * SECOND;
    CHECK_INT(weir_acquire(store, name_key(room, "lease", 0), lease, 1, &decision), 0);
    CHECK(!decision.allowed && decision.full);
    CHECK_INT(decision.retry_after_us, in);
    CHECK_INT(test_info(store).refused, 1);
    now += in;
    CHECK_INT(acquire(store, "lease", 0, lease), 0);
    weir_limit_free(lease);
    weir_limit_free(log);
    weir_store_close(store);
}

/* A log that cannot grow has room again when its own oldest entry has gone. */
static void test_told_of_growth(void)
{
    weir_store *store = open_seeded("memory:64k?full=deny", 1);
    weir_limit *own = test_limit("sliding-log 9/m"), *late = test_limit("sliding-log 9/h");
    long most = (long)(test_info(store).large_bytes / WEIR__BLOCK_UNIT);
    weir__store_deny_full(store);
    for (long i = 1; i < most; i++)
        CHECK_INT(take(store, "log", i, late), 0);
    now += HOUR / 2;
    for (int i = 0; i < 2; i++, now += SECOND)
        CHECK_INT(take(store, "own", 0, own), 0);
    check_full(store, "own", 0, own, MINUTE - 2 * SECOND);
    check_full(store, "new", 0, late, MINUTE - SECOND); /* when all of that log has gone */
    now += MINUTE - 2 * SECOND;
    CHECK_INT(take(store, "own", 0, own), 0);
    weir_limit_free(own);
    weir_limit_free(late);
    weir_store_close(store);
}

/* Without full=deny a log makes way. That is counted as an eviction, and nobody is refused. */
static void test_evicted_is_counted(void)
{
    weir_store *store = open_seeded("memory:64k", 1);
    weir_limit *limit = test_limit("sliding-log 5/m");
    long most = (long)(test_info(store).large_bytes / WEIR__BLOCK_UNIT);
    for (long i = 0; i < 3 * most; i++)
        CHECK_INT(take(store, "log", i, limit), 0);
    weir_zone_info info = test_info(store);
    CHECK_INT(info.evicted_unused, 2 * most);
    CHECK_INT(info.evicted_fresh + info.evicted_soonest + info.refused, 0);
    CHECK_INT(info.keys, most);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* A limit that finds no row is refused like a state that finds no room. */
static void test_rows_are_counted(void)
{
    weir_store *store = open_seeded("memory:64k?full=deny", 1);
    long full = 0, rows = (long)test_info(store).limits_max;
    for (long i = 0; i < 2 * rows; i++) {
        weir_limit *limit = test_limit_of("fixed-window %ld/h", i + 1);
        full += take(store, "key", i, limit) == WEIR_EFULL;
        weir_limit_free(limit);
    }
    CHECK(full >= rows);
    CHECK_INT(test_info(store).refused, full);
    weir_store_close(store);
}

int main(void)
{
    for (uint64_t seed = 1; seed <= 30; seed++) {
        test_lapsed("memory:256k?large=40%", seed, seed % 3 + 1);
        test_one_fresh("memory:256k?large=40%&full=deny", seed);
        test_growth_between_leases("memory:256k?large=40%", seed);
    }
    test_lapsed("memory:16m?large=60%", 1, 3);
    test_one_fresh("memory:16m?large=60%&full=deny", 1);
    test_growth_between_leases("memory:16m?large=60%", 1);
    test_few_logs("memory:64m", 1);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        test_told_of_logs("memory:64k?full=deny", seed, "sliding-log 5/m");
        test_told_of_logs("memory:64k?full=deny", seed, "sliding-window 5/m");
    }
    test_told_of_logs("memory:1m?full=deny", 1, "sliding-log 5/m");
    test_told_of_leases("memory:64k?full=deny&large=40%");
    test_told_of_leases("memory:64k?large=40%");
    test_told_of_growth();
    test_evicted_is_counted();
    test_rows_are_counted();
    return test_report();
}

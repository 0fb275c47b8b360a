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
    return test_report();
}

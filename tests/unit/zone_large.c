/*
 * Room for logs, windows and leases: fresh ones make way first, a log that outgrows the room is
 * refused whole, what is given back is whole again. And corrections in a full zone: a refund needs
 * no room.
 */
#include "store_inside.h"
#include "store_test.h"

#include "base/random.h"

static _Atomic int64_t now = START;

static const char *name_key(const char *what, long i)
{
    static char key[48];
    snprintf(key, sizeof key, "%.16s %ld", what, i);
    return key;
}

static uint64_t evicted_live(weir_store *store)
{
    weir_zone_info info = test_info(store);
    return info.evicted_unused + info.evicted_soonest;
}

/* Half of the logs are fresh again: new ones take their place, the other half stays. */
static void test_fresh_first(void)
{
    weir_store *store = test_open("memory:64k?large=60%", &now);
    weir_limit *brief = test_limit("sliding-log 5/s"), *lasting = test_limit("sliding-log 5/h");
    uint64_t blocks = test_info(store).large_bytes / WEIR__BLOCK_UNIT;
    for (uint64_t i = 0; i < blocks; i++)
        test_take(store, name_key("log", (long)i), i % 2 ? brief : lasting, 1);
    uint64_t before = evicted_live(store);
    CHECK_INT(test_info(store).large_used, blocks * WEIR__BLOCK_UNIT);
    now += 2 * SECOND;
    for (uint64_t i = 0; i < blocks / 2; i++)
        CHECK_INT(test_take(store, name_key("new", (long)i), lasting, 1).allowed, true);
    CHECK_INT(evicted_live(store), before);
    CHECK(test_info(store).evicted_fresh >= blocks / 2);
    for (uint64_t i = 0; i < blocks && before == 0; i += 2)
        CHECK_INT(test_peek(store, name_key("log", (long)i), lasting, 0).remaining, 4);
    test_sound(store);
    weir_limit_free(brief);
    weir_limit_free(lasting);
    weir_store_close(store);
}

/* Then those charged once, and those charged again last. */
static void test_least_used_first(void)
{
    weir_store *store = test_open("memory:64k?large=60%", &now);
    weir_limit *limit = test_limit("sliding-log 50/h");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++)
            test_take(store, name_key("popular", i), limit, 1);
    }
    for (long i = 0; i < 3000; i++)
        CHECK_INT(test_take(store, name_key("once", i), limit, 1).allowed, true);
    for (int i = 0; i < 20; i++)
        CHECK_INT(test_peek(store, name_key("popular", i), limit, 0).remaining, 47);
    CHECK(test_info(store).evicted_unused > 1000);
    CHECK_INT(test_info(store).evicted_soonest, 0);
    test_sound(store);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* One log grows until it has thrown out everybody; nothing is lost of it on the way. */
static void test_growth(void)
{
    weir_store *store = test_open("memory:64k?large=60%", &now);
    weir_limit *small = test_limit("sliding-log 5/h"), *big = test_limit("sliding-log 500/h");
    for (long i = 0; i < 1000; i++)
        test_take(store, name_key("log", i), small, 1);
    for (int i = 0; i < 500; i++) {
        CHECK_INT(test_take(store, "big", big, 1).remaining, 499 - i);
        now++;
    }
    CHECK_INT(test_take(store, "big", big, 1).allowed, false);
    test_sound(store);
    CHECK_INT(weir_reset(store, weir_key_text("big")), 0);
    for (long i = 0; i < 1000; i++)
        CHECK_INT(weir_reset(store, weir_key_text(name_key("log", i))), 0);
    CHECK_INT(test_info(store).large_used, 0);
    weir_limit_free(small);
    weir_limit_free(big);
    weir_store_close(store);
}

/* A limit whose log could never fit, and four logs of one request that do not fit together. */
static void test_outgrown(void)
{
    static const char *const keys[] = {"one", "two", "three", "four"};
    weir_store *store = test_open("memory:64k?large=60%", &now);
    weir_limit *never = test_limit("sliding-log 100k/h"), *each = test_limit("sliding-log 500/h");
    weir_decision decision = {.limit = 42};
    CHECK_INT(weir_take(store, weir_key_text("key"), never, 1, &decision), WEIR_EFULL);
    CHECK_INT(weir_peek(store, weir_key_text("key"), never, 1, &decision), WEIR_EFULL);
    CHECK_INT(decision.limit, 42);
    int code = 0, taken = 0;
    while (code == 0 && taken < 500) {
        weir_request requests[4];
        for (int i = 0; i < 4; i++)
            requests[i] = weir_request_make(weir_key_text(keys[i]), each);
        code = weir_take_all(store, requests, 4, &decision);
        taken += code == 0;
        now++;
    }
    CHECK_INT(code, WEIR_EFULL);
    CHECK(taken > 100);
    for (int i = 0; i < 4; i++) /* and nothing was charged to any of them */
        CHECK_INT(test_peek(store, keys[i], each, 0).remaining, 500 - taken);
    test_sound(store);
    weir_limit_free(never);
    weir_limit_free(each);
    weir_store_close(store);
    weir_store *without = test_open("memory:64k?large=0", &now);
    weir_limit *log = test_limit("sliding-log 1/h");
    CHECK_INT(weir_take(without, weir_key_text("key"), log, 1, &decision), WEIR_EFULL);
    weir_limit_free(log);
    weir_store_close(without);
}

/* A refund of what is not there evicts nobody; a surcharge of several limits never its own. */
static void test_settle_when_full(void)
{
    weir_store *store = test_open("memory:64k?large=10%", &now);
    weir_limit *limit = test_limit("token-bucket 100/d");
    weir_limit *several = test_limit("fixed-window 100/d, token-bucket 100/d, sliding-log 90/d, "
                                     "sliding-counter 100/d, leaky-bucket 9/d burst 99");
    char receipt[WEIR_RECEIPT_SIZE];
    weir_decision charged = {.time_us = now, .charged = 5};
    weir_receipt(&charged, receipt);
    for (long i = 0; i < 5000; i++)
        test_take(store, name_key("full", i), limit, 1);
    uint64_t before = evicted_live(store), keys = test_info(store).keys;
    for (long i = 0; i < 100; i++)
        CHECK_INT(
            weir_settle(store, weir_key_text(name_key("absent", i)), several, receipt, 1, NULL), 0);
    CHECK_INT(evicted_live(store), before);
    CHECK_INT(test_info(store).keys, keys);
    for (long i = 0; i < 300; i++) {
        const char *key = name_key("charged", i);
        weir_decision rows[5], taken;
        weir_request request = weir_request_make(weir_key_text(key), several);
        request.detail = rows;
        CHECK_INT(weir_take_all(store, &request, 1, &taken), 0);
        weir_receipt(&taken, receipt);
        CHECK_INT(weir_settle(store, weir_key_text(key), several, receipt, 4, NULL), 0);
        request.cost = WEIR_COST_NONE;
        CHECK_INT(weir_peek_all(store, &request, 1, &taken), 0);
        for (int row = 0; row < 5; row++)
            CHECK_INT(rows[row].limit - rows[row].remaining, 4);
    }
    test_sound(store);
    weir_limit_free(limit);
    weir_limit_free(several);
    weir_store_close(store);
}

/* Logs of all sizes come and go: whatever is given back can be had again. */
static void test_churn(void)
{
    weir_store *store = test_open("memory:256k?large=50%", &now);
    weir_limit *limit = test_limit("sliding-log 400/h"), *leases = test_limit("concurrent 300");
    uint64_t chance = 3;
    long refused = 0, outgrown = 0;
    for (long i = 0; i < 200000; i++) {
        const char *key = name_key("churn", (long)(weir__random_next(&chance) % 40));
        uint64_t what = weir__random_next(&chance) % 400;
        weir_decision decision;
        if (what == 0)
            CHECK_INT(weir_reset(store, weir_key_text(key)), 0);
        else if (what % 2) /* there is a place for a large log: leases move */
            outgrown += weir_take(store, weir_key_text(key), limit, 1, &decision) == WEIR_EFULL;
        else /* leases are refused where they would fill more than half of the room */
            refused += weir_take(store, weir_key_text(key), leases, 1, &decision) == WEIR_EFULL;
        now += 1000;
    }
    CHECK(refused > 0);
    CHECK_INT(outgrown, 0);
    test_sound(store);
    for (long i = 0; i < 40; i++)
        CHECK_INT(weir_reset(store, weir_key_text(name_key("churn", i))), 0);
    CHECK_INT(test_info(store).large_used, 0);
    CHECK_INT(test_info(store).keys, 0);
    weir_limit_free(limit);
    weir_limit_free(leases);
    weir_store_close(store);
}

int main(void)
{
    test_fresh_first();
    test_least_used_first();
    test_growth();
    test_outgrown();
    test_settle_when_full();
    test_churn();
    return test_report();
}

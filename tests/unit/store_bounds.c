/* Arguments out of bounds: refused by every verb, with nothing changed and nothing written. */
#include "store_test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Atomic int64_t now = START;

static weir_store *open_store(void)
{
    now = START;
    return test_open("memory:256k?large=30%", &now);
}

static void test_bad_requests(void)
{
    static char big[WEIR_KEY_MAX + 1];
    weir_store *store = open_store();
    weir_limit *limit = test_limit("token-bucket 5/s"), *log = test_limit("sliding-log 5/s");
    const weir_key key = weir_key_text("key");
    const weir_request wrong[] = {
        {.key = key, .limit = NULL, .cost = 1},
        {.key = weir_key_bytes(NULL, 3), .limit = limit, .cost = 1},
        {.key = weir_key_bytes("", 0), .limit = limit, .cost = 1},
        {.key = weir_key_bytes(big, sizeof big), .limit = limit, .cost = 1},
        {.key = weir_key_bytes(big, SIZE_MAX), .limit = limit, .cost = 1}, /* recv() failed */
        {.key = key, .limit = limit, .cost = -1},
        {.key = key, .limit = limit, .cost = WEIR_COST_MAX + 1},
        {.key = key, .limit = limit, .cost = INT64_MAX},
        {.key = key, .limit = limit, .wait_us = -1},
        {.key = key, .limit = limit, .wait_us = WEIR_DURATION_MAX + 1},
        {.key = key, .limit = limit, .least = -1},
        {.key = key, .limit = limit, .least = 2},
        {.key = key, .limit = limit, .cost = WEIR_COST_NONE, .least = 1},
        {.key = key, .limit = limit, .cost = 5, .least = 1, .wait_us = 1},
        {.key = key, .limit = limit, .cost = 5, .least = 1, .wait_us = WEIR_WAIT_ANY},
        {.key = key, .limit = limit, .spare = {0, 1}},
        {.key = key, .limit = limit, .spare_bytes = {[6] = 1}},
    };
    weir_decision decision = {.limit = 42}, both[2];
    for (size_t i = 0; i < COUNT(wrong); i++) {
        weir_request pair[] = {weir_request_make(weir_key_text("other"), log), wrong[i]};
        CHECK_INT(weir_take_all(store, &wrong[i], 1, &decision), WEIR_EINVAL);
        CHECK_INT(weir_peek_all(store, &wrong[i], 1, &decision), WEIR_EINVAL);
        CHECK_INT(weir_take_all(store, pair, 2, &decision), WEIR_EINVAL);
        CHECK_INT(weir_take_many(store, pair, 2, both), WEIR_EINVAL);
        CHECK(both[0].code == 0 && both[0].allowed && both[1].code == WEIR_EINVAL);
        CHECK_INT(weir_reset(store, weir_key_text("other")), 0);
        if (i < 8) {
            CHECK_INT(weir_take(store, wrong[i].key, wrong[i].limit, wrong[i].cost, &decision),
                      WEIR_EINVAL);
            CHECK_INT(weir_peek(store, wrong[i].key, wrong[i].limit, wrong[i].cost, &decision),
                      WEIR_EINVAL);
        }
        if (i > 0 && i < 5)
            CHECK_INT(weir_reset(store, wrong[i].key), WEIR_EINVAL);
        if (i < 5) {
            CHECK_INT(weir_renew(store, wrong[i].key, wrong[i].limit, 1), WEIR_EINVAL);
            CHECK_INT(weir_release(store, wrong[i].key, wrong[i].limit, 1), WEIR_EINVAL);
        }
    }
    CHECK_INT(weir_take_all(store, wrong, 0, &decision), WEIR_EINVAL);
    weir_request seventeen[17],
        twice[] = {weir_request_make(key, limit), weir_request_make(key, limit)};
    char keys[17][16];
    for (int i = 0; i < 17; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        seventeen[i] = weir_request_make(weir_key_text(keys[i]), limit);
    }
    CHECK_INT(weir_take_all(store, seventeen, 17, &decision), WEIR_EINVAL);
    CHECK_INT(weir_take_all(store, twice, 2, &decision), WEIR_ESHARED);
    twice[0].acquire = true;
    CHECK_INT(weir_take_all(store, twice, 1, &decision), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_acquire(store, key, limit, 1, &decision), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_renew(store, key, limit, 1), WEIR_EUNSUPPORTED);
    int64_t times[] = {-1, INT64_C(1) << 53, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < COUNT(times); i++) {
        now = times[i];
        CHECK_INT(weir_take(store, key, limit, 1, &decision), WEIR_EINVAL);
        CHECK_INT(weir_take_all(store, twice + 1, 1, &decision), WEIR_EINVAL);
        CHECK_INT(weir_take_many(store, twice + 1, 1, both), WEIR_EINVAL);
        CHECK_INT(both[0].code, WEIR_EINVAL);
    }
    CHECK_INT(decision.limit, 42);
    CHECK_INT(test_info(store).keys, 0);
    weir_limit_free(limit);
    weir_limit_free(log);
    weir_store_close(store);
}

static void test_bad_settles(void)
{
    static const char *const receipts[] = {"",
                                           "w1",
                                           "w1-",
                                           "w1-1",
                                           "w1-1-",
                                           "w1--1-1",
                                           "w2-1-1",
                                           "w1-1-1 ",
                                           " w1-1-1",
                                           "w1-1-x",
                                           "w1-1-1000000000001",
                                           "w1-9007199254740992-1",
                                           "w1-99999999999999999999-1"};
    weir_store *store = open_store();
    weir_limit *limit = test_limit("token-bucket 5/s"), *leases = test_limit("concurrent 5");
    const weir_key key = weir_key_text("key");
    weir_error err;
    for (size_t i = 0; i < COUNT(receipts); i++) {
        err = (weir_error){0};
        CHECK_INT(weir_settle(store, key, limit, receipts[i], 3, &err), WEIR_ERECEIPT);
        CHECK(err.code == WEIR_ERECEIPT &&
              strstr(err.message, receipts[i][0] ? "w3-17" : "a receipt of its own rows"));
    }
    CHECK_INT(weir_settle(store, key, limit, NULL, 3, NULL), WEIR_EINVAL);
    CHECK_INT(weir_settle(store, key, limit, "w1-1-1", -1, &err), WEIR_EINVAL);
    CHECK_INT(weir_settle(store, key, limit, "w1-1-1", WEIR_COST_MAX + 1, &err), WEIR_EINVAL);
    CHECK_INT(weir_settle(store, key, NULL, "w1-1-1", 1, &err), WEIR_EINVAL);
    CHECK_INT(weir_settle(store, key, leases, "w1-1-1", 2, &err), WEIR_EUNSUPPORTED);
    CHECK_INT(weir_renew(store, key, leases, 0), WEIR_ENOLEASE);
    CHECK_INT(weir_release(store, key, leases, UINT64_MAX), WEIR_ENOLEASE);
    CHECK_INT(test_info(store).keys, 0);
    weir_limit_free(limit);
    weir_limit_free(leases);
    weir_store_close(store);
}

int main(void)
{
    test_bad_requests();
    test_bad_settles();
    weir_store_close(NULL);
    weir_limit_free(NULL);
    return test_report();
}

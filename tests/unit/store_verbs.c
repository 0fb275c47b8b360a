/*
 * The verbs' contracts: what a group answers and which limit bound, batches, leases, keys hashed
 * ahead.
 */
#include "store_test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static _Atomic int64_t now = START;
static int readings; /* of the clock */

static int64_t count_reading(void *context)
{
    readings++;
    return test_clock_now(context);
}

static weir_store *open_store(void)
{
    weir_store *store = test_open("memory:256k?large=30%", NULL);
    weir_clock clock = {count_reading, NULL, &now};
    weir_store_set_clock(store, &clock);
    now = START;
    return store;
}

/* ---- groups ---- */

static void test_group(void)
{
    weir_store *store = open_store();
    weir_limit *pair = test_limit("token-bucket 5/s burst 10, fixed-window 4/m");
    weir_limit *log = test_limit("sliding-log 3/h");
    weir_decision first[2], second[1], folded;
    weir_request requests[] = {weir_request_make(weir_key_text("a"), pair),
                               weir_request_make(weir_key_text("b"), log)};
    requests[0].cost = 2;
    requests[0].detail = first;
    requests[1].detail = second;
    readings = 0;
    CHECK_INT(weir_take_all(store, requests, 2, &folded), 0);
    CHECK_INT(readings, 1);
    CHECK(folded.allowed && first[0].allowed && first[1].allowed && second[0].allowed);
    CHECK_INT(folded.limit, 4);
    CHECK_INT(folded.remaining, 2);
    CHECK_INT(folded.binding, 1); /* the first of those with least left */
    CHECK_INT(folded.reset_after_us, HOUR);
    CHECK_INT(folded.time_us, START);
    CHECK_INT(folded.charged, 2);
    CHECK_INT(first[0].remaining, 8);
    CHECK_INT(first[1].remaining, 2);
    CHECK_INT(second[0].charged, 1);
    CHECK_INT(second[0].remaining, 2);
    requests[1].cost = 3;
    CHECK_INT(weir_take_all(store, requests, 2, &folded), 0);
    CHECK(!folded.allowed && first[0].allowed && first[1].allowed && !second[0].allowed);
    CHECK_INT(folded.binding, 2);
    CHECK_INT(folded.retry_after_us, HOUR);
    CHECK_INT(folded.charged, 0);
    CHECK_INT(first[0].charged, 0);
    CHECK_INT(first[0].remaining, 8); /* uncharged, and so they report themselves */
    requests[0].cost = 5;
    CHECK_INT(weir_take_all(store, requests, 2, &folded), 0);
    CHECK_INT(folded.binding, 1); /* never waits longest */
    CHECK_INT(folded.retry_after_us, WEIR_NEVER);
    CHECK_INT(test_peek(store, "a", pair, 0).remaining, 2);
    CHECK_INT(test_peek(store, "b", log, 0).remaining, 2);
    weir_limit_free(pair);
    weir_limit_free(log);
    weir_store_close(store);
}

static void test_peek_charges_nothing(void)
{
    weir_store *store = open_store();
    weir_limit *limit = test_limit("token-bucket 5/s burst 10, sliding-log 4/m");
    weir_decision rows[2], folded;
    weir_request request = weir_request_make(weir_key_text("key"), limit);
    request.cost = 3;
    request.detail = rows;
    for (int i = 0; i < 3; i++) {
        CHECK_INT(weir_peek_all(store, &request, 1, &folded), 0);
        CHECK(folded.allowed && folded.charged == 0 && folded.remaining == 4);
    }
    CHECK_INT(test_info(store).keys, 0);
    CHECK_INT(weir_take_all(store, &request, 1, &folded), 0);
    CHECK_INT(folded.remaining, 1);
    CHECK_INT(weir_peek_all(store, &request, 1, &folded), 0);
    CHECK(!folded.allowed && rows[0].allowed && !rows[1].allowed);
    CHECK_INT(folded.binding, 1);
    CHECK_INT(rows[0].remaining, 7);
    CHECK_INT(test_take(store, "key", limit, 0).charged, 0); /* cost 0 asks */
    CHECK_INT(test_peek(store, "key", limit, 1).remaining, 1);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* Acquired within a group: one lease names what all keys hold. Each is released by itself. */
static void test_group_leases(void)
{
    weir_store *store = open_store();
    weir_limit *limit = test_limit("concurrent 2, fixed-window 9/m");
    weir_decision first[2], second[2], folded;
    weir_request requests[] = {weir_request_make(weir_key_text("a"), limit),
                               weir_request_make(weir_key_text("b"), limit)};
    requests[0].detail = first;
    requests[1].detail = second;
    requests[0].acquire = requests[1].acquire = true;
    CHECK_INT(weir_take_all(store, requests, 2, &folded), 0);
    CHECK(first[0].lease && first[0].lease == second[0].lease);
    CHECK_INT(first[1].lease, 0);
    CHECK(folded.lease == first[0].lease);
    CHECK_INT(weir_take_all(store, requests, 1, &folded), 0);
    CHECK(folded.lease && folded.lease != second[0].lease); /* another call has another one */
    CHECK_INT(weir_release(store, weir_key_text("b"), limit, folded.lease), WEIR_ENOLEASE);
    CHECK_INT(weir_release(store, weir_key_text("a"), limit, folded.lease), 0);
    CHECK_INT(weir_release(store, weir_key_text("a"), limit, second[0].lease), 0);
    CHECK_INT(weir_release(store, weir_key_text("a"), limit, second[0].lease), WEIR_ENOLEASE);
    CHECK_INT(weir_renew(store, weir_key_text("b"), limit, second[0].lease), 0);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* ---- batches ---- */

static void test_batch(void)
{
    enum { MANY = 100 };
    weir_store *store = open_store();
    weir_limit *limit = test_limit("fixed-window 60/m"), *never = test_limit("sliding-log 100k/m");
    weir_request requests[MANY];
    weir_decision decisions[MANY];
    for (int i = 0; i < MANY; i++)
        requests[i] = weir_request_make(weir_key_text("key"), limit);
    readings = 0;
    CHECK_INT(weir_take_many(store, requests, MANY, decisions), 0);
    CHECK_INT(readings, 1);
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(decisions[i].allowed, i < 60); /* each by itself, in order */
        CHECK_INT(decisions[i].remaining, i < 60 ? 59 - i : 0);
    }
    CHECK_INT(weir_take_many(store, requests, 0, decisions), 0);

    /* A wrong one and one without room: they have their codes, the others are decided. */
    CHECK_INT(weir_reset(store, weir_key_text("key")), 0);
    weir_error errors[2] = {{0}, {0}};
    requests[MANY - 1].cost = -1;
    requests[MANY - 1].error = &errors[0];
    requests[40] = weir_request_make(weir_key_text("other"), never);
    requests[40].error = &errors[1];
    readings = 0;
    CHECK_INT(weir_take_many(store, requests, MANY, decisions), WEIR_EFULL);
    CHECK_INT(readings, 1);
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(decisions[i].code, i == 40 ? WEIR_EFULL : i == MANY - 1 ? WEIR_EINVAL : 0);
        CHECK_INT(decisions[i].limit, decisions[i].code ? 0 : 60);
    }
    CHECK(!strcmp(errors[0].message, "invalid cost -1: expected 0 to 1000000000000"));
    CHECK_INT(errors[1].code, WEIR_EFULL);
    CHECK_INT(test_peek(store, "key", limit, 0).remaining, 0);

    /* The same where all are sound, and where none says its cost. */
    requests[MANY - 1].cost = 1;
    for (int said = 1; said >= 0; said--) {
        CHECK_INT(weir_reset(store, weir_key_text("key")), 0);
        for (int i = 0; i < MANY; i++)
            requests[i].cost = said;
        errors[1] = (weir_error){0};
        CHECK_INT(weir_take_many(store, requests, MANY, decisions), WEIR_EFULL);
        CHECK_INT(errors[1].code, WEIR_EFULL);
        for (int i = 0; i < MANY; i++)
            CHECK(decisions[i].code ? i == 40 : decisions[i].allowed == (i < 61));
    }
    CHECK_INT(test_peek(store, "key", limit, 0).remaining, 0);
    weir_limit_free(limit);
    weir_limit_free(never);
    weir_store_close(store);
}

/* ---- keys ---- */

static void test_keys(void)
{
    static char big[WEIR_KEY_MAX];
    weir_store *store = open_store(), *other = open_store();
    weir_limit *limit = test_limit("fixed-window 9/m");
    weir_decision decision;
    weir_hashed_key hashed, again;
    const weir_key keys[] = {
        weir_key_bytes("\0", 1),           weir_key_bytes("\0\0", 2),
        weir_key_bytes("a\0b", 3),         weir_key_bytes("a", 1),
        weir_key_bytes(big, WEIR_KEY_MAX), weir_key_bytes(big, WEIR_KEY_MAX - 1)};
    for (size_t i = 0; i < COUNT(keys); i++) { /* all different */
        CHECK_INT(weir_key_hash(store, keys[i], &hashed), 0);
        CHECK_INT(weir_take(store, keys[i], limit, 1, &decision), 0);
        CHECK_INT(decision.remaining, 8);
        CHECK_INT(weir_take_hashed(store, &hashed, limit, 1, &decision), 0);
        CHECK_INT(decision.remaining, 7);
        CHECK_INT(weir_take_hashed(other, &hashed, limit, 1, &decision), 0); /* hashed again */
        CHECK_INT(decision.remaining, 8);
        CHECK_INT(weir_take(other, keys[i], limit, 1, &decision), 0);
        CHECK_INT(decision.remaining, 7);
        CHECK_INT(weir_key_hash(other, keys[i], &again), 0);
        CHECK_INT(weir_take_hashed(other, &again, limit, 1, &decision), 0);
        CHECK_INT(decision.remaining, 6);
        weir_request request = {.hashed = &hashed, .limit = limit};
        CHECK_INT(weir_take_all(store, &request, 1, &decision), 0);
        CHECK_INT(decision.remaining, 6);
        CHECK_INT(weir_take_many(store, &request, 1, &decision), 0);
        CHECK_INT(decision.remaining, 5);
        CHECK_INT(weir_reset(store, keys[i]), 0);
        CHECK_INT(test_info(store).keys, 0);
    }
    CHECK_INT(test_info(other).keys, COUNT(keys));
    again.key.len = SIZE_MAX;
    CHECK_INT(weir_take_hashed(other, &again, limit, 1, &decision), WEIR_EINVAL);
    CHECK_INT(weir_key_hash(store, weir_key_bytes(NULL, 0), &hashed), WEIR_EINVAL);
    CHECK_INT(weir_key_hash(store, weir_key_bytes("k", SIZE_MAX), &hashed), WEIR_EINVAL);
    weir_limit_free(limit);
    weir_store_close(store);
    weir_store_close(other);
}

int main(void)
{
    test_group();
    test_peek_charges_nothing();
    test_group_leases();
    test_batch();
    test_keys();
    return test_report();
}

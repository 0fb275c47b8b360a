/*
 * Requests that also take less than their cost, and limits with a cost of their own, through every
 * verb of the library. The vectors (budgets.vec) have the answers of single requests.
 */
#include "store_test.h"

#include "limit/receipt.h"
#include "remote/remote.h"
#include "store/take_or_undo.h"

#include <pthread.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TOKENS "fixed-window 3/m cost 1, fixed-window 1000/h, concurrent 2 lease 1h cost 1"

#define CHECK_MESSAGE(err, text)                                                                   \
    test_check(!strcmp((err).message, (text)), __FILE__, __LINE__, (err).message)

static _Atomic int64_t now = START;

static weir_request ask(const char *key, const weir_limit *limit, int64_t cost, int64_t least)
{
    weir_request request = weir_request_make(weir_key_text(key), limit);
    request.cost = cost;
    request.least = least;
    return request;
}

static weir_decision take(weir_store *store, const weir_request *request)
{
    weir_decision ret = {0};
    CHECK_INT(weir_take_all(store, request, 1, &ret), 0);
    return ret;
}

/* What is left of each limit of a key, by a peek. */
static void check_left(weir_store *store, const char *key, const weir_limit *limit,
                       const int64_t *expected, int line)
{
    weir_decision rows[WEIR_LIMITS_MAX], folded;
    weir_request request = ask(key, limit, WEIR_COST_NONE, 0);
    request.detail = rows;
    CHECK_INT(weir_peek_all(store, &request, 1, &folded), 0);
    for (size_t i = 0; i < limit->count; i++) {
        char what[96];
        snprintf(what, sizeof what, "limit %zu: %lld left, expected %lld", i,
                 (long long)rows[i].remaining, (long long)expected[i]);
        test_check(rows[i].remaining == expected[i], __FILE__, line, what);
    }
}
#define LEFT(store, key, limit, ...)                                                               \
    check_left(store, key, limit, (const int64_t[]){__VA_ARGS__}, __LINE__)

/* ---- what is refused ---- */

static void test_least_refused(void)
{
    static const struct {
        const char *limit;
        int64_t cost, least, wait_us;
        int code;
        const char *message;
    } wrong[] = {
        {"fixed-window 9/m", 4, 5, 0, WEIR_EINVAL, "invalid least 5: expected 1 to 4, the cost"},
        {"fixed-window 9/m", 4, -1, 0, WEIR_EINVAL, "invalid least -1: expected 1 to 4, the cost"},
        {"token-bucket 9/m", 4, 1, 7, WEIR_EINVAL,
         "a request with a least cannot wait: leave out the least or the wait"},
        {"token-bucket 9/m, smooth 9/m", 4, 1, 0, WEIR_EUNSUPPORTED,
         "a request with a least is not for smooth, which shapes: give that limit a cost of its "
         "own, "
         "or leave out the least"},
        {"leaky-bucket 9/m nodelay", 4, 4, WEIR_WAIT_DEFAULT, WEIR_EUNSUPPORTED,
         "a request with a least is not for leaky-bucket, which shapes: give that limit a cost of "
         "its own, or leave out the least"},
    };
    weir_store *store = test_open("memory:1m", &now);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        weir_limit *limit = test_limit(wrong[i].limit);
        weir_error err = {0};
        weir_decision ret;
        weir_request request = ask("k", limit, wrong[i].cost, wrong[i].least);
        request.wait_us = wrong[i].wait_us;
        request.error = &err;
        CHECK_INT(weir_take_all(store, &request, 1, &ret), wrong[i].code);
        CHECK_MESSAGE(err, wrong[i].message);
        err.message[0] = 0;
        CHECK_INT(weir_take_many(store, &request, 1, &ret), wrong[i].code);
        CHECK_INT(ret.code, wrong[i].code);
        weir_limit_free(limit);
    }
    weir_limit *limit = test_limit("token-bucket 9/m");
    weir_error err = {0};
    weir_decision ret;
    weir_request request = ask("k", limit, 4, 1);
    request.error = &err;
    CHECK_INT(weir_wait_for(store, &request, 0, &ret), WEIR_EINVAL);
    CHECK_MESSAGE(err, "a wait takes the whole cost: leave out the least");
    weir_limit_free(limit);
    weir_store_close(store);
}

/* ---- every way to take ---- */

/* Nobody can take more than what was told to be left, and everybody that much. */
static void test_left_is_granted(void)
{
    static const char *const limits[] = {
        "token-bucket 7/3s burst 40",
        "token-bucket 7/2m burst 40",
        "token-bucket 7/3s burst 40 stepped",
        "fixed-window 40/10s",
        "fixed-window 40/10s from-first",
        "sliding-log 40/10s",
        "sliding-window 40/10s",
        "sliding-counter 40/10s",
        "concurrent 40 lease 10s",
    };
    weir_store *store = test_open("memory:1m?large=50%", &now);
    for (size_t i = 0; i < COUNT(limits); i++) {
        weir_limit *limit = test_limit(limits[i]);
        for (int j = 0; j < 300; j++) {
            weir_request most = ask("k", limit, WEIR_COST_MAX, 1);
            weir_decision whole, less, more;
            CHECK_INT(weir_peek_all(store, &most, 1, &whole), 0);
            CHECK_INT(whole.granted, whole.remaining);
            CHECK_INT(whole.allowed, whole.remaining > 0);
            weir_request exact = ask("k", limit, whole.remaining + 1, 0);
            CHECK_INT(weir_peek_all(store, &exact, 1, &more), 0);
            CHECK(!more.allowed && more.granted == 0);
            if (whole.allowed) {
                exact.cost = whole.remaining;
                CHECK_INT(weir_peek_all(store, &exact, 1, &less), 0);
                CHECK(less.allowed && less.granted == exact.cost);
            }
            most.cost = 1 + j % 13;
            take(store, &most);
            now += j % 7 * 400000 + j;
        }
        CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
        weir_limit_free(limit);
    }
    weir_store_close(store);
}

/* weir_take, weir_take_hashed and weir_take_many decide as weir_take_all does. */
static void test_every_way(void)
{
    static const char *const limits[] = {"fixed-window 100/m cost 7", "token-bucket 100/m cost 7",
                                         "sliding-log 100/m cost 7",
                                         "leaky-bucket 9/m burst 9 cost 2"};
    weir_store *store = test_open("memory:1m", &now);
    for (size_t i = 0; i < COUNT(limits); i++) {
        weir_limit *limit = test_limit(limits[i]);
        int64_t own = weir_limit_cost(limit, 0);
        weir_hashed_key hashed;
        weir_decision all, plain, many[2];
        weir_request request = ask("all", limit, 3, 0);
        CHECK_INT(weir_key_hash(store, weir_key_text("hashed"), &hashed), 0);
        for (int j = 0; j < 20; j++) {
            CHECK_INT(weir_take_all(store, &request, 1, &all), 0);
            CHECK_INT(weir_take(store, weir_key_text("plain"), limit, 3, &plain), 0);
            CHECK(!memcmp(&plain, &all, sizeof all));
            CHECK_INT(weir_take_hashed(store, &hashed, limit, 3, &plain), 0);
            CHECK(!memcmp(&plain, &all, sizeof all));
            weir_request two[] = {ask("many", limit, 3, 0), ask("other", limit, WEIR_COST_NONE, 0)};
            CHECK_INT(weir_take_many(store, two, 2, many), 0);
            CHECK(!memcmp(&many[0], &all, sizeof all));
            CHECK(many[1].allowed && many[1].granted == 0 && many[1].charged == 0);
            CHECK_INT(all.granted, all.allowed ? 3 : 0);
            CHECK_INT(all.charged, all.granted);
            if (all.allowed && j < 3)
                CHECK_INT(all.remaining, all.limit - (j + 1) * own);
            CHECK(all.allowed || j > 3);
        }
        weir_limit_free(limit);
    }
    CHECK_INT(weir_limit_cost(NULL, 0), 0);
    weir_store_close(store);
}

static void test_many(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("fixed-window 10/m"), *both = test_limit(TOKENS);
    weir_request four[] = {ask("a", limit, 7, 1), ask("a", limit, 7, 1), ask("a", limit, 7, 1),
                           ask("b", both, 4000, 500)};
    weir_decision rets[4];
    CHECK_INT(weir_take_many(store, four, 4, rets), 0);
    CHECK_INT(rets[0].granted, 7);
    CHECK_INT(rets[1].granted, 3);
    CHECK(!rets[2].allowed && rets[2].granted == 0 && rets[2].charged == 0);
    CHECK_INT(rets[3].granted, 1000);
    LEFT(store, "b", both, 2, 0, 1);
    weir_limit_free(limit);
    weir_limit_free(both);
    weir_store_close(store);
}

/* All requests of a call with a least get the same; the others their cost. */
static void test_several_keys(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *small = test_limit("fixed-window 10/m"), *large = test_limit("fixed-window 100/m");
    weir_decision rows[3], folded;
    weir_error err;
    weir_request three[] = {ask("plain", large, 20, 0), ask("small", small, 50, 4),
                            ask("large", large, 30, 5)};
    for (size_t i = 0; i < COUNT(three); i++)
        three[i].detail = &rows[i];
    CHECK_INT(weir_peek_all(store, three, 3, &folded), 0);
    CHECK(folded.allowed && folded.granted == 10 && folded.charged == 0);
    CHECK(rows[0].granted == 20 && rows[1].granted == 10 && rows[2].granted == 10);
    CHECK_INT(weir_take_all(store, three, 3, &folded), 0);
    CHECK(folded.allowed && folded.granted == 10 && folded.charged == 20); /* the first's */
    CHECK(rows[0].granted == 20 && rows[1].granted == 10 && rows[2].granted == 10);
    CHECK(rows[0].charged == 20 && rows[1].charged == 10 && rows[2].charged == 10);
    CHECK_INT(weir_take_all(store, three, 3, &folded), 0); /* one denies: nothing is charged */
    CHECK(!folded.allowed && folded.granted == 0 && folded.charged == 0);
    CHECK(rows[0].granted == 20 && rows[1].granted == 0 && rows[2].granted == 30);
    LEFT(store, "large", large, 90);
    LEFT(store, "plain", large, 80);
    LEFT(store, "small", small, 0);
    three[2].least = 30; /* judged by the largest least */
    three[1] = ask("other", small, 50, 1);
    CHECK_INT(weir_take_all(store, three, 3, &folded), 0);
    CHECK(!folded.allowed && folded.retry_after_us == WEIR_NEVER);
    three[1].cost = 29;
    three[0].error = &err;
    CHECK_INT(weir_take_all(store, three, 3, &folded), WEIR_EINVAL);
    CHECK_MESSAGE(err, "invalid least 30: expected at most 29, the cost of another request of the "
                       "call, since all get the same");
    weir_limit_free(small);
    weir_limit_free(large);
    weir_store_close(store);
}

/* ---- receipts ---- */

static void test_settled(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit(TOKENS), *own = test_limit("fixed-window 3/m cost 1");
    weir_request request = ask("k", limit, 4000, 500);
    char receipt[WEIR_RECEIPT_SIZE];
    struct weir__correction said;
    weir_error err = {0};
    request.acquire = true;
    weir_decision first = take(store, &request);
    CHECK(first.granted == 1000 && first.lease != 0);
    weir_receipt(&first, receipt);
    CHECK(weir__receipt_read(receipt, &said) && said.charged == 1000);
    CHECK_INT(weir_settle(store, request.key, limit, receipt, 300, &err), 0);
    LEFT(store, "k", limit, 2, 700, 1);
    CHECK_INT(weir_settle(store, request.key, limit, receipt, 300, &err), WEIR_ESETTLED);
    LEFT(store, "k", limit, 2, 700, 1);
    CHECK_INT(weir_release(store, request.key, limit, first.lease), 0);
    CHECK_INT(weir_settle(store, request.key, own, receipt, 300, &err), WEIR_EUNSUPPORTED);
    CHECK_MESSAGE(err, "limits with a cost of their own cannot be settled, and \"fixed-window "
                       "3/m cost 1\" has no other");
    weir_limit_free(limit);
    weir_limit_free(own);
    weir_store_close(store);
}

/* What is given back is what was charged, under every limit. */
static void test_given_back(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit =
        test_limit("fixed-window 30/m cost 3, fixed-window 1000/h, sliding-log 10/m "
                   "cost 3, token-bucket 50/d cost 5, concurrent 2 lease 1h cost 1");
    weir_decision rows[5];
    weir_request request = ask("k", limit, 4000, 500);
    struct weir__part part = {.store = store, .requests = &request, .count = 1};
    request.acquire = true;
    request.detail = rows;
    part.decision = take(store, &request);
    LEFT(store, "k", limit, 27, 0, 7, 45, 1);
    CHECK_INT(weir__part_give_back(&part, &request, limit), 0);
    LEFT(store, "k", limit, 30, 1000, 10, 50, 2);
    request.acquire = false; /* a slot that nobody can name cannot be given back, so nothing is */
    part.decision = take(store, &request);
    CHECK_INT(weir__part_give_back(&part, &request, limit), WEIR_EUNSUPPORTED);
    LEFT(store, "k", limit, 27, 0, 7, 45, 1);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* A wait of a limit with a cost of its own, and one that comes too late. */
static void test_wait(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("token-bucket 1/s burst 2 cost 2, fixed-window 1000/d");
    weir_decision ret;
    for (int i = 0; i < 3; i++) {
        CHECK_INT(weir_wait(store, weir_key_text("k"), limit, 100, HOUR, &ret), 0);
        CHECK(ret.allowed && ret.granted == 100);
    }
    CHECK_INT(weir_wait(store, weir_key_text("k"), limit, 100, SECOND, &ret), 0);
    CHECK(!ret.allowed && ret.granted == 0);
    LEFT(store, "k", limit, 0, 700);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* ---- threads ---- */

struct crew {
    weir_store *store;
    const weir_limit *limit;
    _Atomic int64_t granted;
};

static void *crew_take(void *context)
{
    struct crew *crew = context;
    for (int i = 0; i < 2000; i++) {
        weir_request request = ask("k", crew->limit, 1 + i % 40, 1);
        weir_decision ret = {0};
        if (weir_take_all(crew->store, &request, 1, &ret) == 0)
            crew->granted += ret.granted;
    }
    return NULL;
}

/* Together they are granted what the limit has, to the unit. */
static void test_threads(void)
{
    static const char *const limits[] = {"fixed-window 30000/d", "token-bucket 30000/d",
                                         "sliding-log 30000/d",
                                         "fixed-window 30000/d, token-bucket 90000/d cost 9"};
    for (size_t i = 0; i < COUNT(limits); i++) {
        struct crew crew = {test_open("memory:8m?large=50%", &now), test_limit(limits[i]), 0};
        pthread_t threads[4];
        for (size_t j = 0; j < COUNT(threads); j++)
            pthread_create(&threads[j], NULL, crew_take, &crew);
        for (size_t j = 0; j < COUNT(threads); j++)
            pthread_join(threads[j], NULL);
        CHECK_INT(crew.granted, 30000);
        weir_limit_free((weir_limit *)crew.limit);
        weir_store_close(crew.store);
    }
}

/* ---- the local fallback ---- */

static void test_fallback(void)
{
    weir_store *local = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("fixed-window 30/m cost 3, fixed-window 1000/h");
    weir_decision rows[2], ret;
    weir_request request = ask("k", limit, 4000, 400);
    request.detail = rows;
    struct weir__fallback fallback = {.fail = WEIR__FAIL_LOCAL, .peers = 2, .local = local};
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, now, &ret), 0);
    CHECK(ret.allowed && ret.degraded && ret.granted == 500 && ret.charged == 0);
    CHECK(rows[0].granted == 3 && rows[1].granted == 500 && rows[1].charged == 0);
    request.least = 900; /* more than a share, but not more than the limit */
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, now, &ret), 0);
    CHECK(!ret.allowed && ret.granted == 0 && ret.retry_after_us == SECOND);
    request.least = 1001;
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, now, &ret), 0);
    CHECK(!ret.allowed && ret.retry_after_us == WEIR_NEVER);
    fallback.fail = WEIR__FAIL_OPEN;
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, now, &ret), 0);
    CHECK(ret.allowed && ret.granted == 4000 && ret.charged == 0 && rows[0].granted == 3);
    fallback.fail = WEIR__FAIL_CLOSED;
    CHECK_INT(weir__fallback_decide(&fallback, &request, 1, WEIR__TAKE, now, &ret), 0);
    CHECK(!ret.allowed && ret.granted == 0 && rows[0].granted == 0);
    weir_limit_free(limit);
    weir_store_close(local);
}

int main(void)
{
    test_least_refused();
    test_left_is_granted();
    test_every_way();
    test_many();
    test_several_keys();
    test_settled();
    test_given_back();
    test_wait();
    test_threads();
    test_fallback();
    return test_report();
}

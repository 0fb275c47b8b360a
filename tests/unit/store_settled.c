/* A receipt settles once: repeated, at the same time, under several limits, out of a zone that is
 * full. */
#include "store/store.h"
#include "store_test.h"
#include "weir.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define T0 INT64_C(1700000000000000)
#define THREADS 4
#define ROUNDS 200

static _Atomic int64_t clock_us;

static weir_store *open_store(const char *url)
{
    clock_us = T0;
    return test_open(url, &clock_us);
}

static int64_t left(weir_store *store, const weir_limit *limit)
{
    weir_decision d;
    CHECK_INT(weir_peek(store, weir_key_text("k"), limit, 0, &d), 0);
    return d.remaining;
}

/* The receipt of a take, which is allowed. */
static void take(weir_store *store, const weir_limit *limit, int64_t cost,
                 char ret[WEIR_RECEIPT_SIZE])
{
    weir_decision d;
    CHECK_INT(weir_take(store, weir_key_text("k"), limit, cost, &d), 0);
    CHECK(d.allowed);
    weir_receipt(&d, ret);
}

static int settle(weir_store *store, const weir_limit *limit, const char *receipt, int64_t actual)
{
    return weir_settle(store, weir_key_text("k"), limit, receipt, actual, NULL);
}

static void test_once(weir_store *store, const char *text)
{
    weir_limit *limit = test_limit(text);
    char first[WEIR_RECEIPT_SIZE], second[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, limit, 400, first);
    take(store, limit, 400, second); /* at the same time, of the same cost */
    CHECK_INT(settle(store, limit, first, 300), 0);
    int64_t once = left(store, limit);
    for (int i = 0; i < 3; i++)
        CHECK_INT(settle(store, limit, first, i * 100), WEIR_ESETTLED);
    CHECK_INT(left(store, limit), once);
    CHECK_INT(settle(store, limit, second, 400), 0); /* nothing changes, and that is settled, too */
    CHECK_INT(settle(store, limit, second, 0), WEIR_ESETTLED);
    CHECK_INT(left(store, limit), once);
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
}

/* Refunded to nothing, its state is gone; the receipt is remembered all the same. */
static void test_gone(weir_store *store)
{
    weir_limit *limit = test_limit("token-bucket 1000/h");
    char first[WEIR_RECEIPT_SIZE], other[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, limit, 400, first);
    CHECK_INT(settle(store, limit, first, 0), 0);
    take(store, limit, 400, other);
    CHECK_INT(settle(store, limit, first, 0), WEIR_ESETTLED);
    CHECK_INT(left(store, limit), 600);
    CHECK_INT(settle(store, limit, "w1-1700000000000000-400", 300),
              0); /* the older form corrects */
    CHECK_INT(settle(store, limit, "w1-1700000000000000-400", 300), 0); /* again and again */
    CHECK_INT(left(store, limit), 800);
    weir_limit_free(limit);
}

/* Each state is settled once, in whatever company. */
static void test_several(weir_store *store)
{
    weir_limit *pair = test_limit("token-bucket 1000/h, fixed-window 1000/d");
    weir_limit *bucket = test_limit("token-bucket 1000/h"),
               *window = test_limit("fixed-window 1000/d");
    char receipt[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, pair, 400, receipt);
    CHECK_INT(settle(store, bucket, receipt, 100), 0);
    CHECK_INT(settle(store, pair, receipt, 100), 0); /* the window alone */
    CHECK_INT(left(store, bucket), 900);
    CHECK_INT(left(store, window), 900);
    CHECK_INT(settle(store, window, receipt, 0), WEIR_ESETTLED);
    CHECK_INT(settle(store, pair, receipt, 0), WEIR_ESETTLED);
    CHECK_INT(left(store, pair), 900);
    weir_limit_free(pair);
    weir_limit_free(bucket);
    weir_limit_free(window);
}

/* Remembered until the state would be fresh, and for an hour at most. */
static void test_forgotten(weir_store *store)
{
    weir_limit *quick = test_limit("fixed-window 1000/s from-first"),
               *slow = test_limit("fixed-window 1000/d from-first");
    char receipt[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, quick, 400, receipt);
    CHECK_INT(settle(store, quick, receipt, 300), 0);
    clock_us = T0 + 999999;
    CHECK_INT(settle(store, quick, receipt, 300), WEIR_ESETTLED);
    clock_us = T0 + 1000000;
    CHECK_INT(settle(store, quick, receipt, 300), 0); /* void: its window is gone */
    CHECK_INT(left(store, quick), 1000);
    clock_us = T0;
    take(store, slow, 400, receipt);
    CHECK_INT(settle(store, slow, receipt, 300), 0);
    clock_us = T0 + HOUR - 1;
    CHECK_INT(settle(store, slow, receipt, 300), WEIR_ESETTLED);
    clock_us = T0 + HOUR;
    CHECK_INT(settle(store, slow, receipt, 300), 0); /* what SPEC says is not caught */
    CHECK_INT(left(store, slow), 800);
    weir_limit_free(quick);
    weir_limit_free(slow);
}

/* Limits that others make up take every row. A receipt is settled once all the same, and no limit's
 * state goes for it. */
static void test_crowded(void)
{
    weir_store *store = open_store("memory:64k");
    weir_limit *limit = test_limit("fixed-window 1000/d");
    weir_zone_info info;
    weir_decision d;
    char receipt[WEIR_RECEIPT_SIZE];
    take(store, limit, 400, receipt);
    for (int i = 0; i < 63; i++) { /* of 64 rows */
        char name[16];
        weir_limit *other = test_limit_of("token-bucket %d/d", 2 + i);
        snprintf(name, sizeof name, "n%d", i);
        CHECK_INT(weir_take(store, weir_key_text(name), other, 1, &d), 0);
        weir_limit_free(other);
    }
    CHECK_INT(settle(store, limit, receipt, 300), 0);
    CHECK_INT(settle(store, limit, receipt, 300), WEIR_ESETTLED);
    CHECK_INT(left(store, limit), 700);
    CHECK_INT(weir_store_info(store, &info), 0);
    CHECK_INT(info.evicted_unused + info.evicted_soonest, 0);
    clock_us += 2 * SECOND;
    for (int i = 0; i < 10; i++) { /* each makes room by a sweep */
        weir_limit *other = test_limit_of("fixed-window %d/h", 2 + i);
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        CHECK_INT(weir_take(store, weir_key_text(name), other, 1, &d), 0);
        weir_limit_free(other);
        clock_us += SECOND;
        CHECK_INT(settle(store, limit, receipt, 300), WEIR_ESETTLED);
    }
    CHECK_INT(weir_store_info(store, &info), 0);
    CHECK(info.limits <= 64);
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* A clock that runs back by more than an hour finds the state, and the settled receipt with it. */
static void test_clock_runs_back(weir_store *store)
{
    weir_limit *limit = test_limit("fixed-window 1000/30d from-first");
    char receipt[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    clock_us = T0 + 5 * HOUR;
    take(store, limit, 400, receipt);
    CHECK_INT(settle(store, limit, receipt, 300), 0);
    clock_us = T0;
    CHECK_INT(settle(store, limit, receipt, 300), WEIR_ESETTLED);
    CHECK_INT(left(store, limit), 700);
    weir_limit_free(limit);
}

/* Settled receipts make room for any limit's state, and take room from none. */
static void test_full(void)
{
    weir_store *store = open_store("memory:64k");
    weir_limit *limit = test_limit("fixed-window 1000/d");
    weir_zone_info info;
    char receipt[WEIR_RECEIPT_SIZE];
    for (int i = 0; i < 20000; i++) {
        take(store, limit, 400, receipt);
        CHECK_INT(settle(store, limit, receipt, 0), 0);
    }
    CHECK_INT(weir_store_info(store, &info), 0);
    CHECK(info.keys <= 1); /* they are not keys */
    CHECK_INT(info.evicted_unused + info.evicted_soonest + info.evicted_fresh, 0);
    CHECK(info.evicted_receipts >= 20000 - info.capacity && info.evicted_receipts < 20000);
    int64_t keys = 0;
    for (int i = 0; i < 400; i++) {
        weir_decision d;
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        CHECK_INT(weir_take(store, weir_key_text(name), limit, 1, &d), 0);
        keys++;
    }
    CHECK_INT(weir_store_info(store, &info), 0);
    CHECK_INT((int64_t)info.keys, keys);
    CHECK_INT(info.evicted_unused + info.evicted_soonest, 0);
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
    weir_store_close(store);
}

/* ---- at the same time ---- */

/* Somebody who takes after another's look at the clock and before its lock, a microsecond later. */
static struct crossing {
    weir_store *store;
    const weir_limit *limit;
    bool due;
    char receipt[WEIR_RECEIPT_SIZE];
} crossing;

static int64_t crossed_clock(void *context)
{
    const int64_t now = clock_us;
    (void)context;
    if (crossing.due) {
        crossing.due = false;
        clock_us++;
        take(crossing.store, crossing.limit, 3, crossing.receipt);
    }
    return now;
}

static void take_by(bool many, weir_store *store, const weir_limit *limit,
                    char ret[WEIR_RECEIPT_SIZE])
{
    if (!many) {
        take(store, limit, 3, ret);
        return;
    }
    weir_request request = weir_ask(weir_text("k"), limit);
    request.cost = 3;
    weir_decision d;
    CHECK_INT(weir_take_many(store, &request, 1, &d), 0);
    CHECK(d.allowed);
    weir_receipt(&d, ret);
}

/* Each refund is there in full: nobody's receipt names an entry that is not its own. */
static void test_crossed(weir_store *store, const char *text, bool many)
{
    weir_limit *limit = test_limit(text);
    const weir_clock clock = {.now = crossed_clock};
    char first[WEIR_RECEIPT_SIZE], second[WEIR_RECEIPT_SIZE];
    weir_store_set_clock(store, &clock);
    clock_us = T0;
    CHECK_INT(weir_reset(store, weir_text("k")), 0);
    take(store, limit, 3, first);
    CHECK_INT(settle(store, limit, first, 1), 0);
    crossing = (struct crossing){.store = store, .limit = limit, .due = true};
    take_by(many, store, limit, second);
    CHECK(!crossing.due);
    CHECK_INT(settle(store, limit, second, 1), 0);
    CHECK_INT(settle(store, limit, crossing.receipt, 1), 0);
    CHECK_INT(left(store, limit), 1000 - 3);
    clock_us = T0 - SECOND; /* a clock that runs back is gone by all the same */
    take_by(many, store, limit, second);
    CHECK_INT(strncmp(second, "w3-1699999999000000-3-", 22), 0);
    CHECK_INT(left(store, limit), 1000 - 6);
    test_use_clock(store, &clock_us);
    weir_limit_free(limit);
}

/* The other one opens the window. It is the one that the first receipt names, too. */
static void test_crossed_edge(weir_store *store, const char *text, bool many)
{
    weir_limit *limit = test_limit(text);
    const weir_clock clock = {.now = crossed_clock};
    char receipt[WEIR_RECEIPT_SIZE];
    weir_store_set_clock(store, &clock);
    clock_us = T0;
    CHECK_INT(weir_reset(store, weir_text("k")), 0);
    take(store, limit, 3, receipt); /* in the window before, or emptied */
    CHECK_INT(settle(store, limit, receipt, 0), 0);
    crossing = (struct crossing){.store = store, .limit = limit, .due = true};
    take_by(many, store, limit, receipt);
    CHECK_INT(left(store, limit), 1000 - 6);
    CHECK_INT(settle(store, limit, receipt, 0), 0);
    CHECK_INT(left(store, limit), 1000 - 3);
    test_use_clock(store, &clock_us);
    weir_limit_free(limit);
}

struct race {
    weir_store *store;
    const weir_limit *limit;
    char receipts[ROUNDS][WEIR_RECEIPT_SIZE];
    pthread_barrier_t start;
    _Atomic int settled[ROUNDS], before[ROUNDS];
};

static void *run(void *argument)
{
    struct race *race = argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&race->start);
        int code = settle(race->store, race->limit, race->receipts[i], 0);
        race->settled[i] += code == 0;
        race->before[i] += code == WEIR_ESETTLED;
    }
    return NULL;
}

static void test_race(const char *url)
{
    static struct race race;
    pthread_t threads[THREADS];
    memset(&race, 0, sizeof race);
    race.store = open_store(url);
    race.limit = test_limit("token-bucket 1m/h, sliding-log 5000/d");
    pthread_barrier_init(&race.start, NULL, THREADS);
    for (int i = 0; i < ROUNDS; i++)
        take(race.store, race.limit, 10, race.receipts[i]);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, run, &race), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_INT(race.settled[i], 1);
        CHECK_INT(race.before[i], THREADS - 1);
    }
    CHECK_INT(left(race.store, race.limit), 5000);
    weir_limit_free((weir_limit *)race.limit);
    weir_store_close(race.store);
    pthread_barrier_destroy(&race.start);
}

/* ---- one charge has one receipt ---- */

static weir_request request_of(const char *key, const weir_limit *limit, int64_t cost,
                               weir_decision *detail)
{
    weir_request request = weir_request_make(weir_key_text(key), limit);
    request.cost = cost ? cost : WEIR_COST_NONE;
    request.detail = detail;
    return request;
}

static bool same_receipts(weir_decision *a, weir_decision *b)
{
    char first[WEIR_RECEIPT_SIZE], second[WEIR_RECEIPT_SIZE];
    weir_receipt(a, first);
    weir_receipt(b, second);
    return !strcmp(first, second);
}

static void test_one_receipt(weir_store *store)
{
    weir_limit *hour = test_limit("fixed-window 1000/h"),
               *two = test_limit("fixed-window 900/d, sliding-log 900/d");
    weir_decision a[2], b[2], d;
    char text[WEIR_RECEIPT_SIZE], other[WEIR_RECEIPT_SIZE];
    weir_request requests[2] = {request_of("a", hour, 5, a), request_of("b", two, 5, b)};
    CHECK_INT(weir_take_all(store, requests, 2, &d), 0);
    CHECK(!d.uneven && same_receipts(&d, &a[0]) && same_receipts(&d, &b[1]));
    requests[1].detail = NULL;
    CHECK_INT(weir_take_all(store, requests, 2, &d), 0);
    CHECK(same_receipts(&d, &a[0]));
    requests[1] = request_of("b", two, 4, NULL);
    requests[0].detail = NULL;
    CHECK_INT(weir_take_all(store, requests, 2, &d), 0); /* and no rows: nothing can be settled */
    weir_receipt(&d, text);
    CHECK(d.uneven && d.charged == 5 && text[0] == 0);
    CHECK_INT(settle(store, hour, text, 1), WEIR_ERECEIPT);
    requests[0] = request_of("a", hour, 0, a);
    requests[1].detail = b;
    CHECK_INT(weir_take_all(store, requests, 2, &d), 0);
    weir_receipt(&a[0], text);
    weir_receipt(&b[0], other);
    CHECK(d.uneven && !strncmp(text, "w1-", 3) && !strncmp(other, "w3-", 3));
    CHECK(same_receipts(&b[0], &b[1]) && !same_receipts(&a[0], &b[0]));
    requests[0].cost = 5000;
    CHECK_INT(weir_take_all(store, requests, 2, &d), 0);
    CHECK(!d.allowed && !d.uneven && d.charged == 0);
    requests[1] = request_of("b", two, 3, b);
    CHECK_INT(weir_take_many(store, &requests[1], 1, &d), 0);
    CHECK(d.charged == 3 && same_receipts(&d, &b[0]) && same_receipts(&d, &b[1]));
    requests[1].limit = NULL;
    CHECK_INT(weir_take_many(store, &requests[1], 1, &d), WEIR_EINVAL);
    weir_limit_free(hour);
    weir_limit_free(two);
}

/* ---- without a receipt ---- */

/* What was given back. */
static int64_t refund(weir_store *store, const weir_limit *limit, int64_t amount)
{
    int64_t given[WEIR_LIMITS_MAX];
    CHECK_INT(weir__refund(store, weir_key_text("k"), limit, &(struct weir__refund){amount, 0},
                           given, NULL),
              0);
    return given[0];
}

static void test_refund(weir_store *store, const char *text, int64_t oldest)
{
    weir_limit *limit = test_limit(text);
    char receipt[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    CHECK_INT(refund(store, limit, 5), 0); /* nothing is there */
    CHECK_INT(left(store, limit), 1000);
    take(store, limit, 300, receipt);
    clock_us += 1;
    take(store, limit, 100, receipt);
    int64_t before = left(store, limit);
    CHECK_INT(refund(store, limit, 50), 50);
    CHECK_INT(left(store, limit), before + 50);
    CHECK_INT(refund(store, limit, WEIR_COST_MAX), oldest - 650);
    CHECK_INT(left(store, limit), oldest); /* never more than is charged */
    CHECK_INT(refund(store, limit, 5), oldest < 1000 ? 5 : 0);
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, limit, 300, receipt);
    CHECK_INT(settle(store, limit, receipt, 1500), 0);
    CHECK_INT(refund(store, limit, 99), 99); /* of what is overdrawn */
    CHECK_INT(left(store, limit), 0);
    CHECK_INT(refund(store, limit, 2000), 1401);
    CHECK_INT(left(store, limit), 1000);
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
}

/* A shaper is free earlier. A sliding counter gives nothing of the window before. */
static void test_refund_others(weir_store *store)
{
    weir_limit *smooth = test_limit("smooth 3/s"), *counter = test_limit("sliding-counter 1000/h");
    char receipt[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    CHECK_INT(refund(store, smooth, 5), 0);
    take(store, smooth, 10, receipt);
    CHECK_INT(refund(store, smooth, 4), 4);
    CHECK_INT(refund(store, smooth, 40), 6);
    CHECK_INT(refund(store, smooth, 40), 0);
    take(store, counter, 300, receipt);
    clock_us += INT64_C(3600000000);
    CHECK(left(store, counter) < 1000);
    CHECK_INT(refund(store, counter, 40), 0);
    weir_limit_free(smooth);
    weir_limit_free(counter);
}

/* With an id: 0 if it was given back before. */
static int64_t refund_named(weir_store *store, const weir_limit *limit, int64_t amount,
                            const char *id)
{
    int64_t given[WEIR_LIMITS_MAX] = {0};
    const struct weir__refund it = {amount, weir__refund_id(id, strlen(id))};
    int code = weir__refund(store, weir_key_text("k"), limit, &it, given, NULL);
    CHECK(code == 0 || (code == WEIR_ESETTLED && given[0] == 0));
    return code ? 0 : given[0];
}

/* It counts once, for as long as settled receipts are remembered; others are others. */
static void test_refund_once(weir_store *store, const char *text)
{
    weir_limit *limit = test_limit(text);
    char receipt[WEIR_RECEIPT_SIZE];
    clock_us += INT64_C(86400000000) - clock_us % INT64_C(86400000000); /* no window ends here */
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, limit, 500, receipt);
    clock_us += 1000000;
    CHECK_INT(refund_named(store, limit, 50, "a"), 50);
    CHECK_INT(refund_named(store, limit, 50, "a"), 0);
    clock_us += 1000000;
    take(store, limit, 1, receipt);
    CHECK_INT(refund_named(store, limit, 50, "a"), 0);
    CHECK_INT(refund_named(store, limit, 50, "b"), 50);
    CHECK_INT(refund_named(store, limit, 49, "a"), 49); /* another amount is another refund */
    CHECK_INT(refund(store, limit, 50), 50);
    CHECK_INT(refund(store, limit, 50), 50); /* without an id each time */
    clock_us += INT64_C(3000000000);
    CHECK_INT(refund_named(store, limit, 50, "a"), 0); /* 50 minutes later */
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
}

/* Also where the refund left nothing, and more was charged than there was: what is charged next is
 * not given back for it. */
static void test_refund_of_all(weir_store *store, const char *text, int64_t amount)
{
    weir_limit *limit = test_limit(text);
    char receipt[WEIR_RECEIPT_SIZE];
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, limit, 500, receipt);
    CHECK_INT(refund_named(store, limit, amount, "a"), 500);
    for (int i = 0; i < 3; i++) {
        clock_us += 60000000;
        CHECK_INT(refund_named(store, limit, amount, "a"), 0);
        take(store, limit, i == 0 ? 100 : 1, receipt);
        CHECK_INT(refund_named(store, limit, amount, "a"), 0);
    }
    CHECK_INT(refund_named(store, limit, amount, "b"), 102);
    CHECK_INT(weir_store_check(store, NULL), 0);
    weir_limit_free(limit);
}

/* Several limits: those that were not given back to before are. */
static void test_refund_rest(weir_store *store)
{
    weir_limit *day = test_limit("fixed-window 1000/d"),
               *both = test_limit("fixed-window 1000/d, token-bucket 1000/366d");
    char receipt[WEIR_RECEIPT_SIZE];
    int64_t given[WEIR_LIMITS_MAX];
    const struct weir__refund it = {50, weir__refund_id("r", 1)};
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, both, 300, receipt);
    CHECK_INT(refund_named(store, day, 50, "r"), 50);
    CHECK_INT(weir__refund(store, weir_key_text("k"), both, &it, given, NULL), 0);
    CHECK(given[0] == 0 && given[1] == 50);
    CHECK_INT(weir__refund(store, weir_key_text("k"), both, &it, given, NULL), WEIR_ESETTLED);
    CHECK(given[0] == 0 && given[1] == 0);
    weir_limit_free(day);
    weir_limit_free(both);
}

/* Under the text of another plan: the state keeps the numbers that it was charged under. */
static void test_refund_plan(weir_store *store)
{
    weir_limit *gold = test_limit("fixed-window 5000/d"), *plain = test_limit("fixed-window 9/d");
    char receipt[WEIR_RECEIPT_SIZE];
    struct weir__shown shown[WEIR__SHOWN_MAX];
    size_t count = 0;
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, gold, 300, receipt);
    CHECK_INT(refund(store, plain, 50), 50);
    CHECK_INT(weir__store_show(store, weir_key_text("k"), shown, &count), 0);
    CHECK(count == 1 && shown[0].count == 5000 && shown[0].spent == 250);
    weir_limit_free(gold);
    weir_limit_free(plain);
}

static void test_refund_ids(weir_store *store)
{
    static const char *const texts[] = {
        "token-bucket 1000/366d",         "token-bucket 1000/d stepped",
        "leaky-bucket 1000/d burst 999",  "fixed-window 1000/d",
        "fixed-window 1000/d from-first", "fixed-window 1000/month from 15 zone +08:00",
        "sliding-counter 1000/d",         "sliding-log 1000/d",
        "sliding-window 1000/d",          "smooth 1000/d burst-for 1h",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        test_refund_once(store, texts[i]);
    for (size_t i = 3; i < 6; i++) {
        test_refund_of_all(store, texts[i], 500);
        test_refund_of_all(store, texts[i], 9000);
    }
    test_refund_rest(store);
    test_refund_plan(store);
}

static void test_refunds(weir_store *store)
{
    weir_limit *limit = test_limit("fixed-window 1000/h, fixed-window 60/d cost 1"),
               *own = test_limit("fixed-window 60/d cost 1");
    char receipt[WEIR_RECEIPT_SIZE];
    int64_t given[WEIR_LIMITS_MAX];
    weir_error err;
    test_refund_others(store);
    test_refund_ids(store);
    test_refund(store, "token-bucket 1000/30d", 1000);
    test_refund(store, "token-bucket 1000/h stepped", 1000);
    test_refund(store, "fixed-window 1000/h", 1000);
    test_refund(store, "fixed-window 1000/month from 15", 1000);
    test_refund(store, "sliding-counter 1000/h", 1000);
    test_refund(store, "sliding-log 1000/h", 900);
    test_refund(store, "sliding-window 1000/h", 1000); /* one slot */
    CHECK_INT(weir_reset(store, weir_key_text("k")), 0);
    take(store, limit, 300, receipt);
    CHECK_INT(
        weir__refund(store, weir_key_text("k"), limit, &(struct weir__refund){100, 0}, given, NULL),
        0);
    CHECK_INT(left(store, own), 59); /* left alone */
    CHECK_INT(settle(store, limit, receipt, 100), 0);
    CHECK_INT(
        weir__refund(store, weir_key_text("k"), own, &(struct weir__refund){1, 0}, given, &err),
        WEIR_EUNSUPPORTED);
    CHECK_INT(
        weir__refund(store, weir_key_text("k"), limit, &(struct weir__refund){0, 0}, given, &err),
        WEIR_EINVAL);
    CHECK(strstr(err.message, "invalid amount 0") != NULL);
    CHECK_INT(
        weir__refund(store, weir_key_text("k"), limit, &(struct weir__refund){-1, 0}, given, &err),
        WEIR_EINVAL);
    CHECK_INT(
        weir__refund(store, weir_key_text(""), limit, &(struct weir__refund){1, 0}, given, &err),
        WEIR_EINVAL);
    CHECK_INT(
        weir__refund(store, weir_key_text("k"), NULL, &(struct weir__refund){1, 0}, given, &err),
        WEIR_EINVAL);
    weir_store *far = NULL; /* nobody listens there: the local fallback charges nobody */
    CHECK_INT(weir_store_open("redis://127.0.0.1:1?fail=local&deadline=1s", &far, &err), 0);
    CHECK_INT(
        weir__refund(far, weir_key_text("k"), limit, &(struct weir__refund){1, 0}, given, &err),
        WEIR_EUNREACHABLE);
    weir_store_close(far);
    weir_limit_free(limit);
    weir_limit_free(own);
}

int main(void)
{
    static const char *const limits[] = {
        "token-bucket 1000/h",   "token-bucket 1000/h stepped",    "leaky-bucket 1000/h burst 999",
        "fixed-window 1000/h",   "fixed-window 1000/h from-first", "sliding-log 1000/h",
        "sliding-window 1000/h", "sliding-counter 1000/h",         "smooth 1000/h burst-for 1h",
        "warmup 1000/h over 1h",
    };
    char shared[64];
    snprintf(shared, sizeof shared, "shm:/weir-settled-%d?size=1m&large=50%%", (int)getpid());
    weir_store *store = open_store("memory:1m?large=50%");
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        test_once(store, limits[i]);
    test_gone(store);
    test_several(store);
    test_forgotten(store);
    test_clock_runs_back(store);
    for (int many = 0; many < 2; many++) {
        test_crossed(store, "sliding-log 1000/h", many);
        test_crossed(store, "sliding-window 1000/1ms precision 1us", many);
        test_crossed(store, "token-bucket 1000/30d, sliding-log 1000/h", many);
        test_crossed_edge(store, "fixed-window 1000/h from-first", many);
        test_crossed_edge(store, "fixed-window 1000/us", many);
        test_crossed_edge(store, "sliding-counter 1000/us", many);
        test_crossed_edge(store, "token-bucket 1000/30d, fixed-window 1000/h from-first", many);
    }
    weir_store_close(store);
    store = open_store("memory:1m?large=50%");
    test_one_receipt(store);
    test_refunds(store);
    weir_store_close(store);
    test_full();
    test_crowded();
    test_race("memory:1m?large=50%");
    test_race(shared);
    snprintf(shared, sizeof shared, "/dev/shm/weir-settled-%d", (int)getpid());
    unlink(shared);
    return test_report();
}

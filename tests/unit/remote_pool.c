/*
 * Pools: what one does by itself, step by step. That many of them together never exceed a limit is
 * shown by tests/slices.
 */
#include "core_rig.h"
#include "remote/pool.h"

#define LIFE SECOND
#define SLOT (9 * SECOND)

static const struct weir__slicing tenth = {100000, 2, LIFE};
static struct weir__pools *pools;
static struct weir__pool *pool;
static struct weir__pool_now now;
static struct weir__pool_call call;
static weir_decision row;
static bool refill;

static void begin(const char *limit)
{
    struct weir__rule rule = rule_of(limit);
    struct weir__slice_terms terms;
    weir_key key = {"k", 1};
    uint64_t tag[2];
    int64_t withheld;
    free(pools);
    pools = malloc(weir__pools_size(1));
    CHECK(weir__pools_init(pools, 1) == 0);
    CHECK(weir__slice_terms(&tenth, &rule, &terms));
    weir__pools_tag(pools, key, &rule, tag);
    now = (struct weir__pool_now){5 * SECOND, 5 * SECOND + SLOT, LIFE};
    pool = weir__pools_place(pools, tag, key, &rule, &terms, now.now_us, &withheld);
    CHECK(pool);
    CHECK_INT(withheld, terms.withheld);
}

static enum weir__spend spend(int64_t cost)
{
    return weir__pool_spend(pool, &now, cost, &row, &refill);
}

static bool ask(int64_t need)
{
    return weir__pool_ask(pool, &now, need, now.now_us + 50000, &call);
}

static weir_decision granted(int64_t units)
{
    return (weir_decision){.allowed = true,
                           .granted = units,
                           .charged = units,
                           .remaining = 100,
                           .reset_after_us = LIFE / 2,
                           .time_us = T0 + now.now_us};
}

static weir_decision denied(int64_t retry_us)
{
    return (weir_decision){.retry_after_us = retry_us, .time_us = T0 + now.now_us};
}

/* Hot, and holding 40 of at most 50. */
static void warm(void)
{
    begin("token-bucket 1000/s burst 1000");
    while (spend(1) == WEIR__SPEND_ASK)
        ;
    CHECK_INT(spend(20), WEIR__SPEND_REFILL);
    CHECK(ask(20));
    weir_decision answer = granted(40);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(weir__pool_held(pool, now.now_us), 40);
    CHECK(pool->scarce); /* it asked for more */
    pool->scarce = false;
}

/* Where Redis gives less than was asked for, the next slice is smaller and asked for later. */
static void test_scarce(void)
{
    warm();
    CHECK_INT(spend(14), WEIR__SPEND_LOCAL);
    CHECK(!refill);
    CHECK_INT(spend(1), WEIR__SPEND_LOCAL);
    CHECK(refill);
    pool->scarce = true;
    CHECK_INT(spend(23), WEIR__SPEND_LOCAL);
    CHECK(!refill);
    CHECK_INT(spend(1), WEIR__SPEND_LOCAL);
    CHECK(refill);
    CHECK(ask(0));
    CHECK_INT(call.cost, pool->wanted / 4);
    weir_decision answer = granted(call.cost);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK(!pool->scarce);
}

static void check_terms(const char *limit, struct weir__slicing slicing, int64_t withheld,
                        int64_t most)
{
    struct weir__rule rule = rule_of(limit);
    struct weir__slice_terms terms;
    bool sliced = weir__slice_terms(&slicing, &rule, &terms);
    CHECK_INT(sliced, most >= 2);
    if (!sliced)
        return;
    CHECK_INT(terms.withheld, withheld);
    CHECK_INT(terms.most, most);
    int64_t size = weir__algorithm_of(&rule)->most(&rule);
    weir__rule_withhold(&rule, terms.withheld);
    CHECK_INT(weir__algorithm_of(&rule)->most(&rule), size - terms.withheld);
    CHECK(weir__rule_sound(&rule));
}

static void test_terms(void)
{
    const struct weir__slicing five = {50000, 10, LIFE};
    check_terms("token-bucket 100000/s", five, 5000, 500);
    check_terms("token-bucket 10/s burst 999", five, 49, 4);
    check_terms("token-bucket 10/s burst 400 stepped", five, 20, 2);
    check_terms("leaky-bucket 10/s burst 399 nodelay", five, 20, 2);
    check_terms("leaky-bucket 10/s burst 399", five, 0, 0);
    check_terms("leaky-bucket 10/s burst 399 delay 7", five, 0, 0);
    check_terms("fixed-window 1000/s", five, 0, 5);
    check_terms("fixed-window 1000/m from-first", five, 0, 5);
    check_terms("fixed-window 1000/month", five, 0, 5);
    check_terms("sliding-log 1000/s", five, 50, 5);
    check_terms("sliding-window 1000/s", five, 50, 5);
    check_terms("sliding-counter 1000/s", five, 50, 5);
    check_terms("sliding-counter 399/s", five, 0, 0);
    check_terms("smooth 1000/s", five, 0, 0);
    check_terms("warmup 1000/s over 1s", five, 0, 0);
    check_terms("concurrent 1000", five, 0, 0);
    check_terms("token-bucket 100000/s", (struct weir__slicing){0, 1, LIFE}, 0, 0);
    check_terms("token-bucket 1000g/us", five, INT64_C(50000000000), INT64_C(5000000000));
}

/* Only a hot key has slices, and only a process with a slot. */
static void test_hot(void)
{
    begin("token-bucket 1000/s burst 1000");
    for (int i = 0; i < 3; i++)
        CHECK_INT(spend(1), WEIR__SPEND_ASK);
    CHECK_INT(spend(1), WEIR__SPEND_REFILL);
    CHECK_INT(spend(51), WEIR__SPEND_ASK); /* more than a process may hold */
    now.slot_us = 0;
    CHECK_INT(spend(1), WEIR__SPEND_ASK);
    CHECK(!ask(1));
    now.slot_us = now.now_us + SLOT;
    now.now_us += 3 * LIFE; /* forgotten meanwhile */
    CHECK_INT(spend(1), WEIR__SPEND_ASK);
}

static void test_one_call(void)
{
    warm();
    CHECK_INT(spend(40), WEIR__SPEND_LOCAL);
    CHECK(row.allowed && row.local && row.charged == 40 && row.granted == 40 && row.limit == 1000);
    CHECK_INT(row.remaining, 100);
    CHECK_INT(row.reset_after_us, LIFE / 2);
    CHECK(refill);
    CHECK_INT(spend(5), WEIR__SPEND_REFILL);
    CHECK(ask(5));
    CHECK_INT(call.cost, 50);
    CHECK_INT(call.least, 34);
    CHECK(!ask(5)); /* one in flight */
    CHECK_INT(spend(5), WEIR__SPEND_JOIN);
    weir__pool_lose(pool, &call);
    CHECK_INT(spend(5), WEIR__SPEND_REFILL);
    CHECK(ask(5));
}

/* Held, asked for and on the way back are together never more than 50. */
static void test_most(void)
{
    struct weir__pool_return back;
    warm();
    CHECK(ask(0));
    CHECK_INT(call.cost, 10);
    weir__pool_lose(pool, &call);
    now.now_us += LIFE; /* they are over: not held, but not given back */
    CHECK_INT(weir__pool_held(pool, now.now_us), 0);
    for (int i = 0; i < 60; i++)
        spend(1);
    CHECK(ask(1));
    CHECK_INT(call.cost, 10);
    weir__pool_lose(pool, &call);
    CHECK(weir__pool_give_back(pool, &now, false, &back));
    CHECK_INT(back.left, 40);
    CHECK(!weir__pool_give_back(pool, &now, false, &back));
    CHECK(ask(1));
    CHECK_INT(call.cost, 10); /* on their way */
    weir__pool_lose(pool, &call);
    back.left = 40;
    weir__pool_gave_back(pool, &back);
    CHECK(ask(1));
    CHECK_INT(call.cost, 50);
}

/* A return that nobody answers counts for a while. */
static void test_doubt(void)
{
    struct weir__pool_return back;
    warm();
    CHECK(weir__pool_give_back(pool, &now, true, &back));
    for (int i = 0; i < 60; i++)
        spend(1);
    CHECK(ask(1));
    CHECK_INT(call.cost, 10);
    weir__pool_lose(pool, &call);
    now.now_us += WEIR__POOL_DOUBT_US;
    for (int i = 0; i < 60; i++)
        spend(1);
    CHECK(ask(1));
    CHECK_INT(call.cost, 50);
}

static void test_ends(void)
{
    warm();
    now.now_us += LIFE - 1;
    CHECK_INT(weir__pool_held(pool, now.now_us), 40);
    CHECK_INT(spend(1), WEIR__SPEND_LOCAL);
    now.now_us += 1;
    CHECK(spend(1) != WEIR__SPEND_LOCAL);
    /* with the slot, if that is sooner */
    warm();
    now.now_us += LIFE / 2;
    now.slot_us = now.now_us + LIFE / 2;
    weir__pool_drop(pool);
    for (int i = 0; i < 10; i++)
        spend(1);
    CHECK(ask(1));
    weir_decision answer = granted(20);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(weir__pool_held(pool, now.slot_us - 1), 20);
    CHECK_INT(weir__pool_held(pool, now.slot_us), 0);
}

/* With the window, counted from before the request. */
static void test_window(void)
{
    struct weir__pool_return back;
    begin("fixed-window 1000/s");
    for (int i = 0; i < 30; i++)
        spend(1);
    CHECK(ask(1));
    int64_t sent_us = now.now_us;
    now.now_us += 10000;
    weir_decision answer = granted(30); /* its window ends in half a second */
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(weir__pool_held(pool, sent_us + LIFE / 2 - 1), 30);
    CHECK_INT(weir__pool_held(pool, sent_us + LIFE / 2), 0);
    now.now_us = sent_us + LIFE / 2;
    CHECK(weir__pool_give_back(pool, &now, false, &back));
    CHECK(back.left == 0 && back.lost == 30);
}

/* Times that no clock reaches. */
static void test_huge(void)
{
    weir_decision answer = granted(10), no = denied(INT64_MAX);
    begin("fixed-window 1000/s");
    while (spend(1) == WEIR__SPEND_ASK)
        ;
    answer.reset_after_us = answer.remaining = answer.time_us = INT64_MAX;
    CHECK(ask(1));
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(spend(1), WEIR__SPEND_LOCAL);
    CHECK_INT(weir__pool_drop(pool), call.cost - 1);
    CHECK(ask(1));
    no.reset_after_us = INT64_MAX;
    CHECK(weir__pool_answer(pool, &now, &call, &no));
    CHECK_INT(spend(1), WEIR__SPEND_DENIED);
    now.now_us += LIFE;
    CHECK(spend(1) != WEIR__SPEND_DENIED);
}

/* Late: neither spent nor given back. */
static void test_late(void)
{
    weir_decision answer = granted(50);
    struct weir__pool_return back;
    warm();
    weir__pool_drop(pool);
    CHECK(ask(1));
    struct weir__pool_call first = call;
    now.now_us += 50000;
    CHECK(!weir__pool_answer(pool, &now, &first, &answer));
    CHECK(ask(1));
    CHECK(!weir__pool_answer(pool, &now, &first, &answer));
    CHECK_INT(spend(1), WEIR__SPEND_JOIN);
    CHECK(!weir__pool_give_back(pool, &now, true, &back));
    now.slot_us = now.now_us; /* the slot is gone meanwhile */
    CHECK(!weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(weir__pool_held(pool, now.now_us), 0);
}

/* A server that grants more than it was asked for is not believed. */
static void test_lie(void)
{
    weir_decision answer = granted(1000000);
    warm();
    weir__pool_drop(pool);
    CHECK(ask(1));
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(weir__pool_held(pool, now.now_us), call.cost);
}

/* Without a slot, or too late for the entry of a log, nothing is given back. */
static void test_lost(void)
{
    struct weir__pool_return back;
    warm();
    now.slot_us = 0;
    CHECK(weir__pool_give_back(pool, &now, true, &back));
    CHECK(back.left == 0 && back.lost == 40);
    warm();
    now.now_us += SLOT - WEIR__POOL_DOUBT_US;
    now.slot_us = now.now_us + SLOT; /* renewed, but it might be another one */
    CHECK(weir__pool_give_back(pool, &now, true, &back));
    CHECK(back.left == 0 && back.lost == 40);
    for (int period = 2; period <= 4; period += 2) {
        begin(period == 2 ? "sliding-log 1000/2s" : "sliding-window 1000/4s");
        for (int i = 0; i < 30; i++)
            spend(1);
        CHECK(ask(1));
        weir_decision answer = granted(30);
        CHECK(weir__pool_answer(pool, &now, &call, &answer));
        CHECK(weir__pool_give_back(pool, &now, true, &back));
        CHECK_INT(back.left, period == 2 ? 0 : 30);
    }
}

/* After a denial a process denies by itself, until that much has come. */
static void test_denied(void)
{
    warm();
    weir__pool_drop(pool);
    CHECK(ask(10));
    CHECK(call.least >= 10 && call.least < 50);
    weir_decision answer = denied(30000);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(spend(10), WEIR__SPEND_DENIED);
    CHECK(!row.allowed && row.local && row.charged == 0 && row.granted == 0);
    CHECK_INT(row.retry_after_us, 30000);
    CHECK_INT(spend(50), WEIR__SPEND_ASK); /* that was not asked for */
    CHECK(!ask(0));
    now.now_us += 29999;
    CHECK_INT(spend(1), WEIR__SPEND_DENIED);
    CHECK_INT(row.retry_after_us, 1);
    now.now_us += 1;
    CHECK_INT(spend(1), WEIR__SPEND_REFILL);
    CHECK(ask(1));
    answer = denied(30 * SECOND); /* at most for a life */
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    weir__pool_forgive(pool);
    CHECK_INT(spend(1), WEIR__SPEND_REFILL);
    CHECK(ask(1));
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(spend(1), WEIR__SPEND_DENIED);
    CHECK_INT(row.retry_after_us, 30 * SECOND);
    now.now_us += LIFE;
    CHECK(spend(1) != WEIR__SPEND_DENIED);
}

/* retry_after is never early: what is held may be over by then. */
static void test_denied_held(void)
{
    warm();
    now.slot_us = now.now_us + 20 * SECOND;
    CHECK_INT(spend(20), WEIR__SPEND_LOCAL); /* 20 are left */
    CHECK(ask(25));
    int64_t least = call.least;
    weir_decision answer = denied(LIFE / 2);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(spend(least + 20), WEIR__SPEND_DENIED);
    CHECK_INT(spend(least + 21), WEIR__SPEND_ASK);
    weir__pool_forgive(pool);
    CHECK(ask(25));
    answer = denied(2 * LIFE);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(spend(least + 1), WEIR__SPEND_ASK);
    CHECK_INT(spend(21), least >= 21 ? WEIR__SPEND_DENIED : WEIR__SPEND_ASK);
}

static void test_cold(void)
{
    struct weir__pool_return back;
    warm();
    now.now_us += LIFE / 4;
    CHECK(!weir__pool_give_back(pool, &now, false, &back));
    now.now_us += LIFE / 4;
    CHECK(weir__pool_give_back(pool, &now, false, &back));
    CHECK(back.left == 40 && back.lost == 0);
    CHECK_INT(back.time_us, T0 + 5 * SECOND);
}

/* A leaky bucket knows no LEAST. */
static void test_whole(void)
{
    begin("leaky-bucket 1000/s burst 999 nodelay");
    for (int i = 0; i < 60; i++)
        spend(1);
    CHECK(ask(1));
    CHECK(call.cost == 50 && call.least == 50);
    weir_decision answer = denied(10000);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(spend(50), WEIR__SPEND_DENIED);
    now.now_us += 10000;
    CHECK(ask(1));
    CHECK(call.cost == 18 && call.least == 18);
}

/* A cost may come from two slices; its receipt names the older. */
static void test_two_grants(void)
{
    warm();
    CHECK_INT(spend(30), WEIR__SPEND_LOCAL);
    now.now_us += LIFE / 10;
    CHECK(ask(0));
    weir_decision answer = granted(call.cost);
    CHECK(weir__pool_answer(pool, &now, &call, &answer));
    CHECK_INT(spend(20), WEIR__SPEND_LOCAL);
    CHECK_INT(row.time_us, T0 + 5 * SECOND);
    CHECK_INT(spend(1), WEIR__SPEND_LOCAL);
    CHECK_INT(row.time_us, T0 + 5 * SECOND + LIFE / 10);
}

static struct weir__pool *place(const char *name, const char *limit, int64_t *ret_withheld)
{
    struct weir__rule rule = rule_of(limit);
    struct weir__slice_terms terms;
    weir_key key = {name, strlen(name)};
    uint64_t tag[2];
    weir__slice_terms(&tenth, &rule, &terms);
    weir__pools_tag(pools, key, &rule, tag);
    return weir__pools_place(pools, tag, key, &rule, &terms, now.now_us, ret_withheld);
}

static void test_places(void)
{
    int64_t withheld;
    char name[300];
    warm();
    CHECK(place("k", "token-bucket 1000/s burst 1000", &withheld) == pool);
    CHECK(!place("k", "token-bucket 1000/s burst 500", &withheld)); /* a share of it */
    CHECK_INT(withheld, 100);
    CHECK(!place("k", "token-bucket 1000/s burst 2000", &withheld)); /* while units are held */
    CHECK_INT(withheld, 200);
    weir__pool_drop(pool);
    CHECK(place("k", "token-bucket 1000/s burst 2000", &withheld) == pool);
    CHECK_INT(pool->most, 100);
    CHECK_INT(spend(1), WEIR__SPEND_ASK);
    CHECK(!place("k", "token-bucket 1000/s burst 1000", &withheld));
    CHECK_INT(withheld, 200);
    now.now_us += WEIR__POOL_DOUBT_US; /* the numbers have changed: nobody names the larger one */
    CHECK(place("k", "token-bucket 1000/s burst 1000", &withheld) == pool);
    CHECK_INT(pool->most, 50);
    CHECK(place("k", "sliding-log 1000/s", &withheld) != pool); /* another state */
    memset(name, 'x', sizeof name);
    name[WEIR__POOL_KEY_MAX + 1] = 0;
    CHECK(!place(name, "token-bucket 1000/s", &withheld));
    CHECK_INT(withheld, 100);
    for (int i = 0; i < 100; i++) { /* those that nobody needs give way */
        snprintf(name, sizeof name, "other %d", i);
        now.now_us++;
        CHECK(place(name, "token-bucket 1000/s", &withheld));
    }
    for (size_t i = 0; i < WEIR__POOLS_WAYS; i++)
        pools->pools[i].grants[0].left = 1;
    CHECK(!place("one more", "token-bucket 1000/s", &withheld));
}

int main(void)
{
    test_terms();
    test_hot();
    test_scarce();
    test_one_call();
    test_most();
    test_doubt();
    test_ends();
    test_window();
    test_late();
    test_lie();
    test_huge();
    test_lost();
    test_denied();
    test_denied_held();
    test_cold();
    test_whole();
    test_two_grants();
    test_places();
    free(pools);
    return test_report();
}

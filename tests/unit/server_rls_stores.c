/*
 * The rate limit service on stores that have their ways: keys in different slots of a cluster
 * cannot be taken together, servers are out of reach, a zone is full. What is charged then, and
 * what is answered.
 */
#include "store/store.h"

#include "rls_test.h"

/* A memory store behind a door that refuses what it is told to. */
struct gated {
    struct weir_store base;
    weir_store *inner;
    size_t together;               /* the most requests at once; more are in different slots */
    int decide, take_many, settle; /* what fails, and with what */
    bool degraded;
    int good; /* decisions before they fail */
    int settles;
};

static struct gated gate;

static int gated_decide(weir_store *it, const weir_request *requests, size_t n,
                        enum weir__mode mode, int64_t time_us, weir_decision *ret)
{
    (void)it;
    if (n > gate.together)
        return WEIR_ESLOTS;
    if (gate.decide && gate.good-- <= 0)
        return gate.decide;
    int code = gate.inner->engine->decide(gate.inner, requests, n, mode, time_us, ret);
    ret->degraded = gate.degraded;
    for (size_t i = 0; i < n && gate.degraded; i++)
        requests[i].detail[0].degraded = true;
    return code;
}

static int gated_take_many(weir_store *it, const weir_request *requests, size_t n, int64_t time_us,
                           weir_decision *rets)
{
    (void)it;
    for (size_t i = 0; i < n && gate.take_many; i++)
        rets[i] = (weir_decision){.code = gate.take_many};
    if (gate.take_many)
        return gate.take_many;
    int code = gate.inner->engine->take_many(gate.inner, requests, n, time_us, rets);
    for (size_t i = 0; i < n; i++)
        rets[i].degraded = gate.degraded;
    return code;
}

static int gated_settle(weir_store *it, weir_key key, const weir_limit *limit,
                        const struct weir__correction *correction)
{
    (void)it;
    gate.settles++;
    return gate.settle ? gate.settle
                       : gate.inner->engine->settle(gate.inner, key, limit, correction);
}

static const struct weir__engine engine = {
    .decide = gated_decide, .take_many = gated_take_many, .settle = gated_settle};

static void open_gate(void)
{
    weir_store_close(gate.inner);
    gate = (struct gated){.base = {&engine, {test_clock_now, NULL, &now}}, .together = 16};
    gate.inner = test_open("memory:1m?large=30%", &now);
    now = START;
    store = &gate.base;
    options = (struct weir__rls_options){0};
}

/* What is left of a rule by the store itself. */
static int64_t left_of(const char *key)
{
    begin("d");
    hits(add(key, "x"), 0);
    ask();
    return left(0);
}

/* ---- a cluster ---- */

static void test_slots(void)
{
    open_gate();
    gate.together = 1;
    CHECK(ask_two("two", "five") && left(0) == 1 && left(1) == 4);
    CHECK(ask_two("five", "two") && left(0) == 3 && left(1) == 0);
    CHECK_INT(gate.settles, 0);
    CHECK(!ask_two("five", "two")); /* the first was charged, and is given back */
    CHECK_INT(gate.settles, 1);
    CHECK_INT(left(0), 3);
    CHECK_INT(call.asked[0].decision.charged, 0);
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_ALLOWED);
    CHECK_INT(left_of("five"), 3);
    CHECK(!ask_two("two", "five")); /* what comes behind a denial is only asked about */
    CHECK_INT(gate.settles, 1);
    CHECK_INT(left(1), 3);
    CHECK(!ask_two("banned", "five"));
    CHECK_INT(left_of("five"), 3);
}

static void test_slots_quotas(void)
{
    open_gate();
    gate.together = 1;
    begin("d");
    add("ten", "x");
    add("q1", "x");
    add("q2", "x");
    CHECK(ask() && ask() && left(0) == 8);
    CHECK_INT(call.asked[1].outcome, WEIR__RLS_DENIED);
    CHECK(!ask());
    CHECK_INT(left(0), 8);
    CHECK_INT(left_of("ten"), 8);
    CHECK_INT(left_of("q2"), 0);
}

/* A failure in the middle takes back what was charged before it. */
static void test_slots_failure(void)
{
    open_gate();
    gate.together = 1;
    gate.decide = WEIR_EUNREACHABLE;
    gate.good = 1;
    begin("d");
    add("five", "x");
    add("ten", "x");
    CHECK_INT(plan_it(), 0);
    CHECK_INT(weir__rls_decide(store, &call, &err), WEIR_EUNREACHABLE);
    CHECK(!strcmp(err.message, "the store cannot decide: no server could be reached in time"));
    CHECK_INT(weir__grpc_code_of(err.code), WEIR__GRPC_UNAVAILABLE);
    CHECK_INT(weir__rls_http_status(err.code), 503);
    CHECK_INT(gate.settles, 1);
    gate.decide = 0;
    CHECK_INT(left_of("five"), 5);
}

/* ---- failures ---- */

static void test_failures(void)
{
    open_gate();
    gate.decide = gate.take_many = WEIR_EFULL;
    begin("d");
    add("five", "x");
    CHECK_INT(plan_it(), 0);
    CHECK_INT(weir__rls_decide(store, &call, NULL), WEIR_EFULL);
    CHECK_INT(weir__grpc_code_of(WEIR_EFULL), WEIR__GRPC_RESOURCE_EXHAUSTED);
    begin("d");
    add("tokens", "x");
    CHECK_INT(plan_it(), 0);
    CHECK_INT(weir__rls_decide(store, &call, &err), WEIR_EFULL);
    begin("d"); /* a shadow denies nothing, its store neither */
    add("shady", "x");
    CHECK(ask());
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_NO_RULE);
    begin("d"); /* what needs no store has none to fail */
    add("banned", "x");
    add("unheard", "x");
    CHECK(!ask());
}

static void test_refund_failures(void)
{
    open_gate();
    CHECK(ask_one("five", "x"));
    gate.settle = WEIR_EUNREACHABLE; /* nobody was told: nothing is given back */
    CHECK(refund("five", 1) && left(0) == 4);
    gate.settle = WEIR_EDAMAGED;
    begin("d");
    struct weir__rls_descriptor *descriptor = add("five", "x");
    descriptor->is_negative_hits = true;
    CHECK_INT(plan_it(), 0);
    CHECK_INT(weir__rls_decide(store, &call, &err), WEIR_EDAMAGED);
    gate.settle = 0;
    CHECK(refund("five", 1) && left(0) == 5);
}

/* Decisions of the local fallback are not settled: the servers were charged nothing. */
static void test_degraded(void)
{
    open_gate();
    gate.degraded = true;
    begin("d");
    hits(add("tokens", "x"), 500);
    CHECK(!ask());
    CHECK_INT(gate.settles, 0);
    gate.degraded = false;
    CHECK(!ask());
    CHECK_INT(gate.settles, 1);
    gate.settle = WEIR_EUNREACHABLE; /* the decision stands */
    CHECK(!ask());
}

int main(void)
{
    rls_open();
    test_slots();
    test_slots_quotas();
    test_slots_failure();
    test_failures();
    test_refund_failures();
    test_degraded();
    weir_store_close(gate.inner);
    store = NULL;
    rls_close();
    return test_report();
}

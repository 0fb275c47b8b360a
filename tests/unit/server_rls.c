/*
 * The rate limit service as Envoy meets it: what is answered, what is charged, all or nothing;
 * quotas, shadows, refunds, limits that requests bring.
 */
#include "rls_test.h"

/* ---- one descriptor ---- */

static void test_window(void)
{
    fresh();
    now = START + 20 * SECOND + 250000;
    CHECK(ask_one("two", "a") && left(0) == 1);
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_ALLOWED);
    CHECK_INT(call.asked[0].decision.reset_after_us, 39750000); /* aligned to the epoch */
    CHECK(ask_one("two", "a") && left(0) == 0);
    CHECK(!ask_one("two", "a"));
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_DENIED);
    CHECK(ask_one("two", "b")); /* each value by itself */
    now = START + MINUTE;
    CHECK(ask_one("two", "a") && left(0) == 1);
}

static void test_no_rule(void)
{
    fresh();
    for (int i = 0; i < 20; i++)
        CHECK(ask_one("unheard", "x") && ask_one("listed", "x"));
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_NO_RULE);
    begin("elsewhere");
    add("two", "x");
    bring(add("five", "x"), 0, WEIR__RLS_HOUR); /* in an unknown domain nothing is limited */
    CHECK(ask());
    CHECK(ask_one("free", "x"));
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_UNLIMITED);
    begin("d");
    request.descriptor_count = 1;
    CHECK(ask()); /* no entries */
}

static void test_banned(void)
{
    fresh();
    CHECK(!ask_one("banned", "x"));
    CHECK(!ask_two("banned", "two"));
    CHECK_INT(left(1), 2); /* not charged */
    CHECK(!ask_two("ten", "banned"));
    CHECK_INT(left(0), 10);
    begin("d");
    hits(add("banned", "x"), 0);
    CHECK(!ask());
}

static void test_hits(void)
{
    fresh();
    begin("d");
    request.hits_addend = 3;
    add("ten", "x");
    CHECK(ask() && left(0) == 7);
    hits(&request.descriptors[0], 5); /* the descriptor's own win */
    CHECK(ask() && left(0) == 2);
    hits(&request.descriptors[0], 0); /* asks, charges nothing */
    CHECK(ask() && left(0) == 2);
    hits(&request.descriptors[0], 3);
    CHECK(!ask());
    CHECK_INT(left(0), 2); /* a denied request charges nothing */
    hits(&request.descriptors[0], (uint64_t)WEIR_COST_MAX);
    CHECK(!ask());
    hits(&request.descriptors[0], (uint64_t)WEIR_COST_MAX + 1);
    CHECK_INT(plan_it(), WEIR_EINVAL);
    hits(&request.descriptors[0], UINT64_MAX);
    CHECK_INT(plan_it(), WEIR_EINVAL);
}

static void test_shared(void)
{
    fresh();
    CHECK(ask_one("f", "f/a") && ask_one("f", "f/b") && !ask_one("f", "f/c"));
}

/* ---- several: all or nothing ---- */

static void test_group(void)
{
    fresh();
    CHECK(ask_two("two", "five") && left(0) == 1 && left(1) == 4);
    CHECK(ask_two("two", "five") && left(0) == 0 && left(1) == 3);
    for (int i = 0; i < 10; i++)
        CHECK(!ask_two("two", "five"));
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_DENIED);
    CHECK_INT(call.asked[1].outcome, WEIR__RLS_ALLOWED); /* by itself; it was not charged */
    CHECK_INT(call.asked[1].decision.charged, 0);
    CHECK(ask_one("five", "x") && left(0) == 2);
}

static void test_twice(void)
{
    fresh();
    CHECK(ask_two("five", "five") && left(0) == 3 && left(1) == 3);
    begin("d");
    hits(add("five", "x"), 2);
    hits(add("five", "x"), 2);
    CHECK(!ask());
    CHECK_INT(call.asked[1].outcome, WEIR__RLS_DENIED);
    CHECK(ask_one("five", "x") && left(0) == 2);
    begin("d");
    hits(add("five", "x"), (uint64_t)WEIR_COST_MAX);
    hits(add("five", "x"), (uint64_t)WEIR_COST_MAX);
    CHECK_INT(plan_it(), WEIR_EINVAL);
    begin("d"); /* one counter, two numbers */
    add("five", "x");
    bring(add("five", "x"), 9, WEIR__RLS_HOUR);
    CHECK_INT(plan_it(), WEIR_ESHARED);
    request.descriptors[1].requests_per_unit = 5; /* the same number is the same limit */
    CHECK(ask() && left(1) == 0);
    request.descriptors[1].unit = WEIR__RLS_MINUTE; /* another period is another counter */
    CHECK(!ask());
    CHECK_INT(left(1), 5);
}

static void test_too_many(void)
{
    fresh();
    begin("d");
    for (int i = 0; i < WEIR__RLS_DESCRIPTORS_MAX; i++) {
        static char values[WEIR__RLS_DESCRIPTORS_MAX][16];
        snprintf(values[i], sizeof values[i], "%d", i);
        add(i < 15 ? "ten" : "both", values[i]);
    }
    CHECK_INT(plan_it(), WEIR_EINVAL); /* 17 limits */
    CHECK(strstr(err.message, "more than 16 limits"));
    request.descriptor_count--;
    CHECK(ask());
}

static void test_replaced(void)
{
    fresh();
    for (int i = 0; i < 50; i++)
        CHECK(ask_two("five", "better"));
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_REPLACED);
    CHECK_INT(left(1), 0);
    CHECK(ask_one("five", "x") && left(0) == 4); /* untouched meanwhile */
}

static void test_of_several_limits(void)
{
    fresh();
    CHECK(ask_two("both", "ten") && left(0) == 2);
    CHECK(ask_two("both", "ten") && ask_two("both", "ten") && !ask_two("both", "ten"));
    now += MINUTE;
    CHECK(ask_two("both", "ten") && left(0) == 1);
    CHECK(ask_two("both", "ten") && !ask_two("both", "ten"));
    CHECK_INT(left(1), 5);
}

/* Envoy cannot hold a request back, so what would have to wait is denied. */
static void test_no_waiting(void)
{
    fresh();
    CHECK(ask_one("slow", "x") && !ask_one("slow", "x"));
    now += SECOND;
    CHECK(ask_one("slow", "x"));
}

/* ---- modes ---- */

static void test_shadow(void)
{
    fresh();
    CHECK(ask_two("shady", "five"));
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_ALLOWED);
    CHECK(ask_two("shady", "five") && left(1) == 3);
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_SHADOWED);
    now += MINUTE;
    CHECK(!ask_two("shady", "banned")); /* charged only where the request goes ahead */
    CHECK_INT(left(0), 1);
    CHECK(ask_two("shady", "five") && left(0) == 0);
    CHECK(ask_one("nope", "x"));
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_SHADOWED);
}

static void test_quotas(void)
{
    fresh();
    CHECK(ask_two("q1", "q2") && left(0) == 0 && left(1) == 1);
    CHECK(ask_two("q1", "q2")); /* one has run out, the other has not */
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_DENIED);
    CHECK_INT(left(1), 0);
    CHECK(!ask_two("q1", "q2")); /* all have */
    CHECK(!ask_one("q1", "x"));
    begin("d");
    add("q1", "x");
    add("q2", "x");
    add("ten", "x");
    CHECK(!ask() && left(2) == 10); /* the others are not charged then */
    now += MINUTE;
    CHECK(ask() && left(2) == 9);
    CHECK(ask() && left(2) == 8 && left(1) == 0);
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_DENIED);
    now += MINUTE;
    begin("d");
    hits(add("ten", "x"), 9);
    add("q2", "x");
    CHECK(!ask() && left(1) == 2); /* nor are quotas where another limit denies */
    CHECK(ask_two("q0", "q2") && left(1) == 1);
    CHECK(!ask_two("q0", "q0") && !ask_two("q0", "ten"));
    CHECK_INT(left(1), 8);
}

/* As envoyproxy/ratelimit counts: each by itself, denied or not. */
static void test_charge_denied(void)
{
    fresh();
    options.charge_denied = true;
    CHECK(ask_two("two", "five") && ask_two("two", "five") && left(1) == 3);
    CHECK(!ask_two("two", "five") && left(1) == 2);
    CHECK(ask_two("five", "five") && left(0) == 1 && left(1) == 0); /* one after the other */
    CHECK(!ask_one("five", "x"));
    options.charge_denied = false;
    begin("d");
    hits(add("five", "x"), 0);
    CHECK(!ask()); /* over the limit by one, so that even asking is denied */
    now += HOUR;
    CHECK(ask() && left(0) == 5);
}

/* Usage that is known afterwards: asked about before, reported behind. */
static void test_reports(void)
{
    fresh();
    begin("d");
    struct weir__rls_descriptor *tokens = add("tokens", "ann");
    hits(tokens, 0);
    CHECK(ask());
    hits(tokens, 90);
    CHECK(ask() && left(0) == 10);
    hits(tokens, 0);
    CHECK(ask() && left(0) == 10);
    hits(tokens, 500);
    CHECK(!ask() && left(0) == 0); /* counted all the same */
    hits(tokens, 0);
    CHECK(!ask());
    tokens->is_negative_hits = true;
    hits(tokens, 489); /* over by 490: still 1 over */
    CHECK(ask());
    tokens->is_negative_hits = false;
    hits(tokens, 0);
    CHECK(!ask());
    now += HOUR;
    CHECK(ask());
}

static void test_global_shadow(void)
{
    fresh();
    options.shadow = true;
    char room[WEIR__RLS_ANSWER_ROOM];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    CHECK(!ask_one("banned", "x"));
    CHECK_INT(weir__rls_answer_json(&call, &out), 200);
    CHECK(strstr(room, "\"overallCode\":\"OK\",\"statuses\":[{\"code\":\"OVER_LIMIT\""));
}

/* ---- refunds ---- */

static void test_refunds(void)
{
    fresh();
    for (int i = 0; i < 5; i++)
        CHECK(ask_one("five", "x"));
    CHECK(!ask_one("five", "x"));
    CHECK(refund("five", 2) && left(0) == 2);
    CHECK_INT(call.asked[0].outcome, WEIR__RLS_REFUNDED);
    CHECK(ask_one("five", "x") && ask_one("five", "x") && !ask_one("five", "x"));
    CHECK(refund("five", 1000) && left(0) == 5); /* never more than was charged */
    CHECK(refund("five", 3) && left(0) == 5);
    CHECK(ask_one("five", "x") && left(0) == 4);
    now += HOUR;
    CHECK(refund("five", 1) && left(0) == 5); /* of another window: nothing */
    CHECK(refund("five", 0));
    CHECK(refund("banned", 1) && refund("unheard", 1));
}

static bool refund_at(const char *key, uint64_t n, int64_t expected)
{
    return refund(key, n) && left(0) == expected;
}

/* Of every kind of limit. */
static void test_refund_kinds(void)
{
    fresh();
    CHECK(ask_one("bucket", "x") && ask_one("bucket", "x") && ask_one("bucket", "x"));
    CHECK(!ask_one("bucket", "x"));
    CHECK(refund_at("bucket", 2, 2) && refund_at("bucket", 9, 3));
    CHECK(ask_one("log", "x"));
    now += SECOND;
    CHECK(ask_one("log", "x") && ask_one("log", "x") && !ask_one("log", "x"));
    CHECK(refund_at("log", 1, 1)); /* the oldest entry that counts */
    CHECK(refund_at("log", 9, 3)); /* and no more than one entry at once */
    CHECK(ask_one("both", "x") && ask_one("both", "x") && left(0) == 1);
    now += SECOND;
    CHECK(refund_at("both", 1, 2)); /* each of its limits */
    CHECK(ask_one("both", "x") && ask_one("both", "x") && !ask_one("both", "x"));
}

/* ---- limits that requests bring ---- */

static void test_brought(void)
{
    fresh();
    begin("d");
    bring(add("five", "x"), 2, WEIR__RLS_HOUR);
    CHECK(ask() && ask() && !ask()); /* it wins over the configured five */
    CHECK(!call.asked[0].rule && call.asked[0].requests_per_unit == 2);
    CHECK(ask_one("five", "x") && left(0) == 2); /* and counts in the same place */
    begin("d");
    bring(add("shady", "y"), 1, WEIR__RLS_MINUTE);
    CHECK(ask() && !ask()); /* in force, whatever the rule's mode */
    begin("d");
    bring(add("unheard", "x"), 3, WEIR__RLS_WEEK);
    CHECK(ask() && left(0) == 2);
    bring(&request.descriptors[0], 0, WEIR__RLS_DAY);
    CHECK(!ask());
    for (uint32_t unit = 0; unit < 12; unit++) {
        bring(&request.descriptors[0], 7, unit);
        CHECK_INT(plan_it(), unit >= 1 && unit <= 7 ? 0 : WEIR_EINVAL);
    }
    bring(&request.descriptors[0], 7, WEIR__RLS_DAY);
    struct weir__rls_setup without = {envoy, NULL, NULL, options};
    weir__rls_end(&call);
    CHECK_INT(weir__rls_plan(&without, &request, &call, &err), WEIR_EINVAL);
    struct weir__rls_descriptor *refunded = &request.descriptors[0];
    CHECK(ask() && left(0) == 6);
    refunded->is_negative_hits = true;
    CHECK(ask() && left(0) == 7);
}

/* More than the cache holds, with plans that hold some meanwhile: whoever has a limit keeps it. */
static void test_cache(void)
{
    enum { PLANS = 40 };
    static struct weir__rls_call plans[PLANS];
    struct weir__rls_setup setup = {.envoy = envoy, .cache = &cache, .options = options};
    for (uint32_t i = 0; i < 1000; i++) {
        begin("d");
        for (uint32_t j = 0; j < WEIR__RLS_DESCRIPTORS_MAX; j++)
            bring(add("k", "v"), i * 1000 + j + 1, 1 + j % 7);
        options.charge_denied = setup.options.charge_denied = true; /* their counters are one */
        struct weir__rls_call *mine = &plans[i % PLANS];
        weir__rls_end(mine);
        CHECK_INT(weir__rls_plan(&setup, &request, mine, &err), 0);
        CHECK_INT(mine->held_count, WEIR__RLS_DESCRIPTORS_MAX);
        const struct weir__rls_call *oldest = &plans[(i + 1) % PLANS];
        for (size_t j = 0; j < oldest->count; j++)
            CHECK_INT(oldest->asked[j].limit->rules[0].count, oldest->asked[j].requests_per_unit);
        if (i % 100 == 99)
            weir__limit_cache_turn(&cache);
    }
    for (size_t i = 0; i < PLANS; i++)
        weir__rls_end(&plans[i]);
    options.charge_denied = false;
}

/* ---- long texts ---- */

/* Whoever sends a request decides how long its texts are: that is no way around a limit. */
static void test_long_values(void)
{
    static char large[130000];
    fresh();
    for (size_t len = 10; len < sizeof large; len *= 3) {
        memset(large, 'a', len);
        large[len] = 0;
        begin("d");
        for (int i = 0; i < WEIR__RLS_DESCRIPTORS_MAX;
             i++) /* all texts together are longer still */
            add(i % 2 ? "five" : "two", large);
        request.descriptor_count = 4;
        CHECK(ask() && left(0) == 0 && left(1) == 3);
        CHECK(call.asked[0].long_key == (len > WEIR__ENVOY_PART_MAX));
        CHECK(!ask());
        large[len - 1] = 'b'; /* another value has a state of its own */
        CHECK(ask());
    }
}

/* ---- refusals ---- */

static void refused(const char *words)
{
    CHECK_INT(plan_it(), WEIR_EINVAL);
    if (!CHECK(strstr(err.message, words)))
        printf("    found \"%s\"\n", err.message);
    CHECK_INT(call.count, 0);
}

static void test_refusals(void)
{
    fresh();
    begin("");
    add("two", "x");
    refused("no domain");
    begin("d");
    refused("no descriptors");
    begin("d");
    bring(add("two", "x"), 5, WEIR__RLS_HOUR); /* what was got before a refusal is put back */
    hits(add("two", "y"), UINT64_MAX);
    refused("10^12");
    CHECK_INT(call.held_count, 0);
}

int main(void)
{
    rls_open();
    test_window();
    test_no_rule();
    test_banned();
    test_hits();
    test_shared();
    test_group();
    test_twice();
    test_too_many();
    test_replaced();
    test_of_several_limits();
    test_no_waiting();
    test_shadow();
    test_quotas();
    test_charge_denied();
    test_reports();
    test_global_shadow();
    test_refunds();
    test_refund_kinds();
    test_brought();
    test_cache();
    test_long_values();
    test_refusals();
    rls_close();
    return test_report();
}

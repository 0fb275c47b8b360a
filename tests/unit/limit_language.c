/* Limit text to numbers and back: fields, defaults, bounds, canonical text. */
#include "core_rig.h"

static void canonical(const char *text, const char *expected)
{
    weir_limit *limit = NULL, *again = NULL;
    weir_error err = {0};
    if (!CHECK(weir_limit_parse(text, &limit, &err) == 0)) {
        printf("\"%s\": %s\n", text, err.message);
        return;
    }
    CHECK_TEXT(weir_limit_text(limit), expected);
    CHECK_INT(weir_limit_parse(expected, &again, NULL), 0);
    CHECK_TEXT(weir_limit_text(again), expected);
    CHECK(!memcmp(again->rules, limit->rules, limit->count * sizeof limit->rules[0]));
    weir_limit_free(limit);
    weir_limit_free(again);
}

static void test_fields(void)
{
    struct weir__rule rule = rule_of("token-bucket 10/s burst 20");
    CHECK(rule.kind == WEIR__TOKEN_BUCKET && rule.count == 10 && rule.burst == 20);
    CHECK(rule.period_us == SECOND && rule.ticks == SECOND && rule.cap == 20 * SECOND);
    rule = rule_of("token-bucket 10/2m burst 3");
    CHECK(rule.ticks == 120000 && rule.cap == 360000);
    rule = rule_of("leaky-bucket 10/s burst 5 delay 3");
    CHECK(rule.burst == 5 && rule.extra == 3 && rule.flags == 0 && rule.cap == 6 * SECOND);
    CHECK_INT(rule_of("leaky-bucket 1/s nodelay").flags, WEIR__NODELAY);
    CHECK_INT(rule_of("leaky-bucket 1/s").burst, 0);
    CHECK_INT(rule_of("token-bucket 7/s").burst, 7);
    CHECK_INT(rule_of("token-bucket 7/s stepped").kind, WEIR__STEPPED);
    CHECK_INT(rule_of("token-bucket 7/s stepped").burst, 7);
    CHECK_INT(rule_of("fixed-window 7/s").kind, WEIR__FIXED_WINDOW);
    CHECK_INT(rule_of("fixed-window 7/s from-first").kind, WEIR__FROM_FIRST);
    CHECK_INT(rule_of("sliding-window 7/1s1us").extra, 100001); /* ceil(period / 10) */
    CHECK_INT(rule_of("smooth 5/s").extra, SECOND);
    CHECK_INT(rule_of("smooth 5/s burst-for 2s").extra, 2 * SECOND);
    rule = rule_of("warmup 5/s over 3s");
    CHECK(rule.extra == 3 * SECOND && rule.cold_millionths == 3000000);
    CHECK_INT(rule_of("warmup 5/s cold 1.000001 over 3s").cold_millionths, 1000001);
    CHECK_INT(rule_of("concurrent 20").period_us, MINUTE);
    CHECK_INT(rule_of("concurrent 20 lease 30s").period_us, 30 * SECOND);
}

static void test_counts(void)
{
    CHECK_INT(rule_of("fixed-window 5k/s").count, 5000);
    CHECK_INT(rule_of("fixed-window 5M/s").count, 5000000);
    CHECK_INT(rule_of("fixed-window 5g/s").count, 5000000000);
    CHECK_INT(rule_of("fixed-window 1000g/s").count, WEIR_COST_MAX);
    CHECK_INT(rule_of("fixed-window 10r/s").count, 10);
    CHECK_INT(rule_of("fixed-window 10kR/s").count, 10000);
    CHECK_INT(rule_of("fixed-window 0010/s").count, 10);
}

static void test_bounds(void)
{
    canonical("token-bucket 1/s burst 9007199254", "token-bucket 1/s burst 9007199254");
    canonical("leaky-bucket 1/s burst 9007199253", "leaky-bucket 1/s burst 9007199253");
    canonical("token-bucket 1/s burst 9007199254 stepped",
              "token-bucket 1/s burst 9007199254 stepped");
    canonical("token-bucket 1/1m1us stepped", "token-bucket 1/1m1us stepped");
    canonical("token-bucket 1/1m1ms", "token-bucket 1/1m1ms");
    canonical("sliding-log 100k/s", "sliding-log 100000/s");
    canonical("concurrent 100k", "concurrent 100000");
    canonical("sliding-counter 1g/s", "sliding-counter 1000000000/s");
    canonical("sliding-window 1/s precision 100us", "sliding-window 1/s precision 100us");
    canonical("sliding-window 1/s precision 1s", "sliding-window 1/s precision 1s");
    canonical("warmup 1/s over 1us cold 1000", "warmup 1/s over 1us cold 1000");
    canonical("leaky-bucket 1/s burst 3 delay 3", "leaky-bucket 1/s burst 3 delay 3");
    canonical("fixed-window 1/366d", "fixed-window 1/52w2d");
}

static void test_canonical(void)
{
    canonical("  GCRA   10R/1000MS  ", "token-bucket 10/s");
    canonical("token-bucket 10/s burst 10", "token-bucket 10/s");
    canonical("token-bucket 10/60s stepped burst 20", "token-bucket 10/m burst 20 stepped");
    canonical("leaky-bucket 1/s nodelay burst 0", "leaky-bucket 1/s nodelay");
    canonical("leaky-bucket 1/s delay 0 burst 2", "leaky-bucket 1/s burst 2");
    canonical("sliding-window 240/h precision 6m", "sliding-window 240/h");
    canonical("sliding-window 240/h precision 60s", "sliding-window 240/h precision 1m");
    canonical("smooth 5/s burst-for 1s", "smooth 5/s");
    canonical("smooth 5/s burst-for 90m", "smooth 5/s burst-for 1h30m");
    canonical("warmup 5/s cold 3.0 over 3s", "warmup 5/s over 3s");
    canonical("warmup 5/s cold 2.50 over 3s", "warmup 5/s over 3s cold 2.5");
    canonical("warmup 5/s cold 2.000001 over 3s", "warmup 5/s over 3s cold 2.000001");
    canonical("warmup 5/s cold 2 over 3s", "warmup 5/s over 3s cold 2");
    canonical("concurrent 20 lease 60s", "concurrent 20");
    canonical("concurrent 20 lease 90s", "concurrent 20 lease 1m30s");
    canonical("fixed-window 5/1.5s from-first", "fixed-window 5/1s500ms from-first");
    canonical("token-bucket 1/s,fixed-window 2/m ,  concurrent 3",
              "token-bucket 1/s, fixed-window 2/m, concurrent 3");
    canonical("token-bucket 1/s, token-bucket 1/s stepped, token-bucket 1/m",
              "token-bucket 1/s, token-bucket 1/s stepped, token-bucket 1/m");
    canonical("sliding-window 1/s precision 200ms, sliding-window 1/s",
              "sliding-window 1/s precision 200ms, sliding-window 1/s");
}

static void test_sixteen(void)
{
    char text[1024] = "";
    weir_limit *limit = NULL;
    for (int i = 2; i <= 17; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%stoken-bucket 1/%ds",
                 i > 2 ? ", " : "", i);
    CHECK_INT(weir_limit_parse(text, &limit, NULL), 0);
    CHECK_INT(weir_limit_count(limit), WEIR_LIMITS_MAX);
    CHECK(!strcmp(weir_limit_text(limit), text));
    weir_limit_free(limit);
    weir_limit_free(NULL);
}

/* The longest text one limit can have fits, and so do sixteen of them. */
static void test_longest(void)
{
    static const char longest[] =
        "leaky-bucket 1000000000000/6h59m59s999ms burst 357387 delay 357387";
    canonical(longest, longest);
    canonical("sliding-window 999999999999/51w6d23h59m59s999ms999us precision "
              "50w6d23h59m59s999ms999us",
              "sliding-window 999999999999/51w6d23h59m59s999ms999us precision "
              "50w6d23h59m59s999ms999us");
    canonical("warmup 999999999999/51w6d23h59m59s999ms999us over 51w6d23h59m59s999ms999us cold "
              "999.999999",
              "warmup 999999999999/51w6d23h59m59s999ms999us over 51w6d23h59m59s999ms999us cold "
              "999.999999");
}

/* A limit that somebody else uses, too, outlives the first who frees it. */
static void test_shared(void)
{
    weir_limit *limit = NULL;
    CHECK_INT(weir_limit_parse("token-bucket 1/s", &limit, NULL), 0);
    CHECK(weir__limit_ref(limit) == limit);
    weir_limit_free(limit);
    CHECK_TEXT(weir_limit_text(limit), "token-bucket 1/s");
    weir_limit_free(limit);
}

/* Text of a given length, and what a limit says of itself. */
static void test_public(void)
{
    static const char text[] = "token-bucket 10/s burst 20, concurrent 3!";
    weir_limit *limit = NULL;
    CHECK_INT(weir_limit_parse(NULL, &limit, NULL), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse(text, NULL, NULL), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse_n(NULL, 1, &limit, NULL), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse_n(text, SIZE_MAX, &limit, NULL), WEIR_EINVAL);
    CHECK_INT(weir_limit_parse_n(text, sizeof text, &limit, NULL), WEIR_ESYNTAX);
    CHECK_INT(weir_limit_parse_n(text, sizeof text - 2, &limit, NULL), 0);
    CHECK_TEXT(weir_limit_kind(limit, 0), "token-bucket");
    CHECK_TEXT(weir_limit_kind(limit, 1), "concurrent");
    CHECK_INT(weir_limit_amount(limit, 1), 3);
    CHECK_INT(weir_limit_period_us(limit, 0), SECOND);
    CHECK_INT(weir_limit_burst(limit, 0), 20);
    CHECK(!weir_limit_kind(limit, 2) && !weir_limit_kind(NULL, 0));
    CHECK_INT(weir_limit_amount(limit, 2), 0);
    CHECK_INT(weir_limit_period_us(limit, 2), 0);
    CHECK_INT(weir_limit_burst(limit, 2), 0);
    CHECK(weir_limit_count(limit) == 2 && weir_limit_count(NULL) == 0);
    CHECK_TEXT(weir_limit_text(NULL), "");
    weir_limit_free(limit);
}

/* Limits with a cost of their own: what they say, and which were charged the same. */
static void test_costs(void)
{
    weir_limit *limit = NULL, *plain = NULL, part;
    struct weir__rule rules[WEIR_LIMITS_MAX];
    char text[WEIR__LIMITS_TEXT_MAX];
    weir_error err;
    size_t n;
    int64_t charged;
    canonical(
        "fixed-window 60/m cost 1, token-bucket 9/s, concurrent 5 cost 1, sliding-log 9/m cost 4",
        "fixed-window 60/m cost 1, token-bucket 9/s, concurrent 5 cost 1, sliding-log 9/m cost 4");
    CHECK_INT(weir_limit_parse("fixed-window 60/m cost 1, token-bucket 9/s, concurrent 5 cost 1, "
                               "sliding-log 9/m cost 4",
                               &limit, NULL),
              0);
    CHECK_INT(weir_limit_parse("token-bucket 9/s", &plain, NULL), 0);
    CHECK(weir_limit_cost(limit, 0) == 1 && weir_limit_cost(limit, 1) == 0 &&
          weir_limit_cost(limit, 3) == 4);
    CHECK(weir_limit_cost(limit, 4) == 0 && weir_limit_cost(plain, 0) == 0 &&
          weir_limit_cost(NULL, 0) == 0);
    CHECK_TEXT(weir__limit_text_of(limit, 3).text, "sliding-log 9/m cost 4");
    CHECK_TEXT(weir__limit_text_of(limit, 1).text, "token-bucket 9/s");
    CHECK_TEXT(weir__limit_text_of(plain, 0).text, "token-bucket 9/s");
    CHECK_INT(weir__limit_variable(limit), 2);
    CHECK_INT(weir__limit_variable(plain), 1);
    uint32_t left = 15;
    CHECK_INT(weir__limit_charged_alike(limit, &left, 4, &charged), 5);
    CHECK(left == 10 && charged == 1);
    CHECK_INT(weir__limit_charged_alike(limit, &left, 4, &charged), 10);
    CHECK(left == 0 && charged == 4);
    weir__limit_part(limit, 5, text, &part);
    CHECK_TEXT(weir_limit_text(&part), "fixed-window 60/m, concurrent 5");
    CHECK(part.count == 2 && weir_limit_cost(&part, 0) == 0);
    /* where nobody is charged, a cost has no meaning */
    CHECK_INT(weir__rules_parse("fixed-window 60/m cost 1", rules, &n, &err), WEIR_ESYNTAX);
    CHECK(!strstr(err.message, "\"cost\", "));
    weir_limit_free(limit);
    weir_limit_free(plain);
}

int main(void)
{
    test_public();
    test_costs();
    test_fields();
    test_counts();
    test_bounds();
    test_canonical();
    test_sixteen();
    test_longest();
    test_shared();
    return test_report();
}

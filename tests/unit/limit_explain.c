/*
 * What a limit promises in numbers, held against random attacks: what went ahead in any span stays
 * within `most`, at any instant within `worst_burst`.
 *
 *     limit_explain [SEED]
 */
#include "core_rig.h"

#include "limit/explain.h"

#define REQUESTS 1200

static struct rig rig;
static struct weir__facts facts;
static uint64_t random_state;
static int64_t gone[REQUESTS]; /* when each went ahead; one of them a unit of cost */
static size_t count;

static int64_t below(int64_t n)
{
    return (int64_t)(weir__random_next(&random_state) % (uint64_t)n);
}

static struct weir__facts facts_of(const char *text)
{
    const struct weir__rule rule = rule_of(text);
    struct weir__facts ret;
    weir__explain(&rule, &ret);
    CHECK(ret.what[0] && strlen(ret.what) < sizeof ret.what - 1);
    CHECK(ret.guarantee[0] && strlen(ret.guarantee) < sizeof ret.guarantee - 1);
    return ret;
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The most in any span; its first instant counts, its last does not. */
static int64_t most_in_any(int64_t span)
{
    int64_t most = 0;
    for (size_t first = 0, i = 0; i < count; i++) {
        while (gone[i] - gone[first] >= span)
            first++;
        most = weir__max(most, (int64_t)(i - first + 1));
    }
    return most;
}

static void attack(void)
{
    int64_t t = T0, period = rig.rule.period_us;
    count = 0;
    for (int tries = 0; tries < 20000 && count < REQUESTS; tries++) {
        int64_t pause = below(4) ? below(2 + period / rig.rule.count / 2) : below(2 * period);
        t += below(3) ? 0 : pause;
        weir_decision d = take(&rig, t, 1, DEFAULT);
        if (d.allowed)
            gone[count++] = t + d.delay_us;
    }
    qsort(gone, count, sizeof gone[0], by_time);
}

static void holds(const char *text, int64_t most, int64_t worst_burst)
{
    facts = facts_of(text);
    CHECK_INT(facts.most, most);
    CHECK_INT(facts.worst_burst, worst_burst);
    if (most == WEIR__UNBOUNDED)
        return;
    long failed = test_failed;
    rig_init(&rig, text);
    attack();
    CHECK(most_in_any(rig.rule.period_us) <= most);
    CHECK(most_in_any(1) <= worst_burst);
    if (test_failed > failed)
        printf("\"%s\": %lld in a period, %lld at once\n", text,
               (long long)most_in_any(rig.rule.period_us), (long long)most_in_any(1));
}

static void test_bounds(void)
{
    holds("token-bucket 5/s burst 9", 14, 9);
    holds("token-bucket 5/s burst 9 stepped", 14, 9);
    holds("token-bucket 9/s burst 5 stepped", 14, 5);
    holds("leaky-bucket 5/s", 6, 1);
    holds("leaky-bucket 5/s burst 9", 6, 1);
    holds("leaky-bucket 5/s burst 9 delay 3", 9, 4);
    holds("leaky-bucket 5/s burst 9 nodelay", 15, 10);
    holds("fixed-window 5/s", 10, 5);
    holds("fixed-window 5/s from-first", 9, 5);
    holds("fixed-window 5/h zone +05:45", 10, 5);
    holds("fixed-window 5/w from mon", 10, 5);
    holds("fixed-window 5/month from 31 zone -03:00", 15, 5);
    holds("sliding-log 5/s", 5, 5);
    holds("sliding-window 5/s", 5, 5);
    holds("sliding-counter 5/s", 10, 5);
    holds("smooth 5/s", 11, 6);
    holds("smooth 3/s burst-for 1500ms", 8, 5);
    holds("smooth 7/5us burst-for 100us", WEIR__UNBOUNDED, WEIR__UNBOUNDED);
    holds("warmup 5/s over 3s", 6, 1);
    holds("warmup 9/us over 1s", WEIR__UNBOUNDED, WEIR__UNBOUNDED);
}

static void test_spans(void)
{
    CHECK_INT(facts_of("token-bucket 5/m").span_us, MINUTE);
    facts = facts_of("concurrent 20 lease 30s");
    CHECK(facts.span_us == 0 && facts.most == 20 && facts.worst_burst == 20);
    CHECK(!facts_of("token-bucket 5/m").requests_of_one);
    CHECK(facts_of("smooth 5/m").requests_of_one);
}

static void test_bytes(void)
{
    int64_t small = facts_of("token-bucket 5/m").key_bytes;
    CHECK_INT(facts_of("warmup 5/m over 1s").key_bytes, small);
    CHECK_INT(facts_of("sliding-log 2/m").key_bytes, small + 64);
    CHECK_INT(facts_of("sliding-log 3/m").key_bytes, small + 128);
    CHECK_INT(facts_of("sliding-log 100k/m").key_bytes, small + (2 << 20));
}

/* The texts name the numbers. */
static void test_texts(void)
{
    facts = facts_of("token-bucket 5/90s burst 9");
    CHECK(strstr(facts.what, "9") && strstr(facts.what, "5") && strstr(facts.what, "1m30s"));
    CHECK(strstr(facts.guarantee, "never more than 14 in any 1m30s"));
    CHECK(strstr(facts_of("leaky-bucket 5/s burst 9 delay 3").what, "first 4 of a burst"));
    CHECK(strstr(facts_of("warmup 5/s over 3s cold 2.5").what, "2.5 times slower"));
    CHECK(strstr(facts_of("concurrent 20 lease 30s").what, "lapses after 30s"));
    CHECK_INT(facts_of("fixed-window 5/year").most, 15);
    CHECK(strstr(facts_of("fixed-window 5/month").what, "calendar months from day 1 (UTC);"));
    CHECK(strstr(facts_of("fixed-window 5/month from 30 zone +08:00").what,
                 "months from day 30 (UTC+08:00), or the last day of a shorter month;"));
    CHECK(strstr(facts_of("fixed-window 5/year from 04-06").what, "calendar years from 04-06"));
    CHECK(strstr(facts_of("fixed-window 5/w from sun").what, "weeks from sun (UTC);"));
    CHECK(strstr(facts_of("fixed-window 5/d zone -03:30").what,
                 "windows of 1d aligned to the clock (UTC-03:30);"));
}

/* A cost of its own is a sentence of its own. */
static void test_costs(void)
{
    static const char text[] =
        "fixed-window 1000g/month from 30 zone +08:00 cost 1000g, fixed-window 9/m";
    weir_limit *limit = NULL;
    struct weir__facts ret;
    CHECK_INT(weir_limit_parse(text, &limit, NULL), 0);
    weir__explain_limit(limit, 0, &ret);
    CHECK(strstr(ret.what, "begins. Each request is charged 1000000000000 here, whatever it "));
    weir__explain_limit(limit, 1, &ret);
    CHECK(!strcmp(ret.what, facts_of("fixed-window 9/m").what));
    weir_limit_free(limit);
}

int main(int argc, char **argv)
{
    random_state = argc > 1 ? strtoull(argv[1], NULL, 10) : 20240603;
    printf("seed %llu\n", (unsigned long long)random_state);
    test_bounds();
    test_spans();
    test_bytes();
    test_texts();
    test_costs();
    return test_report();
}

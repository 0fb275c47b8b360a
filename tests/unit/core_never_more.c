/*
 * Brute force over random traces: whatever the log and the window admitted, no span of W holds more
 * than N of it; the log denies only what would have been too much, the window is at most a
 * precision too strict; the others keep to their own promises.
 *
 *     core_never_more [SEED]
 */
#include "core_rig.h"

#define REQUESTS 1500

struct admitted {
    int64_t time, cost;
};

static struct rig rig;
static uint64_t random_state;
static struct admitted history[REQUESTS];
static size_t count;

static int64_t below(int64_t n)
{
    return (int64_t)(weir__random_next(&random_state) % (uint64_t)n);
}

/* What was admitted after `from` and until `to`. */
static int64_t admitted_within(int64_t from, int64_t to)
{
    int64_t sum = 0;
    for (size_t i = count; i > 0 && history[i - 1].time > from; i--) {
        if (history[i - 1].time <= to)
            sum += history[i - 1].cost;
    }
    return sum;
}

/* The most in any span (its first instant counts, its last does not). */
static int64_t most_in_any(int64_t span)
{
    int64_t most = 0;
    for (size_t i = 0; i < count; i++)
        most = weir__max(most, admitted_within(history[i].time - span, history[i].time));
    return most;
}

/* In bursts and lulls, so that both sides of the limit are met. */
static int64_t next_time(int64_t t)
{
    int64_t period = rig.rule.period_us;
    switch (below(6)) {
    case 0:
        return t;
    case 1:
        return t + 1;
    case 2:
        return t + period - 1 + below(3);
    case 3:
        return t + below(period);
    default:
        return t + below(1 + period / rig.rule.count);
    }
}

static void check_denial(int64_t t, int64_t cost)
{
    int64_t reach = rig.rule.period_us;
    if (rig.rule.kind == WEIR__SLIDING_WINDOW)
        reach += rig.rule.extra;
    if (rig.rule.kind == WEIR__SLIDING_LOG || rig.rule.kind == WEIR__SLIDING_WINDOW)
        CHECK(admitted_within(t - reach, t) + cost > rig.rule.count);
}

static void attack(const char *text)
{
    int64_t t = T0;
    rig_init(&rig, text);
    count = 0;
    for (int i = 0; i < REQUESTS; i++) {
        t = next_time(t);
        int64_t cost = below(5) ? 1 : 1 + below(rig.rule.count);
        weir_decision d = take(&rig, t, cost, 0);
        if (d.allowed)
            history[count++] = (struct admitted){t, cost};
        else
            check_denial(t, cost);
    }
    CHECK(count > REQUESTS / 50 && count < REQUESTS);
}

static void never_more_than(const char *text, int64_t most)
{
    long failed = test_failed;
    attack(text);
    CHECK(most_in_any(rig.rule.period_us) <= most);
    if (test_failed > failed)
        printf("in \"%s\": %lld in %lld us\n", text, (long long)most_in_any(rig.rule.period_us),
               (long long)rig.rule.period_us);
}

/* From a window's beginning to its end. */
static void never_more_in_a_window(const char *text, int64_t most)
{
    attack(text);
    int64_t period = rig.rule.period_us;
    for (size_t i = 0; i < count; i++) {
        int64_t start = history[i].time - history[i].time % period, end = start + period;
        if (weir__algorithm_of(&rig.rule)->window)
            weir__algorithm_of(&rig.rule)->window(&rig.rule, history[i].time, &start, &end);
        CHECK(admitted_within(start - 1, end - 1) <= most);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20240602;
    printf("seed %llu\n", (unsigned long long)seed);
    random_state = seed;
    for (int i = 0; i < 4; i++) {
        never_more_than("sliding-log 5/s", 5);
        never_more_than("sliding-log 100/10s", 100);
        never_more_than("sliding-log 1/7us", 1);
        never_more_than("sliding-window 5/s", 5);
        never_more_than("sliding-window 100/10s precision 333ms", 100);
        never_more_than("sliding-window 12/s precision 1s", 12);
        never_more_than("sliding-window 12/s precision 100us", 12);
        never_more_than("sliding-window 3/17us precision 5us", 3);
        never_more_than("concurrent 7 lease 1s", 7);
        never_more_than("token-bucket 5/s burst 9", 14);
        never_more_than("token-bucket 5/s burst 9 stepped", 14);
        never_more_than("leaky-bucket 5/s burst 8 nodelay", 14);
        never_more_than("sliding-counter 9/s", 18);
        never_more_than("fixed-window 9/s", 18);
        never_more_than("fixed-window 9/s from-first", 17);
        never_more_than("fixed-window 9/s zone +05:45", 18);
        never_more_than("fixed-window 9/w from sun", 18);
        never_more_than("fixed-window 9/month from 31", 27);
        never_more_in_a_window("fixed-window 9/s", 9);
        never_more_in_a_window("fixed-window 9/month from 31", 9);
        never_more_in_a_window("fixed-window 9/w from sun zone +05:45", 9);
        never_more_in_a_window("sliding-counter 9/s", 9);
    }
    return test_report();
}

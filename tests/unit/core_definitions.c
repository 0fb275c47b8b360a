/*
 * The definitions of docs/SPEC.md tried out on random traces of every limit: retry_after,
 * reset_after and remaining mean what they say, a denied or free request writes nothing, peek is
 * take without the charge.
 *
 *     core_definitions [SEED]
 */
#include "core_rig.h"

static const char *const limits[] = {
    "token-bucket 10/s burst 20",
    "token-bucket 3/s",
    "token-bucket 7/90s burst 3",
    "token-bucket 1000g/us",
    "token-bucket 3/10ms burst 8 stepped",
    "token-bucket 1/2m burst 5 stepped",
    "leaky-bucket 10/s burst 5",
    "leaky-bucket 10/s burst 5 nodelay",
    "leaky-bucket 7/90s burst 9 delay 3",
    "leaky-bucket 1/s",
    "fixed-window 5/s",
    "fixed-window 5/m from-first",
    "fixed-window 5/month from 31",
    "fixed-window 5/year from 02-29 zone -12:00",
    "fixed-window 5/w from sat zone +14:00",
    "fixed-window 5/90m zone +05:45",
    "sliding-log 5/s",
    "sliding-window 9/s precision 77ms",
    "sliding-counter 9/s",
    "sliding-counter 9/m",
    "sliding-counter 3/7us",
    "smooth 5/s burst-for 2s",
    "warmup 5/s over 3s",
    "concurrent 5 lease 1s",
};

static struct rig rig, fresh;
static uint64_t random_state;

static int64_t below(int64_t n)
{
    return (int64_t)(weir__random_next(&random_state) % (uint64_t)n);
}

static bool is_guava(void)
{
    return rig.rule.kind == WEIR__SMOOTH || rig.rule.kind == WEIR__WARMUP;
}

static bool same(const weir_decision *a, const weir_decision *b)
{
    return !memcmp(a, b, sizeof *a);
}

static void check_bounds(const weir_decision *d)
{
    CHECK(d->remaining >= 0);
    CHECK(d->reset_after_us >= 0);
    CHECK(d->limit >= 1);
    CHECK(d->delay_us >= 0);
    CHECK(d->allowed ? d->retry_after_us == 0 : d->delay_us == 0);
    CHECK(d->allowed || d->retry_after_us > 0 || d->retry_after_us == WEIR_NEVER);
}

static void check_retry(int64_t t, int64_t cost, int64_t wait)
{
    weir_decision d = peek(&rig, t, cost, wait);
    check_bounds(&d);
    if (d.allowed || d.retry_after_us == WEIR_NEVER) {
        CHECK(d.allowed || cost > d.limit);
        return;
    }
    CHECK(peek(&rig, t + d.retry_after_us, cost, wait).allowed);
    CHECK(!peek(&rig, t + d.retry_after_us - 1, cost, wait).allowed);
}

static void check_reset(int64_t t)
{
    weir_decision d = peek(&rig, t, 0, DEFAULT);
    if (is_guava())
        return;
    for (int64_t cost = 0; cost <= d.limit + 1; cost += 1 + d.limit / 4) {
        weir_decision then = peek(&rig, t + d.reset_after_us, cost, DEFAULT);
        weir_decision unused = peek(&fresh, t + d.reset_after_us, cost, DEFAULT);
        CHECK(same(&then, &unused));
    }
    if (d.reset_after_us > 0)
        CHECK_INT(peek(&rig, t + d.reset_after_us - 1, 0, DEFAULT).reset_after_us, 1);
}

static void check_remaining(int64_t t)
{
    int64_t left = peek(&rig, t, 0, DEFAULT).remaining;
    if (is_guava() || left == 0)
        return;
    CHECK(peek(&rig, t, left, DEFAULT).allowed);
    CHECK(!peek(&rig, t, left + 1, DEFAULT).allowed);
}

static void check_take(int64_t t, int64_t cost, int64_t wait)
{
    struct weir__state before = rig.state;
    weir_decision foreseen = peek(&rig, t, cost, wait);
    CHECK(!memcmp(&before, &rig.state, sizeof before)); /* a peek writes nothing */
    weir_decision d = take(&rig, t, cost, wait);
    check_bounds(&d);
    CHECK(d.allowed == foreseen.allowed && d.limit == foreseen.limit &&
          d.retry_after_us == foreseen.retry_after_us && d.delay_us == foreseen.delay_us);
    if (!d.allowed || cost == 0) {
        CHECK(!memcmp(&before, &rig.state, sizeof before));
        CHECK(same(&d, &foreseen));
    }
    CHECK(weir__state_sound(&rig.rule, &rig.state));
}

static void maybe_settle(int64_t t, int64_t t0, int64_t c0)
{
    if (below(4) == 0 && weir__algorithm_of(&rig.rule)->settle)
        settle(&rig, t, t0, c0, below(12));
    CHECK(weir__state_sound(&rig.rule, &rig.state));
}

static void run(const char *text)
{
    static const int64_t waits[] = {WEIR_WAIT_DEFAULT, 0, 1000, 300000, WEIR_WAIT_ANY};
    int64_t t = T0 + below(2 * MINUTE);
    rig_init(&rig, text);
    rig_init(&fresh, text);
    int64_t period = rig.rule.period_us;
    for (int step = 0; step < 400; step++) {
        int64_t cost = below(8) ? below(6) : below(30);
        int64_t wait = waits[below(WEIR__COUNT(waits))];
        t += below(3) ? below(1 + period / 5) : below(3) * period;
        if (below(20) == 0)
            t -= below(1 + period / 3); /* the clock runs back */
        check_retry(t, below(12), wait);
        check_reset(t);
        check_remaining(t);
        check_take(t, cost, wait);
        maybe_settle(t, t - below(2) * below(1 + period), cost);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20240601;
    printf("seed %llu\n", (unsigned long long)seed);
    random_state = seed;
    for (size_t i = 0; i < WEIR__COUNT(limits); i++) {
        long failed = test_failed;
        run(limits[i]);
        if (test_failed > failed)
            printf("in \"%s\"\n", limits[i]);
    }
    return test_report();
}

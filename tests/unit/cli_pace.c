/*
 * The pace of `weir pipe` under a virtual clock: whenever it wakes up and however long a write
 * takes, a stream is never faster than its limit in any span of time. If it wakes up about in time
 * it is hardly slower. Streams that share a limit pay for no more than it allows.
 */
#include "cli/pace.h"
#include "cli/progress.h"
#include "store_test.h"

static _Atomic int64_t now;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

/* What was written so far, against every span that ends now: with S the sum and t the time, no
 * S - r*t may lie more than a burst above the least one before it. All times the period. */
struct curve {
    int64_t count, period_us;
    __int128 sum, least;
    int64_t begun_us;
};

static void curve_begin(struct curve *curve, const struct weir__rule *rule)
{
    *curve = (struct curve){.count = rule->count, .period_us = rule->period_us, .begun_us = now};
    curve->least = 0;
}

static __int128 curve_at(const struct curve *curve)
{
    return curve->sum * curve->period_us - (__int128)(now - curve->begun_us) * curve->count;
}

/* In units, rounded up. */
static int64_t curve_units(const struct curve *curve, __int128 scaled)
{
    return scaled <= 0 ? 0 : (int64_t)((scaled + curve->period_us - 1) / curve->period_us);
}

/* Units go out now. The most in any span that ends now, beyond what flows in it. */
static int64_t curve_add(struct curve *curve, int64_t units)
{
    __int128 before = curve_at(curve);
    if (before < curve->least)
        curve->least = before;
    curve->sum += units;
    return curve_units(curve, curve_at(curve) - curve->least);
}

struct play {
    const char *text;
    int64_t late_us;  /* wake-ups, at most */
    int64_t write_us; /* a write takes so long, at most; now and then a thousand times */
    int64_t units;    /* how many to write */
};

static void play_check(const struct play *play, bool fast)
{
    const weir_clock clock = {.now = test_clock_now, .context = &now};
    weir_limit *limit = test_limit(play->text);
    const struct weir__rule *rule = &limit->rules[0];
    struct cli_pace pace;
    struct curve curve;
    int64_t over = 0, ahead = 0;
    now = START;
    if (!CHECK(cli_pace_can(limit) && cli_pace_open(limit, &clock, &pace, NULL) == 0))
        return;
    curve_begin(&curve, rule);
    for (int64_t left = play->units; left > 0;) {
        int64_t units, wait_us;
        if (!CHECK(cli_pace_pay(&pace, draw(4) ? left : 1 + (int64_t)draw((uint64_t)left), &units,
                                &wait_us) == 0))
            break;
        now += wait_us + (wait_us > 0 ? (int64_t)draw((uint64_t)play->late_us + 1) : 0);
        now += (int64_t)draw((uint64_t)play->write_us + 1) * (draw(50) || fast ? 1 : 1000);
        over = weir__max(over, curve_add(&curve, units));
        ahead = weir__max(ahead, curve_units(&curve, curve_at(&curve)));
        left -= units;
        cli_pace_sent(&pace);
    }
    char what[200];
    const int64_t burst = weir__max(rule->burst, cli_pace_flow(limit, CLI_PACE_SMALL_US));
    snprintf(what, sizeof what, "%s: %lld in a span beyond its flow, the burst is %lld", play->text,
             (long long)over, (long long)burst);
    test_check(over <= burst, __FILE__, __LINE__, what);
    snprintf(what, sizeof what, "%s: %lld ahead since the beginning", play->text, (long long)ahead);
    test_check(ahead <= rule->burst, __FILE__, __LINE__, what);
    const int64_t ideal =
        (int64_t)((__int128)(play->units - rule->burst) * rule->period_us / rule->count);
    snprintf(what, sizeof what, "%s: took %lld us, expected %lld us", play->text,
             (long long)(now - START), (long long)ideal);
    if (fast)
        test_check(now - START <= ideal + ideal / 100 + 1000, __FILE__, __LINE__, what);
    cli_pace_close(&pace);
    weir_limit_free(limit);
}

static void test_never_faster(void)
{
    static const char *const texts[] = {
        "token-bucket 5m/s burst 1m", "token-bucket 5m/s burst 1",    "token-bucket 5m/s",
        "token-bucket 10/s burst 1",  "token-bucket 10/s burst 3",    "token-bucket 1000/s burst 1",
        "token-bucket 7/m burst 2",   "token-bucket 100k/h burst 5k", "token-bucket 1k/s burst 1m",
        "token-bucket 3/7ms burst 2", "token-bucket 1g/s burst 64k",
    };
    for (size_t i = 0; i < WEIR__COUNT(texts); i++) {
        weir_limit *limit = test_limit(texts[i]);
        int64_t units = 3 * limit->rules[0].burst + 2000 * weir__max(1, cli_pace_flow(limit, 5000));
        weir_limit_free(limit);
        play_check(&(struct play){texts[i], 0, 0, units}, false);
        play_check(&(struct play){texts[i], 500, 50, units}, false);
        play_check(&(struct play){texts[i], 50000, 3000, units}, false);
    }
}

/* A machine that wakes up a fifth of a millisecond late at most, and writes quickly. */
static void test_hardly_slower(void)
{
    static const struct play plays[] = {
        {"token-bucket 5m/s burst 1m", 200, 20, 50000000},
        {"token-bucket 5m/s burst 1", 200, 20, 50000000},
        {"token-bucket 10/s burst 1", 200, 20, 2000},
        {"token-bucket 1000/s burst 1", 200, 20, 20000},
        {"token-bucket 100k/s burst 3k", 200, 20, 2000000},
        {"token-bucket 1m/m burst 1", 200, 20, 100000},
        {"token-bucket 500m/s burst 8m", 200, 20, INT64_C(3000000000)},
    };
    for (size_t i = 0; i < WEIR__COUNT(plays); i++)
        play_check(&plays[i], true);
}

/* A slow reader is waited for, and then gets no more than a burst at once. */
static void test_slow_reader(void)
{
    const weir_clock clock = {.now = test_clock_now, .context = &now};
    weir_limit *limit = test_limit("token-bucket 1m/s burst 100k");
    struct cli_pace pace;
    struct curve curve;
    int64_t over = 0, units, wait_us;
    now = START;
    CHECK(cli_pace_open(limit, &clock, &pace, NULL) == 0);
    curve_begin(&curve, &limit->rules[0]);
    for (int i = 0; i < 300; i++) {
        CHECK(cli_pace_pay(&pace, 65536, &units, &wait_us) == 0 && units > 0);
        now += wait_us + (i % 30 == 7 ? 5 * SECOND : 0);
        over = weir__max(over, curve_add(&curve, units));
        cli_pace_sent(&pace);
    }
    CHECK(over <= 100000);
    CHECK(over > 90000); /* what was earned while the reader was away is not lost */
    cli_pace_close(&pace);
    weir_limit_free(limit);
}

/* Three streams on one key, each at its own pace: together they pay for no more than the limit. */
static void test_shared(void)
{
    weir_store *store = test_open("memory:1m", &now);
    weir_limit *limit = test_limit("token-bucket 1m/s burst 200k");
    struct cli_pace paces[3];
    int64_t due[3] = {0}, held[3] = {0}, sums[3] = {0};
    struct curve curve;
    int64_t over = 0;
    now = START;
    for (size_t i = 0; i < 3; i++)
        CHECK(cli_pace_share(limit, store, weir_key_text("shared"), &paces[i], NULL) == 0);
    curve_begin(&curve, &limit->rules[0]);
    while (now < START + 20 * SECOND) {
        size_t first = due[0] <= due[1] && due[0] <= due[2] ? 0 : due[1] <= due[2] ? 1 : 2;
        int64_t wait_us;
        now = weir__max(now, due[first]);
        if (held[first]) {
            over = weir__max(over, curve_add(&curve, held[first]));
            sums[first] += held[first];
            cli_pace_sent(&paces[first]);
        }
        CHECK(cli_pace_pay(&paces[first], 65536, &held[first], &wait_us) == 0);
        due[first] = now + wait_us;
    }
    CHECK(over <= 200000);
    int64_t all = sums[0] + sums[1] + sums[2];
    CHECK(all <= 200000 + (now - START) && all >= (now - START) * 99 / 100);
    for (size_t i = 0; i < 3; i++) {
        CHECK(sums[i] > all / 4);
        cli_pace_close(&paces[i]);
    }
    weir_limit_free(limit);
    weir_store_close(store);
}

static void test_what_is_refused(void)
{
    weir_store *store = test_open("memory:1m", NULL);
    weir_error err = {0};
    struct cli_pace pace;
    weir_limit *small = test_limit("token-bucket 5m/s burst 1");
    CHECK_INT(cli_pace_share(small, store, weir_key_text("k"), &pace, &err), WEIR_EINVAL);
    CHECK(strstr(err.message, "expected burst 100000 or more"));
    weir_limit_free(small);
    static const char *const others[] = {
        "leaky-bucket 5/s burst 5",
        "token-bucket 5/s stepped",
        "fixed-window 5/s",
        "token-bucket 5/s, token-bucket 9/m",
        "concurrent 5",
    };
    for (size_t i = 0; i < WEIR__COUNT(others); i++) {
        weir_limit *limit = test_limit(others[i]);
        CHECK(!cli_pace_can(limit));
        weir_limit_free(limit);
    }
    weir_store_close(store);
}

static void progress_is(const struct cli_progress *progress, int64_t at_us, const char *expected)
{
    char text[256];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    cli_progress_put(progress, at_us, &out);
    CHECK_TEXT(text, expected);
}

static void test_progress(void)
{
    struct cli_progress progress = {.total = -1};
    cli_progress_begin(&progress, 0);
    progress_is(&progress, 0, "0 B  0 B/s  0:00:00");
    progress.bytes = progress.units = 1234567;
    progress_is(&progress, 2 * SECOND, "1.23 MB  617 kB/s  0:00:02");
    progress.total = 4 * 1234567;
    progress_is(&progress, 2 * SECOND, "1.23 MB  617 kB/s  0:00:02  25%  0:00:06 left");
    progress.bytes = progress.units = progress.total;
    progress_is(&progress, 3725 * SECOND, "4.94 MB  1.33 kB/s  1:02:05  100%  0:00:00 left");
    progress.bytes++; /* the file grew meanwhile */
    progress_is(&progress, 3725 * SECOND, "4.94 MB  1.33 kB/s  1:02:05");
    progress.lines = true;
    progress.units = 999;
    progress_is(&progress, 100 * SECOND, "999 lines  4.94 MB  10 lines/s  0:01:40");
}

int main(void)
{
    state = test_seed(NULL) * 2 + 1;
    test_never_faster();
    test_hardly_slower();
    test_slow_reader();
    test_shared();
    test_what_is_refused();
    test_progress();
    return test_report();
}

/* Durations: read, refused with a reason, printed. */
#include "base/duration.h"
#include "test.h"

static void reads(const char *text, int64_t us)
{
    int64_t got = -1;
    const char *why = "";
    size_t used = weir__duration_parse(text, strlen(text), &got, &why);
    if (used != strlen(text) || got != us)
        printf("\"%s\": %s\n", text, why);
    CHECK_INT(used, strlen(text));
    CHECK_INT(got, us);
}

static void refuses(const char *text, const char *reason)
{
    int64_t got = -1;
    const char *why = "(none)";
    CHECK_INT(weir__duration_parse(text, strlen(text), &got, &why), 0);
    CHECK_TEXT(why, reason);
    CHECK_INT(got, -1);
}

static void test_units(void)
{
    reads("us", 1);
    reads("ms", 1000);
    reads("s", 1000000);
    reads("m", 60000000);
    reads("h", INT64_C(3600000000));
    reads("d", INT64_C(86400000000));
    reads("w", INT64_C(604800000000));
    reads("S", 1000000);
    reads("10Ms", 10000);
}

static void test_sums(void)
{
    reads("1h30m", INT64_C(5400000000));
    reads("1w1d1h1m1s1ms1us", INT64_C(694861001001));
    reads("90m", INT64_C(5400000000));
    reads("0h30m", INT64_C(1800000000));
    reads("1.5s", 1500000);
    reads("1.5h1.5m", INT64_C(5490000000));
    reads("0.000001s", 1);
    reads("2.50ms", 2500);
    reads("007s", 7000000);
}

static void test_bounds(void)
{
    reads("366d", WEIR_DURATION_MAX);
    reads("52w2d", WEIR_DURATION_MAX);
    reads("31622400000000us", WEIR_DURATION_MAX);
    refuses("366d1us", "a duration is at most 366 days");
    refuses("367d", "a duration is at most 366 days");
    refuses("53w", "a duration is at most 366 days");
    refuses("31622400000001us", "a duration is at most 366 days");
    refuses("999999999999999w", "a duration is at most 366 days");
}

static void test_refusals(void)
{
    static const char unit[] =
        "a duration needs a unit: us, ms, s, m, h, d or w (or sec, min, hour, day, week)";
    refuses("", unit);
    refuses("10", unit);
    refuses("10x", unit);
    refuses("10sx", unit);
    refuses("1h30", unit);
    refuses(".5s", unit);
    refuses("1.s", unit);
    refuses("1..5s", unit);
    refuses("-1s", unit);
    refuses("1 s", unit);
    refuses("1000000000000000us", unit); /* sixteen digits */
    refuses("1m1h", "units come largest first, each once, like 1h30m");
    refuses("1s1s", "units come largest first, each once, like 1h30m");
    refuses("1.5us", "a duration must be whole microseconds");
    refuses("0.0000001s", "a duration must be whole microseconds");
    refuses("0s", "a duration must be more than zero");
    refuses("0h0m0.0s", "a duration must be more than zero");
}

/* The longest duration at the start of a text; what follows is the caller's. */
static void test_stops(void)
{
    int64_t got = 0;
    const char *why = NULL;
    CHECK_INT(weir__duration_parse("10s/x", 5, &got, &why), 3);
    CHECK_INT(weir__duration_parse("10sec", 3, &got, &why), 3);
    CHECK_INT(got, 10000000);
    CHECK_INT(weir__duration_parse("s10", 3, &got, &why), 1);
    CHECK_INT(weir__duration_parse("1h.", 3, &got, &why), 2);
}

static void prints(int64_t us, bool bare, const char *expected)
{
    char text[64];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_duration(&buffer, us, bare);
    CHECK_TEXT(text, expected);
}

static void test_print(void)
{
    prints(1, false, "1us");
    prints(1000, false, "1ms");
    prints(1000000, false, "1s");
    prints(90000000, false, "1m30s");
    prints(INT64_C(5400000000), false, "1h30m");
    prints(INT64_C(694861001001), false, "1w1d1h1m1s1ms1us");
    prints(WEIR_DURATION_MAX, false, "52w2d");
    prints(1000000, true, "s");
    prints(10000000, true, "10s");
    prints(60000000, true, "m");
    prints(61000000, true, "1m1s");
    prints(INT64_C(604800000000), true, "w");
    prints(0, false, "");
}

static void seconds(int64_t us, const char *expected)
{
    char text[64];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_seconds(&buffer, us);
    CHECK_TEXT(text, expected);
}

static void test_seconds(void)
{
    seconds(0, "0.000000");
    seconds(1, "0.000001");
    seconds(1500000, "1.500000");
    seconds(INT64_MAX, "9223372036854.775807");
    seconds(WEIR_NEVER, "never");
}

/* A wait is never said too short; how long something was is said as it was. */
static void rounds(int64_t us, const char *about, const char *lasted)
{
    char text[64];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    weir__put_about(&buffer, us);
    CHECK_TEXT(text, about);
    buffer = weir__buffer_over(text, sizeof text);
    weir__put_lasted(&buffer, us);
    CHECK_TEXT(text, lasted);
}

static void test_rounded(void)
{
    rounds(0, "0s", "0s");
    rounds(1, "1us", "1us");
    rounds(1234567, "1.24s", "1.23s");
    rounds(59960000, "1m", "1m");
    rounds(INT64_C(3600500000) - 1, "1h1s", "1h");
    rounds(INT64_C(3600500000), "1h1s", "1h1s");
    rounds(INT64_C(86400500000), "1d1m", "1d");
    rounds(INT64_C(172801000000), "2d1m", "2d");
    rounds(INT64_C(86399600000), "1d", "1d");
    rounds(INT64_C(604801000000), "1w1h", "1w");
}

int main(void)
{
    test_units();
    test_sums();
    test_bounds();
    test_refusals();
    test_stops();
    test_print();
    test_seconds();
    test_rounded();
    return test_report();
}

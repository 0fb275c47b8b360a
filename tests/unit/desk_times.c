/* Times as logs write them, against the C library's calendar; and what is not a time. */
#include "desk/times.h"
#include "test.h"

#include <inttypes.h>

static int64_t us;
static bool whole;

static bool reads(struct desk_times *times, const char *text)
{
    us = -1;
    /* in memory of its own, so that a read past its end is seen */
    size_t len = strlen(text);
    char *copy = malloc(len + !len);
    memcpy(copy, text, len);
    bool ok = desk_time_read(times, (struct weir__span){copy, len}, &us, &whole);
    free(copy);
    return ok;
}

static void is(const char *text, int64_t expected, bool in_seconds)
{
    struct desk_times times = {0};
    if (!CHECK(reads(&times, text)))
        printf("  %s cannot be read\n", text);
    CHECK_INT(us, expected);
    CHECK_INT(whole, in_seconds);
    CHECK(reads(&times, text)); /* from memory */
    CHECK_INT(us, expected);
}

static void test_spellings(void)
{
    int64_t t = INT64_C(1794810525000000);
    is("16/Nov/2026:06:28:45 +0000", t, true);
    is("16/Nov/2026:07:28:45 +0100", t, true);
    is("15/Nov/2026:22:58:45 -0730", t, true);
    is("16/Nov/2026:06:28:45", t, true);
    is("16/Nov/2026:06:28:45.5", t + 500000, false);
    is("16/nov/2026:06:28:45.123 +0000", t + 123000, false);
    is("2026-11-16T06:28:45Z", t, true);
    is("2026-11-16T06:28:45.123456789Z", t + 123456, false);
    is("2026-11-16T07:28:45,25+01:00", t + 250000, false);
    is("2026-11-16 06:28:45", t, true);
    is("2026/11/16 06:28:45 +0000", t, true);
    is("2026-11-16T06:28:45.999999999+00:00", t + 999999, false);
    is("1794810525", t, true);
    is("1794810525.123", t + 123000, false);
    is("1794810525.1234567", t + 123456, false);
    is("1794810525123", t + 123000, false);
    is("1794810525123456", t + 123456, false);
    is("1794810525123456789", t + 123456, false);
    is("31/Dec/2016:23:59:60 +0000", INT64_C(1483228800000000), true);
    is("01/Jan/1970:00:00:00 +0000", 0, true);
    is("29/Feb/2000:00:00:00 +0000", INT64_C(951782400000000), true);
}

static void test_refused(void)
{
    static const char *const wrong[] = {
        "",
        "-",
        "16/Foo/2026:06:28:45 +0000",
        "32/Nov/2026:06:28:45 +0000",
        "29/Feb/2023:06:28:45 +0000",
        "00/Nov/2026:06:28:45 +0000",
        "16/Nov/2026:24:28:45 +0000",
        "16/Nov/2026:06:60:45 +0000",
        "16/Nov/2026:06:28:61 +0000",
        "16/Nov/2026:06:28:45 +1500",
        "16/Nov/2026:06:28:45 CET",
        "16/Nov/2026 06:28:45 +0000",
        "16-Nov-2026:06:28:45 +0000",
        "31/Dec/1969:23:59:59 +0000",
        "01/Jan/1970:00:00:00 +0100",
        "01/Jan/2256:00:00:00 +0000",
        "2026-13-16T06:28:45Z",
        "2026-11-16X06:28:45Z",
        "2026-11-16T06:28:45Zz",
        "2026-11-16T06:28",
        "2026-11-16",
        "1794810525s",
        "1794810525ms",
        "1e9",
        "-5",
        "17 94",
        "99999999999999999999",
        "9999999999.5",
    };
    for (size_t i = 0; i < WEIR__COUNT(wrong); i++) {
        struct desk_times times = {0};
        if (!CHECK(!reads(&times, wrong[i])))
            printf("  %s is %" PRId64 "\n", wrong[i], us);
    }
}

/* Random times, by gmtime; one struct for all, so that the memory is tried. */
static void test_calendar(uint64_t seed)
{
    struct desk_times clf = {0}, iso = {0};
    uint64_t state = seed | 1;
    for (int i = 0; i < 20000; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        time_t at = (time_t)(state >> 16) % INT64_C(9000000000);
        if (i % 3)
            at = (time_t)(i / 7 + 1700000000);
        int offset = (int)(state >> 8 & 15) - 8; /* hours */
        if ((int64_t)at + offset * 3600 < 0)
            continue;
        time_t local = at + offset * 3600;
        struct tm tm;
        char text[64], head[40];
        gmtime_r(&local, &tm);
        strftime(head, sizeof head, "%d/%b/%Y:%H:%M:%S", &tm);
        snprintf(text, sizeof text, "%s %+03d00", head, offset);
        CHECK(reads(&clf, text) && us == (int64_t)at * 1000000);
        strftime(head, sizeof head, "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(text, sizeof text, "%s.%03d%+03d:00", head, i % 1000, offset);
        CHECK(reads(&iso, text) && us == (int64_t)at * 1000000 + i % 1000 * 1000);
    }
}

static void test_zones(void)
{
    struct desk_times times = {.zone_us = INT64_C(-3600000000)};
    CHECK(reads(&times, "16/Nov/2026:06:28:45.655") && us == INT64_C(1794814125655000));
    CHECK(times.zone_assumed);
    times = (struct desk_times){.zone_us = INT64_C(-3600000000)};
    CHECK(reads(&times, "16/Nov/2026:06:28:45 +0000") && us == INT64_C(1794810525000000));
    CHECK(!times.zone_assumed);
    /* The first number says what all numbers are. */
    CHECK(reads(&times, "1794810525") && !reads(&times, "1794810526123"));
}

static void duration_is(const char *text, int64_t unit_ns, int64_t expected)
{
    int64_t ns = -1;
    bool ok = desk_nanoseconds(weir__span_of(text), unit_ns, &ns);
    CHECK_INT(ok ? ns : -1, expected);
}

static void test_durations(void)
{
    duration_is("0.005", 1000000000, 5000000);
    duration_is("12", 1000000, 12000000);
    duration_is("12ms", 1000000000, 12000000);
    duration_is("1.5s", 1, 1500000000);
    duration_is("1500000", 1, 1500000);
    duration_is("0.0000000009", 1000000000, 0);
    duration_is("", 1, -1);
    duration_is(".5", 1, -1);
    duration_is("-1", 1, -1);
    duration_is("1h", 1, -1);
    duration_is("9223372036854775807", 1000000000, -1);
    duration_is("99999999999999999999999", 1, -1);
}

int main(int argc, char **argv)
{
    test_spellings();
    test_refused();
    test_calendar(test_seed(argc > 1 ? argv[1] : NULL));
    test_zones();
    test_durations();
    return test_report();
}

/* Every way a limit text can be wrong: the whole message, and the column it points at. */
#include "test.h"
#include "weir.h"

#define NAMES                                                                                      \
    "the name of a limit (token-bucket, leaky-bucket, fixed-window, sliding-log, "                 \
    "sliding-window, sliding-counter, smooth, warmup, concurrent)"
#define UNIT "a duration needs a unit: us, ms, s, m, h, d or w (or sec, min, hour, day, week)"
#define PERIOD                                                                                     \
    "a period needs a unit: us, ms, s, m, h, d, w, month or year (or sec, min, hour, day, week)"
#define WIDE(found, ascii) "\"" found "\" is a full-width character, write \"" ascii "\" instead"
#define SHARED " and would share its state; use another period or a key of its own"
#define DECIMAL "a number like 3 or 2.5 (at most six decimals)"
#define TOO_LARGE                                                                                  \
    "burst times period is too large to count exactly (2^53); use a smaller burst or "             \
    "a shorter period"
#define REQ "this is limit_req of nginx; write "
#define RATE ", with the rate of its limit_req_zone"
#define TOKEN "; example: token-bucket 10/s burst 20"
#define LEAKY "; example: leaky-bucket 10/s burst 5 nodelay"
#define FIXED "; example: fixed-window 100/m"
#define MONTHS "; example: fixed-window 5000/month from 15 zone +08:00"
#define LOG "; example: sliding-log 5/m"
#define WINDOW "; example: sliding-window 240/h precision 1m"
#define COUNTER "; example: sliding-counter 1000/h"
#define SMOOTH "; example: smooth 5/s burst-for 2s"
#define WARMUP "; example: warmup 5/s over 3s cold 3"
#define LEASES "; example: concurrent 20 lease 30s"

static const struct {
    const char *text;
    int column;
    const char *message; /* behind "column N: " */
} wrong[] = {
    {"", 1, "expected " NAMES ", found the end" TOKEN},
    {"token-bucket 10/\xff\x80s", 17,
     "a duration needs a unit: us, ms, s, m, h, d or w (or sec, min, hour, day, week), found "
     "\"??s\"" TOKEN},
    {"fixed-window 10/M", 17,
     "a capital M may be minutes or months: write m or min for minutes, 30d or "
     "(fixed-window) month for a month, found "
     "\"M\"" FIXED},
    {"concurrent 3 lease 1h30M", 20,
     "a capital M may be minutes or months: write m or min for minutes, 30d or "
     "(fixed-window) month for a month, found "
     "\"1h30M\"" LEASES},
    {"token-bucket 10／s", 16, WIDE("／", "/") "; found \"10／s\"" TOKEN},
    {"token-bucket １0/s", 14, WIDE("１", "1") "; found \"１0/s\"" TOKEN},
    {"token-bucket 10/s，fixed-window 3/m", 18,
     WIDE("，", ",") "; found \"s，fixed-window\"" TOKEN},
    {"token-bucket：10/s", 13, WIDE("：", ":") "; found \"token-bucket：10/s\"" TOKEN},
    {"token-bucket　10/s", 13, WIDE("　", " ") "; found \"token-bucket　10/s\"" TOKEN},
    {"token-bucket 10/s burst ２０", 25, WIDE("２", "2") "; found \"２０\"" TOKEN},
    {"tokën 3/s", 1, "expected " NAMES ", found \"tokën\"" TOKEN},
    {"token-bucket ë x", 14, "expected a rate like 10/s, found \"ë\"" TOKEN},
    {"limit_req rate=10r/s burst=20 nodelay;", 1, REQ "leaky-bucket 10r/s burst 20 nodelay"},
    {"limit_req zone=one burst=12 delay=8;", 1, REQ "leaky-bucket 10r/s burst 12 delay 8" RATE},
    {"limit_req_zone $binary_remote_addr zone=one:10m rate=5r/m;", 1, REQ "leaky-bucket 5r/m"},
    {"rate=10r/s burst=20", 1, REQ "leaky-bucket 10r/s burst 20"},
    {"fixed-window 1/m,  rate=", 20, REQ "leaky-bucket 10r/s" RATE},
    {"limit_req rate=\033[1m burst=x", 1, REQ "leaky-bucket 10r/s" RATE},
    {" ", 2, "expected " NAMES ", found the end" TOKEN},
    {",", 1, "expected " NAMES ", found \",\"" TOKEN},
    {"token", 1, "expected " NAMES ", found \"token\"" TOKEN},
    {"token-bucket", 13, "expected a rate like 10/s, found the end" TOKEN},
    {"token-bucket,", 13, "expected a rate like 10/s, found \",\"" TOKEN},
    {"token-bucket ten/s", 14, "expected a rate like 10/s, found \"ten/s\"" TOKEN},
    {"token-bucket 10", 14, "expected a rate like 10/s, found \"10\"" TOKEN},
    {"token-bucket 10 /s", 14, "expected a rate like 10/s, found \"10\"" TOKEN},
    {"token-bucket 10/", 17, UNIT ", found the end" TOKEN},
    {"fixed-window 10/", 17, PERIOD ", found the end" FIXED},
    {"fixed-window 1m/mnth", 17, PERIOD ", found \"mnth\"" FIXED},
    {"token-bucket 10/x", 17, UNIT ", found \"x\"" TOKEN},
    {"token-bucket 10/sx", 17, UNIT ", found \"sx\"" TOKEN},
    {"token-bucket 10/s5", 17, "expected a period like s, 10s or 1h30m, found \"s5\"" TOKEN},
    {"token-bucket 10/1m1h", 17,
     "units come largest first, each once, like 1h30m, found \"1m1h\"" TOKEN},
    {"token-bucket 10/1.5us", 17, "a duration must be whole microseconds, found \"1.5us\"" TOKEN},
    {"token-bucket 10/0s", 17, "a duration must be more than zero, found \"0s\"" TOKEN},
    {"token-bucket 10/367d", 17, "a duration is at most 366 days, found \"367d\"" TOKEN},
    {"token-bucket 0/s", 14, "expected a count of at least 1, found \"0/s\"" TOKEN},
    {"token-bucket 1001g/s", 14,
     "expected a count of at most 1000g (10^12), found \"1001g/s\"" TOKEN},
    {"token-bucket 99999999999999999999/s", 14,
     "expected a count of at most 1000g (10^12), found \"99999999999999999999/s\"" TOKEN},
    {"token-bucket 10rk/s", 14, "expected a rate like 10/s, found \"10rk/s\"" TOKEN},
    {"token-bucket 10/s burst", 24, "expected a count like 20, found the end" TOKEN},
    {"token-bucket 10/s burst,", 24, "expected a count like 20, found \",\"" TOKEN},
    {"token-bucket 10/s burst x", 25, "expected a count like 20, found \"x\"" TOKEN},
    {"token-bucket 10/s burst 0", 25, "expected a count of at least 1, found \"0\"" TOKEN},
    {"token-bucket 10/s burst 5x", 25, "expected a count like 20, found \"5x\"" TOKEN},
    {"token-bucket 10/s burst 2000g", 25,
     "expected a count of at most 1000g (10^12), found \"2000g\"" TOKEN},
    {"token-bucket 10/s burst 5 burst 5", 27, "expected each option once, found \"burst\"" TOKEN},
    {"token-bucket 10/s nodelay", 19,
     "expected \"burst\", \"stepped\", \"cost\", a comma or the end, found \"nodelay\"" TOKEN},
    {"token-bucket 10/s stepped stepped", 27, "expected each option once, found \"stepped\"" TOKEN},
    {"token-bucket 10/1m1us", 1,
     "a bucket's period above one minute must be whole milliseconds" TOKEN},
    {"token-bucket 1/366d burst 285000", 1, TOO_LARGE TOKEN},
    {"token-bucket 1/s burst 9007199255 stepped", 1,
     "refilling that burst takes longer than can be counted exactly (2^53 µs); use a "
     "smaller burst or a shorter period" TOKEN},
    {"token-bucket 10/s,", 19, "expected " NAMES ", found the end" TOKEN},
    {"token-bucket 10/s, ", 20, "expected " NAMES ", found the end" TOKEN},
    {"leaky-bucket 10/s nodelay delay 3", 27,
     "expected nodelay or delay, not both, found \"delay\"" LEAKY},
    {"leaky-bucket 10/s delay 3 nodelay", 27,
     "expected nodelay or delay, not both, found \"nodelay\"" LEAKY},
    {"leaky-bucket 10/s burst 2 delay 3", 1, "delay must not exceed burst" LEAKY},
    {"leaky-bucket 10/s stepped", 19,
     "expected \"burst\", \"nodelay\", \"delay\", \"cost\", a comma or the end, found "
     "\"stepped\"" LEAKY},
    {"leaky-bucket 10/s delay", 24, "expected a count like 20, found the end" LEAKY},
    {"leaky-bucket 1/366d burst 284841", 1, TOO_LARGE LEAKY},
    {"fixed-window 100/m burst 5", 20,
     "expected \"from-first\", \"from\", \"zone\", \"cost\", a comma or the end, found "
     "\"burst\"" FIXED},
    {"fixed-window 5/month from 32", 27,
     "expected a day of the month, 1 to 31, found \"32\"" MONTHS},
    {"fixed-window 5/month from", 26, "expected a day of the month, 1 to 31, found the end" MONTHS},
    {"fixed-window 5/m zone +15:00", 23,
     "expected an offset like +08:00 or -03:30, from -12:00 to +14:00, found \"+15:00\"" MONTHS},
    {"fixed-window 5/m zone +8", 23,
     "expected an offset like +08:00 or -03:30, from -12:00 to +14:00, found \"+8\"" MONTHS},
    {"fixed-window 5/m zone Europe/Berlin", 23,
     "a zone has no name here, only an offset from UTC like +01:00 (no summer time), found "
     "\"Europe/Berlin\"" MONTHS},
    {"fixed-window 5/year from 31", 26,
     "expected a day of the year, month-day like 04-06, from 01-01 to 12-31, found \"31\"" MONTHS},
    {"fixed-window 5/year from 02-30", 26,
     "expected a day of the year, month-day like 04-06, from 01-01 to 12-31, found "
     "\"02-30\"" MONTHS},
    {"fixed-window 5/w from monday", 23,
     "expected a day of the week: mon, tue, wed, thu, fri, sat or sun, found \"monday\"" MONTHS},
    {"fixed-window 5/d from 1", 18,
     "only a period of one week, a month or a year has from, found \"from\"" MONTHS},
    {"fixed-window 5/2months", 16,
     "expected month alone, like 5000/month, found \"2months\"" MONTHS},
    {"fixed-window 5/1year", 16, "expected year alone, like 5000/year, found \"1year\"" MONTHS},
    {"token-bucket 5/month", 16,
     "only fixed-window counts by months: write 30d here, found \"month\"" TOKEN},
    {"sliding-counter 5/year", 19,
     "only fixed-window counts by years: write 365d here, found \"year\"" COUNTER},
    {"fixed-window 5/month from-first", 22,
     "a month or a year starts by the calendar, not with its first request: leave this out, found "
     "\"from-first\"" MONTHS},
    {"fixed-window 5/m from-first zone +01:00", 29,
     "expected from-first, or from and zone, not both, found \"zone\"" FIXED},
    {"fixed-window 5/m zone +01:00 from-first", 30,
     "expected from-first, or from and zone, not both, found \"from-first\"" FIXED},
    {"fixed-window 5/month zone +01:00 zone +01:00", 34,
     "expected each option once, found \"zone\"" FIXED},
    {"fixed-window 100/m from-first from-first", 31,
     "expected each option once, found \"from-first\"" FIXED},
    {"sliding-log 100001/m", 1, "the count is at most 100k here" LOG},
    {"sliding-log 5/m precision 1s", 17,
     "expected \"cost\", a comma or the end, found \"precision\"" LOG},
    {"sliding-window 240/h precision", 31, UNIT ", found the end" WINDOW},
    {"sliding-window 240/h precision 2h", 1, "precision must not exceed the period" WINDOW},
    {"sliding-window 240/h precision 1us", 1,
     "precision is too fine: at most 10000 slots per period" WINDOW},
    {"sliding-window 240/h precision 0s", 32,
     "a duration must be more than zero, found \"0s\"" WINDOW},
    {"sliding-window 240/h precision 1s2", 32, UNIT ", found \"1s2\"" WINDOW},
    {"sliding-window 240/h precision s2", 32, "expected a duration like 30s, found \"s2\"" WINDOW},
    {"sliding-counter 1000000001/h", 1, "the count is at most 1g here" COUNTER},
    {"smooth 5/s burst-for", 21, UNIT ", found the end" SMOOTH},
    {"smooth 5/s burst-for never", 22, UNIT ", found \"never\"" SMOOTH},
    {"warmup 5/s", 1, "warmup needs \"over\" and a duration" WARMUP},
    {"warmup 5/s over", 16, UNIT ", found the end" WARMUP},
    {"warmup 5/s over 3s cold", 24, "expected " DECIMAL ", found the end" WARMUP},
    {"warmup 5/s over 3s cold x", 25, "expected " DECIMAL ", found \"x\"" WARMUP},
    {"warmup 5/s over 3s cold 1", 1, "cold must be over 1 and at most 1000" WARMUP},
    {"warmup 5/s over 3s cold 5000", 1, "cold must be over 1 and at most 1000" WARMUP},
    {"warmup 5/s over 3s cold 1000.000001", 1, "cold must be over 1 and at most 1000" WARMUP},
    {"warmup 5/s over 3s cold 99999999999999", 25,
     "expected " DECIMAL ", found \"99999999999999\"" WARMUP},
    {"warmup 5/s over 3s cold 3.0000001", 25, "expected " DECIMAL ", found \"3.0000001\"" WARMUP},
    {"warmup 5/s over 3s cold .5", 25, "expected " DECIMAL ", found \".5\"" WARMUP},
    {"warmup 5/s over 3s cold 5.", 25, "expected " DECIMAL ", found \"5.\"" WARMUP},
    {"warmup 5/s over 3s cold 1.2.3", 25, "expected " DECIMAL ", found \"1.2.3\"" WARMUP},
    {"concurrent 20/s", 12, "expected a count like 20, found \"20/s\"" LEASES},
    {"concurrent x", 12, "expected a count like 20, found \"x\"" LEASES},
    {"concurrent", 11, "expected a count like 20, found the end" LEASES},
    {"concurrent 0", 12, "expected a count of at least 1, found \"0\"" LEASES},
    {"concurrent 100001", 1, "the count is at most 100k here" LEASES},
    {"concurrent 20 lease", 20, UNIT ", found the end" LEASES},
    {"concurrent 20 lease 0s", 21, "a duration must be more than zero, found \"0s\"" LEASES},
    {"concurrent 20 burst 5", 15,
     "expected \"lease\", \"cost\", a comma or the end, found \"burst\"" LEASES},
    {"fixed-window 100/m cost", 24, "expected a count like 20, found the end" FIXED},
    {"fixed-window 100/m cost 0", 25, "expected a count of at least 1, found \"0\"" FIXED},
    {"fixed-window 100/m cost 1s", 25, "expected a count like 20, found \"1s\"" FIXED},
    {"fixed-window 100/m cost 2000g", 25,
     "expected a count of at most 1000g (10^12), found \"2000g\"" FIXED},
    {"fixed-window 100/m cost 101", 25,
     "expected a cost of at most 100, which is all that the limit admits at once, found "
     "\"101\"" FIXED},
    {"leaky-bucket 10/s cost 6 burst 4", 24,
     "expected a cost of at most 5, which is all that the limit admits at once, found \"6\"" LEAKY},
    {"concurrent 5, concurrent 5 cost 6", 33,
     "expected a cost of at most 5, which is all that the limit admits at once, found "
     "\"6\"" LEASES},
    {"concurrent 5 cost 1 cost 2", 21, "expected each option once, found \"cost\"" LEASES},
    {"token-bucket 1/s, token-bucket 2/s", 19,
     "limit 2 is of the same kind and period as limit 1" SHARED},
    {"concurrent 1, fixed-window 1/s, concurrent 2", 33,
     "limit 3 is of the same kind and period as limit 1" SHARED},
    {"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", 1,
     "expected " NAMES ", found \"abcdefghijklmnopqrstuvwxyzabcdefghijklmn…\"" TOKEN},
    {"token-bucket 10/s a\tb", 19,
     "expected \"burst\", \"stepped\", \"cost\", a comma or the end, found \"a?b\"" TOKEN},
};

static void check(const char *text, int column, const char *message)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    char expected[512];
    snprintf(expected, sizeof expected, "column %d: %s", column, message);
    CHECK_INT(weir_limit_parse(text, &limit, &err), WEIR_ESYNTAX);
    CHECK_INT(err.code, WEIR_ESYNTAX);
    CHECK_INT(err.column, column);
    CHECK(!limit);
    if (!CHECK(!strcmp(err.message, expected)))
        printf("\"%s\"\n  got      %s\n  expected %s\n", text, err.message, expected);
    CHECK_INT(weir_limit_parse(text, &limit, NULL), WEIR_ESYNTAX);
}

static void test_too_many(void)
{
    char text[1024] = "";
    for (int i = 1; i <= 16; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "token-bucket 1/%ds, ", i);
    int column = (int)strlen(text) + 1;
    strcat(text, "smooth 1/s");
    check(text, column, "at most 16 limits");
}

static void test_no_text(void)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    CHECK_INT(weir_limit_parse(NULL, &limit, &err), WEIR_EINVAL);
    CHECK_INT(err.column, 0);
    CHECK(!strcmp(err.message, "the limit text is NULL"));
    CHECK_INT(weir_limit_parse(NULL, &limit, NULL), WEIR_EINVAL);
}

int main(void)
{
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check(wrong[i].text, wrong[i].column, wrong[i].message);
    test_too_many();
    test_no_text();
    return test_report();
}

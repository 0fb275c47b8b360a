"""Hand-picked cases of the windows, the log and the counter; hand-made values are checked."""
from datetime import datetime

from scripts import BASE, Script
from search import DAY, LONGEST, MINUTE, NEVER, SECOND

B = BASE
M = BASE - 20 * SECOND              # a whole minute
H = BASE - 800 * SECOND             # a whole hour
HOUR = 60 * MINUTE


def fixed_window():
    s = Script("twice-the-limit-at-the-edge", "fixed-window 2/m")
    s.take(M + MINUTE - 1, 2, allowed=True, reset_after=1)
    s.take(M + MINUTE - 1, allowed=False, retry_after=1)
    s.take(M + MINUTE, 2, allowed=True, remaining=0, reset_after=MINUTE)
    s.take(M + MINUTE + 1, allowed=False, retry_after=MINUTE - 1)
    s.take(M + 2 * MINUTE - 1, allowed=False, retry_after=1)
    s.take(M + 2 * MINUTE, allowed=True)
    yield s

    s = Script("fixed-cost-zero-equal-over", "fixed-window 5/m")
    s.take(B, 0, allowed=True, remaining=5, reset_after=0)
    s.take(B, 6, allowed=False, retry_after=NEVER)
    s.take(B, 5, allowed=True, remaining=0, reset_after=40 * SECOND)
    s.take(B, 0, allowed=True, reset_after=40 * SECOND)
    s.take(B, 5, "any", allowed=False, retry_after=40 * SECOND)
    yield s

    s = Script("fixed-backwards", "fixed-window 2/s")
    s.take(B, 2)
    s.take(B - 1, allowed=False, retry_after=SECOND + 1)
    s.take(B - MINUTE, allowed=False, retry_after=MINUTE + SECOND)
    s.take(B - MINUTE - 1, 1, allowed=True, remaining=1, reset_after=1)
    s.take(B, 2, allowed=True)
    yield s

    s = Script("fixed-backwards-long-window", "fixed-window 1/h")
    s.take(H + 1)
    s.peek(H - HOUR, allowed=False, retry_after=2 * HOUR)
    s.peek(H - HOUR - 1, allowed=True)
    s.take(H - 1, allowed=False, retry_after=HOUR + 1)
    yield s

    s = Script("fixed-extremes", "fixed-window 1000g/us")
    s.take(B, 10 ** 12, remaining=0, reset_after=1)
    s.take(B, 1, allowed=False, retry_after=1)
    s.take(B + 1, 10 ** 12, allowed=True)
    s.limit("fixed-window 1/366d")
    s.take(B + 1)
    s.take(B + 2, allowed=False)
    s.take(LONGEST * 54 - 1, allowed=False, retry_after=1)
    s.take(LONGEST * 54, allowed=True)
    yield s

    s = Script("fixed-at-the-epoch", "fixed-window 1/s")
    s.take(0)
    s.take(0, allowed=False, retry_after=SECOND)
    s.take(SECOND, allowed=True)
    yield s


def from_first():
    s = Script("opens-with-its-first-request", "fixed-window 2/m from-first")
    s.take(B + 7, remaining=1, reset_after=MINUTE)
    s.take(B + MINUTE, remaining=0, reset_after=7)
    s.take(B + MINUTE + 6, allowed=False, retry_after=1)
    s.take(B + MINUTE + 7, 2, allowed=True, reset_after=MINUTE)
    yield s

    s = Script("denied-and-free-requests-open-nothing", "fixed-window 3/m from-first")
    s.take(B, 4, allowed=False, retry_after=NEVER, reset_after=0)
    s.take(B + 1, 0, allowed=True, reset_after=0)
    s.take(B + 2, 3, allowed=True, reset_after=MINUTE)
    s.take(B + 3, 3, allowed=False, retry_after=MINUTE - 1)
    yield s

    s = Script("from-first-backwards", "fixed-window 2/s from-first")
    s.take(B)
    s.take(B - 10, remaining=0, reset_after=SECOND + 10)
    s.take(B - 10, allowed=False, retry_after=SECOND + 10)
    s.peek(B - MINUTE, allowed=False)
    s.take(B - MINUTE - 1, allowed=True, remaining=1, reset_after=SECOND)
    yield s

    s = Script("from-first-long-horizon", "fixed-window 1/d from-first")
    s.take(B)
    s.peek(B - 24 * HOUR, allowed=False, retry_after=48 * HOUR)
    s.peek(B - 24 * HOUR - 1, allowed=True)
    yield s


def at(text):
    """Microseconds of `2024-02-29 12:00 +08:00`, or of a date and time of UTC."""
    day, time, *zone = text.split()
    return round(datetime.fromisoformat(f"{day}T{time}{zone[0] if zone else '+00:00'}").timestamp()) * SECOND


def calendar_months():
    s = Script("a-month-ends-at-midnight", "fixed-window 5/month")
    s.take(at("2023-01-31 23:59") + MINUTE - 1, 5, remaining=0, reset_after=1)
    s.take(at("2023-01-31 23:59") + MINUTE - 1, allowed=False, retry_after=1)
    s.take(at("2023-02-01 00:00"), 4, allowed=True, remaining=1, reset_after=28 * DAY)
    s.take(at("2023-02-10 00:00"), 2, allowed=False, retry_after=19 * DAY)
    s.take(at("2023-02-10 00:00"), 6, allowed=False, retry_after=NEVER)
    s.take(at("2023-03-01 00:00") - 1, 2, allowed=False, retry_after=1)
    s.take(at("2023-03-01 00:00"), 2, allowed=True, reset_after=31 * DAY)
    yield s

    s = Script("february-of-a-leap-year", "fixed-window 1/month")
    s.take(at("2024-02-01 00:00"), reset_after=29 * DAY)
    s.peek(at("2024-02-29 00:00"), allowed=False, retry_after=DAY)
    s.take(at("2024-03-01 00:00"), allowed=True)
    s.limit("fixed-window 2/month")
    s.take(at("2024-03-02 00:00"), allowed=True, remaining=0)
    s.limit("fixed-window 1/month")
    s.take(at("2100-02-01 00:00"), reset_after=28 * DAY)
    yield s

    s = Script("a-shorter-month-uses-its-last-day", "fixed-window 1/month from 31")
    s.take(at("2023-01-31 00:00"), reset_after=28 * DAY)
    s.take(at("2023-02-28 00:00") - 1, allowed=False, retry_after=1)
    s.take(at("2023-02-28 00:00"), allowed=True, reset_after=31 * DAY)
    s.take(at("2023-03-31 00:00"), allowed=True, reset_after=30 * DAY)
    s.take(at("2023-04-30 00:00"), allowed=True, reset_after=31 * DAY)
    s.take(at("2024-02-29 00:00") - 1, allowed=True, reset_after=1)
    s.take(at("2024-02-29 00:00"), allowed=True, reset_after=31 * DAY)
    yield s

    s = Script("billed-from-the-15th-in-singapore", "fixed-window 5000000/month from 15 zone +08:00")
    s.take(at("2026-11-14 23:59 +08:00"), 5_000_000, remaining=0, reset_after=MINUTE)
    s.take(at("2026-11-15 00:00 +08:00"), 1_000_000, remaining=4_000_000, reset_after=30 * DAY)
    s.take(at("2026-12-14 23:00 +08:00"), 4_500_000, allowed=False, retry_after=HOUR)
    s.take(at("2026-12-15 00:00 +08:00"), 4_500_000, allowed=True)
    yield s


def calendar_years():
    s = Script("a-year", "fixed-window 3/year")
    s.take(at("2023-12-31 23:59"), 3, reset_after=MINUTE)
    s.take(at("2024-01-01 00:00"), 3, reset_after=366 * DAY)
    s.take(at("2024-12-31 00:00"), allowed=False, retry_after=DAY)
    s.take(at("2025-01-01 00:00"), allowed=True, reset_after=365 * DAY)
    yield s

    s = Script("a-year-from-the-leap-day", "fixed-window 1/year from 02-29")
    s.take(at("2023-02-28 00:00"), reset_after=366 * DAY)
    s.take(at("2024-02-28 00:00"), allowed=False, retry_after=DAY)
    s.take(at("2024-02-29 00:00"), allowed=True, reset_after=365 * DAY)
    s.take(at("2025-02-28 00:00"), allowed=True, reset_after=365 * DAY)
    s.take(at("2100-02-28 00:00"), allowed=True, reset_after=365 * DAY)
    yield s

    s = Script("the-tax-year", "fixed-window 2/year from 04-06 zone +01:00")
    s.take(at("2025-04-05 23:00 +01:00"), 2, reset_after=HOUR)
    s.take(at("2025-04-06 00:00 +01:00"), reset_after=365 * DAY)
    s.take(at("2026-01-01 00:00"), remaining=0)
    s.take(at("2026-03-01 00:00"), allowed=False)
    yield s


def calendar_weeks():
    for name, start in (("mon", "2026-11-16"), ("sun", "2026-11-15"), ("sat", "2026-11-14"), ("thu", "2026-11-12")):
        s = Script(f"weeks-from-{name}", f"fixed-window 2/w from {name}")
        s.take(at(f"{start} 00:00") - 1, 2, reset_after=1)
        s.take(at(f"{start} 00:00"), reset_after=7 * DAY)
        s.take(at(f"{start} 00:00") + 7 * DAY - 1, 2, allowed=False, retry_after=1)
        s.take(at(f"{start} 00:00") + 7 * DAY, 2, allowed=True)
        yield s

    s = Script("a-week-and-its-thursdays-are-two-states", "fixed-window 1/w")
    s.take(B, allowed=True)
    s.limit("fixed-window 1/w from thu")
    s.take(B, allowed=True)
    s.limit("fixed-window 1/w")
    s.take(B, allowed=False)
    s.limit("fixed-window 1/w from thu")
    s.take(B, allowed=False)
    s.limit("fixed-window 1/w from thu zone +00:30")
    s.take(B, allowed=True)
    yield s


def calendar_zones():
    s = Script("days-in-a-zone", "fixed-window 1/d zone +08:00")
    s.take(at("2026-11-16 23:59 +08:00"), reset_after=MINUTE)
    s.take(at("2026-11-17 00:00 +08:00"), allowed=True, reset_after=DAY)
    s.limit("fixed-window 1/d")
    s.take(at("2026-11-17 00:00 +08:00"), allowed=True, reset_after=8 * HOUR)
    yield s

    s = Script("the-ends-of-the-world", "fixed-window 1/d zone -12:00")
    s.take(at("2026-11-16 11:59"), reset_after=MINUTE)
    s.take(at("2026-11-16 12:00"), allowed=True)
    s.limit("fixed-window 1/month zone +14:00")
    s.take(at("2026-11-30 09:59"), reset_after=MINUTE)
    s.take(at("2026-11-30 10:00"), allowed=True, reset_after=31 * DAY)
    s.limit("fixed-window 1/h zone +05:45")
    s.take(at("2026-11-16 12:14"), reset_after=MINUTE)
    s.take(at("2026-11-16 12:15"), allowed=True, reset_after=HOUR)
    s.limit("fixed-window 1/90m zone -03:30")
    s.take(at("2026-11-16 12:14"))
    s.take(at("2026-11-16 12:14"), allowed=False)
    yield s

    for text, end in (("month", 31 * DAY), ("month from 2", DAY), ("month from 31 zone -12:00", 30 * DAY + 12 * HOUR),
                      ("month zone +14:00", 31 * DAY - 14 * HOUR), ("year from 12-31", 364 * DAY),
                      ("year from 07-01 zone -12:00", 181 * DAY + 12 * HOUR), ("w from mon", 4 * DAY),
                      ("w from fri zone +14:00", 10 * HOUR), ("d zone +14:00", 10 * HOUR), ("d zone -12:00", 12 * HOUR),
                      ("366d zone -12:00", 12 * HOUR), ("7us zone +00:01", 3)):
        s = Script(f"in-1970-from-{text.replace(' ', '-')}", f"fixed-window 2/{text}")
        s.take(0, remaining=1, reset_after=end)
        s.take(1, remaining=0, reset_after=end - 1)
        s.take(end - 1, allowed=False, retry_after=1)
        s.settle(end - 1, 0, 1, 0)
        s.take(end - 1, allowed=True, remaining=0)
        s.take(end, allowed=True, remaining=1)
        yield s


def calendar_clock():
    s = Script("calendar-backwards", "fixed-window 2/month")
    s.take(at("2026-03-01 00:00"), 2)
    s.take(at("2026-03-01 00:00") - 1, allowed=False, retry_after=31 * DAY + 1)
    s.peek(at("2026-01-29 00:00"), allowed=False, retry_after=62 * DAY)
    s.peek(at("2026-01-29 00:00") - 1, allowed=True, reset_after=0)
    s.take(at("2026-03-31 00:00"), allowed=False, retry_after=DAY)
    yield s

    s = Script("a-year-backwards", "fixed-window 1/year from 03-01")
    s.take(at("2026-03-01 00:00"))
    s.peek(at("2025-02-28 00:00"), allowed=False)
    s.peek(at("2025-02-28 00:00") - 1, allowed=True)
    yield s

    s = Script("a-short-window-in-a-zone-backwards", "fixed-window 2/s zone +00:01")
    s.take(B, 2)
    s.peek(B - MINUTE, allowed=False, retry_after=MINUTE + SECOND)
    s.peek(B - MINUTE - 1, allowed=True)
    yield s

    s = Script("the-last-years", "fixed-window 1/year zone +14:00")
    s.take(at("2199-12-31 09:59"), reset_after=MINUTE)
    s.take(at("2199-12-31 10:00"), reset_after=365 * DAY)
    s.limit("fixed-window 1/month from 31")
    s.take(at("2200-12-31 12:00"), reset_after=30 * DAY + 12 * HOUR)
    s.limit("fixed-window 1000g/year")
    s.take(at("2200-06-01 00:00"), 10 ** 12, remaining=0)
    s.take(at("2200-06-01 00:00"), 1, allowed=False)
    yield s

    s = Script("near-the-end-of-time", "fixed-window 2/s zone +13:59")
    end = 9_007_199_250 * SECOND  # some seconds before 2^53
    s.take(end - 1, 2, reset_after=1)
    s.take(end - 1, allowed=False, retry_after=1)
    s.take(end, allowed=True, remaining=1, reset_after=SECOND)
    s.limit("fixed-window 1/2us zone -11:59")
    s.take(end + 1, allowed=True, reset_after=1)
    s.take(end + 2, allowed=True, reset_after=2)
    s.take(end + 3, allowed=False, retry_after=1)
    s.settle(end + 3, end + 2, 1, 0)
    s.take(end + 3, allowed=True)
    yield s

    s = Script("months-of-several-anchors", "fixed-window 9/month, fixed-window 3/month from 15, fixed-window 30/year")
    s.take(at("2026-11-14 00:00"), 3, reset_after=48 * DAY)
    s.take(at("2026-11-14 00:00"), allowed=False, retry_after=DAY)
    s.take(at("2026-11-15 00:00"), 3, allowed=True, remaining=0)
    s.take(at("2026-12-01 00:00"), 1, allowed=False, retry_after=14 * DAY)
    yield s


def calendar_settled():
    s = Script("settle-the-month-that-t0-fell-in", "fixed-window 10/month from 31")
    t = at("2026-02-28 00:00")
    s.take(t, 6)
    s.settle(t + 30 * DAY, t, 6, 2)
    s.peek(t + 30 * DAY, 8, allowed=True, remaining=8)
    s.settle(t + 30 * DAY, t - 1, 6, 0)
    s.peek(t + 30 * DAY, 8, remaining=8)
    s.settle(t + 31 * DAY, t, 6, 0)
    s.peek(t + 31 * DAY, 10, remaining=10)
    s.take(t + 31 * DAY, 4)
    s.settle(t + 32 * DAY, t, 6, 9)
    s.peek(t + 32 * DAY, 3, allowed=True, remaining=3, reset_after=29 * DAY)
    s.settle(t + 32 * DAY, t + 31 * DAY, 4, 10 ** 12)
    s.take(t + 32 * DAY, 1, allowed=False, remaining=0)
    s.settle(t + 32 * DAY, t + 31 * DAY, 10 ** 12, 0)
    s.peek(t + 32 * DAY, 7, allowed=True, remaining=7)
    yield s


def calendar():
    for some in (calendar_months, calendar_years, calendar_weeks, calendar_zones, calendar_clock, calendar_settled):
        yield from some()


def sliding_log():
    s = Script("exactly-at-expiry", "sliding-log 2/s")
    s.take(B, remaining=1, reset_after=SECOND)
    s.take(B + 300_000, remaining=0, reset_after=SECOND)
    s.take(B + 400_000, allowed=False, retry_after=600_000, reset_after=900_000)
    s.take(B + 999_999, allowed=False, retry_after=1)
    s.take(B + SECOND, allowed=True, reset_after=SECOND)
    s.take(B + SECOND, 2, allowed=False, retry_after=SECOND)
    s.take(B + SECOND, 1, allowed=False, retry_after=300_000)
    yield s

    s = Script("enough-of-the-oldest", "sliding-log 10/m")
    for i, cost in enumerate((3, 2, 4, 1)):
        s.take(B + i * SECOND, cost, allowed=True)
    for cost, after in ((1, 56), (3, 56), (4, 57), (5, 57), (6, 58), (9, 58), (10, 59)):
        s.peek(B + 4 * SECOND, cost, allowed=False, retry_after=after * SECOND)
    s.take(B + 4 * SECOND, 11, allowed=False, retry_after=NEVER)
    s.take(B + 4 * SECOND, 0, allowed=True, remaining=0, reset_after=59 * SECOND)
    yield s

    s = Script("log-same-instant", "sliding-log 3/s")
    s.take(B, 1)
    s.take(B, 2, remaining=0)
    s.take(B, 1, allowed=False, retry_after=SECOND)
    s.take(B + SECOND, 3, allowed=True)
    yield s

    s = Script("log-backwards", "sliding-log 3/s")
    s.take(B)
    s.take(B - 400_000, remaining=1, reset_after=1_400_000)
    s.take(B - MINUTE, remaining=0, reset_after=MINUTE + SECOND)
    s.take(B - MINUTE, allowed=False, retry_after=MINUTE + SECOND)
    s.peek(B - MINUTE - 1, 3, allowed=True, reset_after=0)
    s.take(B - MINUTE - 1, 2, allowed=True, remaining=1, reset_after=SECOND)
    s.peek(B, 3, allowed=True)
    yield s

    s = Script("log-long-horizon", "sliding-log 1/d")
    s.take(B)
    s.peek(B - 24 * HOUR, allowed=False, retry_after=48 * HOUR)
    s.peek(B - 24 * HOUR - 1, allowed=True)
    yield s

    s = Script("log-extremes", "sliding-log 100000/us")
    s.take(B, 100_000)
    s.take(B, allowed=False, retry_after=1)
    s.take(B + 1, 100_000, allowed=True)
    s.limit("sliding-log 1/366d")
    s.take(B)
    s.take(B + LONGEST - 1, allowed=False, retry_after=1)
    s.take(B + LONGEST, allowed=True, reset_after=LONGEST)
    yield s


def sliding_window():
    s = Script("a-lone-request-is-exact", "sliding-window 1/m precision 10s")
    s.take(B + 3 * SECOND, reset_after=MINUTE)
    s.take(B + 63 * SECOND - 1, allowed=False, retry_after=1)
    s.take(B + 63 * SECOND, allowed=True)
    yield s

    s = Script("a-slot-lasts-as-long-as-its-last", "sliding-window 3/m precision 10s")
    s.take(B, 1)
    s.take(B + 9 * SECOND, 1, reset_after=MINUTE)
    s.take(B + 10 * SECOND, 1, remaining=0, reset_after=MINUTE)
    s.take(B + 11 * SECOND, allowed=False, retry_after=58 * SECOND)
    s.take(B + 69 * SECOND - 1, allowed=False, retry_after=1)
    s.take(B + 69 * SECOND, 2, allowed=True, remaining=0)
    s.take(B + 69 * SECOND, allowed=False, retry_after=SECOND)
    yield s

    s = Script("window-enough-of-the-oldest", "sliding-window 10/m precision 1s")
    for at, cost in ((0, 2), (500_000, 1), (SECOND, 3), (2 * SECOND, 4)):
        s.take(B + at, cost, allowed=True)
    now = B + 3 * SECOND
    for cost, gone in ((3, 500_000), (4, SECOND), (6, SECOND), (7, 2 * SECOND)):
        s.peek(now, cost, allowed=False, retry_after=B + gone + MINUTE - now)
    s.take(now, 11, allowed=False, retry_after=NEVER)
    s.take(now, 0, allowed=True)
    yield s

    s = Script("precision-equal-to-period", "sliding-window 5/10s precision 10s")
    s.take(B + 1, 2)
    s.take(B + 9_999_999, 3, remaining=0)
    s.take(B + 10 * SECOND + 1, allowed=False, retry_after=9_999_998)
    s.take(B + 19_999_999, 5, allowed=True)
    yield s

    s = Script("precision-that-does-not-divide", "sliding-window 4/10us precision 3us")
    for i in range(25):
        s.take(B + i, 1)
    yield s

    s = Script("ten-thousand-slots", "sliding-window 3/10ms precision 1us")
    s.take(B), s.take(B + 1), s.take(B + 2)
    s.take(B + 9_999, allowed=False, retry_after=1)
    s.take(B + 10_000, allowed=True)
    s.take(B + 10_000, 3, allowed=False, retry_after=10_000)
    yield s

    s = Script("window-backwards", "sliding-window 3/s precision 100ms")
    s.take(B)
    s.take(B - 400_000, remaining=1, reset_after=1_400_000)
    s.take(B - MINUTE, remaining=0, reset_after=MINUTE + SECOND)
    s.peek(B - MINUTE, allowed=False, retry_after=MINUTE + SECOND)
    s.peek(B - MINUTE - 1, 3, allowed=True, reset_after=0)
    s.take(B - MINUTE - 1, 2, allowed=True, reset_after=SECOND)
    yield s

    s = Script("window-long-horizon", "sliding-window 1/d precision 1h")
    s.take(B)
    s.peek(B - 24 * HOUR, allowed=False, retry_after=48 * HOUR)
    s.peek(B - 24 * HOUR - 1, allowed=True)
    yield s

    s = Script("window-extremes", "sliding-window 1000g/us")
    s.take(B, 10 ** 12, reset_after=1)
    s.take(B, 1, allowed=False, retry_after=1)
    s.take(B + 1, 10 ** 12, allowed=True)
    s.limit("sliding-window 1/366d")
    s.take(B)
    s.take(B + LONGEST - 1, allowed=False, retry_after=1)
    s.take(B + LONGEST, allowed=True)
    yield s


def sliding_counter():
    for second in (-100, -114, -115, -1):
        s = Script(f"a-weightless-counter-starts-from-fresh-{-second}", "sliding-counter 100/2m")
        k = B // (2 * MINUTE) * 2 * MINUTE + 4 * MINUTE
        s.take(k - 120_001_000, 100)
        s.take(k + second, 1, allowed=True, remaining=98 if second == -115 else 99)
        s.take(k - 119_999_000, 1)
        yield s

    s = Script("previous-weighs-by-overlap", "sliding-counter 10/s")
    s.take(B + 500_000, 10, remaining=0, reset_after=1_500_000)
    s.take(B + 500_000, allowed=False, retry_after=600_000)
    s.take(B + SECOND, allowed=False, retry_after=100_000)
    s.take(B + 1_099_999, allowed=False, retry_after=1)
    s.take(B + 1_100_000, allowed=True, remaining=0)
    s.take(B + 1_100_000, 5, allowed=False, retry_after=500_000)
    s.take(B + 1_100_000, 9, allowed=False, retry_after=900_000)
    s.take(B + 1_100_000, 10, allowed=False, retry_after=1_900_000)
    s.take(B + 1_100_000, 11, allowed=False, retry_after=NEVER)
    s.take(B + 1_100_000, 0, allowed=True)
    yield s

    s = Script("counter-exactly-at-reset", "sliding-counter 10/s")
    s.take(B + 1, 4, reset_after=2 * SECOND - 1)
    s.peek(B + SECOND, 7, allowed=False, retry_after=250_000, remaining=6)
    s.peek(B + 2 * SECOND - 1, 10, allowed=False, retry_after=1, reset_after=1)
    s.peek(B + 2 * SECOND, 10, allowed=True, reset_after=0)
    yield s

    s = Script("counter-coarse-steps", "sliding-counter 1000/h")
    s.take(H, 1000, remaining=0, reset_after=2 * HOUR - 3434 + 1)
    s.take(H + HOUR, allowed=False)
    s.take(H + HOUR, 1000, allowed=False, retry_after=HOUR - 3434 + 1)
    s.peek(H + 2 * HOUR - 3434, 1000, allowed=False, retry_after=1, reset_after=1)
    for i in range(6):
        s.take(H + HOUR + 3434 * 1048 + i * 1000, 1)
    s.take(H + 2 * HOUR - 3433, 1000, allowed=False)
    s.take(H + 2 * HOUR, 1000, allowed=False)
    yield s

    s = Script("counter-coarse-steps-end", "sliding-counter 1000/h")
    s.take(H, 1000)
    s.peek(H + 2 * HOUR - 3434, 1000, allowed=False, retry_after=1, reset_after=1)
    s.peek(H + 2 * HOUR - 3433, 1000, allowed=True, remaining=1000, reset_after=0)
    yield s

    s = Script("counter-backwards", "sliding-counter 10/m")
    s.take(M, 10)
    s.take(M - 1, allowed=False)
    s.peek(M - 2 * MINUTE, allowed=False)
    s.peek(M - 2 * MINUTE - 1, 10, allowed=True, reset_after=0)
    s.take(M + MINUTE + 30 * SECOND, 2)
    s.take(M + 30 * SECOND, 1, allowed=False)
    s.take(M - 2 * MINUTE, 10, allowed=True)
    yield s

    s = Script("counter-short-window-horizon", "sliding-counter 3/s")
    s.take(B, 3)
    s.peek(B - MINUTE, allowed=False)
    s.peek(B - MINUTE - 1, allowed=True)
    yield s

    s = Script("counter-extremes", "sliding-counter 1g/us")
    s.take(B, 10 ** 9, reset_after=2)
    s.take(B, 1, allowed=False, retry_after=2)
    s.take(B + 1, 1, allowed=False, retry_after=1)
    s.take(B + 2, 10 ** 9, allowed=True)
    s.limit("sliding-counter 1/366d")
    s.take(B)
    s.take(B + LONGEST, allowed=False)
    s.take(B + 2 * LONGEST, allowed=True)
    s.limit("sliding-counter 1g/366d")
    s.take(B, 10 ** 9)
    s.take(B + LONGEST, 123_456_789)
    s.take(B + LONGEST + LONGEST // 2, 123_456_789)
    yield s

"""Hand-picked cases of limits whose numbers change under way."""
from scripts import BASE as B
from scripts import Script
from search import DAY, MINUTE, SECOND


def changes():
    s = Script("burst-raised-counts-at-once", "token-bucket 10/s burst 5")
    s.take(B, 5, remaining=0)
    s.limit("token-bucket 10/s burst 8")
    s.take(B, 3, allowed=True, limit=8, remaining=0, reset_after=800_000)
    s.take(B, 1, allowed=False, retry_after=100_000)
    yield s

    s = Script("burst-lowered-below-what-is-spent", "token-bucket 10/s burst 20")
    s.take(B, 20)
    s.limit("token-bucket 10/s burst 5")
    s.take(B, 0, allowed=False, remaining=0, retry_after=1_500_000, reset_after=2 * SECOND)
    s.take(B, 1, allowed=False, retry_after=1_600_000)
    s.take(B, 1, "any", allowed=True, delay=1_600_000)
    s.limit("token-bucket 10/s burst 21")
    s.take(B, 1, allowed=False, retry_after=100_000)
    yield s

    s = Script("full-stays-full", "token-bucket 1/m burst 3")
    s.peek(B, remaining=3)
    s.limit("token-bucket 1/m burst 30")
    s.take(B, 30, allowed=True, remaining=0)
    yield s

    s = Script("count-raised-applies-to-the-time-since", "token-bucket 1/s burst 10")
    s.take(B, 10)
    s.peek(B + SECOND, remaining=1)
    s.limit("token-bucket 5/s burst 10")
    s.peek(B + SECOND, remaining=5, reset_after=SECOND)
    s.take(B + SECOND, 5, remaining=0, reset_after=2 * SECOND)
    yield s

    s = Script("count-lowered-applies-to-the-time-since", "token-bucket 5/s burst 10")
    s.take(B, 10)
    s.peek(B + SECOND, remaining=5)
    s.limit("token-bucket 1/s burst 10")
    s.peek(B + SECOND, remaining=1, reset_after=9 * SECOND)
    s.take(B + SECOND, 2, allowed=False, retry_after=SECOND)
    s.take(B + SECOND, 1, allowed=True)
    yield s

    s = Script("reservation-meets-a-new-rate", "token-bucket 1/s burst 2")
    s.take(B, 2)
    s.take(B, 2, "any", delay=2 * SECOND)
    s.limit("token-bucket 4/s burst 2")
    s.take(B + 250_000, 1, "any", delay=500_000)
    yield s

    s = Script("a-changed-burst-moves-the-horizon", "token-bucket 1/s burst 10")
    s.take(B, 5)
    s.peek(B - 100 * SECOND, remaining=10)
    s.limit("token-bucket 1/s burst 100")
    s.peek(B - 100 * SECOND, remaining=95)
    yield s

    s = Script("leaky-burst-and-mode", "leaky-bucket 10/s burst 5")
    for _ in range(4):
        s.take(B)
    s.limit("leaky-bucket 10/s burst 5 nodelay")
    s.take(B, delay=0)
    s.limit("leaky-bucket 10/s burst 5 delay 2")
    s.take(B, delay=300_000)
    s.limit("leaky-bucket 10/s burst 1")
    s.take(B, 0, allowed=False, retry_after=400_000, limit=2, remaining=0)
    s.take(B, 1, 0, allowed=False, retry_after=600_000)
    s.limit("leaky-bucket 10/s burst 6")
    s.take(B, 1, delay=600_000)
    yield s

    s = Script("stepped-numbers", "token-bucket 2/s burst 6 stepped")
    s.take(B, 6)
    s.limit("token-bucket 2/s burst 8 stepped")
    s.take(B, 2, allowed=True)
    s.limit("token-bucket 4/s burst 3 stepped")
    s.take(B + SECOND, 1, allowed=False, retry_after=SECOND, remaining=0)
    s.take(B + 2 * SECOND - 1, 0, allowed=False, retry_after=1)
    s.limit("token-bucket 1/s burst 8 stepped")
    s.peek(B + 2 * SECOND, remaining=2, reset_after=6 * SECOND)
    yield s

    s = Script("fixed-count", "fixed-window 5/m")
    s.take(B, 5)
    s.limit("fixed-window 7/m")
    s.take(B, 2, allowed=True, remaining=0)
    s.limit("fixed-window 3/m")
    s.take(B, 0, allowed=False, retry_after=40 * SECOND, remaining=0)
    s.take(B + 40 * SECOND, 3, allowed=True)
    yield s

    s = Script("aligned-and-from-first-are-strangers", "fixed-window 1/m")
    s.take(B)
    s.limit("fixed-window 1/m from-first")
    s.take(B, allowed=True)
    s.limit("fixed-window 1/m")
    s.take(B, allowed=False, retry_after=40 * SECOND)
    yield s

    s = Script("stepped-and-dripping-are-strangers", "token-bucket 1/m")
    s.take(B)
    s.limit("token-bucket 1/m stepped")
    s.take(B, allowed=True)
    s.take(B, allowed=False)
    yield s

    s = Script("another-period-starts-afresh", "token-bucket 10/m")
    s.take(B, 10)
    s.limit("token-bucket 10/h")
    s.take(B, 10, allowed=True)
    s.limit("token-bucket 10/60s")
    s.take(B, 1, allowed=False, retry_after=6 * SECOND)
    yield s

    s = Script("log-count", "sliding-log 4/m")
    s.take(B, 3), s.take(B + SECOND, 1)
    s.limit("sliding-log 6/m")
    s.take(B + 2 * SECOND, 2, allowed=True, remaining=0)
    s.limit("sliding-log 2/m")
    s.take(B + 3 * SECOND, 0, allowed=False, retry_after=58 * SECOND)
    s.take(B + 3 * SECOND, 1, allowed=False, retry_after=59 * SECOND)
    s.take(B + 61 * SECOND, 0, allowed=True)
    yield s

    s = Script("window-count-and-precision", "sliding-window 4/m precision 10s")
    s.take(B, 4)
    s.limit("sliding-window 5/m precision 10s")
    s.take(B, 1, allowed=True)
    s.limit("sliding-window 2/m precision 10s")
    s.take(B + SECOND, 2, allowed=False, retry_after=59 * SECOND)
    s.limit("sliding-window 2/m precision 5s")
    s.take(B + SECOND, 2, allowed=True)
    yield s

    s = Script("counter-count", "sliding-counter 10/s")
    s.take(B, 10)
    s.limit("sliding-counter 20/s")
    s.take(B, 10, allowed=True)
    s.limit("sliding-counter 5/s")
    s.take(B, 0, allowed=False, retry_after=1_750_000)
    s.take(B + SECOND, 1, allowed=False, retry_after=800_000)
    yield s

    s = Script("smooth-saved-permits-are-clamped", "smooth 5/s burst-for 4s")
    s.take(B)
    s.take(B + 10 * SECOND, 1, remaining=19)
    s.limit("smooth 5/s burst-for 1s")
    s.peek(B + 10 * SECOND, limit=5, remaining=5)
    s.take(B + 10 * SECOND, 6, remaining=0)
    s.take(B + 10 * SECOND, 1, delay=200_000)
    yield s

    s = Script("smooth-rate", "smooth 1/s burst-for 5s")
    s.take(B)
    s.limit("smooth 10/s burst-for 5s")
    s.take(B, delay=SECOND)
    s.take(B + 2 * SECOND, 3, delay=0)
    s.limit("smooth 1/s burst-for 5s")
    s.take(B + 2 * SECOND, 9, 0)
    s.take(B + 3 * SECOND, 1)
    yield s

    s = Script("warmup-numbers", "warmup 5/s over 4s")
    s.take(B, 3)
    s.limit("warmup 5/s over 1s")
    s.take(B + SECOND, 1)
    s.limit("warmup 20/s over 1s cold 2")
    s.take(B + 3 * SECOND, 1)
    s.take(B + 3 * SECOND, 1)
    s.limit("warmup 5/s over 1s")
    s.take(B + 3 * SECOND, 1)
    yield s

    s = Script("concurrent-count-and-lease", "concurrent 2 lease 10s")
    s.acquire(B, "a"), s.acquire(B, "b")
    s.limit("concurrent 3 lease 30s")
    s.acquire(B + SECOND, "c", allowed=True, reset_after=30 * SECOND)
    s.limit("concurrent 1 lease 10s")
    s.peek(B + SECOND, 0, allowed=False, retry_after=9 * SECOND, remaining=0)
    s.peek(B + SECOND, 1, allowed=False, retry_after=30 * SECOND)
    s.renew(B + 20 * SECOND, "c", True)
    s.renew(B + 20 * SECOND, "a", False)
    s.acquire(B + 30 * SECOND, "d", allowed=True)
    yield s

    s = Script("fresh-by-the-old-numbers-is-fresh", "token-bucket 10/s burst 10")
    s.take(B, 10, reset_after=SECOND)
    s.limit("token-bucket 1/s burst 10")
    s.peek(B + SECOND - 1, 1, allowed=False, reset_after=9_000_001)
    s.take(B + SECOND, 10, allowed=True)
    yield s

    s = Script("warmup-full-by-the-old-numbers", "warmup 10/s over 1s")
    full = B + s.take(B, 2).reset_after
    s.limit("warmup 10/s over 10s")
    s.peek(full - 1, 0)
    s.peek(full, 0, remaining=100, reset_after=0)
    yield s

    s = Script("warmup-full-by-the-current-numbers", "warmup 10/s over 10s")
    s.take(B, 2)
    s.limit("warmup 10/s over 1s")
    s.take(B + 2 * SECOND, 1)
    s.limit("warmup 10/s over 10s")
    s.take(B + 2 * SECOND, 1)
    yield s

    for text, other in (("smooth 5/s burst-for 2s", "smooth 5/s burst-for 1h"),
                        ("smooth 5/s burst-for 1h", "smooth 5/s burst-for 2s"),
                        ("smooth 50/s burst-for 2s", "smooth 5/s burst-for 2s"),
                        ("smooth 5/s burst-for 2s", "smooth 50/s burst-for 2s")):
        s = Script("smooth-the-day-" + (text + "-" + other).replace(" ", "-").replace("/", "-"), text)
        day = B + s.take(B, 20).reset_after + DAY
        s.limit(other)
        other_day = day - DAY
        s.peek(min(day, other_day + DAY) - 1, 1)
        s.peek(day, 1)
        yield s

"""Hand-picked cases of smooth, warmup and concurrent; hand-made values are checked."""
from scripts import BASE as B
from scripts import Script
from search import DAY, MAX53, MINUTE, NEVER, SECOND


def smooth():
    s = Script("the-next-one-pays", "smooth 5/s")
    s.take(B, limit=5, remaining=0, delay=0)
    s.take(B, delay=200_000)
    s.take(B + 1, delay=399_999)
    s.take(B + 200_000, 100, delay=400_000)
    s.take(B + SECOND, 1, delay=19_600_000)
    yield s

    s = Script("try-acquire-zero-short-exact", "smooth 5/s")
    s.take(B, 1, 0, allowed=True)
    s.take(B, 1, 0, allowed=False, retry_after=200_000, delay=0)
    s.take(B, 1, 199_999, allowed=False, retry_after=1)
    s.peek(B, 1, 200_000, allowed=True, delay=200_000)
    s.take(B, 1, 200_000, allowed=True, delay=200_000)
    s.take(B + 399_999, 1, 0, allowed=False, retry_after=1)
    s.take(B + 400_000, 1, 0, allowed=True)
    yield s

    s = Script("idle-time-is-saved", "smooth 5/s burst-for 2s")
    s.peek(B, limit=10, remaining=0, reset_after=2 * SECOND)
    s.take(B)
    s.peek(B + 700_000, remaining=2)
    s.take(B + 10 * SECOND, 1, remaining=9, reset_after=200_000)
    s.take(B + 10 * SECOND, 9, 0, allowed=True, remaining=0)
    s.take(B + 10 * SECOND, 1, 0, allowed=True, delay=0)
    s.take(B + 10 * SECOND, 1, 0, allowed=False, retry_after=200_000)
    yield s

    s = Script("smooth-cost-zero", "smooth 5/s")
    s.take(B, 0, allowed=True, delay=0)
    s.take(B, 2)
    s.take(B, 0, delay=400_000)
    s.take(B, 0, 0, allowed=False, retry_after=400_000)
    s.take(B + 400_000, 0, 0, allowed=True)
    s.take(B + 700_000, 1, remaining=0)
    yield s

    s = Script("smooth-backwards-has-no-horizon", "smooth 1/s")
    s.take(B)
    s.take(B - 1, 1, 0, allowed=False, retry_after=SECOND + 1)
    s.take(B - DAY, 1, "any", delay=DAY + SECOND)
    s.take(B - DAY, 1, DAY, allowed=False, retry_after=2 * SECOND)
    yield s

    s = Script("forgotten-a-day-after-full", "smooth 5/s")
    s.take(B, reset_after=1_200_000)
    full = B + 1_200_000
    s.peek(full - 1, remaining=4, reset_after=1)
    s.peek(full, remaining=5, reset_after=0)
    s.peek(full + DAY - 1, remaining=5, reset_after=0)
    s.peek(full + DAY, remaining=0, reset_after=SECOND)
    s.take(full + DAY, 1, remaining=0)
    s.take(full + DAY, 1, 0, allowed=False)
    yield s

    s = Script("smooth-uneven", "smooth 3/s burst-for 333333us")
    for i in range(12):
        s.take(B + i * i * 100_003)
    for i in range(8):
        s.take(B + 20 * SECOND + i, i)
    yield s

    s = Script("smooth-extremes", "smooth 1000g/us burst-for 1us")
    s.take(B, 1, limit=10 ** 12)
    s.take(B, 10 ** 12)
    s.take(B, 10 ** 12)
    s.take(B + 5, 10 ** 12)
    s.limit("smooth 1/366d")
    s.take(B)
    s.take(B, 1, 0, allowed=False)
    s.take(B, 1)
    s.take(B, 10 ** 12)
    s.take(B, 10 ** 12, delay=MAX53 - B)
    s.take(B, 1, 0, allowed=False, retry_after=MAX53 - B)
    yield s


def warmup():
    s = Script("full-is-fresh", "warmup 997/3s over 333333us cold 2")
    full = B + s.take(B, 7).reset_after
    s.peek(full - 1, 0)
    s.peek(full, 0, reset_after=0)
    s.take(full, 1)
    s.take(full + 5 * MINUTE, 1)
    yield s

    s = Script("cold-start", "warmup 5/s over 1s")
    s.take(B, limit=5, remaining=4, delay=0)
    for delay in (520_000, 360_000, 220_000, 200_000, 200_000, 200_000):
        now = B if delay == 520_000 else free
        s.take(now, delay=delay)
        free = now + delay
    s.take(free + 1_200_000)
    s.take(free + 1_200_000)
    s.take(free + 9 * SECOND)
    s.peek(free + 9 * SECOND)
    yield s

    s = Script("warmup-cost-across-the-threshold", "warmup 5/s over 1s")
    s.take(B, 5, delay=0, remaining=0)
    s.take(B, 1, delay=1_500_000)
    s.take(B + 10 * SECOND, 8, delay=0)
    s.peek(B + 10 * SECOND, 1, delay=2_100_000)
    yield s

    s = Script("warmup-wait", "warmup 10/s over 2s cold 2")
    s.take(B, 1, 0, allowed=True)
    first = s.take(B, 1, 0, allowed=False).retry_after
    s.take(B, 1, first - 1, allowed=False, retry_after=1)
    s.take(B, 1, first, allowed=True, delay=first)
    s.take(B, 0, 0, allowed=False)
    s.take(B + MINUTE, 0, 0, allowed=True, reset_after=0)
    yield s

    for cold in ("1.000001", "1.5", "1000"):
        s = Script(f"warmup-cold-{cold}", f"warmup 7/3s over 10s cold {cold}")
        for i in range(10):
            s.take(B + i * 250_007, 1 + i % 3)
        for i in range(10):
            s.take(B + 90 * SECOND + i * 800_003, 1 + i % 3, 3 * SECOND)
        s.peek(B + 900 * SECOND, 1)
        yield s

    s = Script("warmup-backwards", "warmup 2/s over 4s")
    s.take(B, 3)
    s.take(B - DAY, 1)
    s.take(B - DAY, 1, DAY, allowed=False)
    yield s

    s = Script("warmup-extremes", "warmup 1000g/us over 1us")
    s.take(B, 1)
    s.take(B, 10 ** 12)
    s.take(B, 10 ** 12)
    s.take(B + 1, 10 ** 12)
    s.limit("warmup 1/366d over 366d cold 1000")
    s.take(B, 1)
    s.take(B, 1)
    s.take(B, 10 ** 12)
    s.take(B, 10 ** 12, delay=MAX53 - B)
    yield s


def concurrent():
    s = Script("acquire-and-release", "concurrent 2 lease 30s")
    s.acquire(B, "a", remaining=1, reset_after=30 * SECOND)
    s.acquire(B + 5 * SECOND, "b", remaining=0, reset_after=30 * SECOND)
    s.acquire(B + 6 * SECOND, "c", allowed=False, retry_after=24 * SECOND)
    s.release(B + 7 * SECOND, "a", True)
    s.release(B + 7 * SECOND, "a", False)
    s.acquire(B + 7 * SECOND, "c", allowed=True)
    s.release(B + 8 * SECOND, "b", True)
    s.release(B + 8 * SECOND, "c", True)
    s.peek(B + 8 * SECOND, 2, remaining=2, reset_after=0)
    s.release(B + 8 * SECOND, "zz", False)
    yield s

    s = Script("a-lease-lapses", "concurrent 1")
    s.acquire(B, "a", reset_after=MINUTE)
    s.acquire(B + MINUTE - 1, "b", allowed=False, retry_after=1)
    s.renew(B + MINUTE, "a", False)
    s.release(B + MINUTE, "a", False)
    s.acquire(B + MINUTE, "b", allowed=True)
    yield s

    s = Script("renewed-in-time", "concurrent 1 lease 10s")
    s.acquire(B, "a")
    s.renew(B + 9_999_999, "a", True)
    s.acquire(B + 10 * SECOND, "b", allowed=False, retry_after=9_999_999)
    s.renew(B + 15 * SECOND, "a", True)
    s.peek(B + 25 * SECOND - 1, allowed=False, retry_after=1)
    s.renew(B + 25 * SECOND, "a", False)
    s.acquire(B + 25 * SECOND, "b", allowed=True)
    yield s

    s = Script("soonest-to-lapse-first", "concurrent 5 lease 10s")
    s.acquire(B, "a", 2)
    s.acquire(B + SECOND, "b", 2)
    s.acquire(B + 2 * SECOND, "c", 1)
    s.renew(B + 3 * SECOND, "a", True)
    s.peek(B + 3 * SECOND, 1, allowed=False, retry_after=8 * SECOND)
    s.peek(B + 3 * SECOND, 3, allowed=False, retry_after=9 * SECOND)
    s.peek(B + 3 * SECOND, 4, allowed=False, retry_after=10 * SECOND)
    s.peek(B + 3 * SECOND, 6, allowed=False, retry_after=NEVER)
    s.peek(B + 3 * SECOND, 0, allowed=True, remaining=0, reset_after=10 * SECOND)
    s.release(B + 4 * SECOND, "b", True)
    s.acquire(B + 4 * SECOND, "d", 3, allowed=False, retry_after=8 * SECOND)
    s.acquire(B + 4 * SECOND, "d", 2, allowed=True, remaining=0)
    yield s

    s = Script("a-take-holds-until-it-lapses", "concurrent 2 lease 5s")
    s.take(B)
    s.take(B + SECOND, remaining=0, reset_after=5 * SECOND)
    s.take(B + SECOND, 0, allowed=True)
    s.take(B + SECOND, 1, "any", allowed=False, retry_after=4 * SECOND)
    s.take(B + 5 * SECOND, allowed=True)
    s.settle(B + 5 * SECOND, B + 5 * SECOND, 1, 0)
    s.peek(B + 5 * SECOND, remaining=0)
    s.reset(B + 5 * SECOND)
    s.peek(B + 5 * SECOND, remaining=2)
    yield s

    s = Script("concurrent-backwards", "concurrent 3 lease 10s")
    s.acquire(B, "a")
    s.acquire(B - 5 * SECOND, "b", reset_after=15 * SECOND)
    s.renew(B - MINUTE, "a", True)
    s.renew(B - MINUTE - 1, "a", False)
    s.release(B - MINUTE - 1, "a", False)
    s.peek(B - MINUTE, 2, allowed=False, retry_after=MINUTE + 10 * SECOND)
    s.peek(B - MINUTE - 1, 3, allowed=True, remaining=3, reset_after=0)
    yield s

    s = Script("concurrent-long-lease-horizon", "concurrent 1 lease 1h")
    s.acquire(B, "a")
    s.peek(B - 60 * MINUTE, allowed=False, retry_after=120 * MINUTE)
    s.peek(B - 60 * MINUTE - 1, allowed=True)
    yield s

    s = Script("concurrent-with-a-rate", "concurrent 2 lease 30s, fixed-window 3/m from-first")
    s.acquire(B, "a", remaining=1)
    s.acquire(B, "b", remaining=0)
    s.acquire(B, "c", allowed=False)
    s.release(B + SECOND, "a", True)
    s.acquire(B + SECOND, "c", allowed=True)
    s.release(B + 2 * SECOND, "b", True)
    s.acquire(B + 2 * SECOND, "d", allowed=False, retry_after=58 * SECOND)
    s.release(B + 2 * SECOND, "d", False)
    yield s

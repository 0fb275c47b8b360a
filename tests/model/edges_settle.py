"""Hand-picked cases of settle, in all its branches."""
from scripts import BASE as B
from scripts import Script
from search import DAY, MAX53, MINUTE, SECOND

M = B - 20 * SECOND                 # a whole minute


def settle():
    s = Script("bucket-refund-and-surcharge", "token-bucket 10/s burst 10")
    s.take(B, 5, remaining=5)
    s.settle(B, B, 5, 2)
    s.peek(B, remaining=8, reset_after=200_000)
    s.settle(B, B, 5, 5)
    s.settle(B, B, 2, 6)
    s.peek(B, remaining=4)
    s.settle(B + 100_000, B, 1, 100)
    s.peek(B + 100_000, 1, allowed=False, remaining=0, retry_after=9_500_000)
    s.settle(B + 100_000, B, 1000, 0)
    s.take(B + 100_000, 10, allowed=True)
    yield s

    s = Script("bucket-refund-of-nothing-is-void", "token-bucket 10/s burst 10")
    s.settle(B, B, 5, 0)
    s.peek(B, remaining=10)
    s.take(B, 3)
    s.settle(B + SECOND, B, 3, 0)
    s.take(B + SECOND, 10, allowed=True, remaining=0)
    yield s

    s = Script("bucket-surcharge-starts-from-fresh", "token-bucket 10/s burst 10")
    s.settle(B, B - SECOND, 1, 4)
    s.peek(B, remaining=7, reset_after=300_000)
    yield s

    s = Script("bucket-surcharge-saturates-at-2^53", "token-bucket 1/s burst 10")
    s.take(B, 1)
    s.settle(B, B, 1, 10 ** 12)
    s.peek(B, 0, allowed=False, remaining=0, reset_after=MAX53)
    s.peek(B, 1, "any", allowed=False)
    s.settle(B + SECOND, B, 0, 10 ** 12)
    s.peek(B + SECOND, 0, reset_after=MAX53)
    s.settle(B + SECOND, B, 10 ** 12, 0)
    s.peek(B + SECOND, 10, allowed=True, remaining=10, reset_after=0)
    yield s

    s = Script("bucket-saturated-at-a-high-rate", "token-bucket 1000g/s burst 1000")
    s.settle(B, B, 0, 10 ** 12)
    s.peek(B, 1, allowed=False)
    s.take(B, 1, "any", allowed=False)
    s.take(B, 0, "any", allowed=True)
    s.take(B + 1, 1, "any", allowed=True)
    yield s

    s = Script("a-reservation-may-reach-2^53-exactly", "token-bucket 10000/10ms burst 100")
    s.settle(B, B, 0, 10 ** 12)
    s.take(B, 1, "any", allowed=False, retry_after=1)
    s.take(B + 1, 1, "any", allowed=True)
    s.take(B + 1, 1, "any", allowed=False, retry_after=1)
    s.take(B + 1, 100, "any", allowed=False, retry_after=100)
    s.take(B + 1, 0, "any", allowed=True)
    yield s

    s = Script("bucket-settles-under-backwards-time", "token-bucket 10/s burst 10")
    s.take(B, 10)
    s.settle(B - SECOND, B, 10, 5)
    s.peek(B - SECOND, 6, allowed=False, retry_after=1_100_000)
    s.settle(B - MINUTE - 1, B, 10, 5)
    s.peek(B, remaining=5)
    s.settle(B - MINUTE - 1, B, 5, 10)
    s.peek(B - MINUTE - 1, remaining=5)
    s.peek(B, remaining=10)
    yield s

    s = Script("leaky-refund", "leaky-bucket 10/s burst 9")
    s.take(B, 6)
    s.settle(B, B, 6, 1)
    s.take(B, 1, delay=100_000)
    s.settle(B + 50_000, B, 1, 30)
    s.take(B + 50_000, 1, allowed=False)
    yield s

    s = Script("stepped-refund", "token-bucket 2/s burst 6 stepped")
    s.take(B, 6)
    s.settle(B + 300_000, B, 6, 3)
    s.peek(B + 300_000, remaining=3, reset_after=1_700_000)
    s.settle(B + 300_000, B, 6, 0)
    s.take(B + 300_000, 1, reset_after=SECOND)
    s.settle(B + 400_000, B + 300_000, 1, 10)
    s.take(B + 400_000, 1, allowed=False, retry_after=2_900_000)
    s.settle(B + 9 * SECOND, B, 0, 2)
    s.peek(B + 9 * SECOND, remaining=4, reset_after=SECOND)
    yield s

    for name, text in (("fixed", "fixed-window 10/m"),
                       ("from-first", "fixed-window 10/m from-first")):
        s = Script(f"{name}-window-of-t0", text)
        s.take(M, 6)
        s.settle(M + SECOND, M, 6, 2)
        s.peek(M + SECOND, remaining=8)
        s.settle(M + SECOND, M, 2, 5)
        s.peek(M + SECOND, remaining=5)
        s.settle(M + SECOND, M, 5, 0)
        s.peek(M + SECOND, remaining=10, reset_after=0)
        s.take(M + 2 * SECOND, 3)
        s.settle(M + 3 * SECOND, M - 1, 3, 0)
        s.peek(M + 3 * SECOND, remaining=7)
        s.settle(M + 3 * SECOND, M - 1, 3, 5)
        s.peek(M + 3 * SECOND, remaining=5)
        s.settle(M + 5 * MINUTE, M + 2 * SECOND, 3, 0)
        s.peek(M + 5 * MINUTE, remaining=10, reset_after=0)
        s.settle(M + 5 * MINUTE + SECOND, M + 2 * SECOND, 3, 4)
        s.peek(M + 5 * MINUTE + SECOND, remaining=9)
        s.settle(M + 5 * MINUTE + SECOND, M + 5 * MINUTE + SECOND, 0, 10 ** 12)
        s.peek(M + 5 * MINUTE + SECOND, 0, allowed=False, remaining=0)
        yield s

    s = Script("log-oldest-entry-not-before-t0", "sliding-log 20/m")
    s.take(B, 3), s.take(B + SECOND, 4), s.take(B + 2 * SECOND, 5)
    s.settle(B + 3 * SECOND, B + SECOND, 4, 1)
    s.peek(B + 3 * SECOND, 12, allowed=False, retry_after=57 * SECOND, remaining=11)
    s.settle(B + 3 * SECOND, B + SECOND + 1, 5, 2)
    s.peek(B + 3 * SECOND, remaining=14, reset_after=59 * SECOND)
    s.settle(B + 3 * SECOND, B + 2 * SECOND, 9, 0)
    s.peek(B + 3 * SECOND, remaining=16, reset_after=58 * SECOND)
    s.settle(B + 3 * SECOND, B + 2 * SECOND, 9, 0)
    s.peek(B + 3 * SECOND, remaining=16)
    s.settle(B + 4 * SECOND, B + 2 * SECOND, 2, 5)
    s.peek(B + 4 * SECOND, remaining=13, reset_after=MINUTE)
    s.settle(B + 5 * SECOND, B, 3, 7)
    s.peek(B + 5 * SECOND, 10, allowed=False, retry_after=55 * SECOND, remaining=9)
    yield s

    s = Script("log-one-entry-an-instant", "sliding-log 10/m")
    s.take(B, 2), s.take(B, 3)
    s.settle(B, B, 3, 0)
    s.peek(B, remaining=8)
    yield s

    s = Script("log-entry-gone", "sliding-log 10/m")
    s.take(B, 5)
    s.settle(B + MINUTE, B, 5, 0)
    s.peek(B + MINUTE, remaining=10)
    s.settle(B + MINUTE, B, 5, 9)
    s.peek(B + MINUTE, remaining=6, reset_after=MINUTE)
    yield s

    s = Script("log-refund-of-a-lapsed-charge-meets-the-next-entry", "sliding-log 10/m")
    s.take(B, 3), s.take(B + 30 * SECOND, 2)
    s.settle(B + 61 * SECOND, B, 3, 0)
    s.peek(B + 61 * SECOND, remaining=10, reset_after=0)
    yield s

    s = Script("window-slot-by-its-last", "sliding-window 20/m precision 10s")
    s.take(B, 3), s.take(B + 5 * SECOND, 4), s.take(B + 10 * SECOND, 5)
    s.settle(B + 11 * SECOND, B + SECOND, 3, 1)
    s.peek(B + 11 * SECOND, 11, allowed=False, retry_after=54 * SECOND, remaining=10)
    s.settle(B + 11 * SECOND, B, 9, 0)
    s.peek(B + 11 * SECOND, remaining=15, reset_after=59 * SECOND)
    s.settle(B + 12 * SECOND, B + 11 * SECOND, 1, 3)
    s.peek(B + 12 * SECOND, remaining=13, reset_after=MINUTE)
    s.settle(B + 5 * MINUTE, B + 10 * SECOND, 5, 0)
    s.settle(B + 5 * MINUTE, B + 10 * SECOND, 5, 6)
    s.peek(B + 5 * MINUTE, remaining=19)
    yield s

    s = Script("counter-window-of-t0", "sliding-counter 10/s")
    s.take(B, 8)
    s.settle(B, B, 8, 4)
    s.peek(B, remaining=6)
    s.take(B + SECOND, 2)
    s.settle(B + SECOND, B, 4, 2)
    s.peek(B + SECOND, remaining=6)
    s.settle(B + SECOND, B, 2, 5)
    s.settle(B + SECOND, B + SECOND, 2, 3)
    s.peek(B + SECOND, remaining=2)
    s.settle(B + SECOND, B - 1, 5, 0)
    s.peek(B + SECOND, remaining=2)
    s.settle(B + SECOND, B - 1, 5, 6)
    s.peek(B + SECOND, remaining=1)
    s.settle(B + SECOND, B, 9, 0), s.settle(B + SECOND, B + SECOND, 9, 0)
    s.peek(B + SECOND, remaining=10, reset_after=0)
    yield s

    s = Script("counter-saturates-at-two-billion", "sliding-counter 1g/s")
    s.settle(B, B, 0, 10 ** 12)
    s.peek(B + SECOND + 500_000, remaining=0)
    s.peek(B + SECOND + 500_001, remaining=2000)
    s.settle(B, B, 10 ** 9, 0)
    s.peek(B + SECOND, remaining=0)
    s.settle(B + 5 * SECOND, B, 1, 0)
    s.settle(B + 5 * SECOND, B, 1, 2)
    s.peek(B + 5 * SECOND, remaining=999_999_999)
    yield s

    s = Script("smooth-settles-in-time", "smooth 5/s")
    s.settle(B, B, 5, 0)
    s.peek(B, delay=0)
    s.take(B, 5)
    s.settle(B, B, 5, 2)
    s.peek(B, delay=400_000)
    s.settle(B + 100_000, B, 2, 3)
    s.peek(B + 100_000, delay=500_000)
    s.settle(B + 100_000, B, 100, 0)
    s.peek(B + 100_000, 1, 0, allowed=True, delay=0)
    s.take(B + SECOND, 1)
    s.settle(B + 2 * SECOND, B, 0, 10 ** 12)
    s.peek(B + 2 * SECOND, 1, 0, allowed=False, retry_after=MAX53 - B - 2 * SECOND)
    s.settle(B + 2 * SECOND, B, 10 ** 12, 0)
    s.peek(B + 2 * SECOND, 1, 0, allowed=True)
    yield s

    s = Script("smooth-surcharge-starts-from-fresh", "smooth 4/s")
    s.settle(B, B, 0, 1)
    s.peek(B, delay=250_000)
    s.settle(B + 3 * DAY, B, 3, 1)
    s.peek(B + 3 * DAY, remaining=0, delay=0)
    s.settle(B + 3 * DAY, B, 1, 3)
    s.peek(B + 3 * DAY, remaining=0, delay=500_000)
    yield s

    s = Script("warmup-settles-in-time", "warmup 3/s over 2s")
    s.take(B, 2)
    s.settle(B + 100_000, B, 2, 1)
    s.peek(B + 100_000)
    s.settle(B + 7 * SECOND, B, 1, 4)
    s.peek(B + 7 * SECOND, delay=SECOND)
    yield s

    s = Script("concurrent-refuses", "concurrent 3")
    s.take(B, 2)
    s.settle(B, B, 2, 1)
    s.peek(B, remaining=1)
    yield s

    s = Script("all-limits-of-the-key", "token-bucket 10/s burst 10, fixed-window 20/m")
    s.take(B, 8)
    s.settle(B, B, 8, 3)
    s.peek(B, remaining=7)
    s.settle(B + SECOND, B, 3, 9)
    s.peek(B + SECOND)
    yield s

    s = Script("a-lapsed-warmup-is-refunded-nothing", "warmup 10/s over 1s")
    s.take(B, 2)
    s.settle(B + 2 * DAY, B, 2, 1)
    s.limit("warmup 10/s over 10s")
    s.peek(B + 2 * DAY, remaining=100, reset_after=0)
    yield s

    s = Script("free-of-debt-by-the-current-numbers-a-refund-forgets", "token-bucket 1/m burst 10")
    s.take(B, 10, remaining=0)
    s.limit("token-bucket 600/m burst 10")
    s.settle(B + 2 * SECOND, B, 10, 9)
    s.limit("token-bucket 1/m burst 10")
    s.take(B + 2 * SECOND, 10, allowed=True, remaining=0)
    yield s

    s = Script("free-of-debt-by-the-current-numbers-stepped", "token-bucket 1/m burst 10 stepped")
    s.take(B, 10, remaining=0)
    s.limit("token-bucket 100/m burst 10 stepped")
    s.settle(B + MINUTE, B, 10, 9)
    s.limit("token-bucket 1/m burst 10 stepped")
    s.take(B + MINUTE, 10, allowed=True, remaining=0)
    yield s

    s = Script("full-by-the-current-numbers-a-refund-is-void", "warmup 1/s over 100s")
    s.take(B, 10)
    s.limit("warmup 1/s over 1s")
    s.settle(B + 30 * SECOND, B, 10, 9)
    s.peek(B + 30 * SECOND, remaining=1, reset_after=0)
    s.limit("warmup 1/s over 100s")
    s.peek(B + 30 * SECOND, allowed=True)
    yield s

    for text in ("token-bucket 1/d burst 10", "token-bucket 1/366d burst 3 stepped", "leaky-bucket 1/h burst 3"):
        s = Script("answers-saturate-" + text.split()[0] + str(len(text)), text)
        s.take(B, 1)
        s.settle(B, B, 0, 10 ** 12)
        s.take(B, 1, allowed=False, remaining=0, retry_after=MAX53, reset_after=MAX53)
        s.take(B, 1, "any", allowed=False)
        s.take(B, 1, DAY + 1, allowed=False, retry_after=MAX53)
        s.peek(B + 999, 0, reset_after=MAX53)
        s.settle(B + 1001, B, 10 ** 12 - 5, 0)
        s.peek(B + 1001, 1)
        yield s

    # Just about 2^53 µs: 2^53 less a little, then with a wait taken off.
    for text, unit in (("token-bucket 1/d burst 1", DAY), ("token-bucket 1/61s burst 1", 61 * SECOND),
                       ("token-bucket 7/61s burst 2 stepped", 61 * SECOND)):
        s = Script("near-2^53-" + text.replace(" ", "-").replace("/", "-"), text)
        count = 7 if "7/" in text else 1
        s.settle(B + 999, B, 0, (MAX53 // unit + 2) * count)
        for wait in (0, 1, 999, 1000, 1001, unit - 1, unit, unit + 1, 2 * unit, 3 * unit + 1, 3 * unit + 999):
            s.peek(B + 999, 1, wait, allowed=False)
            s.peek(B + 1300, 1, wait, allowed=False)
        s.settle(B + 1999, B, 3 * count, 0)
        for wait in (0, 1, 999, unit):
            s.peek(B + 1999, 1, wait, allowed=False)
        yield s

    s = Script("saturated-answers-fold", "token-bucket 1/d burst 10, token-bucket 1/2d burst 10")
    s.settle(B, B, 0, 10 ** 12)
    s.take(B, 1, allowed=False, retry_after=MAX53, limit=10)
    yield s

    s = Script("saturated-answers-fold-the-first-binds",
               "token-bucket 1/366d burst 7, sliding-log 3/m, token-bucket 1/365d burst 9")
    s.settle(B, B, 0, 10 ** 12)
    s.take(B, 1, allowed=False, retry_after=MAX53, limit=7)
    yield s

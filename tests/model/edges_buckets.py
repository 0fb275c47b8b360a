"""Hand-picked cases of the three buckets; values given by hand are checked against the model."""
from scripts import BASE as B
from scripts import Script
from search import LONGEST, MINUTE, NEVER, SECOND

HOUR = 60 * MINUTE


def token_bucket():
    s = Script("burst-then-drip", "token-bucket 10/s burst 3")
    for left in (2, 1, 0):
        s.take(B, remaining=left, allowed=True)
    s.take(B, allowed=False, retry_after=100_000, reset_after=300_000)
    s.take(B + 99_999, allowed=False, retry_after=1)
    s.take(B + 100_000, allowed=True, remaining=0, reset_after=300_000)
    s.take(B + 100_001, allowed=False, retry_after=99_999)
    s.peek(B + 399_999, 3, allowed=False, retry_after=1, reset_after=1, remaining=2)
    s.peek(B + 400_000, 3, allowed=True, reset_after=0, remaining=3)
    yield s

    s = Script("cost-zero-asks-without-charging", "token-bucket 10/s burst 2")
    s.take(B, 0, allowed=True, remaining=2, reset_after=0)
    s.take(B, 2, remaining=0, reset_after=200_000)
    s.take(B, 0, allowed=True, remaining=0, reset_after=200_000)
    s.peek(B + 1, 0, allowed=True, remaining=0, reset_after=199_999)
    yield s

    s = Script("cost-equal-to-limit-and-over", "token-bucket 10/s burst 20")
    s.take(B, 21, allowed=False, retry_after=NEVER, remaining=20)
    s.take(B, 21, "any", allowed=False, retry_after=NEVER)
    s.take(B, 20, allowed=True, remaining=0, reset_after=2 * SECOND)
    s.take(B + 1, 20, allowed=False, retry_after=2 * SECOND - 1)
    s.take(B + 2 * SECOND - 1, 20, allowed=False, retry_after=1)
    s.take(B + 2 * SECOND, 20, allowed=True)
    s.take(B + 2 * SECOND, 10 ** 12, allowed=False, retry_after=NEVER)
    yield s

    s = Script("wait-zero-short-exact-any", "token-bucket 10/s burst 1")
    s.take(B, 1, 0, allowed=True)
    s.take(B, 1, 0, allowed=False, retry_after=100_000)
    s.take(B, 1, 99_999, allowed=False, retry_after=1)
    s.peek(B, 1, 100_000, allowed=True, delay=100_000)
    s.take(B, 1, 100_000, allowed=True, delay=100_000, remaining=0, reset_after=200_000)
    s.take(B, 1, "any", allowed=True, delay=200_000, reset_after=300_000)
    s.take(B, 1, 100_000, allowed=False, retry_after=200_000)
    s.take(B + 50_000, 1, 250_000, allowed=True, delay=250_000)
    yield s

    s = Script("reservations-are-served-in-order", "token-bucket 4/s burst 2")
    s.take(B, 2, "any", delay=0)
    s.take(B, 2, "any", delay=500_000)
    s.take(B, 1, "any", delay=750_000)
    s.take(B + 600_000, 1, 0, allowed=False, retry_after=400_000)
    s.take(B + 750_000, 0, 0, allowed=True, remaining=0, reset_after=500_000)
    s.take(B + 749_999, 0, 0, allowed=False, retry_after=1)
    s.take(B + 749_999, 0, 1, allowed=True, delay=1)
    s.take(B + 750_001, 1, "any", delay=249_999)
    yield s

    s = Script("any-means-366-days", "token-bucket 1/366d")
    s.take(B, allowed=True, reset_after=LONGEST)
    s.take(B, allowed=False, retry_after=LONGEST)
    s.take(B, 1, LONGEST - 1, allowed=False, retry_after=1)
    s.take(B, 1, "any", allowed=True, delay=LONGEST, reset_after=2 * LONGEST)
    s.take(B, 1, "any", allowed=False, retry_after=LONGEST)
    s.take(B + LONGEST - 1, 1, "any", allowed=False, retry_after=1)
    s.take(B + LONGEST, 1, "any", allowed=True, delay=LONGEST)
    yield s

    s = Script("backwards-within-a-minute", "token-bucket 10/s burst 10")
    s.take(B, 10)
    s.take(B - 1, allowed=False, retry_after=100_001, reset_after=SECOND + 1)
    s.take(B - 1, 1, 100_000, allowed=False, retry_after=1)
    s.take(B - 1, 1, 100_001, allowed=True, delay=100_001)
    s.peek(B - MINUTE, allowed=False, retry_after=MINUTE + 200_000)
    s.peek(B - MINUTE - 1, 10, allowed=True, remaining=10, reset_after=0)
    s.take(B - MINUTE - 1, 10, allowed=True, remaining=0)
    s.take(B - MINUTE, 1, allowed=False, retry_after=99_999)
    s.peek(B, 10, allowed=True, remaining=10)
    yield s

    s = Script("backwards-long-horizon", "token-bucket 1/h burst 24")
    s.take(B, 23, remaining=1, reset_after=23 * HOUR)
    s.take(B - 10 * HOUR, 1, remaining=0, reset_after=34 * HOUR)
    s.peek(B - 24 * HOUR, allowed=False, retry_after=25 * HOUR)
    s.peek(B - 24 * HOUR - 1, 24, allowed=True, reset_after=0)
    s.take(B - 24 * HOUR, allowed=False)
    s.take(B - 24 * HOUR - 1, 24, allowed=True, reset_after=24 * HOUR - 999)
    yield s

    s = Script("denied-by-an-absurd-state-never", "token-bucket 10/s burst 10")
    s.take(B, 10)
    s.take(B - MINUTE - 1, 11, allowed=False, retry_after=NEVER, remaining=10)
    s.take(B, 1, allowed=False, retry_after=100_000)
    yield s

    s = Script("microsecond-ticks-up-to-60s", "token-bucket 1/60s")
    s.take(B + 1)
    s.take(B + 2, allowed=False, retry_after=MINUTE - 1)
    s.take(B + MINUTE, allowed=False, retry_after=1)
    s.take(B + MINUTE + 1, allowed=True)
    yield s

    s = Script("millisecond-ticks-beyond-60s", "token-bucket 1/61s")
    s.take(B + 500, reset_after=61 * SECOND - 500)
    s.take(B + 999, allowed=False, retry_after=61 * SECOND - 999)
    s.take(B + 1, allowed=False, retry_after=61 * SECOND - 1)
    s.take(B - 1, allowed=False, retry_after=61 * SECOND + 1)
    s.take(B + 61 * SECOND - 1, allowed=False, retry_after=1)
    s.take(B + 61 * SECOND, allowed=True)
    yield s

    s = Script("millisecond-ticks-horizon", "token-bucket 1/70s")
    s.take(B + 999)
    s.peek(B - 70 * SECOND, allowed=False)
    s.peek(B - 70 * SECOND - 1, allowed=True)
    yield s

    s = Script("millisecond-ticks-uneven", "token-bucket 7/61s burst 7")
    for i in range(9):
        s.take(B + 333 * i, 1)
    s.take(B + 8_714_284, 1)
    s.take(B + 8_714_999, 1)
    s.take(B + 8_715_000, 1)
    s.take(B + 9_000_001, 2, "any")
    yield s

    s = Script("uneven-rates-round-up", "token-bucket 3/s burst 3")
    s.take(B, 3, reset_after=SECOND)
    s.take(B, 1, allowed=False, retry_after=333_334)
    s.take(B + 333_333, 1, allowed=False, retry_after=1, remaining=0)
    s.take(B + 333_334, 1, allowed=True, reset_after=SECOND)
    s.take(B + 333_334, 1, allowed=False, retry_after=333_333)
    yield s

    s = Script("burst-far-below-count", "token-bucket 1000000000/s burst 2")
    s.take(B, 2, reset_after=1)
    s.take(B, 1, allowed=False, retry_after=1)
    s.take(B + 1, 2, allowed=True)
    yield s

    s = Script("ten-to-the-twelve-a-microsecond", "token-bucket 1000g/us")
    s.take(B, 10 ** 12, allowed=True, remaining=0, reset_after=1)
    s.take(B, 1, allowed=False, retry_after=1)
    s.take(B, 10 ** 12, 1, allowed=True, delay=1, reset_after=2)
    s.take(B + 1, 1, allowed=False, retry_after=1)
    s.take(B + 2, 10 ** 12, allowed=True)
    yield s

    s = Script("debt-near-2^53", "token-bucket 1/s burst 9007199254")
    s.take(B, 9_007_199_254, remaining=0, reset_after=9_007_199_254 * SECOND)
    s.take(B, 1, "any", allowed=False, retry_after=259_008)
    s.take(B + 259_007, 1, "any", allowed=False, retry_after=1)
    s.take(B + 259_008, 1, "any", allowed=True, delay=740_992)
    s.take(B + 259_008, 0, "any", allowed=True)
    s.take(B + 259_008, 9_007_199_254, "any", allowed=False)
    s.take(B + 259_008, 9_007_199_255, "any", allowed=False, retry_after=NEVER)
    yield s

    s = Script("debt-near-2^53-at-a-high-rate", "token-bucket 9007199254/s")
    s.take(B, 9_007_199_254, "any", allowed=True, reset_after=SECOND)
    s.take(B, 1, "any", allowed=False, retry_after=1)
    s.take(B, 9_007_199_254, "any", allowed=False)
    s.take(B + 1, 1, "any", allowed=True)
    yield s

    s = Script("at-the-epoch", "token-bucket 2/s")
    s.take(0, 2)
    s.take(0, allowed=False, retry_after=500_000)
    s.take(500_000)
    s.take(1, allowed=False, retry_after=999_999)
    yield s

    s = Script("reset-forgets", "token-bucket 1/h")
    s.take(B)
    s.take(B, allowed=False)
    s.reset(B)
    s.take(B, allowed=True)
    yield s


def stepped():
    s = Script("whole-count-arrives-at-once", "token-bucket 3/10s burst 5 stepped")
    s.take(B, 5, remaining=0, reset_after=20 * SECOND)
    s.take(B + 9_999_999, allowed=False, retry_after=1)
    s.take(B + 10 * SECOND, allowed=True, remaining=2, reset_after=10 * SECOND)
    s.take(B + 19_999_999, 3, allowed=False, retry_after=1)
    s.peek(B + 20 * SECOND, 5, allowed=True, remaining=5, reset_after=0)
    yield s

    s = Script("steps-keep-their-phase-while-owing", "token-bucket 1/s burst 4 stepped")
    s.take(B, 2)
    s.take(B + 400_000, 2, remaining=0, reset_after=3_600_000)
    s.take(B + 999_999, 1, allowed=False, retry_after=1)
    s.take(B + SECOND, 1, remaining=0)
    s.take(B + 3_500_000, 1, remaining=1, reset_after=2_500_000)
    yield s

    s = Script("phase-starts-anew-once-full", "token-bucket 1/s burst 1 stepped")
    s.take(B)
    s.take(B + 1_700_000, remaining=0, reset_after=SECOND)
    s.take(B + 2 * SECOND, allowed=False, retry_after=700_000)
    s.take(B + 2_700_000, allowed=True)
    yield s

    s = Script("stepped-cost-zero-equal-over", "token-bucket 2/m burst 3 stepped")
    s.take(B, 4, allowed=False, retry_after=NEVER)
    s.take(B, 0, allowed=True, remaining=3)
    s.take(B, 3, allowed=True, remaining=0, reset_after=2 * MINUTE)
    s.take(B, 0, allowed=True)
    s.take(B, 3, allowed=False, retry_after=2 * MINUTE)
    s.take(B, 2, allowed=False, retry_after=MINUTE)
    yield s

    s = Script("stepped-reservations", "token-bucket 2/s stepped")
    s.take(B, 2, "any", delay=0)
    s.take(B, 1, SECOND - 1, allowed=False, retry_after=1)
    s.take(B, 1, SECOND, allowed=True, delay=SECOND, reset_after=2 * SECOND)
    s.take(B, 2, "any", allowed=True, delay=2 * SECOND, reset_after=3 * SECOND)
    s.take(B + 1, 0, 0, allowed=False, retry_after=2 * SECOND - 1)
    s.take(B + SECOND, 1, SECOND - 1, allowed=False, retry_after=1)
    s.take(B + SECOND, 1, SECOND, allowed=True, delay=SECOND)
    s.take(B + 2 * SECOND, 1, 0, allowed=False, retry_after=SECOND)
    yield s

    s = Script("stepped-backwards", "token-bucket 5/s burst 10 stepped")
    s.take(B, 10)
    s.take(B - 1, allowed=False, retry_after=SECOND + 1)
    s.peek(B - MINUTE, allowed=False, retry_after=MINUTE + SECOND)
    s.peek(B - MINUTE - 1, 10, allowed=True, reset_after=0)
    s.take(B + 1_500_000, 1, remaining=4)
    s.take(B + 900_000, 1, allowed=True, remaining=3)
    s.take(B - MINUTE + SECOND - 1, 10, allowed=True, remaining=0)
    yield s

    s = Script("stepped-long-horizon", "token-bucket 1/h burst 3 stepped")
    s.take(B, 3)
    s.peek(B - 3 * HOUR, allowed=False, retry_after=4 * HOUR)
    s.peek(B - 3 * HOUR - 1, allowed=True)
    yield s

    s = Script("stepped-needs-no-milliseconds", "token-bucket 1/1m1us stepped")
    s.take(B)
    s.take(B + MINUTE, allowed=False, retry_after=1)
    s.take(B + MINUTE + 1, allowed=True)
    yield s

    s = Script("stepped-extremes", "token-bucket 1000g/us stepped")
    s.take(B, 10 ** 12, reset_after=1)
    s.take(B, 10 ** 12, "any", delay=1)
    s.take(B + 1, 1, allowed=False, retry_after=1)
    s.limit("token-bucket 1/366d stepped")
    s.take(B)
    s.take(B, 1, "any", delay=LONGEST)
    s.take(B, 1, "any", allowed=False, retry_after=LONGEST)
    yield s


def leaky_bucket():
    s = Script("no-queue", "leaky-bucket 10/s")
    s.take(B, allowed=True, limit=1, remaining=0, reset_after=100_000, delay=0)
    s.take(B, allowed=False, retry_after=100_000)
    s.take(B + 99_999, allowed=False, retry_after=1)
    s.take(B + 100_000, allowed=True, delay=0)
    yield s

    s = Script("queue-of-three", "leaky-bucket 10/s burst 3")
    for i in range(4):
        s.take(B, allowed=True, limit=4, remaining=3 - i, delay=100_000 * i)
    s.take(B, allowed=False, retry_after=100_000, delay=0)
    s.take(B + 100_000, allowed=True, delay=300_000)
    s.peek(B + 500_000, 4, allowed=True, delay=0)
    yield s

    s = Script("nodelay", "leaky-bucket 1r/s burst 5 nodelay")
    for i in range(6):
        s.take(B, allowed=True, delay=0)
    s.take(B, allowed=False, retry_after=SECOND)
    s.take(B + 2 * SECOND, 2, allowed=True, delay=0)
    yield s

    s = Script("the-first-two-are-not-delayed", "leaky-bucket 10/s burst 5 delay 2")
    for delay in (0, 0, 0, 100_000, 200_000, 300_000):
        s.take(B, allowed=True, delay=delay)
    s.take(B, allowed=False, retry_after=100_000)
    yield s

    s = Script("leaky-wait-zero-short-exact", "leaky-bucket 10/s burst 3")
    s.take(B, 1, 0, allowed=True)
    s.take(B, 1, 0, allowed=False, retry_after=100_000)
    s.take(B, 1, 99_999, allowed=False, retry_after=1)
    s.take(B, 1, 100_000, allowed=True, delay=100_000)
    s.take(B, 1, "any", allowed=True, delay=200_000)
    s.take(B, 2, 250_000, allowed=False, retry_after=100_000)
    s.take(B, 2, 0, allowed=False, retry_after=300_000)
    s.take(B, 1, 299_999, allowed=False, retry_after=1)
    s.take(B, 1, 300_000, allowed=True, delay=300_000)
    yield s

    s = Script("its-own-cost-does-not-delay-it", "leaky-bucket 10/s burst 9")
    s.take(B, 11, allowed=False, retry_after=NEVER)
    s.take(B, 10, allowed=True, delay=0, remaining=0, reset_after=SECOND)
    s.take(B, 0, allowed=True, delay=SECOND)
    s.take(B, 0, 0, allowed=False, retry_after=SECOND)
    s.take(B + 300_000, 3, allowed=True, delay=700_000)
    s.take(B + 300_000, 1, allowed=False, retry_after=100_000)
    yield s

    s = Script("leaky-backwards", "leaky-bucket 10/s burst 1")
    s.take(B)
    s.take(B - 5, allowed=True, delay=100_005)
    s.take(B - 5, allowed=False, retry_after=100_005)
    s.peek(B - MINUTE, allowed=False, retry_after=MINUTE + 100_000)
    s.peek(B - MINUTE - 1, allowed=True, delay=0)
    yield s

    s = Script("leaky-millisecond-ticks", "leaky-bucket 1/2m burst 2")
    s.take(B + 700, delay=0)
    s.take(B + 800, delay=2 * MINUTE - 800)
    s.take(B + 1, delay=4 * MINUTE - 1)
    s.take(B + 999, allowed=False, retry_after=2 * MINUTE - 999)
    s.peek(B - 6 * MINUTE, allowed=False)
    s.peek(B - 6 * MINUTE - 1, allowed=True)
    yield s

    s = Script("leaky-near-2^53", "leaky-bucket 1000g/s burst 9007199253")
    s.take(B, 9_007_199_254, allowed=True, remaining=0)
    s.take(B, 1, allowed=False, retry_after=1)
    s.take(B + 1, 1_000_000, allowed=True)
    yield s

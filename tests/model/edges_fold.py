"""Hand-picked cases of several limits of one key, and the printed examples of the articles."""
from scripts import BASE as B
from scripts import Script
from search import MINUTE, NEVER, SECOND

HOUR = 60 * MINUTE


def fold():
    s = Script("a-denied-request-charges-no-rule", "fixed-window 1/s from-first, fixed-window 3/m")
    s.take(B, allowed=True, limit=1, remaining=0, reset_after=40 * SECOND)
    s.take(B, allowed=False, retry_after=SECOND)
    s.take(B + 500_000, allowed=False, retry_after=500_000)
    s.take(B + SECOND, allowed=True)
    s.take(B + 2 * SECOND, allowed=True, remaining=0)
    s.take(B + 3 * SECOND, allowed=False, retry_after=37 * SECOND)
    s.take(B + 40 * SECOND, allowed=True)
    yield s

    s = Script("never-wins", "token-bucket 10/s burst 20, sliding-log 5/m")
    s.take(B, 5, allowed=True)
    s.take(B, 6, allowed=False, retry_after=NEVER)
    s.take(B, 21, allowed=False, retry_after=NEVER)
    s.take(B, 1, allowed=False, retry_after=MINUTE)
    yield s

    s = Script("both-deny-the-later-binds", "token-bucket 1/s burst 2, token-bucket 1/10s burst 2")
    s.take(B, 2)
    s.take(B, allowed=False, retry_after=10 * SECOND)
    s.take(B + SECOND, allowed=False, retry_after=9 * SECOND)
    s.take(B + SECOND, 2, "any", allowed=True, delay=19 * SECOND)
    yield s

    s = Script("the-binding-limit-tells-what-is-left", "concurrent 10, token-bucket 1/s burst 2")
    s.take(B, 2, allowed=True, limit=2, remaining=0)
    s.take(B, 1, allowed=False, limit=2, remaining=0, retry_after=SECOND)
    s.take(B + SECOND, 11, allowed=False, limit=10, remaining=8, retry_after=NEVER)
    yield s

    s = Script("slots-and-tokens-are-not-mixed", "token-bucket 100/s burst 100, concurrent 10 lease 1h")
    s.take(B, 10, allowed=True, limit=10, remaining=0)
    s.take(B + SECOND, 1, allowed=False, limit=10, remaining=0)
    s.take(B + SECOND, 50, allowed=False, limit=10, remaining=0, retry_after=NEVER)
    yield s

    s = Script("equal-retry-the-first-binds", "sliding-log 1/m, fixed-window 1/m from-first")
    s.take(B)
    s.take(B + 1, allowed=False, retry_after=MINUTE - 1)
    s.peek(B + MINUTE, allowed=True)
    yield s

    s = Script("equal-remaining-the-first-binds",
               "sliding-log 7/m, fixed-window 5/m, sliding-counter 5/m")
    s.take(B, 2, remaining=3)
    s.take(B, 0, remaining=3)
    s.peek(B, 5, allowed=False)
    yield s

    s = Script("shaping-beside-denying", "leaky-bucket 10/s burst 5, fixed-window 3/s")
    for delay in (0, 100_000, 200_000):
        s.take(B, allowed=True, delay=delay)
    s.take(B, allowed=False, retry_after=SECOND, delay=0)
    s.take(B + SECOND, allowed=True, delay=0)
    yield s

    s = Script("each-limit-its-own-default-wait",
               "smooth 5/s, token-bucket 5/s burst 2, leaky-bucket 5/s burst 2")
    s.take(B, allowed=True)
    s.take(B, allowed=True, delay=200_000)
    s.take(B, allowed=False, retry_after=200_000)
    s.take(B, 1, "any", allowed=True, delay=400_000)
    s.take(B, 1, 0, allowed=False)
    s.take(B, 1, 500_000, allowed=False)
    yield s

    s = Script("sixteen-limits", ", ".join(f"fixed-window {20 - i}/{i + 1}s" for i in range(16)))
    s.take(B, 4, allowed=True, limit=5, remaining=1)
    s.take(B, 2, allowed=False)
    s.take(B, 20, allowed=False, retry_after=NEVER)
    yield s

    s = Script("one-of-each", "token-bucket 9/s, leaky-bucket 9/s burst 4, fixed-window 9/s, "
               "sliding-log 9/s, sliding-window 9/s, sliding-counter 9/s, smooth 9/s, "
               "warmup 9/s over 1s, concurrent 9, token-bucket 9/s stepped, "
               "fixed-window 9/s from-first")
    for t, cost in ((0, 3), (0, 2), (1, 1), (300_000, 2), (700_000, 1), (SECOND, 4),
                    (9 * SECOND, 9)):
        s.take(B + t, cost)
    s.peek(B + 9 * SECOND, 1)
    s.reset(B + 9 * SECOND)
    s.peek(B + 9 * SECOND, 5)
    yield s

    s = Script("one-limit-dropped-and-back", "fixed-window 2/m, sliding-log 3/m")
    s.take(B, 2)
    s.limit("sliding-log 3/m")
    s.take(B, allowed=True)
    s.limit("sliding-log 3/m, fixed-window 2/m")
    s.take(B, allowed=False, retry_after=MINUTE)
    yield s

    s = Script("backwards-beyond-one-horizon-only", "token-bucket 1/s burst 3, sliding-log 3/5m")
    s.take(B, 3)
    s.take(B - 2 * MINUTE, 1, allowed=False, retry_after=7 * MINUTE)
    s.take(B - 5 * MINUTE - 1, 3, allowed=True)
    yield s


# -- the articles ---------------------------------------------------------------------------------

def sliding_log_article():
    s = Script("log-of-one-a-second-and-five-a-minute", "sliding-log 1/s, sliding-log 5/m")
    first = 1_484_551_710 * SECOND
    for second, allowed in ((0, 1), (0, 0), (1, 1), (2, 1), (3, 1), (4, 1), (5, 0), (66, 1)):
        s.take(first + second * SECOND, allowed=bool(allowed))
    yield s

    s = Script("log-of-the-table-retry-in-four-seconds", "sliding-log 1/s, sliding-log 5/m")
    half_past = B - B % HOUR + 33 * MINUTE
    for second in (35, 37, 74, 86, 88):
        s.take(half_past + second * SECOND, allowed=True)
    s.take(half_past + 91 * SECOND, allowed=False, retry_after=4 * SECOND)
    s.take(half_past + 100 * SECOND, allowed=True)
    yield s


def window_articles():
    s = Script("two-in-three-seconds", "fixed-window 2/3s from-first")
    for t, allowed in ((0, 1), (0, 1), (0, 0), (3, 1), (3, 1), (5, 0)):
        s.take(B + t * SECOND, allowed=bool(allowed))
    yield s

    seven = B - B % HOUR
    s = Script("fixed-window-lets-440-through", "fixed-window 240/h")
    for i in range(10):
        s.take(seven - MINUTE + i * SECOND, 20, allowed=True)
    for i in range(12):
        s.take(seven + i * SECOND, 20, allowed=True)
    s.take(seven + 12 * SECOND, 1, allowed=False)
    yield s

    s = Script("sliding-window-lets-240-through", "sliding-window 240/h precision 1m")
    for i in range(10):
        s.take(seven - MINUTE + i * SECOND, 20, allowed=True)
    for i in range(12):
        s.take(seven + i * SECOND, 20, allowed=i < 2)
    s.take(seven + 12 * SECOND, 1, allowed=False, retry_after=HOUR - MINUTE - 3 * SECOND)
    s.take(seven + HOUR - MINUTE + 9 * SECOND, 200, allowed=True, remaining=0)
    yield s


def bucket_articles():
    s = Script("capacity-ten-five-at-a-time", "token-bucket 10/m burst 10")
    s.take(B, 5, allowed=True, limit=10, remaining=5)
    s.take(B, 5, allowed=True, remaining=0)
    s.take(B, 5, allowed=False, remaining=0)
    yield s

    s = Script("capacity-a-hundred", "token-bucket 30/m burst 100")
    s.take(B, allowed=True, limit=100, remaining=99)
    yield s

    s = Script("nginx-one-a-second-burst-five-nodelay", "leaky-bucket 1r/s burst 5 nodelay")
    for i in range(8):
        s.take(B, allowed=i < 6, delay=0)
    yield s

    s = Script("two-a-second-burst-three-delayed", "leaky-bucket 2r/s burst 3")
    for i in range(6):
        s.take(B, allowed=i < 4, delay=500_000 * i if i < 4 else 0)
    yield s


def guava_run(name, text, start, runs):
    """Each acquire comes as long before the next free time as the article's printed wait.

    runs: (sleep before it or None, cost, printed wait in us).  After a sleep the request comes
    that long after the last free time, and does not wait.
    """
    s, free = Script(name, text), start
    for sleep, cost, wait in runs:
        now = free - wait if sleep is None else free + sleep
        s.take(now, cost, "any", allowed=True, delay=wait)
        ((_, free), _), = s.model.keys[b"key"].values()
    return s


def guava_articles():
    yield guava_run("guava-five-a-second", "smooth 5/s", 1_484_193_737_102_000, [
        (0, 1, 0), (None, 1, 199_480), (None, 1, 198_852), (None, 1, 199_784), (None, 1, 199_809),
        (None, 1, 199_774), (None, 1, 199_799)])
    yield guava_run("guava-five-at-once-then-one", "smooth 5/s", 1_484_193_813_941_000, [
        (0, 5, 0), (None, 1, 999_481), (None, 1, 197_737)])
    yield guava_run("guava-saves-while-asleep", "smooth 2/s", 1_484_194_198_975_000, [
        (0, 1, 0), (4_501_000, 1, 0), (0, 1, 0), (0, 1, 0), (None, 1, 499_650)])
    warm = [(0, 1, 0), (None, 1, 519_855), (None, 1, 359_091), (None, 1, 219_833),
            (None, 1, 199_852), (None, 1, 199_837),
            (800_150, 1, 0), (None, 1, 360_015), (None, 1, 220_133), (None, 1, 200_117),
            (None, 1, 200_096), (None, 1, 200_064), (None, 1, 200_112), (None, 1, 200_120),
            (None, 1, 200_085), (None, 1, 199_973)]
    yield guava_run("guava-warms-up-cools-and-warms-up", "warmup 5/s over 1s",
                    1_484_195_488_593_000, warm)


def articles():
    for part in (sliding_log_article, window_articles, bucket_articles, guava_articles):
        yield from part()

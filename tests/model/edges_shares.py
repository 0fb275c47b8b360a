"""Hand-picked cases of two sizes that take turns on one key: who asks for less leaves the rest to others."""
from scripts import BASE as B
from scripts import Script
from search import MINUTE, SECOND

SIZES = {  # family: all of the limit, and half of it
    "token_bucket": ("token-bucket 1/s burst 10", "token-bucket 1/s burst 5"),
    "token_bucket-long": ("token-bucket 1/h burst 10", "token-bucket 1/h burst 5"),
    "stepped": ("token-bucket 2/s burst 10 stepped", "token-bucket 2/s burst 5 stepped"),
    "leaky_bucket": ("leaky-bucket 1/s burst 9", "leaky-bucket 1/s burst 4"),
    "leaky_bucket-nodelay": ("leaky-bucket 1/s burst 9 nodelay", "leaky-bucket 1/s burst 4 nodelay"),
    "leaky_bucket-delay": ("leaky-bucket 1/s burst 9 delay 8", "leaky-bucket 1/s burst 4 delay 4"),
    "fixed_window": ("fixed-window 10/m", "fixed-window 5/m"),
    "from_first": ("fixed-window 10/m from-first", "fixed-window 5/m from-first"),
    "calendar": ("fixed-window 10/month from 31 zone -03:30", "fixed-window 5/month from 31 zone -03:30"),
    "calendar-zone": ("fixed-window 10/m zone +05:45", "fixed-window 5/m zone +05:45"),
    "sliding_log": ("sliding-log 10/m", "sliding-log 5/m"),
    "sliding_window": ("sliding-window 10/m precision 10s", "sliding-window 5/m precision 10s"),
    "sliding_counter": ("sliding-counter 10/m", "sliding-counter 5/m"),
    "concurrent": ("concurrent 10", "concurrent 5"),
}


def turns(name, whole, half):
    """The half is denied first; then its retry_after is exact, whoever charged what was spent."""
    s = Script(f"{name}-half-is-denied-first", half)
    for i in range(5):
        s.take(B + i, allowed=True, limit=5, remaining=4 - i)
    s.take(B + 5, allowed=False, limit=5, remaining=0)
    s.limit(whole)
    for i in range(5):
        s.take(B + 6 + i, allowed=True, limit=10, remaining=4 - i)
    s.take(B + 11, allowed=False, limit=10, remaining=0)
    s.limit(half)
    denied = s.take(B + 12, allowed=False, limit=5, remaining=0)
    s.take(B + 12, 0, allowed=False)
    s.take(B + 12, 6, allowed=False, retry_after=-1)
    s.peek(B + 12 + denied.retry_after - 1, allowed=False, retry_after=1)
    s.take(B + 12 + denied.retry_after, allowed=True)
    yield s

    s = Script(f"{name}-whole-then-half-to-the-end", whole)
    s.take(B, 8, allowed=True, remaining=2)
    s.limit(half)
    s.take(B + SECOND, allowed=False, remaining=0)
    s.limit(whole)
    end = s.take(B + SECOND, 1, allowed=True).reset_after
    s.limit(half)
    s.peek(B + SECOND, 0, reset_after=end)
    s.peek(B + SECOND + end - 1, 0, reset_after=1)
    s.take(B + SECOND + end, 5, allowed=True, remaining=0)
    yield s

    s = Script(f"{name}-the-half-writes-last", whole)
    s.take(B, 4, allowed=True)
    s.limit(half)
    end = s.take(B + 1, 1, allowed=True).reset_after
    s.limit(whole)
    s.peek(B + 1, 0, limit=10, remaining=5, reset_after=end)
    s.take(B + 1, 5, allowed=True, remaining=0)
    s.limit(half)
    s.take(B + 2, 1, allowed=False, limit=5, remaining=0)
    yield s

    s = Script(f"{name}-turns-over-a-while", whole)
    now = B
    for i in range(24):
        s.limit((whole, half)[i % 2])
        answer = s.take(now, 1 + i % 3)
        now += 7 * SECOND if answer.allowed else max(1, answer.retry_after // 3)
    yield s


def settled(name, whole, half):
    s = Script(f"{name}-settled-by-the-other-size", half)
    s.take(B, 5, allowed=True)
    s.limit(whole)
    s.settle(B + 1, B, 5, 2)
    s.take(B + 2, 8, allowed=True, remaining=0)
    s.limit(half)
    s.settle(B + 3, B + 2, 8, 0)
    s.take(B + 3, 3, allowed=True, remaining=0)
    s.settle(B + 4, B + 3, 3, 8)
    s.take(B + 5, 0, allowed=False, remaining=0)
    s.limit(whole)
    s.take(B + 5, 1, allowed=False, remaining=0)
    s.reset(B + 6)
    s.limit(half)
    s.take(B + 6, 5, allowed=True)
    yield s


def large(name, whole, half):
    """More entries than the smaller size could ever have."""
    s = Script(f"{name}-many-entries", whole)
    for i in range(40):
        s.take(B + i * SECOND, allowed=True)
        if i % 8 == 7:
            s.limit(half)
            s.take(B + i * SECOND, allowed=False, limit=3, remaining=0)
            s.limit(whole)
    s.limit(half)
    again = s.take(B + 40 * SECOND, allowed=False, remaining=0).retry_after
    s.take(B + 40 * SECOND + again, allowed=True)
    s.limit(whole)
    s.take(B + 40 * SECOND + again, allowed=True)
    yield s


def shares():
    for name, (whole, half) in SIZES.items():
        yield from turns(name, whole, half)
        if name != "concurrent":
            yield from settled(name, whole, half)
    for text in ("sliding-log %d/2m", "sliding-window %d/2m precision 1s", "concurrent %d lease 2m"):
        yield from large(text.split()[0], text % 50, text % 3)

    s = Script("leases-of-both-sizes", "concurrent 4 lease 10s")
    s.acquire(B, "a", 3, allowed=True)
    s.limit("concurrent 2 lease 10s")
    s.acquire(B, "b", allowed=False, remaining=0, retry_after=10 * SECOND)
    s.renew(B + 5 * SECOND, "a", True)
    s.limit("concurrent 4 lease 10s")
    s.acquire(B + 5 * SECOND, "c", allowed=True, remaining=0)
    s.limit("concurrent 2 lease 10s")
    s.release(B + 6 * SECOND, "a", True)
    s.acquire(B + 6 * SECOND, "d", allowed=True, remaining=0)
    s.limit("concurrent 4 lease 10s")
    s.acquire(B + 6 * SECOND, "e", 2, allowed=True, remaining=0)
    yield s

    s = Script("a-wait-of-the-half-is-for-its-own-part", "token-bucket 1/s burst 10")
    s.take(B, 6, allowed=True)
    s.limit("token-bucket 1/s burst 5")
    s.take(B, 1, SECOND, allowed=False, retry_after=SECOND)
    s.take(B, 1, 2 * SECOND, allowed=True, delay=2 * SECOND)
    s.limit("token-bucket 1/s burst 10")
    s.take(B, 3, allowed=True, remaining=0)
    yield s

    s = Script("two-limits-each-in-two-sizes", "fixed-window 10/m, sliding-log 20/h")
    s.take(B, 5, allowed=True)
    s.limit("fixed-window 5/m, sliding-log 10/h")
    s.take(B, allowed=False, remaining=0)
    s.limit("fixed-window 10/m, sliding-log 20/h")
    s.take(B, 5, allowed=True)
    s.limit("fixed-window 5/m, sliding-log 10/h")
    s.take(B + MINUTE, allowed=False)
    yield s

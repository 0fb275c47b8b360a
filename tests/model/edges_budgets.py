"""Hand-picked cases of requests that accept less than their cost, and of limits with a cost of their own; and random
ones of both."""
import limits as language
from model import engine
from scripts import BASE as B
from scripts import FAMILIES, Script, random_cost, random_limit, random_step
from search import DAY, MAX53, MINUTE, MOST, NEVER, SECOND

HOUR = 60 * MINUTE
SHAPING = ("leaky-bucket", "smooth", "warmup")


def script(name, text):
    return Script(name, text, granted=True)


def one_limit():
    s = script("granted-is-what-is-left", "fixed-window 1000/m")
    s.take(B, 400, least=100, allowed=True, granted=400, remaining=600)
    s.take(B, 800, least=100, allowed=True, granted=600, remaining=0)
    s.take(B, 800, least=100, allowed=False, granted=0, retry_after=40 * SECOND)
    s.take(B + 40 * SECOND, 1000, least=1000, allowed=True, granted=1000)
    yield s

    s = script("exactly-the-least", "token-bucket 10/s burst 10")
    s.take(B, 7, least=1, granted=7)
    s.take(B, 10, least=3, allowed=True, granted=3, remaining=0, reset_after=SECOND)
    s.take(B, 10, least=3, allowed=False, retry_after=300_000)
    s.take(B + 299_999, 10, least=3, allowed=False, retry_after=1)
    s.take(B + 300_000, 10, least=3, allowed=True, granted=3)
    yield s

    s = script("a-part-of-a-token-is-not-granted", "token-bucket 10/s burst 10")
    s.take(B, 10, granted=10)
    s.take(B + 399_999, 10, least=1, granted=3, remaining=0)
    s.take(B + 400_000, 10, least=1, granted=1)
    yield s

    s = script("never-only-if-the-least-exceeds-the-limit", "sliding-log 5/m")
    s.take(B, 1000, least=5, allowed=True, granted=5)
    s.take(B, 1000, least=5, allowed=False, retry_after=MINUTE)
    s.take(B, 1000, least=6, allowed=False, retry_after=NEVER)
    s.take(B, MOST, least=MOST, allowed=False, retry_after=NEVER)
    yield s

    s = script("least-of-the-whole-cost-is-no-least", "sliding-window 10/m")
    s.take(B, 6, least=6, granted=6)
    s.take(B, 6, least=6, allowed=False, granted=0)
    s.take(B, 6, allowed=False, granted=0)
    s.take(B, 6, least=4, granted=4)
    yield s

    s = script("a-peek-tells-what-a-take-would-grant", "sliding-counter 100/h")
    s.peek(B, 500, least=10, allowed=True, granted=100, remaining=100)
    s.take(B, 70, granted=70)
    s.peek(B, 500, least=10, allowed=True, granted=30, remaining=30)
    s.peek(B, 500, least=31, allowed=False, granted=0)
    s.take(B + HOUR, 500, least=1)
    s.take(B + HOUR, 500, least=1)
    yield s

    s = script("cost-0-grants-nothing", "fixed-window 3/m from-first")
    s.take(B, 0, allowed=True, granted=0)
    s.take(B, 3, least=1, granted=3)
    s.take(B, 0, allowed=True, granted=0, remaining=0)
    yield s

    s = script("a-stepped-bucket-grants-whole-steps", "token-bucket 10/m burst 25 stepped")
    s.take(B, 40, least=20, granted=25)
    s.take(B + MINUTE, 40, least=11, allowed=False, retry_after=MINUTE)
    s.take(B + MINUTE, 40, least=5, granted=10)
    yield s

    s = script("slots-are-granted", "concurrent 8 lease 30s")
    s.acquire(B, "a", 5, least=2, granted=5)
    s.acquire(B, "b", 5, least=2, granted=3, remaining=0)
    s.acquire(B, "c", 5, least=1, allowed=False, retry_after=30 * SECOND)
    s.release(B + 1, "b", True)
    s.take(B + 1, 9, least=1, granted=3)
    yield s

    s = script("a-large-cost-on-a-large-limit", "fixed-window 1000g/h")
    s.take(B, MOST - 5, least=1, granted=MOST - 5)
    s.take(B, MOST, least=1, granted=5)
    s.take(B, 1, least=1, allowed=False)
    yield s

    s = script("nothing-is-granted-of-a-debt", "token-bucket 1/s burst 5")
    s.settle(B, B, 0, 9)
    s.take(B, 5, least=1, allowed=False, granted=0, remaining=0, retry_after=5 * SECOND)
    s.take(B + 5 * SECOND, 5, least=1, granted=1)
    yield s

    s = script("settled-by-what-was-granted", "token-bucket 100/s burst 100")
    s.take(B, 80)
    s.take(B, 80, least=10, granted=20)
    s.settle(B, B, 20, 15)
    s.peek(B, 100, least=1, granted=5)
    s.settle(B, B, 5, 30)
    s.peek(B, 100, least=1, allowed=False, retry_after=210_000)
    yield s


def several_limits():
    s = script("the-smallest-of-all-limits", "token-bucket 1000/m burst 1000, sliding-log 300/h, fixed-window 500/w")
    s.take(B, 400, least=50, granted=300)
    s.take(B, 400, least=50, allowed=False, granted=0)
    s.take(B + HOUR, 400, least=50, granted=200)
    s.take(B + 2 * HOUR, 400, least=1, allowed=False)
    s.peek(B + 3 * HOUR, 400, least=1, allowed=False)
    yield s

    s = script("a-denial-shows-what-each-limit-would-grant", "fixed-window 10/m, fixed-window 100/h, sliding-log 7/s")
    s.take(B, 4, granted=4)
    s.take(B, 50, least=4, allowed=False, granted=0)
    s.peek(B, 50, least=4, allowed=False)
    s.peek(B, 50, least=3, allowed=True, granted=3)
    s.take(B, 50, least=2, granted=3)
    yield s

    s = script("requests-tokens-and-slots",
               "fixed-window 3/m cost 1, token-bucket 100k/m, concurrent 2 lease 1h cost 1")
    s.acquire(B, "a", 40_000, granted=40_000, limit=2, remaining=1)
    s.acquire(B, "b", 90_000, least=500, granted=60_000)
    s.acquire(B, "c", 90_000, least=500, allowed=False)
    s.release(B, "a", True)
    s.settle(B, B, 60_000, 10_000)
    s.acquire(B, "d", 90_000, least=500, granted=50_000)
    s.release(B, "b", True)
    s.acquire(B, "e", 1, allowed=False)
    s.peek(B + MINUTE, 5, least=1, granted=5)
    yield s

    s = script("a-limit-with-its-own-cost-charges-that", "fixed-window 100/m cost 10, fixed-window 1000/h")
    s.take(B, 1, granted=1, remaining=90)
    s.take(B, 300, granted=300, remaining=80)
    s.take(B, 0, granted=0, remaining=80)
    s.take(B, 1000, allowed=False)
    s.take(B, 2000, allowed=False, retry_after=NEVER)
    s.take(B, 2000, least=600, granted=699, remaining=0)
    yield s

    s = script("cost-0-asks-under-every-limit", "fixed-window 10/m cost 10, fixed-window 10/h cost 1")
    s.take(B, 5, granted=5)
    s.take(B, 0, allowed=True, granted=0)
    s.take(B, 1, allowed=False, granted=0)
    yield s

    s = script("only-its-own-costs", "fixed-window 10/m cost 4")
    s.take(B, 1000, least=1, granted=1000, remaining=6)
    s.take(B, 1000, granted=1000, remaining=2)
    s.take(B, 1, allowed=False, granted=0, remaining=2)
    s.settle(B, B, 1000, 0)
    yield s

    s = script("the-cost-may-change-while-the-state-lives", "sliding-log 10/m cost 4")
    s.take(B, granted=1, remaining=6)
    s.limit("sliding-log 10/m cost 5")
    s.take(B, granted=1, remaining=1)
    s.limit("sliding-log 10/m")
    s.take(B, 9, least=1, granted=1, remaining=0)
    yield s

    s = script("a-limit-that-shapes-may-stand-beside-with-its-own-cost",
               "leaky-bucket 10/s burst 5 cost 1, token-bucket 100/s burst 100")
    s.take(B, 60, least=1, granted=60, delay=0)
    s.take(B, 60, least=1, granted=40, delay=100_000)
    s.take(B, 60, least=1, allowed=False)
    s.take(B, 0, allowed=True)
    yield s

    s = script("settle-leaves-what-has-its-own-cost", "token-bucket 10/m burst 10 cost 3, fixed-window 100/h, smooth 5/s cost 2")
    s.take(B, 40, granted=40)
    s.settle(B + 1, B, 40, 10)
    s.take(B + SECOND, 90, granted=90)
    s.settle(B + SECOND, B + SECOND, 90, 95)
    s.peek(B + SECOND, 0)
    yield s

    s = script("concurrent-beside-what-is-settled", "concurrent 3 cost 1, fixed-window 100/h")
    s.take(B, 40)
    s.settle(B, B, 40, 1)
    s.take(B, 99, granted=99)
    s.limit("concurrent 3, fixed-window 100/h")
    s.settle(B, B, 99, 1)
    yield s

    s = script("a-reservation-of-its-own-cost", "token-bucket 1/s burst 2 cost 2, sliding-log 100/m")
    s.take(B, 10, "any", granted=10, delay=0)
    s.take(B, 10, "any", granted=10, delay=2 * SECOND)
    s.take(B, 10, SECOND, allowed=False, granted=0, retry_after=3 * SECOND)
    yield s

    kinds = ("token-bucket 9/s", "fixed-window 9/s", "sliding-log 9/s", "sliding-window 9/s", "sliding-counter 9/s",
             "concurrent 9", "token-bucket 9/s stepped", "fixed-window 9/s from-first", "fixed-window 30/month zone +08:00")
    s = script("one-of-each-that-grants", ", ".join(kinds))
    for t, cost, least in ((0, 4, 1), (0, 9, 2), (1, 9, 1), (300_000, 9, 1), (SECOND, 9, 3), (MINUTE, 20, 9)):
        s.take(B + t, cost, least=least)
    s.peek(B + 2 * MINUTE, 100, least=1, granted=9)
    yield s


def budgets():
    yield from one_limit()
    yield from several_limits()


def with_cost(rng, text):
    """The same limit with a cost of its own."""
    most = min(language.parse(text)[0].most(), MOST)
    return f"{text} cost {rng.choice((1, 1, rng.randint(1, min(most, 10)) if most < 10 else 3, most))}"


def random_texts(rng):
    texts = {}
    for _ in range(rng.choice((1, 2, 2, 3))):
        text = random_limit(rng, rng.choice(FAMILIES))
        limit, = language.parse(text)
        if limit.kind in SHAPING and rng.random() < 0.7 or rng.random() < 0.3:
            text = with_cost(rng, text)
        texts[limit.identity()] = text
    return ", ".join(texts.values())


def random_budget(rng, family, name):
    """Takes and peeks with a least and without one, settled by what was granted."""
    s, now, last, receipts = script(name, random_texts(rng)), B + rng.randint(0, DAY), None, []
    variable = [limit for limit in s.limits if not limit.cost]
    grants = all(limit.kind not in SHAPING for limit in variable)
    settles = variable and all(limit.kind != "concurrent" for limit in variable)
    most = max((engine(limit).limit for limit in variable), default=10)
    for _ in range(18):
        limit = rng.choice(s.limits)
        now = min(max(0, now + random_step(rng, last, limit, not settles)), MAX53 // 2)
        cost = random_cost(rng, max(1, most))
        least = rng.choice((1, 1, cost, max(1, cost // 2), rng.randint(1, max(1, cost)))) if cost else 0
        least = min(cost, least) if grants and rng.random() < 0.75 else 0
        dice = rng.random()
        if settles and receipts and dice < 0.15:
            t0, c0 = rng.choice(receipts[-3:])
            s.settle(now, t0, c0, min(MOST, rng.choice((0, c0, c0 // 2, c0 + 1))))
        elif dice > 0.85:
            last = s.peek(now, cost, least=least)
        else:
            last = s.take(now, cost, least=least)
            if last.allowed:
                receipts.append((now, last.granted))
    return s

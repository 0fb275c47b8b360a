"""Cases: a script of operations on one new key, and random scripts that look for trouble.

A Script runs what it is told on the model and keeps the lines of the vector.  One thing is
watched: a store that forgets lapsed states when it meets them must give the same answers
(`same_evicted`; only a clock that runs back can break that).
"""
import limits as language
from model import Model, engine
from search import DAY, LONGEST, MAX53, MINUTE, MOST, SECOND

BASE = 1_700_000_000_000_000        # an instant of 2023; not on the edge of any longer window
KEY = b"key"


class Script:
    def __init__(self, name, text, granted=False):
        """granted: answers tell what is granted, too."""
        assert " " not in name, name
        self.told = seven if granted else six
        self.name, self.lines = name, [f"case {name}"]
        self.model, self.evicted = Model(), Model(evicting=True)
        self.same_evicted = True
        self.limit(text)

    def limit(self, text):
        self.limits = language.parse(text)
        self.lines.append(f"limit {text}")
        return self

    def _decided(self, verb, head, t, *args, **want):
        results = [getattr(m, verb)(t, KEY, self.limits, *args) for m in (self.model, self.evicted)]
        answer, rows, bound = results[0]
        self.same_evicted &= results[0] == results[1]
        self.lines.append(f"{head} = {self.told(answer)}")
        if len(rows) > 1:
            self.lines += [f"row {i} = {self.told(row)}" for i, row in enumerate(rows)]
            self.lines.append(f"bind {bound}")
        for field, value in want.items():
            if getattr(answer, field) != value:
                raise AssertionError(f"{self.name}: {self.lines[-1]}: {field} is not {value}")
        return answer

    def take(self, t, cost=1, wait="default", least=0, **want):
        return self._decided("take", f"take {t} {amount(cost, least)} {wait}", t, cost, wait, least, **want)

    def peek(self, t, cost=1, wait="default", least=0, **want):
        return self._decided("peek", f"peek {t} {amount(cost, least)} {wait}", t, cost, wait, least, **want)

    def acquire(self, t, name, cost=1, wait="default", least=0, **want):
        head = f"acquire {t} {amount(cost, least)} {name} {wait}"
        return self._decided("acquire", head, t, cost, name, wait, least, **want)

    def _named(self, verb, t, name, want):
        done = getattr(self.model, verb)(t, KEY, self.limits, name)
        self.same_evicted &= done == getattr(self.evicted, verb)(t, KEY, self.limits, name)
        self.lines.append(f"{verb} {t} {name} = {int(done)}")
        assert want is None or done == want, self.lines
        return done

    def renew(self, t, name, want=None):
        return self._named("renew", t, name, want)

    def release(self, t, name, want=None):
        return self._named("release", t, name, want)

    def settle(self, t, t0, c0, c1):
        done = self.model.settle(t, KEY, self.limits, t0, c0, c1)
        self.evicted.settle(t, KEY, self.limits, t0, c0, c1)
        self.lines.append(f"settle {t} {t0} {c0} {c1} = {'ok' if done else 'refused'}")

    def reset(self, t):
        self.model.reset(KEY)
        self.evicted.reset(KEY)
        self.lines.append(f"reset {t}")


def amount(cost, least):
    return f"{least}..{cost}" if least else cost


def seven(a):
    return f"{six(a)} {a.granted}"


def six(a):
    return f"{int(a.allowed)} {a.limit} {a.remaining} {a.retry_after} {a.reset_after} {a.delay}"


# -- random limits ------------------------------------------------------------------------------

COUNTS = (1, 2, 3, 5, 7, 10, 60, 100, 240, 997, 1000)
PERIODS = ("s", "m", "h", "d", "us", "ms", "3s", "10s", "7us", "333ms", "59s999ms", "1m1ms",
           "1h30m", "w", "366d", "1s1us", "997us")
FAMILIES = ("token_bucket", "stepped", "leaky_bucket", "fixed_window", "from_first", "sliding_log",
            "sliding_window", "sliding_counter", "smooth", "warmup", "concurrent", "calendar")
ZONES = ("", "", " zone +08:00", " zone -12:00", " zone +14:00", " zone +05:45", " zone -03:30")


def random_span(rng):
    """The period of a calendar window, with where it starts."""
    from_year = f" from {rng.choice(('01-01', '02-29', '02-28', '03-01', '04-06', '07-01', '12-31'))}"
    from_month = f" from {rng.choice((1, 2, 15, 28, 29, 30, 31, rng.randint(1, 31)))}"
    from_week = f" from {rng.choice(language.WEEKDAYS)}"
    span = rng.choice(("month", "month" + from_month, "month" + from_month, "year", "year" + from_year,
                       "w" + from_week, rng.choice(PERIODS)))
    zone = rng.choice(ZONES)
    if not zone and span in PERIODS:
        zone = rng.choice(ZONES[2:])
    return span + zone


def random_limit(rng, family, period=None, precision=None):
    """A text of the family; a fixed period (and precision) keeps the state the same."""
    if family == "calendar" and (period is None or not language.on_calendar(period)):
        period = random_span(rng)
    period = period or rng.choice(PERIODS)
    count = rng.choice(COUNTS)
    if rng.random() < 0.08 and family not in ("sliding_log", "concurrent"):
        count = rng.choice((10 ** 6, 123_456_789, 10 ** 9))
    near = rng.choice((1, count, max(1, count // 2), 2 * count, rng.randint(1, 3 * count)))
    if family == "token_bucket":
        out = f"token-bucket {count}/{period}" + rng.choice(("", f" burst {near}"))
    elif family == "stepped":
        out = f"token-bucket {count}/{period}" + rng.choice(("", f" burst {near}")) + " stepped"
    elif family == "leaky_bucket":
        burst = rng.choice((0, 1, near))
        tail = ("", " nodelay", f" delay {rng.randint(0, burst)}")
        out = f"leaky-bucket {count}/{period} burst {burst}" + rng.choice(tail)
    elif family == "calendar":
        out = f"fixed-window {count}/{period}"
    elif family in ("fixed_window", "from_first"):
        out = f"fixed-window {count}/{period}" + " from-first" * (family == "from_first")
    elif family == "sliding_window":
        long = language.parse_length(period)
        parts = rng.choice((None, 10_000, 60, 3, 1))
        fine = precision or (parts and -(-long // parts))
        out = f"sliding-window {count}/{period}"
        out += f" precision {language.length(fine)}" if fine else ""
    elif family == "smooth":
        out = f"smooth {count}/{period}" + rng.choice(("", " burst-for 2s", " burst-for 1h",
                                                       " burst-for 1ms", " burst-for 333333us"))
    elif family == "warmup":
        over = rng.choice(("1s", "3s", "100ms", "1h", "333333us", "7us"))
        cold = rng.choice(("3", "3", "1.5", "2", "10", "1000", "1.000001"))
        out = f"warmup {count}/{period} over {over} cold {cold}"
    elif family == "concurrent":
        lease = rng.choice(("", " lease 30s", " lease 1s", " lease 2m", " lease 7us"))
        out = f"concurrent {count}{lease}"
    else:
        out = f"{family.replace('_', '-')} {count}/{period}"
    try:
        language.parse(out)
        return out
    except language.Refused:
        return random_limit(rng, family, period, precision)


# -- random operations --------------------------------------------------------------------------

def random_step(rng, last, limit, backwards):
    """How far the clock moves: mostly to where something is about to happen."""
    period = limit.period or limit.lease
    dice = rng.random()
    if dice < 0.30 or last is None:
        return rng.choice((0, 0, 0, 1, period // max(1, limit.count)))
    if dice < 0.50:
        return rng.randint(0, max(1, 2 * period // max(1, limit.count)))
    if dice < 0.60:
        return rng.randint(0, 2 * period)
    if dice < 0.80 and last.retry_after > 0:
        return max(0, last.retry_after + rng.choice((0, 0, -1, 1)))
    if dice < 0.86:
        return max(0, last.reset_after + rng.choice((0, 0, -1)))
    if dice < 0.94 or not backwards:
        return rng.choice((1, 999, 1000, 1001, rng.randint(0, SECOND)))
    horizon = getattr(engine(limit), "horizon", MINUTE)
    return -rng.choice((1, 999, 1000, rng.randint(1, period), rng.randint(1, MINUTE),
                        horizon, horizon + 1, rng.randint(1, 2 * horizon)))


def random_leap(rng, last, limit):
    """To about the end of a state, by these numbers or a day later, past windows' edges, and back."""
    period = limit.period or limit.lease
    ends = (last.reset_after if last else 0, period, 2 * period, DAY, getattr(engine(limit), "horizon", MINUTE))
    grain = max(1, -(-period // 2 ** 20))
    leap = rng.choice(ends) + rng.choice((0, 0, DAY)) + rng.choice((0, 1, -1, grain, -grain, 1000, -1000))
    return leap if rng.random() < 0.6 else -leap


def random_cost(rng, most):
    dice = rng.random()
    if dice < 0.50:
        return 1
    if dice < 0.58:
        return 0
    if dice < 0.83:
        return rng.randint(1, min(most, MOST))
    if dice < 0.91:
        return min(MOST, rng.choice((most, most, max(1, most - 1), most + 1)))
    return min(MOST, int(most ** rng.random()) + 1)


def random_wait(rng, last, limit):
    if rng.random() < 0.55 or last is None:
        return "default"
    near = last.retry_after or last.delay or last.reset_after
    wait = rng.choice(("any", 0, near, near - 1, near + 1, last.delay - 1, last.delay,
                       rng.randint(0, 2 * (limit.period or SECOND))))
    return wait if wait == "any" else min(LONGEST, max(0, wait))


def random_script(rng, name, text, size, others=(), settling=False, leasing=False, jumping=False):
    """One random case.  others: texts the limits may change to; settling: with receipts; jumping: the
    clock also leaps to where states lapse, beyond horizons and back, whatever else happens."""
    script, now, last = Script(name, text), BASE + rng.randint(0, DAY), None
    receipts, names, held = [], 0, []
    backwards = jumping or not settling and not leasing
    for _ in range(size):
        limit = rng.choice(script.limits)
        step = random_leap(rng, last, limit) if jumping and rng.random() < 0.25 else None
        step = random_step(rng, last, limit, backwards) if step is None else step
        now = min(max(0, now + step), MAX53 // 2)
        cost = random_cost(rng, max(1, last.limit if last else engine(limit).limit))
        wait = random_wait(rng, last, limit)
        dice = rng.random()
        if others and dice < 0.15:
            script.limit(rng.choice(others))
        if settling and receipts and dice < 0.30:
            t0, c0 = rng.choice(receipts[-4:])
            c1 = rng.choice((0, c0, c0 - 1, c0 + 1, c0 // 2, 2 * c0, rng.randint(0, 3 * c0 + 2)))
            script.settle(now, rng.choice((t0, t0, t0, t0 + 1)), c0, min(MOST, max(0, c1)))
        elif leasing and dice < 0.70:
            if dice < 0.40 or not held:
                names += 1
                if script.acquire(now, f"l{names}", max(1, cost)).allowed:
                    held.append(f"l{names}")
            else:
                getattr(script, "renew" if dice < 0.52 else "release")(now, rng.choice(held[-6:]))
        elif dice > 0.985:
            script.reset(now)
        elif dice > 0.87:
            last = script.peek(now, cost, wait)
        else:
            last = script.take(now, cost, wait)
            if last.allowed:
                receipts.append((now, cost))
    return script

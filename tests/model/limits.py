"""The limit language: text to limits and back to canonical text, with every refusal of SPEC.

    parse("gcra 10r/s BURST 20, fixed-window 100/60s")  ->  [Limit, Limit]
    text(limits)  ->  "token-bucket 10/s burst 20, fixed-window 100/m"
"""
import re
from dataclasses import dataclass, replace
from fractions import Fraction

from search import DAY, LONGEST, MAX53, MINUTE, MOST, SECOND

UNITS = {"w": 7 * 86400 * SECOND, "d": 86400 * SECOND, "h": 3600 * SECOND, "m": MINUTE,
         "s": SECOND, "ms": 1000, "us": 1}
LONG = {"week": "w", "weeks": "w", "day": "d", "days": "d", "hour": "h", "hours": "h",
        "min": "m", "minute": "m", "minutes": "m", "sec": "s", "second": "s", "seconds": "s"}
CAPITAL = re.compile(r"(?<![A-Za-z])M(?![A-Za-z])")     # a million in a count, no unit of time
COUNT = re.compile(r"([0-9]+)([kmgM]?)r?")
PAIR = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zM]+)")
DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]{1,6})?")
KINDS = {  # kind: the options it takes, in the order they are printed
    "token-bucket": ("burst", "stepped"),
    "leaky-bucket": ("burst", "nodelay", "delay"),
    "fixed-window": ("from-first", "from", "zone"),
    "sliding-log": (),
    "sliding-window": ("precision",),
    "sliding-counter": (),
    "smooth": ("burst-for",),
    "warmup": ("over", "cold"),
    "concurrent": ("lease",),
}
ANY_KIND = ("cost",)    # what every kind takes, printed last
FLAGS = ("stepped", "nodelay", "from-first")
LENGTHS = ("precision", "burst-for", "over", "lease")
MOST_COUNT = {"sliding-log": 100_000, "concurrent": 100_000, "sliding-counter": 10 ** 9}
WEEK = UNITS["w"]
LONGEST_OF = {"month": 31 * DAY, "year": 366 * DAY}      # the longest window of a civil unit
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
ZONE = re.compile(r"([+-])([0-9]{2})(?::([0-5][0-9]))?")


class Refused(ValueError):
    """The text is no limit; nothing of it may be used."""


@dataclass(frozen=True)
class Limit:
    kind: str
    count: int
    period: int = 0         # microseconds; concurrent has none
    burst: int = 0          # token-bucket, leaky-bucket
    stepped: bool = False
    nodelay: bool = False
    delay: int = 0          # leaky-bucket: so many are not delayed
    from_first: bool = False
    precision: int = 0      # sliding-window
    burst_for: int = 0      # smooth
    over: int = 0           # warmup
    cold: Fraction = Fraction(3)
    lease: int = 0          # concurrent
    unit: str = ""          # fixed-window on the calendar: week, month, year; "": windows of a period
    anchor: tuple = ()      # where it starts: (weekday, 0 is mon), (day,) or (month, day)
    zone: int = 0           # fixed-window: minutes east of UTC
    cost: int = 0           # charged whatever the request costs; 0: what the request costs

    def identity(self):
        """What a state is known by, beside the key."""
        if self.kind == "concurrent":
            return ("concurrent",)
        return (self.kind, self.stepped, self.from_first, self.period, self.precision,
                self.unit, self.anchor, self.zone)

    def span(self):
        """What stands after the slash for every limit that has this state."""
        civil = self.unit in LONGEST_OF
        return (self.unit if civil else bare(self.period)) + self.options()

    def options(self):
        """Where and when the windows of a fixed window start."""
        out = ""
        if self.from_first:
            out += " from-first"
        if self.unit == "week":
            out += f" from {WEEKDAYS[self.anchor[0]]}"
        if self.unit == "month" and self.anchor != (1,):
            out += f" from {self.anchor[0]}"
        if self.unit == "year" and self.anchor != (1, 1):
            out += " from %02d-%02d" % self.anchor
        if self.zone:
            out += " zone %s%02d:%02d" % ("+-"[self.zone < 0], *divmod(abs(self.zone), 60))
        return out

    def text(self):
        """Canonical text."""
        if self.kind == "concurrent":
            out = f"concurrent {self.count}"
        elif self.kind == "fixed-window":
            out = f"fixed-window {self.count}/{self.span()}"
        else:
            out = f"{self.kind} {self.count}/{bare(self.period)}"
        if self.kind == "token-bucket":
            out += f" burst {self.burst}" * (self.burst != self.count) + " stepped" * self.stepped
        if self.kind == "leaky-bucket":
            out += f" burst {self.burst}" * (self.burst != 0) + " nodelay" * self.nodelay
            out += f" delay {self.delay}" * (self.delay != 0)
        if self.kind == "sliding-window" and self.precision != -(-self.period // 10):
            out += f" precision {length(self.precision)}"
        if self.kind == "smooth" and self.burst_for != SECOND:
            out += f" burst-for {length(self.burst_for)}"
        if self.kind == "warmup":
            out += f" over {length(self.over)}"
            if self.cold != 3:
                out += f" cold {decimal(self.cold)}"
        if self.kind == "concurrent" and self.lease != MINUTE:
            out += f" lease {length(self.lease)}"
        return out + f" cost {self.cost}" * (self.cost != 0)

    def most(self):
        """The most that a fresh state admits at once."""
        if self.kind in ("smooth", "warmup"):
            return MOST
        if self.kind in ("token-bucket", "leaky-bucket"):
            return self.burst + (self.kind == "leaky-bucket")
        return self.count

    def asked(self, amount):
        """What a request of this amount is charged here."""
        return self.cost if self.cost and amount else amount


def on_calendar(span):
    """Whether what stands after a slash makes windows of the calendar."""
    try:
        limit = parse_one(f"fixed-window 1/{span}")
    except Refused:
        return False
    return bool(limit.unit or limit.zone)


def length(us):
    """A duration in the largest exact units: 5400000000 is 1h30m."""
    out = ""
    for unit, size in UNITS.items():
        if us // size:
            out += f"{us // size}{unit}"
            us %= size
    return out


def bare(us):
    """The same after a slash, where a single unit stands without its 1."""
    for unit, size in UNITS.items():
        if us == size:
            return unit
    return length(us)


def decimal(x):
    """At most six decimals, none of them a trailing zero."""
    millionths = int(x * 10 ** 6)
    return f"{millionths // 10**6}.{millionths % 10**6:06d}".rstrip("0").rstrip(".")


def parse_length(word):
    """Microseconds of `10s`, `1h30m`, `1.5s` or `s`."""
    if LONG.get(word, word) in UNITS:
        return UNITS[LONG.get(word, word)]
    pairs = PAIR.findall(word)
    if not pairs or "".join(n + u for n, u in pairs) != word:
        raise Refused(f"not a duration: {word}")
    pairs = [(n, LONG.get(u, u)) for n, u in pairs]
    if any(u not in UNITS for _, u in pairs):
        raise Refused(f"no such unit: {word}")
    sizes = [UNITS[u] for _, u in pairs]
    if any(a <= b for a, b in zip(sizes, sizes[1:])):
        raise Refused(f"units must come largest first: {word}")
    total = sum(Fraction(n) * UNITS[u] for n, u in pairs)
    if total.denominator != 1 or total == 0 or total > LONGEST:
        raise Refused(f"not whole microseconds from 1 to 366 days: {word}")
    return int(total)


def parse_count(word, least=1, most=MOST):
    match = COUNT.fullmatch(word)
    if not match:
        raise Refused(f"not a count: {word}")
    count = int(match[1]) * {"": 1, "k": 10 ** 3, "m": 10 ** 6, "g": 10 ** 9}[match[2].lower()]
    if not least <= count <= most:
        raise Refused(f"count out of bounds: {word}")
    return count


def parse_cold(word):
    if not DECIMAL.fullmatch(word) or not 1 < Fraction(word) <= 1000:
        raise Refused(f"cold must be over 1, up to 1000: {word}")
    return Fraction(word)


def parse_zone(word):
    match = ZONE.fullmatch(word)
    minutes = int(match[2]) * 60 + int(match[3] or 0) if match else 10 ** 6
    minutes = -minutes if match and match[1] == "-" else minutes
    if not -12 * 60 <= minutes <= 14 * 60:
        raise Refused(f"not an offset from -12:00 to +14:00: {word}")
    return minutes


def parse_anchor(unit, word):
    """Where a week, a month or a year starts."""
    if unit == "week" and word in WEEKDAYS:
        return (WEEKDAYS.index(word),)
    if unit == "month" and re.fullmatch("[0-9]{1,2}", word) and 1 <= int(word) <= 31:
        return (int(word),)
    if unit == "year" and re.fullmatch("[0-9]{2}-[0-9]{2}", word):
        month, day = map(int, word.split("-"))
        if 1 <= month <= 12 and 1 <= day <= MONTHS[month - 1]:
            return (month, day)
    raise Refused(f"not a start of a {unit or 'period of this length'}: {word}")


def parse_options(kind, words):
    """The options of one limit as a dictionary; flags are True."""
    found = {}
    words = list(words)
    while words:
        name = words.pop(0)
        if name not in KINDS[kind] + ANY_KIND or name in found:
            raise Refused(f"option not expected here: {name}")
        if name in FLAGS:
            found[name] = True
        elif not words:
            raise Refused(f"{name} lacks its value")
        elif name in LENGTHS:
            found[name] = parse_length(words.pop(0))
        elif name in ("from", "zone"):
            found[name] = words.pop(0)
        elif name == "cold":
            found[name] = parse_cold(words.pop(0))
        else:
            found[name] = parse_count(words.pop(0), 0 if kind == "leaky-bucket" and name != "cost" else 1)
    return found


def parse_one(part):
    words = [w for w in part.split(" ") if w]
    if len(words) < 2 or words[0] not in KINDS and words[0] != "gcra":
        raise Refused(f"not a limit: {part!r}")
    kind = "token-bucket" if words[0] == "gcra" else words[0]
    most = MOST_COUNT.get(kind, MOST)
    opts = parse_options(kind, words[2:])
    if kind == "concurrent":
        limit = Limit(kind, parse_count(words[1], 1, most), lease=opts.get("lease", MINUTE), cost=opts.get("cost", 0))
        check(limit, opts)
        return limit
    rate = words[1].split("/")
    if len(rate) != 2:
        raise Refused(f"expected count/period: {words[1]}")
    if kind == "fixed-window" and "from-first" not in opts:
        return parse_window(parse_count(rate[0], 1, most), rate[1], opts)
    count, period = parse_count(rate[0], 1, most), parse_length(rate[1])
    limit = Limit(
        kind, count, period,
        burst=opts.get("burst", count if kind == "token-bucket" else 0),
        stepped="stepped" in opts, nodelay="nodelay" in opts, from_first="from-first" in opts,
        delay=opts.get("delay", 0),
        precision=opts.get("precision", -(-period // 10)) if kind == "sliding-window" else 0,
        burst_for=opts.get("burst-for", SECOND) if kind == "smooth" else 0,
        over=opts.get("over", 0), cold=opts.get("cold", Fraction(3)), cost=opts.get("cost", 0))
    check(limit, opts)
    return limit


def parse_window(count, word, opts):
    """A fixed window whose starts are those of a clock or of a calendar."""
    unit = word if word in LONGEST_OF else ""
    period = LONGEST_OF[unit] if unit else parse_length(word)
    if "from" in opts and not unit and period == WEEK:
        unit = "week"
    anchor = {"month": (1,), "year": (1, 1)}.get(unit, ())
    if "from" in opts:
        anchor = parse_anchor(unit, opts["from"])
    zone = parse_zone(opts["zone"]) if "zone" in opts else 0
    limit = Limit("fixed-window", count, period, unit=unit, anchor=anchor, zone=zone, cost=opts.get("cost", 0))
    check(limit, opts)
    return limit


def check(limit, opts):
    """The bounds that involve more than one number."""
    if limit.stepped:
        if -(-limit.burst // limit.count) * limit.period >= MAX53:
            raise Refused("refilling takes 2^53 us or longer")
    elif limit.kind in ("token-bucket", "leaky-bucket"):
        tick = 1 if limit.period <= MINUTE else 1000
        tokens = limit.burst + (limit.kind == "leaky-bucket")
        if limit.period % tick:
            raise Refused("a period over 60 s must be whole milliseconds")
        if tokens * (limit.period // tick) >= MAX53:
            raise Refused("burst times period is 2^53 or more")
    if limit.cost > limit.most():
        raise Refused("the limit never admits its own cost")
    if "nodelay" in opts and "delay" in opts:
        raise Refused("nodelay and delay exclude each other")
    if "from-first" in opts and ("from" in opts or "zone" in opts):
        raise Refused("a window from-first starts with its first request, wherever that is")
    if limit.delay > limit.burst:
        raise Refused("delay is more than burst")
    if limit.kind == "sliding-window":
        if limit.precision > limit.period or limit.period > 10_000 * limit.precision:
            raise Refused("precision must be from period/10000 to period")
    if limit.kind == "warmup" and "over" not in opts:
        raise Refused("warmup needs over")


def reduced(limit, percent):
    """A share of a limit, which has a size: of what a fresh state admits, rounded down, at least 1."""
    assert limit.kind not in ("smooth", "warmup")
    extra = 1 if limit.kind == "leaky-bucket" else 0
    size = limit.burst + extra if limit.kind.endswith("-bucket") else limit.count
    size = max(1, int(size * Fraction(percent) / 100)) - extra
    if limit.kind.endswith("-bucket"):
        return replace(limit, burst=size, delay=min(limit.delay, size))
    return replace(limit, count=size)


def parse(text_in):
    """All limits of a text, or Refused."""
    text_in = "M".join(part.lower() for part in CAPITAL.split(text_in))
    limits = [parse_one(part) for part in text_in.split(",")]
    if len(limits) > 16:
        raise Refused("more than 16 limits")
    if len({limit.identity() for limit in limits}) < len(limits):
        raise Refused("two limits would share a state")
    return limits


def text(limits):
    return ", ".join(limit.text() for limit in limits)

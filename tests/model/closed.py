"""SPEC's closed formulas in plain integers: the other side of the self check.

The model finds its answers by search; this file writes down what SPEC says they come to.  The
two must agree on every field (selfcheck.py).  Only the limits with formulas to check are here.
Each class: take(t, cost, wait, charging) -> the six fields, and settle(t, t0, c0, c1).
`until`: from when on the state is absent for good, by the numbers it was written under.
"""
from search import DAY, LONGEST, MAX53, MINUTE, NEVER


def up(a, b):
    return -(-a // b)


def saturated(six):
    """As answers tell it."""
    return tuple(min(MAX53, x) for x in six)


class Bucket:
    """Token and leaky bucket: `w` units a token, `N` units a tick."""

    def __init__(self, limit):
        self.leaky = limit.kind == "leaky-bucket"
        self.at = self.debt = self.until = 0
        self.become(limit)

    def become(self, limit):
        self.N = limit.count
        self.u = 1 if limit.period <= MINUTE else 1000
        self.w = limit.period // self.u
        self.most = limit.burst + self.leaky
        self.cap = self.most * self.w
        self.D = None if limit.nodelay else limit.delay
        self.horizon = max(MINUTE, up(self.cap, self.N) * self.u)

    def load(self, t):
        self.t, self.T = t, t // self.u
        if t >= self.until or self.at * self.u - t > self.horizon:
            return None
        self.T = max(self.T, self.at)
        return max(0, self.debt - (self.T - self.at) * self.N)

    def when(self, x):
        return 0 if x <= 0 else max(0, (self.T + up(x, self.N)) * self.u - self.t)

    def take(self, t, cost, wait, charging):
        debt, need = self.load(t) or 0, cost * self.w
        level = self.cap - debt
        if self.leaky:
            wait = 10 ** 40 if wait in ("default", "any") else wait
            delay = 0 if self.D is None else self.when(debt - self.D * self.w)
            allowed = level >= need and delay <= wait
            retry = max(self.when(need - level), delay - wait)
        else:
            wait = {"default": 0, "any": LONGEST}.get(wait, wait)
            delay = self.when(need - level)
            allowed = delay <= wait and debt + need <= MAX53
            retry = max(delay - wait, self.when(debt + need - MAX53))
        if cost > self.most:
            allowed, retry = False, NEVER
        if allowed and charging and cost:
            debt += need
            self.keep(debt)
        return (allowed, self.most, max(0, (self.cap - debt) // self.w), 0 if allowed else retry,
                self.when(debt), delay if allowed else 0)

    def settle(self, t, t0, c0, c1):
        debt = self.load(t)
        if c0 != c1 and (debt is not None or c1 > c0):
            self.keep(min(MAX53, max(0, (debt or 0) + (c1 - c0) * self.w)))

    def keep(self, debt):
        self.at, self.debt = self.T, debt
        self.until = (self.T + up(debt, self.N)) * self.u if debt else 0


class Stepped:
    def __init__(self, limit):
        self.at = self.debt = self.until = 0
        self.become(limit)

    def become(self, limit):
        self.N, self.W, self.burst = limit.count, limit.period, limit.burst
        self.horizon = max(MINUTE, up(self.burst, self.N) * self.W)

    def load(self, t):
        self.present = t < self.until and self.at - t <= self.horizon
        if not self.present:
            return t, 0
        now = max(t, self.at)
        steps = (now - self.at) // self.W
        at, debt = self.at + steps * self.W, self.debt - steps * self.N
        return (at, debt) if debt > 0 else (now, 0)

    def take(self, t, cost, wait, charging):
        at, debt = self.load(t)

        def when(x):
            return 0 if x <= 0 else at + up(x, self.N) * self.W - t

        wait = {"default": 0, "any": LONGEST}.get(wait, wait)
        delay = when(cost - (self.burst - debt))
        allowed = delay <= wait and debt + cost <= MAX53
        retry = 0 if allowed else max(delay - wait, when(debt + cost - MAX53))
        if cost > self.burst:
            allowed, retry = False, NEVER
        if allowed and charging and cost:
            debt += cost
            self.keep(at, debt)
        return (allowed, self.burst, max(0, self.burst - debt), retry, when(debt),
                delay if allowed else 0)

    def settle(self, t, t0, c0, c1):
        at, debt = self.load(t)
        if c0 != c1 and (self.present or c1 > c0):
            self.keep(at, min(MAX53, max(0, debt + c1 - c0)))

    def keep(self, at, debt):
        self.at, self.debt = at, debt
        self.until = at + up(debt, self.N) * self.W if debt else 0


class Fixed:
    def __init__(self, limit):
        self.start = self.count = 0
        self.become(limit)

    def become(self, limit):
        self.N, self.W, self.free = limit.count, limit.period, limit.from_first

    def load(self, t):
        if self.count and self.start - t <= max(MINUTE, self.W) and t < self.start + self.W:
            return self.start, self.count
        return (t if self.free else t // self.W * self.W), 0

    def take(self, t, cost, wait, charging):
        start, count = self.load(t)
        allowed, end = count + cost <= self.N, start + self.W - t
        retry = 0 if allowed else NEVER if cost > self.N else end
        if allowed and charging and cost:
            count += cost
            self.start, self.count = start, count
        return allowed, self.N, max(0, self.N - count), retry, end if count else 0, 0

    def settle(self, t, t0, c0, c1):
        start, count = self.load(t)
        if c1 > c0 or c1 < c0 and count and start <= t0 < start + self.W:
            self.start, self.count = start, min(MAX53, max(0, count + c1 - c0))


class Calendar(Fixed):
    """Windows of the calendar by arithmetic alone: months counted from March of the year 0, so that the leap day
    is the last of its year.  The state keeps the end of the window."""

    def become(self, limit):
        super().become(limit)
        self.unit, self.anchor, self.z = limit.unit, limit.anchor, limit.zone * MINUTE

    @staticmethod
    def first(month):
        """The first day of a month, counted from the epoch."""
        y, m = divmod(month, 12)
        return 365 * y + y // 4 - y // 100 + y // 400 + (153 * m + 2) // 5 - 719468

    @staticmethod
    def month(day):
        n = day + 719468
        c = (4 * n + 3) // 146097
        r = n - 146097 * c // 4
        y = (4 * r + 3) // 1461
        return (100 * c + y) * 12 + (5 * (r - 1461 * y // 4) + 2) // 153

    def edge(self, month, day):
        return min(self.first(month) + day - 1, self.first(month + 1) - 1)

    def bounds(self, t):
        """The start and the end of the window of t."""
        if not self.unit:
            start = (t + self.z) // self.W * self.W - self.z
            return start, start + self.W
        L = (t + self.z) // DAY
        if self.unit == "week":
            start = L - (L + 3 - self.anchor[0]) % 7
            return start * DAY - self.z, (start + 7) * DAY - self.z
        m, step, day = self.month(L), 1, self.anchor[-1]
        if self.unit == "year":
            m, step = m // 12 * 12 + (self.anchor[0] + 9) % 12, 12
        if L < self.edge(m, day):
            m -= step
        return self.edge(m, day) * DAY - self.z, self.edge(m + step, day) * DAY - self.z

    def load(self, t):
        if self.count and self.bounds(self.start - 1)[0] - t <= max(MINUTE, self.W) and t < self.start:
            return self.start, self.count
        return self.bounds(t)[1], 0

    def take(self, t, cost, wait, charging):
        end, count = self.load(t)
        allowed = count + cost <= self.N
        retry = 0 if allowed else NEVER if cost > self.N else end - t
        if allowed and charging and cost:
            count += cost
            self.start, self.count = end, count
        return allowed, self.N, max(0, self.N - count), retry, end - t if count else 0, 0

    def settle(self, t, t0, c0, c1):
        end, count = self.load(t)
        if c1 > c0 or c1 < c0 and count and self.bounds(t0)[1] == end:
            self.start, self.count = end, min(MAX53, max(0, count + c1 - c0))


class Log:
    """Sliding log (P = 1) and sliding window, as lists of [slot, count, last]."""

    def __init__(self, limit):
        self.slots = []
        self.become(limit)

    def become(self, limit):
        self.N, self.W = limit.count, limit.period or limit.lease
        self.P = limit.precision or 1

    def load(self, t):
        if self.slots and self.slots[-1][2] - t > max(MINUTE, self.W):
            return t, []
        now = max([t] + [last for _, _, last in self.slots])
        return now, [list(slot) for slot in self.slots if now < slot[2] + self.W]

    def take(self, t, cost, wait, charging):
        now, slots = self.load(t)
        allowed, retry, total = True, 0, sum(count for _, count, _ in slots)
        if cost > self.N:
            allowed, retry = False, NEVER
        elif total + cost > self.N:
            allowed, left, i = False, total + cost - self.N, 0
            while left > 0:
                left -= slots[i][1]
                retry = slots[i][2] + self.W - t
                i += 1
        elif charging and cost:
            total += cost
            self.add(slots, now, cost)
        return (allowed, self.N, max(0, self.N - total), retry,
                slots[-1][2] + self.W - t if slots else 0, 0)

    def add(self, slots, now, cost):
        if not slots or slots[-1][0] != now // self.P:
            slots.append([now // self.P, 0, 0])
        slots[-1][1] = min(MAX53, slots[-1][1] + cost)
        slots[-1][2] = now
        self.slots = slots

    def settle(self, t, t0, c0, c1):
        now, slots = self.load(t)
        for slot in slots:
            if slot[2] >= t0 and c0 != c1:
                slot[1] = min(MAX53, max(0, slot[1] + c1 - c0))
                self.slots = [slot for slot in slots if slot[1]]
                return
        if c1 > c0:
            self.add(slots, now, c1 - c0)


class Counter:
    def __init__(self, limit):
        self.k = self.previous = self.current = 0
        self.become(limit)

    def become(self, limit):
        self.N, self.W = limit.count, limit.period
        self.v = max(1, up(self.W, 2 ** 20))
        self.Wv = self.W // self.v

    def load(self, t):
        k, previous, current = self.k, self.previous, self.current
        gone = (k + (2 if current else 1)) * self.W - self.v + 1
        if k * self.W - t > max(MINUTE, 2 * self.W) or t >= gone:
            previous = current = k = 0
        now = max(t, k * self.W)
        rolled = now // self.W - k
        if rolled:
            previous, current = (current if rolled == 1 else 0), 0
        return now, k + rolled, previous, current

    def take(self, t, cost, wait, charging):
        now, k, previous, current = self.load(t)
        N, W, v, Wv = self.N, self.W, self.v, self.Wv
        q = min(Wv, (W - (now - k * W)) // v)
        allowed, retry = previous * q + current * Wv + cost * Wv <= N * Wv, 0
        if cost > N:
            allowed, retry = False, NEVER
        elif not allowed and cost + current <= N:
            retry = k * W + W - ((N - cost - current) * Wv // previous + 1) * v + 1 - t
        elif not allowed:
            retry = (k + 1) * W + W - ((N - cost) * Wv // current + 1) * v + 1 - t
        if allowed and charging and cost:
            current += cost
            self.k, self.previous, self.current = k, previous, current
        left = (N * Wv - previous * q - current * Wv) // Wv
        reset = ((k + 2) if current else (k + 1)) * W - v + 1 - t if current or previous else 0
        return allowed, N, max(0, left), retry, max(0, reset), 0

    def settle(self, t, t0, c0, c1):
        now, k, previous, current = self.load(t)
        if c0 == c1 or c1 < c0 and (previous == current == 0 or t0 // self.W not in (k - 1, k)):
            return
        if t0 // self.W == k - 1:
            previous = min(2 * 10 ** 9, max(0, previous + c1 - c0))
        else:
            current = min(2 * 10 ** 9, max(0, current + c1 - c0))
        k = k if previous or current else 0
        self.k, self.previous, self.current = k, previous, current


def make(limit):
    if limit.stepped:
        return Stepped(limit)
    if limit.unit or limit.zone:
        return Calendar(limit)
    return {"token-bucket": Bucket, "leaky-bucket": Bucket, "fixed-window": Fixed,
            "sliding-log": Log, "sliding-window": Log, "sliding-counter": Counter,
            "concurrent": Log}.get(limit.kind, lambda _: None)(limit)

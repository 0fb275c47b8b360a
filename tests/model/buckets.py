"""Token bucket, leaky bucket and stepped bucket, in exact rationals.

A state is (at, debt): so many tokens were owed at that instant.  Everything else is asked of
one function, debt_at(state, t); the instants in an answer are searched for.
"""
from fractions import Fraction

from search import LONGEST, MAX53, MINUTE, NEVER, first_instant


class Bucket:
    """What the three have in common: reserve, answer, settle, given debt_at and stamp."""

    default_wait = 0
    kept_for = 0                    # once it is back to fresh
    any_wait = LONGEST

    def __init__(self, limit):
        self.limit = self.size = limit.burst

    def level(self, state, t):
        return self.size - self.debt_at(state, t)

    def judge(self, state, t, cost, wait):
        """(allowed, retry_after, delay) of a request, charging nothing."""
        if cost > self.size:
            return False, NEVER, 0
        if self.absurd(state, t):
            state = None

        def there(x):
            return self.level(state, x) >= cost

        def may(x):
            return there(x + wait) and self.debt_at(state, x) + cost <= self.top

        come = self.guess(state, t, cost - self.level(state, t))
        if may(t):
            return True, 0, first_instant(there, t, come) - t
        fits = self.guess(state, t, self.debt_at(state, t) + cost - self.top)
        return False, first_instant(may, t, max(come - wait, fits)) - t, 0

    def standing(self, state, t):
        """(remaining, reset_after) of the state as it is."""
        debt = self.debt_at(state, t)
        fresh = first_instant(lambda x: self.debt_at(state, x) == 0, t, self.guess(state, t, debt))
        return max(0, (self.size - debt) // 1), fresh - t

    def charge(self, state, t, cost):
        return self.put(state, t, self.debt_at(state, t) + cost)

    def put(self, state, t, debt):
        return (self.stamp(state, t), debt) if debt else None

    def settle(self, state, t, t0, c0, c1):
        if c0 == c1:
            return state
        if self.absurd(state, t) and c1 < c0:
            return state
        debt = self.debt_at(state, t)
        return self.put(state, t, min(self.top, max(0, debt + c1 - c0)))


class TokenBucket(Bucket):
    """Tokens drip in evenly; time is counted in ticks of 1 us or 1 ms."""

    def __init__(self, limit):
        super().__init__(limit)
        self.tick = 1 if limit.period <= MINUTE else 1000
        units = limit.period // self.tick
        self.rate = Fraction(limit.count, units)      # tokens a tick
        self.top = Fraction(MAX53, units)             # no debt is larger
        self.fit(limit)
        self.horizon = max(MINUTE, -(-self.size // self.rate) * self.tick)

    def fit(self, limit):
        pass

    def absurd(self, state, t):
        return state is None or state[0] * self.tick - t > self.horizon

    def stamp(self, state, t):
        now = t // self.tick
        return now if self.absurd(state, t) else max(now, state[0])

    def debt_at(self, state, t):
        if self.absurd(state, t):
            return 0
        at, debt = state
        return max(0, debt - max(0, t // self.tick - at) * self.rate)

    def guess(self, state, t, tokens):
        return (self.stamp(state, t) - (-tokens // self.rate)) * self.tick


class LeakyBucket(TokenBucket):
    """Holds burst+1; what is already in it delays the newcomer."""

    default_wait = any_wait = None                    # without end

    def fit(self, limit):
        self.limit = self.size = limit.burst + 1
        self.free = self.size if limit.nodelay else limit.delay

    def judge(self, state, t, cost, wait):
        if cost > self.size:
            return False, NEVER, 0
        if self.absurd(state, t):
            state = None

        def goes(x):
            """Nothing that is ahead of it delays it at x."""
            return self.nodelay_at(state, x)

        def may(x):
            return self.level(state, x) >= cost and (wait is None or goes(x + wait))

        turn = self.guess(state, t, self.debt_at(state, t) - self.free)
        if may(t):
            return True, 0, first_instant(goes, t, turn) - t
        room = self.guess(state, t, cost - self.level(state, t))
        if wait is not None:
            room = max(room, turn - wait)
        return False, first_instant(may, t, room) - t, 0

    def nodelay_at(self, state, x):
        return self.debt_at(state, x) <= self.free


class NodelayBucket(LeakyBucket):
    """The same, and nobody is delayed."""

    def nodelay_at(self, state, x):
        return True


class SteppedBucket(Bucket):
    """All of count arrives at once, every period from `at` on, for as long as anything is owed."""

    top = MAX53

    def __init__(self, limit):
        super().__init__(limit)
        self.count, self.period = limit.count, limit.period
        self.horizon = max(MINUTE, -(-limit.burst // limit.count) * limit.period)

    def absurd(self, state, t):
        return state is None or state[0] - t > self.horizon

    def arrivals(self, state, t):
        return max(0, (t - state[0]) // self.period)

    def debt_at(self, state, t):
        if self.absurd(state, t):
            return 0
        return max(0, state[1] - self.arrivals(state, t) * self.count)

    def stamp(self, state, t):
        if not self.debt_at(state, t):
            return t
        return state[0] + self.arrivals(state, t) * self.period

    def guess(self, state, t, tokens):
        return self.stamp(state, t) + -(-tokens // self.count) * self.period


def make(limit):
    if limit.stepped:
        return SteppedBucket(limit)
    if limit.kind == "token-bucket":
        return TokenBucket(limit)
    return (NodelayBucket if limit.nodelay else LeakyBucket)(limit)

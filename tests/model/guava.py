"""Smooth and warmup: Guava's RateLimiter (31.1) in IEEE doubles, operation for operation.

A Python float is an IEEE double, every operation below is rounded once, int() truncates like
Java's (long).  State: (stored permits, next free time in microseconds).
"""
import math

from search import DAY, MAX53, first_instant


def whole(x):
    """(long) x, kept within 2^53 either way."""
    return int(max(-float(MAX53), min(float(MAX53), x)))


class Smooth:
    """SmoothBursty: idle time is saved as permits, up to burst_for; fresh: none saved."""

    default_wait = any_wait = None                    # without end
    kept_for = DAY                                    # after it is full

    def __init__(self, limit):
        pps = limit.count * 1e6 / limit.period
        self.stable = 1e6 / pps
        self.shape(limit, pps)
        self.limit = max(1, whole(self.max))

    def shape(self, limit, pps):
        self.max = limit.burst_for / 1e6 * pps
        self.cooldown = self.stable
        self.fresh = 0.0

    def stored_time(self, stored, spent):
        return 0

    def full_at(self, stored, free):
        return free + math.ceil((self.max - stored) * self.cooldown)

    def known(self, state, t):
        """The state before any change, or None where there is none."""
        if state is None:
            return None
        stored, free = min(state[0], self.max), state[1]
        if t >= self.full_at(stored, free) + self.kept_for:
            return None
        return stored, free

    def load(self, state, t):
        """Brought up to t."""
        stored, free = self.known(state, t) or (self.fresh, t)
        if t > free:
            stored = min(self.max, stored + (t - free) / self.cooldown)
            free = t
        return stored, free

    def judge(self, state, t, cost, wait):
        def may(x):
            seen = self.known(state, x)
            return wait is None or seen is None or seen[1] - wait <= x

        if may(t):
            return True, 0, max(0, self.load(state, t)[1] - t)
        return False, first_instant(may, t, state[1] - wait) - t, 0

    def standing(self, state, t):
        stored, free = self.load(state, t)
        return whole(stored), max(0, self.full_at(stored, free) - t)

    def charge(self, state, t, cost):
        stored, free = self.load(state, t)
        spent = min(float(cost), stored)
        time = self.stored_time(stored, spent) + whole((cost - spent) * self.stable)
        return stored - spent, min(MAX53, free + time)

    def settle(self, state, t, t0, c0, c1):
        if c0 == c1 or c1 < c0 and self.known(state, t) is None:
            return state
        stored, free = self.load(state, t)
        return stored, min(MAX53, max(t, free + whole((c1 - c0) * self.stable)))


class Warmup(Smooth):
    """SmoothWarmingUp: what is saved above the threshold is spent slowly; fresh: all saved."""

    kept_for = 0                                      # fresh is full

    def shape(self, limit, pps):
        over = limit.over
        cold_interval = self.stable * float(limit.cold)
        self.threshold = 0.5 * over / self.stable
        self.max = self.threshold + 2.0 * over / (self.stable + cold_interval)
        self.slope = (cold_interval - self.stable) / (self.max - self.threshold)
        self.cooldown = over / self.max
        self.fresh = self.max

    def permit_time(self, above):
        return self.stable + above * self.slope

    def stored_time(self, stored, spent):
        above, time = stored - self.threshold, 0
        if above > 0.0:
            taken = min(above, spent)
            sides = self.permit_time(above) + self.permit_time(above - taken)
            time = whole(taken * sides / 2.0)
            spent -= taken
        return time + whole(self.stable * spent)


def make(limit):
    return (Warmup if limit.kind == "warmup" else Smooth)(limit)

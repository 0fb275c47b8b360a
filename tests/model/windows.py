"""Fixed windows, sliding log, sliding window and sliding counter, by brute force over events.

None of them waits: the wait of a request is ignored.
"""
from datetime import date, timedelta
from functools import lru_cache

from search import DAY, MAX53, MINUTE, NEVER, first_event, first_instant

EPOCH, ONE_DAY = date(1970, 1, 1), timedelta(days=1)


class Window:
    """What they have in common, given used(state, t) and events(state, t)."""

    default_wait = any_wait = 0
    kept_for = 0                    # once it is back to fresh
    scale = 1                       # used() counts in units of 1/scale

    def __init__(self, limit):
        self.limit, self.period = limit.count, limit.period
        self.horizon = max(MINUTE, limit.period)

    def judge(self, state, t, cost, wait):
        if cost > self.limit:
            return False, NEVER, 0

        def may(x):
            return self.used(state, x) <= (self.limit - cost) * self.scale

        if may(t):
            return True, 0, 0
        return False, self.first(may, state, t) - t, 0

    def standing(self, state, t):
        used = self.used(state, t)
        fresh = self.first(lambda x: self.blank(state, x), state, t)
        return max(0, (self.limit * self.scale - used) // self.scale), fresh - t

    def blank(self, state, t):
        return self.used(state, t) == 0

    def first(self, holds, state, t):
        return first_event(holds, t, self.events(state, t))


class FixedWindow(Window):
    """State: (start, count).  Aligned to the epoch, or open from the first charge on."""

    def __init__(self, limit):
        super().__init__(limit)
        self.from_first = limit.from_first

    def alive(self, state, t):
        return (state is not None and state[0] - t <= self.horizon
                and t < state[0] + self.period)

    def used(self, state, t):
        return state[1] if self.alive(state, t) else 0

    def events(self, state, t):
        return [state[0] + self.period] if state else []

    def charge(self, state, t, cost):
        if self.alive(state, t):
            return (state[0], state[1] + cost)
        return (t if self.from_first else t // self.period * self.period, cost)

    def settle(self, state, t, t0, c0, c1):
        more = c1 - c0
        inside = self.alive(state, t) and state[0] <= t0 < state[0] + self.period
        if more == 0 or more < 0 and not inside:
            return state
        start, count = self.charge(state, t, 0)
        count = min(MAX53, max(0, count + more))
        return (start, count) if count else None


class CalendarWindow(FixedWindow):
    """The same, but where windows start is looked up: day by day in Python's calendar, or for windows of one
    length by trying.  Days are those of a clock that shows `zone` more than UTC."""

    def __init__(self, limit):
        super().__init__(limit)
        self.unit, self.anchor, self.zone = limit.unit, limit.anchor, limit.zone * MINUTE

    def is_first(self, day):
        """Whether a window starts at midnight of this day."""
        if self.unit == "week":
            return day.weekday() == self.anchor[0]
        last = (day + ONE_DAY).month != day.month
        if self.unit == "month":
            return day.day == self.anchor[0] or last and day.day < self.anchor[0]
        month, date = self.anchor
        return day.month == month and (day.day == date or last and day.day < date)

    @lru_cache(maxsize=None)
    def window(self, number):
        """The first days of the window that a day (counted from the epoch) lies in, and of the next."""
        first = EPOCH + number * ONE_DAY
        while not self.is_first(first):
            first -= ONE_DAY
        after = first + ONE_DAY
        while not self.is_first(after):
            after += ONE_DAY
        return (first - EPOCH).days, (after - EPOCH).days

    def bounds(self, t):
        if not self.unit:
            start = (t + self.zone) // self.period * self.period - self.zone
            return start, start + self.period
        first, after = self.window((t + self.zone) // DAY)
        return first * DAY - self.zone, after * DAY - self.zone

    def alive(self, state, t):
        return (state is not None and state[0] - t <= self.horizon and t < self.bounds(state[0])[1])

    def events(self, state, t):
        return [self.bounds(state[0])[1]] if state else []

    def charge(self, state, t, cost):
        if self.alive(state, t):
            return (state[0], state[1] + cost)
        return (self.bounds(t)[0], cost)

    def settle(self, state, t, t0, c0, c1):
        more = c1 - c0
        inside = self.alive(state, t) and self.bounds(t0)[0] == state[0]
        if more == 0 or more < 0 and not inside:
            return state
        start, count = self.charge(state, t, 0)
        count = min(MAX53, max(0, count + more))
        return (start, count) if count else None


class SlidingLog(Window):
    """State: ((last, count), ...), oldest first, one for every slot that last // slot names.

    The log has slots of one microsecond, the sliding window those of its precision.
    """

    def __init__(self, limit):
        super().__init__(limit)
        self.slot = limit.precision or 1

    def now(self, state, t):
        return max(t, state[-1][0]) if state else t

    def alive(self, state, t):
        """The entries that count at t."""
        if not state or state[-1][0] - t > self.horizon:
            return ()
        past = self.now(state, t) - self.period
        return tuple([e for e in state if e[0] > past])

    def used(self, state, t):
        return sum([count for _, count in self.alive(state, t)])

    def events(self, state, t):
        return [last + self.period for last, _ in self.alive(state, t)]

    def standing(self, state, t):
        lapses = self.events(state, t)
        return (max(0, self.limit - self.used(state, t)), max(lapses) - t if lapses else 0)

    def charge(self, state, t, cost):
        live = self.alive(state, t)
        now = self.now(live, t)
        if live and live[-1][0] // self.slot == now // self.slot:
            return live[:-1] + ((now, live[-1][1] + cost),)
        return live + ((now, cost),)

    def settle(self, state, t, t0, c0, c1):
        live, more = self.alive(state, t), c1 - c0
        if more == 0:
            return state
        for i, (last, count) in enumerate(live):
            if last >= t0:
                more = min(more, MAX53 - self.used(state, t))
                count = max(0, count + more)
                return live[:i] + (((last, count),) if count else ()) + live[i + 1:]
        if more < 0:
            return state
        return self.charge(live, t, min(more, MAX53 - self.used(state, t)))


class SlidingCounter(Window):
    """State: (k, previous, current): counts of the aligned windows k-1 and k.

    The previous window weighs by its overlap, in steps of v microseconds.
    """

    def __init__(self, limit):
        super().__init__(limit)
        self.horizon = max(MINUTE, 2 * limit.period)
        self.step = max(1, -(-limit.period // 2 ** 20))
        self.scale = limit.period // self.step

    def rolled(self, state, t):
        """(k, previous, current) as of t."""
        k = t // self.period
        if state is None or state[0] * self.period - t > self.horizon:
            return k, 0, 0
        k = max(k, state[0])
        counts = {state[0] - 1: state[1], state[0]: state[2]}
        return k, counts.get(k - 1, 0), counts.get(k, 0)

    def weight(self, k, t):
        gone = max(t, k * self.period) - k * self.period
        return min(self.scale, (self.period - gone) // self.step)

    def used(self, state, t):
        k, previous, current = self.rolled(state, t)
        return previous * self.weight(k, t) + current * self.scale

    def first(self, holds, state, t):
        """First by window, then within it."""
        k, previous, current = self.rolled(state, t)
        last = (k + 2) * self.period
        edges = [(k + 1) * self.period - 1, last - 1, last]
        by = first_event(holds, t, edges)
        after = max([t] + [edge + 1 for edge in edges if edge < by])
        return first_instant(holds, after, by - self.step + 2)

    def charge(self, state, t, cost):
        k, previous, current = self.rolled(state, t)
        return (k, previous, current + cost)

    def settle(self, state, t, t0, c0, c1):
        more = c1 - c0
        k, previous, current = self.rolled(state, t)
        absent = previous == current == 0
        known = t0 // self.period in (k - 1, k) and not absent
        if more == 0 or more < 0 and not known:
            return state
        if t0 // self.period == k - 1:
            previous = min(2 * 10 ** 9, max(0, previous + more))
        else:
            current = min(2 * 10 ** 9, max(0, current + more))
        return (k, previous, current) if previous or current else None


def make(limit):
    if limit.kind == "fixed-window":
        return (CalendarWindow if limit.unit or limit.zone else FixedWindow)(limit)
    return (SlidingCounter if limit.kind == "sliding-counter" else SlidingLog)(limit)

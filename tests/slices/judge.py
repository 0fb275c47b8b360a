"""Whether admissions stay within a limit, by the promise of SPEC ("Sliced stores") for its kind. Plain arithmetic and the
model of tests/model; nothing here comes from the library.

    problems(limit, admissions, charges)            -> a list of texts, empty if all is well
    misplaced(limit, intervals)                     -> the same of admissions of 1, each made anywhere between two times
    admissions: (time in microseconds, cost), in any order, and where one is settled (time, its time, cost, real cost); charges: ("C", time, cost) and ("R", time, t0, cost), in order
"""
import bisect
import collections
import heapq
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "model"))
import limits as language  # noqa: E402
import model  # noqa: E402


def one(text):
    return language.parse(text)[0]


def by_the_limit(limit, admissions):
    """The exact limit, fed with the admissions and settles, allows each of them."""
    exact, state = model.engine(limit), None
    found = []
    for time, *rest in admissions:
        if len(rest) == 3:
            state = exact.settle(state, time, *rest)
            continue
        cost = rest[0]
        if hasattr(exact, "level"):
            fits = exact.level(state, time) >= cost
        else:
            fits = exact.used(state, time) + cost * getattr(exact, "scale", 1) <= exact.limit * getattr(exact, "scale", 1)
        if not fits:
            found.append(f"{cost} at {time} is more than the limit allows")
        state = exact.charge(state, time, cost)
    return found


def by_spans(limit, admissions):
    """At most so much in every span of one period: what log and window promise."""
    found, inside, total = [], collections.deque(), 0
    for time, cost in admissions:
        while inside and inside[0][0] <= time - limit.period:
            total -= inside.popleft()[1]
        inside.append((time, cost))
        total += cost
        if total > limit.count:
            found.append(f"{total} within the period that ends at {time}")
    return found


def by_steps(limit, admissions):
    """At most burst + N * (floor(s / W) + 1) in every span of length s. For each admission as the end: of all beginnings that
    are so many periods back, the earliest has the most."""
    times = [time for time, _ in admissions]
    sums = [0]
    for _, cost in admissions:
        sums.append(sums[-1] + cost)
    found = []
    for i, end in enumerate(times):
        start, back = i, 0
        while start > 0:
            # spans shorter than back + 1 periods
            start = bisect.bisect_right(times, end - (back + 1) * limit.period, 0, i + 1)
            if sums[i + 1] - sums[start] > limit.burst + limit.count * (back + 1):
                found.append(f"{sums[i + 1] - sums[start]} in a span of {end - times[start]} that ends at {end}")
                break
            if sums[i + 1] <= limit.burst + limit.count * (back + 2):
                break
            back += 1
    return found


def by_windows(limit, admissions):
    """At most N in each window, at any time; a settle counts only within it."""
    exact = model.engine(limit)
    counts, found = collections.Counter(), []
    for time, *rest in admissions:
        start = exact.charge(None, time, 1)[0]
        if len(rest) == 1:
            counts[start] += rest[0]
        elif exact.charge(None, rest[0], 1)[0] == start:
            counts[start] -= rest[1] - rest[2]
        if counts[start] > limit.count:
            found.append(f"{counts[start]} in the window from {start}")
    return found


def by_opened_windows(limit, admissions, charges):
    """At most N in each window that the server has opened."""
    exact, state, starts = model.engine(limit), None, []
    for charge in charges:
        if charge[0] == "C":
            state = exact.charge(state, charge[1], charge[2])
            if not starts or starts[-1] != state[0]:
                starts.append(state[0])
        else:
            state = exact.settle(state, charge[1], charge[2], charge[3], 0)
    counts, found = collections.Counter(), []
    for time, cost in admissions:
        at = bisect.bisect_right(starts, time) - 1
        if at < 0 or time >= starts[at] + limit.period:
            found.append(f"{cost} at {time} is in no window")
        counts[at] += cost
    return found + [f"{total} in the window from {starts[at]}" for at, total in counts.items() if total > limit.count]


def problems(limit, admissions, charges=()):
    admissions = sorted(admissions)
    if limit.stepped:
        return by_steps(limit, admissions)
    if limit.kind == "fixed-window":
        return by_opened_windows(limit, admissions, charges) if limit.from_first else by_windows(limit, admissions)
    if limit.kind == "sliding-window":
        return by_spans(limit, admissions)
    if limit.kind == "sliding-log":
        return by_spans(limit, admissions)
    return by_the_limit(limit, admissions)


# ---- admissions of which only call and return are known ----

class Bucket:
    """Units of a bucket in whole numbers: `period` of them are one admission, `count` come in each microsecond."""

    def __init__(self, size, limit):
        self.size, self.limit = size * limit.period, limit
        self.at, self.debt = 0, 0

    def debt_at(self, time):
        return max(0, self.debt - (time - self.at) * self.limit.count)

    def allows_from(self, time):
        """The first time from then on at which one more fits."""
        lack = self.debt_at(time) + self.limit.period - self.size
        return time if lack <= 0 else time - (-lack // self.limit.count)

    def admit(self, time):
        self.at, self.debt = time, self.debt_at(time) + self.limit.period


class Log:
    def __init__(self, size, limit):
        self.period, self.times = limit.period, collections.deque([-limit.period] * size, maxlen=size)

    def allows_from(self, time):
        return max(time, self.times[0] + self.period)

    def admit(self, time):
        self.times.append(time)


class Windows:
    def __init__(self, size, limit):
        self.size, self.period, self.window, self.count = size, limit.period, 0, 0

    def allows_from(self, time):
        full = time // self.period == self.window and self.count >= self.size
        return (self.window + 1) * self.period if full else time

    def admit(self, time):
        if time // self.period != self.window:
            self.window, self.count = time // self.period, 0
        self.count += 1


def misplaced(limit, intervals, more=0):
    """Whether there is a time for each admission, between call and return, so that the limit (its size larger by `more`) allows
    them all. Of those whose call was made, the one that returned first goes first: if that fails, nothing else works."""
    sizes = {"token-bucket": limit.burst, "leaky-bucket": limit.burst + 1}
    made = {"sliding-log": Log, "fixed-window": Windows}.get(limit.kind, Bucket)
    exact = made(sizes.get(limit.kind, limit.count) + more, limit)
    found, waiting, time = [], [], 0
    intervals = sorted(intervals)
    i = 0
    while waiting or i < len(intervals):
        if not waiting:
            time = max(time, intervals[i][0])
        while i < len(intervals) and intervals[i][0] <= time:
            heapq.heappush(waiting, intervals[i][::-1])
            i += 1
        at = exact.allows_from(time)
        if at > time and i < len(intervals) and intervals[i][0] <= at:
            time = intervals[i][0]  # others may be in a greater hurry
            continue
        after, before = heapq.heappop(waiting)
        if at > after:
            found.append(f"one of {before} … {after} fits only at {at}")
            at = time
        exact.admit(at)
        time = at
    return found

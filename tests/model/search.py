"""Shared constants, and the searches that find an answer from its definition.

An answer such as retry_after is "the first instant at which something holds".  The model asks
exactly that: it evaluates the predicate on instants until it has the first one that holds.
"""
from collections import namedtuple

NEVER = -1
MAX53 = 2 ** 53
SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86400 * SECOND
LONGEST = 366 * DAY
MOST = 10 ** 12

Answer = namedtuple("Answer", "allowed limit remaining retry_after reset_after delay granted", defaults=(0,))


def first_instant(holds, start, guess=None):
    """The smallest x >= start with holds(x), for a predicate that stays true once it is true.

    A guess only saves time: it is taken if it holds and the microsecond before it does not.
    """
    if holds(start):
        return start
    if guess is not None and guess > start and holds(guess) and not holds(guess - 1):
        return guess
    step, low = 1, start
    while not holds(start + step):
        low = start + step
        step *= 2
        if step > 2 ** 130:
            raise AssertionError("no such instant")
    high = start + step
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def first_event(holds, start, events):
    """The same by brute force, where only the given instants can make a difference."""
    for x in sorted({start, *(e for e in events if e > start)}):
        if holds(x):
            return x
    raise AssertionError("no such event")

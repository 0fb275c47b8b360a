"""Time as limits count it, for tests that say what may have come by now at the most.

    begun = clocks.now()
    … what a limit lets through …
    passed <= burst + rate * (clocks.now() - begun)

Limits go by the system's clock. Somebody may set that clock while a test runs: an operator, a daemon, or a virtual machine that
was paused. If it is set forward, a limit lets more through than the monotonic clock explains, as it should. now() goes on with
the monotonic clock, and jumps ahead with the system's.
"""
import time

CLOSE = 0.0001  # two readings that are so near to each other are of one moment
TRIES = 20

_first = _most = None


def offset():
    """By how much the system's clock is ahead of the monotonic one. It changes only if somebody sets the clock."""
    best = None
    for _ in range(TRIES):
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if best is None or after - before < best[0]:
            best = after - before, wall - before
        if best[0] < CLOSE:
            break
    return best[1]


def now():
    """Seconds since some moment; as many as have passed by either clock."""
    global _first, _most
    ahead = offset()
    if _first is None:
        _first = _most = ahead
    _most = max(_most, ahead)
    return time.monotonic() + _most - _first


class Steps:
    """Whether somebody has set the system's clock since the last time one asked."""

    LEAST = 0.002

    def __init__(self):
        self.offset = offset()

    def moved(self):
        before, self.offset = self.offset, offset()
        return abs(self.offset - before) > self.LEAST

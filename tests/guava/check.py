#!/usr/bin/env python3
"""Replays the traces of the real Guava RateLimiter against the formulas that weir promises for smooth and warmup.

usage: check.py [FILE.vec ...]      default: tests/vectors/guava_smooth.vec and guava_warmup.vec

The formulas stand here in plain Python (whose floats are C's doubles), written from the specification and not from
Guava's source, so that the specification itself is held to what Guava does. Exit 0 when every answer agrees, 1 if not,
2 if a file cannot be read as vectors.
"""
import math
import os
import re
import sys

UNITS = {"us": 1, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6, "w": 7 * 86400 * 10**6}
DAY = UNITS["d"]
TOP = 2**53


def duration(text):
    if text in UNITS:
        return UNITS[text]
    if not re.fullmatch(r"(\d+(us|ms|[smhdw]))+", text):
        raise ValueError("not a duration: " + text)
    return sum(int(n) * UNITS[u] for n, u in re.findall(r"(\d+)(us|ms|[smhdw])", text))


def saturate(x):
    """A time that is not before now: a double or an integer, to an integer of at most 2^53."""
    return TOP if x >= TOP else int(x)


class Limit:
    def __init__(self, text):
        words = text.split()
        self.kind = words[0]
        count, period = words[1].split("/")
        options = dict(zip(words[2::2], words[3::2]))
        if len(words) % 2:
            raise ValueError("an option without its value: " + text)
        self.pps = int(count) * 1e6 / duration(period)
        self.stable = 1e6 / self.pps
        if self.kind == "smooth":
            burst_for = duration(options.pop("burst-for", "1s"))
            self.max = burst_for / 1e6 * self.pps
            self.cooldown = self.stable
            self.fresh = 0.0
        elif self.kind == "warmup":
            over = duration(options.pop("over"))
            cold_interval = self.stable * float(options.pop("cold", "3"))
            self.threshold = 0.5 * over / self.stable
            self.max = self.threshold + 2.0 * over / (self.stable + cold_interval)
            self.slope = (cold_interval - self.stable) / (self.max - self.threshold)
            self.cooldown = over / self.max
            self.fresh = self.max
        else:
            raise ValueError("neither smooth nor warmup: " + text)
        if options:
            raise ValueError("unknown options: " + text)

    def stored_time(self, stored, spend):
        if self.kind == "smooth":
            return 0
        time = 0
        above = stored - self.threshold
        if above > 0:
            n = min(above, spend)
            time = saturate(n * ((self.stable + above * self.slope) + (self.stable + (above - n) * self.slope)) / 2.0)
            spend -= n
        return time + saturate(self.stable * spend)

    def take(self, state, t, cost, wait):
        """(state, allowed, delay)"""
        if state is not None:
            stored, free = state
            if t >= free + math.ceil((self.max - stored) * self.cooldown) + DAY:
                state = None
        stored, free = state if state is not None else (self.fresh, t)
        if wait is not None and free - wait > t:
            return state, 0, 0
        if t > free:
            stored = min(self.max, stored + (t - free) / self.cooldown)
            free = t
        delay = max(0, free - t)
        spend = min(float(cost), stored)
        free = saturate(free + saturate(self.stored_time(stored, spend) + saturate((cost - spend) * self.stable)))
        return (stored - spend, free), 1, delay


def check(path):
    passed = failed = 0
    name, limit, state = "?", None, None
    with open(path, encoding="ascii") as f:
        for number, line in enumerate(f, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                if words[0] == "case" and len(words) == 2:
                    name, limit, state = words[1], None, None
                    continue
                if words[0] == "limit":
                    limit, state = Limit(" ".join(words[1:])), None
                    continue
                if words[0] != "grant" or len(words) != 7 or words[4] != "=" or limit is None:
                    raise ValueError("not a line of a vector file")
                t, cost = int(words[1]), int(words[2])
                wait = None if words[3] == "any" else int(words[3])
                expected = int(words[5]), int(words[6])
            except (ValueError, KeyError) as e:
                print(f"{path}:{number}: {e}", file=sys.stderr)
                sys.exit(2)
            state, allowed, delay = limit.take(state, t, cost, wait)
            if (allowed, delay) == expected:
                passed += 1
            else:
                failed += 1
                if failed <= 20:
                    print(f"{path}:{number}: {name}: Guava answered {expected[0]} {expected[1]}, the formulas {allowed} {delay}", file=sys.stderr)
    return passed, failed


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    vectors = os.path.join(here, "..", "vectors")
    files = sys.argv[1:] or [os.path.normpath(os.path.join(vectors, f)) for f in ("guava_smooth.vec", "guava_warmup.vec")]
    passed = failed = 0
    for path in files:
        try:
            p, f = check(path)
        except OSError as e:
            print(f"{path}: {e.strerror}", file=sys.stderr)
            return 2
        passed, failed = passed + p, failed + f
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())

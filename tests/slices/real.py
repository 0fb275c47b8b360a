#!/usr/bin/env python3
"""Eight real processes slice limits in one real Redis, while they are killed and stopped and Redis is killed, too: what they wrote
down is never over a limit. With a Redis that forgets, no more than the bound in docs/REDIS-STORE.md.

    real.py [--long]
"""
import array
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

import judge
from lib import build, checks, module_cases

PROCESSES, PEERS = 8, 6  # two of them have no slot
HOT = ("token-bucket 300/s burst 800", "sliding-log 400/s", "fixed-window 400/s", "leaky-bucket 200/s burst 399 nodelay")
ZIPF_KEYS, ZIPF = 40, "token-bucket 10/s burst 160"
SHARE = 10
PATIENCE_SECONDS = 90
HEADER, ADMISSION = struct.Struct("<4Q"), struct.Struct("<2q2i")


class Worker:
    """A process, and what it wrote down; it may be killed and begun again."""

    def __init__(self, url, path, seed):
        self.path = path
        self.process = subprocess.Popen([build.BUILD / "tests" / "slices_worker", url, path, str(seed), *HOT, "--",
                                         str(ZIPF_KEYS), ZIPF])

    def end(self, number):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def counts(self):
        """admissions, takes, local, degraded"""
        try:
            with open(self.path, "rb") as file:
                return HEADER.unpack(file.read(HEADER.size))
        except (OSError, struct.error):
            return 0, 0, 0, 0  # it has only begun

    def admissions(self):
        """(key, before, after, local) of each; none where it was killed before it had begun."""
        count = self.counts()[0]
        if count == 0:
            return
        with open(self.path, "rb") as file:
            file.seek(HEADER.size)
            for before, after, key, local in ADMISSION.iter_unpack(file.read(count * ADMISSION.size)):
                yield key, before, after, local


class Fleet:
    def __init__(self, server, folder, chance):
        self.server, self.folder, self.chance = server, pathlib.Path(folder), chance
        self.running, self.all = [], []

    def __enter__(self):
        for _ in range(PROCESSES):
            self.begin()
        return self

    def __exit__(self, *_):
        """Whatever happened, none of them is left."""
        for worker in self.all:
            if worker.process.poll() is None:
                worker.end(signal.SIGKILL)

    def begin(self):
        """Some ask the module, some use scripts."""
        number = len(self.all)
        engine = ("module", "lua")[number % 2]
        url = (f"redis://127.0.0.1:{self.server.port}/?slices={SHARE}%25&peers={PEERS}&slice-life=400ms&fail=closed"
               f"&deadline=100ms&engine={engine}")
        worker = Worker(url, self.folder / str(number), self.chance.randrange(1 << 30))
        self.running.append(worker)
        self.all.append(worker)

    def kill(self):
        worker = self.running.pop(self.chance.randrange(len(self.running)))
        worker.end(signal.SIGKILL)
        self.begin()

    def stop(self, seconds):
        worker = self.chance.choice(self.running)
        worker.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)  # longer than a life: that is what it is about
        worker.process.send_signal(signal.SIGCONT)

    def kill_redis(self):
        self.server.kill()
        self.server.start()

    def local(self):
        return sum(worker.counts()[2] for worker in self.all)

    def wait_for_local(self, more):
        """Until so many more decisions were local."""
        wanted, end = self.local() + more, time.monotonic() + PATIENCE_SECONDS
        while self.local() < wanted and time.monotonic() < end:
            time.sleep(0.02)
        return self.local() >= wanted

    def close(self):
        """All of them have begun, so that each knows what SIGTERM means: that others take does not say so."""
        for worker in self.running:
            checks.until("a process has begun", lambda worker=worker: worker.counts()[1] > 0)
        return [worker.end(signal.SIGTERM) for worker in self.running]

    def by_key(self):
        """The intervals of each key."""
        found = [array.array("q") for _ in range(len(HOT) + ZIPF_KEYS)]
        for worker in self.all:
            for key, before, after, _ in worker.admissions():
                found[key].extend((before, after))
        return [list(zip(values[::2], values[1::2])) for values in found]


def play(check, server, chance, troubles, losses=0):
    """troubles: how many processes are killed, how many stopped, how often Redis is killed."""
    kills, stops, restarts, long_stops = troubles
    with tempfile.TemporaryDirectory(prefix="weir-slices-") as folder, Fleet(server, folder, chance) as fleet:
        check(fleet.wait_for_local(2000), "slices are used")
        deck = [fleet.kill] * kills + [fleet.kill_redis] * restarts + \
            [lambda: fleet.stop(chance.uniform(0.5, 1.0))] * stops + [lambda: fleet.stop(11)] * long_stops
        chance.shuffle(deck)
        for trouble in deck:
            trouble()
            check(fleet.wait_for_local(500), "and still are")
        check.equal(fleet.close(), [0] * PROCESSES, "all end in good order")
        judge_all(check, fleet, losses)


def judge_all(check, fleet, losses):
    limits = [*HOT, *[ZIPF] * ZIPF_KEYS]
    admitted = 0
    for key, intervals in enumerate(fleet.by_key()):
        limit = judge.one(limits[key])
        size = limit.burst or limit.count
        more = losses * size + (size * SHARE // 100 if losses else 0)
        found = judge.misplaced(limit, intervals, more)
        check(not found, f"key {key}, {limits[key]}: {len(found)} of {len(intervals)} over, first {found[:1]}")
        admitted += len(intervals)
        if key == 0 and not losses:  # what the checker would say of more
            again = intervals + intervals[:: max(1, len(intervals) // (2 * size))]
            check(judge.misplaced(limit, again) or len(intervals) < size, "a burst too many would be found")
    counts = [worker.counts() for worker in fleet.all]
    print(f"{len(fleet.all)} processes, {sum(c[1] for c in counts)} takes, {admitted} admitted, "
          f"{sum(c[2] for c in counts)} without a call, {sum(c[3] for c in counts)} while Redis was away")


def main(arguments):
    seed = checks.seed()
    chance, check = random.Random(seed), checks.Checks()
    long = "--long" in arguments
    print(f"seed {seed}")
    with module_cases.server("--appendonly yes --appendfsync always") as server:
        play(check, server, chance, (100, 60, 30, 3) if long else (8, 4, 2, 0))
    with module_cases.server("") as server:
        losses = 3 if long else 1
        play(check, server, chance, (10 if long else 1, 0, losses, 0), losses)
    return check.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the tests of the redis:// store share: the driver at the end of a pipe, counting, waiting.

    driver = Driver(f"redis://127.0.0.1:{port}")
    driver.take("key", "fixed-window 3/h").allowed
"""
import collections
import os
import select
import subprocess
import time

from . import stalls
from .build import DRIVER


SLACK_US = int(os.environ.get("WEIR_SLACK_MS", "1500")) * 1000  # for threads in the way of each other; outages last longer
RECOVERY_SECONDS = 20.0  # ten times as long as it takes where the machine is our own
RECOVERY_STALLS = 5  # a recovery takes several steps, each of which may be held up
READY_SECONDS = 120
ANSWER_SECONDS = 60

OK, ESYSTEM, EFOREIGN, ENOLEASE, EUNSUPPORTED, ESHARED, ESLOTS, EUNREACHABLE = 0, -5, -7, -13, -15, -16, -17, -18

Decision = collections.namedtuple(
    "Decision", "code allowed limit remaining retry reset delay degraded charged lease binding us receipt local")
Slices = collections.namedtuple(
    "Slices", "on slot slices units slices_taken slices_returned slices_lost units_taken units_returned units_lost local denied "
    "central calls trouble")
Tally = collections.namedtuple("Tally", "calls allowed degraded errors worst_us code held_us")  # code: of the last error; held up: by the machine
machine = stalls.Stalls()  # watched while run() runs


class Driver:
    def __init__(self, url):
        # the thread sanitizer by itself forbids threads in children of threaded processes
        sanitizer = os.environ.get("TSAN_OPTIONS", "") + ":die_after_fork=0"
        self.process = subprocess.Popen([str(DRIVER), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=dict(os.environ, TSAN_OPTIONS=sanitizer))
        self.begun = self.reported = machine.mark()
        code, us, self.message = self.read()
        self.code, self.open_us = int(code), int(us)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends it; how long its end took, in seconds."""
        start = time.monotonic()
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(ANSWER_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return time.monotonic() - start

    def read(self):
        if not select.select([self.process.stdout], [], [], ANSWER_SECONDS)[0]:
            self.process.kill()
            raise RuntimeError("the driver hangs")
        return self.process.stdout.readline().decode().rstrip("\n").split("\t")

    def call(self, *words):
        self.process.stdin.write(("\t".join(map(str, words)) + "\n").encode())
        self.process.stdin.flush()
        return self.read()

    def decide(self, *words):
        fields = self.call(*words)
        return Decision(*map(int, fields[:12]), fields[12], int(fields[13]))

    def take(self, key, limit, cost=1):
        return self.decide("take", key, limit, cost)

    def peek(self, key, limit, cost=1):
        return self.decide("peek", key, limit, cost)

    def tally(self, *words):
        since = self.reported if words[0] == "report" else self.begun if words[0] == "stop" else machine.mark()
        counts = map(int, self.call(*words))
        held = machine.since_us(since)
        self.reported = machine.mark() if words[0] == "report" else self.reported
        return Tally(*counts, held)

    def slices(self):
        fields = self.call("slices")
        return Slices(*map(int, fields[:-1]), fields[-1])

    def code_of(self, *words):
        return int(self.call(*words)[0])

    def hammer(self, key, limit, threads=4, pause_us=500, keys=1):
        self.begun = self.reported = machine.mark()
        self.call("hammer", threads, pause_us, keys, key, limit)


FIRST_WAIT_US = 1000000  # so long opening waits for what a server says


def opened(url):
    """A Driver whose server had its say: where the machine held the two up for longer than opening waits, once more."""
    for _ in range(20):
        driver = Driver(url)
        if driver.code or driver.open_us < FIRST_WAIT_US:
            break
        driver.close()
    return driver


def recovered(ask, seconds=RECOVERY_SECONDS):
    """How long until ask() is true, in seconds; None: not in time, and what the machine adds to it."""
    start, mark = time.monotonic(), machine.mark()
    while not ask():
        took = time.monotonic() - start
        if took > seconds and took > seconds + RECOVERY_STALLS * machine.since(mark):
            return None
        time.sleep(0.01)
    return time.monotonic() - start


def calm(driver):
    """The tally of the first moment in which the server decided nearly everything. A busy machine may hold a server up for
    longer than three deadlines, again and again, so that the store has to come back to it once more."""
    end = time.monotonic() + READY_SECONDS
    driver.call("report")
    while True:
        time.sleep(0.3)
        after = driver.tally("report")
        if after.errors or after.degraded <= after.calls // 20 or time.monotonic() > end:
            return after

"""Rows asked in interleaved rounds, and what came of them.

A figure is the server's CPU time per request, read from its process's CPU clock right before and after; a ratio is
the median of the rounds' ratios. A row whose answers are not what it is about ends the run.
"""
import dataclasses
import json
import statistics
import subprocess
import sys

from . import quiet
from . import servers as the_servers

KEYS = 100_000
ALLOWED, DENIED, ANY = "allowed", "denied", ""


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    server: str
    proto: str
    words: tuple
    expect: str = ANY
    connections: int = 50
    pipeline: int = 1

    def key(self):
        return self.name, self.pipeline


class Loader:
    """Runs bench-load on the other core."""

    def __init__(self, program, servers):
        self.program, self.servers = program, servers

    def options(self, row):
        return ["--port", self.servers[row.server].port, "--proto", row.proto, "--connections", row.connections,
                "--pipeline", row.pipeline, "--keys", KEYS]

    def run(self, row, *more, and_then=None):
        """The parsed line of results; `more` are further options, `and_then` a second row with its options."""
        words = [*self.options(row), "--cpu-of", self.servers[row.server].pid, *more, "--", *row.words]
        if and_then:
            other, options = and_then
            words += ["--and", *self.options(other), *options, "--", *other.words]
        with quiet.Watch(self.servers[row.server].pid) as watch:
            done = subprocess.run(the_servers.pinned(the_servers.CLIENT_CORE, [self.program, *words]), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(f"{row.name}: the load failed: {done.stderr.strip()}")
        found = json.loads(done.stdout)
        found["others"] = watch.others
        check(row, found, done.stderr)
        if and_then:
            check(and_then[0], found["and"], done.stderr)
        return found

    def fill(self, row):
        """Every key of the row once, whatever is answered."""
        once = dataclasses.replace(row, expect=ANY, pipeline=16)
        self.run(once, "--requests", KEYS, "--order", "each")


def check(row, found, said):
    asked = found["requests"]
    if found["errors"] or (row.expect and found[row.expect] != asked):
        sys.exit(f"{row.name}: of {asked} requests {found['allowed']} were allowed, {found['denied']} denied, "
                 f"{found['errors']} failed\n{said.strip()}")


class Figures:
    """What rounds have shown, by a row's name and pipeline."""

    def __init__(self):
        self.cpu, self.rate, self.idle = {}, {}, {}
        self.others = []

    def add(self, row, found):
        self.cpu.setdefault(row.key(), []).append(found["server_cpu_us"] / found["requests"])
        self.rate.setdefault(row.key(), []).append(found["a_second"])
        self.idle.setdefault(row.key(), []).append(found["client_idle"])
        self.others.append(found["others"])

    def has(self, *keys):
        return all(key in self.cpu for key in keys)

    def cpu_us(self, key):
        return statistics.median(self.cpu[key])

    def a_second(self, key):
        return statistics.median(self.rate[key])

    def client_idle(self, key):
        return statistics.median(self.idle[key])

    def noisy(self):
        return sum(share > quiet.NOISY for share in self.others)

    def ratio(self, key, base):
        """How many times the base's CPU time: the median of the rounds' ratios."""
        return statistics.median(a / b for a, b in zip(self.cpu[key], self.cpu[base]))


def measure(loader, rows, rounds, seconds):
    figures = Figures()
    for row in rows:
        if any("#" in word for word in row.words):
            loader.fill(row)
    for number in range(rounds):
        for place, row in enumerate(rows):
            progress(f"round {number + 1} of {rounds}, row {place + 1} of {len(rows)}")
            figures.add(row, loader.run(row, "--seconds", seconds, "--warmup", seconds / 10))
    progress("")
    return figures


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:60}\r", end="", file=sys.stderr, flush=True)

#!/usr/bin/env python3
"""weir_limit and weir_conn beside nginx's own limit_req and limit_conn (make bench-nginx).

    bench/nginx.py [SECTION…] [--rounds N] [--seconds S] [--only WORD] [--functions] [--build DIR]

Sections: one (all requests have one key, all pass), many (100,000 random keys, all pass), denied (both, none passes) and
memory, all four unless some are named; instructions, if named (needs valgrind), alone or with those it is to be for.
One nginx with one worker on one core, wrk on the other; rows in rounds, each round in a random order of its own. A
figure is the worker's CPU time per request: its CPU clock and its own count of requests, before and after. Differences are
those of one round, their medians with 95 % intervals (by order: no assumption of how they are spread). What weir loses is
printed as well; nothing here fails on a time, but a row that is answered otherwise than it says ends the run. README.md
says more.
"""
import argparse
import math
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True
import nginx_instructions  # noqa: E402
import nginx_memory  # noqa: E402
import nginx_rows  # noqa: E402
from server import quiet  # noqa: E402
from server.measure import progress  # noqa: E402
from server.servers import CLIENT_CORE, pinned  # noqa: E402

TIMED, DEFAULT = ["one", "many", "denied"], ["one", "many", "denied", "memory"]
SECTIONS = [*DEFAULT, "instructions"]
CONNECTIONS = 50
DENIED_FOR = 60  # seconds for which a request is held against a key by limit_req at 1r/m; a bit more in truth


# ---- asking ----

class Bench:
    def __init__(self, nginx, rows, given):
        self.nginx, self.rows, self.given = nginx, rows, given
        self.worker = nginx.workers()[0]
        self.client = nginx.client()
        self.cpu_ns = {row: [] for row in rows}
        self.busy, self.others = [], []
        self.denied_until = {row: 0.0 for row in rows}

    def prepare(self, row):
        """The row's keys are all known, and those that limit_req is to deny it will deny for the next while."""
        now = time.monotonic()
        if not row.lasting:
            nginx_rows.fill(self.nginx, row, row.keys)
        while row.lasting and self.denied_until[row] < now + DENIED_FOR / 2 + self.given.seconds:
            nginx_rows.fill(self.nginx, row, row.keys)
            self.denied_until[row] = max(self.denied_until[row], now) + DENIED_FOR

    def served(self):
        """Requests the worker has begun, once nobody but this client is connected."""
        end = time.monotonic() + 10
        while True:
            words = self.client.get("/status").text.split()
            if words[2] == "1":
                return int(words[9])
            if time.monotonic() > end:
                sys.exit("connections remain open")

    def load(self, row):
        address = f"http://127.0.0.1:{self.nginx.port_of(row.port_name)}/?k=@"
        longest = math.ceil(self.given.seconds) + 5
        command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{longest}s", "-s", ROOT / "bench/nginx_keys.lua", address, "--",
                   len(row.keys), random.randrange(1 << 30)]
        with subprocess.Popen(pinned(CLIENT_CORE, command), text=True, stdout=subprocess.PIPE) as wrk:
            time.sleep(self.given.seconds)
            wrk.send_signal(signal.SIGINT)  # wrk itself counts in whole seconds
            said = wrk.communicate()[0]
        check(row, said)

    def measure(self, row):
        before, cpu, began = self.served(), quiet.cpu_seconds(self.worker), time.monotonic()
        with quiet.Watch(self.worker) as watch:
            self.load(row)
        wall = time.monotonic() - began
        served = self.served() - before - 1
        cpu = quiet.cpu_seconds(self.worker) - cpu
        self.cpu_ns[row].append(cpu * 1e9 / served)
        self.busy.append(cpu / wall)
        self.others.append(watch.others)

    def run(self):
        for row in self.rows:
            progress(f"filling {row.title}")
            self.prepare(row)
        order = list(self.rows)
        for number in range(self.given.rounds):
            random.shuffle(order)
            for place, row in enumerate(order):
                progress(f"round {number + 1} of {self.given.rounds}, row {place + 1} of {len(order)}")
                if row.lasting:
                    self.prepare(row)
                self.measure(row)
        progress("")


def check(row, said):
    words = next((line.split() for line in said.splitlines() if line.startswith("answered")), None)
    if not words:
        sys.exit(f"{row.title}: wrk failed: {said}")
    answered, denied, failed = map(int, words[1:])
    if failed or answered == 0 or denied != (answered if row.denied else 0):
        sys.exit(f"{row.title}: of {answered} requests {denied} were denied, {failed} failed")


# ---- showing ----

def interval(values):
    """About where 95 of 100 medians are: two order statistics that n coin tosses would leave so rarely. With fewer
    than six values nothing is that sure, and it is all of them."""
    values, n = sorted(values), len(values)
    low, tail = 0, 0.5 ** n
    while tail + math.comb(n, low + 1) * 0.5 ** n <= 0.025:
        low += 1
        tail += math.comb(n, low) * 0.5 ** n
    return values[low], values[n - 1 - low]


def spread(values):
    low, high = interval(values)
    return f"{statistics.median(values):+6.0f} [{low:+5.0f} … {high:+5.0f}]"


def minus(values, others):
    return [a - b for a, b in zip(values, others)]


def verdict(ours, theirs):
    """Of two rows over the same base: whether their intervals have anything in common."""
    (low, high), (their_low, their_high) = interval(ours), interval(theirs)
    return "cheaper" if high < their_low else "DEARER" if low > their_high else "overlap"


def show_group(rows, cpu_ns):
    base = cpu_ns[rows[0]]
    named = {row.name: cpu_ns[row] for row in rows}
    what = f"{len(rows[0].keys):,} random keys" if rows[0].many else "one key"
    print(f"\n{what}, all {'denied' if rows[0].denied else 'allowed'}\n"
          f"  {'':32} {'µs':>6}  {'ns over ' + rows[0].name:^24}  {'ns over nginx’s own':^24} {'x own':>6}  intervals")
    for row in rows:
        ours = cpu_ns[row]
        line = f"  {row.name:32} {statistics.median(ours) / 1000:6.2f}"
        if row is not rows[0]:
            line += f"  {spread(minus(ours, base)):24}"
        if row.against in named:
            theirs = named[row.against]
            ratio = statistics.median(a / b for a, b in zip(ours, theirs))
            line += f"  {spread(minus(ours, theirs)):24} {ratio:6.3f}  {verdict(minus(ours, base), minus(theirs, base))}"
        print(line)


def show(bench, given):
    version = subprocess.run(["nginx", "-v"], text=True, stderr=subprocess.PIPE, check=True).stderr.split("/")[1].split()[0]
    print(f"nginx {version}, one worker, {os.cpu_count()} cores, wrk with {CONNECTIONS} connections, {given.rounds} "
          f"interleaved rounds of {given.seconds:g} s, medians [95 %]\nthe worker's CPU time per request; it was busy "
          f"{statistics.median(bench.busy):.0%} of the time")
    for group in dict.fromkeys(row.group for row in bench.rows):
        show_group([row for row in bench.rows if row.group == group], bench.cpu_ns)
    noisy = sum(share > quiet.NOISY for share in bench.others)
    if noisy:
        print(f"\nin {noisy} of {len(bench.others)} measurements others had more than {quiet.NOISY:.0%} of a core")


# ---- the run ----

def arguments():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("sections", metavar="SECTION", nargs="*", help=", ".join(SECTIONS) + "; the first four by default")
    options.add_argument("--rounds", type=int, default=18)
    options.add_argument("--seconds", type=float, default=0.5, help="of each measurement")
    options.add_argument("--only", metavar="WORD", help="rows with it in their name, and nginx's own")
    options.add_argument("--functions", action="store_true", help="instructions: those of each function")
    options.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    given = options.parse_args()
    for name in given.sections:
        if name not in SECTIONS:
            options.error(f"no section {name}; there are {', '.join(SECTIONS)}")
    given.sections = given.sections or DEFAULT
    given.build = given.build.resolve()
    needed = ["nginx", "wrk", *(["valgrind"] if "instructions" in given.sections else [])]
    missing = [name for name in needed if not shutil.which(name)]
    if missing:
        sys.exit(f"{' and '.join(missing)} must be installed")
    if not (given.build / "ngx_http_weir_module.so").exists():
        sys.exit(f"{given.build}/ngx_http_weir_module.so is missing: run make")
    return given


def main():
    given, began = arguments(), time.monotonic()
    counted = "instructions" in given.sections
    asked = [name for name in given.sections if name in TIMED] or (TIMED if counted else [])
    rows = [row for row in nginx_rows.all_rows() if row.section in asked and
            (not given.only or not row.against or given.only in row.name)]
    if counted:
        nginx_instructions.show(given.build, rows, given.functions)
    elif rows:
        with nginx_rows.start_rows(given.build, rows) as nginx:
            bench = Bench(nginx, rows, given)
            bench.run()
            show(bench, given)
    if "memory" in given.sections:
        nginx_memory.show(given.build)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

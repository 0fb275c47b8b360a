#!/usr/bin/env python3
"""`weir replay --store redis://…`: the same decisions, line for line, as on a private zone; no server, no answer."""
import random
import subprocess
import sys
import tempfile

from lib import checks, ports, redis_server
from lib.build import REDIS_MODULE, WEIR

LOAD = f"--loadmodule {REDIS_MODULE}"
SERVERS = {"scripts": "", "module": f"{LOAD} test-clock", "module without test-clock": LOAD}
LIMITS = ("sliding-window 40/m precision 1s, token-bucket 10/s burst 30", "warmup 5/s over 3s", "concurrent 5 lease 10s")
LINES = 3000


def trace(path):
    rng = random.Random(9)
    now = 1_700_000_000_000_000
    with open(path, "w", encoding="ascii") as out:
        for _ in range(LINES):
            now += rng.randrange(30000)
            out.write(f"{now // 10**6}.{now % 10**6:06d},u{rng.randrange(9)},{rng.choice((1, 1, 2, 3))}\n")


def replay(limits, path, *options):
    done = subprocess.run([WEIR, "replay", limits, path, "--decisions", *options], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stdout, done.stderr


def main():
    tally = checks.Checks()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace.csv"
        trace(path)
        expected = {limits: replay(limits, path)[1] for limits in LIMITS}
        for name, options in SERVERS.items():
            with redis_server.Server(options) as server:
                for limits in LIMITS:
                    got = replay(limits, path, "--store", f"redis://127.0.0.1:{server.port}?deadline=30s")
                    tally(got[0] == 0 and got[1] == expected[limits], f"{name}: {limits}: {got[0]} {got[2]}")
        tally(all(text.count("\n") == LINES + 1 for text in expected.values()), "every line is decided")
        gone = replay(LIMITS[0], path, "--store", f"redis://127.0.0.1:{ports.take()}")
        tally(gone[0] == 3 and "reached" in gone[2], f"without a server: {gone[0]} {gone[2]}")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""How fast `weir replay` reads a log under four limits, beside mawk that prints its first column.

    bench/replay.py [MEGABYTES]

The log is made in a temporary folder (bench/make_log.py), so it needs that much room there. The two take turns on the same file, and
the best of three rounds counts.
"""
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WEIR = HERE.parent / "build" / "weir"
ROUNDS = 3
LIMITS = ["bucket=token-bucket 10/m burst 20", "window=sliding-window 60/m precision 1s", "hour=fixed-window 1000/h", "leaky=leaky-bucket 1/s burst 5"]


def seconds(words):
    """(by the clock, of the processor): on a busy machine only the second says much."""
    before, worked = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - before, after.ru_utime + after.ru_stime - worked.ru_utime - worked.ru_stime


def main():
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as folder:
        log = pathlib.Path(folder) / "access.log"
        with open(log, "wb") as out:
            subprocess.run([sys.executable, HERE / "make_log.py", str(megabytes * 1000000)], stdout=out, check=True)
        ours = [str(WEIR), "replay", "--json", *(word for limit in LIMITS for word in ("--limit", limit)), str(log)]
        theirs = ["mawk", "{print $1}", str(log)]
        times = [(seconds(theirs), seconds(ours)) for _ in range(ROUNDS)]
        (mawk, mawk_work), (weir, weir_work) = (map(min, zip(*column)) for column in zip(*times))
    print(f"replay of {megabytes} MB, combined, four limits: {weir:.2f} s, {megabytes / weir:.0f} MB/s")
    print(f"mawk '{{print $1}}' on the same file:            {mawk:.2f} s, {megabytes / mawk:.0f} MB/s; weir is {mawk / weir:.2f} as fast")
    print(f"processor time: {weir_work:.2f} s in two threads, mawk {mawk_work:.2f} s in one")


main()

#!/usr/bin/env python3
"""How far calls of the redis:// store overrun their deadline when the server stops answering (make bench-redis).

    bench/redis_deadline.py

Threads take from a real server; it is stopped (SIGSTOP) for a while, then goes on. Printed: the longest call,
the calls that the local fallback decided, and how soon the server decided again. Nothing here fails on a time.
"""
import pathlib
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from lib import redis_server
from lib.store_client import Driver, recovered

DEADLINE_MS = 50
AIM_MS = 5


def stopped(threads):
    """(calls, degraded, longest call in µs, seconds to recover)"""
    with redis_server.Server() as server, Driver(f"redis://127.0.0.1:{server.port}") as driver:
        driver.hammer("load", "token-bucket 1m/s", threads=threads, pause_us=200, keys=1000)
        time.sleep(0.5)
        server.signal(signal.SIGSTOP)
        time.sleep(1.0)
        server.signal(signal.SIGCONT)
        seconds = recovered(lambda: not driver.take("asked", "token-bucket 1m/s").degraded)
        total = driver.tally("stop")
        return total.calls, total.degraded, total.worst_us, seconds


def main():
    print(f"\nthe redis:// store with a server stopped for a second, deadline {DEADLINE_MS} ms")
    for threads in (1, 16):
        calls, degraded, worst_us, seconds = stopped(threads)
        over = worst_us / 1000 - DEADLINE_MS
        back = f"{seconds * 1000:.0f} ms" if seconds is not None else "not in time"
        print(f"  {threads:2} threads: longest call {worst_us / 1000:.1f} ms, over by {max(over, 0):.1f} ms "
              f"(aim <= {AIM_MS}: {'met' if over <= AIM_MS else 'MISSED'}); {degraded} of {calls} calls decided "
              f"by the local fallback; the server decided again after {back}")


if __name__ == "__main__":
    main()

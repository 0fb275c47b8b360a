#!/usr/bin/env python3
"""Waiting on a redis:// store: for slots within a process and between processes, how often the server is asked, what a
cancelled wait gives back. With the module and with scripts.

    store_waits.py [WORD …]    only the tests with such a word in their name
"""
import re
import sys

from lib import checks, redis_server
from lib.build import REDIS_MODULE
from lib.store_client import Driver

ENGINES = {"module": f"--loadmodule {REDIS_MODULE}", "scripts": ""}
ANY, NEVER = 366 * 86_400_000_000, -1
HOUR = 3_600_000_000
ECANCELED = -20
PER_SECOND = 8  # how often a process asks for a slot, at most
AT_FIRST = 8    # while it asks more often


def address(server):
    return f"redis://127.0.0.1:{server.port}?deadline=30s&fail=closed"


def asked(client):
    """How many commands of ours the server has run."""
    stats = client.call("INFO", "commandstats")
    stats = stats.decode() if isinstance(stats, bytes) else stats
    return sum(int(calls) for calls in re.findall(r"^cmdstat_(?:weir\.acquire|evalsha|eval|fcall):calls=(\d+)", stats, re.M | re.I))


def send(driver, *words):
    driver.process.stdin.write(("\t".join(map(str, words)) + "\n").encode())
    driver.process.stdin.flush()


def each_engine(check, test):
    for name, options in ENGINES.items():
        with redis_server.Server(options) as server, server.client() as client, Driver(address(server)) as one, \
                Driver(address(server)) as other:
            test(check, name, client, one, other)


def test_turns(check):
    """Eight threads and two processes: everybody gets its turns, and no lease expires meanwhile."""
    def run(check, name, _client, one, other):
        for limit, most in (("concurrent 1 lease 1h", 1), ("concurrent 3 lease 1h", 3)):
            got = list(map(int, one.call("slots", 8, 10, limit, limit)))
            check(got[:2] == [80, 0] and 1 <= got[2] <= most, f"{name}: {limit} in one process: {got}")
            send(one, "slots", 4, 5, "both", limit)
            send(other, "slots", 4, 5, "both", limit)
            for got in (one.read(), other.read()):
                check(got[:2] == ["20", "0"] and int(got[2]) <= most, f"{name}: {limit} in two processes: {got}")
            check.equal(one.peek("both", limit).remaining, most, f"{name}: {limit}: all are given back")
    each_engine(check, run)


def test_pace(check):
    """Nobody says that another process has released: it is found by asking, and the asking is bounded."""
    def run(check, name, client, one, other):
        limit = "concurrent 1 lease 1h"
        held = one.decide("acquire", "k", limit, 1)
        before = asked(client)
        late = other.decide("hold", "k", limit, 1, 2_000_000, NEVER)
        calls, seconds = asked(client) - before, late.us / 1e6
        check.equal((late.code, late.allowed), (0, 0), f"{name}: a slot that nobody releases")
        check(late.us >= 2_000_000, f"{name}: it is waited for until the deadline: {late.us} us")
        check.at_most(calls, AT_FIRST + PER_SECOND * seconds, f"{name}: questions in {seconds:.1f} s")
        send(other, "hold", "k", limit, 1, ANY, NEVER)
        while asked(client) < before + calls + 3:  # it waits
            pass
        check.equal(one.code_of("release", "k", limit, held.lease), 0, f"{name}: released")
        fields = other.read()
        check.equal(fields[:2], ["0", "1"], f"{name}: found")
    each_engine(check, run)


def test_expiry(check):
    """A holder that never comes back: its lease ends, and somebody else gets the slot."""
    def run(check, name, _client, one, other):
        limit = "concurrent 1 lease 400ms"
        check.equal(one.decide("acquire", "k", limit, 1).allowed, 1, f"{name}: acquired")
        one.process.kill()
        late = other.decide("hold", "k", limit, 1, ANY, NEVER)
        check.equal((late.code, late.allowed), (0, 1), f"{name}: after its lease")
    each_engine(check, run)


def test_cancel(check):
    """A turn that was booked and a slot that was waited for."""
    def run(check, name, _client, one, _other):
        bucket, slots = "token-bucket 1/h", "concurrent 1 lease 1h"
        one.take("b", bucket)
        gone = one.decide("wait", "b", bucket, 1, ANY, 100_000)
        check.equal(gone.code, ECANCELED, f"{name}: a bucket")
        check.at_most(one.peek("b", bucket).reset, HOUR, f"{name}: the turn is given back")
        one.decide("acquire", "s", slots, 1)
        check.equal(one.decide("hold", "s", slots, 1, ANY, 100_000).code, ECANCELED, f"{name}: a slot")
        both = f"{slots}, {bucket}"
        one.take("c", bucket)
        check.equal(one.decide("hold", "c", both, 1, ANY, 100_000).code, ECANCELED, f"{name}: both")
        check.at_most(one.peek("c", bucket).reset, HOUR, f"{name}: both: the turn is given back")
        check.equal(one.peek("c", slots).remaining, 1, f"{name}: both: the slot is given back")
    each_engine(check, run)


TESTS = [test_turns, test_pace, test_expiry, test_cancel]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

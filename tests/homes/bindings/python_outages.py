#!/usr/bin/env python3
"""The Python package while Redis is away, and when it is back: what the log says, check(), settled charges, and what a denied
client is told."""
import contextlib
import json
import logging
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from lib import bindings, checks, redis_server  # noqa: E402

bindings.in_python(__file__)
import weir  # noqa: E402
from lib.python_clients import both  # noqa: E402

LOG, WINDOW = "sliding-log 10/h", "fixed-window 10/366d from-first"


class Lines(logging.Handler):
    """What the logger `weir` was told."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@contextlib.contextmanager
def away(options=""):
    """The address of a Redis that is not there yet, the server, and the log."""
    lines = Lines()
    log = logging.getLogger("weir")
    log.addHandler(lines)
    server = redis_server.Server()
    try:
        yield f"redis://127.0.0.1:{server.port}?deadline=1m{options}", server, lines.texts
    finally:
        log.removeHandler(lines)
        server.__exit__()


def until(condition):
    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_log(check):
    """One line when it is away, at the opening already, and one when it is back."""
    with away() as (address, server, lines), weir.Store(address) as store:
        check(len(lines) == 1 and f"127.0.0.1:{server.port}" in lines[0] and "cannot be reached" in lines[0]
              and lines[0].endswith(f"; meanwhile this process decides alone ({address})"), f"at the opening: {lines}")
        check.equal([store.take("k", WINDOW).degraded for _ in range(3)], [True] * 3, "decided here")
        check.equal(len(lines), 1, "told once")
        try:
            store.check()
            check(False, "check() of a store that is away")
        except weir.EUNREACHABLE as error:
            check.contains(str(error), str(server.port), "check() says which server")
        server.start()
        check(until(lambda: not store.take("other", WINDOW, 0).degraded and len(lines) > 1), "it decides")
        check(len(lines) == 2 and lines[1] == f"weir: the store is back: its servers decide again ({address})", f"told again: {lines}")
        store.check()
        server.kill()
        store._tell_at = 0.0  # two warnings are ten seconds apart
        check(until(lambda: store.take_all([("other", WINDOW, 0)]).degraded and len(lines) == 3), f"lost: {lines}")
        try:
            store.info()
        except weir.EUNSUPPORTED as error:
            check.contains(str(error), "info() is for zones", "what else there is")
    with away("&fail=closed") as (address, _, lines), weir.Store(address):
        check("; meanwhile everything is denied (" in lines[0], f"what fail= says: {lines}")
    with away("&prefix=a:") as (address, _, lines), weir.Store(address.replace("//", "//ann:p@ss@")):
        check(lines[0].endswith(f" ({address})") and "p@ss" not in lines[0], f"which store, without its password: {lines}")
    with weir.Store("redis://:p@ss@127.0.0.1:1") as store:
        check.equal(repr(store), "<weir.Store 'redis://127.0.0.1:1'>", "what a program prints of a store")
    with away() as (_, _, lines), weir.Store("redis+unix://:s3cret@/no/where@home?db=1"):
        check(lines[0].endswith(" (redis+unix:///no/where@home?db=1)") and "s3cret" not in lines[0], f"a socket: {lines}")
    with away() as (_, _, lines), weir.Store("memory:1m") as store:
        check(store.check() is None and store.take("k", WINDOW) and not lines, "a zone")


def test_settle(check):
    """What the local fallback was charged is given back there, once; Redis gives nothing back that it was not charged."""
    with away("&peers=8") as (address, server, _), weir.Store(address) as store:
        limits = [("address:192.0.2.7", LOG), ("account:ann", LOG)]  # a share of 1 each
        for i in range(3):
            d = store.take_all(limits)
            check(d and d.degraded, f"right password number {i}")
            check.equal([store.settle(key, limit, row.receipt, 0) for (key, limit), row in zip(limits, d.rows)], [True, True], "given back")
            check.equal([store.settle(key, limit, row.receipt, 0) for (key, limit), row in zip(limits, d.rows)], [False, False], "once")
        check(store.take_all(limits) and not store.take_all(limits), "wrong ones count")

        kept, surcharged, other = (store.take(key, WINDOW) for key in ("kept", "surcharged", "other"))
        try:
            store.settle("surcharged", WINDOW, surcharged.receipt, 4)
            check(False, "a charge that Redis is to get")
        except weir.EUNREACHABLE:
            check(True, "which it cannot get now")
        server.start()
        check(until(lambda: not store.take("there", WINDOW, 0).degraded), "it is back")
        check.equal(store.take("kept", WINDOW).remaining, 9, "Redis was charged once")
        check.equal((store.settle("kept", WINDOW, kept.receipt, 0), store.peek("kept", WINDOW).remaining), (True, 9), "nothing is given back there")
        check.equal((store.settle("surcharged", WINDOW, surcharged.receipt, 4), store.peek("surcharged", WINDOW).remaining), (True, 6), "its real cost")
        with weir.Store(address) as another:
            check.equal((another.take("other", WINDOW).remaining, another.settle("other", WINDOW, other.receipt, 0),
                         another.peek("other", WINDOW).remaining), (9, True, 9), "by another process")
        there = store.take("there", WINDOW)
        server.kill()
        check(until(lambda: store.take("there", WINDOW, 0).degraded), "it is away")
        try:
            store.settle("there", WINDOW, there.receipt, 0)
            check(False, "a charge of Redis")
        except weir.EUNREACHABLE:
            check(True, "stays, since Redis is away")
    with away("&fail=open") as (address, server, _), weir.Store(address) as store:
        check.equal(store.settle("k", LOG, store.take("k", LOG).receipt, 0), True, "fail=open: nobody was charged")


@both
def test_closed(check, client):
    """fail=closed is not the client's fault: the reason says so, and the body has what weir serve says."""
    with away("&fail=closed") as (address, _, _), weir.Store(address) as store:
        seen = []
        web = client(store, "fixed-window 5/h", on_denied=lambda request, decision: seen.append(decision.closed))
        status, fields, body = web.ask()
        told = json.loads(body)
        check.equal((status, fields["weir-reason"], fields["retry-after"], seen), (429, "closed", "1", [True]), f"{web.kind}: fields")
        check.equal(told, {"title": "Too Many Requests", "status": 429, "reason": "closed", "violated-policies": [], "allowed": False, "limit": 5, "remaining": 0,
                           "retry_after": 1.0, "reset_after": 0.0, "delay": 0.0, "granted": 0, "binding": 0, "receipt": None, "degraded": True,
                           "local": False}, f"{web.kind}: body")


TESTS = [test_log, test_settle, test_closed]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

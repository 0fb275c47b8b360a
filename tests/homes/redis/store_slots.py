#!/usr/bin/env python3
"""Slots that a server grants, but whose answer comes too late or never, and slots that are released during an outage: nobody uses them, so the
store gives them back as soon as it can.

    store_slots.py [WORD …]    only the tests with such a word in their name
"""
import sys

from lib import checks, redis_server
from lib.build import REDIS_MODULE
from lib.store_client import ENOLEASE, EUNREACHABLE, Driver, machine, recovered
from lib.store_proxy import Proxy

WITH_MODULE = f"--loadmodule {REDIS_MODULE}"
ENGINES = (("module", WITH_MODULE), ("lua", ""))
LIMIT = "concurrent 4 lease 1h"
ONE = ("a", LIMIT, 1)
TWO = ("{a}1", LIMIT, 1, "{a}2", LIMIT, 1)


def address(port, deadline="30s"):
    return f"redis://127.0.0.1:{port}?deadline={deadline}"


def settle_in(driver, check, name, asks):
    """The server decides, has the script, and knows what it is asked."""
    check(recovered(lambda: not acquired(driver, asks).degraded) is not None, f"{name}: the server decides")


def acquired(driver, asks):
    """An acquire; what it got is given back."""
    d = driver.decide("acquire", *asks)
    for key, limit in zip(asks[::3], asks[1::3]):
        if d.lease:
            driver.code_of("release", key, limit, d.lease)
    return d


def all_free(direct, asks):
    """Whether all four slots can be had."""
    return acquired(direct, [4 if i % 3 == 2 else word for i, word in enumerate(asks)]).allowed


def each(check, run):
    for name, options in ENGINES:
        for asks in (ONE, TWO):
            with redis_server.Server(options) as redis, Proxy(redis.port) as proxy, Driver(address(redis.port)) as direct, \
                    Driver(address(proxy.port, "250ms")) as driver:
                title = f"{name}, {len(asks) // 3} keys"
                settle_in(driver, check, title, asks)
                run(title, asks, proxy, direct, driver)
                check(recovered(lambda: all_free(direct, asks)) is not None, f"{title}: all slots are free again")


def test_late(check):
    """The answer is late: the release follows its acquire on the same connection."""
    def run(title, asks, proxy, direct, driver):
        before = proxy.connections
        proxy.mode, proxy.delay = "slow", 0.4
        check.equal(driver.decide("acquire", *asks).degraded, 1, f"{title}: late")
        check(recovered(lambda: all_free(direct, asks)) is not None, f"{title}: free while the answer is on its way")
        proxy.mode = "pass"
        check(recovered(lambda: not driver.take("k", "fixed-window 1g/h").degraded) is not None, f"{title}: it goes on")
        check.equal(proxy.connections, before, f"{title}: on the same connection")
    each(check, run)


def test_lost(check):
    """The connection is lost within the answer: the release is the first that the next one carries."""
    def run(title, asks, proxy, direct, driver):
        proxy.mode = "cut"
        check.equal(driver.decide("acquire", *asks).degraded, 1, f"{title}: lost")
    each(check, run)


def test_given_up(check):
    """So many are late that the store gives the connection up."""
    def run(title, asks, proxy, direct, driver):
        before = proxy.connections
        proxy.mode = "hold"
        check.equal([driver.decide("acquire", *asks).degraded for _ in range(4)], [1] * 4, f"{title}: held back")
        proxy.mode = "pass"
        check(recovered(lambda: proxy.connections > before) is not None, f"{title}: given up")
    each(check, run)


def test_released_meanwhile(check):
    """Releases while no server answers fail, and are sent with the next connection, however often somebody tries."""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, Proxy(redis.port) as proxy, Driver(address(redis.port)) as direct, \
                Driver(address(proxy.port, "250ms")) as driver:
            settle_in(driver, check, name, ONE)
            leases = [driver.decide("acquire", *ONE).lease for _ in range(4)]
            proxy.mode = "hold"
            check(recovered(lambda: driver.code_of("check") == EUNREACHABLE or not driver.take("k", "fixed-window 1g/h").degraded), f"{name}: away")
            codes = {driver.code_of("release", "a", LIMIT, lease) for lease in leases[:1] * 1000 + leases}
            check.equal(codes, {EUNREACHABLE}, f"{name}: releases say that they may be lost")
            check(not direct.decide("acquire", *ONE).allowed, f"{name}: all slots are taken")
            local = driver.decide("acquire", *ONE)
            check.equal((local.degraded, driver.code_of("release", "a", LIMIT, local.lease)), (1, 0), f"{name}: a local slot is released at once")
            proxy.mode = "pass"
            check(recovered(lambda: all_free(direct, ONE)) is not None, f"{name}: all slots are free again")
            check(recovered(lambda: not driver.take("k", "fixed-window 1g/h").degraded) is not None, f"{name}: the server decides")
            check.equal(driver.code_of("release", "a", LIMIT, leases[0]), ENOLEASE, f"{name}: and not held any more")


def test_released_anew(check):
    """The server that is back has no scripts, as after a restart, or as a replica that became the master."""
    with redis_server.Server() as redis, Proxy(redis.port) as proxy, Driver(address(redis.port)) as direct, \
            Driver(address(proxy.port, "250ms")) as driver:
        settle_in(driver, check, "anew", ONE)
        leases = [driver.decide("acquire", *ONE).lease for _ in range(4)]
        proxy.mode = "hold"
        check(recovered(lambda: driver.code_of("check") == EUNREACHABLE or not driver.take("k", "fixed-window 1g/h").degraded), "anew: away")
        check.equal({driver.code_of("release", "a", LIMIT, lease) for lease in leases}, {EUNREACHABLE}, "anew: releases may be lost")
        redis.client().call("SCRIPT", "FLUSH")
        proxy.mode = "pass"
        check(recovered(lambda: not driver.take("k", "fixed-window 1g/h").degraded) is not None, "anew: the server decides")
        check(recovered(lambda: all_free(direct, ONE)) is not None, "anew: all slots are free again")


class Older(Proxy):
    """Before a module that does not know LEASE: it hears another word, of the same length."""

    def change(self, data):
        return data.replace(b"\r\nLEASE\r\n", b"\r\nLEASH\r\n")


def test_older_module(check):
    """It draws the ids itself, as ever."""
    with redis_server.Server(WITH_MODULE) as redis, Older(redis.port) as older, Driver(address(older.port)) as driver:
        for asks in (ONE, TWO, ONE):
            d = acquired(driver, asks)
            check.equal((d.code, d.allowed, d.degraded, d.lease > 0), (0, 1, 0, True), "an older module: acquired")
            check(all_free(driver, asks), "an older module: released")


if __name__ == "__main__":
    with machine:
        sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))

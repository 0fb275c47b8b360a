#!/usr/bin/env python3
"""A redis:// store that slices: hot keys are decided in the process, and the limit holds, whatever happens.

    store_slices.py [WORD …]    only the tests with such a word in their name

Most limits here are frozen: they refill once a year. So what was admitted can be counted, and whatever order threads and
processes come in, the sum is what the limit admits. With the module and without it.
"""
import signal
import sys
import time

from lib import checks, redis_server, store_client
from lib.build import REDIS_MODULE
from lib.redis_cluster import Cluster
from lib.store_client import Driver, machine
from lib.store_proxy import Proxy

MODULE = f"--loadmodule {REDIS_MODULE} --enable-module-command yes"
ENGINES = (("module", MODULE), ("lua", ""))
PATIENT = "deadline=30s&fail=closed"
SLICED = f"{PATIENT}&slices=20%&peers=2&slice-life=5s"  # longer than a machine holds anybody up
FROZEN = "token-bucket 1/366d burst {}"
SLOT_KEY = b"weir:\0weir:slices"


def address(port, options=SLICED):
    return f"redis://127.0.0.1:{port}?{options}"


def warm(driver, key, limit):
    """Takes until the process has its slot and answers by itself; how many were allowed."""
    allowed, locally = 0, 0

    def is_local():
        nonlocal allowed, locally
        d = driver.take(key, limit)
        allowed += d.allowed
        locally += d.allowed and d.local
        return locally
    checks.until("a decision from a slice", is_local)
    return allowed


def balanced(counts):
    """Units are spent, held, given back or lost."""
    return counts.units_taken == counts.local + counts.units + counts.units_returned + counts.units_lost


def test_hot_key(check):
    """One process: answers are local, the limit is as written, and what is left comes back when the store closes."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port, PATIENT)) as plain:
            driver, limit = Driver(address(server.port)), FROZEN.format(10000)
            allowed = warm(driver, "hot", limit)
            d = driver.take("hot", limit)
            check.equal((d.code, d.allowed, d.limit, d.degraded, d.charged, d.local), (0, 1, 10000, 0, 1, 1), f"{engine}: local")
            allowed += 1 + driver.tally("exact", 2, 1000, "hot", limit).allowed
            counts = driver.slices()
            check((counts.on, counts.slot, balanced(counts)) == (1, 1, True), f"{engine}: {counts}")
            check.at_most(counts.central + counts.calls, 300, f"{engine}: calls for {allowed} decisions")
            check.equal(counts.trouble, "", f"{engine}: no trouble")
            check.at_most(driver.close(), store_client.ANSWER_SECONDS, f"{engine}: closes")
            check.equal(plain.peek("hot", limit).remaining, 10000 - allowed, f"{engine}: what was not spent came back")
            check.equal(driver.process.returncode, 0, f"{engine}: ended well")


def test_never_more(check):
    """Every kind, two processes of two threads, one of them killed: never more than the limit; withheld is withheld."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server:
            for limit, most in ((FROZEN.format(1000), 800), ("token-bucket 1/1h burst 1000 stepped", 801),
                                ("leaky-bucket 1/366d burst 999 nodelay", 800), ("sliding-log 1000/366d", 800),
                                ("sliding-window 1000/366d", 800), ("sliding-counter 1000/366d", 800),
                                ("fixed-window 1000/366d from-first", 1000)):
                key = limit.replace(" ", "-").replace("/", "-")
                url = address(server.port, f"{SLICED}&prefix={key}:")  # who is killed keeps its slot for a while
                with Driver(url) as one, Driver(url) as two:
                    allowed = warm(one, key, limit)
                    allowed += one.tally("exact", 2, 100, key, limit).allowed
                    allowed += warm(two, key, limit)
                    two.process.kill()
                    allowed += one.tally("exact", 2, 2000, key, limit).allowed
                    check.within(allowed, most // 2, most, f"{engine}, {limit}: allowed")
                    check(balanced(one.slices()), f"{engine}, {limit}: {one.slices()}")


def test_reduced(check):
    """Every request is reduced by what is withheld, also one that no pool serves; what does not fit is never."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port)) as driver, \
             Driver(address(server.port, PATIENT)) as plain:
            limit = FROZEN.format(100)
            check.equal(driver.peek("a", limit).remaining, 80, f"{engine}: a peek tells what a take gets")
            d = driver.take("a", limit, 81)
            check.equal((d.code, d.allowed, d.limit, d.retry), (0, 0, 100, -1), f"{engine}: above the rest of the size")
            d = driver.take("a", limit, 80)
            check.equal((d.code, d.allowed, d.limit, d.remaining, d.charged), (0, 1, 100, 0, 80), f"{engine}: all of the rest")
            d = driver.decide("part", "b", limit, 500, 10)
            check.equal((d.code, d.allowed, d.limit, d.charged), (0, 1, 100, 80), f"{engine}: with a least")
            two = f"{limit}, fixed-window 100/366d"
            d = driver.take("c", two, 81)
            check.equal((d.code, d.allowed, d.limit, d.retry, d.binding), (0, 0, 100, -1, 0), f"{engine}: of two limits one")
            d = driver.take("c", two, 80)
            check.equal((d.code, d.allowed, d.limit, d.remaining), (0, 1, 100, 0), f"{engine}: of two limits both")
            d = driver.decide("takeall", "{d}1", limit, 60, "{d}2", "concurrent 100 lease 1h", 100)
            check.equal((d.code, d.allowed, d.limit), (0, 1, 100), f"{engine}: several keys; concurrent is not reduced")
            d = driver.decide("takeall", "{d}1", limit, 21, "{d}2", FROZEN.format(9), 1)
            check.equal((d.code, d.allowed, d.limit, d.binding), (0, 0, 100, 0), f"{engine}: several keys, none is left")
            for text, cost, wanted in ((f"{limit} cost 80", 1, (0, 1, 100, 0)), (f"{limit} cost 81", 1, (0, 0, 100, -1)),
                                       (f"{limit} cost 81", 0, (0, 1, 100, 0)),
                                       (f"fixed-window 5/366d, {limit} cost 81", 1, (0, 0, 100, -1))):
                d = driver.take(f"own:{text}:{cost}", text, cost)
                check.equal((d.code, d.allowed, d.limit, d.retry), wanted, f"{engine}: {text}, cost {cost}")
            for small in ("token-bucket 1/366d burst 19", "smooth 1/s", "concurrent 5", "leaky-bucket 1/366d burst 100"):
                check.equal(driver.peek("small", small).remaining, plain.peek("small", small).remaining, f"{engine}: {small} is not sliced")


def test_other_sizes(check):
    """A request of another size on the same state gets its own size less what the largest one known here withholds."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port)) as driver:
            large, half, tiny = FROZEN.format(1000), FROZEN.format(500), FROZEN.format(150)
            warm(driver, "k", large)
            d = driver.take("k", half, 301)
            check.equal((d.code, d.allowed, d.limit, d.retry, d.local), (0, 0, 500, -1, 0), f"{engine}: half")
            d = driver.take("k", half)
            check.equal((d.code, d.allowed, d.limit, d.local), (0, 1, 500, 0), f"{engine}: half is never local")
            d = driver.take("k", tiny)
            check.equal((d.code, d.allowed, d.limit, d.retry, d.local), (0, 0, 150, -1, 0), f"{engine}: less than is withheld")
            check.equal(driver.take("k", large).local, 1, f"{engine}: the pool is as before")


def test_costs(check):
    """Which costs a pool serves: up to what one process may hold (here 100); nothing is charged for a cost of 0."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port)) as driver:
            limit = FROZEN.format(1000)
            check.equal((driver.take("z", limit, 0).local, driver.peek("z", limit).remaining), (0, 800), f"{engine}: cost 0")
            warm(driver, "k", limit)
            central = driver.slices().central
            check.equal(driver.take("k", limit, 101)[:2], (0, 1), f"{engine}: above what is held")
            check.equal(driver.slices().central, central + 1, f"{engine}: is asked")
            check.equal(driver.take("k", limit, 100)[:2], (0, 1), f"{engine}: all that is held")


def test_settle(check):
    """What was spent from a slice is settled like any charge."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port, PATIENT)) as plain:
            limit = FROZEN.format(1000)
            with Driver(address(server.port)) as driver:
                allowed = warm(driver, "k", limit)
                d = driver.take("k", limit, 5)
                check.equal((d.allowed, d.local), (1, 1), f"{engine}: local")
                check.equal(driver.code_of("settle", "k", limit, d.receipt, 2), 0, f"{engine}: settled")
            check.equal(plain.peek("k", limit).remaining, 1000 - allowed - 2, f"{engine}: charged in the end")


def test_reset(check):
    """A reset drops what is held: nothing of the old state is spent, and the key is as new."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port, PATIENT)) as plain:
            limit = FROZEN.format(1000)
            with Driver(address(server.port)) as driver:
                warm(driver, "k", limit)
                held = driver.slices().units
                check(held > 0, f"{engine}: holds some")
                check.equal(driver.code_of("reset", "k"), 0, f"{engine}: reset")
                check.equal((driver.slices().units, driver.slices().units_lost), (0, held), f"{engine}: dropped")
                allowed = driver.tally("exact", 1, 50, "k", limit).allowed
                check.equal(allowed, 50, f"{engine}: as new")
            check.within(plain.peek("k", limit).remaining, 1000 - 50 - 100, 950, f"{engine}: charged anew")


def test_peers(check):
    """`peers` is enforced: who has no slot asks. The slot is given back when the store closes."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, server.client() as client:
            url, limit = address(server.port, f"{PATIENT}&slices=20%&peers=1&slice-life=5s"), FROZEN.format(100000)
            with Driver(url) as two:
                with Driver(url) as one:
                    warm(one, "k", limit)
                    check.equal(client.call("EXISTS", SLOT_KEY), 1, f"{engine}: the key of the slots")
                    before = two.slices()
                    check.equal(two.tally("exact", 2, 100, "k", limit).allowed, 200, f"{engine}: decided")
                    after = two.slices()
                    check.equal((after.slot, after.local, after.central - before.central), (0, 0, 200), f"{engine}: no slot, no slice")
                warm(two, "k", limit)
            check.equal(client.call("EXISTS", SLOT_KEY), 0, f"{engine}: the last slot was given back")


def test_denied_here(check):
    """Over the limit the process denies by itself; what is given back is noticed at once. Leases are not remembered."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port)) as driver:
            limit = f"{FROZEN.format(10)}, fixed-window 100/366d"
            d = driver.take("m", limit, 8)
            check.equal((d.allowed, d.local), (1, 0), f"{engine}: used up")
            central = driver.slices().central
            first, again, more = driver.take("m", limit, 3), driver.take("m", limit, 3), driver.take("m", limit, 4)
            check.equal((first.allowed, again.allowed, more.allowed), (0, 0, 0), f"{engine}: denied")
            check.equal((first.local, again.local, more.local), (0, 1, 1), f"{engine}: the second by itself, and any higher cost")
            check.equal(driver.slices().central, central + 1, f"{engine}: one call")
            check(again.retry <= first.retry and again.limit == first.limit, f"{engine}: the same answer")
            check.equal((driver.take("m", limit, 1).allowed), 1, f"{engine}: a lower cost is asked")
            driver.take("m", limit, 3)
            check.equal(driver.code_of("settle", "m", limit, d.receipt, 0), 0, f"{engine}: settled")
            check.equal(driver.take("m", limit, 3)[:2], (0, 1), f"{engine}: forgotten by a settle")
            check.equal(driver.take("m", limit, 9).allowed, 0, f"{engine}: denied once more")
            driver.code_of("reset", "m")
            check.equal(driver.take("m", limit, 8)[:2], (0, 1), f"{engine}: forgotten by a reset")
            leases = "concurrent 1 lease 1h"
            held = driver.decide("acquire", "c", leases, 1)
            check.equal([driver.decide("acquire", "c", leases, 1).local for _ in range(2)], [0, 0], f"{engine}: leases are asked")
            check.equal(driver.code_of("release", "c", leases, held.lease), 0, f"{engine}: released")
            check.equal(driver.decide("acquire", "c", leases, 1).allowed, 1, f"{engine}: free again")


def test_many(check):
    """Many keys at once: those that are hot are local, memory is bounded, and every key is decided exactly."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port)) as driver:
            limit = FROZEN.format(1000)
            warm(driver, "hot", limit)
            code, allowed = 0, 0
            for i in range(12):
                fields = driver.call("many", 1000, f"cold:{i}", limit)
                code, allowed = code or int(fields[0]), allowed + int(fields[1])
            check.equal((code, allowed), (0, 12000), f"{engine}: 12,000 keys")
            check.equal(driver.take("hot", limit).code, 0, f"{engine}: and one that is hot")
            for size, local in ((1, True), (256, True), (257, False), (65000, False)):
                checks.until(f"{size} bytes", lambda: int(driver.call("odd", size, 20, limit)[1]) > 0) if local else None
                check.equal(int(driver.call("odd", size, 20, limit)[1]) > 0, local, f"{engine}: a key of {size} bytes")


def test_fork(check):
    """A child has no slices of its parent's, and gets its own."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port, f"{PATIENT}&slices=20%&peers=4&slice-life=5s")) as driver:
            limit = FROZEN.format(4000)
            allowed = warm(driver, "k", limit)
            tally = driver.tally("fork", 3, 2000, "k", limit)
            check.equal((tally.calls, tally.errors, tally.degraded), (6000, 0, 0), f"{engine}: children")
            allowed += tally.allowed + driver.tally("exact", 2, 500, "k", limit).allowed
            check.within(allowed, 2400, 3200, f"{engine}: allowed in all")
            check(balanced(driver.slices()), f"{engine}: the parent's are its own: {driver.slices()}")


def test_cancel(check):
    """Threads that are cancelled leave no lock behind."""
    with redis_server.Server(MODULE) as server, Driver(address(server.port)) as driver:
        limit = FROZEN.format(10000)
        warm(driver, "k", limit)
        tally = driver.tally("cancel", 20, 20, "k", limit)
        check.equal((tally.calls, tally.errors), (400, 0), "cancelled threads")
        check.equal(driver.take("k", limit).code, 0, "goes on")


def test_clock(check):
    """With a test clock everything is asked, and reduced."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port)) as driver:
            limit = FROZEN.format(100)
            check.equal(driver.code_of("time", 1700000000000000), 0, f"{engine}: a test clock")
            check.equal([driver.take("k", limit).local for _ in range(20)], [0] * 20, f"{engine}: nothing is local")
            d = driver.take("k", limit, 61)
            check.equal((d.allowed, d.limit, d.remaining), (0, 100, 60), f"{engine}: reduced")


def test_stopped_server(check):
    """A server that stands still: held units are spent until they end, then the local fallback has its say, nobody waits
    for longer than a deadline; and when it is back, so are the slices."""
    with redis_server.Server(MODULE) as server, Driver(address(server.port, "deadline=50ms&fail=closed&slices=20%&peers=1")) as driver:
        limit = FROZEN.format(100000)
        warm(driver, "k", limit)
        server.signal(signal.SIGSTOP)
        driver.hammer("k", limit, threads=3, pause_us=200)
        checks.until("degraded answers", lambda: driver.tally("report").degraded > 20)
        server.signal(signal.SIGCONT)
        before = driver.slices().local
        checks.until("local answers again", lambda: driver.slices().local > before + 50)
        tally = driver.tally("stop")
        check.equal(tally.errors, 0, "no errors")
        check.at_most(tally.worst_us, 50000 + store_client.SLACK_US + tally.held_us, "nobody waits for longer than a deadline")
        counts = driver.slices()
        check(balanced(counts), f"balanced: {counts}")


def test_restarted_server(check):
    """A server that forgets everything: the slot is taken again, and slices go on."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server.port, "deadline=2s&fail=closed&slices=20%&peers=1")) as driver:
            limit = FROZEN.format(100000)
            warm(driver, "k", limit)
            server.kill()
            server.start()
            taken = driver.slices().slices_taken
            driver.hammer("k", limit, threads=2, pause_us=100)
            with server.client() as client:
                checks.until("a slot of the new server", lambda: client.call("EXISTS", SLOT_KEY))
            checks.until("new slices", lambda: driver.slices().slices_taken > taken + 3 and driver.slices().slot)
            check.equal(driver.tally("stop").errors, 0, f"{engine}: no errors")


class Older(Proxy):
    """The module before LEAST: it does not know the word."""
    spoil = True

    def change(self, data):
        return data.replace(b"LEAST", b"LEAS_") if self.spoil else data


def test_older_module(check):
    """A server that does not know LEAST: everything is asked, and the log can say so."""
    with redis_server.Server(MODULE) as server, Older(server.port) as proxy, Driver(address(proxy.port)) as driver:
        limit = FROZEN.format(1000)
        allowed = 0

        def troubled():
            nonlocal allowed
            d = driver.take("k", limit)
            check((d.code, d.allowed, d.local) == (0, 1, 0), f"asked: {d}") if d.code or not d.allowed else None
            allowed += d.allowed
            return driver.slices().trouble
        checks.until("trouble", troubled)
        check.contains(driver.slices().trouble, "LEAST", "says what is wrong")
        d = driver.take("k", limit)
        check.equal((d.code, d.allowed, d.local, d.remaining), (0, 1, 0, 800 - allowed - 1), "decided by the server")
        calls = driver.slices().calls
        driver.tally("exact", 1, 50, "k", limit)
        check.at_most(driver.slices().calls, calls + 1, "and not asked for slices at every turn")


def test_lost_scripts(check):
    """NOSCRIPT in the middle of it is no failure."""
    with redis_server.Server("") as server, server.client() as client, Driver(address(server.port)) as driver:
        limit = FROZEN.format(100000)
        allowed = warm(driver, "k", limit)
        for _ in range(5):
            client.call("SCRIPT", "FLUSH")
            tally = driver.tally("exact", 2, 300, "k", limit)
            allowed += tally.allowed
            check.equal((tally.errors, tally.degraded, tally.allowed), (0, 0, 600), "flushed scripts")


def test_slow_server(check):
    """Answers that come late: joined calls are given up at their deadline, and the sum stays within the limit."""
    with redis_server.Server(MODULE) as server, Proxy(server.port) as proxy:
        with Driver(address(proxy.port, "deadline=100ms&fail=closed&slices=20%&peers=1")) as driver:
            limit = FROZEN.format(3000)
            allowed = warm(driver, "k", limit)
            proxy.mode, proxy.delay = "slow", 0.15
            driver.hammer("k", limit, threads=4, pause_us=100)
            checks.until("degraded answers", lambda: driver.slices().units_taken >= 1 and driver.tally("report").degraded > 5)
            proxy.mode = "pass"
            checks.until("all is spent", lambda: driver.slices().denied > 200)
            tally = driver.tally("stop")
            check.equal(tally.errors, 0, "no errors")
            check.at_most(allowed + tally.allowed, 2400, "allowed in all")


def test_retry_after(check):
    """What is left of a remembered retry_after is never early, and a cost above what slices leave is never allowed."""
    with redis_server.Server(MODULE) as server, Proxy(server.port) as proxy, Driver(address(proxy.port)) as driver:
        limit = FROZEN.format(100)
        check.equal(driver.take("k", limit, 80).allowed, 1, "used up")
        proxy.mode, proxy.delay = "slow", 0.5
        begun = time.monotonic()
        first, again = driver.take("k", limit, 50), driver.take("k", limit, 50)
        passed_us = int((time.monotonic() - begun - proxy.delay) * 1000000)
        proxy.mode = "pass"
        check.equal((first.local, again.local), (0, 1), "remembered")
        check(again.retry >= first.retry - passed_us, f"what is left of {first.retry} after {passed_us}: {again.retry}")
        check.equal((driver.take("k", limit, 81).retry, driver.take("other", limit, 81).retry), (-1, -1), "never")


class Listener(Proxy):
    """Counts takes of "joined" that are not calls for slices, while the server has been slow for less than a deadline."""
    own, slow_since = 0, 0

    def slow_down(self):
        self.mode, self.delay, self.slow_since = "slow", 2, time.monotonic()

    def ask(self, data):
        in_time = self.mode == "slow" and 0.25 < time.monotonic() - self.slow_since < 0.9
        self.own += in_time and data.count(b"weir:joined\r\n") > data.count(b"LEAST")


def test_joined_too_long(check):
    """Who waits for the slice of another asks by itself while there is time for it."""
    with redis_server.Server(MODULE) as server, Listener(server.port) as proxy:
        with Driver(address(proxy.port, "deadline=1s&fail=closed&slices=20%&peers=1")) as driver:
            limit = "token-bucket 100000/s burst 100"

            def asks_itself():
                proxy.mode = "pass"
                before = driver.tally("report").degraded
                checks.until("slices", lambda: driver.take("joined", limit).local)
                proxy.slow_down()
                checks.until("degraded answers", lambda: driver.tally("report").degraded > before + 3)
                return proxy.own
            driver.hammer("joined", limit, threads=4, pause_us=0)
            checks.until("a call of its own", asks_itself)
            proxy.mode = "pass"
            check.equal(driver.tally("stop").errors, 0, "no errors")


def test_cluster(check):
    """Slices of keys all over a cluster, and one slot for all."""
    with Cluster(MODULE) as cluster, Driver(cluster.url(SLICED)) as driver:
        limit = FROZEN.format(10000)
        for i in range(6):
            warm(driver, f"k{i}", limit)
        counts = driver.slices()
        check.equal((counts.slot, balanced(counts)), (1, True), f"balanced: {counts}")
        check.equal(driver.tally("exact", 2, 200, "k0", limit)[1:4], (400, 0, 0), "hot")


def troubled(driver, key, limit, word):
    """Takes until the store says that no slices are taken, and why; its text."""
    checks.until(f"trouble: {word}", lambda: driver.take(key, limit).code or word in driver.slices().trouble)
    counts = driver.slices()
    return counts.trouble if (counts.slot, counts.local, counts.units_taken) == (0, 0, 0) else counts


def test_slots_unreachable(check):
    """In a cluster the node of the slots is away: other keys are decided by their nodes, and the store says why it takes no slices."""
    with Cluster(f"{MODULE} --cluster-require-full-coverage no") as cluster:
        owner = cluster.owner(cluster.slot(SLOT_KEY))
        key = next(f"k{i}" for i in range(100) if cluster.owner(cluster.slot(f"weir:k{i}")) != owner)
        options = SLICED.replace("deadline=30s", "deadline=2s")
        with Driver(cluster.url(options, first=(owner + 1) % 3)) as driver:
            limit = FROZEN.format(100000)
            driver.take(key, limit)  # it knows the nodes
            for i in (owner, owner + 3):  # and its replica, so that nothing takes its place
                cluster.nodes[i].signal(signal.SIGSTOP)
            check.contains(troubled(driver, key, limit, "does not answer"), "weir:slices", "names the key")
            d = driver.take(key, limit)
            check.equal((d.code, d.allowed, d.degraded, d.local), (0, 1, 0, 0), "its own node decides")
            for i in (owner, owner + 3):
                cluster.nodes[i].signal(signal.SIGCONT)
            warm(driver, key, limit)
            check.equal(driver.slices().trouble, "", "it is over")


def test_slot_that_nobody_told(check):
    """A try for the slot whose answer does not come may have got it: the process gives it back, and is not in its own way.
    Scripts only: the module chooses leases by itself, and such a one lasts 10 s."""
    with redis_server.Server() as server, server.client() as client, Proxy(server.port) as proxy, \
            Driver(address(proxy.port, "deadline=1s&fail=closed&slices=20%&peers=1&slice-life=5s")) as driver:
        limit, said = FROZEN.format(100000), set()
        checks.until("Redis has the script", lambda: not driver.take("other", f"{limit}, fixed-window 9/366d").degraded)
        proxy.mode = "hold"
        driver.hammer("k", limit, threads=8, pause_us=1000)
        checks.until("a slot that nobody was told of", lambda: client.call("EXISTS", SLOT_KEY))
        checks.until("it is missed", lambda: "does not answer" in driver.slices().trouble)
        proxy.mode = "pass"
        checks.until("a slot", lambda: (said.add(driver.slices().trouble), driver.slices().slot)[1])
        driver.tally("stop")
        check(not any("peers=" in it for it in said), f"all slots were never taken: {said}")


def test_slots_refused(check):
    """A user who may not write the key of the slots: the store says so, in the server's words."""
    for engine, options in ENGINES:
        with redis_server.Server(options) as server, server.client() as client:
            client.call("ACL", "SETUSER", "narrow", "on", "nopass", "~weir:k*", "+@all")
            with Driver(address(server.port).replace("//", "//narrow:x@")) as driver:
                limit = FROZEN.format(100000)
                check.contains(troubled(driver, "k", limit, "NOPERM"), "weir:slices", f"{engine}: names the key")
                client.call("ACL", "SETUSER", "narrow", "allkeys")
                warm(driver, "k", limit)
                check.equal(driver.slices().trouble, "", f"{engine}: it is over")


TESTS = [value for name, value in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    with machine:
        sys.exit(checks.run(TESTS, sys.argv[1:]))

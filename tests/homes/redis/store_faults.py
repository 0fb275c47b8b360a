#!/usr/bin/env python3
"""The redis:// store against a single real server that is killed, stopped, restarted, demoted, filled up and
lied about.

    store_faults.py [WORD …]    only the tests with such a word in their name

Each holds the store to the same promises: no call outlives its deadline (and what the scheduler adds), none
fails, decisions made meanwhile are marked degraded, the servers decide again soon after their
return, and what was admitted stays within the documented bound.
"""
import json
import pathlib
import signal
import subprocess
import sys
import time

from lib import checks, ports, redis_server
from lib.build import REDIS_MODULE, WEIR
from lib.store_client import (EFOREIGN, ENOLEASE, ESHARED, ESYSTEM, EUNREACHABLE, RECOVERY_SECONDS,
                          SLACK_US, Driver, machine, opened, recovered)
from lib.store_proxy import Proxy

DEADLINE_US = 1000000
DEADLINE = "deadline=1s"
SHORT_US = 50000  # where none is named
PATIENT = "deadline=30s"  # where no decision may be degraded
FROZEN = "token-bucket 1/d burst {}"
WITH_MODULE = f"--loadmodule {REDIS_MODULE}"
ENGINES = (("module", WITH_MODULE), ("lua", ""))


def address(server, options=""):
    return f"redis://127.0.0.1:{server.port}{'?' if options else ''}{options}"


def settle_in(driver, check, name):
    """Waits until the servers decide; a busy machine may have missed the first deadline."""
    check(recovered(lambda: not driver.take("settle-in", "fixed-window 1g/h").degraded) is not None,
          f"{name}: the server decides")


def watch_recovery(driver, check, name):
    took = recovered(lambda: driver.take("probe", "fixed-window 1g/h").degraded == 0)
    check(took is not None, f"{name}: the server decides again within {RECOVERY_SECONDS} s of its return")


def bounded(check, name, tally, deadline_us=DEADLINE_US):
    check.equal(tally.errors, 0, f"{name}: calls that failed")
    check.at_most(tally.worst_us, deadline_us + SLACK_US + tally.held_us, f"{name}: the longest call, us")


def all_degraded(check, name, tally):
    check.equal(tally.calls - tally.degraded, 0, f"{name}: decisions not marked degraded")


def outage(check, name, options, harm, repair, during=3.0):
    """Takes under load while something happens to the server, for longer than a call may last."""
    with redis_server.Server(options) as server, Driver(address(server, DEADLINE)) as driver:
        settle_in(driver, check, name)
        driver.hammer("load", FROZEN.format(100))
        time.sleep(0.2)
        bounded(check, f"{name}, before", driver.tally("report"))
        harm(server)
        time.sleep(0.4 + DEADLINE_US / 1e6)
        bounded(check, f"{name}, as it happens", driver.tally("report"))
        time.sleep(during)
        dead = driver.tally("report")
        bounded(check, f"{name}, meanwhile", dead)
        all_degraded(check, name, dead)
        check(dead.calls > during * 50, f"{name}: a dead server costs nothing: {dead.calls} calls, not {4 * during:.0f}")
        repair(server)
        watch_recovery(driver, check, name)
        driver.call("report")
        time.sleep(0.2)
        after = driver.tally("report")
        bounded(check, f"{name}, after", after)
        total = driver.tally("stop")
        check.at_most(total.allowed, 200, f"{name}: admitted, once by the server and once without it")
        check(total.allowed >= 100, f"{name}: admitted {total.allowed}")
        check.at_most(driver.close(), 60.0, f"{name}: closing, seconds")


def test_killed(check):
    """With its data kept, so that the server itself admits nothing twice."""
    for name, options in ENGINES:
        outage(check, f"killed, {name}", f"{options} --appendonly yes --appendfsync always", lambda server: server.kill(),
               lambda server: server.start())


def test_stopped(check):
    for name, options in ENGINES:
        outage(check, f"stopped, {name}", options, lambda server: server.signal(signal.SIGSTOP),
               lambda server: server.signal(signal.SIGCONT))


def test_restarted(check):
    """In good order, with its data: nothing is admitted twice by the server itself."""
    with redis_server.Server(f"{WITH_MODULE} --appendonly yes") as server:
        with Driver(address(server, "fail=closed")) as driver:
            settle_in(driver, check, "restarted")
            driver.hammer("load", FROZEN.format(50))
            time.sleep(0.3)
            server.stop()
            server.start()
            watch_recovery(driver, check, "restarted")
            time.sleep(0.2)
            total = driver.tally("stop")
            bounded(check, "restarted", total, SHORT_US)
            check.at_most(total.allowed, 50, "restarted: admitted")


def test_script_flush(check):
    with redis_server.Server() as server, Driver(address(server, PATIENT)) as driver:
        driver.hammer("load", FROZEN.format(1000), threads=8, pause_us=100)
        with server.client() as client:
            for _ in range(20):
                time.sleep(0.02)
                client.call("SCRIPT", "FLUSH")
        total = driver.tally("stop")
        check.equal(total.errors, 0, "script flush: calls that failed")
        check.equal(total.degraded, 0, "script flush: degraded decisions")
        check.equal(total.allowed, min(1000, total.calls), "script flush: admitted")


def test_module_comes_and_goes(check):
    """Which of the two decides is found out anew at every connection; both write the same bytes."""
    with redis_server.Server(WITH_MODULE + " --appendonly yes") as server:
        with Driver(address(server, f"fail=closed&{PATIENT}")) as driver:
            for name, options in (("module", WITH_MODULE), ("lua", ""), ("module again", WITH_MODULE)):
                settle_in(driver, check, name)
                d = driver.take("k", FROZEN.format(3))
                check.equal((d.code, d.allowed), (0, 1), f"{name}: a token of three")
                with server.client() as client:
                    stats = client.call("INFO", "commandstats").decode()
                check(("cmdstat_weir.take" in stats) == bool(options), f"{name}: decides")
                server.stop()
                server.options = f"{'' if options else WITH_MODULE} --appendonly yes"
                server.start()
            settle_in(driver, check, "lua again")
            check.equal(driver.take("k", FROZEN.format(3)).allowed, 0, "the fourth token")


def harmed(check, name, mode, delay=0.0, rounds=5, lasting=0.3):
    with redis_server.Server(WITH_MODULE) as server, Proxy(server.port) as proxy:
        with Driver(f"redis://127.0.0.1:{proxy.port}") as driver:
            settle_in(driver, check, name)
            driver.hammer("load", FROZEN.format(100))
            time.sleep(0.2)
            for _ in range(rounds):
                proxy.mode, proxy.delay = mode, delay
                time.sleep(lasting)
                proxy.mode = "pass"
                watch_recovery(driver, check, name)
            total = driver.tally("stop")
            bounded(check, name, total, SHORT_US)
            check(total.degraded > 0, f"{name}: some decisions were degraded")
            check.at_most(total.allowed, 200, f"{name}: admitted")


def test_cut_within_a_reply(check):
    harmed(check, "cut", "cut")


def test_garbage(check):
    harmed(check, "garbage", "garbage")


def test_slow_replies(check):
    harmed(check, "slow", "slow", 0.12)


def test_replies_held_back(check):
    harmed(check, "held back", "hold", rounds=2, lasting=3.0)  # longer than any call may last


def test_late_replies_go_to_nobody(check):
    """A reply that comes after its call gave up must not answer the next one."""
    with redis_server.Server(WITH_MODULE) as server, Proxy(server.port) as proxy:
        with Driver(f"redis://127.0.0.1:{proxy.port}?deadline=30ms") as driver:
            settle_in(driver, check, "late")
            proxy.mode, proxy.delay = "slow", 0.045
            wrong = late = 0
            for i in range(20):
                d = driver.take(f"late:{i}", f"fixed-window {i + 1}/h")
                wrong += d.limit != i + 1
                late += d.degraded
            check.equal(wrong, 0, "late: answers that were another call's")
            check(late > 0, "late: some replies came late")


def test_waited_before(check):
    """A call that has waited has the rest of its deadline. If that is shorter than servers lately took, it is not sent."""
    limit = "fixed-window 5/h"
    waits = 3700000  # three tenths of a second are left

    def quick(driver, name):
        for i in range(100):  # a busy machine may be late, but not each time
            driver.take("quick", "fixed-window 1g/h")
            if not driver.decide("waited", f"{name}:{i}", limit, 1, waits).degraded:
                return True
        return False

    with redis_server.Server(WITH_MODULE) as server, server.client() as client, Proxy(server.port) as proxy:
        with Driver(f"redis://127.0.0.1:{proxy.port}?deadline=4s&fail=closed") as driver:
            settle_in(driver, check, "waited")
            check(quick(driver, "before"), "waited: a quick server decides in the little time that is left")
            proxy.mode, proxy.delay = "slow", 0.5
            for i in range(4):
                driver.take(f"slow:{i}", limit)
            check.equal(driver.decide("waited", "unsent", limit, 1, waits).degraded, 1, "waited: a slow one does not")
            check.equal(client.call("EXISTS", "weir:unsent"), 0, "waited: and is not asked")
            driver.decide("waited", "little", limit, 1, 900000)
            check.equal(client.call("EXISTS", "weir:little"), 1, "waited: after less than a quarter of the deadline it is asked all the same")
            proxy.mode = "pass"
            check(quick(driver, "after"), "waited: that it is quick again is noticed")


def test_waited_before_is_no_miss(check):
    """What had less than half of its deadline when it was sent says nothing about the server. While it is silent, no such call is sent."""
    limit = "fixed-window 5/h"
    with redis_server.Server(WITH_MODULE) as server, server.client() as client, Proxy(server.port) as proxy:
        with Driver(f"redis://127.0.0.1:{proxy.port}?deadline=2s&fail=closed") as driver:
            settle_in(driver, check, "no miss")
            before = proxy.connections
            server.signal(signal.SIGSTOP)
            check.equal(driver.decide("waited", "sent", limit, 1, 1900000).degraded, 1, "no miss: a call with a tenth of a second left")
            check.equal(driver.decide("waited", "unsent", limit, 1, 1500000).degraded, 1, "no miss: another one")
            for _ in range(2):
                check.equal(driver.take("missed", limit).degraded, 1, "no miss: two deadlines without an answer")
            server.signal(signal.SIGCONT)
            check.equal(client.call("PING"), "PONG", "no miss: the server is back")
            check.equal(driver.take("back", limit).degraded, 0, "no miss: and decides")
            check.equal(proxy.connections, before, "no miss: the connection is the same")
            check.equal([client.call("EXISTS", f"weir:{key}") for key in ("sent", "unsent")], [1, 0], "no miss: who was asked for")


def test_passwords(check):
    with redis_server.Server(WITH_MODULE) as server:
        with server.client() as client:
            client.call("CONFIG", "SET", "requirepass", "s3cret~:@/")
        right = "s3cret~%3A%40%2F"
        for name, who, code in (("right", f":{right}@", 0), ("wrong", ":other@", ESYSTEM), ("none", "", ESYSTEM),
                                ("unknown user", f"nobody:{right}@", ESYSTEM)):
            with opened(f"redis://{who}127.0.0.1:{server.port}") as driver:
                check.equal(driver.code, code, f"password, {name}: opening ({driver.message})")
                check("s3cret" not in driver.message and "other" not in driver.message, "no password is told")
                if code == 0:
                    settle_in(driver, check, "password")
        secret = pathlib.Path(server.folder) / "secret"
        secret.write_text("s3cret~:@/\n")
        with Driver(address(server, f"password-file={secret}")) as driver:
            settle_in(driver, check, "password file")
            secret.write_text("renewed\n")
            with server.client(user="default", password="s3cret~:@/") as client:
                client.call("CONFIG", "SET", "requirepass", "renewed")
                client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            time.sleep(0.05)
            watch_recovery(driver, check, "a renewed password file")


def test_few_rights(check):
    """A user who may do what weir does and nothing else, not even PING."""
    rights = {"module": "+weir.take +weir.peek +weir.takeall +weir.settle +weir.reset +weir.acquire +weir.renew "
                        "+weir.release",
              "lua": "+evalsha +script|load +get +set +del +time +getrange +setrange +pexpireat +exists"}
    for name, options in ENGINES:
        with redis_server.Server(options, f"user limiter on >pw ~weir:* {rights[name]}") as server:
            with Driver(f"redis://limiter:pw@127.0.0.1:{server.port}?fail=closed&{PATIENT}") as driver:
                check.equal((driver.code, driver.message), (0, ""), f"few rights, {name}: opening")
                settle_in(driver, check, f"few rights, {name}")
                for limit in ("token-bucket 5/s", "sliding-log 5/m", "concurrent 3", "smooth 5/s, fixed-window 9/366d"):
                    d = driver.take(f"k:{limit[:4]}", limit)
                    check.equal((d.code, d.allowed, d.degraded), (0, 1, 0), f"few rights, {name}: {limit}")
            with Driver(f"redis://limiter:pw@127.0.0.1:{server.port}?prefix=other%3A&{PATIENT}") as driver:
                check.equal(driver.take("k", "token-bucket 5/s").code, ESYSTEM, f"few rights, {name}: another prefix")
                check("NOPERM" in driver.call("check")[1], f"few rights, {name}: check says why")


def test_readonly(check):
    """A server that is demoted under load, and promoted again."""
    for name, options in ENGINES:
        with redis_server.Server(options) as server, redis_server.Server(options) as other:
            with Driver(address(server, DEADLINE)) as driver, server.client() as client:
                settle_in(driver, check, f"readonly, {name}")
                driver.hammer("load", FROZEN.format(100))
                time.sleep(0.2)
                client.call("REPLICAOF", "127.0.0.1", other.port)
                # scripts that deny do not write: found out by the keeper, once a second
                check(recovered(lambda: "replica" in driver.call("check")[1]) is not None, f"readonly, {name}: found out")
                time.sleep(0.4 + DEADLINE_US / 1e6)  # who asked before waits for its answer that long
                bounded(check, f"readonly, {name}, as it happens", driver.tally("report"))
                time.sleep(1.0)
                meanwhile = driver.tally("report")
                bounded(check, f"readonly, {name}", meanwhile)
                all_degraded(check, f"readonly, {name}", meanwhile)
                check(meanwhile.calls > 50, f"readonly, {name}: costs nothing: {meanwhile.calls} calls")
                client.call("REPLICAOF", "NO", "ONE")
                watch_recovery(driver, check, f"readonly, {name}")
                bounded(check, f"readonly, {name}", driver.tally("stop"))


def test_loading(check):
    with redis_server.Server("--appendonly yes --key-load-delay 0") as server:
        with server.client() as client:
            client.pipeline([("SET", f"filler:{i}", "x" * 100) for i in range(3000)])
        with Driver(address(server)) as driver:
            settle_in(driver, check, "loading")
            driver.hammer("load", FROZEN.format(100))
            server.stop()
            server.options = "--appendonly yes --key-load-delay 500 --loading-process-events-interval-bytes 1024"
            started = time.monotonic()
            server.start()
            loading = time.monotonic() - started
            watch_recovery(driver, check, "loading")
            check(loading > 0.5, f"loading: took {loading:.2f} s")
            total = driver.tally("stop")
            bounded(check, "loading", total, SHORT_US)
            check(total.degraded > 0, "loading: decisions were degraded meanwhile")


def test_out_of_memory(check):
    for name, options in ENGINES:
        with redis_server.Server(options) as server, server.client() as client:
            with Driver(address(server, f"fail=local&{PATIENT}")) as driver:
                settle_in(driver, check, f"oom, {name}")
                driver.take("k", FROZEN.format(10))
                client.call("CONFIG", "SET", "maxmemory", "1")
                d = driver.take("k", FROZEN.format(10))
                check.equal((d.code, d.allowed, d.degraded), (0, 1, 1), f"oom, {name}: the local fallback decides")
                check.equal(d.charged, 0, f"oom, {name}: the servers were charged nothing")
                client.call("CONFIG", "SET", "maxmemory", "0")
                d = driver.take("k", FROZEN.format(10))
                check.equal((d.code, d.degraded, d.remaining), (0, 0, 8), f"oom, {name}: the server again")


def test_command_says_why(check):
    """`weir take` says why the fallback decided: a server that refuses is not unreachable."""
    def why(url):
        done = subprocess.run([WEIR, "take", "k", "fixed-window 9/d", "--store", url], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return [line for line in done.stdout.splitlines() if line.startswith("degraded")]
    for name, options in ENGINES:
        with redis_server.Server(f"{options} --min-replicas-to-write 1") as server:
            refused = why(address(server))
            check(len(refused) == 1 and refused[0].startswith("degraded: the store refused (NOREPLICAS Not enough") and
                  refused[0].endswith("), the local fallback decided"), f"{name}: its words: {refused}")
    gone = f"degraded: the store is unreachable (127.0.0.1:{server.port}: Connection refused)"
    for options, who in (("", ", the local fallback decided"), ("?fail=open", ", so fail=open allows"), ("?fail=closed", ", so fail=closed denies")):
        check.equal(why(address(server) + options), [gone + who], "away")
    url = address(server) + "?fail=closed"
    done = subprocess.run([WEIR, "take", "k", "fixed-window 9/d, fixed-window 9/h", "--store", url], text=True, stdout=subprocess.PIPE, check=False)
    check.equal((done.returncode, done.stdout.splitlines()[0]), (1, "denied: retry in 1s"), "no limit is blamed, and nothing said to be used")
    done = subprocess.run([WEIR, "take", "k", "fixed-window 9/d", "--json", "--store", url], text=True, stdout=subprocess.PIPE, check=False)
    check.equal(json.loads(done.stdout).get("reason"), "closed", "in JSON")
    with redis_server.Server() as server, Proxy(server.port) as proxy:
        proxy.mode, proxy.delay = "slow", 0.3
        late = why(f"redis://127.0.0.1:{proxy.port}?deadline=1ms")
        check(late and "refused" not in late[0], f"late: {late}")


def test_exact(check):
    """As many as the limit says, by threads and by processes, with both engines."""
    for name, options in ENGINES:
        with redis_server.Server(options) as server, Driver(address(server, PATIENT)) as driver:
            for what, words in (("8 threads", ("exact", 8, 500)), ("8 processes", ("fork", 8, 300)),
                                ("4 cancelled threads", ("cancel", 4, 300))):
                total = driver.tally(*words, what, FROZEN.format(777))
                check.equal(total.allowed, 777, f"exact, {name}, {what}: admitted of {total.calls}")
                check.equal(total.calls, words[1] * words[2], f"exact, {name}, {what}: nobody is lost")
                check.equal((total.degraded, total.errors), (0, 0), f"exact, {name}, {what}: degraded, errors")
            many = driver.call("many", 500, "m", "fixed-window 1/366d")
            check.equal(many[:3], ["0", "500", "0"], f"exact, {name}: a batch")
            many = driver.call("many", 500, "m", "fixed-window 1/366d")
            check.equal(many[:3], ["0", "0", "0"], f"exact, {name}: the batch again")


def test_away_at_open(check):
    """A store opens without its server, which is taken into service when it comes."""
    server = redis_server.Server(WITH_MODULE)
    with Driver(address(server)) as driver:
        check.equal(driver.code, 0, "away: opening")
        held_us = machine.since_us(driver.begun)
        check.at_most(driver.open_us, 1000000 + SLACK_US + held_us, "away: opening, us")
        d = driver.take("k", "fixed-window 3/366d")
        check.equal((d.code, d.allowed, d.degraded), (0, 1, 1), "away: the local fallback decides")
        check.equal(driver.code_of("check"), EUNREACHABLE, "away: check")
        with server:
            watch_recovery(driver, check, "away")
            check(recovered(lambda: driver.code_of("check") == 0) is not None, "back: check")


def test_fail_policies(check):
    port = ports.take()
    limit = "token-bucket 1/d burst 8"
    receipt = "w1-1700000000000000-1"
    for fail, allowed in (("open", 1), ("closed", 0)):
        with Driver(f"redis://127.0.0.1:{port}?fail={fail}") as driver:
            for _ in range(20):
                d = driver.take("k", limit)
                check.equal((d.code, d.allowed, d.degraded, d.charged, d.limit), (0, allowed, 1, 0, 8), fail)
                check.equal(d.retry > 0, not allowed, f"{fail}: when to try again")
            for words in (("settle", "k", limit, receipt, 5), ("reset", "k"),
                          ("renew", "k", "concurrent 5", 7), ("release", "k", "concurrent 5", 7)):
                check.equal(driver.code_of(*words), EUNREACHABLE, f"{fail}: {words[0]}")
            check.equal(driver.call("many", 50, "m", limit)[:3], ["0", str(50 * allowed), "50"],
                        f"{fail}: a batch")
    with Driver(f"redis://127.0.0.1:{port}?peers=4") as driver:
        allowed = [driver.take("k", limit).allowed for _ in range(8)]
        check.equal(sum(allowed), 2, "local: a quarter of the burst")
        d = driver.take("whole", limit, 5)
        check.equal((d.code, d.allowed, d.retry > 0), (0, 0, True), "local: a cost beyond the share, not never")
        check.equal(driver.take("whole", limit, 9).retry, -1, "local: a cost beyond the limit is never")
        d = driver.decide("acquire", "c", "concurrent 4", 1)
        check.equal((d.code, d.allowed, d.degraded), (0, 1, 1), "local: a lease")
        check.equal(driver.code_of("release", "c", "concurrent 4", d.lease), 0, "local: given back")
        check.equal(driver.code_of("settle", "k", limit, receipt, 5), EUNREACHABLE, "local: settle")


def test_verbs(check):
    for name, options in ENGINES:
        with redis_server.Server(options) as server, server.client() as client:
            with Driver(address(server, f"{PATIENT}&prefix=p%3A")) as driver:
                limit = "token-bucket 1/d burst 10"
                d = driver.take("k", limit, 4)
                check.equal((d.remaining, d.charged), (6, 4), f"{name}: take")
                check.equal(driver.code_of("settle", "k", limit, d.receipt, 1), 0, f"{name}: settle")
                check.equal(driver.peek("k", limit).remaining, 9, f"{name}: settled")
                check.equal(client.call("EXISTS", "p:k"), 1, f"{name}: the key with its prefix")
                check.equal(driver.code_of("reset", "k"), 0, f"{name}: reset")
                check.equal(client.call("EXISTS", "p:k"), 0, f"{name}: forgotten")
                d = driver.decide("acquire", "c", "concurrent 2 lease 1m", 2)
                check.equal((d.allowed, d.lease > 0), (1, True), f"{name}: acquire")
                check.equal(driver.take("c", "concurrent 2 lease 1m").allowed, 0, f"{name}: all held")
                check.equal(driver.code_of("renew", "c", "concurrent 2 lease 1m", d.lease), 0, f"{name}: renew")
                check.equal(driver.code_of("release", "c", "concurrent 2 lease 1m", d.lease), 0,
                            f"{name}: release")
                check.equal(driver.code_of("release", "c", "concurrent 2 lease 1m", d.lease), ENOLEASE,
                            f"{name}: released already")
                two = ("a", "fixed-window 5/366d", 2, "b", "fixed-window 1/366d", 1)
                d = driver.decide("takeall", *two)
                check.equal((d.allowed, d.binding), (1, 1), f"{name}: two keys")
                d = driver.decide("peekall", *two)
                check.equal((d.allowed, d.binding, d.charged), (0, 1, 0), f"{name}: two keys peeked")
                d = driver.decide("takeall", *two)
                check.equal((d.allowed, d.binding), (0, 1), f"{name}: two keys, one is empty")
                check.equal(driver.peek("a", "fixed-window 5/366d").remaining, 3, f"{name}: charged to none")
                d = driver.decide("takeall", "a", "fixed-window 5/366d", 1, "a", "fixed-window 9/366d", 1)
                check.equal(d.code, ESHARED, f"{name}: a shared state")
                d = driver.decide("acquire", "c", "concurrent 2", 1, "d", "concurrent 2", 1)
                check.equal((d.code, d.allowed, d.lease > 0), (0, 1, True), f"{name}: slots of two keys at once")
                check.equal(driver.take("d", "concurrent 2", 2).allowed, 0, f"{name}: both keys have one")
                for key in ("c", "d"):
                    check.equal(driver.code_of("release", key, "concurrent 2", d.lease), 0, f"{name}: release of {key}")
                client.call("SET", "p:foreign", "hello")
                check.equal(driver.take("foreign", limit).code, EFOREIGN, f"{name}: a foreign value")
                check.equal(client.call("GET", "p:foreign"), b"hello", f"{name}: which stays as it is")


TESTS = [test_verbs, test_exact, test_killed, test_stopped, test_restarted, test_script_flush,
         test_module_comes_and_goes, test_cut_within_a_reply, test_garbage, test_slow_replies,
         test_replies_held_back, test_late_replies_go_to_nobody, test_waited_before,
         test_waited_before_is_no_miss, test_passwords, test_few_rights, test_readonly, test_loading,
         test_out_of_memory, test_command_says_why, test_away_at_open, test_fail_policies]

if __name__ == "__main__":
    with machine:
        sys.exit(checks.run(TESTS, sys.argv[1:]))

#!/usr/bin/env python3
"""The redis:// store behind Sentinels: who is the master, a failover under load, a Sentinel that is gone."""
import contextlib
import re
import signal
import sys
import time

from lib import checks, redis_server
from lib.build import REDIS_MODULE
from lib.store_client import READY_SECONDS, SLACK_US, Driver, calm, machine, recovered

NAME = "limits"
OPTIONS = f"--loadmodule {REDIS_MODULE} --repl-diskless-sync-delay 0 --replica-priority 10"
DOWN_AFTER_MS = 5000  # less, and a busy machine is taken for a dead one


class Group(contextlib.ExitStack):
    """A primary, a replica, three Sentinels."""

    def __enter__(self):
        self.primary = self.enter_context(redis_server.Server(OPTIONS))
        self.replica = self.enter_context(redis_server.Server(
            f"--replicaof 127.0.0.1 {self.primary.port} {OPTIONS}"))
        config = (f"sentinel monitor {NAME} 127.0.0.1 {self.primary.port} 2\n"
                  f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
                  f"sentinel failover-timeout {NAME} 5000\n")
        self.sentinels = [self.enter_context(redis_server.Server("--sentinel", config)) for _ in range(3)]
        self.wait(lambda: all(self.sees_all(sentinel) for sentinel in self.sentinels))
        return self

    def sees_all(self, sentinel):
        with sentinel.client() as client:
            flat = client.call("SENTINEL", "MASTER", NAME)
        fields = dict(zip(flat[0::2], flat[1::2]))
        return fields[b"num-slaves"] == b"1" and fields[b"num-other-sentinels"] == b"2"

    def wait(self, ready):
        end = time.monotonic() + READY_SECONDS
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError("not ready in time")
            time.sleep(0.05)

    def url(self, options=""):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{NAME}{'?' if options else ''}{options}"

    def has_copied(self):
        """Whether the replica has all states of the primary."""
        offsets = []
        for server in (self.primary, self.replica):
            with server.client() as client:
                offsets += re.findall(rb"(?:master|slave)_repl_offset:(\d+)", client.call("INFO", "replication"))[:1]
        return offsets[0] == offsets[1]

    def promoted(self):
        try:
            with self.replica.client() as client:
                return b"role:master" in client.call("INFO", "replication")
        except ConnectionError:  # a Sentinel has all clients of a server that changes its role thrown out
            return False


def fail_over(check, name, harm, repair):
    with Group() as group, Driver(group.url()) as driver:
        check.equal((driver.code, driver.message), (0, ""), f"{name}: opening")
        check(recovered(lambda: not driver.take("k", "fixed-window 1g/h").degraded) is not None,
              f"{name}: the primary decides")
        driver.hammer("load", "token-bucket 1/d burst 100")
        time.sleep(0.5)
        group.wait(group.has_copied)
        group.sentinels[0].kill()  # the one asked first
        harm(group.primary)
        group.wait(group.promoted)
        took = recovered(lambda: not driver.take("k", "fixed-window 1g/h").degraded)
        check(took is not None, f"{name}: soon after the promotion")
        repair(group.primary)
        time.sleep(1.5)  # the old primary is told that it is a replica now
        after = calm(driver)
        check.equal(after.errors, 0, f"{name}: errors afterwards")
        check.at_most(after.degraded, after.calls // 20, f"{name}: degraded afterwards, of {after.calls}")
        with group.replica.client() as client:
            check(client.call("EXISTS", "weir:load") == 1, f"{name}: the new primary decides")
        total = driver.tally("stop")
        check.equal(total.errors, 0, f"{name}: errors")
        check.at_most(total.worst_us, 50000 + SLACK_US + total.held_us, f"{name}: the longest call, us")
        check.at_most(total.allowed, 250, f"{name}: admitted")


def test_killed(check):
    fail_over(check, "killed", lambda server: server.kill(), lambda server: server.start())


def test_stopped(check):
    fail_over(check, "stopped", lambda server: server.signal(signal.SIGSTOP),
              lambda server: server.signal(signal.SIGCONT))


def test_asked_to(check):
    """A failover in good order, nobody dies."""
    with Group() as group, Driver(group.url("deadline=200ms")) as driver:
        driver.hammer("load", "token-bucket 1/d burst 100")
        time.sleep(0.3)
        with group.sentinels[1].client() as client:
            client.call("SENTINEL", "FAILOVER", NAME)
        group.wait(group.promoted)
        took = recovered(lambda: not driver.take("k", "fixed-window 1g/h").degraded)
        check(took is not None, "asked to: soon after the promotion")
        total = driver.tally("stop")
        check.equal(total.errors, 0, "asked to: errors")
        check.at_most(total.worst_us, 200000 + SLACK_US + total.held_us, "asked to: the longest call, us")


def test_unknown_name(check):
    with Group() as group:
        with Driver(group.url().replace(f"/{NAME}", "/other")) as driver:
            check.equal(driver.code, 0, "unknown name: opening, a master may be added")
            check(recovered(lambda: "other" in driver.call("check")[1]) is not None, "unknown name: check says it")


TESTS = [test_killed, test_stopped, test_asked_to, test_unknown_name]

if __name__ == "__main__":
    with machine:
        sys.exit(checks.run(TESTS, sys.argv[1:]))

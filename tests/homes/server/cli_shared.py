#!/usr/bin/env python3
"""`weir run` and `weir pipe` on stores that other machines share: a running server (--server) and a redis:// store. What happens when they go away
while a command runs."""
import json
import signal
import subprocess
import sys

from lib import checks, clocks, redis_server, weir_server
from lib.build import WEIR
from lib.h2_server import Server

PATIENCE = 120
ONE = "concurrent 1 lease 1h"


def weir(*words):
    done = subprocess.run([WEIR, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE, env=weir_server.environment(), check=False)
    return done.returncode, done.stdout, done.stderr


def start(*words):
    return subprocess.Popen([WEIR, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=weir_server.environment())


def holder(check, key, limits, where):
    """`weir run` with a command that runs. A slot that is taken would not say that: its answer may still be on the way."""
    job = start("run", key, limits, *where, "--", "sh", "-c", "echo runs; exec sleep 1000")
    check.equal(job.stdout.readline(), "runs\n", f"{key}: the command runs")
    return job


def both_homes(check, where, name):
    def free(key, limits=ONE):
        return weir("peek", key, limits, *where)[0] == 0

    check.equal(weir("run", "code", ONE, *where, "--", "sh", "-c", "echo out; exit 7"), (7, "out\n", ""), f"{name}: the exit code")
    check(free("code"), f"{name}: the slot is free again")
    inner = [WEIR, "run", "twice", ONE, *where, "--wait", "0", "--quiet", "--", "true"]
    check.equal(weir("run", "twice", ONE, *where, "--", *inner)[0], 1, f"{name}: a second one is denied")
    job = holder(check, "queue", ONE, where)
    check(not free("queue"), f"{name}: it has the slot")
    second = start("run", "queue", f"{ONE}, token-bucket 1/h", *where, "--", "true")
    job.send_signal(signal.SIGTERM)
    check.equal(job.wait(timeout=PATIENCE), 143, f"{name}: SIGTERM reaches the command")
    check.equal(second.wait(timeout=PATIENCE), 0, f"{name}: who waits for slot and token gets both")
    bucket = "token-bucket 1/d burst 1"
    check.equal(weir("run", "back", bucket, *where, "--", "true")[0], 0, f"{name}: the one token")

    def delay():
        return json.loads(weir("peek", "back", bucket, "--wait", "any", "--json", *where)[1])["delay"]
    job = start("run", "back", bucket, *where, "--", "true")
    checks.until("it has a reservation", lambda: delay() > 100000)
    job.send_signal(signal.SIGINT)
    check.equal(job.wait(timeout=PATIENCE), -signal.SIGINT, f"{name}: a signal ends the wait: {job.stderr.read()}")
    check.at_most(delay(), 86400, f"{name}: the reservation is given back")


def pipes(check, where, name):
    """Two of them on one key: not before their time."""
    data, begun = b"0123456789" * 6000, clocks.now()
    jobs = [subprocess.Popen([WEIR, "pipe", "token-bucket 200k/s burst 20k", "--key", "upload", *where], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=weir_server.environment()) for _ in range(2)]
    for job in jobs:
        job.stdin.write(data)
        job.stdin.close()
    for job in jobs:
        check(job.stdout.read() == data, f"{name}: a pipe loses nothing: {job.stderr.read()}")
        check.equal(job.wait(timeout=PATIENCE), 0, f"{name}: a pipe's exit code")
    check(clocks.now() - begun >= 0.5, f"{name}: 120000 bytes at 200k/s after 20000")


def test_server(check):
    with Server() as server:
        where = ("--server", f"127.0.0.1:{server.port}")
        both_homes(check, where, "server")
        pipes(check, where, "server")
        job = holder(check, "gone", "concurrent 1 lease 2s", where)
        server.process.send_signal(signal.SIGSTOP)
        check.contains(job.stderr.readline() + job.stderr.readline(), '"gone" has lost its lease: it could not be renewed in time',
                       "server: one that does not answer for the time of a lease")
        check.equal(job.wait(timeout=PATIENCE), 3, "server: the command is stopped then")
        server.process.send_signal(signal.SIGCONT)
        server.stop()
        check.equal(weir("run", "gone", ONE, *where, "--", "true")[0], 3, "server: away at the start")


def test_redis(check):
    with redis_server.Server() as redis:
        where = ("--store", f"redis://127.0.0.1:{redis.port}?deadline=30s")
        both_homes(check, where, "redis")
        pipes(check, where, "redis")
        job = holder(check, "gone", "concurrent 1 lease 3s", where)
        redis.kill()
        check.equal(job.wait(timeout=PATIENCE), 3, "redis: it stops the command when the server has been away for a lease")
        check.contains(job.stderr.read(), '"gone" has lost its lease', "redis: and says so")
        for limits in (ONE, "fixed-window 1/d", f"{ONE}, fixed-window 1/d", "token-bucket 1/s"):
            code, out, err = weir("run", "gone", limits, "--wait", "0", *where, "--", "echo", "ran")
            check.equal((code, out), (3, ""), f"redis: {limits}: away at the start, nothing runs: {err}")
            check.contains(err, "the store cannot be reached", f"redis: {limits}: in words")
        code, out, err = weir("run", "gone", ONE, "--store", where[1] + "&fail=open", "--", "echo", "ran")
        check.equal((code, out), (0, "ran\n"), f"redis: fail=open runs it: {err}")
        check.contains(err, "the store cannot be reached", "redis: fail=open says so")


TESTS = [test_server, test_redis]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

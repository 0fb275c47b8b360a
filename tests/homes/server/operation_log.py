#!/usr/bin/env python3
"""What a running server needs from its surroundings: an access log that can be turned over, an ordinary user, files
that are missing or full.

    tests/homes/server/operation_log.py [NAME …]
"""
import grp
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lib import abuse_tools, checks, http_client, operation_tools, weir_server

LIMIT = "fixed-window 1000000/d from-first"
POLICIES = """version: 1
policies:
  - name: api
    match: {path: /api/*}
    limits:
      - {name: per-user, key: user, limit: fixed-window 5/d from-first}
      - {name: trial, key: user, limit: fixed-window 2/d from-first, shadow: true}
"""
ALWAYS = {"time", "protocol", "client", "policy", "cost", "allowed", "verdict", "shadow_denied"}
DECIDED = {"limit", "remaining", "retry_after", "reset_after", "delay", "granted", "degraded", "local"}


def lines_of(path):
    """The records of a log; whatever is no whole line of JSON raises."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        raise ValueError(f"{path}: the last line is cut")
    return [json.loads(line) for line in text.splitlines()]


# ---- the access log ----

def test_lines(check):
    """One line a decision, with everything that was decided."""
    begun = time.time() - 1  # the log's may be a rounded one
    with weir_server.Server("--threads 2 --access-log log.json", policies=POLICIES) as server:
        with server.client() as redis, http_client.Client(server.port) as web:
            redis.call("WEIR.TAKE", b'k"\\\n\xff', LIMIT, "COST", "3")
            redis.call("WEIR.TAKEALL", "2", "a", LIMIT, "1", "b", LIMIT, "1")
            redis.call("CL.THROTTLE", "t", "10", "100", "60")
            for _ in range(7):
                web.get("/v1/take", attr_path="/api/x", attr_user="ann")
            web.get("/v1/take", attr_path="/elsewhere", attr_user="ann")
            web.get("/v1/take", key="ü", limit=LIMIT)
        server.stop()
        records = lines_of(server.folder / "log.json")
        check.equal(len(records), 12, "a line a decision")
        for record in records:
            check(ALWAYS <= set(record), f"it tells {ALWAYS - set(record)} not: {record}")
            decided = record["verdict"] == "limits"
            check(not decided or DECIDED <= set(record), f"decided by limits, and tells not all: {record}")
            check.equal(record["client"], "127.0.0.1", "who asked")
            check(begun <= record["time"] <= time.time(), f"when: {record['time']}")
        check.equal([record.get("key") for record in records if "key" in record].count("ü"), 1, "a key")
        check.equal([record.get("key_base64") for record in records].count("ayJcCv8="), 1, "a key of any bytes")
        ann = [record for record in records if record["policy"] == "api"]
        check.equal([record["allowed"] for record in ann], [True] * 5 + [False] * 2, "what a policy decided")
        check.equal([record["shadow_denied"] for record in ann], [0, 0, 1, 1, 1, 1, 1], "and its shadow")
        check.equal({record["entry"] for record in ann}, {"per-user"}, "by which of its limits")


def test_turned_over_under_load(check):
    """mv and SIGHUP, as logrotate does it, again and again: no line is lost, none is torn, none is in both."""
    with weir_server.Server("--threads 2 --access-log log.json") as server:
        load = operation_tools.Load(server.port, each=1, pause=0).start()
        log = server.folder / "log.json"
        for number in range(6):
            check(server.wait_for(lambda: log.stat().st_size > 0), "lines are written")
            time.sleep(0.2)
            os.rename(log, server.folder / f"log.{number}.json")
            server.signal(signal.SIGHUP)
            check(server.wait_for(log.exists), "the log is opened anew")
        check(server.wait_for(lambda: log.stat().st_size > 0), "lines are written at last")
        load.end()
        values = abuse_tools.metrics(server)
        server.stop()
        check(not load.lost, f"nobody noticed: {load.lost[:3]}")
        files = sorted(server.folder.glob("log*.json"))
        counts = [len(lines_of(path)) for path in files]
        dropped = abuse_tools.total(values, "weir_access_log_lines_total", result="dropped")
        check.equal(sum(counts) + dropped, load.answers(), "lines, and those told as dropped: one an answer")
        check.equal(abuse_tools.total(values, "weir_access_log_reopen_failures_total"), 0, "no failure is told")
        check(len(counts) == 7 and min(counts) > 0, f"all seven files have lines: {counts}")
        print(f"  turned over: {load.answers()} answers, {counts} lines, {dropped:.0f} dropped", flush=True)


def test_no_room_for_the_log(check):
    """A full disk: lines are lost and counted, answers are not."""
    begun = time.monotonic()
    with weir_server.Server("--threads 2 --access-log /dev/full") as server, server.client() as client:
        for _ in range(1000):
            client.call("WEIR.TAKE", "k", LIMIT)
        check.equal(client.call("WEIR.PEEK", "k", LIMIT)[2], 1000000 - 1000, "all are answered")

        def lost_lines():
            """Those that could not be written, and those that came while the writer had no time for them."""
            values = abuse_tools.metrics(server)
            return sum(abuse_tools.total(values, "weir_access_log_lines_total", result=it) for it in ("failed", "dropped"))
        check(server.wait_for(lambda: lost_lines() >= 1000), f"the lines are counted as lost: {lost_lines()}")
        said = lambda: [line for line in server.errors if "/dev/full" in line and "lost" in line]  # noqa: E731
        check(server.wait_for(said), f"and it is said: {server.errors}")
        check(any("No space left" in line for line in said()), f"with the reason: {said()}")
        server.stop()
        lost = sum(int(re.search(r": (\d+) line", line)[1]) for line in said())
        check.equal(lost, 1000, f"how many, all told: {said()}")
        most = 3 + (time.monotonic() - begun) // 10  # the first, one in ten seconds, the last
        check(len(said()) <= most, f"but not each of them: {said()}")


def test_log_that_cannot_be_opened(check):
    code, said = weir_server.refused("--listen 127.0.0.1:0 --access-log /nowhere/log.json")
    check(code == 3 and "/nowhere/log.json" in said, f"it does not start: {code}, {said}")


def test_log_folder_that_goes(check):
    """It cannot be opened anew: the old file is gone on with, and it is told."""
    server = weir_server.Server("--threads 2 --access-log logs/log.json")
    (server.folder / "logs").mkdir()
    with server, server.client() as client:
        client.call("WEIR.TAKE", "k", LIMIT)
        os.rename(server.folder / "logs", server.folder / "gone")
        server.signal(signal.SIGHUP)
        failures = lambda: abuse_tools.total(abuse_tools.metrics(server), "weir_access_log_reopen_failures_total")
        check(server.wait_for(lambda: failures() == 1), "a failure is counted")
        client.call("WEIR.TAKE", "k", LIMIT)
        server.stop()
        check.equal(len(lines_of(server.folder / "gone" / "log.json")), 2, "the old file has both lines")


def test_log_on_standard_output(check):
    with weir_server.Server("--threads 2 --access-log -") as server, server.client() as client:
        for _ in range(10):
            client.call("WEIR.TAKE", "k", LIMIT)
        server.stop()
        records = [json.loads(line) for line in server.lines if line.startswith("{")]
        check.equal([record["remaining"] for record in records], list(range(999999, 999989, -1)), "ten lines in order")


def test_samples(check):
    with weir_server.Server("--threads 1 --access-log log.json --access-log-sample 10 --access-log-denials") as server, \
            server.client() as client:
        client.pipeline([("WEIR.TAKE", "k", "fixed-window 5000/d from-first")] * 6000)
        server.stop()
        records = lines_of(server.folder / "log.json")
        denied = sum(not record["allowed"] for record in records)
        check.equal(denied, 1000, "every denial")
        check(350 < len(records) - denied < 650, f"of the others one in ten, about: {len(records) - denied} of 5000")


# ---- whom it runs as ----

def ordinary():
    """The words that run a command as an ordinary user, and a folder of that user's."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="weir-user-"))
    if os.geteuid() != 0:
        return [], folder  # we are one
    user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    group = grp.getgrgid(user.pw_gid).gr_name
    return ["setpriv", "--reuid", "nobody", "--regid", group, "--clear-groups", "--no-new-privs", "--inh-caps=-all"], folder


def test_ordinary_user(check):
    """No privilege is needed, and the zone is nobody else's."""
    words, folder = ordinary()
    shutil.copy(weir_server.WEIR, folder / "weir")
    (folder / "weir").chmod(0o755)
    process = subprocess.Popen([*words, folder / "weir", "serve", "--listen", "127.0.0.1:0", "--listen",
                                f"unix:{folder}/socket", "--store", f"file:{folder}/zone?size=1m", "--access-log",
                                f"{folder}/log.json"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=weir_server.environment())
    try:
        line = process.stdout.readline()
        port = int(re.search(r":(\d+)", line)[1])
        with http_client.Client(port) as client:
            check.equal(client.get("/v1/take", key="k", limit=LIMIT).status, 200, "it answers")
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        check(re.search(r"^Uid:\t(\d+)", status, re.M)[1] != "0", "it is not root")
        check.contains(status, "CapEff:\t0000000000000000", "it has no capability")
        mode = (folder / "zone").stat().st_mode & 0o777
        check.equal(mode, 0o600, "nobody else may read its zone")
        process.send_signal(signal.SIGTERM)
        check.equal(process.wait(weir_server.STOP_SECONDS), 0, f"exit code; it said {process.stderr.read()}")
        check.equal(len(lines_of(folder / "log.json")), 1, "its log")
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def test_not_the_users_own(check):
    """What an ordinary user may not open is told by name, with exit code 3."""
    words, folder = ordinary()
    shutil.copy(weir_server.WEIR, folder / "weir")
    (folder / "weir").chmod(0o755)
    owned = folder / "zone"
    subprocess.run([weir_server.WEIR, "take", "k", LIMIT, "--store", f"file:{owned}?size=1m"], check=True,
                   stdout=subprocess.DEVNULL, env=weir_server.environment())
    places = ["file:/proc/zone?size=1m"] + ([f"file:{owned}?size=1m"] if words else [])
    try:
        for place in places:
            done = subprocess.run([*words, folder / "weir", "serve", "--listen", "127.0.0.1:0", "--store", place],
                                  cwd=folder, capture_output=True, text=True, timeout=weir_server.START_SECONDS, env=weir_server.environment(),
                                  check=False)
            check(done.returncode == 3 and place.split("?")[0][5:] in done.stderr,
                  f"{place}: {done.returncode}, {done.stderr}")
    finally:
        shutil.rmtree(folder)


TESTS = [test_lines, test_turned_over_under_load, test_no_room_for_the_log, test_log_that_cannot_be_opened,
         test_log_folder_that_goes, test_log_on_standard_output, test_samples, test_ordinary_user,
         test_not_the_users_own]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

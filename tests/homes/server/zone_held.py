#!/usr/bin/env python3
"""A zone that others misuse: one process holds its locks and is stopped, the file is truncated, deleted or replaced.
The server answers for its health, says what is wrong, gives 503 for what it cannot decide, and obeys SIGTERM.

    tests/homes/server/zone_held.py [NAME …]
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from lib import build, checks, http_client, resp, weir_server

HOLDER = str(build.BUILD / "tests" / "hold_zone")
BUCKET, LOG = "token-bucket 1000/s", "sliding-log 1000/m"
PATIENCE = 0.25  # so long a server waits for a lock
POLICIES = "version: 1\npolicies:\n  - {name: all, match: {path: /api}, key: user, limit: token-bucket 1000/s}\n"


class Holder:
    def __init__(self, url, which):
        self.process = subprocess.Popen([HOLDER, url, which], stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        assert self.process.stdout.readline() == "held\n", "the locks are not held"
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        return self

    def let_go(self):
        self.process.send_signal(signal.SIGCONT)
        return self.process.wait(weir_server.PATIENCE_SECONDS)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def take(server, key="k", limit=BUCKET):
    with http_client.Client(server.port, timeout=weir_server.PATIENCE_SECONDS) as client:
        return client.post("/v1/take", {"key": key, "limit": limit})


def test_held_by_a_stopped_process(check):
    for which in ("all", "rows", "blocks"):
        with weir_server.Server("--threads 1 --store file:zone?size=1m", policies=POLICIES) as server:
            url = f"file:{server.folder}/zone"
            check.equal(take(server).status, 200, f"{which}: before")
            check.equal(take(server, "log", LOG).status, 200, f"{which}: before, a log")
            with Holder(url, which) as holder:
                if which == "all":
                    check.equal(take(server).status, 200, "all: a small state that is there needs no lock")
                asked = {"all": (("other", BUCKET), ("log", LOG)), "rows": (("k", "fixed-window 7/m"),),
                         "blocks": (("new log", LOG),)}[which]
                for key, limit in asked:
                    answer = take(server, key, limit)
                    check(answer.status == 503 and answer.fields.get("retry-after"), f"{which}: {key} is told: {answer}")
                    check("does not answer" in answer.json["detail"], f"{which}: why, {answer}")
                with http_client.Client(server.port, timeout=weir_server.PATIENCE_SECONDS) as client:
                    for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/stats", 200)):
                        check.equal(client.get(path).status, status, f"{which}: {path}")
                statuses, times = set(), []
                with http_client.Client(server.port, timeout=weir_server.PATIENCE_SECONDS) as client:
                    for key, limit in [(f"{key} {i}", limit) for i in range(50) for key, limit in asked]:
                        start = time.monotonic()
                        statuses.add(client.post("/v1/take", {"key": key, "limit": limit}).status)
                        times.append(time.monotonic() - start)
                check(503 in statuses and statuses <= {200, 503}, f"{which}: many, {statuses}")
                slow = sum(it >= PATIENCE for it in times)
                check(slow <= len(times) // 2, f"{which}: few of them wait, {slow} of {len(times)}")
                with resp.Client(server.port, timeout=weir_server.PATIENCE_SECONDS) as client:
                    key, limit = asked[0]
                    reply = client.pipeline([("WEIR.TAKE", f"{key} r{i}", limit) for i in range(20)])
                    check(any("does not answer" in str(it) for it in reply), f"{which}: over RESP, {reply[0]!r}")
                    check.equal(client.call("PING"), "PONG", f"{which}: and the connection goes on")
                if which == "all":
                    with http_client.Client(server.port, timeout=weir_server.PATIENCE_SECONDS) as client:
                        answer = client.post("/v1/take", {"attributes": {"path": "/api", "user": "u"}})
                        check.equal(answer.status, 503, f"{which}: a policy")
                        check.equal(client.post("/v1/reset", {"key": "k"}).status, 503, f"{which}: a reset")
                    server.stop()
                    check.equal(server.process.returncode, 0, f"{which}: SIGTERM is obeyed")
                    continue
                check.equal(holder.let_go(), 0, f"{which}: it goes on")
            check(server.wait_for(lambda asked=asked, server=server: take(server, *asked[0]).status == 200),
                  f"{which}: afterwards it decides again")


def test_killed_while_stopped(check):
    """Its locks are inherited, as those of any dead process."""
    with weir_server.Server("--threads 1 --store file:zone?size=1m") as server:
        with Holder(f"file:{server.folder}/zone", "all") as holder:
            check.equal(take(server).status, 503, "held")
            holder.process.kill()
            holder.process.wait()
            check(server.wait_for(lambda: take(server).status == 200), "its heirs decide")


# ---- files ----

def test_truncated(check):
    """Memory that is gone cannot be read, and a header that is overwritten is none: it ends, but says why."""
    for store, length in (("file", 4096), ("shm", 4096), ("file", 4 << 20)):
        name = f"/weir-test-{os.getpid()}"
        url = "file:zone?size=4m" if store == "file" else f"shm:{name}?size=4m"
        server = weir_server.Server(f"--threads 1 --store {url}")
        try:
            server.start()
            with open(server.folder / "zone" if store == "file" else f"/dev/shm{name}", "r+b") as zone:
                zone.truncate(length)
                zone.write(bytes(4096))
            try:
                take(server)
            except (OSError, AssertionError, ValueError, IndexError):
                pass  # it ended before it could answer
            check(server.wait_for(lambda server=server: server.process.poll() is not None), f"{store}: it ends")
            server.stop(code=3)
            check("truncated" in server.stderr() and f"{store}:" in server.stderr(), f"{store}: why, {server.stderr()!r}")
        finally:
            server.kill()
            shutil.rmtree(server.folder)
            if store == "shm" and os.path.exists(f"/dev/shm{name}"):
                os.unlink(f"/dev/shm{name}")


def told_deleted(server):
    """Whether metrics and /v1/stats say that the zone is deleted."""
    with http_client.Client(server.port) as client:
        line = re.search(r"^weir_zone_deleted ([01])$", client.get("/metrics").body.decode(), re.M)
        return line and line[1] == "1", client.get("/v1/stats").json["zone"].get("deleted")


def test_deleted(check):
    """It goes on with what it has, and says once that nobody else will find it; metrics tell it for as long as it is so."""
    with weir_server.Server("--threads 1 --store file:zone?size=1m") as server:
        check.equal(take(server).status, 200, "before")
        check.equal(told_deleted(server), (False, False), "before: the metrics")
        (server.folder / "zone").rename(server.folder / "elsewhere")
        check(server.wait_for(lambda: "zone" in server.stderr() and "deleted" in server.stderr()), f"{server.stderr()!r}")
        check.contains(server.stderr(), "docs/RUNBOOK.md", "what to do")
        check(server.wait_for(lambda: told_deleted(server) == (True, True)), f"the metrics: {told_deleted(server)}")
        check.equal(take(server).status, 200, "it goes on")
        time.sleep(1.5)  # longer than it takes to look again
        check.equal(server.stderr().count("was deleted"), 1, "it is said once")
        (server.folder / "elsewhere").rename(server.folder / "zone")
        check(server.wait_for(lambda: told_deleted(server) == (False, False)), "it is back")


def test_deleted_is_saved(check):
    """What RUNBOOK says about a deleted zone: copied from the process, and put to its path, it is where the next start goes on."""
    count = {"key": "q", "limit": "fixed-window 10/366d"}
    with weir_server.Server("--threads 1 --store file:zone?size=1m") as server:
        zone = server.folder.resolve() / "zone"
        zone.unlink()
        with http_client.Client(server.port) as client:
            client.post("/v1/take", {**count, "cost": 4})
        save = f"""fd=$(find /proc/{server.process.pid}/fd -lname '{zone} (deleted)')
                   cp -p "$fd" {zone}.saved && {build.WEIR} zone {zone}.saved >/dev/null && mv {zone}.saved {zone}"""
        check.equal(subprocess.run(["sh", "-c", save], check=False).returncode, 0, "saved")
        check(server.wait_for(lambda: server.process.poll() is not None), "it ends by itself")
        server.stop(code=3)
        server.start()
        with http_client.Client(server.port) as client:
            check.equal(client.post("/v1/peek", count).json["remaining"], 6, "nothing is lost")


def test_replaced(check):
    """Two zones would allow twice the limit. So a server whose zone is not the one at its path decides nothing more."""
    def by_junk(folder):
        (folder / "other").write_bytes(b"x" * 65536)
        os.replace(folder / "other", folder / "zone")

    def by_a_zone(folder):
        (folder / "zone").unlink()
        subprocess.run([build.WEIR, "take", "k", BUCKET, "--store", f"file:{folder}/zone?size=1m"], check=True,
                       stdout=subprocess.DEVNULL)

    for replace in (by_junk, by_a_zone):
        server = weir_server.Server("--threads 1 --store file:zone?size=1m")
        try:
            server.start()
            check.equal(take(server).status, 200, "before")
            replace(server.folder)
            check(server.wait_for(lambda server=server: server.process.poll() is not None), f"{replace.__name__}: it ends")
            check("replaced" in server.stderr() and "start it again" in server.stderr(), f"why: {server.stderr()!r}")
            server.stop(code=3)
        finally:
            server.kill()
            shutil.rmtree(server.folder)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

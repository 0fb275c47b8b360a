#!/usr/bin/env python3
"""Files that change under a running server: by SIGHUP, by POST /v1/reload, by themselves; under load, with mistakes in
them; and what is kept over a change.
"""
import os
import re
import signal
import sys
import threading
import time

import weir_server
import http_client
from http_client import get, post
from http_wire import problem

import redis_server

HEAD = "version: 1\npolicies:\n"
BROKEN = HEAD + "  - name: api\n    key: user\n    limit: tokn-bucket 1/s\n"
WATCH_SECONDS = 4.0  # files are looked at once a second


def policies(limit, *more):
    """One policy for /api/* by user, and any others."""
    return HEAD + f"  - {{name: api, match: {{path: /api/*}}, key: user, limit: {limit}}}\n" + "".join(
        f"  - {{name: {name}, match: {{path: /{name}}}, key: user, limit: {text}}}\n" for name, text in more)


def take(client, user="ann", path="/api/x", verb="take"):
    return client.get("/v1/" + verb, attr_path=path, attr_user=user, detail=1).json


def reloads(client):
    return client.get("/v1/stats").json["reloads"]


def ways(server, client):
    """Each way to have files read again, as a call that is back when it has happened."""
    def by_signal():
        seen = server.stderr().count("SIGHUP: ")
        server.signal(signal.SIGHUP)
        assert server.wait_for(lambda: server.stderr().count("SIGHUP: ") > seen)

    def by_request():
        client.post("/v1/reload")

    def by_itself():
        seen = server.stderr().count("a file has changed: ")
        assert server.wait_for(lambda: server.stderr().count("a file has changed: ") > seen, WATCH_SECONDS), "not seen"

    return {"SIGHUP": by_signal, "POST": by_request, "watching": by_itself}


# ---- what is kept ----

def test_state_is_kept(check):
    with weir_server.Server(policies=policies("fixed-window 10/d")) as server, \
            http_client.Client(server.port) as client:
        for way, happen in ways(server, client).items():
            client.post("/v1/reset", {"attributes": {"path": "/api/x", "user": "ann"}})
            for text in ("fixed-window 10/d", "fixed-window 20/d", "fixed-window 5/d"):
                server.write("policies.yaml", policies(text))
                happen()
                if text.startswith("fixed-window 10"):
                    for _ in range(7):
                        last = take(client)
                    check.equal((last["limit"], last["remaining"]), (10, 3), f"{way}: seven of ten")
                elif "20" in text:
                    body = take(client)
                    check.equal((body["limit"], body["remaining"]), (20, 12), f"{way}: eight of twenty")
                else:
                    body = take(client)
                    check.equal((body["allowed"], body["limit"], body["remaining"]), (False, 5, 0), f"{way}: over five")
        server.write("policies.yaml", policies("fixed-window 20/h"))
        client.post("/v1/reload")
        check.equal(take(client)["remaining"], 19, "another period starts afresh")
        server.write("policies.yaml", policies("fixed-window 20/d"))
        client.post("/v1/reload")
        check.equal(take(client)["remaining"], 11, "the first one was not forgotten")


def test_added_and_removed(check):
    one, two = policies("fixed-window 9/d"), policies("fixed-window 9/d", ("login", "fixed-window 3/d"))
    with weir_server.Server(policies=one) as server, http_client.Client(server.port) as client:
        for way, happen in ways(server, client).items():
            client.post("/v1/reset", {"key": "login/{user=ann}"})
            check.equal(take(client, path="/login")["verdict"], "none", f"{way}: not there yet")
            server.write("policies.yaml", two)
            happen()
            check.equal([take(client, path="/login")["remaining"] for _ in range(2)], [2, 1], f"{way}: added")
            check.equal([it["name"] for it in client.get("/v1/policies").json["policies"]], ["api", "login"],
                        f"{way}: told of")
            check(b'policy="login"' in client.get("/metrics").body, f"{way}: counted")
            server.write("policies.yaml", one)
            happen()
            check.equal(take(client, path="/login")["verdict"], "none", f"{way}: removed")
            problem(check, client.get("/v1/take", policy="login", key="k"), 400, "login", f"{way}: not by name either")
            server.write("policies.yaml", two)
            happen()
            check.equal(take(client, path="/login")["remaining"], 0, f"{way}: back, with what was spent")
            server.write("policies.yaml", one)
            happen()
        trusting = one.replace("version: 1", "version: 1\ntrusted_proxies: [127.0.0.1]\nheaders: x-ratelimit")
        server.write("policies.yaml", trusting)
        client.post("/v1/reload")
        answer = client.get("/v1/take", {"x-original-uri": "/api/y", "x-forwarded-user": "bob"})
        check.equal(answer.json["verdict"], "limits", "trusted proxies change, too")
        check("x-ratelimit-limit" in answer.fields, "and headers")


# ---- mistakes ----

def test_broken(check):
    """Nothing changes, and everybody is told where the mistake is."""
    with weir_server.Server(policies=policies("fixed-window 10/d")) as server, \
            http_client.Client(server.port) as client:
        spent = 0
        for way, happen in ways(server, client).items():
            server.write("policies.yaml", policies("fixed-window 10/d"))
            happen()
            before = reloads(client)
            check.equal(before["failing"], False, f"{way}: all is well")
            server.write("policies.yaml", BROKEN)
            seen = len(server.errors)
            if way == "POST":
                problem(check, client.post("/v1/reload"), 409, "policies.yaml:5:12", "POST")
            else:
                happen()
                said = "\n".join(server.errors[seen:])
                check("nothing changed" in said and "policies.yaml:5:12" in said, f"{way}: {said!r}")
                check("tokn-bucket" in said, f"{way}: the mistake is shown, {said!r}")
            after = reloads(client)
            check.equal((after["failed"] - before["failed"], after["ok"], after["failing"]), (1, before["ok"], True),
                        f"{way}: counted")
            check(re.search(rb'weir_\w*reload\w*\{[^}]*"?fail\w*"?[^}]*\} [1-9]', client.get("/metrics").body),
                  f"{way}: in the metrics")
            spent += 1
            check.equal(take(client)["remaining"], 10 - spent, f"{way}: the old ones stay in force")
        time.sleep(2.2)
        check.equal(len(re.findall("a file has changed: nothing", server.stderr())), 1, "a mistake is told of once")
        os.unlink(server.folder / "policies.yaml")
        problem(check, client.post("/v1/reload"), 409, "policies.yaml", "no file at all")
        check.equal(take(client)["remaining"], 10 - spent - 1, "changes nothing either")
        server.write("policies.yaml", b"\xff\xfe" + os.urandom(100))
        problem(check, client.post("/v1/reload"), 409, "policies.yaml", "no text")
        server.write("policies.yaml", "x" * (5 << 20))
        problem(check, client.post("/v1/reload"), 409, "4 MiB", "too long")
        server.write("policies.yaml", policies("fixed-window 30/d"))
        check.equal(client.post("/v1/reload").json, {"reloaded": True}, "mended")
        check.equal((reloads(client)["failing"], take(client)["limit"]), (False, 30), "and in force")


def test_watching(check):
    with weir_server.Server("--no-watch", policies=policies("fixed-window 10/d")) as server, \
            http_client.Client(server.port) as client:
        server.write("policies.yaml", policies("fixed-window 20/d"))
        time.sleep(2.2)
        check.equal(take(client)["limit"], 10, "--no-watch: left alone")
        server.signal(signal.SIGHUP)
        check(server.wait_for(lambda: take(client)["limit"] == 20), "SIGHUP still reads it")
    with weir_server.Server(policies=policies("fixed-window 10/d")) as server, \
            http_client.Client(server.port) as client:
        (server.folder / "policies.yaml").write_text(policies("fixed-window 30/d"))
        check(server.wait_for(lambda: take(client)["limit"] == 30, WATCH_SECONDS), "written in place")
        (server.folder / "other.yaml").write_text(policies("fixed-window 40/d"))
        (server.folder / "policies.yaml").unlink()
        time.sleep(1.2)
        check.equal(take(client)["limit"], 30, "gone for a while")
        os.symlink("other.yaml", server.folder / "policies.yaml")
        check(server.wait_for(lambda: take(client)["limit"] == 40, WATCH_SECONDS), "a link, as orchestrators make")
        seen = len(server.errors)
        time.sleep(2.2)
        check.equal(server.errors[seen:], [], "nothing is read again without a change")


def test_envoy(check):
    def rules(count):
        return ("domain: web\ndescriptors:\n  - key: user\n    rate_limit:\n"
                f"      unit: day\n      requests_per_unit: {count}\n")

    question = {"domain": "web", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}
    with weir_server.Server("--envoy envoy.yaml", files={"envoy.yaml": rules(2)}) as server, \
            http_client.Client(server.port) as client:
        check.equal([client.post("/json", question).status for _ in range(3)], [200, 200, 429], "two a day")
        server.write("envoy.yaml", rules(4))
        client.post("/v1/reload")
        check.equal([client.post("/json", question).status for _ in range(3)], [200, 200, 429], "two more")
        server.write("envoy.yaml", rules("many"))
        problem(check, client.post("/v1/reload"), 409, "envoy.yaml:6:", "a mistake")
        check.equal(client.post("/json", question).status, 429, "changes nothing")


# ---- under load ----

class Load(threading.Thread):
    """One user's requests, one connection, many under way at once. Whatever limit is in force, what is left is that less
    what this user has spent: any answer that is lost, doubled or of mixed policies shows."""
    LIMITS = {1000000: 1, 2000000: 2}  # how many policies apply beside it

    def __init__(self, port, number):
        super().__init__(daemon=True)
        self.port, self.user, self.by_post = port, f"user-{number}", number % 2
        self.spent, self.wrong, self.seen, self.stopping = 0, [], set(), False
        self.start()

    def run(self):
        try:
            attributes = {"path": "/api/x", "user": self.user}
            one = (post("/v1/take", {"attributes": attributes, "detail": True}) if self.by_post else
                   get("/v1/take", attr_path="/api/x", attr_user=self.user, detail=1))
            with http_client.Client(self.port) as client:
                while not self.stopping and not self.wrong:
                    client.send(one * 20)
                    for _ in range(20):
                        self.judge(client.read())
        except Exception as error:
            self.wrong.append(repr(error))

    def judge(self, answer):
        self.spent += 1
        body = answer.json if answer.status == 200 else {}
        rows = body.get("limits", [])
        first = rows[0] if rows else {}
        right = (answer.status == 200 and body["allowed"] and len(rows) == self.LIMITS.get(first["limit"])
                 and first["remaining"] == first["limit"] - self.spent and first["key"].endswith(f"user={self.user}}}"))
        if right:
            self.seen.add(first["limit"])
        else:
            self.wrong.append((self.spent, answer))


def put_under_load(check, options, what):
    texts = [policies("fixed-window 1000000/d"),
             HEAD + "".join(f"  - {{name: {name}, match: {{path: /api/*}}, key: user, limit: fixed-window {count}/d}}\n"
                            for name, count in (("api", 2000000), ("second", 3000000))), BROKEN]
    with weir_server.Server(f"--threads 2 {options}", policies=texts[0]) as server:
        loads = [Load(server.port, i) for i in range(4)]
        happened = 0
        with http_client.Client(server.port) as client:
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                server.write("policies.yaml", texts[happened % 3])
                if happened % 5 == 4:
                    server.signal(signal.SIGHUP)
                    time.sleep(0.01)
                elif happened % 97 == 96:
                    time.sleep(1.1)  # for it to be seen by itself
                else:
                    status = client.post("/v1/reload").status
                    check.equal(status, 409 if happened % 3 == 2 else 200, f"{what}: reload {happened}")
                happened += 1
            for load in loads:
                load.stopping = True
            for load in loads:
                load.join(20)
            counted = reloads(client)
        for load in loads:
            check.equal(load.wrong, [], f"{what}: {load.user}, of {load.spent} answers")
            check(load.spent > 100 and load.seen == set(Load.LIMITS), f"{what}: {load.spent} answers under {load.seen}")
        check(happened > 20, f"{what}: {happened} reloads")
        check(counted["ok"] > 10 and counted["failed"] > 5, f"{what}: {counted}")


def test_under_load(check):
    put_under_load(check, "", "memory")


def test_under_load_remote(check):
    with redis_server.Server() as redis:
        put_under_load(check, f"--store redis://127.0.0.1:{redis.port}?deadline=10s", "redis")


def test_many_reloads(check):
    """What was in force before is let go of."""
    many = HEAD + "".join(f"  - {{name: p{i}, match: {{path: /p{i}/*}}, key: user, limit: fixed-window 5/d}}\n"
                          for i in range(300))
    env = {"ASAN_OPTIONS": "quarantine_size_mb=1"}  # or the sanitizer keeps what was freed
    with weir_server.Server(policies=many, env=env) as server, http_client.Client(server.port) as client:
        def memory():
            with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
                return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])
        for _ in range(20):
            client.post("/v1/reload")
        before = memory()
        for _ in range(150):
            client.post("/v1/reload")
        check(memory() - before < 20000, f"{memory() - before} kB more after 150 reloads of 300 policies")


def test_access_log(check):
    """SIGHUP opens the log anew, so that it can be rotated; no line is lost."""
    with weir_server.Server("--access-log log", policies=policies("fixed-window 100/d")) as server, \
            http_client.Client(server.port) as client:
        for i in range(10):
            take(client, f"a{i}")
        log, old = server.folder / "log", server.folder / "log.1"
        check(server.wait_for(lambda: log.exists() and log.read_text().count("\n") == 10), "ten lines")
        log.rename(old)
        server.signal(signal.SIGHUP)
        check(server.wait_for(log.exists), "a new file")
        for i in range(10):
            take(client, f"b{i}")
        check(server.wait_for(lambda: log.read_text().count("\n") == 10), "ten lines more")
        check.equal(old.read_text().count("\n"), 10, "and the old one as it was")
        check(all(f"user=b{i}}}" in log.read_text() for i in range(10)), "with their keys")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(weir_server.run(TESTS, sys.argv[1:]))

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

from lib import abuse_tools, checks, http_client, redis_server, weir_server
from lib.http_client import get, post
from http_wire import problem


HEAD = "version: 1\npolicies:\n"
BROKEN = HEAD + "  - name: api\n    key: user\n    limit: tokn-bucket 1/s\n"
LOAD_SECONDS = 5.0
ENOUGH = 40  # reloads under load


def policies(limit, *more):
    """One policy for /api/* by user, and any others."""
    return HEAD + f"  - {{name: api, match: {{path: /api/*}}, key: user, limit: {limit}}}\n" + "".join(
        f"  - {{name: {name}, match: {{path: /{name}}}, key: user, limit: {text}}}\n" for name, text in more)


def take(client, user="ann", path="/api/x", verb="take"):
    return client.get("/v1/" + verb, attr_path=path, attr_user=user, detail=1).json


def reloads(client):
    return client.get("/v1/stats").json["reloads"]


def requests_of(server):
    return abuse_tools.total(abuse_tools.metrics(server), "weir_requests_total", protocol="http")


class Way:
    """A server, and one way to have a file of it read again. change() is back when that has happened. Unless that is
    the way, the server does not look by itself: it might see a change before it is told of it, and tell of it twice."""

    def __init__(self, name, text):
        self.name = name
        self.server = weir_server.Server("" if name == "watching" else "--no-watch", policies=text)

    def __enter__(self):
        self.server.__enter__()
        self.client = http_client.Client(self.server.port)
        return self

    def __exit__(self, *reason):
        self.client.close()
        self.server.__exit__(*reason)

    def change(self, text):
        """Puts the file there and has it read; the answer to a POST."""
        word = {"SIGHUP": "SIGHUP: ", "watching": "a file has changed: "}.get(self.name)
        seen = word and self.server.stderr().count(word)
        self.server.write("policies.yaml", text)
        if self.name == "POST":
            return self.client.post("/v1/reload")
        if self.name == "SIGHUP":
            self.server.signal(signal.SIGHUP)
        assert self.server.wait_for(lambda: self.server.stderr().count(word) > seen), f"{self.name}: not read"
        return None


def ways(text):
    """A server of these policies for each way."""
    for name in ("SIGHUP", "POST", "watching"):
        with Way(name, text) as way:
            yield way


# ---- what is kept ----

def test_state_is_kept(check):
    for way in ways(policies("fixed-window 10/d from-first")):
        for _ in range(7):
            last = take(way.client)
        check.equal((last["limit"], last["remaining"]), (10, 3), f"{way.name}: seven of ten")
        way.change(policies("fixed-window 20/d from-first"))
        body = take(way.client)
        check.equal((body["limit"], body["remaining"]), (20, 12), f"{way.name}: eight of twenty")
        way.change(policies("fixed-window 5/d from-first"))
        body = take(way.client)
        check.equal((body["allowed"], body["limit"], body["remaining"]), (False, 5, 0), f"{way.name}: over five")
        way.change(policies("fixed-window 20/h from-first"))
        check.equal(take(way.client)["remaining"], 19, f"{way.name}: another period starts afresh")
        way.change(policies("fixed-window 20/d from-first"))
        check.equal(take(way.client)["remaining"], 11, f"{way.name}: the first one was not forgotten")


def test_added_and_removed(check):
    one = policies("fixed-window 9/d from-first")
    two = policies("fixed-window 9/d from-first", ("login", "fixed-window 3/d from-first"))
    for way in ways(one):
        client = way.client
        check.equal(take(client, path="/login")["verdict"], "none", f"{way.name}: not there yet")
        way.change(two)
        check.equal([take(client, path="/login")["remaining"] for _ in range(2)], [2, 1], f"{way.name}: added")
        check.equal([it["name"] for it in client.get("/v1/policies").json["policies"]], ["api", "login"],
                    f"{way.name}: told of")
        check(b'policy="login"' in client.get("/metrics").body, f"{way.name}: counted")
        way.change(one)
        check.equal(take(client, path="/login")["verdict"], "none", f"{way.name}: removed")
        problem(check, client.get("/v1/take", policy="login", key="k"), 400, "login", f"{way.name}: not by name either")
        way.change(two)
        check.equal(take(client, path="/login")["remaining"], 0, f"{way.name}: back, with what was spent")
        way.change(one.replace("version: 1", "version: 1\ntrusted_proxies: [127.0.0.1]\nheaders: x-ratelimit"))
        answer = client.get("/v1/take", {"x-original-uri": "/api/y", "x-forwarded-user": "bob"})
        check.equal(answer.json["verdict"], "limits", f"{way.name}: trusted proxies change, too")
        check("x-ratelimit-limit" in answer.fields, f"{way.name}: and headers")


# ---- mistakes ----

def test_broken(check):
    """Nothing changes, and everybody is told where the mistake is."""
    for way in ways(policies("fixed-window 10/d from-first")):
        server, client = way.server, way.client
        before, seen = reloads(client), len(server.errors)
        check.equal(before["failing"], False, f"{way.name}: all is well")
        answer = way.change(BROKEN)
        if way.name == "POST":
            problem(check, answer, 409, "policies.yaml:5:12", "POST")
        else:
            said = lambda: "\n".join(server.errors[seen:])  # noqa: E731
            check(server.wait_for(lambda: "tokn-bucket" in said()), f"{way.name}: the mistake is shown, {said()!r}")
            check("the older policies stay in force" in said() and "policies.yaml:5:12" in said(), f"{way.name}: {said()!r}")
        after = reloads(client)
        check.equal((after["failed"] - before["failed"], after["ok"], after["failing"]), (1, before["ok"], True),
                    f"{way.name}: counted")
        check(re.search(rb'weir_\w*reload\w*\{[^}]*"?fail\w*"?[^}]*\} [1-9]', client.get("/metrics").body),
              f"{way.name}: in the metrics")
        check.equal(take(client)["remaining"], 9, f"{way.name}: the old ones stay in force")
        if way.name == "watching":
            time.sleep(2.2)  # it has looked twice since
            check.equal(server.stderr().count("a file has changed: the older policies"), 1, "a mistake is told of once")
        else:
            mistakes_by_request(check, way)
        way.change(policies("fixed-window 30/d from-first"))
        check.equal((reloads(client)["failing"], take(client)["limit"]), (False, 30), f"{way.name}: mended, and in force")


def mistakes_by_request(check, way):
    server, client = way.server, way.client
    os.unlink(server.folder / "policies.yaml")
    problem(check, client.post("/v1/reload"), 409, "policies.yaml", "no file at all")
    check.equal(take(client)["remaining"], 8, "changes nothing either")
    server.write("policies.yaml", b"\xff\xfe" + os.urandom(100))
    problem(check, client.post("/v1/reload"), 409, "policies.yaml", "no text")
    server.write("policies.yaml", "x" * (5 << 20))
    problem(check, client.post("/v1/reload"), 409, "4 MiB", "too long")
    server.write("policies.yaml", policies("fixed-window 20/d from-first"))
    check.equal(client.post("/v1/reload").json, {"reloaded": True}, "mended by request")


def test_watching(check):
    with weir_server.Server("--no-watch", policies=policies("fixed-window 10/d")) as server, \
            http_client.Client(server.port) as client:
        server.write("policies.yaml", policies("fixed-window 20/d"))
        time.sleep(2.2)  # it would have looked twice
        check.equal(take(client)["limit"], 10, "--no-watch: left alone")
        server.signal(signal.SIGHUP)
        check(server.wait_for(lambda: take(client)["limit"] == 20), "SIGHUP still reads it")
    with weir_server.Server(policies=policies("fixed-window 10/d")) as server, \
            http_client.Client(server.port) as client:
        in_force = lambda: server.stderr().count("a file has changed: the policies are in force")  # noqa: E731
        (server.folder / "policies.yaml").write_text(policies("fixed-window 30/d"))
        check(server.wait_for(lambda: take(client)["limit"] == 30), "written in place")
        (server.folder / "other.yaml").write_text(policies("fixed-window 40/d"))
        (server.folder / "policies.yaml").unlink()
        time.sleep(1.2)  # it has looked
        check.equal(take(client)["limit"], 30, "gone for a while")
        told = in_force()
        os.symlink("other.yaml", server.folder / "policies.yaml")
        check(server.wait_for(lambda: take(client)["limit"] == 40), "a link, as orchestrators make")
        check(server.wait_for(lambda: in_force() > told), "a link: told of")
        seen = len(server.errors)
        time.sleep(2.2)  # it has looked twice since
        check.equal(server.errors[seen:], [], "nothing is read again without a change")


def test_written_in_place(check):
    """Half of a file may be a good file: it is not read while somebody has it open for writing."""
    whole = policies("fixed-window 30/d", ("login", "fixed-window 5/d"))
    with weir_server.Server("", policies=policies("fixed-window 20/d")) as server:
        with http_client.Client(server.port) as client:
            path = server.folder / "policies.yaml"
            with open(path, "w", encoding="utf-8") as file:
                file.write(whole[:whole.index("  - {name: login")])
                file.flush()
                check(server.wait_for(lambda: "is open for writing" in server.stderr()), "it says what it waits for")
                answer = client.ask(post("/v1/reload", {}))
                problem(check, answer, 409, "rename", "it is not read by force either")
                server.signal(signal.SIGHUP)
                check(server.wait_for(lambda: "SIGHUP: the older policies stay in force" in server.stderr()), "nor by SIGHUP")
                check.equal(take(client)["limit"], 20, "the old policies are in force")
                file.write(whole[whole.index("  - {name: login"):])
            check(server.wait_for(lambda: take(client, path="/login")["verdict"] == "limits"), "read when it is closed")
            check.equal(take(client)["limit"], 30, "all of it")


def test_envoy(check):
    def rules(count):
        return ("domain: web\ndescriptors:\n  - key: user\n    rate_limit:\n"
                f"      unit: year\n      requests_per_unit: {count}\n")

    question = {"domain": "web", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}
    with weir_server.Server("--envoy envoy.yaml", files={"envoy.yaml": rules(2)}) as server, \
            http_client.Client(server.port) as client:
        check.equal([client.post("/json", question).status for _ in range(3)], [200, 200, 429], "two a year")
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


def enough(loads, happened, start):
    """Whether every user was answered under each of the limits, and there were reloads enough; a slow machine needs
    longer for that, but not for ever."""
    seen = all(load.wrong or (load.spent > 100 and load.seen == set(load.LIMITS)) for load in loads)
    return (seen and happened > ENOUGH) or time.monotonic() - start > weir_server.PATIENCE_SECONDS


def put_under_load(check, options, what):
    texts = [policies("fixed-window 1000000/d from-first"),
             HEAD + "".join(f"  - {{name: {name}, match: {{path: /api/*}}, key: user, limit: fixed-window {count}/d from-first}}\n"
                            for name, count in (("api", 2000000), ("second", 3000000))), BROKEN]
    with weir_server.Server(f"--threads 2 {options}", policies=texts[0]) as server:
        loads = [Load(server.port, i) for i in range(4)]
        happened = 0
        with http_client.Client(server.port) as client:
            start = time.monotonic()
            while time.monotonic() - start < LOAD_SECONDS or not enough(loads, happened, start):
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
                load.join(weir_server.PATIENCE_SECONDS)
            counted = reloads(client)
        for load in loads:
            check.equal(load.wrong, [], f"{what}: {load.user}, of {load.spent} answers")
            check(load.spent > 100 and load.seen == set(Load.LIMITS), f"{what}: {load.spent} answers under {load.seen}")
        check(happened > ENOUGH, f"{what}: {happened} reloads")
        check(counted["ok"] > 10 and counted["failed"] > 5, f"{what}: {counted}")


def test_under_load(check):
    put_under_load(check, "", "memory")


def test_under_load_remote(check):
    with redis_server.Server() as redis:
        put_under_load(check, f"--store redis://127.0.0.1:{redis.port}?deadline=1m", "redis")


def test_post_is_told(check):
    """What POST /v1/reload did is in the log, too, for whoever looks there later."""
    with weir_server.Server("--no-watch", policies=policies("fixed-window 5/d")) as server, http_client.Client(server.port) as client:
        check.equal(client.post("/v1/reload").status, 200, "reloaded")
        server.write("policies.yaml", BROKEN)
        check.equal(client.post("/v1/reload").status, 409, "refused")
        check("POST /v1/reload: the policies are in force" in server.stderr(), f"told: {server.stderr()}")
        check(re.search("POST /v1/reload: the older policies stay in force: .*tokn-bucket", server.stderr()), f"and why not: {server.stderr()}")


def test_answered_later(check):
    """What was planned by policies that are gone when Redis answers is told by those policies."""
    match = ", ".join(f'a{i}: "*"' for i in range(6))
    old = HEAD + f"  - {{name: old, match: {{{match}}}, deny: [{{a5: bad}}], key: a0, limit: fixed-window 5/m}}\n"
    attributes = dict.fromkeys((f"a{i}" for i in range(5)), "x") | {"a5": "bad"}
    with redis_server.Server() as redis, weir_server.Server(
            f"--threads 1 --no-watch --store redis://127.0.0.1:{redis.port}?deadline=1m", policies=old) as server, \
            http_client.Client(server.port) as client, http_client.Client(server.port) as other:
        before = client.post("/v1/explain", {"attributes": attributes}).json
        check("a5 is bad" in before["detail"], f"the reason: {before}")
        redis.signal(signal.SIGSTOP)
        looks = [requests_of(server)]  # each look is a request, too
        client.send(post("/v1/explain", {"attributes": attributes}))
        check(server.wait_for(lambda: looks.append(requests_of(server)) or looks[-1] - looks[0] == len(looks)), "Redis is asked")
        server.write("policies.yaml", HEAD + "  - {name: new, key: \"'all'\", limit: fixed-window 5/m}\n")
        check.equal(other.post("/v1/reload").status, 200, "other policies")
        redis.signal(signal.SIGCONT)
        check.equal(client.read().json["detail"], before["detail"], "the same reason")


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


def test_deleted_file(check):
    """A file that stays away is a failing reload, told once and counted; what was in force stays. Back again, all is well."""
    text = "version: 1\npolicies:\n  - {name: a, match: {path: /a}, key: user, limit: token-bucket 5/s}\n"
    with weir_server.Server("--threads 1", policies=text) as server, http_client.Client(server.port) as client:
        def failing():
            lines = client.get("/metrics").body.decode().splitlines()
            return [line.split()[1] for line in lines if line.startswith("weir_policy_reload_failing ")] == ["1"]
        check(not failing(), "at first nothing fails")
        (server.folder / "policies.yaml").unlink()
        check(server.wait_for(failing), "it counts as failing")
        check(server.wait_for(lambda: "policies.yaml" in server.stderr() and "the older policies stay" in server.stderr()),
              f"it is told: {server.stderr()!r}")
        names = [it["name"] for it in client.get("/v1/policies").json["policies"]]
        check.equal(names, ["a"], "what was in force stays")
        said = server.stderr().count("the older policies stay")
        server.write("policies.yaml", text.replace("name: a", "name: b"))
        check(server.wait_for(lambda: not failing()), "back again")
        check.equal(said, 1, "it was told once")


def test_notes(check):
    """What weir check notes is in the log and in the answer, at most ten of them."""
    entry = "{name: NAME, limit: fixed-window 9/month from 15}"
    override = "{when: {user: ann}, entry: NAME, limit: fixed-window 99/month}"
    text = "version: 1\npolicies:\n" + "".join(
        f"  - {{name: p{n}, match: {{path: /p{n}}}, key: user, limits: [{entry}], overrides: [{override}]}}\n".replace("NAME", f"n{n}") for n in range(12))
    note = "note: 1 override of p{0}, limit n{0}, has another algorithm, period, precision, zone or anchor than the limit itself, so whom it applies to starts from a fresh state: line {1} (user is ann)"
    with weir_server.Server("--no-watch", policies=text) as server, http_client.Client(server.port) as client:
        check.contains(server.stderr(), note.format(9, 12), "at the start")
        check(note.format(10, 13) not in server.stderr() and "there are more notes" in server.stderr(), "and no more than ten")
        notes = client.post("/v1/reload").json["notes"]
        check.equal([line.startswith(note.format(n, n + 3)) for n, line in enumerate(notes)], [True] * 10 + [False], f"in the answer: {notes}")
        server.write("policies.yaml", text.replace("99/month", "99/month from 15"))
        check.equal(client.post("/v1/reload").json, {"reloaded": True}, "mended: nothing to note")
        server.write("policies.yaml", text.replace("99/month", "99/month from 15").replace("when: {user: ann}", "when: {usre: ann}", 1))
        check.equal([line[:58] for line in client.post("/v1/reload").json["notes"]], ['note: the attribute "usre" looks misspelt (did you mean us'], "a name misspelt")
        server.write("policies.yaml", HEAD + "  - {name: a, match: {header.x-api-key: p*}, key: header.x-api-kye, limit: fixed-window 9/d, allow: [{header.x-api-key: y}]}\n")
        check.equal([line[:66] for line in client.post("/v1/reload").json["notes"]], ['note: the attribute "header.x-api-kye" looks misspelt (did you mea'], "a field")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

#!/usr/bin/env python3
"""What a running server tells of itself: that decisions arrive in /metrics, /v1/stats, /v1/top and the access log, all
of them the same ones; and `weir top`, which shows them: once, as JSON, live on a terminal, and where it cannot.
"""
import fcntl
import http.server
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time

from lib import abuse_tools, checks, http_client, store_proxy, weir_server

POLICIES = """version: 1
policies:
  - name: api
    match: {path: /api/*}
    limits:
      - {name: per-user, key: user, limit: fixed-window 5/366d}
      - {name: all, key: global, limit: fixed-window 1000/366d}
      - {name: strict, key: user, limit: fixed-window 2/366d, shadow: true}
    allow: {user: [root]}
    deny: {user: [evil]}
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def weir_top(*words, env=None):
    return subprocess.run([weir_server.WEIR, "top", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=weir_server.PATIENCE_SECONDS, env=weir_server.environment(env))


def ask(client, user, times=1):
    for _ in range(times):
        client.get("/v1/take", attr_path="/api/x", attr_user=user)


# ---- the reports agree ----

def test_decisions_are_told(check):
    with weir_server.Server("--access-log log", policies=POLICIES) as server, \
            http_client.Client(server.port) as client:
        ask(client, "ann", 8)  # five allowed, three denied; two allowed and six denied in shadow
        ask(client, "bob", 2)
        ask(client, "root", 3)
        ask(client, "evil", 4)
        client.get("/v1/take", key="own", limit="fixed-window 1/366d")
        values = abuse_tools.metrics(server)
        for name, labels, wanted in (
                ("weir_decisions_total", {"outcome": "allowed"}, 8),
                ("weir_decisions_total", {"outcome": "denied"}, 3),
                ("weir_decisions_total", {"outcome": "allow_list"}, 3),
                ("weir_decisions_total", {"outcome": "deny_list"}, 4),
                ("weir_policy_decisions_total", {"policy": "api", "outcome": "allowed"}, 7),
                ("weir_policy_decisions_total", {"policy": "api", "outcome": "denied"}, 3),
                ("weir_policy_decisions_total", {"policy": "", "outcome": "allowed"}, 1),
                ("weir_limit_decisions_total", {"limit": "per-user", "outcome": "denied"}, 3),
                ("weir_limit_decisions_total", {"limit": "all", "outcome": "denied"}, 0),
                ("weir_shadow_decisions_total", {"limit": "strict", "outcome": "denied"}, 6),
                ("weir_http_responses_total", {"class": "4xx"}, 7)):
            check.equal(abuse_tools.total(values, name, **labels), wanted, f"{name} {labels}")

        stats = client.get("/v1/stats").json
        check.equal((stats["totals"]["allowed"], stats["totals"]["denied"], stats["totals"]["shadow_denied"]), (11, 7, 6),
                    "the totals of /v1/stats")
        api = [policy for policy in stats["policies"] if policy["name"] == "api"][0]
        check.equal([(it["name"], it["shadow"], it["denied"]) for it in api["limits"]],
                    [("per-user", False, 3), ("all", False, 0), ("strict", True, 6)], "limits of /v1/stats")
        latency = json.loads(client.get("/v1/stats").body)["latency"]  # as floats: six decimals are chance here
        check(latency["count"] >= 18 and 0 <= latency["p50"] <= latency["p999"] < 60, f"latency: {latency}")

        history = client.get("/v1/history").json
        check.equal([sum(history["totals"][name]) for name in ("allowed", "denied", "shadow_denied")], [11, 7, 6],
                    "the totals of /v1/history")
        api = [policy for policy in history["policies"] if policy["name"] == "api"][0]
        check.equal([(it["name"], it["shadow"], sum(it["denied"])) for it in api["limits"]],
                    [("per-user", False, 3), ("strict", True, 6)], "limits of /v1/history, but for one that counted nothing")
        check.equal(len(history["edges"]), len(history["totals"]["allowed"]) + 1, "edges of /v1/history")

        top = {policy["name"]: policy for policy in client.get("/v1/top").json["policies"]}
        check.contains(top["api"]["denied"][0]["key"], "user=ann", "the most denied key")
        check.equal(len(top["api"]["denied"]), 1, "denied keys")
        check.equal(top[""]["hottest"][0]["key"], "own", "the key of a request with its own limit")
        check.equal([policy["name"] for policy in client.get("/v1/top", policy="api", k=1).json["policies"]], ["api"],
                    "one policy")

        log = server.folder / "log"
        check(server.wait_for(lambda: log.exists() and log.read_text().count("\n") == 18), "a line a decision")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        check.equal(sum(line["allowed"] for line in lines), 11, "allowed lines")
        check.equal([line["verdict"] for line in lines],
                    ["limits"] * 10 + ["allow"] * 3 + ["deny"] * 4 + ["limits"], "verdicts, in order")
        check.equal({line["entry"] for line in lines[5:8]}, {"per-user"}, "the entry that was in the way")
        check.equal(sum(line["shadow_denied"] for line in lines), 6, "what would have been denied in shadow")
        check(all(line["client"] == "127.0.0.1" and line["protocol"] == "http" for line in lines), "who asked")


def test_denials_are_always_logged(check):
    with weir_server.Server("--access-log log --access-log-sample 1000000 --access-log-denials", policies=POLICIES) as server, \
            http_client.Client(server.port) as client:
        ask(client, "ann", 20)
        log = server.folder / "log"
        # three of the five allowed ones are denied in shadow, and logged as well
        check(server.wait_for(lambda: log.exists() and log.read_text().count("\n") >= 18), "eighteen lines")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        check.equal(sum(not line["allowed"] for line in lines), 15, "denied lines")
        check(len(lines) <= 19, f"{len(lines)} lines: three that a limit in shadow would have denied; others are one in a million")


def logged(server, count):
    """The lines of the log, once there are so many."""
    path = server.folder / "log"
    server.wait_for(lambda: path.exists() and path.read_text().count("\n") >= count)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_shadows_name_their_keys(check):
    """Whom a limit in shadow would have denied: in the ranking, in the log, in the metrics."""
    options = "--access-log log --access-log-sample 1000000000 --access-log-denials"
    with weir_server.Server(options, policies=POLICIES) as server, http_client.Client(server.port) as client:
        ask(client, "ann", 4)
        ask(client, "bob", 1)
        lines = logged(server, 2)
        check.equal([(line["allowed"], line["shadow_denied"], line["shadows"]) for line in lines],
                    2 * [(True, 1, [{"policy": "api", "entry": "strict", "key": "api/strict/{user=ann}"}])],
                    "the third and the fourth are logged, with limit and key")
        top = client.get("/v1/top", policy="api").json["policies"]
        check.equal([[row["key"] for row in policy["shadow_denied"]] for policy in top], [["api/strict/{user=ann}"]],
                    "the ranking")
        check.equal([policy["name"] for policy in client.get("/v1/top").json["policies"]], ["api"], "and no other table")
        check.contains(client.get("/metrics").body.decode(),
                       'weir_shadow_decisions_total{policy="api",limit="strict",outcome="denied"} 2', "the metric")
    only = "version: 1\npolicies:\n  - {name: w, key: user, shadow: true, limit: fixed-window 1/366d}\n"
    with weir_server.Server("", policies=only) as server, http_client.Client(server.port) as client:
        for _ in range(3):
            client.get("/v1/take", attr_user="ann")
        top = client.get("/v1/top").json["policies"]
        check.equal([row["key"] for row in top[0]["shadow_denied"]], ["w/{user=ann}"], "a policy of nothing but shadows")


def test_shadows_without_a_key(check):
    """missing: deny in shadow: who has no key would be denied, and is counted, in whatever form it comes."""
    policies = """version: 1
policies:
  - {name: apart, match: {path: /apart}, key: user, missing: deny, shadow: true, limit: fixed-window 9/d}
  - name: beside
    match: {path: /beside}
    key: user
    limits:
      - {name: all, key: "'all'", limit: fixed-window 9/d}
      - {name: own, missing: deny, shadow: true, limit: fixed-window 9/d}
      - {name: lax, shadow: true, limit: fixed-window 9/d}
  - {name: exempt, match: {path: /exempt}, key: "'all'", allow: [{path: /exempt}], limit: fixed-window 9/d}
  - {name: dry, match: {path: /exempt}, key: user, missing: deny, shadow: true, limit: fixed-window 9/d}
"""
    with weir_server.Server("--access-log log --access-log-sample 1000000000 --access-log-denials", policies=policies) as server, \
            http_client.Client(server.port) as client, server.client() as resp:
        answers = [client.post("/v1/take", {"attributes": {"path": path}}) for path in ("/apart", "/beside")]
        check.equal([(it.status, it.json["verdict"]) for it in answers], [(200, "none"), (200, "limits")], "nobody is denied")
        resp.call("WEIR.DECIDE", "path", "/apart")
        client.post("/v1/take", {"attributes": {"path": "/apart", "user": "ann"}})
        exempt = client.post("/v1/take", {"attributes": {"path": "/exempt"}})
        check.equal((exempt.status, exempt.json["verdict"]), (200, "allow"), "the allow list of another policy: enforced, it would be denied as well")
        lines = [(line["allowed"], line["shadow_denied"], line["shadows"]) for line in logged(server, 4)]
        wanted = [(True, 1, [{"policy": policy, "entry": entry, "key": None}]) for policy, entry in (("apart", "apart"), ("beside", "own"), ("apart", "apart"), ("dry", "dry"))]
        check.equal(sorted(lines, key=str), sorted(wanted, key=str), "the log, whose lines are of two threads")
        page = client.get("/metrics").body.decode()
        for policy, limit, outcome, count in (("apart", "apart", "denied", 2), ("apart", "apart", "allowed", 1), ("beside", "own", "denied", 1), ("beside", "lax", "denied", 0),
                                              ("dry", "dry", "denied", 1)):
            check.contains(page, f'weir_shadow_decisions_total{{policy="{policy}",limit="{limit}",outcome="{outcome}"}} {count}', "the metric")
        check.equal(client.get("/v1/stats").json["totals"]["shadow_denied"], 4, "the totals")


def test_requests_are_logged(check):
    """With --access-log-request: address, method and path, as policies read them."""
    text = POLICIES.replace("version: 1\n", "version: 1\ntrusted_proxies: [127.0.0.1]\n")
    for option in ("--access-log-request", ""):
        with weir_server.Server(f"--access-log log {option}", policies=text) as server, \
                http_client.Client(server.port) as client:
            fields = {"x-forwarded-for": "192.0.2.7", "x-forwarded-uri": "/api/x;a?secret=1", "x-forwarded-method": "PUT",
                      "x-forwarded-user": "ann"}
            client.ask(http_client.get("/v1/take", fields))
            client.post("/v1/take", {"attributes": {"path": "/api/" + "y" * 300, "user": "ann", "method": "POST"}})
            client.get("/v1/take", key="k", limit="fixed-window 1/d")
            lines = [[line.get(name) for name in ("client", "ip", "method", "path")] for line in logged(server, 3)]
            wanted = [["127.0.0.1", "192.0.2.7", "PUT", "/api/x"], ["127.0.0.1", None, "POST", "/api/" + "y" * 195],
                      ["127.0.0.1", None, None, None]]
            check.equal(lines, wanted if option else 3 * [["127.0.0.1", None, None, None]], f"logged with {option!r}")


def test_demonstration(check):
    """The built-in policies are there only where no file is named."""
    rules = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]\n"
    none = "version: 1\npolicies: []\n"
    for options, files, policies, there in (("", {}, None, True), ("--envoy rules.yaml", {"rules.yaml": rules}, None, False),
                                            ("", {}, none, False)):
        with weir_server.Server(options, policies=policies, files=files) as server, \
                http_client.Client(server.port) as client:
            verdict = client.get("/v1/take", attr_path="/login", attr_ip="192.0.2.1").json["verdict"]
            check.equal(verdict, "limits" if there else "none", f"{options} {policies}")
            names = [policy["name"] for policy in client.get("/v1/policies").json["policies"]]
            check.equal("demo-login" in names, there, f"{options} {policies}: {names}")
            check.equal("demonstration" in " ".join(server.lines), there, f"{options} {policies}: {server.lines}")


def test_reload_keeps_counts(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        ask(client, "ann", 7)
        server.write("policies.yaml", POLICIES.replace("name: api", "name: other"))
        client.post("/v1/reload")
        ask(client, "ann", 1)
        stats = client.get("/v1/stats").json
        found = {policy["name"]: policy for policy in stats["policies"]}
        check.equal((found["api"]["allowed"], found["api"]["denied"], found["api"].get("gone")), (5, 2, True), "what is gone")
        check.equal((found["other"]["allowed"], found["other"].get("gone")), (1, None), "what came")
        server.write("policies.yaml", POLICIES)
        client.post("/v1/reload")
        ask(client, "ann", 1)
        found = {policy["name"]: policy for policy in client.get("/v1/stats").json["policies"]}
        check.equal((found["api"]["denied"], found["api"].get("gone")), (3, None), "what is back")


# ---- weir top ----

class Between(store_proxy.Proxy):
    """On the way to a server: does something once, after the first reading of `weir top` and before the second."""

    def __init__(self, port, act):
        super().__init__(port)
        self.act, self.seen = act, b""

    def ask(self, data):
        self.seen += data
        if self.act and self.seen.count(b"GET /v1/stats") > 1:
            self.act()
            self.act = None


def test_top_once(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        ask(client, "ann", 8)
        with Between(server.port, lambda: ask(client, "busy", 10)) as between:
            done = weir_top(f"127.0.0.1:{between.port}", "--once")
        with Between(server.port, lambda: ask(client, "busy", 10)) as between:
            piped = weir_top(f"http://127.0.0.1:{between.port}/")
        for it, how in ((done, "--once"), (piped, "without a terminal")):
            check.equal((it.returncode, it.stderr), (0, ""), how)
            check(not ESCAPES.search(it.stdout), f"{how}: no escapes")
            check(max(map(len, it.stdout.splitlines())) <= 80, f"{how}: 80 columns")
            for part in ("weir 0.", "POLICY", "api", "  per-user", "  strict shadow", "HOTTEST KEYS", "MOST DENIED KEYS",
                         "{user=busy}", "store memory"):
                check.contains(it.stdout, part, how)
            rates = re.search(r"denied ([\d.]+)/s", it.stdout)
            check(rates and float(rates[1]) > 0, f"{how}: a rate of what happens meanwhile: {it.stdout.splitlines()[1]}")


def test_top_names_a_key_once(check):
    """A key that is asked for by its policy and by itself is one key, with both rates; keys that only begin alike are two."""
    key, long = "api/per-user/{user=ann}", "x" * 100
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        ask(client, "ann", 3)
        for name in (key, long + "1", long + "2"):
            client.post("/v1/take", {"key": name, "limit": "fixed-window 1/h"})
        lists = [policy["hottest"] for policy in client.get("/v1/top").json["policies"]]
        check.equal(sum(row["key"] == key for rows in lists for row in rows), 2, "the server counts by policy")
        done = weir_top(f"127.0.0.1:{server.port}", "--once")
        hottest = done.stdout.partition("HOTTEST KEYS")[2].partition("MOST DENIED KEYS")[0]
        check.equal((hottest.count(key), hottest.count("\nxx")), (1, 2), f"listed: {hottest}")


def test_top_json(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        ask(client, "ann", 8)
        done = weir_top(f"127.0.0.1:{server.port}", "--json")
        check.equal(done.returncode, 0, "exit code")
        said = json.loads(done.stdout)
        check.equal(said["stats"]["totals"]["denied"], 3, "stats")
        check.equal(said["top"]["policies"][0]["name"], "api", "top")


def test_top_tokens_and_sockets(check):
    with weir_server.Server("--listen unix:sock --admin-token-file token", files={"token": "secret\n"}) as server:
        address = f"127.0.0.1:{server.port}"
        for words, env in (((), None), (("--token", "wrong"), None), ((), {"WEIR_TOKEN": "wrong"})):
            done = weir_top(address, *words, env=env)
            check.equal(done.returncode, 3, f"{words} {env}")
            check.contains(done.stderr, "admin token", f"{words} {env}")
        for words, env in (((address, "--token", "secret"), None), ((address,), {"WEIR_ADMIN_TOKEN": "secret"}),
                           ((f"unix:{server.folder}/sock",), {"WEIR_TOKEN": "secret"})):
            done = weir_top(*words, "--json", env=env)
            check.equal((done.returncode, done.stderr), (0, ""), f"{words} {env}")


class Stranger(http.server.BaseHTTPRequestHandler):
    answers = {"html": b"<html>", "json": b'{"a": 1}', "array": b"[]", "empty": b""}

    def do_GET(self):
        self.send_response(200 if self.server.kind in self.answers else int(self.server.kind))
        self.end_headers()
        self.wfile.write(self.answers.get(self.server.kind, b"no"))

    def log_message(self, *_):
        pass


def test_top_elsewhere(check):
    """What is not there, not weir, not even HTTP, or silent: said plainly."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        done = weir_top(f"127.0.0.1:{closed.getsockname()[1]}")
        check.equal(done.returncode, 3, "a closed port")
        check.contains(done.stderr, "Connection refused; is `weir serve` running there?", "a closed port")
    for kind in ("html", "json", "array", "empty", "404", "500"):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
            stranger.kind = kind
            threading.Thread(target=stranger.serve_forever, daemon=True).start()
            for option in ("--once", "--json"):
                done = weir_top(f"127.0.0.1:{stranger.server_port}", option)
                check.equal((done.returncode, done.stdout), (3, ""), f"{kind} {option}")
                check.contains(done.stderr, "not a weir server", f"{kind} {option}")
            stranger.shutdown()
    for greeting, said in ((b"SSH-2.0-x\r\n", "does not speak HTTP"), (b"", "closed without an answer"), (None, "no answer within")):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def greet(listener=listener, greeting=greeting):
                connection = listener.accept()[0]
                if greeting is not None:
                    connection.recv(1)
                    connection.sendall(greeting)
                    connection.shutdown(socket.SHUT_WR)
                return connection
            kept = []
            thread = threading.Thread(target=lambda: kept.append(greet()))
            thread.start()
            done = weir_top(f"127.0.0.1:{listener.getsockname()[1]}")
            thread.join()
            check.equal(done.returncode, 3, said)
            check.contains(done.stderr, said, said)
            kept[0].close()
    for address in ("ftp://x", "http://", "http://u@h", "http://h:0", "http://h:99999", "http://h:x", "unix:", "[::1", "a b"):
        done = weir_top(address)
        check.equal(done.returncode, 2, address)
        check.contains(done.stderr, address, address)


class Terminal:
    """`weir top` on a terminal of its own."""

    def __init__(self, address, rows, columns):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(weir_server.WEIR, ["weir", "top", address], dict(weir_server.environment(), TERM="xterm"))
        self.output = b""

    def watch(self, until, seconds=weir_server.PATIENCE_SECONDS):
        """Reads on until the output satisfies, or ends."""
        end = time.monotonic() + seconds
        while not until(self.output) and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    data = os.read(self.fd, 65536)
                except OSError:  # the other side is gone
                    data = b""
                if not data:
                    return
                self.output += data

    def end(self):
        """Waits for the end; the exit status."""
        self.watch(lambda _: False)
        os.close(self.fd)
        return os.waitpid(self.pid, 0)[1]

    def frames(self):
        """What stood on the screen, without escapes, as lists of lines."""
        return [ESCAPES.sub("", frame).split("\r\n") for frame in self.output.decode(errors="replace").split("\x1b[H")[1:]]


def test_top_live(check):
    with weir_server.Server(policies=POLICIES) as server, http_client.Client(server.port) as client:
        ask(client, "ann", 8)
        for rows, columns, ending in ((30, 120, "q"), (24, 80, "interrupt"), (10, 40, "terminate"), (3, 10, "q")):
            terminal = Terminal(f"127.0.0.1:{server.port}", rows, columns)
            terminal.watch(lambda output: output.count(b"\x1b[H") >= 3)
            if ending == "terminate":
                os.kill(terminal.pid, signal.SIGTERM)
            else:
                os.write(terminal.fd, b"q" if ending == "q" else b"\x03")
            check.equal(terminal.end(), 0, f"{ending}: exit status")
            check(terminal.output.startswith(b"\x1b[?1049h"), f"{ending}: a page of its own")
            check(terminal.output.endswith(b"\x1b[?25h\x1b[?1049l"), f"{ending}: the screen is given back")
            for frame in terminal.frames()[:3]:
                check(len(frame) <= rows, f"{len(frame)} lines on {rows} rows")
                check(max(map(len, frame)) <= columns, f"{max(map(len, frame))} characters on {columns} columns")
            if rows == 30:
                shown = "\n".join(terminal.frames()[2])
                for part in ("api", "per-user", "MOST DENIED KEYS", "{user=ann}"):
                    check.contains(shown, part, "live")


def test_top_outlives_a_restart(check):
    """A server that goes away is said to be; when it is back, so are its numbers."""
    with weir_server.Server(policies=POLICIES) as server:
        terminal = Terminal(server.listen, 30, 100)
        terminal.watch(lambda output: output.count(b"\x1b[H") >= 2)
        server.stop()
        gone = b"Connection refused; is `weir serve` running there?"
        terminal.watch(lambda output: gone in output)
        check.contains(terminal.output, gone, "gone")
        server.start()
        seen = len(terminal.output)

        def is_back(output):
            whole = output[seen:].split(b"\x1b[J")[:-1]
            return bool(whole) and b"refused" not in whole[-1]

        terminal.watch(is_back)
        check(is_back(terminal.output), "back")
        os.write(terminal.fd, b"q")
        check.equal(terminal.end(), 0, "exit status")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

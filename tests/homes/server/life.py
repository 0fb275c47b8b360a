#!/usr/bin/env python3
"""A server's life: what it says, what it refuses to start with, where it listens, how it ends, what it keeps over a restart, and how
it hands over to another.
"""
import datetime
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from lib import checks, http_client, operation_tools, weir_server
from lib.http_client import get, post

TAKE = {"key": "k", "limit": "fixed-window 1000000/366d"}


def answers(port, host="127.0.0.1"):
    with http_client.Client(port, host) as client:
        return client.get("/healthz").status == 200


# ---- what it says ----

def says(stream=None):
    """The lines of a server with a test clock, whose stderr is a file; JOURNAL_STREAM names that or another one."""
    with tempfile.TemporaryFile() as file:
        there = os.fstat(file.fileno())
        env = weir_server.environment({"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino + stream}"} if stream is not None else {})
        process = subprocess.Popen([weir_server.WEIR, "serve", "--listen", "127.0.0.1:0", "--test-clock"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=file, env=env)
        process.stdout.readline()
        process.terminate()
        process.communicate(timeout=weir_server.STOP_SECONDS)
        file.seek(0)
        return file.read().decode().splitlines()


def test_times(check):
    """A line on stderr begins with its time, unless systemd's journal reads it, which has its own."""
    line = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z (weir serve: .*)")
    words = ["weir serve: warning: --test-clock"]
    for stream in (None, 1):
        before, said, after = time.time() - 0.001, says(stream), time.time()
        found = [line.fullmatch(it) for it in said]
        times = [datetime.datetime.fromisoformat(it[1] + "+00:00").timestamp() if it else 0 for it in found]
        check(all(before <= at <= after for at in times), f"a time, in UTC: {said!r}")
        check.equal([it and it[2].split(": clients")[0] for it in found], words, "what to know, and nothing else")
    check.equal([it.split(": clients")[0] for it in says(0)], words, "the journal needs no times")


def opened(server):
    return server.lines[-1].partition(", policies: ")[0]


def test_zone_is_told(check):
    """A path that is lost or mistyped gives everybody a fresh limit: the start says what it found."""
    for kind, name in (("file", "zone"), ("shm", f"/weir-test-life-{os.getpid()}")):
        with weir_server.Server(f"--store {kind}:{name}?size=1m") as server:
            place = f"store: {kind} " + (f"{server.folder.resolve()}/zone" if kind == "file" else name)
            file = server.folder / "zone" if kind == "file" else pathlib.Path("/dev/shm" + name)
            try:
                check.equal(opened(server), f"{place} (a new zone, size=1m large=12%)", "the first start")
                for key, states in (("a", "1 state"), ("b", "2 states")):
                    with http_client.Client(server.port) as client:
                        client.post("/v1/take", {**TAKE, "key": key})
                    server.stop()
                    check.equal("made again" in server.stderr(), False, "as it was")
                    server.start()
                    check.equal(opened(server), f"{place} (opened, {states})", "the next start")
                server.stop()
                check.equal("made again" in server.stderr(), False, "as it was")
                server.options[-1] = f"{kind}:{name}?size=2m&large=30%"
                server.start()
                check.equal(opened(server), f"{place} (opened, 2 states)", "another size")
                words = "was made again, with its states: it had size=1m large=12%, now size=2m large=30%"
                check(server.wait_for(lambda words=words: words in server.stderr()), f"told: {server.stderr()}")
                server.stop()
            finally:
                file.unlink()
            code, said = weir_server.refused(f"--listen 127.0.0.1:0 --store {kind}:{file if kind == 'file' else name}?create=no")
            check(code == 3 and "there is no zone" in said, f"create=no makes none: {code} {said!r}")
            check(not file.exists(), "it makes none")
    with weir_server.Server() as server:
        check.equal(server.lines[-1], "store: memory, policies: the built-in demonstration", "others have no place")


# ---- starting ----

def test_refusals(check):
    """Exit code 2 for what was said, 3 for what failed, and words that name the thing and the fix."""
    cases = [
        ("--listen 0.0.0.0:0", 2, "--token-file"), ("--listen [::]:0", 2, "--public-without-token"),
        ("--listen :0", 2, "no token is set"), ("--listen 127.0.0.1:0 --listen 0.0.0.0:0", 2, "0.0.0.0:0"),
        ("--listen 127.0.0.1", 2, "127.0.0.1:7311"), ("--listen 127.0.0.1:", 2, "127.0.0.1:7311"),
        ("--listen 127.0.0.1:65536", 2, "65535"), ("--listen 127.0.0.1:-1", 2, "65535"),
        ("--listen no.such.host.invalid:0", 2, "no.such.host.invalid"), ("--listen unix:", 2, "path"),
        ("--listen unix:/" + "x" * 200, 2, "107"), ("--listen unix:/nonexistent/socket", 3, "/nonexistent/socket"),
        (["--listen", "127.0.0.1:0"] * 17, 2, "16"), ("--listen", 2, "value"),
        ("--frobnicate", 2, "--frobnicate"), ("stray", 2, "stray"), ("--threads 0", 2, "1 to 64"),
        ("--threads 65", 2, "1 to 64"), ("--threads x", 2, "--threads"), ("--max-body 0", 2, "--max-body"),
        ("--max-delay soon", 2, "--max-delay"), ("--idle-timeout 0s", 2, "zero"),
        ("--headers fancy", 2, "x-ratelimit"), ("--store nonsense:x", 2, "nonsense:x"),
        ("--store memory:1", 2, "64k"), ("--store shm:noslash", 2, "slash"), ("--store memory:64m?x=1", 2, "x"),
        ("--store redis://127.0.0.1:1?nonsense=1", 2, "nonsense"),
        ("--store file:/nonexistent/zone", 3, "/nonexistent/zone"), ("--policies /nonexistent.yaml", 3, "/nonexistent.yaml"),
        ("--envoy /nonexistent.yaml", 3, "/nonexistent.yaml"), ("--token-file /nonexistent", 3, "/nonexistent"),
        ("--token-file /dev/null", 2, "contains no token"), ("--admin-token-file /dev/null", 2, "contains no token"),
        ("--token-file /etc", 3, "/etc"), ("--policies /etc", 3, "/etc"), ("--policies /dev/zero", 3, "4 MiB"),
        ("--access-log /nonexistent/log", 3, "/nonexistent/log"), ("--listen-tls 127.0.0.1:0", 2, "--tls-cert"),
        ("--tls-cert a --tls-key b", 2, "--listen-tls"), ("--listen-tls 127.0.0.1:0 --tls-cert /nope --tls-key /nope", 3, "/nope"),
    ]
    for options, code, words in cases:
        options = weir_server.words_of(options)
        if "--listen" not in options:
            options += ["--listen", "127.0.0.1:0"]
        got, said = weir_server.refused(options)
        what = " ".join(options)[:70]
        check.equal(got, code, f"{what}: exit code ({said.strip()})")
        check(words in said, f"{what}: {words!r} is not in {said!r}")
        check(said.startswith("weir serve: ") and said.count("\n") == 1, f"{what}: one line, {said!r}")
    long = "x" * 300
    got, said = weir_server.refused("--listen 127.0.0.1:0", env={"WEIR_TOKEN": long})
    check(got == 2 and "255" in said, f"a token too long: {got} {said!r}")


def test_broken_files(check):
    broken = "version: 1\npolicies:\n  - name: a\n    key: user\n    limit: tokn-bucket 1/s\n"
    folder = weir_server.Server(files={"broken.yaml": broken, "envoy.yaml": "domain: x\ndescriptors:\n  - kee: y\n",
                                       "empty.yaml": ""}).folder
    for option, name, place in (("--policies", "broken.yaml", ":5:12"), ("--envoy", "envoy.yaml", ":3:"),
                                ("--policies", "empty.yaml", "empty.yaml")):
        code, said = weir_server.refused(f"--listen 127.0.0.1:0 {option} {folder / name}")
        check.equal(code, 2, f"{name}: exit code")
        check(name + place in said or place in said, f"{name}: where it is broken, {said!r}")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_in_use(check):
    with weir_server.Server() as server:
        code, said = weir_server.refused(f"--listen 127.0.0.1:{server.port}")
        check(code == 3 and "in use" in said and str(server.port) in said, f"another of us is there: {code} {said!r}")
        code, said = weir_server.refused(f"--listen 127.0.0.1:0 --listen 127.0.0.1:{server.port}")
        check.equal(code, 3, "the second address is in use")
        check(answers(server.port), "and the one that was there lives on")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        code, said = weir_server.refused(f"--listen 127.0.0.1:{other.getsockname()[1]}")
        check(code == 3 and "in use" in said, f"somebody else is there: {code} {said!r}")
    with weir_server.Server() as server:  # nothing lingers: the same port at once again
        with http_client.Client(server.port) as client:
            client.get("/healthz")
            server.stop()
        server.start()
        check(answers(server.port), "the same port again at once")


def test_listening(check):
    with weir_server.Server("--listen [::1]:0 --listen unix:socket --listen 127.0.0.1:0") as server:
        check.equal(len(server.lines), 5, f"what it says: {server.lines}")
        check(server.lines[0].startswith(f"listening on 127.0.0.1:{server.port}, dashboard: http://127.0.0.1:"), "where")
        check(answers(server.ports[0]) and answers(server.ports[1], "::1") and answers(server.ports[2]), "each of them")
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as local:
                local.connect(str(server.folder / "socket"))
                local.sendall(b"*1\r\n$4\r\nPING\r\n")
                check.equal(local.recv(100), b"+PONG\r\n", "a local socket")
        code, said = weir_server.refused(f"--listen unix:{server.folder / 'socket'}")
        check(code == 3 and "in use" in said, f"a local socket in use: {code} {said!r}")
        server.kill()  # and leaves its file behind
        server.start()
        with socket.socket(socket.AF_UNIX) as local:
            local.connect(str(server.folder / "socket"))
            local.sendall(get("/healthz"))
            check(local.recv(1000).startswith(b"HTTP/1.1 200"), "a stale socket file is replaced")
    for options, env in (("--public-without-token", None), ("", {"WEIR_TOKEN": "t" * 20})):
        with weir_server.Server(options, listen="0.0.0.0:0", env=env) as server:
            check(answers(server.port), f"on all addresses, {options or 'with a token'}")
    with weir_server.Server("--threads 4") as server:
        check.equal([answers(server.port) for _ in range(40)], [True] * 40, "with four threads")


# ---- ending ----

def test_signals(check):
    for number in (signal.SIGTERM, signal.SIGINT):
        with weir_server.Server() as server:
            server.signal(number)
            check(server.process.wait(weir_server.STOP_SECONDS) == 0, f"{number!r} ends it well")
    with weir_server.Server("--drain-timeout 1h") as server:
        for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD):
            server.signal(number)
        check(server.wait_for(lambda: "SIGHUP: " in server.stderr()), "SIGHUP is heard")
        check(answers(server.port), "SIGPIPE, SIGHUP and SIGCHLD do not")
        server.stop()  # without connections it waits for nobody


def test_drain(check):
    """What was asked is answered, held answers too; idle connections are let go; nobody new comes in."""
    checks.in_time(lambda scale: drain(check, 4 * scale))


def drain(check, delay):
    """False: the held answer was due before the server drained."""
    leaky = {"key": "d", "limit": f"leaky-bucket 1/{delay:g}s burst 5", "hold": True}
    ready = get("/readyz")
    with weir_server.Server("--max-delay 1h --request-timeout 1h --drain-timeout 1h") as server:
        held, idle, busy = [http_client.Client(server.port) for _ in range(3)]
        start = time.monotonic()
        check.equal([held.post("/v1/take", leaky).status, idle.get("/healthz").status], [200, 200], "before")
        held.send(post("/v1/take", leaky))
        check(server.wait_for_charges("d", leaky["limit"], 2), "one is held")
        busy.send(ready[:-4])  # begun, so that it is not idle
        with server.client() as resp:
            check.equal(resp.call("PING"), "PONG", "over RESP")
            check(server.drain(), "nobody new is let in")
            if time.monotonic() - start >= delay:
                return False
            busy.send(ready[-4:])
            answer = busy.read()
            check.equal((answer.status, answer.fields.get("connection")), (503, "close"), "not ready, and the last answer")
            answer = held.read()
            check.equal((answer.status, answer.fields.get("connection")), (200, "close"), "the held answer came")
            check.equal(answer.json["delay"], 0, "after all of its delay")
            check(time.monotonic() - start >= delay, f"not before its time: {time.monotonic() - start:.2f} s")
            check(idle.at_end(), "an idle connection is let go")
            check.equal(resp.stream.read(), b"", "over RESP, too")
        check(server.process.wait(weir_server.STOP_SECONDS) == 0, "then it ends well")
    return True


def test_drain_is_bounded(check):
    hour = 3600000000
    leaky = {"key": "d", "limit": "leaky-bucket 1/h burst 5", "hold": True}
    for options, twice in (("--max-delay 2h --drain-timeout 1s", False), ("--max-delay 2h --drain-timeout 1h", True)):
        with weir_server.Server(options) as server, http_client.Client(server.port) as client:
            start = time.monotonic()
            client.post("/v1/take", leaky)
            client.send(post("/v1/take", leaky))
            check(server.wait_for_charges("d", leaky["limit"], 2), "one is held")
            server.drain()
            if twice:
                server.signal(signal.SIGTERM)
            check(server.process.wait(weir_server.STOP_SECONDS) == 0, "ended, long before the answer was due")
            body = client.read().json
            apart = (time.monotonic() - start) * 1000000  # more than between the two takes
            check(body["allowed"] and 0 < body["delay"] < hour, f"the held one is told the rest of its delay: {body}")
            check(hour - apart <= body["delay"] + body["held"] <= hour, f"and how much of it was held: {body}")
            check(client.at_end(), "then the end")


# ---- keeping ----

def test_restart(check):
    """A zone in a file keeps what was spent, and the receipts of what was."""
    one = {"key": "r", "limit": "fixed-window 10/366d"}
    with weir_server.Server("--store file:zone?size=1m") as server:
        with http_client.Client(server.port) as client:
            receipt = client.post("/v1/take", {**one, "cost": 4}).json["receipt"]
        server.stop()
        server.start()
        with http_client.Client(server.port) as client:
            check.equal(client.post("/v1/peek", one).json["remaining"], 6, "a restart")
            check.equal(client.post("/v1/settle", {**one, "receipt": receipt, "actual": 1}).status, 200, "its receipts")
        server.kill()
        server.start()
        with http_client.Client(server.port) as client:
            check.equal(client.post("/v1/peek", one).json["remaining"], 9, "and a crash")
            with weir_server.Server(f"--store file:{server.folder / 'zone'}") as other, \
                    http_client.Client(other.port) as second:
                check.equal(second.post("/v1/take", one).json["remaining"], 8, "two servers on one zone")
                check.equal(client.post("/v1/take", one).json["remaining"], 7, "share it")


# ---- handing over ----

class Load(threading.Thread):
    """Connects, asks and leaves, again and again; what went wrong is kept. A connection that the machine kept silent for
    long may end, and is made anew: one that drains does not wait."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.done, self.wrong, self.stopping = port, 0, [], False
        self.start()

    def run(self):
        while not self.stopping:
            spoke = time.monotonic()
            try:
                with http_client.Client(self.port) as client:
                    for _ in range(3):
                        asked = time.monotonic()
                        answer = client.post("/v1/take", TAKE)
                        spoke = asked
                        if answer.status != 200:
                            self.wrong.append(answer)
                        self.done += 1
                        if answer.fields.get("connection") == "close":
                            break
            except ConnectionError as error:
                if time.monotonic() - spoke < operation_tools.SILENT_SECONDS:
                    self.wrong.append(repr(error))
            except Exception as error:
                self.wrong.append(repr(error))

    def stop(self):
        self.stopping = True
        self.join(weir_server.PATIENCE_SECONDS)


def test_hand_over(check):
    """SIGUSR2: another process takes the sockets over; not one connection is lost on the way."""
    with weir_server.Server("--threads 2 --store file:zone?size=1m") as server:
        loads = [Load(server.port) for _ in range(4)]
        done = lambda: sum(load.done for load in loads)  # noqa: E731
        check(server.wait_for(lambda: done() > 100), "the old one answers")
        server.signal(signal.SIGUSR2)
        check(server.wait_for(lambda: re.search(r"process (\d+) takes over", server.stderr())), "it says who takes over")
        successor = int(re.search(r"process (\d+) takes over", server.stderr())[1])
        try:
            check(server.process.wait(weir_server.STOP_SECONDS) == 0, "the old one ends well")
            before, end = done(), time.monotonic() + weir_server.PATIENCE_SECONDS
            while done() < before + 100 and time.monotonic() < end:
                time.sleep(0.01)
            check(done() >= before + 100, "the new one answers")
            for load in loads:
                load.stop()
            wrong = [it for load in loads for it in load.wrong]
            check.equal(wrong[:3], [], f"of {done()} answers, {len(wrong)} went wrong")
            with http_client.Client(server.port) as client:
                left = client.post("/v1/peek", TAKE).json["remaining"]
                check.equal(1000000 - left, done(), "every answer was charged once")
        finally:
            os.kill(successor, signal.SIGTERM)
            end = time.monotonic() + weir_server.STOP_SECONDS
            while alive(successor) and time.monotonic() < end:
                time.sleep(0.02)
            check(not alive(successor), "and the new one ends, too")


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

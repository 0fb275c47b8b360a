#!/usr/bin/env python3
"""Connections: that stay and end, whose clients are slow, stop listening, go without a word, are too many, or send what
nobody understands.
"""
import random
import re
import signal
import socket
import struct
import sys
import time

from lib import checks, h2_frames, http_client, weir_server
from lib.http_client import get, post, request
from http_wire import problem

PATIENCE = weir_server.PATIENCE_SECONDS
TAKE = "/v1/take?key=k&limit=fixed-window+1000000/366d"


def test_keep_alive(check):
    with weir_server.Server() as server:
        with http_client.Client(server.port) as client:
            for _ in range(3):
                answer = client.get("/healthz")
                check.equal((answer.status, answer.fields.get("connection")), (200, None), "HTTP/1.1 stays")
            answer = client.get("/healthz", {"connection": "close"})
            check.equal((answer.status, answer.fields.get("connection")), (200, "close"), "Connection: close")
            check(client.at_end(), "and it is closed")
        with http_client.Client(server.port) as client:
            answer = client.get("/healthz", {"connection": "x, Close"})
            check.equal(answer.fields.get("connection"), "close", "close among others, in any case")
        for fields, stays in (({}, False), ({"connection": "keep-alive"}, True), ({"connection": "close"}, False)):
            with http_client.Client(server.port) as client:
                answer = client.ask(request("GET", TAKE, fields, version="HTTP/1.0"))
                check.equal((answer.status, answer.fields.get("connection")),
                            (200, "keep-alive" if stays else "close"), f"HTTP/1.0, {fields}")
                if stays:
                    check.equal(client.ask(request("GET", TAKE, fields, version="HTTP/1.0")).status, 200, "once more")
                else:
                    check(client.at_end(), f"HTTP/1.0, {fields}: closed")
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as bare:
            bare.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            check(bare.makefile("rb").read().endswith(b"OK\n"), "HTTP/1.0 without Host, read to the end")
        with http_client.Client(server.port) as client:
            check.equal(client.ask(request("GET", f"http://localhost:{server.port}/healthz")).status, 200,
                        "a proxy's absolute target")
            check.equal(client.ask(b"\r\n\r\n" + get("/healthz")).status, 200, "empty lines before")
            answer = client.get("/healthz")
            check(re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.fields.get("date", "")),
                  f"Date: {answer.fields.get('date')}")


def test_unread_answers(check):
    """A client that sends and sends, and reads nothing for a while, gets all of it in the end."""
    with weir_server.Server("--threads 1 --request-timeout 1h") as server:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as slow, http_client.Client(server.port) as other:
            one, count, sent = get("/v1/policies"), 6000, 0
            data = one * count
            slow.setblocking(False)
            end = time.monotonic() + 1.0
            while sent < len(data) and time.monotonic() < end:
                try:
                    sent += slow.send(data[sent:sent + 65536])
                except BlockingIOError:
                    time.sleep(0.01)
            check.equal(other.get("/healthz").status, 200, "others of its thread are answered")
            rss = memory_of(server)
            slow.settimeout(PATIENCE)
            stream, answers = slow.makefile("rb", 1 << 16), 0
            reader = http_client.Client.__new__(http_client.Client)
            reader.stream = stream
            while answers < count:
                while sent < len(data):
                    slow.setblocking(False)
                    try:
                        sent += slow.send(data[sent:sent + 65536])
                    except BlockingIOError:
                        break
                    finally:
                        slow.settimeout(PATIENCE)
                answers += reader.read().status == 200
            check.equal(answers, count, "all answers came")
            check(rss < 400 << 20, f"{rss >> 20} MiB of memory while it did not read")


def memory_of(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024


def test_half_closed(check):
    """A client that has said all it will say still gets its answers, held ones too."""
    with weir_server.Server() as server:
        leaky = {"key": "half", "limit": "leaky-bucket 10/s burst 9", "hold": True}
        for data, count in ((get("/healthz"), 1), (get("/healthz") * 50, 50), (get("/v1/policies") * 3000, 3000),
                            (post("/v1/take", leaky) * 4, 4)):
            with http_client.Client(server.port) as client:
                client.send(data)
                client.socket.shutdown(socket.SHUT_WR)
                check.equal([client.read().status for _ in range(count)], [200] * count, f"{count} answers")
                check(client.at_end(), "then the end")
        with http_client.Client(server.port) as client:
            client.send(b"GET /healthz HT")
            client.socket.shutdown(socket.SHUT_WR)
            check(client.at_end(), "half a request and the end: closed")
        for _ in range(50):  # gone without a word, in the midst of things
            gone = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(post("/v1/take", leaky) + get("/v1/policies") * 100)
            gone.close()
        with http_client.Client(server.port) as client:
            check.equal(client.get("/healthz").status, 200, "it lives on")


def test_timeouts(check):
    """None is let go before its time; all are soon behind it, which on a busy machine is somewhat later."""
    checks.in_time(lambda scale: timeouts(check, 2.0 * scale, 6.0 * scale))


def timeouts(check, request_timeout, idle_timeout):
    """False: the machine kept us from saying a word for so long that a busy connection was an idle one."""
    spoke = time.monotonic()

    def is_busy():
        """Whether the busy connection is answered. None: it had been silent for long."""
        nonlocal spoke
        before, spoke = spoke, time.monotonic()
        try:
            return busy.get("/healthz").status == 200
        except ConnectionError:
            return None if time.monotonic() - before > idle_timeout / 2 else False

    with weir_server.Server(f"--request-timeout {request_timeout:g}s --idle-timeout {idle_timeout:g}s") as server:
        start = time.monotonic()
        begun, body, idle, fresh, busy, resp = [http_client.Client(server.port, timeout=PATIENCE) for _ in range(6)]
        begun.send(b"GET /healthz HTTP/1.1\r\nhost: loc")
        body.send(request("POST", "/v1/take", {"content-type": "application/json", "content-length": 10}, b"{"))
        resp.send(b"*2\r\n$4\r\nPI")
        if time.monotonic() - start > request_timeout / 2:
            return False
        check.equal(idle.get("/healthz").status, 200, "idle's first request")
        for client, what in ((begun, "half a head"), (body, "half a body")):
            stays = is_busy()
            if stays is None:
                return False
            check(stays, "a busy connection stays")
            problem(check, client.read(), 408, "in time", what)
            check(client.at_end(), f"{what}: closed")
        check(resp.at_end(), "half a command over RESP: closed")
        elapsed = time.monotonic() - start
        check(elapsed >= request_timeout, f"408 after {elapsed:.2f} s")
        while time.monotonic() - start < idle_timeout + 2:  # others of its age are let go by then
            stays = is_busy()
            if stays is None:
                return False
            check(stays, "a busy connection stays")
            time.sleep(0.3)
        for client, what in ((idle, "an idle connection"), (fresh, "one that never said a word")):
            check(client.at_end(), f"{what} is closed")
    return True


def test_many_connections(check):
    with weir_server.Server("--max-connections 20 --threads 2") as server:
        clients = [http_client.Client(server.port) for _ in range(20)]
        check.equal([client.get("/healthz").status for client in clients], [200] * 20, "as many as may be")
        with http_client.Client(server.port) as further:
            further.send(get("/v1/take", key="k", limit="fixed-window 1/s"))
            problem(check, further.read(), 503, "the maximum number of connections", "one more is told")
            check(further.at_end(), "and closed")
        silent = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(60)]
        for path in ("/healthz", "/readyz", "/metrics"):
            with http_client.Client(server.port) as probe:
                check.equal((probe.get(path).status, probe.at_end()), (200, True), f"{path} is answered at any time")
        with h2_frames.Peer(server.port) as probe:
            probe.send(h2_frames.headers(1, h2_frames.request("/healthz")) + h2_frames.headers(
                3, h2_frames.request("/v1/take?key=k&limit=fixed-window+1/s")))
            first, second = probe.answer(1), probe.answer(3)
            check.equal((first[0], b"the maximum number of connections" in second[1]), (200, True), "over HTTP/2, too")
        with server.client() as redis:
            try:
                redis.call("PING")
                check(False, "a Redis client is told")
            except weir_server.resp.RedisError as error:
                check.equal(str(error), "ERR max number of clients reached", "a Redis client is told")
        check.equal([client.get("/healthz").status for client in clients], [200] * 20, "the others are let be")
        for one in silent:
            one.close()
        clients.pop().close()
        check(server.wait_for(lambda: answers_of(server)), "room again when one goes")
        for client in clients:
            client.close()
    with weir_server.Server("--max-per-client 3") as server:
        clients = [http_client.Client(server.port) for _ in range(3)]
        check.equal([client.get("/healthz").status for client in clients], [200] * 3, "as many as an address may have")
        check(not answers_of(server), "one more of the same address is closed")
        check(answers_of(server, "127.0.0.2"), "one of another address is not")
        for client in clients:
            client.close()
        check(server.wait_for(lambda: answers_of(server)), "room again when they go")


def answers_of(server, source="127.0.0.1"):
    try:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE, source_address=(source, 0)) as one:
            one.sendall(get("/v1/take", key="k", limit="fixed-window 100000/s"))
            return one.recv(100).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


def test_probe_in_a_crowd(check):
    """A probe that comes among many others, all at one moment, when no more are let in: it is answered."""
    with weir_server.Server("--max-connections 1 --threads 1") as server, http_client.Client(server.port) as only:
        check.equal(only.get("/healthz").status, 200, "the one that may be")
        server.signal(signal.SIGSTOP)
        before = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(20)]
        probe = http_client.Client(server.port)
        probe.send(get("/healthz"))
        behind = [socket.create_connection(("127.0.0.1", server.port), PATIENCE) for _ in range(20)]
        server.signal(signal.SIGCONT)
        try:
            status = probe.read().status
        except (OSError, EOFError, AssertionError) as error:
            status = repr(error)
        check.equal(status, 200, "the probe")
        check.equal(only.get("/healthz").status, 200, "the one that was there goes on")
        for one in (*before, probe, *behind):
            one.close()


def test_garbage(check):
    """Bytes of all kinds, requests and commands with bytes changed: answers or an end, never a crash."""
    seed = checks.seed()
    pick = random.Random(seed)
    good = [post("/v1/take", {"key": "g", "limit": "token-bucket 5/s", "attributes": {"a": "b"}}),
            get("/v1/take", key="g", limit="token-bucket 5/s"), post("/v1/takeall", {"requests": []}),
            weir_server.resp.encode(("WEIR.TAKE", "g", "token-bucket 5/s", "DETAIL")),
            request("POST", "/json", {"transfer-encoding": "chunked"}, b"2\r\n{}\r\n0\r\n\r\n"),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(40)]
    with weir_server.Server("--threads 2 --request-timeout 1s") as server:
        for _ in range(600):
            data = bytearray(b"".join(pick.choices(good, k=pick.randint(1, 4))))
            for _ in range(pick.randint(1, 8)):
                place = pick.randrange(len(data))
                data[place:place + pick.choice((0, 0, 1, 5))] = pick.randbytes(pick.choice((0, 1, 1, 1, 4)))
            if pick.random() < 0.1:
                data = bytearray(pick.randbytes(pick.randint(1, 2000)))
            try:
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as one:
                    one.sendall(data)
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(65536):
                        pass
            except ConnectionError:
                pass
            if not check(server.process.poll() is None, f"seed {seed}: {bytes(data)!r} ended the server"):
                break
        check(answers_of(server), f"seed {seed}: it lives on")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

#!/usr/bin/env python3
"""HTTP/2 without TLS, by clients of others (curl, nghttp, h2load) and by hand: the same API as over HTTP/1."""
import json
import re
import subprocess
import sys
import threading
import time

from lib import checks, h2_frames as h2
from lib.h2_server import Server

TAKE = "/v1/take?key={key}&limit={limit}"


def curl(port, path, *words):
    """Status, fields and body."""
    done = subprocess.run(["curl", "-sS", "-i", "--http2-prior-knowledge", "--max-time", "60", *words,
                           f"http://127.0.0.1:{port}{path}"], stdout=subprocess.PIPE, check=True)
    text = done.stdout.decode()
    while True:
        head, _, text = text.partition("\r\n\r\n")
        status = int(head.split()[1])
        if status != 100:
            break
    fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
    return status, fields, text


def test_curl(check):
    with Server() as server:
        status, fields, body = curl(server.port, TAKE.format(key="a", limit="fixed-window+2/366d"))
        check.equal(status, 200, "the first take")
        check.equal(json.loads(body)["remaining"], 1, "what remains")
        check("ratelimit" in fields and "ratelimit-policy" in fields, f"fields: {fields}")
        check("date" in fields, "a date")
        check.equal(int(fields["content-length"]), len(body), "content-length")
        statuses = [curl(server.port, TAKE.format(key="a", limit="fixed-window+2/366d"))[0] for _ in range(2)]
        check.equal(statuses, [200, 429], "the second and the third take")
        body = json.dumps({"key": "b", "limit": "fixed-window 1/366d"})
        json_type = ("-H", "content-type: application/json")
        check.equal(curl(server.port, "/v1/take", *json_type, "-d", body)[0], 200, "POST")
        status, fields, body = curl(server.port, "/v1/take", *json_type, "-d", body)
        check.equal(status, 429, "POST again")
        check("retry-after" in fields, f"Retry-After: {fields}")
        check.equal(fields["content-type"], "application/problem+json", "a problem")
        status, fields, body = curl(server.port, TAKE.format(key="c", limit="fixed-window+2/366d"), "-I")
        check.equal((status, body), (200, ""), "HEAD")
        check(int(fields["content-length"]) > 0, "HEAD: the length of what is not sent")
        check.equal(curl(server.port, "/nowhere")[0], 404, "no such path")
        check.equal(curl(server.port, "/v1/take", "-X", "DELETE")[0], 405, "another method")
        check.equal(curl(server.port, "/healthz")[0], 200, "health")
        # the dashboard is longer than a flow control window's first 64 KiB only in sum: all of it, several times
        status, fields, body = curl(server.port, "/")
        check(status == 200 and "<html" in body, "the dashboard")


def test_bounds(check):
    with Server("--max-head", "4096", "--max-body", "20000") as server:
        status, _, body = curl(server.port, "/v1/peek?key=k&limit=token-bucket+1/s", "-H", "x: " + "y" * 6000)
        check.equal(status, 431, "too many bytes of fields")
        check("4096" in body, f"what the bound is: {body}")
        many = [word for i in range(101) for word in ("-H", f"x{i}: y")]
        check.equal(curl(server.port, "/v1/peek?key=k&limit=token-bucket+1/s", *many[:100])[0], 200, "50 fields")
        check.equal(curl(server.port, "/v1/peek?key=k&limit=token-bucket+1/s", *many)[0], 431, "101 fields")
        json_type = ("-H", "content-type: application/json")
        text = json.dumps({"key": "k" * 19000, "limit": "fixed-window 1/366d"})
        check.equal(curl(server.port, "/v1/take", *json_type, "-d", text)[0], 200, "a body within the bound")
        text = json.dumps({"key": "k" * 21000, "limit": "fixed-window 1/366d"})
        status, _, body = curl(server.port, "/v1/take", *json_type, "-d", text)
        check.equal(status, 413, "a body beyond the bound")
        check("20000" in body, f"what the bound is: {body}")
        check.equal(curl(server.port, "/v1/take", *json_type, "-H", "expect: 100-continue", "-d",
                         json.dumps({"key": "e", "limit": "fixed-window 1/366d"}))[0], 200, "Expect: 100-continue")
        check(server.alive(), "still there")


def test_strictness(check):
    """What HTTP/1 refuses, HTTP/2 does not let in either."""
    with Server() as server, h2.Peer(server.port) as peer:
        stream = 1
        for name, payload, wanted in (
                ("Host differs", h2.request(fields=[("host", "elsewhere.example")]), 400),
                ("Host agrees", h2.request(fields=[("host", "127.0.0.1")]), 200),
                ("Host alone", h2.request(authority=None, fields=[("host", "127.0.0.1")]), 200),
                ("a # in the path", h2.request("/v1/peek?key=a#b&limit=token-bucket+1/s"), 400),
                ("a byte beyond ASCII", h2.request("/v1/peek?key=\xc3\xa9&limit=token-bucket+1/s"), 400),
                ("no slash", h2.request("v1/peek"), "reset"),
                ("a control in a value", h2.request(fields=[("x", "a\x01b")]), "reset"),
                ("upper case", h2.request(fields=[("X-Upper", "a")]), "reset"),
                ("a connection's own field", h2.request(fields=[("connection", "close")]), "reset"),
                ("no method", h2.block([(":path", "/"), (":scheme", "http"), (":authority", "a")]), "reset"),
                ("two paths", h2.block([(":path", "/"), (":path", "/x"), (":method", "GET"), (":scheme", "http"),
                                        (":authority", "a")]), "reset"),
                ("a pseudo field behind", h2.request() + h2.block([(":method", "GET")]), "reset")):
            peer.send(h2.headers(stream, payload))
            status, body, error = peer.answer(stream)
            got = "reset" if error not in (None, "ended") else status
            check.equal(got, wanted, f"{name} ({error}, {body[:100]})")
            stream += 2
        check(peer.ping(), "the connection lives on")


def test_length(check):
    """A Content-Length that is not true."""
    with Server() as server, h2.Peer(server.port) as peer:
        post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json"), ("content-length", "5")])
        peer.send(h2.headers(1, post, h2.END_HEADERS) + h2.frame(h2.DATA, h2.END_STREAM, 1, b"{}"))
        check.equal(peer.answer(1)[2], h2.PROTOCOL_ERROR, "less than announced")
        peer.send(h2.headers(3, post, h2.END_HEADERS) + h2.frame(h2.DATA, h2.END_STREAM, 3, b"{}" * 9))
        check.equal(peer.answer(3)[2], h2.PROTOCOL_ERROR, "more than announced")
        check(peer.ping(), "the connection lives on")


def test_cut_anywhere(check):
    """The same bytes in portions of every size. But for the nine that begin a CONTINUATION: nghttp2 counts each portion
    of these as one more continuation, of which it takes eight."""
    body = json.dumps({"key": "cut", "limit": "fixed-window 1g/366d"}).encode()
    post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
    half = len(post) // 2
    before = h2.PREFACE + h2.settings() + h2.frame(h2.HEADERS, 0, 1, post[:half])
    text = (before + h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, post[half:]) +
            h2.frame(h2.DATA, h2.PADDED, 1, b"\3" + body[:9] + b"\0\0\0") +
            h2.frame(h2.DATA, h2.END_STREAM, 1, body[9:]))
    with Server() as server:
        for size in (1, 2, 3, 7, 16, 17, 23, 24, 25, 33, 64, len(text)):
            with h2.Peer(server.port, hello=False) as peer:
                starts = [at for at in range(0, len(text), size) if at - len(before) not in range(4, 9)]
                for at, end in zip(starts, [*starts[1:], len(text)]):
                    peer.send(text[at:end])
                    if size < 30:
                        time.sleep(0.0005)
                status, answer, error = peer.answer(1)
                check(status == 200 and json.loads(answer)["allowed"], f"portions of {size}: {status} {error} {answer}")


def test_multiplexed(check):
    """A hundred streams at once, in one write; each is answered, and the sum is exact."""
    with Server() as server, h2.Peer(server.port) as peer:
        count = 100
        peer.send(b"".join(h2.headers(2 * i + 1, h2.request(TAKE.format(key="m", limit="fixed-window+60/366d")))
                           for i in range(count)))
        bodies, ended = {}, set()
        while len(ended) < count and (it := peer.next()) is not None:
            if it.kind == h2.DATA:
                bodies[it.stream] = bodies.get(it.stream, b"") + it.payload
            if it.stream and it.flags & h2.END_STREAM and it.kind in (h2.DATA, h2.HEADERS):
                ended.add(it.stream)
        check.equal(sum(json.loads(body)["allowed"] for body in bodies.values()), 60, "allowed of a hundred")


def test_hold(check):
    """An answer that is held does not hold the others of its connection."""
    with Server() as server, h2.Peer(server.port) as peer:
        held = TAKE.format(key="h", limit="leaky-bucket+1/3s+burst+10") + "&hold=true&wait=any"
        plain = TAKE.format(key="p", limit="fixed-window+1g/366d")
        start = time.monotonic()
        peer.send(h2.headers(1, h2.request(held)) + h2.headers(3, h2.request(plain)) +
                  h2.headers(5, h2.request(held)) + h2.headers(7, h2.request(plain)))
        ended = []
        while len(ended) < 4 and (it := peer.next()) is not None:
            if it.stream and it.flags & h2.END_STREAM:
                ended.append(it.stream)
        check.equal((sorted(ended), ended[-1:]), ([1, 3, 5, 7], [5]), "all are answered, the held one last")
        check(time.monotonic() - start >= 2.99, f"it was held for three seconds: {time.monotonic() - start:.3f}")


def many_policies():
    """So many that a report of them is longer than what a socket holds."""
    lines = ["version: 1", "policies:"]
    for i in range(1000):
        lines += [f"  - name: policy-{i:04}-{'x' * 40}", "    match: {path: /nowhere}", "    limits:"]
        lines += [f"      - {{name: entry-{j:04}-{'x' * 40}, key: user, limit: token-bucket 1/s}}" for j in range(10)]
    return "\n".join(lines) + "\n"


def test_slow_reader(check):
    """Much more than the socket takes, to a peer that reads late: nothing is lost, nothing is mixed up."""
    with Server("--request-timeout", "1h", "--policies", "{folder}/p.yaml", "--no-watch", files={"p.yaml": many_policies()}) as server:
        length = int(curl(server.port, "/metrics", "-I")[1]["content-length"])
        count = 2
        check.within(length, 3 << 20, 7 << 20, "two reports are more than a socket's buffer, one fits into ours")
        with h2.Peer(server.port, (4, 0x7fffffff), buffer=4096) as peer:
            peer.send(h2.window_update(0, 0x7fffffff - 65535))
            for i in range(count):
                peer.send(h2.headers(2 * i + 1, h2.request("/metrics")))
                time.sleep(0.2)
            check(server.alive(), "others are served meanwhile")
            bodies, ended = {}, set()
            while len(ended) < count and (it := peer.next()) is not None:
                if it.kind == h2.DATA:
                    bodies.setdefault(it.stream, []).append(it.payload)
                if it.stream and it.flags & h2.END_STREAM:
                    ended.add(it.stream)
            check.equal(len(ended), count, "answers")
            for parts in bodies.values():
                body = b"".join(parts)
                check.within(len(body), length - 2000, length + 2000, "bytes of an answer")
                check.equal(body.count(b"policy=\"policy-0999-"), body.count(b"policy=\"policy-0000-"), "whole lines")


def test_full_socket(check):
    """The same to a peer that reads as fast as it can: the socket is full again and again, for a moment each."""
    with Server("--policies", "{folder}/p.yaml", "--no-watch", files={"p.yaml": many_policies()}) as server:
        for i in range(40):
            with h2.Peer(server.port, (4, 0x7fffffff), timeout=60) as peer:
                peer.send(h2.window_update(0, 0x7fffffff - 65535) + h2.headers(1, h2.request("/metrics")) +
                          h2.headers(3, h2.request("/metrics")))
                ended = 0
                try:
                    while ended < 2 and (it := peer.next()) is not None:
                        ended += bool(it.stream and it.flags & h2.END_STREAM)
                except TimeoutError:
                    pass
                if not check.equal(ended, 2, f"whole answers, round {i}"):
                    return


def test_small_windows(check):
    """A peer that lets us send a few bytes at a time gets all of them."""
    with Server() as server, h2.Peer(server.port, (4, 10)) as peer:
        peer.send(h2.headers(1, h2.request(TAKE.format(key="w", limit="fixed-window+5/366d"))))
        body, end = b"", False
        while not end and (it := peer.next()) is not None:
            if it.kind == h2.DATA:
                check(len(it.payload) <= 10, f"{len(it.payload)} bytes where 10 were allowed")
                body += it.payload
                end = it.flags & h2.END_STREAM
                if not end:
                    peer.send(h2.window_update(1, 10))
        check.equal(json.loads(body)["remaining"], 4, "the answer")


def test_drain(check):
    """SIGTERM: GOAWAY first, then the last stream's number; requests meanwhile are answered. A request that is under
    way keeps the connection for as long as this takes."""
    with Server() as server, h2.Peer(server.port) as peer:
        post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
        peer.send(h2.headers(1, post, h2.END_HEADERS))
        check(peer.ping(), "it answers")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        first = peer.until(lambda it: it.kind in (h2.GOAWAY, h2.PING))
        check(first is not None and first.kind == h2.GOAWAY and int.from_bytes(first.payload[:4], "big") == 0x7fffffff,
              f"the first GOAWAY takes streams still: {first}")
        peer.send(h2.headers(3, h2.request()))
        ping = peer.until(lambda it: it.kind == h2.PING)
        peer.send(h2.frame(h2.PING, h2.ACK, 0, ping.payload))
        time.sleep(1)  # longer than one without a request would be kept
        peer.send(h2.frame(h2.DATA, h2.END_STREAM, 1, b'{"key":"k","limit":"fixed-window 1/366d"}'))
        statuses, last = {}, None
        while (it := peer.next()) is not None:
            if it.kind == h2.HEADERS:
                statuses[it.stream] = h2.STATUSES.get(it.payload[0])
            if it.kind == h2.GOAWAY:
                last = int.from_bytes(it.payload[:4], "big")
        check.equal(statuses, {1: 200, 3: 200}, "the request under way, and one sent meanwhile")
        check.equal(last, 3, "the second GOAWAY names the last stream")
        stopping.join()
        check.equal(server.process.returncode, 0, "the exit code")


def test_drain_of_an_idle_connection(check):
    """It is not closed with the first word: who would answer has half a second for that, however long it was silent."""
    with Server() as server, h2.Peer(server.port) as peer:
        check(peer.ping(), "it answers")
        time.sleep(1)  # longer than that
        start = time.monotonic()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        check.equal(peer.goaway(), 0, "it is told")
        check(time.monotonic() - start >= 0.49, f"and has time to answer: {time.monotonic() - start:.3f} s")
        stopping.join()


def test_nghttp(check):
    with Server() as server:
        url = f"http://127.0.0.1:{server.port}"
        done = subprocess.run(["nghttp", "-nv", "--no-dep", f"{url}/v1/peek?key=k&limit=token-bucket+1/s",
                               f"{url}/healthz"], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        check.equal(done.returncode, 0, "nghttp")
        check.equal(done.stdout.count(":status: 200"), 2, "two answers")
        check("SETTINGS_MAX_CONCURRENT_STREAMS(0x03):128" in done.stdout, "the bound of streams")


def test_h2load(check):
    with Server() as server:
        count = 20000
        done = subprocess.run(["h2load", "-n", str(count), "-c", "8", "-m", "100",
                               f"http://127.0.0.1:{server.port}" +
                               TAKE.format(key="load", limit="fixed-window+15000/366d")],
                              stdout=subprocess.PIPE, text=True, timeout=120, check=False)
        codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
        check.equal(codes.groups() if codes else done.stdout, ("15000", "0", "5000", "0"), "2xx, 3xx, 4xx, 5xx")
        check.equal(server.metric("weir_requests_total", protocol="http"), count, "requests counted")


if __name__ == "__main__":
    sys.exit(checks.run([test_curl, test_bounds, test_strictness, test_length, test_cut_anywhere, test_multiplexed, test_hold,
                  test_slow_reader, test_full_socket, test_small_windows, test_drain, test_drain_of_an_idle_connection,
                  test_nghttp, test_h2load], sys.argv[1:]))

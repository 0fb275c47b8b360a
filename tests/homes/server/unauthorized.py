#!/usr/bin/env python3
"""What those without a token can make the server hold: next to nothing, however many they are. And the bound on memory
for everybody, as an option and as a cgroup leaves it.

    tests/homes/server/unauthorized.py [NAME …]
"""
import os
import pathlib
import socket
import sys
import time

from lib import abuse_tools, checks, h2_frames as h2, http_client, weir_server

TOKEN = "a-token_1234567890"
FILES = {"token": TOKEN + "\n"}
MIB = 1 << 20
COUNT = 400
EACH = 120000  # of a body of 128 KiB
BODY = b'{"key":"k","limit":"fixed-window 9/m"' + b" " * 131072


def head(path="/v1/take", length=131000, fields=()):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += ["Transfer-Encoding: chunked"] if length is None else [f"Content-Length: {length}"]
    return "\r\n".join([*lines, *fields, "", ""]).encode()


def in_parts(block):
    """A head that does not end, in frames of the usual length."""
    parts = [block[i:i + 16384] for i in range(0, len(block), 16384)]
    return h2.headers(1, parts[0], h2.END_STREAM) + b"".join(h2.frame(h2.CONTINUATION, 0, 1, part) for part in parts[1:])


def flood(server, data, count=COUNT):
    """So many connections that send this and then wait; those that are answered or closed meanwhile are let be."""
    sockets = []
    for _ in range(count):
        it = socket.create_connection(("127.0.0.1", server.port), weir_server.PATIENCE_SECONDS)
        it.settimeout(5)
        sockets.append(it)
        try:
            it.sendall(data)
        except OSError:
            pass  # it was refused before all was sent
    return sockets


def unread(server):
    """Bytes that have come to its connections and that it has not read."""
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:])
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1].endswith(f":{server.port:04X}") and row[3] == "01")


def grown(server, before):
    """How much more it holds once it has read all there is: what it was sent stays unread nowhere."""
    server.wait_for(lambda: unread(server) == 0)
    with http_client.Client(server.port) as client:
        client.get("/healthz")
    return abuse_tools.memory(server) - before


def test_nothing_is_kept_for_nobody(check):
    h2_post = [h2.headers(stream, h2.request("/v1/take", "POST", fields=[("content-type", "application/json")]), h2.END_HEADERS)
               + b"".join(h2.frame(h2.DATA, 0, stream, BODY[:16000]) for _ in range(1)) for stream in range(1, 9, 2)]
    grpc = [h2.headers(stream, h2.request("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "POST",
                                          fields=[("content-type", "application/grpc"), ("te", "trailers")]), h2.END_HEADERS)
            + h2.frame(h2.DATA, 0, stream, BODY[:16000]) for stream in range(1, 9, 2)]
    hello = h2.PREFACE + h2.settings()
    long_field = b"\0" + h2.number(65500, 7) + b"a" * 65500 + h2.number(65500, 7) + b"b" * 65000
    coded = b"\0" + h2.number(65500, 7, 0x80) + b"\x18\xc6\x31\x8c\x63" * 13100 + h2.number(65500, 7, 0x80) + b"\x18\xc6\x31\x8c\x63" * 13000
    cases = {
        "HTTP/2, a long field": hello + in_parts(long_field), "HTTP/2, a long field, Huffman-coded": hello + in_parts(coded),
        "HTTP/1": head() + BODY[:EACH], "chunked": head(length=None) + b"1d4c0\r\n" + BODY[:EACH],
        "to a health probe": head("/healthz") + BODY[:EACH], "to nothing": head("/nothing") + BODY[:EACH],
        "a wrong token": head(fields=["Authorization: Bearer x"]) + BODY[:EACH],
        "two tokens": head(fields=[f"Authorization: Bearer {TOKEN}"] * 2) + BODY[:EACH],
        "HTTP/2": hello + b"".join(h2_post), "gRPC": hello + b"".join(grpc),
        "RESP": b"*49\r\n$12\r\nWEIR.TAKEALL\r\n$2\r\n16\r\n" + (b"$65000\r\n" + b"k" * 65000 + b"\r\n") * 2,
        "RESP, AUTH": b"*2\r\n$4\r\nAUTH\r\n$65000\r\n" + b"t" * 60000, "RESP, inline": b"AUTH " + b"t" * 12000,
    }
    for name, data in cases.items():
        with weir_server.Server("--threads 1 --token-file token --request-timeout 1h", files=FILES) as server:
            with server.client() as client:
                client.call("AUTH", TOKEN)
            before = abuse_tools.memory(server)
            sockets = flood(server, data)
            more = grown(server, before)
            check(abuse_tools.is_sanitized() or more < 12 * MIB, f"{name}: grown by {more / MIB:.1f} MiB, sent {len(data) * COUNT / MIB:.0f}")
            with http_client.Client(server.port) as client:
                answer = client.post("/v1/take", {"key": "k", "limit": "fixed-window 9/m"}, {"authorization": f"Bearer {TOKEN}"})
                check.equal(answer.status, 200, f"{name}: with a token all is as ever")
            for it in sockets:
                it.close()


def test_refused_at_the_head(check):
    """401 comes before the body does, with a last word, over every protocol; with the token nothing changes."""
    with weir_server.Server("--threads 1 --token-file token", files=FILES) as server:
        for fields, status in ((), 401), (("Authorization: Bearer wrong",), 401), (("Expect: 100-continue",), 401):
            with http_client.Client(server.port) as client:
                client.send(head(fields=fields))
                answer = client.read()
                check.equal((answer.status, answer.fields.get("connection")), (status, "close"), f"{fields}")
        with http_client.Client(server.port) as client:
            body = b'{"key":"k","limit":"fixed-window 9/m"}'
            client.send(head(length=len(body), fields=[f"Authorization: Bearer {TOKEN}", "Expect: 100-continue"]))
            check.equal(client.read().status, 100, "who may is asked for the body")
            client.send(body)
            check.equal(client.read().status, 200, "and answered")
        with h2.Peer(server.port) as peer:
            asked = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
            peer.send(h2.headers(1, asked, h2.END_HEADERS))
            answer = peer.until(lambda it: it.kind == h2.DATA and it.stream == 1)
            check(answer and b"401" in answer.payload, f"HTTP/2: {answer}")
            body = b'{"key":"k","limit":"fixed-window 9/m"}'
            crumbs = [("cookie", "a=1"), ("cookie", "b=2"), ("authorization", f"Bearer {TOKEN}"), ("content-type", "application/json")]
            peer.send(h2.headers(3, h2.request("/v1/take", "POST", fields=crumbs), h2.END_HEADERS)
                      + h2.frame(h2.DATA, h2.END_STREAM, 3, body))
            check.equal(peer.answer(3)[0], 200, "HTTP/2 with the token, and a cookie in crumbs")
            health = [("content-type", "application/grpc"), ("te", "trailers")]
            peer.send(h2.headers(5, h2.request("/grpc.health.v1.Health/Check", "POST", fields=health), h2.END_HEADERS)
                      + h2.frame(h2.DATA, h2.END_STREAM, 5, b"\0\0\0\0\0"))
            check.equal(peer.answer(5)[0], 200, "gRPC health needs none")
        with server.client() as client:
            replies = client.pipeline([("AUTH", TOKEN), ("WEIR.TAKE", "k" * 60000, "fixed-window 9/m")])
            check(isinstance(replies[1], list), f"RESP: what follows AUTH may be long: {replies}")
        with server.client() as client:
            client.socket.sendall(b"*3\r\n$9\r\nWEIR.TAKE\r\n$60000\r\n")
            check(client.stream.readline().startswith(b"-ERR Protocol error"), "RESP: before it may not")


def test_long_fields(check):
    """What HTTP/2 keeps of heads that do not end counts, for everybody; a head of the longest length that is served comes through."""
    longest = h2.request("/v1/take", "GET", fields=[("authorization", f"Bearer {TOKEN}"), ("x-long", "x" * 15500)])
    with weir_server.Server("--threads 1 --token-file token --request-timeout 1h", files=FILES) as server, h2.Peer(server.port) as peer:
        peer.send(h2.headers(1, longest))
        check.equal(peer.answer(1)[0], 200, "a long head by whom nobody knows yet")
    with weir_server.Server("--threads 1 --max-memory 16m --request-timeout 1h") as server:
        with http_client.Client(server.port) as client:
            client.get("/healthz")
        before = abuse_tools.memory(server)
        head_only = in_parts(b"\0" + h2.number(65500, 7) + b"a" * 65500 + h2.number(65500, 7) + b"b" * 65000)
        sockets = flood(server, h2.PREFACE + h2.settings() + head_only)
        more = grown(server, before)
        check(abuse_tools.is_sanitized() or more < 32 * MIB, f"long fields: grown by {more / MIB:.1f} MiB")
        values = abuse_tools.metrics(server)
        check(MIB < abuse_tools.total(values, "weir_kept_bytes") <= 16 * MIB, "they count as memory kept")
        check(abuse_tools.total(values, "weir_refused_connections_total", reason="memory") > 0, "who held too much was let go")
        for it in sockets:
            it.close()
        check(server.wait_for(lambda: abuse_tools.total(abuse_tools.metrics(server), "weir_kept_bytes") == 0), "all is given back")


def test_long_answers(check):
    """Answers that HTTP/2 peers ask for in one go and do not read: within the bound; beyond it the answer is 503."""
    asks = b"".join(h2.headers(2 * i + 1, h2.request("/metrics")) for i in range(128))
    with weir_server.Server("--threads 1 --max-memory 16m --request-timeout 1h") as server:
        peers = [h2.Peer(server.port, (4, 0)) for _ in range(24)]
        for peer in peers:
            peer.send(asks)
        statuses = [peer.until(lambda it: it.kind in (h2.HEADERS, h2.RST_STREAM) and it.stream == 255) for peer in peers]
        check(all(statuses), "all are answered")
        values = abuse_tools.metrics(server)
        check(abuse_tools.total(values, "weir_kept_bytes") <= 16 * MIB, f"{abuse_tools.total(values, 'weir_kept_bytes') / MIB:.1f} MiB are kept")
        check(abuse_tools.total(values, "weir_protocol_errors_total", kind="overload") > 0, "some are told to come back")
        peer = peers[0]
        peer.send(h2.settings((4, 1 << 20)) + h2.window_update(0, 1 << 24))
        check(peer.until(lambda it: it.kind == h2.DATA and it.flags & h2.END_STREAM), "what was kept is sent when it is asked for")
        for peer in peers:
            peer.socket.close()


def test_max_memory(check):
    """The bound is what is measured, and those who hold little are served beyond it."""
    for options, code in (("--max-memory 1m", 2), ("--max-memory x", 2), ("--max-memory 2t", 2), ("--max-memory 10", 2),
                          ("--max-memory -5m", 2), ("--max-memory 16mb", 2)):
        got, said = weir_server.refused("--listen 127.0.0.1:0 " + options)
        check(got == code and "--max-memory" in said, f"{options}: {got} {said}")
    with weir_server.Server("--threads 1 --max-memory 16m --request-timeout 1h") as server:
        with http_client.Client(server.port) as client:
            client.post("/v1/take", {"key": "k", "limit": "fixed-window 9/m"})
        before = abuse_tools.memory(server)
        sockets = flood(server, head() + BODY[:EACH])
        more = grown(server, before)
        check(abuse_tools.is_sanitized() or more < 32 * MIB, f"grown by {more / MIB:.1f} MiB")
        with http_client.Client(server.port) as client:
            check.equal(client.post("/v1/take", {"key": "k", "limit": "fixed-window 9/m"}).status, 200, "others are served")
        values = abuse_tools.metrics(server)
        check(abuse_tools.total(values, "weir_refused_connections_total", reason="memory") > 0, "who held too much was let go")
        for it in sockets:
            it.close()


# ---- cgroups ----

def own_cgroup():
    """A folder of the memory controller that we may make cgroups in, and the name of its bound; None: there is none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return pathlib.Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes"
        if not controllers and pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return pathlib.Path("/sys/fs/cgroup" + path), "memory.max"
    return None


def test_cgroup(check):
    """1,600 connections that send most of a request, in 128 MiB: it lives. Where we may make a cgroup, and without sanitizers,
    which need several times the memory."""
    if abuse_tools.is_sanitized():
        return
    found = own_cgroup()
    folder = found and found[0] / f"weir-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / found[1]).write_text(str(128 * MIB), encoding="ascii")
    except (OSError, AttributeError) as error:
        print(f"  this system lets us make no cgroup ({error}): not tested; tests/server_memory reads its files", flush=True)
        if folder and folder.exists():
            folder.rmdir()
        return
    server = weir_server.Server("--threads 2 --request-timeout 1h")
    script = server.folder / "in-cgroup"
    script.write_text(f'#!/bin/sh\necho $$ > "{folder}/cgroup.procs"\nexec "{weir_server.WEIR}" "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    real, weir_server.WEIR = weir_server.WEIR, str(script)
    try:
        with server:
            weir_server.WEIR = real
            check(server.wait_for(lambda: "cgroup allows 128 MiB" in server.stderr()), f"it says so: {server.errors}")
            data = b"*49\r\n$12\r\nWEIR.TAKEALL\r\n$2\r\n16\r\n" + b"$65000\r\n" + b"k" * 65000 + b"\r\n" + b"$65000\r\n" + b"k" * 60000
            sockets = []
            for _ in range(32):  # what it has not read yet may count as its memory, too
                sockets += flood(server, data, 50)
                server.wait_for(lambda: unread(server) == 0)
            check(server.process.poll() is None, "it lives")
            for it in sockets[:400]:
                it.close()
            with http_client.Client(server.port) as client:
                check.equal(client.get("/healthz").status, 200, "and answers")
            for it in sockets[400:]:
                it.close()
    finally:
        weir_server.WEIR = real
        end = time.monotonic() + 60
        while folder.exists() and time.monotonic() < end:
            try:
                folder.rmdir()
            except OSError:
                time.sleep(0.05)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

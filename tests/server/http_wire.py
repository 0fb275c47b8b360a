#!/usr/bin/env python3
"""HTTP/1 as it comes over the wire: what is refused and how, connections that stay and end, pipelines, chunks,
bodies announced, clients that are slow, that stop listening, or that send what nobody understands.
"""
import random
import re
import socket
import struct
import sys
import time

import weir_server
import http_client
from http_client import get, post, request

TAKE = "/v1/take?key=k&limit=fixed-window+1000000/h"
FOREVER = {"limit": "fixed-window 1000000/h"}


def problem(check, answer, status, words, what):
    """Whether it is a refusal as every refusal is: a status, a type, a reason in words."""
    check.equal(answer.status, status, f"{what}: status")
    check.equal(answer.fields.get("content-type"), "application/problem+json", f"{what}: type")
    check.equal(answer.fields.get("cache-control"), "no-store", f"{what}: caching")
    body = answer.json if answer.body else {}
    check.equal(body.get("status"), status, f"{what}: status in the body")
    check(body.get("title") == answer.reason and answer.reason, f"{what}: title {body.get('title')!r}")
    check(words in body.get("detail", ""), f"{what}: {words!r} is not in {body.get('detail')!r}")


def refused(check, server, data, status, words, what):
    """Sends bytes that end the connection: one answer, marked as the last, then the end."""
    with http_client.Client(server.port) as client:
        client.send(data)
        answer = client.read()
        problem(check, answer, status, words, what)
        check.equal(answer.fields.get("connection"), "close", f"{what}: connection")
        check(client.at_end(), f"{what}: closed behind it")


# ---- what is not understood ----

def test_refusals(check):
    line = "GET /healthz HTTP/1.1\r\n"
    cases = [
        (b"GET /healthz\r\n\r\n", 400, "METHOD TARGET", "no version"),
        (b"GET  /healthz HTTP/1.1\r\nhost: a\r\n\r\n", 400, "", "two blanks"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "TLS", "TLS on a plain port"),
        (b"\x00\x01\x02\x03\r\n\r\n", 400, "control character", "zeros"),
        (b"GET / HTTP/1.1\nhost: a\n\n", 400, "line feed", "bare line feeds"),
        (line.encode() + b"\r\n", 400, "Host", "no Host"),
        (line.encode() + b"host: localhost\r\nhost: localhost\r\n\r\n", 400, "second Host", "two Hosts"),
        (line.encode() + b"host : localhost\r\n\r\n", 400, "blank", "a blank before the colon"),
        (line.encode() + b"host: localhost\r\nx: a\r\n b\r\n\r\n", 400, "folded", "a folded line"),
        (line.encode() + b"host: localhost\r\nnonsense\r\n\r\n", 400, "NAME: VALUE", "no colon"),
        (request("POST", "/v1/take", [("content-length", "5"), ("transfer-encoding", "chunked")], b""), 400,
         "beside Content-Length", "both lengths"),
        (request("POST", "/v1/take", [("content-length", "2"), ("content-length", "2")], b"{}"), 400,
         "second Content-Length", "two lengths"),
        (request("POST", "/v1/take", [("content-length", "-1")], b""), 400, "no number", "a negative length"),
        (request("POST", "/v1/take", [("content-length", "+2")], b"{}"), 400, "no number", "a signed length"),
        (request("POST", "/v1/take", [("transfer-encoding", "gzip, chunked")], b""), 501, "chunked", "gzip"),
        (request("POST", "/v1/take", [("transfer-encoding", "chunked")], b"zz\r\n"), 400, "chunk size", "no chunk size"),
        (request("POST", "/v1/take", [("transfer-encoding", "chunked")], b"2\r\n{}xx"), 400, "behind a chunk",
         "a chunk too long"),
        (request("POST", "/v1/take", version="HTTP/1.0"), 411, "Content-Length", "HTTP/1.0 without length"),
        (request("POST", "/v1/take", {"content-length": 131073}), 413, "131072", "a body too long"),
        (request("POST", "/v1/take", {"content-length": 10 ** 30}), 413, "131072", "a length beyond numbers"),
        (request("POST", "/v1/take", {"transfer-encoding": "chunked"}, b"20001\r\n"), 413, "131072",
         "a chunk too long for a body"),
        (request("GET", "/v1/take?" + "x" * 9000), 414, "too long", "a long target"),
        (request("GET", "/healthz", {"x": "y" * 16384}), 431, "too long", "a long field"),
        (request("GET", "/healthz", [(f"x{i}", i) for i in range(100)]), 431, "100", "many fields"),
        (request("GET", "/healthz", version="HTTP/2.0"), 505, "HTTP/1.1", "HTTP/2.0 in words"),
        (request("GET", "/healthz", version="HTTP/3.1"), 505, "HTTP/1.1", "HTTP/3.1"),
        (request("GET", "ftp://localhost/healthz"), 400, "http://", "another scheme"),
        (request("GET", "/v1/take?key=\xe9"), 400, "%E9", "a raw byte in the target"),
        (request("CONNECT", "localhost:80"), 400, "", "CONNECT"),
    ]
    with weir_server.Server("--threads 1") as server:
        for data, status, words, what in cases:
            refused(check, server, data, status, words, what)
        with http_client.Client(server.port) as client:
            check.equal(client.get("/healthz").status, 200, "and it lives on")


def test_bounds_can_be_set(check):
    with weir_server.Server("--max-head 1024 --max-body 2000") as server:
        refused(check, server, request("GET", "/healthz", {"x": "y" * 1100}), 431, "too long", "a short head")
        refused(check, server, request("GET", "/" + "y" * 600), 414, "too long", "a short line")
        refused(check, server, request("POST", "/v1/take", {"content-length": 2001}), 413, "2000", "a short body")
        with http_client.Client(server.port) as client:
            fitting = post("/v1/peek", {"key": "k" * 1900, "limit": "fixed-window 1/h"})
            check.equal(client.ask(fitting).status, 200, "what fits is answered")
    with weir_server.Server("--max-head 65536 --max-body 4194304") as server, http_client.Client(server.port) as client:
        long = get("/v1/take", key="k" * 30000, limit="fixed-window 1/h")
        check.equal([client.ask(long).status for _ in range(2)], [200, 429], "a query of 30 kB")
        pad = b" " * 3000000
        body = b'{"key":"k",' + pad + b'"limit":"fixed-window 1/h"}'
        check.equal(client.ask(post("/v1/take", body)).status, 200, "a body of 3 MB")


def test_keys_of_every_length(check):
    longest = "k" * 65536
    with weir_server.Server() as server, http_client.Client(server.port) as client, server.client() as resp:
        for key in ("k", longest, "\u20ac" * 21845):
            check.equal(client.post("/v1/take", {"key": key, "limit": "fixed-window 2/h"}).json["remaining"], 1,
                        f"a key of {len(key.encode())} bytes")
            check.equal(resp.call("WEIR.TAKE", key, "fixed-window 2/h")[2], 0, "the same key over RESP")
        problem(check, client.post("/v1/take", {"key": longest + "k", **FOREVER}), 400, "65536", "a key too long")
        problem(check, client.post("/v1/take", {"key": "", **FOREVER}), 400, "65536", "no key")
        pipeline = [post("/v1/take", {"key": longest, "limit": f"fixed-window {i + 1}/h"}) for i in range(20)]
        check.equal([answer.json["limit"] for answer in client.pipeline(pipeline)], list(range(1, 21)),
                    "a pipeline of the longest keys")


# ---- connections ----

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
        with socket.create_connection(("127.0.0.1", server.port), 10) as bare:
            bare.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            check(bare.makefile("rb").read().endswith(b"OK\n"), "HTTP/1.0 without Host, read to the end")
        with http_client.Client(server.port) as client:
            check.equal(client.ask(request("GET", f"http://localhost:{server.port}/healthz")).status, 200,
                        "a proxy's absolute target")
            check.equal(client.ask(b"\r\n\r\n" + get("/healthz")).status, 200, "empty lines before")
            answer = client.get("/healthz")
            check(re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.fields.get("date", "")),
                  f"Date: {answer.fields.get('date')}")


def test_head(check):
    with weir_server.Server() as server, http_client.Client(server.port) as client:
        for path in ("/healthz", "/readyz", "/v1/policies", "/", "/v1/peek?key=h&limit=fixed-window+1/h"):
            whole = client.ask(request("GET", path))
            head = client.ask(request("HEAD", path), head=True)
            for answer in (whole, head):
                answer.fields.pop("date")
            check.equal((head.status, head.fields), (whole.status, whole.fields), f"HEAD {path}")
        for path in ("/metrics", "/v1/stats", "/v1/top"):  # their numbers move, their lengths with them
            head = client.ask(request("HEAD", path), head=True)
            check(head.status == 200 and int(head.fields["content-length"]) > 10, f"HEAD {path}: {head}")
        limit = "/v1/take?key=h2&limit=fixed-window+1/h"
        statuses = [client.ask(request("HEAD", limit), head=True).status for _ in range(2)]
        check.equal(statuses, [200, 429], "HEAD takes, as GET does")
        check.equal(client.ask(request("HEAD", "/nowhere"), head=True).status, 404, "HEAD of nothing")


def test_cut_anywhere(check):
    """Requests in pieces of every size are the same requests."""
    whole = (post("/v1/take", {"key": "cut", "limit": "fixed-window 100/h", "detail": True})
             + get("/v1/take", key="cut", limit="fixed-window 100/h")
             + request("POST", "/v1/take", {"content-type": "application/json", "transfer-encoding": "chunked"},
                       b'10;x=y\r\n{"key":"cut","li\r\nD\r\nmit":"fixed-w\r\n0E\r\nindow 100/h"} \r\n0\r\nx: y\r\n\r\n'))
    with weir_server.Server("--threads 1") as server, server.client() as resp:
        for size in (1, 2, 3, 7, 50, 130, 500):
            resp.call("WEIR.RESET", "cut")
            with http_client.Client(server.port) as client:
                for start in range(0, len(whole), size):
                    client.send(whole[start:start + size])
                    if size < 50 and start % 5 == 0:
                        time.sleep(0.0002)  # lest the pieces join
                remaining = [client.read().json.get("remaining") for _ in range(3)]
                check.equal(remaining, [99, 98, 97], f"pieces of {size}")


def test_expect(check):
    body = http_client.encode({"key": "e", "limit": "fixed-window 9/h"}).encode()
    fields = {"content-type": "application/json", "content-length": len(body), "expect": "100-continue"}
    with weir_server.Server() as server:
        with http_client.Client(server.port) as client:
            for i in range(2):
                interim = client.ask(request("POST", "/v1/take", fields))
                check.equal(interim.status, 100, "100 Continue")
                check.equal(client.ask(body).json["remaining"], 8 - i, "then the answer")
            answer = client.ask(request("POST", "/v1/take", fields, body))
            check.equal((answer.status, answer.json["remaining"]), (200, 6), "no 100 where the body is there")
            client.send(get("/v1/take", key="e", limit="fixed-window 9/h") + request("POST", "/v1/take", fields))
            check.equal([client.read().status for _ in range(2)], [200, 100], "100 in its turn")
            check.equal(client.ask(body).json["remaining"], 4, "and the body")
        too_long = dict(fields, **{"content-length": 999999})
        refused(check, server, request("POST", "/v1/take", too_long), 413, "131072", "no 100 for what is refused")


def test_chunked(check):
    def send(client, parts, tail=b"0\r\n\r\n"):
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + tail
        return client.ask(request("POST", "/v1/take", {"content-type": "application/json",
                                                       "transfer-encoding": "chunked"}, body))
    whole = http_client.encode({"key": "c", "limit": "fixed-window 90/h"}).encode()
    with weir_server.Server() as server, http_client.Client(server.port) as client:
        check.equal(send(client, [whole]).json["remaining"], 89, "one chunk")
        check.equal(send(client, [bytes([byte]) for byte in whole]).json["remaining"], 88, "a byte each")
        check.equal(send(client, [whole], b"0;last\r\nx-trailer: y\r\n\r\n").json["remaining"], 87, "trailers")
        padded = whole[:-1] + b" " * 130000 + b"}"
        check.equal(send(client, [padded[i:i + 1000] for i in range(0, len(padded), 1000)]).json["remaining"], 86,
                    "nearly as long as may be")
        check.equal(send(client, []).status, 400, "an empty body is no JSON")
        check.equal(client.get("/healthz").status, 200, "and the connection stays")


# ---- pipelines ----

def test_pipeline_mixed(check):
    """A hundred of every kind in one write: the answers come in order."""
    kinds = [
        (lambda n: get("/v1/take", key=f"m{n}", limit=f"fixed-window {n}/h"), lambda a, n: a.json["limit"] == n),
        (lambda n: post("/v1/take", {"key": f"p{n}", "limit": f"fixed-window {n}/h", "detail": True}),
         lambda a, n: a.json["limits"][0]["limit"] == n),
        (lambda n: get(f"/nothing/{n}"), lambda a, n: a.status == 404 and str(n) in a.json["detail"]),
        (lambda n: post("/v1/take", {"key": "m", "limit": f"fixed-window x{n}/h"}),
         lambda a, n: a.status == 400 and f"x{n}" in a.json["detail"]),
        (lambda n: request("PUT", "/v1/take"), lambda a, n: a.status == 405),
        (lambda n: get("/healthz"), lambda a, n: a.body == b"OK\n"),
        (lambda n: post("/v1/simulate", {"limits": [f"fixed-window {n}/s"], "load": {"kind": "poisson", "rate": 5},
                                         "seconds": 2, "seed": n}), lambda a, n: a.status in (200, 400)),
        (lambda n: get("/metrics"), lambda a, n: b"# TYPE" in a.body and a.body.count(b"# TYPE weir_") > 5),
        (lambda n: post("/v1/reset", {"key": f"m{n}"}), lambda a, n: a.json == {"reset": True}),
        (lambda n: post("/v1/takeall", {"requests": [{"key": f"t{n}", "limit": f"fixed-window {n}/h"}]}),
         lambda a, n: a.json["limit"] == n),
        (lambda n: get("/v1/take", attr_path="/login", attr_ip=f"192.0.2.{n % 250}", detail=1),
         lambda a, n: a.json["limits"][0]["key"].endswith(f"192.0.2.{n % 250}}}")),
        (lambda n: get("/"), lambda a, n: b"<html" in a.body.lower()),
        (lambda n: post("/v1/reload"), lambda a, n: a.json == {"reloaded": True}),
    ]
    seed = int(time.time())
    pick = random.Random(seed)
    with weir_server.Server() as server, http_client.Client(server.port) as client:
        for part in range(6):
            chosen = [(n, pick.choice(kinds)) for n in range(1, 101)]
            client.send(b"".join(make(n) for n, (make, _) in chosen))
            for n, (make, holds) in chosen:
                answer = client.read()
                check(holds(answer, n), f"seed {seed}, part {part}: {make(n)[:60]!r} was answered by {answer!r:.300}")
        client.send(b"".join(request("HEAD", "/metrics") + get("/healthz") for _ in range(20)))
        heads = [(client.read(head=True).status, client.read().body) for _ in range(20)]
        check.equal(heads, [(200, b"OK\n")] * 20, "HEADs among others")


def test_pipeline_long(check):
    with weir_server.Server() as server, http_client.Client(server.port) as client, server.client() as resp:
        client.send(get("/v1/take", key="long", limit="fixed-window 5000/h") * 5000)
        check.equal([client.read().json["remaining"] for _ in range(5000)], list(range(4999, -1, -1)),
                    "5000 in one write")
        commands = [("WEIR.TAKE", "long2", "fixed-window 5000/h")] * 5000
        check.equal([reply[2] for reply in resp.pipeline(commands, 5000)], list(range(4999, -1, -1)),
                    "5000 over RESP")
        last = get("/v1/take", {"connection": "close"}, key="x", limit="fixed-window 1/h")
        client.send(get("/healthz") + last + get("/healthz"))
        check.equal([client.read().status for _ in range(2)], [200, 200], "up to the one that closes")
        check(client.at_end(), "and nothing behind it")


def test_unread_answers(check):
    """A client that sends and sends, and reads nothing for a while, gets all of it in the end."""
    with weir_server.Server("--threads 1") as server:
        with socket.create_connection(("127.0.0.1", server.port), 20) as slow, http_client.Client(server.port) as other:
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
            slow.settimeout(20)
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
                        slow.settimeout(20)
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
            gone = socket.create_connection(("127.0.0.1", server.port), 10)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(post("/v1/take", leaky) + get("/v1/policies") * 100)
            gone.close()
        with http_client.Client(server.port) as client:
            check.equal(client.get("/healthz").status, 200, "it lives on")


# ---- slow and idle ----

def test_timeouts(check):
    with weir_server.Server("--request-timeout 1s --idle-timeout 2s") as server:
        start = time.monotonic()
        begun, body, idle, fresh, busy, resp = [http_client.Client(server.port) for _ in range(6)]
        begun.send(b"GET /healthz HTTP/1.1\r\nhost: loc")
        body.send(request("POST", "/v1/take", {"content-type": "application/json", "content-length": 10}, b"{"))
        check.equal(idle.get("/healthz").status, 200, "idle's first request")
        resp.send(b"*2\r\n$4\r\nPI")
        for client, what in ((begun, "half a head"), (body, "half a body")):
            problem(check, client.read(), 408, "in time", what)
            check(client.at_end(), f"{what}: closed")
        elapsed = time.monotonic() - start
        check(1.0 <= elapsed < 4.5, f"408 after {elapsed:.2f} s")
        check(resp.at_end(), "half a command over RESP: closed")
        while time.monotonic() - start < 3.6:
            check.equal(busy.get("/healthz").status, 200, "a busy connection stays")
            time.sleep(0.3)
        check(idle.at_end(), "an idle connection is closed")
        check(fresh.at_end(), "and one that never said a word")
        elapsed = time.monotonic() - start
        check(2.0 <= elapsed < 6, f"idle ones closed after {elapsed:.2f} s")


def test_many_connections(check):
    with weir_server.Server("--max-connections 20 --threads 2") as server:
        clients = [http_client.Client(server.port) for _ in range(20)]
        check.equal([client.get("/healthz").status for client in clients], [200] * 20, "as many as may be")
        with http_client.Client(server.port) as further:
            further.send(get("/healthz"))
            check(further.at_end(), "one more is closed")
        clients.pop().close()
        check(server.wait_for(lambda: answers(server)), "room again when one goes")
        for client in clients:
            client.close()
    with weir_server.Server("--max-per-client 3") as server:
        clients = [http_client.Client(server.port) for _ in range(3)]
        check.equal([client.get("/healthz").status for client in clients], [200] * 3, "as many as an address may have")
        check(not answers(server), "one more of the same address is closed")
        check(answers(server, "127.0.0.2"), "one of another address is not")
        for client in clients:
            client.close()
        check(server.wait_for(lambda: answers(server)), "room again when they go")


def answers(server, source="127.0.0.1"):
    try:
        with socket.create_connection(("127.0.0.1", server.port), 5, source_address=(source, 0)) as one:
            one.sendall(get("/healthz"))
            return one.recv(100).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False


# ---- garbage ----

def test_garbage(check):
    """Bytes of all kinds, requests and commands with bytes changed: answers or an end, never a crash."""
    seed = int(time.time())
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
                with socket.create_connection(("127.0.0.1", server.port), 5) as one:
                    one.sendall(data)
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(65536):
                        pass
            except ConnectionError:
                pass
            if not check(server.process.poll() is None, f"seed {seed}: {bytes(data)!r} ended the server"):
                break
        check(answers(server), f"seed {seed}: it lives on")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(weir_server.run(TESTS, sys.argv[1:]))

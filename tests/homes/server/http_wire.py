#!/usr/bin/env python3
"""HTTP/1 as it comes over the wire: what is refused and how, bounds, HEAD, requests in pieces, bodies announced and in
chunks.
"""
import sys
import time

from lib import checks, http_client, weir_server
from lib.http_client import get, post, request

FOREVER = {"limit": "fixed-window 1000000/366d"}


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
        (line.encode() + b"host : localhost\r\n\r\n", 400, "a space in", "a blank before the colon"),
        (line.encode() + b"host: localhost\r\nx: a\r\n b\r\n\r\n", 400, "folded", "a folded line"),
        (line.encode() + b"host: localhost\r\nnonsense\r\n\r\n", 400, "NAME: VALUE", "no colon"),
        (request("POST", "/v1/take", [("content-length", "5"), ("transfer-encoding", "chunked")], b""), 400,
         "beside Content-Length", "both lengths"),
        (request("POST", "/v1/take", [("content-length", "2"), ("content-length", "2")], b"{}"), 400,
         "second Content-Length", "two lengths"),
        (request("POST", "/v1/take", [("content-length", "-1")], b""), 400, "invalid Content-Length", "a negative length"),
        (request("POST", "/v1/take", [("content-length", "+2")], b"{}"), 400, "invalid Content-Length", "a signed length"),
        (request("POST", "/v1/take", [("transfer-encoding", "gzip, chunked")], b""), 501, "chunked", "gzip"),
        (request("POST", "/v1/take", [("transfer-encoding", "chunked")], b"zz\r\n"), 400, "chunk size", "no chunk size"),
        (request("POST", "/v1/take", [("transfer-encoding", "chunked")], b"2\r\n{}xx"), 400, "after a chunk",
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
            fitting = post("/v1/peek", {"key": "k" * 1900, "limit": "fixed-window 1/366d"})
            check.equal(client.ask(fitting).status, 200, "what fits is answered")
    with weir_server.Server("--max-head 65536 --max-body 4194304") as server, http_client.Client(server.port) as client:
        long = get("/v1/take", key="k" * 30000, limit="fixed-window 1/366d")
        check.equal([client.ask(long).status for _ in range(2)], [200, 429], "a query of 30 kB")
        pad = b" " * 3000000
        body = b'{"key":"k",' + pad + b'"limit":"fixed-window 1/366d"}'
        check.equal(client.ask(post("/v1/take", body)).status, 200, "a body of 3 MB")


def test_keys_of_every_length(check):
    longest = "k" * 65536
    with weir_server.Server() as server, http_client.Client(server.port) as client, server.client() as resp:
        for key in ("k", longest, "\u20ac" * 21845):
            check.equal(client.post("/v1/take", {"key": key, "limit": "fixed-window 2/366d"}).json["remaining"], 1,
                        f"a key of {len(key.encode())} bytes")
            check.equal(resp.call("WEIR.TAKE", key, "fixed-window 2/366d")[2], 0, "the same key over RESP")
        problem(check, client.post("/v1/take", {"key": longest + "k", **FOREVER}), 400, "65536", "a key too long")
        problem(check, client.post("/v1/take", {"key": "", **FOREVER}), 400, "65536", "no key")
        pipeline = [post("/v1/take", {"key": longest, "limit": f"fixed-window {i + 1}/366d"}) for i in range(20)]
        check.equal([answer.json["limit"] for answer in client.pipeline(pipeline)], list(range(1, 21)),
                    "a pipeline of the longest keys")


def test_head(check):
    with weir_server.Server("--test-clock") as server, http_client.Client(server.port) as client:
        client.post("/v1/clock", {"now": 1700000000})  # seconds that are told stand still
        for path in ("/healthz", "/readyz", "/v1/policies", "/", "/v1/peek?key=h&limit=fixed-window+1/366d"):
            whole = client.ask(request("GET", path))
            head = client.ask(request("HEAD", path), head=True)
            for answer in (whole, head):
                answer.fields.pop("date")
            check.equal((head.status, head.fields), (whole.status, whole.fields), f"HEAD {path}")
        for path in ("/metrics", "/v1/stats", "/v1/history", "/v1/top"):  # their numbers move, their lengths with them
            head = client.ask(request("HEAD", path), head=True)
            check(head.status == 200 and int(head.fields["content-length"]) > 10, f"HEAD {path}: {head}")
        limit = "/v1/take?key=h2&limit=fixed-window+1/366d"
        statuses = [client.ask(request("HEAD", limit), head=True).status for _ in range(2)]
        check.equal(statuses, [200, 429], "HEAD takes, as GET does")
        check.equal(client.ask(request("HEAD", "/nowhere"), head=True).status, 404, "HEAD of nothing")


def test_cut_anywhere(check):
    """Requests in pieces of every size are the same requests."""
    whole = (post("/v1/take", {"key": "cut", "limit": "fixed-window 100/366d", "detail": True})
             + get("/v1/take", key="cut", limit="fixed-window 100/366d")
             + request("POST", "/v1/take", {"content-type": "application/json", "transfer-encoding": "chunked"},
                       b'10;x=y\r\n{"key":"cut","li\r\nD\r\nmit":"fixed-w\r\n11\r\nindow 100/366d"} \r\n0\r\nx: y\r\n\r\n'))
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
    body = http_client.encode({"key": "e", "limit": "fixed-window 9/366d"}).encode()
    fields = {"content-type": "application/json", "content-length": len(body), "expect": "100-continue"}
    with weir_server.Server() as server:
        with http_client.Client(server.port) as client:
            for i in range(2):
                interim = client.ask(request("POST", "/v1/take", fields))
                check.equal(interim.status, 100, "100 Continue")
                check.equal(client.ask(body).json["remaining"], 8 - i, "then the answer")
            answer = client.ask(request("POST", "/v1/take", fields, body))
            check.equal((answer.status, answer.json["remaining"]), (200, 6), "no 100 where the body is there")
            client.send(get("/v1/take", key="e", limit="fixed-window 9/366d") + request("POST", "/v1/take", fields))
            check.equal([client.read().status for _ in range(2)], [200, 100], "100 in its turn")
            check.equal(client.ask(body).json["remaining"], 4, "and the body")
        too_long = dict(fields, **{"content-length": 999999})
        refused(check, server, request("POST", "/v1/take", too_long), 413, "131072", "no 100 for what is refused")


def test_chunked(check):
    def send(client, parts, tail=b"0\r\n\r\n"):
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + tail
        return client.ask(request("POST", "/v1/take", {"content-type": "application/json",
                                                       "transfer-encoding": "chunked"}, body))
    whole = http_client.encode({"key": "c", "limit": "fixed-window 90/366d"}).encode()
    with weir_server.Server() as server, http_client.Client(server.port) as client:
        check.equal(send(client, [whole]).json["remaining"], 89, "one chunk")
        check.equal(send(client, [bytes([byte]) for byte in whole]).json["remaining"], 88, "a byte each")
        check.equal(send(client, [whole], b"0;last\r\nx-trailer: y\r\n\r\n").json["remaining"], 87, "trailers")
        padded = whole[:-1] + b" " * 130000 + b"}"
        check.equal(send(client, [padded[i:i + 1000] for i in range(0, len(padded), 1000)]).json["remaining"], 86,
                    "nearly as long as may be")
        check.equal(send(client, []).status, 400, "an empty body is no JSON")
        check.equal(client.get("/healthz").status, 200, "and the connection stays")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

#!/usr/bin/env python3
"""Bytes that no honest client sends: giants, garbage, requests that two readers would understand differently, deep
and endless JSON and YAML. One refusal each, then the connection ends; nothing behind it is ever carried out.

    tests/homes/server/abuse_bytes.py [--long] [NAME …]
"""
import json
import random
import socket
import sys

from lib import abuse_tools, checks, http_client, weir_server
from lib.abuse_tools import MIB

OPTIONS = "--threads 2 --request-timeout 3s"
MOST = 64 * MIB
YAML_SECONDS = 60  # a file that took as long as it could have grown would take for ever
LIMIT = "fixed-window+1000000/d+from-first"
SMUGGLED = f"GET /v1/take?key=victim&limit={LIMIT} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
JSON = "Host: localhost\r\nContent-Type: application/json\r\n"


def head(*fields, method="POST", target="/v1/take", version="HTTP/1.1"):
    """A head with these fields behind Host and Content-Type, with its empty line."""
    return "".join([f"{method} {target} {version}\r\n", JSON, *(f"{field}\r\n" for field in fields), "\r\n"]
                   ).encode("latin-1")


def said_by(server, data):
    """What the server says until it closes; "open" where it does not."""
    try:
        return abuse_tools.exchange(server.port, data)
    except TimeoutError:
        return b"open"


def used(server, key="victim"):
    """How often a key was charged."""
    with http_client.Client(server.port) as client:
        answer = client.get("/v1/peek", key=key, limit=LIMIT.replace("+", " "))
        return 1000000 - answer.json["remaining"]


# ---- giants ----

GIANTS = {
    "a header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 10 * MIB, 431),
    "a header's name": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a" * 10 * MIB, 431),
    "a million headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 1000000, 431),
    "101 headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 100 + b"\r\n", 431),
    "a target": (b"GET /" + b"a" * 10 * MIB, 414),
    "a query": (b"GET /v1/take?key=" + b"a" * 10 * MIB, 414),
    "a method": (b"A" * 10 * MIB, None),
    "a body announced": (head("Content-Length: 1000000000"), 413),
    "a body's length beyond all numbers": (head("Content-Length: 99999999999999999999999"), None),
    "a chunk": (head("Transfer-Encoding: chunked") + b"3b9aca00\r\n" + b"a" * MIB, 413),
    "many chunks": (head("Transfer-Encoding: chunked") + b"400\r\n" + (b"a" * 1024 + b"\r\n400\r\n") * 1000, 413),
    "tiny chunks": (head("Transfer-Encoding: chunked") + b"1\r\na\r\n" * 1000000, 413),
    "a chunk's extension": (head("Transfer-Encoding: chunked") + b"1;" + b"e" * 10 * MIB, None),
    "trailers": (head("Transfer-Encoding: chunked") + b"0\r\n" + b"t: u\r\n" * 1000000, None),
    "empty lines": (b"\r\n" * 5000000, None),
}


def test_giants_over_http(check):
    with weir_server.Server(OPTIONS) as server:
        with abuse_tools.Watch(server, check, "giants over HTTP", MOST):
            for name, (data, status) in GIANTS.items():
                said = said_by(server, data)
                got = abuse_tools.statuses(said)
                right = got == [status] if status else len(got) <= 1 and all(400 <= code < 500 for code in got)
                check(right and said != b"open", f"{name}: answered {got or said[:100]}, expected {status or 'a refusal'}")
        values = abuse_tools.metrics(server)
        large = abuse_tools.total(values, "weir_protocol_errors_total", protocol="http", kind="too_large")
        check(large >= 8, f"giants over HTTP: {large} counted")


RESP_GIANTS = {
    "a bulk announced": b"*2\r\n$4\r\nECHO\r\n$1000000000\r\n",
    "a bulk beyond all numbers": b"*2\r\n$4\r\nECHO\r\n$99999999999999999999999\r\n",
    "a negative bulk": b"*2\r\n$4\r\nECHO\r\n$-5\r\n",
    "a multibulk announced": b"*1000000\r\n" + b"$1\r\na\r\n" * 1000,
    "a multibulk beyond all numbers": b"*99999999999999999999999\r\n",
    "deep arrays": b"*1\r\n" * 1000000,
    "an array within": b"*2\r\n$4\r\nECHO\r\n*1\r\n$1\r\na\r\n",
    "an inline command": b"ECHO " + b"a" * 10 * MIB,
    "a length's digits": b"*" + b"0" * MIB,
    "a bulk of 16 MiB": b"*2\r\n$4\r\nECHO\r\n$16777216\r\n" + b"a" * 16 * MIB,
}


def test_giants_over_resp(check):
    with weir_server.Server(OPTIONS) as server:
        with abuse_tools.Watch(server, check, "giants over RESP", MOST):
            for name, data in RESP_GIANTS.items():
                said = said_by(server, data)
                right = said.startswith(b"-ERR") and said.count(b"\r\n") == 1
                check(right, f"{name}: answered {said[:100]}, expected one error")
        values = abuse_tools.metrics(server)
        broken = abuse_tools.total(values, "weir_protocol_errors_total", protocol="resp")
        check(broken >= len(RESP_GIANTS) - 1, f"giants over RESP: {broken} counted")


# ---- garbage ----

def mangled(chance, request):
    """A request with some of its bytes changed, cut out or doubled."""
    data = bytearray(request)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data))
        kind = chance.randrange(3)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at:at + chance.randint(1, 10)]
        else:
            data[at:at] = data[at:at + chance.randint(1, 30)] * chance.randint(1, 3)
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


GOOD = [
    head("Content-Length: 41") + b'{"key":"m","limit":"token-bucket 10/s  "}',
    head("Transfer-Encoding: chunked") + b'29\r\n{"key":"m","limit":"token-bucket 10/s  "}\r\n0\r\n\r\n',
    b"GET /v1/take?key=m&limit=token-bucket+10/s&wait=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"*3\r\n$9\r\nWEIR.TAKE\r\n$1\r\nm\r\n$17\r\ntoken-bucket 10/s\r\n",
    b"*7\r\n$12\r\nWEIR.TAKEALL\r\n$1\r\n2\r\n$1\r\na\r\n$6\r\ngcra 1\r\n$1\r\n1\r\n$1\r\nb\r\n$6\r\ngcra 1\r\n",
    b"CL.THROTTLE m 10 100 60\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
]


def garbage(chance, round_number):
    kind = round_number % 5
    if kind == 0:
        return chance.randbytes(chance.randint(1, 5000))
    if kind == 1:
        return b"\x16\x03\x01" + chance.randbytes(300)  # as TLS begins
    if kind == 2:
        return chance.choice((b"*", b"$", b"GET ", b"POST /", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0" * 50, b"\xff\xf4",
                              b"-ERR\r\n", b"+OK\r\n", b"\r\n\r\n", b"\n" * 100)) + chance.randbytes(200)
    return mangled(chance, chance.choice(GOOD))


def test_garbage(check):
    seed = checks.seed()
    print(f"  garbage: seed {seed}")
    chance = random.Random(seed)
    rounds = 20000 if abuse_tools.is_long() else 1500
    with weir_server.Server(OPTIONS) as server:
        with abuse_tools.Watch(server, check, "garbage", MOST):
            for number in range(rounds):
                data = garbage(chance, number)
                with abuse_tools.connect(server.port) as it:
                    try:
                        for at in range(0, len(data), 1000):
                            it.sendall(data[at:at + 1000])
                        if chance.random() < 0.5:
                            it.shutdown(socket.SHUT_WR)
                            abuse_tools.read_all(it)
                    except (ConnectionResetError, BrokenPipeError):
                        pass
                    except TimeoutError:
                        check(False, f"garbage {number} of seed {seed}: no end after half a close: {data[:80]}")
        values = abuse_tools.metrics(server)
        broken = abuse_tools.total(values, "weir_protocol_errors_total", kind="malformed")
        check(broken > rounds / 10, f"garbage: {broken} of {rounds} counted")


def test_hello_of_tls_on_the_plain_port(check):
    with weir_server.Server(OPTIONS) as server:
        with abuse_tools.Watch(server, check, "TLS on the plain port", MOST, least_answers=1):
            hello = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(190))
            got = abuse_tools.statuses(said_by(server, hello))
            check.equal(got, [400], "TLS on the plain port: a refusal that people can read")


# ---- requests that two readers would understand differently ----

TAKE = b'{"key":"seen","limit":"fixed-window 1000000/d from-first"}'
SIZE = len(TAKE)
TAKE_CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (SIZE, TAKE)
SMUGGLING = {
    "both lengths": head(f"Content-Length: {SIZE}", "Transfer-Encoding: chunked") + TAKE_CHUNKED,
    "both lengths, the other way round": head("Transfer-Encoding: chunked", f"Content-Length: {SIZE}") + TAKE_CHUNKED,
    "two lengths": head(f"Content-Length: {SIZE}", "Content-Length: 0") + TAKE,
    "two equal lengths": head(f"Content-Length: {SIZE}", f"Content-Length: {SIZE}") + TAKE,
    "a list of lengths": head(f"Content-Length: {SIZE}, {SIZE}") + TAKE,
    "a signed length": head(f"Content-Length: +{SIZE}") + TAKE,
    "a negative length": head("Content-Length: -1"),
    "a hexadecimal length": head(f"Content-Length: {SIZE:#x}") + TAKE,
    "an empty length": head("Content-Length:") + TAKE,
    "a length with a space in it": head("Content-Length: 5 8") + TAKE,
    "a folded line": head("X: a", " folded: b", f"Content-Length: {SIZE}") + TAKE,
    "a folded encoding": head("Transfer-Encoding:", " chunked", f"Content-Length: {SIZE}") + TAKE,
    "a space before the colon": head(f"Content-Length : {SIZE}") + TAKE,
    "a tab before the colon": head("Transfer-Encoding\t: chunked") + TAKE_CHUNKED,
    "a space before a name": head().replace(b"Content-Type", b" Content-Type", 1),
    "bare LF": head(f"Content-Length: {SIZE}").replace(b"\r\n", b"\n") + TAKE,
    "one bare LF": head("X: a").replace(b"X: a\r\n", b"X: a\n"),
    "bare CR": head("X: a\rContent-Length: 0", f"Content-Length: {SIZE}") + TAKE,
    "a NUL in a value": head("X: a\0b", f"Content-Length: {SIZE}") + TAKE,
    "an unknown encoding": head("Transfer-Encoding: xchunked", f"Content-Length: {SIZE}") + TAKE,
    "identity beside chunked": head("Transfer-Encoding: identity, chunked") + TAKE_CHUNKED,
    "chunked that is not last": head("Transfer-Encoding: chunked, gzip") + TAKE_CHUNKED,
    "chunked twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + TAKE_CHUNKED,
    "chunked in quotes": head('Transfer-Encoding: "chunked"') + TAKE_CHUNKED,
    "chunked with a vertical tab": head("Transfer-Encoding: \x0bchunked") + TAKE_CHUNKED,
    "chunked in HTTP/1.0": head("Transfer-Encoding: chunked", version="HTTP/1.0") + TAKE_CHUNKED,
    "a chunk's size beyond all numbers": head("Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n" + TAKE,
    "a chunk's size that wraps around": head("Transfer-Encoding: chunked") + b"1000000000000003a\r\n" + TAKE,
    "a negative chunk": head("Transfer-Encoding: chunked") + b"-1\r\n" + TAKE,
    "a chunk's size with a prefix": head("Transfer-Encoding: chunked") + b"0x%x\r\n%s\r\n0\r\n\r\n" % (SIZE, TAKE),
    "a chunk without its end": head("Transfer-Encoding: chunked") + b"%x\r\n%s0\r\n\r\n" % (SIZE, TAKE),
    "a chunk's line ended by LF": head("Transfer-Encoding: chunked") + b"%x\n%s\r\n0\r\n\r\n" % (SIZE, TAKE),
    "two hosts": head("Host: other", f"Content-Length: {SIZE}") + TAKE,
    "no host": b"GET /v1/take?key=seen&limit=gcra+1/s HTTP/1.1\r\n\r\n",
    "a space in the target": b"GET /v1/take?key=seen &limit=gcra+1/s HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/9.9": head(version="HTTP/9.9"),
    "a version of three digits": head(version="HTTP/1.10"),
}


def test_smuggling(check):
    """Behind each stands a whole request. It must not run: what one reader takes for a body is another's request."""
    with weir_server.Server(OPTIONS) as server:
        with abuse_tools.Watch(server, check, "smuggling", MOST):
            for name, data in SMUGGLING.items():
                said = said_by(server, data + SMUGGLED + SMUGGLED)
                got = abuse_tools.statuses(said)
                right = len(got) == 1 and (400 <= got[0] < 500 or got[0] in (501, 505))
                check(right, f"{name}: answered {got or said[:100]}, expected one refusal")
                check.contains(said.lower(), b"connection: close", f"{name}: it says that it closes")
                check.equal(used(server), 0, f"{name}: what stood behind it was not carried out")
                check.equal(used(server, "seen"), 0, f"{name}: nor was it itself")
        values = abuse_tools.metrics(server)
        broken = abuse_tools.total(values, "weir_protocol_errors_total", protocol="http")
        check(broken >= len(SMUGGLING) - 2, f"smuggling: {broken} of {len(SMUGGLING)} counted")


def test_bodies_are_bodies(check):
    """What is well-formed and looks like a request within a body is a body."""
    with weir_server.Server(OPTIONS) as server:
        for name, data in (("of a length", head(f"Content-Length: {len(SMUGGLED)}") + SMUGGLED),
                           ("of chunks", head("Transfer-Encoding: chunked") +
                            b"%x\r\n%s\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)),
                           ("of a GET", head(f"Content-Length: {len(SMUGGLED)}", method="GET", target="/healthz") +
                            SMUGGLED)):
            with abuse_tools.connect(server.port) as it:
                it.sendall(data + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                got = abuse_tools.statuses(abuse_tools.read_all(it))
            check(len(got) in (1, 2), f"a body {name}: answered {got}")
            check.equal(used(server), 0, f"a body {name}: what looked like a request was not carried out")


# ---- JSON and YAML ----

JSON_BODIES = {
    "deep arrays": b"[" * 60000,
    "deep arrays, closed": b"[" * 60000 + b"]" * 60000,
    "deep objects": b'{"a":' * 20000 + b"1" + b"}" * 20000,
    "deep within a take": b'{"key":"k","limit":"gcra 1/s","attributes":' + b"[" * 50000 + b"]" * 50000 + b"}",
    "many nodes": b"[" + b"1," * 60000 + b"1]",
    "many members": b"{" + b",".join(b'"a%d":1' % i for i in range(9000)) + b"}",
    "one name a thousand times": b"{" + b'"key":"k",' * 8000 + b'"limit":"gcra 1/s"}',
    "a long number": b'{"key":"k","limit":"gcra 1/s","cost":' + b"9" * 100000 + b"}",
    "a huge exponent": b'{"key":"k","limit":"gcra 1/s","cost":1e999999999999}',
    "lone surrogates": b'{"key":"\\ud800","limit":"gcra 1/s"}',
    "a NUL": b'{"key":"k\x00","limit":"gcra 1/s"}',
    "not UTF-8": b'{"key":"\xff\xfe","limit":"gcra 1/s"}',
    "half of it": b'{"key":"k","limit":"gcra',
    "two values": b'{"key":"k","limit":"gcra 1/s"}{"key":"k","limit":"gcra 1/s"}',
    "no value": b"",
    "many requests": json.dumps({"requests": [{"key": "k", "limit": "gcra 1/s"}] * 2000}).encode(),
    "a long limit": json.dumps({"key": "k", "limit": " + ".join(["gcra 1/s"] * 9000)}).encode(),
}
PATHS = ("/v1/take", "/v1/takeall", "/v1/explain", "/v1/settle", "/v1/simulate", "/json")


def test_json(check):
    with weir_server.Server(OPTIONS) as server:
        with abuse_tools.Watch(server, check, "JSON", MOST):
            for path in PATHS:
                with http_client.Client(server.port) as client:
                    for name, body in JSON_BODIES.items():
                        start = abuse_tools.cpu_seconds(server)
                        answer = client.ask(http_client.request("POST", path, {"content-type": "application/json"}, body))
                        check(400 <= answer.status < 500, f"{path}, {name}: {answer.status} {answer.body[:100]}")
                        check(abuse_tools.cpu_seconds(server) - start < 2, f"{path}, {name}: it took too long")
        values = abuse_tools.metrics(server)
        check(abuse_tools.total(values, "weir_protocol_errors_total", protocol="http", kind="invalid") > 20,
              "JSON: what was refused is counted")


def test_a_million_nodes(check):
    """With the largest body that can be allowed."""
    with weir_server.Server(OPTIONS + " --max-body 4194304") as server:
        with abuse_tools.Watch(server, check, "a million nodes", MOST, least_answers=1):
            with http_client.Client(server.port) as client:
                for body in (b"[" + b"1," * 1000000 + b"1]", b"[" * 2000000 + b"]" * 2000000,
                             b'{"requests":[' + b'{"key":"k","limit":"gcra 1/s"},' * 100000 + b"1]}"):
                    for path in PATHS:
                        answer = client.ask(http_client.request("POST", path, {"content-type": "application/json"}, body))
                        check(400 <= answer.status < 500, f"{path}, {body[:14]}…: {answer.status}")


YAML_FILES = {
    "deep lists": "version: 1\npolicies: " + "[" * 100000,
    "deep lists, closed": "version: 1\npolicies: " + "[" * 10000 + "]" * 10000,
    "deep maps": "version: 1\npolicies: " + "{a: " * 100000,
    "deep blocks": "version: 1\npolicies:\n" + "".join(" " * i + "- \n" for i in range(1, 1500)),
    "laughing aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join('*' + chr(97 + i) for _ in range(9))}]\n" for i in range(12)),
    "an alias of itself": "version: 1\npolicies: &p [*p]\n",
    "a million entries": "version: 1\npolicies:\n" + "- {}\n" * 500000,
    "a long text": "version: 1\npolicies:\n- name: " + "x" * 3000000,
    "five megabytes": "#" * (5 * MIB),
    "binary": "\x00\x01\x02\x03",
}


def test_yaml(check):
    """A file that is refused changes nothing, and costs no more than it weighs."""
    good = "version: 1\npolicies:\n- {name: good, key: user, limit: gcra 1/s}\n"
    with weir_server.Server(OPTIONS + " --no-watch", policies=good) as server:
        with abuse_tools.Watch(server, check, "YAML", 256 * MIB):
            with http_client.Client(server.port) as client:
                for name, text in YAML_FILES.items():
                    server.write("policies.yaml", text)
                    start = abuse_tools.cpu_seconds(server)
                    answer = client.post("/v1/reload", {})
                    check.equal(answer.status, 409, f"{name}: refused")
                    took = abuse_tools.cpu_seconds(server) - start
                    check(took < YAML_SECONDS, f"{name}: {took:.1f} s")
                    check(len(answer.body) < 2000, f"{name}: the refusal is short")
                    names = [it["name"] for it in client.get("/v1/policies").json["policies"]]
                    check.equal(names, ["good"], f"{name}: the old policies are in force")
                server.write("policies.yaml", good.replace("good", "better"))
                check.equal(client.post("/v1/reload", {}).status, 200, "a good file is taken afterwards")
        values = abuse_tools.metrics(server)
        check.equal(abuse_tools.total(values, "weir_policy_reloads_total", result="failed"), len(YAML_FILES),
                    "YAML: failed reloads are counted")


TESTS = [test_giants_over_http, test_giants_over_resp, test_garbage, test_hello_of_tls_on_the_plain_port, test_smuggling,
         test_bodies_are_bodies, test_json, test_a_million_nodes, test_yaml]

if __name__ == "__main__":
    sys.exit(abuse_tools.main(TESTS))

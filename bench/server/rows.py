"""The requests that are measured, section by section, and the aims that go with them."""
import dataclasses
import urllib.parse

from .measure import ALLOWED, DENIED, Row

NUMBER = "#" * 10  # the load puts a key's number in
KEY, DENIED_KEY = "user:x" + NUMBER, "deny:x" + NUMBER  # 16 bytes
# Debts that outlive the run, so that an allowed key stays allowed and a denied one denied.
PLENTY, ONCE = "token-bucket 1/h burst 1m", "token-bucket 1/366d"
PIPELINES = (16, 1)
STREAMS = {"connections": 4, "pipeline": 16}


def path(key, limit):
    return f"/v1/take?key={key}&limit={urllib.parse.quote(limit)}"


def body(key, limit):
    return f'{{"key":"{key}","limit":"{limit}"}}'


def both(rows):
    """Each row pipelined and not."""
    return [dataclasses.replace(row, pipeline=pipeline) for pipeline in PIPELINES for row in rows]


def resp():
    return both([
        Row("echo, the floor", "echo", "resp", ("PING",)),
        Row("redis PING", "redis", "resp", ("PING",)),
        Row("weir PING", "weir", "resp", ("PING",)),
        Row("redis INCR", "redis", "resp", ("INCR", KEY)),
        Row("weir take", "weir", "resp", ("WEIR.TAKE", KEY, PLENTY), ALLOWED),
        Row("weir take, denied", "weir", "resp", ("WEIR.TAKE", DENIED_KEY, ONCE), DENIED),
        Row("module take", "redis module", "resp", ("WEIR.TAKE", KEY, PLENTY), ALLOWED),
        Row("module take, denied", "redis module", "resp", ("WEIR.TAKE", DENIED_KEY, ONCE), DENIED),
    ])


def http():
    return both([
        Row("fixed answer, the floor", "http echo", "http", ("GET", path(KEY, PLENTY)), ALLOWED),
        Row("nginx return 200", "nginx", "http", ("GET", path(KEY, PLENTY)), ALLOWED),
        Row("weir GET take", "weir", "http", ("GET", path(KEY, PLENTY)), ALLOWED),
        Row("weir GET take, denied", "weir", "http", ("GET", path(DENIED_KEY, ONCE)), DENIED),
        Row("weir GET take, no fields", "weir, no headers", "http", ("GET", path(KEY, PLENTY)), ALLOWED),
        Row("nginx return 200, POST", "nginx", "http", ("POST", "/v1/take", body(KEY, PLENTY)), ALLOWED),
        Row("weir POST take", "weir", "http", ("POST", "/v1/take", body(KEY, PLENTY)), ALLOWED),
    ])


def grpc():
    return [
        Row("weir ShouldRateLimit", "weir", "grpc", ("bench", f"user=x{NUMBER}"), ALLOWED, **STREAMS),
        Row("weir ShouldRateLimit, denied", "weir", "grpc", ("bench", f"denied=x{NUMBER}"), DENIED, **STREAMS),
        Row("weir ShouldRateLimit, 1 stream", "weir", "grpc", ("bench", f"user=x{NUMBER}"), ALLOWED),
    ]


INCR, NGINX = "redis INCR", "nginx return 200"
TAKE, GET, SHOULD = "weir take", "weir GET take", "weir ShouldRateLimit"

# (what is told, row, base, how: "cpu" is the CPU time over the base's, "per cpu" the requests a CPU second over the
# base's, sign, aim)
AIMS = [
    ("RESP take / INCR, CPU, pipelined", (TAKE, 16), (INCR, 16), "cpu", "<=", 0.6),
    ("RESP take / INCR, CPU, one at a time", (TAKE, 1), (INCR, 1), "cpu", "<=", 1.0),
    ("GET take / nginx, requests a CPU second, one at a time", (GET, 1), (NGINX, 1), "per cpu", ">=", 0.8),
    ("GET take / nginx, requests a CPU second, pipelined", (GET, 16), (NGINX, 16), "per cpu", ">=", 3.0),
    ("gRPC, 64 streams / GET take one at a time, a CPU second", (SHOULD, 16), (GET, 1), "per cpu", ">=", 0.5),
    ("gRPC, 64 streams / GET take pipelined, a CPU second", (SHOULD, 16), (GET, 16), "per cpu", ">=", 0.5),
]

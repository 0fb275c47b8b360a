#!/usr/bin/env python3
"""Many requests under way on one connection: of every kind, in order, on stores near and far."""
import random
import socket
import struct
import sys
import time

from lib import checks, http_client, redis_server, weir_server
from lib.http_client import get, post, request


def mix_pipelines(check, options):
    """A hundred of every kind in one write: the answers come in order."""
    kinds = [
        (lambda n: get("/v1/take", key=f"m{n}", limit=f"fixed-window {n}/366d"), lambda a, n: a.json["limit"] == n),
        (lambda n: post("/v1/take", {"key": f"p{n}", "limit": f"fixed-window {n}/366d", "detail": True}),
         lambda a, n: a.json["limits"][0]["limit"] == n),
        (lambda n: get(f"/nothing/{n}"), lambda a, n: a.status == 404 and str(n) in a.json["detail"]),
        (lambda n: post("/v1/take", {"key": "m", "limit": f"fixed-window x{n}/366d"}),
         lambda a, n: a.status == 400 and f"x{n}" in a.json["detail"]),
        (lambda n: request("PUT", "/v1/take"), lambda a, n: a.status == 405),
        (lambda n: get("/healthz"), lambda a, n: a.body == b"OK\n"),
        (lambda n: post("/v1/simulate", {"limits": [f"fixed-window {n}/s"], "load": {"kind": "poisson", "rate": 5},
                                         "seconds": 2, "seed": n}), lambda a, n: a.status in (200, 400)),
        (lambda n: get("/metrics"), lambda a, n: b"# TYPE" in a.body and a.body.count(b"# TYPE weir_") > 5),
        (lambda n: post("/v1/reset", {"key": f"m{n}"}), lambda a, n: list(a.json) == ["reset"]),
        (lambda n: post("/v1/takeall", {"requests": [{"key": f"t{n}", "limit": f"fixed-window {n}/366d"}]}),
         lambda a, n: a.json["limit"] == n),
        (lambda n: get("/v1/take", attr_path="/login", attr_ip=f"192.0.2.{n % 250}", detail=1),
         lambda a, n: a.json["limits"][0]["key"].endswith(f"192.0.2.{n % 250}}}")),
        (lambda n: get("/"), lambda a, n: b"<html" in a.body.lower()),
        (lambda n: post("/v1/reload"), lambda a, n: a.json == {"reloaded": True}),
    ]
    seed = checks.seed()
    pick = random.Random(seed)
    with weir_server.Server(options) as server, http_client.Client(server.port) as client:
        for part in range(6):
            chosen = [(n, pick.choice(kinds)) for n in range(1, 101)]
            client.send(b"".join(make(n) for n, (make, _) in chosen))
            for n, (make, holds) in chosen:
                answer = client.read()
                check(holds(answer, n), f"seed {seed}, part {part}: {make(n)[:60]!r} was answered by {answer!r:.300}")
        client.send(b"".join(request("HEAD", "/metrics") + get("/healthz") for _ in range(20)))
        heads = [(client.read(head=True).status, client.read().body) for _ in range(20)]
        check.equal(heads, [(200, b"OK\n")] * 20, "HEADs among others")


def test_pipeline_mixed(check):
    mix_pipelines(check, "")


def test_pipeline_mixed_remote(check):
    """The same where answers come from a store over a network."""
    with redis_server.Server() as redis:
        mix_pipelines(check, f"--store redis://127.0.0.1:{redis.port}?deadline=1m")


def test_pipeline_long(check):
    with weir_server.Server() as server, http_client.Client(server.port) as client, server.client() as resp:
        client.send(get("/v1/take", key="long", limit="fixed-window 5000/366d") * 5000)
        check.equal([client.read().json["remaining"] for _ in range(5000)], list(range(4999, -1, -1)),
                    "5000 in one write")
        commands = [("WEIR.TAKE", "long2", "fixed-window 5000/366d")] * 5000
        check.equal([reply[2] for reply in resp.pipeline(commands, 5000)], list(range(4999, -1, -1)),
                    "5000 over RESP")
        last = get("/v1/take", {"connection": "close"}, key="x", limit="fixed-window 1/366d")
        client.send(get("/healthz") + last + get("/healthz"))
        check.equal([client.read().status for _ in range(2)], [200, 200], "up to the one that closes")
        check(client.at_end(), "and nothing behind it")


def test_remote(check):
    """A remote store: order, held answers, clients that go, RESP with errors in between."""
    with redis_server.Server() as redis, weir_server.Server(
            f"--threads 2 --store redis://127.0.0.1:{redis.port}?deadline=1m") as server:
        with http_client.Client(server.port) as client, server.client() as resp:
            client.send(get("/v1/take", key="long", limit="fixed-window 2000/366d") * 2000)
            check.equal([client.read().json["remaining"] for _ in range(2000)], list(range(1999, -1, -1)), "in order")
            commands = [("WEIR.TAKE", "long2", "fixed-window 900/366d"), ("NONSENSE",), ("PING",)] * 600
            replies = resp.pipeline(commands, 1800)
            check.equal([reply[2] for reply in replies[0::3]], [*range(899, 299, -1)], "over RESP")
            check(all("unknown" in str(reply) for reply in replies[1::3]) and set(replies[2::3]) == {"PONG"},
                  "with errors and others in their places")
            leaky = post("/v1/take", {"key": "held", "limit": "leaky-bucket 10/s burst 9", "hold": True})
            start = time.monotonic()
            client.send(leaky * 3 + get("/healthz"))
            check.equal([client.read().status for _ in range(4)], [200] * 4, "held")
            check(time.monotonic() - start >= 0.198, f"for {time.monotonic() - start:.3f} s")
            big = "k" * 65536
            answers = client.pipeline([post("/v1/take", {"key": big, "limit": "fixed-window 50/366d"})] * 30)
            check.equal([answer.json["remaining"] for answer in answers], list(range(49, 19, -1)), "long keys")
            receipt = client.post("/v1/take", {"key": "s", "limit": "fixed-window 9/366d", "cost": 5}).json["receipt"]
            settle = {"key": "s", "limit": "fixed-window 9/366d", "receipt": receipt, "actual": 1}
            check.equal(client.post("/v1/settle", settle).status, 200, "settled")
            check.equal(resp.call("WEIR.PEEK", "s", "fixed-window 9/366d")[2], 8, "four given back")
            check.equal(client.post("/v1/settle", {**settle, "key": "t"}).status, 400, "not another key's")
        for _ in range(100):  # gone while the store is being asked
            gone = socket.create_connection(("127.0.0.1", server.port), weir_server.PATIENCE_SECONDS)
            gone.sendall(get("/v1/take", key="gone", limit="fixed-window 9999/366d") * 50)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()
        with http_client.Client(server.port) as client:
            check.equal(client.get("/healthz").status, 200, "it lives on")


def test_remote_reset(check):
    """WEIR.RESET has no limit; it goes to a remote store among others that have one."""
    with redis_server.Server() as redis, weir_server.Server(
            f"--threads 1 --store redis://127.0.0.1:{redis.port}?deadline=1m") as server:
        for n in range(12):  # what lies on the stack differs from connection to connection
            with server.client(protocol=2 + n % 2) as resp, http_client.Client(server.port) as client:
                client.get("/v1/take", key="h", limit=f"fixed-window {n + 5}/366d", detail=1)
                client.get("/metrics")
                resp.call("INFO")
                resp.call("COMMAND")
                check.equal(resp.call("WEIR.RESET", f"a{n}"), 0, f"connection {n}, alone: there was nothing")
                commands = [("WEIR.TAKE", f"a{n}", f"fixed-window {n + 10}/366d"), ("WEIR.RESET", f"a{n}"),
                            ("WEIR.PEEK", f"a{n}", "fixed-window 9/366d")]
                replies = resp.pipeline(commands, len(commands))
                check.equal((replies[1], replies[2][2]), (1, 9), f"connection {n}, among others")


def test_degraded(check):
    """A store that is out of reach: what was decided without it says so, or is refused, as fail= has it."""
    for fail, status, body in (("local", 200, {"allowed": True, "degraded": True}),
                               ("open", 200, {"allowed": True, "degraded": True}),
                               ("closed", 429, {"allowed": False, "degraded": True})):
        with weir_server.Server(f"--store redis://127.0.0.1:1?deadline=50ms&fail={fail}") as server, \
                http_client.Client(server.port) as client:
            answer = client.get("/v1/take", key="k", limit="fixed-window 5/366d")
            got = {name: answer.json.get(name) for name in body}
            check.equal((answer.status, got), (status, body), f"fail={fail}")
            check.equal(client.get("/healthz").status, 200, "it is alive")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

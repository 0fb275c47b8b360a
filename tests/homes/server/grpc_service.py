#!/usr/bin/env python3
"""Envoy's rate limit service and gRPC's health checks, by a client of others (grpc-js), by hand, and as POST /json."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from lib import checks, h2_frames as h2, redis_server
from lib.h2_server import Server


HERE = pathlib.Path(__file__).resolve().parent
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RULES = """
domain: shop
descriptors:
  - key: user
    rate_limit: {name: users, unit: year, requests_per_unit: 3}
  - key: free
    rate_limit: {unlimited: true}
  - key: load
    rate_limit: {unit: year, requests_per_unit: 5000}
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
"""
OVER = b"\0\0\0\0\x02\x08\x02"  # OVER_LIMIT, and nothing else
PATIENCE_SECONDS = 60
ENVOY = {"options": ("--envoy", "{folder}/rules.yaml"), "files": {"rules.yaml": RULES}}


def serve(*options, **more):
    return Server(*ENVOY["options"], *options, files=ENVOY["files"], **more)


def modules():
    """Where Node finds grpc-js."""
    done = subprocess.run([str(HERE / "npm_deps.sh")], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode or not shutil.which("node"):
        sys.exit("node and grpc-js are needed (nodejs, npm)\n0 passed, 1 failed")
    return done.stdout.strip()


def start(*words):
    return subprocess.Popen(["node", str(HERE / "grpc_client.js"), *map(str, words)], stdout=subprocess.PIPE, text=True,
                            env=dict(os.environ, NODE_PATH=MODULES))


def take_in(check, node, what, seconds=600):
    """Adds what a client checked."""
    text, _ = node.communicate(timeout=seconds)
    found = re.search(r"(\d+) passed, (\d+) failed\s*$", text)
    for line in text.splitlines():
        if line.startswith("FAIL"):
            print(f"{what}: {line}", flush=True)
    if not check(found is not None and node.returncode in (0, 1), f"{what}: the client ends in order: {text[-500:]}"):
        return
    check.passed += int(found[1])
    check.failed += int(found[2])


def client(check, *words):
    take_in(check, start(*words), words[0])


def test_rules(check):
    with serve() as server:
        client(check, "rules", server.port)
        client(check, "errors", server.port)
        client(check, "health", server.port, "SERVING")
        check.equal(server.metric("weir_envoy_over_limit_total", domain="shop", rule="user"), 1 + 4 + 1,
                    "over, as envoyproxy/ratelimit counts")
        check((server.metric("weir_requests_total", protocol="grpc") or 0) > 20, "requests are counted")
        check((server.metric("weir_decisions_total") or 0) > 15, "decisions are counted")
        check("envoy:shop" in server.get("/v1/top")[1], "keys are ranked")


def test_load(check):
    with serve() as server:
        client(check, "load", server.port)
        client(check, "cancels", server.port)
        check.equal(server.metric("weir_envoy_hits_total", domain="shop", rule="load"), 6000, "hits")
        check.equal(server.metric("weir_envoy_over_limit_total", domain="shop", rule="load"), 1000, "over")


def test_redis(check):
    """A store over the network: answers come later, from other threads, and streams may be gone by then."""
    with redis_server.Server() as redis, serve(store=f"redis://127.0.0.1:{redis.port}?deadline=1m") as server:
        client(check, "rules", server.port)
        client(check, "load", server.port)
        client(check, "cancels", server.port)
        check.equal(server.metric("weir_envoy_hits_total", domain="shop", rule="load"), 6000, "hits")
        message = rate_limit_request("shop", [("free", "x")])
        for _ in range(50):  # gone before the answer
            with h2.Peer(server.port) as peer:
                peer.send(b"".join(grpc_frames(2 * i + 1, METHOD, message) for i in range(20)))
        for i in range(100):  # reset before the answer, of asks that borrow from their streams
            with h2.Peer(server.port) as peer:
                path = f"/v1/take?key=orphan{i}&limit=fixed-window+9/366d"
                peer.send(b"".join(h2.headers(2 * j + 1, h2.request(path)) + h2.reset(2 * j + 1) for j in range(9)) +
                          h2.headers(99, h2.request(path)))
                status, body, error = peer.answer(99)
                if not check(status in (200, None) and b"allowed" in body, f"behind resets: {status} {body} {error}"):
                    break
        check(server.alive(), "the server goes on")
        posted = post_json(server, {"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "json"}]}]})
        check.equal(posted[0], 200, f"POST /json: {posted}")
        posted = post_json(server, {"domain": "shop", "descriptors": []}, "--http2-prior-knowledge")
        check.equal(posted[0], 400, f"POST /json without descriptors: {posted}")


def test_redis_gone(check):
    """The store is out of reach: an error that says so, or an answer of the local fallback; never silence."""
    with redis_server.Server() as redis, serve(store=f"redis://127.0.0.1:{redis.port}?fail=closed") as server:
        with h2.Peer(server.port) as peer:
            message = rate_limit_request("shop", [("user", "x")])
            peer.send(grpc_frames(1, METHOD, message))
            check(trailers(peer, 1) is not None, "answered")
            redis.kill()
            peer.send(b"".join(grpc_frames(i, METHOD, message) for i in range(3, 103, 2)))
            ended = set()
            while len(ended) < 50 and (it := peer.next()) is not None:
                if it.stream and (it.kind == h2.RST_STREAM or it.flags & h2.END_STREAM):
                    ended.add(it.stream)
            check.equal(len(ended), 50, "all are answered while the store is gone")


def test_token(check):
    with serve(env={"WEIR_TOKEN": "secret-of-the-shop"}) as server:
        client(check, "token", server.port, "secret-of-the-shop")


def test_no_rules(check):
    with Server("--policies", "{folder}/none.yaml", files={"none.yaml": "version: 1\npolicies: []\n"}) as server:
        client(check, "no_rules", server.port)


def test_drain(check):
    with serve() as server:
        node = start("drain", server.port)
        check.equal(node.stdout.readline(), "ready\n", "the client is there")
        end = time.monotonic() + PATIENCE_SECONDS
        while (server.metric("weir_requests_total", protocol="grpc") or 0) < 200 and time.monotonic() < end:
            time.sleep(0.05)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        take_in(check, node, "drain")
        stopping.join()
        check.equal(server.process.returncode, 0, "the exit code")


def test_health_while_draining(check):
    """Whoever asks on a connection that is still open learns that it is time to go elsewhere. A request that is under
    way keeps it open."""
    with serve("--request-timeout", "1h", "--drain-timeout", "1h") as server, h2.Peer(server.port) as peer:
        peer.send(grpc_frames(1, "/grpc.health.v1.Health/Check", b""))
        data = b"".join(it.payload for it in trailers(peer, 1) or [] if it.kind == h2.DATA)
        check.equal(data[5:], b"\x08\x01", "SERVING")
        under_way = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
        peer.send(h2.headers(3, under_way, h2.END_HEADERS))
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        check(peer.until(lambda it: it.kind == h2.GOAWAY) is not None, "GOAWAY")
        peer.send(grpc_frames(5, "/grpc.health.v1.Health/Check", field(1, b"ratelimit")))
        data = b"".join(it.payload for it in trailers(peer, 5) or [] if it.kind == h2.DATA)
        check.equal(data[5:], b"\x08\x02", "NOT_SERVING")
        peer.socket.close()
        stopping.join()


# ---- by hand ----

def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def rate_limit_request(domain, *descriptors):
    text = field(1, domain.encode())
    for entries in descriptors:
        text += field(2, b"".join(field(1, field(1, key.encode()) + field(2, value.encode()))
                                  for key, value in entries))
    return text


def grpc_frames(stream, path, message, *, fields=(), content_type="application/grpc", flag=0, prefix=None):
    head = h2.request(path, "POST", fields=[("content-type", content_type), ("te", "trailers"), *fields])
    if prefix is None:
        prefix = bytes([flag]) + len(message).to_bytes(4, "big")
    return h2.headers(stream, head, h2.END_HEADERS) + h2.frame(h2.DATA, h2.END_STREAM, stream, prefix + message)


def trailers(peer, stream):
    """The frames of an answer: kinds, and whether each ends the stream; None: it was reset."""
    kinds = []
    while (it := peer.next()) is not None:
        if it.stream != stream or it.kind not in (h2.HEADERS, h2.DATA, h2.RST_STREAM):
            continue
        if it.kind == h2.RST_STREAM:
            return None
        kinds.append(it)
        if it.flags & h2.END_STREAM:
            return kinds
    return None


def curl_grpc(server, path, body, *words):
    """An answer's status, fields and trailers in one dictionary, and the body."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        done = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--max-time", "60", "-D", "-", "-o", "-", "-H",
                               "te: trailers", "-H", "expect:", "--data-binary", f"@{file.name}", *words,
                               f"http://127.0.0.1:{server.port}{path}"], stdout=subprocess.PIPE, check=True)
    head, _, rest = done.stdout.partition(b"\r\n\r\n")
    fields = {"status": head.split()[1].decode()}
    body, _, tail = rest.partition(b"grpc-status") if b"grpc-status: 0" in rest else (rest, b"", b"")
    for line in (head + b"\r\n" + (b"grpc-status" + tail if tail else b"")).split(b"\r\n")[1:]:
        name, found, value = line.decode("latin-1").partition(": ")
        if found:
            fields[name.lower()] = value
    return fields, body


def framed(message, flag=0):
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def test_wire(check):
    """What no client library sends."""
    grpc_type = ("-H", "content-type: application/grpc")
    with serve() as server:
        good = framed(rate_limit_request("shop", [("free", "x")]))
        for name, body, words, wanted in (
                ("good", good, grpc_type, ("200", "0")),
                ("+proto", good, ("-H", "content-type: application/grpc+proto"), ("200", "0")),
                ("+json", good, ("-H", "content-type: application/grpc+json"), ("415", None)),
                ("grpc-web", good, ("-H", "content-type: application/grpc-web"), ("415", None)),
                ("JSON", good, ("-H", "content-type: application/json"), ("415", None)),
                ("another method", good, (*grpc_type, "-X", "PUT"), ("405", None)),
                ("an empty body", b"", grpc_type, ("200", "0", OVER)),
                ("half a prefix", b"\0\0", grpc_type, ("200", "0", OVER)),
                ("half a message", good[:-1], grpc_type, ("200", "0", OVER)),
                ("two messages", good + good, grpc_type, ("200", "0", OVER)),
                ("garbage", framed(b"\xff" * 20), grpc_type, ("200", "0", OVER)),
                ("an empty message", framed(b""), grpc_type, ("200", "3")),
                ("compressed, nobody says how", framed(b"xyz", 1), grpc_type, ("200", "13")),
                ("compressed", framed(b"xyz", 1), (*grpc_type, "-H", "grpc-encoding: gzip"), ("200", "12")),
                ("an encoding that is not used", good, (*grpc_type, "-H", "grpc-encoding: gzip"), ("200", "0")),
                ("an odd flag", framed(b"xyz", 2), grpc_type, ("200", "0", OVER))):
            fields, answer = curl_grpc(server, METHOD, body, *words)
            check.equal((fields["status"], fields.get("grpc-status")), wanted[:2], f"{name} ({fields})")
            check.equal(answer == OVER, wanted[2:] == (OVER,), f"{name} is denied: {answer}")
        fields, _ = curl_grpc(server, METHOD, framed(b"xyz", 1), *grpc_type, "-H", "grpc-encoding: gzip")
        check.equal(fields.get("grpc-accept-encoding"), "identity", "which encodings are taken")
        fields, _ = curl_grpc(server, "/some.Service/Method", good, *grpc_type)
        check.equal(fields.get("grpc-status"), "12", "an unknown service")
        fields, _ = curl_grpc(server, METHOD, framed(field(1, "sh\u00f6p%".encode())), *grpc_type)
        message = fields.get("grpc-message", "")
        check(message and all(" " <= letter <= "~" for letter in message), f"grpc-message is plain ASCII: {message}")
        with h2.Peer(server.port) as peer:
            peer.send(grpc_frames(1, METHOD, rate_limit_request("shop", [("free", "x")])))
            shape = [(it.kind, bool(it.flags & h2.END_STREAM)) for it in trailers(peer, 1) or []]
            check.equal(shape, [(h2.HEADERS, False), (h2.DATA, False), (h2.HEADERS, True)], "head, message, trailers")
            peer.send(grpc_frames(3, METHOD, b""))
            shape = [(it.kind, bool(it.flags & h2.END_STREAM)) for it in trailers(peer, 3) or []]
            check.equal(shape, [(h2.HEADERS, True)], "an error is trailers only")
        check.equal(server.metric("weir_envoy_unreadable_total", reason="malformed"), 6, "they are counted")


def post_json(server, message, *words):
    done = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", "--max-time", "60", "-H",
                           "content-type: application/json", "-d", json.dumps(message), *words,
                           f"http://127.0.0.1:{server.port}/json"], stdout=subprocess.PIPE, text=True, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def test_json(check):
    """POST /json, over HTTP/1 and 2."""
    with serve() as server:
        for name, words in (("one", ()), ("two", ("--http2-prior-knowledge",))):
            message = {"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": name}]}]}
            answers = [post_json(server, message, *words) for _ in range(4)]
            check.equal([status for status, _ in answers], [200, 200, 200, 429], f"HTTP/{name}")
            check.equal([body["overallCode"] for _, body in answers], ["OK", "OK", "OK", "OVER_LIMIT"], f"HTTP/{name}")
            check.equal(answers[0][1]["statuses"][0]["limitRemaining"], 2, f"HTTP/{name}: what remains")
            status, problem = post_json(server, {"domain": "", "descriptors": []}, *words)
            check.equal((status, problem["status"]), (400, 400), f"HTTP/{name}: no domain")
            check.equal(post_json(server, {"domain": "shop", "more": 1}, *words)[0], 400, f"HTTP/{name}: an odd field")


def test_headers(check):
    """--envoy-headers: what Envoy is to tell its client."""
    with serve("--envoy-headers") as server, h2.Peer(server.port) as peer:
        peer.send(grpc_frames(1, METHOD, rate_limit_request("shop", [("user", "x")])))
        data = b"".join(it.payload for it in trailers(peer, 1) or [] if it.kind == h2.DATA)
        for name in (b"RateLimit-Limit", b"RateLimit-Remaining", b"RateLimit-Reset"):
            check(name.lower() in data.lower(), f"{name} is in the answer: {data}")


def test_reload(check):
    """Rules that change while calls are under way."""
    with serve() as server, h2.Peer(server.port) as peer:
        message = rate_limit_request("shop", [("user", "x")])
        rules = server.folder / "rules.yaml"
        for stream in range(1, 3, 2):
            peer.send(grpc_frames(stream, METHOD, message))
            check(trailers(peer, stream) is not None, "before")
        rules.write_text(RULES.replace("unit: year, requests_per_unit: 3", "unit: day, requests_per_unit: 2000000"))
        server.process.send_signal(1)
        end, stream, seen = time.monotonic() + PATIENCE_SECONDS, 3, b""
        while time.monotonic() < end and b"\x80\x89\x7a" not in seen:  # 2000000
            peer.send(grpc_frames(stream, METHOD, message))
            seen = b"".join(it.payload for it in trailers(peer, stream) or [] if it.kind == h2.DATA)
            stream += 2
        check(b"\x80\x89\x7a" in seen, "the new limit is in force")


if __name__ == "__main__":
    MODULES = modules()
    sys.exit(checks.run([test_rules, test_load, test_wire, test_json, test_headers, test_token, test_no_rules, test_reload,
                  test_drain, test_health_while_draining, test_redis, test_redis_gone], sys.argv[1:]))

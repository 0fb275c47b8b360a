#!/usr/bin/env python3
"""What an operator of Envoy's rate limit service counts on: nothing gets around a limit by being long or broken, files,
metrics, health that is watched, connections that grow old. By a client of others (grpc-js) and by hand."""
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import grpc_service as rls
from lib import checks, h2_frames as h2, redis_server, resp
from lib.build import BUILD, ROOT
from lib.h2_server import Server
from grpc_service import METHOD, field, framed, grpc_frames, post_json, rate_limit_request, trailers, varint


EXAMPLE = str(ROOT / "examples" / "envoy" / "ratelimit.yaml")
WATCH = "/grpc.health.v1.Health/Watch"
PATIENCE_SECONDS = 60
RULES = """
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: each_second
    rate_limit: {unit: second, requests_per_unit: 1000}
  - key: listed
"""


def take_answer(peer, stream):
    """The fields of a RateLimitResponse, by number; None: an error."""
    data = b"".join(it.payload for it in trailers(peer, stream) or [] if it.kind == h2.DATA)
    return fields_of(data[5:]) if data else None


def ask(peer, stream, message, **more):
    peer.send(grpc_frames(stream, METHOD, message, **more))
    return take_answer(peer, stream)


def fields_of(data):
    """A protobuf message: the values of each field's number."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = number()
        value = number()
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
        found.setdefault(tag >> 3, []).append(value)
    return found


class LongPeer(h2.Peer):
    """A connection that heeds the server's windows, for messages that are larger than those."""

    def __init__(self, port):
        self.rooms = {0: 65535}
        super().__init__(port)

    def next(self):
        it = super().next()
        if it is not None and it.kind == h2.WINDOW_UPDATE:
            self.rooms[it.stream] = self.rooms.get(it.stream, 65535) + int.from_bytes(it.payload, "big")
        return it

    def send_long(self, stream, message):
        data = framed(message)
        head = h2.request(METHOD, "POST", fields=[("content-type", "application/grpc")])
        self.send(h2.headers(stream, head, h2.END_HEADERS))
        for at in range(0, len(data), 16384):
            part = data[at:at + 16384]
            while min(self.rooms[0], self.rooms.setdefault(stream, 65535)) < len(part):
                if self.next() is None:
                    raise RuntimeError("the connection ended")
            self.rooms[0] -= len(part)
            self.rooms[stream] -= len(part)
            self.send(h2.frame(h2.DATA, h2.END_STREAM if at + 16384 >= len(data) else 0, stream, part))


def over(answer):
    return answer is not None and answer.get(1) == [2]


def eventually(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# ---- nothing gets around a limit ----

def stop_the_clock(server):
    """The example has windows of a minute: none of them ends during the test."""
    with resp.Client(server.port) as client:
        client.call("WEIR.CLOCK", 1700000000000000)


def test_bypass(check):
    with Server("--envoy", EXAMPLE, "--access-log", "{folder}/log", "--test-clock") as server:
        stop_the_clock(server)
        rls.client(check, "bypass", server.port)
        for reason, least in (("too_large", 4), ("too_many", 4)):
            check((server.metric("weir_envoy_unreadable_total", reason=reason) or 0) >= least, f"{reason} is counted")
        check((server.metric("weir_envoy_hashed_keys_total") or 0) >= 12, "long values are counted")
        log = server.folder / "log"
        server.stop()  # then all of it is written
        check('"verdict":"unreadable"' in log.read_text(), "and told in the access log")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        check(all(len(it.get("key") or "") < 1024 for it in lines), "no key is long")
        check(any("%~" in (it.get("key") or "") for it in lines), "a key with a digest")


def test_bypass_redis(check):
    """The same with a store over the network; streams that wait for it hold none of their long requests."""
    with redis_server.Server() as redis, \
            Server("--envoy", EXAMPLE, "--test-clock", store=f"redis://127.0.0.1:{redis.port}?deadline=1m") as server:
        stop_the_clock(server)
        rls.client(check, "bypass", server.port)
        with LongPeer(server.port) as peer:
            redis.process.send_signal(signal.SIGSTOP)  # all of these wait at the same time
            message = rate_limit_request("shop", [("remote_address", "9.9.9.9")], [("path", "/" + "x" * 110000)])
            for i in range(100):
                peer.send_long(2 * i + 1, message)
            redis.process.send_signal(signal.SIGCONT)
            ended = {}
            while len(ended) < 100 and (it := peer.next()) is not None:
                if it.stream and it.kind == h2.RST_STREAM:
                    ended[it.stream] = "reset"
                elif it.stream and it.flags & h2.END_STREAM:
                    ended.setdefault(it.stream, "answered")
            check.equal(list(ended.values()).count("answered"), 100, "a hundred long requests at once are answered")


def test_held(check):
    """Long requests that come in parts hold as much as a connection may: those that need more are denied, and short ones
    beside them are decided. None is reset, which Envoy would let pass."""
    with Server("--envoy", EXAMPLE, "--request-timeout", "1h") as server, LongPeer(server.port) as peer:
        part = b"\x12" + varint(120000) + b"x" * 110000  # a descriptor that does not end
        peer.send(h2.window_update(0, 1 << 24))
        ended, streams = {}, range(1, 2 * 60, 2)

        def note(it):
            if it is not None and it.stream and (it.kind == h2.RST_STREAM or it.flags & h2.END_STREAM):
                ended.setdefault(it.stream, "reset" if it.kind == h2.RST_STREAM else "answered")
        for stream in streams:
            head = h2.request(METHOD, "POST", fields=[("content-type", "application/grpc")])
            peer.send(h2.headers(stream, head, h2.END_HEADERS))
            data = b"\0" + (200000).to_bytes(4, "big") + part
            for at in range(0, len(data), 16384):
                piece = data[at:at + 16384]
                while stream not in ended and min(peer.rooms[0], peer.rooms.setdefault(stream, 65535)) < len(piece):
                    note(peer.next())
                if stream in ended:
                    break
                peer.rooms[0] -= len(piece)
                peer.rooms[stream] -= len(piece)
                peer.send(h2.frame(h2.DATA, 0, stream, piece))
        peer.send(grpc_frames(201, METHOD, rate_limit_request("shop", [("remote_address", "203.0.113.9")])))
        while 201 not in ended and (it := peer.next()) is not None:
            note(it)
        check.equal(ended.get(201), "answered", "a short request beside them")
        check(len(ended) > 1 and set(ended.values()) == {"answered"}, f"those that do not fit are answered: {ended}")
        check((server.metric("weir_envoy_unreadable_total", reason="too_large") or 0) == len(ended) - 1, "and denied")


def test_any_bytes(check):
    """Envoy sends header values as they come, whatever protobuf says of strings."""
    with Server("--envoy", EXAMPLE) as server, LongPeer(server.port) as peer:
        stream = 1
        for value in (b"\xff\xfe", b"\x80" * 70000, b"\0", b"\xc3", bytes(range(256)) * 9, b"", b"%00", b"|" * 40000):
            entry = field(1, b"path") + field(2, value)
            banned = field(1, b"remote_address") + field(2, b"203.0.113.9")
            message = field(1, b"shop") + field(2, field(1, entry))
            for text, wanted in ((message, 1), (message + field(2, field(1, banned)), 2)):
                peer.send_long(stream, text)
                answer = take_answer(peer, stream)
                check.equal(answer and answer.get(1), [wanted], f"{value[:8]} of {len(value)} bytes")
                stream += 2
        for broken in (field(1, b"shop") + b"\x12\x05ab", b"\xff" * 30, field(2, b"\x0a\x7fx"), varint(7 << 3 | 3)):
            check(over(ask(peer, stream, broken)), f"broken protobuf is denied: {broken}")
            stream += 2
        check(ask(peer, stream, field(2, field(1, field(1, b"path")))) is None, "no domain is an error, as in envoyproxy/ratelimit")


def test_token_first(check):
    """Who has no token learns that, however much is sent; and a long head is denied whoever it is of."""
    with Server("--envoy", EXAMPLE, env={"WEIR_TOKEN": "secret-of-the-shop"}) as server:
        rls.client(check, "long_token", server.port, "secret-of-the-shop")


def test_rows(check):
    """Limits that other clients make up do not take the rules' places in a small store: that would be an error, too."""
    with Server("--envoy", EXAMPLE, store="memory:256k") as server, h2.Peer(server.port) as peer:
        statuses = [server.get(f"/v1/take?key=k{i}&limit=fixed-window+{i + 10}/d")[0] for i in range(120)]
        check(429 in statuses, f"the store is full: {statuses[-1]}")
        for i, (key, value) in enumerate((("remote_address", "192.0.2.7"), ("path", "/login"), ("path", "/files/x"),
                                          ("path", "/search"), ("model_tokens", "x"))):
            answer = ask(peer, 2 * i + 1, rate_limit_request("shop", [(key, value)]))
            check.equal(answer and answer.get(1), [1], f"{key} {value}: the rule's own limit")
    many = "domain: d\ndescriptors:\n" + "".join(
        f"  - {{key: k{i}, rate_limit: {{unit: day, requests_per_unit: {i + 1}}}}}\n" for i in range(65))
    with tempfile.TemporaryDirectory() as name:
        (pathlib.Path(name) / "many.yaml").write_text(many)
        done = subprocess.run([str(BUILD / "weir"), "serve", "--listen", "127.0.0.1:0", "--store", "memory:256k", "--envoy",
                               name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        check(done.returncode and "Envoy's rules" in done.stderr and "rows for 64" in done.stderr, f"too many: {done.stderr}")


# ---- what is told ----

def set_clock(server, now):
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/clock", json.dumps({"now": now}).encode(),
                                     {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()


def test_whole_seconds(check):
    with Server("--envoy", "{folder}/rules.yaml", "--test-clock", files={"rules.yaml": RULES}) as server, \
            h2.Peer(server.port) as peer:
        for i, (key, now, wanted) in enumerate((("each_second", 1700000000.000001, 1), ("each_second", 1700000001.999999, 1),
                                                ("user", 1699999999.5, 86400 - 1699999999 % 86400),
                                                ("user", 1700000000, 86400 - 1700000000 % 86400))):
            set_clock(server, now)
            answer = ask(peer, 2 * i + 1, rate_limit_request("shop", [(key, f"v{i}")]))
            duration = fields_of(fields_of(answer[2][0])[4][0])
            check.equal((duration.get(1), duration.get(2)), ([wanted], None), f"{key} at {now}: whole seconds, rounded up")


def test_metrics(check):
    """Rules are there before anybody asks; limits that requests bring, unknown domains and descriptors without a rule
    are counted."""
    with Server("--envoy", "{folder}/rules.yaml", "--envoy-near-limit", "0.5", "--test-clock", files={"rules.yaml": RULES}) as server:
        stop_the_clock(server)  # no day ends meanwhile
        for rule in ("user", "each_second", "(override)"):
            check.equal(server.metric("weir_envoy_hits_total", domain="shop", rule=rule), 0, f"{rule} from the start")
        check.equal(server.metric("weir_envoy_no_rule_total", domain="shop"), 0, "no rule: from the start")
        brought = {"entries": [{"key": "a"}], "limit": {"requestsPerUnit": 2, "unit": "DAY"}}
        for _ in range(3):
            post_json(server, {"domain": "shop", "descriptors": [brought]})
        check.equal(server.metric("weir_envoy_hits_total", domain="shop", rule="(override)"), 3, "overrides: hits")
        check.equal(server.metric("weir_envoy_over_limit_total", domain="shop", rule="(override)"), 1, "overrides: over")
        post_json(server, {"domain": "elsewhere", "descriptors": [{"entries": [{"key": "user"}]}, brought]})
        check.equal(server.metric("weir_envoy_unknown_domain_total"), 1, "an unknown domain")
        post_json(server, {"domain": "shop", "descriptors": [{"entries": [{"key": "listed"}]}, {"entries": [{"key": "b"}]},
                                                             {"entries": [{"key": "user"}]}]})
        check.equal(server.metric("weir_envoy_no_rule_total", domain="shop"), 2, "no rule")
        post_json(server, {"domain": "shop", "descriptors": [{"entries": [{"key": "user"}], "hitsAddend": "7"}]})
        check.equal(server.metric("weir_envoy_near_limit_total", domain="shop", rule="user"), 3, "near: 8 of 10, beyond 5")


# ---- files ----

def test_directory(check):
    other = "domain: other\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "shop.yaml").write_text(RULES)
        (folder / ".hidden.yaml").write_text("not: [rules")
        (folder / "notes.txt").write_text("not: [rules")
        (folder / "sub.yaml").mkdir()
        with Server("--envoy", name) as server:
            denied = {"domain": "other", "descriptors": [{"entries": [{"key": "a"}], "hitsAddend": "5"}]}
            check.equal(post_json(server, denied)[0], 200, "before its file is there")
            (folder / "new").write_text(other)
            (folder / "new").rename(folder / "other.yml")
            check(eventually(lambda: post_json(server, denied)[0] == 429), "a new file is in force")
            (folder / "other.yml").unlink()
            check(eventually(lambda: post_json(server, denied)[0] == 200), "one that is gone is not")
            (folder / "again.yaml").write_text(RULES)
            check(eventually(lambda: "again.yaml" in server.said() or "shop.yaml" in server.said()),
                  "two with one domain: the reload says so")
            check(eventually(lambda: "--envoy-merge-domains" in server.said()), f"and how to merge them: {server.said()[-300:]}")
            check.equal(post_json(server, {"domain": "shop", "descriptors": [{"entries": [{"key": "user"}], "hitsAddend": "11"}]})[0],
                        429, "what was in force stays")


def test_directory_refused(check):
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run([str(BUILD / "weir"), "serve", "--listen", "127.0.0.1:0", "--envoy", name],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        check.equal(done.returncode, 2, "an empty directory")
        check(name in done.stderr and ".yaml" in done.stderr, f"it says what is missing: {done.stderr}")


def test_merge(check):
    more = "domain: shop\ndescriptors: [{key: more, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
    with Server("--envoy", "{folder}/a.yaml", "--envoy", "{folder}/b.yaml", "--envoy-merge-domains",
                files={"a.yaml": RULES, "b.yaml": more}) as server:
        for key, hits in (("user", 11), ("more", 2)):
            message = {"domain": "shop", "descriptors": [{"entries": [{"key": key}], "hitsAddend": str(hits)}]}
            check.equal(post_json(server, message)[0], 429, f"the rule for {key}")


# ---- health ----

def watcher(server, *words):
    """A client that watches; its lines come as they are printed."""
    return rls.start("watch", server.port, *words)


def test_watch(check):
    with Server("--envoy", "{folder}/rules.yaml", files={"rules.yaml": RULES}) as server:
        rls.client(check, "watches", server.port)
        node = watcher(server)
        check.equal(node.stdout.readline(), "SERVING\n", "the first word")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        check.equal([node.stdout.readline(), node.stdout.readline()], ["NOT_SERVING\n", "UNAVAILABLE\n"], "when it drains")
        stopping.join()
        check.equal(server.process.returncode, 0, "nobody who watches keeps it from ending")
        node.communicate(timeout=PATIENCE_SECONDS)


def test_watch_bounds(check):
    """A peer that watches and never reads costs nothing, and a request's timeout is not its own."""
    with Server("--envoy", "{folder}/rules.yaml", "--request-timeout", "1s", "--idle-timeout", "1h",
                files={"rules.yaml": RULES}) as server, h2.Peer(server.port, (4, 0)) as peer:  # no window at all
        for stream in range(1, 12, 2):
            peer.send(grpc_frames(stream, WATCH, b""))
        refused = []
        while len(refused) < 2 and (it := peer.next()) is not None:
            if it.kind == h2.RST_STREAM:
                refused.append(it.stream)
        check.equal(refused, [9, 11], "more than four on one connection are refused")
        begun = time.monotonic()
        while time.monotonic() - begun < 2.5 and peer.ping():  # longer than a request may take
            time.sleep(0.2)
        peer.send(h2.window_update(1, 100))
        data = peer.until(lambda it: it.stream == 1 and it.kind in (h2.DATA, h2.RST_STREAM))
        check(data is not None and data.payload == b"\0\0\0\0\x02\x08\x01", f"the status comes when it is read: {data}")
        check(peer.ping(), "the connection goes on")


def test_health_store(check):
    """--health-store: not ready while Redis is away, again when it is back."""
    with redis_server.Server() as redis, \
            Server("--envoy", "{folder}/rules.yaml", "--health-store", files={"rules.yaml": RULES},
                   store=f"redis://127.0.0.1:{redis.port}?fail=open&deadline=1m") as server:  # only its death counts
        check(eventually(lambda: server.get("/readyz")[0] == 200), "ready")
        node = watcher(server, "ratelimit")
        check.equal(node.stdout.readline(), "SERVING\n", "it serves")
        redis.kill()
        check.equal(node.stdout.readline(), "NOT_SERVING\n", "the store is gone")
        check.equal((server.get("/readyz")[0], server.get("/healthz")[0]), (503, 200), "not ready, but alive")
        rls.client(check, "health", server.port, "NOT_SERVING")
        redis.start()
        check.equal(node.stdout.readline(), "SERVING\n", "the store is back")
        check.equal(server.get("/readyz")[0], 200, "ready again")
        server.stop()
        node.communicate(timeout=PATIENCE_SECONDS)


def test_health_without_store(check):
    """Without the option a store out of reach changes nothing: its local fallback decides."""
    with redis_server.Server() as redis, \
            Server("--envoy", "{folder}/rules.yaml", files={"rules.yaml": RULES},
                   store=f"redis://127.0.0.1:{redis.port}?fail=open") as server:
        redis.kill()
        post_json(server, {"domain": "shop", "descriptors": [{"entries": [{"key": "user"}]}]})
        check.equal(server.get("/readyz")[0], 200, "ready")


# ---- age ----

def test_age(check):
    options = ("--envoy", "{folder}/rules.yaml", "--max-connection-age", "1s", "--request-timeout", "1h")
    with Server(*options, "--max-connection-age-grace", "1h", files={"rules.yaml": RULES}) as server:
        begun = time.monotonic()
        with h2.Peer(server.port) as peer:
            first = peer.until(lambda it: it.kind == h2.GOAWAY)
            check(first is not None and first.payload[:4] == b"\x7f\xff\xff\xff" and first.payload[4:8] == bytes(4),
                  f"first that the end is near: {first}")
            check(time.monotonic() - begun > 0.5, "not before its time")
            asked = peer.until(lambda it: it.kind == h2.PING and not it.flags & h2.ACK)
            peer.send(grpc_frames(1, METHOD, rate_limit_request("shop", [("user", "x")])))
            check(trailers(peer, 1) is not None, "what was on its way is answered")
            peer.send(h2.frame(h2.PING, h2.ACK, 0, asked.payload))  # we have heard it
            check.equal(peer.goaway(), h2.NO_ERROR, "then it is closed")
    with Server(*options, "--max-connection-age-grace", "1s", files={"rules.yaml": RULES}) as server:
        with h2.Peer(server.port) as busy:
            busy.send(h2.headers(1, h2.request("/v1/take", "POST", fields=[("content-type", "application/json")]),
                                 h2.END_HEADERS))  # a request that never ends
            while busy.next() is not None:
                pass
            check(True, "one that does not end is closed when its grace is over")


def test_age_of_clients(check):
    """A client of others loses nothing when its connections are renewed under it."""
    with Server("--envoy", "{folder}/rules.yaml", "--max-connection-age", "1s", files={"rules.yaml": RULES}) as server:
        rls.client(check, "aging", server.port)
        check((server.metric("weir_accepted_connections_total", protocol="grpc") or 0) >= 2, "connections were renewed")


# ---- how Envoy is told the token ----

def test_initial_metadata(check):
    """docs/ENVOY.md says which metadata Envoy must add; that one opens the door."""
    page = (ROOT / "docs" / "ENVOY.md").read_text()
    found = re.search(r'initial_metadata:\s*\[\{key: (\S+), value: "([^"]+)"\}\]', page)
    if not check(found is not None, "the page shows initial_metadata"):
        return
    with Server("--envoy", EXAMPLE, env={"WEIR_TOKEN": "secret-of-the-shop"}) as server, h2.Peer(server.port) as peer:
        message = rate_limit_request("shop", [("remote_address", "203.0.113.9")])
        check(ask(peer, 1, message) is None, "without it, an error")
        value = found[2].replace("TOKEN", "secret-of-the-shop")
        check(over(ask(peer, 3, message, fields=[(found[1], value)])), "with it, an answer")


if __name__ == "__main__":
    rls.MODULES = rls.modules()
    sys.exit(checks.run([test_bypass, test_bypass_redis, test_held, test_any_bytes, test_token_first, test_rows, test_whole_seconds, test_metrics,
                  test_directory, test_directory_refused, test_merge, test_watch, test_watch_bounds, test_health_store,
                  test_health_without_store, test_age, test_age_of_clients, test_initial_metadata], sys.argv[1:]))

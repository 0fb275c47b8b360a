#!/usr/bin/env python3
"""What is under way, with a store that does not answer or an answer that is held: whose bytes are used, what peers that
leave cost, who is refused when too much is held, how much memory it takes."""
import json
import select
import signal
import socket
import struct
import sys
import time

from lib import abuse_tools, checks, h2_frames, http_client, redis_server, resp, weir_server
from lib.h2_frames import block, frame, headers
from lib.http_client import get, post

LIMIT = "fixed-window 100000/366d"
SLOW = "leaky-bucket 1/10m burst 1000"  # the second take waits for ten minutes
MANY = "leaky-bucket 3/s burst 1000"  # the hundredth waits for half a minute
LONG = "leaky-bucket 3/m burst 1000"  # the third waits for 40 seconds, the hundredth for half an hour
ASKERS = 64


def reset(client):
    """Ends a connection by RST: what is under way on it is nobody's any more."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if hasattr(client, "stream"):
        client.stream.close()
    client.socket.close()


def requests_of(server, protocol):
    return abuse_tools.total(abuse_tools.metrics(server), "weir_requests_total", protocol=protocol)


def open_of(server, protocol):
    return abuse_tools.total(abuse_tools.metrics(server), "weir_open_connections", protocol=protocol)


def kept_of(server):
    return int(abuse_tools.metrics(server)["weir_kept_bytes"])


# ---- whose bytes ----

def test_reset_while_asked(check):
    """All askers wait for a store that does not answer, more batches wait for them. Their clients go away by a reset;
    what is decided afterwards is decided for the keys that were asked for."""
    key, other = "a" * 20, "b" * 20
    with redis_server.Server() as redis, weir_server.Server(
            f"--threads 1 --store redis://127.0.0.1:{redis.port}?deadline=1m") as server:
        with server.client() as first:
            first.call("WEIR.TAKE", "warm", LIMIT)
        redis.signal(signal.SIGSTOP)
        busy = [server.client() for _ in range(ASKERS)]
        for client in busy:
            client.socket.sendall(resp.encode(("WEIR.TAKE", "busy", LIMIT)))
        check(server.wait_for(lambda: requests_of(server, "resp") >= ASKERS + 1), "all askers are busy")
        gone = [server.client() for _ in range(4)]
        for client in gone:
            client.socket.sendall(resp.encode(("WEIR.TAKE", key, LIMIT)) * 64 +
                                  resp.encode(("WEIR.TAKE", other, LIMIT)) * 64)
        check(server.wait_for(lambda: requests_of(server, "resp") >= ASKERS + 1 + 4 * 64), "and four more wait for them")
        for client in gone:
            reset(client)
        check(server.wait_for(lambda: open_of(server, "resp") <= ASKERS), "whose clients are gone")
        redis.signal(signal.SIGCONT)
        for client in busy:
            client.read()
            client.close()
        check(server.wait_for_charges(key, LIMIT, 4 * 64), "each key was charged as asked")
        with server.client() as client:
            check(client.call("WEIR.PEEK", other, LIMIT)[2] >= 100000, "and no other")
            check.equal(100000 - client.call("WEIR.PEEK", "busy", LIMIT)[2], ASKERS, "nor less")


SPELLINGS = {
    "query": lambda key, limit: get("/v1/take").replace(
        b"/v1/take ", f"/v1/take?key={key}&limit={limit.replace(' ', '+')}&h%6fld=true ".encode()),
    "upper": lambda key, limit: get("/v1/take").replace(
        b"/v1/take ", f"/v1/take?key={key}&limit={limit.replace(' ', '+')}&%68%6F%6C%64=1 ".encode()),
    "json": lambda key, limit: post("/v1/take", ('{"key":"%s","limit":"%s","h\\u006fld":true}' % (key, limit)).encode()),
    "plain": lambda key, limit: get("/v1/take", key=key, limit=limit, hold="true"),
}


def test_hold_spelled(check):
    """However hold is spelled: those before it are answered at once, for their own keys, whatever other clients say
    meanwhile through the same thread."""
    with weir_server.Server("--threads 1 --max-delay 1h") as server, http_client.Client(server.port) as other:
        for name in SPELLINGS:
            checks.in_time(lambda scale, name=name: hold_spelled(check, server, other, name, scale))
        keys = {it["key"] for policy in other.get("/v1/top").json["policies"] for it in policy["hottest"]}
        odd = {key for key in keys if not key.startswith(("mine-", "other-", *SPELLINGS))}
        check.equal(odd, set(), "and the top list has whole keys only")


def hold_spelled(check, server, other, name, scale):
    """False: the second came when it need not be held any more."""
    held = SPELLINGS[name](f"{name}{scale}", f"leaky-bucket 1/{scale * 500}ms burst 9")
    with http_client.Client(server.port) as client:
        mine = f"mine-{name}{scale}".ljust(24, "m")
        start = time.monotonic()
        client.ask(held)  # the next one waits
        client.send(post("/v1/take", {"key": mine, "limit": LIMIT}) + held)
        others = [post("/v1/take", {"key": f"other-{i}".ljust(24, "o"), "limit": LIMIT}) for i in range(50)]
        check(server.wait_for_charges(mine, LIMIT, 1), f"{name}: both are decided")
        check.equal({it.status for it in other.pipeline(others)}, {200}, "others go on")
        check(select.select([client.socket], [], [], 0)[0], f"{name}: the first has its answer")
        first, second = client.read(), client.read()
        check.equal((first.status, first.json["remaining"], second.status), (200, 99999, 200), name)
        if not second.json.get("held") and time.monotonic() - start >= 0.5 * scale:
            return False
        check(second.json.get("held", 0) > 0, f"{name}: the second was held: {second.json}")
        settle = {"key": mine, "limit": LIMIT, "receipt": first.json["receipt"], "actual": 0}
        check.equal(other.post("/v1/settle", settle).status, 200, f"{name}: the receipt is of its own key")
        check.equal(other.post("/v1/settle", {**settle, "key": "other-0".ljust(24, "o")}).status, 400,
                    f"{name}: and of no other")
    return True


def test_limits_refused(check):
    """Requests that name a new limit each and are refused: nothing of them stays."""
    with weir_server.Server("--threads 1") as server, server.client() as redis, http_client.Client(server.port) as web:
        replies = redis.pipeline([("WEIR.ACQUIRE", "k", f"fixed-window {n + 1}/366d") for n in range(1000)], 50)
        check.equal({"nothing to acquire" in str(it) for it in replies}, {True}, "over RESP")
        bodies = [post("/v1/acquire", {"key": "k", "limit": f"fixed-window {n + 1}/365d"}) for n in range(1000)]
        check.equal({it.status for it in web.pipeline(bodies)}, {400}, "over HTTP")
        takes = [("WEIR.TAKE", "k", f"fixed-window {n + 1}/364d") for n in range(2000)]
        check.equal({reply[0] for reply in redis.pipeline(takes, 2000)}, {1}, "new ones that are not refused")
        odd = [get("/v1/take", key="k" * 1000, limit="no limit") for _ in range(300)]
        check.equal({("too long" in it.json["detail"], it.status) for it in web.pipeline(odd)}, {(False, 400)}, "queries")


# ---- peers that leave ----

def unix_client(path):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(weir_server.PATIENCE_SECONDS)
    client.connect(str(path))
    return client


def test_leaving_while_held(check):
    """A peer that is gone is noticed when it goes, not when its answer is due; one that only says that it will ask no
    more gets its answer, and nobody is busy meanwhile."""
    held = [post("/v1/take", {"key": "slow", "limit": SLOW, "hold": True})]
    wire = {"HTTP/1": held[0], "HTTP/2": h2_frames.PREFACE + h2_frames.settings() + headers(1, h2_frames.request(
        "/v1/take?key=slow&hold=1&limit=" + SLOW.replace(" ", "+")))}
    with weir_server.Server("--threads 1 --max-delay 1h --listen unix:weir.sock") as server:
        with http_client.Client(server.port) as client:
            client.ask(held[0])
        for protocol, data in wire.items():
            counted_as = "http" if protocol == "HTTP/1" else "grpc"
            for kind in ("unix", "TCP, reset"):
                mine = 1 if protocol == "HTTP/1" else 0  # the one that asks for the metrics
                if kind == "unix":
                    client = unix_client(server.folder / "weir.sock")
                else:
                    client = socket.create_connection(("127.0.0.1", server.port), weir_server.PATIENCE_SECONDS)
                client.sendall(data)
                check(server.wait_for_charges("slow", SLOW, 2), f"{protocol}, {kind}: it is held")
                if kind != "unix":
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                check(server.wait_for(lambda: open_of(server, counted_as) <= mine),
                      f"{protocol}, {kind}: it is gone before its answer is due")
                with server.client() as resetter:
                    resetter.call("WEIR.RESET", "slow")
                    resetter.call("WEIR.TAKE", "slow", SLOW)
        for make in (lambda: unix_client(server.folder / "weir.sock"),
                     lambda: socket.create_connection(("127.0.0.1", server.port), weir_server.PATIENCE_SECONDS)):
            with make() as client:
                quick = {"key": "half", "limit": "leaky-bucket 1/s burst 9", "hold": True}
                before = abuse_tools.cpu_seconds(server)
                client.sendall(post("/v1/take", quick) * 2)
                client.shutdown(socket.SHUT_WR)
                said = client.makefile("rb").read()
                check.equal(said.count(b"HTTP/1.1 200"), 2, "half-closed: both answers came")
                check(abuse_tools.cpu_seconds(server) - before < 0.5, "and nobody was busy")
            with server.client() as resetter:
                resetter.call("WEIR.RESET", "half")


# ---- who is refused ----

POLICIES = """version: 1
policies:
  - name: all
    limits:
      - {name: each, key: ip, limit: 'fixed-window 100000/366d'}
"""


def hold_streams(port, key, count, first=1):
    """A connection with so many answers that are held, each with rows."""
    peer = h2_frames.Peer(port)
    path = f"/v1/take?key={key}&hold=1&detail=1&limit={MANY}".replace(" ", "+")
    peer.send(b"".join(headers(first + 2 * i, h2_frames.request(path)) for i in range(count)))
    return peer


def test_held_by_few(check):
    """Forty connections hold all the answers they can: for everybody else nothing changes."""
    with weir_server.Server("--threads 1", policies=POLICIES) as server, http_client.Client(server.port) as client:
        peers = [hold_streams(server.port, f"p{i}", 128) for i in range(40)]
        check.equal({peer.ping() for peer in peers}, {True}, "all is read")
        answers = client.pipeline([get("/v1/take", attr_ip=f"192.0.2.{i}") for i in range(100)])
        check.equal({it.status for it in answers}, {200}, "policies decide")
        answers = client.pipeline([post("/v1/take", {"key": "k", "limit": LIMIT, "detail": True})] * 100)
        check.equal({it.status for it in answers}, {200}, "so do limits with rows")
        quick = {"key": "quick", "limit": "leaky-bucket 20/s burst 9", "hold": True}
        check.equal([it.status for it in client.pipeline([post("/v1/take", quick)] * 3)], [200] * 3, "and holding works")
        with server.client() as redis:
            check.equal(redis.call("WEIR.TAKEALL", 1, "k", LIMIT, 1)[0], 1, "over RESP, too")
        for peer in peers:
            reset(peer)
        check(server.wait_for(lambda: kept_of(server) < 64 << 10), f"and all is given back: {kept_of(server)}")


def big_streams(port, name, count, size):
    """A connection whose held answers have long keys."""
    peer = h2_frames.Peer(port)
    peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = json.dumps({"key": (name + "-").ljust(size, "x"), "limit": LONG, "hold": True}).encode()
    head = block([(":method", "POST"), (":scheme", "http"), (":path", "/v1/take"), (":authority", "127.0.0.1"),
                  ("content-type", "application/json")])
    parts = [body[i:i + 16384] for i in range(0, len(body), 16384)]
    allowed = 65535
    for i in range(count):
        peer.send(headers(1 + 2 * i, head, h2_frames.END_HEADERS))
        for part in parts:
            while allowed < len(part):
                it = peer.until(lambda it: it.kind == h2_frames.WINDOW_UPDATE and it.stream == 0)
                allowed += struct.unpack(">I", it.payload)[0]
            allowed -= len(part)
            peer.send(frame(h2_frames.DATA, h2_frames.END_STREAM if part is parts[-1] else 0, 1 + 2 * i, part))
    return peer


def test_held_bytes(check):
    """Long keys that are held: the memory kept stays in its bound, and is what the process has; who holds much is
    refused, others are not."""
    size, count = 60000, 100
    with weir_server.Server("--threads 1 --store memory:1m --max-memory 64m --max-delay 1h", policies=POLICIES) as server, \
            http_client.Client(server.port) as client:
        before = abuse_tools.memory(server)
        peers = []
        for i in range(20):
            peers.append(big_streams(server.port, f"p{i}", count, size))
            check(peers[-1].ping(), "all is read")
        kept, grown = kept_of(server), abuse_tools.memory(server) - before
        check(32 << 20 <= kept <= 64 << 20, f"kept: {kept >> 20} MiB")
        if not abuse_tools.is_sanitized():
            check(grown <= kept + (16 << 20), f"memory grew by {grown >> 20} MiB, {kept >> 20} MiB are kept")
        overload = abuse_tools.total(abuse_tools.metrics(server), "weir_protocol_errors_total", kind="overload")
        check(overload > 0, "some were refused")
        answers = client.pipeline([get("/v1/take", attr_ip=f"192.0.2.{i}") for i in range(100)])
        check.equal({it.status for it in answers}, {200}, "policies decide")
        quick = {"key": "quick", "limit": "leaky-bucket 20/s burst 9", "hold": True}
        check.equal([it.status for it in client.pipeline([post("/v1/take", quick)] * 3)], [200] * 3, "others may hold")
        for peer in peers:
            reset(peer)
        check(server.wait_for(lambda: kept_of(server) < 64 << 10), f"all is given back: {kept_of(server)}")
        if not abuse_tools.is_sanitized():
            left = abuse_tools.memory(server) - before
            check(left <= 32 << 20, f"also to the system: {left >> 20} MiB are left")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

#!/usr/bin/env python3
"""Connections take turns: who asks little does not wait for who asks much; and a stream that stalls is ended, whether its
peer says anything or not. The server is stopped while everybody asks, so that all questions are there when it goes on."""
import pathlib
import signal
import socket
import struct
import sys
import threading

from lib import abuse_tools, checks, h2_frames, http_client, resp, weir_server
from lib.h2_frames import headers
from lib.http_client import get, post, request

LIMIT = "fixed-window 1000000/366d"


class Stopped:
    """The server does nothing meanwhile."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.server.signal(signal.SIGSTOP)
        assert self.server.wait_for(self.stands_still), "it does not stop"

    def stands_still(self):
        tasks = pathlib.Path(f"/proc/{self.server.process.pid}/task").glob("*/stat")
        return all(task.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T" for task in tasks)

    def __exit__(self, *_):
        self.server.signal(signal.SIGCONT)


# What is sent through a socket file is there at once, however busy the machine is. There is room for a long pipeline.
ROOM = 200 << 10

def local(server):
    one = socket.socket(socket.AF_UNIX)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)  # the kernel doubles it
    one.settimeout(weir_server.PATIENCE_SECONDS)
    one.connect(str(server.folder / "weir.sock"))
    return one


class Web(http_client.Client):
    def __init__(self, server):
        self.socket = local(server)
        self.stream = self.socket.makefile("rb", 1 << 16)


class Redis(resp.Client):
    def __init__(self, server):
        self.socket = local(server)
        self.stream = self.socket.makefile("rb", 1 << 16)

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)  # whoever reads ends
        super().close()


def read_on(client):
    """Somebody reads its answers, so that it is not the full socket that makes the server stop."""
    def read():
        try:
            while client.socket.recv(1 << 16):
                pass
        except (OSError, ValueError):
            pass  # it was closed meanwhile
    threading.Thread(target=read, daemon=True).start()


def done_before(server, probe, protocol, ask):
    """How many requests of a protocol are done when a probe, which asks behind all of `ask`, is answered."""
    before = abuse_tools.total(abuse_tools.metrics(server, probe), "weir_requests_total", protocol=protocol)
    probe.get("/healthz")  # its last request took no time, for all that the server knows
    with Stopped(server):
        ask()
        probe.send(get("/metrics"))
    text = probe.read().body.decode()
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    values = {name: float(value) for name, value in pairs}
    return abuse_tools.total(values, "weir_requests_total", protocol=protocol) - before


def test_probe_beside_much(check):
    """A probe is answered after a turn of the others, not after all that they have sent."""
    with weir_server.Server("--threads 1 --listen unix:weir.sock") as server, Web(server) as probe:
        with Web(server) as client:
            client.get("/healthz")
            done = done_before(server, probe, "http", lambda: client.send(request("HEAD", "/metrics") * 1000))
            check(done < 100, f"beside metrics in a pipeline: {done} were told first")
        with Redis(server) as client:
            client.call("PING")
            read_on(client)
            takes = resp.encode(("WEIR.TAKE", "k", LIMIT)) * 4500
            done = done_before(server, probe, "resp", lambda: client.socket.sendall(takes))
            check(done < 4000, f"beside takes in a pipeline: {done} of 4500 were done first")
        with local(server) as peer:
            peer.sendall(h2_frames.PREFACE + h2_frames.settings())
            peer.recv(1 << 16)
            streams = b"".join(headers(1 + 2 * i, h2_frames.request("/metrics")) for i in range(100))
            done = done_before(server, probe, "http", lambda: peer.sendall(streams))
            check(done < 50, f"beside metrics on a hundred streams: {done} were told first")


def test_probe_beside_many(check):
    """Those who ask much wait in line, so that a probe waits for one turn of each at most, not for all. (One turn is some
    hundred takes. A probe that lost its core in its last request counts as one who asks much, and waits for one turn of each.)"""
    with weir_server.Server("--threads 1 --listen unix:weir.sock") as server, Web(server) as probe:
        crowd = [Redis(server) for _ in range(16)]
        takes = [("WEIR.TAKE", "k", LIMIT)] * 4000
        for client in crowd:
            client.pipeline(takes, 1000)
            read_on(client)
        burst = b"".join(map(resp.encode, takes))
        done = done_before(server, probe, "resp", lambda: [client.socket.sendall(burst) for client in crowd])
        check(done < 48000, f"of 64,000 takes {done} were done first")


def test_all_in_order(check):
    """Many long pipelines at once, of all protocols: every one gets all of its answers, in order."""
    with weir_server.Server("--threads 1") as server:
        redis = [server.client() for _ in range(8)]
        web = [http_client.Client(server.port) for _ in range(8)]
        peers = [h2_frames.Peer(server.port) for _ in range(4)]
        with Stopped(server):
            for i, client in enumerate(redis):
                client.socket.sendall(resp.encode(("WEIR.TAKE", f"r{i}", LIMIT)) * 3000)
            for i, client in enumerate(web):
                client.send((get("/v1/take", key=f"w{i}", limit=LIMIT) +
                             post("/v1/take", {"key": f"w{i}", "limit": LIMIT, "detail": True})) * 200)
            for i, peer in enumerate(peers):
                path = f"/v1/take?key=p{i}&limit={LIMIT}".replace(" ", "+")
                peer.send(b"".join(headers(1 + 2 * n, h2_frames.request(path)) for n in range(100)))
        for i, client in enumerate(redis):
            check.equal([client.read()[2] for _ in range(3000)], list(range(999999, 996999, -1)), f"RESP {i}")
            client.close()
        for i, client in enumerate(web):
            check.equal([client.read().json["remaining"] for _ in range(400)], list(range(999999, 999599, -1)), f"HTTP {i}")
            client.close()
        for i, peer in enumerate(peers):
            seen = set()
            while len(seen) < 100:
                it = peer.until(lambda it: it.kind == h2_frames.DATA and it.flags & h2_frames.END_STREAM)
                seen.add(it.stream)
            check.equal(len(seen), 100, f"HTTP/2 {i}")
            reset = peer.socket
            reset.close()


def test_half_closed(check):
    """Clients that have said all they will say, and wait for turns: all of their answers come."""
    with weir_server.Server("--threads 1") as server:
        clients = [http_client.Client(server.port) for _ in range(6)]
        with Stopped(server):
            for client in clients:
                client.send(get("/v1/policies") * 400)
                client.socket.shutdown(socket.SHUT_WR)
        for i, client in enumerate(clients):
            check.equal([client.read().status for _ in range(400)], [200] * 400, f"client {i}")
            check(client.at_end(), "then the end")
            client.close()


def test_leaving_in_between(check):
    """Clients that go while they wait for their next turn."""
    with weir_server.Server("--threads 1 --listen unix:weir.sock") as server:
        for kind in ("reset", "close", "unix"):
            gone = []
            with Stopped(server):
                for i in range(20):
                    if kind == "unix":
                        one = socket.socket(socket.AF_UNIX)
                        one.connect(str(server.folder / "weir.sock"))
                    else:
                        one = socket.create_connection(("127.0.0.1", server.port), weir_server.PATIENCE_SECONDS)
                    one.sendall(resp.encode(("WEIR.TAKE", f"g{i}", LIMIT)) * 1000)
                    gone.append(one)
            for one in gone[::2] + gone[1::2]:
                if kind == "reset":
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()
            with http_client.Client(server.port) as client:
                check(server.wait_for(lambda: abuse_tools.total(
                    abuse_tools.metrics(server, client), "weir_open_connections", protocol="resp") == 0), f"{kind}: gone")
                check.equal(client.get("/healthz").status, 200, f"{kind}: and it goes on")


def test_stalled_streams(check):
    """A request that does not go on, or an answer that is not read: ended in time on a connection that is silent."""
    with weir_server.Server("--threads 1 --request-timeout 1s") as server:
        with h2_frames.Peer(server.port, timeout=weir_server.PATIENCE_SECONDS) as peer:
            peer.send(headers(1, h2_frames.request("/v1/take", "POST"), h2_frames.END_HEADERS))
            it = peer.until(lambda it: it.kind == h2_frames.RST_STREAM)
            check.equal((it.stream, struct.unpack(">I", it.payload)[0]), (1, h2_frames.CANCEL), "a body that does not come")
        with h2_frames.Peer(server.port, (4, 0), timeout=weir_server.PATIENCE_SECONDS) as peer:
            peer.send(headers(1, h2_frames.request("/metrics")))
            it = peer.until(lambda it: it.kind == h2_frames.RST_STREAM)
            check.equal((it.stream, struct.unpack(">I", it.payload)[0]), (1, h2_frames.CANCEL), "an answer that is not read")
            check(peer.ping(), "the connection stays")


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

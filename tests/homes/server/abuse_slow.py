#!/usr/bin/env python3
"""Senders that never finish, connections that never speak, peers that vanish: each is let go in time, with 408
where it spoke HTTP, counted, and nobody else waits for it.

    tests/homes/server/abuse_slow.py [NAME …]
"""
import selectors
import socket
import struct
import subprocess
import sys
import time

from lib import abuse_tools, checks, weir_server
from lib.abuse_tools import MIB

TIMEOUT = 2.0  # --request-timeout, or --idle-timeout, here
SWEEP = 1.0    # the server looks once a second
SLACK = 60.0   # for a busy machine; who is not let go goes on for longer
HELD = 0.5     # a connection is as old as the look at the clock before it was let in; a server may be held up in between
DRIP = 0.25    # seconds between two bytes
EACH = 50      # senders of a kind
TCP_REPAIR = 19
SLOW = f"--threads 2 --request-timeout {TIMEOUT:g}s --idle-timeout 1m"
IDLE = f"--threads 2 --request-timeout 1m --idle-timeout {TIMEOUT:g}s"
MOST = 48 * MIB

HEAD = b"GET /v1/take?key=slow&limit=token-bucket+1/s HTTP/1.1\r\nHost: localhost\r\nX-Pad: " + b"a" * 4000
BODY = (b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n")
CHUNKED = (b"POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           b"Transfer-Encoding: chunked\r\n\r\n")
# What a kind of sender says at once, and what it then says a byte at a time.
HTTP = {
    "a head": (b"", HEAD),
    "a head after a whole request": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD),
    "a method": (b"", b"G" + b"E" * 3000),
    "a body": (BODY, b'{"key":"' + b"k" * 4000),
    "chunks": (CHUNKED, b"1\r\n{\r\n" * 1000),
    "a chunk's size": (CHUNKED, b"0" * 4000),
    "trailers": (CHUNKED + b"0\r\n", b"X-Trailer: " + b"t" * 4000),
}
RESP = {
    "a bulk": (b"*3\r\n$9\r\nWEIR.TAKE\r\n$60000\r\n", b"k" * 60000),
    "a multibulk": (b"*40\r\n", b"$1\r\nk\r\n" * 40),
    "a length": (b"*3\r\n$9\r\nWEIR.TAKE\r\n$", b"0" * 30),
    "an inline command": (b"", b"weir.take " + b"k" * 4000),
}


class Senders:
    """Many slow senders in one loop: each has bytes to say at once and bytes to drip, and is watched for its end."""

    def __init__(self, port, kinds, each=EACH):
        self.selector = selectors.DefaultSelector()
        self.open, self.ended, self.said = {}, {}, {}
        self.start = time.monotonic()
        for name, (first, rest) in kinds.items():
            for _ in range(each):
                it = abuse_tools.connect(port)
                it.sendall(first + rest[:1])
                it.setblocking(False)
                self.open[it] = [name, rest, 1]
                self.said[it] = b""
                self.selector.register(it, selectors.EVENT_READ)

    def run(self, seconds):
        """Until all have been let go, or it takes too long."""
        drip = time.monotonic() + DRIP
        while self.open and time.monotonic() - self.start < seconds:
            for key, _ in self.selector.select(0.05):
                self.read(key.fileobj)
            if time.monotonic() >= drip:
                drip += DRIP
                for it in list(self.open):
                    self.send(it)

    def send(self, it):
        _, rest, at = self.open[it]
        try:
            it.send(rest[at:at + 1] or b"\r")
            self.open[it][2] += 1
        except BlockingIOError:
            pass
        except OSError:
            self.read(it)  # it is over, but its last words may be there

    def read(self, it):
        try:
            part = it.recv(1 << 16)
        except OSError:
            part = b""
        self.said[it] += part
        if not part:
            self.end(it)

    def end(self, it):
        if it in self.open:
            name = self.open.pop(it)[0]
            self.ended.setdefault(name, []).append((time.monotonic() - self.start, self.said[it]))
            self.selector.unregister(it)
            it.close()

    def close(self):
        for it in list(self.open):
            self.selector.unregister(it)
            it.close()


def drip_all(check, server, kinds, judge):
    """Drips all kinds side by side; each must end in time, and what was said last is judged."""
    latest = TIMEOUT + SWEEP + SLACK
    senders = Senders(server.port, kinds)
    senders.run(latest)
    senders.close()
    for name in kinds:
        ends = senders.ended.get(name, [])
        check.equal(len(ends), EACH, f"{name}: senders let go")
        if not ends:
            continue
        times = [when for when, _ in ends]
        check(TIMEOUT - HELD <= min(times) and max(times) <= latest,
              f"{name}: let go after {min(times):.1f} to {max(times):.1f} s, the bound is {TIMEOUT} s")
        wrong = [said for _, said in ends if not judge(name, said)]
        check(not wrong, f"{name}: the last word was {wrong[:1]}")


def test_slow_http(check):
    def judge(name, said):
        wanted = [200, 408] if "after" in name else [408]
        if name == "a method":  # it is not known yet whom one speaks to
            return abuse_tools.statuses(said) in ([], [408])
        return abuse_tools.statuses(said) == wanted and b"connection: close" in said.lower()
    with weir_server.Server(SLOW) as server:
        with abuse_tools.Watch(server, check, "slow HTTP", MOST):
            drip_all(check, server, HTTP, judge)
        values = abuse_tools.metrics(server)
        late = abuse_tools.total(values, "weir_protocol_errors_total", protocol="http", kind="timeout")
        check(late >= EACH * (len(HTTP) - 1), f"slow HTTP: {late} timeouts counted")
        check(server.wait_for(lambda: connections(server) <= 1), f"slow HTTP: {connections(server)} are still open")


def test_slow_resp(check):
    with weir_server.Server(SLOW) as server:
        with abuse_tools.Watch(server, check, "slow RESP", MOST):
            drip_all(check, server, RESP, lambda name, said: not said or said.startswith(b"-ERR"))
        values = abuse_tools.metrics(server)
        late = abuse_tools.total(values, "weir_protocol_errors_total", protocol="resp", kind="timeout")
        check(late >= EACH * (len(RESP) - 1), f"slow RESP: {late} timeouts counted")


def test_slow_reader_of_its_answers_is_no_slow_sender(check):
    """Whole requests, one a while, keep a connection for as long as they come."""
    checks.in_time(lambda scale: now_and_then(check, 5.0 * scale))


def now_and_then(check, timeout):
    """False: the machine made "now and then" too rare."""
    with weir_server.Server(f"--threads 2 --idle-timeout {timeout:g}s") as server, server.client() as client:
        spoke = time.monotonic()
        for _ in range(4):
            try:
                answer = client.call("PING")
            except ConnectionError:
                answer = "closed"
            before, spoke = spoke, time.monotonic()
            if answer == "closed" and spoke - before > timeout * 0.8:
                return False
            check.equal(answer, "PONG", "a request now and then")
            time.sleep(timeout * 0.4)
    return True


# ---- silence ----

def ends_of(sockets, start, seconds):
    """When each was closed by the server, in seconds from the start; None: it was not."""
    ends = {}
    selector = selectors.DefaultSelector()
    for it in sockets:
        it.setblocking(False)
        selector.register(it, selectors.EVENT_READ)
    while len(ends) < len(sockets) and time.monotonic() - start < seconds:
        for key, _ in selector.select(0.1):
            try:
                part = key.fileobj.recv(1 << 16)
            except OSError:
                part = b""
            if not part:
                ends[key.fileobj] = time.monotonic() - start
                selector.unregister(key.fileobj)
    return [ends.get(it) for it in sockets]


def test_silent_connections(check):
    with weir_server.Server(IDLE) as server:
        with abuse_tools.Watch(server, check, "silence", MOST, idle=TIMEOUT):
            start = time.monotonic()
            silent = [abuse_tools.connect(server.port) for _ in range(200)]
            ends = ends_of(silent, start, TIMEOUT + SWEEP + SLACK)
            check(None not in ends, f"silence: {ends.count(None)} of {len(silent)} are still connected")
            told = [end for end in ends if end is not None]
            # a connection is as old as the look at the clock before it was let in
            check(told and min(told) >= TIMEOUT - SWEEP, f"silence: the first was let go after {min(told)} s")
            for it in silent:
                it.close()


def test_half_closed_connections(check):
    """A peer that has said all it will say: what it asked is answered, then the connection ends."""
    forever = 3600
    with weir_server.Server(f"--threads 2 --request-timeout {forever}s --idle-timeout {forever}s") as server:
        with abuse_tools.Watch(server, check, "half-closed", MOST, least_answers=1):
            said = abuse_tools.exchange(server.port, b"", half_close=True)
            check.equal(said, b"", "half-closed: closed without waiting for its time, nothing said")
            said = abuse_tools.exchange(server.port, b"PING\r\n", half_close=True)
            check.equal(said, b"+PONG\r\n", "half-closed: RESP is answered")
            said = abuse_tools.exchange(server.port, HEAD + b"\r\n\r\n", half_close=True)
            check.equal(abuse_tools.statuses(said), [200], "half-closed: HTTP is answered")
            said = abuse_tools.exchange(server.port, HEAD, half_close=True)
            check(abuse_tools.statuses(said) in ([], [400], [408]), f"half-closed: half a request ends: {said}")


def test_vanished_peers(check):
    """Connections whose peer is gone without a word, as when a machine loses power or a NAT forgets."""
    with weir_server.Server(f"--threads 2 --request-timeout {TIMEOUT:g}s --idle-timeout {TIMEOUT:g}s") as server:
        with abuse_tools.Watch(server, check, "vanished", MOST, idle=TIMEOUT):
            gone = 0
            for i in range(100):
                it = abuse_tools.connect(server.port)
                it.sendall(b"PING\r\n" if i % 2 else HEAD)
                if i % 2:
                    it.recv(64)
                try:
                    it.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)  # closing sends nothing now
                    gone += 1
                except OSError:
                    linger = struct.pack("ii", 1, 0)  # not allowed: a reset then
                    it.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                it.close()
            there = server.wait_for(lambda: connections(server) <= 4)
            check(there, f"vanished: {connections(server)} connections are still held")
        print(f"  vanished: {gone} of 100 without a word, the others by a reset", flush=True)


def connections(server):
    values = abuse_tools.metrics(server)
    return abuse_tools.total(values, "weir_open_connections")


# ---- TLS ----

def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", "key.pem", "-out", "cert.pem", "-days", "1", "-subj", "/CN=localhost"],
                   cwd=folder, check=True, capture_output=True)


def test_slow_handshakes(check):
    """A TLS port: silent peers and such that drip their hello are let go as others are."""
    server = weir_server.Server(f"{SLOW} --listen-tls 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem")
    make_certificate(server.folder)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 500
    with server:
        with abuse_tools.Watch(server, check, "slow handshakes", MOST):
            port = next(it for it in server.ports if it != server.port)
            senders = Senders(port, {"a hello": (b"", hello), "silence": (b"", b"\x16")})
            latest = TIMEOUT + SWEEP + SLACK
            senders.run(latest)
            senders.close()
            for name in ("a hello", "silence"):
                ends = [when for when, _ in senders.ended.get(name, [])]
                check.equal(len(ends), EACH, f"TLS, {name}: let go")
                check(ends and max(ends) <= latest, f"TLS, {name}: the last was let go after {max(ends or [0]):.1f} s")


TESTS = [test_slow_http, test_slow_resp, test_slow_reader_of_its_answers_is_no_slow_sender, test_silent_connections,
         test_half_closed_connections, test_vanished_peers, test_slow_handshakes]

if __name__ == "__main__":
    sys.exit(abuse_tools.main(TESTS))

#!/usr/bin/env python3
"""HTTP/2 by those who mean harm: each is sent away or bounded, the server goes on for the others, memory too."""
import socket
import struct
import sys
import time

from lib import abuse_tools, checks, h2_frames as h2
from lib.h2_server import Server

OPTIONS = ("--max-body", "100000", "--request-timeout", "1s", "--max-connections", "500")


def is_within(server, most):
    """Whether its memory is. Sanitizers need several times as much: bounds do not hold then."""
    return abuse_tools.is_sanitized() or server.resident() < most


def flood(check, server, name, data, times, wanted=h2.ENHANCE_YOUR_CALM, seconds=60):
    """Sends the same bytes over and over until the server has enough."""
    with h2.Peer(server.port, timeout=seconds) as peer:
        peer.socket.setblocking(False)
        sent, kept, end = 0, b"", time.monotonic() + seconds
        pending = data
        while sent < times and time.monotonic() < end:
            try:
                size = peer.socket.send(pending)
                pending = pending[size:] or data
                sent += not pending or pending is data
            except BlockingIOError:
                time.sleep(0.001)
            except (BrokenPipeError, ConnectionResetError):
                break
            try:
                kept += peer.socket.recv(1 << 18)
            except (BlockingIOError, ConnectionResetError):
                pass
        peer.socket.settimeout(seconds)
        peer.kept = kept
        error = peer.goaway()
        check.equal(error, wanted, f"{name}: how it ended after {sent} of {times}")
    check(server.alive(), f"{name}: the server goes on")


def test_floods(check):
    with Server(*OPTIONS) as server:
        before = server.resident()
        flood(check, server, "pings", h2.frame(h2.PING, 0, 0, b"x" * 8) * 1000, 200)
        flood(check, server, "settings", h2.settings((3, 100)) * 1000, 200)
        flood(check, server, "acknowledged settings", h2.frame(h2.SETTINGS, h2.ACK) * 1000, 200, h2.PROTOCOL_ERROR)
        flood(check, server, "priorities", h2.frame(h2.PRIORITY, 0, 1, b"\0\0\0\0\x10") * 1000, 200)
        flood(check, server, "window updates of 1", h2.window_update(0, 1) * 1000, 200)
        check(is_within(server, before + 30000), f"memory: {before} KB before, {server.resident()} KB now")
        check.equal(server.metric("weir_protocol_errors_total", protocol="grpc", kind="too_large"), 4,
                    "floods are counted")
        with h2.Peer(server.port) as peer:  # costs what reading costs, and an answer is none
            peer.send(h2.frame(0xbe, 0, 0, b"x") * 100000)
            check(peer.ping(), "frames of unknown kinds are passed over")


def test_rapid_reset(check):
    """Streams opened and reset at once, by the ten thousand (CVE-2023-44487)."""
    with Server(*OPTIONS) as server, h2.Peer(server.port) as peer:
        ask = h2.request()
        sent = 0
        for first in range(1, 40001, 2000):
            if not peer.send(b"".join(h2.headers(i, ask, h2.END_HEADERS) + h2.reset(i)
                                      for i in range(first, first + 2000, 2))):
                break
            sent += 1000
        check.equal(peer.goaway(), h2.ENHANCE_YOUR_CALM, f"resets: sent away after {sent}")
        check(server.alive(), "the server goes on")


def test_made_to_reset(check):
    """The peer makes us reset its streams (CVE-2025-8671, MadeYouReset): requests that are broken on purpose."""
    with Server(*OPTIONS) as server:
        for name, broken in (
                ("window updates of 0", lambda i: h2.headers(i, h2.request(), h2.END_HEADERS) + h2.window_update(i, 0)),
                ("windows that overflow", lambda i: h2.headers(i, h2.request(), h2.END_HEADERS) +
                 h2.window_update(i, 0x7fffffff)),
                ("data behind the end", lambda i: h2.headers(i, h2.request()) + h2.frame(h2.DATA, 0, i, b"x")),
                ("malformed heads", lambda i: h2.headers(i, h2.block([(":bad", "x")])))):
            with h2.Peer(server.port) as peer:
                for first in range(1, 20001, 1000):
                    if not peer.send(b"".join(broken(i) for i in range(first, first + 1000, 2))):
                        break
                error = peer.goaway()
                check(error in (h2.ENHANCE_YOUR_CALM, h2.PROTOCOL_ERROR, 5), f"{name}: sent away ({error})")
            check(server.alive(), f"{name}: the server goes on")


def test_empty_data(check):
    with Server(*OPTIONS) as server, h2.Peer(server.port) as peer:
        post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
        peer.send(h2.headers(1, post, h2.END_HEADERS))
        for _ in range(100):
            if not peer.send(h2.frame(h2.DATA, 0, 1, b"") * 1000):
                break
        check.equal(peer.goaway(), h2.ENHANCE_YOUR_CALM, "data frames without data")
        check(server.alive(), "the server goes on")


def test_continuations(check):
    """A head that never ends (CVE-2024-28182), and one of empty pieces."""
    with Server(*OPTIONS) as server:
        for name, piece in (("long pieces", h2.literal("x", "y" * 15000)), ("empty pieces", b"")):
            before = server.resident()
            with h2.Peer(server.port) as peer:
                peer.send(h2.frame(h2.HEADERS, 0, 1, h2.request()))
                for _ in range(2000):
                    if not peer.send(h2.frame(h2.CONTINUATION, 0, 1, piece)):
                        break
                error = peer.goaway()
                check(error in (h2.ENHANCE_YOUR_CALM, h2.PROTOCOL_ERROR, 2, None), f"{name}: sent away ({error})")
                check(peer.ended, f"{name}: closed")
            check(is_within(server, before + 20000), f"{name}: memory")
            check(server.alive(), f"{name}: the server goes on")


def test_bombs(check):
    """A few bytes that name one long field ten thousand times."""
    with Server(*OPTIONS) as server, h2.Peer(server.port) as peer:
        before = server.resident()
        remembered = h2.literal("x", "y" * 4000, 0x40, 6)
        peer.send(h2.headers(1, h2.request() + remembered + b"\xbe" * 10000))
        error = peer.goaway() if not peer.ended else None
        check.equal(error, h2.ENHANCE_YOUR_CALM, "sent away")
        check(is_within(server, before + 10000), "memory")
        check(server.alive(), "the server goes on")
    with Server(*OPTIONS) as server, h2.Peer(server.port) as peer:
        peer.send(h2.headers(1, h2.request(fields=[("x", "y" * 1140)] * 14)))
        _, body, _ = peer.answer(1)
        check(b'"status":431' in body, f"a head somewhat too long is answered: {body}")
        check(peer.ping(), "and the connection lives on")


def test_garbage(check):
    with Server(*OPTIONS) as server:
        for name, data in (
                ("garbage behind the preface", b"\xff" * 5000),
                ("HTTP/1 behind the preface", b"GET / HTTP/1.1\r\n\r\n" * 100),
                ("a frame too large", h2.settings() + struct.pack(">I", 1 << 20)[1:] + b"\0\0\0\0\0\1"),
                ("settings of five bytes", h2.frame(h2.SETTINGS, 0, 0, b"12345")),
                ("settings on a stream", h2.settings() + h2.frame(h2.SETTINGS, 0, 1)),
                ("a ping of seven bytes", h2.settings() + h2.frame(h2.PING, 0, 0, b"1234567")),
                ("data on no stream", h2.settings() + h2.frame(h2.DATA, 0, 0, b"x")),
                ("data on an idle stream", h2.settings() + h2.frame(h2.DATA, 0, 9, b"x")),
                ("an even stream", h2.settings() + h2.headers(2, h2.request())),
                ("a continuation of nothing", h2.settings() + h2.frame(h2.CONTINUATION, 4, 1, b"")),
                ("a broken head", h2.settings() + h2.headers(1, b"\xff\xff\xff\xff\xff\xff\xff")),
                ("a promise from a client", h2.settings() + h2.frame(h2.PUSH_PROMISE, 4, 1, b"\0\0\0\2")),
                ("padding longer than the frame", h2.settings() + h2.headers(1, h2.request(), h2.END_HEADERS) +
                 h2.frame(h2.DATA, h2.PADDED, 1, b"\xff123"))):
            with h2.Peer(server.port, hello=False) as peer:
                peer.send(h2.PREFACE + data)
                error = peer.goaway()
                check(error not in (None, 0, "still open"), f"{name}: sent away, saying why ({error})")
            check(server.alive(), f"{name}: the server goes on")
        for cut in (1, 3, 15, 16, 20, 23):
            with h2.Peer(server.port, hello=False) as peer:
                peer.send(h2.PREFACE[:cut] + b"\0" * 40)
                check(peer.goaway() != "still open", f"a preface that goes wrong at byte {cut}")
        check(server.alive(), "the server goes on")


def test_too_many_streams(check):
    with Server("--request-timeout", "1h") as server, h2.Peer(server.port) as peer:
        peer.until(lambda it: it.kind == h2.SETTINGS and not it.flags & h2.ACK)
        peer.send(h2.frame(h2.SETTINGS, h2.ACK))
        check(peer.ping(), "settled")
        post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
        peer.send(b"".join(h2.headers(2 * i + 1, post, h2.END_HEADERS) for i in range(129)))
        refused = peer.until(lambda it: it.kind in (h2.RST_STREAM, h2.GOAWAY))
        check(refused is not None and (refused.kind == h2.GOAWAY or refused.stream == 257),
              f"the 129th stream is refused: {refused}")
        check(server.alive(), "the server goes on")


def test_bodies(check):
    """Bodies that never end, on as many streams as there may be."""
    with Server(*OPTIONS) as server:
        before = server.resident()
        post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
        peers = []
        for _ in range(5):
            peer = h2.Peer(server.port)
            peers.append(peer)
            peer.send(b"".join(h2.headers(2 * i + 1, post, h2.END_HEADERS) for i in range(120)))
            peer.socket.setblocking(False)
            for round_ in range(6):
                for i in range(120):
                    try:
                        peer.socket.send(h2.frame(h2.DATA, 0, 2 * i + 1, b" " * 16000))
                    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                        pass
        time.sleep(0.3)
        check(is_within(server, before + 80000), f"memory: {before} KB before, {server.resident()} KB now")
        check(server.alive(), "the server goes on")
        for peer in peers:
            peer.socket.close()


def test_late_streams(check):
    """A request that never becomes whole is ended after its time, while others of the connection are answered."""
    with Server(*OPTIONS) as server, h2.Peer(server.port, (4, 5)) as peer:
        post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
        ended, start = {}, time.monotonic()
        peer.send(h2.headers(1, post, h2.END_HEADERS) + h2.frame(h2.DATA, 0, 1, b"{"))
        peer.send(h2.headers(3, h2.request()))  # its answer never fits into a window of five bytes
        while len(ended) < 2 and time.monotonic() - start < 60:
            peer.send(h2.frame(h2.PING, 0, 0, b"12345678"))
            it = peer.until(lambda it: it.kind in (h2.RST_STREAM, h2.GOAWAY) or it.kind == h2.PING)
            if it is None or it.kind == h2.GOAWAY:
                break
            if it.kind == h2.RST_STREAM:
                ended[it.stream] = struct.unpack(">I", it.payload)[0]
            time.sleep(0.05)
        check.equal(ended, {1: h2.CANCEL, 3: h2.CANCEL}, "both are ended")
        check(time.monotonic() - start >= 1, f"not before their time: {time.monotonic() - start:.3f} s")
        check(peer.ping(), "the connection lives on")


def test_silent(check):
    """Half open: nothing comes after the first frames, or after half a preface."""
    with Server(*OPTIONS[2:], "--idle-timeout", "2s") as server:
        post = h2.request("/v1/take", "POST", fields=[("content-type", "application/json")])
        for name, data in (("a request that never ends", h2.PREFACE + h2.settings() +
                            h2.headers(1, post, h2.END_HEADERS)),
                           ("nothing but a preface", h2.PREFACE), ("half a preface", h2.PREFACE[:10]),
                           ("half a frame", h2.PREFACE + h2.settings() + b"\0\0\x10")):
            with h2.Peer(server.port, hello=False) as peer:
                start = time.monotonic()
                peer.send(data)
                check(peer.goaway() != "still open", f"{name}: closed")
                check(time.monotonic() - start >= 0.99, f"{name}: not before its time: {time.monotonic() - start:.3f} s")
        check(server.alive(), "the server goes on")


def test_vanishing(check):
    """Peers that go without a word, in the middle of everything."""
    with Server(*OPTIONS) as server:
        for i in range(300):
            peer = h2.Peer(server.port)
            peer.send(b"".join(h2.headers(2 * j + 1, h2.request("/metrics")) for j in range(20)))
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.socket.close()
        check(server.alive(), "the server goes on")
        end = time.monotonic() + 60
        while (server.metric("weir_open_connections") or 0) > 3 and time.monotonic() < end:
            time.sleep(0.05)
        check((server.metric("weir_open_connections") or 0) <= 3, "none is left over")


def test_nobody_elses(check):
    """Who goes while his answers are written: none of them reaches the next connection."""
    asks = {
        "HTTP/1": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100,
        "HTTP/2": h2.PREFACE + h2.settings((4, 0x7fffffff)) + h2.window_update(0, 0x7fffffff - 65535) +
        b"".join(h2.headers(2 * i + 1, h2.request("/metrics")) for i in range(100)),
    }
    for name, ask in asks.items():
        wrong = 0
        with Server(threads=1) as server:
            for i in range(120):
                with socket.create_connection(("127.0.0.1", server.port), 60) as other, \
                        socket.create_connection(("127.0.0.1", server.port), 60) as leaver:
                    leaver.sendall(ask)
                    time.sleep(0.0005 * (i % 12))
                    leaver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    leaver.close()
                    other.sendall(b"PING\r\n")
                    wrong += other.recv(100) != b"+PONG\r\n"
        check.equal(wrong, 0, f"{name}: connections that got what was another's")


if __name__ == "__main__":
    sys.exit(checks.run([test_floods, test_rapid_reset, test_made_to_reset, test_empty_data, test_continuations, test_bombs,
                  test_garbage, test_too_many_streams, test_bodies, test_late_streams, test_silent, test_vanishing,
                  test_nobody_elses], sys.argv[1:]))

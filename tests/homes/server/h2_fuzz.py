#!/usr/bin/env python3
"""HTTP/2 sessions that are right, and then broken at random: the server goes on, answers others, and ends clean.

    h2_fuzz.py [ROUNDS [SEED]]      a failure prints the seed that brings it back
"""
import random
import select
import socket
import struct
import sys

import grpc_service
from lib import checks, h2_frames as h2

CHECK_EVERY = 200


def some_settings(dice):
    kinds = [(1, (0, 1, 4096, 65536)), (2, (0, 1, 2)), (3, (0, 1, 100)), (4, (0, 1, 65535, 0x7fffffff, 0x80000000)),
             (5, (16384, 16777215, 1, 16777216)), (6, (0, 100, 65536)), (8, (0, 1, 2)), (9, (0, 1)), (99, (0, 7))]
    return h2.settings(*((kind, dice.choice(values)) for kind, values in dice.sample(kinds, dice.randrange(4))))


def some_request(dice, stream):
    """The frames of a whole request, of one kind or another."""
    what = dice.randrange(6)
    if what == 0:
        message = grpc_service.rate_limit_request(dice.choice(("shop", "elsewhere", "")), *[
            [(dice.choice(("user", "free", "load")), "x" * dice.choice((0, 1, 30, 5000)))] for _ in
            range(dice.randrange(4))])
        return [grpc_service.grpc_frames(stream, grpc_service.METHOD, message, flag=dice.choice((0, 0, 0, 1, 2)))]
    if what == 1:
        fields = [("content-type", "application/json")] + [("cookie", f"a{i}=b") for i in range(dice.randrange(4))]
        head = h2.request(dice.choice(("/v1/take", "/json", "/v1/takeall", "/v1/simulate")), "POST", fields=fields)
        body = dice.choice((b'{"key":"k","limit":"token-bucket 5/s"}', b"{}", b"[" * 50, b"x" * 9000,
                            b'{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"u"}]}]}'))
        at = dice.randrange(len(body))
        return [h2.headers(stream, head, h2.END_HEADERS), h2.frame(h2.DATA, 0, stream, body[:at]),
                h2.frame(h2.DATA, h2.END_STREAM, stream, body[at:])]
    if what == 2:
        head = h2.request(fields=[("x" * dice.randrange(1, 50), "y" * dice.randrange(3000))])
        at = dice.randrange(len(head))
        return [h2.frame(h2.HEADERS, h2.END_STREAM, stream, head[:at]) +
                h2.frame(h2.CONTINUATION, h2.END_HEADERS, stream, head[at:])]
    if what == 3:
        return [h2.headers(stream, h2.request("/metrics")), h2.window_update(stream, dice.choice((0, 1, 0x7fffffff)))]
    if what == 4:
        head = h2.request("/v1/take", "POST", fields=[("expect", "100-continue"), ("te", "trailers")])
        return [h2.headers(stream, head, h2.END_HEADERS), h2.frame(h2.DATA, h2.PADDED, stream, b"\5abc\0\0\0\0\0"),
                h2.headers(stream, h2.block([("trailer", "x")]))]
    return [h2.headers(stream, h2.request("/v1/take?key=f&limit=leaky-bucket+1000/s+burst+9&hold=true&wait=any"))]


def session(dice):
    """The frames of a connection, mostly in a sensible order."""
    frames = [some_settings(dice)]
    for i in range(dice.randrange(1, 12)):
        frames += some_request(dice, 2 * i + 1)
        if dice.random() < 0.2:
            frames.append(h2.reset(dice.randrange(1, 2 * i + 3), dice.randrange(14)))
        if dice.random() < 0.2:
            frames.append(dice.choice((h2.frame(h2.PING, dice.randrange(2), 0, b"12345678"), some_settings(dice),
                                       h2.window_update(0, dice.randrange(1, 70000)), h2.frame(h2.SETTINGS, h2.ACK),
                                       h2.frame(h2.PRIORITY, 0, 2 * i + 1, b"\0\0\0\1\7"),
                                       h2.frame(h2.GOAWAY, 0, 0, struct.pack(">II", 1, 0)))))
    return frames


def broken(dice, frames):
    """The bytes of a session with something wrong in them, or nothing."""
    what = dice.randrange(6)
    if what == 0:
        dice.shuffle(frames)
    elif what == 1:
        frames.insert(dice.randrange(len(frames)), frames[dice.randrange(len(frames))])
    data = bytearray(h2.PREFACE + b"".join(frames))
    if what in (2, 3):
        for _ in range(dice.randrange(1, 8)):
            data[dice.randrange(len(h2.PREFACE), len(data))] = dice.randrange(256)
    elif what == 4:
        at = dice.randrange(len(h2.PREFACE), len(data))
        data[at:at + dice.randrange(40)] = dice.randbytes(dice.randrange(40))
    return bytes(data)


def play(dice, port):
    """One connection: written in portions, read now and then, ended in order or not."""
    data = broken(dice, session(dice))
    with socket.create_connection(("127.0.0.1", port), 60) as peer:
        try:
            while data:
                size = dice.choice((1, 9, 100, 5000, 1 << 20))
                peer.sendall(data[:size])
                data = data[size:]
                if len(data) > 3000:
                    continue
                if dice.random() < 0.1 and select.select([peer], [], [], 0)[0] and not peer.recv(1 << 16):
                    return
            if dice.random() < 0.5:
                peer.shutdown(socket.SHUT_WR)
                while select.select([peer], [], [], 0.05)[0] and peer.recv(1 << 18):
                    pass
            elif dice.random() < 0.5:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            pass  # the server may end it whenever it likes


def fuzz_sessions(check, rounds=1500, seed=None):
    seed = seed if seed is not None else checks.seed()
    dice = random.Random(seed)
    with grpc_service.serve() as server:
        for i in range(rounds):
            play(dice, server.port)
            if i % CHECK_EVERY == CHECK_EVERY - 1 and \
                    not check(server.alive(), f"seed {seed}: alive after {i + 1} sessions"):
                return
        with h2.Peer(server.port) as peer:
            check(peer.ping(), f"seed {seed}: a new connection is served")
    check(True, "it ended clean")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]

    def fuzz(check):
        fuzz_sessions(check, *numbers)

    sys.exit(checks.run([fuzz], []))

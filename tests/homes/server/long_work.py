#!/usr/bin/env python3
"""Simulations beside everything else: what may wait is bounded, what nobody waits for is dropped, and a stop waits for
none of it.

    tests/homes/server/long_work.py [NAME …]
"""
import json
import os
import pathlib
import re
import select
import signal
import socket
import sys
import time

from lib import abuse_tools, checks, h2_frames as h2, http_client, weir_server

PLAY = {"limits": ["sliding-log 30000/366d"] * 6, "load": {"kind": "steady", "rate": 1000, "seconds": 30}}
SMALL = {"limits": ["fixed-window 5/s"], "load": {"kind": "steady", "rate": 5, "seconds": 2}}
OF_ADDRESS = 16  # as documented


def files_of(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def is_pending(server, number):
    """Whether the signal waits to be taken. Two of one kind that wait are one."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    waiting = int(re.search(r"^ShdPnd:\s+(\w+)$", status, re.M)[1], 16)
    return bool(waiting >> (number - 1) & 1)


def ask_all(server, count):
    """So many connections, each of which asks for a simulation."""
    clients = [http_client.Client(server.port) for _ in range(count)]
    for client in clients:
        client.send(http_client.post("/v1/simulate", PLAY))
    return clients


def test_queue_is_bounded(check):
    with weir_server.Server("--threads 2") as server:
        server.signal(signal.SIGSTOP)  # so that all of them are there before the first is done
        clients = ask_all(server, 60)
        server.signal(signal.SIGCONT)
        with http_client.Client(server.port) as other:
            check.equal(other.get("/healthz").status, 200, "health beside it")
            check.equal(other.post("/v1/reload", {}).status, 200, "a reload does not wait in line")
        answers = [client.read() for client in clients]
        done = sum(answer.status == 200 for answer in answers)
        refused = [answer for answer in answers if answer.status == 503]
        check(done >= 1 and done + len(refused) == len(clients), f"{done} done, {len(refused)} told to come back")
        check(refused and all(answer.fields.get("retry-after") for answer in refused), f"with Retry-After: {refused[:1]}")
        check(done <= 2 * OF_ADDRESS, f"no more than may wait, and those that were done meanwhile: {done}")
        check.equal(clients[-1].post("/v1/simulate", SMALL).status, 200, "later it is done again")
        for client in clients:
            client.close()


def test_streams_are_bounded(check):
    """HTTP/2: one connection has less than all of them; streams that are reset take their work along."""
    head = h2.request("/v1/simulate", "POST", fields=[("content-type", "application/json")])
    body = h2.frame(h2.DATA, h2.END_STREAM, 0, json.dumps(PLAY).encode())
    with weir_server.Server("--threads 1") as server, h2.Peer(server.port, (4, 1 << 24)) as peer:
        streams = list(range(1, 41, 2))
        peer.send(b"".join(h2.headers(stream, head, h2.END_HEADERS) + body[:5] + stream.to_bytes(4, "big") + body[9:]
                           for stream in streams))
        peer.send(h2.window_update(0, 1 << 24))
        refused, done = 0, 0
        while done + refused < len(streams):
            it = peer.next()
            if it is None:
                break
            if it.kind == h2.DATA and it.flags & h2.END_STREAM:
                refused += b"too many of these" in it.payload
                done += b"too many of these" not in it.payload
        check(refused > 0 and done > 0 and refused + done == len(streams), f"{done} done, {refused} refused")
        first = streams[-1] + 2
        mine = range(first, first + 8, 2)
        peer.send(b"".join(h2.headers(stream, head, h2.END_HEADERS) + body[:5] + stream.to_bytes(4, "big") + body[9:]
                           for stream in mine))
        peer.send(b"".join(h2.reset(stream) for stream in mine))
        check(peer.ping(), "the connection goes on")
        status, last = None, first + 8
        while status != 200 and last < first + 2000:  # what ran is stopped in a moment
            peer.send(h2.headers(last, head, h2.END_HEADERS) + body[:5] + last.to_bytes(4, "big") + body[9:])
            status = peer.answer(last)[0]
            last += 2
        check.equal(status, 200, "and has room for the next")


def test_who_left_is_forgotten(check):
    """Descriptors and work go with the client, also where it only says that it has nothing more to say."""
    with weir_server.Server("--threads 1") as server:
        before = files_of(server)
        server.signal(signal.SIGSTOP)
        clients = ask_all(server, 4 * OF_ADDRESS)
        server.signal(signal.SIGCONT)
        check(server.wait_for(lambda: files_of(server) >= before + len(clients) // 2), "they are let in")
        for client in clients:
            client.close()
        check(server.wait_for(lambda: files_of(server) <= before + 1, 2.0), f"descriptors: {files_of(server)}, {before}")
        with http_client.Client(server.port) as client:
            check.equal(client.post("/v1/simulate", SMALL).status, 200, "the next one")


def test_last_word(check):
    """Who says that nothing more comes gets every answer that is due; only the simulation is given up."""
    takes = http_client.get("/v1/take", key="half", limit="fixed-window 1000/366d") * 10
    play = http_client.post("/v1/simulate", PLAY)
    for name, asks in (("behind", takes + play), ("between", takes + play + takes), ("before", play + takes)):
        with weir_server.Server("--threads 1") as server, http_client.Client(server.port) as client:
            client.send(asks)
            check(server.wait_for_charges("half", "fixed-window 1000/366d", 10 if name != "before" else 0), f"{name}: they are read")
            client.socket.shutdown(socket.SHUT_WR)
            said = abuse_tools.read_all(client.socket)
            count = asks.count(b"/v1/take?")
            check.equal(said.count(b'"allowed":true'), count, f"{name}: every take is answered")
            check.equal(said.count(b"HTTP/1.1 "), count + 1, f"{name}: and so is the simulation: {said[-300:]}")


def test_stop_waits_for_none(check):
    for options, again in (("--drain-timeout 1s", False), ("--drain-timeout 1h", True)):
        with weir_server.Server("--threads 1 " + options) as server:
            server.signal(signal.SIGSTOP)
            clients = ask_all(server, OF_ADDRESS)
            server.signal(signal.SIGCONT)
            check(server.wait_for(lambda: files_of(server) > OF_ADDRESS), "they are let in")
            for _ in range(1 + again):
                server.signal(signal.SIGSTOP)  # so that we know what was done before
                abuse_tools.wait_until_stopped(server)
                done = len(select.select([client.socket for client in clients], [], [], 0)[0])
                start = time.monotonic()
                server.signal(signal.SIGTERM)
                server.signal(signal.SIGCONT)
                server.wait_for(lambda: server.process.poll() is not None or not is_pending(server, signal.SIGTERM))
            server.process.wait(weir_server.STOP_SECONDS)
            took = time.monotonic() - start
            heads = [abuse_tools.read_all(client.socket)[:40] for client in clients]
            check(all(head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")) or head == b"" for head in heads), f"{heads}")
            late = sum(head.startswith(b"HTTP/1.1 200") for head in heads) - done
            check(late < OF_ADDRESS // 2, f"{options}: {late} were still done, in {took:.2f} s")
            for client in clients:
                client.close()
            server.stop()


def test_memory_is_counted(check):
    """Bodies that wait are part of the bound for everything."""
    with weir_server.Server("--threads 1 --max-body 4194304") as server:
        body = b'{"limits":["fixed-window 5/s"],' + b" " * 4000000 + b'"load":{"kind":"steady","rate":5,"seconds":2}}'
        before = abuse_tools.memory(server)
        clients = [http_client.Client(server.port) for _ in range(40)]
        whole = http_client.request("POST", "/v1/simulate", {"content-type": "application/json"}, body)
        answers = []
        for client in clients:
            client.send(whole)
        answers = [client.read().status for client in clients]
        check(set(answers) <= {200, 503}, f"{answers}")
        grown = abuse_tools.memory(server) - before
        check(grown < 300 << 20, f"grown by {grown >> 20} MiB")
        for client in clients:
            client.close()


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]

if __name__ == "__main__":
    sys.exit(checks.run(TESTS, sys.argv[1:]))

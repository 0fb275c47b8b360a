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
OF_CONNECTION = 4


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


def work_of_one(server):
    """What one simulation costs, in seconds of work."""
    before = abuse_tools.cpu_seconds(server)
    with http_client.Client(server.port) as client:
        for _ in range(3):
            client.post("/v1/simulate", PLAY)
    return max(0.005, (abuse_tools.cpu_seconds(server) - before) / 3)


class Reading:
    """How long the server takes to read requests. In that time it may do some of them, and take others in their place: as
    many as it has time for, on a machine that is busy with others."""

    def __init__(self, server):
        self.client, self.start = http_client.Client(server.port), 0.0
        self.server, self.looks, self.before = server, 0, 0
        self.before = self.seen()

    def seen(self):
        self.looks += 1
        return abuse_tools.total(abuse_tools.metrics(self.server, self.client), "weir_requests_total") - self.looks

    def begin(self):
        self.start = time.monotonic()

    def end(self, count, each):
        """Waits until so many are read; how many could be done meanwhile, each of which takes so long. Twice as many, since
        that is measured in hundredths of a second."""
        self.server.wait_for(lambda: self.seen() >= self.before + count)
        self.client.close()
        return 1 + int(2 * (time.monotonic() - self.start) / each)


def test_queue_is_bounded(check):
    with weir_server.Server("--threads 2") as server:
        each, reading = work_of_one(server), Reading(server)
        server.signal(signal.SIGSTOP)  # so that all of them are there before the first is done
        abuse_tools.wait_until_stopped(server)
        clients = ask_all(server, 60)
        reading.begin()
        server.signal(signal.SIGCONT)
        meanwhile = reading.end(len(clients), each)
        with http_client.Client(server.port) as other:
            check.equal(other.get("/healthz").status, 200, "health beside it")
            check.equal(other.post("/v1/reload", {}).status, 200, "a reload does not wait in line")
        answers = [client.read() for client in clients]
        done = sum(answer.status == 200 for answer in answers)
        refused = [answer for answer in answers if answer.status == 503]
        check(done >= 1 and done + len(refused) == len(clients), f"{done} done, {len(refused)} told to come back")
        check(all(answer.fields.get("retry-after") for answer in refused), f"with Retry-After: {refused[:1]}")
        check(done <= OF_ADDRESS + meanwhile, f"no more than may wait, and the {meanwhile} that may be done meanwhile: {done}")
        check.equal(clients[-1].post("/v1/simulate", SMALL).status, 200, "later it is done again")
        for client in clients:
            client.close()


def test_streams_are_bounded(check):
    """HTTP/2: one connection has less than all of them; streams that are reset take their work along."""
    head = h2.request("/v1/simulate", "POST", fields=[("content-type", "application/json")])
    body = h2.frame(h2.DATA, h2.END_STREAM, 0, json.dumps(PLAY).encode())
    with weir_server.Server("--threads 1") as server, h2.Peer(server.port, (4, 1 << 24)) as peer:
        each, reading = work_of_one(server), Reading(server)
        streams = list(range(1, 41, 2))
        peer.send(h2.window_update(0, 1 << 24))
        reading.begin()
        peer.send(b"".join(h2.headers(stream, head, h2.END_HEADERS) + body[:5] + stream.to_bytes(4, "big") + body[9:]
                           for stream in streams))
        meanwhile = reading.end(len(streams), each)
        refused, done = 0, 0
        while done + refused < len(streams):
            it = peer.next()
            if it is None:
                break
            if it.kind == h2.DATA and it.flags & h2.END_STREAM:
                refused += b"too many of these" in it.payload
                done += b"too many of these" not in it.payload
        check(done > 0 and refused + done == len(streams), f"{done} done, {refused} refused")
        check(done <= OF_CONNECTION + meanwhile, f"no more than may wait, and the {meanwhile} that may be done meanwhile: {done}")
        first = streams[-1] + 2
        mine = range(first, first + 8, 2)
        peer.send(b"".join(h2.headers(stream, head, h2.END_HEADERS) + body[:5] + stream.to_bytes(4, "big") + body[9:]
                           for stream in mine))
        peer.send(b"".join(h2.reset(stream) for stream in mine))
        check(peer.ping(), "the connection goes on")
        status, last, end = None, first + 8, time.monotonic() + weir_server.PATIENCE_SECONDS
        while status != 200 and time.monotonic() < end:  # what ran is stopped in a moment
            peer.send(h2.headers(last, head, h2.END_HEADERS) + body[:5] + last.to_bytes(4, "big") + body[9:])
            status = peer.answer(last)[0]
            last += 2
            time.sleep(0.01)
        check.equal(status, 200, "and has room for the next")


def stop_beside(server, clients):
    """Stops the server; how many of those who asked were answered before."""
    server.signal(signal.SIGSTOP)
    abuse_tools.wait_until_stopped(server)
    return len(select.select([client.socket for client in clients], [], [], 0)[0])


def test_who_left_is_forgotten(check):
    """Descriptors and work go with the client, also where it only says that it has nothing more to say."""
    for _ in range(20):
        if who_left_is_forgotten(check):
            return
    check(False, "this machine does all the work before anybody can leave")


def who_left_is_forgotten(check):
    """False: most of the work was done before they left."""
    with weir_server.Server("--threads 1") as server:
        before, each = files_of(server), work_of_one(server)
        server.signal(signal.SIGSTOP)
        abuse_tools.wait_until_stopped(server)
        clients = ask_all(server, OF_ADDRESS)
        server.signal(signal.SIGCONT)
        check(server.wait_for(lambda: files_of(server) >= before + len(clients)), "they are let in")
        left = OF_ADDRESS - stop_beside(server, clients)
        for client in clients:
            client.close()
        start = abuse_tools.cpu_seconds(server)
        server.signal(signal.SIGCONT)
        if left < OF_ADDRESS // 2:
            return False
        check(server.wait_for(lambda: files_of(server) <= before + 1), f"descriptors: {files_of(server)}, {before}")
        with http_client.Client(server.port) as client:
            check.equal(client.post("/v1/simulate", SMALL).status, 200, "the next one")
        worked = abuse_tools.cpu_seconds(server) - start
        check(worked < each * left / 2, f"{left} simulations of {each:.2f} s are dropped: {worked:.2f} s of work")
    return True


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
    for again in (False, True):
        for _ in range(20):
            if stop_waits_for_none(check, again):
                break
        else:
            check(False, "this machine does all the work before it can be stopped")


def stop_waits_for_none(check, again):
    """False: most of the work was done before the signal was heard."""
    with weir_server.Server("--threads 1 --drain-timeout 1h") as server:
        each = work_of_one(server)
        server.signal(signal.SIGSTOP)
        abuse_tools.wait_until_stopped(server)
        clients = ask_all(server, OF_ADDRESS)
        server.signal(signal.SIGCONT)
        check(server.wait_for(lambda: files_of(server) > OF_ADDRESS), "they are let in")
        done = stop_beside(server, clients)  # so that we know what was done before
        start = time.monotonic()
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGCONT)
        server.wait_for(lambda: server.process.poll() is not None or not is_pending(server, signal.SIGTERM))
        meanwhile = 2 + int(2 * (time.monotonic() - start) / each)  # until it was heard
        if again:
            server.signal(signal.SIGTERM)
        server.process.wait(weir_server.STOP_SECONDS)
        heads = [abuse_tools.read_all(client.socket)[:40] for client in clients]
        check(all(head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503")) or head == b"" for head in heads), f"{heads}")
        late = sum(head.startswith(b"HTTP/1.1 200") for head in heads) - done
        for client in clients:
            client.close()
        server.stop()
        if done + meanwhile > OF_ADDRESS // 2:
            return False
        check(late < OF_ADDRESS - done - 1, f"{late} of {OF_ADDRESS - done} were still done")
    return True


def test_memory_is_counted(check):
    """Bodies that wait are part of the bound for everything."""
    env = {"ASAN_OPTIONS": "quarantine_size_mb=1"}  # or the sanitizer keeps what was freed
    with weir_server.Server("--threads 1 --max-body 4194304", env=env) as server:
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

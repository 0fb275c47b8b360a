#!/usr/bin/env python3
"""Connections by the thousand: idle ones, such that never read their answers, held answers, more than may be. Memory
stays in bounds, the bounds are kept, and an honest client does not notice.

    tests/homes/server/abuse_connections.py [--long] [NAME …]
"""
import json
import resource
import selectors
import sys
import time

from lib import abuse_tools, checks, http_client, weir_server
from lib.abuse_tools import MIB

SPARE_FILES = 200
TAKE = b"*3\r\n$9\r\nWEIR.TAKE\r\n$1\r\nk\r\n$17\r\ntoken-bucket 10/s\r\n"
GET = b"GET /v1/take?key=k&limit=token-bucket+10/s HTTP/1.1\r\nHost: localhost\r\n\r\n"


def raise_files():
    """As many descriptors as this process may have; how many."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


# ---- idle ones ----

def test_idle_connections(check):
    """Ten thousand that have asked once and are kept, as pools of clients do."""
    wanted = min(10000, raise_files() - SPARE_FILES)
    with weir_server.Server("--threads 2 --max-connections 15000 --idle-timeout 1h") as server:
        with abuse_tools.Watch(server, check, "idle", 96 * MIB, pause=0.0005):
            before = abuse_tools.memory(server)
            idle = [abuse_tools.connect(server.port, source=f"127.0.0.{2 + i % 4}") for i in range(wanted)]
            server.wait_for(lambda: files_of(server) >= wanted)
            silent = abuse_tools.memory(server)
            kinds = (b"PING\r\n", GET)
            for i, it in enumerate(idle):
                it.sendall(kinds[i % 2])
            for it in idle:
                it.recv(4096)
            used = abuse_tools.memory(server)
            check(server.wait_for(lambda: wanted <= total_open(server) <= wanted + 6),
                  f"idle: {total_open(server)} connections counted")
            print(f"  idle: {wanted} connections, {(silent - before) / wanted:.0f} bytes each before the first request, "
                  f"{(used - before) / wanted:.0f} after it", flush=True)
            check((used - before) / wanted < 6000 or abuse_tools.is_sanitized(),
                  f"idle: {(used - before) / wanted:.0f} bytes each")
            rush(check, server, "idle")
            for it in idle:
                it.close()
            check(server.wait_for(lambda: total_open(server) <= 6), "idle: closed connections are let go")


def rush(check, server, name, seconds=1.0):
    """Honest pipelines as fast as they go; prints how fast."""
    with server.client() as client:
        end, done = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            replies = client.pipeline([("WEIR.TAKE", "rush", abuse_tools.HONEST_LIMIT)] * 100, 100)
            done += sum(isinstance(reply, list) and reply[0] == 1 for reply in replies)
    check(done > 0 and done % 100 == 0, f"{name}: {done} right answers to a pipeline")
    print(f"  {name}: {done / seconds:.0f} honest takes a second in pipelines", flush=True)


def total_open(server):
    return abuse_tools.total(abuse_tools.metrics(server), "weir_open_connections")


def files_of(server):
    return abuse_tools.total(abuse_tools.metrics(server), "process_open_fds")


def let_go(server):
    """How many were let go because their time was over, and because there was no memory for them."""
    values = abuse_tools.metrics(server)
    return (abuse_tools.total(values, "weir_protocol_errors_total", kind="timeout"),
            abuse_tools.total(values, "weir_refused_connections_total", reason="memory"))


# ---- those that never read ----

def send_until_full(sockets, data, most, quiet=15):
    """Sends copies of data down all of them until none takes more at so many looks in a row, or each has had `most` bytes;
    how many went."""
    block = data * (65536 // len(data))
    sent = dict.fromkeys(sockets, 0)
    selector = selectors.DefaultSelector()
    for it in sockets:
        it.setblocking(False)
        selector.register(it, selectors.EVENT_WRITE)
    looks = 0
    while selector.get_map() and looks < quiet:
        looks += 1
        for key, _ in selector.select(0.1):
            it = key.fileobj
            try:
                sent[it] += it.send(block[sent[it] % len(block):])
                looks = 0
            except BlockingIOError:
                continue
            except OSError:  # it was let go
                sent[it] = max(sent[it], most)
            if sent[it] >= most:
                selector.unregister(it)
    return sum(sent.values())


def never_read(check, name, data, count, most=96 * MIB):
    """Pipelines a million requests and never reads an answer: the server stops reading in its turn, keeps a bounded
    rest, and lets go when the time is over."""
    with weir_server.Server("--threads 2 --request-timeout 4s") as server:
        with abuse_tools.Watch(server, check, name, most):
            deaf = [abuse_tools.connect(server.port, receive=4096) for _ in range(count)]
            sent = send_until_full(deaf, data, 1000000 * len(data))
            print(f"  {name}: {count} that never read, {sent / count / len(data):.0f} requests sent each, "
                  f"{abuse_tools.memory(server) / MIB:.1f} MiB", flush=True)
            check(server.wait_for(lambda: sum(let_go(server)) >= count), f"{name}: let go for time and for memory, of "
                  f"{count}: {let_go(server)}")
            gone = server.wait_for(lambda: total_open(server) <= 6)
            check(gone, f"{name}: {total_open(server):.0f} connections are still open")
            for it in deaf:
                it.close()


def test_never_reading_over_resp(check):
    never_read(check, "deaf over RESP", TAKE, 100)


def test_never_reading_over_http(check):
    never_read(check, "deaf over HTTP", GET, 100)


def test_never_reading_long_answers(check):
    """/metrics answers far more than it is asked."""
    never_read(check, "deaf to long answers", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 100)


def test_all_memory_is_bounded_together(check):
    """More that never read than there is memory for."""
    count = min(2000, raise_files() - SPARE_FILES) if abuse_tools.is_long() else 700
    never_read(check, "deaf by the hundred", TAKE, count, most=400 * MIB)


def test_half_requests_fill_all_memory(check):
    """Long requests that never end, more than there is memory for: the last are let go, and who sends short ones in
    two parts does not notice."""
    key = b"$65536\r\n" + b"k" * 65536 + b"\r\n$6\r\ngcra 1\r\n$1\r\n1\r\n"
    half = b"*50\r\n$12\r\nWEIR.TAKEALL\r\n$2\r\n16\r\n" + key * 15
    # they are all sent in much less than the timeout
    with weir_server.Server("--threads 2 --request-timeout 20s --max-memory 32m") as server:
        with abuse_tools.Watch(server, check, "half requests", 116 * MIB, in_parts=True):
            greedy = [abuse_tools.connect(server.port) for _ in range(60)]
            for it in greedy:
                try:
                    it.sendall(half)
                except OSError:
                    pass
            check(server.wait_for(lambda: let_go(server)[1] > 0), "half requests: some are let go for memory")
            print(f"  half requests: {abuse_tools.memory(server) / MIB:.0f} MiB, {let_go(server)[1]:.0f} let go",
                  flush=True)
            check(server.wait_for(lambda: sum(let_go(server)) >= len(greedy)), "half requests: the others for time: "
                  f"{let_go(server)} of {len(greedy)}")
            check(server.wait_for(lambda: total_open(server) <= 6), "half requests: nothing is left")
            for it in greedy:
                it.close()


def test_slow_reading_is_served(check):
    """One that reads slowly, but reads, gets every answer."""
    checks.in_time(lambda scale: slow_reading(check, 2 * scale))


def slow_reading(check, timeout):
    """For two timeouts. False: the machine kept us from reading for so long that we did not read at all."""
    with weir_server.Server(f"--threads 2 --request-timeout {timeout}s") as server, \
            abuse_tools.connect(server.port, receive=4096) as it:
        it.sendall(TAKE * 2000)
        got, start, gap = b"", time.monotonic(), 0.0
        read = start
        while got.count(b"*7\r\n") < 2000:
            try:
                part = it.recv(2000 if time.monotonic() - start < 2 * timeout else 65536)
            except ConnectionError:
                part = b""
            gap, read = max(gap, time.monotonic() - read), time.monotonic()
            if not part:
                break
            got += part
            time.sleep(0.01 * timeout if time.monotonic() - start < 2 * timeout else 0)
        if gap > timeout / 2:
            return False
        check.equal(got.count(b"*7\r\n"), 2000, "a slow reader: answers")
    return True


# ---- held answers ----

def test_held_answers(check):
    """Thousands of answers held back at once: each comes when its delay is over, none later than --max-delay allows."""
    wanted = min(5000, raise_files() - SPARE_FILES)
    delay = 4.0
    ask = http_client.post("/v1/take", {"key": "held", "limit": "leaky-bucket 1/s burst 1000000", "hold": True})
    with weir_server.Server(f"--threads 2 --max-delay {delay:g}s --request-timeout 2s") as server:
        with abuse_tools.Watch(server, check, "held", 256 * MIB, least_answers=200):
            before = abuse_tools.memory(server)
            held = [abuse_tools.connect(server.port) for _ in range(wanted)]
            for i, it in enumerate(held):
                it.sendall(ask.replace(b'"held"', b'"h%03d"' % (i % (wanted // 5))))
            ends = answers_of(held, abuse_tools.END_SECONDS)
            used = abuse_tools.memory(server, "VmHWM")
            for it in held:
                it.close()
        allowed = [when for status, when in ends if status == 200]
        denied = [when for status, when in ends if status == 429]
        check.equal(len(allowed) + len(denied), wanted, f"held: answers; others: {set(s for s, _ in ends)}")
        check.equal(len(allowed), wanted, "held: five a key are within the bound")
        print(f"  held: {wanted} answers, the last after {max(allowed):.1f} s, "
              f"{(used - before) / wanted:.0f} bytes each", flush=True)


def test_more_held_answers_than_memory(check):
    """Those beyond are told at once, with the delay that is left to the caller."""
    wanted = min(12000, raise_files() - SPARE_FILES)
    ask = http_client.post("/v1/take", {"key": "k00000", "limit": "leaky-bucket 1/6s burst 1000000", "hold": True})
    first = http_client.post("/v1/take", {"key": "k00000", "limit": "leaky-bucket 1/6s burst 1000000"})
    with weir_server.Server("--threads 2 --max-delay 20s --max-connections 15000") as server:
        with abuse_tools.Watch(server, check, "too many held", 400 * MIB, least_answers=200):
            many = [abuse_tools.connect(server.port) for _ in range(wanted)]
            for i, it in enumerate(many):
                it.sendall((first + ask).replace(b"k00000", b"k%05d" % i))
            early = [json.loads(body) for body in held_answers(many, abuse_tools.END_SECONDS)]
            check(all(it.get("allowed") for it in early), f"too many held: {[it for it in early if not it.get('allowed')][:2]}")
            told = sum(it.get("delay", 0) > 0 for it in early)
            check.equal(len(early), wanted, "too many held: all are answered")
            check(0 < told < wanted, f"too many held: {told} of {wanted} told at once")
            print(f"  too many held: {wanted - told} were held, {told} told at once", flush=True)
            for it in many:
                it.close()


def held_answers(sockets, seconds):
    """The bodies of the second answer on each."""
    end = time.monotonic() + seconds
    for it in sockets:
        data = b""
        while len(abuse_tools.statuses(data)) < 2 or not data.endswith(b"}\n"):
            it.settimeout(max(0.1, end - time.monotonic()))
            part = it.recv(1 << 16)
            if not part:
                break
            data += part
        yield data.rsplit(b"\r\n\r\n", 1)[-1]


def answers_of(sockets, seconds):
    """(status, seconds from now) of the first answer to each; status 0: none."""
    start, ends = time.monotonic(), {}
    selector = selectors.DefaultSelector()
    for it in sockets:
        selector.register(it, selectors.EVENT_READ)
    while len(ends) < len(sockets) and time.monotonic() - start < seconds:
        for key, _ in selector.select(0.1):
            found = abuse_tools.statuses(key.fileobj.recv(1 << 16))
            ends[key.fileobj] = (found[0] if found else 0, time.monotonic() - start)
            selector.unregister(key.fileobj)
    return [ends.get(it, (0, seconds)) for it in sockets]


def test_delays_beyond_the_bound_are_denied(check):
    limit = "leaky-bucket 1/h burst 100"
    with weir_server.Server("--threads 2 --max-delay 50m") as server, http_client.Client(server.port) as client:
        check.equal(client.post("/v1/take", {"key": "k", "limit": limit, "hold": True}).status, 200, "the first goes")
        answer = client.post("/v1/take", {"key": "k", "limit": limit, "hold": True})
        check.equal(answer.status, 429, "an hour is more than --max-delay: denied, and told without any delay")
        answer = client.post("/v1/take", {"key": "k", "limit": limit, "hold": True, "wait": "any"})
        check.equal(answer.status, 429, "whatever wait says")


def test_held_and_gone(check):
    """Clients that ask for a held answer and hang up: nothing is left of them when it is due."""
    ask = http_client.post("/v1/take", {"key": "k", "limit": "leaky-bucket 1000/s burst 1000000", "hold": True})
    with weir_server.Server("--threads 2 --max-delay 3s") as server:
        with abuse_tools.Watch(server, check, "held and gone", 256 * MIB, least_answers=200):
            for _ in range(2000):
                with abuse_tools.connect(server.port) as it:
                    it.sendall(ask)
            check(server.wait_for(lambda: total_open(server) <= 6), "held and gone: nothing is left")


# ---- how many may be ----

def is_open(it):
    """Whether a new connection is answered."""
    try:
        it.sendall(b"PING\r\n")
        return it.recv(64) == b"+PONG\r\n"
    except ConnectionError:
        return False


def is_let_in(server, source=None):
    with abuse_tools.connect(server.port, source=source) as it:
        return is_open(it)


def test_most_connections(check):
    with weir_server.Server("--threads 2 --max-connections 50") as server:
        with abuse_tools.Watch(server, check, "most connections", 64 * MIB, reconnect=False) as watch, \
                http_client.Client(server.port) as control:
            server.wait_for(watch.honest.is_in)
            check.equal(control.get("/healthz").status, 200, "most connections: one to count by")
            first = [abuse_tools.connect(server.port) for _ in range(100)]
            answered = [is_open(it) for it in first]
            check.equal(sum(answered), 47, "most connections: as many as may be, beside the honest one's two and ours")
            for it in first:
                it.close()
            check(server.wait_for(lambda: is_let_in(server)), "most connections: others may then")
            values = abuse_tools.metrics(server, control)
            refused = abuse_tools.total(values, "weir_refused_connections_total", reason="limit")
            check(refused >= 53, f"most connections: {refused} counted as refused")


def test_most_of_one_client(check):
    with weir_server.Server("--threads 2 --max-per-client 20") as server:
        with abuse_tools.Watch(server, check, "most of one client", 64 * MIB):
            greedy = [abuse_tools.connect(server.port, source="127.0.0.77") for _ in range(60)]
            check.equal(sum(map(is_open, greedy)), 20, "most of one client: as many as it may have")
            other = abuse_tools.connect(server.port, source="127.0.0.78")
            check(is_open(other), "most of one client: another one may")
            for it in greedy[:60]:
                it.close()
            check(server.wait_for(lambda: is_let_in(server, "127.0.0.77")),
                  "most of one client: it may again when it has closed some")
            other.close()
            refused = abuse_tools.total(abuse_tools.metrics(server), "weir_refused_connections_total", reason="limit")
            check(refused >= 40, f"most of one client: {refused} counted as refused")


def test_no_descriptors_left(check):
    """The system gives no more: those that are in are served, and others again as soon as some have gone."""
    with weir_server.Server("--threads 2") as server:
        with abuse_tools.Watch(server, check, "no descriptors", 64 * MIB, reconnect=False) as watch, \
                http_client.Client(server.port) as control:
            server.wait_for(watch.honest.is_in)
            refused = lambda: abuse_tools.total(abuse_tools.metrics(server, control), "weir_refused_connections_total",
                                                reason="files")
            there = int(abuse_tools.total(abuse_tools.metrics(server, control), "process_open_fds"))
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (there + 20, there + 20))
            many = [abuse_tools.connect(server.port) for _ in range(60)]
            check(server.wait_for(lambda: refused() >= 1), "no descriptors: counted")
            for it in many:
                it.close()
            check(is_let_in(server), "no descriptors: a connection is served when others have gone")


TESTS = [test_idle_connections, test_never_reading_over_resp, test_never_reading_over_http,
         test_never_reading_long_answers, test_half_requests_fill_all_memory, test_slow_reading_is_served,
         test_held_answers, test_delays_beyond_the_bound_are_denied, test_held_and_gone, test_most_connections,
         test_most_of_one_client, test_no_descriptors_left]

LONG = [test_all_memory_is_bounded_together, test_more_held_answers_than_memory]

if abuse_tools.is_long():
    TESTS += LONG

if __name__ == "__main__":
    sys.exit(abuse_tools.main(TESTS))

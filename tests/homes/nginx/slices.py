#!/usr/bin/env python3
"""Slices in real nginxes over a real Redis: one limit for several hosts, never exceeded, with few queries.

    slices.py [WORD …]    only the tests with such a word in their name

Floods note when each request was sent and when its answer was there. A request may have been decided at any moment between: so a
limit is exceeded if no choice of moments fits into it (`fits`).
"""
import contextlib
import heapq
import pathlib
import re
import select
import signal
import socket
import struct
import sys
import threading
import time

from lib import checks, clocks, nginx_server, redis_server
from lib.build import REDIS_MODULE
from lib.nginx_server import get, poll, serve
from lib.sanitizers import is_sanitized
from lib.store_proxy import Proxy

# a plain redis-server takes only a plain module: that of the build around
PLAIN = REDIS_MODULE.parent.parent / REDIS_MODULE.name if is_sanitized(REDIS_MODULE) else REDIS_MODULE
MODULE = f"--loadmodule {PLAIN}"
ENGINES = (("module", MODULE), ("lua", ""))[:1 if is_sanitized(REDIS_MODULE) else 2]  # nginx's part is the same
WORKERS = 4
RATE, BURST = 500, 400
BUCKET = f"token-bucket {RATE}/s burst {BURST}"
INFO = "location /info { weir_info; } location /metrics { weir_info prometheus; }"
CLIENTS = 6
AT_ONCE = 8  # requests on their way in one connection


def address(port, peers=1, share="10%", life="1s", more="deadline=10s"):
    return f"weir_store redis://127.0.0.1:{port}?slices={share}&peers={peers}&slice-life={life} {more};"


def sliced(port, limit=BUCKET, http="", workers=WORKERS, locations="", **options):
    """An nginx whose / is limited by Redis with slices, ?k= being the key and ?c= the cost."""
    return serve(f'location = / {{ weir_log_level info; weir_limit key=$arg_k zone=z cost=$arg_c "{limit}"; }}\n{locations} {INFO}',
                 address(port, **options) + http, workers=workers, listen="reuseport")


def slices(nginx):
    return nginx.get("/info").json["stores"][0]["slices"]


def is_settled(seen):
    """Whether nothing is held or on its way back; requests cost 1."""
    return seen["units"] == 0 and seen["units_taken"] == seen["local"] + seen["units_returned"] + seen["units_lost"]


def commands(redis, name="weir.take"):
    """How often Redis ran a command."""
    with redis.client() as client:
        found = re.search(rf"cmdstat_{re.escape(name)}:calls=(\d+)", client.call("INFO", "commandstats").decode())
    return int(found[1]) if found else 0


class Flood:
    """Requests one after the other over some connections of each nginx, until stop(). `passed`: (sent, answered) of those that
    were let through."""

    def __init__(self, *nginxes, path="/?k=hot", clients=CLIENTS):
        self.path, self.open, self.passed, self.denied, self.broken, self.others = path, True, [], 0, 0, set()
        self.local = self.degraded = 0
        self.threads = [threading.Thread(target=self.ask, args=(nginx,), daemon=True) for nginx in nginxes for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def ask(self, nginx):
        while self.open:
            try:
                with nginx.client() as client:
                    while self.open:
                        self.note(client)
            except OSError:  # its worker has ended
                self.broken += 1

    def note(self, client):
        sent = clocks.now()
        client.send(get(self.path) * AT_ONCE)
        for _ in range(AT_ONCE):
            answer = client.read()
            self.count(answer, sent, clocks.now())

    def count(self, answer, sent, answered):
        self.local += answer.weir.get("local") == "1"
        self.degraded += answer.weir.get("degraded") == "1"
        if answer.status == 200:
            self.passed.append((sent, answered))
        elif answer.status == 429:
            self.denied += 1
        else:
            self.others.add(answer.status)

    def wait(self, more):
        """Until there are so many more answers."""
        wanted = len(self.passed) + self.denied + more
        return poll(lambda: len(self.passed) + self.denied >= wanted)

    def stop(self):
        self.open = False
        for thread in self.threads:
            thread.join()
        return self


def fits(passed, rate=RATE, burst=BURST):
    """Whether a token bucket could have let all of these through, each at some moment between sent and answered: as late as it can
    be, but at once when the bucket is full, so that no token is lost. None, or how many tokens were missing."""
    events = sorted([(sent, 0, answered) for sent, answered in passed] + [(answered, 1, answered) for _, answered in passed])
    waiting, tokens, now = [], float(burst), 0.0
    for at, is_due, answered in events:
        tokens += rate * (at - now)
        now = at
        if not is_due:
            heapq.heappush(waiting, answered)
        elif waiting and waiting[0] <= at:  # else it was decided when the bucket was full
            heapq.heappop(waiting)
            tokens -= 1
        while waiting and tokens >= burst:
            heapq.heappop(waiting)
            tokens -= 1
        tokens = min(tokens, burst)
        if tokens < -1e-6:
            return -tokens
    return None


def judge(check, name, flood, floor=1):
    """The flood stayed within the limit, and got something."""
    check.equal(fits(flood.passed), None, f"{name}: over the limit, {len(flood.passed)} passed, {flood.denied} denied")
    check(len(flood.passed) >= floor, f"{name}: {len(flood.passed)} passed")
    check.equal((flood.others, flood.degraded), (set(), 0), f"{name}: other answers, and without Redis")
    check(flood.local > 0, f"{name}: {flood.local} without a query")


def test_checker(check):
    """The checker itself: it finds what is too much."""
    burst = [(0.0, 0.0)] * BURST
    check.equal(fits(burst), None, "a burst")
    check(fits(burst + [(0.0, 0.0)]), "one more at once")
    check.equal(fits(burst + [(0.0, 2 / RATE)]), None, "one more that may be a bit later")
    check(fits(burst + [(0.0, 2 / RATE)] * 3), "three of them")
    check(fits([(i / RATE / 1.1, i / RATE / 1.1) for i in range(12 * BURST)]), "a rate that is a tenth too high")


def test_flood(check):
    """Four workers: never over the limit, with few queries. First a slice is held while the bucket fills up again: a build that does
    not ask for less than the limit lets too many through then."""
    for name, options in ENGINES:
        with redis_server.Server(options) as redis, sliced(redis.port, life="5s") as nginx:
            first = Flood(nginx, clients=0)
            with nginx.client() as client:  # fewer than the limit allows, until the slices are as large as they can be
                check(poll(lambda: first.note(client) or slices(nginx)["units"] >= 20, step=2 * AT_ONCE / RATE), f"{name}: units are held")
            time.sleep(BURST / RATE)
            flood = Flood(nginx)
            flood.wait(4000)
            flood.stop()
            flood.passed += first.passed
            judge(check, name, flood, BURST)
            seen = slices(nginx)
            check(seen["units_taken"] >= seen["local"] > 0, f"{name}: units spent were taken: {seen}")
            check(seen["denied"] > 0, f"{name}: denied by what Redis said before: {seen}")
            if name == "module":
                asked, calls = len(flood.passed) + flood.denied + first.denied, commands(redis)
                check(5 * calls < asked, f"{calls} queries for {asked} requests")


def test_totals(check):
    """Nothing comes back in these: what passed is the limit, less what is withheld and what was lost on the way, to the request."""
    kinds = {"fixed-window 400/100d": 400, "fixed-window 400/100d from-first": 400, "sliding-log 400/100d": 360,
             "sliding-window 400/100d": 360, "sliding-counter 400/100d": 360, "token-bucket 1/100d burst 400": 360,
             "token-bucket 400/100d stepped": 360, "leaky-bucket 1/100d burst 399 nodelay": 360}
    locations = "".join(f'location = /{i} {{ weir_log_level info; weir_limit key=k{i} zone=z "{text}"; }}\n'
                        for i, text in enumerate(kinds))
    with redis_server.Server(MODULE) as redis, sliced(redis.port, locations=locations, life="300ms", more="deadline=10s denial_cache=off") as nginx:
        floods = [Flood(nginx, path=f"/{i}", clients=1) for i in range(len(kinds))]
        for flood, number in zip(floods, kinds.values()):
            poll(lambda: len(flood.passed) >= number - 20 or flood.denied > 100)
        passed = [len(flood.stop().passed) for flood in floods]
        check.equal([text for text, flood in zip(kinds, floods) if not flood.local], [], "without a single answer from a slice")

        def are_used_up():  # the rest, one by one and too slowly to be hot, until nothing is held or on its way back
            settled = is_settled(slices(nginx))
            answers = [nginx.get(f"/{i}") for i in range(len(kinds))]
            passed[:] = [n + (answer.status == 200) for n, answer in zip(passed, answers)]
            return settled and {(answer.status, answer.weir["local"]) for answer in answers} == {(429, "0")}
        check(poll(are_used_up, step=0.08), f"used up: {passed}")
        check.equal([text for text, n in zip(kinds, passed) if n > kinds[text]], [], "too many passed")
        check.equal(sum(passed) + slices(nginx)["units_lost"], sum(kinds.values()), f"passed, or lost: {passed}, {slices(nginx)}")


def test_killed(check):
    """A worker killed in the flood: nothing is spent twice, and it goes on."""
    with redis_server.Server(MODULE) as redis, sliced(redis.port) as nginx:
        nginx.allow(nginx_server.KILLED)
        flood = Flood(nginx)
        for _ in range(3):
            flood.wait(600)
            before = set(nginx.workers())
            nginx.send(signal.SIGKILL, min(before))
            check(nginx.wait_for(lambda: len(nginx.workers()) == WORKERS and min(before) not in nginx.workers()), "there is a new one")
        flood.wait(600)
        judge(check, "killed", flood.stop())


class Memory:
    """The memory of the pools, as a worker sees it. It begins with nginx's lock; what the module keeps begins at `start`."""

    def __init__(self, pid):
        self.pid = pid
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            ends = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-s", line)
            if not ends:
                continue
            self.base, self.end = int(ends[1], 16), int(ends[2], 16)
            if self.end - self.base > 2 << 20:  # larger than the zone
                break
        self.start, = struct.unpack("Q", self.read(self.base + 88, 8))
        self.pool_size, = struct.unpack("Q", self.read(self.start, 8))
        whole = self.read(self.start, 8192)
        self.pools = self.start + whole.index(struct.pack("Q", 1024)) + 8  # the number of sets comes before them

    def read(self, at, n):
        with open(f"/proc/{self.pid}/mem", "rb", 0) as memory:
            memory.seek(at)
            return memory.read(n)

    def write(self, at, data):
        with open(f"/proc/{self.pid}/mem", "r+b", 0) as memory:
            memory.seek(at)
            memory.write(data)

    def holder(self):
        return struct.unpack("Q", self.read(self.base, 8))[0]

    def hold(self, pid, changing):
        """As if that worker had the lock and were changing this."""
        self.write(self.start + 8, struct.pack("I", changing))
        self.write(self.base, struct.pack("Q", pid))

    def set_of(self, key):
        """In which set the pool of a key is, counted from 1."""
        table = self.read(self.pools, 4096 * self.pool_size)
        return table.index(key) // (4 * self.pool_size) + 1


def stop(nginx, pid):
    nginx.send(signal.SIGSTOP, pid)
    stat = pathlib.Path(f"/proc/{pid}/stat")
    return nginx.wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")


def hold(check, nginx, victim, key=None):
    """Stops a worker as if it had the lock, in the middle of changing the pool of that key."""
    memory, workers = Memory(victim), nginx.workers()

    def is_free():
        check(all(stop(nginx, pid) for pid in workers), "all are stopped")
        if memory.holder() == 0:
            return True
        for pid in workers:
            nginx.send(signal.SIGCONT, pid)
        return False
    check(poll(is_free), "nobody has the lock")
    memory.hold(victim, memory.set_of(key) if key else 0)
    for pid in workers:
        if pid != victim:
            nginx.send(signal.SIGCONT, pid)
    return memory


def test_stopped(check):
    """A worker that holds the lock and does not run: the others ask Redis, and nobody waits."""
    with redis_server.Server(MODULE) as redis, sliced(redis.port, workers=2) as nginx:
        flood = Flood(nginx)
        check(nginx.wait_for(lambda: slices(nginx)["local"] > 0), "slices are taken")
        flood.stop()
        first = min(nginx.workers())
        memory = hold(check, nginx, first)
        clients, answers = [nginx.client() for _ in range(16)], []  # they go to either worker: those of the other one are answered
        for client in clients:
            client.send(get("/?k=other"))

        def read():
            for client in select.select([it.socket for it in clients], [], [], 0)[0]:
                answers.append(next(it for it in clients if it.socket is client).read())
                clients[:] = [it for it in clients if it.socket is not client]
            return answers
        poll(read)
        for client in clients:
            client.close()
        check(answers, "the other worker answers")
        check.equal({(it.status, it.weir["local"], it.weir["degraded"]) for it in answers}, {(200, "0", "0")}, "by Redis")
        memory.hold(0, 0)
        nginx.send(signal.SIGCONT, first)
        flood2 = Flood(nginx)
        flood2.wait(500)
        flood2.stop()
        flood2.passed += flood.passed
        judge(check, "stopped", flood2)


def test_starts_beside_the_lock(check):
    """A worker that cannot have the lock when it starts is counted later: the last one gives back what is held."""
    with redis_server.Server(MODULE) as redis, sliced(redis.port, workers=2) as nginx:
        nginx.allow(nginx_server.KILLED)
        flood = Flood(nginx)
        check(nginx.wait_for(lambda: slices(nginx)["local"] > 0), "slices are taken")
        flood.stop()
        first, other = nginx.workers()
        memory = hold(check, nginx, first)
        nginx.send(signal.SIGKILL, other)
        found = set()  # a list of children that is read while one ends may lack another
        check(nginx.wait_for(lambda: found.update(set(nginx.workers()) - {first, other}) or found), "there is a new one")
        new, = found
        with nginx.client() as client:  # it runs, or the connection is the other's
            client.send(get("/info"))
            select.select([client.socket], [], [], 1)
        memory.hold(0, 0)
        nginx.send(signal.SIGCONT, first)
        check(nginx.wait_for(lambda: struct.pack("i", new) in memory.read(memory.start, 4096)), "it is counted")


def test_dies_with_the_lock(check):
    """A worker that dies while it changes a pool: that pool is emptied, its units are lost, and it goes on."""
    with redis_server.Server(MODULE) as redis, sliced(redis.port, life="5s") as nginx:
        nginx.allow(nginx_server.KILLED)
        nginx.allow("was locked by")
        flood = Flood(nginx, path="/?k=a-key-to-be-found")
        check(nginx.wait_for(lambda: slices(nginx)["local"] > 0), "slices are taken")
        victim = min(nginx.workers())
        hold(check, nginx, victim, b"a-key-to-be-found")
        nginx.send(signal.SIGKILL, victim)
        check(nginx.wait_for(lambda: "a worker died while it changed" in nginx.errors()), "it is noticed")
        flood.wait(600)
        judge(check, "died", flood.stop())
        check.equal(nginx.errors().count("a worker died while it changed"), 1, "once")


class Gate(Proxy):
    """While it is closed, replies wait in it."""

    def __init__(self, port):
        super().__init__(port)
        self.opened = threading.Event()
        self.opened.set()

    def harm(self, sink, data):
        self.opened.wait()
        return False


def test_asker_killed(check):
    """A worker is killed while it asks for a slice: who waits for that slice in another worker does not wait for half of a deadline."""
    checks.in_time(lambda _: kill_the_asker(check))


def kill_the_asker(check):
    with redis_server.Server(MODULE) as redis, Gate(redis.port) as gate, \
            sliced(gate.port, "fixed-window 100k/366d", workers=2, life="5s", share="1%", peers=100) as nginx, \
            contextlib.ExitStack() as stack:
        nginx.allow(nginx_server.KILLED)
        clients = {}
        while len(clients) < 2:
            client = stack.enter_context(nginx.client())
            clients.setdefault(client.get("/info").json["worker"], client)
        (asker, first), (_, other) = clients.items()

        def is_local():
            first.send(get("/?k=hot"))
            return first.read().weir["local"] == "1"
        check(poll(is_local), "slices are taken")
        gate.opened.clear()

        def has_to_wait():
            first.send(get("/?k=hot"))
            if not select.select([first.socket], [], [], 0.2)[0]:
                return True
            first.read()
            return False
        check(poll(has_to_wait), "the first worker waits for its slice")
        other.send(get("/?k=hot"))
        sent = time.monotonic()
        if select.select([other.socket], [], [], 0.2)[0]:
            gate.opened.set()
            return False  # the first worker was only slow
        nginx.send(signal.SIGKILL, asker)
        gate.opened.set()
        answer = other.read()
        if time.monotonic() - sent > 4:  # the deadline is 10 s
            return False
        check.equal((answer.status, answer.weir["degraded"]), (200, "0"), "it passes, by a call of its own")
        check(nginx.wait_for(lambda: len(nginx.workers()) == 2), "there is a new worker")
        return True


def test_dies_beside_a_return(check):
    """A worker dies with the lock while units of that pool are on their way back: they count as held until they have arrived,
    two seconds at most, and nothing is taken in their place."""
    with redis_server.Server(MODULE) as redis, Gate(redis.port) as gate, \
            sliced(gate.port, "fixed-window 100k/366d", workers=2, life="100ms") as nginx:
        nginx.allow(nginx_server.KILLED)
        nginx.allow("was locked by")

        def is_local():
            return nginx.get("/?k=a-key-to-be-found").weir["local"] == "1"

        def is_on_its_way():
            """Closes the gate while units are held, and waits until they leave."""
            check(poll(is_local), "a slice")
            gate.opened.clear()
            closed = time.monotonic()
            poll(lambda: slices(nginx)["units"] == 0)
            if not is_settled(slices(nginx)):
                return closed
            gate.opened.set()
            return None
        closed = poll(is_on_its_way)
        check(closed, "units are on their way")
        victim = min(nginx.workers())
        hold(check, nginx, victim, b"a-key-to-be-found")
        nginx.send(signal.SIGKILL, victim)
        gate.opened.set()
        check(nginx.wait_for(lambda: "a worker died while it changed" in nginx.errors()), "it is noticed")
        check(poll(is_local), "slices are taken again")
        check(time.monotonic() - closed >= 2, "but not before the return has arrived")


def test_slot_beside_the_lock(check):
    """A worker gets the slot, but cannot note it because another one has the lock: it is released, and soon taken again."""
    with redis_server.Server(MODULE) as redis, Gate(redis.port) as gate, sliced(gate.port, workers=2) as nginx, \
            contextlib.ExitStack() as stack:
        clients = {}
        while len(clients) < 2:
            client = stack.enter_context(nginx.client())
            clients.setdefault(client.get("/info").json["worker"], client)
        (_, client), (holder, _) = clients.items()
        check(poll(lambda: client.get("/info").json["stores"][0]["state"] == "up"), "it is connected")
        gate.opened.clear()
        client.send(get("/?k=hot"))
        check(poll(lambda: commands(redis, "weir.acquire")), "the slot is asked for")
        memory = hold(check, nginx, holder)
        gate.opened.set()
        check.equal(client.read().status, 200, "the request passes")
        poll(lambda: commands(redis, "weir.release"), 2)  # it could not be noted, unless this machine was slow
        memory.hold(0, 0)
        nginx.send(signal.SIGCONT, holder)
        check(nginx.wait_for(lambda: client.get("/?k=hot") and slices(nginx)["slot"], 5), "it is taken again, long before the deadline")


def test_reload(check):
    """Reloads in the flood: pools and slot go over to the new workers."""
    with redis_server.Server(MODULE) as redis, sliced(redis.port) as nginx:
        flood = Flood(nginx)
        check(nginx.wait_for(lambda: slices(nginx)["local"] > 0), "slices are taken")
        for _ in range(3):
            before = slices(nginx)["local"]
            check(nginx.reload(wait=False), "reloaded")
            check(slices(nginx)["local"] >= before, "the counts go on")
            flood.wait(300)
        judge(check, "reload", flood.stop())


def test_peers(check):
    """Two hosts with a slot each, and a third without one: exact between them, and the third asks Redis."""
    with redis_server.Server(MODULE) as redis, sliced(redis.port, peers=2, workers=2) as one, \
            sliced(redis.port, peers=2, workers=2) as two, sliced(redis.port, peers=2, workers=2) as three:
        for nginx in (one, two):
            check(nginx.wait_for(lambda: nginx.get("/?k=first") and slices(nginx)["slot"]), "it has a slot")
        flood = Flood(one, two, three, clients=3)
        flood.wait(4000)
        both = poll(lambda: all(slices(nginx)["local"] > 0 for nginx in (one, two)))  # who comes late finds nothing left at first
        judge(check, "peers", flood.stop())
        seen = [slices(nginx) for nginx in (one, two, three)]
        check.equal([it["slot"] for it in seen], [True, True, False], "slots")
        check(both, f"two have slices: {seen}")
        check.equal((seen[2]["local"], seen[2]["units_taken"]), (0, 0), "the third has none")
        one.stop()  # and gives its slot back
        check(three.wait_for(lambda: three.get("/?k=first") and slices(three)["slot"]), "the third gets the slot")


def test_clients_leave(check):
    """Requests that wait for a slice while their clients leave; and a slice that comes too late for all who wait."""
    with redis_server.Server(MODULE) as redis, Proxy(redis.port) as proxy, \
            sliced(proxy.port, workers=2, more="deadline=150ms", life="200ms") as nginx:
        first = Flood(nginx)
        check(nginx.wait_for(lambda: slices(nginx)["local"] > 0), "slices are taken")
        first.stop()
        for delay in (0.05, 0.3):
            proxy.mode, proxy.delay = "slow", delay
            for _ in range(40):
                with socket.create_connection(("127.0.0.1", nginx.port)) as client:
                    client.sendall(get("/?k=hot") * 4)
            flood = Flood(nginx, clients=4)
            flood.wait(20)
            flood.stop()
            check.equal(flood.others, set(), f"{delay}: answers")
            proxy.mode = "pass"
            check(nginx.wait_for(lambda: nginx.get("/info").json["stores"][0]["queue"] == 0), f"{delay}: nothing is under way")
        check(nginx.wait_for(lambda: nginx.get("/?k=hot").weir["degraded"] == "0"), "Redis decides")


def test_given_back(check):
    """What is not wanted any more, or held at the end, is given back."""
    with redis_server.Server(MODULE) as redis, redis.client() as client:
        with sliced(redis.port, "fixed-window 100k/100d", life="100ms") as nginx:
            flood = Flood(nginx)
            check(nginx.wait_for(lambda: slices(nginx)["local"] > 0), "slices are taken")
            passed = len(flood.stop().passed)
            check(nginx.wait_for(lambda: slices(nginx)["units"] == 0), "nothing is held after a while")
            check(nginx.wait_for(lambda: is_settled(slices(nginx))), f"what was not spent is back: {slices(nginx)}")
            lost = slices(nginx)["units_lost"]  # an answer may have come too late
            check.equal(nginx.get("/?k=hot&c=0").weir["remaining"], str(100000 - passed - lost), "Redis has it")
        large = "fixed-window 100m/100d"  # if the slot was not given back above, it is free in ten seconds: the window must not be used up by then
        with sliced(redis.port, large, life="5s") as nginx:
            flood = Flood(nginx, path="/?k=end")
            check(nginx.wait_for(lambda: slices(nginx)["units"] > 0), "units are held")
            passed = len(flood.stop().passed)
            nginx.stop()
        with sliced(redis.port, large) as nginx:
            check.equal(nginx.get("/?k=end&c=0").weir["remaining"], str(100_000_000 - passed), "they are back, too")
            check(nginx.wait_for(lambda: nginx.get("/?k=next") and slices(nginx)["slot"], 5), "the slot was given back")
        check.equal(client.call("EXISTS", "weir:\0weir:slices"), 0, "and again")


def test_central(check):
    """What slices cannot answer is asked for, with the limit reduced."""
    locations = f"""
        location = /two {{ weir_limit key=$arg_k zone=z "fixed-window 1g/366d, sliding-log 100/366d"; }}
        location = /wait {{ weir_limit key=$arg_k zone=z "token-bucket 100/100d burst 100" wait=1s; }}
        location = /least {{ weir_limit key=$arg_k zone=z "sliding-log 100/366d" cost=$arg_c least=1; }}
        location = /on {{ weir_limit key=$arg_k zone=z "sliding-log 100/366d" on=4xx; }}
        location = /small {{ weir_limit key=$arg_k zone=z "sliding-log 9/366d"; }}
        location = /slow {{ weir_limit key=$arg_k zone=z "leaky-bucket 1/100d burst 9" wait=0s; }}
        location = /window {{ weir_limit key=$arg_k zone=z "fixed-window 100/366d" cost=$arg_c; }}
        location = /half {{ weir_limit key=$arg_k zone=z "token-bucket {RATE}/s burst {BURST // 2}" cost=$arg_c; }}
        location = /shadow {{ weir_dry_run on; weir_limit key=$arg_k zone=z "sliding-log 100/366d"; }}
        location = /clock {{ weir_test_clock $arg_t; weir_limit key=$arg_k zone=z "sliding-log 100/366d"; }}
        """
    with redis_server.Server(MODULE) as redis, sliced(redis.port, locations=locations, workers=1) as nginx:
        def passed(path, n=130):
            answers = [nginx.get(path) for _ in range(n)]
            return [it.status for it in answers].count(200), {it.weir["local"] for it in answers if it.status == 200}
        for path, number in (("/two?k=a", 90), ("/wait?k=b", 90), ("/small?k=d", 9), ("/slow?k=e", 1)):
            check.equal(passed(path), (number, {"0"}), path)
        check.equal([nginx.get("/least?k=f&c=95").weir["granted"], nginx.get("/least?k=f&c=95").status], ["90", 429], "least")
        check.equal([nginx.get("/window?k=g&c=91").status, nginx.get("/window?k=g&c=9").status, nginx.get("/window?k=g").status],
                    [200, 200, 429], "windows are not reduced")
        answer = nginx.get("/?k=h&c=390")
        check.equal((answer.status, answer.weir["limit"], answer.weir["retry_after_us"]), (429, str(BURST), ""), "more than there ever is")
        check.equal(nginx.get(f"/?k=h&c={BURST - BURST // 10}").status, 200, "as much as there is")
        check.equal(nginx.get("/?k=m").status, 200, "its pool is that of the larger size")
        for key, status in (("m", 429), ("n", 200)):
            check.equal(nginx.get(f"/half?k={key}&c={BURST // 2 - 30}").status, status, f"a smaller size of {key}: less by the larger one's")
        check.equal(passed("/on?k=i"), (130, {"0"}), "on=: charges that come back")
        check.equal({it.weir["status"] for it in [nginx.get("/shadow?k=j") for _ in range(130)]}, {"PASSED", "DRY_RUN"}, "dry run")
        at = nginx_server.T0
        statuses = [nginx.get(f"/clock?k=l&t={at + i}") for i in range(130)]
        check.equal(([it.status for it in statuses].count(200), {it.weir["local"] for it in statuses}), (90, {"0"}), "test clock")


def test_answers(check):
    """Fields and variables of answers from a slice; weir_info in both forms."""
    checks.in_time(lambda scale: answers_from_slices(check, f"{300 * scale}ms", scale == 12))


def answers_from_slices(check, life, is_last):
    """False: the machine held somebody up for so long that slices came too late, or requests came too seldom for slices."""
    with redis_server.Server(MODULE) as redis, sliced(redis.port, "fixed-window 1000/100d", workers=1, life=life) as nginx:
        answers, local = [], []
        while len(local) < 20 and len(answers) < 900:
            answers.append(nginx.get("/?k=ann"))
            local += [it for it in answers[-1:] if it.weir["local"] == "1"]
        if not is_last and (slices(nginx)["units_lost"] or len(local) < 20):
            return False
        check.equal(len(local), 20, f"from slices, of {len(answers)}")
        check.equal([it.weir["remaining"] for it in local], [str(999 - answers.index(it)) for it in local], "remaining counts down")
        check.equal({(it.status, it.weir["limit"], it.weir["degraded"], it.weir["status"]) for it in answers},
                    {(200, "1000", "0", "PASSED")}, "answers")
        check.contains(local[-1].fields["ratelimit"], f";r={local[-1].weir['remaining']};", "RateLimit")
        check.contains(local[-1].fields["ratelimit-policy"], "q=1000", "RateLimit-Policy")
        check(nginx.wait_for(lambda: is_settled(slices(nginx))), "all that was not spent is given back")  # now nothing moves
        text, seen = nginx.get("/metrics").text, slices(nginx)
        for line, number in (("decisions_total{", seen["local"]), ("units_total{", seen["units_taken"]), ("units{", 0), ("slot{", 1)):
            found = [it for it in text.splitlines() if it.startswith(f"nginx_weir_slices_{line}")]
            check(found[0].endswith(f" {number}"), f"metrics: {found[0]}, and {number} in JSON")
    return True


def test_small_slices(check):
    """More requests than a slice has units, and a slow Redis: who gets nothing of some slices asks for itself, before its deadline."""
    with redis_server.Server(MODULE) as redis, Proxy(redis.port) as proxy, \
            sliced(proxy.port, "fixed-window 1000/366d", workers=2, peers=50, more="deadline=4s") as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=hot") and slices(nginx)["local"] > 0), "slices are taken")
        proxy.mode, proxy.delay = "slow", 0.2  # two units each 0.2 s: 60 would take 6 s
        clients = [nginx.client() for _ in range(60)]
        for client in clients:
            client.send(get("/?k=hot"))
        answers = [client.read() for client in clients]
        check.equal({(it.status, it.weir["degraded"]) for it in answers}, {(200, "0")}, "all are decided by Redis")
        check(sum(it.weir["local"] == "1" for it in answers) >= 2, "some of them from slices")
        for client in clients:
            client.close()


def test_redis_away(check):
    """Without Redis the zone decides, as always; with it slices come back."""
    with redis_server.Server(MODULE) as redis, \
            sliced(redis.port, "fixed-window 100/366d", more="deadline=1s", life="100ms", peers=4, share="50%") as nginx:
        check(nginx.wait_for(lambda: nginx.get("/?k=a&c=0").weir["degraded"] == "0"), "Redis decides")
        redis.kill()
        check(nginx.wait_for(lambda: nginx.get("/info").json["stores"][0]["state"] == "down"), "weir_info says down")
        answers = [nginx.get("/?k=dead") for _ in range(101)]
        check.equal({it.weir["degraded"] for it in answers}, {"1"}, "decided without Redis")
        check.equal([it.status for it in answers].count(200), 25, "a share of 100 among 4")
        redis.start()
        check(nginx.wait_for(lambda: nginx.statuses([f"/?k={time.monotonic()}"] * 10) and slices(nginx)["local"] > 0), "slices are back")


def test_beside_slots(check):
    """A limit and slots in one location: the limit is decided from slices, and Redis gives the slots (docs/FLEET.md)."""
    with redis_server.Server(MODULE) as redis, \
            serve(f'location = / {{ weir_limit key=k zone=z "{BUCKET}"; weir_conn key=k zone=z 5; }} {INFO}', address(redis.port)) as nginx:
        check(nginx.wait_for(lambda: nginx.get("/").status == 200 and slices(nginx)["local"] > 0), "slices are taken")


def test_slots_refused(check):
    """A user who may not write the key of the slots: weir_info and the log of all workers say so, once, and that it is over."""
    def troubles():
        lines = nginx.get("/metrics").body.decode().splitlines()
        return {re.search(r'reason="(\w+)"', it)[1] for it in lines if it.startswith("nginx_weir_slices_trouble{") and it.endswith(" 1")}
    with redis_server.Server(MODULE) as redis, redis.client() as client:
        client.call("ACL", "SETUSER", "narrow", "on", "nopass", "~weir:k*", "+@all")
        store = address(redis.port).replace("//", "//narrow:x@")
        with serve(f'location = / {{ weir_limit key=k$arg_k zone=z "{BUCKET}"; }} {INFO}', store, workers=2, listen="reuseport") as nginx:
            nginx.allow("no slices are taken")
            check(nginx.wait_for(lambda: nginx.get("/") and "no slices are taken" in nginx.errors()), "the log says so")
            seen = slices(nginx)
            check.contains(seen["trouble"] or "", "NOPERM", f"weir_info: {seen}")
            check.equal((seen["slot"], seen["units_taken"], troubles()), (False, 0, {"refused"}), f"none are taken: {seen}")
            client.call("ACL", "SETUSER", "narrow", "allkeys")
            check(nginx.wait_for(lambda: "slices can be taken again" in nginx.errors()), "and that it is over, though nobody asks")
            check(nginx.wait_for(lambda: nginx.statuses(["/"] * 10) and slices(nginx)["local"] > 0), "slices are taken")
            check.equal((slices(nginx)["trouble"], troubles(), nginx.errors().count("no slices are taken")), (None, set(), 1), "said once")


def test_same_states(check):
    """Stores that differ in what does not matter share their pools; others do not. What is wrong is said."""
    with redis_server.Server(MODULE) as redis:
        url = f"redis://127.0.0.1:{redis.port}?slices=10%"
        locations = f"""location /a {{ weir_store {url}; weir_limit key=k zone=z "fixed-window 1000/366d"; }}
            location /b {{ weir_store {url}&fail=open deadline=1s; weir_limit key=k zone=z "fixed-window 1000/366d"; }}
            location /c {{ weir_store {url}&prefix=c:; weir_limit key=k zone=z "fixed-window 1000/366d"; }} {INFO}"""
        with serve(locations, "") as nginx:
            check(nginx.wait_for(lambda: nginx.get("/a") and nginx.get("/b") and slices(nginx)["local"] > 0), "slices are taken")
            seen = [it["slices"]["local"] for it in nginx.get("/info").json["stores"]]
            check.equal(seen[1:], [seen[0], 0], "one for both; another prefix: its own")
    for options, said in (("slices=60%", "at most 50%"), ("slices=5%&slice-life=1m", "from 10ms to 5s")):
        code, output = nginx_server.Nginx.check("weir_zone z 1m;", f"location / {{\nweir_store redis://host?{options};\n}}")
        check.equal(code, 1, f"{options}: refused")
        check.contains(output, said, options)
    for options, warned in (("?slices=5%", True), ("?slices=5% peers=1", True), ("?slices=5% peers=2", False), (" peers=1", False)):
        code, output = nginx_server.Nginx.check("weir_zone z 1m;", f"location / {{\nweir_store redis://host{options};\n}}")
        check.equal((code, "one process takes slices" in output), (0, warned), f"{options}: {output}")


if __name__ == "__main__":
    sys.exit(checks.run([it for name, it in list(globals().items()) if name.startswith("test_")], sys.argv[1:]))

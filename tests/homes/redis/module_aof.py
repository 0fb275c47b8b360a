#!/usr/bin/env python3
"""`appendfsync always` and a server that is killed again and again under load: no acknowledged charge is lost.

    module_aof.py [--long]

Refills are frozen (once in hours or days). After every restart, what the state says was spent is at least what
was acknowledged and at most what was sent; when the limits are used up, exactly the limit was spent.
"""
import random
import sys
import threading
import time

from lib import checks, lua_cases, module_cases, resp

WORKERS = 4
BATCH = 8
# What a fresh state admits, and a limit that gets nothing back while this runs.
LIMITS = {
    "bucket": (280, "token-bucket 1/366d burst 280"),
    "stepped": (6000, "token-bucket 6000/366d stepped"),
    "leaky": (250, "leaky-bucket 1/366d burst 249 nodelay"),
    "window": (6000, "fixed-window 6000/366d"),
    "first": (6000, "fixed-window 6000/30d from-first"),
    "log": (4000, "sliding-log 4000/d"),
    "slots": (6000, "sliding-window 6000/30d precision 1h"),
    "counter": (6000, "sliding-counter 6000/30d"),
    "leases": (1500, "concurrent 1500 lease 30d"),
}


class Worker(threading.Thread):
    """Takes on random keys until told to stop, through every death of the server."""

    def __init__(self, port, seed, stop):
        super().__init__()
        self.port, self.random, self.stop = port, random.Random(seed), stop
        self.acknowledged = dict.fromkeys(LIMITS, 0)
        self.sent = dict.fromkeys(LIMITS, 0)
        self.calls, self.wrong = 0, []

    def run(self):
        while not self.stop.is_set():
            try:
                with resp.Client(self.port, timeout=5.0) as client:
                    sha = lua_cases.load(client, "weir")["weir"]
                    while not self.stop.is_set():
                        self.batch(client, sha)
            except (OSError, ConnectionError, resp.RedisError):
                time.sleep(0.01)

    def batch(self, client, sha):
        names = self.random.choices(list(LIMITS), k=BATCH)
        calls = [module_cases.Call("take", name, LIMITS[name][1]) for name in names]
        lua = self.random.random() < 0.4
        commands = [call.by_lua(sha) if lua else call.by_module() for call in calls]
        for name in names:
            self.sent[name] += 1
        client.socket.sendall(b"".join(map(resp.encode, commands)))
        for name in names:
            reply = client.read()
            if isinstance(reply, Exception):
                if not str(reply).startswith(("LOADING", "NOSCRIPT")):
                    self.wrong.append(f"{name}: {reply}")
                self.sent[name] -= 1
                continue
            self.calls += 1
            self.acknowledged[name] += reply[0]
            self.sent[name] -= not reply[0]


def spent(client, name):
    most, limits = LIMITS[name]
    return most - client.call("WEIR.PEEK", name, limits)[2]


def check(tally, server, workers, what):
    """Between a death and the next: nobody is sending."""
    with server.client() as client:
        for name, (most, _) in LIMITS.items():
            acknowledged = sum(worker.acknowledged[name] for worker in workers)
            sent = sum(worker.sent[name] for worker in workers)
            found = spent(client, name)
            tally(acknowledged <= found <= min(sent, most),
                        f"{what}, {name}: acknowledged {acknowledged}, found {found}, sent {sent}, limit {most}")


def round_of(tally, server, pick, number, workers_before):
    """Load, a kill in the midst of it, a restart and a look."""
    stop = threading.Event()
    workers = [Worker(server.port, pick.random(), stop) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    time.sleep(pick.uniform(0.02, 0.25))
    server.kill()
    stop.set()
    for worker in workers:
        worker.join()
    server.start()
    workers_before += workers
    for worker in workers:
        tally.equal(worker.wrong, [], "errors under load")
    check(tally, server, workers_before, f"after kill {number}")


def use_up(tally, server):
    """Takes until nothing is left: the total is the limit, to the unit."""
    with server.client() as client:
        for name, (most, limits) in LIMITS.items():
            left = most - spent(client, name)
            replies = client.pipeline([("WEIR.TAKE", name, limits)] * (left + 20))
            tally.equal(sum(reply[0] for reply in replies), left, f"{name}: what was left")
            tally.equal(spent(client, name), most, f"{name}: all is spent")
    server.kill()
    server.start()
    with server.client() as client:
        for name, (most, _) in LIMITS.items():
            tally.equal(spent(client, name), most, f"{name}: all is spent, after one more kill")


def main(arguments):
    seed = checks.seed()
    pick, tally = random.Random(seed), checks.Checks()
    kills = 60 if "--long" in arguments else 8
    workers = []
    with module_cases.server("--appendonly yes --appendfsync always") as server:
        for number in range(1, kills + 1):
            round_of(tally, server, pick, number, workers)
        use_up(tally, server)
    print(f"seed {seed}: {sum(worker.calls for worker in workers)} calls, {kills} kills")
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
